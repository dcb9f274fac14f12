"""Counts of a program's mma steps, additions and bytes, from the interpreter's events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tcusim.machine import format_of
from tcusim.program.grammar import (
    Accesses,
    Add,
    Buffer,
    BufferRole,
    Loop,
    Mma,
    Program,
    Space,
    Step,
    View,
    When,
    accesses,
)
from tcusim.simulate.interpreter import Event


@dataclass(slots=True)
class Counts:
    """A watcher of events: call it with each one.

    mma: mma steps, over all warps. additions: rounded additions of whole accumulators.
    bytes_read, bytes_written: global memory, each element counted each time it is touched.
    Status words do not count: they stay in the second-level cache.
    """

    mma: int = 0
    additions: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    def add(self, other: Counts) -> None:
        """Add other counts."""
        self.mma += other.mma
        self.additions += other.additions
        self.bytes_read += other.bytes_read
        self.bytes_written += other.bytes_written

    def __call__(self, event: Event, touched: Accesses | None = None) -> None:
        """Count one step of all the warps that ran it. touched: its accesses, if they are known."""
        if isinstance(event.step, Mma):
            self.mma += event.warps.size
        elif isinstance(event.step, Add):
            self.additions += event.warps.size
        else:
            touched = touched or accesses(event.step)
            for view in touched.views_read:
                self.bytes_read += _bytes(event, view)
            for view in touched.views_written:
                self.bytes_written += _bytes(event, view)


def _bytes(event: Event, view: View) -> int:
    """Return the in-bounds bytes of global memory that a view names."""
    if view.buffer.space is not Space.GLOBAL or view.buffer.role is BufferRole.STATUS:
        return 0
    elements = event.warps.size * view.rows * view.cols
    if view.bounds or view.ranges:
        elements = int(event.state.valid(view, event.warps).sum())
    return elements * format_of(view.buffer.dtype).itemsize


def counts_of_text(program: Program, scalars: Mapping[str, int]) -> Counts:
    """Count without running: each step times its loops' counts, each array's bytes once.

    Steps inside a When are counted for the warps that take it if the condition depends only on the
    warp, as when the first warp works for all. For other conditions the branch with more products
    is counted, so the counts are upper bounds for programs that branch around their products.
    Algorithms of tcusim do so only for non-finite data. Data are assumed finite here, so
    `otherwise` counts in a branch on data.
    """
    blocks = program.grid(scalars)
    mma, additions = _work(program.steps, scalars, tuple(range(program.warps)))
    return Counts(
        blocks * mma,
        blocks * additions,
        sum(_array_bytes(buffer, scalars) for buffer in program.inputs),
        sum(_array_bytes(buffer, scalars) for buffer in program.outputs),
    )


def _work(
    steps: tuple[Step, ...], scalars: Mapping[str, int], warps: tuple[int, ...]
) -> tuple[int, int]:
    """Return these warps' total products and additions."""
    mma = additions = 0
    for step in steps:
        times = 1
        match step:
            case Loop(_, count, body):
                times = count.evaluate(scalars)
                work = _work(body, scalars, warps)
            case When(_, _, otherwise, not_finite=View()):
                work = _work(otherwise, scalars, warps)
            case When(_, body, otherwise):
                some, others = _branches(step, warps)
                taken, other = _work(body, scalars, some), _work(otherwise, scalars, others)
                # Branches that share warps are alternatives for each of them.
                work = max(taken, other)
                if some != others:
                    work = (taken[0] + other[0], taken[1] + other[1])
            case _:
                work = (len(warps) * isinstance(step, Mma), len(warps) * isinstance(step, Add))
        mma += times * work[0]
        additions += times * work[1]
    return mma, additions


def _branches(step: When, warps: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the warps of each branch; all take both if more than the warp decides."""
    conditions = [bound.lhs - bound.rhs for bound in step.bounds]
    if step.longer is not None or any(condition.symbols - {"warp"} for condition in conditions):
        return warps, warps
    taken = tuple(
        warp for warp in warps if all(one.evaluate({"warp": warp}) < 0 for one in conditions)
    )
    return taken, tuple(warp for warp in warps if warp not in taken)


def _array_bytes(buffer: Buffer, scalars: Mapping[str, int]) -> int:
    return buffer.size.evaluate(scalars) * format_of(buffer.dtype).itemsize
