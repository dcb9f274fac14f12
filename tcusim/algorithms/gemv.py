"""Products of a matrix and a vector as step programs: y = A.x (+ c), on units made for matrices.

`gemv` is the paper's way, a product of matrices of which all columns but one are padding.
`gemv_reduction` reads A once, in long pieces of rows, as a reduction reads its segments: it is
bound by memory, and has to be, because each element of A is used once.
"""

from __future__ import annotations

from tcusim.algorithms.builder import Builder, Level, Work, padded, require, stored_type
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
from tcusim.program.checks.verifier import tile_is_aligned
from tcusim.program.grammar import (
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

__all__ = ["gemv", "gemv_reduction"]

_FIRST_WARP = [Bound(WARP, Index.of(1))]


@algorithm(
    "gemv",
    "product",
    "[DAKKAK19] section 2, with a padded vector",
    "ceil(rows/m)*ceil(inner/k)",
)
def gemv(b: Builder, *, inner: int | None = None, add_c: bool = False) -> Work:
    """Multiply a matrix by a vector, m rows a warp: x is column 0 of an operand of zeros.

    inner: columns of A; default four tiles. add_c: add the products to an input `c`. A may have any
    number of rows.
    """
    inner = positive("inner", inner, 4 * b.k)
    a, x, out = left_array(b, inner), right_array(b, inner), result_array(b, 1)
    c = start_array(b, 1, add_c=add_c)
    row = b.unit * b.m

    def product(i: Index) -> None:
        k = i * b.k
        left = b.load_parts("A", _rows_of(b, a, row, k, inner))
        inside = [Bound(COL, Index.of(1)), *edge(k + ROW, inner, b.k)]
        column = b.rect(x, k, b.k, b.n, 1, inner, inside)
        sums.multiply((0, 0), left, b.load_parts("X", column, right=True))

    tiles = -(-inner // b.k)
    sums = Sums(b, tiles)
    with b.units():
        sums.start(None if c is None else lambda i, j: _repeated(b, c, row))
        grouped(b, sums, tiles, 1, product)
        _store_column(b, sums.totals[0, 0], out, row)
    per_block = b.m * b.options.warps * b.options.tiles
    return Work((Scalar("rows"),), Extent(ROWS, per_block))


@algorithm(
    "gemv_reduction",
    "product",
    "not in the paper",
    "ceil(rows/m)*ceil(inner/k)",
    level=Level.BLOCK,
)
def gemv_reduction(
    b: Builder,
    *,
    inner: int | None = None,
    add_c: bool = False,
    down: int = 1,
    width: int = 4,
    chunk: int | None = None,
    staged: bool = True,
    share_rows: bool = False,
) -> Work:
    """Multiply a matrix by a vector, reading the matrix once; down*m rows a warp, W warps a block.

    A chunk of x is copied to shared memory once a block. It needs no padding there: as a right
    operand whose columns are k apart, column 0 is the k values that are wanted and column j the
    ones j tiles on, whose sums nobody reads.

    A step takes `width` k tiles of each row. staged: each warp copies its own rows of the next step
    to shared memory while it multiplies the present ones; if not, operands are loaded where they
    lie, save in a block that has too few rows. share_rows: the warps of a block take steps of the
    same rows in turn, and their sums are added at the end; for matrices of few rows. chunk:
    elements of x in shared memory, default 4096. inner: columns of A; default four tiles. add_c:
    add the products to an input `c`. A may have any number of rows.
    """
    inner = positive("inner", inner, 4 * b.k)
    down, width = positive("down", down, 1), positive("width", width, 1)
    shared = share_rows and b.options.warps > 1
    work = _Work(b, inner, down, width, positive("chunk", chunk, 4096), staged, shared)
    out, c = result_array(b, 1), start_array(b, 1, add_c=add_c)
    row = work.first_row

    def start() -> None:
        given = c
        if given is None:
            work.sums.start(None)
        else:
            work.sums.start(lambda i, j: _repeated(b, given, row + i * b.m), "t_C")

    with b.units():
        if shared and c is not None:
            with b.when(_FIRST_WARP) as otherwise:
                start()
                with otherwise():
                    work.sums.start(None)
        else:
            start()
        whole, rest = divmod(work.steps, work.steps_of_chunk)
        if whole:
            with b.loop("c_x", whole) as number:
                work.do(number * work.steps_of_chunk, work.steps_of_chunk)
        if rest:
            work.do(Index.of(whole * work.steps_of_chunk), rest)
        if shared:
            _store_sum_of_warps(b, list(work.sums.totals.values()), out, row)
        else:
            for (i, _), total in work.sums.totals.items():
                _store_column(b, total, out, row + i * b.m)
    return Work((Scalar("rows"),), Extent(ROWS, work.block_rows * b.options.tiles))


class _Work:
    """The parts of `gemv_reduction`: its stages, and what is done for one chunk of x."""

    def __init__(
        self,
        b: Builder,
        inner: int,
        down: int,
        width: int,
        chunk: int,
        staged: bool,
        shared: bool,
    ) -> None:
        self.b = b
        self.inner = inner
        self.down = down
        self.width = width
        self.staged = staged
        self.a, self.x = left_array(b, inner), right_array(b, inner)
        warps = b.options.warps
        sharing, apart = (warps, 1) if shared else (1, warps)
        self.block_rows = apart * down * b.m
        self.first_row = b.unit * self.block_rows + WARP * (down * b.m if apart > 1 else 0)
        # The warps that share rows take `turn` k tiles in a step, of which each has its own.
        self.turn = sharing * width
        self.own = WARP * (width if sharing > 1 else 0)
        self.step = self.turn * b.k
        self.steps = -(-inner // self.step)
        self.steps_of_chunk = min(self.steps, max(1, chunk // self.step))
        self.sums = Sums(b, self.steps * width, down)
        self.vector = _Vector(b, self.steps_of_chunk * self.turn)
        stages = range(min(2, self.steps_of_chunk))
        size = (down * b.m, width * b.k, b.k)
        self.stages = [Stage(b, f"a{i}", *size, own=True) for i in stages]
        require(
            staged or self._loadable(),
            f"rows of {inner} {b.options.source} elements are no operands where they lie: that "
            f"needs whole steps of {self.step}, of the operands' type, at addresses that WMMA "
            "takes. Use staged=True",
        )

    def _loadable(self) -> bool:
        """Whether tiles of A can be operands where they lie."""
        b = self.b
        tile = b.rect(self.a, self.first_row * self.inner + b.k, b.m, b.k, self.inner)
        whole = self.inner % self.step == 0 and b.options.parts == 1
        same = self.a.dtype == stored_type(b.options.ab)
        options = b.options
        return whole and same and tile_is_aligned(tile, options.shape, options.ab, options.acc)

    def do(self, first: Index, steps: int) -> None:
        """Multiply `steps` steps from `first` on, and the chunk of x that they need."""
        b = self.b
        if self.steps > self.steps_of_chunk or b.options.tiles > 1:
            # Other warps may still read the former chunk.
            b.barrier()
        self.vector.fill(self.x, first * self.step, self.inner)
        if self.staged:
            self._fill(0, first)
            b.barrier()
            self._staged(first, steps)
            return
        b.barrier()
        last = Bound(b.unit * self.block_rows + (self.block_rows - 1), ROWS)
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
            def one(q: int) -> None:
                x = self.vector.load(step * self.turn + self.own + q)
                for i in range(self.down):
                    row, col = Index.of(i * self.b.m), Index.of(q * self.b.k)
                    left = self.stages[stage].load(f"A{i}", row, col, self.b.m)
                    self.sums.multiply((i, 0), left, x)

            self.sums.tiles(self.width, span, one)

        # A warp sees its own copies after a barrier of its own, which the builder puts.
        pipelined(self.b, self.sums, steps, self.width, fill, multiply, None)

    def _direct(self, first: Index, step: Index) -> None:
        """Load the operands of one step where they lie."""
        b = self.b

        def one(q: int) -> None:
            x = self.vector.load(step * self.turn + self.own + q)
            k = (first + step) * self.step + (self.own + q) * b.k
            for i in range(self.down):
                at = (self.first_row + i * b.m) * self.inner + k
                tile = b.rect(self.a, at, b.m, b.k, self.inner)
                self.sums.multiply((i, 0), [b.load(b.left(f"A{i}_{q}"), tile)], x)

        self.sums.tiles(self.width, self.width, one)


class _Vector:
    """A chunk of x in shared memory, one array for each part: `tiles` rows of k."""

    def __init__(self, b: Builder, tiles: int) -> None:
        dtype = stored_type(b.options.ab)
        self.b = b
        self.stride = padded(b.k, dtype)
        # The other columns of the last operand reach n-1 tiles further.
        self.rows = tiles + b.n - 1
        parts = b.options.parts
        self.buffers = [
            b.shared(f"x{part}_s" if parts > 1 else "x_s", dtype, self.rows * self.stride)
            for part in range(parts)
        ]

    def fill(self, x: Buffer, start: Index, inner: int) -> None:
        """Copy x from `start` on, each warp some tiles; zeros beyond its end."""
        b, warps = self.b, self.b.options.warps
        per_warp = -(-self.rows // warps)
        tile = WARP * per_warp if warps > 1 else Index()
        ours = [Bound(tile + ROW, Index.of(self.rows))] if per_warp * warps > self.rows else []
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
        names = [f"X{part}" if len(self.buffers) > 1 else "X" for part in range(len(self.buffers))]
        return [
            b.load(b.right(name), b.rect(buffer, tile * self.stride, b.k, b.n, 1, self.stride))
            for name, buffer in zip(names, self.buffers, strict=True)
        ]


# --- Columns ----------------------------------------------------------------------------------


def _rows_of(b: Builder, a: Buffer, row: Index, k: Index, inner: int) -> View:
    """Return the (m, k) tile of A at this row and column."""
    bounds = [Bound(row + ROW, ROWS), *edge(k + COL, inner, b.k)]
    return b.rect(a, row * inner + k, b.m, b.k, inner, 1, bounds)


def _repeated(b: Builder, c: Buffer, row: Index) -> View:
    """Return m elements of c, repeated in every column."""
    return b.rect(c, row, b.m, b.n, 1, 0, [Bound(row + ROW, ROWS)])


def _store_column(b: Builder, total: Frag, out: Buffer, row: Index) -> None:
    """Store column 0 of an accumulator."""
    column = b.part(b.spill(total, "s_C"), b.m, 1)
    b.copy(b.rect(out, row, b.m, 1, 1, 1, [Bound(row + ROW, ROWS)]), column)


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
        count = b.options.warps
        while count > 1:
            half = (count + 1) // 2
            low = b.rect(sums, 0, count - half, rows, size)
            b.copy(low, low, b.rect(sums, half * size, count - half, rows, size))
            count = half
        result = b.rect(out, row, rows, 1, 1, 1, [Bound(row + ROW, ROWS)])
        b.copy(result, b.rect(sums, 0, rows, 1, 1))
