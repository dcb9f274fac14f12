"""Segments drawn for tests of their sentences, mostly bad, and the outcome of a call with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tcusim
from tcusim.errors import InputError

Drawn = tuple[int, dict[str, Any]]
DRAWN = 150


def drawn(seed: int) -> Iterator[Drawn]:
    """Draw the length of an axis, and the arguments of `tcusim.Segments`."""
    rng = np.random.default_rng(seed)
    for _ in range(DRAWN):
        length, parts = int(rng.integers(0, 7)), int(rng.integers(0, 4))
        name = str(rng.choice(["offsets", "lengths", "ids"]))
        edges = np.sort(rng.integers(0, length + 1, parts + 1))
        if rng.random() < 0.7:
            edges[0], edges[-1] = 0, length
        numbers = {"offsets": edges, "lengths": np.diff(edges)}.get(name)
        if numbers is None:
            numbers = np.sort(rng.integers(-1 if rng.random() < 0.2 else 0, parts + 1, length))
        match rng.integers(0, 8):
            case 0 if numbers.size:
                numbers[rng.integers(numbers.size)] += rng.choice([-3, 3, 2**50])
            case 1:
                numbers = numbers.astype(rng.choice(["float32", "bool", "float64"]))
            case 2:
                numbers = numbers[None]
            case 3:
                numbers = numbers[: rng.integers(numbers.size + 1)]
            case 4:
                numbers = rng.permutation(numbers)
        more: dict[str, Any] = {name: numbers}
        if name == "ids" and rng.random() < 0.5:
            more["count"] = int(rng.integers(-1, 6))
        if name == "ids" and rng.random() < 0.3:
            more["sort"] = True
        if rng.random() < 0.1:
            more["longest"] = 2
        yield length, more


def outcome(call: Callable[..., Any], length: int, *given: Any) -> Any:
    """Return the result of a call as a list, or its sentence."""
    try:
        return np.asarray(call(np.arange(length, dtype=np.float32), *given)).tolist()
    except InputError as error:
        return str(error)


def expected(length: int, more: dict[str, Any]) -> Any:
    """Return the outcome of the core's call on NumPy arrays."""
    return outcome(lambda x: tcusim.segmented_sum(x, tcusim.Segments(**more)), length)
