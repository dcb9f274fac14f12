"""A verdict on the functions on arrays, on a unit's tiles and in its types."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tcusim.errors import Unsupported
from tcusim.judge.verdict import on_arrays as module
from tcusim.judge.verdict.lines import lines_of
from tcusim.judge.verdict.on_arrays import OnArrays, on_arrays
from tcusim.judge.verdict.subjects import subject_of
from tcusim.judge.verdict.validate import validate


@pytest.mark.parametrize(
    ("named", "types"),
    [
        ("5x7x3", {"ab": "f16", "acc": "f16"}),
        ("8x8x4", {"arch": "volta"}),
        ("8x48x12", {"ab": "s8", "acc": "s32", "arch": "hopper"}),
        ("2x2x2", {"ab": "f64", "acc": "f64", "arch": "ieee"}),
    ],
)
def test_all_is_right_on_tiles_of_all_kinds(named: str, types: dict[str, Any]) -> None:
    (found,) = on_arrays(subject_of(named, **types))
    assert found == OnArrays(named, 35)
    assert str(found) == f"array functions: 35 of 35 cases right on {named}: all right"


def test_types_that_no_array_has_are_not_tried() -> None:
    (found,) = on_arrays(subject_of("5x7x3", ab="tf32"))
    reason = "no arrays are computed in tf32 to f32"
    assert str(found) == f"array functions: not tried on 5x7x3, since {reason}"


def test_what_is_refused_or_wrong_is_told_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(x: Any, **options: Any) -> Any:
        raise Unsupported("segments of at most k = 4 elements")

    monkeypatch.setattr(module, "sum_of", refuse)
    monkeypatch.setattr(module, "cumsum", lambda x, **options: np.zeros(x.size))
    (found,) = on_arrays(subject_of("8x8x4", arch="volta"))
    assert found.failed[0] == "sum of 1 elements: segments of at most k = 4 elements"
    assert "cumsum of 1 elements: [0. 0. 0.] where [1 2 3] is the sum" in found.failed
    assert len(found.failed) == 8
    judged = validate("5x7x3", algorithms=["reduction_k"], reference=None).units[0]
    assert judged.on_arrays == ()
    judged = replace(judged, on_arrays=(found,))
    assert not judged.ok
    best = lines_of(judged, None)[0]
    assert not best.good
    assert best.text.startswith(
        "WRONG: array functions: 27 of 35 cases right on 8x8x4: NOT RIGHT, first sum of 1 elements"
    )


def test_a_verdict_tries_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tcusim.judge.verdict.validate.tried", lambda *args, **options: ((), ()))
    verdict = validate("5x7x3", sections=["correctness"], reference=None)
    assert verdict.units[0].on_arrays[0].cases == 35
    (told,) = verdict.as_json()["units"][0]["array_functions"]
    assert (told["tile"], told["cases"], told["failed"]) == ("5x7x3", 35, ())
