"""The host backend: runs the emitted CUDA text, unchanged, on the CPU through a C++ compiler.

Programs are emitted by `tcusim_cuda.emit`, compiled against the headers of this package, and run
with a fiber for each CUDA thread. No GPU is needed, and a debugger can step through the kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from tcusim.backends import Progress, require_out
from tcusim.errors import InputError, Unsupported
from tcusim.program.grammar import Program
from tcusim.program.launches import LaunchPlan
from tcusim_host.build import BuildError, build, build_many, source_folder, why_no_compiler
from tcusim_host.run import KernelError, run_kernel

__all__ = [
    "BACKEND",
    "BuildError",
    "HostBackend",
    "KernelError",
    "build",
    "build_many",
    "compile_programs",
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
        plan: LaunchPlan,
        inputs: Mapping[str, Any],
        *,
        out: Mapping[str, Any] | None = None,
        stream: Any = None,
        arch: str | None = None,
        progress: Progress | None = None,
        seed: int = 0,
        block_order: str = "ascending",
        debug: bool = False,
        **options: Any,
    ) -> dict[str, Any]:
        """Emit, compile (once) and run the launches; see `tcusim.backends.Backend.run`.

        `arch` None is "hopper". `seed`, `block_order`, `debug` and the errors are `run_kernel`'s;
        `progress` is called after each launch.
        """
        from tcusim_cuda.emit import emit

        if stream is not None:
            raise InputError("the host backend has no streams; leave stream out")
        if options:
            raise InputError(
                f"host has no option {', '.join(options)}; it has seed, block_order and debug"
            )
        require_out(plan, out)
        if not debug:
            compile_programs(launch.program for launch in plan.launches)
        arrays = dict(inputs)
        for launch in plan.launches:
            made = run_kernel(
                emit(launch.program),
                {buffer: arrays[name] for buffer, name in launch.inputs.items()},
                arch=arch or "hopper",
                seed=seed,
                block_order=block_order,
                debug=debug,
            )
            arrays.update((name, made[buffer]) for buffer, name in launch.outputs.items())
            if progress is not None:
                progress(1, 1)
        for name, array in (out or {}).items():
            array[...] = arrays[name]
            arrays[name] = array
        return {name: arrays[name] for name in plan.outputs}


def compile_programs(programs: Iterable[Program]) -> None:
    """Compile the kernels of several programs together, for runs to come: much faster than singly.

    A program for which no kernel is emitted is left out; to run it says why.
    """
    from tcusim_cuda.emit import emit

    kernels = []
    for program in programs:
        with suppress(Unsupported):
            kernels.append(emit(program))
    build_many(kernels)


BACKEND = HostBackend()
