"""Public units beside outputs of their RTL, of emulators and of their authors' models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tcusim.machine import Exact, Fused, Integer, Rule, Sequential, rule_for
from unit_models import BITS, UNITS, by_tcusim, nan_known, values_of

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


def others(rule: Rule) -> list[Rule]:
    """Return rules that differ from a unit's in one part, which its outputs have to show."""
    how = rule.how
    match how:
        case Exact():
            joins = "sum" if how.c_joins == "after" else "after"
            return [replace(rule, how=Exact(2, joins))]  # type: ignore[arg-type]
        case Integer(overflow="symmetric"):
            saturated = replace(how, overflow="saturate")
            return [replace(rule, passes=None), replace(rule, how=saturated)]
        case Integer():
            return [replace(rule, how=replace(how, overflow="saturate"))]
        case Sequential(sums=sums):
            changes = [{"rounding": "rz"}, {"sums": 1} if sums > 1 else {"order": "apart"}]
            if how.order == "apart":
                changes = [{"rounding": "rz"}, {"order": "chain", "sum_type": ""}]
        case Fused(alignment="sticky"):
            changes = [{"fraction_bits": 23}, {"alignment": "rz"}, {"output": "rz"}]
        case Fused(fraction_bits=bits) if rule.ab == "bf16":
            changes = [{"fraction_bits": bits - 1}, {"alignment": "rz"}, {"output": "rne"}]
        case _:
            # Of 8-bit floats so few terms lose a bit that these outputs do not decide F.
            changes = [{"output": "rne"}, {"addition": "rne"}, {"length": 16}]
    return [replace(rule, how=replace(how, **one)) for one in changes]


@pytest.mark.parametrize("name", UNITS)
def test_the_outputs_tell_the_rule_from_others(name: str) -> None:
    for wrong in others(rule_for(*name.split("-"))):
        found, model = bits(name, wrong)
        assert not np.array_equal(found, model), wrong


@pytest.mark.parametrize("name", [name for name in UNITS if nan_known(name) and "s32" not in name])
def test_a_nan_is_that_of_the_unit(name: str) -> None:
    _, ab, acc = name.split("-")
    nan = {"f16": 0x7E00, "bf16": 0x7FC0, "f32": 0x7FC00000, "e4m3": 0x7F, "e5m2": 0x7F}
    a, b, c = (VECTORS[f"{name}-{key}"].copy() for key in "abc")
    a[:, 0] = nan[ab]
    assert (by_tcusim(name, a, b, c) == nan[acc]).all()


ADDING = ["redmule-f16-f16", "exsdotp-f16-f32", "arm_bfmmla-bf16-f32", "sme-f16-f32"]


@pytest.mark.parametrize("name", [*ADDING, "arm_ebf16-bf16-f32", "mxdotp-e4m3-f32"])
def test_a_sum_of_negative_zeros_is_one(name: str) -> None:
    """As the RTL and QEMU give it, by sums of each kind: chains, trees, and exact sums."""
    _, ab, acc = name.split("-")
    a = np.full((2, 2), {"e4m3": 0x80}.get(ab, 0x8000), BITS[ab])
    minus = 0x8000 if acc == "f16" else 0x80000000
    c = np.array([minus, 0], BITS[acc])
    # Integers have a way of their own, and 1 is none in bits.
    for one in (1, {"f16": 0x3C00, "bf16": 0x3F80, "e4m3": 0x38}[ab]):
        b = np.full((2, 2), one, BITS[ab])
        assert by_tcusim(name, a, b, c).tolist() == [minus, 0]
