"""What a program does, counted: mma steps, additions and bytes, from the interpreter's events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tcusim.interpret import Event
from tcusim.ir import Add, Level, Loop, Mma, Program, Step, View, When, accesses
from tcusim.numerics import format_of

__all__ = ["Counts", "steps_to_run"]


@dataclass(slots=True)
class Counts:
    """A watcher of events: call it with each one.

    mma: mma steps, over all warps. additions: rounded additions of whole accumulators.
    bytes_read, bytes_written: global memory, each element counted each time it is touched.
    """

    mma: int = 0
    additions: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    def __call__(self, event: Event) -> None:
        """Count one step of all the warps that ran it."""
        if isinstance(event.step, Mma):
            self.mma += event.warps.size
        elif isinstance(event.step, Add):
            self.additions += event.warps.size
        else:
            touched = accesses(event.step)
            self.bytes_read += sum(_bytes(event, view) for view in touched.views_read)
            self.bytes_written += sum(_bytes(event, view) for view in touched.views_written)


def _bytes(event: Event, view: View) -> int:
    """Return the bytes of global memory that a view names, where its bounds hold."""
    if view.buffer.level is not Level.GRID:
        return 0
    elements = event.warps.size * view.rows * view.cols
    if view.bounds:
        elements = int(event.state.valid(view, event.warps).sum())
    return elements * format_of(view.buffer.dtype).itemsize


def steps_to_run(program: Program, scalars: Mapping[str, int]) -> int:
    """Return how many leaf steps a batch of warps runs at most (both branches of each When)."""
    return _leaves(program.steps, scalars)


def _leaves(steps: tuple[Step, ...], scalars: Mapping[str, int]) -> int:
    total = 0
    for step in steps:
        if isinstance(step, Loop):
            total += step.count.evaluate(scalars) * _leaves(step.body, scalars)
        elif isinstance(step, When):
            total += _leaves(step.body + step.otherwise, scalars)
        else:
            total += 1
    return total
