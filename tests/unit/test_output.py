"""Output of commands: JSON that every reader takes, and a bar on terminals only."""

from __future__ import annotations

import json
import time

import pytest

from command_line import tcusim_command
from tcusim.cli import output
from tcusim.cli.output import duration, examples, json_text, progress


def test_json_has_texts_for_what_is_no_number() -> None:
    value = {"worst": [float("inf"), -float("inf"), float("nan"), 1.5], "type": "f16→f32"}
    text = json_text(value)
    assert json.loads(text) == {"worst": ["Infinity", "-Infinity", "NaN", 1.5], "type": "f16→f32"}
    assert "f16→f32" in text


def test_nothing_is_drawn_where_no_terminal_is(capfd: pytest.CaptureFixture[str]) -> None:
    with progress("computing") as draw:
        assert draw is None
    with progress("computing", of="units") as draw:
        assert draw is not None
        draw(1, 2)
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the lines about long work begin at once."""
    monkeypatch.setattr(output, "_SOON", 0.01)
    monkeypatch.setattr(output, "_PAUSE", 0.03)


@pytest.mark.usefixtures("soon")
def test_lines_tell_what_is_done_where_no_terminal_is(capfd: pytest.CaptureFixture[str]) -> None:
    """Work that takes long says so on stderr, whoever reads stdout."""
    seen = {}
    for of, estimate in (("programs", ""), ("", "roughly 40 seconds")):
        with progress("computing", of=of, estimate=estimate) as draw:
            assert draw is not None
            draw(0, 2000)
            time.sleep(0.02)
            draw(500, 2000)
            time.sleep(0.08)
        out, seen[of] = capfd.readouterr()
        assert out == ""
    first, *more = seen["programs"].splitlines()
    assert first == "computing: 2,000 programs"
    assert set(more) == {"computing: 500 of 2,000 programs, roughly 2 seconds left"}
    first, *more = seen[""].splitlines()
    assert first == "computing: roughly 40 seconds"
    assert set(more) == {"computing: 25%, roughly 2 seconds left"}


@pytest.mark.parametrize(
    "words",
    [
        ("validate", "2x2x2", "reduction_kn"),
        ("agree", "reduction_k", "--backend", "numpy", "--tile", "16x16x16", "--jobs", "1"),
        ("explore", "--tile", "5x3x7,7x5x3", "--algorithm", "reduction_kn", "--jobs", "1"),
    ],
    ids=lambda words: words[0],
)
@pytest.mark.usefixtures("soon")
def test_commands_that_take_long_tell_what_is_done(words: tuple[str, ...]) -> None:
    quiet = tcusim_command(*words, "--help")
    assert quiet.stderr == ""
    result = tcusim_command(*words)
    assert result.exit_code == 0, result.output
    said = result.stderr.splitlines()
    assert said, "a reader of a pipe would not know whether it runs"
    assert all(line.startswith(("validating: ", "comparing: ", "exploring: ")) for line in said)


def test_times_are_told_roughly() -> None:
    assert [duration(one) for one in (0, 60, 119, 120, 8000, 10**6)] == [
        *("2 seconds", "60 seconds", "119 seconds", "2 minutes", "2 hours", "12 days")
    ]


def test_examples_keep_their_lines() -> None:
    assert examples("a", "b").splitlines() == ["\b", "Examples:", "  a", "  b"]
