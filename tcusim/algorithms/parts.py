"""Auxiliary programs between sums and scans, without public names."""

from __future__ import annotations

from functools import lru_cache

from tcusim.algorithms.builder import LENGTH, NEVER, Builder, Level, Options, Work
from tcusim.algorithms.order import Order
from tcusim.algorithms.rows import Chunks, RaggedRows, data
from tcusim.algorithms.tree import Vectors, siblings
from tcusim.machine.shapes import MmaShape
from tcusim.program.checks.verifier import verify
from tcusim.program.grammar import (
    BLOCK,
    COL,
    ROW,
    Bound,
    Buffer,
    Extent,
    Index,
    Program,
    Scalar,
    View,
)

# Rows and columns that a warp adds, one lane to a column's elements.
_ROWS, _COLS = 8, 64


@lru_cache(maxsize=8)
def join_parts(shape: MmaShape, result: str) -> Program:
    """Return the program that adds arrays "whole" and "fraction" of f64, each sum rounded once."""
    b = Builder(Options(shape, ab="f16", acc="f64", source="f64", result=result), {}, Level.WARP)
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


@lru_cache(maxsize=64)
def find_rounds(
    common: Options, cut: int, rows_per_warp: int, chunks: Chunks, order: Order, *, carry: bool
) -> Program:
    """Return the program that finds the additions of later tree rounds to each value.

    The values are those of ragged segments: sums by the first rounds. A tree covers each chunk of
    `cut` values, and the addend of a round to a value is an output "round0", "round1", ...: they
    complete the tree of `scan_ragged_simt`. carry: the exclusive prefix of each chunk is given to
    all its values, as one more output.
    """
    b = Builder(common, {}, Level.WARP)
    rows = RaggedRows(b, cut, rows_per_warp, chunks)
    source, elements = common.source, rows.count * cut
    x, found = (b.scratch(name, source, elements) for name in ("x", "found"))
    rounds = [
        b.output(f"round{i}", common.result, Extent(LENGTH)) for i in range(cut.bit_length() - 1)
    ]
    given = b.input("carry", source, rows.numbers) if carry else None
    with rows.each():
        for size in rows.lengths():
            vectors = Vectors(size, rows.count, size, across=True)
            if size > 1:
                b.copy(vectors.view(b, x), rows.part(data(b), Index(), size))
                later = siblings(b, x, found, vectors, order)
                for out, _ in zip(rounds, later, strict=True):
                    b.copy(rows.part(out, Index(), size), vectors.view(b, found))
            else:
                for out in rounds:
                    b.copy(rows.part(out, Index(), 1), vectors.view(b, found, bounds=(NEVER,)))
            if given is not None:
                before = b.scratch("before", source, rows.count)
                b.copy(b.rect(before, 0, rows.count, 1, 1), rows.values(given))
                out = b.output("carries", common.result, Extent(LENGTH))
                b.copy(rows.part(out, Index(), size), b.rect(before, 0, rows.count, size, 1, 0))
    program = b.program("find_rounds", "not in the paper", rows.work())
    verify(program)
    return program
