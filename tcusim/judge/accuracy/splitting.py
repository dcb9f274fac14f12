"""The gain from splitting float32 numbers into parts that a unit multiplies."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from tcusim.judge.accuracy.measure import BLOCK, blocked_sums
from tcusim.machine import Rule, format_of, round_values

_SEED: Final = 11
_ROWS: Final = 48
_LENGTH: Final = 4096
_MOST_PARTS: Final = 3


@dataclass(frozen=True, slots=True)
class Splitting:
    """The error of sums of float32 numbers that are split into parts of the operands' type.

    Attributes
    ----------
    parts : int
        How many: 1 rounds each number to the type, and each further part has what the parts before
        it leave. So many times as many mma are taken.
    error : float
        The root mean square of |computed - exact| / (sum of |terms|), of sums of 4,096 normal
        numbers in blocks of 16 mma, measured on the simulator.
    """

    parts: int
    error: float


def splitting_of(rule: Rule, k: int = 16) -> tuple[Splitting, ...]:
    """Return the error for one, two and three parts.

    Empty where there is nothing to split: for integers, and for operands that hold every float32.
    """
    ab = format_of(rule.ab)
    if not ab.is_float or ab.fraction_bits >= format_of("f32").fraction_bits:
        return ()
    rng = np.random.default_rng(_SEED)
    numbers = rng.standard_normal((_ROWS, _LENGTH)).astype(np.float32).astype(np.float64)
    exact, sizes = numbers.sum(axis=1), np.abs(numbers).sum(axis=1)
    found, rest, parts = [], numbers, []
    for count in range(1, _MOST_PARTS + 1):
        part = round_values(rest, rule.ab)
        rest = rest - part.astype(np.float64)
        parts.append(part)
        computed = blocked_sums(np.concatenate(parts, axis=1), rule, k, BLOCK).astype(np.float64)
        errors = (computed - exact) / sizes
        known = bool(np.isfinite(errors).all())
        error = math.sqrt(float(np.mean(errors**2))) if known else math.inf
        found.append(Splitting(count, error))
    return tuple(found)
