"""A backend: it runs programs one warp at a time, by draining the interpreter's events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tcusim.program.launches import LaunchPlan
from tcusim.simulate.interpreter import interpret


class OneWarpBackend:
    """Runs a program warp after warp, so that no result may depend on warps running together."""

    name = "example"
    title = "an example that runs one warp at a time"

    def available(self) -> str | None:
        """Return None: nothing is needed."""
        return None

    def run(
        self,
        plan: LaunchPlan,
        inputs: Mapping[str, Any],
        *,
        arch: str | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Run one launch after the other: each has its outputs after the last event."""
        arrays = dict(inputs)
        for launch in plan.launches:
            given = {buffer: arrays[name] for buffer, name in launch.inputs.items()}
            for event in interpret(launch.program, given, arch=arch or "hopper", warps_at_once=1):
                state = event.state
            made = state.outputs()
            arrays.update((name, made[buffer]) for buffer, name in launch.outputs.items())
        return {name: arrays[name] for name in plan.outputs}


BACKEND = OneWarpBackend()
