"""Line charts: every point is inside, ticks are round, and an empty chart says so."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from tcusim import line_charts
from tcusim.line_charts import Line, Plot, charts, draw, missing, style

PLOT = Plot("t", (Line("a <b>", ((16.0, 3.0), (2.0**30, 2200.0))),), "x & y", "G/s")


@pytest.mark.parametrize("plot", [PLOT, replace(PLOT, log=True)])
def test_charts_hold_what_they_are_given(plot: Plot) -> None:
    text = draw(replace(plot, level=("limit", 2300.0)))
    chart = ET.fromstring(text)
    places = re.findall(r'<circle[^>]* cx="([\d.]+)" cy="([\d.]+)"', text)
    assert len(places) == 2
    for x, y in places:
        assert line_charts.LEFT <= float(x) <= line_charts.WIDTH
        assert line_charts.TOP - 1 <= float(y) <= line_charts.HEIGHT - line_charts.BOTTOM + 1
    assert len(chart.findall("svg/text")) >= 6
    assert [one.tail for one in chart.findall("ul/li/svg")] == ["a <b>", "limit"]


def test_an_empty_chart_says_so() -> None:
    assert "Nothing of this was recorded." in draw(replace(PLOT, lines=()))
    assert "why &amp; what" in missing("t", "why & what")


def test_points_that_no_line_joins() -> None:
    alone = draw(replace(PLOT, lines=(replace(PLOT.lines[0], joined=False),)))
    assert 'class="line' not in alone
    assert alone.count("<circle") == draw(PLOT).count("<circle") + 1  # the legend's


def test_many_decades_have_few_ticks() -> None:
    wide = replace(PLOT, log=True, lines=(Line("a", ((2.0, 1e-30), (4.0, 1.0))),))
    assert len(ET.fromstring(draw(wide)).findall("svg/text")) < 16


def test_charts_take_their_colours_from_one_style() -> None:
    assert charts([draw(PLOT)]).startswith('<div class="charts">')
    used = set(re.findall(r"\bc\d\b", draw(PLOT)))
    assert used == {"c0"}
    assert ".chart .c0 { --c: var(--c0) }" in style()
    assert "prefers-color-scheme: dark" in style()


def test_a_notebook_shows_a_chart() -> None:
    shown = PLOT._repr_html_()
    assert shown == f"<style>{style()}</style>\n{draw(PLOT)}"
