"""Two models on paper: cycles of a tensor core beside shuffles, and the (m, l)-TCU machine.

The first is the paper's own comparison, with its two mistakes corrected; the second is what
algorithms for tensor units are analysed on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from tcusim.errors import InputError
from tcusim.machine import Figure, Unit, unit_of
from tcusim.program.lanes import LANES

__all__ = ["Comparison", "TcuMachine", "compare_with_shuffles"]

# The paper sums 256 numbers: eight in each lane of a warp, or one 16x16x16 tile and two products.
_NUMBERS: Final = 256
_PRODUCTS: Final = 2
_TILE: Final = ("16x16x16", "f16", "f16")
# Cycles of an addition, as in the paper: one to issue for a warp of 32 lanes on 8 units a scheduler
# would be 4, and its latency is 4, too.
_ADDITION: Final = 4.0
# What the paper prints [DAKKAK19 sec. 6.3].
_PRINTED: Final = (64.0, 256.0)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Cycles to sum 256 numbers in a warp, by products and by shuffles.

    Attributes
    ----------
    unit : str
        Whose figures.
    printed_products, printed_shuffles : float
        What the paper prints: 64 and 256.
    products_issued, products_waited : float or None
        Two products by the interval at which a matrix unit takes them, as the paper counts them;
        and by their latency, which is what one warp waits, as the second needs the first one's
        result. None if the figure is unknown.
    shuffles_issued : float or None
        The paper's eight rounds of five shuffles and additions, at the interval of each.
    shuffles_better : float or None
        Seven additions in each lane first, and one round of five shuffles and additions.
    shuffles_waited : float or None
        The latter by latency.
    """

    unit: str
    printed_products: float
    printed_shuffles: float
    products_issued: float | None
    products_waited: float | None
    shuffles_issued: float | None
    shuffles_better: float | None
    shuffles_waited: float | None


def compare_with_shuffles(unit: str | Unit = "v100") -> Comparison:
    """Return the paper's comparison of a reduction by products with one by shuffles, corrected.

    The paper counts 32 cycles for a product, which is how often a matrix unit takes one and not
    how long one takes; and 256 for shuffles, where eight rounds of five shuffles and additions of 4
    cycles each are 320, and where a lane that adds its own eight numbers first needs 68 [DAKKAK19
    sec. 6.3; errata E19 and E20].

    Examples
    --------
    >>> found = compare_with_shuffles("v100")
    >>> found.products_issued, found.shuffles_issued, found.shuffles_better
    (64, 320.0, 68.0)
    """
    where = unit_of(unit)
    one = where.instruction(*_TILE, "wmma")
    interval = _value(one.interval if one else None)
    latency = _value(one.latency if one else None)
    shuffle, waited = _value(where.shuffle_interval), _value(where.shuffle_latency)
    each, rounds = _NUMBERS // LANES, int(math.log2(LANES))
    alone = (each - 1) * _ADDITION
    return Comparison(
        where.name,
        *_PRINTED,
        None if interval is None else _PRODUCTS * interval,
        None if latency is None else _PRODUCTS * latency,
        None if shuffle is None else each * rounds * (shuffle + _ADDITION),
        None if shuffle is None else alone + rounds * (shuffle + _ADDITION),
        None if waited is None else alone + rounds * (waited + _ADDITION),
    )


def _value(figure: Figure | None) -> float | None:
    return None if figure is None else figure.value


@dataclass(frozen=True, slots=True)
class TcuMachine:
    """The (m, l)-TCU machine: an instruction multiplies n rows by a square of s by s in n*s + l.

    Time is counted in operations of an ordinary processor, which does all else, one each
    [CHOWDHURY20].

    Attributes
    ----------
    m : int
        Elements of the square, s*s: 256 for tiles of 16 by 16.
    latency : float
        l, of one instruction.

    Examples
    --------
    >>> TcuMachine(256, 1000).call(16)
    1256
    """

    m: int
    latency: float

    def __post_init__(self) -> None:
        if self.m < 1 or math.isqrt(self.m) ** 2 != self.m:
            raise InputError(f"m must be a square, such as 256, got {self.m}")
        if self.latency < 0:
            raise InputError(f"latency must not be negative, got {self.latency}")

    @property
    def side(self) -> int:
        """s, the square root of m."""
        return math.isqrt(self.m)

    def call(self, rows: int) -> float:
        """Return the time of one instruction, of at least s rows: n*s + l."""
        return max(rows, self.side) * self.side + self.latency

    def product(self, size: int) -> float:
        """Return the time of a product of square matrices: (d/s)^2 calls of d rows.

        That is d^3/s + (d/s)^2 l.
        """
        return (-(-size // self.side)) ** 2 * self.call(size)

    def reduction(self, length: int) -> float:
        """Return the time of a sum: one call for all rows of s, again for its results, and so on.

        Each multiplies by a column of ones, and leaves one number of s.
        """
        time = 0.0
        while length > 1:
            rows = -(-length // self.side)
            time, length = time + self.call(rows), rows
        return time

    def scan(self, length: int) -> float:
        """Return the time of a scan: rows of s by a triangle, a scan of their sums, and additions.

        These add what precedes each row, and are the ordinary processor's, one for each number.
        """
        rows = -(-length // self.side)
        time = self.call(rows)
        return time if rows == 1 else time + self.scan(rows) + length
