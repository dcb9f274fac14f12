"""The backend "cupy": kernels on CuPy's streams, with CuPy's memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tcusim.machine import format_of
from tcusim_cuda.arrays import DeviceArray
from tcusim_cuda.driver import Driver
from tcusim_cuda.launch_cuda import CudaLauncher
from tcusim_cuda.runtime import Place


@dataclass(frozen=True, slots=True)
class _Handle:
    """A stream in the terms of the CUDA stream protocol: a version, and its handle."""

    handle: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.handle)


class CupyLauncher(CudaLauncher):
    """Launches in each GPU's primary context, which is CuPy's; memory and streams are CuPy's."""

    name = "cupy"
    title = "an NVIDIA GPU, through CuPy"
    module = "cupy"
    remedy = (
        "Install it with: pip install 'tcusim[cupy]' (for CUDA 12), or pip install cupy-cuda13x"
    )

    def default_stream(self, place: Place) -> int:
        """Return CuPy's current stream on the GPU."""
        return int(self.library().cuda.get_current_stream(place.device).ptr)

    @contextmanager
    def _current(self, stream: int) -> Iterator[None]:
        """Let CuPy work on a stream, on the device of the active context."""
        cuda, device = self.library().cuda, Driver.open().current_device()
        with cuda.Device(device):
            if stream == 0:
                owner = cuda.Stream.null
            elif hasattr(cuda.Stream, "from_external"):
                owner = cuda.Stream.from_external(_Handle(stream))
            else:
                # Before CuPy 14; since then it is deprecated.
                owner = cuda.ExternalStream(stream, device)
            with owner:
                yield

    def memory(self, like: DeviceArray | None, nbytes: int, stream: int) -> tuple[Any, int]:
        """Return memory from CuPy's pool."""
        with self._current(stream):
            owner = self.library().cuda.alloc(nbytes)
        return owner, int(owner.ptr)

    def empty(self, like: DeviceArray, shape: tuple[int, ...], dtype: str, stream: int) -> Any:
        """Return a CuPy array."""
        with self._current(stream):
            return self.library().empty(shape, format_of(dtype).memory_dtype)

    def errors(self) -> tuple[type[Exception], ...]:
        """Return the exceptions that CuPy raises when the GPU or its driver fails."""
        cuda = self.library().cuda
        return (cuda.driver.CUDADriverError, cuda.runtime.CUDARuntimeError)
