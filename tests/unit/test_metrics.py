"""One unit of a grid, evaluated: its numbers are those of the parts that make them."""

from __future__ import annotations

from typing import Any

import pytest

from tcusim.machine import Fused
from tcusim.sweep.axes import Grid, Point
from tcusim.sweep.metrics import Settings, evaluate, unit_at

FEW = ("reduction_kn", "scan_kn")


def rows(settings: Settings | None = None, **given: Any) -> list[Any]:
    grid = Grid.of(**given)
    return evaluate(
        grid, settings or Settings(64, "same_sign", False, FEW), [*enumerate(grid.points())]
    )


def test_a_point_becomes_a_unit() -> None:
    grid = Grid.of()
    unit = unit_at(grid, Point(8, 4, 12, "f16", "f32", 6, 19, "rne", "rne"))
    assert [one.name for one in unit.shapes] == ["8x4x12"]
    how = Fused(6, 19, output="rne", alignment="rne")
    assert {row.how for row in unit.arch.rows if row.ab == "f16"} == {how}


def test_waste_is_what_is_left_of_the_tile() -> None:
    (row,) = rows(tile="8x4x12", fused_length=4)
    assert row.sums.waste == pytest.approx(1 - 1 / (8 * 4 * 12 * row.sums.mma))
    assert row.sums.algorithm == "reduction_kn"
    assert row.scans.algorithm == "scan_kn"
