"""The error of sums, measured: chains of multiply-accumulates on the simulator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tcusim.judge.accuracy.families import FAMILIES, Float64, terms_of
from tcusim.machine import Fused, Rule, Values, format_of, mma_values

# Mma of a block of a blocked sum.
BLOCK: Final = 16

_SEED: Final = 7
# Terms that are kept for the next call.
_MOST_KEPT: Final = 2**23

# Numbers with more bits than float64 where the machine has them: what the exact sum is counted in.
_Long = np.longdouble


def measured_errors(
    rule: Rule,
    lengths: Sequence[int],
    *,
    k: int = 16,
    blocked: int | None = None,
    families: Sequence[str] = tuple(FAMILIES),
    rows: int = 48,
) -> dict[str, list[float]]:
    """Return the errors of sums of these lengths, by family.

    Parameters
    ----------
    rule : Rule
        The arithmetic.
    lengths : sequence of int
        Ascending; whole numbers of mma, but where they are shorter than one.
    k : int
        That of the tile.
    blocked : int, optional
        As for `predicted_error`.
    families : sequence of str
        Kinds of data.
    rows : int
        Sums of each length. The error of a root mean square of so many is about its share
        1/sqrt(2 * rows), more for heavy tails.

    Returns
    -------
    dict of str to list of float
        The root mean square of |computed - exact| / (sum of |terms|), for each length.
    """
    every = errors_of_sums(rule, lengths, k=k, blocked=blocked, families=families, rows=rows)
    return {name: [_root(errors) for errors in found] for name, found in every.items()}


def errors_of_sums(
    rule: Rule,
    lengths: Sequence[int],
    *,
    k: int = 16,
    blocked: int | None = None,
    families: Sequence[str] = tuple(FAMILIES),
    rows: int = 48,
) -> dict[str, list[NDArray[_Long]]]:
    """Return the error of each sum, by family and length, of what `measured_errors` takes.

    Each is (computed - exact) / (sum of |terms|); infinite, or NaN, where the sum is.
    """
    found: dict[str, list[NDArray[_Long]]] = {}
    given = rule.ab, tuple(families), rows, tuple(lengths)
    few = len(families) * rows * lengths[-1] <= _MOST_KEPT
    terms, exact, sizes = (_drawn if few else _drawn.__wrapped__)(*given)
    computed = _chain(terms, rule, lengths, k) if blocked is None else []
    if blocked is not None:
        computed = [blocked_sums(terms[:, :length], rule, k, blocked) for length in lengths]
    for place, name in enumerate(families):
        part = slice(place * rows, (place + 1) * rows)
        found[name] = [
            _relative(values[part], exact[part, column], sizes[part, column])
            for column, values in enumerate(computed)
        ]
    return found


@lru_cache(maxsize=1)
def _drawn(
    ab: str, families: tuple[str, ...], rows: int, lengths: tuple[int, ...]
) -> tuple[Values, NDArray[_Long], NDArray[_Long]]:
    """Return terms, and for each length their sums and those of their magnitudes.

    One accumulator and blocks take the same.
    """
    drawn = []
    for name in families:
        rng = np.random.default_rng((_SEED, *name.encode()))
        drawn.append(terms_of(FAMILIES[name], rng, rows, lengths[-1], ab))
    terms = np.concatenate(drawn)
    last = np.array(lengths) - 1
    exact, sizes = (np.cumsum(x, axis=1, dtype=_Long)[:, last] for x in (terms, np.abs(terms)))
    return terms, exact, sizes


def _relative(computed: Values, exact: NDArray[_Long], sizes: NDArray[_Long]) -> NDArray[_Long]:
    return np.asarray((computed.astype(_Long) - exact) / np.where(sizes == 0.0, 1.0, sizes))


def _root(errors: NDArray[_Long]) -> float:
    if not np.isfinite(errors).all():
        return math.inf
    return math.sqrt(float(np.mean(errors**2)))


def _chain(terms: Values, rule: Rule, lengths: Sequence[int], k: int) -> list[Values]:
    """Return the value of one accumulator after each length."""
    sums = np.zeros((len(terms), 1), format_of(rule.acc).dtype)
    computed, before = [], 0
    for length in lengths:
        sums = _accumulated(terms[:, before:length], sums, rule, k)
        computed.append(sums[:, 0])
        before = length
    return computed


def _accumulated(terms: Values, sums: Values, rule: Rule, k: int) -> Values:
    """Return c after the multiply-accumulates of some terms with ones."""
    ones = np.ones((terms.shape[1], 1), terms.dtype)
    # Where steps end with the mma, many are one.
    whole = isinstance(rule.how, Fused) and k % rule.how.length == 0
    size = terms.shape[1] if whole else k
    for start in range(0, terms.shape[1], max(1, size)):
        part = slice(start, start + size)
        sums = mma_values(terms[:, part], ones[part], sums, rule)
    return sums


def blocked_sums(terms: Values, rule: Rule, k: int, blocked: int) -> Values:
    """Return sums of blocks, each with an accumulator of its own, added up one after the other."""
    rows, length = terms.shape
    size = min(length, blocked * k)
    # The last block may have fewer terms; the zeros in their place change no bit.
    whole = np.pad(terms, ((0, 0), (0, -length % size)))
    blocks = whole.reshape(-1, size)
    acc = format_of(rule.acc).dtype
    sums = _accumulated(blocks, np.zeros((len(blocks), 1), acc), rule, k).reshape(rows, -1)
    with np.errstate(over="ignore"):
        total: Float64 = np.add.accumulate(sums, axis=1, dtype=acc)[:, -1]
    return total
