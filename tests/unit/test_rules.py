"""The rule of each architecture and type: its arithmetic, and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from tcusim.errors import InputError
from tcusim.machine import Exact, Fused, Integer, Rule, Sequential, arches, rule_for


@pytest.mark.parametrize(
    ("arch", "ab", "length", "fraction_bits"),
    [
        ("volta", "f16", 4, 23),
        ("turing", "f16", 8, 24),
        ("ampere", "bf16", 8, 24),
        ("ada", "tf32", 4, 24),
        ("ada", "e4m3", 16, 13),
        ("hopper", "f16", 16, 25),
        ("hopper", "tf32", 4, 25),
        ("hopper", "e5m2", 16, 25),
        ("blackwell", "e5m2", 16, 25),
        ("blackwell_rtx", "e5m2", 32, 25),
    ],
)
def test_rows(arch: str, ab: str, length: int, fraction_bits: int) -> None:
    how = rule_for(arch, ab, "f32").how
    assert isinstance(how, Fused)
    assert (how.length, how.fraction_bits, how.output) == (length, fraction_bits, "rz")


def test_fp16_results_are_rounded() -> None:
    for unit in arches():
        for rule in unit.rows:
            if isinstance(rule.how, Fused) and rule.acc == "f16":
                assert rule.how.output == "rne"


def test_the_other_arithmetics() -> None:
    assert rule_for("hopper", "f64", "f64").how == Sequential()
    assert rule_for("ieee", "f32", "f32").how == Sequential()
    assert rule_for("exact", "bf16", "f64").how == Exact()
    assert rule_for("turing", "u8", "s32").how == Integer()


@pytest.mark.parametrize(
    ("arch", "ab", "family", "length"),
    [
        ("hopper", "tf32", "", 4),
        ("hopper", "tf32", "wmma", 4),
        ("hopper", "tf32", "mma.sync", 8),
        ("hopper", "tf32", "wgmma", 8),
        ("blackwell", "tf32", "wmma", 4),
        ("blackwell", "tf32", "mma.sync", 8),
        ("blackwell", "tf32", "tcgen05", 8),
        ("blackwell", "e4m3", "tcgen05", 32),
        ("hopper", "f16", "wgmma", 16),
    ],
)
def test_families(arch: str, ab: str, family: str, length: int) -> None:
    how = rule_for(arch, ab, "f32", family).how
    assert isinstance(how, Fused)
    assert how.length == length


def test_gpus_whose_bits_were_compared() -> None:
    recorded = {name for unit in arches() for name in unit.recorded}
    assert recorded == {"v100", "a100", "a2", "rtx 1000 ada", "l40s", "h100", "h200", "b200"}
    for unit in arches():
        if not unit.recorded and unit.sm:
            fused = [rule for rule in unit.rows if isinstance(rule.how, Fused)]
            assert {rule.evidence for rule in fused} == {"published model, no recorded bits"}


def test_evidence_is_said() -> None:
    assert rule_for("volta", "f16", "f32").evidence == "recorded bits"
    assert rule_for("turing", "f16", "f32").evidence == "published model, no recorded bits"
    assert all(rule.source and rule.evidence for unit in arches() for rule in unit.rows)


@pytest.mark.parametrize(
    ("ab", "acc", "how", "message"),
    [
        ("f16", "f32", Integer(), "f16 -> f32: Integer takes s8 or u8 and accumulates in s32"),
        ("s8", "s32", Fused(4, 23), "Fused takes a float type up to f32"),
        ("f16", "f64", Fused(4, 23), "accumulates in f16 or f32"),
        ("f16", "f16", Fused(4, 23, output_fraction_bits=11), "must be within 1..10, got 11"),
        ("s8", "f32", Exact(), "Exact takes a float type"),
        ("f64", "f32", Sequential(), "f64 accumulates in f64"),
        ("half", "f32", Exact(), "unknown type 'half'"),
        ("f16", "f32", None, "how must be Fused, Sequential, Exact or Integer, got None"),
        ("f16", "f32", Fused(16, 25, register_halves=True), "register_halves is for 8-bit floats"),
    ],
)
def test_wrong_rules(ab: str, acc: str, how: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Rule(ab, acc, how, source="s", evidence="e")
