"""The words of the screen: every key is named, and explanations are those of `explain`."""

from __future__ import annotations

import tcusim
from tcusim.stepper.screen.app import StepApp
from tcusim.stepper.screen.words import HELP, KEYS, LEGEND_LINE, explained


def test_every_key_is_told_and_does_something() -> None:
    for keys, action, what, _ in KEYS:
        assert what in HELP.plain
        name = action.partition("(")[0]
        assert hasattr(StepApp, f"action_{name}"), keys
    every = [key for keys, *_ in KEYS for key in keys.split(",")]
    assert len(every) == len(set(every))


def test_lines_fit_a_common_terminal() -> None:
    # There is a blank on both sides.
    assert len(LEGEND_LINE) <= 78
    assert max(map(len, HELP.plain.splitlines())) <= 78


def test_an_explanation_is_told_word_for_word() -> None:
    told = tcusim.explain([1.0, 1.0], [2.0**-24, 2.0**-24], 1.0, arch="volta")
    text = explained(told)
    assert text.plain == told.to_text()
    lost = [text.plain[span.start : span.end] for span in text.spans if "red" in str(span.style)]
    assert "[1]" in lost
