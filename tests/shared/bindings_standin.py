"""A stand-in for the bindings of the CUDA driver: its memory is that of the computer."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray


def memory(address: int, size: int, dtype: Any) -> NDArray[Any]:
    """Return the memory at an address, as a writable array."""
    count = size * np.dtype(dtype).itemsize
    return np.frombuffer(memoryview((ctypes.c_char * count).from_address(address)), dtype)


class Bindings:
    """As much of cuda.bindings.driver as moves bytes, in the computer's memory."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.calls: list[str] = []

    def cuInit(self, flags: int) -> tuple[int]:  # noqa: N802
        return (self.status,)

    def cuGetErrorString(self, status: int) -> tuple[int, bytes | None]:  # noqa: N802
        return 1, None

    class CUDA_MEMCPY2D:  # noqa: N801
        pass

    def CUmemorytype(self, number: int) -> int:  # noqa: N802
        return number

    def cuMemcpy2DAsync(self, copy: Any, stream: Any) -> tuple[int]:  # noqa: N802
        self.calls.append("cuMemcpy2DAsync")
        assert (copy.srcMemoryType, copy.dstMemoryType) == (2, 2)
        assert copy.WidthInBytes <= min(copy.srcPitch, copy.dstPitch)
        for row in range(copy.Height):
            target = copy.dstDevice + row * copy.dstPitch
            ctypes.memmove(target, copy.srcDevice + row * copy.srcPitch, copy.WidthInBytes)
        return (0,)

    def cuMemcpyDtoDAsync(self, target: int, source: int, count: int, stream: Any) -> tuple[int]:  # noqa: N802
        self.calls.append("cuMemcpyDtoDAsync")
        ctypes.memmove(target, source, count)
        return (0,)

    def cuMemsetD8Async(self, target: int, value: int, count: int, stream: Any) -> tuple[int]:  # noqa: N802
        self.calls.append("cuMemsetD8Async")
        ctypes.memset(target, value, count)
        return (0,)

    def cuMemsetD16Async(self, target: int, value: int, count: int, stream: Any) -> tuple[int]:  # noqa: N802
        memory(target, count, np.uint16)[...] = value
        return (0,)

    def cuMemsetD32Async(self, target: int, value: int, count: int, stream: Any) -> tuple[int]:  # noqa: N802
        memory(target, count, np.uint32)[...] = value
        return (0,)

    def cuMemsetD2D8Async(self, target: int, *sizes: int) -> tuple[int]:  # noqa: N802
        self.calls.append("cuMemsetD2D8Async")
        pitch, value, width, height, _ = sizes
        for row in range(height):
            ctypes.memset(target + row * pitch, value, width)
        return (0,)
