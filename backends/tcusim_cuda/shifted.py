"""Copies to rows that follow each other in an output, from a single element on.

Segments of an odd number of 2-byte elements begin where no vector may. Their rows lie side by side,
so all of them are one run of memory: lanes make vectors as if it began at a multiple of these, and
exchange elements to form the aligned vectors there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tcusim.machine import format_of
from tcusim.program.grammar import Assign, BufferRole, Program, View, type_of, whole
from tcusim.program.lanes import (
    LEAST_GATHERED,
    Transfer,
    aligned_like,
    begins_at_elements,
    moved_of,
    transfer_of,
)
from tcusim_cuda.moves import assigned, c_guard, call, lambda_of
from tcusim_cuda.text import C_TYPES, c_pointer

# Elements of a run from which on its ends, which are written by elements, are few.
LEAST_WRITTEN = 512


@dataclass(frozen=True, slots=True)
class ShiftedRun:
    """An Assign to a run of an output; how: its vectors, as if the run were aligned."""

    step: Assign
    how: Transfer

    @property
    def test(self) -> str:
        """The condition under which all of it is in bounds; "" if it always is."""
        return c_guard((*self.how.guard, *whole(self.step.dst)))

    def lines(self) -> list[str]:
        """Print the step where all is in bounds."""
        step, how, dst = self.step, self.how, self.step.dst
        there = replace(step, dst=aligned_like(dst))
        value, dtype = assigned(there, how).value, dst.buffer.dtype
        if type_of(step.value) != dtype:
            value = f"tcu::convert<{C_TYPES[dtype]}>({value})"
        function = f"tcu::store_run<{how.rows}, {how.cols}, {how.vector}>"
        get = lambda_of("int row, int col", f"return {value};")
        return call(function, (c_pointer(dst.buffer, dst.offset),), [get])


def shifted_run(program: Program, step: Assign, known: frozenset[str]) -> ShiftedRun | None:
    """Return an Assign to an output as one run of it that is not aligned, None for any other."""
    dst = step.dst
    itemsize = format_of(dst.buffer.dtype).itemsize
    if dst.buffer.role is not BufferRole.OUTPUT or itemsize >= LEAST_GATHERED:
        return None
    if not _is_run(dst) or not begins_at_elements(dst, known):
        return None
    if dst.rows * dst.cols < LEAST_WRITTEN:
        return None
    how = transfer_of(program, (aligned_like(dst),), moved_of(step.value), known=known)
    narrow = how.vector * itemsize < LEAST_GATHERED
    return None if narrow or how.down else ShiftedRun(step, how)


def _is_run(view: View) -> bool:
    """Return whether rows of neighbours follow each other."""
    if view.ranges is not None or view.col_stride != 1:
        return False
    return view.rows == 1 or view.row_stride == view.cols
