"""Explorations as tables, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from tcusim.errors import UnknownName
from tcusim.judge.explore.axes import Grid, Point
from tcusim.judge.explore.metrics import Settings
from tcusim.judge.explore.results import Exploration
from tcusim.judge.explore.row import COLUMNS, EXTRA, Row, row_of_json

POINT = Point(16, 16, 16, "f16", "f32", 8, 20, "rz", "rz")


def row(error: float | None, area: float | None, *, waste: float = 0.5, reason: str = "") -> Row:
    point: Any = asdict(POINT)
    best: Any = {"sums_algorithm": "reduction_k", "sums_side": "a"}
    return Row(**point, reason=reason, error=error, area=area, sums_waste=waste, **best)


def exploration(*rows: Row) -> Exploration:
    return Exploration(Grid.of(), Settings(64, "same_sign", False, ()), rows)


def test_the_table_is_sorted_and_cut() -> None:
    found = exploration(row(3.0, 1.0), row(None, 2.0), row(1.0, 3.0), row(9.0, 9.0, reason="no"))
    by_error = [line[found.table().header.index("error")] for line in found.table().rows]
    assert by_error == ["1", "3", ""]
    first = found.table("area", 2)
    by_area = [line[first.header.index("area")] for line in first.rows]
    assert by_area == ["1", "2"]
    assert found.reasons() == ["1 not possible, such as 16x16x16 f16→f32 F=20 L=8 rz: no"]
    for wrong in (found.table, found.pareto, found.ordered):
        with pytest.raises(
            UnknownName, match=r"unknown metric 'size'\. Valid: area, area_each, energy, error"
        ):
            wrong("size")


def test_csv_and_json_have_every_row() -> None:
    rows = (row(3.0, 1.0), row(None, None, reason="so, and so"))
    found = exploration(*(replace(one, notes=("a", "b")) for one in rows))
    lines = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert list(lines[0]) == [*COLUMNS, *EXTRA]
    assert [line["reason"] for line in lines] == ["", "so, and so"]
    assert lines[0]["notes"] == "a; b"
    assert float(lines[0]["sums_waste"]) == 0.5
    read = json.loads(found.to_json())
    assert [list(one) for one in read["rows"]] == [[*COLUMNS, *EXTRA]] * 2
    assert tuple(map(row_of_json, read["rows"])) == found.rows
    assert read["settings"]["length"] == 64


def test_notebooks_show_a_table() -> None:
    assert "reduction_k a" in exploration(row(3.0, 1.0))._repr_html_()
