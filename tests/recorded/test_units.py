"""Public units beside outputs of their RTL, of emulators and of their authors' models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tcusim.machine import Exact, Integer, Rule, Sequential, rule_for
from unit_models import UNITS, by_tcusim, values_of

VECTORS = np.load(Path(__file__).with_name("unit_models.npz"))


def bits(name: str, rule: Rule | None = None) -> tuple[Any, Any]:
    """Return the bits of tcusim and of the model, where the model's are no NaN."""
    a, b, c, d = (VECTORS[f"{name}-{key}"] for key in "abcd")
    found = by_tcusim(name, a, b, c, rule)
    known = ~np.isnan(values_of(d, name.split("-")[2]))
    return found[known], d[known]


@pytest.mark.parametrize("name", UNITS)
def test_every_bit_is_that_of_the_model(name: str) -> None:
    found, model = bits(name)
    assert len(model) > 100
    assert np.array_equal(found, model)


@pytest.mark.parametrize("name", UNITS)
def test_the_outputs_tell_the_rule_from_others(name: str) -> None:
    arch, ab, acc = name.split("-")
    rule = rule_for(arch, ab, acc)
    changed = []
    match rule.how:
        case Exact():
            joins = "sum" if rule.how.c_joins == "after" else "after"
            changed = [replace(rule, how=Exact(2, joins))]  # type: ignore[arg-type]
        case Integer():
            changed = [
                replace(rule, passes=None),
                replace(rule, how=replace(rule.how, overflow="saturate")),
            ]
        case _:
            assert isinstance(rule.how, Sequential)
            changed = [
                replace(rule, how=replace(rule.how, sums=1))
                if rule.how.sums > 1
                else replace(rule, how=replace(rule.how, order="apart")),
                replace(rule, how=replace(rule.how, rounding="rz")),
            ]
    for wrong in changed:
        found, model = bits(name, wrong)
        assert not np.array_equal(found, model), wrong


def test_a_nan_is_that_of_the_unit() -> None:
    for name in ("redmule-f16-f16", "exsdotp-f16-f32", "arm_bfmmla-bf16-f32", "sme-f16-f32"):
        _, ab, acc = name.split("-")
        nan = {"f16": 0x7E00, "bf16": 0x7FC0, "f32": 0x7FC00000}
        a, b, c = (VECTORS[f"{name}-{key}"].copy() for key in "abc")
        a[:, 0] = nan[ab]
        assert (by_tcusim(name, a, b, c) == nan[acc]).all()
