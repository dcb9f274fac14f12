"""Array libraries: the place and kind of an array, and conversions to NumPy and back.

No GPU library is imported here. Other arrays on the CPU, such as torch's, are taken as NumPy arrays
without a copy, and results go back to their library.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from tcusim.backends import (
    DeviceBackend,
    backends,
    get_backend,
    is_device_backend,
    require_no_gradient,
)
from tcusim.errors import BackendUnavailable, Given, InputError
from tcusim.machine.convert import (
    bits_of_tensor,
    is_tensor,
    require_elements,
    require_unmasked,
    resolved,
)

Array: TypeAlias = NDArray[Any]
Ints: TypeAlias = NDArray[np.int64]
# Objects that become NumPy arrays, and give one.
HostArray: TypeAlias = NDArray[Any] | np.generic | float | Sequence[Any]
# An array of any other library: the result is one too.
Kind = TypeVar("Kind")

# DLDeviceType of dlpack.h: kDLCUDA, and kDLCUDAManaged.
_DLPACK_GPU = (2, 13)
# Arrays that begin at a multiple of this are taken where they lie.
_ALIGNMENT = 32
_PLAIN = (np.ndarray, np.generic, int, float, list, tuple)


# --- Where an array is ----------------------------------------------------------------------------


def is_on_device(a: Any) -> bool:
    """Return whether an object is an array in GPU memory."""
    if isinstance(a, _PLAIN):
        return False
    if is_tensor(a):
        # Nothing else is asked of a tensor: torch.compile cannot trace more, and some raise.
        return bool(a.device.type == "cuda")
    if hasattr(type(a), "__dlpack_device__"):
        return int(a.__dlpack_device__()[0]) in _DLPACK_GPU
    return hasattr(a, "__cuda_array_interface__")


def is_foreign(a: Any) -> bool:
    """Return whether an object is an array of another library in the computer's memory."""
    return not isinstance(a, _PLAIN) and hasattr(type(a), "__dlpack__") and not is_on_device(a)


def library_of(a: Any) -> Any:
    """Return the module of an array's library, also of a subclass: NumPy of lists and numbers."""
    if isinstance(a, _PLAIN):
        return np
    if is_tensor(a):
        return sys.modules["torch"]
    namespace = getattr(a, "__array_namespace__", None)
    if namespace is not None:
        return namespace()
    return sys.modules[type(a).__module__.partition(".")[0]]


def name_of_kind(a: Any) -> str:
    """Return the type of an object, for messages."""
    return f"{type(a).__module__}.{type(a).__qualname__}"


def _is_fake(kind: type) -> bool:
    return any(base.__name__ == "FakeTensor" for base in kind.__mro__)


def chosen_backend(a: Any, name: str | None) -> DeviceBackend:
    """Return the backend that computes on an array in GPU memory: the named one, or its library's.

    Unnamed, it is "cupy" or "pycuda" for arrays of these libraries, else "cuda", else any that is
    available.
    """
    if name is not None:
        backend = get_backend(name)
        if not is_device_backend(backend):
            raise InputError(
                Given("backend", name),
                f" computes on NumPy arrays, and this is a {name_of_kind(a)} in GPU memory. Leave ",
                *(Given("backend"), " out, or copy the array to a NumPy array first."),
            )
        return backend
    reasons = []
    for candidate in _candidates(a):
        try:
            backend = get_backend(candidate)
        except BackendUnavailable as error:
            reasons.append(str(error))
            continue
        if is_device_backend(backend):
            return backend
    raise BackendUnavailable(
        f"no backend can compute on a {name_of_kind(a)} in GPU memory. "
        f"{'; '.join(reasons) or 'None is installed: pip install tcusim[cupy]'}"
    )


def _candidates(a: Any) -> Iterator[str]:
    """Yield the names of backends in the order in which an array would have them."""
    modules = {base.__module__.partition(".")[0] for base in type(a).__mro__}
    own = [name for name in ("pycuda", "cupy") if name in modules]
    known = backends()
    preferred = [name for name in (*own, "cuda", "cupy", "pycuda") if name in known]
    yield from dict.fromkeys((*preferred, *known))


# --- Signatures of arrays -------------------------------------------------------------------------


def signature(a: Any) -> Hashable | None:
    """Return all facts about an array on which a call depends; None if they take time to find.

    Arrays of equal signatures have equal types, shapes, strides, alignments and GPUs, and a call
    right for one of them is right for all.
    """
    kind = type(a)
    try:
        reader = _READERS[kind]
    except KeyError:
        reader = _READERS.setdefault(kind, _reader_for(kind))
    try:
        return None if reader is None else reader(a)
    except Exception:
        # A sparse tensor has no strides, one being traced no address: it is refused later.
        return None


_Reader: TypeAlias = Callable[[Any], Hashable | None]


def _numpy_signature(a: Any) -> Hashable:
    return (np.ndarray, a.shape, a.dtype)


def _torch_signature(a: Any) -> Hashable | None:
    address = a.data_ptr()
    # Without memory, or with the signs of its elements elsewhere, it is refused later.
    if a.requires_grad or a.is_neg() or not (address or 0 in a.shape):
        return None
    return (type(a), a.device, a.shape, a.dtype, a.stride(), address % _ALIGNMENT)


def _cupy_signature(a: Any) -> Hashable:
    data = a.data
    return (type(a), data.device_id, a.shape, a.dtype, a.strides, data.ptr % _ALIGNMENT)


def _xla_signature(a: Any) -> Hashable:
    # Each GPU has streams of its own.
    return (type(a), a.stream, a.shape, a.dtype, a.ptr % _ALIGNMENT)


def _interface_signature(a: Any) -> Hashable:
    interface = a.__cuda_array_interface__
    address, read_only = interface["data"]
    # The interface does not say on which GPU the memory is: the driver that computes there does.
    driver = sys.modules["tcusim_cuda.driver"].Driver.open()
    device, _ = driver.home_of(address, "an array")
    shape, strides, mask = (interface.get(name) for name in ("shape", "strides", "mask"))
    layout = (shape, interface["typestr"], strides, address % _ALIGNMENT)
    return (type(a), device, *layout, mask, read_only)


def _reader_for(kind: type) -> _Reader | None:
    if hasattr(kind, "data_ptr"):
        # A fake tensor warns where it is asked for its address.
        return None if _is_fake(kind) else _torch_signature
    # JAX's arrays are read through DLPack: their interface does not wait for their values.
    if not hasattr(kind, "__cuda_array_interface__") or kind.__module__.startswith("jax"):
        return None
    if hasattr(kind, "ptr") and hasattr(kind, "stream"):
        return _xla_signature
    is_cupy = hasattr(kind, "strides") and not hasattr(kind, "ptr")
    return _cupy_signature if is_cupy else _interface_signature


# An array that is left out has the signature ().
_READERS: dict[type, _Reader | None] = {np.ndarray: _numpy_signature, type(None): lambda a: ()}
_KEEPING: Final = threading.Lock()


def keep(kept: dict[Any, Any], key: Hashable, value: Any, most: int) -> None:
    """Keep a value among the latest ones, at most `most`: the one kept first is let go."""
    with _KEEPING:
        kept[key] = value
        while len(kept) > most:
            del kept[next(iter(kept))]


# --- Arrays in the computer's memory --------------------------------------------------------------


def require_plain(name: str, a: Any) -> None:
    """Refuse arrays that carry more than their elements, which a result would lose."""
    require_unmasked(name, a)
    if hasattr(a, "tocsr"):
        raise InputError(
            f"{name} is a sparse matrix. In CSR, {name}.tocsr(), its rows are segments of what it "
            f"holds: pass {name}.data and the offsets {name}.indptr (for a product with a vector "
            f"x, tcusim.segmented_sum({name}.data * x[{name}.indices], {name}.indptr)); or "
            f"make it dense: {name}.toarray()"
        )
    if not is_tensor(a):
        return
    if _is_fake(type(a)) or a.device.type == "meta":
        raise InputError(
            f"{name} is a {name_of_kind(a)} without data, as torch.compile makes to trace a "
            "function. Keep the call out of what is compiled: torch.compiler.disable"
        )
    is_nested = getattr(a, "is_nested", False)
    if is_nested or str(getattr(a, "layout", "torch.strided")) != "torch.strided":
        what = "nested" if is_nested else "sparse"
        raise InputError(
            f"{name} is a {what} tensor. Pass its values, a dense tensor, and for segments of "
            f"unequal lengths their offsets: {name}.values(), {name}.offsets() or "
            f"{name}.crow_indices()"
        )
    require_no_gradient(name, a)
    require_elements(name, a)


def compressed_rows(a: Any, axis: int) -> tuple[Any, Any] | None:
    """Return the elements of a sparse matrix by rows (CSR), or columns, and their offsets.

    None if it is no such matrix of SciPy or CuPy. Raises InputError if it is compressed along
    another axis than that which is summed.
    """
    kind = getattr(a, "format", None)
    if kind not in ("csr", "csc") or not hasattr(a, "indptr"):
        return None
    own = 1 if kind == "csr" else 0
    if axis not in (own, own - 2):
        raise InputError(
            f"a is a {kind.upper()} matrix, which has its {('columns', 'rows')[own]} end to end: "
            f"axis={own} sums them, and axis={axis!r} was asked for. Convert it: "
            f"a.to{('csr', 'csc')[own]}()"
        )
    return a.data, a.indptr


def as_numpy(name: str, a: Any) -> Array:
    """Return an array, or an object of which NumPy makes one, as a NumPy array of real numbers."""
    if type(a) is np.ndarray and a.dtype.kind in "biuf":
        return a
    require_plain(name, a)
    array = _of_dlpack(name, a) if is_foreign(a) else _of_numpy(name, a)
    require_real(name, array.dtype)
    return array


def require_real(name: str, dtype: Any) -> None:
    """Refuse elements that are no real numbers, of a type of NumPy's or of JAX's."""
    if getattr(dtype, "names", None):
        raise InputError(
            f"{name} holds records; take one of their fields, for example "
            f"{name}[{dtype.names[0]!r}]"
        )
    kind = getattr(dtype, "kind", "V")
    if kind not in "biuf" and dtype.name != "bfloat16":
        remedies = {
            "c": f"pass {name}.real and {name}.imag, one after the other",
            "V": f"cast it first, for example {name}.astype(np.float32)",
        }
        instead = f"pass numbers, or an array of them, such as np.array({name}, np.float32)"
        raise InputError(
            f"{name} must hold real numbers (float16, float32, float64, bfloat16, integers or "
            f"bool), got dtype {dtype}; {remedies.get(kind, instead)}"
        )


def _of_numpy(name: str, a: Any) -> Array:
    try:
        return np.asarray(a)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(
            f"{name} is no array: NumPy says: {str(error).rstrip('.')}; pass an array, or numbers "
            f"in rows of one length"
        ) from error


def _of_dlpack(name: str, a: Any) -> Array:
    """Return another library's array as NumPy's, on the same memory."""
    if is_tensor(a):
        a = resolved(a.detach() if a.requires_grad else a)
        # NumPy has not all its types: bits are exchanged.
        exchanged = bits_of_tensor(a)
        if exchanged is not None:
            return exchanged
    try:
        return np.from_dlpack(a)
    # NumPy, and the library whose array it is, raise nearly anything.
    except Exception as error:
        if hasattr(type(a), "__array__"):
            return _of_numpy(name, a)
        raise InputError(
            f"{name} is a {name_of_kind(a)} that NumPy cannot take: {error}. Copy it to a NumPy "
            "array first"
        ) from error


def require_broadcast(name: str, given: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """Raise InputError unless an array of one shape can be broadcast to another shape."""
    try:
        found = np.broadcast_shapes(given, wanted)
    except ValueError:
        found = None
    if found != wanted:
        raise InputError(
            Given(name), f" must have the shape {wanted}, or be broadcast to it; got {given}"
        )


def only_where(a: Any, where: Any) -> Any:
    """Return the array with zeros where a condition does not hold."""
    if is_on_device(a) or is_on_device(where):
        raise InputError(
            "where goes with arrays in the computer's memory; in GPU memory, put zeros where it "
            "does not hold"
        )
    values, condition = as_numpy("a", a), as_numpy("where", where)
    if condition.dtype != np.bool_:
        raise InputError(f"where must be of bool, got {condition.dtype}")
    require_broadcast("where", condition.shape, values.shape)
    taken = np.where(condition, values, values.dtype.type(0))
    return like_array(a, taken) if is_foreign(a) else taken


def like_array(a: Any, result: Any) -> Any:
    """Return a NumPy result as an array of a's library, on the same memory where it can."""
    module = library_of(a)
    convert = getattr(module, "asarray", None)
    if convert is None:
        return result
    if is_tensor(a) and result.dtype.name == "bfloat16":
        return convert(result.view(np.int16)).view(module.bfloat16)
    try:
        return convert(result)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"the result, of {result.dtype}, cannot become a {name_of_kind(a)}: {error}. Give a "
            "dtype that its library has"
        ) from error
