"""The common parts of all HTML."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tcusim
from tcusim.markup import listing, page, scrolling, themed


def test_a_page_stands_alone() -> None:
    text = page("1 < 2", "<p>body</p>")
    assert text.startswith("<!DOCTYPE html>")
    assert "<title>1 &lt; 2</title>" in text
    assert "<h1>1 &lt; 2</h1>\n<p>body</p>" in text
    assert "http" not in text


def test_who_shows_a_fragment_decides_on_its_colours() -> None:
    style = themed(".box", "--a: light", "--a: dark")
    assert style.startswith(".box { --a: light }")
    assert "(prefers-color-scheme: dark) { .box { --a: dark } }" in style
    assert '[data-jp-theme-light="false"] .box' in style.splitlines()[-1]
    assert style.splitlines()[-1].endswith("{ --a: dark }")


def test_labels_are_escaped() -> None:
    assert 'aria-label="&quot;x&quot;"' in scrolling('"x"')


def test_a_listing_is_its_head_and_its_steps() -> None:
    text = listing("name", "head <x>\n\n1  step\n2  step\n")
    assert "<pre>head &lt;x&gt;</pre></details>" in text
    assert "<pre>1  step\n2  step</pre>" in text


# --- Notebooks --------------------------------------------------------------------------------


@pytest.fixture(name="texts", scope="module")
def all_texts() -> dict[str, str]:
    """Return a notebook's view of each kind of object."""
    program = tcusim.build("scan_256")
    events = tcusim.interpret(program, {"in": np.arange(256).astype(np.float16)})
    return {
        "Program": program._repr_html_(),
        "Event": next(one for one in events if one.path == "6")._repr_html_(),
        "Plan": tcusim.plan("sum", length=10**6)._repr_html_(),
        "ShapeReport": tcusim.validate_shape("4x4x4", algorithms=["reduction_t"])._repr_html_(),
    }


def test_what_notebooks_show_is_small_and_asks_for_nothing(texts: dict[str, str]) -> None:
    for text in texts.values():
        assert text.startswith('<div class="tcusim-shown"><style>')
        assert len(text) < 12_000
        assert not re.search(r"https?:|<script|url\(", text)
        assert "prefers-color-scheme: dark" in text


def test_notebooks_show_what_text_says(texts: dict[str, str]) -> None:
    assert "LoadTile(in[256*block" in texts["Program"]
    assert "</strong> <code>AU ← A·U + S</code> in 1 warp" in texts["Event"]
    # The last row of A times the ones of U begins with 240, and 240 + 241.
    assert "<td>240</td><td>481</td>" in texts["Event"]
    assert '<th scope="row">strategy</th>' in texts["Plan"]
    assert "reduction_t" in texts["ShapeReport"]
    assert "all right" in texts["ShapeReport"]
