"""Bits of single values in their own type's encoding, and values from bits."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from tcusim.errors import InputError
from tcusim.machine.formats import FORMATS, Format, Values, from_memory, to_memory

__all__ = ["from_bits", "hex_bits", "to_bits"]


def to_bits(value: Values, fmt: Format) -> int:
    """Return the bits of one value (0-d, of the type's value dtype) as an unsigned integer."""
    if fmt.name in _VALUES_OF_8_BITS:
        known = _VALUES_OF_8_BITS[fmt.name]
        alike = np.signbit(known) == np.signbit(value)
        if value == 0.0 and not fmt.has_negative_zero:
            alike[:] = True
        same = (known == value) & alike
        return int(np.flatnonzero(np.isnan(known) if np.isnan(value) else same)[0])
    memory = to_memory(np.asarray(value, fmt.dtype).reshape(1), fmt)
    return int(memory.view(f"u{fmt.itemsize}")[0])


def from_bits(bits: int, fmt: Format) -> Values:
    """Return the value (0-d, of the type's value dtype) that these bits encode.

    Raises InputError if the type has fewer bits.
    """
    width = fmt.bits
    if not 0 <= bits < 2**width:
        raise InputError(f"{bits:#x} is not {width} bits, as {fmt.name} has")
    if fmt.name in _VALUES_OF_8_BITS:
        return np.asarray(_VALUES_OF_8_BITS[fmt.name][bits])
    memory = np.array([bits], f"u{fmt.itemsize}").view(fmt.memory_dtype)
    value: Values = from_memory(memory, fmt)[0]
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
