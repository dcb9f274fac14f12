"""Bits of values in their own type's encoding, and values from bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import InputError
from tcusim.machine.formats import Format, Values, from_memory, to_memory


def encoded(values: Values, fmt: Format) -> NDArray[Any]:
    """Return the bits of values (of the type's value dtype) as unsigned integers, in their shape.

    A type of at most 8 bits has one NaN here, the first of its patterns.
    """
    shape = np.shape(values)
    memory = to_memory(np.asarray(values, fmt.dtype).reshape(-1), fmt)
    return memory.view(f"u{fmt.itemsize}").reshape(shape)


def decoded(bits: NDArray[Any], fmt: Format) -> Values:
    """Return the values that unsigned integers of the type's bits encode, in their shape."""
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
