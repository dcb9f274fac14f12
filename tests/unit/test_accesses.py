"""The sectors, lines and banks of one access, against counts by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tcusim.algorithms import build
from tcusim.judge.cost.accesses import access_of, spread_rows, tile_pass
from tcusim.machine.shapes import shape_of
from tcusim.program.grammar import (
    ROW,
    Bound,
    Buffer,
    BufferRole,
    Extent,
    Frag,
    Index,
    Role,
    Space,
    View,
)
from tcusim.program.lanes import NarrowRows, Transfer, transfer_of
from tcusim.program.walk import Placement

PROGRAM = build("reduction_k")
HERE = Placement(1, {"block": 0, "warp": 0})


def over(written: View, read: View | None = None) -> Transfer:
    return transfer_of(PROGRAM, (written,), (read or written,))


def buffer(space: Space, dtype: str = "f16") -> Buffer:
    role = BufferRole.INPUT if space is Space.GLOBAL else BufferRole.SCRATCH
    return Buffer("x", dtype, Extent.of(2**16), role, space)


def rectangle(
    space: Space, rows: int, cols: int, down: int, across: int, dtype: str = "f16"
) -> View:
    return View.strided(buffer(space, dtype), Index(), rows, cols, down, across)


def test_lanes_take_the_widest_vectors_that_all_rectangles_allow() -> None:
    whole = rectangle(Space.GLOBAL, 16, 64, 64, 1)
    assert over(rectangle(Space.SHARED, 16, 64, 72, 1), whole).vector == 8
    # Rows of 66 elements begin at multiples of 4 bytes.
    assert over(rectangle(Space.SHARED, 16, 64, 66, 1), whole).vector == 2
    assert over(rectangle(Space.SHARED, 16, 64, 72, 1, dtype="f32"), whole).vector == 4
    # Few elements are shared by more lanes.
    few = rectangle(Space.GLOBAL, 1, 64, 64, 1)
    assert over(few, few).vector == 2


@pytest.mark.parametrize(
    ("stride", "sectors", "lines"), [(1, 2, 1), (2, 4, 1), (16, 32, 8), (64, 32, 32)]
)
def test_sectors_and_lines_of_a_warp(stride: int, sectors: int, lines: int) -> None:
    """32 halves at a distance: 64 bytes side by side, up to a sector and a line each."""
    view = rectangle(Space.GLOBAL, 1, 32, 1, stride)
    found = access_of(view, over(view), HERE)
    assert (found.instructions, found.sectors, found.lines, found.nbytes) == (1, sectors, lines, 64)


def test_a_misaligned_row_touches_one_sector_more() -> None:
    view = View.strided(buffer(Space.GLOBAL), Index.of(3), 1, 32, 1, 1)
    found = access_of(view, over(view), HERE)
    assert (found.sectors, found.lines) == (3, 1)


@pytest.mark.parametrize(("stride", "passes"), [(1, 1), (2, 2), (4, 4), (32, 32), (33, 1), (0, 1)])
def test_bank_conflicts(stride: int, passes: int) -> None:
    """32 words at a distance of so many words; the same word is read once for all lanes."""
    view = rectangle(Space.SHARED, 32, 1, stride, 1, dtype="f32")
    assert access_of(view, over(view), HERE).lines == passes


def test_wide_accesses_pass_the_banks_in_parts() -> None:
    view = rectangle(Space.SHARED, 32, 8, 8, 1)  # 16 bytes a lane
    found = access_of(view, over(view), HERE)
    assert (found.instructions, found.lines, found.nbytes) == (1, 4, 512)


def test_what_is_out_of_bounds_is_not_moved() -> None:
    bound = Bound(ROW, Index.of(8))
    view = View.strided(buffer(Space.GLOBAL), Index(), 64, 1, 1, 1, (bound,))
    found = access_of(view, over(view), HERE)
    assert (found.instructions, found.sectors, found.nbytes) == (1, 1, 16)


@pytest.mark.parametrize(("ldm", "passes"), [(16, 4), (24, 4), (40, 4), (64, 32)])
def test_tiles_from_shared_memory(ldm: int, passes: int) -> None:
    """Eight rows of 16 bytes in a pass: without conflicts at a distance of 48 or of 80 bytes."""
    tile = Frag("A", Role.A, shape_of("16x16x16"), "f16")
    found = tile_pass(rectangle(Space.SHARED, 16, 16, ldm, 1), tile, HERE)
    assert found.nbytes == 512
    # At 32 bytes, rows 0 and 4 have one bank.
    assert found.lines == (8 if ldm == 16 else passes)


def test_tiles_from_global_memory_read_each_sector_once() -> None:
    tile = Frag("A", Role.A, shape_of("16x16x16"), "f16")
    for ldm, lines in ((16, 8), (1024, 32)):
        found = tile_pass(rectangle(Space.GLOBAL, 16, 16, ldm, 1), tile, HERE)
        assert (found.sectors, found.instructions, found.lines) == (16, 4, lines)
    # Across its rows a lane finds one element at a time.
    across = tile_pass(rectangle(Space.GLOBAL, 16, 16, 1, 16), tile, HERE)
    assert across.instructions == 8


def test_accumulators_are_stored_by_two_neighbours() -> None:
    tile = Frag("D", Role.ACC, shape_of("16x16x16"), "f32")
    for ldm, passes in ((40, 8), (32, 32)):
        found = tile_pass(rectangle(Space.SHARED, 16, 16, ldm, 1, dtype="f32"), tile, HERE)
        assert (found.instructions, found.lines) == (4, passes)


def test_narrow_rows_are_moved_by_words() -> None:
    """Rows of 3, put 4 apart: a lane reads 3 words of two rows, and writes two vectors."""
    read, written = spread_rows(NarrowRows(inside=3, width=4, apart=4, count=64))
    assert (read.instructions, read.lines, read.nbytes) == (3, 3, 384)
    assert (written.instructions, written.nbytes) == (2, 512)


def test_counts_are_averages_over_warps() -> None:
    view = View.strided(buffer(Space.GLOBAL), Index.symbol("warp") * 3, 1, 32, 1, 1)
    several = Placement(2, {"warp": np.array([0, 1])})
    assert access_of(view, over(view), several).sectors == 2.5
