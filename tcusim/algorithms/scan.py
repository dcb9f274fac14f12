"""Scans as step programs ([DAKKAK19] section 5): prefix sums by products with U and L.

As in `reduction`, each function serves any tile (m, n, k) and is written for data in the left
operand. A.U scans the rows of a tile, where U (k x k) has ones on and above its diagonal; L
(m x m) has ones strictly below. (Erratum E1: the paper's definitions of U and L are swapped; its
displayed matrices are right.) U is cut into ceil(k/n) right operands, L into ceil(m/k) left ones.

Not in the paper: `exclusive` leaves the element itself out, by a strict U, and `reverse` sums from
the element to the end, by the transposes of U and L, from the last tile to the first. "Last" in a
name is always the last in the order of the scan; see `order.Order`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal, Protocol, TypeAlias, get_args

from tcusim.algorithms.builder import (
    LENGTH,
    Builder,
    Spill,
    padded,
    require,
    require_float_operands,
    stored_type,
)
from tcusim.algorithms.order import FORWARD, Order
from tcusim.algorithms.registry import algorithm, listing
from tcusim.algorithms.tiles import data, pieces, row_of, rows_of, tile_of
from tcusim.program.grammar import COL, ROW, Bound, Buffer, Extent, Frag, Index, PatternKind, View

__all__ = ["FORMS", "Form", "scan_kn", "scan_plain", "scan_tn"]

Form: TypeAlias = Literal["(LA)1", "L(A1)", "[U|1]"]
FORMS: tuple[Form, ...] = get_args(Form)


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
    b: Builder, segment_size: int, *, exclusive: bool = False, reverse: bool = False
) -> int:
    """Scan segments of k*N elements, m segments a warp (Algorithm 5).

    The last column of R is broadcast into S, which the next product accumulates onto. With
    combine="add", S is added by a rounded addition instead, so that nothing drifts. An exclusive R
    lacks the last elements: S <- A.J + S then, a product more for each piece.
    """
    order = Order(exclusive, reverse)
    out = output(b)
    first = b.unit * b.m
    count = -(-segment_size // b.k)
    u = upper(b, order)
    ones = b.const(b.right("J"), PatternKind.ONES) if exclusive and count > 1 else None
    with b.units():
        s = b.zero(b.accumulator("S"), "zero") if count > 1 else None
        with b.loop("i", count, "loop") as i:
            start = order.turn(i, count) * b.k
            a = b.load_parts("A", pieces(b, data(b), first, segment_size, start), "load")
            r = row_scan(b, a, u, s)
            b.store(r, pieces(b, out, first, segment_size, start), "out")
            if s is not None and ones is not None:
                _add_totals(b, s, a, ones)
            elif s is not None:
                last = _last_column(b, r, order)
                column = b.part(last, b.m, b.n, 0, last_of(b, order), repeat_col=True)
                b.broadcast(s, column, line="carry")
    return b.m * segment_size


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
    form: Form | None = None,
    carry: bool = False,
    exclusive: bool = False,
    reverse: bool = False,
) -> int:
    """Scan segments of T*N elements, one segment a warp, T = m*k (Algorithm 6).

    form: how what precedes each row is found. "(LA)1" is the paper's L.A.1 + A.U, from left to
    right; "L(A1)" needs fewer products where n < k; "[U|1]" gets prefixes and row totals from one
    product, where n > k. carry: add an input `carry`, one value for each segment, to its sums:
    what precedes the segment or, in reverse, follows it.

    With combine="add" the row totals are scanned by rounded additions, not by L.
    """
    form = form_of(b, form)
    order = Order(exclusive, reverse)
    out = output(b)
    tiles = -(-segment_size // (b.m * b.k))
    tile_scan = TILE_SCANS[b.options.combine, form](b, order)
    with b.units():
        s = b.zero(b.accumulator("S"), "zero")
        if carry:
            b.broadcast(s, carry_of(b, b.options.acc, segment_size, b.m, b.n))
        with b.loop("i", tiles, "loop") as i:
            number = order.turn(i, tiles)
            r = tile_scan.scan(tile_of(b, data(b), b.unit, segment_size, number), s)
            target = tile_of(b, out, b.unit, segment_size, number)
            b.store(r, target, "out", tile_scan.first)
            if tiles > 1:
                tile_scan.carry(r, s)
    return segment_size


@algorithm("scan_plain", "scan", "not in the paper", "0", repeats=16)
def scan_plain(
    b: Builder,
    segment_size: int,
    *,
    exclusive: bool = False,
    reverse: bool = False,
    carry: bool = False,
) -> int:
    """Scan segments by rounded additions alone, one segment a warp, in log2 rounds.

    The middle launch of a long scan: its totals need the accumulator's range and precision.
    """
    order = Order(exclusive, reverse)
    out = output(b)
    source = b.options.source
    pair = [b.scratch(name, source, segment_size) for name in ("x", "y")]
    with b.units():
        row = row_of(b, data(b), b.unit, segment_size)
        b.copy(b.rect(pair[0], 0, 1, segment_size, segment_size), row)
        sums = scan_values(b, pair, segment_size, order)
        shift, inside = order.earlier(1, COL, segment_size) if exclusive else (0, ())
        prefix = b.rect(sums, shift, 1, segment_size, segment_size, 1, inside)
        plus = carry_of(b, source, segment_size, 1, segment_size) if carry else None
        b.copy(row_of(b, out, b.unit, segment_size), prefix, plus)
    return segment_size


# --- One tile, by each of the forms -----------------------------------------------------------


class _TileScan(Protocol):
    """How one tile is scanned, and what the next one is given.

    first: the column of R that is the tile's first.
    """

    first: int

    def scan(self, view: View, s: Frag) -> list[Frag]:
        """Return R, the tile's prefix sums plus S, as ceil(k/n) accumulators."""
        ...

    def carry(self, r: list[Frag], s: Frag) -> None:
        """Set S to the sum of everything so far, in every place."""
        ...


class _ByProducts(ABC):
    """R = L.A.1 + A.U + S by the paper's products; subclasses differ in how L.A.1 is had."""

    def __init__(self, b: Builder, order: Order = FORWARD, first: int = 0) -> None:
        require_float_operands(b)
        require(
            b.options.parts == 1,
            f"a {b.options.source} tile is several {b.options.ab} parts, which combine='mma' "
            "cannot scan; use combine='add'",
        )
        self.b = b
        self.order = order
        self.first = first
        self.u = upper(b, order, first)
        self.lower = [
            b.const(b.left(numbered("L", q, b.m > b.k)), *order.preceding(q * b.k), "init")
            for q in range(-(-b.m // b.k))
        ]

    def carry(self, r: list[Frag], s: Frag) -> None:
        """S <- the last element of R, in every place; exclusive, the tile's total is added."""
        if self.order.exclusive:
            self.add_total(s)
        else:
            last = _last_column(self.b, r, self.order)
            self.broadcast(s, last, self.first + last_of(self.b, self.order))

    @abstractmethod
    def add_total(self, s: Frag) -> None:
        """S <- S + the sum of the tile that was scanned last, in every place."""

    def broadcast(self, s: Frag, spill: Spill, col: int) -> None:
        """S <- the element of the last row in this column, in every place."""
        b = self.b
        row = self.order.last(b.m)
        tile = b.part(spill, b.m, b.n, row, col, repeat_row=True, repeat_col=True)
        b.broadcast(s, tile, line="carry")

    def lower_product(self, r: Frag, right: list[Frag], c: Frag) -> Frag:
        """R = L.X + C, with X as ceil(m/k) right operands."""
        for number, (low, x) in enumerate(zip(self.lower, right, strict=True)):
            self.b.mma(r, low, x, r if number else c, "LA")
        return r


class _ProductOfLA(_ByProducts):
    """(L.A).1 + A.U, as printed: ceil(k/n) * (2 + ceil(m/k)) products."""

    def __init__(self, b: Builder, order: Order = FORWARD) -> None:
        super().__init__(b, order)
        self.ones = b.const(b.right("J"), PatternKind.ONES)
        self.operands: tuple[Frag, Frag] | None = None

    def scan(self, view: View, s: Frag) -> list[Frag]:
        """Return R as ceil(k/n) accumulators."""
        b = self.b
        a = b.load(b.left("A"), view, "load")
        au = [
            b.mma(b.accumulator(numbered("AU", j, b.k > b.n)), a, u, s, "AU")
            for j, u in enumerate(self.u)
        ]
        la = [self._lower_times_data(view, j) for j in range(len(self.u))]
        x = _as_left(b, la)
        self.operands = a, x
        return [
            b.mma(b.accumulator(numbered("R", j, b.k > b.n)), x, self.ones, c, "R")
            for j, c in enumerate(au)
        ]

    def add_total(self, s: Frag) -> None:
        """S <- the last row of (L.A).1 + (A.1 + S)."""
        b = self.b
        assert self.operands is not None
        a, x = self.operands
        total = b.mma(b.accumulator("T"), a, self.ones, s, "carry")
        self.broadcast(s, b.spill(b.mma(total, x, self.ones, total, "carry")), 0)

    def _lower_times_data(self, view: View, j: int) -> Frag:
        """LA = L.A, columns j*n on, with A's rows as ceil(m/k) right operands."""
        b = self.b
        right = [
            b.load(b.right(numbered("B", q, b.m > b.k)), _as_right(b, view, q, j))
            for q in range(len(self.lower))
        ]
        la = b.accumulator(numbered("LA", j, b.k > b.n))
        return self.lower_product(la, right, b.zero(b.accumulator("Z")))


class _ByTotals(_ByProducts):
    """L.X + A.U + S, X being the row totals in every column; subclasses differ in how X is had."""

    def __init__(self, b: Builder, order: Order = FORWARD, first: int = 0) -> None:
        super().__init__(b, order, first)
        self.totals: list[Frag] = []

    def load_totals(self, part: Callable[[int], View]) -> None:
        """Load X as ceil(m/k) right operands, the rows q*k on from part(q)."""
        b = self.b
        self.totals = [
            b.load(b.right(numbered("X", q, b.m > b.k)), part(q)) for q in range(len(self.lower))
        ]

    def add_total(self, s: Frag) -> None:
        """S <- 1.X + S, which needs no trip through shared memory."""
        ones = self.b.const(self.b.left("J1"), PatternKind.ONES)
        for x in self.totals:
            self.b.mma(s, ones, x, s, "carry")


class _ProductOfA1(_ByTotals):
    """L.(A.1) + A.U: the row totals first; ceil(k/n) * (1 + ceil(m/k)) + 1 products."""

    def __init__(self, b: Builder, order: Order = FORWARD) -> None:
        super().__init__(b, order)
        self.ones = b.const(b.right("J"), PatternKind.ONES)

    def scan(self, view: View, s: Frag) -> list[Frag]:
        """Return R as ceil(k/n) accumulators."""
        b = self.b
        a = b.load(b.left("A"), view)
        au = [
            b.mma(b.accumulator(numbered("AU", j, b.k > b.n)), a, u, s, "AU")
            for j, u in enumerate(self.u)
        ]
        v = b.mma(b.accumulator("V"), a, self.ones, b.zero(b.accumulator("Z")))
        self.load_totals(partial(rows_of, b, b.spill(v)))
        return [
            self.lower_product(b.accumulator(numbered("R", j, b.k > b.n)), self.totals, c)
            for j, c in enumerate(au)
        ]


class _ProductOfU1(_ByTotals):
    """A.[U|1] gives prefixes and row totals at once where n > k; 1 + ceil(m/k) products."""

    def __init__(self, b: Builder, order: Order = FORWARD) -> None:
        first, self.column = order.beside_total(b.k)
        super().__init__(b, order, first)
        self.start = b.accumulator("S0")

    def scan(self, view: View, s: Frag) -> list[Frag]:
        """Return R as one accumulator, of which k columns count."""
        b = self.b
        a = b.load(b.left("A"), view)
        # S belongs to the prefixes, not to the totals: [S|0], or [0|S] in reverse.
        held = b.spill(s)
        inside = [Bound(COL, Index.of(b.k)) if self.first == 0 else Bound(Index.of(0), COL)]
        b.broadcast(self.start, b.part(held, b.m, b.n, bounds=inside))
        d = b.mma(b.accumulator("D"), a, self.u[0], self.start)
        self.load_totals(partial(self._totals, b.spill(d)))
        return [self.lower_product(b.accumulator("R"), self.totals, d)]

    def _totals(self, spill: Spill, q: int) -> View:
        """Return the totals of rows q*k on, repeated in every column."""
        b = self.b
        bounds = [Bound(ROW + q * b.k, Index.of(b.m))] if (q + 1) * b.k > b.m else []
        return b.part(spill, b.k, b.n, q * b.k, self.column, repeat_col=True, bounds=bounds)


class _ByAdditions:
    """R = A.U + C, C being what precedes each row: row totals scanned by rounded additions.

    Row totals come from a product with ones or, joint, from [U|1] with the prefixes.
    """

    def __init__(self, b: Builder, order: Order = FORWARD, *, joint: bool = False) -> None:
        self.b = b
        self.order = order
        self.first, self.column = order.beside_total(b.k) if joint else (0, 0)
        self.u = upper(b, order, self.first)
        self.ones = None if joint else b.const(b.right("J"), PatternKind.ONES)
        self.sums: Buffer | None = None

    def scan(self, view: View, s: Frag) -> list[Frag]:
        """Return R as ceil(k/n) accumulators."""
        b = self.b
        parts = b.load_parts("A", view)
        au = [
            _sum_of_products(b, numbered("AU", j, b.k > b.n), parts, u)
            for j, u in enumerate(self.u)
        ]
        v = au[0] if self.ones is None else _sum_of_products(b, "V", parts, self.ones)
        column = b.part(b.spill(v), b.m, 1, 0, self.column)
        pair = [b.scratch(name, b.options.acc, b.m) for name in ("x", "y")]
        b.copy(b.rect(pair[0], 0, b.m, 1, 1), column)
        self.sums = scan_values(b, pair, b.m, self.order)
        shift, inside = self.order.earlier(1, ROW, b.m)
        c = b.broadcast(b.accumulator("C"), b.rect(self.sums, shift, b.m, b.n, 1, 0, inside))
        b.add(c, c, s)
        return [b.add(b.accumulator(numbered("R", j, b.k > b.n)), x, c) for j, x in enumerate(au)]

    def carry(self, r: list[Frag], s: Frag) -> None:
        """S <- S + the tile's total (R's last element would do, but has the product's rounding)."""
        b = self.b
        assert self.sums is not None
        total = b.rect(self.sums, self.order.last(b.m), b.m, b.n, 0, 0)
        b.add(s, s, b.broadcast(b.accumulator("C"), total))


# Each is called with a Builder and, unless it is to scan forward, an Order.
TILE_SCANS: dict[tuple[str, str], Callable[..., _TileScan]] = {
    ("mma", "(LA)1"): _ProductOfLA,
    ("mma", "L(A1)"): _ProductOfA1,
    ("mma", "[U|1]"): _ProductOfU1,
    ("add", "L(A1)"): _ByAdditions,
    ("add", "[U|1]"): partial(_ByAdditions, joint=True),
}


def form_of(b: Builder, form: Form | None) -> Form:
    """Return the form to build; refuse one that the shape cannot do."""
    combine = b.options.combine
    if form is None:
        form = "(LA)1" if combine == "mma" else "[U|1]" if b.n > b.k else "L(A1)"
    require(form in FORMS, f"unknown form {form!r}; valid: {', '.join(FORMS)}")
    require(
        (combine, form) in TILE_SCANS,
        "form '(LA)1' rounds partial sums to the operand type; combine='add' takes 'L(A1)'",
    )
    require(
        form != "[U|1]" or b.n > b.k,
        f"form '[U|1]' needs more result columns than k; the shape {b.options.shape.name} with "
        f"data as operand {b.options.side} has {b.n} and k = {b.k}. Use 'L(A1)'",
    )
    return form


# --- Parts that several algorithms share ------------------------------------------------------


def output(b: Builder) -> Buffer:
    return b.output("out", b.options.result, Extent(LENGTH))


def carry_of(b: Builder, dtype: str, segment_size: int, rows: int, cols: int) -> View:
    """Return the segment's element of the input `carry`, repeated in a rectangle."""
    given = b.input("carry", dtype, Extent(LENGTH, segment_size))
    bounds = [Bound(b.unit * segment_size, LENGTH)] if b.options.ragged else []
    return b.rect(given, b.unit, rows, cols, 0, 0, bounds)


def upper(b: Builder, order: Order = FORWARD, first: int = 0) -> list[Frag]:
    """Return U as ceil(k/n) right operands; its first column is column `first` of them."""
    return [
        b.const(b.right(numbered("U", j, b.k > b.n)), *order.summed(j * b.n - first), "init")
        for j in range(-(-b.k // b.n))
    ]


def numbered(name: str, number: int, several: bool) -> str:
    """Return the paper's name of a matrix, with a number if it is cut into several operands."""
    return f"{name}{number}" if several else name


def last_of(b: Builder, order: Order = FORWARD) -> int:
    """Return the place of the last column of R in the accumulator that holds it."""
    return order.last(b.k) % b.n


def row_scan(b: Builder, parts: list[Frag], u: list[Frag], s: Frag | None) -> list[Frag]:
    """Return A.U + S as ceil(k/n) accumulators."""
    if s is not None and b.options.combine == "mma" and len(parts) == 1:
        return [
            b.mma(b.accumulator(numbered("R", j, b.k > b.n)), parts[0], x, s, "R")
            for j, x in enumerate(u)
        ]
    rows = [_sum_of_products(b, numbered("R", j, b.k > b.n), parts, x) for j, x in enumerate(u)]
    if s is not None:
        for r in rows:
            b.add(r, r, s)
    return rows


def _sum_of_products(b: Builder, name: str, parts: list[Frag], right: Frag) -> Frag:
    """D = sum over the parts of A_p.right."""
    d = b.zero(b.accumulator(name))
    for part in parts:
        b.mma(d, part, right, d, "R")
    return d


def _add_totals(b: Builder, s: Frag, parts: list[Frag], ones: Frag) -> None:
    """S <- A.J + S: the total of each row of the data, added in every column."""
    if b.options.combine == "mma" and len(parts) == 1:
        b.mma(s, parts[0], ones, s, "carry")
    else:
        b.add(s, s, _sum_of_products(b, "V", parts, ones), "carry")


def _last_column(b: Builder, r: list[Frag], order: Order = FORWARD) -> Spill:
    """Store the accumulator that holds the last column of R."""
    return b.spill(r[order.last(len(r))], "s_last")


def _as_right(b: Builder, view: View, q: int, j: int) -> View:
    """Return rows q*k on and columns j*n on of the data tile as a right operand, zero-padded."""
    row, col = q * b.k, j * b.n
    tile = b.cut(view, b.k, b.n, row, col)
    down, across = (COL, ROW) if b.transposed else (ROW, COL)
    bounds = list(tile.bounds)
    if row + b.k > b.m:
        bounds.append(Bound(down + row, Index.of(b.m)))
    if col + b.n > b.k:
        bounds.append(Bound(across + col, Index.of(b.k)))
    return replace(tile, bounds=tuple(bounds))


def _as_left(b: Builder, blocks: list[Frag]) -> Frag:
    """Load accumulators that lie side by side, (m, k) in all, as one left operand."""
    dtype = stored_type(b.options.ab)
    spills = [b.spill(frag, "s_LA", j, len(blocks)) for j, frag in enumerate(blocks)]
    x = b.left("X")
    if len(blocks) == 1:
        return b.load(x, b.part(spills[0], b.m, b.k))
    ldm = padded(b.k, dtype)
    joined = b.scratch("t_LA", dtype, b.m * ldm)
    for j, spill in enumerate(spills):
        count = min(b.n, b.k - j * b.n)
        b.copy(b.rect(joined, j * b.n, b.m, count, ldm), b.part(spill, b.m, count))
    return b.load(x, b.rect(joined, 0, b.m, b.k, ldm))


def scan_values(
    b: Builder, pair: list[Buffer], count: int, order: Order = FORWARD, lines: int = 1
) -> Buffer:
    """Scan `count` values from pair[0] by doubling distances; return the buffer of the result.

    The sums are inclusive, whatever the order is. lines: how many scans of `count` values lie there
    one after the other.
    """
    now, then = pair
    stride = count if lines > 1 else 1
    distance = 1
    while distance < count:
        here = b.rect(now, 0, count, lines, 1, stride)
        shift, inside = order.earlier(distance, ROW, count)
        before = b.rect(now, shift, count, lines, 1, stride, inside)
        b.copy(b.rect(then, 0, count, lines, 1, stride), here, before)
        now, then = then, now
        distance *= 2
    return now
