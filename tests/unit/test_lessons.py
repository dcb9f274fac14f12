"""Checks of exercises report right, not done yet, or the mistake."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np
import pytest

from tcusim.lessons import check, equal

A = np.arange(4).reshape(2, 2)


@pytest.mark.parametrize(
    ("answer", "expected", "ok"),
    [
        (None, 3, None),
        ([1, None], [1, 2], None),
        ({"a": (1, None)}, {}, None),
        (3.0, 3, True),
        (4, 3, False),
        ((1, [2]), [1, (2,)], True),
        ([1, 2], [1], False),
        ([1, 2], 1, False),
        (A, A.astype(np.float16), True),
        (A, A.tolist(), True),
        (A, A.ravel(), False),
        (A, [[0, 1], [2]], False),
        ([A, 1], [A, 1], True),
        ({"a": A}, {"a": A}, True),
        ({"a": 1}, {"b": 1}, False),
        ("x", "x", True),
    ],
)
def test_equal(answer: Any, expected: Any, ok: bool | None) -> None:
    assert equal(answer, expected) is ok


def test_what_a_check_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check("1.1 Sums", True, "")
    check("1.2 Rows", None, "")
    assert capsys.readouterr().out == "1.1 Sums: right\n1.2 Rows: not done yet\n"
    with pytest.raises(AssertionError, match=r"^1.3 Columns: not right. Transpose.$"):
        check("1.3 Columns", np.bool_(False), "Transpose.")
    # In a notebook the cells after it still run.
    monkeypatch.setattr(builtins, "__IPYTHON__", True, raising=False)
    check("1.3 Columns", False, "Transpose.")
    assert capsys.readouterr().out == "1.3 Columns: not right. Transpose.\n"
