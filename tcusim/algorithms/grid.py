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

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Annotated, TypeAlias

from tcusim.algorithms.builder import LENGTH, NEVER, Builder, Level, Work, require
from tcusim.algorithms.order import FORWARD, Order
from tcusim.algorithms.panel import WIDEST_HELD, Panel, ScannedPanel, Source
from tcusim.algorithms.reduce import RowTotals, sum_of
from tcusim.algorithms.registry import algorithm
from tcusim.algorithms.rows import (
    CHUNK_PANELS,
    GROUP_CHUNKS,
    PANEL_ROWS,
    ROW_TILES,
    Share,
    data,
    rows_of_a_pass,
)
from tcusim.algorithms.tree import Vectors, add_in_turn, pairwise, preceding, scan_vectors
from tcusim.program.grammar import (
    BLOCK,
    BLOCK_COL,
    COL,
    ROW,
    WARP,
    Bound,
    Buffer,
    Extent,
    Index,
    PatternKind,
    Scalar,
    View,
)

Columns: TypeAlias = Annotated[
    int, "Blocks of a group of the whole array; a segment has as many as it needs."
]


# Chunks that a block of a scan may have: groups have whole blocks.
BLOCK_CHUNKS = (1, 2, 4)


class _Blocks:
    """Which elements a block takes: `chunk` of them, block_col in `columns` after another.

    segment_size: None if the whole array is one segment; its groups of blocks then follow each
    other. Else each segment has one group of its own. In reverse the last ones have the first turn.

    column: the block's turn in its group. place: where it is in the group. number: the number of
    its place in the grid. first: its first element in the array. last_column: whether it is the
    last one of its group.
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
        self.place = columns - 1 - self.column if reverse else self.column
        self.number = BLOCK * columns + self.place
        self.last_column = Bound(Index.of(columns - 2), self.column)
        per_group = size or chunk * columns
        blocks = Extent(LENGTH, per_group)
        scalars = [Scalar("length", 1 if self.masked else per_group)]
        group = BLOCK
        if reverse and size is None:
            scalars.append(Scalar("groups", of=blocks))
            group = Index.symbol("groups") - 1 - BLOCK
        self.first = group * per_group + self.place * chunk
        self.work = Work(tuple(scalars), blocks, columns)

    def rows(self, b: Builder, buffer: Buffer, place: Index, size: tuple[int, int]) -> View:
        """Return rows x cols consecutive elements of an array from `place` in the chunk on."""
        rows, cols = size
        first = self.first + place
        each = first + ROW * cols + COL
        bounds = []
        if self.segment_size is not None and self.segment_size % self.chunk:
            bounds.append(Bound(each - BLOCK * self.segment_size, Index.of(self.segment_size)))
        from_end = self.reverse and self.segment_size is None
        if self.masked or from_end:
            bounds.append(Bound(each, LENGTH))
        if from_end:
            # True, as there are `groups` of them, but not to be seen from the place alone.
            bounds.append(Bound(Index.of(-1), each))
        return b.rect(buffer, first, rows, cols, cols, 1, bounds)

    @property
    def places(self) -> Extent:
        """Status words: one a block."""
        blocks = self.work.blocks
        # ceil(blocks) * columns, rounded up once more where the division leaves a rest.
        return Extent((blocks.index + (blocks.per - 1)) * self.columns, blocks.per)


def tiles_of_blocks(values: Mapping[str, int]) -> dict[str, int]:
    """Return T, the tiles of the blocks that sum a segment of N tiles of m*k."""
    rows = rows_of_a_pass(values["groups"] * values["m"])
    warps = values["W"] * values["panels"]
    blocks = -(-values["N"] * values["m"] // (ROW_TILES * rows * warps))
    return {"T": blocks * warps * ROW_TILES * values["groups"]}


def tiles_of_batches(values: Mapping[str, int]) -> dict[str, int]:
    """Return T, the tiles of the blocks that scan a segment of N rows of k."""
    m, warps = values["m"], values["W"]
    batches = values["batches"] or _batches(m * values["groups"], warps)
    each = warps * values["groups"] * batches * ROW_TILES
    return {"T": -(-values["N"] // (m * each)) * each}


@algorithm(
    "reduction_single_pass",
    "reduction",
    "[DAKKAK19] section 4.3, in one launch",
    "T",
    tiles=True,
    repeats=16,
    level=Level.GRID,
    combines=("add",),
    symbols=tiles_of_blocks,
)
def reduction_single_pass(
    b: Builder,
    segment_size: int | None,
    *,
    groups: Annotated[int, "How many times m rows a warp takes at once."] = 4,
    panels: Annotated[int, "How often a warp takes rows."] = 2,
    columns: Columns = 64,
    groups_at_once: Annotated[
        int, "Groups of a whole array whose totals the last block awaits at once."
    ] = 256,
) -> Work:
    """Sum the whole array, or segments of several blocks each, in one launch.

    The last block of a group adds up the group's totals; of the whole array, the very last block
    those of the groups. All are added in pairs, so that a block may have any power of 2 of rows.
    """
    panel = Panel(b, Share(ROW_TILES, groups, 1, 1), ones=b.const(b.right("J"), PatternKind.ONES))
    rows = rows_of_a_pass(panel.count)
    share = panels * rows * panel.row
    for name, count in (("warps", b.options.warps), ("panels", panels), ("columns", columns)):
        require(count & (count - 1) == 0, f"{name} is a power of 2, got {count}")
    grid = _Blocks(b, b.options.warps * share, columns, segment_size)
    size = Extent.of(1) if segment_size is None else Extent(LENGTH, segment_size)
    out = b.output("out", b.options.result, size)
    total = _block_total(b, _sum_of_share(b, grid, panel, panels, rows))
    if grid.columns == 1 and segment_size is not None:
        with b.first_warp():
            b.copy(b.rect(out, BLOCK, 1, 1, 1), total)
        return grid.work
    with b.first_warp():
        totals = b.status("sums_of_blocks", b.options.acc, grid.places)
        b.publish(b.rect(totals, grid.number, 1, 1, 1), total)
    with b.first_warp(), b.when([grid.last_column]):
        if grid.columns > 1:
            # The very last of them is the block's own.
            total = _await_sum(b, "group", totals, BLOCK * grid.columns, grid.columns, total)
        if segment_size is not None:
            b.copy(b.rect(out, BLOCK, 1, 1, 1), total)
        else:
            _sum_of_groups(b, grid, out, total, groups_at_once)
    return grid.work


def _sum_of_share(b: Builder, grid: _Blocks, panel: Panel, panels: int, rows: int) -> View:
    """Return the sum of the warp's rows; only panels at the end mask their loads."""
    totals = RowTotals(b, panel)
    size = rows * panel.row
    found = b.scratch("found", b.options.acc, panels)
    with b.loop("i", panels) as i:
        place = WARP * (panels * size) + i * size
        view = grid.rows(b, data(b), place, (panel.count, panel.row))
        panel.each_group(view if rows == panel.count else b.limited(view, rows), totals.store)
        totals.add_up(rows)
        b.copy(b.rect(found, i, 1, 1, 1), totals.of_lines(rows))
    return sum_of(b, found, panels)


def _block_total(b: Builder, of_warp: View) -> View:
    """Return the sum of all warps' values, where the first warp sees it."""
    warps = b.options.warps
    partials = b.shared("partials", b.options.acc, warps)
    b.copy(b.rect(partials, WARP, 1, 1, 1), of_warp)
    b.barrier()
    with b.first_warp():
        return sum_of(b, partials, warps)


def _await_sum(b: Builder, name: str, status: Buffer, first: Index, count: int, own: View) -> View:
    """Return the sum of `count` status words, of which the last is the block's own."""
    values = b.scratch(name, b.options.acc, count)
    earlier = b.rect(values, 0, 1, count - 1, count)
    b.await_status(earlier, b.rect(status, first, 1, count - 1, count))
    b.copy(b.rect(values, count - 1, 1, 1, 1), own)
    return sum_of(b, values, count)


def _sum_of_groups(b: Builder, grid: _Blocks, out: Buffer, of_group: View, at_once: int) -> None:
    """Pass on the group's sum; in the very last block, write the sum of all groups."""
    per_group = grid.chunk * grid.columns
    groups = b.status("sums_of_groups", b.options.acc, Extent(LENGTH, per_group))
    b.publish(b.rect(groups, BLOCK, 1, 1, 1), of_group)
    few = b.scratch("few", b.options.acc, at_once)
    with b.when([Bound(LENGTH, (BLOCK + 1) * per_group + 1)]):
        running = b.rect(b.scratch("running", b.options.acc, 1), 0, 1, 1, 1)
        b.copy(running, b.rect(few, 0, 1, 1, 1, 1, [NEVER]))
        with b.loop("i", Extent(LENGTH, per_group * at_once)) as i:
            place = i * at_once + COL
            row = b.rect(few, 0, 1, at_once, at_once)
            earlier = [Bound(place, BLOCK)]
            b.await_status(row, b.rect(groups, i * at_once, 1, at_once, at_once, 1, earlier))
            own = [Bound(place, BLOCK + 1), Bound(BLOCK, place + 1)]
            b.copy(row, row, b.rect(of_group.buffer, of_group.offset, 1, at_once, 0, 0, own))
            b.copy(running, running, sum_of(b, few, at_once))
        b.copy(b.rect(out, 0, 1, 1, 1), running)


@dataclass(frozen=True, slots=True)
class Held:
    """What a warp holds in its fragments while it waits.

    Attributes
    ----------
    groups : int
        How many times m rows a batch has.
    batches : int
        Batches of a warp, which fill panels of 32 rows; by default a block's fill a chunk.
    widest_held : int
        Bytes of the widest elements that are held in fragments; wider ones stay in shared memory.
    """

    groups: int = 1
    batches: int | None = None
    widest_held: int = WIDEST_HELD


HELD = Held()


def _batches(rows: int, warps: int) -> int:
    """Return the fewest batches of that many rows which fill panels and, in a block, chunks."""
    panels = PANEL_ROWS // gcd(rows, PANEL_ROWS)
    for chunks in BLOCK_CHUNKS:
        batches, rest = divmod(chunks * CHUNK_PANELS * PANEL_ROWS, warps * rows)
        if rest == 0 and batches % panels == 0:
            return batches
    return panels


@algorithm(
    "scan_single_pass",
    "scan",
    "[DAKKAK19] section 5.3, in one launch",
    "T*(ceil(k/n) + 2) - T/2",
    repeats=ROW_TILES * PANEL_ROWS * CHUNK_PANELS,
    level=Level.GRID,
    combines=("add",),
    symbols=tiles_of_batches,
)
def scan_single_pass(
    b: Builder,
    segment_size: int | None,
    *,
    held: Held = HELD,
    columns: Annotated[
        int | None, "Blocks of a group of the whole array; by default those of 512 chunks."
    ] = None,
    order: Order = FORWARD,
) -> Work:
    """Scan the whole array, or segments of several blocks each, in one launch that reads it once.

    A warp holds `batches` times m*groups rows of two tiles in its fragments. Products with ones
    give the rows' totals, rounded additions what precedes each row in its panel, each panel in its
    chunk and each chunk in its group, and status words what precedes the group. Then products with
    U scan the rows, a batch at a time.
    """
    groups = held.groups
    batches = held.batches or _batches(groups * b.m, b.options.warps)
    panel = ScannedPanel(b, Share(ROW_TILES, groups, 1, 1), order, held=True)
    panels, rest = divmod(batches * panel.count, PANEL_ROWS)
    require(rest == 0, f"the {batches * panel.count} rows of a warp are not panels of {PANEL_ROWS}")
    warps, rows = b.options.warps, Vectors(PANEL_ROWS, panels, PANEL_ROWS)
    levels = _Levels.of(warps * panels)
    most = GROUP_CHUNKS // levels.chunks
    grid = _Blocks(
        b,
        warps * batches * panel.size,
        columns or most,
        segment_size,
        reverse=order.reverse,
    )
    require(
        grid.columns <= most and (levels.is_whole or grid.columns == 1),
        f"a group has {GROUP_CHUNKS} chunks of {CHUNK_PANELS} panels at most, and a block "
        f"1, 2 or 4 of them; got {grid.columns} blocks of {warps * panels} panels",
    )

    def part(buffer: Buffer, batch: int, times: int) -> View:
        place = (WARP * batches + batch) * panel.size
        return grid.rows(b, buffer, place, (times * panel.count, panel.row))

    tiles, lying = panel.hold(part(data(b), 0, batches), held.widest_held)
    x, y = (b.scratch(name, b.options.acc, batches * panel.count) for name in ("x", "y"))
    for batch in range(batches):
        totals = b.rect(x, batch * panel.count, panel.count, 1, 1)
        panel.sum_held(tiles, batch * groups, totals)
    sums = scan_vectors(b, x, (y, x), rows, order)
    before = _before_rows(b, grid, levels, sums, rows, order)
    out = b.output("out", b.options.result, Extent(LENGTH))
    for batch in range(batches):
        panel.scan_held(tiles, batch * groups)
        found = b.rect(sums, batch * panel.count, panel.count, 1, 1)
        rows_again = b.cut(lying, panel.count, panel.row, batch * panel.count)
        panel.mend(found, Source([rows_again]))
        panel.write(part(out, batch, 1), before, batch * panel.count)
    return grid.work


@dataclass(frozen=True, slots=True)
class _Levels:
    """How the panels of a block make chunks: `chunks` of `panels` each."""

    panels: int
    chunks: int

    @classmethod
    def of(cls, panels: int) -> _Levels:
        """Return the levels of a block of that many panels."""
        chunks, rest = divmod(panels, CHUNK_PANELS)
        if chunks == 0:
            return cls(panels, 1)
        require(
            rest == 0 and chunks in BLOCK_CHUNKS,
            f"the {panels} panels of a block are not 1, 2 or 4 chunks of {CHUNK_PANELS}",
        )
        return cls(CHUNK_PANELS, chunks)

    @property
    def is_whole(self) -> bool:
        """Whether chunks are as long as they are in longer segments."""
        return self.panels == CHUNK_PANELS


def _before_rows(
    b: Builder, grid: _Blocks, levels: _Levels, sums: Buffer, rows: Vectors, order: Order
) -> Buffer:
    """Return what precedes each of the warp's rows in its segment, in shared memory.

    sums: the totals of the rows, scanned.
    """
    acc, panels = b.options.acc, rows.lines
    totals = b.shared("totals", acc, b.options.warps * panels)
    ours = b.rect(totals, WARP * panels, 1, panels, 1)
    b.copy(ours, rows.one(b, sums, order.last(PANEL_ROWS)))
    b.barrier()
    carries = _before_panels(b, grid, levels, totals, order)
    before = b.scratch("before", acc, rows.lines * rows.count)
    carry = b.rect(carries, WARP * panels, PANEL_ROWS, panels, 0, 1)
    b.copy(rows.view(b, before), preceding(b, sums, rows, order), carry)
    return before


def _before_panels(
    b: Builder, grid: _Blocks, levels: _Levels, totals: Buffer, order: Order
) -> Buffer:
    """Return what precedes each panel of the block in its segment, in shared memory."""
    acc, count = b.options.acc, levels.panels * levels.chunks
    panels = Vectors(levels.panels, levels.chunks, levels.panels, across=True)
    carries = b.shared("carries", acc, count)
    with b.first_warp():
        of_chunks = b.shared("chunks", acc, count)
        b.copy(panels.view(b, of_chunks), panels.view(b, totals))
        pairwise(
            b,
            lambda start, n, apart: b.rect(
                of_chunks, start, levels.chunks, n, levels.panels, apart
            ),
            levels.panels,
        )
        add_in_turn(b, totals, panels, order)
        before = _before_chunks(b, grid, levels, panels.one(b, of_chunks, 0), order)
        if before is not None:
            before = b.rect(before.buffer, before.offset, levels.chunks, levels.panels, 1, 0)
        b.copy(panels.view(b, carries), preceding(b, totals, panels, order), before)
    b.barrier()
    return carries


def _before_chunks(
    b: Builder, grid: _Blocks, levels: _Levels, totals: View, order: Order
) -> View | None:
    """Return what precedes each chunk of the block in its segment; None if nothing does.

    totals: the sums of the chunks.
    """
    acc, chunks, columns = b.options.acc, levels.chunks, grid.columns
    whole = grid.segment_size is None
    if chunks == columns == 1 and not whole:
        return None
    inner = Vectors(chunks, 1, chunks, across=True)
    sums, of_block = (b.shared(name, acc, chunks) for name in ("in_turn", "in_pairs"))
    for one in (sums, of_block):
        b.copy(b.rect(one, 0, chunks, 1, 1), totals)
    total = sum_of(b, of_block, chunks)
    add_in_turn(b, sums, inner, order)
    # What precedes each chunk in the block: a column.
    shift, inside = order.earlier(1, ROW, chunks)

    def earlier(times: int, bounds: tuple[Bound, ...] = ()) -> View:
        """Return it, in several equal columns of which some are in bounds."""
        return b.rect(sums, shift, chunks, times, 1, 0, (*inside, *bounds))

    before = b.shared("before_chunks", acc, chunks)
    found = b.rect(before, 0, chunks, 1, 1)
    if columns == 1:
        b.copy(found, earlier(1))
    else:
        _before_blocks(b, grid, total, earlier, found)
    if whole:
        b.copy(found, found, b.rect(_before_group(b, grid, total), 0, chunks, 1, 0, 0))
    return found


def _before_blocks(
    b: Builder,
    grid: _Blocks,
    total: View,
    earlier: Callable[[int, tuple[Bound, ...]], View],
    found: View,
) -> None:
    """Find what precedes each chunk of the block in its group: a tree of all earlier totals.

    Each block gives the sum of its chunks. Of the tree, the block's own place has what precedes the
    chunk in the block, and later ones nothing.
    """
    acc, columns, chunks = b.options.acc, grid.columns, b.size(found)[0]
    status = b.status("sums_of_blocks", acc, grid.places)
    b.publish(b.rect(status, grid.number, 1, 1, 1), total)
    values = b.scratch("group", acc, chunks * columns)
    first = b.rect(values, 0, 1, columns, columns)
    earlier_in_group = Bound(grid.place, COL) if grid.reverse else Bound(COL, grid.place)
    words = b.rect(status, BLOCK * columns, 1, columns, columns, 1, [earlier_in_group])
    b.await_status(first, words)
    every = Vectors(columns, chunks, columns, across=True)
    if chunks > 1:
        others = b.rect(values, columns, chunks - 1, columns, columns)
        b.copy(others, b.rect(values, 0, chunks - 1, columns, 0))
    own = Bound(COL, grid.place + 1), Bound(grid.place, COL + 1)
    here = every.view(b, values)
    b.copy(here, here, earlier(columns, own))
    _add_lines(b, values, every)
    b.copy(found, every.one(b, values, 0))


def _add_lines(b: Builder, values: Buffer, lines: Vectors) -> None:
    """Add up each of some vectors, in pairs."""
    rect = b.rect
    pairwise(
        b,
        lambda start, n, apart: rect(values, start, lines.lines, n, lines.apart, apart),
        lines.count,
    )


def _before_group(b: Builder, grid: _Blocks, total: View) -> Buffer:
    """Return what precedes the block's group: one value, which the last block of each passes on.

    total: that of the block.
    """
    acc, columns = b.options.acc, grid.columns
    size = Extent(LENGTH + grid.chunk * columns, grid.chunk * columns)
    groups = b.status("sums_of_groups", acc, size)
    before = b.scratch("group_carry", acc, 1)
    one = b.rect(before, 0, 1, 1, 1)
    of_group = total
    if columns > 1:
        all_values = b.scratch("all", acc, columns)
        status = b.status("sums_of_blocks", acc, grid.places)
        row = b.rect(all_values, 0, 1, columns, columns)
        with b.when([grid.last_column]):
            # The last block is at the end or, in reverse, at the beginning.
            end = 0 if grid.reverse else columns - 1
            others = Bound(Index.of(0), COL) if grid.reverse else Bound(COL, Index.of(end))
            b.await_status(row, b.rect(status, BLOCK * columns, 1, columns, columns, 1, [others]))
            last = b.rect(all_values, end, 1, 1, 1)
            b.copy(last, last, total)
            of_group = sum_of(b, all_values, columns)
    b.await_status(one, b.rect(groups, BLOCK, 1, 1, 1, 1, [Bound(Index.of(0), BLOCK)]))
    with b.when([grid.last_column]):
        following = b.rect(b.scratch("running", acc, 1), 0, 1, 1, 1)
        b.copy(following, of_group, one)
        b.publish(b.rect(groups, BLOCK + 1, 1, 1, 1), following)
    return before
