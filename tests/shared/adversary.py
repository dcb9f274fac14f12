"""Rules with steps on numbers of 4 bytes, and tiles that distinguish two ways to do them."""

from __future__ import annotations

import numpy as np

from numbers_of_types import random_values
from tcusim.machine import FORMATS, Fused, Rule, Values, arches, round_values
from tcusim.machine.fused_narrow import NarrowUnit


def unit_of(rule: Rule) -> NarrowUnit | None:
    assert isinstance(rule.how, Fused)
    return NarrowUnit.of(FORMATS[rule.ab], FORMATS[rule.acc], rule.how)


RULES = [
    rule
    for rule in {
        (rule.ab, rule.acc, rule.how): rule for unit in arches() for rule in unit.rows
    }.values()
    if isinstance(rule.how, Fused)
]
NARROW = [rule for rule in RULES if unit_of(rule)]

PATTERNS = ("ones", "upper", "strictly upper", "a row", "some", "zeros", "diagonal", "blocks")


def pattern_of(name: str, k: int, n: int, rng: np.random.Generator) -> Values:
    """Return a constant operand of zeros and ones, (k, n)."""
    i, j = np.indices((k, n))
    marks = {
        "ones": i >= 0,
        "upper": i <= j,
        "strictly upper": i < j,
        "a row": i == 0,
        "some": rng.random((k, n)) < 0.4,
        "zeros": i < 0,
        "diagonal": i == j,
        "blocks": i // 3 == j // 3,
    }
    return np.asarray(marks[name], np.float64)


def operand(rng: np.random.Generator, shape: tuple[int, ...], fmt: str) -> Values:
    """Draw one of many kinds of tiles."""
    row = FORMATS[fmt]
    kind = rng.integers(9)
    x: Values = rng.standard_normal(shape)
    if kind == 0:
        x *= 2.0 ** rng.integers(max(row.emin, -100), min(row.emax, 60) - 3)
    elif kind == 1:
        return random_values(rng, shape, fmt, 200)
    elif kind == 2:
        # Exponents on both sides of the limit of an alignment.
        x = np.exp2(np.maximum(rng.choice([0, -7, -11, -12, -13], shape), row.emin)) * x
    elif kind == 3:
        x = np.where(rng.random(shape) < 0.5, x, -np.roll(x, 1, axis=-1))
    elif kind == 4:
        x = row.smallest * rng.integers(-9, 10, shape)
    elif kind == 5:
        x = np.where(rng.random(shape) < 0.8, rng.choice([0.0, -0.0], shape), x)
    elif kind == 6:
        specials = rng.choice([np.inf, -np.inf, np.nan], shape)
        x = np.where(rng.random(shape) < 0.01, specials, x)
    elif kind == 7:
        x = np.full(shape, rng.choice([row.largest, 2 - 2.0**-row.fraction_bits]))
        x *= rng.choice([-1, 1, 1, 1], shape)
    return round_values(x, fmt)
