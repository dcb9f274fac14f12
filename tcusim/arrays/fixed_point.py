"""Numbers in fixed point: their digits, and sums of digits rounded once.

Every finite number is an integer times a power of two. With one power for a whole array, that of
the last bit of its smallest element, sums are integers too: exact in any order and any split.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.arrays.libraries import Array
from tcusim.machine.formats import BY_ARRAY_NAME, Float64, round_values

__all__ = ["FixedPoint"]

Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]
Words: TypeAlias = NDArray[np.uint64]

# Bits of a digit, which has the sign of its element: it is an int8.
_WIDTH: Final = 7


class FixedPoint:
    """Flat arrays of finite numbers of any real types, end to end, as integers times one power."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        words, places = zip(*map(_integers, arrays), strict=True)
        place: Ints = np.concatenate(places)
        self._negative: Bools = np.concatenate([x < 0 for x in arrays])
        self._words: Words = np.concatenate(words)
        self._last = int(place.min())
        self._place = place - self._last

    def digits(self) -> Iterator[tuple[int, Ints]]:
        """Yield the places of signed digits, lowest first, and the digits; not those all zero."""
        top = int(self._place.max()) + int(self._words.max()).bit_length()
        for place in range(max(1, -(-top // _WIDTH))):
            first = place * _WIDTH - self._place
            right, left = (np.clip(by, 0, 63).astype(np.uint64) for by in (first, -first))
            shifted = np.where(first < 64, self._words >> right << left, 0)
            digit = (shifted & np.uint64((1 << _WIDTH) - 1)).astype(np.int64)
            if digit.any() or not place:
                yield place, np.where(self._negative, -digit, digit)

    def rounded_once(self, sums: Mapping[int, Array], result: np.dtype[Any]) -> Array:
        """Return sums of which the digits' sums are given by place, rounded once to nearest even.

        A sum of zero is +0.0.
        """
        total: list[Ints] = [np.zeros(1, np.int64)] * (max(sums) + 1)
        for place, one in sums.items():
            total[place] = one.astype(np.int64)
        negative = _normal(total)[0] < 0
        head, *digits = _normal([np.where(negative, -one, one) for one in total])
        # The leading bits, as many as a word holds, and whether any bit below them is set.
        word, rest = head.astype(np.uint64), np.zeros(head.shape, bool)
        left_out = np.zeros(head.shape, np.int64)
        for digit in digits:
            full = word >> np.uint64(64 - _WIDTH) != 0
            word = np.where(full, word, word << np.uint64(_WIDTH) | digit.astype(np.uint64))
            left_out += np.where(full, _WIDTH, 0)
            rest |= full & (digit != 0)
        word |= rest
        value = np.ldexp(_as_float64(word, odd=result != np.float64), left_out + self._last)
        signed = np.where(negative, -value, value)
        return round_values(signed, BY_ARRAY_NAME[result.name]).astype(result)


def _integers(x: Array) -> tuple[Words, Ints]:
    """Return the magnitudes of numbers as integers, and the places of their last bits."""
    if x.dtype.kind in "biu":
        words = x.astype(np.uint64)
        return np.where(x < 0, -words, words), np.zeros(x.shape, np.int64)
    source, wide = BY_ARRAY_NAME[x.dtype.name], np.abs(x.astype(np.float64))
    lowest = source.emin - source.fraction_bits
    place = np.maximum(np.frexp(wide)[1] - source.fraction_bits - 1, lowest).astype(np.int64)
    place[wide == 0] = place.max(initial=lowest)
    return np.ldexp(wide, -place).astype(np.uint64), place


def _normal(sums: Sequence[Ints]) -> list[Ints]:
    """Return the same number as digits, the highest, which has no limit, first."""
    digits: list[Ints] = []
    carry: Ints = np.zeros(1, np.int64)
    for one in sums:
        carry = carry + one
        digits.append(carry & ((1 << _WIDTH) - 1))
        carry = carry >> _WIDTH
    return [carry, *reversed(digits)]


def _as_float64(word: Words, *, odd: bool) -> Float64:
    """Return integers as float64, rounded to nearest even, or to odd for a rounding that follows.

    To odd means that the last bit is set if any that is cut was: the other rounding, to at most 51
    bits, is then as if it were the only one.
    """
    if odd:
        low = np.uint64(11)
        cut = (word >> low | (word & np.uint64(2**11 - 1) != 0)) << low
        word = np.where(word >> np.uint64(53) != 0, cut, word)
    return word.astype(np.float64)
