"""The page of an exploration: plots of the swept axes, without network."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import asdict, replace
from typing import Any

from tcusim.judge.explore.axes import Grid, Point
from tcusim.judge.explore.metrics import Settings
from tcusim.judge.explore.page import plots_of
from tcusim.judge.explore.results import Exploration
from tcusim.judge.explore.row import Row

DONE: Any = {"sums_algorithm": "reduction_k", "sums_side": "a", "sums_mma": 0.25, "sums_waste": 0.5}
POINTS = [
    Point(16, 16, 16, "f16", "f32", length, bits, "rz", "rz")
    for length in (4, 8)
    for bits in range(16, 26)
]
ROWS = tuple(
    Row(**asdict(one), error=2.0 ** -(one.fraction_bits or 0), area=one.fraction_bits, **DONE)
    for one in POINTS
)
FOUND = Exploration(Grid.of(), Settings(64, "same_sign", False, ()), ROWS)


def test_there_is_a_line_for_each_length_with_a_point_for_each_f() -> None:
    chart = ET.fromstring(next(plots_of(ROWS)))
    assert [one.tail for one in chart.findall("ul/li/svg")] == ["L = 4", "L = 8"]
    assert len(chart.findall("svg/circle")) == 20
    title = chart.find("figcaption")
    assert title is not None
    assert title.text == "Error: k = 16, f16 to f32, rz"


def test_pairs_of_metrics_show_every_unit_and_those_that_exist() -> None:
    named = replace(ROWS[0], unit="h200")
    _, pair, *_ = plots_of([*ROWS, named])
    assert "no other is better in both" in pair
    assert "units that exist" in pair
    # Units are dots, and the best of them a line.
    assert pair.count('<path class="line') == 2


def test_a_page_stands_alone_and_says_what_it_leaves_out() -> None:
    text = replace(FOUND, rows=(*ROWS * 11, Row(**asdict(POINTS[0]), reason="a <b>"))).to_html()
    assert "The table has the first 200 of 220 units; all are in the CSV and JSON" in text
    assert "a &lt;b&gt;" in text
    assert not re.search(r"(?:src|href)=|@import|url\(", text)


def test_a_page_of_nothing_has_the_reasons() -> None:
    text = replace(FOUND, rows=(Row(**asdict(POINTS[0]), reason="it cannot be"),)).to_html()
    assert "it cannot be" in text
    assert "<h2>Plots</h2>" not in text


def test_what_rounds_nothing_is_said() -> None:
    exact = tuple(replace(row, error=0.0) for row in ROWS)
    assert "nothing is rounded" in next(plots_of(exact))
