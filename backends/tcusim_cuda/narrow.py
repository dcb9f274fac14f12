"""Copies within shared memory of rows that are too narrow for vectors, said by words.

Segments of a few elements follow each other in memory, and each has a row of its own in a tile. One
element at a time, a lane would spend more instructions on where they lie than on moving them. Here
a lane takes as many rows as begin at a word of 4 bytes together, and knows where all of them lie
when it is compiled.
"""

from __future__ import annotations

from dataclasses import dataclass

from tcusim.machine import format_of
from tcusim.program.grammar import COL, ROW, Bound, Copy, Index, Space, View
from tcusim_cuda.text import c_pointer

__all__ = ["narrow_rows"]

# The widest rows that are moved so; their elements are all in registers.
WIDEST = 32
# Elements of two bytes that a lane writes at once, at least.
LEAST_VECTOR = 4
WORD_BYTES = 4


@dataclass(frozen=True, slots=True)
class _Lines:
    """A rectangle as lines of neighbouring elements: where it begins, and how far apart they are.

    inside: the elements of each line that are in bounds.
    """

    count: int
    width: int
    apart: int
    inside: int

    @staticmethod
    def of(view: View, *, down: bool) -> _Lines | None:
        """Return the lines of a rectangle of shared memory whose place is known, if it has any."""
        inner, stride = (
            (view.row_stride, view.col_stride)
            if down
            else (
                view.col_stride,
                view.row_stride,
            )
        )
        count, width = (view.cols, view.rows) if down else (view.rows, view.cols)
        known = view.buffer.space is not Space.GLOBAL and view.ranges is None
        if not known or inner != 1 or view.offset != Index() or count == 1:
            return None
        inside = width
        if view.bounds:
            (bound, *others) = view.bounds
            inside = bound.rhs.const
            if others or bound != Bound(ROW if down else COL, Index.of(inside)):
                return None
        return _Lines(count, width, stride, min(inside, width))


def narrow_rows(step: Copy) -> str | None:
    """Return the line for a copy of narrow rows that get zeros behind them, None for any other.

    The other way, where rows lose what is behind them, this is no faster: a lane would read
    several neighbours of four bytes, and lanes wait for each other's banks.
    """
    if step.plus is not None or step.only is not None or step.odd:
        return None
    down = step.dst.row_stride == 1 and step.dst.col_stride != 1
    dst, src = (_Lines.of(view, down=down) for view in (step.dst, step.src))
    if dst is None or src is None or dst.inside < dst.width or src.inside > WIDEST:
        return None
    dtype = step.dst.buffer.dtype
    pairs = dtype == step.src.buffer.dtype and 2 * format_of(dtype).itemsize == WORD_BYTES
    follow = src.inside < src.width and src.apart == src.inside and dst.count % 2 == 0
    if not (pairs and follow and dst.width % LEAST_VECTOR == dst.apart % LEAST_VECTOR == 0):
        return None
    sizes = f"{src.inside}, {dst.width}, {dst.apart}, {dst.count}"
    places = (c_pointer(view.buffer, Index()) for view in (step.dst, step.src))
    return f"tcu::spread_rows<{sizes}>({', '.join(places)}, lane);"
