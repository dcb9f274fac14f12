"""How parts of steps are said in C."""

from __future__ import annotations

import pytest

from tcusim.machine import FORMATS
from tcusim.program.grammar import (
    COL,
    ROW,
    Bound,
    Buffer,
    BufferRole,
    Extent,
    Index,
    Pattern,
    PatternKind,
    Space,
    View,
)
from tcusim_cuda.text import (
    c_bound,
    c_bounds,
    c_extent,
    c_index,
    c_inside,
    c_literal,
    c_pattern,
    c_pointer,
    c_value,
    c_when,
    comment,
    wrapped,
)

LENGTH, BLOCK, TURN = (Index.symbol(name) for name in ("length", "block", "i"))
IN = Buffer("in", "f16", Extent(LENGTH), BufferRole.INPUT)
TILE = Buffer("t", "f16", Extent.of(256), BufferRole.SCRATCH, Space.WARP)


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (Index(), "0"),
        (Index.of(-3), "-3"),
        (COL + ROW * 16 + TURN + BLOCK * 256, "256*block + i + 16*row + col"),
        (TURN - 1, "i - 1"),
        (TURN * -2 + 5, "-2*i + 5"),
        # Products of 32 bits would wrap around from here on.
        (BLOCK * (2**16 - 1), "65535*block"),
        (BLOCK * 2**16, "65536LL*block"),
    ],
)
def test_an_index_is_a_sum_with_the_warps_place_first(index: Index, text: str) -> None:
    assert c_index(index) == text


def test_a_count_is_rounded_up() -> None:
    assert c_extent(Extent.of(7)) == "7"
    assert c_extent(Extent(LENGTH)) == "length"
    assert c_extent(Extent(LENGTH, 256)) == "(length + 255) / 256"
    assert [wrapped(text) for text in ("i", "i + 1")] == ["i", "(i + 1)"]


def test_a_side_of_one_element_has_no_symbol() -> None:
    bounds = (Bound(BLOCK * 16 + ROW + COL, LENGTH),)
    view = View.strided(IN, BLOCK * 16, 1, 16, 16, 1, bounds)
    assert c_bounds(view) == "16*block + col < length"
    literal = "tcu::convert<half>(0.0f)"
    assert c_value(view) == f"(16*block + col < length ? in[16*block + col] : {literal})"
    assert c_when(view, "x = 1;") == "if (16*block + col < length) x = 1;"
    whole = View.strided(IN, BLOCK * 16, 1, 16, 16, 1)
    assert (c_bounds(whole), c_value(whole)) == ("", "in[16*block + col]")
    assert c_when(whole, "x = 1;") == "x = 1;"
    assert c_bound(bounds[0]) == "16*block + row + col < length"


def test_elements_that_are_never_in_bounds_are_not_named() -> None:
    """A buffer that only they name would else take memory."""
    never = View.strided(IN, Index.of(-1), 1, 1, 1, 1, (Bound(ROW, Index()),))
    assert (c_bounds(never), c_value(never)) == ("false", "tcu::convert<half>(0.0f)")
    always = View.strided(IN, Index(), 1, 1, 1, 1, (Bound(ROW, Index.of(1)),))
    assert (c_bounds(always), c_value(always)) == ("", "in[0]")


def test_a_vector_is_in_bounds_element_by_element() -> None:
    view = View.strided(IN, BLOCK * 16, 2, 16, 16, 1, (Bound(COL, LENGTH),))
    assert c_inside(view, down=False) == "[=](int at) { return col + at < length; }"
    assert c_inside(view, down=True) == "[=](int at) { return col < length; }"
    assert c_inside(View.strided(IN, Index(), 2, 16, 16, 1), down=False) == ""


def test_a_pointer_to_the_start_of_an_argument_is_the_argument() -> None:
    assert c_pointer(IN, Index()) == "in"
    assert c_pointer(IN, TURN) == "&in[i]"
    assert c_pointer(TILE, Index()) == "&t[0]"


@pytest.mark.parametrize("dtype", [*FORMATS, "e5m3"])
def test_a_literal_is_of_its_type(dtype: str) -> None:
    expected = {
        "f16": "tcu::convert<half>(1.0f)",
        "bf16": "tcu::convert<__nv_bfloat16>(1.0f)",
        "tf32": "1.0f",
        "f32": "1.0f",
        "f64": "1.0",
        "s8": "(signed char)1",
        "u8": "(unsigned char)1",
        "s32": "1",
        "s64": "(long long)1",
    }
    # Types that CUDA lacks have structs of their own names.
    assert c_literal(dtype, 1) == expected.get(dtype, f"tcu::convert<tcu::{dtype}>(1.0f)")


@pytest.mark.parametrize("kind", PatternKind)
@pytest.mark.parametrize("offset", [-1, 0, 2])
def test_a_pattern_is_that_of_the_constant(kind: PatternKind, offset: int) -> None:
    """The condition, read as Python's, holds where the matrix has a one."""
    condition = c_pattern(Pattern(kind, Index.of(offset)), "row", "col")
    meaning = {"false": "False", "true": "True"}.get(condition, condition)
    for row in range(4):
        for col in range(4):
            ones = {
                PatternKind.ZEROS: False,
                PatternKind.ONES: True,
                PatternKind.ROW: row == offset,
                PatternKind.COL: col == offset,
                PatternKind.UPPER: row <= col + offset,
                PatternKind.LOWER: col <= row + offset,
            }
            assert eval(meaning, {"row": row, "col": col}) == ones[kind]


def test_listings_become_ascii() -> None:
    assert comment("V ← P·A … §") == "// V <- P.A ... ?"
    assert comment("a line,\nand a path: C:\\") == "// a line, and a path: C:"
