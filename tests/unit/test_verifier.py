"""`tcusim.verify` accepts correct programs, remembers them, and runs checks that have tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from planted import CORRECT, scan
from tcusim.program.checks.verifier import CHECKS, _verify_once, problems, verify
from tcusim.program.grammar import Program


@pytest.mark.parametrize("build", CORRECT)
def test_correct_programs_pass(build: Callable[[], Program]) -> None:
    verify(build())
    assert problems(build()) == []


def test_every_check_has_a_docstring_and_a_test_of_its_text() -> None:
    files = Path(__file__).parent.glob("test_*.py")
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    for name, check in CHECKS.items():
        assert check.__doc__
        assert f'"{name}"' in text


def test_verify_is_remembered() -> None:
    _verify_once.cache_clear()
    verify(scan())
    verify(scan())
    assert _verify_once.cache_info().hits == 1
