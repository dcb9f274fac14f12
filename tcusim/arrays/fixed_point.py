"""Numbers as digits: integers by bytes, all others in fixed point, whose sums are rounded once.

Every finite number is an integer times a power of two. With powers in fixed places, those of whole
digits from the binary point on, sums are integers too: exact in any order and any split.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.arrays.libraries import Array, Ints
from tcusim.errors import Unsupported
from tcusim.machine import canonical_nan, from_values
from tcusim.machine.formats import BY_ARRAY_NAME, Float64, array_name_of, round_values

Digits: TypeAlias = NDArray[np.int8]
Words: TypeAlias = NDArray[np.uint64]
# The place of a digit, counted from the binary point; a name for counts and other addends.
Place: TypeAlias = int | str

# Bits of a digit, which has the sign of its element: it is an int8.
_WIDTH: Final = 7
# Elements that are looked at together.
_SOME: Final = 2**16
_ABOVE, _BELOW, _NEITHER, _INITIAL = "+inf", "-inf", "nan", "initial"


class Integers:
    """Integers of any type as signed digits of base 256: sums modulo 2**64, as NumPy has them.

    result: the type of the sums; a float one is rounded once, but that initial values are added to
    sums in float64.
    """

    def __init__(self, result: np.dtype[Any]) -> None:
        self.result = result

    def width(self, x: Array) -> int:
        """Return the digits of the element that has most of them, at one end or the other."""
        return len(self.digits(np.array([x.min(), x.max()]))) if x.size else 1

    def digits(self, x: Array) -> dict[Place, Digits]:
        """Return digits, lowest first, until nothing is left."""
        found: dict[Place, Digits] = {}
        rest: Array = x
        while True:
            # The lowest byte is the digit, if its first bit is a sign; then the next is one more.
            digit = rest.astype(np.int8, copy=False)
            found[len(found)] = digit
            rest = (rest >> rest.dtype.type(8)) + (digit < 0)
            if not rest.any():
                return found

    def of_initial(self, values: Array) -> dict[Place, Array]:
        """Return values, which are integers if the result is."""
        if self.result.kind in "iu":
            return {0: values.astype(np.int64)}
        return {_INITIAL: values}

    def total(self, sums: Mapping[Place, Array]) -> Array:
        """Return sums modulo 2**64, or rounded."""
        places = sorted(place for place in sums if isinstance(place, int))
        if self.result.kind in "iu":
            whole: Ints = np.zeros(sums[0].shape, np.int64)
            for place in places:
                if place < 8:
                    whole += sums[place] << (8 * place)
            typed: Array = whole.view(np.uint64) if self.result.kind == "u" else whole
            return typed.astype(self.result)
        terms = [np.ldexp(sums[place].astype(np.float64), 8 * place) for place in places]
        total, initial = np.sum(terms, axis=0), sums.get(_INITIAL, 0)
        if np.abs(terms).sum(axis=0).max(initial=0) >= 2**53:
            # float64 may have rounded more than once on the way.
            every = [sums.get(place, np.zeros_like(sums[0])) for place in range(max(places) + 1)]
            kind = np.dtype(np.float64) if _INITIAL in sums else self.result
            total = FixedPoint(kind).rounded_once(every, 0, width=8)
        rounded: Array = (total + initial).astype(self.result)
        return rounded


class FixedPoint:
    """Numbers of any real type as digits of 7 bits with their sign: sums rounded once.

    Infinities and NaN are counted, each kind as a digit of its own.
    """

    def __init__(self, result: np.dtype[Any]) -> None:
        self.result = result

    def width(self, x: Array) -> int:
        """Return the digits between the largest element and the last bit of the smallest."""
        if x.dtype.kind in "biu":
            return 8 * x.itemsize // _WIDTH + 1
        source = BY_ARRAY_NAME[x.dtype.name]
        lowest, top = source.emax, source.emin - source.fraction_bits
        for first in range(0, x.size, _SOME):
            some = x[first : first + _SOME].astype(np.float64)
            exponents = np.frexp(some[np.isfinite(some) & (some != 0)])[1]
            lowest = min(lowest, int(exponents.min(initial=lowest)))
            top = max(top, int(exponents.max(initial=top)))
        return max(0, top - lowest + source.fraction_bits) // _WIDTH + 2

    def digits(self, x: Array) -> dict[Place, Digits]:
        """Return digits by place; not those that are zero throughout, unless all are."""
        found: dict[Place, Digits] = {}
        if x.dtype.kind == "f" or x.dtype.name == "bfloat16":
            finite = np.isfinite(x)
            if not finite.all():
                marks = {_ABOVE: x == np.inf, _BELOW: x == -np.inf, _NEITHER: np.isnan(x)}
                found |= {name: mark.astype(np.int8) for name, mark in marks.items() if mark.any()}
                x = np.where(finite, x, x.dtype.type(0))
        words, place = _integers(x)
        negative = x < 0
        first = int(place.min()) // _WIDTH
        place = place - first * _WIDTH
        top = int(place.max()) + int(words.max()).bit_length()
        for number in range(-(-top // _WIDTH)):
            by = number * _WIDTH - place
            right, left = (np.clip(one, 0, 63).astype(np.uint64) for one in (by, -by))
            shifted = np.where(by < 64, words >> right << left, 0)
            digit = (shifted & np.uint64((1 << _WIDTH) - 1)).astype(np.int8)
            if digit.any():
                found[first + number] = np.where(negative, -digit, digit)
        return found or {0: np.zeros(x.shape, np.int8)}

    def of_initial(self, values: Array) -> dict[Place, Array]:
        """Return the digits of values."""
        return {place: digit.astype(np.int64) for place, digit in self.digits(values).items()}

    def total(self, sums: Mapping[Place, Array]) -> Array:
        """Return sums rounded once to nearest even. A sum of zero is +0.0.

        With infinities of both signs, or NaN, among its terms, a sum is the NaN that a GPU writes.
        """
        places = [place for place in sums if isinstance(place, int)] or [0]
        none = np.zeros(next(iter(sums.values())).shape, np.int64)
        last = min(places)
        given = [sums.get(place, none) for place in range(last, max(places) + 1)]
        result = self.rounded_once(given, last * _WIDTH)
        above, below, neither = (sums.get(name, none) != 0 for name in (_ABOVE, _BELOW, _NEITHER))
        result[above] = np.inf
        result[below] = -np.inf
        bad = (above & below) | neither
        if bad.any():
            result[bad] = nan_of(self.result)
        return result

    def rounded_once(self, sums: list[Ints], last: int, width: int = _WIDTH) -> Array:
        """Return numbers whose digits have these sums, of which the first are of 2**last.

        width: bits of a digit.
        """
        negative = _normal(sums, width)[0] < 0
        head, *digits = _normal([np.where(negative, -one, one) for one in sums], width)
        # The leading bits, as many as a word holds, and whether any bit below them is set.
        word, rest = head.astype(np.uint64), np.zeros(head.shape, bool)
        left_out = np.zeros(head.shape, np.int64)
        for digit in digits:
            full = word >> np.uint64(64 - width) != 0
            word = np.where(full, word, word << np.uint64(width) | digit.astype(np.uint64))
            left_out += np.where(full, width, 0)
            rest |= full & (digit != 0)
        word |= rest
        value = np.ldexp(_as_float64(word, odd=self.result != np.float64), left_out + last)
        signed = np.where(negative, -value, value)
        rounded: Array = round_values(signed, BY_ARRAY_NAME[self.result.name]).astype(self.result)
        return rounded


# A way to write numbers as signed digits, and to round sums of digits.
Numeral: TypeAlias = Integers | FixedPoint


def places_of(dtype: np.dtype[Any]) -> list[Place]:
    """Return all places that digits of elements of a type may have, in fixed point."""
    if dtype.kind in "biu":
        return list(range(8 * dtype.itemsize // _WIDTH + 1))
    source = BY_ARRAY_NAME[dtype.name]
    first = (source.emin - source.fraction_bits) // _WIDTH
    return [*range(first, (source.emax + 1) // _WIDTH + 1), _ABOVE, _BELOW, _NEITHER]


def terms_of(places: list[Place], sums: Array) -> Array:
    """Return float64 numbers whose exact sums are those of these sums of digits, along the end."""
    special = {_ABOVE: np.inf, _BELOW: -np.inf, _NEITHER: np.nan}
    terms = np.zeros(sums.shape)
    for at, place in enumerate(places):
        one = sums[..., at]
        if isinstance(place, int):
            with np.errstate(over="ignore"):
                terms[..., at] = np.ldexp(one.astype(np.float64), _WIDTH * place)
            if np.isinf(terms[..., at]).any():
                raise Unsupported(
                    "an exact scan in pieces has sums beyond float64 on the way; scan in one piece"
                )
        else:
            terms[..., at] = np.where(one != 0, special[place], 0)
    return terms


def few_sums(x: Array, edges: Iterable[int], result: np.dtype[Any]) -> Array | None:
    """Return sums of a few numbers, rounded once, in Python; None if something is not finite.

    They have the bits of sums of digits, whose launches take longer for so few.
    """
    values: list[Any] = x.tolist() if x.dtype.kind in "biu" else x.astype(np.float64).tolist()
    narrow, sums = result != np.float64, []
    try:
        for begin, end in itertools.pairwise(edges):
            row = values[begin:end]
            if x.dtype.kind in "biu":
                whole = sum(row)
                total = float(whole)
                rest: float = whole - int(total)
            else:
                total = math.fsum(row)
                rest = math.fsum([*row, -total]) if narrow else 0
            if narrow and rest and not np.float64(total).view(np.int64) & 1:
                # Rounded to odd: the rounding that follows is then as if it were the only one.
                total = math.nextafter(total, math.copysign(math.inf, rest))
            sums.append(total + 0.0)
    except (OverflowError, ValueError):
        return None
    found = np.array(sums)
    if not np.isfinite(found).all():
        return None
    if narrow:
        found = round_values(found, BY_ARRAY_NAME[result.name])
    typed: Array = found.astype(result)
    return typed


def nan_of(dtype: np.dtype[Any]) -> Array:
    """Return the NaN that a GPU's arithmetic writes, an array of one element of this type."""
    kind = BY_ARRAY_NAME[array_name_of(dtype)]
    return from_values(canonical_nan(np.full(1, np.nan, kind.dtype), kind), kind.name)


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


def _normal(sums: list[Ints], width: int) -> list[Ints]:
    """Return the same number as digits, the highest, which has no limit, first."""
    digits: list[Ints] = []
    carry: Ints = np.zeros(1, np.int64)
    for one in sums:
        carry = carry + one
        digits.append(carry & ((1 << width) - 1))
        carry = carry >> width
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
