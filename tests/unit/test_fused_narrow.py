"""Steps on numbers of 4 bytes have the bits of the definition, in `tcusim.machine.fused`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adversary import NARROW, PATTERNS, RULES, operand, pattern_of, unit_of
from numbers_of_types import same_bits
from some import Some
from tcusim.machine import FORMATS, Fused, Rule, Values, mma_values, rule_for
from tcusim.machine.fused import fused_values

HOPPER = rule_for("hopper", "f16", "f32")


@pytest.fixture(autouse=True)
def _without_compiled_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let NumPy do the steps; `test_core` compares the compiled ones with these."""
    monkeypatch.setenv("TCUSIM_CORE", "numpy")


def defined(a: Values, b: Values, c: Values, rule: Rule) -> Values:
    """Return the result by the definition."""
    assert isinstance(rule.how, Fused)
    left, right, addend = (x.astype(np.float64) for x in (a, b, c))
    with np.errstate(all="ignore"):
        return fused_values(
            left, right, addend, (FORMATS[rule.ab],) * 2 + (FORMATS[rule.acc],), rule.how
        )


def require_same(
    rng: np.random.Generator, rule: Rule, shape: tuple[int, int, int, int], one: str, name: str
) -> None:
    """Compare tiles (W, m, k) @ (W, k, n); one: the operand that is a constant pattern, if any."""
    tiles, m, k, n = shape
    a, b = operand(rng, (tiles, m, k), rule.ab), operand(rng, (tiles, k, n), rule.ab)
    if one == "a":
        a = pattern_of(name, m, k, rng)[None].astype(a.dtype)
    if one == "b":
        b = pattern_of(name, k, n, rng)[None].astype(b.dtype)
    c = operand(rng, (tiles, m, n), rule.acc)
    if rng.random() < 0.2:
        c = np.broadcast_to(c[:, :, :1], c.shape)
    if rng.random() < 0.2:
        c = np.zeros((1, m, n), c.dtype)
    expected = np.broadcast_to(defined(a, b, c, rule), (tiles, m, n))
    assert same_bits(np.array(mma_values(a, b, c, rule)), np.array(expected))


def test_most_rules_are_narrow() -> None:
    missing = {(rule.ab, rule.acc) for rule in RULES} - {(rule.ab, rule.acc) for rule in NARROW}
    assert len(NARROW) >= 20
    assert not missing & {("f16", "f32"), ("f16", "f16"), ("bf16", "f32"), ("tf32", "f32")}


@pytest.mark.parametrize(
    "rule", NARROW, ids=lambda rule: f"{rule.ab}-{rule.acc}-{rule.how.length}-{rule.source}"
)
def test_every_rule_has_the_bits_of_its_definition(rule: Rule, some: Some) -> None:
    rng = np.random.default_rng(7)
    shapes = ((16, 16, 16), (16, 32, 8), (5, 23, 3), (1, 1, 1))
    for turn in range(400 if some.full else 8):
        m, k, n = shapes[turn // 2 % len(shapes)]
        for one, name in (("", ""), ("ab"[turn % 2], PATTERNS[turn % len(PATTERNS)])):
            require_same(rng, rule, (int(rng.integers(2, 40)), m, k, n), one, name)


@settings(max_examples=80)
@given(
    seed=st.integers(0, 2**32),
    rule=st.sampled_from(RULES),
    shape=st.tuples(st.integers(1, 9), *[st.integers(1, 20)] * 3),
    one=st.sampled_from(["", "a", "b"]),
    name=st.sampled_from(PATTERNS),
    changes=st.fixed_dictionaries(
        {},
        optional={
            "length": st.sampled_from([1, 3, 4, 8, 16, 32]),
            "fraction_bits": st.integers(3, 27),
            "alignment": st.sampled_from(["rz", "rne"]),
            "output": st.sampled_from(["rz", "rne"]),
            "output_fraction_bits": st.sampled_from([None, 5, 13, 16, 20]),
            "flush_inputs": st.booleans(),
            "flush_outputs": st.booleans(),
            "c_joins": st.sampled_from(["sum", "after"]),
            "exponent_floor": st.integers(-140, 5),
        },
    ),
)
def test_any_unit_has_the_bits_of_its_definition(
    seed: int,
    rule: Rule,
    shape: tuple[int, int, int, int],
    one: str,
    name: str,
    changes: dict[str, Any],
) -> None:
    if rule.acc == "f16" and (changes.get("output_fraction_bits") or 0) > 10:
        changes = {**changes, "output_fraction_bits": None}
    assert isinstance(rule.how, Fused)
    changed = replace(rule, how=replace(rule.how, **changes))
    require_same(np.random.default_rng(seed), changed, shape, one, name)


def test_sums_that_come_near_2_to_the_31_are_left_to_the_definition() -> None:
    """Sixteen products just below 4, and c just below 2, are more than an int32 holds."""
    assert isinstance(HOPPER.how, Fused)
    assert (HOPPER.how.length, HOPPER.how.fraction_bits) == (16, 25)
    largest = np.full((3, 2, 16), 2 - 2.0**-10, np.float16)
    c = np.full((3, 2, 2), 2 - 2.0**-22, np.float32)
    unit = unit_of(HOPPER)
    assert unit is not None
    _, odd = unit.values(largest, largest.transpose(0, 2, 1), c)
    assert odd is not None
    assert odd.all()
    expected = defined(largest, largest.transpose(0, 2, 1), c, HOPPER)
    assert same_bits(mma_values(largest, largest.transpose(0, 2, 1), c, HOPPER), expected)


def test_what_leaves_a_tile_out() -> None:
    unit = unit_of(rule_for("hopper", "bf16", "f32"))
    assert unit is not None
    a, b, c = np.ones((6, 2, 4), np.float32), np.ones((6, 4, 2), np.float32), np.zeros((6, 2, 2))
    a[1, 0, 0] = np.inf
    b[2, 0, 0] = np.nan
    c[3, 1, 1] = np.inf
    a[4] = b[4] = 2.0**-60
    a[5, 1, 1] = 2.0**-130
    with np.errstate(all="ignore"):
        _, odd = unit.values(a, b, c.astype(np.float32))
    np.testing.assert_array_equal(odd, [False, True, True, True, True, True])


def test_alike_columns_are_a_view() -> None:
    """Whoever writes into the result must copy it first; the next step sees that they are alike."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2000, 16, 16)).astype(np.float16)
    d = mma_values(x, np.ones((16, 16), np.float16), None, HOPPER)
    assert d.strides[2] == 0
    again = mma_values(x, np.ones((16, 16), np.float16), d, HOPPER)
    assert again.strides[2] == 0
