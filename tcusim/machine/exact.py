"""The exact value of a @ b + c with a single rounding, and exact integers."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

import numpy as np

from tcusim.machine.formats import Float64, Format, Values, leading_power, lowest_power
from tcusim.machine.sequential import fraction_to_float, round_to_odd

__all__ = ["exact_values", "integer_values"]

# Outputs handled at a time, which bounds the float64 temporaries.
_BATCH_OUTPUTS: Final = 2**16

# Above it no product of two factors loses bits to underflow.
_SAFE_LOW: Final = 2.0**-900


def exact_values(a: Values, b: Values, c: Values, ab: Format, acc: Format) -> Values:
    """Return the exact a @ b + c, rounded once to nearest even.

    a: (W, m, k) ab, b: (W, k, n) ab, c: (W, m, n) acc -> (W, m, n) acc; each W may be 1 instead.
    """
    tiles = max(len(a), len(b), len(c)) if len(a) and len(b) and len(c) else 0
    m, n = a.shape[1], b.shape[2]
    result = np.empty((tiles, m, n), acc.dtype)
    batch = max(1, _BATCH_OUTPUTS // max(1, m * n))
    # Overflow to infinity and the NaN of opposite infinities are results, not mishaps.
    with np.errstate(all="ignore"):
        for first in range(0, tiles, batch):
            part = slice(first, min(first + batch, tiles))
            chosen = (_take(a, part), _take(b, part), _take(c, part))
            result[part] = _batch(*chosen, ab, acc)
    result[np.isnan(result)] = np.nan
    return result


def _take(operand: Values, part: slice) -> Float64:
    """Select tiles of an operand, as float64; a single tile serves all."""
    chosen = operand if len(operand) == 1 else operand[part]
    return chosen.astype(np.float64)


def _batch(a: Float64, b: Float64, c: Float64, ab: Format, acc: Format) -> Values:
    """Compute one batch: a float64 product where it is exact, term by term elsewhere."""
    # Adding +0 makes an exact zero +0, whatever sign the matrix product gave it.
    total = np.asarray(np.matmul(a, b)) + c + 0.0
    d: Values = total.astype(acc.dtype)
    rows = np.broadcast_to(a, (len(d), *a.shape[1:]))
    columns = np.broadcast_to(b, (len(d), *b.shape[1:]))
    addends = np.broadcast_to(c, d.shape)
    for w, i, j in np.argwhere(~_float64_is_exact(a, b, c)):
        d[w, i, j] = _one_output(rows[w, i], columns[w, :, j], float(addends[w, i, j]), ab, acc)
    return d


def _float64_is_exact(a: Float64, b: Float64, c: Float64) -> Values:
    """Say for each output whether no sum of its terms needs more than 53 bits; (W, m, n) bool.

    An infinity, a NaN or a binary64 subnormal makes the answer no.
    """
    largest = leading_power(a).max(axis=2)[:, :, None] * leading_power(b).max(axis=1)[:, None, :]
    lowest = lowest_power(a).min(axis=2)[:, :, None] * lowest_power(b).min(axis=1)[:, None, :]
    top = np.maximum(largest, leading_power(c))
    low = np.minimum(lowest, lowest_power(c))
    # A product is below 4 * top, and there are k + 1 terms.
    span = 4.0 * (a.shape[2] + 1) * top
    in_range = np.isfinite(span) & (low > _SAFE_LOW)
    return np.asarray((span <= low * 2.0**53) & in_range)


def _one_output(row: Float64, column: Float64, addend: float, ab: Format, acc: Format) -> float:
    """Return row . column + addend, at most rounded to odd in float64; one rounding is left."""
    factors_finite = np.isfinite(row) & np.isfinite(column)
    if not (bool(factors_finite.all()) and math.isfinite(addend)):
        # A finite product has no say beside an infinity, even if float64 cannot hold it.
        special = np.where(factors_finite, 0.0, row * column).sum()
        return float(special) + (0.0 if math.isfinite(addend) else addend)
    if ab.name == "f64" or acc.name == "f64":
        return _round_fraction(row, column, addend)
    terms = [*(row * column).tolist(), addend]
    nearest = math.fsum(terms)
    error = math.fsum([*terms, -nearest])
    return float(round_to_odd(np.array(nearest), np.array(error)))


def _round_fraction(row: Float64, column: Float64, addend: float) -> float:
    """Return row . column + addend rounded once to float64, for any finite numbers."""
    exact = Fraction(addend)
    for x, y in zip(row.tolist(), column.tolist(), strict=True):
        exact += Fraction(x) * Fraction(y)
    return fraction_to_float(exact)


def integer_values(a: Values, b: Values, c: Values) -> Values:
    """Return a @ b + c in integers, wrapped to 32 bits.

    a: (W, m, k) s8 or u8, b: (W, k, n), c: (W, m, n) s32 -> (W, m, n) s32; each W may be 1.
    """
    # A product is at most 2**16, so float64 sums are exact for every k that fits in memory.
    products = np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64)
    total: Values = products + c
    return total.astype(np.int32)
