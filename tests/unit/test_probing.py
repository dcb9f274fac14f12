"""Probing: from bits alone, the rule of every architecture is found; other units are refused."""

from __future__ import annotations

from dataclasses import fields, replace
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
    *(("hopper", "e4m3", "f32", "mma.sync"), ("ampere", "f64", "f64", "")),
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
    with pytest.raises(Unsupported, match=r"Integer\(.*\) is nearest: 0x.* is 0x.*, and 0x.* by"):
        probe_rule(lambda a, b, c: a.astype(int) @ b.astype(int) + c + 1, TILE, "s8", "s32")


def up(x: Any, error: Any) -> Any:
    """Return x, rounded to nearest with this error, as the float32 that is not below the sum."""
    return np.where(error > 0, np.nextafter(x, np.float32(np.inf)), x)


def test_what_no_rule_says_is_refused_with_a_pair_of_results() -> None:
    def upward(a: Any, b: Any, c: Any) -> Any:
        """Add one product after another, each sum rounded toward +inf: no rule has that."""
        for i in range(a.shape[-1]):
            product = a[..., i, None].astype(np.float64) * b[..., None, i, :]
            total = product + c
            rest = (product - (total - c)) + (c - (total - (total - c)))
            near = total.astype(np.float32)
            c = up(near, total - near + rest)
        return c

    with pytest.raises(Unsupported, match=r"f16 to f32, 2x2x4: no rule .* 0x[0-9a-f]+ by Fused"):
        probe_rule(upward, (2, 2, 4), "f16", "f32", batched=True)


SPELLED = {
    "output": "output rounding",
    "rounding": "output rounding",
    "length": "fused length",
    "sums": "partial sums",
}


def check_found(how: Any, ab: str, acc: str, k: int = 16) -> None:
    """Require a rule, or that the unit's note names each parameter with another value."""
    rule = Rule(ab, acc, how, "a test", "none")
    unit = probe_unit(black_box(rule), tile=(2, 2, k), ab=ab, acc=acc, batched=True)
    got = unit.arch.rows[0].how
    assert type(got) is type(how)
    for one in fields(how):
        name = SPELLED.get(one.name, one.name.replace("_", " "))
        is_found = getattr(got, one.name) == getattr(how, one.name)
        assert is_found or f"{name}: " in unit.note, (how, got, unit.note)


@pytest.mark.parametrize(
    "how",
    [Sequential(rounding="rd"), Sequential(4, "tree"), Integer(4, 15, "symmetric")],
    ids=str,
)
def test_other_orders_and_sums_are_found(how: Any) -> None:
    types = ("s8", "s32") if isinstance(how, Integer) else ("bf16", "f32")
    check_found(how, *types, k=8)


ROUNDED = ("rz", "rne", "rna", "rd", "odd")


def drawn_step(rng: np.random.Generator) -> tuple[Fused, tuple[str, str]]:
    """Draw a fused step, and types that show it."""

    def pick(*several: Any) -> Any:
        return several[int(rng.integers(len(several)))]

    joins = pick("sum", "sum", "after")
    how = Fused(
        pick(3, 4, 8, 16),
        int(rng.integers(6, 27)),
        output=pick(*ROUNDED),
        alignment=pick(*ROUNDED, "sticky"),
        output_fraction_bits=pick(None, None, 10),
        c_joins=joins,
        flush_inputs=pick(False, False, True),
        flush_outputs=pick(False, True),
        exponents=pick("operands", "operands", "upper", "products"),
        overflow=pick("sum", "product"),
        zeros=pick("positive", "signed"),
        addition=pick(*ROUNDED) if joins == "after" else "rne",
    )
    return how, pick(("f16", "f32"), ("bf16", "f32"), ("e5m3", "f32"), ("e5m2", "f32"))


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(i, marks=pytest.mark.full) for i in range(1, 12))]
)
def test_a_drawn_rule_is_found_or_its_parameters_are_named(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(2):
        how, types = drawn_step(rng)
        check_found(how, *types)


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
