"""Rounded additions of values in shared memory: a tree for sums, doubling distances for scans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tcusim.algorithms.builder import Builder
from tcusim.algorithms.order import FORWARD, Order
from tcusim.program.grammar import COL, ROW, Bound, Buffer, Index, View


@dataclass(frozen=True, slots=True)
class Vectors:
    """`lines` vectors of `count` values each in shared memory, `apart` from one to the next.

    across: whether a vector is a row of the rectangle that a step copies, and not a column.
    """

    count: int
    lines: int = 1
    apart: int = 1
    across: bool = False

    @property
    def place(self) -> Index:
        """The number of a value in its vector."""
        return COL if self.across else ROW

    def view(
        self, b: Builder, buffer: Buffer, shift: int = 0, bounds: tuple[Bound, ...] = ()
    ) -> View:
        """Return the values of all vectors, or those that lie `shift` behind them."""
        if self.across:
            return b.rect(buffer, shift, self.lines, self.count, self.apart, 1, bounds)
        return b.rect(buffer, shift, self.count, self.lines, 1, self.apart, bounds)


def fold(b: Builder, view: Callable[[int, int], View], count: int) -> None:
    """Add `count` values in place into the first, as a balanced tree of rounded additions.

    view(start, count) names `count` values from `start` on.
    """
    while count > 1:
        half = (count + 1) // 2
        low = view(0, count - half)
        b.copy(low, low, view(half, count - half))
        count = half


def scan_vectors(
    b: Builder,
    values: Buffer,
    spare: tuple[Buffer, Buffer],
    vectors: Vectors,
    order: Order = FORWARD,
) -> Buffer:
    """Scan vectors by doubling distances (Hillis and Steele); return the buffer of the result.

    The sums are inclusive, whatever the order is. spare: what is written to, in turn; the second
    one may be `values`.
    """
    now, (then, other) = values, spare
    distance = 1
    while distance < vectors.count:
        here = vectors.view(b, now)
        earlier = vectors.view(b, now, *order.earlier(distance, vectors.place, vectors.count))
        b.copy(vectors.view(b, then), here, earlier)
        now, then, other = then, other, then
        distance *= 2
    return now


def preceding(b: Builder, sums: Buffer, vectors: Vectors, order: Order = FORWARD) -> View:
    """Return inclusive sums one place later, so that each is what precedes its value."""
    return vectors.view(b, sums, *order.earlier(1, vectors.place, vectors.count))
