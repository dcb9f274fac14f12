"""The observer interface of the arithmetic, for each rounded sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tcusim.machine.formats import Float64


class Watch(Protocol):
    """Receives every rounded sum of a batch of tiles, in order, from the code that computes it.

    Without a watch, nothing is kept. Arrays are for all W tiles at once, or for 1 tile that stands
    for all. They belong to the arithmetic, and must not be written to.
    """

    def passing(self, first: int, left: int, right: int) -> None:
        """Learn that the next sums are a pass: of products from `first`, by parts of a and b.

        Their products are counted from 0, and their c is the last result.
        """

    def begin(
        self, products: Sequence[int], a: Float64 | None, b: Float64 | None, *addends: Float64
    ) -> None:
        """Take the terms of a sum: some products, by their k, and addends.

        a: (W, m, k), b: (W, k, n), all of them; None if there are no products. An addend
        (W, m, n) that is the result of an earlier sum is the very object that `end` was given.
        """

    def aligned(
        self, powers: Sequence[Float64], top: Float64, kept: Sequence[Float64], total: Float64
    ) -> None:
        """Receive the alignment of the terms of a fused step; addends first, then products.

        powers: of each term, 2**exponent, and 0 for a zero; top: 2**E, inf or NaN where no finite
        sum is made; kept: the kept part of each term, in units of the last bit kept; total: their
        sum. Each is (m, n, W).
        """

    def summed(self, total: Float64) -> None:
        """Receive the sum of a fused step that is rounded next, (m, n, W), with its sticky bit."""

    def end(self, d: Float64) -> None:
        """Take the result, (W, m, n)."""
