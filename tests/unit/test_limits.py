"""Stagnation, bias, exact integers, order and monotonicity: predicted and computed."""

from __future__ import annotations

import numpy as np
import pytest

import tcusim
from tcusim.judge.accuracy.limits import bias_of, exact_integers, falls, order_of, stagnation_of
from tcusim.machine import Fused, Integer, Rule, mma_values, rule_for

NVIDIA = [(arch, acc) for arch in ("volta", "ampere", "hopper") for acc in ("f32", "f16")]


def invented(how: Fused, acc: str = "f32") -> Rule:
    return Rule("f16", acc, how, "invented", "assumed")


@pytest.mark.parametrize(("arch", "acc"), NVIDIA)
def test_stagnation_and_bias_are_as_predicted(arch: str, acc: str) -> None:
    rule = rule_for(arch, "f16", acc)
    for one in stagnation_of(rule):
        assert one.predicted == one.computed
    for bias in bias_of(rule):
        assert bias.predicted == bias.computed


@pytest.mark.parametrize(
    "how",
    [
        *(Fused(16, bits) for bits in (20, 12, 5, 3)),
        Fused(8, 20, output="rne"),
        Fused(8, 6, alignment="rne"),
        Fused(4, 20, output_fraction_bits=13),
        Fused(8, 24, output_fraction_bits=5, c_joins="after"),
        Fused(16, 12, output="rne", output_fraction_bits=8, c_joins="after"),
    ],
)
def test_those_of_invented_units_too(how: Fused) -> None:
    rule = invented(how)
    assert [one.predicted for one in stagnation_of(rule)] == [
        one.computed for one in stagnation_of(rule)
    ]
    assert all(bias.predicted == bias.computed for bias in bias_of(rule))


def test_ones_stop_where_they_are_known_to() -> None:
    for arch, most in (("volta", 8192.0), ("ampere", 16384.0), ("hopper", 32768.0)):
        assert stagnation_of(rule_for(arch, "f16", "f16"))[0].computed == most
        ones = np.ones((1, int(most) + 1000), np.float16)
        assert float(tcusim.mma(ones, ones.T, arch=arch, acc="f16")[0, 0]) == most


def test_integers_are_exact_up_to_there_and_no_further() -> None:
    for rule in (rule_for("hopper", "f16", "f32"), invented(Fused(16, 12)), invented(Fused(4, 3))):
        most = exact_integers(rule)
        c = np.array([[most - 1.0], [float(most)]], np.float32)
        one = np.ones((2, 1), np.float16)
        got = mma_values(one, one[:1], c, rule)[:, 0]
        assert float(got[0]) == most
        assert float(got[1]) != most + 1
    assert exact_integers(Rule("s8", "s32", Integer(), "x", "x")) == 2**31


def test_order_matters_where_a_tile_is_several_steps() -> None:
    assert order_of(rule_for("hopper", "f16", "f32")).share == 0.0
    several = order_of(rule_for("volta", "f16", "f16"))
    assert several.share > 0.5
    assert several.units >= 1.0
    assert order_of(Rule("s8", "s32", Integer(), "x", "x")).share == 0.0


def test_a_sum_that_falls_does_so() -> None:
    rule = rule_for("hopper", "f16", "f32")
    fall = falls(rule)
    assert fall is not None
    assert fall.raised > fall.c
    terms = np.array([fall.terms], np.float16)
    ones = np.ones((16, 1), np.float16)
    for c, expected in ((fall.c, fall.sum), (fall.raised, fall.fallen)):
        got = mma_values(terms, ones, np.array([[c]], np.float32), rule)
        assert float(got[0, 0]) == expected
    assert fall.fallen < fall.sum
    assert fall.place is None
    assert falls(rule_for("exact", "f16", "f32")) is None


@pytest.mark.parametrize("bits", [1, 2, 3, 5, 8, 10])
def test_sums_of_coarse_units_fall_by_much(bits: int) -> None:
    # Sixteen terms that a power of two cuts off, each of up to a unit in the last place kept.
    fall = falls(invented(Fused(16, bits)))
    assert fall is not None
    assert 1.0 - fall.fallen / fall.sum > 2.0 ** -(bits + 1)


def test_a_sum_may_fall_where_a_term_is_raised() -> None:
    rule = invented(Fused(16, 10, c_joins="after"))
    fall = falls(rule)
    assert fall is not None
    assert fall.place == 0
    assert fall.raised > fall.terms[0]
    ones, c = np.ones((16, 1), np.float16), np.zeros((1, 1), np.float32)
    for first, expected in ((fall.terms[0], fall.sum), (fall.raised, fall.fallen)):
        terms = np.array([[first, *fall.terms[1:]]], np.float16)
        assert float(mma_values(terms, ones, c, rule)[0, 0]) == expected
    assert fall.fallen < fall.sum


def test_integers_have_nothing_to_limit() -> None:
    integers = Rule("s8", "s32", Integer(), "x", "x")
    assert not stagnation_of(integers)
    assert not bias_of(integers)
    assert falls(integers) is None
