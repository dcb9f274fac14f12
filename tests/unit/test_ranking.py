"""Units that no other beats, and units by a metric."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from tcusim.errors import UnknownName
from tcusim.judge.explore.axes import Point
from tcusim.judge.explore.row import Row, ordered, pairs_of, pareto

POINT = Point(16, 16, 16, "f16", "f32", 8, 20, "rz", "rz")


def row(error: float | None, area: float | None, *, waste: float = 0.5) -> Row:
    return Row(**asdict(POINT), error=error, area=area, sums_mma=0.25, sums_waste=waste)


def test_what_no_other_beats() -> None:
    best = [row(1.0, 9.0), row(2.0, 5.0), row(4.0, 1.0)]
    beaten = [row(1.0, 10.0), row(3.0, 5.0), row(2.0, 6.0), row(None, 0.5), row(0.5, None)]
    rows = [beaten[0], best[1], *beaten[1:], best[2], best[0]]
    assert pareto(rows, "error", "area") == tuple(best)
    assert pareto(rows, "area", "error") == tuple(best[::-1])


def test_equal_units_are_all_kept() -> None:
    rows = (row(1.0, 1.0), row(1.0, 1.0, waste=0.6), row(1.0, 2.0))
    assert pareto(rows, "error", "area") == rows[:2]


def test_rows_without_a_metric_come_last() -> None:
    rows = [row(None, 1.0), row(2.0, 1.0), row(1.0, 9.0)]
    assert ordered(rows, "error") == (rows[2], rows[1], rows[0])
    assert ordered(rows, "area") == tuple(rows)
    with pytest.raises(UnknownName, match="unknown metric 'size'"):
        ordered(rows, "size")


def test_pairs_are_those_in_which_rows_differ() -> None:
    assert pairs_of([row(1.0, 1.0), row(2.0, 3.0)]) == [
        ("error", "area_each"),
        ("error", "sums_energy"),
    ]
    assert pairs_of([row(1.0, None), row(None, 1.0), row(1.0, 2.0)]) == []


def test_the_third_digit_of_an_error_decides_nothing() -> None:
    rows = [row(2.077e-7, 1.0), row(2.076e-7, 2.0), row(2.074e-7, 3.0), row(1.0e-7, 4.0)]
    assert pareto(rows, "error", "area") == (rows[3], rows[0])
