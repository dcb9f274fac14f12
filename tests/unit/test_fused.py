"""The fused step of a tensor core, against fractions and bit by bit."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from numbers_of_types import half, random_values, round_fraction, same_bits, single
from tcusim.errors import Unsupported
from tcusim.machine import FORMATS, Fused, Rule, Values, arches, mma, mma_values, rule_for

FUSED_RULES = [
    pytest.param(rule, id=f"{unit.name}-{rule.ab}-{rule.acc}")
    for unit in arches()
    for rule in unit.rows
    if isinstance(rule.how, Fused) and rule.how.is_basic
]


def fused_step_of_one(row: Values, column: Values, addend: float, rule: Rule) -> float:
    """Follow hardware's steps in exact fractions, for finite operands that make a finite result."""
    how = rule.how
    assert isinstance(how, Fused)
    # 8-bit floats that are unpacked are fp16.
    ab, acc = FORMATS["f16" if how.register_halves else rule.ab], FORMATS[rule.acc]
    pairs = list(zip(row.tolist(), column.tolist(), strict=True))
    steps = [pairs]
    if how.register_halves:
        steps = [
            [pairs[i] for i in range(len(pairs)) if i % 4 in half] for half in ((0, 1), (2, 3))
        ]
    bits = acc.fraction_bits if how.output_fraction_bits is None else how.output_fraction_bits
    rounded = Fraction(addend) if how.c_joins == "sum" else Fraction(0)
    for step in steps:
        terms = [(rounded, exponent(float(rounded), acc.emin))]
        for x, y in step:
            terms.append((Fraction(x) * Fraction(y), exponent(x, ab.emin) + exponent(y, ab.emin)))
        terms = [term for term in terms if term[0]]
        total = Fraction(0)
        for value, _ in terms:
            unit = Fraction(2) ** (max(e for _, e in terms) - how.fraction_bits)
            total += int(value / unit) * unit
        rounded = round_fraction(total, bits, acc.emin, how.output)
    if how.c_joins == "after":
        rounded = round_fraction(rounded + Fraction(addend), acc.fraction_bits, acc.emin, "rne")
    if how.flush_outputs and abs(rounded) < Fraction(2) ** acc.emin:
        return 0.0
    return float(rounded)


def exponent(x: float, emin: int) -> int:
    return max(int(np.frexp(x)[1]) - 1, emin)


@pytest.mark.parametrize("rule", FUSED_RULES)
def test_a_step_in_fractions(rule: Rule) -> None:
    how = rule.how
    assert isinstance(how, Fused)
    rng = np.random.default_rng(1)
    for spread in (3, 12, 60):
        k = how.length * (1 + how.register_halves)
        a = random_values(rng, (40, 1, k), rule.ab, spread)
        b = random_values(rng, (40, k, 1), rule.ab, spread)
        c = random_values(rng, (40, 1, 1), rule.acc, min(spread, 40))
        d = mma_values(a, b, c, rule)[:, 0, 0]
        for i, result in enumerate(d.tolist()):
            if np.isfinite(result):
                expected = fused_step_of_one(a[i, 0], b[i, :, 0], float(c[i, 0, 0]), rule)
                assert result == expected


@pytest.mark.parametrize("rule", FUSED_RULES)
def test_order_within_a_step_does_not_matter(rule: Rule) -> None:
    how = rule.how
    assert isinstance(how, Fused)
    rng = np.random.default_rng(2)
    k = how.length * (1 + how.register_halves)
    a = random_values(rng, (8, 5, k), rule.ab, 20)
    b = random_values(rng, (8, k, 5), rule.ab, 20)
    order = np.arange(k)
    for part in (order % 4 < 2, order % 4 >= 2) if how.register_halves else (order >= 0,):
        order[part] = rng.permutation(order[part])
    assert same_bits(
        mma_values(a, b, None, rule), mma_values(a[..., order], b[:, order], None, rule)
    )


@pytest.mark.parametrize("arch", ["volta", "ampere", "hopper"])
def test_steps_are_chained(arch: str) -> None:
    how = rule_for(arch, "f16", "f16").how
    assert isinstance(how, Fused)
    rng = np.random.default_rng(4)
    a = random_values(rng, (7, 37), "f16", 6)
    b = random_values(rng, (37, 5), "f16", 6)
    whole = mma(a, b, arch=arch, acc="f16")
    d = np.zeros((7, 5), np.float16)
    for start in range(0, 37, how.length):
        terms = slice(start, start + how.length)
        d = mma(a[:, terms], b[terms], d, arch=arch, acc="f16")
    assert same_bits(whole, d)


# An fp16 sum of ones stops growing when a step adds half a unit in the last place.
@pytest.mark.parametrize(
    ("arch", "stall"),
    [
        ("volta", 8192),
        ("turing", 16384),
        ("ampere", 16384),
        ("ada", 16384),
        ("hopper", 32768),
        ("blackwell", 32768),
    ],
)
def test_fp16_accumulator_of_ones_stalls(arch: str, stall: int) -> None:
    ones = np.ones((1, stall + 500), np.float16)
    assert mma(ones, ones.T, arch=arch, acc="f16") == stall
    assert mma(ones, ones.T, arch=arch, acc="f32") == stall + 500


@pytest.mark.parametrize(
    ("row", "c", "expected"),
    [
        ([np.inf, 1.0], 0.0, np.inf),
        ([-np.inf, 1.0], 0.0, -np.inf),
        ([1.0, 1.0], np.inf, np.inf),
        ([np.inf, -np.inf], 0.0, np.nan),
        ([np.inf, 1.0], -np.inf, np.nan),
        ([np.nan, 1.0], 0.0, np.nan),
        ([60000.0, 60000.0], 0.0, 120000.0),
    ],
)
@pytest.mark.parametrize("acc", ["f32", "f16"])
def test_special_values(row: list[float], c: float, expected: float, acc: str) -> None:
    dtype = FORMATS[acc].dtype
    d = mma(half([row]), np.ones((2, 1), np.float16), np.array([[c]], dtype), acc=acc)
    with np.errstate(over="ignore"):
        assert np.array_equal(d, np.array([[expected]]).astype(dtype), equal_nan=True)
    if np.isnan(expected):
        assert int(d.view(f"u{dtype.itemsize}")[0, 0]) == FORMATS[acc].nan_bits


def test_zero_times_infinity() -> None:
    d = mma(half([[0.0]]), half([[np.inf]]))
    assert d.view(np.uint32)[0, 0] == 0x7FFFFFFF


def test_overflow_of_fp32_is_infinity_though_truncated() -> None:
    a = single([[2.0**100, -(2.0**100)]])
    d = mma(a.T, single([[2.0**100]]), ab="bf16")
    assert d[:, 0].tolist() == [np.inf, -np.inf]


@pytest.mark.parametrize("acc", ["f32", "f16"])
def test_zero_sums_are_positive(acc: str) -> None:
    zero = np.array([[-0.0]], FORMATS[acc].dtype)
    a = half([[1.0, -1.0, -0.0]])
    for left, c in ((a, None), (a * 0, zero), (half([[-0.0] * 3]), zero)):
        d = mma(left, np.ones((3, 1), np.float16), c, acc=acc)
        assert d[0, 0] == 0
        assert not np.signbit(d[0, 0])


def test_a_negative_sum_that_rounds_to_zero_is_positive() -> None:
    a = half([[-(2.0**-24)]])
    d = mma(a, half([[2.0**-3]]), acc="f16")
    assert d.view(np.uint16)[0, 0] == 0


def test_subnormals_are_kept_or_flushed() -> None:
    tiny = 2.0**-130
    a = single([[tiny]])
    one = single([[1.0]])
    rule = rule_for("hopper", "bf16", "f32")
    assert isinstance(rule.how, Fused)
    assert mma_values(a, one, None, rule) == tiny
    assert mma_values(a, one, None, replace(rule, how=replace(rule.how, flush_inputs=True))) == 0
    assert mma_values(a, one, None, replace(rule, how=replace(rule.how, flush_outputs=True))) == 0
    assert mma_values(one * 0, one, a, replace(rule, how=replace(rule.how, flush_inputs=True))) == 0


def test_a_late_c_is_flushed_too() -> None:
    how = Fused(4, 12, output="rne", c_joins="after", flush_outputs=True)
    a, c = half([[2.0**-7]]), half([[-(2.0**-14 - 2.0**-24)]])
    for flush, expected in ((True, 0.0), (False, 2.0**-24)):
        rule = Rule("f16", "f16", replace(how, flush_outputs=flush), "a", "b")
        assert mma_values(a, a, c, rule)[0, 0] == expected


def test_8_bit_floats_by_register_halves() -> None:
    rule = rule_for("hopper", "e4m3", "f16", "mma.sync")
    assert isinstance(rule.how, Fused)
    assert rule.how.register_halves
    # Beside 2048 a 1 is rounded away, and two in one half are not; c comes last, on its own.
    for places, late, expected in (((1, 4), 0, 2050), ((1, 2), 0, 2048), ((4,), 1, 2048)):
        x, y = np.zeros((1, 32), np.float32), np.zeros((32, 1), np.float32)
        x[0, 0], y[0, 0] = 256.0, 8.0
        x[0, list(places)] = y[list(places), 0] = 1.0
        assert mma(x, y, half([[late]]), ab="e4m3", acc="f16") == expected
    # k = 16 is the same as 32 with zeros, and 64 is two instructions.
    rng = np.random.default_rng(0)
    a = random_values(rng, (20, 1, 64), "e4m3", 9)
    b = random_values(rng, (20, 64, 1), "e4m3", 9)
    c = random_values(rng, (20, 1, 1), "f16", 9)
    first = mma_values(a[..., :32], b[:, :32], c, rule)
    both = mma_values(a[..., 32:], b[:, 32:], first, rule)
    assert same_bits(mma_values(a, b, c, rule), both)
    a[..., 16:] = 0
    assert same_bits(mma_values(a, b, c, rule), mma_values(a[..., :16], b[:, :16], c, rule))


def test_instructions_of_hopper_differ_in_8_bit_floats() -> None:
    x, y = single([[1.0, 15 * 2.0**-7]]), single([[1.0], [15 * 2.0**-8]])
    families = ("", "mma.sync", "wgmma")
    bits = {family: mma(x, y, ab="e4m3", family=family)[0, 0] for family in families}
    exact = 1.0 + 225 * 2.0**-15
    assert bits[""] == bits["mma.sync"] == exact
    assert bits["wgmma"] == 1.0 + int(exact % 1 * 2**13) * 2.0**-13
    with pytest.raises(Unsupported, match=r"wmma does not take e4m3; mma\.sync and wgmma do"):
        mma(x, y, ab="e4m3", family="wmma")


def test_fp8_has_13_fraction_bits_on_ada() -> None:
    a = single([[1.0, 2.0**-6]])
    b = single([[1.0], [2.0**-8]])
    assert mma(a, b, arch="ada", ab="e5m2")[0, 0] == 1.0
    assert mma(a, b, arch="blackwell", ab="e5m2")[0, 0] == 1.0 + 2.0**-14
