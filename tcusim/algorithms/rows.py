"""Sums and scans whose segments lie in rows of a few tiles, of which a warp takes many at once.

Not in the paper, where a warp goes from tile to tile and passes on a sum each time. Here it loads
all its tiles first; `row_tiles` tells how their rows are summed and scanned. Then only a value a
row is left, and rounded additions combine these: `log2` rounds for all tiles together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from tcusim.algorithms import reduction, scan
from tcusim.algorithms.builder import LENGTH, Builder, padded, require_sizes
from tcusim.algorithms.order import FORWARD, Order
from tcusim.algorithms.registry import algorithm
from tcusim.algorithms.row_tiles import Rows, TileParts, Tiles
from tcusim.algorithms.tiles import data
from tcusim.program.grammar import ROW, Bound, Buffer, Index, PatternKind, View

__all__ = ["reduction_rows", "scan_rows", "share_of"]

# Elements of a warp at a time. In rows of two f16 tiles, 1024 give each lane one total to scan.
SCANNED = 1024
SUMMED = 2048
# As many as that, if segments fill no fewer tiles; but never more tiles than that, however small.
MOST = 2048
MOST_TILES = 64
# Tiles in a row, the best first: rows of two are 64 bytes of f16, which memory likes best.
WIDTHS = (2, 3, 1)


@dataclass(frozen=True, slots=True)
class Share:
    """How the elements that a warp takes at a time lie in tiles, and segments in them.

    pieces: tiles side by side in a row. groups: of m rows each. per_segment: rows of a segment;
    None if the rows do not hold whole segments: a warp then has one, in as many passes as it needs.
    """

    pieces: int
    groups: int
    per_segment: int | None = None

    @property
    def tiles(self) -> int:
        """Tiles of all rows."""
        return self.pieces * self.groups


def share_of(
    m: int,
    k: int,
    segment_size: int,
    elements: int,
    pieces: int | None = None,
    groups: int | None = None,
) -> Share:
    """Return how a warp takes about `elements` elements, in tiles of m*k, or as the options say.

    Several segments of whole rows share the rows, if they fill them; short ones may take up to
    `MOST` elements for that. Otherwise a warp has one segment, whose last tiles may not be full.
    """
    require_sizes(pieces=pieces, groups=groups)
    tiles, most = (min(MOST_TILES, max(1, size // (m * k))) for size in (elements, MOST))
    whole_rows = [
        width
        for width in (WIDTHS if pieces is None else (pieces,))
        if segment_size % (width * k) == 0
    ]
    filled = [
        Share(width, count, segment_size // (width * k))
        for width in whole_rows
        for count in (range(max(1, most // width), 0, -1) if groups is None else (groups,))
        if count * m % (segment_size // (width * k)) == 0
    ]
    for share in filled:
        if groups is not None or share.groups == 1 or share.tiles <= tiles:
            return share
    if filled and segment_size < 2 * elements and segment_size % elements:
        return min(filled, key=lambda share: (share.tiles, -share.pieces))
    width = pieces or (2 if segment_size > k else 1)
    needed = -(-segment_size // (m * width * k))
    return Share(width, groups or min(needed, max(1, tiles // width)))


def _tiles_of(values: Mapping[str, int], elements: int) -> dict[str, int]:
    """Return T, the tiles of a warp that takes segments of N tiles, and P, those of a row.

    A scan multiplies each tile by U, and all but the last of each of the T/P rows by J.
    """
    m, k, count = values["m"], values["k"], values["N"]
    share = share_of(m, k, count * m * k, elements, values["pieces"], values["groups"])
    passes = 1 if share.per_segment else -(-count // share.tiles)
    return {"T": passes * share.tiles, "P": share.pieces}


@algorithm(
    "scan_rows",
    "scan",
    "not in the paper",
    "T*(ceil(k/n) + 1) - T/P",
    tiles=True,
    repeats=4,
    combines=("add",),
    symbols=partial(_tiles_of, elements=SCANNED),
)
def scan_rows(
    b: Builder,
    segment_size: int,
    *,
    pieces: int | None = None,
    groups: int | None = None,
    exclusive: bool = False,
    reverse: bool = False,
) -> int:
    """Scan segments, several short ones a warp or a part of a long one at a time.

    pieces: tiles side by side, which make the rows that the tensor core scans. groups: how many
    times m rows a warp takes at once. By default as suits the segments: see `share_of`.
    """
    share = share_of(b.m, b.k, segment_size, SCANNED, pieces, groups)
    rows = Rows(b, share.pieces, share.groups, Order(exclusive, reverse))
    work = _Work(rows, share.per_segment, segment_size)
    out = scan.output(b)
    with b.units():
        running = b.nothing("running", rows.zero, rows.begin(0)) if work.passes > 1 else None
        with b.loop("i", work.passes) as i:
            rows.scan(work.view(data(b), i))
            rows.write(work.view(out, i), _before(b, rows, work.per_segment, running))
    return work.per_unit


def _before(b: Builder, rows: Rows, count: int, running: View | None) -> Buffer | None:
    """Return what precedes each row in its segment of `count` rows; None if nothing does.

    running: the sum of the segment up to these rows, if there are passes before; it is carried on.
    """
    if count == 1 and running is None:
        return None
    lines = rows.count // count
    sums = rows.scan_totals(count)
    shift, inside = rows.order.earlier(1, ROW, count)
    before = b.scratch("before", b.options.acc, rows.count)
    b.copy(
        b.rect(before, 0, count, lines, 1, count),
        b.rect(sums, shift, count, lines, 1, count, inside),
        None if running is None else b.rect(running.buffer, 0, count, lines, 0, 0),
    )
    if running is not None:
        b.copy(running, b.rect(sums, rows.order.last(count), 1, 1, 1), running)
    return before


@algorithm(
    "reduction_rows",
    "reduction",
    "not in the paper",
    "T",
    tiles=True,
    repeats=4,
    combines=("add",),
    symbols=partial(_tiles_of, elements=SUMMED),
)
def reduction_rows(
    b: Builder, segment_size: int, *, pieces: int | None = None, groups: int | None = None
) -> int:
    """Sum segments, several short ones a warp or a part of a long one at a time.

    Products with ones give the totals of rows of `pieces` tiles, m*groups of them at once; those of
    a segment are then added up. By default both are as suits the segments: see `share_of`.
    """
    share = share_of(b.m, b.k, segment_size, SUMMED, pieces, groups)
    tiles = Tiles(b, share.pieces, share.groups, FORWARD, b.const(b.right("J"), PatternKind.ONES))
    work = _Work(tiles, share.per_segment, segment_size)
    count, lines = work.per_segment, tiles.count // work.per_segment
    out = reduction.output(b, segment_size)
    # The totals of all rows lie side by side, each with its repetitions below it.
    acc = b.options.acc
    ldm = padded(tiles.count, acc) + padded(1, acc)
    totals = b.scratch("totals", acc, b.n * ldm)
    sums = b.rect(totals, 0, lines, 1, count)

    def begin(g: Index) -> View:
        return b.rect(totals, g * b.m, b.m, b.n, 1, ldm)

    def total(parts: TileParts, g: Index) -> None:
        s = tiles.zero
        for j in tiles.turns:
            s = tiles.add(s, parts(g, j))
        b.store([s], begin(g))

    with b.units():
        running = b.nothing("running", tiles.zero, begin(Index())) if work.passes > 1 else None
        with b.loop("i", work.passes) as i:
            tiles.each_group(work.view(data(b), i), total)
            reduction.fold(b, lambda start, n: b.rect(totals, start, n, lines, 1, count), count)
            if running is not None:
                b.copy(running, sums, running)
        result = sums if running is None else running
        b.copy(reduction.results(b, out, b.unit * lines, lines, segment_size), result)
    return work.per_unit


class _Work:
    """What a warp has to do: several segments at once, or one in `passes`.

    per_segment: the rows of a segment; in passes, all of them. per_unit: elements of the warp.
    """

    def __init__(self, tiles: Tiles, per_segment: int | None, segment_size: int) -> None:
        self.tiles = tiles
        self.segment_size = segment_size
        self.per_segment = per_segment or tiles.count
        self.passes = 1 if per_segment else -(-segment_size // tiles.size)
        self.per_unit = tiles.size if per_segment else segment_size

    def view(self, buffer: Buffer, i: Index) -> View:
        """Return the rows of an array that have their turn after `i` passes."""
        tiles, b = self.tiles, self.tiles.b
        start = tiles.order.turn(i, self.passes) * tiles.size
        first = b.unit * self.per_unit + start
        bounds = []
        if self.per_unit % tiles.size:
            bounds.append(Bound(start + tiles.inner, Index.of(self.segment_size)))
        if b.options.ragged:
            bounds.append(Bound(first + tiles.inner, LENGTH))
        return tiles.of(buffer, first, bounds)
