"""How a warp's lanes go over the rectangles of a step, as data."""

from __future__ import annotations

import pytest

from tcusim.algorithms import build
from tcusim.machine.shapes import shape_of
from tcusim.program.grammar import (
    BLOCK,
    COL,
    ROW,
    Bound,
    Buffer,
    BufferRole,
    Extent,
    Index,
    Program,
    Space,
    View,
)
from tcusim.program.lanes import Alignment, Transfer, Where, transfer_of

LENGTH, SIZE = Index.symbol("length"), Index.symbol("size")
IN = Buffer("in", "f16", Extent(LENGTH), BufferRole.INPUT)
TILE = Buffer("t", "f16", Extent.of(4096), BufferRole.SCRATCH, Space.WARP)
STATUS = Buffer("s", "f16", Extent(LENGTH), BufferRole.STATUS)


def program() -> Program:
    made = build("reduction_k", tile=shape_of("16x16x16"))
    return Program("any", made.shape, "f16", "f32", (), (IN, TILE), Extent.of(1), 1, ())


def moved(source: View, *, tiled: bool = False) -> Transfer:
    """Return the transfer of a rectangle to shared memory, row by row."""
    target = View.strided(TILE, Index(), source.rows, source.cols, source.cols, 1)
    return transfer_of(program(), (target,), (source,), frozenset({"in"} if tiled else ()))


def rectangle(rows: int, cols: int, offset: Index | int = 0, *bounds: Bound) -> View:
    return View.strided(IN, Index.of(offset), rows, cols, cols, 1, bounds)


@pytest.mark.parametrize(
    ("rows", "cols", "vector", "iterations", "held"),
    [
        (16, 16, 8, 1, 1),
        # All lanes take a part, even if it is smaller.
        (4, 16, 2, 1, 1),
        (64, 64, 8, 16, 8),
        (16, 15, 1, 8, 8),
        (64, 63, 1, 126, 16),
        (1, 3, 1, 1, 1),
    ],
)
def test_vectors_and_how_many_are_held(
    rows: int, cols: int, vector: int, iterations: int, held: int
) -> None:
    how = moved(rectangle(rows, cols))
    assert (how.vector, how.iterations, how.held) == (vector, iterations, held)


def test_lanes_follow_what_is_contiguous() -> None:
    assert not moved(rectangle(16, 16)).down
    source = View.strided(IN, Index(), 16, 16, 1, 16)
    target = View.strided(TILE, Index(), 16, 16, 1, 16)
    assert transfer_of(program(), (target,), (source,)).down


def test_the_guard_tests_what_is_not_known() -> None:
    place = BLOCK * 256
    bound = Bound(place + 16 * ROW + COL, LENGTH)
    source = rectangle(16, 16, place, bound)
    last = Bound(place + 255, LENGTH)
    assert moved(source).guard == (Alignment(IN, Index(), 16), last)
    # WMMA loads tiles of such an array, so it is aligned.
    aligned = moved(source, tiled=True)
    assert aligned.where == (Where.ALIGNED, Where.ALIGNED)
    assert aligned.guard == (last,)
    # An offset that a user passes may be any.
    assert moved(rectangle(16, 16, place + SIZE), tiled=True).where[1] is Where.ANYWHERE
    assert moved(rectangle(16, 15)).guard == ()


def test_a_repeated_element_needs_no_alignment() -> None:
    how = moved(View.strided(IN, BLOCK + 1, 16, 16, 16, 0))
    assert how.vector == 8
    assert how.where[1] is Where.REPEATED
    assert how.guard == ()


def test_status_words_go_singly() -> None:
    words = View.strided(STATUS, Index(), 1, 1024, 1024, 1)
    how = moved(words)
    # A lane holds sixteen words of 8 bytes.
    assert (how.vector, how.iterations, how.held) == (1, 32, 16)
