"""Check the exercises of the lessons, in a script and in a notebook.

An exercise is a function that the reader completes. Its check compares the result with the
right one, and says one of three things: right, not done yet, or the fault and the place to look.
"""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

__all__ = ["check", "equal"]


def check(title: str, ok: bool | np.bool_ | None, otherwise: str) -> None:
    """Say whether an exercise is solved.

    Parameters
    ----------
    title : str
        The exercise, such as ``"1.1 Sums of rows"``.
    ok : bool or None
        Whether the answer is right; None if there is no answer yet, see `equal`.
    otherwise : str
        The fault if it is not right, and the place to look.

    Raises
    ------
    AssertionError
        If the answer is wrong, with `title` and `otherwise`. A notebook prints them instead, so
        that its other cells still run.
    """
    if ok is None:
        print(f"{title}: not done yet")
    elif ok:
        print(f"{title}: right")
    elif hasattr(builtins, "__IPYTHON__"):
        print(f"{title}: not right. {otherwise}")
    else:
        raise AssertionError(f"{title}: not right. {otherwise}")


def equal(answer: Any, expected: Any) -> bool | None:
    """Compare an answer with the expected one, exactly: values, and shapes of arrays.

    Parameters
    ----------
    answer, expected : object
        Anything that `==` compares, arrays, and lists, tuples and dicts of them. A list and a tuple
        of equal elements are equal, and so is an array of them; dtypes do not matter.

    Returns
    -------
    bool or None
        None if the answer is None, or holds one: the exercise is not done yet.
    """
    return None if _has_none(answer) else _same(answer, expected)


def _has_none(answer: Any) -> bool:
    if isinstance(answer, dict):
        answer = list(answer.values())
    if isinstance(answer, list | tuple):
        return any(map(_has_none, answer))
    return answer is None


def _same(answer: Any, expected: Any) -> bool:
    if isinstance(answer, np.ndarray) or isinstance(expected, np.ndarray):
        return np.array_equal(answer, expected)
    if isinstance(answer, dict) and isinstance(expected, dict):
        keys = answer.keys()
        return keys == expected.keys() and all(_same(answer[key], expected[key]) for key in keys)
    if isinstance(answer, list | tuple) and isinstance(expected, list | tuple):
        many = len(answer) == len(expected)
        return many and all(map(_same, answer, expected))
    return bool(answer == expected)
