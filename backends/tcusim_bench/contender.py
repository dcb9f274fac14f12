"""A contender of the benchmark: one way of a library to solve a problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tcusim_bench.device import Array, Run

__all__ = ["Contender", "first_line"]


@dataclass(frozen=True, slots=True)
class Contender:
    """One way of a library to solve a problem.

    prepare: given the room for the result, does all untimed work and returns the timed call.
    """

    who: str
    label: str
    acc: str
    result: str
    prepare: Callable[[Array], Run]


def first_line(error: BaseException) -> str:
    """Return an error in one line of at most 300 letters."""
    text = str(error).strip().split("\n", 1)[0]
    return f"{type(error).__name__}: {text}"[:300]
