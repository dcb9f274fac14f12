"""Write a step program by calling one method a step.

Every algorithm is written once, for data in the left operand: ``D = A.B + C`` with A holding the
data. With ``side="b"`` the builder writes the transposed program, ``D' = B'.A' + C'``, in which
the data are the right operand: roles are swapped, views and constants are transposed. So inside
an algorithm `m` is always the number of data rows in a tile (the paper's 16 segments), whichever
operand holds them.

For a step in one of the paper's listings, the algorithm names its part (`line=`, such as "load");
the registry's row maps the part to the line.

The builder also keeps hardware details out of the algorithms: a tile that WMMA cannot load directly
(ragged, misaligned or of another type) is staged through shared memory, and barriers are inserted
between a warp's conflicting accesses to shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from tcusim.algorithms.hazards import StepList
from tcusim.errors import Given, Unsupported
from tcusim.machine.formats import format_of
from tcusim.machine.shapes import TILE_BYTES, MmaShape
from tcusim.program.checks.tiles import tile_is_aligned
from tcusim.program.grammar import (
    BLOCK,
    COL,
    ROW,
    WARP,
    Add,
    Assign,
    Await,
    Axis,
    Bound,
    Buffer,
    BufferRole,
    Const,
    Extent,
    Formula,
    Frag,
    Gathered,
    Index,
    Load,
    Locate,
    Loop,
    Mma,
    Operation,
    Pattern,
    PatternKind,
    Prefix,
    Program,
    Publish,
    Ranges,
    Role,
    Scalar,
    Scope,
    Segments,
    Space,
    Store,
    Strided,
    Sync,
    Value,
    View,
    When,
    part_of,
    split,
    sum_of,
    whole,
)

LENGTH = Index.symbol("length")
# The bound of a rectangle that is read as zeros.
NEVER = Bound(Index.of(1), Index.of(0))

# [CPG "Shared Memory"] There are 32 banks of 4 bytes: rows that are a multiple of 128 bytes apart
# begin in one bank, and lanes that take one column of them wait for each other. Eight rows of
# operands are read at a time, 16 bytes of each, so they are an odd number of 16 bytes apart.
OPERAND_SKEW = 16
# Bytes of shared memory up to which programs are simulated: far more than any GPU has.
MOST_SHARED = 1 << 24
# Accumulators, whose elements are wider, are stored and read in rows of 32 bytes and more.
SUM_SKEW = 32


class Level(StrEnum):
    """The executor of one work item of an algorithm: the paper's levels."""

    WARP = "warp"
    BLOCK = "block"
    GRID = "grid"


@dataclass(frozen=True, slots=True)
class Options:
    """The parameters common to all algorithms.

    ab, acc: types of the operands and of the accumulator; source, result: types of the arrays.
    side: the operand that holds the data. warps: warps per block. masked: whether any length is
    accepted, or only whole tiles (the paper's listings).
    items_per_warp: number of work items of a warp, done in sequence.
    combine: how partial sums are combined, by "mma" as in the paper, or by rounded "add"itions.
    accumulation_length: maximum number of mma steps that accumulate before a rounded addition; None
    is no limit. part: the part of each element to use; None is all of it. adds_rows: whether rows
    are summed in place, without products.
    """

    shape: MmaShape
    ab: str = "f16"
    acc: str = "f32"
    source: str = "f16"
    result: str = "f32"
    side: str = "a"
    warps: int = 1
    items_per_warp: int = 1
    masked: bool = False
    combine: str = "mma"
    accumulation_length: int | None = None
    part: Operation | None = None
    adds_rows: bool = False

    @property
    def parts(self) -> int:
        """Parts of type `ab` that hold one element of the source exactly: 3 bf16 for a f32.

        Rows that are added without products have no parts.
        """
        return 1 if self.adds_rows else parts_of(self.source, self.ab)

    @property
    def sums(self) -> str:
        """The type of sums of any number of rows; see `sums_of`."""
        return sums_of(self.acc, self.result)


def sums_of(acc: str, result: str) -> str:
    """Return the type of sums of any number of elements: that of accumulators, or s64.

    Sums of integers are s64, so that they are exact, unless the results are s32.
    """
    return "s64" if acc == "s32" != result else acc


def adds_rows(ab: str, acc: str) -> bool:
    """Return whether panels are added up without products, since no tensor core has such types.

    Those are float32, and float16 in float64, which holds its sums exactly.
    """
    return (ab, acc) in (("f32", "f32"), ("f16", "f64"))


def parts_of(source: str, ab: str) -> int:
    """Return the number of values of type `ab` that represent one source element exactly."""
    if source == stored_type(ab):
        return 1
    wide, narrow = format_of(source), format_of(ab)
    return -(-(wide.fraction_bits + 1) // (narrow.fraction_bits + 1))


def stored_type(dtype: str) -> str:
    """Return the type of an array in memory that a fragment of `dtype` is loaded from."""
    return "f32" if dtype == "tf32" else dtype


@dataclass(frozen=True, slots=True)
class Work:
    """The grid: its scalars, its blocks, down and across, and the columns of their warps.

    rows: of columns, for each of `blocks`.
    """

    scalars: tuple[Scalar, ...]
    blocks: Extent
    columns: int = 1
    warp_columns: int = 1
    rows: int = 1


@dataclass(frozen=True, slots=True)
class Spill:
    """An accumulator that was stored to shared memory: m rows of n, `ldm` elements apart."""

    buffer: Buffer
    offset: int
    ldm: int


class Builder:
    """Collects the steps of one program; see the module's text for its two conventions.

    Attributes
    ----------
    m, n, k : int
        The tile as the algorithm sees it: data tiles are (m, k), results (m, n).
    item : Index
        The number of a work item in the whole grid; its steps go inside `items`. An item is
        done by a warp, or by a block together if the algorithm is of that level.
    """

    def __init__(
        self, options: Options, lines: Mapping[str, str] | None = None, level: Level = Level.WARP
    ) -> None:
        self._lines = lines or {}
        shape = options.shape
        self.options = options
        self.transposed = options.side == "b"
        self.m = shape.n if self.transposed else shape.m
        self.n = shape.m if self.transposed else shape.n
        self.k = shape.k
        worker = BLOCK
        if level is Level.WARP and options.warps > 1:
            worker = BLOCK * options.warps + WARP
        turn = Index.symbol("u") if options.items_per_warp > 1 else Index()
        self.item = worker * options.items_per_warp + turn
        self._buffers: dict[tuple[BufferRole, str], Buffer] = {}
        self._steps = StepList()
        self._alone = False

    # --- Buffers and views -------------------------------------------------------------------

    def input(self, name: str, dtype: str, size: Extent) -> Buffer:
        """Declare an input array in global memory."""
        return self._declare(Buffer(name, dtype, size, BufferRole.INPUT))

    def output(self, name: str, dtype: str, size: Extent) -> Buffer:
        """Declare an output array in global memory."""
        return self._declare(Buffer(name, dtype, size, BufferRole.OUTPUT))

    def status(self, name: str, dtype: str, size: Extent) -> Buffer:
        """Declare status words, for passing values to later blocks."""
        return self._declare(Buffer(name, dtype, size, BufferRole.STATUS))

    def scratch(self, name: str, dtype: str, size: int) -> Buffer:
        """Declare a part of shared memory that belongs to one warp, always of one size.

        Each warp has its own copy; a buffer used only by the first warp is allocated once.
        """
        old = self._buffers.get((BufferRole.SCRATCH, name))
        once = self._alone and (old is None or old.space is Space.SHARED)
        return self._shared(name, dtype, size, Space.SHARED if once else Space.WARP)

    def shared(self, name: str, dtype: str, size: int) -> Buffer:
        """Declare shared memory that all warps of a block see; order its uses with `barrier`."""
        return self._shared(name, dtype, size, Space.SHARED)

    def _shared(self, name: str, dtype: str, size: int, space: Space) -> Buffer:
        total = size * format_of(dtype).itemsize
        require(
            total <= MOST_SHARED,
            f"{name!r} would take {total} bytes of shared memory; no GPU gives a block 256 KB, "
            f"and tcusim takes programs with at most {MOST_SHARED}. Choose shorter segments, or "
            "smaller numbers in the options of the algorithm, such as columns",
        )
        extent = Extent.of(padded(size, dtype))
        return self._declare(Buffer(name, dtype, extent, BufferRole.SCRATCH, space))

    def _declare(self, buffer: Buffer) -> Buffer:
        old = self._buffers.setdefault((buffer.role, buffer.name), buffer)
        if old != buffer:
            raise ValueError(f"{buffer.role} {old} is declared again, as {buffer}")
        return old

    def rect(
        self,
        buffer: Buffer,
        offset: Index | int,
        rows: int,
        cols: int,
        row_stride: int,
        col_stride: int = 1,
        bounds: Sequence[Bound] = (),
    ) -> View:
        """Return a rectangle, in the algorithm's rows and columns."""
        where, limits = Index.of(offset), tuple(bounds)
        return self._turned(View.strided(buffer, where, rows, cols, row_stride, col_stride, limits))

    def gathered(self, buffer: Buffer, offset: Index | int, ranges: Ranges, cols: int) -> View:
        """Return a rectangle of rows that lie in ranges, each from `offset` in its range on."""
        return self._turned(View(buffer, Index.of(offset), Gathered(ranges), Strided(cols, 1)))

    def cut(
        self,
        view: View,
        rows: int,
        cols: int,
        row: Index | int = 0,
        col: Index | int = 0,
        *,
        every: tuple[int, int] = (1, 1),
    ) -> View:
        """Return rows x cols of a rectangle from (row, col) on, in the algorithm's directions.

        every: the stride in rows and in columns of the rectangle; 1 in those of ranges.
        """
        view, down, across = self._turned(view), Index.of(row), Index.of(col)
        offset = view.offset + down * view.row_stride + across * view.col_stride
        axes = _first(view.row_axis, rows, every[0]), _first(view.col_axis, cols, every[1])
        places = {"row": ROW * every[0] + down, "col": COL * every[1] + across}
        bounds = _substituted(view.bounds, places)
        return self._turned(View(view.buffer, offset, *axes, bounds))

    def limited(self, view: View, rows: int) -> View:
        """Return a rectangle of which only the first rows are in bounds."""
        row = COL if self.transposed else ROW
        return replace(view, bounds=(*view.bounds, Bound(row, Index.of(rows))))

    def size(self, view: View) -> tuple[int, int]:
        """Return a rectangle's rows and columns in the algorithm's directions."""
        return (view.cols, view.rows) if self.transposed else (view.rows, view.cols)

    def _turned(self, view: View) -> View:
        """Return a view in the algorithm's directions from the program's, or the other way."""
        return transpose(view) if self.transposed else view

    # --- Fragments ---------------------------------------------------------------------------

    def left(self, name: str) -> Frag:
        """Name a fragment of (m, k) operand type: data."""
        role = Role.B if self.transposed else Role.A
        return Frag(name, role, self.options.shape, self.options.ab)

    def right(self, name: str) -> Frag:
        """Name a fragment of (k, n) operand type."""
        role = Role.A if self.transposed else Role.B
        return Frag(name, role, self.options.shape, self.options.ab)

    def accumulator(self, name: str) -> Frag:
        """Name an (m, n) accumulator."""
        return Frag(name, Role.ACC, self.options.shape, self.options.acc)

    # --- Steps -------------------------------------------------------------------------------

    def const(
        self,
        frag: Frag,
        kind: PatternKind,
        offset: Index | int = 0,
        line: str = "",
        *,
        size: int = 0,
    ) -> Frag:
        """Set a fragment to a constant matrix, given in the algorithm's rows and columns.

        size: of segments that share a row of the data, if there are several; see `Pattern`.
        """
        if self.transposed:
            kind = TRANSPOSED.get(kind, kind)
        self._steps.add(Const(frag, Pattern(kind, Index.of(offset), size), self._origin(line)))
        return frag

    def zero(self, frag: Frag, line: str = "") -> Frag:
        """Set a fragment to zeros."""
        return self.const(frag, PatternKind.ZEROS, 0, line)

    def mma(self, d: Frag, left: Frag, right: Frag, c: Frag, line: str = "") -> Frag:
        """D = left . right + C (transposed: D' = right' . left' + C')."""
        a, b = (right, left) if self.transposed else (left, right)
        self._steps.add(Mma(d, a, b, c, self._origin(line)))
        return d

    def add(self, d: Frag, a: Frag, b: Frag, line: str = "") -> Frag:
        """D = A + B, accumulators, each sum rounded."""
        self._steps.add(Add(d, a, b, self._origin(line)))
        return d

    def copy(self, dst: View, src: View, plus: View | None = None, line: str = "") -> None:
        """Copy a rectangle, plus another one if given, converting its type; see `Assign`."""
        value = self._data(src)
        self.assign(dst, value if plus is None else sum_of(value, plus), line)

    def assign(self, dst: View, value: Value, line: str = "") -> None:
        """Set a rectangle to a value; see `Assign`."""
        self._steps.add(Assign(dst, value, self._origin(line)))

    def clear(self, dst: View) -> None:
        """Set a rectangle to zeros: to its own elements, all of them out of bounds."""
        self.copy(dst, replace(dst, bounds=(NEVER,)))

    def _data(self, src: View) -> Value:
        """Return a rectangle, or the part to take of its elements if they are the data."""
        is_data = src.buffer.role is BufferRole.INPUT and src.buffer.dtype == self.options.source
        return part_of(self.options.part, src) if is_data and self.options.part else src

    def join(self, dst: View, one: View, two: View) -> None:
        """Add f64 rectangles, each sum rounded once, to the type of `dst`."""
        self.assign(dst, sum_of(one, two, to_odd=dst.buffer.dtype != "f64"))

    def copy_only(self, only: Operation, dst: View, src: View) -> None:
        """Copy the finite or the non-finite elements of a rectangle, with zeros elsewhere."""
        self.assign(dst, part_of(only, src))

    def prefix(
        self,
        dst: View,
        src: View,
        totals: View | None = None,
        *,
        reverse: bool = False,
        exclusive: bool = False,
        squares: bool = False,
    ) -> None:
        """Add up the rows of a rectangle; see `Prefix`. A `dst` of one column gets their sums."""
        to, value = self._turned(dst), self._data(self._turned(src))
        beside = None if totals is None else self._turned(totals)
        if squares:
            value = Formula(Operation.TIMES, (value, value), to.buffer.dtype)
        self._steps.add(Prefix(to, value, beside, reverse=reverse, exclusive=exclusive))

    def publish(self, dst: View, src: View, line: str = "") -> None:
        """Give values to later blocks; see `Publish`."""
        self._steps.add(Publish(dst, src, self._origin(line)))

    def await_status(self, dst: View, src: View, line: str = "") -> None:
        """Wait for values of earlier blocks; see `Await`."""
        self._steps.add(Await(dst, src, self._origin(line)))

    def locate(
        self, name: str, segments: Segments, first: Index, count: int, line: str = ""
    ) -> Ranges:
        """Find `count` chunks of ragged segments from number `first` on; see `Locate`."""
        ranges = Ranges(name, count)
        self._steps.add(Locate(ranges, segments, first, self._origin(line)))
        return ranges

    def copy_parts(self, dsts: Sequence[View], src: View, line: str = "") -> None:
        """Copy a rectangle to one of the operands' type, or split it into its exact parts."""
        if len(dsts) == 1:
            self.copy(dsts[0], src, line=line)
        else:
            held = src.buffer.dtype
            require(
                held in ("f32", "f64"),
                f"sums of {held} are not split into parts of {self.options.ab}: parts are made of "
                "f32 and f64; take ",
                Given("acc", "f32"),
            )
            self._steps.add(split(dsts, src, self._origin(line)))

    def load(
        self, frag: Frag, view: View, line: str = "", stage: str = "", only: Operation | None = None
    ) -> Frag:
        """Load a tile from wherever it lies; stage it where WMMA could not load it directly.

        stage: the name of the shared memory for that; fragments loaded in turn may share it. only:
        the elements to take.
        """
        direct = self.loads_directly(frag, view)

        def load(view: View) -> None:
            if view.bounds or not direct:
                staged = self.stage(frag, view, stage)
                self.copy(staged, view, line=line)
                view = staged
            self._load(frag, view, only, line)

        self.as_whole(view, load, line, split=direct)
        return frag

    def _load(self, frag: Frag, tile: View, only: Operation | None, line: str) -> None:
        value = tile if only is None else part_of(only, tile)
        self._steps.add(Load(frag, value, self._origin(line)))

    def loads_directly(self, frag: Frag, view: View) -> bool:
        """Return whether WMMA could load the tile where it lies, if all of it is in bounds."""
        return view.buffer.dtype == stored_type(frag.dtype) and self._loadable(view)

    def load_parts(
        self,
        name: str,
        view: View,
        line: str = "",
        *,
        right: bool = False,
        stage: str = "",
        only: Operation | None = None,
    ) -> list[Frag]:
        """Load a data tile as left operands: one, or the exact narrow parts of a wide type.

        right: as right operands instead. stage: as in `load`. only: the elements of the operands to
        take.
        """
        operand = self.right if right else self.left
        frags = [operand(part) for part in numbered(name, self.options.parts)]
        if len(frags) == 1:
            return [self.load(frags[0], view, line, stage, only)]
        staged = [
            self.stage(frag, view, stage and f"{stage}{part}") for part, frag in enumerate(frags)
        ]
        self.copy_parts(staged, view, line)
        for frag, tile in zip(frags, staged, strict=True):
            self._load(frag, tile, only, line)
        return frags

    def room(self, name: str, view: View, *, dense: bool = False) -> View:
        """Return shared memory for the operands that a rectangle makes.

        dense: without gaps between rows, which put rows that are read together in different banks.
        """
        options = self.options
        dtype = options.source if options.adds_rows else stored_type(options.ab)
        rows, cols = self.size(view)
        ldm = cols if dense else skewed(cols, dtype, OPERAND_SKEW)
        return self.rect(self.scratch(name, dtype, rows * ldm), 0, rows, cols, ldm)

    def spill(
        self, frag: Frag, name: str | None = None, index: int = 0, count: int = 1, line: str = ""
    ) -> Spill:
        """Store an accumulator to shared memory, as tile `index` of `count`."""
        ldm = padded(self.n, frag.dtype)
        tile = padded(self.m * ldm, frag.dtype)
        buffer = self.scratch(name or f"s_{frag.name}", frag.dtype, count * tile)
        spill = Spill(buffer, index * tile, ldm)
        self._steps.add(Store(self.part(spill, self.m, self.n), frag, self._origin(line)))
        return spill

    def spill_all(self, frags: Sequence[Frag], line: str = "", stage: str = "") -> list[Spill]:
        """Store accumulators that lie side by side to shared memory."""
        name = stage or f"s_{frags[0].name}"
        return [self.spill(frag, name, i, len(frags), line) for i, frag in enumerate(frags)]

    def store_column(self, frag: Frag, column: View) -> None:
        """Store an accumulator of equal columns as one column of m values.

        Where WMMA can, it writes them all to one place: that takes no more memory than the values.
        """
        every = self.rect(column.buffer, self._turned(column).offset, self.m, self.n, 1, 0)
        if self._storable(frag, every):
            self._steps.add(Store(every, frag))
        else:
            self.copy(column, self.part(self.spill(frag), self.m, 1))

    def part(
        self,
        spill: Spill,
        rows: int,
        cols: int,
        row: int = 0,
        col: int = 0,
        *,
        repeat: Literal["", "col", "both"] = "",
        bounds: Sequence[Bound] = (),
    ) -> View:
        """Return rows x cols of a spilled accumulator from (row, col) on, or one repeated."""
        return self.rect(
            spill.buffer,
            spill.offset + row * spill.ldm + col,
            rows,
            cols,
            0 if repeat == "both" else spill.ldm,
            0 if repeat else 1,
            bounds,
        )

    def broadcast(
        self, frag: Frag, view: View, plus: View | None = None, *, line: str = "", stage: str = ""
    ) -> Frag:
        """Load an accumulator with views that repeat rows or columns (through shared memory)."""
        tile = self.stage(frag, self.rect(view.buffer, 0, self.m, self.n, self.n), stage)
        self.copy(tile, view, plus, line)
        self._steps.add(Load(frag, tile))
        return frag

    def store(
        self, frags: Sequence[Frag], view: View, line: str = "", first: int = 0, stage: str = ""
    ) -> None:
        """Store accumulators that lie side by side, as one (m, cols) rectangle of memory.

        first: the column, of a single accumulator, from which on it is stored. stage: the name of
        the shared memory for tiles that WMMA cannot store where they belong.
        """
        if first:
            self.write(self.spill_all(frags), view, line=line, first=first)
            return
        direct = all(self._storable(f, self._block(view, i)) for i, f in enumerate(frags))

        def store(view: View) -> None:
            if view.bounds or not direct:
                self.write(self.spill_all(frags, stage=stage), view, line=line)
                return
            for number, frag in enumerate(frags):
                self._steps.add(Store(self._block(view, number), frag, self._origin(line)))

        self.as_whole(view, store, line, split=direct)

    def write(
        self,
        spills: Sequence[Spill],
        view: View,
        plus: View | None = None,
        line: str = "",
        first: int = 0,
    ) -> None:
        """Copy spilled accumulators to one (m, cols) rectangle of memory; add `plus` if given.

        plus: a rectangle of that size, of the accumulators' type. first: as in `store`.
        """
        for number, spill in enumerate(spills):
            block = self._block(view, number)
            source = self.part(spill, *self.size(block), 0, first)
            self.copy(block, source, plus and self._block(plus, number), line)

    # --- Control -----------------------------------------------------------------------------

    def settle(self) -> None:
        """Synchronise the warp, so that it may overwrite its shared memory."""
        self._steps.settle()

    def barrier(self, line: str = "") -> None:
        """Let all warps of the block wait, so that they see each other's writes to `shared`.

        The builder puts barriers of a warp by itself, but not these: which warps meet, and where,
        is the algorithm's business, and `verify` says where one is missing.
        """
        self._steps.sync(Sync(Scope.BLOCK, self._origin(line)))

    @contextmanager
    def loop(self, var: str, count: Extent | Index | int, line: str = "") -> Iterator[Index]:
        """Repeat the steps added inside; gives the loop variable. A single pass is not a loop."""
        extent = Extent.of(count)
        if extent.constant == 1:
            yield Index.of(0)
            return
        outer, body = self._steps, StepList()
        outer.settle()
        with self._adding_to(body):
            yield Index.symbol(var)
        body.close()
        outer.follow(body)
        outer.steps.append(Loop(var, extent, tuple(body.steps), self._origin(line)))

    def items(self) -> AbstractContextManager[Index]:
        """Repeat for each work item of the warp; `item` is its number."""
        return self.loop("u", self.options.items_per_warp)

    @contextmanager
    def when(
        self,
        bounds: Sequence[Bound],
        line: str = "",
        *,
        not_finite: View | None = None,
        longer: Ranges | None = None,
    ) -> Iterator[Callable[[], AbstractContextManager[None]]]:
        """Run the steps inside in warps with all bounds true; `with otherwise():` in the rest.

        not_finite: values of shared memory; one must also be an infinity or NaN. longer: ranges;
        one must also have more than one element.
        """
        outer = self._steps
        if not_finite is not None:
            outer.look(not_finite)
        body, rest = StepList(outer), StepList(outer)
        with self._adding_to(body):
            yield lambda: self._adding_to(rest)
        outer.join(body, rest)
        branches = tuple(body.steps), tuple(rest.steps)
        outer.steps.append(When(tuple(bounds), *branches, self._origin(line), not_finite, longer))

    @contextmanager
    def _adding_to(self, steps: StepList) -> Iterator[None]:
        outer, self._steps = self._steps, steps
        yield
        self._steps = outer

    def as_whole(
        self, view: View, body: Callable[[View], None], line: str = "", *, split: bool = True
    ) -> None:
        """Do `body` with a view: without its bounds in the warps where all of it is inside.

        split: if not, as it is in every warp.
        """
        if not view.bounds or not split:
            body(view)
            return
        with self.when(whole(view), line) as otherwise:
            body(replace(view, bounds=()))
            with otherwise():
                body(view)

    def first_warp(self, line: str = "") -> AbstractContextManager[None]:
        """Run the steps inside only in the first warp of a block."""
        return self.one_warp(0, line)

    @contextmanager
    def one_warp(self, number: int, line: str = "") -> Iterator[None]:
        """Run the steps inside only in one warp of a block; the last one, if there are fewer."""
        number = min(number, self.options.warps - 1)
        bounds = [Bound(WARP, Index.of(number + 1))]
        if number:
            bounds.append(Bound(Index.of(number - 1), WARP))
        with self.when(bounds, line):
            self._alone = True
            yield
            self._alone = False

    def program(self, name: str, source: str, work: Work) -> Program:
        """Return the finished program."""
        options = self.options
        return Program(
            name=name,
            shape=options.shape,
            ab=options.ab,
            acc=options.acc,
            scalars=work.scalars,
            buffers=tuple(
                buffer
                for role in BufferRole
                for buffer in self._buffers.values()
                if buffer.role is role
            ),
            blocks=work.blocks,
            warps=options.warps,
            steps=tuple(self._steps.steps),
            source=source,
            columns=work.columns,
            warp_columns=work.warp_columns,
            rows=work.rows,
        )

    # --- Behind the scenes -------------------------------------------------------------------

    def _origin(self, part: str) -> str:
        """Return the line of the paper's listing for this part of the algorithm."""
        return self._lines.get(part, "")

    def _loadable(self, view: View) -> bool:
        """Whether WMMA could load the tile where it lies, when all of it is in bounds."""
        if view.layout is None or any(never(bound) for bound in whole(view)):
            return False
        options = self.options
        return tile_is_aligned(view, options.shape, options.ab, options.acc)

    def _storable(self, frag: Frag, view: View) -> bool:
        whole_tile = (view.rows, view.cols) == (frag.rows, frag.cols)
        return whole_tile and view.buffer.dtype == frag.dtype and self._loadable(view)

    def stage(self, frag: Frag, view: View, name: str = "") -> View:
        """Return a padded tile of shared memory for `frag`, laid out as `view` is."""
        dtype = stored_type(frag.dtype)
        if view.layout == "col_major" or isinstance(view.col_axis, Gathered):
            ldm = padded(view.rows, dtype)
            size, strides = view.cols * ldm, (1, ldm)
        else:
            ldm = padded(view.cols, dtype)
            size, strides = view.rows * ldm, (ldm, 1)
        buffer = self.scratch(name or f"t_{frag.name}", dtype, size)
        return View.strided(buffer, Index(), view.rows, view.cols, *strides)

    def _block(self, view: View, number: int) -> View:
        """Return columns number*n .. of an (m, cols) rectangle (rows of it, if transposed)."""
        rows, cols = self.size(view)
        start = number * self.n
        return self.cut(view, rows, min(self.n, cols - start), 0, start)


TRANSPOSED = {
    PatternKind.ROW: PatternKind.COL,
    PatternKind.COL: PatternKind.ROW,
    PatternKind.UPPER: PatternKind.LOWER,
    PatternKind.LOWER: PatternKind.UPPER,
}


def transpose(view: View) -> View:
    """Return the same elements with rows and columns exchanged."""
    bounds = _substituted(view.bounds, {"row": COL, "col": ROW})
    return replace(view, row_axis=view.col_axis, col_axis=view.row_axis, bounds=bounds)


def _substituted(bounds: Sequence[Bound], values: Mapping[str, Index]) -> tuple[Bound, ...]:
    return tuple(Bound(b.lhs.substitute(values), b.rhs.substitute(values)) for b in bounds)


def _first(axis: Axis, count: int, every: int) -> Axis:
    """Return `count` rows or columns of an axis, at `every` times their distance."""
    if isinstance(axis, Gathered):
        return Gathered(replace(axis.ranges, count=count))
    return Strided(count, axis.stride * every)


def never(bound: Bound) -> bool:
    """Return whether the bound fails for all values of the symbols: none is negative."""
    excess = bound.lhs - bound.rhs
    return excess.const >= 0 and all(factor >= 0 for _, factor in excess.terms)


def below(place: Index, first: int, count: int, end: int) -> list[Bound]:
    """Return the bound that keeps `count` places from `first` on below `end`, if not all are."""
    return [Bound(place + first, Index.of(end))] if first + count > end else []


def padded(count: int, dtype: str) -> int:
    """Round a number of elements up to a multiple of 32 bytes, which WMMA's pointers need."""
    step = max(1, TILE_BYTES // format_of(dtype).itemsize)
    return -(-count // step) * step


def skewed(cols: int, dtype: str, skew: int) -> int:
    """Return the stride of rows of `cols` elements in shared memory, padded by `skew` bytes."""
    return padded(cols, dtype) + skew // format_of(dtype).itemsize


def numbered(name: str, count: int, apart: str = "") -> list[str]:
    """Return the name of a thing or, if it is cut into several, one for each."""
    return [f"{name}{apart}{number}" for number in range(count)] if count > 1 else [name]


def require(condition: bool, *message: str | Given) -> None:
    """Raise `Unsupported` unless the condition holds; message: its pieces."""
    if not condition:
        raise Unsupported(*message)


def require_float_operands(b: Builder) -> None:
    """Refuse partial sums as integer operands, where they would wrap around."""
    ab = b.options.ab
    require(
        format_of(ab).is_float,
        f"partial sums do not fit operands of type {ab}; build with ",
        Given("combine", "add"),
    )
