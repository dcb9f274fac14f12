"""The error of one accumulator's sum, measured on the simulator."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tcusim.machine import Rule, format_of, mma_values, round_values

__all__ = ["FAMILIES", "measured_error"]

_REPETITIONS: Final = 32
_Draw = Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]]
# What terms are, by name.
FAMILIES: Final[Mapping[str, _Draw]] = {
    "uniform": lambda rng, shape: rng.uniform(-1, 1, shape),
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "same_sign": lambda rng, shape: rng.uniform(0, 1, shape),
}


def measured_error(rule: Rule, family: str, length: int, k: int) -> float:
    """Return the root mean square of |sum - exact| / sum of |terms|, over some sums of a chain.

    Infinite if a sum overflows.
    """
    rng = np.random.default_rng(length)
    drawn = FAMILIES[family](rng, (_REPETITIONS, length))
    terms = round_values(drawn, rule.ab)
    ones = np.ones((length, 1), terms.dtype)
    sums = np.zeros((_REPETITIONS, 1), format_of(rule.acc).dtype)
    for first in range(0, length, k):
        part = slice(first, first + k)
        sums = mma_values(terms[:, part], ones[part], sums, rule)
    errors = [
        (float(got) - math.fsum(exact)) / math.fsum(np.abs(exact))
        for got, exact in zip(sums[:, 0], terms.astype(np.float64), strict=True)
    ]
    return math.sqrt(float(np.mean(np.square(errors))))
