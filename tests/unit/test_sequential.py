"""Products that are summed in order or exactly, against fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numbers_of_types import random_values, round_fraction, same_bits, single
from tcusim.machine import FORMATS, Values, mma, mma_values, rule_for, sequential


def dot(row: Values, column: Values, addend: float = 0.0) -> Fraction:
    """Return the exact row . column + addend."""
    pairs = zip(row.tolist(), column.tolist(), strict=True)
    return sum((Fraction(x) * Fraction(y) for x, y in pairs), Fraction(addend))


def sequential_of_one(row: Values, column: Values, addend: float, acc: str) -> float:
    """Fuse each multiply-add in exact fractions and round it once."""
    fmt = FORMATS[acc]
    total = Fraction(addend)
    for x, y in zip(row.tolist(), column.tolist(), strict=True):
        exact = Fraction(x) * Fraction(y) + total
        total = round_fraction(exact, fmt.fraction_bits, fmt.emin, "rne")
    return float(total)


REFERENCE_PAIRS = [
    ("f16", "f32"),
    ("f16", "f16"),
    ("bf16", "f32"),
    ("tf32", "f32"),
    ("f32", "f32"),
    ("f32", "f64"),
    ("e4m3", "f16"),
    ("e5m2", "f32"),
    ("f64", "f64"),
]


@pytest.mark.parametrize(("ab", "acc"), REFERENCE_PAIRS)
@pytest.mark.parametrize("spread", [2, 30, 80])
def test_references_in_fractions(ab: str, acc: str, spread: int) -> None:
    rng = np.random.default_rng(5)
    a = random_values(rng, (30, 1, 6), ab, spread)
    b = random_values(rng, (30, 6, 1), ab, spread)
    c = random_values(rng, (30, 1, 1), acc, spread)
    # Make cancellation common: the last term nearly undoes the rest.
    c[::3, 0, 0] = -(a[::3, 0, 0].astype(float) * b[::3, 0, 0]).clip(-6e4, 6e4)
    ieee = mma_values(a, b, c, rule_for("ieee", ab, acc))[:, 0, 0].tolist()
    exact = mma_values(a, b, c, rule_for("exact", ab, acc))[:, 0, 0].tolist()
    fmt = FORMATS[acc]
    for i in range(30):
        operands = (a[i, 0], b[i, :, 0], float(c[i, 0, 0]))
        once = round_fraction(dot(*operands), fmt.fraction_bits, fmt.emin, "rne")
        if abs(once) <= fmt.largest:
            assert exact[i] == once
        if np.isfinite(ieee[i]):
            assert ieee[i] == sequential_of_one(*operands, acc)


def test_one_rounding_not_two() -> None:
    # 1 + 2**-24 is a tie in fp32; the 2**-60 beyond float64's bits breaks it upwards.
    a = single([[1.0, 2.0**-12, 2.0**-30]])
    b = single([[1.0], [2.0**-12], [2.0**-30]])
    assert mma(a, b, arch="exact", ab="f32")[0, 0] == 1 + 2.0**-23
    assert mma(a[:, 1:], b[1:], single([[1.0]]), arch="exact", ab="f32") == 1 + 2.0**-23


@settings(max_examples=200)
@given(*[st.floats(allow_nan=False)] * 3)
def test_fma_of_any_doubles(a: float, b: float, c: float) -> None:
    arrays = [np.array([[x]]) for x in (a, b, c)]
    got = mma(*arrays, arch="ieee", ab="f64", acc="f64")[0, 0]
    once = mma(*arrays, arch="exact", ab="f64", acc="f64")[0, 0]
    if not np.isfinite([a, b, c]).all():
        # Where a * b overflows only in float64, c decides.
        product = np.float64(np.sign(a) * np.sign(b)) if np.isfinite([a, b]).all() else a * b
        with np.errstate(invalid="ignore"):
            assert np.array_equal([got, once], [product + c] * 2, equal_nan=True)
        return
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        expected = float(exact)
    except OverflowError:
        expected = float("inf") if exact > 0 else float("-inf")
    assert got == once == expected


@pytest.mark.parametrize("arch", ["ieee", "exact"])
def test_references_with_infinities(arch: str) -> None:
    a = np.array([[1e300, np.inf], [1e300, 1.0], [0.0, np.inf]])
    b = np.array([[-1e300], [1.0]])
    d = mma(a, b, arch=arch, ab="f64", acc="f64")[:, 0]
    assert d[1] == -np.inf
    assert d[2] == np.inf
    assert np.isnan(mma(a, b * 0, arch=arch, ab="f64", acc="f64")[0, 0])


def test_sums_of_double_precision_by_a_matrix_of_zeros_and_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their products are exact: the bits are those of fused steps, NaN and zeros included."""
    rng = np.random.default_rng(9)
    odd = [0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -1.7e308, 1.0]
    a = random_values(rng, (40, 4, 6), "f64", 900)
    a[::2] = rng.choice(odd, a[::2].shape)
    c = random_values(rng, (40, 4, 3), "f64", 900)
    c[::3] = rng.choice(odd, c[::3].shape)
    b = (rng.random((1, 6, 3)) < 0.6).astype(np.float64)
    rule = rule_for("ieee", "f64", "f64")
    left, right, addend = (np.ascontiguousarray(x.transpose(0, 2, 1)) for x in (b, a, c))
    found = [mma_values(a, b, c, rule), mma_values(left, right, addend, rule)]
    monkeypatch.setattr(sequential, "_are_zeros_and_ones", lambda x: False)
    assert same_bits(found[0], mma_values(a, b, c, rule))
    assert same_bits(found[1], mma_values(left, right, addend, rule))
    assert np.isnan(found[0]).any()
