"""Grids: the meaning of ranges, and requests that are refused."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tcusim.errors import InputError, UnknownName
from tcusim.judge.explore.axes import AXES, Grid
from tcusim.machine import fused_unit, unit_of


@pytest.mark.parametrize(
    ("name", "given", "values"),
    [
        ("m", "4:64", (4, 8, 16, 32, 64)),
        ("m", "4:60", (4, 8, 16, 32)),
        ("fused_length", "3:20", (3, 6, 12)),
        ("fraction_bits", "12:15", (12, 13, 14, 15)),
        ("m", "4:16:6", (4, 10, 16)),
        ("fraction_bits", "3, 20:22,25", (3, 20, 21, 22, 25)),
        ("k", [16, "4:8", 16], (16, 4, 8)),
        ("fraction_bits", range(3, 6), (3, 4, 5)),
        ("n", 7, (7,)),
        ("alignment", "rne,rz", ("rne", "rz")),
        ("ab", ["bf16", "f16"], ("bf16", "f16")),
        ("ab", "e5m3, f16", ("e5m3", "f16")),
    ],
)
def test_what_is_given_becomes_values(name: str, given: Any, values: tuple[int | str, ...]) -> None:
    assert AXES[name].values(name, given) == values


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"m": "8:4"}, "m: 8:4 is no range of numbers from 1 on; the least comes first"),
        ({"m": 0}, "m: 0 is no range of numbers from 1 on"),
        ({"m": "4:8:0"}, "m: 4:8:0 is no range"),
        ({"m": "many"}, "m must be whole numbers such as 4,8,16; a range 4:64, doubled"),
        ({"fraction_bits": 2.5}, "fraction_bits must be whole .*, one by one; .*got 2.5"),
        ({"fraction_bits": ()}, "fraction_bits has no values; leave it out for 24"),
        ({"output_rounding": "up"}, "unknown output_rounding 'up'"),
        ({"bits": 3}, "unknown axis 'bits'"),
        ({"tile": "16x16x16", "n": 4}, "tile and n are two ways to say one thing"),
        ({"tile": 16}, "tile must be tiles such as"),
        ({"tile": "16x16"}, "16x16"),
        ({"m": "1:1000:1", "n": "1:1000:1", "k": "1:2"}, "the grid has 2,000,000 units, and 1,000"),
        ({"units": ["nothing"]}, "unknown unit or architecture 'nothing'"),
    ],
)
def test_what_cannot_be(given: dict[str, Any], text: str) -> None:
    with pytest.raises((InputError, UnknownName), match=text):
        Grid.of(**given)


def test_every_combination_is_a_point_in_order() -> None:
    grid = Grid.of(tile="16x16x16,8x32x16", fraction_bits="20:21", output_rounding="rz,rne")
    points = list(grid.points())
    assert len(points) == len(grid) == len(set(points)) == 8
    assert [point.tile for point in points] == ["16x16x16"] * 4 + ["8x32x16"] * 4
    assert [(one.fraction_bits, one.output_rounding) for one in points[:4]] == [
        *((20, "rz"), (20, "rne")),
        *((21, "rz"), (21, "rne")),
    ]


def test_units_that_exist_have_a_point_for_each_tile_that_takes_the_types() -> None:
    grid = Grid.of(units=["h200"], ab="f16,s8", acc="f32")
    named = [point for point in grid.points() if point.unit]
    taken = [one for one in unit_of("h200").shapes if one.supports("f16", "f32")]
    assert [point.tile for point in named if point.ab == "f16"] == [one.name for one in taken]
    # No tile takes s8 to f32: the row of this point says so.
    assert [point.ab for point in named].count("s8") == 1
    assert grid.unit_of(named[0]) == unit_of("h200")


def test_equal_grids_alone_are_described_equally() -> None:
    one = Grid.of(fraction_bits="16:18", units=[fused_unit(4, 20)])
    assert one.as_json() == Grid.of(fraction_bits=[16, 17, 18], units=[fused_unit(4, 20)]).as_json()
    assert one.as_json() != Grid.of(fraction_bits="16:18", units=[fused_unit(4, 21)]).as_json()
    assert one.as_json() != Grid.of(fraction_bits="16:18").as_json()
    assert one.as_json() != Grid.of(fraction_bits="16:18", like="h200").as_json()
    assert re.search(r'"fraction_bits": \[16, 17, 18\]', json.dumps(one.as_json()))


def test_units_alone_bring_no_invented_one_and_tell_their_arithmetic() -> None:
    alone = Grid.of(units=["h200", "v100"])
    assert {point.unit for point in alone.points()} == {"h200", "v100"}
    found = {
        (one.unit, one.fused_length, one.fraction_bits, one.output_rounding)
        for one in alone.points()
    }
    assert found == {("h200", 16, 25, "rz"), ("v100", 4, 23, "rz")}
    assert len(alone) == len(list(alone.points()))
    assert {point.unit for point in Grid.of(units=["h200"], fraction_bits=20).points()} == {
        "",
        "h200",
    }


def test_units_that_compute_alike_are_one() -> None:
    """A tile of four products has no step of eight: one unit, for any name of the length."""
    grid = Grid.of(tile="4x4x4,16x16x16", fused_length=(2, 4, 8, 16), fraction_bits=(20, 22))
    points = list(grid.points())
    assert len(points) == len(grid) == len(set(points)) == 2 * (2 + 4)
    assert all((one.fused_length or 0) <= one.k for one in points)
