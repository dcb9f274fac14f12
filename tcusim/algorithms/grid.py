"""Reductions and scans in one launch: blocks share a segment, or the whole array is one.

The paper's grid level is a sequence of launches ([DAKKAK19] section 6.4), with another library's
scan between two of them (erratum E25). Here a block gives its total to later blocks by mail.

Blocks stand in groups of `columns`. A block waits for the totals of the blocks before it in its
group, which these publish before they wait for anything, and for the sum of all groups before its
own, which the last block of each group passes on. What is added to what, and in which order,
is thus part of the program: the bits do not depend on which block is first. (A plain look-back
adds up what it happens to find published, and its floating-point sums differ from run to run.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tcusim.algorithms.builder import LENGTH, Builder, Work, padded, require
from tcusim.algorithms.order import Order
from tcusim.algorithms.reduction import accumulate, finish, fold
from tcusim.algorithms.scan import numbered, scan_values, upper
from tcusim.algorithms.tiles import data
from tcusim.ir import (
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

__all__ = ["reduction_grid", "scan_grid"]

# Groups of a whole array whose totals are awaited at once, by the block that adds them up.
GROUPS_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Which elements a block takes: `chunk` of them, block_col in `columns` after another.

    segment_size: None if the whole array is one segment; its groups of blocks then follow each
    other. Else each segment has one group of its own.
    """

    chunk: int
    columns: int
    segment_size: int | None
    ragged: bool
    reverse: bool = False

    @property
    def column(self) -> Index:
        """The block's place in its group."""
        return BLOCK_COL if self.columns > 1 else Index()

    @property
    def first(self) -> Index:
        """The block's first element in the array; in reverse, blocks are counted from the end."""
        passed = self.column * self.chunk
        size = self.segment_size
        if size is not None:
            return BLOCK * size + (size - self.chunk - passed if self.reverse else passed)
        passed = passed + BLOCK * (self.chunk * self.columns)
        return LENGTH - self.chunk - passed if self.reverse else passed

    @property
    def last_column(self) -> Bound:
        """Whether the block is the last one of its group."""
        return Bound(Index.of(self.columns - 2), self.column)

    @property
    def number(self) -> Index:
        """The block's number in the grid."""
        return BLOCK * self.columns + self.column

    def inside(self, place: Index) -> list[Bound]:
        """Return when the element at `place` of the chunk is one of the segment and the array."""
        bounds = []
        size = self.segment_size
        if size is not None and size % self.chunk:
            within = self.first + place - BLOCK * size
            bounds.append(
                Bound(Index.of(-1), within) if self.reverse else Bound(within, Index.of(size))
            )
        if self.ragged and self.reverse and size is None:
            bounds.append(Bound(Index.of(-1), self.first + place))
        elif self.ragged:
            bounds.append(Bound(self.first + place, LENGTH))
        return bounds

    @property
    def places(self) -> Extent:
        """Places of mail: one a block, and one before the first."""
        blocks = self.work().blocks
        # ceil(blocks) * columns + 1, rounded up once more where the division leaves a rest.
        index = (blocks.index + (blocks.per - 1)) * self.columns + blocks.per
        return Extent(index, blocks.per)

    def work(self) -> Work:
        """Return the grid."""
        per_group = self.segment_size or self.chunk * self.columns
        scalar = Scalar("length", 1 if self.ragged else per_group)
        return Work((scalar,), Extent(LENGTH, per_group), self.columns)


def _blocks(
    b: Builder, chunk: int, columns: int, segment_size: int | None, *, reverse: bool = False
) -> _Blocks:
    require(
        b.options.tiles == 1, "a block of one launch for a whole array takes one chunk: tiles=1"
    )
    if segment_size is not None:
        columns = -(-segment_size // chunk)
    b.group = columns
    return _Blocks(chunk, columns, segment_size, b.options.ragged, reverse)


def reduction_grid(
    b: Builder, segment_size: int | None, *, per_warp: int = 16, columns: int = 64
) -> Work:
    """Sum the whole array, or segments of several blocks each, in one launch.

    A warp takes `per_warp` tiles. The last block of a group adds up the group's totals; of the
    whole array, the very last block those of the groups. columns: blocks of a group of the whole
    array; a segment has as many as it needs.
    """
    tile = b.m * b.k
    share = per_warp * tile
    grid = _blocks(b, b.options.warps * share, columns, segment_size)
    size = Extent.of(1) if segment_size is None else Extent(LENGTH, segment_size)
    out = b.output("out", b.options.result, size)
    ones = b.const(b.right("P"), PatternKind.COL)
    total = _block_total(b, grid, finish(b, _sum_of_share(b, grid, share, ones)))
    if grid.columns == 1 and segment_size is not None:
        with b.first_warp():
            b.copy(b.rect(out, BLOCK, 1, 1, 1), total)
        return grid.work()
    with b.first_warp():
        totals = _publish_total(b, grid, total)
    with b.first_warp(), b.when([grid.last_column]):
        if grid.columns > 1:
            earlier = _await_sum(b, "group", totals, BLOCK * grid.columns, grid.columns - 1, [])
            b.copy(total, earlier, total)
        if segment_size is not None:
            b.copy(b.rect(out, BLOCK, 1, 1, 1), total)
        else:
            _sum_of_groups(b, grid, out, total)
    return grid.work()


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


def _block_total(b: Builder, grid: _Blocks, of_warp: View) -> View:
    """Return the sum of all warps' values, where the first warp sees it."""
    warps = b.options.warps
    partials = b.shared("partials", b.options.acc, warps)
    b.copy(b.rect(partials, WARP, 1, 1, 1), of_warp)
    b.barrier()
    with b.first_warp():
        fold(b, lambda start, count: b.rect(partials, start, 1, count, count), warps)
    return b.rect(partials, 0, 1, 1, 1)


def _publish_total(b: Builder, grid: _Blocks, total: View) -> Buffer:
    """Give the block's total to later blocks."""
    totals = b.mail("totals", b.options.acc, grid.places)
    b.publish(b.rect(totals, grid.number, 1, 1, 1), total)
    return totals


def _await_sum(
    b: Builder, name: str, mail: Buffer, first: Index, count: int, bounds: list[Bound]
) -> View:
    """Return the sum of `count` values of mail as a balanced tree; those out of bounds are 0."""
    values = b.scratch(name, b.options.acc, count)
    row = b.rect(values, 0, 1, count, count)
    b.await_mail(row, b.rect(mail, first, 1, count, count, 1, bounds))
    fold(b, lambda start, n: b.rect(values, start, 1, n, n), count)
    return b.rect(values, 0, 1, 1, 1)


def _sum_of_groups(b: Builder, grid: _Blocks, out: Buffer, of_group: View) -> None:
    """Pass on the group's sum; in the very last block, write the sum of all groups."""
    per_group = grid.chunk * grid.columns
    groups = b.mail("groups", b.options.acc, Extent(LENGTH, per_group))
    b.publish(b.rect(groups, BLOCK, 1, 1, 1), of_group)
    with b.when([Bound(LENGTH, (BLOCK + 1) * per_group + 1)]):
        with b.loop("i", Extent(LENGTH, per_group * GROUPS_AT_ONCE)) as i:
            first = i * GROUPS_AT_ONCE
            earlier = [Bound(first + COL, BLOCK)]
            few = _await_sum(b, "few", groups, first, GROUPS_AT_ONCE, earlier)
            b.copy(of_group, of_group, few)
        b.copy(b.rect(out, 0, 1, 1, 1), of_group)


def scan_grid(
    b: Builder,
    segment_size: int | None,
    *,
    pieces: int = 16,
    columns: int = 64,
    exclusive: bool = False,
    reverse: bool = False,
) -> Work:
    """Scan the whole array, or segments of several blocks each, in one launch that reads it once.

    A warp takes m rows of `pieces` * k consecutive elements. The block keeps its elements in shared
    memory: products with ones give the rows' totals, rounded additions what precedes each row in
    the block, and mail what precedes the block; then products with U scan the rows.
    """
    row = pieces * b.k
    order = Order(exclusive, reverse)
    grid = _blocks(b, b.options.warps * b.m * row, columns, segment_size, reverse=reverse)
    out = b.output("out", b.options.result, Extent(LENGTH))
    u = upper(b, order)
    ones = b.const(b.right("J"), PatternKind.ONES)
    share = _held(b, grid, row)
    before = _before_rows(b, grid, _row_totals(b, share, pieces, ones), order)

    c = b.accumulator("C")
    b.broadcast(c, b.rect(before, WARP * b.m, b.m, b.n, 1, 0), stage=_stage(b))
    s = b.zero(b.accumulator("S"))
    with b.loop("j", pieces) as turn:
        j = order.turn(turn, pieces)
        parts = b.load_parts("A", share(j * b.k, b.k))
        rows = [b.accumulator(numbered("R", i, b.k > b.n)) for i in range(len(u))]
        for r, right in zip(rows, u, strict=True):
            for number, part in enumerate(parts):
                b.mma(r, part, right, r if number else s)
            b.add(r, r, c)
        b.store(rows, _place_in(b, grid, out, row, j), stage=_stage(b))
        for part in parts:
            b.mma(s, part, ones, s)
    return grid.work()


def _stage(b: Builder) -> str:
    """Name the shared memory through which the warp's accumulators go, one after the other."""
    return "tile" if b.k <= b.n else ""


def _place_in(b: Builder, grid: _Blocks, buffer: Buffer, row: int, j: Index) -> View:
    """Return piece j of the warp's rows in the array."""
    place = WARP * (b.m * row) + j * b.k
    bounds = grid.inside(place + ROW * row + COL)
    return b.rect(buffer, grid.first + place, b.m, b.k, row, 1, bounds)


def _held(b: Builder, grid: _Blocks, row: int) -> Callable[[Index, int], View]:
    """Copy the warp's rows to shared memory; return a view of `count` of their columns."""
    # 16 bytes more: eight rows of a tile then lie in different banks of shared memory.
    ldm = padded(row, b.options.source) + padded(1, b.options.source) // 2
    held = b.scratch("kept", b.options.source, b.m * ldm)
    place = WARP * (b.m * row)
    bounds = grid.inside(place + ROW * row + COL)
    rows = b.rect(data(b), grid.first + place, b.m, row, row, 1, bounds)
    b.copy(b.rect(held, 0, b.m, row, ldm), rows)
    return lambda start, count: b.rect(held, start, b.m, count, ldm)


def _row_totals(b: Builder, share: Callable[[Index, int], View], pieces: int, ones: Frag) -> Buffer:
    """Return the totals of all rows of the block, in shared memory."""
    v = accumulate(b, pieces, lambda j: share(j * b.k, b.k), ones)
    totals = b.shared("rows", b.options.acc, b.options.warps * b.m)
    b.copy(b.rect(totals, WARP * b.m, b.m, 1, 1, 1), b.part(b.spill(v, _stage(b) or None), b.m, 1))
    b.barrier()
    return totals


def _before_rows(b: Builder, grid: _Blocks, totals: Buffer, order: Order) -> Buffer:
    """Return what precedes each row of the block in its segment, in shared memory."""
    count = b.options.warps * b.m
    acc = b.options.acc
    before = b.shared("before", acc, count)
    with b.first_warp():
        pair = [b.shared(name, acc, count) for name in ("x", "y")]
        b.copy(b.rect(pair[0], 0, 1, count, count), b.rect(totals, 0, 1, count, count))
        sums = scan_values(b, pair, count, order)
        shift, inside = order.earlier(1, COL, count)
        shifted = b.rect(sums, shift, 1, count, count, 1, inside)
        total = b.rect(sums, order.last(count), 1, 1, 1)
        carry = _before_block(b, grid, total)
        b.copy(b.rect(before, 0, 1, count, count), shifted, carry)
    b.barrier()
    return before


def _before_block(b: Builder, grid: _Blocks, total: View) -> View | None:
    """Return what precedes the block in its segment, as one value for all rows; None if nothing.

    Block i leaves a value at place i + 1 of the mail: its total or, where the array is one segment
    and the block is the last of its group, the sum of everything so far. So all that a block waits
    for is in one place: what precedes its group, then the totals of its group before it.
    """
    columns, whole = grid.columns, grid.segment_size is None
    if columns == 1 and not whole:
        return None
    mail = b.mail("sums", b.options.acc, grid.places)
    own = b.rect(mail, grid.number + 1, 1, 1, 1)
    if columns > 1:
        with b.when([Bound(grid.column, Index.of(columns - 1))]):
            b.publish(own, total)
    values = b.scratch("group", b.options.acc, columns + 1)
    before, earlier, running = (b.rect(values, place, 1, 1, 1) for place in (0, 1, columns))
    bounds = [Bound(Index.of(0), BLOCK * columns + COL if whole else COL)]
    if columns > 1:
        bounds.append(Bound(COL, grid.column + 1))
    places = b.rect(mail, BLOCK * columns, 1, columns, columns, 1, bounds)
    b.await_mail(b.rect(values, 0, 1, columns, columns), places)
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
    return b.rect(values, 0, 1, b.options.warps * b.m, 0, 0)
