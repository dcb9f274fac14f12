"""The few calls of NVIDIA's driver that no GPU library offers for the memory of every other one."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from numpy.typing import NDArray

from tcusim.errors import BackendUnavailable, InputError, TcusimError
from tcusim.machine import Format, units

__all__ = ["Driver", "DriverError", "device_sm", "unit_name"]

_LIBRARIES: Final = ("libcuda.so.1", "nvcuda.dll")

# Numbers of cuda.h: CUdevice_attribute, CUpointer_attribute, CUevent_flags.
_SHARED_BYTES: Final = 97  # MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
_MAJOR, _MINOR = 75, 76
_POINTER_CONTEXT: Final = 1
_POINTER_DEVICE: Final = 9
_NO_TIMING: Final = 2
_NO_DEVICE: Final = 100
_DEVICE_MEMORY: Final = 2  # of CUmemorytype

# The longest row of a rectangle, MAX_PITCH of every GPU.
_MOST_PITCH: Final = 2**31 - 1

# The driver's two names of the default stream.
_DEFAULT_STREAMS: Final = (0, 1)


class DriverError(TcusimError, RuntimeError):
    """A call of NVIDIA's driver failed, or an earlier launch did and the driver says so now."""


class Driver:
    """libcuda, opened and started.

    Contexts, streams and addresses are the driver's own handles, as integers.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        status = library.cuInit(0)
        if status == _NO_DEVICE:
            raise BackendUnavailable(
                "there is no NVIDIA GPU here, or CUDA_VISIBLE_DEVICES hides it. "
                "The simulator needs none: backend='numpy'"
            )
        if status:
            raise BackendUnavailable(f"NVIDIA's driver does not start: {self._reason(status)}")

    @staticmethod
    def open() -> Driver:
        """Return the driver; opened once in a process.

        Raises
        ------
        BackendUnavailable
            If there is no driver or no GPU.
        """
        return _open()

    # --- Devices -----------------------------------------------------------------------------

    def sm(self, device: int) -> int:
        """Return a device's compute capability, such as 90."""
        return 10 * self._attribute(device, _MAJOR) + self._attribute(device, _MINOR)

    def shared_bytes(self, device: int) -> int:
        """Return how much shared memory a block may have."""
        return self._attribute(device, _SHARED_BYTES)

    def title(self, device: int) -> str:
        """Return a device's name, such as ``NVIDIA H200``."""
        text = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", text, 256, self._device(device))
        return text.value.decode(errors="replace")

    def _device(self, number: int) -> ctypes.c_int:
        device = ctypes.c_int()
        status = self._library.cuDeviceGet(ctypes.byref(device), number)
        if status:
            raise BackendUnavailable(f"there is no GPU {number}: {self._reason(status)}")
        return device

    def _attribute(self, device: int, attribute: int) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), attribute, self._device(device))
        return value.value

    # --- Contexts and addresses --------------------------------------------------------------

    def current_context(self) -> int:
        """Return the context of this thread, 0 if there is none."""
        context = ctypes.c_void_p()
        self._call("cuCtxGetCurrent", ctypes.byref(context))
        return context.value or 0

    def set_context(self, context: int) -> None:
        """Make a context this thread's."""
        self._call("cuCtxSetCurrent", ctypes.c_void_p(context))

    def current_device(self) -> int:
        """Return the device of this thread's context; 0 if there is none."""
        if not self.current_context():
            return 0
        device = ctypes.c_int()
        self._call("cuCtxGetDevice", ctypes.byref(device))
        return device.value

    def context_id(self, context: int) -> int:
        """Return a number that no later context has, where the driver knows one."""
        number = ctypes.c_ulonglong(context)
        if hasattr(self._library, "cuCtxGetId"):
            self._call("cuCtxGetId", ctypes.c_void_p(context), ctypes.byref(number))
        return number.value

    @contextmanager
    def restored_context(self) -> Iterator[None]:
        """Give the thread its context back afterwards, if it had one."""
        before = self.current_context()
        try:
            yield
        finally:
            # To go back to none would take the context away from a library that relies on it.
            if before and self.current_context() != before:
                self.set_context(before)

    def home_of(self, address: int, name: str) -> tuple[int, int]:
        """Return the device and the context (0 if of no one context) of an address.

        Raises
        ------
        InputError
            If it is not an address in GPU memory. `name` is what the message calls it.
        """
        device = ctypes.c_int(-1)
        status = self._library.cuPointerGetAttribute(
            ctypes.byref(device), _POINTER_DEVICE, ctypes.c_uint64(address)
        )
        if status or device.value < 0:
            raise InputError(
                f"{name}: its address {address:#x} is not in the memory of a GPU "
                f"({self._reason(status)}). Copy it to one first, with cupy.asarray for instance."
            )
        context = ctypes.c_void_p()
        status = self._library.cuPointerGetAttribute(
            ctypes.byref(context), _POINTER_CONTEXT, ctypes.c_uint64(address)
        )
        return device.value, 0 if status else context.value or 0

    # --- Streams, in this thread's context ---------------------------------------------------

    def order(self, first: int, then: int) -> None:
        """Let what comes next in stream `then` wait for what is in stream `first` by now."""
        if same_stream(first, then):
            return
        event = ctypes.c_void_p()
        self._call("cuEventCreate", ctypes.byref(event), _NO_TIMING)
        try:
            self._call("cuEventRecord", event, ctypes.c_void_p(first))
            self._call("cuStreamWaitEvent", ctypes.c_void_p(then), event, 0)
        finally:
            # The driver keeps the event until it has happened.
            self._call("cuEventDestroy_v2", event)

    def copy_back(self, address: int, values: NDArray[Any], stream: int) -> None:
        """Copy from GPU memory into an array without gaps, and wait until that is done."""
        where, count = ctypes.c_uint64(address), ctypes.c_size_t(values.nbytes)
        target, queue = ctypes.c_void_p(values.ctypes.data), ctypes.c_void_p(stream)
        self._call("cuMemcpyDtoHAsync_v2", target, where, count, queue)
        self._call("cuStreamSynchronize", queue)

    def clear(self, address: int, nbytes: int, stream: int, value: int = 0) -> None:
        """Fill bytes with zeros, or with another value."""
        where, count = ctypes.c_uint64(address), ctypes.c_size_t(nbytes)
        byte, queue = ctypes.c_ubyte(value), ctypes.c_void_p(stream)
        self._call("cuMemsetD8Async", where, byte, count, queue)

    def clear_rows(
        self, address: int, rows: int, nbytes: int, pitch: int, stream: int, value: int = 0
    ) -> None:
        """Do so with the first bytes of each row; rows begin `pitch` bytes apart."""
        if not _is_rectangle(rows, pitch):
            for row in range(rows):
                self.clear(address + row * pitch, nbytes, stream, value)
            return
        where, byte = ctypes.c_uint64(address), ctypes.c_ubyte(value)
        sizes = (ctypes.c_size_t(nbytes), ctypes.c_size_t(rows))
        queue = ctypes.c_void_p(stream)
        self._call("cuMemsetD2D8Async", where, ctypes.c_size_t(pitch), byte, *sizes, queue)

    def copy_rows(
        self, source: int, target: int, rows: int, nbytes: int, pitch: int, stream: int
    ) -> None:
        """Copy rows that follow one another in memory to rows that begin `pitch` bytes apart."""
        queue = ctypes.c_void_p(stream)
        if _is_rectangle(rows, pitch):
            copy = _Copy2D(
                source_type=_DEVICE_MEMORY,
                source=source,
                source_pitch=nbytes,
                target_type=_DEVICE_MEMORY,
                target=target,
                target_pitch=pitch,
                width=nbytes,
                height=rows,
            )
            self._call("cuMemcpy2DAsync_v2", ctypes.byref(copy), queue)
            return
        for row in range(rows):
            there = ctypes.c_uint64(target + row * pitch)
            here = ctypes.c_uint64(source + row * nbytes)
            self._call("cuMemcpyDtoDAsync_v2", there, here, ctypes.c_size_t(nbytes), queue)

    def poison(self, address: int, size: int, form: Format, stream: int) -> None:
        """Fill `size` elements with NaN, or with the lowest integer."""
        if not size:
            return
        value, bits = _poison_of(form)
        if bits == 64:
            # The driver fills with 32 bits at most.
            self.clear(address, 8 * size, stream)
            for place, byte in enumerate(value.to_bytes(8, "little")):
                if byte:
                    self.clear_rows(address + place, size, 1, 8, stream, byte)
            return
        where, queue = ctypes.c_uint64(address), ctypes.c_void_p(stream)
        number = {8: ctypes.c_ubyte, 16: ctypes.c_ushort, 32: ctypes.c_uint}[bits](value)
        self._call(f"cuMemsetD{bits}Async", where, number, ctypes.c_size_t(size), queue)

    def zero(self, address: int, words: int, stream: int) -> None:
        """Fill 32-bit words with zeros."""
        where, count = ctypes.c_uint64(address), ctypes.c_size_t(words)
        self._call("cuMemsetD32Async", where, ctypes.c_uint(0), count, ctypes.c_void_p(stream))

    # --- Calls -------------------------------------------------------------------------------

    def _call(self, function: str, *arguments: object) -> None:
        status = getattr(self._library, function)(*arguments)
        if status:
            raise DriverError(f"NVIDIA's driver: {function}: {self._reason(status)}")

    def _reason(self, status: int) -> str:
        text = ctypes.c_char_p()
        self._library.cuGetErrorString(status, ctypes.byref(text))
        said = text.value.decode(errors="replace") if text.value else "unknown error"
        return f"{said} (CUDA error {status})"


class _Copy2D(ctypes.Structure):
    """CUDA_MEMCPY2D of cuda.h: a rectangle of bytes; what is not named here stays 0."""

    _fields_ = (
        ("source_x", ctypes.c_size_t),
        ("source_y", ctypes.c_size_t),
        ("source_type", ctypes.c_int),
        ("source_host", ctypes.c_void_p),
        ("source", ctypes.c_uint64),
        ("source_array", ctypes.c_void_p),
        ("source_pitch", ctypes.c_size_t),
        ("target_x", ctypes.c_size_t),
        ("target_y", ctypes.c_size_t),
        ("target_type", ctypes.c_int),
        ("target_host", ctypes.c_void_p),
        ("target", ctypes.c_uint64),
        ("target_array", ctypes.c_void_p),
        ("target_pitch", ctypes.c_size_t),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    )


def _is_rectangle(rows: int, pitch: int) -> bool:
    """Return whether rows are worth one call, and not so long that none takes them."""
    return rows > 1 and pitch <= _MOST_PITCH


def same_stream(one: int, two: int) -> bool:
    """Return whether two handles name one stream."""
    return one == two or (one in _DEFAULT_STREAMS and two in _DEFAULT_STREAMS)


@functools.cache
def _open() -> Driver:
    for name in _LIBRARIES:
        try:
            return Driver(ctypes.CDLL(name))
        except OSError:
            continue
    raise BackendUnavailable(
        "there is no NVIDIA driver here (libcuda.so.1). The simulator needs none: backend='numpy'"
    )


def _poison_of(form: Format) -> tuple[int, int]:
    """Return what to fill memory with, and its bits: a NaN, or the lowest value of an integer."""
    bits = 8 * form.itemsize
    if not form.is_float:
        return int(form.smallest) % 2**bits, bits
    exponent_bits = int(math.log2(form.emax + 1)) + 1
    return (2 ** (exponent_bits + 1) - 1) << (bits - 2 - exponent_bits), bits


def device_sm(device: int = 0) -> int:
    """Return a GPU's compute capability, such as 90.

    Raises
    ------
    BackendUnavailable
        If there is no driver or no such GPU.
    """
    return Driver.open().sm(device)


def unit_name(sm: int) -> str | None:
    """Return the unit whose numerics GPUs of a compute capability have, such as ``"hopper"``.

    None stands for a GPU that no registered unit names.
    """
    for unit in units():
        if sm in unit.sm:
            return unit.name
    return None
