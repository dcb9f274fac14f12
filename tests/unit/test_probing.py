"""Probing: from bits alone, the rule of every architecture is found; other units are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcusim
from tcusim.errors import InputError, Unsupported
from tcusim.machine import (
    Exact,
    Fused,
    Integer,
    Rule,
    Sequential,
    arch_of,
    format_of,
    mma_values,
    rule_for,
)
from tcusim.machine.probing import Mma, probe_rule, probe_unit

TILE = (2, 2, 16)
# Rules that differ in every parameter; all others with --full.
SOME = {
    *(("volta", "f16", "f32", ""), ("ampere", "f16", "f16", ""), ("hopper", "f16", "f16", "")),
    *(("turing", "f16", "f32", ""), ("ampere", "bf16", "f32", ""), ("turing", "s8", "s32", "")),
    *(("hopper", "e4m3", "f32", "mma.sync"), ("ada", "e4m3", "f32", "")),
}
ALL = [
    (name, rule.ab, rule.acc, rule.family)
    for name in ("volta", "turing", "ampere", "ada", "hopper", "blackwell", "blackwell_rtx")
    for rule in arch_of(name).rows
]
KNOWN = [
    pytest.param(*one, marks=[] if one in SOME else pytest.mark.full, id="-".join(one).strip("-"))
    for one in ALL
]


def black_box(rule: Rule) -> Mma:
    return lambda a, b, c: mma_values(a, b, c, rule)


def found(how: Any, ab: str = "f16", acc: str = "f32", k: int = 16) -> Any:
    rule = Rule(ab, acc, how, "a test", "none")
    return probe_rule(black_box(rule), (2, 2, k), ab, acc).how


def last_bit(name: str) -> int:
    return format_of(name).emin - format_of(name).fraction_bits


@pytest.mark.parametrize(("arch", "ab", "acc", "family"), KNOWN)
def test_the_rule_of_an_architecture_is_found(arch: str, ab: str, acc: str, family: str) -> None:
    rule = rule_for(arch, ab, acc, family)
    k = 64 if ab in ("e4m3", "e5m2") else 16
    expected = rule.how
    if isinstance(expected, Fused) and expected.exponent_floor is not None:
        lowest = (2 * last_bit(ab), last_bit(acc))
        if min(lowest) >= expected.exponent_floor - expected.fraction_bits:
            # No term has a bit that is cut for the sake of the floor, so that it never shows.
            expected = replace(expected, exponent_floor=None)
    probed = probe_rule(black_box(rule), (2, 2, k), ab, acc, source="somewhere")
    assert probed == Rule(ab, acc, expected, "somewhere", "recorded bits")


@pytest.mark.parametrize(
    "how",
    [
        Fused(1, 12),
        Fused(2, 24, output="rne"),
        Fused(2, 20, c_joins="after"),
        Fused(5, 3, alignment="rne"),
        Fused(8, 23, output="rne", alignment="rne", c_joins="after"),
        Fused(4, 30, output_fraction_bits=18),
        Fused(16, 40, flush_inputs=True),
        Sequential(),
        Exact(),
    ],
    ids=str,
)
def test_every_parameter_is_found(how: Any) -> None:
    assert found(how) == how


def test_subnormal_results_and_floors_are_found_where_they_show() -> None:
    how = Fused(8, 20, output="rne", flush_outputs=True)
    assert found(how, acc="f16") == how
    how = Fused(8, 24, flush_inputs=True, flush_outputs=True)
    assert found(how, ab="bf16") == how
    how = Fused(4, 16, exponent_floor=-22)
    assert found(how, acc="f16") == how


def test_a_step_longer_than_the_tile_is_as_long_as_the_tile() -> None:
    assert found(Fused(16, 20), k=8) == Fused(8, 20)


def test_integers_are_compared() -> None:
    assert found(Integer(), "u8", "s32") == Integer()
    with pytest.raises(Unsupported, match=r"Integer\(.*\) is nearest, but in a tile of integer"):
        probe_rule(lambda a, b, c: a.astype(int) @ b.astype(int) + c + 1, TILE, "s8", "s32")


def test_what_no_rule_says_is_refused_with_the_first_difference() -> None:
    def pairs(a: Any, b: Any, c: Any) -> Any:
        """Add in a tree of pairs, each sum rounded to float32."""
        terms = (a[:, :, None].astype(np.float32) * b[None].astype(np.float32)).swapaxes(0, 1)
        while len(terms) > 1:
            terms = terms[::2] + terms[1::2]
        return terms[0] + c

    with pytest.raises(Unsupported, match="f16 to f32, 2x2x16: no rule of tcusim reproduces it"):
        probe_rule(pairs, TILE, "f16", "f32")


def test_a_rule_that_fits_the_probes_alone_is_refused() -> None:
    rule = rule_for("volta", "f16", "f32")

    def tampered(a: Any, b: Any, c: Any) -> Any:
        d = mma_values(a, b, c, rule)
        d[1, 1] += 1.0 if np.abs(c[1, 1]) > 0 else 0.0
        return d

    with pytest.raises(
        Unsupported, match=r"is nearest, but in a tile of like values the result \[1"
    ):
        probe_rule(tampered, TILE, "f16", "f32")


def test_several_pairs_make_a_unit() -> None:
    pairs = {
        (ab, acc): black_box(rule_for("turing", ab, acc))
        for ab, acc in (("f16", "f32"), ("s8", "s32"))
    }
    unit = probe_unit(pairs, tile="4x8x16", name="mystery", source="the lab")
    assert [shape.name for shape in unit.shapes] == ["4x8x16"]
    assert [(rule.ab, rule.source) for rule in unit.arch.rows] == [
        ("f16", "the lab"),
        ("s8", "the lab"),
    ]
    tcusim.register_unit(unit)
    assert float(tcusim.mma([[1.0]], [[1.0]], arch="mystery")[0, 0]) == 1.0


def test_what_is_no_unit_is_told() -> None:
    with pytest.raises(InputError, match=r"must return an array of numbers of shape \(2, 2\), got"):
        probe_unit(lambda a, b, c: a, tile=TILE)
    with pytest.raises(InputError, match="mma has no pairs of types"):
        probe_unit({})
