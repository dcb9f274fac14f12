"""The backend "pycuda": kernels in PyCUDA's contexts, for its arrays and streams."""

from __future__ import annotations

import atexit
import importlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tcusim.errors import InputError
from tcusim.machine import format_of
from tcusim_cuda.arrays import DeviceArray
from tcusim_cuda.driver import Driver
from tcusim_cuda.launch import Launcher
from tcusim_cuda.runtime import Place


class PycudaLauncher(Launcher):
    """Launches in the current context if it is PyCUDA's, else in the primary one.

    PyCUDA makes the arrays and knows the context. Nothing is made current for longer than a
    call, and `pycuda.autoinit` is not imported.
    """

    name = "pycuda"
    title = "an NVIDIA GPU, through PyCUDA"
    module = "pycuda.driver"
    remedy = (
        "Install it with: pip install 'tcusim[pycuda]' (it is compiled then, which takes a C++ "
        "compiler and a CUDA toolkit)"
    )

    def __init__(self) -> None:
        super().__init__()
        self._retained = threading.local()

    @contextmanager
    def active(self, place: Place) -> Iterator[None]:
        """Use the current context if the arrays can be of it, else push the primary one."""
        driver = Driver.open()
        with driver.restored_context():
            current = self.library().Context.get_current()
            if current is not None and self._serves(current, place):
                driver.set_context(current.handle)
                yield
                return
            primary = self._primary_of(place.device)
            if place.context not in (0, primary.handle):
                raise InputError(
                    "the arrays belong to a CUDA context that is not this thread's current one. "
                    "Push that context first."
                )
            primary.push()
            try:
                yield
            finally:
                self.library().Context.pop()

    def _serves(self, current: Any, place: Place) -> bool:
        """Return whether a context can run a kernel for arrays of this place."""
        if place.context:
            return bool(current.handle == place.context)
        driver = Driver.open()
        driver.set_context(current.handle)
        return driver.current_device() == place.device

    def _primary_of(self, device: int) -> Any:
        """Return a GPU's primary context, shared with CuPy and torch.

        Each thread has an object of its own for it: PyCUDA frees nothing in another thread.
        """
        contexts = vars(self._retained)
        key = str(device)
        if key not in contexts:
            library = self.library()
            library.init()
            contexts[key] = library.Device(device).retain_primary_context()
            # Loaded kernels stay, whichever thread ends.
            Driver.open().primary_context(device)
            if threading.current_thread() is threading.main_thread():
                # Handlers run last first: this one before that of a pycuda.autoinit imported
                # earlier.
                atexit.register(contexts.clear)
        return contexts[key]

    def empty(self, like: DeviceArray, shape: tuple[int, ...], dtype: str, stream: int) -> Any:
        """Return a GPUArray."""
        gpuarray = importlib.import_module("pycuda.gpuarray")
        return gpuarray.empty(shape, format_of(dtype).memory_dtype)

    def errors(self) -> tuple[type[Exception], ...]:
        """Return the exceptions that PyCUDA raises when the GPU or its driver fails."""
        return (self.library().Error,)
