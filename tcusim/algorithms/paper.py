"""The paper's algorithms for comparison: inefficient reductions, and naive products."""

from __future__ import annotations

from collections.abc import Callable

from tcusim.algorithms.builder import (
    LENGTH,
    Builder,
    Work,
    below,
    require,
    require_float_operands,
    stored_type,
)
from tcusim.algorithms.product import block_column, result_tile
from tcusim.algorithms.reduce import accumulate, second_product, sum_tiles
from tcusim.algorithms.registry import algorithm, listing
from tcusim.algorithms.rows import FixedRows, data, tile_of
from tcusim.algorithms.staging import INNER, ROWS, Cols, Inner, Sums, edge, grouped
from tcusim.algorithms.tree import fold
from tcusim.program.grammar import (
    COL,
    ROW,
    Bound,
    Buffer,
    Extent,
    Frag,
    Index,
    PatternKind,
    Scalar,
    View,
)

# --- Reductions -------------------------------------------------------------------------------


@algorithm(
    "reduction_tn_inefficient",
    "reduction",
    "[DAKKAK19] section 4.1, Figure 6",
    "N*(1 + ceil(m/k))",
    alias="reduction_256n_inefficient",
    tiles=True,
    repeats=4,
    combines=("mma",),
)
def reduction_tn_inefficient(b: Builder, segment_size: int) -> int | Work:
    """Sum segments of T*N elements, one segment a warp, each tile finished at once (Figure 6).

    The paper takes the first element of R to Q; as the others are zero, all of R will do (erratum
    E6).
    """
    require(
        b.options.combine == "mma" and b.options.parts == 1,
        "the work-inefficient reduction is the paper's: it combines by mma and takes one part; "
        "take 'reduction_tn'",
    )

    def total(tiles: int, view: Callable[[Index], View], ones: Frag) -> View:
        top = b.const(b.left("P1"), PatternKind.ROW)
        q = b.zero(b.accumulator("Q"))
        with b.loop("i", tiles, "loop") as i:
            v = b.zero(b.accumulator("V"))
            a = b.load(b.left("A"), view(i), "load")
            b.mma(v, a, ones, v, "product")
            second_product(b, b.spill(v), top, q)
        return b.part(b.spill(q), 1, 1)

    return sum_tiles(b, segment_size, total)


@algorithm(
    "reduction_kn_coalesced",
    "reduction",
    "[DAKKAK19] section 4.1, Algorithm 3, corrected",
    "m*ceil(N/m) + ceil(m/n)*ceil(m/k)",
    alias="reduction_16n_coalesced",
    repeats=4,
    lines=listing("Alg. 3", init=1, zero=2, loop=5, load=7, product=8, out=10),
)
def reduction_kn_coalesced(b: Builder, segment_size: int) -> int | Work:
    """Sum segments of k*N elements, m segments a warp, each read from front to end (Algorithm 3).

    Printed, one V serves all segments, which adds them up (erratum E7). Here each segment has a V
    of its own; the first columns of the m Vs are packed and finished together.
    """
    rows = FixedRows(b, segment_size, b.m)
    ones = b.const(b.right("P"), PatternKind.COL, 0, "init")
    tiles = -(-segment_size // (b.m * b.k))
    partial_type = stored_type(b.options.ab) if b.options.combine == "mma" else b.options.acc
    partials = b.scratch("partials", partial_type, b.m * b.m)

    with rows.each():
        with b.loop("s", b.m) as number:
            segment = rows.first + number
            v = accumulate(
                b, tiles, lambda i: tile_of(b, data(b), segment_size, i, segment=segment), ones
            )
            row = b.rect(partials, number * b.m, b.m, 1, 1, b.m)
            b.copy(row, b.part(b.spill(v), b.m, 1))
        if b.options.combine == "add":
            fold(b, lambda start, count: b.rect(partials, start, count, b.m, 1, b.m), b.m)
            rows.write(b.rect(partials, 0, b.m, 1, b.m), line="")
        else:
            _finish_packed(b, rows, partials)
    return rows.work()


def _finish_packed(b: Builder, rows: FixedRows, partials: Buffer) -> None:
    """Sum the m partials of each of m segments by products, n segments at a time."""
    require_float_operands(b)
    out = b.output("out", b.options.result, rows.numbers)
    top = b.const(b.left("P1"), PatternKind.ROW)
    for block in range(-(-b.m // b.n)):
        r = b.zero(b.accumulator("R"))
        for q in range(-(-b.m // b.k)):
            inside = [*below(ROW, q * b.k, b.k, b.m), *below(COL, block * b.n, b.n, b.m)]
            tile = b.rect(partials, block * b.n * b.m + q * b.k, b.k, b.n, 1, b.m, inside)
            b.mma(r, top, b.load(b.right("X"), tile), r)
        first, count = rows.first + block * b.n, min(b.n, b.m - block * b.n)
        bounds = [Bound((first + COL) * rows.longest, LENGTH)] if b.options.masked else []
        sums = b.rect(out, first, 1, count, count, 1, bounds)
        b.copy(sums, b.part(b.spill(r), 1, count), line="out")


# --- Products ---------------------------------------------------------------------------------


@algorithm(
    "gemm_naive",
    "product",
    "[DAKKAK19] section 2, C = A.B + C",
    "ceil(rows/m)*ceil(cols/n)*ceil(inner/k)",
    side="a",
)
def gemm_naive(b: Builder, *, cols: Cols = None, sizes: Inner = INNER) -> Work:
    """Multiply matrices, one (m, n) tile of C a warp, its operands loaded from global memory.

    A may have any number of rows.
    """
    cols, inner = cols or b.n, sizes.size(b)
    a, right, c, out = sizes.arrays(b, cols)
    columns = -(-cols // b.n)
    row, col = b.item * b.m, block_column(columns) * b.n

    def result(buffer: Buffer) -> View:
        return result_tile(b, buffer, row, col, cols, b.n)

    def product(i: Index) -> None:
        k = i * b.k
        inside = [Bound(row + ROW, ROWS), *edge(k + COL, inner, b.k)]
        left = b.load_parts("A", b.rect(a, row * inner + k, b.m, b.k, inner, 1, inside))
        inside = [*edge(k + ROW, inner, b.k), *edge(col + COL, cols, b.n)]
        tile = b.rect(right, k * cols + col, b.k, b.n, cols, 1, inside)
        sums.multiply((0, 0), left, b.load_parts("B", tile, right=True))

    tiles = -(-inner // b.k)
    sums = Sums(b, tiles)
    with b.items():
        sums.start(c, lambda c, i, j: result(c))
        grouped(b, sums, tiles, 1, product)
        b.store([sums.totals[0, 0]], result(out))
    per_block = b.m * b.options.warps * b.options.items_per_warp
    return Work((Scalar("rows"),), Extent(ROWS, per_block), columns)


@algorithm(
    "gemv", "product", "[DAKKAK19] section 2, with a padded vector", "ceil(rows/m)*ceil(inner/k)"
)
def gemv(b: Builder, *, sizes: Inner = INNER) -> Work:
    """Multiply a matrix by a vector, m rows a warp: x is column 0 of an operand of zeros.

    That is `gemm_naive` for a matrix B of one column. A may have any number of rows.
    """
    return gemm_naive(b, cols=1, sizes=sizes)
