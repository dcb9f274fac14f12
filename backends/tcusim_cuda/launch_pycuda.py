"""The backend "pycuda": kernels launched through PyCUDA."""

from __future__ import annotations

import atexit
import importlib
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tcusim.errors import InputError
from tcusim.machine import format_of
from tcusim_cuda.arrays import DeviceArray
from tcusim_cuda.driver import Driver, same_stream
from tcusim_cuda.kernel import AnyKernel
from tcusim_cuda.launch import Launcher
from tcusim_cuda.runtime import Call, Place, Stream

# A 64-bit integer in the terms of the module struct: every argument is one.
_WORD: Final = "q"


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
        if same_stream(handle, 0):
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

    def load(self, cubin: bytes, kernel: AnyKernel) -> Any:
        """Return a prepared function of a cubin; it keeps its module."""
        with self._at_home():
            function = self.library().module_from_buffer(cubin).get_function(kernel.name)
        if kernel.dynamic_shared_bytes:
            attribute = self.library().function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
            function.set_attribute(attribute, kernel.dynamic_shared_bytes)
        return function.prepare(_WORD * len(kernel.arguments))

    def launch(self, call: Call, stream: Stream) -> None:
        """Launch in the active context."""
        blocks, threads, shared = call.sizes
        arguments = [call.words[place] for place in call.places]
        call.function.prepared_async_call(
            (blocks, 1), (threads, 1, 1), stream.owner, *arguments, shared_size=shared
        )

    def empty(self, like: DeviceArray, shape: tuple[int, ...], dtype: str, stream: Stream) -> Any:
        """Return a GPUArray."""
        gpuarray = importlib.import_module("pycuda.gpuarray")
        return gpuarray.empty(shape, format_of(dtype).memory_dtype)

    def errors(self) -> tuple[type[Exception], ...]:
        """Return what PyCUDA raises when the GPU or its driver fails."""
        return (self.library().Error,)
