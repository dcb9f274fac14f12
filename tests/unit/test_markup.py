"""What all HTML shares."""

from __future__ import annotations

from tcusim.markup import page, scrolling, themed


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
