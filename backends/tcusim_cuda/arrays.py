"""Every kind of array that a kernel can work on: where it is, what it holds, on which stream.

No GPU library is imported here: an array of a library proves that its library is there.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import InputError
from tcusim.machine import as_values, format_of, from_values
from tcusim.machine.shapes import TILE_BYTES
from tcusim.program.grammar import Buffer, Load, Program, Store, walk

__all__ = [
    "DeviceArray",
    "arranged",
    "common_device",
    "device_array",
    "directly_loaded",
    "empty_like",
    "from_bits",
    "host_bits",
    "on_gpu",
    "require_apart",
    "require_fit",
    "restored",
    "storage_dtype",
]

# How libraries call the elements of each type. NumPy has no bf16: its bits count as well.
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "f16": ("float16",),
    "bf16": ("bfloat16", "uint16", "void16"),
    "tf32": ("float32",),
    "f32": ("float32",),
    "f64": ("float64",),
    "s8": ("int8",),
    "u8": ("uint8",),
    "s32": ("int32",),
    "s64": ("int64",),
}

Placed: TypeAlias = Sequence[tuple["DeviceArray", Buffer]]

# DLPack's DLDeviceType and DLDataTypeCode.
_DLPACK_GPU: Final = (2, 13)
_DLPACK_CODES: Final = {0: "int", 1: "uint", 2: "float", 4: "bfloat"}
_DLPACK_DEFAULT_STREAM: Final = 1


@dataclass(frozen=True, slots=True)
class DeviceArray:
    """One array in GPU memory, as its library describes it.

    name: what messages call it, such as ``input 'in'``. owner: the user's object. keep: what must
    stay alive besides. kind: "torch", "cupy", "gpuarray" or "other". address: of its first element.
    shape: elements along each axis. dtype: its library's name of the element type. contiguous:
    whether no other bytes lie between its elements. writable: whether its library lets us write.
    device: None where its library does not say. stream: the one on which its library works on it.
    """

    name: str
    owner: Any
    kind: str
    address: int
    shape: tuple[int, ...]
    dtype: str
    contiguous: bool = True
    writable: bool = True
    device: int | None = None
    stream: int = 0
    keep: Any = None

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def itemsize(self) -> int:
        """Bytes of an element: the types' names end in their bits."""
        bits = re.search(r"\d+", self.dtype)
        return 1 if bits is None else -(-int(bits[0]) // 8)

    @property
    def nbytes(self) -> int:
        """Bytes from the first element to the end of the last, of an array without gaps."""
        return self.size * self.itemsize

    def overlaps(self, other: DeviceArray) -> bool:
        """Return whether two arrays without gaps share memory."""
        return (
            self.address < other.address + other.nbytes
            and other.address < self.address + self.nbytes
        )

    def holds(self, dtype: str) -> bool:
        """Return whether its elements are of this type, such as "bf16"."""
        return self.dtype in _NAMES[dtype]

    @property
    def library(self) -> str:
        """The type of the user's object, for messages."""
        return f"{type(self.owner).__module__}.{type(self.owner).__qualname__}"


# --- What an array is ------------------------------------------------------------------------


def on_gpu(array: Any, name: str) -> DeviceArray:
    """Return what a GPU array is; refuse one that is not on a GPU."""
    found = device_array(array, name)
    if found is None:
        raise InputError(
            f"{name} is a {type(array).__module__}.{type(array).__qualname__}, which is not in GPU "
            f"memory. Copy it there first, or give NumPy arrays only."
        )
    return found


def device_array(array: Any, name: str) -> DeviceArray | None:
    """Return what a GPU array is, or None if the array is in the computer's own memory.

    Raises
    ------
    InputError
        If it is an array that neither a kernel nor NumPy can take.
    """
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    gpuarray = sys.modules.get("pycuda.gpuarray")
    if isinstance(array, np.ndarray):
        return None
    if torch is not None and isinstance(array, torch.Tensor):
        return _of_torch(torch, array, name)
    if cupy is not None and isinstance(array, cupy.ndarray):
        return _of_cupy(cupy, array, name)
    if gpuarray is not None and isinstance(array, gpuarray.GPUArray):
        return _of_interface(array, array.__cuda_array_interface__, name, "gpuarray")
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        return _of_interface(array, interface, name, "other")
    if hasattr(array, "__dlpack_device__") and hasattr(array, "__dlpack__"):
        return _of_dlpack(array, name)
    return None


def _of_torch(torch: Any, array: Any, name: str) -> DeviceArray:
    if not array.is_cuda:
        raise InputError(
            f"{name} is a torch tensor on {array.device}. Move it to the GPU with .cuda(), or "
            f"give the array of .numpy()"
        )
    return DeviceArray(
        name=name,
        owner=array,
        kind="torch",
        address=array.data_ptr(),
        shape=tuple(array.shape),
        dtype=str(array.dtype).removeprefix("torch."),
        contiguous=array.is_contiguous(),
        device=array.device.index,
        stream=torch.cuda.current_stream(array.device).cuda_stream,
    )


def _of_cupy(cupy: Any, array: Any, name: str) -> DeviceArray:
    return DeviceArray(
        name=name,
        owner=array,
        kind="cupy",
        address=array.data.ptr,
        shape=tuple(array.shape),
        dtype=array.dtype.name,
        contiguous=bool(array.flags.c_contiguous),
        device=array.device.id,
        stream=cupy.cuda.get_current_stream(array.device.id).ptr,
    )


def _of_interface(array: Any, interface: Mapping[str, Any], name: str, kind: str) -> DeviceArray:
    """Describe an object that has the CUDA array interface, version 2 or 3."""
    if interface.get("mask") is not None:
        raise InputError(f"{name} has a mask, which kernels know nothing of. Fill it first.")
    address, read_only = interface["data"]
    shape = tuple(interface["shape"])
    dtype = np.dtype(interface["typestr"])
    return DeviceArray(
        name=name,
        owner=array,
        kind=kind,
        address=int(address or 0),
        shape=shape,
        dtype=dtype.name,
        contiguous=_contiguous(shape, interface.get("strides"), dtype.itemsize),
        writable=not read_only,
        # No stream means that the producer has nothing under way; then any stream will do.
        stream=int(interface.get("stream") or 0),
    )


class _DLTensor(ctypes.Structure):
    """DLTensor of dlpack.h, with which a DLManagedTensor begins."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int),
        ("device_id", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def _of_dlpack(array: Any, name: str) -> DeviceArray | None:
    """Describe an object that speaks DLPack; None if it is in the computer's own memory."""
    device_type, _ = array.__dlpack_device__()
    if int(device_type) not in _DLPACK_GPU:
        return None
    # The capsule keeps the array alive, and lets go of it when it is collected itself.
    capsule = array.__dlpack__(stream=_DLPACK_DEFAULT_STREAM)
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype = ctypes.c_void_p
    pointer_of.argtypes = (ctypes.py_object, ctypes.c_char_p)
    tensor = _DLTensor.from_address(pointer_of(capsule, b"dltensor"))
    itemsize = tensor.bits * tensor.lanes // 8
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    strides = None
    if tensor.strides:
        strides = tuple(tensor.strides[axis] * itemsize for axis in range(tensor.ndim))
    return DeviceArray(
        name=name,
        owner=array,
        kind="other",
        address=(tensor.data or 0) + tensor.byte_offset,
        shape=shape,
        dtype=f"{_DLPACK_CODES.get(tensor.code, 'unknown')}{tensor.bits * tensor.lanes}",
        contiguous=_contiguous(shape, strides, itemsize),
        device=tensor.device_id,
        stream=_DLPACK_DEFAULT_STREAM,
        keep=capsule,
    )


def _contiguous(shape: tuple[int, ...], strides: Iterable[int] | None, itemsize: int) -> bool:
    """Return whether strides, in bytes, are those of an array without gaps, rows first."""
    if strides is None or 0 in shape:
        return True
    expected = itemsize
    for extent, stride in reversed(list(zip(shape, strides, strict=True))):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


# --- What a kernel needs of it ---------------------------------------------------------------


def directly_loaded(program: Program) -> frozenset[str]:
    """Return the buffers whose tiles move between memory and fragments, without a copy between."""
    names = set()
    for _, step in walk(program.steps):
        match step:
            case Load():
                names.add(step.src.buffer.name)
            case Store():
                names.add(step.dst.buffer.name)
            case _:
                pass
    return frozenset(names)


def require_fit(array: DeviceArray, buffer: Buffer, *, tiles: bool, flat: bool = True) -> None:
    """Raise InputError unless a kernel can take the array for the buffer as it is.

    tiles: whether WMMA moves tiles between this memory and fragments. flat: whether it must have
    one axis.
    """
    if flat and len(array.shape) != 1:
        raise InputError(
            f"{array.name} must be flat (one axis), got shape {array.shape}; use a.ravel()"
        )
    if not array.contiguous:
        raise InputError(
            f"{array.name} has gaps between its elements (a slice with a step?). "
            f"Make a contiguous copy first."
        )
    names = _NAMES[buffer.dtype]
    if array.dtype not in names:
        raise InputError(
            f"{array.name} must be of {' or '.join(names)} ({buffer.dtype}), got {array.dtype}. "
            f"Arrays in GPU memory are used as they are: cast it first."
        )
    multiple = TILE_BYTES if tiles else format_of(buffer.dtype).itemsize
    if array.address % multiple:
        raise InputError(
            f"{array.name} begins at address {array.address:#x}, which is not a multiple of "
            f"{multiple} bytes, as the kernel needs it. A slice that does not begin at the start "
            f"of its array? Copy it."
        )


def common_device(arrays: Iterable[DeviceArray]) -> int | None:
    """Return the device on which all arrays are, None if none of them says.

    Raises
    ------
    InputError
        If they are on several.
    """
    first: DeviceArray | None = None
    for array in arrays:
        if array.device is None:
            continue
        if first is None:
            first = array
        elif array.device != first.device:
            raise InputError(
                f"{first.name} is on GPU {first.device}, {array.name} is on GPU {array.device}. "
                f"A program runs on one GPU: copy them to one."
            )
    return None if first is None else first.device


def require_apart(outputs: Placed, inputs: Placed) -> None:
    """Raise InputError if an output overlaps an input or another output.

    A kernel takes its pointers to be `__restrict__`: nothing is computed in place.
    """
    for number, (output, buffer) in enumerate(outputs):
        for other, of_other in (*inputs, *outputs[:number]):
            if output.address < _end(other, of_other) and other.address < _end(output, buffer):
                raise InputError(
                    f"{output.name} overlaps {other.name} in memory. "
                    f"Give each an array of its own: kernels do not work in place."
                )


def _end(array: DeviceArray, buffer: Buffer) -> int:
    return array.address + array.size * format_of(buffer.dtype).itemsize


# --- New arrays ------------------------------------------------------------------------------


def empty_like(
    like: DeviceArray, shape: int | tuple[int, ...], dtype: str, name: str
) -> DeviceArray | None:
    """Return a new array of the same library on the same device; None for kind "other"."""
    match like.kind:
        case "torch":
            owner = _empty_torch(like, shape, dtype)
        case "cupy":
            owner = _empty_cupy(like, shape, dtype)
        case "gpuarray":
            gpuarray = sys.modules["pycuda.gpuarray"]
            owner = gpuarray.empty(shape, storage_dtype(dtype), allocator=like.owner.allocator)
        case _:
            return None
    return device_array(owner, name)


def storage_dtype(dtype: str) -> np.dtype[Any]:
    """Return the NumPy type in which elements of a type travel; bf16 as its bits."""
    return np.dtype(np.uint16) if dtype == "bf16" else format_of(dtype).dtype


def _empty_torch(like: DeviceArray, shape: int | tuple[int, ...], dtype: str) -> Any:
    torch = sys.modules["torch"]
    kind = getattr(torch, _NAMES[dtype][0])
    return torch.empty(shape, dtype=kind, device=like.owner.device)


def _empty_cupy(like: DeviceArray, shape: int | tuple[int, ...], dtype: str) -> Any:
    cupy = sys.modules["cupy"]
    same = dtype == "bf16" and like.dtype == "bfloat16"
    with cupy.cuda.Device(like.device):
        return cupy.empty(shape, like.owner.dtype if same else storage_dtype(dtype))


# --- The same elements in another order or type -----------------------------------------------


def arranged(array: DeviceArray, axes: tuple[int, ...], dtype: str) -> Any:
    """Return the owner with its axes in this order, contiguous, aligned, of NumPy's type `dtype`.

    The owner itself if it is so already, else a copy by its own library, on its current stream.

    Raises
    ------
    InputError
        If its library has no such copy, or is unknown.
    """
    in_order = axes == tuple(range(len(axes)))
    if in_order and array.contiguous and array.address % TILE_BYTES == 0 and array.dtype == dtype:
        return array.owner
    match array.kind:
        case "torch":
            torch = sys.modules["torch"]
            made = array.owner.detach().permute(axes).to(getattr(torch, dtype)).contiguous()
            return made.clone() if _misaligned(made) else made
        case "cupy":
            cupy = sys.modules["cupy"]
            moved = cupy.transpose(array.owner, axes).astype(dtype, copy=False)
            made = cupy.ascontiguousarray(moved)
            return made.copy() if _misaligned(made) else made
        case "gpuarray" if in_order and array.contiguous and array.dtype == dtype:
            return array.owner.copy()
        case _:
            # PyCUDA casts by kernels that need nvcc, and does not transpose what it copies.
            raise InputError(
                f"{array.name} is a {array.library}, which tcusim cannot copy as it needs it: "
                f"contiguous, of {dtype}, the axis of the sum or scan last. Make that copy first."
            )


def _misaligned(array: Any) -> bool:
    return on_gpu(array, "a").address % TILE_BYTES != 0


def restored(array: DeviceArray, axes: tuple[int, ...]) -> Any:
    """Return a view of the owner in which axis i of it is axis axes[i]."""
    back = tuple(axes.index(axis) for axis in range(len(axes)))
    if back == tuple(range(len(axes))):
        return array.owner
    return array.owner.permute(back) if array.kind == "torch" else array.owner.transpose(back)


# --- NumPy arrays ----------------------------------------------------------------------------


def host_bits(array: Any, buffer: Buffer, name: str) -> NDArray[Any]:
    """Return a user's array as a kernel's memory holds it: flat, contiguous, exactly its values."""
    given = np.asarray(array)
    if given.ndim != 1:
        raise InputError(f"{name} must be flat (one axis), got shape {given.shape}; use a.ravel()")
    values = as_values(given, buffer.dtype, name=name)
    if buffer.dtype == "bf16":
        return _bf16_bits(values)
    return np.ascontiguousarray(values)


def from_bits(bits: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Return what a kernel wrote as the array that the simulator would return."""
    if dtype == "bf16":
        wide = bits.astype(np.uint32) << np.uint32(16)
        return from_values(wide.view(np.float32), dtype)
    return from_values(bits, dtype)


def _bf16_bits(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Return the upper halves of float32 values, which hold all of a bf16; a NaN stays one."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    upper = (bits >> np.uint32(16)).astype(np.uint16)
    upper[np.isnan(values)] |= np.uint16(0x0040)
    return upper
