"""A row of an exploration: one flat table, which comes back as it was."""

from __future__ import annotations

import pytest

from tcusim.judge.explore.axes import Point
from tcusim.judge.explore.row import COLUMNS, METRICS, Done, Row, row_of_json

POINT = Point(8, 32, 16, "f16", "f32", 8, 20, "rz", "rne")
DONE = Done("scan_t L(A1)", "b", 0.25, 0.5, 1e-6)


@pytest.mark.parametrize(
    "row",
    [
        Row(POINT, error=1e-7, measured=2e-7, area=3.0, sums=DONE, scans=None, notes=("a: b",)),
        Row(Point(16, 16, 16, "bf16", "f32", unit="h200"), reason="it cannot be"),
    ],
)
def test_a_row_comes_back(row: Row) -> None:
    flat = row.as_json()
    assert tuple(flat) == COLUMNS
    assert row_of_json(flat) == row


def test_metrics_are_columns() -> None:
    row = Row(POINT, error=0.5, sums=DONE)
    assert set(METRICS) < set(COLUMNS)
    assert {name: row.value(name) for name in ("error", "area", "sums_mma", "sums_seconds")} == {
        "error": 0.5,
        "area": None,
        "sums_mma": 0.25,
        "sums_seconds": 1e-6,
    }
