"""Sums and scans of irregular segments, whose lengths only the data know, as step programs.

The data are `in`, and segment i is the elements from offsets[i] up to offsets[i+1]. A warp that
took a segment would wait for the longest one. So segments are cut into pieces of at most `cut`
elements, and every warp takes m pieces, one to a row of its tiles, however long segments are.

Pieces are numbered without a look at other segments: those of segment i from offsets[i] // cut + i
on (see `Segments`). That leaves some numbers unused, and there are length // cut + segments in
all. The sums of pieces, by number, are segments again: segment i's are those from q(i) up to
q(i+1), q(i) = offsets[i] // cut + i. So the same programs go on with them, given levels=(cut,), and
then with those sums' sums, until one line takes a whole segment.

The first level sums by products. The others add what no operand type can hold, values of the
accumulator's type, by rounded additions in shared memory (``_plain``).
"""

from __future__ import annotations

from dataclasses import dataclass

from tcusim.algorithms.builder import LENGTH, Builder, Work, require
from tcusim.algorithms.order import Order
from tcusim.algorithms.reduction import accumulate, fold
from tcusim.algorithms.registry import algorithm
from tcusim.algorithms.scan import numbered, row_scan
from tcusim.algorithms.tiles import data
from tcusim.program.grammar import (
    COL,
    ROW,
    Bound,
    Buffer,
    Extent,
    Frag,
    Index,
    PatternKind,
    Ranges,
    Scalar,
    Segments,
    View,
)

__all__ = [
    "reduction_pieces",
    "reduction_pieces_plain",
    "scan_pieces",
    "scan_pieces_plain",
]

SEGMENTS = Index.symbol("segments")
# Lines that a warp takes in shared memory: enough to keep its lanes busy when lines are short.
PLAIN_LINES = 16


@algorithm("reduction_pieces", "irregular_reduction", "not in the paper", "N", repeats=4)
def reduction_pieces(
    b: Builder, cut: int, *, levels: tuple[int, ...] = (), whole: bool = False
) -> Work:
    """Sum pieces of at most k*N elements of irregular segments, m pieces a warp, in N products.

    out[p] is the sum of piece number p; 0 where there is no piece of that number. levels: cuts that
    were made before. whole: a line is a whole segment, and none has more than `cut` elements.
    """
    pieces = _Pieces(b, cut, levels, whole)
    out = b.output("out", b.options.result, pieces.count)
    first = b.unit * b.m
    ones = b.const(b.right("P"), PatternKind.COL, 0, "init")
    with b.units():
        lines = pieces.locate(first, b.m)

        def tile(i: Index) -> View:
            return b.gathered(pieces.data, i * b.k, lines, b.k)

        v = accumulate(b, -(-cut // b.k), tile, ones)
        b.copy(pieces.values(out, first, b.m), b.part(b.spill(v), b.m, 1), line="out")
    return pieces.work(b.m)


@algorithm("reduction_pieces_plain", "irregular_reduction", "not in the paper", "0", repeats=4)
def reduction_pieces_plain(
    b: Builder, cut: int, *, levels: tuple[int, ...] = (), whole: bool = False
) -> Work:
    """Sum pieces of irregular segments by rounded additions alone, each as a balanced tree.

    16 pieces a warp, in shared memory. The options are those of reduction_pieces.
    """
    pieces = _Pieces(b, cut, levels, whole)
    out = b.output("out", b.options.result, pieces.count)
    first = b.unit * PLAIN_LINES
    half = -(-cut // 2)
    # An odd stride: lanes that take the same column of different rows use different banks.
    stride = half | 1
    sums = b.scratch("sums", b.options.source, PLAIN_LINES * stride)

    def some(start: int, count: int) -> View:
        return b.rect(sums, start, PLAIN_LINES, count, stride)

    with b.units():
        lines = pieces.locate(first, PLAIN_LINES)
        low, high = (b.gathered(pieces.data, start, lines, half) for start in (0, half))
        b.copy(some(0, half), low, high)
        fold(b, some, half)
        b.copy(pieces.values(out, first, PLAIN_LINES), some(0, 1))
    return pieces.work(PLAIN_LINES)


@algorithm("scan_pieces", "irregular_scan", "not in the paper", "N*ceil(k/n)", repeats=4)
def scan_pieces(
    b: Builder,
    cut: int,
    *,
    levels: tuple[int, ...] = (),
    whole: bool = False,
    carry: bool = False,
    exclusive: bool = False,
    reverse: bool = False,
) -> Work:
    """Scan pieces of at most k*N elements of irregular segments, m pieces a warp.

    Results lie where their elements do. carry: add an input `carry`, one value for each number of a
    piece, to its sums. exclusive: leave the element itself out. reverse: sum from it to the end.
    levels, whole: as in reduction_pieces.
    """
    order = Order(exclusive, reverse)
    pieces = _Pieces(b, cut, levels, whole)
    out = b.output("out", b.options.result, Extent(LENGTH))
    given = b.input("carry", b.options.acc, pieces.count) if carry else None
    first = b.unit * b.m
    count = -(-cut // b.k)
    u = [
        b.const(b.right(numbered("U", j, b.k > b.n)), *order.summed(j * b.n), "init")
        for j in range(-(-b.k // b.n))
    ]
    ones = b.const(b.right("J"), PatternKind.ONES) if exclusive and count > 1 else None
    with b.units():
        lines = pieces.locate(first, b.m)
        s = b.zero(b.accumulator("S"), "zero")
        if given is not None:
            b.broadcast(s, pieces.values(given, first, b.m, repeated=b.n))
        with b.loop("i", count, "loop") as i:
            start = order.turn(i, count) * b.k
            a = b.load_parts("A", b.gathered(pieces.data, start, lines, b.k), "load")
            r = row_scan(b, a, u, s)
            b.store(r, b.gathered(out, start, lines, b.k), "out")
            if ones is not None:
                _add_totals(b, s, a, ones)
            elif count > 1:
                _take_last(b, s, r, order)
    return pieces.work(b.m)


@algorithm("scan_pieces_plain", "irregular_scan", "not in the paper", "0", repeats=4)
def scan_pieces_plain(
    b: Builder,
    cut: int,
    *,
    levels: tuple[int, ...] = (),
    whole: bool = False,
    carry: bool = False,
    exclusive: bool = False,
    reverse: bool = False,
) -> Work:
    """Scan pieces of irregular segments by rounded additions alone, in log2 rounds.

    16 pieces a warp, in shared memory. The options are those of scan_pieces.
    """
    order = Order(exclusive, reverse)
    pieces = _Pieces(b, cut, levels, whole)
    source = b.options.source
    out = b.output("out", b.options.result, Extent(LENGTH))
    given = b.input("carry", source, pieces.count) if carry else None
    first = b.unit * PLAIN_LINES
    stride = cut | 1
    pair = [b.scratch(name, source, PLAIN_LINES * stride) for name in ("x", "y")]
    with b.units():
        lines = pieces.locate(first, PLAIN_LINES)
        rows = b.gathered(pieces.data, 0, lines, cut)
        b.copy(b.rect(pair[0], 0, PLAIN_LINES, cut, stride), rows)
        sums = _scan_rows(b, pair, cut, stride, order)
        shift, inside = order.earlier(1, COL, cut) if exclusive else (0, ())
        prefixes = b.rect(sums, shift, PLAIN_LINES, cut, stride, 1, inside)
        plus = None if given is None else pieces.values(given, first, PLAIN_LINES, repeated=cut)
        b.copy(b.gathered(out, 0, lines, cut), prefixes, plus)
    return pieces.work(PLAIN_LINES)


# --- Parts that several algorithms share ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Pieces:
    """How segments are cut, and how pieces are numbered; see `Segments`."""

    b: Builder
    cut: int
    levels: tuple[int, ...]
    whole: bool

    def __post_init__(self) -> None:
        cuts = self.levels
        require(
            isinstance(cuts, tuple) and all(type(cut) is int and cut > 0 for cut in cuts),
            f"levels are the cuts made before, a tuple of integers of at least 1; got {cuts!r}",
        )
        data(self.b)
        self.b.input("offsets", "s64", Extent(SEGMENTS + 1))

    @property
    def data(self) -> Buffer:
        """Elements, or the results of pieces by number."""
        return data(self.b)

    @property
    def count(self) -> Extent:
        """How many numbers pieces have: length // cut + segments, or one a segment if whole."""
        if self.whole:
            return Extent(SEGMENTS)
        return Extent(LENGTH + SEGMENTS * self.cut - (self.cut - 1), self.cut)

    def locate(self, first: Index, count: int) -> Ranges:
        """Find `count` pieces, from number `first` on."""
        offsets = self.b.input("offsets", "s64", Extent(SEGMENTS + 1))
        cut = None if self.whole else self.cut
        # A wrong offset, which nothing may have checked, must not reach beyond the data.
        segments = Segments(offsets, cut, self.levels, limit=LENGTH)
        return self.b.locate("piece", segments, first, count)

    def values(self, buffer: Buffer, first: Index, count: int, repeated: int = 1) -> View:
        """Return a value for each of `count` pieces: as a column, or repeated in several."""
        number = first + ROW
        inside = Bound(number, SEGMENTS)
        if not self.whole:
            # number - segments < length // cut, without the division
            inside = Bound((number + 1 - SEGMENTS) * self.cut, LENGTH + 1)
        across = 1 if repeated == 1 else 0
        return self.b.rect(buffer, first, count, repeated, 1, across, [inside])

    def work(self, each: int) -> Work:
        """Return a grid in which each piece of work takes `each` lines."""
        b = self.b
        lines = each * b.options.tiles * b.options.warps
        blocks = Extent(self.count.index, self.count.per * lines)
        return Work((Scalar("length"), Scalar("segments")), blocks)


def _take_last(b: Builder, s: Frag, r: list[Frag], order: Order) -> None:
    """S <- the last sum of each row, in every column."""
    column = order.last(b.k)
    last = b.spill(r[column // b.n], "s_last")
    b.broadcast(s, b.part(last, b.m, b.n, 0, column % b.n, repeat_col=True), line="carry")


def _add_totals(b: Builder, s: Frag, parts: list[Frag], ones: Frag) -> None:
    """S <- A.J + S: the total of each row of the data, added in every column."""
    if b.options.combine == "mma" and len(parts) == 1:
        b.mma(s, parts[0], ones, s, "carry")
        return
    total = b.zero(b.accumulator("V"))
    for part in parts:
        b.mma(total, part, ones, total, "carry")
    b.add(s, s, total, "carry")


def _scan_rows(b: Builder, pair: list[Buffer], count: int, stride: int, order: Order) -> Buffer:
    """Scan each row of pair[0] by doubling distances; return the buffer of the result."""
    now, then = pair
    distance = 1
    while distance < count:
        shift, inside = order.earlier(distance, COL, count)
        here = b.rect(now, 0, PLAIN_LINES, count, stride)
        before = b.rect(now, shift, PLAIN_LINES, count, stride, 1, inside)
        b.copy(b.rect(then, 0, PLAIN_LINES, count, stride), here, before)
        now, then = then, now
        distance *= 2
    return now
