"""The grammar of step programs.

A step program is a small typed list of tile steps that every warp of a grid runs. It is data:
frozen, hashable and printable. The interpreter, the listing, the checks, the counters and the
emitter each match the same closed union `Step`, case by case, in the order of this file.

::

    Program = name, shape, ab, acc, scalars, buffers, blocks, rows, columns, warps, Step*
    Step    = Const(dst, pattern)          fragment <- constant matrix
            | Load(dst, value)             fragment <- tile of memory, or a part of each element
            | Mma(d, a, b, c)              D = A.B + C
            | Add(d, a, b)                 accumulator <- accumulator + accumulator, rounded
            | Store(dst, src)              tile of memory <- fragment
            | Assign(dst, value)           rectangle of memory <- expression of rectangles
            | Prefix(dst, value, totals)   rectangle <- prefix sums of rows, or a column of sums
            | Publish(dst, src)            status words <- rectangle, for later blocks
            | Await(dst, src)              rectangle <- status words, once they are there
            | Locate(dst, segments, first) ranges <- where chunks of ragged segments lie
            | Sync(scope)                  barrier of a warp or of a block
            | Loop(var, count, Step*)      for var in range(count)
            | When(bounds, Step*, Step*)   if every bound holds for this warp, else; or if
                                           a value is not finite, or a range is longer than 1
    View    = Buffer, offset in elements, Axis of rows, Axis of columns, Bound*
    Axis    = Strided(count, stride)       each a constant distance after the one before
            | Gathered(ranges)             each in a range that Locate found
    Bound   = Index < Index                an element where it fails is read as 0, never written
    Value   = View | number | Formula
    Formula = Operation, Value*, type     each result is rounded once to that type
    Index   = sum of integer * symbol + integer; symbols: block, block_row, block_col, warp,
              warp_row, warp_col, row, col, loops, scalars

A fragment is opaque, as in CUDA: no step can name the lane or the register of an element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cached_property
from typing import ClassVar, TypeAlias

from tcusim.errors import InputError, told
from tcusim.machine.shapes import MmaShape
from tcusim.markup import listing
from tcusim.program.index import BLOCK as BLOCK
from tcusim.program.index import BLOCK_COL as BLOCK_COL
from tcusim.program.index import BLOCK_ROW as BLOCK_ROW
from tcusim.program.index import COL as COL
from tcusim.program.index import ROW as ROW
from tcusim.program.index import WARP as WARP
from tcusim.program.index import WARP_COL as WARP_COL
from tcusim.program.index import WARP_ROW as WARP_ROW
from tcusim.program.index import Bound as Bound
from tcusim.program.index import Extent as Extent
from tcusim.program.index import Index as Index
from tcusim.program.index import Number
from tcusim.program.index import Scalar as Scalar

# --- Places that hold values ------------------------------------------------------------------


class Space(StrEnum):
    """The memory space of a buffer."""

    GLOBAL = "global"
    SHARED = "shared"  # the block's warps share it
    WARP = "warp"  # a part of shared memory for each warp alone


class Scope(StrEnum):
    """The scope of a barrier: the lanes of one warp, or all warps of the block."""

    WARP = "warp"
    BLOCK = "block"


class BufferRole(StrEnum):
    """The use of a buffer in a program; only scratch is in shared memory."""

    INPUT = "input"  # only read
    OUTPUT = "output"  # only written
    SCRATCH = "scratch"  # written, then read
    STATUS = "status"  # published by a block and awaited by later ones


class Role(StrEnum):
    """The role of a fragment in an mma, in CUDA's spelling."""

    A = "matrix_a"
    B = "matrix_b"
    ACC = "accumulator"


@dataclass(frozen=True, slots=True)
class Buffer:
    """An array in memory, `size` elements of type `dtype`.

    partial: an output with elements that the program leaves unchanged.
    """

    name: str
    dtype: str
    size: Extent
    role: BufferRole
    space: Space = Space.GLOBAL
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Ranges:
    """The bounds in memory of each of `count` rows (or columns) of a tile.

    A warp stores it like a fragment: `Locate` sets it, views use it.
    """

    name: str
    count: int


@dataclass(frozen=True, slots=True)
class Strided:
    """Rows (or columns) at a constant stride, in elements; a stride of 0 repeats one."""

    count: int
    stride: int


@dataclass(frozen=True, slots=True)
class Gathered:
    """Rows (or columns) at arbitrary addresses, each in a range of its own.

    Row r begins at ranges.begin[r], and an element at or beyond ranges.end[r] is out of bounds.
    """

    ranges: Ranges

    @property
    def count(self) -> int:
        """The number of ranges."""
        return self.ranges.count

    @property
    def stride(self) -> int:
        """0: an element's row affects its address only through the start of its range."""
        return 0


Axis: TypeAlias = Strided | Gathered


@dataclass(frozen=True)
class View:
    """A rectangle of a buffer; element (r, c) is at offset + r*row stride + c*column stride.

    Offsets and strides are in elements. An element at which a bound fails is read as 0 and is
    never written. At most one of the axes is gathered.
    """

    buffer: Buffer
    offset: Index
    row_axis: Axis
    col_axis: Axis
    bounds: tuple[Bound, ...] = ()

    @staticmethod
    def strided(
        buffer: Buffer,
        offset: Index,
        rows: int,
        cols: int,
        row_stride: int,
        col_stride: int,
        bounds: tuple[Bound, ...] = (),
    ) -> View:
        """Return a rectangle with a constant stride in both directions."""
        return View(buffer, offset, Strided(rows, row_stride), Strided(cols, col_stride), bounds)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.row_axis.count

    @property
    def cols(self) -> int:
        """Number of columns."""
        return self.col_axis.count

    @property
    def row_stride(self) -> int:
        """Elements from one row to the next, not counting the start of gathered rows."""
        return self.row_axis.stride

    @property
    def col_stride(self) -> int:
        """Elements from one column to the next, not counting the start of gathered columns."""
        return self.col_axis.stride

    @cached_property
    def ranges(self) -> Ranges | None:
        """The ranges of the rows or columns, if they are gathered."""
        for axis in (self.row_axis, self.col_axis):
            if isinstance(axis, Gathered):
                return axis.ranges
        return None

    @property
    def layout(self) -> str | None:
        """`row_major` or `col_major` as WMMA means them, None if neither stride is 1.

        A single row with both strides 1, as in a tile with k = 1, is column-major: its leading
        dimension of 1 is too small for a row, and right for a column.
        """
        if self.ranges is not None:
            return None
        one_row = self.rows == 1 < self.cols and self.row_stride == 1
        if self.col_stride == 1 and not one_row:
            return "row_major"
        return "col_major" if self.row_stride == 1 else None

    @property
    def ldm(self) -> int:
        """Leading dimension in elements: the stride between rows (columns if col_major)."""
        return self.row_stride if self.layout == "row_major" else self.col_stride

    @cached_property
    def address(self) -> Index:
        """The element's index as an expression in `row` and `col`; in its range if gathered."""
        return self.offset + ROW * self.row_stride + COL * self.col_stride


@dataclass(frozen=True, slots=True)
class Frag:
    """A tile in a warp's registers; the mapping of elements to lanes is not part of the grammar."""

    name: str
    role: Role
    shape: MmaShape
    dtype: str

    @property
    def rows(self) -> int:
        """Rows of the tile: m, but k for matrix_b."""
        return self.shape.k if self.role is Role.B else self.shape.m

    @property
    def cols(self) -> int:
        """Columns of the tile: n, but k for matrix_a."""
        return self.shape.k if self.role is Role.A else self.shape.n


class PatternKind(StrEnum):
    """The constant matrices of the paper; r and c are the element's row and column."""

    ZEROS = "zeros"
    ONES = "ones"
    ROW = "row"  # 1 where r == offset: the paper's P is row 0
    COL = "col"  # 1 where c == offset: the transpose of P
    UPPER = "upper"  # 1 where r <= c + offset: U (erratum E1: the printed U is the transpose)
    LOWER = "lower"  # 1 where c <= r + offset: L, strictly lower, has offset -1


@dataclass(frozen=True, slots=True)
class Pattern:
    """A 0/1 matrix: a kind and its offset, possibly an expression of loop variables.

    size: length of the consecutive segments that share a row of a tile; 0 for a single segment. COL
    then has its ones where c == offset + r // size, so that each segment has its own column. UPPER
    has ones only within a segment, where also r // size == c // size + ceil(offset / size): the
    offset moves it by whole segments plus the remainder. ROW and LOWER are their transposes.
    """

    kind: PatternKind
    offset: Index = field(default_factory=Index)
    size: int = 0

    def __post_init__(self) -> None:
        """Reject sizes without a meaning."""
        if self.size < 0 or (self.size and self.offset.terms):
            raise ValueError(
                f"segments that share a row have a size of at least 1 and a constant offset, got "
                f"{self.size} and {self.offset}"
            )

    @property
    def segments(self) -> int:
        """Number of whole segments by which the offset moves a triangle."""
        return -(-self.offset.const // self.size) if self.size else 0

    @property
    def uniform(self) -> bool:
        """Whether all elements are equal, so that `fill_fragment` can make it."""
        return self.kind in (PatternKind.ZEROS, PatternKind.ONES)


def whole(view: View) -> tuple[Bound, ...]:
    """Return conditions on the warp that put every element of the view in bounds."""
    ends = {"row": view.rows - 1, "col": view.cols - 1}
    return tuple(bound.hardest(ends) for bound in view.bounds)


class Operation(StrEnum):
    """An operation of a formula, element by element; each result is rounded once to its type."""

    PLUS = "+"
    PLUS_TO_ODD = "+ to odd"  # rounded to odd, so that a narrower type gets a single rounding
    TIMES = "·"
    OVER = "/"
    ROOT = "√"
    MAX = "max"  # NaN if either is, as IEEE 754's maximum; +0 is above -0
    FINITE = "finite"  # 0 for infinities and NaN
    NOT_FINITE = "not finite"  # 0 for finite elements
    WHOLE = "whole"  # rounded to an integer
    FRACTION = "fraction"  # the rest: 0 for infinities and NaN
    SPLIT = "split"  # the largest of several parts; the others have places of their own

    @property
    def terms(self) -> int:
        """The number of its terms."""
        return 2 if self in _OF_TWO else 1


_OF_TWO = (
    Operation.PLUS,
    Operation.PLUS_TO_ODD,
    Operation.TIMES,
    Operation.OVER,
    Operation.MAX,
)
# Operations that keep a part of each element; a Load takes no others.
PARTS = (Operation.FINITE, Operation.NOT_FINITE, Operation.WHOLE, Operation.FRACTION)


@dataclass(frozen=True, slots=True)
class Formula:
    """An operation on values, which become its type exactly; its result is rounded to the type."""

    operation: Operation
    terms: tuple[Value, ...]
    dtype: str = "f32"

    @property
    def operations(self) -> tuple[Operation, ...]:
        """All operations of an element."""
        inner = (term.operations for term in self.terms if isinstance(term, Formula))
        return (self.operation, *(one for found in inner for one in found))


# The value of an element: that of a rectangle, a float32 constant, or computed.
Value: TypeAlias = View | Formula | float


def views_of(value: Value) -> tuple[View, ...]:
    """Return the rectangles of a value, in the order of their first use."""
    match value:
        case View():
            return (value,)
        case Formula(terms=terms):
            return tuple(dict.fromkeys(view for term in terms for view in views_of(term)))
        case _:
            return ()


def is_square(value: Value) -> bool:
    """Return whether a value is the square of a rectangle's elements, read once."""
    return (
        isinstance(value, Formula)
        and value.operation is Operation.TIMES
        and isinstance(value.terms[0], View)
        and value.terms[0] == value.terms[-1]
    )


def type_of(value: Value) -> str:
    """Return the element type of a value."""
    match value:
        case View(buffer=buffer):
            return buffer.dtype
        case Formula(dtype=dtype):
            return dtype
        case _:
            return "f32"


# --- Steps ------------------------------------------------------------------------------------
# `origin` cites the paper's listing and line of a step, if it has one.


@dataclass(frozen=True, slots=True)
class Const:
    """Set a fragment to a constant 0/1 matrix.

    WMMA: `fill_fragment` if uniform, else `load_matrix_sync` from a table in shared memory.
    Cost: registers only if uniform, else one tile read from shared memory.
    """

    dst: Frag
    pattern: Pattern
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """Load a tile into a fragment (the paper's LoadTile). The element types must be equal.

    WMMA: `load_matrix_sync(dst, src, ldm, layout)`. The view has no bounds and one unit stride. An
    ldm of 0 repeats one row (or column) of an operand.
    Cost: rows*cols elements read; from global memory in 32-byte sectors.

    value: the tile, or one of `PARTS` of it, which adds a loop over `x[i]`, as in an Add.
    """

    dst: Frag
    value: Value
    origin: str = ""

    @property
    def src(self) -> View:
        """The tile."""
        return views_of(self.value)[0]

    @property
    def part(self) -> Operation | None:
        """The part to take of each element; None takes all of it."""
        return self.value.operation if isinstance(self.value, Formula) else None


@dataclass(frozen=True, slots=True)
class Mma:
    """D = A.B + C, in the arithmetic of the program's architecture.

    WMMA: `mma_sync(d, a, b, c)`. Cost: m*n*k multiply-adds.
    """

    d: Frag
    a: Frag
    b: Frag
    c: Frag
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Add:
    """D = A + B of accumulators, element by element, each sum rounded to nearest even.

    WMMA: a loop over `x[i]`; CUDA allows this because it treats all elements alike.
    Cost: m*n additions on the CUDA cores.
    """

    d: Frag
    a: Frag
    b: Frag
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Store:
    """Store an accumulator to memory. The element types must be equal.

    WMMA: `store_matrix_sync(dst, src, ldm, layout)`. The view has no bounds and one unit stride.
    With an ldm of 0, equal rows (or columns) are stored to one address.
    Cost: rows*cols elements written.
    """

    dst: View
    src: Frag
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Assign:
    """Set a rectangle to a value, lane by lane: dst <- value.

    The value is another rectangle, which copies, masks, converts and broadcasts tiles, or a formula
    of rectangles and float32 constants. Each operation is rounded once in its own type, and the
    result is converted once (nearest even) to the type of `dst`. Source elements out of bounds
    count as 0; destination elements out of bounds are not written.
    CUDA: the warp's lanes share out the rectangle, in chunks of up to 16 bytes, with `__fmul_rn`,
    `__fdiv_rn` and `__fsqrt_rn`, never contracted; `cp.async` where a copy as it is comes before an
    Mma before the next Sync. Cost: reads and writes of rows*cols; a division or a root takes some
    ten instructions.

    parts: of a SPLIT, the places of the parts after the first. dst <- x0 = round(x), parts[0] <-
    round(x - x0), ... in the type of `dst`, nearest even. Three bf16 parts represent every float32
    with a last bit of at least 2**-133, the smallest bf16.
    """

    dst: View
    value: Value
    origin: str = ""
    parts: tuple[View, ...] = ()

    @property
    def dsts(self) -> tuple[View, ...]:
        """All rectangles that are written."""
        return (self.dst, *self.parts)

    @property
    def src(self) -> View | None:
        """The rectangle of a copy as it is, but for its type; None for a formula."""
        return self.value if isinstance(self.value, View) else None


def sum_of(one: Value, two: View, *, to_odd: bool = False) -> Formula:
    """Return the sum of two values, rounded once in the type of the second, or to odd in it."""
    operation = Operation.PLUS_TO_ODD if to_odd else Operation.PLUS
    return Formula(operation, (one, two), two.buffer.dtype)


def part_of(part: Operation, view: View) -> Formula:
    """Return one of `PARTS` of each element."""
    return Formula(part, (view,), view.buffer.dtype)


def split(dsts: Sequence[View], src: View, origin: str = "") -> Assign:
    """Return the step that splits a wide rectangle exactly into narrow parts, largest first."""
    first, *others = dsts
    return Assign(
        first, Formula(Operation.SPLIT, (src,), first.buffer.dtype), origin, tuple(others)
    )


@dataclass(frozen=True, slots=True)
class Prefix:
    """Add up each row of a value: dst <- its prefix sums, or its sum, in f32 or in f64.

    f32 adds f32; f64 adds f64, and f16 exactly. The value is a rectangle or a formula of one, as in
    an Assign.

    Neighbours are added in pairs, then neighbouring pairs and so on, with zeros past the row's end.
    The prefix sums are Sklansky's (1960): in each pair, the sum of the first half is added to every
    element of the second. Each addition is rounded to nearest even. -0 counts as 0, and so do
    source elements out of bounds.
    CUDA: the warp's lanes share out each row; `__shfl_sync`. Cost: a read and a write of rows*cols,
    and log2(cols) additions an element.
    """

    # The size of the value; or one column, for the sums only.
    dst: View
    value: Value
    # A column for the sums in addition.
    totals: View | None = None
    origin: str = ""
    # Whether prefixes run from the row's end, and leave out the element itself.
    reverse: bool = False
    exclusive: bool = False

    @property
    def src(self) -> View:
        """The rectangle of the value."""
        return views_of(self.value)[0]

    @property
    def sums_alone(self) -> bool:
        """Whether `dst` gets only the rows' sums."""
        return self.dst.cols == 1 and not self.exclusive


@dataclass(frozen=True, slots=True)
class Publish:
    """Write a rectangle to status words, for later blocks of the same launch to await.

    Each element is published once in a launch. The element types are equal.
    CUDA: one 64-bit store a value (two for f64 and s64), with the launch number as its flag, so no
    fence is needed, and no word is cleared between launches.
    Cost: reads of rows*cols, and twice as many bytes written to the second-level cache.
    """

    dst: View
    src: View
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Await:
    """Read status words, after waiting until every element in bounds has been published.

    A block waits only for blocks of lower index. These have started earlier and cannot wait for it
    in turn. The element types are equal; elements out of bounds are 0.
    CUDA: each lane polls the elements it copies. Cost: the remaining time of the earlier blocks.
    """

    dst: View
    src: View
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Segments:
    """Segments of unequal length, defined by offsets, and their division into numbered chunks.

    offsets: a s64 buffer of segments + 1 ascending positions; segment i of the data is the elements
    from offsets[i] up to offsets[i+1]. chunk: the maximum length of a chunk; None takes whole
    segments, one per chunk.

    Segment i's chunks are numbered from offsets[i] // chunk + i on, without reference to other
    segments' lengths: every chunk has an index, and an unused index gives an empty range.
    levels: chunk lengths of earlier levels, outermost first. The data are then the chunks' results
    by index. Segment i has one element per chunk, from q on, where q = offsets[i], and q <- q //
    length + i for each level.
    limit: the number of elements of the data: all ranges are clamped to them for any offsets. None
    trusts the offsets.
    """

    offsets: Buffer
    chunk: int | None = None
    levels: tuple[int, ...] = ()
    limit: Index | None = None

    def positions(self, offsets: Number, numbers: Number) -> Number:
        """Return the start of segments in the data; `numbers` are the segments' indices."""
        for length in self.levels:
            offsets = offsets // length + numbers  # type: ignore[operator, assignment]
        return offsets

    def values(self, elements: Number) -> Number:
        """Return the number of data elements of a segment of `elements` elements."""
        for length in self.levels:
            elements = -(-elements // length)  # type: ignore[operator]
        return elements

    def last_offset(self, segments: int, length: int) -> int:
        """Return the maximum of the last offset, for data of `length` elements."""
        for cut in reversed(self.levels):
            length = max(0, length - segments) * cut
        return length


@dataclass(frozen=True, slots=True)
class Locate:
    """Find the ranges of chunks of segments: range r of `dst` is chunk first + r.

    CUDA: the lanes of a warp search together; a search from the previous chunk is short. Cost:
    about log32(segments) dependent reads, and then an offset a range.
    """

    dst: Ranges
    segments: Segments
    first: Index
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Sync:
    """Wait, so that earlier writes to shared memory are visible to later reads.

    CUDA: `__syncwarp()` (scope WARP) or `__syncthreads()` (scope BLOCK).
    """

    scope: Scope
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Loop:
    """Run `body` for var = 0 .. count-1. The count is the same for every warp.

    CUDA: `for`. Cost: that of the body, count times.
    """

    var: str
    count: Extent
    body: tuple[Step, ...]
    origin: str = ""


@dataclass(frozen=True, slots=True)
class When:
    """Run `body` in the warps with all bounds true, `otherwise` in the others.

    The condition is the same for all lanes of a warp: it names neither `row` nor `col`.
    CUDA: `if`, `else`. Cost: that of the branch taken.

    not_finite: run `body` only if some value of this rectangle of shared memory is also an infinity
    or NaN, else `otherwise`: a data-dependent branch. Neither branch affects other warps, and both
    write the same elements of the outputs. CUDA: `__any_sync`. Cost: a read of the rectangle, plus
    `otherwise` if nothing is known about the data.
    longer: run `body` only if some of these ranges also has more than one element, else
    `otherwise`: the offsets decide, with the same restrictions. CUDA: a result of `Locate`. Cost:
    none.
    """

    bounds: tuple[Bound, ...]
    body: tuple[Step, ...]
    otherwise: tuple[Step, ...] = ()
    origin: str = ""
    not_finite: View | None = None
    longer: Ranges | None = None

    @property
    def on_data(self) -> str:
        """The kind of data that the branch depends on, or ""."""
        return "not finite" if self.not_finite else "longer" if self.longer else ""


Step: TypeAlias = (
    Const
    | Load
    | Mma
    | Add
    | Store
    | Assign
    | Prefix
    | Publish
    | Await
    | Locate
    | Sync
    | Loop
    | When
)


@dataclass(frozen=True)
class Program:
    """One launch: `steps` are run by each of `warps` warps of each block of a grid.

    Attributes
    ----------
    name : str
        The algorithm that built it.
    shape : MmaShape
        The tile of its products, m x n x k.
    ab, acc : str
        Element types of the operands and of the accumulators.
    scalars : tuple of Scalar
        Run-time arguments: lengths, found from the sizes of its inputs.
    buffers : tuple of Buffer
        Inputs, outputs, scratch and status words, with their element types and sizes.
    blocks, rows, columns : Extent, int, int
        The grid is `blocks` high and `columns` wide; a block is at (block, block_col). If there are
        `rows` of columns for each of `blocks`, it is at (block, block_row, block_col). The last of
        these varies fastest. In a program with status words, blocks are numbered in the order of
        their start.
    warps, warp_columns : int
        `warp` is the index of a warp in its block. With several `warp_columns`, warps form a
        row-major grid, and a warp also has the position (warp_row, warp_col).
    steps : tuple of Step
        The steps of each warp, in order.
    source : str
        The section of the paper that it comes from.
    """

    name: str
    shape: MmaShape
    ab: str
    acc: str
    scalars: tuple[Scalar, ...]
    buffers: tuple[Buffer, ...]
    blocks: Extent
    warps: int
    steps: tuple[Step, ...]
    source: str = ""
    columns: int = 1
    warp_columns: int = 1
    rows: int = 1
    # The text for `print`. The printer, a module above the grammar, sets its listing here.
    as_text: ClassVar[Callable[[Program], str]] = repr

    def __repr__(self) -> str:
        """Name the program: all of its steps would fill a screen. `print` shows those."""
        types = f"{self.shape}, {self.ab} to {self.acc}"
        return f"Program({self.name!r}, {types}, {sum(1 for _ in walk(self.steps))} steps)"

    def __hash__(self) -> int:
        """Return a hash of all steps, computed once; caches use programs as keys."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(self.__getstate__().values()))

    def __getstate__(self) -> dict[str, object]:
        """Return only the fields: the hash differs between processes."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def __str__(self) -> str:
        """Print as the listing."""
        return type(self).as_text(self)

    def _repr_html_(self) -> str:
        return listing(repr(self), str(self))

    @cached_property
    def inputs(self) -> tuple[Buffer, ...]:
        """The arrays that a launch reads."""
        return self._of(BufferRole.INPUT)

    @cached_property
    def outputs(self) -> tuple[Buffer, ...]:
        """The arrays that a launch writes."""
        return self._of(BufferRole.OUTPUT)

    @cached_property
    def scratch(self) -> tuple[Buffer, ...]:
        """Shared memory."""
        return self._of(BufferRole.SCRATCH)

    @cached_property
    def status(self) -> tuple[Buffer, ...]:
        """Status words, for passing values to later blocks."""
        return self._of(BufferRole.STATUS)

    def buffer(self, name: str) -> Buffer:
        """Return the buffer of that name."""
        return next(buffer for buffer in self.buffers if buffer.name == name)

    @cached_property
    def uses_mma(self) -> bool:
        """Whether some step multiplies, so that the types must be tensor-core types."""
        return any(isinstance(step, Mma) for _, step in walk(self.steps))

    def _of(self, role: BufferRole) -> tuple[Buffer, ...]:
        return tuple(buffer for buffer in self.buffers if buffer.role is role)

    def grid(self, scalars: Mapping[str, int]) -> int:
        """Return the number of blocks of the launch, in all rows and columns."""
        return self.blocks.evaluate(scalars) * self.rows * self.columns

    @property
    def block_number(self) -> Index:
        """The linear index of a block in the grid."""
        number = BLOCK
        for place, count in ((BLOCK_ROW, self.rows), (BLOCK_COL, self.columns)):
            # The index in a single row, or column, has no symbol.
            number = number * count + (place if count > 1 else 0)
        return number


# --- Traversal of a program ------------------------------------------------------------------


# A step with its path, such as "7.2".
Numbered: TypeAlias = tuple[str, Step]


def require_program(program: object) -> None:
    """Reject an object that is not a program, such as the name of an algorithm."""
    if not isinstance(program, Program):
        hint = f"; tcusim.build({program!r}) makes one" if isinstance(program, str) else ""
        raise InputError(f"program must be a Program, got {told(program)}{hint}")


def numbered(steps: tuple[Step, ...], prefix: str = "", first: int = 1) -> Iterator[Numbered]:
    """Yield the steps of one list with their paths; the first is number `first`."""
    for number, step in enumerate(steps, start=first):
        yield f"{prefix}{number}", step


def branch_of(path: str, step: Loop | When, *, taken: bool = True) -> Iterator[Numbered]:
    """Yield the steps directly inside the step at `path`: its body, or the other branch.

    The steps of an `otherwise` branch are numbered on from those of the `body`.
    """
    if taken:
        return numbered(step.body, f"{path}.")
    assert isinstance(step, When)
    return numbered(step.otherwise, f"{path}.", len(step.body) + 1)


def walk(steps: tuple[Step, ...], prefix: str = "", first: int = 1) -> Iterator[Numbered]:
    """Yield every step with its path: parents before children, in text order."""
    for path, step in numbered(steps, prefix, first):
        yield path, step
        if isinstance(step, Loop | When):
            yield from walk(step.body, f"{path}.")
        if isinstance(step, When):
            yield from walk(step.otherwise, f"{path}.", len(step.body) + 1)


@dataclass(frozen=True, slots=True)
class Accesses:
    """The reads and writes of one step: fragments, ranges, and rectangles of memory."""

    frags_read: tuple[Frag, ...] = ()
    frags_written: tuple[Frag, ...] = ()
    views_read: tuple[View, ...] = ()
    views_written: tuple[View, ...] = ()
    ranges_written: tuple[Ranges, ...] = ()
    ranges_asked: tuple[Ranges, ...] = ()

    @property
    def frags(self) -> tuple[Frag, ...]:
        """All fragments, written ones first."""
        return (*self.frags_written, *self.frags_read)

    @property
    def views(self) -> tuple[View, ...]:
        """All rectangles, written ones first."""
        return (*self.views_written, *self.views_read)

    @property
    def ranges_read(self) -> tuple[Ranges, ...]:
        """Ranges that the views name, and ranges with lengths that a branch tests."""
        named = tuple(view.ranges for view in self.views if view.ranges is not None)
        return (*named, *self.ranges_asked)


def accesses(step: Step) -> Accesses:
    """Return the accesses of `step` itself, not of the steps inside it."""
    match step:
        case Const(dst):
            return Accesses(frags_written=(dst,))
        case Load(dst, value):
            return Accesses(frags_written=(dst,), views_read=views_of(value))
        case Mma(d, a, b, c):
            return Accesses(frags_read=(a, b, c), frags_written=(d,))
        case Add(d, a, b):
            return Accesses(frags_read=(a, b), frags_written=(d,))
        case Store(target, frag):
            return Accesses(frags_read=(frag,), views_written=(target,))
        case Assign(_, value):
            return Accesses(views_read=views_of(value), views_written=step.dsts)
        case Prefix(target, value, totals):
            written = (target,) if totals is None else (target, totals)
            return Accesses(views_read=views_of(value), views_written=written)
        case Publish(target, source) | Await(target, source):
            return Accesses(views_read=(source,), views_written=(target,))
        case Locate(ranges):
            return Accesses(ranges_written=(ranges,))
        case When(not_finite=values, longer=ranges):
            views = () if values is None else (values,)
            return Accesses(views_read=views, ranges_asked=() if ranges is None else (ranges,))
        case Sync() | Loop():
            return Accesses()
