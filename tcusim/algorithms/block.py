"""Reductions and scans of a block, whose warps share segments ([DAKKAK19] sections 4.2 and 5.2).

Each warp does what the algorithm of a warp does with a share of the tiles. What its share sums up
to goes to shared memory, a column for each warp and a row for each segment; there the first warp
adds up the columns, or scans them, by products as in the paper or by rounded additions.

What the paper's listings get wrong: all warps read the same tiles (erratum E10), a scan counts
what precedes a chunk twice and loses its last tile (E11), and fewer than 16 warps leave operands
unset (E12). Here a warp has its own tiles, tiles behind the end of a segment are zeros, the carry
joins once, and columns of absent warps are zeros. Any number of warps will do.
"""

from __future__ import annotations

from tcusim.algorithms import reduction, scan
from tcusim.algorithms.builder import Builder, Level, require_float_operands
from tcusim.algorithms.registry import algorithm, listing
from tcusim.algorithms.tiles import data, pieces, tile_of
from tcusim.program.grammar import (
    COL,
    ROW,
    WARP,
    Bound,
    Buffer,
    Frag,
    Index,
    PatternKind,
    View,
)

__all__ = ["reduction_kn_block", "reduction_tn_block", "scan_kn_block", "scan_tn_block"]


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
    out = reduction.output(b, segment_size)
    ones = b.const(b.right("P"), PatternKind.COL, 0)
    each, beyond = _share(b, segment_size, b.m * b.k)

    def tile(i: Index) -> View:
        return tile_of(b, data(b), b.unit, segment_size, WARP * each + i, beyond=beyond)

    with b.units():
        v = reduction.accumulate(b, each, tile, ones)
        partials = _gather(b, reduction.finish(b, v))
        with b.first_warp("first"):
            total = _combined(b, partials, 1, ones)
            b.copy(reduction.results(b, out, b.unit, 1, segment_size), total, line="out")
    return segment_size


@algorithm(
    "reduction_kn_block",
    "reduction",
    "not in the paper",
    "W*ceil(N/W) + ceil(W/k)",
    alias="reduction_16n_block",
    repeats=4,
    level=Level.BLOCK,
)
def reduction_kn_block(b: Builder, segment_size: int) -> int:
    """Sum segments of k*N elements, m segments a block, with strided loads.

    Not in the paper, which has no block level of Figure 8. Each of W warps sums ceil(N/W) pieces
    of all m segments; the first one adds up their columns of m sums.
    """
    out = reduction.output(b, segment_size)
    first = b.unit * b.m
    ones = b.const(b.right("P"), PatternKind.COL, 0)
    each, beyond = _share(b, segment_size, b.k)

    def piece(i: Index) -> View:
        start = (WARP * each + i) * b.k
        return pieces(b, data(b), first, segment_size, start, beyond=beyond)

    with b.units():
        v = reduction.accumulate(b, each, piece, ones)
        partials = _gather(b, b.part(b.spill(v), b.m, 1))
        with b.first_warp():
            sums = _combined(b, partials, b.m, ones)
            b.copy(reduction.results(b, out, first, b.m, segment_size), sums)
    return b.m * segment_size


@algorithm(
    "scan_tn_block",
    "scan",
    "[DAKKAK19] section 5.2, Algorithm 7, corrected",
    "ceil(N/W)*(W*ceil(k/n)*(2 + ceil(m/k)) + ceil(W/n))",
    alias="scan_256n_block",
    tiles=True,
    repeats=4,
    level=Level.BLOCK,
    lines=listing(
        "Alg. 7", init=1, zero=6, loop=7, load=9, AU=10, LA=11, R=12, store=13, gather=14, first=15,
        E=16, scan=17, spread=18, out=22, carry=23,
    ),
)  # fmt: skip
def scan_tn_block(
    b: Builder, segment_size: int, *, form: scan.Form | None = None, carry: bool = False
) -> int:
    """Scan segments of T*N elements, one segment a block, T = m*k (Algorithm 7, corrected).

    In a chunk of W tiles each of W warps scans one. The first warp scans the totals of the tiles,
    beginning with S, the sum of all earlier chunks, and each warp adds what precedes its tile.
    form, carry: as of `scan_tn`.
    """
    form = scan.form_of(b, form)
    out = scan.output(b)
    chunks, beyond = _share(b, segment_size, b.m * b.k)
    tile_scan = scan.TILE_SCANS[b.options.combine, form](b)
    zero = b.zero(b.accumulator("Z"))
    with b.units():
        s = b.zero(b.accumulator("S"), "zero")
        if carry:
            b.broadcast(s, scan.carry_of(b, b.options.acc, segment_size, b.m, b.n))
        with b.loop("i", chunks, "loop") as i:
            number = i * b.options.warps + WARP

            def tile(buffer: Buffer, number: Index = number) -> View:
                return tile_of(b, buffer, b.unit, segment_size, number, beyond=beyond)

            spills = b.spill_all(tile_scan.scan(tile(data(b)), zero), "store")
            total = b.part(spills[-1], 1, 1, b.m - 1, scan.last_of(b))
            before = _before(b, total, s, last_chunk=chunks == 1)
            b.write(spills, tile(out), before, "out")
    return segment_size


@algorithm(
    "scan_kn_block",
    "scan",
    "not in the paper",
    "ceil(N/W)*(W*ceil(k/n) + ceil(W/n))",
    alias="scan_16n_block",
    repeats=4,
    level=Level.BLOCK,
)
def scan_kn_block(b: Builder, segment_size: int) -> int:
    """Scan segments of k*N elements, m segments a block, with strided loads.

    Not in the paper, which has no block level of Algorithm 5. In a chunk of W pieces of each of m
    segments a warp scans one piece of all; what precedes the pieces is a column for each warp.
    """
    out = scan.output(b)
    first = b.unit * b.m
    chunks, beyond = _share(b, segment_size, b.k)
    u = scan.upper(b)
    with b.units():
        s = b.zero(b.accumulator("S"))
        with b.loop("i", chunks) as i:
            start = (i * b.options.warps + WARP) * b.k

            def piece(buffer: Buffer, start: Index = start) -> View:
                return pieces(b, buffer, first, segment_size, start, beyond=beyond)

            a = b.load_parts("A", piece(data(b)))
            spills = b.spill_all(scan.row_scan(b, a, u, None))
            column = b.part(spills[-1], b.m, 1, 0, scan.last_of(b))
            before = _before(b, column, s, last_chunk=chunks == 1)
            b.write(spills, piece(out), before)
    return b.m * segment_size


# --- Parts that several algorithms share ------------------------------------------------------


def _share(b: Builder, segment_size: int, size: int) -> tuple[int, bool]:
    """Return how many pieces of `size` elements each warp takes, and if some are behind the end."""
    count = -(-segment_size // size)
    warps = b.options.warps
    return -(-count // warps), count % warps > 0


def _rows(b: Builder, column: View) -> int:
    """Return the rows of a column, as the algorithm sees it."""
    return column.cols if b.transposed else column.rows


def _table(b: Builder, name: str, rows: int) -> Buffer:
    """Declare shared memory for `rows` values of each warp, a column each."""
    return b.shared(name, b.options.acc, rows * b.options.warps)


# --- Sums of all warps ------------------------------------------------------------------------


def _gather(b: Builder, column: View) -> Buffer:
    """Put the warp's column of partial sums beside those of the others, and wait for all."""
    rows = _rows(b, column)
    partials = _table(b, "prtls", rows)
    if b.options.tiles > 1:
        # The first warp may still read what the warps put there for their last piece of work.
        b.barrier()
    b.copy(b.rect(partials, WARP, rows, 1, b.options.warps), column, line="partial")
    b.barrier("sync")
    return partials


def _combined(b: Builder, partials: Buffer, rows: int, ones: Frag) -> View:
    """Return the sums of the rows of partial sums, as a column."""
    warps = b.options.warps
    if b.options.combine == "add":

        def some(start: int, count: int) -> View:
            return b.rect(partials, start, rows, count, warps)

        reduction.fold(b, some, warps)
        return b.rect(partials, 0, rows, 1, warps)
    require_float_operands(b)
    r = b.zero(b.accumulator("R"))
    for x in _operands(b, partials, rows, "last"):
        b.mma(r, x, ones, r, "last")
    return b.part(b.spill(r), rows, 1)


def _operands(b: Builder, values: Buffer, rows: int, line: str) -> list[Frag]:
    """Load `rows` rows of W values as ceil(W/k) left operands, zeros elsewhere."""
    warps = b.options.warps
    inside = [Bound(ROW, Index.of(rows))] if rows < b.m else []
    found = []
    for q in range(-(-warps // b.k)):
        bounds = [*inside, Bound(COL + q * b.k, Index.of(warps))]
        view = b.rect(values, q * b.k, b.m, b.k, warps, 1, bounds)
        frag = b.left(scan.numbered("E", q, warps > b.k))
        found.append(b.load(frag, view, line))
    return found


# --- What precedes each warp ------------------------------------------------------------------


def _before(b: Builder, column: View, s: Frag, *, last_chunk: bool) -> View:
    """Return what precedes the warp's tile in each row, the same in all k columns.

    column: the totals of the warp's tile, one for each segment. s: in the first warp, the sum of
    all earlier chunks in every place; it becomes that of this one too, unless it is the last.

    Two barriers are enough: the first warp writes what the others read only after they have all
    met again, with the totals of the next chunk.
    """
    rows, warps = _rows(b, column), b.options.warps
    totals, before = _table(b, "totals", rows), _table(b, "prtls", rows)
    stride = 0 if rows == 1 else warps
    b.copy(b.rect(totals, WARP, rows, 1, warps), column, line="E")
    b.barrier("gather")
    with b.first_warp("first"):
        if b.options.combine == "add":
            _scan_by_additions(b, totals, before, rows, s)
        else:
            _scan_by_products(b, totals, before, rows, s)
        if not last_chunk:
            ends = [b.rect(one, warps - 1, b.m, b.n, stride, 0) for one in (before, totals)]
            b.broadcast(s, *ends, line="carry")
    b.barrier("spread")
    return b.rect(before, WARP, b.m, b.k, stride, 0)


def _scan_by_products(b: Builder, totals: Buffer, before: Buffer, rows: int, s: Frag) -> None:
    """Before = E.U + S, E holding the totals and U ones strictly above its diagonal (W x W)."""
    require_float_operands(b)
    warps = b.options.warps
    operands = _operands(b, totals, rows, "E")
    for j in range(-(-warps // b.n)):
        columns = min(b.n, warps - j * b.n)
        r = b.accumulator(scan.numbered("T", j, warps > b.n))
        # Further operands meet only zeros of U.
        for q in range(-(-(j * b.n + columns) // b.k)):
            u = b.const(b.right("US"), PatternKind.UPPER, j * b.n - q * b.k - 1, "scan")
            b.mma(r, operands[q], u, r if q else s, "scan")
        place = b.rect(before, j * b.n, rows, columns, warps)
        b.copy(place, b.part(b.spill(r), rows, columns), line="scan")


def _scan_by_additions(b: Builder, totals: Buffer, before: Buffer, rows: int, s: Frag) -> None:
    """Before = S + the totals of all earlier warps, scanned in log2(W) rounds."""
    warps = b.options.warps
    now, spare = totals, [_table(b, name, rows) for name in ("prtls1", "prtls2")]
    distance = 1
    while distance < warps:
        here = b.rect(now, 0, rows, warps, warps)
        earlier = [Bound(Index.of(distance - 1), COL)]
        shifted = b.rect(now, -distance, rows, warps, warps, 1, earlier)
        b.copy(b.rect(spare[0], 0, rows, warps, warps), here, shifted)
        now = spare[0]
        spare.reverse()
        distance *= 2
    first = [Bound(Index.of(0), COL)]
    sums = b.rect(now, -1, rows, warps, warps, 1, first)
    held = b.part(b.spill(s), rows, warps, repeat_col=True)
    b.copy(b.rect(before, 0, rows, warps, warps), sums, held)
