"""The exact value of a group of products, with c or without, and a single rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np

from tcusim.machine.formats import Float64, Format, Values, leading_power, lowest_power
from tcusim.machine.rules import Exact
from tcusim.machine.sequential import fraction_to_float, round_to_odd
from tcusim.machine.watch import Watch

Outputs: TypeAlias = Callable[[Float64, Float64, Float64], Values | None]

# Above it no product of two factors loses bits to underflow.
_SAFE_LOW: Final = 2.0**-900


def exact_values(
    a: Float64,
    b: Float64,
    c: Float64,
    types: tuple[Format, Format],
    how: Exact,
    watch: Watch | None = None,
    outputs: Outputs | None = None,
) -> Values:
    """Return the exact a @ b + c of each group of products, rounded once to nearest even.

    a: (W, m, k) ab, b: (W, k, n) ab, c: (W, m, n) acc, all as float64 -> (W, m, n) acc; each W may
    be 1 instead. types: of a and b, and of c. outputs: computes the sums of a group for which
    float64 is too narrow, of rows (N, k), columns (N, k) and addends (N,), unless it returns None.
    """
    k = a.shape[2]
    length = how.length or k
    d = c
    for start in range(0, k, length):
        group = range(k)[start : start + length]
        joined = d if how.c_joins == "sum" else None
        if watch is not None:
            watch.begin(group, a, b, *(() if joined is None else (joined,)))
        inside = outputs if watch is None else None
        total = _one_group(a[:, :, group], b[:, group], joined, types, inside)
        if watch is not None:
            watch.end(total)
        if joined is None:
            total = _added_after(total, d, types[1], watch)
        d = total
    return d.astype(types[1].dtype)


def _added_after(total: Float64, c: Float64, acc: Format, watch: Watch | None) -> Float64:
    """Add c to a rounded sum, to nearest even."""
    if watch is not None:
        watch.begin((), None, None, c, total)
    added: Values = total.astype(acc.dtype) + c.astype(acc.dtype)
    d = np.where(np.isnan(added), np.nan, added.astype(np.float64))
    if watch is not None:
        watch.end(d)
    return d


def _one_group(
    a: Float64,
    b: Float64,
    c: Float64 | None,
    types: tuple[Format, Format],
    outputs: Outputs | None,
) -> Float64:
    """Return the exact sum of products and c, if it is a term, rounded once.

    A float64 product where that is exact, term by term elsewhere. An exact zero is -0 where every
    term is, and +0 elsewhere.
    """
    ab, acc = types
    addend = np.zeros((1, 1, 1)) if c is None else c
    # Adding +0 makes an exact zero +0, whatever sign the matrix product gave it.
    total = np.asarray(np.matmul(a, b)) + addend + 0.0
    d: Values = total.astype(acc.dtype)
    rows = np.broadcast_to(a, (len(d), *a.shape[1:]))
    columns = np.broadcast_to(b, (len(d), *b.shape[1:]))
    addends = np.broadcast_to(addend, d.shape)
    w, i, j = np.nonzero(~_float64_is_exact(a, b, addend))
    if w.size:
        operands = rows[w, i], columns[w, :, j], addends[w, i, j]
        found = None if outputs is None else outputs(*operands)
        if found is None:
            found = np.array([_one_output(*one, ab, acc) for one in zip(*operands, strict=True)])
        d[w, i, j] = found
    d[np.isnan(d)] = np.nan
    result = d.astype(np.float64)
    given = True if c is None else (c == 0.0) & np.signbit(c)
    if np.any(given) and not result.all():
        zeros = (a[:, :, :, None] == 0.0) | (b[:, None, :, :] == 0.0)
        negative = np.signbit(a)[:, :, :, None] != np.signbit(b)[:, None, :, :]
        every = (zeros & negative).all(axis=2) & given
        np.copyto(result, -0.0, where=(result == 0.0) & every)
    return result


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
