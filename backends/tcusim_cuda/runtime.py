"""The contexts, streams and memory in which kernels are loaded and launched."""

from __future__ import annotations

import array
import importlib
import re
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from tcusim.errors import BackendUnavailable, InputError, TcusimError, Unsupported
from tcusim_cuda.arrays import DeviceArray
from tcusim_cuda.compile import compile_kernels
from tcusim_cuda.cubin import Usage
from tcusim_cuda.driver import Driver, DriverError, DriverMemory
from tcusim_cuda.kernel import AnyKernel

# 64-bit integers, which stay where they are.
Words: TypeAlias = "array.array[int]"


class LaunchError(TcusimError, RuntimeError):
    """A kernel could not be loaded or launched, or failed, or the GPU's memory is full."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a kernel runs: a GPU, and the context that its arrays belong to (0: of no one)."""

    device: int
    context: int = 0


@dataclass(frozen=True, slots=True)
class Loaded:
    """A kernel in a GPU's memory, ready to launch. function: the driver's."""

    function: Any
    usage: Usage


class Call:
    """One launch of a loaded kernel; its arguments may change between launches.

    They are 64-bit words of an array, addresses and scalars; `places` has their indices.
    """

    def __init__(
        self, loaded: Loaded, kernel: AnyKernel, blocks: int, words: Words, places: tuple[int, ...]
    ) -> None:
        self.function, self.usage = loaded.function, loaded.usage
        self.kernel, self.words, self.places = kernel, words, places
        self.sizes = (blocks, kernel.threads, kernel.dynamic_shared_bytes)
        # The driver copies each argument from where the pointer to it says, at every launch.
        start = words.buffer_info()[0]
        self.pointers = array.array("q", [start + words.itemsize * place for place in places])
        self.pointers_address = self.pointers.buffer_info()[0]

    @property
    def configuration(self) -> str:
        """The blocks, threads and memory of the launch, in words."""
        blocks, threads, shared = self.sizes
        return (
            f"{self.kernel.name} was to run as {blocks} blocks of {threads} threads, "
            f"{shared} bytes of dynamic shared memory, {self.usage.shared_bytes} of static, "
            f"{self.usage.registers} registers a thread."
        )


class Runtime(ABC):
    """A library's contexts, streams and memory, in which the driver launches.

    The library is imported when first used. Streams are the driver's handles.
    """

    name: str
    title: str
    # The package to import, and how to install it.
    module: str
    remedy: str
    # Whether all launches are in GPUs' primary contexts.
    in_primary_context = False

    def __init__(self) -> None:
        self._loaded: dict[tuple[int, str], Loaded] = {}
        self._lock = threading.Lock()
        # One for each context: a GPU that is busy may let a kernel wait that is loaded.
        self._loading: dict[int, threading.Lock] = {}

    # --- The library's own -------------------------------------------------------------------

    @abstractmethod
    def active(self, place: Place) -> AbstractContextManager[None]:
        """Make the place's context this thread's, and give the thread back its own afterwards."""

    def default_stream(self, place: Place) -> int:
        """Return the handle of the library's current stream: by default, the default stream."""
        return 0

    def memory(self, like: DeviceArray | None, nbytes: int, stream: int) -> tuple[Any, int]:
        """Return memory for use on a stream, as an object that frees it, and its address.

        It may be freed in any thread. `like`, if any, is an array beside which it is used.
        """
        owner = DriverMemory(Driver.open(), nbytes)
        return owner, owner.address

    def allocated(self, like: DeviceArray | None, nbytes: int, stream: int) -> tuple[Any, int]:
        """Return memory as `memory` does, and keep the active context current."""
        with Driver.open().restored_context():
            return self.memory(like, nbytes, stream)

    @abstractmethod
    def empty(self, like: DeviceArray, shape: tuple[int, ...], dtype: str, stream: int) -> Any:
        """Return an array in place of one of a library that makes none: of the runtime's own kind.

        It is written on the stream. `dtype` is a short name, such as "f16".
        """

    def delivered(self, made: Any, like: DeviceArray, dtype: str) -> Any:
        """Return the user's form of an array from `empty`, once its launches are queued."""
        return made

    @abstractmethod
    def errors(self) -> tuple[type[Exception], ...]:
        """Return the exceptions that the library raises when the GPU or its driver fails."""

    # --- Every runtime -----------------------------------------------------------------------

    def library(self) -> Any:
        """Import the library and return it; BackendUnavailable if it cannot be imported."""
        try:
            return importlib.import_module(self.module)
        except ImportError as error:
            raise BackendUnavailable(
                f"{self.module} cannot be imported ({error}). {self.remedy}"
            ) from error

    # --- Launches ----------------------------------------------------------------------------

    def load(self, cubin: bytes, kernel: AnyKernel) -> Any:
        """Return a kernel's function, allowed the dynamic shared memory that it needs."""
        driver = Driver.open()
        function = driver.load(cubin, kernel.name)
        if kernel.dynamic_shared_bytes:
            driver.allow_shared(function, kernel.dynamic_shared_bytes)
        return function

    def ready(self, call: Call, stream: int) -> Callable[[], None]:
        """Return a launcher of a call on a stream, in the active context; keep the call."""
        return Driver.open().launcher(call.function, call.sizes, stream, call.pointers_address)

    def loaded(self, kernels: Sequence[AnyKernel], place: Place) -> tuple[Loaded, ...]:
        """Return kernels on the device of the active context, compiled side by side if need be."""
        driver = Driver.open()
        context = driver.context_id(driver.current_context())
        missing = {k.text: k for k in kernels if (context, k.text) not in self._loaded}
        # Only threads that want the same kernel wait for its compilation.
        cubins = compile_kernels([*missing.values()], driver.sm(place.device)) if missing else []
        for kernel, cubin in zip(missing.values(), cubins, strict=True):
            needed = cubin.usage.shared_bytes + kernel.dynamic_shared_bytes
            if needed > (offered := driver.shared_bytes(place.device)):
                raise Unsupported(
                    f"{kernel.title} needs {needed} bytes of shared memory a block, "
                    f"{driver.title(place.device)} has {offered}. Build it with fewer warps or "
                    f"smaller tiles."
                )
            with self._loading.setdefault(context, threading.Lock()):
                if (context, kernel.text) not in self._loaded:
                    with _explained_by_versions(cubin.compiler):
                        function = self.load(cubin.code, kernel)
                    self._loaded[context, kernel.text] = Loaded(function, cubin.usage)
        return tuple(self._loaded[context, kernel.text] for kernel in kernels)

    @contextmanager
    def explained(self, what: str, configured: Callable[[], str]) -> Iterator[None]:
        """Turn a failure of the library into a LaunchError with the configuration."""
        try:
            yield
        except Exception as error:
            self.explain(error, what, configured)
            raise

    def explain(self, error: Exception, what: str, configured: Callable[[], str]) -> None:
        """Raise a LaunchError if an error is a failure of the library or of the driver."""
        ours = isinstance(error, TcusimError) and not isinstance(error, DriverError)
        if ours or not isinstance(error, (MemoryError, RuntimeError, *self.errors())):
            return
        raise LaunchError(
            f"{self.name}: {what} failed: {type(error).__name__}: {str(error).strip()}. "
            f"{configured()}"
        ) from error


@contextmanager
def _explained_by_versions(compiler: str) -> Iterator[None]:
    """Explain a failed load by the versions, if the compiler is newer than the driver.

    Newer alone is no failure: drivers load much code of newer compilers of their major version.
    """
    try:
        yield
    except Exception as error:
        own = Driver.open().version()
        made = tuple(int(part) for part in re.findall(r"\d+", compiler))
        if made <= own:
            raise
        raise BackendUnavailable(
            f"{compiler} compiled a kernel, and the driver, which is of CUDA {own[0]}.{own[1]}, "
            f"does not load it: {error}. Install a newer driver, or let an older compiler be "
            f"found, for CUDA 12 with: pip install nvidia-cuda-nvrtc-cu12 'cuda-bindings<13'"
        ) from error


def advice_on_contexts() -> str:
    """Return advice for arrays in contexts that do not go together."""
    if "pycuda" in sys.modules:
        return "Import pycuda.autoprimaryctx, not pycuda.autoinit; or use backend 'pycuda'."
    return "Allocate all of them in the GPU's primary context, as the CUDA runtime does."


def handle_of(stream: Any) -> int | None:
    """Return a stream's handle: an integer, or any library's stream. None if none is given."""
    if stream is None or isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for attribute in ("cuda_stream", "ptr", "handle"):
        if hasattr(stream, attribute):
            return int(getattr(stream, attribute))
    raise InputError(
        f"stream must be a stream of CuPy, PyCUDA, torch or cuda.core, or a handle; got {stream!r}"
    )
