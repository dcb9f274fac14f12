"""The page of an exploration: plots of the swept axes, without network."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import asdict, replace
from typing import Any

from tcusim.judge.explore.axes import Grid, Point
from tcusim.judge.explore.metrics import Settings
from tcusim.judge.explore.page import errors_of, fronts_of
from tcusim.judge.explore.results import Exploration
from tcusim.judge.explore.row import Row
from tcusim.line_charts import BOTTOM, HEIGHT

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
    chart = ET.fromstring(next(errors_of(ROWS)))
    assert [one.tail for one in chart.findall("ul/li/svg")] == ["L = 4", "L = 8"]
    assert len(chart.findall("svg/circle")) == 20
    title = chart.find("figcaption")
    assert title is not None
    assert title.text == "Error: k = 16, f16 to f32, rz"


def test_pairs_of_metrics_show_every_unit_and_those_that_exist() -> None:
    named = replace(ROWS[0], unit="h200")
    pair = next(fronts_of([*ROWS, named]))
    assert "no other is better in both" in pair
    assert "units that exist" in pair
    # Units are dots, and the best of them a line.
    assert pair.count('<path class="line') == 2


def test_the_units_of_a_front_are_named_and_marked_by_their_numbers() -> None:
    beaten = replace(ROWS[0], error=1.0, area=27.0)
    found = replace(FOUND, rows=(beaten, *ROWS))
    pair = next(fronts_of(found.rows))
    # L = 4 and L = 8 with as many bits are one place.
    labels = dict.fromkeys(re.findall('class="label"[^>]*>([^<]*)<', pair))
    assert list(labels) == [f"{n}, {n + 10}" for n in range(2, 12)]
    assert "<p>2, 12: 16x16x16 f16→f32 F=16 L=4 rz</p>" in pair
    marked = {line["number"]: line["best_in"] for line in found.as_json()["rows"]}
    assert marked[1] == []
    assert all("error/area_each" in marked[n] for n in range(2, 22))
    table = found.table()
    at = table.header.index("best in")
    assert {int(row[0]): bool(row[at]) for row in table.rows} == {
        number: bool(best) for number, best in marked.items()
    }


def test_axes_are_logarithmic_where_values_span_decades() -> None:
    def ticks(*areas: float) -> list[str]:
        rows = [replace(row, area=4096 * area) for row, area in zip(ROWS, areas, strict=False)]
        chart = ET.fromstring(next(fronts_of(rows)))
        bottom = f"{HEIGHT - BOTTOM + 14}"
        return [
            "".join(one.itertext()) for one in chart.findall("svg/text") if one.get("y") == bottom
        ]

    assert ticks(100.0, 150.0, 300.0) == ["100", "150", "200", "250", "300"]
    assert ticks(100.0, 3e3, 3e7) == ["100", "1,000", "104", "105", "106", "107"]
    assert ticks(100.0, 3e3) == ["100", "200", "500", "1,000", "2,000"]


def test_a_page_has_its_origin() -> None:
    assert "tcusim explore --m 8" in FOUND.to_html("tcusim explore --m 8")


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
    assert "nothing is rounded" in next(errors_of(exact))
