"""What sums of whole numbers and sums of fractions come to."""

from __future__ import annotations

from functools import lru_cache

from tcusim.algorithms.builder import LENGTH, Builder, Level, Options, Work
from tcusim.machine.shapes import MmaShape
from tcusim.program.checks.verifier import verify
from tcusim.program.grammar import BLOCK, COL, ROW, Bound, Buffer, Extent, Program, Scalar, View

__all__ = ["join_parts"]

# Rows and columns of what a warp adds, one lane to a column's elements.
_ROWS, _COLS = 8, 64


@lru_cache(maxsize=8)
def join_parts(shape: MmaShape, result: str) -> Program:
    """Return the program that adds arrays "whole" and "fraction" of f64, each sum rounded once."""
    b = Builder(Options(shape, ab="f64", acc="f64", source="f64", result=result), {}, Level.WARP)
    size = _ROWS * _COLS
    first = BLOCK * size

    def part(buffer: Buffer) -> View:
        inside = Bound(first + ROW * _COLS + COL, LENGTH)
        return b.rect(buffer, first, _ROWS, _COLS, _COLS, 1, [inside])

    whole, fraction = (part(b.input(name, "f64", Extent(LENGTH))) for name in ("whole", "fraction"))
    b.join(part(b.output("out", result, Extent(LENGTH))), whole, fraction)
    work = Work((Scalar("length", 1),), Extent(LENGTH, size))
    program = b.program("join_parts", "not in the paper", work)
    verify(program)
    return program
