"""Products of matrices as step programs ([DAKKAK19] section 2): C = A.B + C, tile by tile.

With a float16 accumulator the paper calls it HGEMM, with a float32 one MGEMM. The arrays, which are
row-major, and what is fixed when a program is built are those of `products`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tcusim.algorithms.builder import Builder, Level, Work, require
from tcusim.algorithms.products import (
    ROWS,
    Stage,
    Sums,
    edge,
    grouped,
    left_array,
    pipelined,
    positive,
    result_array,
    right_array,
    start_array,
)
from tcusim.algorithms.registry import algorithm
from tcusim.program.grammar import (
    BLOCK_COL,
    COL,
    ROW,
    WARP,
    Bound,
    Buffer,
    Extent,
    Frag,
    Index,
    Scalar,
    View,
)

__all__ = ["gemm", "gemm_naive"]


@algorithm(
    "gemm_naive",
    "product",
    "[DAKKAK19] section 2, C = A.B + C",
    "ceil(rows/m)*ceil(cols/n)*ceil(inner/k)",
    side="a",
)
def gemm_naive(
    b: Builder, *, cols: int | None = None, inner: int | None = None, add_c: bool = False
) -> Work:
    """Multiply matrices, one (m, n) tile of C a warp, its operands loaded from global memory.

    cols, inner: columns of B and of A; default one tile, and four. add_c: add the products to an
    input `c`. A may have any number of rows.
    """
    cols = positive("cols", cols, b.n)
    inner = positive("inner", inner, 4 * b.k)
    a, right, out = left_array(b, inner), right_array(b, inner * cols), result_array(b, cols)
    c = start_array(b, cols, add_c=add_c)
    columns = -(-cols // b.n)
    row, col = b.unit * b.m, _column(columns) * b.n

    def result(buffer: Buffer) -> View:
        return _result_tile(b, buffer, row, col, cols, b.n)

    def product(i: Index) -> None:
        k = i * b.k
        inside = [Bound(row + ROW, ROWS), *edge(k + COL, inner, b.k)]
        left = b.load_parts("A", b.rect(a, row * inner + k, b.m, b.k, inner, 1, inside))
        inside = [*edge(k + ROW, inner, b.k), *edge(col + COL, cols, b.n)]
        tile = b.rect(right, k * cols + col, b.k, b.n, cols, 1, inside)
        sums.multiply((0, 0), left, b.load_parts("B", tile, right=True))

    tiles = -(-inner // b.k)
    sums = Sums(b, tiles)
    with b.units():
        sums.start(None if c is None else lambda i, j: result(c))
        grouped(b, sums, tiles, 1, product)
        b.store([sums.totals[0, 0]], result(out))
    per_block = b.m * b.options.warps * b.options.tiles
    return Work((Scalar("rows"),), Extent(ROWS, per_block), columns)


@algorithm(
    "gemm",
    "product",
    "[DAKKAK19] section 2, C = A.B + C",
    "ceil(rows/m)*ceil(cols/n)*ceil(inner/k)",
    level=Level.BLOCK,
    side="a",
)
def gemm(
    b: Builder,
    *,
    cols: int | None = None,
    inner: int | None = None,
    add_c: bool = False,
    down: int = 2,
    across: int = 2,
    warps_down: int | None = None,
    depth: int = 2,
) -> Work:
    """Multiply matrices, a tile of C a block, its operands staged in shared memory by all warps.

    The block's warps stand `warps_down` high (default: about as many as across); each has down x
    across accumulators. A stage holds `depth` k tiles of the block's rows of A and columns of B.
    There are two: while one is multiplied the next is copied, with one barrier a step.

    cols, inner: columns of B and of A; default one block's, and four k tiles. add_c: add the
    products to an input `c`. A may have any number of rows.
    """
    plan = _plan(b, down, across, warps_down, depth)
    cols = positive("cols", cols, plan.block_cols)
    inner = positive("inner", inner, 4 * b.k)
    a, right, out = left_array(b, inner), right_array(b, inner * cols), result_array(b, cols)
    c = start_array(b, cols, add_c=add_c)
    columns = -(-cols // plan.block_cols)
    first_row, first_col = b.unit * plan.block_rows, _column(columns) * plan.block_cols
    steps = -(-inner // plan.step)
    stages = range(min(2, steps))
    lefts = [Stage(b, f"a{i}", plan.block_rows, plan.step, b.k) for i in stages]
    rights = [Stage(b, f"b{i}", plan.step, plan.block_cols, b.n, right=True) for i in stages]
    sums = Sums(b, -(-inner // b.k), down, across)

    def fill(stage: int, step: Index) -> None:
        k = step * plan.step

        def inside_a(row: Index, col: Index) -> list[Bound]:
            return [Bound(first_row + row, ROWS), *edge(k + col, inner, plan.step)]

        def inside_b(row: Index, col: Index) -> list[Bound]:
            wide = edge(first_col + col, cols, plan.block_cols)
            return [*edge(k + row, inner, plan.step), *wide]

        lefts[stage].fill(a, first_row * inner + k, inner, inside_a)
        rights[stage].fill(right, k * cols + first_col, cols, inside_b)

    def multiply(stage: int, step: Index, span: int) -> None:
        sums.tiles(depth, span, lambda q: plan.multiply(sums, lefts[stage], rights[stage], q))

    def result(buffer: Buffer, row: Index, col: Index) -> View:
        place = (first_row + row, first_col + col)
        return _result_tile(b, buffer, *place, cols, plan.block_cols)

    def start(row: Index, col: Index) -> None:
        assert c is not None
        given = c
        sums.start(lambda i, j: result(given, row + i * b.m, col + j * b.n), "t_C")

    def store(row: Index, col: Index) -> None:
        for (i, j), total in sums.totals.items():
            b.store([total], result(out, row + i * b.m, col + j * b.n), stage="s_C")

    with b.units():
        if c is None:
            sums.start(None)
        else:
            plan.by_warp(start)
        fill(0, Index())
        b.barrier()
        pipelined(b, sums, steps, depth, fill, multiply, b.barrier)
        plan.by_warp(store)
        if b.options.tiles > 1:
            b.barrier()
    per_block = plan.block_rows * b.options.tiles
    return Work((Scalar("rows"),), Extent(ROWS, per_block), columns)


def _column(columns: int) -> Index:
    """Return which column of blocks the block is in."""
    return BLOCK_COL if columns > 1 else Index()


def _result_tile(
    b: Builder, buffer: Buffer, row: Index, col: Index, cols: int, per_block: int
) -> View:
    """Return an (m, n) tile of C or of the result, of which blocks take `per_block` columns."""
    bounds = [Bound(row + ROW, ROWS), *edge(col + COL, cols, per_block)]
    if cols < b.n:
        # Follows from the others; it says that no two elements of the tile are the same one.
        bounds.append(Bound(COL, Index.of(cols)))
    return b.rect(buffer, row * cols + col, b.m, b.n, cols, 1, bounds)


# --- How a block is cut -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Plan:
    """Which tile of the block's results each warp has: `down` x `across` tiles, warps in rows."""

    b: Builder
    down: int
    across: int
    warps_down: int
    warps_across: int
    depth: int

    @property
    def block_rows(self) -> int:
        return self.warps_down * self.down * self.b.m

    @property
    def block_cols(self) -> int:
        return self.warps_across * self.across * self.b.n

    @property
    def step(self) -> int:
        """Elements of the inner axis in a stage."""
        return self.depth * self.b.k

    def by_warp(self, body: Callable[[Index, Index], None], row: int = 0) -> None:
        """Run body(first row, first column) of the warp's tile within the block.

        An index has no division by the warps across, so each row of warps is a branch.
        """
        height, width = self.down * self.b.m, self.across * self.b.n
        if self.warps_across == 1:
            body(WARP * (height if self.warps_down > 1 else 0), Index())
            return
        col = (WARP - row * self.warps_across) * width
        if row == self.warps_down - 1:
            body(Index.of(row * height), col)
            return
        with self.b.when([Bound(WARP, Index.of((row + 1) * self.warps_across))]) as otherwise:
            body(Index.of(row * height), col)
            with otherwise():
                self.by_warp(body, row + 1)

    def multiply(self, sums: Sums, left: Stage, right: Stage, q: int) -> None:
        """Multiply k tile q of a stage: load the warp's operands once, and use each many times."""
        rows: list[list[Frag]] = []
        cols: list[list[Frag]] = []

        def load(row: Index, col: Index) -> None:
            rows[:] = [
                left.load(f"A{i}", row + i * self.b.m, Index.of(q * self.b.k), self.b.m)
                for i in range(self.down)
            ]
            cols[:] = [
                right.load(f"B{j}", Index.of(q * self.b.k), col + j * self.b.n, self.b.k)
                for j in range(self.across)
            ]

        self.by_warp(load)
        for i, j in sums.totals:
            sums.multiply((i, j), rows[i], cols[j])


def _plan(b: Builder, down: int, across: int, warps_down: int | None, depth: int) -> _Plan:
    warps = b.options.warps
    down, across = positive("down", down, 1), positive("across", across, 1)
    square = max(i for i in range(1, math.isqrt(warps) + 1) if warps % i == 0)
    high = positive("warps_down", warps_down, square)
    require(
        warps % high == 0,
        f"{warps} warps do not stand {high} high; warps_down must divide the number of warps",
    )
    return _Plan(b, down, across, high, warps // high, positive("depth", depth, 1))
