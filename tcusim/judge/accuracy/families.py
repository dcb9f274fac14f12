"""Kinds of data whose sums are tried: what an error is depends on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tcusim.machine import Values, format_of, round_values

Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of data.

    Attributes
    ----------
    name : str
        What it is called.
    title : str
        What the terms are.
    draw : callable
        Draws independent terms of a shape from a random generator.
    one_sign : bool
        Whether no term is negative, so that sums only grow.
    returns : bool
        Whether each term has its negative between the same two powers of two, in any order: the sum
        of the first 2^j terms is zero.
    quantile : callable, optional
        The inverse of the terms' distribution function. Needed where a mean must be known without
        the noise of samples: that of terms of one sign adds up.
    """

    name: str
    title: str
    draw: Callable[[np.random.Generator, tuple[int, int]], Float64]
    one_sign: bool = False
    returns: bool = False
    quantile: Callable[[Float64], Float64] | None = None


def _normal(rng: np.random.Generator, shape: tuple[int, int]) -> Float64:
    return rng.standard_normal(shape)


def _heavy_tailed(rng: np.random.Generator, shape: tuple[int, int]) -> Float64:
    found: Float64 = rng.lognormal(0.0, 1.5, shape) * rng.choice((-1.0, 1.0), shape)
    return found


FAMILIES: Final[Mapping[str, Family]] = {
    one.name: one
    for one in (
        Family("uniform", "between -1 and 1", lambda rng, shape: rng.uniform(-1, 1, shape)),
        Family("normal", "of mean 0 and variance 1", _normal),
        Family(
            "same_sign",
            "between 0 and 1",
            lambda rng, shape: rng.uniform(0, 1, shape),
            one_sign=True,
            quantile=lambda share: share,
        ),
        Family("heavy_tailed", "log-normal (sigma 1.5) with random signs", _heavy_tailed),
        Family("cancelling", "normal, each with its negative: the sum is 0", _normal, returns=True),
    )
}


def in_type(values: Float64, ab: str) -> Values:
    """Return numbers of a type; those that are beyond its largest one are that.

    An error is that of a sum, so that no term may be infinite, or NaN as it is in e4m3.
    """
    known = format_of(ab)
    if known.is_float:
        values = np.clip(values, -known.largest, known.largest)
    return round_values(values, ab)


def terms_of(family: Family, rng: np.random.Generator, rows: int, length: int, ab: str) -> Values:
    """Return arrays of a family, rounded to the operands' type: (rows, length)."""
    if not family.returns:
        return in_type(family.draw(rng, (rows, length)), ab)
    parts = []
    for size in (2 ** max(1, number) for number in range(max(1, (length - 1).bit_length()))):
        half = in_type(family.draw(rng, (rows, size // 2)), ab)
        parts.append(rng.permuted(np.concatenate([half, -half], axis=1), axis=1))
    return np.concatenate(parts, axis=1)[:, :length]
