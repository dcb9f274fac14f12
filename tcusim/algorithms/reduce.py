"""Reductions as step programs ([DAKKAK19] section 4): sums of segments by products with P.

Each function is one algorithm for any tile (m, n, k), written for data in the left operand: a
tile holds m pieces of k consecutive elements as its rows, and V = A.P', where P' has ones in its
first column, puts the m sums into the first column of V. With `side="b"` everything is
transposed, which is the paper's V = P.A with the data loaded column-major.

The paper omits a detail: V is an accumulator and cannot be an operand (erratum E5), so a second
product needs V stored to shared memory and loaded again, as ceil(m/k) tiles.

At block level each warp sums a share of the tiles, and the first warp adds the partial sums. In the
paper's listing all warps read the same tiles (erratum E10), and fewer than 16 warps leave operands
unset (E12). Here a warp has its own tiles, those behind the end of a segment are zeros, and so are
the columns of absent warps. Any number of warps will do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

from tcusim.algorithms.builder import (
    LENGTH,
    Builder,
    Level,
    Spill,
    Work,
    numbered,
    padded,
    require_float_operands,
    skewed,
)
from tcusim.algorithms.order import FORWARD, Order
from tcusim.algorithms.panel import Panel, PanelWork, RowStep, Tiles, one_sum_of_rows
from tcusim.algorithms.registry import algorithm, listing
from tcusim.algorithms.rows import (
    CHUNKS,
    ROW_TILES,
    SIMT_ROWS,
    SUMMED,
    Chunks,
    FixedRows,
    Groups,
    RaggedRows,
    Rows,
    RowsPerWarp,
    data,
    has_own_row,
    odd,
    own_share,
    rows_of_a_pass,
    share_of,
    share_of_block,
    share_of_slots,
    summed_share,
    tile_of,
    values_as_left,
)
from tcusim.algorithms.tile_scan import rows_as_right
from tcusim.algorithms.tree import fold, pairwise
from tcusim.machine.shapes import LDM_BYTES
from tcusim.program.grammar import (
    COL,
    ROW,
    WARP,
    Bound,
    Buffer,
    Frag,
    Index,
    Operation,
    PatternKind,
    View,
)

# --- A segment to a row -----------------------------------------------------------------------


@algorithm(
    "reduction_kn",
    "reduction",
    "[DAKKAK19] section 4.1, Figure 8",
    "N",
    alias="reduction_16n",
    repeats=4,
)
@algorithm(
    "reduction_k",
    "reduction",
    "[DAKKAK19] section 4.1, Algorithm 1",
    "1",
    alias="reduction_16",
    title="Sum segments of at most k elements, m segments a warp, in one product (Algorithm 1).",
    limited=True,
    lines=listing("Alg. 1", init=1, load=3, product=4, out=5),
)
def reduction_kn(b: Builder, segment_size: int) -> int | Work:
    """Sum segments of k*N elements, m segments a warp, with strided loads (Figure 8).

    Row r of every tile is a piece of segment r, so that the m sums build up in V. N products.
    """
    return _sum_rows(b, FixedRows(b, segment_size, b.m))


@algorithm(
    "reduction_ragged",
    "irregular_reduction",
    "not in the paper",
    repeats=4,
    adds_rows=True,
)
def reduction_ragged(
    b: Builder,
    cut: int,
    *,
    chunks: Chunks = CHUNKS,
    reverse: Annotated[
        bool, "Take a row's tiles last to first, as a scan in reverse does."
    ] = False,
) -> int | Work:
    """Sum chunks of at most k*N elements of ragged segments, m or more a warp.

    out[p] is the sum of chunk number p; 0 where there is no chunk of that number.
    """
    order = Order(reverse=reverse)
    share = summed_share(b.m, b.k, cut)
    if share.tiles_per_row > ROW_TILES and not b.options.adds_rows:
        return _sum_rows(b, RaggedRows(b, cut, b.m, chunks), order)
    panel = Panel(b, share, order, totals=True)
    rows, totals = RaggedRows(b, cut, panel.count, chunks), RowTotals(b, panel)
    with rows.each():
        panel.each_row(rows.part(data(b), Index(), panel.row), totals.step)
        rows.write(totals.of_lines(1, panel.count))
    return rows.work()


def _sum_rows(b: Builder, rows: Rows, order: Order = FORWARD) -> int | Work:
    """Sum each row by products with P: those of m rows at a time."""
    ones = b.const(b.right("P"), PatternKind.COL, 0, "init")
    with rows.each():
        pieces = -(-rows.longest // b.k)

        def tile(i: Index) -> View:
            return rows.part(data(b), order.turn(i, pieces) * b.k, b.k)

        v = accumulate(b, pieces, tile, ones)
        rows.write(b.part(b.spill(v), b.m, 1))
    return rows.work()


@algorithm("reduction_ragged_simt", "irregular_reduction", "not in the paper", "0", repeats=4)
def reduction_ragged_simt(
    b: Builder, cut: int, *, chunks: Chunks = CHUNKS, rows_per_warp: RowsPerWarp = SIMT_ROWS
) -> int | Work:
    """Sum chunks of ragged segments by rounded additions alone, each in pairs."""
    rows, stride = RaggedRows(b, cut, rows_per_warp, chunks), odd(cut)
    values = b.scratch("values", b.options.source, rows.count * stride)

    def some(start: int, count: int, apart: int = 1) -> View:
        below = stride if rows.count > 1 else count
        return b.rect(values, start, rows.count, count, below, apart)

    with rows.each():
        for size in rows.lengths():
            b.copy(some(0, size), rows.part(data(b), Index(), size))
            pairwise(b, some, size)
            rows.write(some(0, 1))
    return rows.work()


# --- A segment in consecutive tiles -----------------------------------------------------------


@algorithm(
    "reduction_tn",
    "reduction",
    "[DAKKAK19] section 4.1, Figure 7",
    "N + ceil(m/k)",
    alias="reduction_256n",
    tiles=True,
    repeats=4,
)
@algorithm(
    "reduction_t",
    "reduction",
    "[DAKKAK19] section 4.1, Algorithm 2",
    "1 + ceil(m/k)",
    alias="reduction_256",
    title="Sum segments of at most a tile, T = m*k elements, one segment a warp (Algorithm 2).",
    tiles=True,
    limited=True,
    lines=listing("Alg. 2", init=1, load=3, product=4, finish=5, out=6),
)
def reduction_tn(b: Builder, segment_size: int) -> int | Work:
    """Sum segments of T*N elements, one segment a warp, T = m*k (Figure 7).

    N products accumulate row sums, and ceil(m/k) more finish.
    """
    return sum_tiles(b, segment_size, lambda *tiles: finish(b, accumulate(b, *tiles)))


@algorithm(
    "reduction_tn_block",
    "reduction",
    "[DAKKAK19] section 4.2, Algorithm 4, corrected",
    "W*(ceil(N/W) + ceil(m/k)) + ceil(W/k)",
    alias="reduction_256n_block",
    tiles=True,
    repeats=4,
    level=Level.BLOCK,
    lines=listing(
        "Alg. 4", loop=3, load=3, product=3, finish=3, partial=4, sync=5, first=6, last=6, out=6
    ),
)
def reduction_tn_block(b: Builder, segment_size: int) -> int:
    """Sum segments of T*N elements, one segment a block, T = m*k (Algorithm 4, corrected).

    Each of W warps sums ceil(N/W) tiles that follow one another; the first one adds up their sums.
    """
    rows = FixedRows(b, segment_size, 1)
    ones = b.const(b.right("P"), PatternKind.COL, 0)
    each, beyond = share_of_block(b, segment_size)

    def tile(i: Index) -> View:
        return tile_of(b, data(b), segment_size, WARP * each + i, beyond=beyond)

    with rows.each():
        of_warp = finish(b, accumulate(b, each, tile, ones))
        warps = b.options.warps
        partials = b.shared("prtls", b.options.acc, warps)
        if b.options.items_per_warp > 1:
            # The first warp may still read the warps' values of the previous work item.
            b.barrier()
        b.copy(b.rect(partials, WARP, 1, 1, warps), of_warp, line="partial")
        b.barrier("sync")
        with b.first_warp("first"):
            rows.write(_sum_of_warps(b, partials, ones))
    return segment_size


def _sum_of_warps(b: Builder, partials: Buffer, ones: Frag) -> View:
    """Return the sum of the values of all warps."""
    warps = b.options.warps
    if b.options.combine == "add":
        fold(b, lambda start, count: b.rect(partials, start, 1, count, warps), warps)
        return b.rect(partials, 0, 1, 1, warps)
    require_float_operands(b)
    r = b.zero(b.accumulator("R"))
    for x in values_as_left(b, partials, "last"):
        b.mma(r, x, ones, r, "last")
    return b.part(b.spill(r), 1, 1)


# --- Several segments in a panel --------------------------------------------------------------


@algorithm(
    "reduction_panel",
    "reduction",
    "not in the paper",
    tiles=True,
    repeats=4,
    combines=("add",),
    adds_rows=True,
)
def reduction_panel(b: Builder, segment_size: int, *, groups: Groups = None) -> int:
    """Sum segments, several short ones a warp or a part of a long one at a time.

    Products with ones give the totals of rows of two tiles, m of them at once; those of a segment
    are then added in pairs.
    """
    if b.options.adds_rows and has_own_row(b.k, "reduction", segment_size):
        share = own_share(b.m, b.k, segment_size, groups)
    else:
        share = share_of(b.m, b.k, segment_size, SUMMED, groups)
    panel = Panel(b, share, totals=True)
    work = PanelWork(panel, share, segment_size, rows_of_a_pass(panel.count))
    segments = FixedRows(b, segment_size, work.lines)
    totals = RowTotals(b, panel)
    with segments.each():
        sums = totals.of_lines(work.rows, work.lines)
        if work.passes == 1:
            work.each_row(Index(), totals.step)
            totals.add_up(work.rows, work.lines)
        else:
            found = b.scratch("found", b.options.acc, work.passes)
            with b.loop("i", work.passes) as i:
                work.each_row(i, totals.step)
                totals.add_up(work.rows)
                b.copy(b.rect(found, i, 1, 1, 1), sums)
            sums = sum_of(b, found, work.passes)
        segments.write(sums)
    return work.per_unit


@algorithm(
    "reduction_short",
    "reduction",
    "not in the paper",
    limited=True,
    combines=("add",),
)
def reduction_short(b: Builder, segment_size: int, *, groups: Groups = None) -> int:
    """Sum segments of at most k elements, several to a row of a tile, into full result tiles."""
    share = share_of_slots("reduction", b.m, b.n, b.k, segment_size, groups)
    panel, slots = Panel(b, share), share.slots
    assert slots is not None
    work = PanelWork(panel, share, segment_size, panel.count)
    tiles, per_row, steps = slots.tiles, slots.per_row, panel.steps
    segments = FixedRows(b, segment_size, share.lines)
    out = b.output("out", b.options.result, segments.numbers)
    ldm = skewed(b.n, b.options.acc, LDM_BYTES)
    tile = padded(b.m * ldm, b.options.acc)
    totals = b.scratch("totals", b.options.acc, steps * tile)
    ones = [
        b.const(b.right(name), PatternKind.COL, j * per_row, size=slots.width)
        for j, name in enumerate(numbered("P", tiles))
    ]

    def store(parts: Tiles, g: Index) -> None:
        s = panel.zero
        for j, one in enumerate(ones):
            s = b.mma(b.accumulator("S"), parts(g + j * steps, 0), one, s)
        b.store([s], b.rect(totals, g * tile, b.m, b.n, ldm))

    def sums(j: int, g: Index, rows: int) -> View:
        return b.rect(totals, g * tile + j * per_row, rows, per_row, ldm)

    def repair() -> None:
        rows = work.source(Index())

        def add(parts: Tiles, g: Index) -> None:
            store(parts, g)
            for j in range(tiles):
                values = sums(j, g, b.m), panel.values_of_slots("found")
                given = partial(panel.slots_of, rows, g + j * steps)
                panel.add_not_finite(segment_size, values, given)

        panel.each_group_of(panel.lying(rows, Operation.FINITE), add)

    with b.items():
        work.each_row(Index(), RowStep(store))
        panel.choose(one_sum_of_rows(b, totals, steps, tile, ldm, b.n), repair, lambda: None)
        # Where tiles of sums follow each other as their rows do, all rows are one rectangle.
        whole = tile == b.m * ldm
        lines = steps * b.m if whole else b.m
        for j, g in ((j, g) for j in range(tiles) for g in range(1 if whole else steps)):
            first, bounds = segments.first + (j * steps + g) * b.m * per_row, []
            if b.options.masked:
                bounds.append(Bound((first + ROW * per_row + COL) * segment_size, LENGTH))
            to = b.rect(out, first, lines, per_row, per_row, 1, bounds)
            b.copy(to, sums(j, Index.of(g), lines), line="out")
    return work.per_unit


class RowTotals:
    """The totals of a panel's rows, in shared memory, and their sums."""

    def __init__(self, b: Builder, panel: Panel) -> None:
        self.b = b
        self.panel = panel
        acc = b.options.acc
        self.values = b.scratch("totals", acc, panel.count)

    @property
    def step(self) -> RowStep:
        """The operation that sums rows."""
        return RowStep(self._multiply, self._add)

    def _add(self, view: View, first: int) -> None:
        """Sum rows by additions, from number `first` on."""
        rows, _ = self.b.size(view)
        self.b.prefix(self.b.rect(self.values, first, rows, 1, 1), view)

    def _multiply(self, parts: Tiles, g: Index) -> None:
        """Sum m rows by products with ones."""
        b = self.b
        b.store_column(self.panel.total(parts, g), b.rect(self.values, g * b.m, b.m, 1, 1))

    def add_up(self, rows: int, lines: int = 1) -> None:
        """Add up the totals of `rows` rows each of some segments, in pairs."""
        rect = self.b.rect
        pairwise(
            self.b, lambda start, n, apart: rect(self.values, start, n, lines, apart, rows), rows
        )

    def of_lines(self, rows: int, lines: int = 1) -> View:
        """Return the view of the sums."""
        return self.b.rect(self.values, 0, lines, 1, rows)


def sum_of(b: Builder, values: Buffer, count: int) -> View:
    """Add values in pairs; return the view of their sum."""
    pairwise(b, lambda start, n, apart: b.rect(values, start, 1, n, n, apart), count)
    return b.rect(values, 0, 1, 1, 1)


# --- Parts that several algorithms share ------------------------------------------------------


def sum_tiles(
    b: Builder, segment_size: int, total: Callable[[int, Callable[[Index], View], Frag], View]
) -> int | Work:
    """Sum a segment's tiles by `total`, given how many there are, each one, and P."""
    rows = FixedRows(b, segment_size, 1)
    ones = b.const(b.right("P"), PatternKind.COL, 0, "init")
    tiles = -(-segment_size // (b.m * b.k))
    with rows.each():
        rows.write(total(tiles, lambda i: tile_of(b, data(b), segment_size, i), ones))
    return rows.work()


def accumulate(b: Builder, count: int, view: Callable[[Index], View], ones: Frag) -> Frag:
    """V = sum over i < count of A_i.P', in chains of at most `chain` products.

    A tensor core truncates, so each product loses up to an ulp of V, always toward zero: long
    chains drift. Chains are therefore added up by rounded additions.
    """
    products = b.options.accumulation_length or count * b.options.parts
    accumulation_length = max(1, products // b.options.parts)
    v = b.accumulator("V")

    def run(var: str, steps: int, start: Index) -> None:
        b.zero(v, "zero")
        with b.loop(var, steps, "loop") as i:
            for a in b.load_parts("A", view(start + i), "load"):
                b.mma(v, a, ones, v, "product")

    if count <= accumulation_length:
        run("i", count, Index())
        return v
    total = b.zero(b.accumulator("VT"))
    with b.loop("c", count // accumulation_length) as c:
        run("i", accumulation_length, c * accumulation_length)
        b.add(total, total, v)
    if count % accumulation_length:
        run("i", count % accumulation_length, Index.of(count - count % accumulation_length))
        b.add(total, total, v)
    return total


def finish(b: Builder, v: Frag) -> View:
    """Return the sum of V's first column, as a 1 x 1 view."""
    spill = b.spill(v)
    if b.options.combine == "add":
        fold(b, lambda start, count: b.part(spill, count, 1, start), b.m)
        return b.part(spill, 1, 1)
    top = b.const(b.left("P1"), PatternKind.ROW)
    r = b.zero(b.accumulator("R"))
    second_product(b, spill, top, r)
    return b.part(b.spill(r), 1, 1)


def second_product(b: Builder, spill: Spill, top: Frag, r: Frag) -> None:
    """R = P.V + R, with V loaded as ceil(m/k) right operands of k rows each."""
    require_float_operands(b)
    for q in range(-(-b.m // b.k)):
        b.mma(r, top, b.load(b.right("X"), rows_as_right(b, spill, q)), r, "finish")
