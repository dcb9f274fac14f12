"""The drawings of the site: readable on a phone, nothing outside a panel, and true to the data."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tcusim
from tcusim_cuda import emit

ROOT = Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"
# The least width of a letter, in shares of the size of its font, of the fonts that we name.
NARROWEST = 0.42


def _tool(name: str) -> ModuleType:
    """Load a module of docs/tools; they belong to no package."""
    sys.path.insert(0, str(ROOT / "docs" / "tools"))
    try:
        return importlib.import_module(name)
    finally:
        del sys.path[0]


figures: Any = _tool("figures")
drawing: Any = _tool("drawing")
draw_code: Any = _tool("draw_code")
draw_idea: Any = _tool("draw_idea")
screens: Any = _tool("screens")


@pytest.fixture(scope="module")
def drawn() -> dict[str, str]:
    return {name: getattr(figures, name)() for name in figures.__all__}


def panels(text: str) -> Iterator[ET.Element]:
    yield from ET.fromstring(text).iter(f"{SVG}svg")


def texts(panel: ET.Element) -> list[str]:
    return ["".join(text.itertext()) for text in panel.iter(f"{SVG}text")]


def sizes() -> dict[str, float]:
    """Return the size of each kind of text, in pixels, as the style has it."""
    found = re.findall(r"text((?:\.\w+)?)[^{}]*\{[^}]*?font(?:-size)?: ([\d.]+)px", drawing.style())
    return {kind.removeprefix("."): float(size) for kind, size in found}


def test_text_is_readable() -> None:
    assert {"", "title", "quiet", "code", "cell"} <= set(sizes())
    assert min(sizes().values()) >= 11


@pytest.mark.parametrize("name", figures.__all__)
def test_a_figure_fits_a_phone(drawn: dict[str, str], name: str) -> None:
    """It is well formed, needs no scaling at 390 pixels, and keeps its text inside."""
    text = drawn[name]
    assert "\n\n" not in text, "Markdown would end the figure there"
    for panel in panels(text):
        assert float(panel.attrib["width"]) <= drawing.WIDEST + 4
        assert panel.attrib["aria-label"]
        left, top, width, height = map(float, panel.attrib["viewBox"].split())
        for one in panel.iter(f"{SVG}text"):
            size = sizes().get(one.attrib.get("class", "").split(" ")[0], sizes()[""])
            length = NARROWEST * size * len("".join(one.itertext()))
            start = (
                float(one.attrib["x"])
                - length * {"start": 0, "middle": 0.5, "end": 1}[one.attrib["text-anchor"]]
            )
            assert left <= start + 1, one.text
            assert start + length <= left + width + 1, one.text
            assert top <= float(one.attrib["y"]) <= top + height, one.text


def test_a_panel_wider_than_a_phone_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 350 wide, for phones; got 351"):
        drawing.Drawing(351, 10, "wide")


def test_alignment_shows_what_explain_tells(drawn: dict[str, str]) -> None:
    """Three GPUs, three results; each digit of the last row is a bit of its result."""
    results = []
    for panel in panels(drawn["alignment"]):
        words = texts(panel)
        shown = re.findall(r"the result is ([0-9a-f]{8})", " ".join(words))
        digits = "".join(word for word in words[words.index("result") :] if word in ("0", "1"))
        value = int(digits, 2) / 2 ** (len(digits) - 1)
        assert [f"{np.float32(value).view(np.uint32):08x}"] == shown
        results += shown
    assert len(set(results)) == len(results) == 3


def test_the_scan_ends_in_its_result(drawn: dict[str, str]) -> None:
    (*_, last) = panels(drawn["scan"])
    numbers = [int(word) for word in texts(last) if word.isdigit()]
    assert numbers[-16:] == np.cumsum(draw_idea._A).astype(int).tolist()


def test_lanes_are_those_of_the_layout(drawn: dict[str, str]) -> None:
    for panel, operand in zip(panels(drawn["lanes"]), "abc", strict=True):
        held = tcusim.layout("m16n8k16", operand, ab="f16", acc="f32")
        cells = [
            int(one.text or "")
            for one in panel.iter(f"{SVG}text")
            if one.attrib.get("class") == "cell"
        ]
        rows, cols = held.size
        assert cells == [
            held.holders(row, col)[0].lane for row in range(rows) for col in range(cols)
        ]


def test_launches_end_in_the_scan(drawn: dict[str, str]) -> None:
    for panel in panels(drawn["launches"]):
        numbers = [int(word) for word in texts(panel) if word.isdigit()]
        assert numbers[-12:] == np.cumsum(numbers[:12]).tolist()


def test_rounds_end_in_the_sum(drawn: dict[str, str]) -> None:
    (panel,) = panels(drawn["tree"])
    numbers = [int(word) for word in texts(panel) if word.isdigit()]
    assert numbers[-8] == sum(numbers[:8])


def test_partial_sums_add_up(drawn: dict[str, str]) -> None:
    (panel,) = panels(drawn["block_sum"])
    *partial, total = [int(word) for word in texts(panel) if word.isdigit()]
    assert len(partial) == 4
    assert sum(partial) == total


def test_dots_are_on_the_roof(drawn: dict[str, str]) -> None:
    """Without reuse, memory limits all programs: each dot is on the slope, in the right order."""
    (panel,) = panels(drawn["roofline"])
    (roof,) = (
        one.attrib["d"] for one in panel.iter(f"{SVG}path") if one.attrib["class"] == "accent-line"
    )
    (x1, y1), (x2, y2), _ = (map(float, point.split()) for point in roof[1:].split("L"))
    dots = [
        (float(one.attrib["x"]) + 4, float(one.attrib["y"]) + 4)
        for one in panel.iter(f"{SVG}rect")
        if one.attrib["class"] == "sum"
    ]
    names = [word for word in texts(panel) if " x " in word or word in ("naive",)]
    assert names == ["naive", "32 x 32", "128 x 128"]
    assert [x for x, _ in dots[:3]] == sorted(x for x, _ in dots[:3])
    assert [y for _, y in dots] == pytest.approx(
        [y1 + (x - x1) / (x2 - x1) * (y2 - y1) for x, _ in dots], abs=0.1
    )


def test_each_step_stands_above_its_statement(drawn: dict[str, str]) -> None:
    text = emit(tcusim.build("reduction_16")).text.replace("wmma::", "")
    (panel,) = panels(drawn["step_to_cuda"])
    statements = [
        one.text or "" for one in panel.iter(f"{SVG}text") if one.attrib.get("class") == "cell"
    ]
    assert len(statements) == 7
    places = [text.index(statement) for statement in statements]
    assert places == sorted(places)


def test_the_picture_of_the_readme_is_up_to_date() -> None:
    """Its words and numbers are those that docs/tools/screens.py draws; run that to renew it."""
    kept, new = (
        re.findall(r">([^<>]+)</text>", svg)
        for svg in (screens.PICTURE.read_text(encoding="utf-8"), screens.picture())
    )
    assert len(kept) > 100
    assert kept == new
    assert str(screens.PICTURE.relative_to(ROOT)) in (ROOT / "README.md").read_text("utf-8")


def test_a_first_call_takes_the_drawn_way() -> None:
    """In a process of its own, since this one may have kept plans."""
    code = (
        "import sys, numpy, tcusim\n"
        "found = []\n"
        "def look(frame, event, _):\n"
        "    name = frame.f_globals.get('__name__', '')\n"
        "    if event == 'call' and name not in found: found.append(name)\n"
        "x = numpy.ones(100, numpy.float16)\n"
        "sys.setprofile(look); tcusim.sum(x); sys.setprofile(None)\n"
        "print(*found)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    way = [module for module, _ in draw_code.WAY]
    assert [name for name in found.stdout.split() if name in way] == way
    assert {name for row in draw_code.layers() for name in row} == set(draw_code.PURPOSES)
