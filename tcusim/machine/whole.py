"""Sums of small whole numbers, in which no arithmetic has anything to round.

Counts, 0/1 matrices and test data are of this kind. However a tensor core groups and orders such a
sum, every part of it is a whole number that every step holds, so that one matrix product gives the
bits of all.
"""

from __future__ import annotations

import numpy as np

from tcusim.machine.formats import Float64, Format, Values
from tcusim.machine.fused import multiply
from tcusim.machine.rules import Exact, Fused, Sequential

__all__ = ["whole_values"]


def whole_values(
    a: Float64, b: Float64, c: Float64, acc: Format, how: Fused | Sequential | Exact
) -> Values | None:
    """Return a @ b + c, or None where some sum may need rounding.

    a: (W, m, k), b: (W, k, n), c: (W, m, n) acc, all as float64 -> (W, m, n) acc; each W may be 1
    instead.
    """
    if not (a.size and b.size and c.size and float(a[0, 0, 0]).is_integer()):
        return None
    # Not so for a NaN. The rest is looked at only where it may be true.
    small = a.shape[2] * _reach(a) * _reach(b) + _reach(c) <= _most(acc, how)
    if not (small and _are_whole(a) and _are_whole(b) and _are_whole(c)):
        return None
    if isinstance(how, Sequential) and bool(((c == 0.0) & np.signbit(c)).any()):
        # -0 + -0 is -0, if nothing else is ever added.
        return None
    # Any other zero is +0, whatever sign the matrix product gave it.
    total = multiply(a, b) + c + 0.0
    return np.asarray(total.astype(acc.dtype))


def _most(acc: Format, how: Fused | Sequential | Exact) -> float:
    """Return a number up to which every whole number takes part in a sum without loss."""
    if not isinstance(how, Fused):
        return 2.0**acc.fraction_bits
    if how.exponent_floor is not None and how.exponent_floor > how.fraction_bits:
        return 0.0
    return 2.0 ** min(how.fraction_bits, how.output_fraction_bits or acc.fraction_bits)


def _reach(x: Float64) -> float:
    """Return the largest magnitude; NaN if there is a NaN."""
    return max(float(x.max()), -float(x.min()))


def _are_whole(x: Float64) -> bool:
    return bool((np.rint(x) == x).all())
