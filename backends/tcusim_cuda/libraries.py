"""The array libraries: descriptions of arrays, new arrays, copies in another order or type.

No GPU library is imported here: an array of a library proves that its library is there.
"""

from __future__ import annotations

import functools
import importlib
import math
import operator
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Final

import numpy as np

from tcusim.backends import require_no_gradient
from tcusim.errors import BackendUnavailable, InputError
from tcusim.machine import format_of
from tcusim.machine.shapes import TILE_BYTES
from tcusim_cuda.arrays import DeviceArray
from tcusim_cuda.driver import Driver

# DLPack's DLDeviceType, and its name of the default stream.
_DLPACK_GPU: Final = (2, 13)
_DLPACK_DEFAULT_STREAM: Final = 1
# Elements of a tensor that is allocated to be copied from. To write more than that takes a GPU
# longer than a call takes the host.
_MOST_OF_PATTERN: Final = 2**23


# NumPy works out the name of a type anew each time.
@functools.cache
def _name_of_type(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


class Library:
    """The arrays of one library; this class itself stands for every unknown library."""

    kind: ClassVar[str] = "other"
    # The module that defines the array type, and the type's name there.
    module: ClassVar[str] = ""
    type_name: ClassVar[str] = ""
    # Whether memory may be used anew as soon as our view of it is gone, whatever is queued.
    must_wait: ClassVar[bool] = False

    @property
    def imported(self) -> Any:
        """The module; None where nobody has imported it."""
        return sys.modules.get(self.module)

    @property
    def array_type(self) -> Any:
        """The type of its arrays, None if the module was not imported."""
        return getattr(sys.modules.get(self.module), self.type_name, None)

    def describe(self, array: Any, name: str) -> DeviceArray | None:
        """Return the description of an array; None if it is in the computer's own memory."""
        interface = getattr(array, "__cuda_array_interface__", None)
        if interface is not None:
            return _of_interface(array, interface, name, self.kind)
        if hasattr(array, "__dlpack_device__") and hasattr(array, "__dlpack__"):
            return _of_dlpack(array, name, self.kind)
        return None

    def empty(self, like: DeviceArray, shape: tuple[int, ...], dtype: str) -> Any:
        """Return a new array on the device of another; None if the library makes none for us."""
        return None

    def memory(self, like: DeviceArray, nbytes: int, stream: int) -> Any:
        """Return memory from the library's allocator, for use on a stream; None if it has none."""
        return None

    def arranged(self, array: DeviceArray, axes: tuple[int, ...], dtype: str) -> Any:
        """Return a copy with the axes in this order, contiguous, of NumPy's type `dtype`."""
        raise InputError(
            f"{array.name} is a {array.library}, which tcusim cannot copy as it needs it: "
            f"contiguous, of {dtype}, the axis of the sum or scan last. Make that copy first."
        )

    def aligned(self, owner: Any) -> Any:
        """Return a copy of an array, aligned for tiles."""
        return owner.copy()

    def transposed(self, owner: Any, axes: tuple[int, ...]) -> Any:
        """Return a view with the axes in this order."""
        return owner.transpose(axes)


class QuickLibrary(Library):
    """A library whose arrays tell their address and GPU in well under a microsecond."""

    # Whether it makes a new array on the device of another one, whatever the current one is, and
    # may leave a third one current: torch goes back to the one that it takes for current.
    may_switch: ClassVar[bool] = False
    # Functions of an array: the address of its first element, whether it has no gaps, its GPU.
    # Functions of Python's own, in C, take a tenth of the time of one in Python.
    address: Callable[[Any], int]
    has_no_gaps: Callable[[Any], bool]
    device: Callable[[Any], int]

    @abstractmethod
    def stream_reader(self, device: int) -> Callable[[], int]:
        """Return a function that returns the library's current stream on a device."""

    def on(self, device: int) -> AbstractContextManager[Any]:
        """Let the library make new arrays on a device; its context is the thread's."""
        return nullcontext()

    @abstractmethod
    def maker(self, like: Any, shape: tuple[int, ...], dtype: str) -> Callable[[], Any]:
        """Return a function that makes arrays on the device of another, which is the current one.

        It keeps no reference to the other. dtype: NumPy's name.
        """

    def describe(self, array: Any, name: str) -> DeviceArray | None:
        """Return the description of an array in GPU memory."""
        device = self.device(array)
        return DeviceArray(
            name=name,
            owner=array,
            kind=self.kind,
            address=self.address(array),
            shape=tuple(array.shape),
            dtype=_name_of_type(array.dtype),
            contiguous=self.has_no_gaps(array),
            device=device,
            stream=self.stream_reader(device)(),
        )

    def empty(self, like: DeviceArray, shape: tuple[int, ...], dtype: str) -> Any:
        """Return a new array on the device of another."""
        assert like.device is not None
        with self.on(like.device):
            return self.maker(like.owner, shape, format_of(dtype).array_name)()


class _Torch(QuickLibrary):
    kind = "torch"
    may_switch = True
    module = "torch"
    type_name = "Tensor"
    address = operator.methodcaller("data_ptr")
    has_no_gaps = operator.methodcaller("is_contiguous")
    device = operator.attrgetter("device.index")

    def describe(self, array: Any, name: str) -> DeviceArray | None:
        if not array.is_cuda:
            raise InputError(
                f"{name} is a torch tensor on {array.device}. Move it to the GPU with .cuda(), or "
                f"give the array of .numpy()"
            )
        if array.layout is not self.imported.strided:
            raise InputError(
                f"{name} is a torch tensor of layout {array.layout}; give a dense one, such as "
                f"its .values()"
            )
        require_no_gradient(name, array)
        return super().describe(array, name)

    def memory(self, like: DeviceArray, nbytes: int, stream: int) -> Any:
        cuda, device = self.imported.cuda, like.owner.device
        # Its allocator gives freed memory to the next user on the stream of the allocation. To
        # torch, an external stream 0 is a new one.
        default = stream in (0, 1)
        owner = cuda.default_stream(device) if default else cuda.ExternalStream(stream, device)
        with cuda.stream(owner):
            return like.owner.new_empty((nbytes,), dtype=self.imported.uint8)

    def arranged(self, array: DeviceArray, axes: tuple[int, ...], dtype: str) -> Any:
        moved = array.owner.detach().permute(axes)
        return moved.to(getattr(self.imported, dtype)).contiguous()

    def aligned(self, owner: Any) -> Any:
        return owner.clone()

    def transposed(self, owner: Any, axes: tuple[int, ...]) -> Any:
        return owner.permute(axes)

    def stream_reader(self, device: int) -> Callable[[], int]:
        # As Triton asks; the public call makes an object, which takes several microseconds.
        raw = getattr(self.imported._C, "_cuda_getCurrentRawStream", None)
        if raw is not None:
            return functools.partial(raw, device)
        return lambda: int(self.imported.cuda.current_stream(device).cuda_stream)

    def empty(self, like: DeviceArray, shape: tuple[int, ...], dtype: str) -> Any:
        return like.owner.new_empty(
            shape, dtype=getattr(self.imported, format_of(dtype).array_name)
        )

    def maker(self, like: Any, shape: tuple[int, ...], dtype: str) -> Callable[[], Any]:
        # To read a shape and a type from Python takes torch longer than to make the array: they are
        # copied from a tensor that is then freed.
        kind = getattr(self.imported, dtype)
        if math.prod(shape) > _MOST_OF_PATTERN:
            return functools.partial(like.new_empty((), dtype=kind).new_empty, shape, dtype=kind)
        pattern = like.new_empty(shape, dtype=kind)
        pattern.untyped_storage().resize_(0)
        return functools.partial(self.imported.empty_like, pattern)


class _Cupy(QuickLibrary):
    kind = "cupy"
    module = "cupy"
    type_name = "ndarray"
    address = operator.attrgetter("data.ptr")
    has_no_gaps = operator.attrgetter("flags.c_contiguous")
    device = operator.attrgetter("data.device_id")

    def on(self, device: int) -> AbstractContextManager[Any]:
        there: AbstractContextManager[Any] = self.imported.cuda.Device(device)
        return there

    def arranged(self, array: DeviceArray, axes: tuple[int, ...], dtype: str) -> Any:
        assert array.device is not None
        with self.on(array.device):
            moved = self.imported.transpose(array.owner, axes).astype(dtype, copy=False)
            return self.imported.ascontiguousarray(moved)

    def aligned(self, owner: Any) -> Any:
        with self.on(self.device(owner)):
            return owner.copy()

    def stream_reader(self, device: int) -> Callable[[], int]:
        current = self.imported.cuda.get_current_stream
        return lambda: int(current(device).ptr)

    def maker(self, like: Any, shape: tuple[int, ...], dtype: str) -> Callable[[], Any]:
        # NumPy has no bfloat16: beside other arrays, its bits.
        kind = np.dtype("uint16" if dtype == "bfloat16" else dtype)
        if like.dtype.name == dtype:
            kind = like.dtype
        return functools.partial(self.imported.empty, shape, kind)


class _Pycuda(Library):
    kind = "gpuarray"
    module = "pycuda.gpuarray"
    type_name = "GPUArray"

    def empty(self, like: DeviceArray, shape: tuple[int, ...], dtype: str) -> Any:
        memory_dtype = format_of(dtype).memory_dtype
        return self.imported.empty(shape, memory_dtype, allocator=like.owner.allocator)

    def arranged(self, array: DeviceArray, axes: tuple[int, ...], dtype: str) -> Any:
        in_order = axes == tuple(range(len(axes)))
        if in_order and array.contiguous and array.dtype == dtype:
            return array.owner
        # PyCUDA casts by kernels that need nvcc, and does not transpose while it copies.
        return super().arranged(array, axes, dtype)


class _Jax(Library):
    """JAX: its arrays are read through DLPack, and never written."""

    kind = "jax"
    module = "jax"
    type_name = "Array"
    must_wait = True

    def describe(self, array: Any, name: str) -> DeviceArray | None:
        if isinstance(array, self.imported.core.Tracer):
            raise InputError(
                f"{name} is traced by JAX and has no values yet. Call from outside jax.jit, or "
                f"call tcusim.jax"
            )
        return _of_dlpack(array, name, self.kind, writable=False)

    def arranged(self, array: DeviceArray, axes: tuple[int, ...], dtype: str) -> Any:
        return array.owner.transpose(axes).astype(dtype)


class _Xla(QuickLibrary):
    """XLA, within a handler of its FFI: it gives the stream, and where results go."""

    kind = "xla"
    module = "tcusim.jax.ffi"
    type_name = "XlaArray"
    address = operator.attrgetter("ptr")

    def has_no_gaps(self, array: Any) -> bool:
        return True

    def device(self, array: Any) -> int:
        return Driver.open().home_of(array.ptr, "an array of XLA")[0]

    def stream_reader(self, device: int) -> Callable[[], int]:
        stream: Callable[[], int] = self.imported.current_stream
        return stream

    def empty(self, like: DeviceArray, shape: tuple[int, ...], dtype: str) -> None:
        return None

    def maker(self, like: Any, shape: tuple[int, ...], dtype: str) -> Callable[[], Any]:
        raise AssertionError("a handler of XLA writes to arrays that it is given")


_OTHER: Final = Library()
_KNOWN: Final = (_Torch(), _Cupy(), _Pycuda(), _Jax(), _Xla())
_BY_KIND: Final[Mapping[str, Library]] = {one.kind: one for one in (*_KNOWN, _OTHER)}


def library_of(array: DeviceArray) -> Library:
    """Return the library of an array."""
    return _BY_KIND[array.kind]


def quick_library(array: Any) -> QuickLibrary | None:
    """Return the library whose arrays are of this very type, if it is a quick one."""
    found = next((one for one in _KNOWN if type(array) is one.array_type), None)
    return found if isinstance(found, QuickLibrary) else None


# --- Descriptions -----------------------------------------------------------------------------


def on_gpu(array: Any, name: str) -> DeviceArray:
    """Return the description of an array; refuse one that is not on a GPU."""
    found = device_array(array, name)
    if found is None:
        raise InputError(
            f"{name} is a {type(array).__module__}.{type(array).__qualname__}, which is not in GPU "
            f"memory. Copy it there first, or give NumPy arrays only."
        )
    return found


def device_array(array: Any, name: str) -> DeviceArray | None:
    """Return the description of an array, or None if it is in the computer's own memory.

    It is refused if neither a kernel nor NumPy can take it.
    """
    if isinstance(array, np.ndarray):
        return None
    for library in _KNOWN:
        kind = library.array_type
        if kind is not None and isinstance(array, kind):
            return library.describe(array, name)
    return _OTHER.describe(array, name)


def _of_interface(array: Any, interface: Mapping[str, Any], name: str, kind: str) -> DeviceArray:
    """Describe an object that has the CUDA array interface, version 2 or 3."""
    if interface.get("mask") is not None:
        raise InputError(f"{name} has a mask, which kernels know nothing of. Fill it first.")
    address, read_only = interface["data"]
    shape = tuple(interface["shape"])
    dtype, itemsize = _type_of(interface["typestr"])
    return DeviceArray(
        name=name,
        owner=array,
        kind=kind,
        address=int(address or 0),
        shape=shape,
        dtype=dtype,
        contiguous=_contiguous(shape, interface.get("strides"), itemsize),
        writable=not read_only,
        # No stream means that the producer has nothing under way; then any stream will do.
        stream=int(interface.get("stream") or 0),
    )


@functools.cache
def _type_of(typestr: str) -> tuple[str, int]:
    """Return NumPy's name of a type, and the bytes of an element."""
    dtype = np.dtype(typestr)
    return dtype.name, dtype.itemsize


def _of_dlpack(array: Any, name: str, kind: str, *, writable: bool = True) -> DeviceArray | None:
    """Describe an object that speaks DLPack; None if it is in the computer's own memory."""
    device_type, device = array.__dlpack_device__()
    if int(device_type) not in _DLPACK_GPU:
        return None
    try:
        utils = importlib.import_module("cuda.core.utils")
    except ImportError as error:
        raise BackendUnavailable(
            f"{name} is read through DLPack by NVIDIA's package cuda-core, which cannot be "
            f"imported ({error}). Install it with: pip install 'tcusim[cuda]'"
        ) from error
    try:
        # The producer may take the default stream for that of the current context.
        with Driver.open().in_primary_context(int(device)):
            view = utils.StridedMemoryView.from_dlpack(array, _DLPACK_DEFAULT_STREAM)
        dtype = np.dtype(view.dtype)
    except (BufferError, TypeError, NotImplementedError) as error:
        raise InputError(f"{name} cannot be read through DLPack: {error}") from error
    return DeviceArray(
        name=name,
        owner=array,
        kind=kind,
        address=int(view.ptr),
        shape=tuple(view.shape),
        dtype=dtype.name,
        contiguous=_contiguous(view.shape, view.strides, 1),
        writable=writable and not view.readonly,
        device=int(device),
        stream=_DLPACK_DEFAULT_STREAM,
        # The view keeps the array alive.
        keep=view,
    )


def _contiguous(shape: tuple[int, ...], strides: Iterable[int] | None, itemsize: int) -> bool:
    """Return whether strides, in units of which an element has `itemsize`, leave no gaps."""
    if strides is None or 0 in shape:
        return True
    expected = itemsize
    for extent, stride in reversed([*zip(shape, strides, strict=True)]):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


# --- The same elements in another order or type -----------------------------------------------


def arranged(array: DeviceArray, axes: tuple[int, ...], dtype: str) -> Any:
    """Return the owner with its axes in this order, contiguous, aligned, of NumPy's type `dtype`.

    The owner itself if it is so already, else a copy by its own library, on its current stream; it
    is refused if its library has no such copy, or is unknown.
    """
    in_order = axes == tuple(range(len(axes)))
    if in_order and array.contiguous and array.address % TILE_BYTES == 0 and array.dtype == dtype:
        return array.owner
    library = library_of(array)
    with Driver.open().restored_context():
        made = library.arranged(array, axes, dtype)
        return library.aligned(made) if on_gpu(made, "a").address % TILE_BYTES else made


def restored(array: DeviceArray, axes: tuple[int, ...]) -> Any:
    """Return a view of the owner in which axis i of it is axis axes[i]."""
    back = tuple(axes.index(axis) for axis in range(len(axes)))
    if back == tuple(range(len(axes))):
        return array.owner
    return library_of(array).transposed(array.owner, back)
