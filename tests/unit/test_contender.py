"""A library's exception, in one line."""

from __future__ import annotations

from tcusim_bench.contender import first_line


def test_the_first_line_of_an_error() -> None:
    assert first_line(ValueError("one\ntwo")) == "ValueError: one"
    assert first_line(ValueError("  ")) == "ValueError: "
    assert len(first_line(ValueError("x" * 999))) == 300
