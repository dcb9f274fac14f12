"""A backend: it runs programs one warp at a time, by draining the interpreter's events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tcusim.program.grammar import Program
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
        program: Program,
        inputs: Mapping[str, Any],
        *,
        arch: str | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Return the outputs after the last event; a program with no events has none."""
        state = None
        for event in interpret(program, inputs, arch=arch or "hopper", warps_at_once=1):
            state = event.state
        return {} if state is None else state.outputs()


BACKEND = OneWarpBackend()
