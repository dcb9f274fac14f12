"""The accounts of the arithmetic: equal to `mma` on random dots of every rule, and coherent."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import accounts
import tcusim
from tcusim.errors import Unsupported
from tcusim.machine import (
    FORMATS,
    Arch,
    Exact,
    Fused,
    Passes,
    Rule,
    Sequential,
    Values,
    arch_of,
    arches,
    format_of,
    mma_values,
    round_values,
    rule_for,
)
from tcusim.machine.accounts.recorder import Recorder, accounts_of

# So many random dots of each rule are watched; the ordinary suite takes a few thousand in all.
CASES = int(os.environ.get("TCUSIM_EXPLAIN_CASES", "100"))
AT_A_TIME = 2000
# Of as many of these, and of each fiftieth at least, the account is written and checked.
TOLD = max(20, CASES // 50)


def distinct_rules() -> Iterator[tuple[Arch, Rule]]:
    """Yield one rule of each arithmetic: several generations share some."""
    seen = set()
    for arch in arches():
        for rule in arch.rows:
            key = (rule.ab, rule.acc, rule.how)
            once = not isinstance(rule.how, Fused) or rule.how.is_basic
            if key not in seen and once:
                seen.add(key)
                yield arch, rule


RULES = [
    pytest.param(arch, rule, id=f"{arch.name}-{rule.ab}-{rule.acc}-{rule.family or 'all'}")
    for arch, rule in distinct_rules()
]


def draw(rng: np.random.Generator, shape: tuple[int, ...], fmt: str, spread: int) -> Values:
    """Draw values with exponents as far apart as `spread`, some of them zero.

    With a spread of 0 they are as far apart as the type allows, and some are no finite numbers.
    """
    row = FORMATS[fmt]
    if not row.is_float:
        return rng.integers(int(row.smallest), int(row.largest) + 1, shape).astype(row.dtype)
    low = max(row.emin - row.fraction_bits, -spread) if spread else row.emin - row.fraction_bits
    high = min(row.emax - 1, spread) if spread else row.emax
    numbers = rng.uniform(1.0, 2.0, shape) * rng.choice([-1.0, 1.0], shape)
    numbers = np.ldexp(numbers, rng.integers(low, high + 1, shape))
    numbers[rng.random(shape) < 0.1] = 0.0
    if not spread:
        numbers[rng.random(shape) < 0.01] = np.inf if row.has_inf else np.nan
    return round_values(numbers, row)


def same_bits(hexadecimal: list[str], d: Values) -> bool:
    unsigned: list[int] = d.view(f"u{d.itemsize}").tolist()
    return [int(bits, 16) for bits in hexadecimal] == unsigned


def test_a_step_that_aligns_twice_is_refused() -> None:
    with pytest.raises(Unsupported, match="cdna3, f16 -> f32: a step aligns its terms more than"):
        tcusim.explain([1], [1], arch="mi300x")


@pytest.mark.parametrize(("arch", "rule"), RULES)
def test_an_account_ends_with_the_bits_of_mma(arch: Arch, rule: Rule) -> None:
    rng = np.random.default_rng(CASES)
    spreads = itertools.cycle((3, 14, 0, 40))
    longest = rule.how.length if isinstance(rule.how, Fused) else 4
    sizes = [AT_A_TIME] * (CASES // AT_A_TIME) or [CASES // 4] * 4
    told_each = TOLD // len(sizes)
    for count in sizes:
        spread, k = next(spreads), int(rng.integers(1, longest + longest // 2 + 2))
        a, b = (draw(rng, (count, k), rule.ab, spread) for _ in "ab")
        c = draw(rng, (count,), rule.acc, spread)
        tiles = a[:, None, :], b[:, :, None], c[:, None, None]
        d = mma_values(*tiles, rule)[:, 0, 0]
        watched = mma_values(*tiles, rule, Recorder(count))[:, 0, 0]
        assert np.array_equal(watched.view(f"u{d.itemsize}"), d.view(f"u{d.itemsize}"))
        part = slice(0, told_each)
        told = list(accounts_of(a[part], b[part], c[part], rule, arch))
        assert same_bits([one.bits for one in told], d[part])
        for one in told:
            accounts.check(one)


PASSES = Passes((4, 4), (4, 4))


@pytest.mark.parametrize(
    "rule",
    [
        rule_for("wormhole", "s8", "s32"),
        rule_for("gemmini_bf16", "bf16", "f32"),
        Rule("bf16", "f32", Fused(4, 24), "a", "b", passes=PASSES),
        Rule("bf16", "f32", Fused(4, 24, c_joins="after"), "a", "b", passes=PASSES),
        Rule("bf16", "f32", Sequential(order="tree", length=4), "a", "b", passes=PASSES),
        Rule("bf16", "f32", Exact(2, "after"), "a", "b", passes=PASSES),
        Rule("bf16", "f32", Sequential(sums=2, length=8, sum_type="f16"), "a", "b"),
    ],
    ids=str,
)
def test_passes_and_sums_of_another_type(rule: Rule) -> None:
    rng = np.random.default_rng(8)
    for spread in (3, 0):
        a, b = (draw(rng, (60, 9), rule.ab, spread) for _ in "ab")
        c = draw(rng, (60,), rule.acc, spread)
        d = mma_values(a[:, None, :], b[:, :, None], c[:, None, None], rule)[:, 0, 0]
        told = list(accounts_of(a, b, c, rule, arch_of("hopper")))
        assert same_bits([one.bits for one in told], d)
        for row, column, one in zip(a, b, told, strict=True):
            accounts.check(one)
            if one.exact is not None:
                terms = [term for step in one.steps for term in step.terms if term.is_input]
                assert sum(term.name == "c" for term in terms) == 1
                products = [Fraction(term.value or 0) for term in terms if "*" in term.name]
                whole = zip(row.tolist(), column.tolist(), strict=True)
                assert sum(products) == sum(Fraction(x) * Fraction(y) for x, y in whole)


@pytest.mark.parametrize(
    "changes",
    [
        {"alignment": "rne"},
        {"flush_inputs": True, "flush_outputs": True},
        {"c_joins": "after", "flush_inputs": True},
    ],
    ids=str,
)
def test_arithmetic_that_no_gpu_has(changes: dict[str, object]) -> None:
    how = Fused(4, 10, output="rne")
    rule = Rule("bf16", "f32", replace(how, **changes), "a", "b")  # type: ignore[arg-type]
    rng = np.random.default_rng(5)
    a, b = (draw(rng, (200, 9), "bf16", spread) for spread in (20, 20))
    a[::2] *= np.float32(2.0**-126)
    a = round_values(a, "bf16")
    c = draw(rng, (200,), "f32", 20)
    d = mma_values(a[:, None, :], b[:, :, None], c[:, None, None], rule)[:, 0, 0]
    told = list(accounts_of(a, b, c, rule, arch_of("hopper")))
    assert same_bits([one.bits for one in told], d)
    for one in told:
        lost = sum(
            (step.lost_in_alignment + (step.lost_in_rounding or 0) for step in one.steps), start=0
        )
        assert one.error == -lost


def test_what_is_kept_is_what_the_arithmetic_kept() -> None:
    """The account follows the rule, not a second model: another F shows in it."""
    x, y = np.array([[3.0]], np.float16), np.array([[2.0**-12]], np.float16)
    c = np.array([2.0], np.float32)
    kept = []
    for bits in (11, 12, 13):
        rule = Rule("f16", "f32", Fused(4, bits), "a", "b")
        (one,) = accounts_of(x, y, c, rule, arch_of("volta"))
        kept.append(one.steps[0].terms[1].kept)
        assert one.result == 2.0 + float(kept[-1] or 0)
    assert kept == [0, 2.0**-11, 3 * 2.0**-12]


def test_no_watcher_no_change() -> None:
    """The general way, that of a watched sum, has the bits of the quick way."""
    rng = np.random.default_rng(6)
    a, b = (rng.integers(-8, 9, (50, 16)).astype(np.float16) for _ in "ab")
    c = rng.integers(-8, 9, 50).astype(np.float32)
    rule = arch_of("hopper").rows[0]
    assert format_of(rule.ab).name == "f16"
    d = mma_values(a[:, None, :], b[:, :, None], c[:, None, None], rule)[:, 0, 0]
    assert same_bits([one.bits for one in accounts_of(a, b, c, rule, arch_of("hopper"))], d)
    assert not any(one.cut_terms for one in accounts_of(a, b, c, rule, arch_of("hopper")))
