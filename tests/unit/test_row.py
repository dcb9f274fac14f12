"""A row of an exploration: one flat table; it comes back as it was."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from tcusim.judge.explore.axes import Point
from tcusim.judge.explore.row import COLUMNS, METRICS, Row, row_of_json

POINT: Any = asdict(Point(8, 32, 16, "f16", "f32", 8, 20, "rz", "rne"))
DONE: Any = {"sums_algorithm": "scan_t L(A1)", "sums_side": "b", "sums_mma": 0.25}
TIMED: Any = {"sums_waste": 0.5, "sums_seconds": 1e-6}


@pytest.mark.parametrize(
    "row",
    [
        Row(**POINT, error=1e-7, measured=2e-7, area=3.0, notes=("a: b",), **DONE, **TIMED),
        Row(16, 16, 16, "bf16", "f32", unit="h200", reason="it cannot be"),
    ],
)
def test_a_row_comes_back(row: Row) -> None:
    flat = row.as_json()
    assert tuple(flat) == COLUMNS
    assert row_of_json(flat) == row


def test_metrics_are_columns() -> None:
    row = Row(**POINT, error=0.5, **DONE, **TIMED)
    assert set(METRICS) < set(COLUMNS)
    assert {name: row.value(name) for name in ("error", "area", "sums_mma", "sums_seconds")} == {
        "error": 0.5,
        "area": None,
        "sums_mma": 0.25,
        "sums_seconds": 1e-6,
    }
