"""NVIDIA's driver through cuda.bindings: devices, contexts, memory, streams, kernels.

Contexts, streams, functions and addresses are the driver's own handles, as integers.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from numpy.typing import NDArray

from tcusim.errors import BackendUnavailable, Given, InputError, TcusimError
from tcusim.machine import Format, arches

# Numbers of cuda.h: CUresult, CUdevice_attribute, CUpointer_attribute, CUfunction_attribute,
# CUmemorytype, CUevent_flags, CUstreamCaptureMode.
_NO_DEVICE: Final = 100
_CAPTURE_IMPLICIT: Final = 906
_SHARED_BYTES: Final = 97  # MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
_MAJOR, _MINOR = 75, 76
_POINTER_CONTEXT: Final = 1
_POINTER_DEVICE: Final = 9
_DYNAMIC_SHARED_BYTES: Final = 8  # MAX_DYNAMIC_SHARED_SIZE_BYTES
_DEVICE_MEMORY: Final = 2
_NO_TIMING: Final = 2
_NOT_READY: Final = 600
_RELAXED: Final = 2  # CU_STREAM_CAPTURE_MODE_RELAXED

# The longest row of a rectangle, MAX_PITCH of every GPU.
_MOST_PITCH: Final = 2**31 - 1

# The driver's two names of the default stream, and its name of a thread's own default stream: they
# are streams of whatever context is current.
_DEFAULT_STREAMS: Final = (0, 1)
_STREAMS_OF_ANY_CONTEXT: Final = (*_DEFAULT_STREAMS, 2)

# A CUDA version that has cuPointerGetAttribute as it is called here, and its arguments: where the
# answer goes, the attribute, an address.
_SINCE: Final = 11000
_PointerQuestion = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64)


class DriverError(TcusimError, RuntimeError):
    """A call of NVIDIA's driver failed, or an earlier launch did and the driver says so now."""


class DriverMemory:
    """GPU memory, freed with this object; `address` is a multiple of 256."""

    def __init__(self, driver: Driver, nbytes: int) -> None:
        self.address = driver.allocate(nbytes)
        # At the end of the process the driver frees the rest.
        weakref.finalize(self, driver.free, self.address).atexit = False


class _Forked:
    """Stands for the bindings in a process that was forked after CUDA had been started."""

    def __getattr__(self, name: str) -> Any:
        raise BackendUnavailable(
            "CUDA was in use when this process was forked, and does not survive that. Start "
            "processes with 'spawn': multiprocessing.get_context('spawn'), or of torch "
            "DataLoader(multiprocessing_context='spawn'). The simulator works: ",
            Given("backend", "numpy"),
        )

    def no_pointer(self, target: Any, attribute: int, address: int) -> int:
        return int(self.cuPointerGetAttribute)


class Driver:
    """The driver, started, through `cuda.bindings.driver`."""

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        (status,) = cuda.cuInit(0)
        if status == _NO_DEVICE:
            raise BackendUnavailable(
                "there is no NVIDIA GPU here, or CUDA_VISIBLE_DEVICES hides it. "
                "The simulator needs none: ",
                Given("backend", "numpy"),
            )
        if status:
            raise BackendUnavailable(f"NVIDIA's driver does not start: {self._reason(status)}")
        self._primary: dict[int, int] = {}
        self._lock = threading.Lock()
        # Arrays that copies to a GPU may still read, with the event after which they do not.
        self._being_read: list[tuple[Any, NDArray[Any]]] = []
        self._read_by_graphs: list[NDArray[Any]] = []

    def _forget(self) -> None:
        """Refuse every call, in a process that was forked."""
        self._cuda = _Forked()
        self._ask_pointer = self._cuda.no_pointer

    @staticmethod
    @functools.cache
    def open() -> Driver:
        """Return the driver, opened once in a process; BackendUnavailable if it cannot be."""
        try:
            cuda = importlib.import_module("cuda.bindings.driver")
        except ImportError as error:
            raise BackendUnavailable(
                f"GPUs are used through NVIDIA's package cuda-bindings, which cannot be imported "
                f"({error}). Install it with: pip install 'tcusim[cuda]'"
            ) from error
        try:
            driver = Driver(cuda)
        except TcusimError:
            raise
        except (RuntimeError, OSError) as error:
            # How the bindings say that they found no driver.
            raise BackendUnavailable(
                "there is no NVIDIA driver here (libcuda.so.1). The simulator needs none: ",
                Given("backend", "numpy"),
            ) from error
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=driver._forget)
        return driver

    # --- Devices -----------------------------------------------------------------------------

    def version(self) -> tuple[int, int]:
        """Return the version of CUDA that the driver is of."""
        number = int(self._call("cuDriverGetVersion"))
        return number // 1000, number % 1000 // 10

    def sm(self, device: int) -> int:
        """Return a device's compute capability, such as 90."""
        return 10 * self._attribute(device, _MAJOR) + self._attribute(device, _MINOR)

    def shared_bytes(self, device: int) -> int:
        """Return the bytes of shared memory that a block may have."""
        return self._attribute(device, _SHARED_BYTES)

    def title(self, device: int) -> str:
        """Return a device's name, such as ``NVIDIA H200``."""
        name: bytes = self._call("cuDeviceGetName", 256, self._device(device))
        return name.split(b"\0")[0].decode(errors="replace").strip()

    def _device(self, number: int) -> Any:
        status, device = self._cuda.cuDeviceGet(number)
        if status:
            raise BackendUnavailable(f"there is no GPU {number}: {self._reason(status)}")
        return device

    def _attribute(self, device: int, attribute: int) -> int:
        which = self._cuda.CUdevice_attribute(attribute)
        return int(self._call("cuDeviceGetAttribute", which, self._device(device)))

    # --- Contexts and addresses --------------------------------------------------------------

    def current_context(self) -> int:
        """Return the context of this thread, 0 if there is none."""
        status, context = self._cuda.cuCtxGetCurrent()
        return 0 if status else int(context)

    def set_context(self, context: int) -> None:
        """Make a context this thread's."""
        self._call("cuCtxSetCurrent", context)

    def primary_context(self, device: int) -> int:
        """Return a device's primary context, shared with the runtime and its libraries."""
        if device not in self._primary:
            # It is never released: arrays of other libraries live in it to the end.
            context = self._call("cuDevicePrimaryCtxRetain", self._device(device))
            self._primary[device] = int(context)
        return self._primary[device]

    def current_device(self) -> int:
        """Return the device of this thread's context; 0 if there is none."""
        return int(self._call("cuCtxGetDevice")) if self.current_context() else 0

    def context_id(self, context: int) -> int:
        """Return a number that no later context has."""
        return int(self._call("cuCtxGetId", context))

    @contextmanager
    def restored_context(self, there: int = 0) -> Iterator[None]:
        """Make a context the thread's if one is given, and give the thread back its own afterwards.

        A thread without a context is left in that of GPU 0, the libraries' default.
        """
        before = self.current_context()
        if there not in (0, before):
            self.set_context(there)
        try:
            yield
        finally:
            after = self.current_context()
            if before != after:
                # To go back to none would take the context away from a library that relies on it.
                self.set_context(before or (self.primary_context(0) if self._is_active(0) else 0))

    def in_primary_context(self, device: int) -> AbstractContextManager[None]:
        """Make a device's primary context this thread's, and give the thread back its own."""
        return self.restored_context(self.primary_context(device))

    def _is_active(self, device: int) -> bool:
        """Return whether somebody uses a device's primary context."""
        status, _, active = self._cuda.cuDevicePrimaryCtxGetState(self._device(device))
        return not status and bool(active)

    @functools.cached_property
    def _ask_pointer(self) -> Callable[[Any, int, int], int]:
        # Asked through the bindings, the driver says 0 for every GPU: versions 12.9.6 to 12.9.8 and
        # 13.2.0 to 13.4.2 return another field of a union than that which it wrote.
        return _PointerQuestion(self._call("cuGetProcAddress", b"cuPointerGetAttribute", _SINCE, 0))

    def home_of(self, address: int, name: str) -> tuple[int, int]:
        """Return the device and the context (0 if of no one context) of an address.

        InputError if it is not in GPU memory; the message calls it `name`.
        """
        device, context = ctypes.c_int(-1), ctypes.c_void_p()
        status = self._ask_pointer(ctypes.byref(device), _POINTER_DEVICE, address)
        if status or device.value < 0:
            raise InputError(
                f"{name}: its address {address:#x} is not in the memory of a GPU "
                f"({self._reason(self._cuda.CUresult(status))}). "
                f"Copy it to one first, with cupy.asarray for instance."
            )
        # Memory of pools and of the driver's own mapping is of a device, and of no context.
        status = self._ask_pointer(ctypes.byref(context), _POINTER_CONTEXT, address)
        return device.value, 0 if status else context.value or 0

    # --- Memory, in this thread's context ----------------------------------------------------

    def allocate(self, nbytes: int) -> int:
        """Return the address of new memory."""
        with self._beside_captures():
            return int(self._call("cuMemAlloc", max(nbytes, 1)))

    def free(self, address: int) -> None:
        """Free memory, whatever this thread's context; one that is gone has freed it."""
        # The garbage collector may call at any time, in a process that was forked as well.
        with contextlib.suppress(InputError, DriverError, BackendUnavailable):
            before = self.current_context()
            try:
                _, context = self.home_of(address, "memory")
                if context not in (0, before):
                    self.set_context(context)
                with self._beside_captures():
                    self._call("cuMemFree", address)
            finally:
                if self.current_context() != before:
                    self.set_context(before)

    def copy_back(self, address: int, values: NDArray[Any], stream: int) -> None:
        """Copy from GPU memory into an array without gaps, and wait until that is done."""
        if values.nbytes:
            target = values.ctypes.data
            self._call("cuMemcpyDtoHAsync", target, address, values.nbytes, stream)
        self.wait(stream)

    def copy_there(self, values: NDArray[Any], address: int, stream: int) -> None:
        """Copy an array without gaps to GPU memory; it is kept, and must not change, until then."""
        if not values.nbytes:
            return
        # A GPU that reads the computer's memory itself, such as a GH200's, does so when its turn
        # has come, which may be after this call.
        self._call("cuMemcpyHtoDAsync", address, values.ctypes.data, values.nbytes, stream)
        if self.is_capturing(stream):
            # A graph reads the array at each replay, and nobody tells which one is the last.
            self._read_by_graphs.append(values)
            return
        event = self._call("cuEventCreate", _NO_TIMING)
        self._call("cuEventRecord", event, stream)
        with self._lock, self._beside_captures():
            known, self._being_read = [*self._being_read, (event, values)], []
            for one in known:
                if self._has_happened(one[0]):
                    self._call("cuEventDestroy", one[0])
                else:
                    self._being_read.append(one)

    def _has_happened(self, event: Any) -> bool:
        """Return whether an event has happened, or nobody will know any more."""
        (status,) = self._cuda.cuEventQuery(event)
        return int(status) != _NOT_READY

    @contextmanager
    def _beside_captures(self) -> Iterator[None]:
        """Let calls of this thread that have nothing to do with a capture not end it."""
        relaxed = self._cuda.CUstreamCaptureMode(_RELAXED)
        before = self._call("cuThreadExchangeStreamCaptureMode", relaxed)
        try:
            yield
        finally:
            self._call("cuThreadExchangeStreamCaptureMode", before)

    def clear(self, address: int, nbytes: int, stream: int, value: int = 0) -> None:
        """Fill bytes with zeros, or with another value."""
        self._call("cuMemsetD8Async", address, value, nbytes, stream)

    def clear_rows(
        self, address: int, rows: int, nbytes: int, pitch: int, stream: int, value: int = 0
    ) -> None:
        """Do so with the first bytes of each row; rows begin `pitch` bytes apart."""
        if _is_rectangle(rows, pitch):
            self._call("cuMemsetD2D8Async", address, pitch, value, nbytes, rows, stream)
            return
        for row in range(rows):
            self.clear(address + row * pitch, nbytes, stream, value)

    def copy_rows(
        self, source: int, target: int, rows: int, nbytes: int, pitch: int, stream: int
    ) -> None:
        """Copy rows that follow one another in memory to rows that begin `pitch` bytes apart."""
        if _is_rectangle(rows, pitch):
            copy = self._cuda.CUDA_MEMCPY2D()
            copy.srcMemoryType = copy.dstMemoryType = self._cuda.CUmemorytype(_DEVICE_MEMORY)
            copy.srcDevice, copy.srcPitch = source, nbytes
            copy.dstDevice, copy.dstPitch = target, pitch
            copy.WidthInBytes, copy.Height = nbytes, rows
            self._call("cuMemcpy2DAsync", copy, stream)
            return
        for row in range(rows):
            there, here = target + row * pitch, source + row * nbytes
            self._call("cuMemcpyDtoDAsync", there, here, nbytes, stream)

    def poison(self, address: int, size: int, form: Format, stream: int) -> None:
        """Fill `size` elements with the value of unwritten memory on the simulator."""
        if not size:
            return
        value, itemsize = form.unwritten_bits, form.itemsize
        if itemsize < 8:
            self._call(f"cuMemsetD{8 * itemsize}Async", address, value, size, stream)
            return
        # The driver fills with 32 bits at most.
        self.clear(address, 8 * size, stream)
        for place, byte in enumerate(value.to_bytes(8, "little")):
            if byte:
                self.clear_rows(address + place, size, 1, 8, stream, byte)

    # --- Streams and kernels, in this thread's context ---------------------------------------

    def order(self, first: int, then: int) -> None:
        """Let later work in stream `then` wait for the work that is in stream `first` by now."""
        if same_stream(first, then):
            return
        event = self._call("cuEventCreate", _NO_TIMING)
        try:
            self._call("cuEventRecord", event, first)
            self._call("cuStreamWaitEvent", then, event, 0)
        finally:
            # The driver keeps the event until it has happened.
            self._call("cuEventDestroy", event)

    def device_of_stream(self, stream: int) -> int:
        """Return the device of a stream: the current one, of a default stream."""
        if stream in _STREAMS_OF_ANY_CONTEXT:
            return self.current_device()
        context = int(self._call("cuStreamGetCtx", stream))
        if context == self.current_context():
            return self.current_device()
        with self.restored_context():
            self.set_context(context)
            return self.current_device()

    def require_own_stream(self, stream: int, device: int) -> None:
        """Refuse a stream of another GPU than that of this thread's context."""
        other = self.device_of_stream(stream)
        if other != device:
            raise InputError(
                f"stream is a stream of GPU {other}, and the arrays are on GPU {device}. "
                f"Give a stream of that GPU, or leave stream out."
            )

    def wait(self, stream: int) -> None:
        """Wait for the work that is in a stream by now."""
        self._call("cuStreamSynchronize", stream)

    def is_capturing(self, stream: int) -> bool:
        """Return whether a stream is being captured into a graph, so that nothing can wait for it.

        Nothing can wait for the default stream either while one that it waits for is captured.
        """
        status, how = self._cuda.cuStreamIsCapturing(stream)
        if status and int(status) != _CAPTURE_IMPLICIT:
            raise DriverError(f"NVIDIA's driver: cuStreamIsCapturing: {self._reason(status)}")
        return bool(status) or int(how) != 0

    def load(self, cubin: bytes, name: str) -> Any:
        """Return a function of a cubin; it stays loaded as long as its context."""
        module = self._call("cuModuleLoadData", cubin)
        return self._call("cuModuleGetFunction", module, name.encode())

    def allow_shared(self, function: Any, dynamic_bytes: int) -> None:
        """Let a function have this much dynamic shared memory."""
        which = self._cuda.CUfunction_attribute(_DYNAMIC_SHARED_BYTES)
        self._call("cuFuncSetAttribute", function, which, dynamic_bytes)

    def launcher(
        self, function: Any, sizes: tuple[int, int, int], stream: int, arguments: int
    ) -> Callable[[], None]:
        """Return a launcher of a function from `load` on a stream.

        sizes: blocks, threads of a block, and bytes of dynamic shared memory. arguments: the
        address of an array with the address of each argument; each launch reads them.
        """
        blocks, threads, shared = sizes
        # The bindings take their own object for a stream faster than a number.
        on = self._cuda.CUstream(stream)
        ask = functools.partial(
            self._cuda.cuLaunchKernel,
            *(function, blocks, 1, 1, threads, 1, 1, shared, on, arguments, 0),
        )

        def launch() -> None:
            (status,) = ask()
            if status:
                raise DriverError(f"NVIDIA's driver: cuLaunchKernel: {self._reason(status)}")

        return launch

    # --- Calls -------------------------------------------------------------------------------

    def _call(self, function: str, *arguments: object) -> Any:
        status, *values = getattr(self._cuda, function)(*arguments)
        if status:
            raise DriverError(f"NVIDIA's driver: {function}: {self._reason(status)}")
        return values[0] if values else None

    def _reason(self, status: Any) -> str:
        _, text = self._cuda.cuGetErrorString(status)
        said = text.decode(errors="replace") if text else "unknown error"
        return f"{said} (CUDA error {int(status)})"


def _is_rectangle(rows: int, pitch: int) -> bool:
    """Return whether rows are worth one call, and not so long that none takes them."""
    return rows > 1 and pitch <= _MOST_PITCH


def same_stream(one: int, two: int) -> bool:
    """Return whether two handles name one stream."""
    return one == two or (one in _DEFAULT_STREAMS and two in _DEFAULT_STREAMS)


def device_sm(device: int | None = None) -> int:
    """Return the compute capability of a GPU, by default of the current one, such as 90.

    BackendUnavailable if there is none.
    """
    driver = Driver.open()
    return driver.sm(driver.current_device() if device is None else device)


def arch_name(sm: int) -> str | None:
    """Return the registered architecture of a compute capability, such as "hopper", if any."""
    return next((arch.name for arch in arches() if sm in arch.sm), None)
