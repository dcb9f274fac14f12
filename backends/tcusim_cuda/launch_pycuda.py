"""The backend "pycuda": kernels launched through PyCUDA."""

from __future__ import annotations

import atexit
import importlib
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import InputError
from tcusim_cuda.driver import Driver
from tcusim_cuda.launch import Launcher, Place, Stream

__all__ = ["PycudaLauncher"]

# The driver's names of its default stream.
_DEFAULT_STREAMS = (0, 1)


class PycudaLauncher(Launcher):
    """Launches through PyCUDA, in the current context if it is PyCUDA's, else in the primary one.

    Nothing is made current for longer than a call, and `pycuda.autoinit` is not imported.
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
        self._homes: dict[int, Any] = {}
        self._streams: dict[int, Any] = {}

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
        """Return a GPU's primary context, which CuPy and torch use as well.

        Each thread has an object of its own for it: PyCUDA frees nothing in another thread.
        """
        contexts = vars(self._retained)
        key = str(device)
        if key not in contexts:
            library = self.library()
            library.init()
            contexts[key] = library.Device(device).retain_primary_context()
        return contexts[key]

    @contextmanager
    def _at_home(self) -> Iterator[None]:
        """Let what lasts be made under the first object for the context, whatever the thread."""
        if not self._homes:
            # Handlers run last first: this one before that of a pycuda.autoinit imported earlier.
            atexit.register(self._let_go)
        context = self.library().Context
        current = context.get_current()
        home = self._homes.setdefault(Driver.open().context_id(current.handle), current)
        home.push()
        try:
            yield
        finally:
            context.pop()

    def _let_go(self) -> None:
        """Unload the kernels while their contexts are still there."""
        with warnings.catch_warnings():
            # PyCUDA cannot unload what another thread loaded; that goes with the process.
            warnings.simplefilter("ignore")
            for session in list(self._sessions):
                session.forget()
            self._loaded.clear()
            self._streams.clear()
            self._homes.clear()
            vars(self._retained).clear()

    def open_stream(self, handle: int, given: Any, place: Place) -> Stream:
        """Return a stream of PyCUDA's own: it can launch on no other library's."""
        if handle in _DEFAULT_STREAMS:
            return Stream(0)
        if isinstance(given, self.library().Stream):
            return Stream(handle, given)
        driver = Driver.open()
        context = driver.context_id(driver.current_context())
        if context not in self._streams:
            with self._at_home():
                self._streams[context] = self.library().Stream()
        own = self._streams[context]
        return Stream(own.handle, own)

    def default_stream(self, place: Place) -> int:
        """Return the default stream: PyCUDA has no other current one."""
        return 0

    def load(self, cubin: bytes, name: str) -> Any:
        """Return a function of a cubin; it keeps its module."""
        with self._at_home():
            return self.library().module_from_buffer(cubin).get_function(name)

    def allow_shared(self, function: Any, dynamic_bytes: int) -> None:
        """Let a function have this much dynamic shared memory."""
        attribute = self.library().function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
        function.set_attribute(attribute, dynamic_bytes)

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
        function(
            *arguments,
            grid=(blocks, 1),
            block=(threads, 1, 1),
            shared=dynamic_bytes,
            stream=stream.owner,
        )

    def new_array(self, shape: int | tuple[int, ...], dtype: np.dtype[Any], stream: Stream) -> Any:
        """Return a GPUArray."""
        return self._gpuarray().empty(shape, dtype)

    def lasting_array(self, size: int, dtype: np.dtype[Any], stream: Stream) -> Any:
        """Return a GPUArray that belongs to the first object for the context."""
        with self._at_home():
            return self.new_array(size, dtype, stream)

    def upload(self, bits: NDArray[Any], stream: Stream) -> Any:
        """Return a GPUArray that holds these bits."""
        array = self._gpuarray().empty(bits.size, bits.dtype)
        if bits.size:
            self.library().memcpy_htod_async(array.gpudata, bits, stream.owner)
        return array

    def download(self, array: Any, stream: Stream) -> NDArray[Any]:
        """Return what a GPUArray holds."""
        values = np.empty(array.size, array.dtype)
        if values.size:
            self.library().memcpy_dtoh_async(values, array.gpudata, stream.owner)
        self._wait(stream)
        return values

    def _wait(self, stream: Stream) -> None:
        if stream.owner is None:
            self.library().Context.synchronize()
        else:
            stream.owner.synchronize()

    def _gpuarray(self) -> Any:
        return importlib.import_module("pycuda.gpuarray")

    def errors(self) -> tuple[type[Exception], ...]:
        """Return what PyCUDA raises when the GPU or its driver fails."""
        return (self.library().Error,)
