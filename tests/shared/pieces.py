"""Exact sums in pieces of a few elements, so that short arrays have many pieces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tcusim.arrays import exact


@contextmanager
def small_pieces(reduction: int, scan: int, least: int, part: int) -> Iterator[None]:
    """Have pieces of these numbers of elements."""
    sizes = {"_PIECE": {"reduction": reduction, "scan": scan}, "_LEAST_PIECE": least, "_PART": part}
    with pytest.MonkeyPatch.context() as patch:
        for name, size in sizes.items():
            patch.setattr(exact, name, size)
        yield
