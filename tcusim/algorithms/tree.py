"""Rounded additions of values in shared memory: a tree for sums, doubling distances for scans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tcusim.algorithms.builder import NEVER, Builder, require
from tcusim.algorithms.order import FORWARD, Order
from tcusim.program.grammar import COL, ROW, Bound, Buffer, Index, View

# Additions in turn that are written out; more of them are a loop.
UNROLLED = 16


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

    def one(self, b: Builder, buffer: Buffer, place: Index | int) -> View:
        """Return the value of each vector at a place."""
        if self.across:
            return b.rect(buffer, place, self.lines, 1, self.apart)
        return b.rect(buffer, place, 1, self.lines, 1, self.apart)


def fold(b: Builder, view: Callable[[int, int], View], count: int) -> None:
    """Add `count` values in place into the first, as a balanced tree of rounded additions.

    view(start, count) names `count` values from `start` on.
    """
    while count > 1:
        half = (count + 1) // 2
        low = view(0, count - half)
        b.copy(low, low, view(half, count - half))
        count = half


def pairwise(b: Builder, view: Callable[[int, int, int], View], count: int) -> None:
    """Add `count` values in place into the first: neighbours in pairs, then neighbouring pairs.

    Any 2**i values from a multiple of 2**i on are thus added up among themselves first, whoever
    does it. view(start, count, apart) names `count` values from `start` on.
    """
    apart = 1
    while apart < count:
        pairs = -(-(count - apart) // (2 * apart))
        low = view(0, pairs, 2 * apart)
        b.copy(low, low, view(apart, pairs, 2 * apart))
        apart *= 2


def scan_vectors(
    b: Builder,
    values: Buffer,
    spare: tuple[Buffer, Buffer],
    vectors: Vectors,
    order: Order = FORWARD,
) -> Buffer:
    """Scan vectors by doubling distances (Hillis and Steele); return the buffer of the result.

    The sums are inclusive for every order. spare: alternating destinations; the second one may be
    `values`.
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
    """Return inclusive sums one place later, which makes them exclusive prefixes."""
    return vectors.view(b, sums, *order.earlier(1, vectors.place, vectors.count))


def add_in_turn(b: Builder, values: Buffer, vectors: Vectors, order: Order = FORWARD) -> None:
    """Scan vectors in place, one value after the other; the sums are inclusive."""
    step = -1 if order.reverse else 1

    def add(turn: Index) -> None:
        place = order.turn(turn + 1, vectors.count)
        here = vectors.one(b, values, place)
        b.copy(here, vectors.one(b, values, place - step), here)

    if vectors.count <= UNROLLED:
        for turn in range(vectors.count - 1):
            add(Index.of(turn))
    else:
        with b.loop("t", vectors.count - 1) as t:
            add(t)


def precede(
    b: Builder, values: Buffer, found: Buffer, vectors: Vectors, order: Order = FORWARD
) -> None:
    """Find the exclusive prefixes of a vector, from the sums of pairs, of pairs of pairs etc.

    It is the pairwise sum of the vector with zeros from the value on. `values` is overwritten.
    Vectors follow each other without gaps.
    """
    total = vectors.lines * vectors.count
    b.copy(b.rect(found, 0, 1, total, total), b.rect(values, 0, 1, total, total, 1, [NEVER]))
    for pair in _pairs(b, values, vectors, order):
        later = replace(pair.later, buffer=found)
        b.copy(later, later, pair.sums)


def siblings(
    b: Builder, values: Buffer, found: Buffer, vectors: Vectors, order: Order = FORWARD
) -> Iterator[None]:
    """Find the addend of `precede` to each value, a round at a time: 0 for the first halves.

    It is in `found` until the next round. `values` is overwritten.
    """
    for pair in _pairs(b, values, vectors, order):
        b.copy(replace(pair.later, buffer=found), pair.sums)
        b.copy(replace(pair.earlier, buffer=found), replace(pair.sums, bounds=(NEVER,)))
        yield


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Pairs of neighbouring halves: those that come earlier, those that come later.

    sums: of the earlier halves, each repeated as often as it has values.
    """

    earlier: View
    later: View
    sums: View


def _pairs(b: Builder, values: Buffer, vectors: Vectors, order: Order) -> Iterator[_Pairs]:
    """Yield pairs of single values, of pairs and so on, of all vectors together; add up each."""
    count = vectors.count
    require(
        count & (count - 1) == 0 and (vectors.lines == 1 or vectors.apart == count),
        f"a tree has 2**i values, and trees follow each other; got {vectors.lines} of {count}",
    )
    apart = 1
    while apart < count:
        pairs = vectors.lines * count // (2 * apart)
        earlier, later = (apart, 0) if order.reverse else (0, apart)
        yield _Pairs(
            b.rect(values, earlier, pairs, apart, 2 * apart),
            b.rect(values, later, pairs, apart, 2 * apart),
            b.rect(values, apart if order.reverse else 0, pairs, apart, 2 * apart, 0),
        )
        if 2 * apart < count:
            low, high = (b.rect(values, at, pairs, 1, 2 * apart) for at in (0, apart))
            b.copy(low, low, high)
        apart *= 2
