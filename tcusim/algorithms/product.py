"""Products as step programs ([DAKKAK19] section 2): C = A.B + C, and y = A.x + c.

With a float16 accumulator the paper calls the product of matrices HGEMM, with a float32 one MGEMM.
The row-major arrays and the build-time parameters are defined in `staging`. `gemv_reduction` reads
A once, in long pieces of rows, as a reduction reads its segments: it is bound by memory, and has to
be, because each element of A is used once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tcusim.algorithms.builder import Builder, Level, Work, numbered, padded, require, stored_type
from tcusim.algorithms.registry import algorithm
from tcusim.algorithms.staging import (
    INNER,
    ROWS,
    Cols,
    Inner,
    Pipeline,
    Stage,
    Sums,
    Turn,
    edge,
    rows_of_warp,
)
from tcusim.algorithms.tree import fold
from tcusim.errors import Given
from tcusim.program.grammar import (
    BLOCK_COL,
    COL,
    ROW,
    WARP,
    WARP_COL,
    WARP_ROW,
    Bound,
    Buffer,
    Extent,
    Frag,
    Index,
    Scalar,
    View,
)

_FIRST_WARP = [Bound(WARP, Index.of(1))]

# Parameters of the summation order, fixed regardless of measurements.
# Tiles that accumulate before a rounded addition if the result has half precision: Volta truncates
# four times in a tile of 16, at 2**-23 of the sum, so that after 256 of them the drift is an eighth
# of float16's last bit.
NARROW_CHAIN = 256
# Bytes that each warp takes in turn of a row of a matrix that the warps of a block share, and how
# many warps do: the usual number first, then those for GPUs with too little shared memory. A row
# that is too short for all of the usual warps has one warp.
SHARED_ROW_BYTES = 128
SHARING_WARPS = (4, 2, 1)
# Bytes of each row that a warp takes at a time if it has rows to itself, and many of them.
OWN_ROW_BYTES = 256
# Bytes of each row of a factor that a block takes at a time, two sectors of memory, and the most
# tiles in k: a chain ends with a step of the block.
FACTOR_ROW_BYTES, MOST_DEPTH = 64, 8


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
    stages : int
        Stages in shared memory, at least 2: while one is multiplied, the others are copied.
    """

    down: int = 2
    across: int = 2
    warps_down: int | None = None
    depth: int = 2
    stages: int = 2


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

    While one stage is multiplied the next ones are copied, with one barrier a step. A may have any
    number of rows.
    """
    plan = _BlockTiles(b, block)
    cols, inner, depth = cols or plan.cols, sizes.size(b), block.depth
    a, right, c, out = sizes.arrays(b, cols)
    columns = -(-cols // plan.cols)
    first_row, first_col = b.item * plan.rows, block_column(columns) * plan.cols
    steps = -(-inner // plan.step)
    sums = Sums(b, -(-inner // b.k), block.down, block.across)
    line = Pipeline(sums, steps, depth, block.stages)
    lefts = [Stage(b, f"a{i}", plan.rows, plan.step, b.k) for i in range(line.stages)]
    rights = [Stage(b, f"b{i}", plan.step, plan.cols, b.n, right=True) for i in range(line.stages)]

    def fill(stage: int, step: Index) -> None:
        k = step * plan.step

        def inside_a(row: Index, col: Index) -> list[Bound]:
            return [Bound(first_row + row, ROWS), *edge(k + col, inner, plan.step)]

        def inside_b(row: Index, col: Index) -> list[Bound]:
            wide = edge(first_col + col, cols, plan.cols)
            return [*edge(k + row, inner, plan.step), *wide]

        lefts[stage].fill(a, first_row * inner + k, inner, inside_a)
        rights[stage].fill(right, k * cols + first_col, cols, inside_b)

    operands = _Operands(plan, lefts, rights)

    def result(buffer: Buffer, row: Index, col: Index) -> View:
        place = (first_row + row, first_col + col)
        return result_tile(b, buffer, *place, cols, plan.cols)

    def start(row: Index, col: Index) -> None:
        sums.start(c, lambda c, i, j: result(c, row + i * b.m, col + j * b.n), "t_C")

    def store(row: Index, col: Index) -> None:
        for (i, j), total in sums.totals.items():
            b.store([total], result(out, row + i * b.m, col + j * b.n), stage="s_C")

    with b.items():
        start(plan.row, plan.col)
        line.start(fill)
        b.barrier()
        operands.load(0, 0)
        line.run(
            fill, lambda turn: sums.tiles(depth, turn.span, operands.use(sums, turn)), b.barrier
        )
        store(plan.row, plan.col)
        if b.options.items_per_warp > 1:
            b.barrier()
    per_block = plan.rows * b.options.items_per_warp
    return Work((Scalar("rows"),), Extent(ROWS, per_block), columns, plan.warp_columns)


def block_column(columns: int) -> Index:
    """Return the block's column in the grid."""
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
    """The tiles of the block's results for each warp: `down` x `across` tiles, warps in rows.

    rows, cols: of the block's tile. row, col: of the warp's within it. step: elements of the inner
    axis in a stage. warp_columns: of the program.
    """

    def __init__(self, b: Builder, size: BlockSize) -> None:
        warps = b.options.warps
        square = max(i for i in range(1, math.isqrt(warps) + 1) if warps % i == 0)
        self.b = b
        self.warps_down = size.warps_down or square
        require(
            warps % self.warps_down == 0,
            f"{warps} warps do not stand {self.warps_down} high; ",
            Given("warps_down"),
            " must divide the number of warps",
        )
        self.warps_across = warps // self.warps_down
        self.height, self.width = size.down * b.m, size.across * b.n
        self.rows, self.cols = self.warps_down * self.height, self.warps_across * self.width
        self.step = size.depth * b.k
        # Where warps stand in one row or column, their number says which.
        self.warp_columns = self.warps_across if self.warps_down > 1 else 1
        row, col = (WARP_ROW, WARP_COL) if self.warp_columns > 1 else (WARP, WARP)
        self.row = row * (self.height if self.warps_down > 1 else 0)
        self.col = col * (self.width if self.warps_across > 1 else 0)


class _Operands:
    """The operands of a warp's products, which are loaded a k tile before they are used.

    While a tile is multiplied the next one is loaded, to fragments of its own: after a barrier, the
    products of the tile before it are there for the tensor cores.
    """

    def __init__(self, plan: _BlockTiles, lefts: list[Stage], rights: list[Stage]) -> None:
        self.plan, self.lefts, self.rights = plan, lefts, rights
        self.depth = plan.step // plan.b.k
        # In a loop, each of the two sets follows the other. With two stages, the barrier would come
        # before the products during which the other stage is copied.
        even = len(lefts) * self.depth % 2 == 0
        self.sets = "xy" if even and len(lefts) > 2 and plan.b.options.parts == 1 else ""
        self.loaded: dict[str, tuple[list[list[Frag]], list[list[Frag]]]] = {}

    def load(self, stage: int, q: int) -> None:
        """Load k tile q of a stage."""
        plan, b, k = self.plan, self.plan.b, Index.of(q * self.plan.b.k)
        own = self._own(stage, q)
        rows, cols = range(plan.height // b.m), range(plan.width // b.n)
        left, right = self.lefts[stage], self.rights[stage]
        self.loaded[own] = (
            [left.load(f"A{i}{own}", plan.row + i * b.m, k, b.m) for i in rows],
            [right.load(f"B{j}{own}", k, plan.col + j * b.n, b.k) for j in cols],
        )

    def _own(self, stage: int, q: int) -> str:
        return self.sets and self.sets[(stage * self.depth + q) % 2]

    def use(self, sums: Sums, turn: Turn) -> Callable[[int], None]:
        """Return a function that multiplies k tile q of a step and prefetches the next."""

        def after(q: int) -> None:
            if q + 1 < self.depth:
                self.load(turn.stage, q + 1)
            elif turn.later is not None:
                turn.wait()
                self.load(turn.later, 0)

        def one(q: int) -> None:
            rows, cols = self.loaded[self._own(turn.stage, q)]
            if self.depth == 1:
                turn.copy()
            if self.sets:
                after(q)
            if q == 0 < self.depth - 1:
                turn.copy()
            for i, j in sums.totals:
                sums.multiply((i, j), rows[i], cols[j])
            if not self.sets:
                after(q)

        return one


# --- A matrix and a vector --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowsOfWarp:
    """The share of the matrix of a warp of `gemv_reduction`, and of the vector of a block.

    Attributes
    ----------
    down : int
        Tiles of m rows that a warp takes.
    width : int
        Tiles of each row that a step takes.
    chunk : int
        Elements of x in shared memory.
    share_rows : bool
        The warps of a block take steps of the same rows in turn, and their sums are added at the
        end: for matrices of few rows. Each warp copies its elements of x as well.
    stages : int
        Stages of each warp's own rows in shared memory, at least 2: while one is multiplied, the
        others are copied.
    """

    down: int = 1
    width: int = 4
    chunk: int = 4096
    share_rows: bool = False
    stages: int = 2


ROWS_OF_WARP = RowsOfWarp()


@algorithm(
    "gemv_reduction", "product", "not in the paper", "ceil(rows/m)*ceil(inner/k)", level=Level.BLOCK
)
def gemv_reduction(b: Builder, *, sizes: Inner = INNER, size: RowsOfWarp = ROWS_OF_WARP) -> Work:
    """Multiply a matrix by a vector, reading the matrix once; down*m rows a warp, W warps a block.

    A chunk of x is copied to shared memory once a block. It needs no padding there: in a right
    operand with columns k apart, column 0 has the k values needed, and column j has those j tiles
    later, with unused sums. A may have any number of rows.
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
        work.do_all()
        if shared:
            _store_sum_of_warps(b, list(sums.totals.values()), work.out, row)
            if work.alone and b.options.items_per_warp > 1:
                # The first warp still reads the sums of all.
                b.barrier()
        else:
            for (i, _), total in sums.totals.items():
                first = row + i * b.m
                b.copy(_column(b, work.out, first, b.m), b.part(b.spill(total, "s_C"), b.m, 1))
    return Work((Scalar("rows"),), Extent(ROWS, work.block_rows * b.options.items_per_warp))


class _Work:
    """The parts of `gemv_reduction`: its stages, and the work for one chunk of x."""

    def __init__(self, b: Builder, sizes: Inner, size: RowsOfWarp) -> None:
        self.b = b
        self.inner = inner = sizes.size(b)
        self.down, self.width = size.down, size.width
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
        # Data of a single warp need not be in the block's memory, if it has only one part.
        self.alone = size.share_rows and b.options.parts == 1
        self.most_stages = size.stages
        chunk = self.steps if self.alone else self.steps_of_chunk
        stages = range(self._line(chunk).stages)
        self.stages = [Stage(b, f"a{i}", rows, size.width * b.k, b.k, own=True) for i in stages]
        if self.alone:
            self.vectors = [_OwnVector(b, f"x{i}", size.width) for i in stages]
        else:
            self.vector = _Vector(b, self.steps_of_chunk * self.turn)

    def do_all(self) -> None:
        """Multiply all rows of the warp."""
        if self.alone:
            self._all_alone()
            return
        whole, rest = divmod(self.steps, self.steps_of_chunk)
        if whole:
            with self.b.loop("c_x", whole) as number:
                self.do(number * self.steps_of_chunk, self.steps_of_chunk)
        if rest:
            self.do(Index.of(whole * self.steps_of_chunk), rest)

    def _all_alone(self) -> None:
        """Multiply all steps, copying x with the rows: no warp waits for others."""
        line = self._line(self.steps)

        def fill(stage: int, step: Index) -> None:
            self._fill(stage, step)
            start = step * self.step + self.own * self.b.k
            # A step of all warps may reach beyond the end of x.
            inside = edge(start + ROW * self.b.k + COL, self.inner, self.step)
            self.vectors[stage].fill(self.x, start, inside)

        def multiply(turn: Turn) -> None:
            turn.copy()
            x = self.vectors[turn.stage]
            self._multiply(x.load, turn.span, partial(self._left, turn.stage))

        line.start(fill)
        line.run(fill, multiply, None)

    def do(self, first: Index, steps: int) -> None:
        """Multiply `steps` steps from `first` on, and the chunk of x that they need."""
        b = self.b
        if self.steps > self.steps_of_chunk or b.options.items_per_warp > 1:
            # Other warps may still read the former chunk.
            b.barrier()
        self.vector.fill(self.x, first * self.step, self.inner)

        def fill(stage: int, step: Index) -> None:
            self._fill(stage, first + step)

        def multiply(turn: Turn) -> None:
            turn.copy()
            self._multiply(self._of_chunk(turn.step), turn.span, partial(self._left, turn.stage))

        line = self._line(steps)
        line.start(fill)
        b.barrier()
        # A warp sees its own copies after a barrier of its own, which the builder puts.
        line.run(fill, multiply, None)

    def _line(self, steps: int) -> Pipeline:
        """Return the pipeline of so many steps; chains end where a chunk of x does."""
        return Pipeline(self.sums, steps, self.width, self.most_stages, self.steps_of_chunk)

    def _fill(self, stage: int, step: Index) -> None:
        """Copy the warp's own rows of a step."""
        k = step * self.step + self.own * self.b.k

        def inside(row: Index, col: Index) -> list[Bound]:
            return [Bound(self.first_row + row, ROWS), *edge(k + col, self.inner, self.step)]

        self.stages[stage].fill(self.a, self.first_row * self.inner + k, self.inner, inside)

    def _left(self, stage: int, i: int, q: int) -> list[Frag]:
        """Load tile q of row i of tiles from a stage."""
        row, col = Index.of(i * self.b.m), Index.of(q * self.b.k)
        return self.stages[stage].load(f"A{i}", row, col, self.b.m)

    def _of_chunk(self, step: Index) -> Callable[[int], list[Frag]]:
        """Return a loader of k tile q of a step of x from the block's chunk."""
        return lambda q: self.vector.load(step * self.turn + self.own + q)

    def _multiply(
        self,
        right: Callable[[int], list[Frag]],
        span: int,
        left: Callable[[int, int], list[Frag]],
    ) -> None:
        """Multiply left(i, q), tile q of a step's row i of tiles, by right(q), that of x."""

        def one(q: int) -> None:
            x = right(q)
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


class _OwnVector:
    """A warp's part of x for a step, in shared memory.

    Every column of an operand is the same k values: with a leading dimension of 0, one is loaded.
    """

    def __init__(self, b: Builder, name: str, tiles: int) -> None:
        dtype = stored_type(b.options.ab)
        self.b, self.tiles = b, tiles
        self.stride = padded(b.k, dtype)
        self.buffer = b.scratch(f"{name}_s", dtype, tiles * self.stride)

    def fill(self, x: Buffer, start: Index, inside: Sequence[Bound]) -> None:
        """Copy x from `start` on; `inside` gives the array's bounds."""
        b = self.b
        view = b.rect(x, start, self.tiles, b.k, b.k, 1, inside)
        b.copy(b.rect(self.buffer, 0, self.tiles, b.k, self.stride), view)

    def load(self, tile: int) -> list[Frag]:
        """Load k values as every column of a right operand."""
        b = self.b
        view = b.rect(self.buffer, tile * self.stride, b.k, b.n, 1, 0)
        return [b.load(b.right("X"), view)]


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
