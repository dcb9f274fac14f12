"""Numbers of element types: drawn, named, rounded as fractions, and compared bit for bit."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcusim.machine import Values, format_of, round_values


def random_values(
    rng: np.random.Generator, shape: tuple[int, ...], fmt: str, spread: int
) -> Values:
    """Draw values with exponents spread over an interval, some of them zero."""
    row = format_of(fmt)
    numbers = rng.uniform(1.0, 2.0, shape) * rng.choice([-1.0, 1.0], shape)
    low = max(row.emin - row.fraction_bits, -spread)
    high = min(row.emax - 1, spread)
    numbers = np.ldexp(numbers, rng.integers(low, high + 1, shape))
    numbers[rng.random(shape) < 0.1] = 0.0
    return round_values(numbers, row)


def half(numbers: Any) -> Values:
    return np.array(numbers, np.float16)


def single(numbers: Any) -> Values:
    return np.array(numbers, np.float32)


def same_bits(x: Values, y: Values) -> bool:
    unsigned = f"u{x.dtype.itemsize}"
    return x.dtype == y.dtype and np.array_equal(x.view(unsigned), y.view(unsigned))


def round_fraction(x: Fraction, fraction_bits: int, emin: int, rounding: str) -> Fraction:
    """Round to nearest even or toward zero, exponents unbound above."""
    leading = abs(x.numerator).bit_length() - x.denominator.bit_length()
    if abs(x) < Fraction(2) ** leading:
        leading -= 1
    leading = max(leading, emin)
    unit = Fraction(2) ** (leading - fraction_bits)
    return (round(x / unit) if rounding == "rne" else int(x / unit)) * unit


def uneven_halves(size: int) -> NDArray[np.float16]:
    """Return numbers of many sizes, so that bits tell the order and the roundings of additions."""
    rng = np.random.default_rng(size)
    return (rng.standard_normal(size) * np.exp2(rng.integers(-8, 9, size))).astype(np.float16)
