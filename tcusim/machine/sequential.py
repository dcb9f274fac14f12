"""Sums by IEEE operations, each with a single correct rounding, vectorised.

Fused multiply-adds one after another are the usual ones; trees and partial sums are of few units.

The exact a*b + c is first rounded to odd in float64 and then to nearest in the accumulator's
type. Rounding to odd keeps enough of the lost bits for that to equal one rounding.
Source: [BOLDO08].
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np

from tcusim.machine.formats import Float64, Format, Values, flushed, format_of, round_values
from tcusim.machine.rules import Sequential
from tcusim.machine.watch import Watch

# Within these bounds neither a product of two float64 nor its rounding error leaves the range.
_SAFE_FACTOR: Final = 2.0**500
_SAFE_LOW: Final = 2.0**-900
_SPLITTER: Final = 2.0**27 + 1.0

# The NaN of an invalid float64 operation, and the bit that makes a NaN quiet.
_INVALID: Final = np.uint64(0xFFF8_0000_0000_0000)
_QUIET: Final = np.uint64(0x0008_0000_0000_0000)


def sequential_values(
    a: Float64,
    b: Float64,
    c: Float64,
    types: tuple[Format, Format, Format],
    how: Sequential,
    watch: Watch | None = None,
) -> Float64:
    """Accumulate products as a rule orders and rounds them, k ascending.

    a: (W, m, k) ab, b: (W, k, n) ab, c: (W, m, n) acc, all as float64 -> (W, m, n) acc; each W may
    be 1 instead. types: of a, b and c.
    """
    left, _, acc = types
    if how.is_basic:
        return _one_chain(a, b, c, left, acc, watch)
    if how.flush_inputs:
        a, b, c = (flushed(*one) for one in zip((a, b, c), types, strict=True))
    sums = _Sums(a, b, acc, how, watch)
    for start in range(0, a.shape[2], how.length or a.shape[2]):
        group = range(a.shape[2])[start : start + (how.length or a.shape[2])]
        c = sums.add_group(group, c)
    return np.where(np.isnan(c), np.nan, c)


class _Sums(NamedTuple):
    """Products of rows and columns, summed by operations of one type, `acc` at first."""

    a: Float64
    b: Float64
    acc: Format
    how: Sequential
    watch: Watch | None

    def add_group(self, group: range, c: Float64) -> Float64:
        """Return c and the products of a group."""
        if self.how.sums == 1 and self.how.order == "chain":
            return self.chain(group, c)
        inner = self
        if self.how.sum_type:
            inner = self._replace(acc=format_of(self.how.sum_type))
        return self.operation((), 0.0, c, inner.total(group))

    def total(self, group: range) -> Float64:
        """Return the sum of a group, without c."""
        if self.how.order == "tree":
            return self.tree(group)
        total, *others = [
            self.chain(group[first :: self.how.sums], None)
            for first in range(min(self.how.sums, len(group)))
        ]
        for one in others:
            total = self.operation((), 0.0, total, one)
        return total

    def chain(self, products: range, addend: Float64 | None) -> Float64:
        """Return the addend, zero without one, and these products one after another."""
        total = addend
        for i in products:
            total = self.operation((i,), self.product(i), *(() if total is None else (total,)))
        assert total is not None, "a chain has a product"
        return total

    def tree(self, products: range) -> Float64:
        """Return the sum of the rounded products, pairwise."""
        if len(products) == 1:
            return self.operation((products[0],), self.product(products[0]))
        half = len(products) // 2
        first, second = self.tree(products[:half]), self.tree(products[half:])
        return self.operation((), 0.0, first, second)

    def product(self, i: int) -> Float64:
        """Return product i, exactly."""
        return self.a[:, :, i, None] * self.b[:, i, None, :]

    def operation(
        self, products: Sequence[int], product: Float64 | float, *addends: Float64
    ) -> Float64:
        """Round the sum of at most two: a product, and addends, of which one may be missing."""
        if self.watch is not None:
            factors = (self.a, self.b) if products else (None, None)
            self.watch.begin(products, *factors, *addends)
        # A product that is rounded alone keeps the sign of a zero; the chains here begin with +0.
        none = np.copysign(0.0, product if self.how.order == "tree" else 1.0)
        x, y = (np.asarray(product), *addends, none)[:2] if products else addends
        total, error = two_sum(x, y)
        if self.how.rounding == "rd":
            # IEEE 754: numbers that cancel make -0 in this direction.
            both = ((x == 0.0) & ~np.signbit(x)) & ((y == 0.0) & ~np.signbit(y))
            total = np.where((total == 0.0) & ~both, -0.0, total)
        exact = round_to_odd(total, error)
        d = round_values(exact, self.acc, self.how.rounding).astype(np.float64)
        if self.how.rounding == "odd":
            beyond = np.abs(exact) >= 2.0 ** (self.acc.emax + 1)
            np.copyto(d, np.copysign(np.inf, exact), where=beyond)
        if self.how.flush_outputs:
            d = flushed(d, self.acc)
        if self.watch is not None:
            self.watch.end(d)
        return d


def _one_chain(
    a: Float64, b: Float64, c: Float64, ab: Format, acc: Format, watch: Watch | None
) -> Float64:
    """Accumulate products one by one, k ascending, rounding to nearest even each time."""
    # Of narrower types at most 24 + 24 significand bits meet: their product is exact in float64.
    is_double = ab.name == "f64"
    # A product with 0 or 1 is exact: float64 itself rounds the sum once.
    exact = is_double and (_are_zeros_and_ones(a) or _are_zeros_and_ones(b))
    for i in range(a.shape[2]):
        a_term = a[:, :, i, None]
        b_term = b[:, i, None, :]
        if watch is not None:
            watch.begin((i,), a, b, c)
        if exact:
            c = _propagate_nan(np.asarray(a_term * b_term + c), a_term, c, b_term)
        elif is_double:
            c = _fma(a_term, b_term, c)
        else:
            c = _add_and_round(a_term * b_term, c, acc)
        if watch is not None:
            watch.end(c)
    return c if is_double else np.where(np.isnan(c), np.nan, c)


def _are_zeros_and_ones(x: Float64) -> bool:
    return bool(((x == 0.0) | (x == 1.0)).all())


def _add_and_round(product: Float64, c: Float64, acc: Format) -> Float64:
    """Return product + c rounded once to the accumulator's type, as float64."""
    if acc.name == "f64":
        return product + c
    total, error = two_sum(product, c)
    rounded: Values = round_to_odd(total, error).astype(acc.dtype)
    return rounded.astype(np.float64)


def two_sum(x: Float64, y: Float64) -> tuple[Float64, Float64]:
    """Return x + y rounded, and its rounding error (Knuth); NaN error where x + y is not finite."""
    total = x + y
    y_part = total - x
    error = (x - (total - y_part)) + (y - y_part)
    return total, error


def _two_product(x: Float64, y: Float64) -> tuple[Float64, Float64]:
    """Return x * y rounded, and its rounding error (Dekker); nothing may over- or underflow."""
    product = x * y
    x_high, x_low = _split(x)
    y_high, y_low = _split(y)
    error = x_low * y_low - (((product - x_high * y_high) - x_low * y_high) - x_high * y_low)
    return product, error


def _split(x: Float64) -> tuple[Float64, Float64]:
    """Split 53 significand bits into 26 and 26 (Veltkamp)."""
    scaled = x * _SPLITTER
    high = scaled - (scaled - x)
    return high, x - high


def round_to_odd(total: Float64, error: Float64) -> Float64:
    """Round total + error to odd, where total is that sum rounded to nearest.

    If bits were lost and total is even, the odd neighbour lies on the error's side.
    """
    bits = np.array(total).view(np.int64)
    lost = np.isfinite(total) & (error != 0.0) & ((bits & 1) == 0)
    away_from_zero = (error > 0.0) == (total > 0.0)
    bits += np.where(lost, np.where(away_from_zero, 1, -1), 0)
    return bits.view(np.float64)


def _fma(a: Float64, b: Float64, c: Float64) -> Float64:
    """Return a*b + c rounded once to float64, for broadcastable arrays.

    Source: [BOLDO08] algorithm 5. Elements near the ends of the range are computed exactly.
    """
    a, b, c = np.broadcast_arrays(a, b, c)
    high, low = _two_product(a, b)
    tail, tail_error = two_sum(c, low)
    head, head_error = two_sum(high, tail)
    correction = round_to_odd(*two_sum(tail_error, head_error))
    result = np.asarray(head + correction)
    plain = (a == 0.0) | (b == 0.0) | ~np.isfinite(a) | ~np.isfinite(b)
    np.copyto(result, a * b + c, where=plain)
    # A product that is finite, whether float64 holds it or not, has no say beside an infinity.
    np.copyto(result, c, where=~plain & ~np.isfinite(c))
    for index in np.argwhere(~plain & np.isfinite(c) & ~_is_safe(a, b, c)):
        at = tuple(index)
        exact = Fraction(float(a[at])) * Fraction(float(b[at])) + Fraction(float(c[at]))
        result[at] = fraction_to_float(exact)
    return _propagate_nan(result, a, c, b)


def _propagate_nan(result: Float64, *operands: Values) -> Float64:
    """Give each NaN of a float64 result the payload that a GPU gives it.

    That is the last operand's that is NaN, made quiet; if none is, a negative NaN without payload.
    An H200 showed a*b + c to prefer b, then c, then a.
    """
    nan = np.isnan(result)
    if not nan.any():
        return result
    bits = np.array(result).view(np.uint64)
    bits[nan] = _INVALID
    for operand in operands:
        given = np.broadcast_to(operand, result.shape)
        chosen = nan & np.isnan(given)
        bits[chosen] = np.ascontiguousarray(given).view(np.uint64)[chosen] | _QUIET
    return bits.view(np.float64)


def _is_safe(a: Float64, b: Float64, c: Float64) -> Values:
    """Say where no step of `_fma` leaves the range of float64."""
    largest = np.maximum(np.maximum(np.abs(a), np.abs(b)), np.abs(c))
    return np.asarray((largest < _SAFE_FACTOR) & (np.abs(a * b) > _SAFE_LOW))


def fraction_to_float(exact: Fraction) -> float:
    """Return a fraction rounded to nearest even; infinity where it is too large."""
    try:
        return float(exact)
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")
