"""Bits of values in their own type's encoding, and values from bits."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import InputError
from tcusim.machine.formats import FORMATS, Format, Values, from_memory, to_memory

__all__ = ["decoded", "encoded", "from_bits", "hex_bits", "to_bits"]


def encoded(values: Values, fmt: Format) -> NDArray[Any]:
    """Return the bits of values (of the type's value dtype) as unsigned integers, in their shape.

    A type of at most 8 bits has one NaN here, the first of its patterns.
    """
    if fmt.name in _VALUES_OF_8_BITS:
        ascending, patterns, nan = _PATTERNS_OF_8_BITS[fmt.name]
        ranks = _ranks(values, fmt)
        places = np.searchsorted(ascending, ranks).clip(0, len(ascending) - 1)
        return np.where(np.isnan(values), nan, patterns[places]).astype(np.uint8)
    shape = np.shape(values)
    memory = to_memory(np.asarray(values, fmt.dtype).reshape(-1), fmt)
    return memory.view(f"u{fmt.itemsize}").reshape(shape)


def decoded(bits: NDArray[Any], fmt: Format) -> Values:
    """Return the values that unsigned integers of the type's bits encode, in their shape."""
    if fmt.name in _VALUES_OF_8_BITS:
        return np.asarray(_VALUES_OF_8_BITS[fmt.name][bits])
    shape = np.shape(bits)
    memory = np.asarray(bits, f"u{fmt.itemsize}").reshape(-1).view(fmt.memory_dtype)
    return from_memory(memory, fmt).reshape(shape)


def to_bits(value: Values, fmt: Format) -> int:
    """Return the bits of one value (0-d, of the type's value dtype) as an unsigned integer."""
    return int(encoded(np.asarray(value), fmt))


def from_bits(bits: int, fmt: Format) -> Values:
    """Return the value (0-d, of the type's value dtype) that these bits encode.

    Raises InputError if the type has fewer bits.
    """
    width = fmt.bits
    if not 0 <= bits < 2**width:
        raise InputError(f"{bits:#x} is not {width} bits, as {fmt.name} has")
    value: Values = decoded(np.asarray(bits), fmt)[()]
    return value


def hex_bits(bits: int, fmt: Format) -> str:
    """Return bits as hexadecimal digits, enough for all that the type has."""
    return f"{bits:0{-(-fmt.bits // 4)}x}"


def _values_of_8_bits(fmt: Format) -> Values:
    """Return the values of all patterns of a type of at most 8 bits."""
    return np.array([_value_of_fields(bits, fmt) for bits in range(2**fmt.bits)], fmt.dtype)


def _value_of_fields(bits: int, fmt: Format) -> float:
    sign = 1 << (fmt.bits - 1)
    if bits == sign and not fmt.has_negative_zero:
        return math.nan
    fraction = bits & (2**fmt.fraction_bits - 1)
    field = (bits & ~sign) >> fmt.fraction_bits
    # A subnormal has the exponent of the smallest normal number, and no leading 1.
    significand = fraction + (2**fmt.fraction_bits if field else 0)
    size = math.ldexp(significand, max(field - 1, 0) + fmt.emin - fmt.fraction_bits)
    if size > fmt.largest:
        size = math.inf if fmt.has_inf and not fraction else math.nan
    return -size if bits & sign else size


_VALUES_OF_8_BITS: Final = {
    fmt.name: _values_of_8_bits(fmt)
    for fmt in FORMATS.values()
    if fmt.is_float and fmt.itemsize == 1
}


def _ranks(values: Values, fmt: Format) -> NDArray[np.float64]:
    """Return values as numbers in ascending order; -0, of a type that has it, is below +0."""
    ranks = np.asarray(values, np.float64)
    if not fmt.has_negative_zero:
        return ranks + 0.0
    least = float(fmt.smallest) / 2
    return np.where(ranks == 0.0, np.where(np.signbit(ranks), -least, 0.0), ranks)


def _patterns_of_8_bits(fmt: Format) -> tuple[NDArray[Any], NDArray[Any], int]:
    """Return the ranks of a type's numbers, ascending, their patterns, and the pattern of NaN."""
    known = _VALUES_OF_8_BITS[fmt.name]
    numbers = np.flatnonzero(~np.isnan(known))
    nan = np.flatnonzero(np.isnan(known))
    order = numbers[np.argsort(_ranks(known[numbers], fmt))]
    return _ranks(known[order], fmt), order, int(nan[0]) if nan.size else 0


_PATTERNS_OF_8_BITS: Final = {
    name: _patterns_of_8_bits(FORMATS[name]) for name in _VALUES_OF_8_BITS
}
