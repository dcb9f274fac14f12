"""A scan that is wrong on purpose, for tests of `validate_shape` and its report."""

from __future__ import annotations

from collections.abc import Callable

from tcusim.algorithms import Algorithm, register_algorithm, scan
from tcusim.algorithms.builder import Builder, Work
from tcusim.algorithms.order import Order


def exclusive_beyond_k(b: Builder, segment_size: int) -> int | Work:
    """Scan, but leave each element out where segments are longer than k."""
    return scan.scan_kn(b, segment_size, order=Order(exclusive=segment_size > b.k))


def plant(
    function: Callable[..., int | Work] = exclusive_beyond_k,
    kind: str = "scan",
    name: str = "planted",
) -> Algorithm:
    return register_algorithm(Algorithm(function, name, kind, "a test"))
