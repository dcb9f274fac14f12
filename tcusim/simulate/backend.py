"""The simulator as a backend: "numpy"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tcusim.backends import Progress, register_built_in, require_options, require_out
from tcusim.errors import InputError, told
from tcusim.program.grammar import Program
from tcusim.program.launches import Launch, LaunchPlan
from tcusim.simulate.interpreter import Event, run_numpy
from tcusim.simulate.schedule import steps_to_run


class NumpyBackend:
    """The simulator: any program, any shape, every architecture, bit for bit."""

    name = "numpy"
    title = "the simulator, on NumPy"

    def available(self) -> str | None:
        """Return None: the simulator needs nothing but NumPy."""
        return None

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
        """Interpret the launches one by one; see `tcusim.backends.Backend.run`.

        `arch` None is the interpreter's default. The options are `watch`, a callable for every
        event, and `check`, `block_order` and `seed` of `tcusim.interpret`.
        """
        if stream is not None:
            raise InputError("the simulator has no streams; leave stream out")
        require_options(self, options, "watch", "check", "block_order", "seed")
        require_out(plan, out)
        watch = options.pop("watch", None)

        def launched(launch: Launch, given: dict[str, Any]) -> Mapping[str, Any]:
            watcher = watch
            if progress is not None:
                if not callable(progress):
                    raise InputError(
                        "progress must be a function of (steps done, all steps), got "
                        f"{told(progress)}"
                    )
                scalars = plan.scalars(launch)
                watcher = _Watcher(launch.program, scalars, progress, watch)
            named = "hopper" if arch is None else arch
            return run_numpy(launch.program, given, arch=named, watch=watcher, **options)

        return plan.run(inputs, out, launched)


class _Watcher:
    """Reports the progress of a launch, event by event."""

    def __init__(
        self,
        program: Program,
        scalars: Mapping[str, int],
        progress: Progress,
        watch: Callable[[Event], object] | None,
    ) -> None:
        self.warps = program.warps
        self.per_batch = max(1, steps_to_run(program.steps, scalars))
        self.most = max(1, program.grid(scalars)) * self.per_batch
        self.progress = progress
        self.watch = watch
        self.done = self.before = self.blocks = 0
        self.first = -1

    def __call__(self, event: Event) -> None:
        """Count a step of a batch of warps."""
        if self.watch is not None:
            self.watch(event)
        first = int(event.state.warps[0])
        if first != self.first:
            self.first, self.done, self.before = first, 0, self.before + self.blocks
            self.blocks = event.state.warps.size // self.warps
        self.done += 1
        done = self.before * self.per_batch + self.blocks * min(self.done, self.per_batch)
        self.progress(done, self.most)


NUMPY = NumpyBackend()
register_built_in(NUMPY)
