"""The backend "cuda": kernels in GPUs' primary contexts, for arrays of any library."""

from __future__ import annotations

import importlib
import math
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from tcusim.errors import BackendUnavailable, Given, InputError
from tcusim.machine import format_of
from tcusim_cuda.arrays import DeviceArray
from tcusim_cuda.driver import Driver, DriverMemory
from tcusim_cuda.launch import Launcher
from tcusim_cuda.libraries import library_of
from tcusim_cuda.runtime import Place, advice_on_contexts

_DLPACK_CUDA = 2


class CudaArray:
    """An array in GPU memory of no library, which any library takes without a copy.

    Give it to `torch.from_dlpack`, `cupy.asarray`, `jax.dlpack.from_dlpack` or
    `numba.cuda.as_cuda_array`. Elements of bf16 are given as their bits, of type uint16. It has
    `shape`, `dtype` and `device`, the number of the GPU.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], place: Place, stream: int):
        self.shape = shape
        self.dtype = dtype
        self.device = place.device
        self._stream = stream
        self._nbytes = math.prod(shape) * dtype.itemsize
        self._memory = DriverMemory(Driver.open(), self._nbytes)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The CUDA array interface, version 3."""
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self._memory.address, False),
            "strides": None,
            # The interface has no 0: 1 is the default stream.
            "stream": self._stream or 1,
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's name of the GPU."""
        return (_DLPACK_CUDA, self.device)

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        """Return a DLPack capsule; later work in `stream` waits for this array."""
        try:
            core, utils = (importlib.import_module(f"cuda.core{x}") for x in ("", ".utils"))
        except ImportError as error:
            raise BackendUnavailable(
                f"DLPack capsules are made by NVIDIA's package cuda-core, which cannot be imported "
                f"({error}). Install it with: pip install 'tcusim[cuda]'"
            ) from error
        driver = Driver.open()
        if stream != -1:
            with driver.in_primary_context(self.device):
                driver.order(self._stream, stream or 0)
        buffer = core.Buffer.from_handle(self._memory.address, self._nbytes, owner=self)
        view = utils.StridedMemoryView.from_buffer(buffer, self.shape, dtype=self.dtype)
        return view.__dlpack__(stream=-1, **options)


class CudaLauncher(Launcher):
    """Launches in each GPU's primary context."""

    name = "cuda"
    title = "an NVIDIA GPU, for arrays of torch, JAX, CuPy and others"
    module = "cuda.bindings.driver"
    remedy = "Install it with: pip install 'tcusim[cuda]'"
    in_primary_context = True

    def active(self, place: Place) -> AbstractContextManager[None]:
        """Make the GPU's primary context this thread's."""
        driver = Driver.open()
        if place.context not in (0, driver.primary_context(place.device)):
            raise InputError(
                f"the arrays belong to a CUDA context of GPU {place.device} that is not its "
                "primary one, the one that ",
                *(Given("backend", self.name), f" uses. {advice_on_contexts()}"),
            )
        return driver.in_primary_context(place.device)

    def memory(self, like: DeviceArray | None, nbytes: int, stream: int) -> tuple[Any, int]:
        """Return memory from torch for its tensors, so that one allocator has it all."""
        if like is not None and like.kind == "torch":
            owner = library_of(like).memory(like, nbytes, stream)
            return owner, int(owner.data_ptr())
        return super().memory(like, nbytes, stream)

    def empty(self, like: DeviceArray, shape: tuple[int, ...], dtype: str, stream: int) -> Any:
        """Return an array of no library."""
        driver = Driver.open()
        place = Place(driver.current_device())
        return CudaArray(shape, format_of(dtype).memory_dtype, place, stream)

    def delivered(self, made: Any, like: DeviceArray, dtype: str) -> Any:
        """Return a JAX array for JAX's."""
        if like.kind != "jax" or not isinstance(made, CudaArray):
            return made
        # XLA leaves the context current that it needed last.
        with Driver.open().restored_context():
            bits = importlib.import_module("jax.dlpack").from_dlpack(made)
            return bits.view(format_of(dtype).array_name)

    def errors(self) -> tuple[type[Exception], ...]:
        """Return nothing more: the driver's failures are errors of tcusim."""
        return ()
