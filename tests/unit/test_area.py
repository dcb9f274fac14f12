"""The area proxy: it follows its formula, and grows with the number of gates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tcusim
from tcusim.judge.explore.area import PICOJOULES, area_proxy
from tcusim.judge.explore.row import Row
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


def test_energy_is_of_each_full_adder_that_switches() -> None:
    row = Row(4, 4, 8, "f16", "f32", area=128 * 1000.0, sums_mma=0.25, scans_mma=0.5)
    assert row.energy == pytest.approx(3.1)
    assert row.sums_energy == pytest.approx(3.1 * 32)
    assert row.scans_energy == pytest.approx(3.1 * 64)
    given = replace(row, given_energy=2.0)
    assert (given.energy, given.sums_energy) == (2.0, 2.0 * 32)
    # [HOROWITZ14 fig. 1.1.9]: operations on integers, their full adders and picojoules.
    for adders, picojoules in ((8, 0.03), (32, 0.1), (64, 0.2), (1024, 3.1)):
        assert adders * PICOJOULES == pytest.approx(picojoules, rel=0.2)


def test_a_named_units_own_energy_is_used_and_no_borrowed_one(tmp_path: Path) -> None:
    text = 'tiles = "8x8x4"\nfraction_bits = 20\nfused_length = 4\n[figures]\n'
    path = tmp_path / "mine.toml"
    path.write_text(text + "multiply_add_energy = 2e-12\n")
    (named,) = tcusim.explore({"units": [path]}, jobs=1, algorithms=["reduction_kn"]).rows
    assert named.given_energy == pytest.approx(2.0)
    assert named.energy == named.given_energy
    assert named.area_each is not None
    shape = {"tile": "8x8x4", "fraction_bits": 20, "fused_length": 4}
    found = tcusim.explore({**shape, "like": path}, jobs=1, algorithms=["reduction_kn"])
    (invented,) = (row for row in found.rows if not row.unit)
    assert invented.given_energy is None
    assert invented.energy == pytest.approx(PICOJOULES * named.area_each)
