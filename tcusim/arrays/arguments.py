"""The arguments of the functions on arrays: checked, and in one form; and results, delivered."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tcusim.arrays.devices import is_on_device, library_of
from tcusim.errors import InputError
from tcusim.machine import Values

__all__ = [
    "Array",
    "as_array",
    "axes_of",
    "broadcast",
    "deliver",
    "edges_of",
    "offsets_of",
    "one_axis",
    "refuse_stream",
    "repeated",
    "require_longest",
    "size_of",
]

Array: TypeAlias = NDArray[Any]


def as_array(a: ArrayLike) -> Array:
    """Return the NumPy array of real numbers that a user gave."""
    array = np.asarray(a)
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        raise InputError(
            f"a must hold real numbers (float16, float32, float64, bfloat16, integers or bool), "
            f"got dtype {array.dtype}; cast it first, for example a.real or a.astype(np.float32)"
        )
    return array


def broadcast(
    one: tuple[int, ...], two: tuple[int, ...], given: tuple[tuple[int, ...], tuple[int, ...]]
) -> tuple[int, ...]:
    """Return the axes before the matrices of a product, for arrays of the shapes `given`."""
    try:
        return np.broadcast_shapes(one, two)
    except ValueError:
        raise InputError(
            f"the axes before the matrices cannot be broadcast: {one} and {two}, of arrays of "
            f"shapes {given[0]} and {given[1]}"
        ) from None


def axes_of(axis: int | tuple[int, ...] | None, ndim: int) -> tuple[int, ...]:
    """Return axes counted from the front."""
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, tuple) else (axis,)
    for one in given:
        if not isinstance(one, (int, np.integer)) or not -ndim <= one < ndim:
            raise InputError(f"axis {one!r} is out of range for an array of {ndim} dimensions")
    found = tuple(int(one) % ndim for one in given)
    if len(set(found)) != len(found):
        raise InputError(f"axis {axis} names an axis twice")
    return found


def one_axis(axis: int | tuple[int, ...] | None, ndim: int) -> int:
    """Return the axis counted from the front; refuse several, or none."""
    if axis is None or isinstance(axis, tuple):
        raise InputError(f"axis must be one integer, got {axis!r}")
    return axes_of(axis, ndim)[0]


def size_of(segment_size: int | None, length: int) -> int:
    """Return the elements of a segment of an axis of this length."""
    if segment_size is None:
        raise InputError("give segment_size, the elements of a segment, or offsets")
    if isinstance(segment_size, bool) or not isinstance(segment_size, (int, np.integer)):
        raise InputError(f"segment_size must be an integer, got {segment_size!r}")
    if segment_size < 1:
        raise InputError(f"segment_size must be at least 1, got {segment_size}")
    if segment_size > length > 0:
        raise InputError(
            f"segment_size {segment_size} is longer than the axis, which has {length} elements"
        )
    return int(segment_size)


def offsets_of(offsets: ArrayLike, segment_size: int | None, length: int) -> NDArray[np.int64]:
    """Return where segments begin and end, from 0 to the axis' length; refuse a size besides."""
    if segment_size is not None:
        raise InputError("give segment_size or offsets, not both")
    return edges_of(offsets, length)


def edges_of(offsets: ArrayLike, length: int) -> NDArray[np.int64]:
    """Return where segments begin and end, from 0 to the axis' length; refuse what is none."""
    if is_on_device(offsets):
        raise InputError(
            f"offsets are a {library_of(offsets)} in GPU memory, but a is a NumPy array; copy them "
            "to a NumPy array"
        )
    edges = np.asarray(offsets)
    if edges.ndim != 1 or edges.size == 0 or edges.dtype.kind not in "iu":
        raise InputError(
            "offsets must be a flat array of segments + 1 integers, got shape "
            f"{edges.shape}, dtype {edges.dtype}"
        )
    edges = edges.astype(np.int64)
    down = np.flatnonzero(np.diff(edges) < 0)
    if down.size:
        at = int(down[0])
        raise InputError(
            f"offsets must not decrease, but offsets[{at}] = {edges[at]} and "
            f"offsets[{at + 1}] = {edges[at + 1]}"
        )
    if edges[0] != 0 or edges[-1] != length:
        raise InputError(
            f"offsets must begin with 0 and end with the axis' length, {length}; got "
            f"{edges[0]} and {edges[-1]}"
        )
    return edges


def require_longest(edges: NDArray[np.int64], longest: int) -> None:
    """Refuse segments of more than `longest` elements."""
    lengths = np.diff(edges)
    if lengths.size and lengths.max() > longest:
        at = int(lengths.argmax())
        raise InputError(
            f"segment {at} has {lengths[at]} elements, but this plan is for segments of up to "
            f"{longest}; make another plan, or leave longest out"
        )


def repeated(edges: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
    """Return the edges of all segments of `rows` rows that lie end to end and are cut alike."""
    starts = np.arange(rows)[:, None] * edges[-1] + edges[:-1]
    return np.append(starts, rows * edges[-1])


def refuse_stream(stream: object) -> None:
    """Refuse a stream for an array that is not in GPU memory."""
    if stream is not None:
        raise InputError("stream= is for arrays in GPU memory, and a is a NumPy array")


# --- Results ----------------------------------------------------------------------------------


def deliver(result: Values, out: Any, a: Any) -> Any:
    """Return the result, or put it into `out`, which may be `a` but not overlap it otherwise."""
    if out is None:
        return result[()]
    if not isinstance(out, np.ndarray) or out.shape != result.shape or out.dtype != result.dtype:
        if is_on_device(out):
            kind = f"{library_of(out)}, which is in GPU memory"
        elif isinstance(out, np.ndarray):
            kind = f"{out.dtype}, {out.shape}"
        else:
            kind = type(out).__name__
        raise InputError(
            f"out must be an array of {result.dtype}, shape {result.shape}; got {kind}"
        )
    if not out.flags.writeable:
        raise InputError("out is read-only. Give an array to write to.")
    if isinstance(a, np.ndarray) and not _same(a, out) and np.shares_memory(a, out):
        raise InputError(
            "out overlaps a in memory. Give a itself, to compute in place, or an array of its own."
        )
    out[...] = result
    return out


def _same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Return whether two arrays are views of the very same elements."""
    if one.dtype != other.dtype or one.ctypes.data != other.ctypes.data:
        return False
    if one.flags.c_contiguous and other.flags.c_contiguous:
        return one.size == other.size
    return one.shape == other.shape and one.strides == other.strides
