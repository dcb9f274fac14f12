"""Products as step programs ([DAKKAK19] section 2): C = A.B + C, and y = A.x + c.

With a float16 accumulator the paper calls the product of matrices HGEMM, with a float32 one MGEMM.
The arrays, which are row-major, and what is fixed when a program is built are those of `staging`.
`gemv_reduction` reads A once, in long pieces of rows, as a reduction reads its segments: it is
bound by memory, and has to be, because each element of A is used once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tcusim.algorithms.builder import Builder, Level, Work, numbered, padded, require, stored_type
from tcusim.algorithms.registry import algorithm
from tcusim.algorithms.staging import (
    INNER,
    ROWS,
    Cols,
    Inner,
    Stage,
    Sums,
    edge,
    grouped,
    pipelined,
    rows_of_warp,
)
from tcusim.algorithms.tree import fold
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

_FIRST_WARP = [Bound(WARP, Index.of(1))]


# --- Matrices ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BlockSize:
    """How the tile of a block is cut.

    Attributes
    ----------
    down, across : int
        Accumulators of a warp, one below the other and side by side.
    warps_down : int, optional
        Rows of warps. Default: about as many as columns.
    depth : int
        k tiles of the block's rows of A and columns of B in a stage.
    """

    down: int = 2
    across: int = 2
    warps_down: int | None = None
    depth: int = 2


BLOCK_SIZE = BlockSize()


@algorithm(
    "gemm",
    "product",
    "[DAKKAK19] section 2, C = A.B + C",
    "ceil(rows/m)*ceil(cols/n)*ceil(inner/k)",
    level=Level.BLOCK,
    side="a",
)
def gemm(
    b: Builder, *, cols: Cols = None, sizes: Inner = INNER, block: BlockSize = BLOCK_SIZE
) -> Work:
    """Multiply matrices, a tile of C a block, its operands staged in shared memory by all warps.

    There are two stages: while one is multiplied the next is copied, with one barrier a step. A may
    have any number of rows.
    """
    plan = _BlockTiles(b, block)
    cols, inner, depth = cols or plan.cols, sizes.size(b), block.depth
    a, right, c, out = sizes.arrays(b, cols)
    columns = -(-cols // plan.cols)
    first_row, first_col = b.item * plan.rows, block_column(columns) * plan.cols
    steps = -(-inner // plan.step)
    stages = range(min(2, steps))
    lefts = [Stage(b, f"a{i}", plan.rows, plan.step, b.k) for i in stages]
    rights = [Stage(b, f"b{i}", plan.step, plan.cols, b.n, right=True) for i in stages]
    sums = Sums(b, -(-inner // b.k), block.down, block.across)

    def fill(stage: int, step: Index) -> None:
        k = step * plan.step

        def inside_a(row: Index, col: Index) -> list[Bound]:
            return [Bound(first_row + row, ROWS), *edge(k + col, inner, plan.step)]

        def inside_b(row: Index, col: Index) -> list[Bound]:
            wide = edge(first_col + col, cols, plan.cols)
            return [*edge(k + row, inner, plan.step), *wide]

        lefts[stage].fill(a, first_row * inner + k, inner, inside_a)
        rights[stage].fill(right, k * cols + first_col, cols, inside_b)

    def multiply(stage: int, step: Index, span: int) -> None:
        sums.tiles(depth, span, lambda q: plan.multiply(sums, lefts[stage], rights[stage], q))

    def result(buffer: Buffer, row: Index, col: Index) -> View:
        place = (first_row + row, first_col + col)
        return result_tile(b, buffer, *place, cols, plan.cols)

    def start(row: Index, col: Index) -> None:
        sums.start(c, lambda c, i, j: result(c, row + i * b.m, col + j * b.n), "t_C")

    def store(row: Index, col: Index) -> None:
        for (i, j), total in sums.totals.items():
            b.store([total], result(out, row + i * b.m, col + j * b.n), stage="s_C")

    with b.items():
        if c is None:
            start(Index(), Index())
        else:
            plan.by_warp(start)
        fill(0, Index())
        b.barrier()
        pipelined(b, sums, steps, depth, fill, multiply, b.barrier)
        plan.by_warp(store)
        if b.options.items_per_warp > 1:
            b.barrier()
    per_block = plan.rows * b.options.items_per_warp
    return Work((Scalar("rows"),), Extent(ROWS, per_block), columns)


def block_column(columns: int) -> Index:
    """Return which column of blocks the block is in."""
    return BLOCK_COL if columns > 1 else Index()


def result_tile(
    b: Builder, buffer: Buffer, row: Index, col: Index, cols: int, per_block: int
) -> View:
    """Return an (m, n) tile of C or of the result, of which blocks take `per_block` columns."""
    bounds = [Bound(row + ROW, ROWS), *edge(col + COL, cols, per_block)]
    if cols < b.n:
        # Follows from the others; it says that no two elements of the tile are the same one.
        bounds.append(Bound(COL, Index.of(cols)))
    return b.rect(buffer, row * cols + col, b.m, b.n, cols, 1, bounds)


class _BlockTiles:
    """Which tile of the block's results each warp has: `down` x `across` tiles, warps in rows.

    rows, cols: of the block's tile. step: elements of the inner axis in a stage.
    """

    def __init__(self, b: Builder, size: BlockSize) -> None:
        warps = b.options.warps
        square = max(i for i in range(1, math.isqrt(warps) + 1) if warps % i == 0)
        self.b = b
        self.warps_down = size.warps_down or square
        require(
            warps % self.warps_down == 0,
            f"{warps} warps do not stand {self.warps_down} high; warps_down must divide the number "
            "of warps",
        )
        self.warps_across = warps // self.warps_down
        self.height, self.width = size.down * b.m, size.across * b.n
        self.rows, self.cols = self.warps_down * self.height, self.warps_across * self.width
        self.step = size.depth * b.k

    def by_warp(self, body: Callable[[Index, Index], None], row: int = 0) -> None:
        """Run body(first row, first column) of the warp's tile within the block.

        An index has no division by the warps across, so each row of warps is a branch.
        """
        if self.warps_across == 1:
            body(WARP * (self.height if self.warps_down > 1 else 0), Index())
            return
        place = Index.of(row * self.height), (WARP - row * self.warps_across) * self.width
        if row == self.warps_down - 1:
            body(*place)
            return
        with self.b.when([Bound(WARP, Index.of((row + 1) * self.warps_across))]) as otherwise:
            body(*place)
            with otherwise():
                self.by_warp(body, row + 1)

    def multiply(self, sums: Sums, left: Stage, right: Stage, q: int) -> None:
        """Multiply k tile q of a stage: load the warp's operands once, and use each many times."""
        b, k = self.b, Index.of(q * self.b.k)
        rows: dict[int, list[Frag]] = {}
        cols: dict[int, list[Frag]] = {}

        def load(row: Index, col: Index) -> None:
            for i in range(self.height // b.m):
                rows[i] = left.load(f"A{i}", row + i * b.m, k, b.m)
            for j in range(self.width // b.n):
                cols[j] = right.load(f"B{j}", k, col + j * b.n, b.k)

        self.by_warp(load)
        for i, j in sums.totals:
            sums.multiply((i, j), rows[i], cols[j])


# --- A matrix and a vector --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowsOfWarp:
    """What a warp of `gemv_reduction` takes of the matrix, and a block of the vector.

    Attributes
    ----------
    down : int
        Tiles of m rows that a warp takes.
    width : int
        Tiles of each row that a step takes.
    chunk : int
        Elements of x in shared memory.
    staged : bool
        Each warp copies its own rows of the next step to shared memory while it multiplies the
        present ones. If not, operands are loaded where they lie, save in a block that has too few
        rows.
    share_rows : bool
        The warps of a block take steps of the same rows in turn, and their sums are added at the
        end: for matrices of few rows.
    """

    down: int = 1
    width: int = 4
    chunk: int = 4096
    staged: bool = True
    share_rows: bool = False


ROWS_OF_WARP = RowsOfWarp()


@algorithm(
    "gemv_reduction", "product", "not in the paper", "ceil(rows/m)*ceil(inner/k)", level=Level.BLOCK
)
def gemv_reduction(b: Builder, *, sizes: Inner = INNER, size: RowsOfWarp = ROWS_OF_WARP) -> Work:
    """Multiply a matrix by a vector, reading the matrix once; down*m rows a warp, W warps a block.

    A chunk of x is copied to shared memory once a block. It needs no padding there: as a right
    operand whose columns are k apart, column 0 is the k values that are wanted and column j the
    ones j tiles on, whose sums nobody reads. A may have any number of rows.
    """
    shared = size.share_rows and b.options.warps > 1
    work = _Work(b, sizes, size)
    row, sums = work.first_row, work.sums

    def start(c: Buffer | None) -> None:
        sums.start(c, lambda c, i, j: _repeated(b, c, row + i * b.m), "t_C")

    with b.items():
        if shared and work.c is not None:
            with b.when(_FIRST_WARP) as otherwise:
                start(work.c)
                with otherwise():
                    start(None)
        else:
            start(work.c)
        whole, rest = divmod(work.steps, work.steps_of_chunk)
        if whole:
            with b.loop("c_x", whole) as number:
                work.do(number * work.steps_of_chunk, work.steps_of_chunk)
        if rest:
            work.do(Index.of(whole * work.steps_of_chunk), rest)
        if shared:
            _store_sum_of_warps(b, list(sums.totals.values()), work.out, row)
        else:
            for (i, _), total in sums.totals.items():
                first = row + i * b.m
                b.copy(_column(b, work.out, first, b.m), b.part(b.spill(total, "s_C"), b.m, 1))
    return Work((Scalar("rows"),), Extent(ROWS, work.block_rows * b.options.items_per_warp))


class _Work:
    """The parts of `gemv_reduction`: its stages, and what is done for one chunk of x."""

    def __init__(self, b: Builder, sizes: Inner, size: RowsOfWarp) -> None:
        self.b = b
        self.inner = inner = sizes.size(b)
        self.down, self.width, self.staged = size.down, size.width, size.staged
        self.a, self.x, self.c, self.out = sizes.arrays(b, 1)
        warps, rows = b.options.warps, size.down * b.m
        sharing, apart = (warps, 1) if size.share_rows else (1, warps)
        self.block_rows = apart * rows
        self.first_row = b.item * self.block_rows + WARP * (rows if apart > 1 else 0)
        # The warps that share rows take `turn` k tiles in a step, of which each has its own.
        self.turn = sharing * size.width
        self.own = WARP * (size.width if sharing > 1 else 0)
        self.step = self.turn * b.k
        self.steps = -(-inner // self.step)
        self.steps_of_chunk = min(self.steps, max(1, size.chunk // self.step))
        self.sums = Sums(b, self.steps * size.width, size.down)
        self.vector = _Vector(b, self.steps_of_chunk * self.turn)
        self.stages = [
            Stage(b, f"a{i}", rows, size.width * b.k, b.k, own=True)
            for i in range(min(2, self.steps_of_chunk))
        ]
        require(
            size.staged or self._loadable(),
            f"rows of {inner} {b.options.source} elements are no operands where they lie: that "
            f"needs whole steps of {self.step}, of the operands' type, at addresses that WMMA "
            "takes. Use staged=True",
        )

    def _loadable(self) -> bool:
        """Whether tiles of A can be operands where they lie."""
        b = self.b
        tile = b.rect(self.a, self.first_row * self.inner + b.k, b.m, b.k, self.inner)
        whole = self.inner % self.step == 0 and b.options.parts == 1
        return whole and b.loads_directly(b.left("A"), tile)

    def do(self, first: Index, steps: int) -> None:
        """Multiply `steps` steps from `first` on, and the chunk of x that they need."""
        b = self.b
        if self.steps > self.steps_of_chunk or b.options.items_per_warp > 1:
            # Other warps may still read the former chunk.
            b.barrier()
        self.vector.fill(self.x, first * self.step, self.inner)
        if self.staged:
            self._fill(0, first)
            b.barrier()
            self._staged(first, steps)
            return
        b.barrier()
        last = Bound(b.item * self.block_rows + (self.block_rows - 1), ROWS)
        with b.when([last]) as otherwise:
            grouped(b, self.sums, steps, self.width, lambda step: self._direct(first, step))
            with otherwise():
                self._fill(0, first)
                self._staged(first, steps)

    def _fill(self, stage: int, step: Index) -> None:
        """Copy the warp's own rows of a step."""
        k = step * self.step + self.own * self.b.k

        def inside(row: Index, col: Index) -> list[Bound]:
            return [Bound(self.first_row + row, ROWS), *edge(k + col, self.inner, self.step)]

        self.stages[stage].fill(self.a, self.first_row * self.inner + k, self.inner, inside)

    def _staged(self, first: Index, steps: int) -> None:
        """Copy the rows of one step while those of another are multiplied."""

        def fill(stage: int, step: Index) -> None:
            self._fill(stage, first + step)

        def multiply(stage: int, step: Index, span: int) -> None:
            def left(i: int, q: int) -> list[Frag]:
                row, col = Index.of(i * self.b.m), Index.of(q * self.b.k)
                return self.stages[stage].load(f"A{i}", row, col, self.b.m)

            self._multiply(step, span, left)

        # A warp sees its own copies after a barrier of its own, which the builder puts.
        pipelined(self.b, self.sums, steps, self.width, fill, multiply, None)

    def _direct(self, first: Index, step: Index) -> None:
        """Multiply one step, with operands where they lie."""
        b = self.b

        def left(i: int, q: int) -> list[Frag]:
            k = (first + step) * self.step + (self.own + q) * b.k
            at = (self.first_row + i * b.m) * self.inner + k
            return [b.load(b.left(f"A{i}_{q}"), b.rect(self.a, at, b.m, b.k, self.inner))]

        self._multiply(step, self.width, left)

    def _multiply(self, step: Index, span: int, left: Callable[[int, int], list[Frag]]) -> None:
        """Multiply left(i, q), tile q of a step's row i of tiles, by the vector."""

        def one(q: int) -> None:
            x = self.vector.load(step * self.turn + self.own + q)
            for i in range(self.down):
                self.sums.multiply((i, 0), left(i, q), x)

        self.sums.tiles(self.width, span, one)


class _Vector:
    """A chunk of x in shared memory, one array for each part: `tiles` rows of k."""

    def __init__(self, b: Builder, tiles: int) -> None:
        dtype = stored_type(b.options.ab)
        self.b = b
        self.stride = padded(b.k, dtype)
        # The other columns of the last operand reach n-1 tiles further.
        self.rows = tiles + b.n - 1
        self.buffers = [
            b.shared(f"{part}_s", dtype, self.rows * self.stride)
            for part in numbered("x", b.options.parts)
        ]

    def fill(self, x: Buffer, start: Index, inner: int) -> None:
        """Copy x from `start` on, each warp some tiles; zeros beyond its end."""
        b = self.b
        per_warp, tile, ours = rows_of_warp(b.options.warps, self.rows)
        at = start + tile * b.k
        inside = [Bound(at + ROW * b.k + COL, Index.of(inner)), *ours]
        stages = [
            b.rect(buffer, tile * self.stride, per_warp, b.k, self.stride, 1, ours)
            for buffer in self.buffers
        ]
        b.copy_parts(stages, b.rect(x, at, per_warp, b.k, b.k, 1, inside))

    def load(self, tile: Index) -> list[Frag]:
        """Load k values as column 0 of a right operand, or of one for each part."""
        b = self.b
        return [
            b.load(b.right(part), b.rect(buffer, tile * self.stride, b.k, b.n, 1, self.stride))
            for part, buffer in zip(numbered("X", len(self.buffers)), self.buffers, strict=True)
        ]


# --- Columns ----------------------------------------------------------------------------------


def _repeated(b: Builder, c: Buffer, row: Index) -> View:
    """Return m elements of c, repeated in every column."""
    return b.rect(c, row, b.m, b.n, 1, 0, [Bound(row + ROW, ROWS)])


def _column(b: Builder, out: Buffer, row: Index, rows: int) -> View:
    """Return elements of the result from `row` on, as a column."""
    return b.rect(out, row, rows, 1, 1, 1, [Bound(row + ROW, ROWS)])


def _store_sum_of_warps(b: Builder, totals: list[Frag], out: Buffer, row: Index) -> None:
    """Store column 0 of accumulators that lie below each other, summed over the warps.

    The sums are a balanced tree of rounded additions, by the first warp.
    """
    rows = len(totals) * b.m
    size = padded(rows, b.options.acc)
    sums = b.shared("sums", b.options.acc, b.options.warps * size)
    for i, total in enumerate(totals):
        column = b.part(b.spill(total, "s_C"), b.m, 1)
        b.copy(b.rect(sums, WARP * size + i * b.m, b.m, 1, 1), column)
    b.barrier()
    with b.when(_FIRST_WARP):
        fold(b, lambda i, count: b.rect(sums, i * size, count, rows, size), b.options.warps)
        b.copy(_column(b, out, row, rows), b.rect(sums, 0, rows, 1, 1))
