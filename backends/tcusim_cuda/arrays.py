"""An array in GPU memory as a kernel sees it: address, elements and stream."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from tcusim.errors import InputError
from tcusim.machine import as_values, format_of, from_values
from tcusim.machine.formats import from_memory, to_memory
from tcusim.machine.shapes import TILE_BYTES
from tcusim.program.grammar import Buffer


@dataclass(frozen=True, slots=True)
class DeviceArray:
    """One array in GPU memory, as its library describes it.

    name: its name in messages, such as ``input 'in'``. owner: the user's object. kind: its
    library: "torch", "cupy", "gpuarray", "jax" or "other". address: of its first element. dtype:
    its library's name of the element type. contiguous: whether no other bytes lie between its
    elements, and the last axis is the fastest. writable: whether its library lets us write. device:
    None if its library does not report it. stream: its library's stream for it. keep: other objects
    that must stay alive.
    """

    name: str
    owner: Any
    kind: str
    address: int
    shape: tuple[int, ...]
    dtype: str
    contiguous: bool = True
    writable: bool = True
    device: int | None = None
    stream: int = 0
    keep: Any = None

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return _itemsize_of(self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes from the first element to the end of the last, of an array without gaps."""
        return self.size * self.itemsize

    def overlaps(self, other: DeviceArray) -> bool:
        """Return whether two arrays without gaps share memory."""
        return (
            self.address < other.address + other.nbytes
            and other.address < self.address + self.nbytes
        )

    def holds(self, dtype: str) -> bool:
        """Return whether its elements are of this type, such as "bf16"."""
        return self.dtype in _names_of(dtype)

    @property
    def library(self) -> str:
        """The type of the user's object, for messages."""
        return f"{type(self.owner).__module__}.{type(self.owner).__qualname__}"


@functools.cache
def _itemsize_of(dtype: str) -> int:
    """Return the bytes of an element: the types' names end in their bits."""
    bits = re.search(r"\d+", dtype)
    return 1 if bits is None else -(-int(bits[0]) // 8)


def _names_of(dtype: str) -> tuple[str, ...]:
    """Return the libraries' names of these elements' type."""
    form = format_of(dtype)
    return (form.array_name, *form.bit_names)


# --- Requirements of a kernel ----------------------------------------------------------------


def require_fit(array: DeviceArray, buffer: Buffer, *, tiles: bool, flat: bool = True) -> None:
    """Raise InputError unless a kernel can take the array for the buffer as it is.

    tiles: whether WMMA moves tiles between this memory and fragments. flat: whether it must have
    one axis.
    """
    if flat and len(array.shape) != 1:
        raise InputError(
            f"{array.name} must be flat (one axis), got shape {array.shape}; use a.ravel()"
        )
    if not array.contiguous:
        raise InputError(
            f"{array.name} has gaps between its elements (a slice with a step?). "
            f"Make a contiguous copy first."
        )
    if not array.holds(buffer.dtype):
        names = " or ".join(_names_of(buffer.dtype))
        raise InputError(
            f"{array.name} must be of {names} ({buffer.dtype}), got {array.dtype}. "
            f"Arrays in GPU memory are used as they are: cast it first."
        )
    multiple = TILE_BYTES if tiles else format_of(buffer.dtype).itemsize
    if array.address % multiple:
        raise InputError(
            f"{array.name} begins at address {array.address:#x}, which is not a multiple of "
            f"{multiple} bytes, as the kernel needs it. A slice that does not begin at the start "
            f"of its array? Copy it."
        )


def common_device(devices: Mapping[str, int]) -> int | None:
    """Return the one GPU of arrays, by their names; None of no arrays. Refuse several GPUs."""
    first = next(iter(devices), "")
    for name, device in devices.items():
        if device != devices[first]:
            raise InputError(
                f"{first} is on GPU {devices[first]}, {name} is on GPU {device}. "
                f"A program runs on one GPU: copy them to one."
            )
    return devices.get(first)


# --- NumPy arrays ----------------------------------------------------------------------------


def host_bits(array: Any, dtype: str, name: str) -> NDArray[Any]:
    """Return a user's array as a kernel's memory holds it: flat, contiguous, exactly its values."""
    values = as_values(array, dtype, name=name)
    if values.ndim != 1:
        raise InputError(f"{name} must be flat (one axis), got shape {values.shape}; use a.ravel()")
    return to_memory(values, format_of(dtype))


def from_bits(bits: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Return the bits that a kernel wrote as the array that the simulator would return."""
    return from_values(from_memory(bits, format_of(dtype)), dtype)
