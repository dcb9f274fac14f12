"""Sums of float32 numbers in parts of narrower types."""

from __future__ import annotations

import pytest

from tcusim.judge.accuracy.splitting import splitting_of
from tcusim.machine import Fused, Integer, Rule, rule_for


@pytest.mark.parametrize(("ab", "bits"), [("f16", 11), ("bf16", 8)])
def test_each_part_adds_its_bits_until_the_accumulator_ends(ab: str, bits: int) -> None:
    one, two, three = splitting_of(rule_for("hopper", ab, "f32"))
    assert [each.parts for each in (one, two, three)] == [1, 2, 3]
    # Rounding errors of 4,096 terms are independent: their sum is less by sqrt(4096) = 2^6.
    assert 2.0 ** -(bits + 6 + 3) < one.error < 2.0 ** -(bits + 6 - 1)
    assert two.error < one.error / 2**5
    assert three.error < 1.5 * two.error


def test_a_coarse_unit_gains_nothing() -> None:
    one, *more = splitting_of(Rule("f16", "f32", Fused(16, 5), "invented", "assumed"))
    assert all(each.error > one.error / 2 for each in more)


def test_what_holds_every_float32_or_none_is_not_split() -> None:
    assert splitting_of(Rule("s8", "s32", Integer(), "x", "x")) == ()
    assert splitting_of(rule_for("hopper", "f64", "f64")) == ()
