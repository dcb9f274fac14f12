"""The host backend: runs the emitted CUDA text, unchanged, on the CPU through a C++ compiler.

Programs are emitted by `tcusim_cuda.emit`, compiled against the headers of this package, and run
with a fiber for each CUDA thread. No GPU is needed, and a debugger can step through the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tcusim.program.grammar import Program
from tcusim_host.build import BuildError, build, build_many, source_folder, why_no_compiler
from tcusim_host.run import KernelError, run_kernel

__all__ = [
    "BACKEND",
    "BuildError",
    "HostBackend",
    "KernelError",
    "build",
    "build_many",
    "run_kernel",
    "source_folder",
]


class HostBackend:
    """Runs a program's CUDA kernel on the CPU, with the arithmetic of any architecture."""

    name = "host"
    title = "the emitted CUDA text, on the CPU"

    def available(self) -> str | None:
        """Return None if there is a C++ compiler, else the reason and the command that helps."""
        return why_no_compiler()

    def run(
        self,
        program: Program,
        inputs: Mapping[str, Any],
        *,
        arch: str | None = None,
        seed: int = 0,
        block_order: str = "ascending",
        debug: bool = False,
        **options: Any,
    ) -> dict[str, Any]:
        """Emit, compile (once) and run a program; return its outputs as flat NumPy arrays.

        `arch` None is "hopper". The other parameters and the errors are `run_kernel`'s.
        """
        if options:
            raise TypeError(
                "the host backend has the options seed, block_order and debug, not "
                f"{', '.join(options)}"
            )
        from tcusim_cuda.emit import emit

        return run_kernel(
            emit(program),
            inputs,
            arch=arch or "hopper",
            seed=seed,
            block_order=block_order,
            debug=debug,
        )


BACKEND = HostBackend()
