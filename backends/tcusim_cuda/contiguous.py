"""Copies of contiguous ranges, emitted as moves of one piece.

`Locate` finds the chunks of segments, and all but a few begin at the end of the one before. Range
by range, a lane would spend more instructions on the begin of a range than on its elements.
Contiguous ranges are read in whole accesses and staged in shared memory, and written the same way,
with 32-bit indices. `Locate` also finds whether ranges are contiguous; others are copied element
by element.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tcusim.machine import format_of
from tcusim.machine.shapes import TILE_BYTES
from tcusim.program.grammar import (
    Assign,
    Formula,
    Gathered,
    Index,
    Mma,
    Operation,
    Program,
    Ranges,
    Space,
    View,
    type_of,
    views_of,
    walk,
)
from tcusim.program.lanes import Transfer, Where, end_with_array, transfer_of
from tcusim.program.resources import STAGED, is_staged, stage_of
from tcusim_cuda.moves import assigned, call
from tcusim_cuda.text import C_TYPES, c_pointer

# The least number of bytes that tcu::gather_rows puts in place at once.
PLACED_BYTES = 8
# Elements of so many bytes lie at whole words, and are read where they are.
WORD_BYTES = 4


@dataclass(frozen=True, slots=True)
class _Lines:
    """A rectangle as lines of neighbours: how many, of how many elements, and how far apart.

    down: whether neighbours are in a column; else in a row.
    """

    count: int
    width: int
    apart: int
    down: bool

    @staticmethod
    def of(view: View, *, down: bool) -> _Lines | None:
        """Return the lines of a rectangle, if neighbours lie side by side and all are in bounds."""
        along, across = (view.row_axis, view.col_axis) if down else (view.col_axis, view.row_axis)
        if isinstance(along, Gathered) or along.stride != 1 or view.bounds:
            return None
        return _Lines(across.count, along.count, across.stride, down)


@dataclass(frozen=True, slots=True)
class ContiguousCopy:
    """An Assign from ranges to rows in shared memory, or from there to ranges.

    ranges: their bounds. lines_of: as lines of neighbours, on the side that is no range. how: of
    what is written, how many elements are found at once.
    """

    step: Assign
    ranges: Ranges
    lines_of: _Lines
    how: Transfer | None = None

    @property
    def _is_read(self) -> bool:
        return self.step.src is not None and self.step.src.ranges is not None

    @property
    def _direct(self) -> bool:
        """Whether elements are read where they are."""
        return format_of(type_of(self.step.value)).itemsize >= WORD_BYTES

    @property
    def _staged(self) -> bool:
        """Whether results are put together in shared memory."""
        return self.how is not None and self.how.vector == STAGED

    @property
    def test(self) -> str:
        """The condition on the ranges."""
        found = f"{self.ranges.name}_found"
        if self._is_read:
            return f"{found}.close && {found}.inner"
        return f"{found}.follow" if self._staged else f"{found}.close"

    def lines(self) -> list[str]:
        """Print the step where it holds."""
        step, lines, name = self.step, self.lines_of, self.ranges.name
        found = f"&{name}_place[0], {name}_found.shortest"
        sizes = f"{lines.count}, {lines.width}"
        if self._is_read:
            kind = "gather_elements" if self._direct else "gather_rows"
            to = c_pointer(step.dst.buffer, step.dst.offset)
            assert step.src is not None
            source = f"{step.src.buffer.name} + {name}_begin[0]"
            return [f"tcu::{kind}<{sizes}, {lines.apart}>({to}, {source}, {found});"]
        place = ("col", "row") if lines.down else ("row", "col")
        how, dtype = self.how, step.dst.buffer.dtype
        assert how is not None
        value = assigned(step, replace(how, guard=())).value
        if type_of(step.value) != dtype:
            value = f"tcu::convert<{C_TYPES[dtype]}>({value})"
        to = f"{step.dst.buffer.name} + {name}_begin[0]"
        kind = "scatter_rows" if self._staged else "scatter_elements"
        stage = f"&{stage_of(self.ranges, dtype).name}[0]" if self._staged else ""
        get = f"[=](int {place[0]}, int {place[1]}) {{ return {value}; }}"
        return call(f"tcu::{kind}<{sizes}>", (to, found, stage), [get])


def contiguous_copy(program: Program, step: Assign) -> ContiguousCopy | None:
    """Return an Assign from or to ranges as a move of one piece of memory, None for any other."""
    if step.src is not None and step.src.ranges is not None:
        return _read(program, step, step.src)
    return _written(program, step)


def _read(program: Program, step: Assign, src: View) -> ContiguousCopy | None:
    """Return a copy of ranges, from their beginning on and as they are, to rows of a warp."""
    dst = step.dst
    if src.buffer.dtype != dst.buffer.dtype:
        return None
    down = isinstance(src.col_axis, Gathered)
    ranges, rows = src.ranges, _Lines.of(dst, down=down)
    if ranges is None or rows is None or not _from_beginning(src, down=down):
        return None
    if dst.buffer.space is not Space.WARP or not end_with_array(program, src):
        return None
    size = format_of(dst.buffer.dtype).itemsize
    if size < WORD_BYTES:
        offset = dst.offset.const * size % TILE_BYTES
        whole = rows.width * size % PLACED_BYTES == rows.apart * size % PLACED_BYTES == 0
        if dst.offset.terms or offset or not whole:
            return None
    return ContiguousCopy(step, ranges, rows)


def _written(program: Program, step: Assign) -> ContiguousCopy | None:
    """Return a copy of rows to ranges, from their beginning on.

    Words that products give are written one by one instead: so short segments took two thirds of
    the time on an H200. In programs without products that takes registers, and so warps.
    """
    dst, value, views = step.dst, step.value, views_of(step.value)
    ranges = dst.ranges
    if ranges is None or any(view.ranges for view in views):
        return None
    plain = isinstance(value, View) or (
        isinstance(value, Formula) and value.operations == (Operation.PLUS,)
    )
    if not plain or type_of(value) != type_of(views[0]):
        return None
    down = isinstance(dst.col_axis, Gathered)
    if not _from_beginning(dst, down=down):
        return None
    count, width = (dst.cols, dst.rows) if down else (dst.rows, dst.cols)
    how = Transfer(dst.rows, dst.cols, 1, down, where=(Where.ANYWHERE,) * (1 + len(views)))
    if is_staged(step) and not any(view.bounds for view in views):
        # As if they were written to shared memory, in vectors.
        stage = stage_of(ranges, dst.buffer.dtype)
        there = View.strided(
            stage, Index(), dst.rows, dst.cols, *((1, width) if down else (width, 1))
        )
        vectors = transfer_of(program, (there,), views)
        if vectors.vector >= STAGED and vectors.down == down:
            how = replace(vectors, vector=STAGED)
    if how.vector < STAGED and any(isinstance(one, Mma) for _, one in walk(program.steps)):
        return None
    return ContiguousCopy(step, ranges, _Lines(count, width, 0, down), how)


def _from_beginning(view: View, *, down: bool) -> bool:
    """Return whether a rectangle has each range from its first element on, side by side."""
    side_by_side = (view.row_stride if down else view.col_stride) == 1
    return side_by_side and view.offset == Index() and not view.bounds
