"""The area proxy: it follows its formula, and grows with the number of gates."""

from __future__ import annotations

import pytest

from tcusim.judge.explore.area import area_proxy
from tcusim.machine import Fused, Rule, rule_for


def rule(length: int, fraction_bits: int, ab: str = "f16") -> Rule:
    return Rule(ab, "f32", Fused(length, fraction_bits), "invented", "invented")


def test_it_is_the_formula() -> None:
    # f16 has 11 bits of significand; 10 + 2 + 2 bits hold a sum of 3 terms; log2 of 14 is 4.
    assert area_proxy(1, 1, 2, rule(2, 10)) == pytest.approx(2 * (121 + 14 * 5 * 1.5))
    assert area_proxy(16, 8, 4, rule(2, 10)) == pytest.approx(512 * (121 + 14 * 5 * 1.5))


def test_a_step_has_no_more_products_than_the_tile() -> None:
    for k in (1, 4, 8):
        assert area_proxy(4, 4, k, rule(16, 20)) == area_proxy(4, 4, k, rule(k, 20))


def test_more_bits_cost_more_and_shared_rounding_less() -> None:
    def area(length: int, bits: int, ab: str = "f16") -> float:
        found = area_proxy(16, 16, 16, rule(length, bits, ab))
        assert found is not None
        return found

    assert area(8, 25) > area(8, 24)
    assert area(8, 20) < area(4, 20)
    assert area(8, 20, "e4m3") < area(8, 20, "bf16") < area(8, 20, "f16")


def test_arithmetic_that_is_no_fused_step_has_none() -> None:
    assert area_proxy(8, 8, 4, rule_for("ieee", "f16", "f32")) is None
