"""Reductions and scans in one launch: blocks share a segment, or the whole array is one.

The paper's grid level is a sequence of launches ([DAKKAK19] sections 4.3 and 5.3), with another
library's scan between two of them (erratum E25). Here a block gives its total to later blocks in
status words.

Blocks stand in groups of `columns`. A block waits for the totals of the blocks before it in its
group, which these publish before they wait for anything, and for the sum of all groups before its
own, which the last block of each group passes on. What is added to what, and in which order,
is thus part of the program: the bits do not depend on which block is first. (A plain look-back
adds up what it happens to find published, and its floating-point sums differ from run to run.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from tcusim.algorithms.builder import LENGTH, Builder, Level, Work, require
from tcusim.algorithms.order import FORWARD, Order
from tcusim.algorithms.panel import WIDEST_HELD, ScannedPanel
from tcusim.algorithms.reduce import accumulate, finish
from tcusim.algorithms.registry import algorithm
from tcusim.algorithms.rows import Share, data
from tcusim.algorithms.tree import Vectors, fold, preceding, scan_vectors
from tcusim.program.grammar import (
    BLOCK,
    BLOCK_COL,
    COL,
    ROW,
    WARP,
    Bound,
    Buffer,
    Extent,
    Frag,
    Index,
    PatternKind,
    Scalar,
    View,
)

Columns: TypeAlias = Annotated[
    int, "Blocks of a group of the whole array; a segment has as many as it needs."
]


class _Blocks:
    """Which elements a block takes: `chunk` of them, block_col in `columns` after another.

    segment_size: None if the whole array is one segment; its groups of blocks then follow each
    other. Else each segment has one group of its own. In reverse, blocks are counted from the end.

    column: the block's place in its group. first: its first element in the array. last_column:
    whether it is the last one of its group. number: its number in the grid.
    """

    def __init__(
        self, b: Builder, chunk: int, columns: int, size: int | None, *, reverse: bool = False
    ) -> None:
        require(
            b.options.items_per_warp == 1,
            "a block of one launch for a whole array takes one chunk: items_per_warp=1",
        )
        self.chunk = chunk
        self.columns = columns = columns if size is None else -(-size // chunk)
        self.segment_size = size
        self.masked = b.options.masked
        self.reverse = reverse
        self.column = BLOCK_COL if columns > 1 else Index()
        self.number = BLOCK * columns + self.column
        self.last_column = Bound(Index.of(columns - 2), self.column)
        begin, end = (Index(), LENGTH) if size is None else (BLOCK * size, BLOCK * size + size)
        passed = (self.number if size is None else self.column) * chunk
        self.first = end - chunk - passed if reverse else begin + passed
        per_group = size or chunk * columns
        scalar = Scalar("length", 1 if self.masked else per_group)
        self.work = Work((scalar,), Extent(LENGTH, per_group), columns)

    def inside(self, place: Index) -> list[Bound]:
        """Return when the element at `place` of the chunk is one of the segment and the array."""
        bounds = []
        size, place = self.segment_size, self.first + place
        if size is not None and size % self.chunk:
            within = place - BLOCK * size
            bounds.append(
                Bound(Index.of(-1), within) if self.reverse else Bound(within, Index.of(size))
            )
        if self.masked:
            back = self.reverse and size is None
            bounds.append(Bound(Index.of(-1), place) if back else Bound(place, LENGTH))
        return bounds

    @property
    def places(self) -> Extent:
        """Status words: one a block, and one before the first."""
        blocks = self.work.blocks
        # ceil(blocks) * columns + 1, rounded up once more where the division leaves a rest.
        index = (blocks.index + (blocks.per - 1)) * self.columns + blocks.per
        return Extent(index, blocks.per)


@algorithm(
    "reduction_single_pass",
    "reduction",
    "[DAKKAK19] section 4.3, in one launch",
    "per_warp*W*ceil(N/(per_warp*W))",
    tiles=True,
    repeats=16,
    level=Level.GRID,
    combines=("add",),
)
def reduction_single_pass(
    b: Builder,
    segment_size: int | None,
    *,
    per_warp: int = 16,
    columns: Columns = 64,
    groups_at_once: int = 256,
) -> Work:
    """Sum the whole array, or segments of several blocks each, in one launch.

    The last block of a group adds up the group's totals; of the whole array, the very last block
    those of the groups.

    Parameters
    ----------
    per_warp : int
        Tiles that a warp takes.
    groups_at_once : int
        Groups of a whole array whose totals the last block awaits at once.
    """
    tile = b.m * b.k
    share = per_warp * tile
    grid = _Blocks(b, b.options.warps * share, columns, segment_size)
    size = Extent.of(1) if segment_size is None else Extent(LENGTH, segment_size)
    out = b.output("out", b.options.result, size)
    ones = b.const(b.right("P"), PatternKind.COL)
    total = _block_total(b, finish(b, _sum_of_share(b, grid, share, ones)))
    if grid.columns == 1 and segment_size is not None:
        with b.first_warp():
            b.copy(b.rect(out, BLOCK, 1, 1, 1), total)
        return grid.work
    with b.first_warp():
        totals = b.status("totals", b.options.acc, grid.places)
        b.publish(b.rect(totals, grid.number, 1, 1, 1), total)
    with b.first_warp(), b.when([grid.last_column]):
        if grid.columns > 1:
            earlier = _await_sum(b, "group", totals, BLOCK * grid.columns, grid.columns - 1, [])
            b.copy(total, earlier, total)
        if segment_size is not None:
            b.copy(b.rect(out, BLOCK, 1, 1, 1), total)
        else:
            _sum_of_groups(b, grid, out, total, groups_at_once)
    return grid.work


def _sum_of_share(b: Builder, grid: _Blocks, share: int, ones: Frag) -> Frag:
    """V = the sums of the rows of the warp's tiles; only a chunk at the end masks its loads."""
    tile = b.m * b.k

    def view(i: Index, *, masked: bool) -> View:
        place = WARP * share + i * tile
        bounds = grid.inside(place + ROW * b.k + COL) if masked else []
        return b.rect(data(b), grid.first + place, b.m, b.k, b.k, 1, bounds)

    end = grid.inside(Index.of(grid.chunk - 1))
    if not end:
        return accumulate(b, share // tile, lambda i: view(i, masked=False), ones)
    with b.when(end) as otherwise:
        v = accumulate(b, share // tile, lambda i: view(i, masked=False), ones)
        with otherwise():
            accumulate(b, share // tile, lambda i: view(i, masked=True), ones)
    return v


def _block_total(b: Builder, of_warp: View) -> View:
    """Return the sum of all warps' values, where the first warp sees it."""
    warps = b.options.warps
    partials = b.shared("partials", b.options.acc, warps)
    b.copy(b.rect(partials, WARP, 1, 1, 1), of_warp)
    b.barrier()
    with b.first_warp():
        fold(b, lambda start, count: b.rect(partials, start, 1, count, count), warps)
    return b.rect(partials, 0, 1, 1, 1)


def _await_sum(
    b: Builder, name: str, status: Buffer, first: Index, count: int, bounds: list[Bound]
) -> View:
    """Return the sum of `count` status words as a balanced tree; those out of bounds are 0."""
    values = b.scratch(name, b.options.acc, count)
    row = b.rect(values, 0, 1, count, count)
    b.await_status(row, b.rect(status, first, 1, count, count, 1, bounds))
    fold(b, lambda start, n: b.rect(values, start, 1, n, n), count)
    return b.rect(values, 0, 1, 1, 1)


def _sum_of_groups(b: Builder, grid: _Blocks, out: Buffer, of_group: View, at_once: int) -> None:
    """Pass on the group's sum; in the very last block, write the sum of all groups."""
    per_group = grid.chunk * grid.columns
    groups = b.status("groups", b.options.acc, Extent(LENGTH, per_group))
    b.publish(b.rect(groups, BLOCK, 1, 1, 1), of_group)
    with b.when([Bound(LENGTH, (BLOCK + 1) * per_group + 1)]):
        with b.loop("i", Extent(LENGTH, per_group * at_once)) as i:
            first = i * at_once
            few = _await_sum(b, "few", groups, first, at_once, [Bound(first + COL, BLOCK)])
            b.copy(of_group, of_group, few)
        b.copy(b.rect(out, 0, 1, 1, 1), of_group)


@dataclass(frozen=True, slots=True)
class Held:
    """What a warp holds in its fragments while it waits.

    Attributes
    ----------
    tiles_per_row : int
        Tiles side by side, which make a row.
    groups : int
        How many times m rows a batch has.
    batches : int
        Batches of a warp.
    widest_held : int
        Bytes of the widest elements that are held in fragments; wider ones stay in shared memory.
    """

    tiles_per_row: int = 2
    groups: int = 1
    batches: int = 4
    widest_held: int = WIDEST_HELD


HELD = Held()


@algorithm(
    "scan_single_pass",
    "scan",
    "[DAKKAK19] section 5.3, in one launch",
    "W*ceil(N/(W*tiles_per_row*groups*batches))*groups*batches*(tiles_per_row*(ceil(k/n) + 2) - 1)",
    tiles=True,
    repeats=8,
    level=Level.GRID,
    combines=("add",),
)
def scan_single_pass(
    b: Builder,
    segment_size: int | None,
    *,
    held: Held = HELD,
    columns: Columns = 64,
    order: Order = FORWARD,
) -> Work:
    """Scan the whole array, or segments of several blocks each, in one launch that reads it once.

    A warp holds `batches` times m*groups rows of `tiles_per_row` tiles in its fragments.
    Products with ones give the rows' totals, rounded additions what precedes each row in the block,
    and status words what precedes the block. Then products with U scan the rows, a batch at a time.
    """
    groups, batches = held.groups, held.batches
    panel = ScannedPanel(b, Share(held.tiles_per_row, groups), order, held=True)
    warps, vectors = b.options.warps, Vectors(batches * panel.count)
    grid = _Blocks(b, warps * batches * panel.size, columns, segment_size, reverse=order.reverse)

    def part(buffer: Buffer, batch: int, times: int) -> View:
        place = (WARP * batches + batch) * panel.size
        bounds = grid.inside(place + ROW * panel.row + COL)
        size = (times * panel.count, panel.row)
        return b.rect(buffer, grid.first + place, *size, panel.row, 1, bounds)

    tiles = panel.hold(part(data(b), 0, batches), held.widest_held)
    x, y = (b.scratch(name, b.options.acc, vectors.count) for name in ("x", "y"))
    for batch in range(batches):
        totals = b.rect(x, batch * panel.count, panel.count, 1, 1)
        panel.sum_held(tiles, batch * groups, totals)
    sums = scan_vectors(b, x, (y, x), vectors, order)
    before = _before_rows(b, grid, sums, vectors, order)
    out = b.output("out", b.options.result, Extent(LENGTH))
    for batch in range(batches):
        panel.scan_held(tiles, batch * groups)
        panel.write(part(out, batch, 1), before, batch * panel.count)
    return grid.work


def _before_rows(b: Builder, grid: _Blocks, sums: Buffer, vectors: Vectors, order: Order) -> Buffer:
    """Return what precedes each of the warp's rows in its segment, in shared memory.

    sums: the totals of the rows, scanned.
    """
    acc, count = b.options.acc, vectors.count
    totals = b.shared("totals", acc, b.options.warps)
    b.copy(b.rect(totals, WARP, 1, 1, 1), b.rect(sums, order.last(count), 1, 1, 1))
    b.barrier()
    carries = _before_warps(b, grid, totals, order)
    before = b.scratch("before", acc, count)
    shifted = preceding(b, sums, vectors, order)
    b.copy(vectors.view(b, before), shifted, b.rect(carries, WARP, count, 1, 0))
    return before


def _before_warps(b: Builder, grid: _Blocks, totals: Buffer, order: Order) -> Buffer:
    """Return what precedes each warp of the block in its segment, in shared memory."""
    count, acc = b.options.warps, b.options.acc
    carries, vectors = b.shared("carries", acc, count), Vectors(count)
    with b.first_warp():
        then = b.shared("then", acc, count)
        sums = scan_vectors(b, totals, (then, totals), vectors, order)
        carry = _before_block(b, grid, b.rect(sums, order.last(count), 1, 1, 1))
        b.copy(vectors.view(b, carries), preceding(b, sums, vectors, order), carry)
    b.barrier()
    return carries


def _before_block(b: Builder, grid: _Blocks, total: View) -> View | None:
    """Return what precedes the block in its segment, as one value for all rows; None if nothing.

    Block i leaves a value in status word i + 1: its total or, where the array is one segment
    and the block is the last of its group, the sum of everything so far. So all that a block waits
    for is in one place: what precedes its group, then the totals of its group before it.
    """
    columns, whole = grid.columns, grid.segment_size is None
    if columns == 1 and not whole:
        return None
    status = b.status("sums", b.options.acc, grid.places)
    own = b.rect(status, grid.number + 1, 1, 1, 1)
    if columns > 1:
        with b.when([Bound(grid.column, Index.of(columns - 1))]):
            b.publish(own, total)
    values = b.scratch("group", b.options.acc, columns + 1)
    before, earlier, running = (b.rect(values, place, 1, 1, 1) for place in (0, 1, columns))
    bounds = [Bound(Index.of(0), BLOCK * columns + COL if whole else COL)]
    if columns > 1:
        bounds.append(Bound(COL, grid.column + 1))
    places = b.rect(status, BLOCK * columns, 1, columns, columns, 1, bounds)
    b.await_status(b.rect(values, 0, 1, columns, columns), places)
    if columns > 1:
        fold(b, lambda start, count: b.rect(values, 1 + start, 1, count, count), columns - 1)
    if whole:
        with b.when([grid.last_column]):
            b.copy(running, total, earlier if columns > 1 else before)
            if columns > 1:
                b.copy(running, running, before)
            b.publish(own, running)
    if columns > 1:
        b.copy(before, before, earlier)
    return b.rect(values, 0, b.options.warps, 1, 0, 0)
