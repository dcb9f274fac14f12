"""What commands print: JSON that every reader takes, and a bar on terminals alone."""

from __future__ import annotations

import json

import pytest

from tcusim.cli.output import examples, json_text, progress


def test_json_has_texts_for_what_is_no_number() -> None:
    value = {"worst": [float("inf"), -float("inf"), float("nan"), 1.5], "type": "f16→f32"}
    text = json_text(value)
    assert json.loads(text) == {"worst": ["Infinity", "-Infinity", "NaN", 1.5], "type": "f16→f32"}
    assert "f16→f32" in text


def test_nothing_is_drawn_where_no_terminal_is(capfd: pytest.CaptureFixture[str]) -> None:
    with progress("computing") as draw:
        assert draw is None
    assert capfd.readouterr() == ("", "")


def test_examples_keep_their_lines() -> None:
    assert examples("a", "b").splitlines() == ["\b", "Examples:", "  a", "  b"]
