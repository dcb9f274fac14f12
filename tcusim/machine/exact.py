"""The exact value of a @ b + c with a single rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np

from tcusim.machine.formats import Float64, Format, Values, leading_power, lowest_power
from tcusim.machine.sequential import fraction_to_float, round_to_odd
from tcusim.machine.watch import Watch

__all__ = ["exact_values"]

Outputs: TypeAlias = Callable[[Float64, Float64, Float64], Values | None]

# Above it no product of two factors loses bits to underflow.
_SAFE_LOW: Final = 2.0**-900


def exact_values(
    a: Float64,
    b: Float64,
    c: Float64,
    ab: Format,
    acc: Format,
    watch: Watch | None = None,
    outputs: Outputs | None = None,
) -> Values:
    """Return the exact a @ b + c, rounded once to nearest even.

    A float64 product where that is exact, term by term elsewhere. a: (W, m, k) ab, b: (W, k, n) ab,
    c: (W, m, n) acc, all as float64 -> (W, m, n) acc; each W may be 1 instead. outputs: computes
    those elsewhere, of rows (N, k), columns (N, k) and addends (N,), unless it returns None.
    """
    if watch is not None:
        watch.begin(range(a.shape[2]), a, b, c)
    # Adding +0 makes an exact zero +0, whatever sign the matrix product gave it.
    total = np.asarray(np.matmul(a, b)) + c + 0.0
    d: Values = total.astype(acc.dtype)
    rows = np.broadcast_to(a, (len(d), *a.shape[1:]))
    columns = np.broadcast_to(b, (len(d), *b.shape[1:]))
    addends = np.broadcast_to(c, d.shape)
    w, i, j = np.nonzero(~_float64_is_exact(a, b, c))
    if w.size:
        operands = rows[w, i], columns[w, :, j], addends[w, i, j]
        found = None if outputs is None or watch is not None else outputs(*operands)
        if found is None:
            found = np.array([_one_output(*one, ab, acc) for one in zip(*operands, strict=True)])
        d[w, i, j] = found
    d[np.isnan(d)] = np.nan
    if watch is not None:
        watch.end(d.astype(np.float64))
    return d


def _float64_is_exact(a: Float64, b: Float64, c: Float64) -> Values:
    """Say for each output whether no sum of its terms needs more than 53 bits; (W, m, n) bool.

    An infinity, a NaN or a binary64 subnormal makes the answer no.
    """
    largest = leading_power(a).max(axis=2, keepdims=True)
    largest = largest * leading_power(b).max(axis=1, keepdims=True)
    lowest = lowest_power(a).min(axis=2, keepdims=True)
    lowest = lowest * lowest_power(b).min(axis=1, keepdims=True)
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
        pairs = zip(row.tolist(), column.tolist(), strict=True)
        return fraction_to_float(
            sum((Fraction(x) * Fraction(y) for x, y in pairs), Fraction(addend))
        )
    terms = [*(row * column).tolist(), addend]
    nearest = math.fsum(terms)
    error = math.fsum([*terms, -nearest])
    return float(round_to_odd(np.array(nearest), np.array(error)))
