"""Rows divided by the root of their mean square, in one pass over memory.

Not in the paper. A tile X of consecutive elements is multiplied by its own transpose: element
(i, i) of X·X^T is the sum of the squares of row i. The other elements are not used; in a
memory-bound kernel they cost nothing.

A warp keeps its tiles of a row in shared memory, adds up their squares in one accumulator, and
halves the diagonal by rounded additions until one value is left. The values of a row's warps are
added alike. Then each warp multiplies its stored elements by the reciprocal root, and writes them.

Squares of float32 are rounded, and added up in pairs without products.
"""

from __future__ import annotations

from tcusim.algorithms.builder import NEVER, Builder, Options, Work, adds_rows, require
from tcusim.algorithms.tree import fold, pairwise
from tcusim.machine.formats import format_of
from tcusim.machine.shapes import shape_of
from tcusim.program.checks.verifier import verify
from tcusim.program.grammar import (
    BLOCK,
    COL,
    WARP,
    WARP_COL,
    WARP_ROW,
    Bound,
    Buffer,
    Extent,
    Formula,
    Index,
    Operation,
    Program,
    Scalar,
    View,
)

ROWS = Index.symbol("rows")

# Sides of a tile, which is multiplied by its transpose.
_SIDE = 16
_TILE = _SIDE * _SIDE
# Bytes that a warp keeps, at most. On an H200, 4 tiles of two bytes reach 98 to 99 % of a copy, 8 a
# percent less, and 16, which a lane cannot load at once, 87 %.
_KEPT_BYTES = 4 * _TILE * 2
# The widest access: parts of a row that are a multiple of it all begin at one.
_VECTOR_BYTES = 16
# Elements of a row of float32 that is added up at once.
_ROW = 128
# Warps of a block, at least: it takes several rows if they are short.
_WARPS = 4
# With more, a block would need more than the 64 KB of shared memory that Turing has.
_MOST_WARPS = 20


def most_columns(dtype: str) -> int:
    """Return the elements of the longest row of a type."""
    return _MOST_WARPS * _kept(dtype)


def _kept(dtype: str) -> int:
    """Return the elements that a warp keeps."""
    return _KEPT_BYTES // format_of(dtype).itemsize


def rms_norm(
    columns: int,
    dtype: str = "f16",
    *,
    eps: float = 0.0,
    weight: str | None = None,
    scales: bool = False,
) -> Program:
    """Return a program that divides each row by the root of its mean square.

    It computes in · (1 / √(sum of squares / columns + eps)) · weight in float32, each operation
    rounded once, and rounds the result to `dtype`.

    Parameters
    ----------
    columns : int
        Elements of a row.
    dtype : {"f16", "bf16", "f32"}
        Of the input ``in`` and of the output ``out``, both of shape (rows, columns).
    eps : float
        Addend to the mean square, a float32 value.
    weight : {"f16", "bf16", "f32"}, optional
        Type of an input ``weight``, of shape (columns,); by default there is none.
    scales : bool
        Write the factor of each row instead, without the weight: float32, shape (rows,).

    Returns
    -------
    Program
        It has passed `tcusim.verify`. A row's bits do not depend on the other rows.

    Raises
    ------
    Unsupported
        If a row is longer than `most_columns`, or of another type.
    """
    require(dtype in ("f16", "bf16", "f32"), f"rms_norm is of f16, bf16 and f32, got {dtype}")
    most = most_columns(dtype)
    require(
        1 <= columns <= most,
        f"a row of rms_norm of {dtype} has 1 to {most} elements, got {columns}",
    )
    across = _warps_of(columns, dtype)
    down = max(1, _WARPS // across)
    options = Options(
        shape_of((_SIDE, _SIDE, _SIDE)),
        dtype,
        "f32",
        dtype,
        dtype,
        warps=across * down,
        adds_rows=adds_rows(dtype, "f32"),
    )
    b = Builder(options)
    rows = _Rows(b, columns, across, down)
    kept = rows.kept()
    total = rows.total(kept)
    scale = b.rect(b.scratch("scale", "f32", 1), 0, 1, 1, 1)
    mean = Formula(Operation.OVER, (total, float(columns)))
    root = Formula(Operation.ROOT, (Formula(Operation.PLUS, (mean, eps)),))
    b.assign(scale, Formula(Operation.OVER, (1.0, root)))
    if scales:
        b.copy(rows.one(b.output("out", "f32", Extent(ROWS))), scale)
        return rows.program(scales)
    each = b.rect(scale.buffer, 0, 1, kept.cols, 0, 0)
    result = Formula(Operation.TIMES, (kept, each))
    if weight is not None:
        factors = b.input("weight", weight, Extent.of(columns))
        result = Formula(Operation.TIMES, (result, rows.alike(factors)))
    b.assign(rows.lying(b.output("out", dtype, rows.size)), result)
    return rows.program(scales)


def _warps_of(columns: int, dtype: str) -> int:
    """Return the number of warps of a row, with equal parts of whole accesses if possible."""
    least = -(-columns // _kept(dtype))
    many = range(least, min(2 * least, _MOST_WARPS) + 1)
    for size in (_VECTOR_BYTES // format_of(dtype).itemsize, 1):
        for across in many:
            if columns % (across * size) == 0:
                return across
    return least


class _Rows:
    """The rows of a block, `down` of them, each of which `across` warps share.

    row: that of a warp. first: the first element of the row that it takes. count: how many it
    takes; the last one's may end behind the row.
    """

    def __init__(self, b: Builder, columns: int, across: int, down: int) -> None:
        self.b, self.columns, self.across, self.down = b, columns, across, down
        self.size = Extent(ROWS * columns)
        self._place = Index()
        self._share = WARP
        if across == 1:
            self._place, self._share = WARP, Index()
        elif down > 1:
            self._place, self._share = WARP_ROW, WARP_COL
        self.row = BLOCK * down + self._place
        self.count = -(-columns // across)
        self.first = self._share * self.count

    def program(self, scales: bool) -> Program:
        """Return the program, which has been verified."""
        columns = self.across if min(self.across, self.down) > 1 else 1
        work = Work((Scalar("rows"),), Extent(ROWS, self.down), warp_columns=columns)
        program = self.b.program("rms_scales" if scales else "rms_norm", "", work)
        verify(program)
        return program

    def one(self, array: Buffer) -> View:
        """Return the view of the row's value in an array, for one of its warps."""
        bounds = [Bound(self.row, ROWS)] if self.down > 1 else []
        if self.across > 1:
            bounds.append(Bound(self._share, Index.of(1)))
        return self.b.rect(array, self.row, 1, 1, 1, 1, bounds)

    def kept(self) -> View:
        """Copy the warp's elements to its shared memory; zeros fill whole tiles. Return them."""
        b, count = self.b, self.count
        array = b.input("in", b.options.source, self.size)
        room = b.scratch("kept", b.options.ab, -(-count // _TILE) * _TILE)
        kept = b.rect(room, 0, 1, count, count)
        b.copy(kept, self.lying(array))
        rest = -count % _TILE
        if rest:
            never = b.rect(array, 0, 1, rest, 0, 0, [NEVER])
            b.copy(b.rect(room, count, 1, rest, rest), never)
        return kept

    def lying(self, array: Buffer) -> View:
        """Return the view of the warp's elements in an array of rows."""
        bounds = [Bound(self.row, ROWS)] if self.down > 1 else []
        return self._part(array, self.row * self.columns, bounds)

    def alike(self, array: Buffer) -> View:
        """Return the view of the elements common to all rows."""
        return self._part(array, Index(), [])

    def _part(self, array: Buffer, start: Index, bounds: list[Bound]) -> View:
        if self.across * self.count > self.columns:
            bounds = [*bounds, Bound(self.first + COL, Index.of(self.columns))]
        return self.b.rect(array, self.first + start, 1, self.count, self.count, 1, bounds)

    def total(self, kept: View) -> View:
        """Return the sum of the squares of a row: one value of the warp's shared memory."""
        own = self._added(kept) if self.b.options.adds_rows else self._multiplied(kept)
        if self.across == 1:
            return own
        b = self.b
        shared = b.shared("shared", "f32", self.down * self.across)
        place = self._place * self.across
        b.copy(b.rect(shared, place + self._share, 1, 1, 1), own)
        b.barrier()
        values = b.scratch("values", "f32", self.across)
        b.copy(b.rect(values, 0, 1, self.across, 1), b.rect(shared, place, 1, self.across, 1))
        fold(b, lambda start, count: b.rect(values, start, 1, count, 1), self.across)
        return b.rect(values, 0, 1, 1, 1)

    def _added(self, kept: View) -> View:
        """Return the sum of the warp's stored elements, by additions."""
        b, rows = self.b, -(-self.count // _ROW)
        sums = b.scratch("sums", "f32", rows)
        values = b.rect(kept.buffer, 0, rows, _ROW, _ROW)
        b.prefix(b.rect(sums, 0, rows, 1, 1), values, squares=True)
        pairwise(b, lambda start, count, apart: b.rect(sums, start, count, 1, apart), rows)
        return b.rect(sums, 0, 1, 1, 1)

    def _multiplied(self, kept: View) -> View:
        """Return the sum of the warp's stored elements, by products."""
        b = self.b
        sums = b.zero(b.accumulator("S"))
        with b.loop("t", -(-self.count // _TILE)) as t:
            place = t * _TILE
            left = b.load(b.left("A"), b.rect(kept.buffer, place, _SIDE, _SIDE, _SIDE))
            right = b.load(b.right("B"), b.rect(kept.buffer, place, _SIDE, _SIDE, 1, _SIDE))
            b.mma(sums, left, right, sums)
        spill = b.spill(sums)
        apart = spill.ldm + 1
        fold(b, lambda start, count: b.rect(spill.buffer, start * apart, count, 1, apart), _SIDE)
        return b.rect(spill.buffer, 0, 1, 1, 1)
