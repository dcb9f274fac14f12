"""A proxy for the area and energy of a unit: gates counted as in a textbook, not a layout."""

from __future__ import annotations

import math
from typing import Final

from tcusim.machine import Fused, Rule, format_of

# Of one full adder in one operation, in 45 nm at 0.9 V: integer additions of 8 and 32 bits take
# 0.03 and 0.1 pJ, multiplications 0.2 and 3.1 pJ, which is 3.0 to 3.8 fJ for each of their 8, 32,
# 64 and 1024 cells [HOROWITZ14 fig. 1.1.9].
PICOJOULES: Final = 3.1e-3


def area_proxy(m: int, n: int, k: int, rule: Rule) -> float | None:
    """Return about how many full adders a unit has that does one tile a cycle.

    For each of the m*n*k multiply-adds: an array multiplier of p x p cells, where p is the width of
    an operand's significand; a shifter that aligns the product, w*ceil(log2 w) multiplexers, where
    w = F + 2 + ceil(log2(L + 1)) bits hold the sum of L products and c; and w adders. For each step
    of L products, as much again as for one product's shifter and adder, to normalise and round.
    Counts of cells: [WESTE10 sec. 11.8, 11.9]. A multiplexer is counted as an adder; wires,
    registers and exponents are left out. So it serves to compare units with each other, and is no
    area.

    Parameters
    ----------
    m, n, k : int
        The tile, in elements.
    rule : Rule
        The arithmetic.

    Returns
    -------
    float or None
        Full adders; None for arithmetic that is no fused step.

    Examples
    --------
    >>> from tcusim.machine import rule_for
    >>> round(area_proxy(16, 16, 16, rule_for("hopper", "f16", "f32")))
    1331200
    """
    how = rule.how
    if not isinstance(how, Fused):
        return None
    significand = format_of(rule.ab).fraction_bits + 1
    # A tile of k products has no step of more.
    length = min(how.length, k)
    width = how.fraction_bits + 2 + math.ceil(math.log2(length + 1))
    align_and_add = width * (math.ceil(math.log2(width)) + 1)
    return m * n * k * (significand**2 + align_and_add * (1 + 1 / length))
