"""Homes of arrays: the computer's memory, or a GPU's with the backend that computes there.

NumPy arrays are dealt with by `HOST`, arrays in GPU memory by a `tcusim.backends.DeviceBackend`,
in the same words. Arrays are checked here before a home takes them, and NumPy results delivered.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from tcusim.arrays.dtypes import numpy_type
from tcusim.arrays.libraries import (
    Array,
    as_numpy,
    chosen_backend,
    is_foreign,
    is_on_device,
    library_of,
    like_array,
    name_of_kind,
    require_broadcast,
    require_plain,
)
from tcusim.backends import DeviceBackend
from tcusim.errors import InputError, told


class HostFacts(NamedTuple):
    """Facts about a NumPy array; see `tcusim.backends.DeviceArrayFacts`."""

    shape: tuple[int, ...]
    dtype: str
    contiguous: bool


class Host:
    """NumPy's arrays, in the words of `tcusim.backends.DeviceBackend`."""

    def describe(self, array: Array) -> HostFacts:
        """Return the facts about an array."""
        return HostFacts(array.shape, array.dtype.name, array.flags.c_contiguous)

    def arranged(self, array: Array, axes: tuple[int, ...], dtype: str) -> Array:
        """Return the array with its axes in this order, contiguous and of this type."""
        moved = cast_finite(array.transpose(axes), numpy_type(dtype))
        return np.ascontiguousarray(moved).reshape(moved.shape)

    def restored(self, array: Array, axes: tuple[int, ...]) -> Array:
        """Return a view in which axis i of the array is axis axes[i]."""
        return array.transpose(np.argsort(axes))

    def to_device(self, values: Array, like: Array) -> Array:
        """Return the values, which are there already."""
        return values


HOST: Final = Host()
# The home of the arrays of a call.
Home: TypeAlias = Host | DeviceBackend


def gathered(given: Mapping[str, Any], backend: str | None) -> tuple[Home, dict[str, Any]]:
    """Return the home of arrays, and the arrays: all NumPy's, or all in GPU memory.

    An addend "c" on the computer is taken as it is: a Python number has no type of its own.
    """
    for name, array in given.items():
        require_plain(name, array)
    there = next((name for name, array in given.items() if is_on_device(array)), None)
    if there is None:
        return HOST, {
            name: array if name == "c" else as_numpy(name, array) for name, array in given.items()
        }
    for name, array in given.items():
        if not is_on_device(array):
            raise InputError(
                f"{name} is a {name_of_kind(array)}, but {there} is in GPU memory; copy {name} "
                f"there too, or {there} to a NumPy array"
            )
    return chosen_backend(given["a"], backend), dict(given)


def cast_finite(x: Array, to: np.dtype[Any], name: str = "the input") -> Array:
    """Convert to the type of the computation; refuse to make infinities."""
    if x.dtype == to:
        return x
    with np.errstate(over="ignore"):
        cast: Array = x.astype(to)
    if to.kind not in "iu" and not np.array_equal(np.isfinite(cast), np.isfinite(x)):
        raise beyond_range(name, to)
    return cast


def beyond_range(name: str, to: Any) -> InputError:
    """Return the error of finite numbers that would be infinite in the type of the computation."""
    return InputError(
        f"{name} holds values beyond the range of {to}, the type of the computation; "
        f"leave dtype out, or scale {name}"
    )


def no_integers(name: str, given: Any, result: Any) -> InputError:
    """Return the error of numbers of the type `given` that would be added to integers.

    The type decides, as in NumPy's casts "same_kind": 1.0 is refused as 1.5 is.
    """
    given, result = (str(one).removeprefix("torch.") for one in (given, result))
    return InputError(
        f"{name} is of {given}, but the result of {result}, which takes integers only. Give an "
        f"integer {name}, or a float dtype"
    )


def require_range(values: Any, result: str) -> None:
    """Refuse initial values that wrap in the type of the result, of integers, where sums alone may.

    values: a number of any size, or an array of integers.
    """
    array, ends = np.asarray(values), np.iinfo(result)
    if not array.size or np.can_cast(array.dtype, result):
        return
    least, most = int(array.min()), int(array.max())
    value = least if least < ends.min else most
    if not ends.min <= value <= ends.max:
        raise InputError(
            f"initial holds {told(value)}, and the type of the result, {result}, integers from "
            f"{ends.min} to {ends.max}. Give an initial within that range, or a wider dtype"
        )


def addend_of(
    c: Any, shape: tuple[int, ...], result: np.dtype[Any], name: str = "c"
) -> Array | None:
    """Return an addend of results in their shape and type; refuse one that would lose digits.

    An integer is added modulo 2**64, so a result of an integer type takes one of any sign and size.
    """
    if c is None:
        return None
    is_integer = type(c) is int or (type(c) is not float and as_numpy(name, c).dtype.kind in "biu")
    if result.kind in "iu":
        if not is_integer:
            raise no_integers(name, np.asarray(c).dtype, result)
        if type(c) is int and not -(2**63) <= c < 2**64:
            raise InputError(f"{name} = {told(c)} does not fit an integer of 64 bits")
        array = np.asarray(c % 2**64, np.uint64) if type(c) is int else as_numpy(name, c)
        array = array.astype(np.uint64).astype(result)
    else:
        try:
            array = np.asarray(float(c)) if type(c) is int else as_numpy(name, c)
        except OverflowError as error:
            raise InputError(f"{name} is beyond the range of {result}: {error}") from error
        array = cast_finite(array, result, name)
    if array.shape != shape:
        require_broadcast(name, array.shape, shape)
    return np.broadcast_to(array, shape)


def first_terms(
    initial: Any, shape: tuple[int, ...], kept: np.dtype[Any], result: np.dtype[Any]
) -> Array | None:
    """Return the initial values of scans; refuse those that the result's type cannot hold.

    kept: the type that it is returned in. result: that of the scans.
    """
    if initial is None:
        return None
    array = np.asarray(initial) if type(initial) is int else as_numpy("initial", initial)
    if result.kind in "iu":
        if array.dtype.kind not in "biuO":
            raise no_integers("initial", array.dtype, result)
        require_range(array, result.name)
    return addend_of(initial, shape, kept, "initial")


# --- Results in the computer's memory -------------------------------------------------------------


def warn_of_overflow(operation: str, result: Array, inputs: Any) -> None:
    """Warn as NumPy does if finite numbers have infinite results, or as `numpy.errstate` says."""
    if result.dtype.kind in "biu" or not np.isinf(result).any():
        return
    if not all(x.dtype.kind in "biu" or np.isfinite(x).all() for x in inputs):
        return
    text = f"overflow encountered in tcusim.{operation}: beyond the range of {result.dtype}"
    match np.geterr()["over"]:
        case "warn":
            warnings.warn(text, RuntimeWarning, stacklevel=_frames_to_user())
        case "raise":
            raise FloatingPointError(text)
        case _:
            # NumPy's own overflow, for the caller's other settings.
            np.multiply(np.float32(2.0**127), np.float32(2))


def _frames_to_user() -> int:
    """Return the number of frames from the caller up to the first that is not tcusim's."""
    frame, count = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("tcusim."):
        frame, count = frame.f_back, count + 1
    return count


def delivered(result: Array, out: Any, a: Any) -> Any:
    """Return the result, or put it into `out`, which may be `a` but not overlap it otherwise."""
    if out is None:
        return result[()]
    require_out(out, result)
    if isinstance(a, np.ndarray) and not _same(a, out) and np.shares_memory(a, out):
        raise InputError(
            "out overlaps a in memory. Give "
            + ("a itself, to compute in place, or " if a.shape == out.shape else "")
            + "an array of its own."
        )
    out[...] = result
    return out


def returned(result: Array, out: Any, like: Any) -> Any:
    """Return a result as an array of the library of `like`, or put it into `out` and return that.

    out: of the same library, or of NumPy.
    """
    if out is None:
        return like_array(like, result) if is_foreign(like) else result
    if not is_foreign(out):
        return delivered(result, out, None)
    require_plain("out", out)
    own = library_of(like)
    if library_of(out) is not own:
        other = "" if own is np else f" of {own.__name__}, as the input is, or"
        raise InputError(f"out must be an array{other} of NumPy; got {name_of_kind(out)}")
    require_out(as_numpy("out", out), result)
    try:
        # Its library knows how it is written to: a negative view of torch's holds other signs.
        out[...] = like_array(out, result)
    except TypeError as error:
        raise InputError(f"out cannot be written to: {error}. Leave it out") from error
    return out


def require_out(out: Any, result: Array) -> None:
    """Refuse an `out` that cannot take a result."""
    if not isinstance(out, np.ndarray) or out.shape != result.shape or out.dtype != result.dtype:
        kind, remedy = type(out).__name__, ""
        if is_on_device(out):
            kind = f"{name_of_kind(out)}, which is in GPU memory"
        elif isinstance(out, np.ndarray):
            kind = f"{out.dtype}, {out.shape}"
            if out.shape == result.shape:
                remedy = ". Give such an array, or dtype=out.dtype to compute in that type"
        raise InputError(
            f"out must be an array of {result.dtype}, shape {result.shape}; got {kind}{remedy}"
        )
    if not out.flags.writeable:
        raise InputError("out is read-only. Give an array to write to.")
    require_places(out.shape, out.strides, out.itemsize)


def require_places(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> None:
    """Refuse an `out` with elements that share memory, by a stride of 0 or a short one."""
    axes = sorted((abs(s), n) for s, n in zip(strides, shape, strict=True) if n != 1)
    extent = itemsize
    for stride, size in axes:
        if stride < extent:
            break
        extent += stride * (size - 1)
    else:
        return
    # Interleaved axes may still have a place for each element.
    places = np.zeros((), np.int64)
    for stride, size in axes:
        places = np.add.outer(places, stride * np.arange(size))
    if (np.diff(np.sort(places, axis=None)) < itemsize).any():
        raise InputError(
            "out holds several elements in one place, as broadcast arrays do. Give an array of its "
            "own."
        )


def _same(one: Array, other: Array) -> bool:
    """Return whether two arrays are views of the very same elements."""
    if one.dtype != other.dtype or one.ctypes.data != other.ctypes.data:
        return False
    if one.flags.c_contiguous and other.flags.c_contiguous:
        return one.size == other.size
    return one.shape == other.shape and one.strides == other.strides
