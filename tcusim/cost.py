"""What a program does, counted: mma steps, additions and bytes, from the interpreter's events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tcusim.interpret import Event
from tcusim.ir import Add, Buffer, Level, Loop, Mma, Program, Step, View, When, accesses
from tcusim.numerics import format_of

__all__ = ["Counts", "counts_of_text", "steps_to_run"]


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

    def add(self, other: Counts) -> None:
        """Add what was counted elsewhere."""
        self.mma += other.mma
        self.additions += other.additions
        self.bytes_read += other.bytes_read
        self.bytes_written += other.bytes_written

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
    if view.bounds or view.lines:
        elements = int(event.state.valid(view, event.warps).sum())
    return elements * format_of(view.buffer.dtype).itemsize


def counts_of_text(program: Program, scalars: Mapping[str, int]) -> Counts:
    """Count without running: steps as often as their loops say, each array's bytes once.

    Steps inside a When are counted for every warp, so a program that branches around its products
    does at most this; no algorithm of tcusim does.
    """
    warps = program.grid(scalars) * program.warps
    counts = Counts()
    for step, times in _repeated(program.steps, scalars, warps):
        if isinstance(step, Mma):
            counts.mma += times
        elif isinstance(step, Add):
            counts.additions += times
    counts.bytes_read = sum(_array_bytes(buffer, scalars) for buffer in program.inputs)
    counts.bytes_written = sum(_array_bytes(buffer, scalars) for buffer in program.outputs)
    return counts


def _repeated(
    steps: tuple[Step, ...], scalars: Mapping[str, int], times: int
) -> Iterator[tuple[Step, int]]:
    """Yield every leaf step with how often it runs."""
    for step in steps:
        if isinstance(step, Loop):
            yield from _repeated(step.body, scalars, times * step.count.evaluate(scalars))
        elif isinstance(step, When):
            yield from _repeated(step.body + step.otherwise, scalars, times)
        else:
            yield step, times


def _array_bytes(buffer: Buffer, scalars: Mapping[str, int]) -> int:
    return buffer.size.evaluate(scalars) * format_of(buffer.dtype).itemsize


def steps_to_run(program: Program, scalars: Mapping[str, int]) -> int:
    """Return how many leaf steps a batch of warps runs at most (both branches of each When)."""
    return sum(times for _, times in _repeated(program.steps, scalars, 1))
