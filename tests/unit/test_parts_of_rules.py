"""The parts of a rule, each combination against exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numbers_of_types import random_values
from tcusim.errors import InputError, Unsupported
from tcusim.machine import (
    FORMATS,
    Format,
    Fused,
    Integer,
    Late,
    Rule,
    Sequential,
    Values,
    mma,
    mma_values,
    round_values,
)
from tcusim.machine.registry import scaled_rule

ROUNDINGS = ("rne", "rna", "rz", "rd", "odd")
WRONG: Any = "up"


def whole(x: Fraction, rounding: str) -> int:
    """Round to an integer."""
    low = math.floor(x)
    part = x - low
    toward = low if x >= 0 or not part else low + 1
    match rounding:
        case "rd":
            return low
        case "odd":
            return toward if not part or toward % 2 else (low + 1 if toward == low else low)
        case "rne" | "rna" if part * 2 == 1:
            away = low + 1 if x > 0 else low
            return away if rounding == "rna" else low + low % 2
        case "rne" | "rna":
            return low + (part * 2 > 1)
    return toward


def exponent(x: Fraction, least: int) -> int:
    """Return floor(log2(abs(x))), at least `least`; x is not zero."""
    found = abs(x.numerator).bit_length() - x.denominator.bit_length()
    return max(found - (abs(x) < Fraction(2) ** found), least)


def rounded(x: Fraction, bits: int, fmt: Format, rounding: str) -> Fraction:
    """Round to the grid of a type, exponents unbound above."""
    unit = Fraction(2) ** (exponent(x, fmt.emin) - bits if x else 0)
    return whole(x / unit, rounding) * unit


Aligned = tuple[Fraction, int | None, bool]


def aligned(terms: list[tuple[Fraction, int]], how: Fused, least: int | None) -> Aligned:
    """Return the sum of the cut terms, E, and whether a bit was lost."""
    exponents = [e for value, e in terms if value] + ([] if least is None else [least])
    if not exponents:
        return Fraction(0), None, False
    top = max(exponents)
    unit = Fraction(2) ** (top - how.fraction_bits)
    cut = "rz" if how.alignment == "sticky" else how.alignment
    kept = [whole(value / unit, cut) * unit for value, _ in terms]
    lost = any(x != y for x, (y, _) in zip(kept, terms, strict=True))
    return sum(kept, Fraction(0)), top, lost


def fused_step(pairs: list[tuple[float, float]], c: float, rule: Rule) -> Fraction:
    """Do one step of finite terms as `Fused` describes it; the result may be beyond the range."""
    how, ab, acc = rule.how, FORMATS[rule.ab], FORMATS[rule.acc]
    assert isinstance(how, Fused)
    products = []
    for x, y in pairs:
        value = Fraction(x) * Fraction(y)
        e = 0
        if value and how.exponents == "products":
            e = exponent(value, -1000)
        elif value:
            e = exponent(Fraction(x), ab.emin) + exponent(Fraction(y), ab.emin)
            e += how.exponents == "upper"
        products.append((value, e))
    addend = Fraction(c), exponent(Fraction(c), acc.emin) if c else 0
    groups = [products[i :: how.sums] for i in range(how.sums)]
    if not isinstance(how.c_joins, Late) and how.c_joins == "sum":
        groups[0] = [addend, *groups[0]]
    sums = [aligned(group, how, how.exponent_floor) for group in groups]
    cut = how.c_joins.alignment if isinstance(how.c_joins, Late) else how.alignment
    tops = [top for _, top, _ in sums if top is not None]
    total, top = sums[0][0], max(tops, default=None)
    if how.sums > 1 and top is not None:
        unit = Fraction(2) ** (top - how.fraction_bits)
        total = sum((whole(one / unit, cut) * unit for one, _, _ in sums), Fraction(0))
    elif how.alignment == "sticky" and sums[0][2] and total:
        # Less than any bit of a sum or a result.
        total += Fraction(1 if total > 0 else -1, 2**400)
    if isinstance(how.c_joins, Late):
        total = joined(total, top, addend, how.c_joins)
    bits = acc.fraction_bits if how.output_fraction_bits is None else how.output_fraction_bits
    d = rounded(total, bits, acc, how.output)
    if how.c_joins == "after":
        d = rounded(d + Fraction(c), acc.fraction_bits, acc, how.addition)
    return d


def joined(total: Fraction, top: int | None, addend: tuple[Fraction, int], late: Late) -> Fraction:
    """Return the sum of products and c, each cut to bits of its own."""
    c, e = addend
    tops = [one for one in (top, e if c else None, late.floor) if one is not None]
    units = [Fraction(2) ** (max(tops, default=0) - n) for n in (late.sum_bits, late.c_bits)]
    if late.reach is not None and c and top is not None and e < top - late.reach:
        c = Fraction(0)
    return sum(
        (whole(x / unit, late.alignment) * unit for x, unit in zip((total, c), units, strict=True)),
        Fraction(0),
    )


LATES = st.builds(
    Late,
    sum_bits=st.integers(12, 33),
    c_bits=st.integers(10, 26),
    alignment=st.sampled_from(ROUNDINGS),
    floor=st.sampled_from([None, -126, -3]),
    reach=st.sampled_from([None, 1, 9, 25]),
)
STEPS = st.fixed_dictionaries(
    {
        "length": st.sampled_from([2, 4, 7]),
        "fraction_bits": st.integers(3, 26),
        "output": st.sampled_from(ROUNDINGS),
        "alignment": st.sampled_from([*ROUNDINGS, "sticky"]),
        "c_joins": st.sampled_from(["sum", "after"]) | LATES,
        "exponents": st.sampled_from(["operands", "upper", "products"]),
        "sums": st.sampled_from([1, 1, 2]),
        "addition": st.sampled_from(ROUNDINGS),
        "exponent_floor": st.sampled_from([None, None, -20, 3]),
    }
)


@settings(max_examples=40)
@given(parts=STEPS, seed=st.integers(0, 2**32), spread=st.sampled_from([2, 9, 30]))
def test_every_combination_of_parts_in_fractions(
    parts: dict[str, Any], seed: int, spread: int
) -> None:
    several = parts["sums"] > 1 or isinstance(parts["c_joins"], Late)
    if several and parts["alignment"] == "sticky":
        parts["alignment"] = "rz"
    if parts["c_joins"] != "after":
        parts["addition"] = "rne"
    how = Fused(**parts)
    rng = np.random.default_rng(seed)
    rule = Rule("f16", ("f32", "f16")[seed % 2], how, "", "")
    acc = FORMATS[rule.acc]
    a, b = (random_values(rng, (12, how.length), "f16", spread) for _ in range(2))
    c = random_values(rng, (12, 1, 1), rule.acc, spread)
    d = mma_values(a[:, None, :], b[:, :, None], c, rule)[:, 0, 0].tolist()
    for row, column, addend, found in zip(a, b, c[:, 0, 0].tolist(), d, strict=True):
        pairs = list(zip(row.tolist(), column.tolist(), strict=True))
        expected = fused_step(pairs, addend, rule)
        if abs(expected) > acc.largest:
            # Of a step that overflows before c is added, the sum is infinite, too.
            assert math.isinf(found)
        elif math.isfinite(found):
            assert Fraction(found) == expected


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_roundings_of_types(rounding: Any) -> None:
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.standard_normal(300) * 8.0, np.arange(-9, 9) / 2.0, [5e-8, -5e-8]])
    for name in ("f16", "bf16", "e4m3", "e5m2"):
        fmt = FORMATS[name]
        for value, found in zip(x.tolist(), round_values(x, fmt, rounding).tolist(), strict=True):
            assert Fraction(found) == rounded(Fraction(value), fmt.fraction_bits, fmt, rounding)
    beyond = round_values(np.array([1e6, -1e6]), "f16", rounding).tolist()
    inf = math.inf
    nearest = {"rne": [inf, -inf], "rna": [inf, -inf], "rd": [65504, -inf]}
    assert beyond == nearest.get(rounding, [65504, -65504])


def scaled_dot(x: Values, y: Values, c: float, scales: tuple[Any, Any], rule: Rule) -> float:
    """Do one step with block scales in fractions, for finite numbers and scales."""
    how, ab = rule.how, FORMATS[rule.ab]
    assert isinstance(how, Fused)
    least = FORMATS["e4m3"].emin if rule.scale_type == "ue4m3" else -1000
    terms = [(Fraction(c), exponent(Fraction(c), -126) if c else None)]
    for first in range(0, len(x), how.presum):
        group = slice(first, first + how.presum)
        pairs = list(zip(x[group].tolist(), y[group].tolist(), strict=True))
        value = sum((Fraction(p) * Fraction(q) for p, q in pairs), Fraction(0))
        own = [Fraction(float(one[first // rule.block])) for one in scales]
        e: int | None = sum(exponent(one, least) for one in own)
        if how.exponents == "operands":
            factors = [Fraction(z) for z in pairs[0]]
            e = sum((exponent(z, ab.emin) for z in factors), e or 0) if value else None
        terms.append((value * own[0] * own[1], e))
    top = max([how.exponent_floor or 0, *(e for _, e in terms if e is not None)])
    unit = Fraction(2) ** (top - how.fraction_bits)
    total = sum((whole(value / unit, "rz") * unit for value, _ in terms), Fraction(0))
    return float(rounded(total, 23, FORMATS["f32"], "rz"))


@pytest.mark.parametrize(
    ("ab", "scale", "block", "k"),
    [
        ("e4m3", "ue8m0", 32, 32),
        ("e5m2", "ue8m0", 32, 64),
        ("e2m1", "ue8m0", 32, 64),
        ("e2m1", "ue8m0", 16, 64),
        ("e2m1", "ue4m3", 16, 64),
    ],
)
def test_block_scales_in_fractions(ab: str, scale: str, block: int, k: int) -> None:
    rng = np.random.default_rng(8)
    rule = scaled_rule("rtx 5090", ab, "f32", block, scale)
    assert isinstance(rule.how, Fused)
    for spread in (1, 9, 30):
        a, b = (random_values(rng, (16, k), ab, 6) for _ in range(2))
        c = random_values(rng, (16, 1, 1), "f32", spread)
        if scale == "ue8m0":
            left, right = (np.exp2(rng.integers(-spread, spread, (16, k // block))) for _ in "ab")
        else:
            left, right = (np.abs(random_values(rng, (16, k // block), "e4m3", 5)) for _ in "ab")
            left[left == 0.0] = right[right == 0.0] = 2.0**-9
        d = mma(
            *(a[:, None, :], b[:, :, None], c),
            arch="rtx 5090",
            ab=ab,
            scale=scale,
            scale_a=left[:, None, :],
            scale_b=right[:, :, None],
        )[:, 0, 0]
        for i, found in enumerate(d.tolist()):
            sum_of = float(c[i, 0, 0])
            for first in range(0, k, rule.how.length):
                step = slice(first, first + rule.how.length)
                parts = slice(first // block, -(-(first + rule.how.length) // block))
                own = left[i, parts], right[i, parts]
                sum_of = scaled_dot(a[i, step], b[i, step], sum_of, own, rule)
            assert found == sum_of


def test_scales_that_are_none() -> None:
    a, b = np.ones((1, 32), np.float32), np.ones((32, 1), np.float32)
    one = np.ones((1, 1))
    usual: dict[str, Any] = {"arch": "rtx 5090", "ab": "e4m3", "scale_a": one, "scale_b": one}
    assert mma(a, b, **usual) == 32
    assert mma(a, b, **usual | {"ab": "e4m3.e5m2"}) == 32
    nan = mma(a, b, **usual | {"scale_a": np.full((1, 1), np.nan)})
    assert nan.view(np.uint32) == 0x7FFFFFFF
    for changes, message in (
        ({"scale_a": 3.0 * one}, "scale_a must hold powers of two .* element .0, 0. = 3"),
        ({"scale_b": None}, "scale_a and scale_b are given together"),
        ({"scale_a": np.ones((1, 5))}, "its 5 columns do not divide k = 32"),
        ({"scale_b": np.ones((2, 1))}, r"scale_b must be \(..., 1, 1\), got shape \(2, 1\)"),
        ({"scale": "e8"}, "scale must be one of ue8m0, ue4m3, got 'e8'"),
    ):
        with pytest.raises(InputError, match=message):
            mma(a, b, **usual | changes)
    with pytest.raises(Unsupported, match="has no products of e4m3 -> f32"):
        mma(a, b, **usual | {"arch": "hopper"})


def ieee(x: Fraction, fmt: Format, how: Sequential) -> Fraction:
    """Round a result of IEEE 754."""
    d = rounded(x, fmt.fraction_bits, fmt, how.rounding)
    return Fraction(0) if how.flush_outputs and abs(d) < Fraction(2) ** fmt.emin else d


def added(products: list[Fraction], c: Fraction, fmt: Format, how: Sequential) -> Fraction:
    """Add one group of products, and c, in order."""
    if how.order == "tree":
        level = [ieee(one, fmt, how) for one in products]

        def total(terms: list[Fraction]) -> Fraction:
            if len(terms) == 1:
                return terms[0]
            half = len(terms) // 2
            return ieee(total(terms[:half]) + total(terms[half:]), fmt, how)

        return ieee(c + total(level), fmt, how)
    apart = how.sums > 1 or how.order == "apart"
    chains = [Fraction(0)] * how.sums if apart else [c]
    for i, one in enumerate(products):
        chains[i % how.sums] = ieee(chains[i % how.sums] + one, fmt, how)
    d = chains[0]
    for one in chains[1 : len(products)]:
        d = ieee(d + one, fmt, how)
    return ieee(c + d, fmt, how) if apart else d


@settings(max_examples=40)
@given(
    how=st.builds(
        Sequential,
        length=st.sampled_from([None, 3, 4, 5]),
        order=st.sampled_from(["chain", "apart"]),
        sums=st.sampled_from([1, 2, 3]),
        rounding=st.sampled_from(ROUNDINGS),
        flush_inputs=st.booleans(),
        flush_outputs=st.booleans(),
    )
    | st.builds(
        Sequential,
        length=st.sampled_from([2, 4, 6]),
        order=st.just("tree"),
        rounding=st.sampled_from(ROUNDINGS),
        flush_outputs=st.booleans(),
    ),
    seed=st.integers(0, 2**32),
    acc=st.sampled_from(["f32", "f16"]),
)
def test_chains_and_trees_in_fractions(how: Sequential, seed: int, acc: str) -> None:
    rng = np.random.default_rng(seed)
    rule, fmt = Rule("f16", acc, how, "", ""), FORMATS[acc]
    k = 9
    a, b = (random_values(rng, (12, k), "f16", 7) for _ in range(2))
    c = random_values(rng, (12, 1, 1), acc, 7)
    d = mma_values(a[:, None, :], b[:, :, None], c, rule)[:, 0, 0].tolist()
    for row, column, addend, found in zip(a, b, c[:, 0, 0].tolist(), d, strict=True):
        factors = [
            [Fraction(0) if how.flush_inputs and abs(x) < 2.0**-14 else Fraction(x) for x in one]
            for one in (row.tolist(), column.tolist())
        ]
        products = [x * y for x, y in zip(*factors, strict=True)]
        start = Fraction(addend)
        if how.flush_inputs and abs(start) < Fraction(2) ** fmt.emin:
            start = Fraction(0)
        for first, last in pairwise([*range(0, k, how.length or k), k]):
            start = added(products[first:last], start, fmt, how)
        assert Fraction(found) == start


def test_narrow_sums_wrap_and_accumulators_saturate() -> None:
    a, b = np.full((1, 8), 100, np.int8), np.full((8, 1), 127, np.int8)
    group = 4 * 100 * 127
    c = np.full((1, 1), 2**31 - 20_000, np.int32)
    overflow: Any
    for how, expected in (
        (Integer(4, 16), 2 * (group - 2**16)),
        (Integer(4, 17), 2 * group),
        (Integer(8, 32, "saturate"), 2 * group),
    ):
        assert mma_values(a, b, None, Rule("s8", "s32", how, "", "")).item() == expected
    for overflow, found in (("wrap", -(2**31) + 2 * group - 20_000), ("saturate", 2**31 - 1)):
        rule = Rule("s8", "s32", Integer(4, 20, overflow), "", "")
        assert mma_values(a, b, c, rule).item() == found
    least = {"saturate": -(2**31), "symmetric": -(2**31) + 1}
    for overflow, bound in least.items():
        rule = Rule("s8", "s32", Integer(None, 32, overflow), "", "")
        assert mma_values(-a, b, -c, rule).item() == bound


def test_products_beyond_the_range_and_signs_of_zero() -> None:
    big = np.full((1, 2), 2.0**100, np.float32)
    opposite = np.array([[2.0**100], [-(2.0**100)]], np.float32)
    overflow: Any
    zeros: Any
    for overflow, expected in (("sum", 0.0), ("product", math.nan)):
        rule = Rule("bf16", "f32", Fused(2, 24, overflow=overflow), "", "")
        np.testing.assert_array_equal(mma_values(big, opposite, None, rule), expected)
    small: Values = np.array([[-(2.0**-100)]], np.float32)
    for zeros, negative in (("positive", False), ("signed", True)):
        rule = Rule("bf16", "f32", Fused(1, 24, zeros=zeros), "", "")
        d = mma_values(small, -small, None, rule)
        assert d == 0.0
        assert np.signbit(d) == negative
        assert not np.signbit(mma_values(small, np.zeros_like(small), None, rule))


@pytest.mark.parametrize("how", [Fused(2, 24), Sequential(), Sequential(2, "tree")])
def test_nan_of_a_unit(how: Fused | Sequential) -> None:
    a, b = np.array([[np.inf, 1.0]], np.float16), np.array([[0.0], [1.0]], np.float16)
    own = 0x7FFFFFFF if isinstance(how, Fused) else 0x7FC00000
    nan: Any
    for nan, bits in (("", own), ("ones", 0x7FFFFFFF), ("quiet", 0x7FC00000)):
        rule = Rule("f16", "f32", how, "", "", nan=nan)
        assert mma_values(a, b, None, rule).view(np.uint32) == bits


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Late(0, 24), "Late.sum_bits must be an integer within 1..48, got 0"),
        (lambda: Late(24, 24, WRONG), "Late.alignment must be one of rne, .*, got 'up'"),
        (lambda: Fused(4, 20, sums=5), "Fused.sums must be an integer within 1..4, got 5"),
        (lambda: Fused(4, 20, addition="rz"), "Fused.addition is for c_joins = 'after'; leave it"),
        (lambda: Sequential(4, sums=5), "Sequential.sums must be an integer within 1..4, got 5"),
        (lambda: Fused(9, 20, c_joins=Late(48, 24)), "9 terms with 48 fraction bits needs sums"),
        (lambda: Fused(4, 20, sums=2, register_halves=True), "register_halves is for one sum"),
        (lambda: Fused(4, 20, alignment="sticky", sums=2), "'sticky' is for one sum, with c in"),
        (lambda: Rule("e2m1", "f32", Fused(4, 20, presum=2), "", ""), "presum are for a rule with"),
        (lambda: Rule("e2m1", "f32", Fused(4, 20), "", "", scale="b"), "such as 'block32.ue8m0'"),
        (
            lambda: Rule("f16", "f32", Sequential(), "", "", scale="block4.ue8m0"),
            "block scales are for fused steps",
        ),
        (lambda: Sequential(order="tree"), "order = 'tree' needs a length"),
        (lambda: Sequential(flush_inputs=WRONG), "Sequential.flush_inputs must be True or False"),
        (lambda: Integer(overflow=WRONG), "Integer.overflow must be one of wrap, saturate,"),
        (
            lambda: Rule("s8", "s32", Integer(), "", "", nan=WRONG),
            "nan must be one of , ones, quiet",
        ),
    ],
)
def test_wrong_parts(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_a_double_accumulator_has_one_chain() -> None:
    with pytest.raises(InputError, match="Sequential in f64 is one chain"):
        Rule("f64", "f64", Sequential(sums=2), "", "")
