"""A model that computes otherwise than its unit claims is found out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tcusim
from judged import chip
from tcusim.judge.verdict.claims import claims_of
from tcusim.judge.verdict.subjects import subject_of
from tcusim.machine import Fused, Rule, mma_values

CLAIMED = Fused(4, 24)


def model(how: Fused) -> Callable[[Any, Any, Any], Any]:
    rule = Rule("f16", "f32", how, "a test", "assumed")
    return lambda a, b, c: mma_values(a, b, c, rule)


def test_a_model_that_computes_as_claimed() -> None:
    assert claims_of(subject_of(chip(how=CLAIMED)), model(CLAIMED)) == ()


@pytest.mark.parametrize(
    "how", [Fused(4, 23), Fused(4, 25), Fused(2, 24), Fused(4, 24, output="rne")]
)
def test_other_arithmetic_than_claimed_is_found(how: Fused) -> None:
    found = claims_of(subject_of(chip(how=CLAIMED, tile="8x8x8")), model(how))
    differing = [
        name
        for name in ("length", "fraction_bits", "output")
        if getattr(how, name) != getattr(CLAIMED, name)
    ]
    assert [one.name for one in found] == [*differing, "bits"]
    claimed, built = (getattr(one, differing[0]) for one in (CLAIMED, how))
    assert f"{differing[0]} = {claimed}, and its model computes with {built}" in found[0].text
    assert "outputs of 8x8x8 have other bits than the unit's rule gives; of " in found[-1].text


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda a, b, c: (a @ b + c).T, "so that d is 8 x 4; the model returns 4 x 8"),
        (lambda a, b, c: a[:3] @ b + c, "the model does not take a tile of 8x4x4: ValueError"),
        (lambda a, b, c: 1.0, "the model returns a number"),
    ],
)
def test_a_wrong_tile_is_found(wrong: Any, text: str) -> None:
    (found,) = claims_of(subject_of(chip(tile="8x4x4")), wrong)
    assert found.name == "tile"
    assert text in found.text


@pytest.mark.parametrize(("ab", "acc"), [("s8", "s32"), ("f16", "f16")])
def test_other_types(ab: str, acc: str) -> None:
    subject = subject_of("h200", ab=ab, acc=acc, tile="16x16x16")
    right = claims_of(subject, lambda a, b, c: tcusim.mma(a, b, c, arch="h200", ab=ab, acc=acc))
    assert right == ()
    found = claims_of(subject, lambda a, b, c: c + np.ones_like(c))
    assert found[-1].name == "bits"
