"""Scans of the rows of a tile, and of a whole tile, by products with U, L and ones.

A.U scans the rows of a tile, where U (k x k) has ones on and above its diagonal; L (m x m) has ones
strictly below. (Erratum E1: the paper's definitions of U and L are swapped; its displayed matrices
are right.) U is cut into ceil(k/n) right operands, L into ceil(m/k) left ones.

A scan of a tile is put together of three parts. *Prefixes* of the rows come from A.U or, with the
rows' totals beside them, from A.[U|1], where n > k. *Totals* of the rows come from A.1, or from the
column beside the prefixes. The prefix of each row is *combined* from the totals by a product with
L, or by rounded additions. The paper's form, (L.A).1 + A.U, needs no totals.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal, TypeAlias, get_args

from tcusim.algorithms.builder import (
    Builder,
    Spill,
    below,
    numbered,
    padded,
    require,
    require_float_operands,
    stored_type,
)
from tcusim.algorithms.order import FORWARD, Order
from tcusim.algorithms.tree import Vectors, scan_vectors
from tcusim.errors import Given
from tcusim.program.grammar import COL, ROW, Bound, Buffer, Frag, Index, PatternKind, View

_FORM = Literal["(LA)1", "L(A1)", "[U|1]"]
Form: TypeAlias = Annotated[
    _FORM | None,
    'How what precedes each row is found. "(LA)1" is the paper\'s L.A.1 + A.U, from left to right; '
    '"L(A1)" needs fewer products where n < k; "[U|1]" gets prefixes and row totals from one '
    "product, where n > k.",
]
FORMS: tuple[str, ...] = get_args(_FORM)


# --- Rows -------------------------------------------------------------------------------------


def results(b: Builder, name: str) -> list[Frag]:
    """Name the ceil(k/n) accumulators that hold an (m, k) result."""
    return [b.accumulator(one) for one in numbered(name, -(-b.k // b.n))]


def upper(b: Builder, order: Order = FORWARD, first: int = 0, size: int = 0) -> list[Frag]:
    """Return U as ceil(k/n) right operands; its first column is column `first` of them.

    size: of segments that share a row; where there are several, U is one operand.
    """
    return [
        b.const(b.right(name), *order.summed(j * b.n - first), "init", size=size)
        for j, name in enumerate(numbered("U", -(-b.k // b.n)))
    ]


def row_scan(b: Builder, parts: list[Frag], u: list[Frag], s: Frag | None) -> list[Frag]:
    """Return A.U + S as ceil(k/n) accumulators."""
    if s is not None and b.options.combine == "mma" and len(parts) == 1:
        return _onto(b, "R", parts[0], u, s)
    rows = _products(b, "R", parts, u)
    return rows if s is None else [b.add(r, r, s) for r in rows]


def _onto(b: Builder, name: str, a: Frag, u: list[Frag], s: Frag) -> list[Frag]:
    """Return A.U + S, each product accumulated onto S."""
    return [b.mma(r, a, x, s, name) for r, x in zip(results(b, name), u, strict=True)]


def _products(b: Builder, name: str, parts: list[Frag], u: list[Frag]) -> list[Frag]:
    """Return A.U for every part of A."""
    return [_sum_of_products(b, r, parts, x) for r, x in zip(results(b, name), u, strict=True)]


def add_totals(b: Builder, s: Frag, parts: list[Frag], ones: Frag) -> None:
    """S <- A.J + S: the total of each row of the data, added in every column."""
    if b.options.combine == "mma" and len(parts) == 1:
        b.mma(s, parts[0], ones, s, "carry")
    else:
        b.add(s, s, _sum_of_products(b, b.accumulator("V"), parts, ones), "carry")


def last_column(b: Builder, r: list[Frag], order: Order) -> tuple[Spill, int]:
    """Store the accumulator that holds the last column of R; return it and the column's place."""
    return b.spill(r[order.last(len(r))], "s_last"), order.last(b.k) % b.n


def _sum_of_products(b: Builder, d: Frag, parts: list[Frag], right: Frag) -> Frag:
    """D = sum over the parts of A_p.right."""
    b.zero(d)
    for part in parts:
        b.mma(d, part, right, d, "R")
    return d


def rows_as_right(b: Builder, spill: Spill, q: int, column: int | None = None) -> View:
    """Return rows q*k .. q*k+k of a spilled accumulator as a right operand, zeros below row m.

    column: the one that is repeated in all columns, if not all are equal anyway.
    """
    repeat: Literal["", "col"] = "" if column is None else "col"
    bounds = below(ROW, q * b.k, b.k, b.m)
    return b.part(spill, b.k, b.n, q * b.k, column or 0, repeat=repeat, bounds=bounds)


# --- Tiles ------------------------------------------------------------------------------------


def tile_scan(b: Builder, form: Form, order: Order) -> TileScan:
    """Return the tile scan of a form; raise an error if the shape does not support it."""
    by_mma = b.options.combine == "mma"
    if form is None:
        form = "(LA)1" if by_mma else "[U|1]" if b.n > b.k else "L(A1)"
    require(
        by_mma or form != "(LA)1",
        *(Given("form", "(LA)1"), " rounds partial sums to the operand type; "),
        *(Given("combine", "add"), " takes 'L(A1)'"),
    )
    require(
        form != "[U|1]" or b.n > b.k,
        f"form '[U|1]' needs more result columns than k; the shape {b.options.shape.name} with "
        f"data as operand {b.options.side} has {b.n} and k = {b.k}. Use 'L(A1)'",
    )
    if by_mma:
        require_float_operands(b)
        require(
            b.options.parts == 1,
            f"a {b.options.source} tile is several {b.options.ab} parts, which ",
            *(Given("combine", "mma"), " cannot scan; use ", Given("combine", "add")),
        )
    return (_PrintedScan if form == "(LA)1" else TileScan)(b, order, joint=form == "[U|1]")


class TileScan:
    """One tile's scan, and its carry to the next tile: L.(A.1) + A.U + S.

    Attributes
    ----------
    first : int
        The column of R that is the tile's first.
    """

    def __init__(self, b: Builder, order: Order, *, joint: bool) -> None:
        self.b = b
        self.order = order
        self.joint = joint
        self.first, self.column = order.beside_total(b.k) if joint else (0, 0)
        self.u = upper(b, order, self.first)
        self.lower: list[Frag] = []
        if b.options.combine == "mma":
            self.lower = [
                b.const(b.left(name), *order.preceding(q * b.k), "init")
                for q, name in enumerate(self._row_blocks("L"))
            ]
        self.ones = None if joint else b.const(b.right("J"), PatternKind.ONES)
        # The last scan's result for `carry`: X, the rows' totals in every column, as ceil(m/k)
        # right operands, or the totals scanned.
        self.x: list[Frag] = []
        self.sums: Buffer | None = None

    def _row_blocks(self, name: str) -> list[str]:
        """Name the ceil(m/k) operands that hold a matrix of m rows (L: of m columns)."""
        return numbered(name, -(-self.b.m // self.b.k))

    def scan(self, view: View, s: Frag) -> list[Frag]:
        """Return R, the tile's prefix sums plus S, as ceil(k/n) accumulators."""
        parts = self.b.load_parts("A", view)
        if self.lower:
            prefixes = self.prefixes_onto(parts[0], s)
            return self.combined_by_products(prefixes, self.totals(parts, prefixes))
        prefixes = _products(self.b, "AU", parts, self.u)
        return self.combined_by_additions(prefixes, self.totals(parts, prefixes), s)

    # The source of prefixes.

    def prefixes_onto(self, a: Frag, s: Frag) -> list[Frag]:
        """Return A.U + S; or A.[U|1] + [S|0], since S belongs to the prefixes, not to the totals.

        In reverse that is A.[1|U] + [0|S].
        """
        b = self.b
        if not self.joint:
            return _onto(b, "AU", a, self.u, s)
        inside = [Bound(COL, Index.of(b.k)) if self.first == 0 else Bound(Index.of(0), COL)]
        start = b.accumulator("S0")
        b.broadcast(start, b.part(b.spill(s), b.m, b.n, bounds=inside))
        return [b.mma(b.accumulator("D"), a, self.u[0], start)]

    # The source of totals.

    def totals(self, parts: list[Frag], prefixes: list[Frag]) -> Spill:
        """Return the totals of the rows, in column `self.column` of the stored accumulator."""
        b = self.b
        if self.ones is None:
            return b.spill(prefixes[0])
        v = b.accumulator("V")
        if self.lower:
            return b.spill(b.mma(v, parts[0], self.ones, b.zero(b.accumulator("Z"))))
        return b.spill(_sum_of_products(b, v, parts, self.ones))

    # Their combination.

    def combined_by_products(self, prefixes: list[Frag], totals: Spill) -> list[Frag]:
        """Return L.X + the prefixes."""
        b, column = self.b, self.column if self.joint else None
        self.x = [
            b.load(b.right(name), rows_as_right(b, totals, q, column))
            for q, name in enumerate(self._row_blocks("X"))
        ]
        rows = zip(results(b, "R"), prefixes, strict=True)
        return [self.lower_product(r, self.x, prefix) for r, prefix in rows]

    def combined_by_additions(self, prefixes: list[Frag], totals: Spill, s: Frag) -> list[Frag]:
        """Return the prefixes + C, S and the totals of the rows before, each sum rounded."""
        b = self.b
        x, y = (b.scratch(name, b.options.acc, b.m) for name in ("x", "y"))
        b.copy(b.rect(x, 0, b.m, 1, 1), b.part(totals, b.m, 1, 0, self.column))
        self.sums = scan_vectors(b, x, (y, x), Vectors(b.m), self.order)
        shift, inside = self.order.earlier(1, ROW, b.m)
        c = b.broadcast(b.accumulator("C"), b.rect(self.sums, shift, b.m, b.n, 1, 0, inside))
        b.add(c, c, s)
        rows = zip(results(b, "R"), prefixes, strict=True)
        return [b.add(r, prefix, c) for r, prefix in rows]

    def lower_product(self, r: Frag, right: list[Frag], c: Frag) -> Frag:
        """R = L.X + C, with X as ceil(m/k) right operands."""
        for number, (low, x) in enumerate(zip(self.lower, right, strict=True)):
            self.b.mma(r, low, x, r if number else c, "LA")
        return r

    # The carry to the next tile.

    def carry(self, r: list[Frag], s: Frag) -> None:
        """S <- the sum of everything so far, in every place.

        By products that is the last element of R, or S and the tile's total where R is exclusive.
        By additions the total is added always: R's last element has the product's rounding.
        """
        b = self.b
        if self.sums is not None:
            total = b.rect(self.sums, self.order.last(b.m), b.m, b.n, 0, 0)
            b.add(s, s, b.broadcast(b.accumulator("C"), total))
        elif self.order.exclusive:
            self.add_total(s)
        else:
            last, column = last_column(b, r, self.order)
            self.spread(s, last, self.first + column)

    def total(self, r: list[Frag]) -> View:
        """Return the total of the tile that was scanned last, as a 1 x 1 view."""
        s = self.b.zero(self.b.accumulator("T0"))
        self.carry(r, s)
        return self.b.part(self.b.spill(s), 1, 1)

    def add_total(self, s: Frag) -> None:
        """S <- 1.X + S, which needs no trip through shared memory."""
        ones = self.b.const(self.b.left("J1"), PatternKind.ONES)
        for x in self.x:
            self.b.mma(s, ones, x, s, "carry")

    def spread(self, s: Frag, spill: Spill, col: int) -> None:
        """S <- the element of the last row in this column, in every place."""
        b = self.b
        element = b.part(spill, b.m, b.n, self.order.last(b.m), col, repeat="both")
        b.broadcast(s, element, line="carry")


class _PrintedScan(TileScan):
    """(L.A).1 + A.U + S, as the paper has it: ceil(k/n) * (2 + ceil(m/k)) products."""

    def scan(self, view: View, s: Frag) -> list[Frag]:
        """Return R as ceil(k/n) accumulators."""
        b = self.b
        assert self.ones is not None
        self.a = b.load(b.left("A"), view, "load")
        prefixes = self.prefixes_onto(self.a, s)
        la = [self._lower_times_data(view, j, d) for j, d in enumerate(results(b, "LA"))]
        self.la = _as_left(b, la)
        rows = zip(results(b, "R"), prefixes, strict=True)
        return [b.mma(r, self.la, self.ones, c, "R") for r, c in rows]

    def add_total(self, s: Frag) -> None:
        """S <- the last row of (L.A).1 + (A.1 + S)."""
        b = self.b
        assert self.ones is not None
        total = b.mma(b.accumulator("T"), self.a, self.ones, s, "carry")
        self.spread(s, b.spill(b.mma(total, self.la, self.ones, total, "carry")), 0)

    def _lower_times_data(self, view: View, j: int, la: Frag) -> Frag:
        """LA = L.A, columns j*n on, with A's rows as ceil(m/k) right operands."""
        b = self.b
        right = [
            b.load(b.right(name), _data_as_right(b, view, q, j))
            for q, name in enumerate(self._row_blocks("B"))
        ]
        return self.lower_product(la, right, b.zero(b.accumulator("Z")))


def _data_as_right(b: Builder, view: View, q: int, j: int) -> View:
    """Return rows q*k on and columns j*n on of the data tile as a right operand, zero-padded."""
    row, col = q * b.k, j * b.n
    tile = b.cut(view, b.k, b.n, row, col)
    down, across = (COL, ROW) if b.transposed else (ROW, COL)
    beyond = *below(down, row, b.k, b.m), *below(across, col, b.n, b.k)
    return replace(tile, bounds=(*tile.bounds, *beyond))


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
