"""The measured error of a sum: nothing where nothing rounds, more where less is kept."""

from __future__ import annotations

import pytest

from tcusim.machine import Fused, Rule
from tcusim.sweep.errors_of_sums import FAMILIES, measured_error


def rule(fraction_bits: int, acc: str = "f32") -> Rule:
    return Rule("f16", acc, Fused(8, fraction_bits, output="rne"), "invented", "invented")


@pytest.mark.parametrize("family", FAMILIES)
def test_fewer_bits_have_more_error(family: str) -> None:
    errors = [measured_error(rule(bits), family, 128, 16) for bits in (24, 16, 8)]
    assert 100 * errors[0] < 10 * errors[1] < errors[2]


def test_one_term_is_exact() -> None:
    assert measured_error(rule(12), "same_sign", 1, 16) == 0.0
