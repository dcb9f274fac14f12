"""Scans as step programs ([DAKKAK19] section 5): prefix sums by products with U and L.

As in `reduce`, each function serves any tile (m, n, k) and is written for data in the left
operand; `tile_scan` has the products. Not in the paper: `exclusive` leaves the element itself out,
and `reverse` sums from the element to the end. "Last" in a name is always the last in the order of
the scan; see `order.Order`.

At block level the paper's listing counts a chunk's prefix twice and loses its last tile (erratum
E11). Here the carry is added once, and elements past the end of a segment are zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal, TypeAlias

from tcusim.algorithms.builder import (
    LENGTH,
    Builder,
    Level,
    Work,
    numbered,
    require,
    require_float_operands,
)
from tcusim.algorithms.order import FORWARD, Carry, Order
from tcusim.algorithms.panel import PanelWork, ScannedPanel
from tcusim.algorithms.reduce import sum_of
from tcusim.algorithms.registry import algorithm, listing
from tcusim.algorithms.rows import (
    CHUNK_PANELS,
    CHUNKS,
    PANEL_ROWS,
    SIMT_ROWS,
    Chunks,
    FixedRows,
    Groups,
    RaggedRows,
    Rows,
    RowsPerWarp,
    carried,
    data,
    has_own_row,
    odd,
    own_share,
    ragged_share,
    scan_share,
    share_of_block,
    share_of_slots,
    tile_of,
    values_as_left,
)
from tcusim.algorithms.tile_scan import Form, add_totals, last_column, row_scan, tile_scan, upper
from tcusim.algorithms.tree import Vectors, add_in_turn, precede, preceding, scan_vectors
from tcusim.errors import Given
from tcusim.program.grammar import (
    COL,
    ROW,
    WARP,
    Bound,
    Buffer,
    Extent,
    Frag,
    Index,
    PatternKind,
    View,
)

By: TypeAlias = Annotated[
    Literal["doubling", "turn", "running", "tree"],
    "Which values are added: those at doubling distances; one after the other; so, beginning with "
    "the carry, in an exclusive scan; or, of 2**i values, the sums of pairs, of pairs of pairs and "
    "so on, for an exclusive scan.",
]


# --- A segment to a row -----------------------------------------------------------------------


@algorithm(
    "scan_kn",
    "scan",
    "[DAKKAK19] section 5.1, Algorithm 5",
    "N*ceil(k/n)",
    alias="scan_16n",
    repeats=4,
    lines=listing("Alg. 5", init=1, zero=3, loop=5, load=7, R=8, carry=9, out=12),
)
@algorithm(
    "scan_k",
    "scan",
    "[DAKKAK19] section 5.1, segment size 16",
    "ceil(k/n)",
    alias="scan_16",
    title="Scan segments of at most k elements, m segments a warp, in ceil(k/n) products.",
    limited=True,
)
def scan_kn(
    b: Builder, segment_size: int, *, carry: Carry = False, order: Order = FORWARD
) -> int | Work:
    """Scan segments of k*N elements, m segments a warp (Algorithm 5).

    The last column of R is broadcast into S, which the next product accumulates onto. With
    combine="add", S is added by a rounded addition instead, so that nothing drifts. An exclusive R
    lacks the last elements: S <- A.J + S then, a product more for each piece.
    """
    rows = FixedRows(b, segment_size, b.m)
    out = b.output("out", b.options.result, Extent(LENGTH))
    before = b.input("carry", b.options.acc, rows.numbers) if carry else None
    count = -(-rows.longest // b.k)
    u = upper(b, order)
    ones = b.const(b.right("J"), PatternKind.ONES) if order.exclusive and count > 1 else None
    with rows.each():
        s = b.zero(b.accumulator("S"), "zero") if count > 1 or carry else None
        if s is not None and before is not None:
            b.broadcast(s, rows.values(before, repeated=b.n))
        with b.loop("i", count, "loop") as i:
            start = order.turn(i, count) * b.k
            a = b.load_parts("A", rows.part(data(b), start, b.k), "load")
            r = row_scan(b, a, u, s)
            b.store(r, rows.part(out, start, b.k), "out")
            if s is not None and ones is not None:
                add_totals(b, s, a, ones)
            elif s is not None and count > 1:
                last, column = last_column(b, r, order)
                b.broadcast(s, b.part(last, b.m, b.n, 0, column, repeat="col"), line="carry")
    return rows.work()


@algorithm(
    "scan_ragged",
    "irregular_scan",
    "not in the paper",
    repeats=4,
    adds_rows=True,
)
def scan_ragged(
    b: Builder, cut: int, *, chunks: Chunks = CHUNKS, carry: Carry = False, order: Order = FORWARD
) -> int | Work:
    """Scan chunks of at most k*N elements of ragged segments, each a row of a panel.

    Results lie where their elements do.
    """
    panel = ScannedPanel(b, ragged_share(b.m, b.k, cut), order, totals=False)
    rows = RaggedRows(b, cut, panel.count, chunks)
    out = b.output("out", b.options.result, Extent(LENGTH))
    with rows.each():
        view = rows.part(data(b), Index(), panel.row)
        panel.each_row(view, panel.step)
        panel.mend(panel.totals, lambda: panel.source(view))
        before, scanned = None, panel.rows
        if carry:
            # Integers that an accumulator has no room for are sums of 64 bits.
            wide = b.options.sums
            found = b.scratch("before", wide, rows.count)
            given = b.input("carry", wide, rows.numbers)
            b.copy(b.rect(found, 0, rows.count, 1, 1), rows.values(given))
            before = b.rect(found, 0, rows.count, panel.row, 1, 0)
            if wide != b.options.acc:
                widened = b.scratch("widened", wide, rows.count * panel.row)
                scanned = b.rect(widened, 0, rows.count, panel.row, panel.row)
                b.copy(scanned, panel.rows)
        b.copy(rows.part(out, Index(), panel.row), scanned, before, "out")
    return rows.work()


@algorithm("scan_ragged_simt", "irregular_scan", "not in the paper", "0", repeats=4)
def scan_ragged_simt(
    b: Builder,
    cut: int,
    *,
    chunks: Chunks = CHUNKS,
    carry: Carry = False,
    order: Order = FORWARD,
    by: By = "doubling",
    rounds: Annotated[
        int | None, "Of a tree: its later rounds, of which there is an input each; none by default."
    ] = None,
    rows_per_warp: RowsPerWarp = SIMT_ROWS,
) -> int | Work:
    """Scan chunks of ragged segments by rounded additions alone."""
    require(
        rounds is None or by == "tree",
        *("only a tree has rounds: ", Given("by", "tree"), "; got ", Given("by", by)),
    )
    rows = RaggedRows(b, cut, rows_per_warp, chunks)
    vectors = Vectors(cut, rows.count, cut if by == "tree" else odd(cut), across=True)
    source = b.options.source
    elements = vectors.lines * vectors.apart
    x, y = (b.scratch(name, source, elements) for name in ("x", "y"))
    given = b.input("carry", source, rows.numbers) if carry else None
    later = [
        (b.input(f"round{i}", source, rows.numbers), b.scratch(f"found{i}", source, rows.count))
        for i in range(rounds or 0)
    ]
    out = b.output("out", b.options.result, Extent(LENGTH))

    require(
        by != "running" or (order.exclusive and carry),
        *("a running sum begins with the carry: ", Given("carry", True)),
        *(", ", Given("exclusive", True)),
    )
    require(
        by != "tree" or order.exclusive,
        *("a tree gives what precedes each value: ", Given("exclusive", True)),
    )

    def prefixes(size: int, own: Vectors, lying: Vectors) -> View:
        """Find the prefixes of each row's first `size` values, from `x`, by themselves."""
        if by == "running":
            assert given is not None
            first = Bound(Index.of(size - 2), COL) if order.reverse else Bound(COL, Index.of(1))
            carries = b.rect(given, rows.first, rows.count, size, 1, 0, [*rows.inside(), first])
            b.copy(lying.view(b, y), preceding(b, x, lying, order), carries)
            add_in_turn(b, y, own, order)
            return lying.view(b, y)
        if by == "tree":
            found = lying.view(b, y)
            precede(b, x, y, own, order)
            _add_rounds(b, rows, found, later)
            return found
        sums = x
        if by == "turn":
            add_in_turn(b, x, own, order)
        else:
            sums = scan_vectors(b, x, (y, x), own, order)
        return preceding(b, sums, lying, order) if order.exclusive else lying.view(b, sums)

    with rows.each():
        for size in rows.lengths():
            own = vectors if size == vectors.count else replace(vectors, count=size, apart=size)
            lying = replace(own, apart=max(size, own.apart), across=True)
            if size > 1 or not order.exclusive:
                b.copy(lying.view(b, x), rows.part(data(b), Index(), size))
            found = prefixes(size, own, lying)
            before = None
            if given is not None and by != "running":
                before = rows.values(given, repeated=size)
            b.copy(rows.part(out, Index(), size), found, before)
    return rows.work()


def _add_rounds(
    b: Builder, rows: Rows, found: View, rounds: Sequence[tuple[Buffer, Buffer]]
) -> None:
    """Add to the values of each row its addends of later rounds: an input, and room for a row's."""
    for sums, one in rounds:
        b.copy(b.rect(one, 0, rows.count, 1, 1), rows.values(sums))
    for _, one in rounds:
        b.copy(found, found, b.rect(one, 0, *b.size(found), 1, 0))


# --- A segment in consecutive tiles -----------------------------------------------------------


@algorithm(
    "scan_tn",
    "scan",
    "[DAKKAK19] section 5.1, Algorithm 6",
    "N*ceil(k/n)*(2 + ceil(m/k))",
    alias="scan_256n",
    tiles=True,
    repeats=4,
    lines=listing("Alg. 6", init=1, zero=3, loop=4, load=6, AU=7, LA=8, R=9, out=10, carry=11),
)
@algorithm(
    "scan_t",
    "scan",
    "[DAKKAK19] section 5.1, segment size 256",
    "ceil(k/n)*(2 + ceil(m/k))",
    alias="scan_256",
    title="Scan segments of at most a tile, T = m*k elements, one segment a warp (section 5.1).",
    tiles=True,
    limited=True,
)
def scan_tn(
    b: Builder,
    segment_size: int,
    *,
    form: Form = None,
    carry: Carry = False,
    order: Order = FORWARD,
) -> int:
    """Scan segments of T*N elements, one segment a warp, T = m*k (Algorithm 6).

    With combine="add" the row totals are scanned by rounded additions, not by L.
    """
    out = b.output("out", b.options.result, Extent(LENGTH))
    tiles = -(-segment_size // (b.m * b.k))
    scan = tile_scan(b, form, order)
    with b.items():
        s = b.zero(b.accumulator("S"), "zero")
        if carry:
            b.broadcast(s, carried(b, segment_size, b.n))
        with b.loop("i", tiles, "loop") as i:
            number = order.turn(i, tiles)
            r = scan.scan(tile_of(b, data(b), segment_size, number), s)
            b.store(r, tile_of(b, out, segment_size, number), "out", scan.first)
            if tiles > 1:
                scan.carry(r, s)
    return segment_size


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
    b: Builder,
    segment_size: int,
    *,
    form: Form = None,
    carry: Carry = False,
    order: Order = FORWARD,
) -> int:
    """Scan segments of T*N elements, one segment a block, T = m*k (Algorithm 7, corrected).

    In a chunk of W tiles each of W warps scans one. The first warp scans the totals of the tiles,
    beginning with S, the sum of all earlier chunks, and each warp adds the prefix of its tile.
    """
    out = b.output("out", b.options.result, Extent(LENGTH))
    chunks, beyond = share_of_block(b, segment_size)
    scan = tile_scan(b, form, order)
    zero = b.zero(b.accumulator("Z"))
    with b.items():
        s = b.zero(b.accumulator("S"), "zero")
        if carry:
            b.broadcast(s, carried(b, segment_size, b.n))
        with b.loop("i", chunks, "loop") as i:
            warps = b.options.warps
            number = order.turn(i * warps + WARP, chunks * warps)

            def tile(buffer: Buffer, number: Index = number) -> View:
                return tile_of(b, buffer, segment_size, number, beyond=beyond)

            r = scan.scan(tile(data(b)), zero)
            spills = b.spill_all(r, "store")
            if order.exclusive:
                total = scan.total(r)
            else:
                row, column = order.last(b.m), scan.first + order.last(b.k) % b.n
                total = b.part(spills[order.last(len(r))], 1, 1, row, column)
            before = _before_warps(b, total, s, last_chunk=chunks == 1)
            b.write(spills, tile(out), before, "out", scan.first)
    return segment_size


def _before_warps(b: Builder, total: View, s: Frag, *, last_chunk: bool) -> View:
    """Return the exclusive prefix of the warp's tile, in every element.

    total: that of the warp's tile. s: in the first warp, the sum of all earlier chunks in every
    place; it becomes that of this one too, unless it is the last.

    Two barriers are enough: the first warp overwrites the values that the others read only after
    the next barrier, with the totals of the next chunk.
    """
    acc, warps = b.options.acc, b.options.warps
    totals, before = b.shared("totals", acc, warps), b.shared("prtls", acc, warps)
    b.copy(b.rect(totals, WARP, 1, 1, warps), total, line="E")
    b.barrier("gather")
    with b.first_warp("first"):
        if b.options.combine == "add":
            _scan_by_additions(b, totals, before, s)
        else:
            _scan_by_products(b, totals, before, s)
        if not last_chunk:
            ends = [b.rect(one, warps - 1, b.m, b.n, 0, 0) for one in (before, totals)]
            b.broadcast(s, *ends, line="carry")
    b.barrier("spread")
    return b.rect(before, WARP, b.m, b.k, 0, 0)


def _scan_by_products(b: Builder, totals: Buffer, before: Buffer, s: Frag) -> None:
    """Before = E.U + S, E holding the totals and U ones strictly above its diagonal (W x W)."""
    require_float_operands(b)
    warps = b.options.warps
    operands = values_as_left(b, totals, "E")
    for j, name in enumerate(numbered("T", -(-warps // b.n))):
        columns = min(b.n, warps - j * b.n)
        r = b.accumulator(name)
        # Further operands meet only zeros of U.
        for q in range(-(-(j * b.n + columns) // b.k)):
            u = b.const(b.right("US"), PatternKind.UPPER, j * b.n - q * b.k - 1, "scan")
            b.mma(r, operands[q], u, r if q else s, "scan")
        place = b.rect(before, j * b.n, 1, columns, warps)
        b.copy(place, b.part(b.spill(r), 1, columns), line="scan")


def _scan_by_additions(b: Builder, totals: Buffer, before: Buffer, s: Frag) -> None:
    """Before = S + the totals of all earlier warps, scanned in log2(W) rounds."""
    warps = b.options.warps
    vectors = Vectors(warps, apart=warps, across=True)
    one, two = (b.shared(name, b.options.acc, warps) for name in ("prtls1", "prtls2"))
    sums = scan_vectors(b, totals, (one, two), vectors)
    held = b.part(b.spill(s), 1, warps, repeat="col")
    b.copy(vectors.view(b, before), preceding(b, sums, vectors), held)


# --- Several segments in a panel --------------------------------------------------------------


@algorithm(
    "scan_short",
    "scan",
    "not in the paper",
    limited=True,
    combines=("add",),
)
def scan_short(
    b: Builder, segment_size: int, *, groups: Groups = None, order: Order = FORWARD
) -> int:
    """Scan segments of at most k elements, several to a row of a tile."""
    share = share_of_slots("scan", b.m, b.n, b.k, segment_size, groups)
    panel = ScannedPanel(b, share, order, totals=False)
    work = PanelWork(panel, share, segment_size, PANEL_ROWS)
    out = b.output("out", b.options.result, Extent(LENGTH))
    with b.items():
        _scan_panel(b, panel, work, out, None)
    return work.per_unit


BehindParts: TypeAlias = Annotated[
    bool,
    'What precedes each segment are inputs "whole" and "fraction", whose sum with each element is '
    "rounded once: of f64 sums without products, of segments of one panel of several rows.",
]


@algorithm(
    "scan_panel",
    "scan",
    "not in the paper",
    tiles=True,
    repeats=4,
    combines=("add",),
    adds_rows=True,
)
def scan_panel(
    b: Builder,
    segment_size: int,
    *,
    groups: Groups = None,
    carry: Carry = False,
    order: Order = FORWARD,
    behind_parts: BehindParts = False,
) -> int:
    """Scan segments, several short ones a warp or a panel of a long one at a time."""
    if b.options.adds_rows and has_own_row(b.k, "scan", segment_size):
        share = own_share(b.m, b.k, segment_size, groups)
    else:
        share = scan_share(b.m, b.k, segment_size, groups)
    panel = ScannedPanel(b, share, order, totals=share.rows > 1)
    work = PanelWork(panel, share, segment_size, PANEL_ROWS)
    out = b.output("out", b.options.result, Extent(LENGTH))
    if behind_parts:
        added = b.options.adds_rows and b.options.acc == "f64"
        require(
            added and work.passes == 1 and work.rows > 1 and not carry,
            Given("behind_parts"),
            " is for sums in f64 without products and without a carry, of segments of "
            f"a panel that have several rows; got {segment_size} elements of {b.options.ab} to "
            f"{b.options.acc}{', with carry=True' if carry else ''}",
        )
    with b.items():
        if behind_parts:
            _scan_behind_parts(b, panel, work, out)
            return work.per_unit
        given = _of_segments(b, work, "carry") if carry else None
        if work.passes == 1:
            _scan_panel(b, panel, work, out, given)
        else:
            _scan_by_panels(b, panel, work, out, given)
    return work.per_unit


def _scan_panel(
    b: Builder, panel: ScannedPanel, work: PanelWork, out: Buffer, given: View | None
) -> None:
    """Scan the segments of a panel; given: their initial values, if any, for each row."""
    work.each_row(Index(), panel.step)
    before = _before_rows(b, panel, work, given)
    _mend(b, panel, work, Index())
    work.write(Index(), out, panel.rows, before)


def _scan_by_panels(
    b: Builder, panel: ScannedPanel, work: PanelWork, out: Buffer, given: View | None
) -> None:
    """Scan a segment a panel at a time; carry on its sum, and that of the chunk so far.

    given: the segment's initial value, if any, repeated for each row.
    """
    found = b.scratch("found", b.options.acc, CHUNK_PANELS)
    chunk = b.rect(b.scratch("chunk", b.options.acc, 1), 0, 1, 1, 1)
    whole, rest = divmod(work.passes, CHUNK_PANELS)
    chunks = whole + (rest > 0)
    running = b.rect(b.scratch("running", b.options.acc, 1), 0, 1, 1, 1) if chunks > 1 else None
    if running is not None:
        b.clear(running)
    preceding_chunk = running
    if given is not None:
        given = preceding_chunk = b.cut(given, 1, 1)
        if running is not None:
            preceding_chunk = b.rect(b.scratch("preceding", given.buffer.dtype, 1), 0, 1, 1, 1)

    def scan_chunk(first: Index, count: int) -> None:
        b.clear(chunk)
        if preceding_chunk is not None and running is not None and given is not None:
            b.copy(preceding_chunk, running, given)
        with b.loop("p", count) as turn:
            p = panel.order.turn(turn, count)
            work.each_row(first + p, panel.step)
            before = chunk
            if preceding_chunk is not None:
                dtype = preceding_chunk.buffer.dtype
                before = b.rect(b.scratch("base", dtype, 1), 0, 1, 1, 1)
                b.copy(before, chunk, preceding_chunk)
            of_all = b.rect(before.buffer, 0, work.rows, work.lines, 0, 0)
            rows = _before_rows(b, panel, work, of_all)
            _mend(b, panel, work, first + p)
            total = b.rect(panel.sums, panel.order.last(work.rows), 1, 1, 1)
            b.copy(chunk, chunk, total)
            if running is not None:
                b.copy(b.rect(found, p, 1, 1, 1), total)
            # Last, so that the next panel's loads are in flight with these stores.
            work.write(first + p, out, panel.rows, rows)
        if running is not None:
            b.copy(running, running, sum_of(b, found, count))

    if rest and panel.order.reverse:
        scan_chunk(Index.of(whole * CHUNK_PANELS), rest)
    if whole:
        with b.loop("c", whole) as c:
            scan_chunk(panel.order.turn(c, whole) * CHUNK_PANELS, CHUNK_PANELS)
    if rest and not panel.order.reverse:
        scan_chunk(Index.of(whole * CHUNK_PANELS), rest)


def _of_segments(b: Builder, work: PanelWork, name: str) -> View:
    """Return the values that an input has for the work item's segments, repeated for each row."""
    segments, dtype = FixedRows(b, work.segment_size, work.lines), b.options.sums
    kept = b.scratch(f"of_{name}", dtype, work.lines)
    given = b.input(name, dtype, segments.numbers)
    b.copy(b.rect(kept, 0, work.lines, 1, 1), segments.values(given))
    return b.rect(kept, 0, work.rows, work.lines, 0, 1)


def _scan_behind_parts(b: Builder, panel: ScannedPanel, work: PanelWork, out: Buffer) -> None:
    """Scan segments with prefixes of an integer and a fraction, too wide for one float64.

    float64 represents the sum of the fraction and the scan: the integer is added last.
    """
    whole, fraction = (_of_segments(b, work, name) for name in ("whole", "fraction"))
    work.each_row(Index(), panel.step)
    before = _before_rows(b, panel, work, fraction)
    assert before is not None
    work.add(panel.rows, before)
    wholes = b.scratch("wholes", "f64", panel.count)
    b.copy(b.rect(wholes, 0, work.rows, work.lines, 1, work.rows), whole)
    work.write(Index(), out, panel.rows, wholes, join=True)


def _before_rows(
    b: Builder, panel: ScannedPanel, work: PanelWork, before: View | None = None
) -> Buffer | None:
    """Return the exclusive prefix of each row in its segment; None without one.

    before: the prefix of all rows, or of the rows of each segment.
    """
    rows, lines = work.rows, work.lines
    if rows == 1 and before is None:
        return None
    dtype = b.options.acc if before is None else before.buffer.dtype
    if rows == 1:
        assert before is not None
        found = b.scratch("before", dtype, panel.count)
        b.copy(b.rect(found, 0, rows, lines, 1, rows), before)
        return found
    sums = panel.scan_totals(rows, lines)
    shift, inside = panel.order.earlier(1, ROW, rows)
    found = b.scratch("before", dtype, panel.count)
    b.copy(
        b.rect(found, 0, rows, lines, 1, rows),
        b.rect(sums, shift, rows, lines, 1, rows, inside),
        before,
    )
    return found


def _mend(b: Builder, panel: ScannedPanel, work: PanelWork, i: Index) -> None:
    """Scan the rows of pass `i` again if some of their totals are not finite."""
    totals = panel.totals
    if work.rows > 1:
        # They have been copied and scanned, and lanes read neighbours without a conflict.
        totals = b.rect(panel.sums, 0, work.rows * work.lines, 1, 1)
    panel.mend(totals, lambda: work.source(i))
