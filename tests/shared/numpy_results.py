"""Small integers of any length, and NumPy's results for their segments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tcusim.machine import arches

Array = NDArray[Any]


# The same examples in every run.
examples = settings(max_examples=40)


SIZES = st.one_of(st.sampled_from([1, 2, 7, 16, 17, 64, 65, 256, 1000]), st.integers(1, 1500))


LENGTHS = st.one_of(st.integers(1, 70), st.integers(1, 3000))


SEEDS = st.integers(0, 2**32 - 1)


def names_of_units(ab: str = "f16", acc: str = "f32") -> list[str]:
    """Return every registered architecture that multiplies these types."""
    return [
        unit.name for unit in arches() if any((row.ab, row.acc) == (ab, acc) for row in unit.rows)
    ]


ARCHS = st.sampled_from(names_of_units())


def halves(seed: int, *shape: int) -> NDArray[np.float16]:
    """Return small integers as float16; their float32 sums are exact."""
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(np.float16)


def by_segments(x: Array, size: int, reduce: Callable[[Array], Array]) -> Array:
    """Apply a function to each segment of a flat array."""
    return np.concatenate(
        [np.atleast_1d(reduce(x[at : at + size])) for at in range(0, x.size, size)]
    )


def of_rows(
    kind: str, x: Array, size: int, *, exclusive: bool = False, reverse: bool = False
) -> NDArray[np.float64]:
    """Return the sums (kind "reduction") or scans of all segments; the last one may be shorter."""
    missing = np.zeros(-x.size % size)
    rows = np.concatenate([x.astype(np.float64), missing]).reshape(-1, size)
    if kind.startswith("reduction"):
        return np.asarray(rows.sum(1))
    scans = rows[:, ::-1].cumsum(1)[:, ::-1] if reverse else rows.cumsum(1)
    return np.asarray((scans - rows if exclusive else scans).ravel()[: x.size])


def sums(x: Array) -> Array:
    return np.asarray(x.sum(dtype=np.float64))


def prefixes(x: Array) -> Array:
    return x.cumsum(dtype=np.float64)


def suffixes(x: Array) -> Array:
    return x[::-1].cumsum(dtype=np.float64)[::-1]


def assert_equal(result: Any, expected: Any) -> None:
    np.testing.assert_array_equal(np.asarray(result, np.float64), expected)
