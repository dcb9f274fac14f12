"""One unit of a grid, evaluated: its numbers are those of the parts that make them."""

from __future__ import annotations

from typing import Any

import pytest

from tcusim.errors import InputError
from tcusim.judge.accuracy import predicted_error
from tcusim.judge.explore.axes import Grid, Point
from tcusim.judge.explore.metrics import Settings, best_for_tile, evaluate, unit_at
from tcusim.machine import Fused, Rule, unit_of

FEW = ("reduction_kn", "scan_kn")


def rows(settings: Settings | None = None, **given: Any) -> list[Any]:
    grid = Grid.of(**given)
    settings = settings or Settings(64, "same_sign", False, FEW)
    return [evaluate(grid, settings, point) for point in grid.points()]


def test_a_point_becomes_a_unit() -> None:
    grid = Grid.of()
    unit = unit_at(grid, Point(8, 4, 12, "f16", "f32", 6, 19, "rne", "rne"))
    assert [one.name for one in unit.shapes] == ["8x4x12"]
    how = Fused(6, 19, output="rne", alignment="rne")
    assert {row.how for row in unit.arch.rows if row.ab == "f16"} == {how}


def test_waste_is_what_is_left_of_the_tile() -> None:
    (row,) = rows(tile="8x4x12", fused_length=4)
    assert row.sums_waste == pytest.approx(1 - 1 / (8 * 4 * 12 * row.sums_mma))
    assert row.sums_algorithm == "reduction_kn"
    assert row.scans_algorithm == "scan_kn"


def test_errors_are_predicted_and_measured_when_asked() -> None:
    settings = Settings(256, "same_sign", True, FEW)
    (row,) = rows(settings, tile="4x4x4", fraction_bits=12, fused_length=4)
    assert row.error == predicted_error(row_rule(12), "same_sign", 256, k=4)
    assert 0.5 < row.measured / row.error < 2
    (row,) = rows(tile="4x4x4", fraction_bits=12, fused_length=4)
    assert row.measured is None
    with pytest.raises(InputError, match="measure takes sums of up to 65,536 terms"):
        Settings(2**17, "same_sign", True, FEW)


def row_rule(fraction_bits: int) -> Rule:
    return Rule("f16", "f32", Fused(4, fraction_bits), "invented", "assumed")


def test_overflow_has_no_error_and_a_note() -> None:
    settings = Settings(2**20, "same_sign", False, FEW)
    (row,) = rows(settings, acc="f16", output_rounding="rne", fused_length=64, k=64, m=4, n=4)
    assert row.error is None
    assert "overflow: a sum is beyond what f16 holds" in row.notes


def test_units_like_another_do_as_many_multiply_adds_a_cycle() -> None:
    grid = Grid.of(tile="16x16x16,16x16x8", like="h200")
    whole: Any
    half: Any
    whole, half = (unit_at(grid, point) for point in grid.points())
    times: Any = [unit.instruction(unit.shapes[0].name, "f16", "f32") for unit in (whole, half)]
    assert times[0].interval.value == 2 * times[1].interval.value
    own: Any = unit_of("h200").instruction("16x16x16", "f16", "f32")
    assert (times[0].interval.value, times[0].latency.value) == (
        own.interval.value,
        own.latency.value,
    )
    assert half.clock.value == getattr(unit_of("h200").clock, "value", None)
    assert half.arch.rows[0].how.fraction_bits == 24


def test_known_figures_give_times() -> None:
    timed, alone = (rows(tile="8x8x4", fused_length=4, like=like)[0] for like in ("h200", None))
    assert timed.sums_seconds > 0
    assert alone.sums_seconds is None


def test_units_of_one_tile_share_what_is_found_for_it() -> None:
    """A prediction of the times of all algorithms takes a second; a grid would have many."""
    best_for_tile.cache_clear()
    found = rows(tile="8x8x4", fused_length=4, fraction_bits="20:24", like="h200")
    assert len({row.sums_seconds for row in found}) == 1
    assert best_for_tile.cache_info().misses == 1


def test_the_fewest_products_are_best() -> None:
    few = ("reduction_kn", "reduction_tn", "scan_kn")
    (row,) = rows(Settings(64, "same_sign", False, few), tile="4x8x4", fused_length=4)
    # Data in the larger operand: 8 columns of b, so 32 elements a product, and a quarter is useful.
    best = (row.sums_algorithm, row.sums_side, row.sums_mma, row.sums_waste)
    assert best == ("reduction_kn", "b", 1 / 32, 0.75)
    assert row.scans_algorithm == "scan_kn"
    assert row.scans_mma >= row.sums_mma


def test_what_no_algorithm_does_is_none() -> None:
    (row,) = rows(Settings(64, "same_sign", False, ("scan_kn",)), tile="4x8x4", fused_length=4)
    assert row.sums_algorithm is None
    assert row.scans_algorithm == "scan_kn"
