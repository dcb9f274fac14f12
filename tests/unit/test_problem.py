"""Problems: equal ones are equal, what they print, and what an architecture cannot compute."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tcusim.algorithms.order import Order
from tcusim.arrays.problem import (
    MOST_DIGITS,
    Problem,
    ProductProblem,
    RaggedProblem,
    Types,
    pieces_of,
    rounded_longest,
    rounded_up,
    tile_for,
)
from tcusim.errors import UnknownName, Unsupported
from tcusim.machine.shapes import shape_of
from tcusim.program.launches import Memory

HALF = Types("f16", "f32", "f16", "f32")
INT8 = Types("s8", "s32", "s8", "s32")
TILE = shape_of("16x16x16")


def problem(length: int = 100, size: int = 7, **changes: Any) -> Problem:
    usual = {"kind": "reduction", "types": HALF, "tile": TILE}
    return Problem(length=length, segment_size=size, **{**usual, **changes})


def masked(length: int = 100, segments: int = 7, **changes: Any) -> RaggedProblem:
    usual = {"kind": "scan", "types": HALF, "tile": TILE}
    return RaggedProblem(length=length, segments=segments, **{**usual, **changes})


def product(rows: int = 4, inner: int = 5, **changes: Any) -> ProductProblem:
    return ProductProblem(rows=rows, inner=inner, **{"types": HALF, "tile": TILE, **changes})


def test_equal_problems_are_one_key() -> None:
    assert problem(arch="hopper") == problem(arch="sm_90") == problem(arch="H200")
    assert len({problem(), problem(), problem(size=8), masked(), product(), product(cols=5)}) == 5


def test_problems_in_words() -> None:
    assert str(problem()) == "100 float16 in segments of 7 to float32"
    assert str(problem(size=100)) == "100 float16 to float32"
    order = Order(exclusive=True, reverse=True)
    assert str(problem(kind="scan", order=order)).endswith(" to float32, exclusive, reverse")
    assert str(masked()) == "100 float16 in 7 segments by offsets to float32"
    assert "7 segments by offsets, of up to 9 elements to" in str(masked(longest=9))
    assert str(product(types=INT8)) == "(4, 5) by (5), int8 to int32"
    assert str(product(cols=6, add_c=True)) == "(4, 5) by (5, 6) + c, float16 to float32"


def test_what_a_call_is_given() -> None:
    assert problem().inputs == (Memory("in", "f16", 100),)
    assert masked().inputs == (Memory("in", "f16", 100), Memory("offsets", "s64", 8))
    assert product().inputs == (Memory("in", "f16", 20), Memory("x", "f16", 5))
    assert product(cols=6, add_c=True).inputs == (
        Memory("in", "f16", 20), Memory("b", "f16", 30), Memory("c", "f32", 24),
    )  # fmt: skip


def test_sizes_of_segments() -> None:
    assert (problem().segments, problem().whole_or_size) == (15, 7)
    assert (problem(size=100).segments, problem(size=100).whole_or_size) == (1, None)
    assert (masked().most, masked(longest=9).most, masked(longest=999).most) == (100, 9, 100)


def test_what_is_computed_as_printed() -> None:
    assert not problem().as_printed
    half = replace(HALF, acc="f16")
    assert not problem(types=half).as_printed
    assert problem(types=half, algorithm="reduction_tn").as_printed
    assert problem(algorithm="reduction_256n").as_printed
    assert not problem(algorithm="reduction_tn").as_printed


def test_longest_segments_are_rounded_so_that_few_plans_serve_all() -> None:
    assert [rounded_up(size, 16) for size in (0, 1, 16, 17, 33, 1000)] == [16, 16, 16, 32, 64, 1024]
    assert [rounded_longest(most, 1000, 16) for most in (None, 1, 17, 500, 600, 2000)] == [
        None, 16, 32, 512, None, None,
    ]  # fmt: skip


def test_the_tile_follows_the_types() -> None:
    assert tile_for(HALF, None) == TILE
    assert tile_for(HALF, "32x8x16") == shape_of("32x8x16")
    assert tile_for(Types("f64", "f64", "f64", "f64"), None) == shape_of("8x8x4")


def test_what_an_architecture_cannot_compute() -> None:
    split = Types("bf16", "f32", "f32", "f32")
    for make in (problem, masked, product):
        assert make(types=split, arch="ampere").arch == "ampere"
        with pytest.raises(Unsupported, match="Volta tensor cores have no bf16"):
            make(types=split, arch="volta")
        with pytest.raises(UnknownName, match=r"unknown architecture 'hoper'\. Did you mean"):
            make(arch="hoper")


def test_what_integers_hold_exactly() -> None:
    most = MOST_DIGITS["s8"]
    for one in (problem(2 * most, most, types=INT8), masked(2 * most, 9, types=INT8, longest=most)):
        assert pieces_of(one) == one
    for one, segments in (
        (problem(3 * most, most + 1, types=INT8), 3),
        (masked(3 * most, 3, types=INT8), 6),
    ):
        pieces = pieces_of(one)
        assert (pieces.most, pieces.segments, type(pieces)) == (most, segments, type(one))
    assert product(inner=2**16, types=INT8).inner == 2**16
    with pytest.raises(Unsupported, match="more than 65536 products of int8 do not fit int32"):
        product(inner=2**16 + 1, types=INT8)


def test_no_algorithm_goes_with_offsets() -> None:
    with pytest.raises(Unsupported, match="algorithm='scan_kn' goes with segments of one size"):
        masked(algorithm="scan_kn")
