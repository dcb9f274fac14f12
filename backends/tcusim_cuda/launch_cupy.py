"""The backend "cupy": kernels launched through CuPy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import InputError
from tcusim_cuda.driver import Driver
from tcusim_cuda.launch import Launcher, Place, Stream

__all__ = ["CupyLauncher"]

# CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES of cuda.h.
_DYNAMIC_SHARED_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class _Handle:
    """A stream in the terms of the CUDA stream protocol: a version, and its handle."""

    handle: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.handle)


class CupyLauncher(Launcher):
    """Launches through CuPy, in each GPU's primary context."""

    name = "cupy"
    title = "an NVIDIA GPU, through CuPy"
    module = "cupy"
    remedy = (
        "Install it with: pip install 'tcusim[cupy]' (for CUDA 12), or pip install cupy-cuda13x"
    )

    @contextmanager
    def active(self, place: Place) -> Iterator[None]:
        """Make the GPU's primary context this thread's."""
        driver = Driver.open()
        with driver.restored_context(), self.library().cuda.Device(place.device):
            primary = driver.current_context()
            if place.context not in (0, primary):
                raise InputError(
                    "the arrays belong to a CUDA context that PyCUDA made for itself, which CuPy "
                    "cannot use. Import pycuda.autoprimaryctx, not pycuda.autoinit; or use "
                    "backend='pycuda'."
                )
            yield

    def open_stream(self, handle: int, given: Any, place: Place) -> Stream:
        """Return the stream of this handle, whoever made it."""
        streams = self.library().cuda
        if handle == 0:
            return Stream(0, streams.Stream.null)
        if hasattr(streams.Stream, "from_external"):
            return Stream(handle, streams.Stream.from_external(_Handle(handle)))
        # Before CuPy 14; since then it is deprecated.
        return Stream(handle, streams.ExternalStream(handle, place.device))

    def default_stream(self, place: Place) -> int:
        """Return CuPy's current stream on the GPU."""
        return int(self.library().cuda.get_current_stream(place.device).ptr)

    def load(self, cubin: bytes, name: str) -> Any:
        """Return a function of a cubin; it keeps its module."""
        module = self.library().cuda.function.Module()
        module.load(cubin)
        return module.get_function(name)

    def allow_shared(self, function: Any, dynamic_bytes: int) -> None:
        """Let a function have this much dynamic shared memory."""
        set_attribute = self.library().cuda.driver.funcSetAttribute
        set_attribute(function.ptr, _DYNAMIC_SHARED_BYTES, dynamic_bytes)

    def launch(
        self,
        function: Any,
        blocks: int,
        threads: int,
        arguments: Sequence[Any],
        dynamic_bytes: int,
        stream: Stream,
    ) -> None:
        """Launch a function on the stream."""
        with stream.owner:
            function((blocks,), (threads,), tuple(arguments), shared_mem=dynamic_bytes)

    def new_array(self, shape: int | tuple[int, ...], dtype: np.dtype[Any], stream: Stream) -> Any:
        """Return a CuPy array."""
        with stream.owner:
            return self.library().empty(shape, dtype)

    def upload(self, bits: NDArray[Any], stream: Stream) -> Any:
        """Return a CuPy array that holds these bits."""
        with stream.owner:
            return self.library().asarray(bits)

    def download(self, array: Any, stream: Stream) -> NDArray[Any]:
        """Return what a CuPy array holds."""
        with stream.owner:
            values: NDArray[Any] = array.get()
        return values

    def errors(self) -> tuple[type[Exception], ...]:
        """Return what CuPy raises when the GPU or its driver fails."""
        cuda = self.library().cuda
        return (cuda.driver.CUDADriverError, cuda.runtime.CUDARuntimeError)
