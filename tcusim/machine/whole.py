"""Sums of integers, with little or no rounding in any arithmetic.

Counts, 0/1 matrices and test data are of this kind. For any grouping and order of such a sum, every
part of it is an integer. If every step represents them, one matrix product gives all the bits; if
at least the alignment keeps them, it need not check for lost bits.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from tcusim.machine.formats import Float64, Format, Values, format_of
from tcusim.machine.rules import Exact, Fused, Integer, Late, Rule, Sequential

# More than a sum grows by, times, when a thousand steps round it up to float16.
_ROUNDED_UP: Final = 2.0
_MOST_TERMS: Final = 1000


def largest_sum(a: Float64, b: Float64, c: Float64) -> float:
    """Return a bound on all parts of a @ b + c, if all are integers; else infinity.

    a: (W, m, k), b: (W, k, n), c: (W, m, n); each W may be 1 instead.
    """
    if not (a.size and b.size and c.size and float(a[0, 0, 0]).is_integer()):
        return math.inf
    if not (_are_whole(a) and _are_whole(b) and _are_whole(c)):
        return math.inf
    largest = a.shape[2] * _reach(a) * _reach(b) + _reach(c)
    return math.inf if math.isnan(largest) else largest


def whole_values(
    a: Float64, b: Float64, c: Float64, acc: Format, how: Fused | Sequential | Exact, largest: float
) -> Values | None:
    """Return a @ b + c, or None where some sum may need rounding; `largest` is `largest_sum`.

    a: (W, m, k), b: (W, k, n), c: (W, m, n) acc, all as float64 -> (W, m, n) acc; each W may be 1
    instead.
    """
    if largest > _most(acc, how):
        return None
    signed = isinstance(how, Sequential | Exact)
    down = isinstance(how, Sequential) and how.rounding == "rd"
    if down or (signed and bool(((c == 0.0) & np.signbit(c)).any())):
        # Numbers that cancel may be -0. So is -0 + -0, if nothing else is ever added.
        return None
    # Any other zero is +0, whatever sign the matrix product gave it.
    total = multiply(a, b) + c + 0.0
    return np.asarray(total.astype(acc.dtype))


def are_aligned_whole(how: Fused, acc: Format, terms: int, largest: float) -> bool:
    """Whether no term of any step loses a bit in the alignment, and no sum is infinite.

    terms: k. largest: the result of `largest_sum`.
    """
    reach = _ROUNDED_UP * largest
    kept = max(reach, 2.0 ** _floor(how)) <= 2.0 ** _aligned_bits(how)
    return kept and reach <= acc.largest and terms <= _MOST_TERMS


def largest_kept(rule: Rule, k: int, term: int) -> int:
    """Return a bound on sums of integer products, each up to `term`, that a rule keeps exactly.

    k: products of one mma.
    """
    if isinstance(rule.how, Integer):
        group = (rule.how.length or k) * term
        return 2**30 if group < 2 ** (rule.how.sum_bits - 1) else 0
    # With the leading one, integers have a bit more than the fraction.
    return int(2 * _most(format_of(rule.acc), rule.how))


def _most(acc: Format, how: Fused | Sequential | Exact) -> float:
    """Return the integer up to which all integers enter a sum without loss."""
    if isinstance(how, Sequential) and how.sum_type:
        return 2.0 ** min(acc.fraction_bits, format_of(how.sum_type).fraction_bits)
    if not isinstance(how, Fused):
        return 2.0**acc.fraction_bits
    if _floor(how) > _aligned_bits(how):
        return 0.0
    return 2.0 ** min(_aligned_bits(how), how.output_fraction_bits or acc.fraction_bits)


def _floor(how: Fused) -> int:
    """Return the least exponent of any alignment of a step, 0 if integers need none."""
    floors = [0, how.exponent_floor or 0]
    if isinstance(how.c_joins, Late):
        floors.append(how.c_joins.floor or 0)
    return max(floors)


def _aligned_bits(how: Fused) -> int:
    """Return the bits that every alignment of a step keeps below the largest exponent."""
    late = how.c_joins
    joins: tuple[int, ...] = ()
    if isinstance(late, Late):
        # Further below, c counts as zero.
        joins = late.sum_bits, late.c_bits, late.reach or late.c_bits
    # The exponent of a product may be one more than its own.
    kept = min((how.fraction_bits, *joins))
    return kept - 1 if how.exponents == "upper" else kept


def _reach(x: Float64) -> float:
    """Return the largest magnitude; NaN if there is a NaN."""
    return max(float(x.max()), -float(x.min()))


def _are_whole(x: Float64) -> bool:
    return bool((np.rint(x) == x).all())


def multiply(a: Float64, b: Float64) -> Float64:
    """Multiply all tiles; one constant b makes it a single tall product."""
    if len(b) > 1 or len(a) == 1:
        return np.asarray(np.matmul(a, b))
    tiles, m, k = a.shape
    return np.asarray(a.reshape(tiles * m, k) @ b[0]).reshape(tiles, m, b.shape[2])
