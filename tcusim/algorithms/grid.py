"""Reductions and scans in one launch: blocks share a segment, or the whole array is one.

The paper's grid level is a sequence of launches ([DAKKAK19] sections 4.3 and 5.3), with another
library's scan between two of them (erratum E25). Here a block gives its total to later blocks in
status words.

Blocks stand in groups of `columns`. A block waits for the totals of the earlier blocks of its
group, published before these wait for anything, and for the sum of all earlier groups, passed on by
the last block of each group. The order of all additions is thus part of the program: the bits do
not depend on the order of the blocks. (A plain look-back
adds up what it happens to find published, and its floating-point sums differ from run to run.)
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from math import gcd
from typing import Annotated, NoReturn

from tcusim.algorithms.builder import LENGTH, NEVER, Builder, Level, Work, require
from tcusim.algorithms.order import FORWARD, Carry, Order
from tcusim.algorithms.panel import WIDEST_HELD, Panel, ScannedPanel
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
from tcusim.errors import Given, Unsupported
from tcusim.machine import format_of
from tcusim.program.grammar import (
    BLOCK,
    BLOCK_COL,
    BLOCK_ROW,
    COL,
    ROW,
    WARP,
    Bound,
    Buffer,
    Extent,
    Index,
    Scalar,
    View,
)

_COLUMNS = (
    "Blocks of a group, in sums of the whole array alone (a scan has by default those of 512 "
    "chunks)."
)


# Maximum number of 8-bit integers that int32 can sum.
MOST_INTEGERS = 2**23
# Chunks that a block of a scan may have: groups have whole blocks.
BLOCK_CHUNKS = (1, 2, 4)


class _Blocks:
    """The elements of a block: `chunk` of them, block_col in `columns` after another.

    columns: blocks of a group; a segment that needs fewer has no more.
    segment_size: None if the whole array is one segment; its groups of blocks then follow each
    other. Else each segment has `groups` of them, which do. In reverse the last ones have the first
    turn.

    column: the block's turn in its group. place: where it is in the group. number: the number of
    its place in the grid. turn: its group's in the segment. group: the number of its group's turn
    among those of all segments. first: its first element in the array. last_column: whether it is
    the last one of its group.
    """

    def __init__(
        self, b: Builder, chunk: int, columns: int, size: int | None, *, reverse: bool = False
    ) -> None:
        require(
            b.options.items_per_warp == 1,
            "a block of one launch for a whole array takes one chunk: ",
            Given("items_per_warp", 1),
        )
        self.chunk = chunk
        self.columns = columns = columns if size is None else min(columns, -(-size // chunk))
        self.per_group = chunk * columns
        self.groups = rows = 1 if size is None else -(-size // self.per_group)
        self.segment_size = size
        self.masked = b.options.masked
        self.reverse = reverse
        self.column = BLOCK_COL if columns > 1 else Index()
        self.place = columns - 1 - self.column if reverse else self.column
        self.last_column = Bound(Index.of(columns - 2), self.column)
        per_block = size or self.per_group
        blocks = Extent(LENGTH, per_block)
        scalars = [Scalar("length", 1 if self.masked else per_block)]
        row = BLOCK_ROW if rows > 1 else Index()
        self.group = BLOCK * rows + row
        self.number = self.group * columns + self.place
        if size is not None:
            self.turn = row
            # Where the group begins in its segment.
            self.begin = (rows - 1 - row if reverse else row) * self.per_group
            self.first = BLOCK * size + self.begin + self.place * chunk
        else:
            group = self.turn = BLOCK
            if reverse:
                scalars.append(Scalar("groups", of=blocks))
                group = Index.symbol("groups") - 1 - BLOCK
            self.begin = group * self.per_group
            self.first = self.begin + self.place * chunk
        self.work = Work(tuple(scalars), blocks, columns, rows=rows)

    def carried(self, b: Builder) -> View:
        """Return an input's value for the segment's first group, and zero for the others."""
        size = Extent.of(1) if self.segment_size is None else Extent(LENGTH, self.segment_size)
        given = b.input("carry", b.options.sums, size)
        segment = Index() if self.segment_size is None else BLOCK
        bounds = [Bound(self.turn, Index.of(1))] if self.follows else []
        return b.rect(given, segment, 1, 1, 1, 1, bounds)

    @property
    def follows(self) -> bool:
        """Whether groups of a segment follow each other."""
        return self.segment_size is None or self.groups > 1

    def in_segment(self, place: Index) -> list[Bound]:
        """Return conditions for a block at a place of the group to have elements, if not all do."""
        if self.groups == 1 or not self.is_padded:
            return []
        assert self.segment_size is not None
        return [Bound(self.begin + place * self.chunk, Index.of(self.segment_size))]

    @property
    def is_padded(self) -> bool:
        """Whether a segment's blocks reach beyond its end."""
        return self.segment_size is not None and self.segment_size % self.per_group != 0

    def rows(self, b: Builder, buffer: Buffer, place: Index, size: tuple[int, int]) -> View:
        """Return rows x cols consecutive elements of an array from `place` in the chunk on."""
        rows, cols = size
        first = self.first + place
        each = first + ROW * cols + COL
        bounds = []
        if self.segment_size is not None and self.is_padded:
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
        return self._each(self.groups * self.columns)

    @property
    def places_of_groups(self) -> Extent:
        """Status words: one a group, and one more that nobody awaits."""
        index = self.work.blocks.index if self.groups == 1 else self._each(self.groups).index
        per = self.work.blocks.per
        return Extent(index + per, per)

    def _each(self, count: int) -> Extent:
        """Return so many for each of `blocks`."""
        blocks = self.work.blocks
        # ceil(blocks) * count, rounded up once more where the division leaves a rest.
        return Extent((blocks.index + (blocks.per - 1)) * count, blocks.per)


@algorithm(
    "reduction_single_pass",
    "reduction",
    "[DAKKAK19] section 4.3, in one launch",
    tiles=True,
    repeats=16,
    level=Level.GRID,
    combines=("add",),
    adds_rows=True,
)
def reduction_single_pass(
    b: Builder,
    segment_size: int | None,
    *,
    groups: Annotated[int, "How many times m rows a warp takes at once."] = 4,
    panels: Annotated[int, "How often a warp takes rows."] = 2,
    columns: Annotated[int, _COLUMNS] = 64,
    groups_at_once: Annotated[
        int, "Groups of a whole array whose totals the last block awaits at once."
    ] = 256,
) -> Work:
    """Sum the whole array, or segments of several blocks each, in one launch.

    The last block of a group adds up the group's totals; of the whole array, the very last block
    those of the groups. All are added in pairs, so that a block may have any power of 2 of rows.
    """
    panel = Panel(b, Share(ROW_TILES, groups, 1, 1), totals=True)
    rows = rows_of_a_pass(panel.count)
    share = panels * rows * panel.row
    for name, count in (("warps", b.options.warps), ("panels", panels), ("columns", columns)):
        require(count & (count - 1) == 0, f"{name} is a power of 2, got {count}")
    chunk = b.options.warps * share
    require(
        b.options.acc != "s32" or chunk <= MOST_INTEGERS,
        f"a block adds up at most {MOST_INTEGERS} integers in int32, got {chunk}",
    )
    if segment_size is not None:
        columns = -(-segment_size // chunk)
    grid = _Blocks(b, chunk, columns, segment_size)
    size = Extent.of(1) if segment_size is None else Extent(LENGTH, segment_size)
    out = b.output("out", b.options.result, size)
    total = _block_total(b, _sum_of_share(b, grid, panel, panels, rows))
    if grid.columns == 1 and segment_size is not None:
        with b.first_warp():
            b.copy(b.rect(out, BLOCK, 1, 1, 1), total)
        return grid.work
    with b.first_warp():
        total = _widened(b, total)
        totals = b.status("sums_of_blocks", b.options.sums, grid.places)
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
        panel.each_row(view if rows == panel.count else b.limited(view, rows), totals.step)
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


def _widened(b: Builder, total: View) -> View:
    """Return a value in the type of sums of blocks; the block's own sum fits in an accumulator."""
    if b.options.sums == b.options.acc:
        return total
    wide = b.rect(b.scratch("wide", b.options.sums, 1), 0, 1, 1, 1)
    b.copy(wide, total)
    return wide


def _await_sum(b: Builder, name: str, status: Buffer, first: Index, count: int, own: View) -> View:
    """Return the sum of `count` status words; the last is the block's own."""
    values = b.scratch(name, b.options.sums, count)
    earlier = b.rect(values, 0, 1, count - 1, count)
    b.await_status(earlier, b.rect(status, first, 1, count - 1, count))
    b.copy(b.rect(values, count - 1, 1, 1, 1), own)
    return sum_of(b, values, count)


def _sum_of_groups(b: Builder, grid: _Blocks, out: Buffer, of_group: View, at_once: int) -> None:
    """Pass on the group's sum; in the very last block, write the sum of all groups."""
    per_group = grid.chunk * grid.columns
    groups = b.status("sums_of_groups", b.options.sums, Extent(LENGTH, per_group))
    b.publish(b.rect(groups, BLOCK, 1, 1, 1), of_group)
    few = b.scratch("few", b.options.sums, at_once)
    with b.when([Bound(LENGTH, (BLOCK + 1) * per_group + 1)]):
        running = b.rect(b.scratch("running", b.options.sums, 1), 0, 1, 1, 1)
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


def whole_panels(rows: int) -> tuple[int, int]:
    """Return the fewest times that so many rows are whole panels, and how many panels these are."""
    times = PANEL_ROWS // gcd(rows, PANEL_ROWS)
    return times, times * rows // PANEL_ROWS


def fills_chunks(rows: int) -> bool:
    """Return whether warps that take so many rows at a time fill the chunks of a block together.

    Only powers of 2 do.
    """
    return max(BLOCK_CHUNKS) * CHUNK_PANELS % whole_panels(rows)[1] == 0


def _require_chunks(b: Builder, fills: bool, message: str) -> None:
    """Raise an error with a remedy if a block's warps, of batches of m rows, fill no chunks."""
    if not fills:
        if not fills_chunks(b.m):
            _refuse_rows(b)
        raise Unsupported(
            f"{message}. Choose warps and batches that fill a chunk, or leave them out"
        )


def _refuse_rows(b: Builder) -> NoReturn:
    """Refuse data rows of which no number of warps and batches fills a chunk."""
    side, other = ("b", "a") if b.transposed else ("a", "b")
    has = f"{b.m} (side {side})"
    if fills_chunks(b.n):
        advice = f"{has}. Take side {other}, which has {b.n}, or scan_panel"
    else:
        advice = f"{has} or {b.n} (side {other}). Take scan_panel"
    most = max(BLOCK_CHUNKS) * CHUNK_PANELS * PANEL_ROWS
    raise Unsupported(
        f"scan_single_pass needs a power of 2 of data rows, {most} at most, where a segment takes "
        f"several blocks or a block more than {CHUNK_PANELS} panels; this tile has {advice}, which "
        "takes any tile"
    )


def _batches(rows: int, warps: int) -> int:
    """Return the fewest batches of that many rows which fill panels and, in a block, chunks."""
    times, _ = whole_panels(rows)
    for chunks in BLOCK_CHUNKS:
        batches, rest = divmod(chunks * CHUNK_PANELS * PANEL_ROWS, warps * rows)
        if rest == 0 and batches % times == 0:
            return batches
    return times


@algorithm(
    "scan_single_pass",
    "scan",
    "[DAKKAK19] section 5.3, in one launch",
    repeats=ROW_TILES * PANEL_ROWS * CHUNK_PANELS,
    level=Level.GRID,
    combines=("add",),
    adds_rows=True,
)
def scan_single_pass(
    b: Builder,
    segment_size: int | None,
    *,
    batches: Annotated[
        int | None,
        "Times m rows of a warp, in panels of 32. Default: those of a chunk a block.",
    ] = None,
    in_fragments: Annotated[
        int | None, "Batches with tiles in fragments; others are in shared memory. Default: all."
    ] = None,
    columns: Annotated[int | None, _COLUMNS] = None,
    twice: Annotated[
        bool,
        "Whether rows that are added without products are read and scanned twice, a batch at a "
        "time, and do not wait in shared memory.",
    ] = False,
    carry: Carry = False,
    order: Order = FORWARD,
) -> Work:
    """Scan the whole array, or segments of several blocks each, in one launch.

    Groups of a segment follow each other, and segments do not wait for each other.

    A warp holds `batches` times m rows of two tiles in its fragments. Products with ones give the
    rows' totals. Rounded additions give the exclusive prefix of each row in its panel, of each
    panel in its chunk and of each chunk in its group, and status words the group's prefix. Then
    products with U scan the rows, a batch at a time. Rows of wide elements are scanned before all
    this, and their last elements are the totals. Where shared memory has no space for them, they
    are read and scanned again after it: `twice`.
    """
    require(not twice or b.options.adds_rows, "twice is for rows that are added without products")
    panel, batches = _panel_of_warp(b, batches, order, apart=twice)
    panels = batches * panel.count // PANEL_ROWS
    warps, rows = b.options.warps, Vectors(PANEL_ROWS, panels, PANEL_ROWS)
    levels = _Levels.of(b, warps * panels)
    most = GROUP_CHUNKS // levels.chunks
    grid = _Blocks(
        b, warps * batches * panel.size, columns or most, segment_size, reverse=order.reverse
    )
    _require_chunks(
        b,
        grid.columns <= most and (levels.is_whole or grid.columns == 1),
        f"a group has {GROUP_CHUNKS} chunks of {CHUNK_PANELS} panels at most, and a block "
        f"1, 2 or 4 of them; got {grid.columns} blocks of {warps * panels} panels",
    )

    def part(buffer: Buffer, batch: Index | int, times: int) -> View:
        place = (WARP * batches + batch) * panel.size
        return grid.rows(b, buffer, place, (times * panel.count, panel.row))

    given = grid.carried(b) if carry else None
    inside = grid.in_segment(grid.place)
    with b.when(inside) if inside else nullcontext():
        source = part(data(b), 0, batches)
        x, y = (b.scratch(name, b.options.acc, batches * panel.count) for name in ("x", "y"))
        tiles = None
        if panel.held:
            tiles = panel.hold(source, in_fragments or batches)
            for batch in range(batches):
                totals = b.rect(x, batch * panel.count, panel.count, 1, 1)
                b.store_column(panel.total(tiles, Index.of(batch)), totals)
        elif twice:
            with b.loop("r", batches) as r:
                panel.each_row(part(data(b), r, 1), panel.step)
                b.copy(b.rect(x, r * panel.count, panel.count, 1, 1), panel.totals)
        else:
            panel.each_row(source, panel.step)
            b.copy(b.rect(x, 0, panel.count, 1, 1), panel.totals)
        sums = scan_vectors(b, x, (y, x), rows, order)
        before = _before_rows(b, grid, levels, sums, rows, order, given)
        out = b.output("out", b.options.result, Extent(LENGTH))

        def write(batch: Index | int) -> None:
            panel.write(part(out, batch, 1), before, batch * panel.count)

        def scan_finite() -> None:
            with b.loop("i", batches) as i:
                panel.scan_finite(b.cut(source, panel.count, panel.row, i * panel.count))
                write(i)

        def scan_again() -> None:
            with b.loop("i", batches) as i:
                panel.each_row(part(data(b), i, 1), panel.step)
                write(i)

        def scan_all() -> None:
            for batch in range(batches):
                if tiles is not None:
                    panel.scan_held(tiles, batch)
                write(batch)

        # A warp looks once: between the batches of finite data there is no branch.
        totals_of_rows = b.rect(sums, 0, batches * panel.count, 1, 1)
        panel.choose(totals_of_rows, scan_finite, scan_again if twice else scan_all)
    return grid.work


def _panel_of_warp(
    b: Builder, batches: int | None, order: Order, *, apart: bool
) -> tuple[ScannedPanel, int]:
    """Return the panel that a warp scans at once, and the number of them: a batch, or all at once.

    Rows of wide elements, and those that are added without products, wait in shared memory, unless
    batches are apart.
    """
    batches = batches or _batches(b.m, b.options.warps)
    require(
        batches * b.m % PANEL_ROWS == 0,
        f"the {batches * b.m} rows of a warp are not panels of {PANEL_ROWS}; choose batches that "
        "fill panels, or leave them out",
    )
    held = not b.options.adds_rows and format_of(b.options.source).itemsize <= WIDEST_HELD
    groups, batches = (1, batches) if held or apart else (batches, 1)
    return ScannedPanel(b, Share(ROW_TILES, groups, 1, 1), order, held=held), batches


@dataclass(frozen=True, slots=True)
class _Levels:
    """The division of a block into chunks: `chunks` of `panels` each."""

    panels: int
    chunks: int

    @classmethod
    def of(cls, b: Builder, panels: int) -> _Levels:
        """Return the levels of a block of this many panels; raise if it has no whole chunks."""
        chunks, rest = divmod(panels, CHUNK_PANELS)
        fills = chunks == 0 or (rest == 0 and chunks in BLOCK_CHUNKS)
        _require_chunks(
            b,
            fills,
            f"the {panels} panels of a block are not 1, 2 or 4 chunks of {CHUNK_PANELS}",
        )
        return cls(CHUNK_PANELS, chunks) if chunks else cls(panels, 1)

    @property
    def is_whole(self) -> bool:
        """Whether chunks are as long as they are in longer segments."""
        return self.panels == CHUNK_PANELS


def _before_rows(
    b: Builder,
    grid: _Blocks,
    levels: _Levels,
    sums: Buffer,
    rows: Vectors,
    order: Order,
    given: View | None,
) -> Buffer:
    """Return the exclusive prefix of each of the warp's rows in its segment, in shared memory.

    sums: the totals of the rows, scanned. given: the segment's initial value, if any.
    """
    wide, panels = b.options.sums, rows.lines
    totals = b.shared("totals", wide, b.options.warps * panels)
    ours = b.rect(totals, WARP * panels, 1, panels, 1)
    b.copy(ours, rows.one(b, sums, order.last(PANEL_ROWS)))
    b.barrier()
    chunks = _before_chunks(b, grid, levels, totals, order, given)
    # Each warp finds it for all panels: that takes less time than another barrier of the block.
    every = _panels(levels)
    carries = b.scratch("carries", wide, every.count * every.lines)
    b.copy(every.view(b, carries), preceding(b, totals, every, order), chunks)
    before = b.scratch("before", wide, rows.lines * rows.count)
    carry = b.rect(carries, WARP * panels, PANEL_ROWS, panels, 0, 1)
    b.copy(rows.view(b, before), preceding(b, sums, rows, order), carry)
    return before


def _panels(levels: _Levels) -> Vectors:
    """Return the layout of a block's panels: chunk after chunk."""
    return Vectors(levels.panels, levels.chunks, levels.panels, across=True)


def _before_chunks(
    b: Builder,
    grid: _Blocks,
    levels: _Levels,
    totals: Buffer,
    order: Order,
    given: View | None,
) -> View | None:
    """Return the exclusive prefix of each chunk of the block in its segment; None without one.

    totals: the sums of the panels, added in turn here. To hide memory latency, all waits overlap
    each other and the independent additions.
    """
    wide, chunks, warps = b.options.sums, levels.chunks, b.options.warps
    panels, follows = _panels(levels), grid.follows
    alone = chunks == grid.columns == 1 and not follows
    own = b.shared("own", wide, chunks + 1)
    if not alone:
        with b.first_warp():
            _publish_total(b, grid, panels, totals, own, order)
        b.barrier()
    with b.one_warp(max(0, warps - 2)):
        add_in_turn(b, totals, panels, order)
    tree = _Earlier(b, grid, own, chunks + follows)
    tree.add_up()
    carry, groups = b.shared("before_group", wide, 1), None
    of_segment = b.rect(carry, 0, 1, 1, 1)
    if follows or given is not None:
        with b.one_warp(warps - 1):
            if follows:
                groups = _await_group(b, grid, of_segment)
            if given is not None:
                src, plus = (of_segment, given) if follows else (given, None)
                b.copy(of_segment, src, plus)
    b.barrier()
    if alone:
        return None if given is None else b.rect(carry, 0, chunks, levels.panels, 0, 0)
    found, apart = tree.sums()
    if groups is not None:
        of_group = b.rect(found, chunks * apart, 1, 1, 1)
        with b.first_warp(), b.when([grid.last_column]):
            following = b.rect(b.scratch("following", wide, 1), 0, 1, 1, 1)
            b.copy(following, of_group, b.rect(carry, 0, 1, 1, 1))
            b.publish(b.rect(groups, grid.group + 1, 1, 1, 1), following)
    if follows or given is not None:
        in_group, found = (
            b.rect(found, 0, chunks, 1, apart),
            b.scratch("before_chunks", wide, chunks),
        )
        b.copy(b.rect(found, 0, chunks, 1, 1), in_group, b.rect(carry, 0, chunks, 1, 0, 0))
        apart = 1
    return b.rect(found, 0, chunks, levels.panels, apart, 0)


def _publish_total(
    b: Builder, grid: _Blocks, panels: Vectors, totals: Buffer, own: Buffer, order: Order
) -> None:
    """Add up each chunk, and them all; give the block's total to others.

    own: receives the exclusive prefix of each chunk in the block and, after them, the block's
    total.
    """
    wide, chunks = b.options.sums, panels.lines
    of_chunks = b.scratch("chunks", wide, panels.count * chunks)
    b.copy(panels.view(b, of_chunks), panels.view(b, totals))
    _add_lines(b, of_chunks, panels)
    in_turn, in_pairs = (b.scratch(name, wide, chunks) for name in ("in_turn", "in_pairs"))
    for one in (in_pairs, in_turn):
        b.copy(b.rect(one, 0, chunks, 1, 1), panels.one(b, of_chunks, 0))
    total = sum_of(b, in_pairs, chunks)
    if grid.columns > 1:
        status = b.status("sums_of_blocks", wide, grid.places)
        b.publish(b.rect(status, grid.number, 1, 1, 1), total)
    vector = Vectors(chunks)
    add_in_turn(b, in_turn, vector, order)
    b.copy(b.rect(own, 0, chunks, 1, 1), preceding(b, in_turn, vector, order))
    b.copy(b.rect(own, chunks, 1, 1, 1), total)


class _Earlier:
    """The exclusive prefix of each chunk of a block in its group: a tree of all blocks' totals.

    In the tree, the block's own place has the chunk's prefix in the block, and later places are
    zero. One more line has the block's total in its place: in the last block it gives the group's
    sum.

    own: these values, one a line. Each warp takes as many places, and a power of 2 of them.
    """

    def __init__(self, b: Builder, grid: _Blocks, own: Buffer, lines: int) -> None:
        self.b, self.grid, self.own, self.lines = b, grid, own, lines
        most = 1 << (b.options.warps.bit_length() - 1)
        columns = 1 << (grid.columns - 1).bit_length()
        self.warps = min(most, max(1, columns // 32))
        self.each = columns // self.warps
        self.columns = columns

    def add_up(self) -> None:
        """Wait for the totals, and add up those of each warp."""
        b, grid, columns, each = self.b, self.grid, self.grid.columns, self.each
        if columns == 1:
            return
        self.values = b.shared("group", b.options.sums, self.lines * self.columns)
        status = b.status("sums_of_blocks", b.options.sums, grid.places)
        place = WARP * each + COL
        bounds = [Bound(grid.place, place) if grid.reverse else Bound(place, grid.place)]
        if grid.reverse and columns < self.columns:
            bounds.append(Bound(place, Index.of(columns)))
        if grid.reverse:
            # Blocks behind a segment's end come first, and publish nothing.
            bounds += grid.in_segment(place)
        with b.when([Bound(WARP, Index.of(self.warps))]):
            row = b.rect(b.scratch("earlier", b.options.sums, each), 0, 1, each, each)
            first = grid.group * columns + WARP * each
            b.await_status(row, b.rect(status, first, 1, each, each, 1, bounds))
            here = [Bound(place, grid.place + 1), Bound(grid.place, place + 1)]
            b.copy(
                b.rect(self.values, WARP * each, self.lines, each, self.columns),
                b.rect(row.buffer, 0, self.lines, each, 0),
                b.rect(self.own, 0, self.lines, each, 1, 0, here),
            )
            _add_lines(
                b, self.values, Vectors(each, self.lines, self.columns, across=True), WARP * each
            )

    def sums(self) -> tuple[Buffer, int]:
        """Return the buffer of each line's sum, in every warp, and its stride."""
        b, lines, warps = self.b, self.lines, self.warps
        if self.grid.columns == 1:
            return self.own, 1
        if warps == 1:
            return self.values, self.columns
        tops = b.scratch("tops", b.options.sums, lines * warps)
        vectors = Vectors(warps, lines, warps, across=True)
        parts = b.rect(self.values, 0, lines, warps, self.columns, self.each)
        b.copy(vectors.view(b, tops), parts)
        _add_lines(b, tops, vectors)
        return tops, warps


def _add_lines(b: Builder, values: Buffer, lines: Vectors, first: Index | int = 0) -> None:
    """Add up each of some vectors, in pairs."""
    rect = b.rect
    pairwise(
        b,
        lambda start, n, apart: rect(values, first + start, lines.lines, n, lines.apart, apart),
        lines.count,
    )


def _await_group(b: Builder, grid: _Blocks, into: View) -> Buffer:
    """Wait for the prefix of the block's group; return the status words of all groups."""
    groups = b.status("sums_of_groups", b.options.sums, grid.places_of_groups)
    words = b.rect(groups, grid.group, 1, 1, 1, 1, [Bound(Index.of(0), grid.turn)])
    b.await_status(into, words)
    return groups
