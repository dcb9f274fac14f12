"""Some of many cases, where trying each takes minutes: `pytest --full` tries them all.

Tests of one kind begin in different places, so that together they try everything. Of a product of
options, a step that shares no factor with their numbers of values gives each value its turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from _pytest.mark import ParameterSet

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Some:
    """Takes a part of many cases; all of them if `full`. The fixture `some` is one."""

    full: bool

    def __call__(self, many: Iterable[Item], step: int, start: int = 0) -> list[Item]:
        """Return every `step`-th from `start` on, counted round: at least one."""
        every = list(many)
        return every if self.full else every[start % min(step, len(every) or 1) :: step]


def marked(many: Sequence[Any], step: int, start: int = 0) -> list[ParameterSet]:
    """Return values for `parametrize`; only --full tries more than every `step`-th."""
    kept = set(Some(full=False)(range(len(many)), step, start))
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=() if number in kept else pytest.mark.full,
        )
        for number, case in enumerate(many)
    ]
