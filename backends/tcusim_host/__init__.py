"""The host backend: runs the emitted CUDA text, unchanged, on the CPU through a C++ compiler.

Programs are emitted by `tcusim_cuda.emit`, compiled against the headers of this package, and run
with a fiber for each CUDA thread. No GPU is needed, and a debugger can step through the kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from tcusim.backends import Progress, Tapped, require_options, require_out
from tcusim.errors import InputError, Unsupported
from tcusim.program.grammar import Program
from tcusim.program.launches import Launch, LaunchPlan
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

# The architecture of a run that names none.
_USUAL: Final = "hopper"


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
        **options: Any,
    ) -> dict[str, Any]:
        """Emit, compile (once) and run the launches; see `tcusim.backends.Backend.run`.

        `arch` None is "hopper". The options `seed`, `block_order` and `debug`, and the errors, are
        `run_kernel`'s; `progress` is called after each launch.
        """
        from tcusim_cuda.emit import emit
        from tcusim_cuda.instructions import rule_of_lanes

        arch = arch or _USUAL
        if stream is not None:
            raise InputError("the host backend has no streams; leave stream out")
        require_options(self, options, "seed", "block_order", "debug")
        require_out(plan, out)
        if not options.get("debug"):
            compile_programs((launch.program for launch in plan.launches), arch=arch)

        def launched(launch: Launch, given: dict[str, Any]) -> Mapping[str, Any]:
            kernel = emit(launch.program, rule=rule_of_lanes(launch.program, arch))
            made = run_kernel(kernel, given, arch=arch, **options)
            if progress is not None:
                progress(1, 1)
            return made

        return plan.run(inputs, out, launched)

    def tap(
        self,
        program: Program,
        inputs: Mapping[str, Any],
        warps: Sequence[int],
        *,
        most: int,
        arch: str | None = None,
    ) -> Tapped:
        """Run a program with taps; see `tcusim.backends.TappingBackend.tap`."""
        from tcusim_cuda.instructions import rule_of_lanes
        from tcusim_cuda.taps import tap

        arch = arch or _USUAL
        run = functools.partial(run_kernel, arch=arch)
        return tap(program, inputs, warps, most, run, rule=rule_of_lanes(program, arch))

    def place(self) -> str:
        """Return the place that a trace names."""
        return self.name


def compile_programs(
    programs: Iterable[Program], *, taps: bool = False, arch: str = _USUAL
) -> None:
    """Compile the kernels of several programs together, for runs to come: much faster than singly.

    A program for which no kernel is emitted is left out; to run it says why. taps: compile those
    with taps instead. arch: the arithmetic to come.
    """
    from tcusim_cuda.emit import emit
    from tcusim_cuda.instructions import rule_of_lanes
    from tcusim_cuda.tapped import emit_tapped

    kernels = []
    for program in programs:
        with suppress(Unsupported):
            rule = rule_of_lanes(program, arch)
            made = emit_tapped(program, rule).kernel if taps else emit(program, rule=rule)
            kernels.append(made)
    build_many(kernels)


BACKEND = HostBackend()
