"""The simulator as a backend: "numpy"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tcusim.backends import Progress, register_built_in, require_out
from tcusim.errors import InputError
from tcusim.program.grammar import Program
from tcusim.program.launches import LaunchPlan
from tcusim.simulate.counts import steps_to_run
from tcusim.simulate.interpreter import Event, run_numpy

__all__ = ["NUMPY", "NumpyBackend"]


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
        watch: Callable[[Event], object] | None = None,
        check: bool = True,
        block_order: str = "ascending",
        seed: int = 0,
        **options: Any,
    ) -> dict[str, Any]:
        """Interpret the launches one by one; see `tcusim.backends.Backend.run`.

        `arch` None is the interpreter's default. `watch` is called with every event. `check`,
        `block_order` and `seed` are those of `tcusim.interpret`.
        """
        if stream is not None:
            raise InputError("the simulator has no streams; leave stream out")
        if options:
            raise InputError(
                f"numpy has no option {', '.join(options)}; it has watch, check, "
                f"block_order and seed"
            )
        require_out(plan, out)
        arrays = dict(inputs)
        for launch in plan.launches:
            given = {buffer: arrays[name] for buffer, name in launch.inputs.items()}
            watcher = watch
            if progress is not None:
                scalars = plan.scalars(launch)
                watcher = _Watcher(launch.program, scalars, progress, watch)
            made = run_numpy(
                launch.program,
                given,
                arch=arch or "hopper",
                watch=watcher,
                check=check,
                block_order=block_order,
                seed=seed,
            )
            arrays.update((name, made[buffer]) for buffer, name in launch.outputs.items())
        for name, array in (out or {}).items():
            array[...] = arrays[name]
            arrays[name] = array
        return {name: arrays[name] for name in plan.outputs}


class _Watcher:
    """Tells a user how far a launch is, event by event."""

    def __init__(
        self,
        program: Program,
        scalars: Mapping[str, int],
        progress: Progress,
        watch: Callable[[Event], object] | None,
    ) -> None:
        self.warps = program.warps
        self.per_batch = max(1, steps_to_run(program, scalars))
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
