"""The grammar of step programs, on one page.

A step program is a small typed list of tile steps that every warp of a grid runs. It is data:
frozen, hashable and printable. The interpreter, the listing, the checks, the cost model and the
emitters each match the same closed union `Step`, case by case, in the order of this file.

::

    Program = name, shape, ab, acc, scalars, inputs, outputs, scratch, mail, blocks, columns,
              group, warps, Step*
    Step    = Const(dst, pattern)          fragment <- constant matrix
            | Load(dst, src)               fragment <- tile of memory
            | Mma(d, a, b, c)              D = A.B + C
            | Add(d, a, b)                 accumulator <- accumulator + accumulator, rounded
            | Store(dst, src)              tile of memory <- fragment
            | Copy(dst, src, plus)         rectangle of memory <- rectangle (+ rectangle)
            | Split(dsts, src)             rectangles <- exact narrow parts of one rectangle
            | Publish(dst, src)            mail of the grid <- rectangle, for later blocks
            | Await(dst, src)              rectangle <- mail of the grid, once it is there
            | Locate(dst, offsets, first)  lines <- where pieces of irregular segments lie
            | Sync(level)                  barrier of a warp or of a block
            | Loop(var, count, Step*)      for var in range(count)
            | When(bounds, Step*, Step*)   if every bound holds for this warp, else
    View    = rows x cols elements of a Buffer, offset and strides in elements, Bound*, Lines?
    Bound   = Index < Index                an element where it fails is read as 0, never written
    Index   = sum of integer * symbol + integer; symbols: block, block_col, warp, row, col, loops,
              scalars

A fragment is opaque, as in CUDA: no step can name the lane or the register of an element.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias, TypeVar

from tcusim.machine.shapes import MmaShape

__all__ = [
    "BLOCK",
    "BLOCK_COL",
    "COL",
    "ROW",
    "WARP",
    "Add",
    "Await",
    "Bound",
    "Buffer",
    "Const",
    "Copy",
    "Extent",
    "Frag",
    "Index",
    "Level",
    "Lines",
    "Load",
    "Locate",
    "Loop",
    "Mma",
    "Pattern",
    "PatternKind",
    "Program",
    "Publish",
    "Role",
    "Scalar",
    "Split",
    "Step",
    "Store",
    "Sync",
    "View",
    "When",
    "accesses",
    "walk",
    "whole",
]

Number = TypeVar("Number")


# --- Numbers that are known when a warp runs --------------------------------------------------


@dataclass(frozen=True, slots=True)
class Index:
    """An affine expression: the sum of `coefficient * symbol` terms and a constant.

    One object evaluates to NumPy index arrays and prints as C, so that the simulator and the
    emitted kernel cannot disagree on an address. Build it with `+`, `-` and `*` from the symbols.
    """

    terms: tuple[tuple[str, int], ...] = ()
    const: int = 0

    @staticmethod
    def symbol(name: str) -> Index:
        """Return the expression that is just `name`."""
        return Index(((name, 1),))

    @staticmethod
    def of(value: Index | int) -> Index:
        """Return `value` as an expression."""
        return value if isinstance(value, Index) else Index((), int(value))

    @property
    def symbols(self) -> frozenset[str]:
        """Names that the expression depends on."""
        return frozenset(name for name, _ in self.terms)

    def coefficient(self, name: str) -> int:
        """Return the factor of the symbol `name`; 0 if it does not occur."""
        return dict(self.terms).get(name, 0)

    def substitute(self, values: Mapping[str, Index | int]) -> Index:
        """Replace symbols by expressions; symbols that `values` lacks stay."""
        result = Index((), self.const)
        for name, factor in self.terms:
            result = result + Index.of(values.get(name, Index.symbol(name))) * factor
        return result

    def evaluate(self, env: Mapping[str, Number]) -> Number | int:
        """Return the value, where `env` gives each symbol an integer or an integer array."""
        total: Number | int = self.const
        for name, factor in self.terms:
            total = total + env[name] * factor  # type: ignore[operator]
        return total

    def __add__(self, other: Index | int) -> Index:
        """Return the sum, with like terms collected."""
        other = Index.of(other)
        factors = dict(self.terms)
        for name, factor in other.terms:
            factors[name] = factors.get(name, 0) + factor
        terms = tuple(sorted((name, factor) for name, factor in factors.items() if factor))
        return Index(terms, self.const + other.const)

    __radd__ = __add__

    def __neg__(self) -> Index:
        """Return the expression times -1."""
        return self * -1

    def __sub__(self, other: Index | int) -> Index:
        """Return the difference."""
        return self + Index.of(other) * -1

    def __rsub__(self, other: int) -> Index:
        """Return `other` minus the expression."""
        return Index.of(other) - self

    def __mul__(self, factor: int) -> Index:
        """Return the expression scaled by an integer."""
        terms = tuple((name, value * factor) for name, value in self.terms if factor)
        return Index(terms, self.const * factor)

    __rmul__ = __mul__

    def __str__(self) -> str:
        """Print as C (and Python): `256*block + i + 3`."""
        parts = [name if factor == 1 else f"{factor}*{name}" for name, factor in self.terms]
        if self.const or not parts:
            parts.append(str(self.const))
        return " + ".join(parts).replace("+ -", "- ")


BLOCK = Index.symbol("block")
BLOCK_COL = Index.symbol("block_col")
WARP = Index.symbol("warp")
ROW = Index.symbol("row")
COL = Index.symbol("col")


@dataclass(frozen=True, slots=True)
class Extent:
    """A number of elements, blocks or iterations: `ceil(index / per)`, `index` over scalars."""

    index: Index
    per: int = 1

    @staticmethod
    def of(value: Extent | Index | int) -> Extent:
        """Return `value` as an extent."""
        return value if isinstance(value, Extent) else Extent(Index.of(value))

    @property
    def constant(self) -> int | None:
        """The value if it depends on no scalar, else None."""
        return None if self.index.terms else -(-self.index.const // self.per)

    def evaluate(self, scalars: Mapping[str, int]) -> int:
        """Return the value for these scalars."""
        return -(-int(self.index.evaluate(scalars)) // self.per)

    def __str__(self) -> str:
        """Print as `ceil(length / 256)`."""
        if self.constant is not None:
            return str(self.constant)
        if self.per == 1:
            return str(self.index)
        text = str(self.index)
        return f"ceil({f'({text})' if ' ' in text else text} / {self.per})"


@dataclass(frozen=True, slots=True)
class Bound:
    """The condition `lhs < rhs`. In a view it may name `row` and `col` of the rectangle."""

    lhs: Index
    rhs: Index

    def __str__(self) -> str:
        """Print as `lhs < rhs`."""
        return f"{self.lhs} < {self.rhs}"


@dataclass(frozen=True, slots=True)
class Scalar:
    """An integer argument of a program, found from the inputs' sizes.

    `multiple_of`: the program is right only for multiples of it; a program for any size has 1.
    """

    name: str
    multiple_of: int = 1


# --- Places that hold values ------------------------------------------------------------------


class Level(StrEnum):
    """The paper's levels; of a buffer, whose memory it is; of a barrier, who waits."""

    WARP = "warp"
    BLOCK = "block"
    GRID = "grid"


class Role(StrEnum):
    """What a fragment is to an mma, in CUDA's spelling."""

    A = "matrix_a"
    B = "matrix_b"
    ACC = "accumulator"


@dataclass(frozen=True, slots=True)
class Buffer:
    """An array in memory, `size` elements of type `dtype`.

    level GRID is global memory (inputs, outputs and mail); BLOCK is shared memory that the block's
    warps see; WARP is a part of shared memory that belongs to one warp alone (each has its own).
    """

    name: str
    dtype: str
    size: Extent
    level: Level = Level.GRID


@dataclass(frozen=True, slots=True)
class Lines:
    """Where each of `count` rows (or columns) of a tile begins and ends in memory.

    A warp holds it as it holds a fragment: `Locate` sets it, views use it.
    """

    name: str
    count: int


@dataclass(frozen=True, slots=True)
class View:
    """A `rows` x `cols` rectangle of a buffer; element (r, c) is at offset + r*stride + c*stride.

    Offsets and strides are in elements. A stride of 0 repeats a row or a column (a broadcast). An
    element at which a bound fails is read as 0 and is never written.

    lines: rows that lie anywhere. Row r then begins lines.begin[r] later, and an element at or
    beyond lines.end[r] is out of bounds. The rows' stride is 0; if instead the columns' is, it is
    the columns that are lines.
    """

    buffer: Buffer
    offset: Index
    rows: int
    cols: int
    row_stride: int
    col_stride: int
    bounds: tuple[Bound, ...] = ()
    lines: Lines | None = None

    @property
    def layout(self) -> str | None:
        """`row_major` or `col_major` as WMMA means them, None if neither stride is 1.

        A single row whose strides are both 1, as in a tile with k = 1, is column-major: its leading
        dimension of 1 is too small for the elements of a row, and right for those of a column.
        """
        if self.lines is not None:
            return None
        one_row = self.rows == 1 < self.cols and self.row_stride == 1
        if self.col_stride == 1 and not one_row:
            return "row_major"
        return "col_major" if self.row_stride == 1 else None

    @property
    def ldm(self) -> int:
        """Leading dimension in elements: the stride between rows (columns if col_major)."""
        return self.row_stride if self.layout == "row_major" else self.col_stride

    @property
    def address(self) -> Index:
        """The element's place as an expression in `row` and `col`."""
        return self.offset + ROW * self.row_stride + COL * self.col_stride


@dataclass(frozen=True, slots=True)
class Frag:
    """A tile held by a warp in its registers; which lane holds what is not part of the grammar."""

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
    """A 0/1 matrix: a kind and its offset, which may depend on loop variables."""

    kind: PatternKind
    offset: Index = field(default_factory=Index)

    @property
    def uniform(self) -> bool:
        """Whether all elements are equal, so that `fill_fragment` can make it."""
        return self.kind in (PatternKind.ZEROS, PatternKind.ONES)


def whole(view: View) -> tuple[Bound, ...]:
    """Return conditions of the warp alone under which every element of the view is in bounds."""
    return tuple(_at_worst_corner(bound, view) for bound in view.bounds)


def _at_worst_corner(bound: Bound, view: View) -> Bound:
    """Return the bound at the corner of the rectangle where it is hardest to meet."""
    excess = bound.lhs - bound.rhs
    corner = {
        "row": view.rows - 1 if excess.coefficient("row") > 0 else 0,
        "col": view.cols - 1 if excess.coefficient("col") > 0 else 0,
    }
    return Bound(bound.lhs.substitute(corner), bound.rhs.substitute(corner))


# --- Steps ------------------------------------------------------------------------------------
# `origin` says which line of which listing of the paper a step is, where it is one.


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

    WMMA: `load_matrix_sync(dst, src, ldm, layout)`. The view has no bounds and one unit stride.
    Cost: rows*cols elements read; from global memory in 32-byte sectors.
    """

    dst: Frag
    src: View
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Mma:
    """D = A.B + C, in the arithmetic of the architecture that the program runs on.

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

    WMMA: a loop over `x[i]`, which CUDA allows because it treats all elements alike.
    Cost: m*n additions on the ordinary units.
    """

    d: Frag
    a: Frag
    b: Frag
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Store:
    """Store an accumulator to memory. The element types must be equal.

    WMMA: `store_matrix_sync(dst, src, ldm, layout)`. The view has no bounds and one unit stride.
    Cost: rows*cols elements written.
    """

    dst: View
    src: Frag
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy a rectangle, lane by lane: dst <- src, or dst <- src + plus.

    The sum is rounded once (nearest even) in the type of `src`, then converted once (nearest
    even) to the type of `dst`. Source elements out of bounds count as 0; destination elements out
    of bounds are not written. This is how tiles are padded, masked, converted and broadcast.
    CUDA: the warp's lanes share out the rectangle, in chunks of up to 16 bytes; `cp.async` where an
    Mma comes before the next Sync. Cost: reads and writes of rows*cols.
    """

    dst: View
    src: View
    plus: View | None = None
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Split:
    """Split a wide rectangle exactly into narrow parts, largest first.

    dsts[0] <- x0 = round(x), dsts[1] <- round(x - x0), ... in the type of `dsts`, nearest even.
    Three bf16 parts hold every float32 whose last bit bf16 can represent.
    CUDA: as of a Copy, in chunks. Cost: one read and len(dsts) writes of rows*cols.
    """

    dsts: tuple[View, ...]
    src: View
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Publish:
    """Write a rectangle to mail of the grid, where later blocks of the same launch await it.

    Each element of mail is published once in a launch. The element types are equal.
    CUDA: one 64-bit store a value (two for f64), which carries its own flag, so no fence is needed.
    Cost: reads of rows*cols, and twice as many bytes written to the second-level cache.
    """

    dst: View
    src: View
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Await:
    """Read mail of the grid, after waiting until every element in bounds has been published.

    A block waits for blocks of lower number alone, which have started before it: they cannot wait
    for it in turn. The element types are equal; elements out of bounds are 0.
    CUDA: each lane polls the elements it copies. Cost: the time that the blocks before still need.
    """

    dst: View
    src: View
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Locate:
    """Find where pieces of irregular segments lie: line r of `dst` is piece number first + r.

    offsets: a s64 buffer of segments + 1 ascending positions; segment i of the data is the elements
    from offsets[i] up to offsets[i+1]. cut: the most elements of a piece; None takes whole
    segments, so that line r is segment first + r.

    Segment i's pieces are numbered from offsets[i] // cut + i on, a number that needs no other
    segment's length: every piece has one, and a number that is no piece's gives an empty line.
    levels: cuts that were made before, outermost first. The data are then the pieces' results by
    number, and segment i those from q(i) up to q(i+1), where q = offsets[i], and q <- q // cut + i
    for each cut.
    limit: the elements of the data: no line reaches beyond them, nor before the first, whatever the
    offsets are. None trusts the offsets.
    CUDA: a binary search in each lane. Cost: about log2(segments) reads a line.
    """

    dst: Lines
    offsets: Buffer
    first: Index
    cut: int | None = None
    levels: tuple[int, ...] = ()
    limit: Index | None = None
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Sync:
    """Wait, so that writes to shared memory before it are seen by reads after it.

    CUDA: `__syncwarp()` (level WARP) or `__syncthreads()` (level BLOCK).
    """

    level: Level
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
    """Run `body` in the warps in which all bounds hold, `otherwise` in the others.

    The condition is the same for all lanes of a warp: it names neither `row` nor `col`.
    CUDA: `if`, `else`. Cost: that of the branch taken.
    """

    bounds: tuple[Bound, ...]
    body: tuple[Step, ...]
    otherwise: tuple[Step, ...] = ()
    origin: str = ""


Step: TypeAlias = (
    Const | Load | Mma | Add | Store | Copy | Split | Publish | Await | Locate | Sync | Loop | When
)


@dataclass(frozen=True, slots=True)
class Program:
    """One launch: `steps` are run by each of `warps` warps of each block of a grid.

    blocks, columns: the grid is `blocks` high and `columns` wide; a block is at (block, block_col).
    inputs, outputs: buffers of level GRID; scratch: buffers of level BLOCK or WARP.
    mail: buffers of level GRID through which blocks of one launch give values to later ones. With
    mail, blocks are numbered in the order in which they start, and `group` of them, from a multiple
    of it on, publish before they wait for each other: the simulator runs these together.
    ab, acc: element types of the operands and of the accumulators.
    algorithm, source: the registry name, and the section of the paper it comes from.
    """

    name: str
    shape: MmaShape
    ab: str
    acc: str
    scalars: tuple[Scalar, ...]
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    scratch: tuple[Buffer, ...]
    blocks: Extent
    warps: int
    steps: tuple[Step, ...]
    source: str = ""
    columns: int = 1
    mail: tuple[Buffer, ...] = ()
    group: int = 1

    @property
    def buffers(self) -> dict[str, Buffer]:
        """All buffers by name."""
        every = (*self.inputs, *self.outputs, *self.scratch, *self.mail)
        return {buffer.name: buffer for buffer in every}

    def grid(self, scalars: Mapping[str, int]) -> int:
        """Return the number of blocks of the launch, in all columns."""
        return self.blocks.evaluate(scalars) * self.columns


# --- Ways through a program -------------------------------------------------------------------


def walk(steps: tuple[Step, ...], prefix: str = "") -> Iterator[tuple[str, Step]]:
    """Yield every step with its path, such as "7.2": parents before children, in text order.

    The steps of an `otherwise` branch are numbered on from those of the `body`.
    """
    for number, step in enumerate(steps, start=1):
        path = f"{prefix}{number}"
        yield path, step
        if isinstance(step, Loop):
            yield from walk(step.body, f"{path}.")
        elif isinstance(step, When):
            yield from walk(step.body + step.otherwise, f"{path}.")


@dataclass(frozen=True, slots=True)
class Accesses:
    """What one step reads and writes: fragments, lines, and rectangles of memory."""

    frags_read: tuple[Frag, ...] = ()
    frags_written: tuple[Frag, ...] = ()
    views_read: tuple[View, ...] = ()
    views_written: tuple[View, ...] = ()
    lines_written: tuple[Lines, ...] = ()

    @property
    def lines_read(self) -> tuple[Lines, ...]:
        """Lines that the views name."""
        views = (*self.views_read, *self.views_written)
        return tuple(view.lines for view in views if view.lines is not None)


def accesses(step: Step) -> Accesses:
    """Return what `step` itself touches (nothing for Sync, Loop and When)."""
    match step:
        case Const(dst):
            return Accesses(frags_written=(dst,))
        case Load(dst, src):
            return Accesses(frags_written=(dst,), views_read=(src,))
        case Mma(d, a, b, c):
            return Accesses(frags_read=(a, b, c), frags_written=(d,))
        case Add(d, a, b):
            return Accesses(frags_read=(a, b), frags_written=(d,))
        case Store(target, frag):
            return Accesses(frags_read=(frag,), views_written=(target,))
        case Copy(target, source, plus):
            sources = (source,) if plus is None else (source, plus)
            return Accesses(views_read=sources, views_written=(target,))
        case Split(targets, source):
            return Accesses(views_read=(source,), views_written=targets)
        case Publish(target, source) | Await(target, source):
            return Accesses(views_read=(source,), views_written=(target,))
        case Locate(lines):
            return Accesses(lines_written=(lines,))
        case Sync() | Loop() | When():
            return Accesses()
