"""Launches one after the other on arrays by name: what plans are made of."""

from __future__ import annotations

from tcusim.program.launches import Launch, Memory, PlanBuilder

__all__ = ["CHAIN", "Launch", "Launches", "Memory"]

# Products that accumulate before a rounded addition: each truncates, so long chains drift.
CHAIN = 16


class Launches(PlanBuilder):
    """A plan in the making, and why it is as it is. why: for each choice a line."""

    def __init__(self, *given: Memory) -> None:
        super().__init__(*given)
        self.why: list[str] = []

    @property
    def arrays(self) -> dict[str, Memory]:
        """The arrays by name."""
        return self.memory
