"""The work of a warp's lanes on the rectangles of a step: vectors, unrolling, tests of bounds.

A vector is as many neighbouring elements as one instruction moves. Its size is decided here, for
all the rectangles of a step; where the address of an array is known only at run time, the
templates of `tcusim.cuh` test its alignment. Backends emit these decisions, and `tcusim.judge.cost`
predicts their cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from tcusim.machine import format_of
from tcusim.machine.multiprocessors import LANES as LANES
from tcusim.program.grammar import (
    COL,
    PARTS,
    ROW,
    Assign,
    Bound,
    Buffer,
    BufferRole,
    Extent,
    Formula,
    Index,
    Locate,
    Loop,
    Operation,
    Prefix,
    Program,
    Ranges,
    Space,
    Value,
    View,
    views_of,
    walk,
    whole,
)
from tcusim.program.walk import WARP_PLACES

# The widest access of a lane. A vector is that many bytes of the widest type of its step, not of
# the narrowest: the lanes of a warp then read and write without gaps, each bank of shared memory
# once.
VECTOR_BYTES = 16
# Bytes of a rectangle in a lane's registers, so that its loads are in flight together: 32 of the
# 128 registers of a thread with 16 warps per multiprocessor.
HELD_BYTES = 128
MOST_HELD = 16
# Loops of up to this many iterations are unrolled, so that their loads are in flight together.
UNROLL = 16
# Vectors of one element of a lane from which on one test for all of them is worth two loops.
GUARDED = 4
# Elements of rows that a lane holds at a time, so that its loads are in flight together.
ROWS_HELD = 32
# Elements of a row that a lane holds, if there are so many: its own additions take no shuffle.
NEIGHBOURS = 4
# The widest narrow rows; their elements are all in registers.
WIDEST_NARROW = 32
# Elements of two bytes of narrow rows that a lane writes at once, at least.
LEAST_SPREAD = 4
# Bytes of a word of shared memory.
WORD_BYTES = 4
# Bytes of a status word.
STATUS_BYTES = 8
# The least that tcu::Piece reads.
LEAST_GATHERED = 4
# Elements of a rectangle from which on vectors that begin at single ones are put together of
# aligned ones: on an H200 rows of 999 then took two thirds of the time, and of 333 a quarter more.
LEAST_SHIFTED = 768


class Where(StrEnum):
    """The known alignment of a rectangle's vectors, in the terms of tcusim.cuh."""

    ALIGNED = "Aligned"  # at multiples of one access
    ANYWHERE = "Anywhere"  # it depends on the user's arrays
    REPEATED = "Repeated"  # all elements of a vector are one element of memory
    GATHERED = "Gathered"  # where a range begins, each row's elsewhere
    SHIFTED = "Shifted"  # at single elements: read from the aligned vectors around them


@dataclass(frozen=True, slots=True)
class Alignment:
    """The condition that a place in a buffer is at a multiple of some bytes."""

    buffer: Buffer
    offset: Index
    nbytes: int

    @staticmethod
    def of(view: View, nbytes: int) -> Alignment:
        """Return the condition that a rectangle begins so, less terms that are always multiples."""
        itemsize, offset = format_of(view.buffer.dtype).itemsize, view.offset
        terms = tuple(term for term in offset.terms if term[1] * itemsize % nbytes)
        return Alignment(
            view.buffer, Index(terms, offset.const % max(1, nbytes // itemsize)), nbytes
        )


@dataclass(frozen=True, slots=True)
class Transfer:
    """How lanes go over the rectangles of one step, each of `rows` by `cols` elements.

    vector: elements that a lane moves at once. down: whether they are neighbours in a column; else
    in a row. held: vectors that a lane has in registers at a time. where: for each rectangle, those
    written first. guard: the conditions that the warp tests: if all hold, every vector is in bounds
    and aligned, and needs no further test; of ranges, that all are well inside their array. A few
    vectors of one element are tested singly.
    """

    rows: int
    cols: int
    vector: int
    down: bool
    held: int = 1
    where: tuple[Where, ...] = ()
    guard: tuple[Bound | Alignment | Ranges, ...] = ()

    @property
    def vectors(self) -> int:
        """Vectors of the rectangle."""
        return self.rows * self.cols // self.vector

    @property
    def iterations(self) -> int:
        """Number of vectors of a lane."""
        return -(-self.vectors // LANES)


def transfer_of(
    program: Program,
    written: Sequence[View],
    read: Sequence[View],
    tiled: frozenset[str] = frozenset(),
    known: frozenset[str] | None = None,
) -> Transfer:
    """Return the transfer of a step's rectangles of one extent.

    tiled: buffers of the grid whose arrays are aligned, since WMMA moves tiles of them. known:
    `known_steps(program)`, if the caller has it.
    """
    first, views = written[0], (*written, *read)
    known = known_steps(program) if known is None else known
    down = first.cols == 1 if min(first.rows, first.cols) == 1 else _lanes_go_down(first, read[0])
    # Status words move singly.
    status = any(view.buffer.role is BufferRole.STATUS for view in views)
    single = status or any(map(_never_whole, views))
    vector = 1 if single else _vector(program, known, written, read, down)
    plain = Transfer(first.rows, first.cols, vector, down)
    # Smaller vectors for more lanes, while it takes each lane no more iterations.
    while plain.vector > 1:
        smaller = replace(plain, vector=plain.vector // 2)
        if smaller.iterations > plain.iterations:
            break
        plain = smaller
    itemsize = STATUS_BYTES if status else format_of(read[0].buffer.dtype).itemsize
    held = max(1, min(plain.iterations, MOST_HELD, HELD_BYTES // (plain.vector * itemsize)))
    where = tuple(_where(known, view, plain, tiled) for view in views)
    return replace(plain, held=held, where=where, guard=_guard(plain, where, views))


# Values of other operations are float32, whatever the rectangles' types.
_IN_TYPE_OF_MEMORY = (Operation.PLUS, Operation.PLUS_TO_ODD, Operation.SPLIT, *PARTS)


def is_in_type_of_memory(value: Value) -> bool:
    """Return whether a value is a copy, a sum or a part, with vectors of the rectangles' types."""
    operations = value.operations if isinstance(value, Formula) else ()
    return all(one in _IN_TYPE_OF_MEMORY for one in operations)


def moved_of(value: Value) -> tuple[View, ...]:
    """Return the rectangles of a value that lanes read in vectors; others each lane has whole."""
    views = views_of(value)
    return views if is_in_type_of_memory(value) else varying(views) or views


def varying(views: Sequence[View]) -> tuple[View, ...]:
    """Return the rectangles that are more than one value, which every lane can read by itself."""
    return tuple(
        view
        for view in views
        if view.ranges is not None or view.bounds or view.row_stride or view.col_stride
    )


def _never_whole(view: View) -> bool:
    """Return whether some of a rectangle of shared memory is always out of bounds.

    Its vectors would always be tested; single elements are, too, but all of them side by side.
    """
    if view.buffer.space is Space.GLOBAL:
        return False
    excesses = [bound.excess for bound in whole(view)]
    return any(not excess.terms and excess.const >= 0 for excess in excesses)


def _vector(
    program: Program,
    known: frozenset[str],
    written: Sequence[View],
    read: Sequence[View],
    down: bool,
) -> int:
    """Return the most elements that an access can take of all these rectangles."""
    first, views = written[0], (*written, *read)
    size = VECTOR_BYTES // max(format_of(view.buffer.dtype).itemsize for view in views)
    while size > 1:
        fits = (first.rows if down else first.cols) % size == 0
        fits = fits and all(_in_vectors(view, size, down, known) for view in written)
        if fits and all(
            _repeats(v, down)
            or _in_vectors(v, size, down, known)
            or _in_parts(program, v, size, down)
            or _shifted(v, size, down, known)
            for v in read
        ):
            break
        size //= 2
    return size


def _where(known: frozenset[str], view: View, transfer: Transfer, tiled: frozenset[str]) -> Where:
    if _repeats(view, transfer.down):
        return Where.REPEATED
    if view.ranges is not None and transfer.vector > 1:
        return Where.GATHERED
    if transfer.vector > 1 and _shifted(view, transfer.vector, transfer.down, known):
        return Where.SHIFTED
    # Its addresses do not depend on the user's arrays.
    of_buffer = view.buffer.space is not Space.GLOBAL or view.buffer.name in tiled
    aligned = of_buffer and view.offset.symbols <= known
    return Where.ALIGNED if aligned else Where.ANYWHERE


def _guard(
    transfer: Transfer, where: Sequence[Where], views: Sequence[View]
) -> tuple[Bound | Alignment | Ranges, ...]:
    """Return the conditions for all vectors to be in bounds and aligned.

    Bounds are affine, so those of a rectangle hold if they do at its worst corner.
    """
    tests: list[Bound | Alignment | Ranges] = []
    # A test that always fails would leave nothing but the path on which each element is tested.
    single = any(view.ranges is not None or _never_whole(view) for view in views)
    if transfer.vector == 1 and (transfer.iterations < GUARDED or single):
        return ()
    for one, view in zip(where, views, strict=True):
        if transfer.vector == 1:
            tests.extend(whole(view))
            continue
        if one is Where.REPEATED:
            continue
        if view.ranges is not None:
            tests.append(view.ranges)
            continue
        if one is Where.SHIFTED:
            tests.append(_inside_array(view, transfer.vector))
        if one is Where.ANYWHERE:
            access = transfer.vector * format_of(view.buffer.dtype).itemsize
            tests.append(Alignment.of(view, min(VECTOR_BYTES, access)))
        tests.extend(whole(view))
    return tuple(dict.fromkeys(tests))


def is_all_or_none(transfer: Transfer, view: View) -> bool:
    """Return whether each vector is in bounds as a whole or not at all, for all sizes."""
    along = "row" if transfer.down else "col"
    for excess in (bound.excess for bound in view.bounds):
        rest = [factor for name, factor in excess.terms if name != along]
        steps = all(step % transfer.vector == 0 for step in (*rest, excess.const))
        if excess.coefficient(along) not in ({0, 1} if steps else {0}):
            return False
    return True


def _lanes_go_down(dst: View, src: View) -> bool:
    """Return whether neighbouring lanes take neighbouring rows: where memory is contiguous."""
    for view in (dst, src):
        if view.buffer.space is Space.GLOBAL and view.rows > 1 and view.cols > 1:
            return view.row_stride == 1 and view.col_stride != 1
    return dst.row_stride == 1 and dst.col_stride != 1


def _repeats(view: View, down: bool) -> bool:
    """Return whether all elements of a vector are one element of memory, in bounds or not."""
    inner, stride = ("row", view.row_stride) if down else ("col", view.col_stride)
    # How fast each bound's excess grows along the vector.
    grows = [(bound.lhs - bound.rhs).coefficient(inner) for bound in view.bounds]
    return stride == 0 and view.ranges is None and not any(grows)


def known_steps(program: Program) -> frozenset[str]:
    """Return the symbols that count by ones: places in the grid and the tile, and loops.

    Others, such as scalars, are numbers that only the launch tells.
    """
    loops = {step.var for _, step in walk(program.steps) if isinstance(step, Loop)}
    return frozenset({"block", "block_row", "block_col", "row", "col"} | WARP_PLACES | loops)


def _in_vectors(view: View, size: int, down: bool, known: frozenset[str]) -> bool:
    """Return whether neighbours lie side by side, and vectors at multiples of one access.

    Values known only at launch do not count: they may be multiples, and are equal for all lanes,
    which then test the size of their accesses. But where lanes, or blocks, are known to differ,
    smaller vectors without gaps between the lanes are better than large ones piece by piece.
    """
    inner, stride = ("row", view.row_stride) if down else ("col", view.col_stride)
    # Gathered rows begin anywhere, each elsewhere.
    if stride != 1 or view.ranges is not None:
        return False
    itemsize = format_of(view.buffer.dtype).itemsize
    access = min(VECTOR_BYTES, size * itemsize)
    outer, extent = ("col", view.cols) if down else ("row", view.rows)
    counted = known - {inner} - ({outer} if extent == 1 else set())
    steps = [factor for name, factor in view.address.terms if name in counted]
    return all(step * itemsize % access == 0 for step in (*steps, view.address.const))


def _in_parts(program: Program, view: View, size: int, down: bool) -> bool:
    """Return whether vectors of gathered rows can be put together from aligned ones.

    Those may hold elements before and behind the row: that is no access of the program. So the
    ranges must be known to end with the array.
    """
    if view.ranges is None or view.bounds or (view.row_stride if down else view.col_stride) != 1:
        return False
    if size * format_of(view.buffer.dtype).itemsize < LEAST_GATHERED:
        return False
    return end_with_array(program, view)


def aligned_like(view: View) -> View:
    """Return a rectangle of a view's size and type that vectors of any size can be moved to."""
    dtype = view.buffer.dtype
    each = VECTOR_BYTES // format_of(dtype).itemsize
    size = each * -(-view.cols // each)
    buffer = Buffer("", dtype, Extent.of(view.rows * size), BufferRole.SCRATCH, Space.WARP)
    return View.strided(buffer, Index(), view.rows, view.cols, size, 1)


def begins_at_elements(view: View, known: frozenset[str], *, down: bool = False) -> bool:
    """Return whether lines of neighbours are known to begin at no multiple of two elements."""
    beside = (view.row_stride if down else view.col_stride) == 1
    return view.ranges is None and beside and not _in_vectors(view, 2, down, known)


def _shifted(view: View, size: int, down: bool, known: frozenset[str]) -> bool:
    """Return whether vectors of an input that lie anywhere are to be put together of aligned ones.

    It is done for elements of less than a word that could only be read one by one. The part of the
    first vector before the array is in the same 16 bytes, which are mapped as a whole.
    """
    itemsize = format_of(view.buffer.dtype).itemsize
    if view.buffer.role is not BufferRole.INPUT or itemsize >= LEAST_GATHERED:
        return False
    if view.buffer.size.per > 1 or view.rows * view.cols < LEAST_SHIFTED:
        return False
    return size * itemsize >= LEAST_GATHERED and begins_at_elements(view, known, down=down)


def _inside_array(view: View, vector: int) -> Bound:
    """Return the bound that keeps the aligned vectors around a rectangle's vectors in its array."""
    last = {"row": Index.of(view.rows - 1), "col": Index.of(view.cols - 1)}
    return Bound(view.address.substitute(last) + (vector - 1), view.buffer.size.index)


def end_with_array(program: Program, view: View) -> bool:
    """Return whether it is known that no range in which a view lies reaches beyond its array."""
    assert view.ranges is not None
    steps = (step for _, step in walk(program.steps) if isinstance(step, Locate))
    limits = [step.segments.limit for step in steps if step.dst.name == view.ranges.name]
    return all(limit is not None and Extent(limit) == view.buffer.size for limit in limits)


# --- Rows that are added up -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rows:
    """The division of a Prefix's rows among lanes.

    how: their vectors of the source. to: those of the result, if it is as large. each: neighbours
    that a lane holds of a piece of a row. lanes: of a row, a power of 2. pieces: of a long row,
    each of which takes all lanes. at_once: rows that all lanes have at a time. held: how often they
    take so many before they add them up.
    """

    how: Transfer
    to: Transfer
    each: int
    lanes: int
    pieces: int
    at_once: int
    held: int

    @property
    def turns(self) -> int:
        """How often the lanes take rows."""
        return -(-self.how.rows // self.at_once)

    @property
    def size(self) -> int:
        """Elements that the lanes of a row have room for."""
        return self.each * self.lanes * self.pieces

    def meet_in_banks(self, dst: View) -> bool:
        """Return whether lanes that write all of their vectors in one order use the same banks.

        Of rows in shared memory that they fill.
        """
        fills = self.to.cols == self.size and self.to.where[0] is Where.ALIGNED
        shared = dst.buffer.space is not Space.GLOBAL and not dst.bounds
        return fills and shared and self.each >= 2 * self.to.vector > 2

    @property
    def guard(self) -> list[Bound | Alignment | Ranges]:
        """The conditions for all vectors to be in bounds and aligned."""
        return list(dict.fromkeys([*self.to.guard, *self.how.guard]))


def rows_of(
    program: Program, step: Prefix, tiled: frozenset[str], known: frozenset[str] | None
) -> Rows:
    """Return the division of a step's rows among lanes, in vectors if memory allows them."""
    how, to = _vectors(program, step, tiled, known)
    size = 1 << (how.cols - 1).bit_length()
    neighbours = max(how.vector, to.vector, NEIGHBOURS)
    lanes = min(LANES, max(1, size // neighbours))
    # Lanes read contiguous elements together. For prefixes it is better that each holds a run.
    pieces = max(1, size // (lanes * neighbours)) if step.sums_alone else 1
    each = size // (lanes * pieces)
    at_once = LANES // lanes
    turns = -(-how.rows // at_once)
    # Groups of about one size.
    groups = -(-turns // max(1, min(turns, ROWS_HELD // (each * pieces))))
    return Rows(how, to, each, lanes, pieces, at_once, -(-turns // groups))


def _vectors(
    program: Program, step: Prefix, tiled: frozenset[str], known: frozenset[str] | None
) -> tuple[Transfer, Transfer]:
    """Return the transfers of the elements and of the results.

    Results of the elements' size go where these are read; others in vectors of their own.
    """
    src, dst = step.src, step.dst
    if step.sums_alone:
        dst = aligned_like(src)
    if format_of(dst.buffer.dtype).itemsize == format_of(src.buffer.dtype).itemsize:
        how = _along_rows(transfer_of(program, (dst,), (src,), tiled, known))
        return how, how
    how = transfer_of(program, (aligned_like(src),), (src,), tiled, known)
    to = transfer_of(program, (dst,), (aligned_like(dst),), tiled, known)
    return _along_rows(how), _along_rows(to)


def _along_rows(how: Transfer) -> Transfer:
    """Return the transfer of a rectangle along its rows, one by one for any other layout."""
    if not how.down:
        return how
    return Transfer(how.rows, how.cols, 1, down=False, where=(Where.ANYWHERE,) * 2)


# --- Rows that are too narrow for vectors ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NarrowRows:
    """A copy within shared memory of rows that follow each other, spread with zeros behind each.

    Segments of a few elements follow each other in memory, and each has a row of its own in a tile.
    Element by element, a lane would spend more instructions on addresses than on moves. Here a lane
    takes as many rows as begin at a word of 4 bytes together, at addresses known at compile time.

    inside: elements of each row. width: of each row with its zeros. apart: elements from row to row
    of the copy. count: rows.
    """

    inside: int
    width: int
    apart: int
    count: int


@dataclass(frozen=True, slots=True)
class _Lines:
    """A rectangle as lines of neighbours: how many, how long, and their distance in elements.

    inside: the elements of each line that are in bounds.
    """

    count: int
    width: int
    apart: int
    inside: int

    @staticmethod
    def of(view: View, *, down: bool) -> _Lines | None:
        """Return the lines of a rectangle of shared memory whose place is known, if it has any."""
        inner, apart = view.col_stride, view.row_stride
        count, width = view.rows, view.cols
        if down:
            inner, apart, count, width = apart, inner, width, count
        known = view.buffer.space is not Space.GLOBAL and view.ranges is None
        if not known or inner != 1 or view.offset != Index() or count == 1:
            return None
        inside = width
        if view.bounds:
            (bound, *others) = view.bounds
            inside = bound.rhs.const
            if others or bound != Bound(ROW if down else COL, Index.of(inside)):
                return None
        return _Lines(count, width, apart, min(inside, width))


def narrow_rows(step: Assign) -> NarrowRows | None:
    """Return the rows of a copy of narrow rows that get zeros behind them, None for any other.

    The other way, where rows lose their ends, this is no faster: a lane would read several
    neighbours of four bytes, with bank conflicts between the lanes.
    """
    copied = step.src
    if copied is None:
        return None
    down = step.dst.row_stride == 1 and step.dst.col_stride != 1
    dst, src = (_Lines.of(view, down=down) for view in (step.dst, copied))
    if dst is None or src is None or dst.inside < dst.width or src.inside > WIDEST_NARROW:
        return None
    dtype = step.dst.buffer.dtype
    pairs = dtype == copied.buffer.dtype and 2 * format_of(dtype).itemsize == WORD_BYTES
    follow = src.inside < src.width and src.apart == src.inside and dst.count % 2 == 0
    if not (pairs and follow and dst.width % LEAST_SPREAD == dst.apart % LEAST_SPREAD == 0):
        return None
    return NarrowRows(src.inside, dst.width, dst.apart, dst.count)
