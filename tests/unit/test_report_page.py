"""A verdict as a page: it stands alone, and nothing in it is taken for HTML."""

from __future__ import annotations

import re
from dataclasses import replace

from judged import chip, judge
from tcusim.judge.verdict.report_page import fragment_of, page_of


def test_a_page_stands_alone_and_has_everything() -> None:
    verdict = judge("4x4x4", chip("a b"), reference="16x16x16")
    text = page_of(verdict.units, verdict.reference)
    assert "<title>Is it any good? 4x4x4, a b</title>" in text
    assert not re.search(r"https?:|<script|src=|url\(", text)
    assert (
        len(re.findall('<th scope="row">(?:best|cost|precision|bound|not tested)</th>', text)) == 10
    )
    for title in ("Beside each other", "Counts on 4x4x4", "Correctness on exact integers"):
        assert title in text
    assert "prefers-color-scheme: dark" in text


def test_bars_are_as_long_as_their_numbers() -> None:
    verdict = judge("4x4x4", "8x4x4")
    text = fragment_of(verdict.units, None)
    short, long = (float(width) for width in re.findall(r'style="width: ([\d.]+)%"', text)[:2])
    assert long == 2 * short == 60
    assert "elements that one mma takes" in text


def test_names_are_escaped() -> None:
    (unit,) = judge("4x4x4").units
    text = fragment_of([replace(unit, name="<b>", title="1 < 2")], None)
    assert "<b>" not in text
    assert "1 &lt; 2" in text
