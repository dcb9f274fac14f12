"""Means, and largest and smallest elements, of the segments of an axis.

A mean is a sum, as `tcusim.segmented_sum` adds it up, and a quotient. Largest and smallest elements
have no order of additions, and nothing that a tensor core could do: NumPy finds them.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from tcusim.arrays.dtypes import FLOATS, numpy_type
from tcusim.arrays.functions import segmented_sum
from tcusim.arrays.home import returned, warn_of_overflow
from tcusim.arrays.libraries import Array, as_numpy, is_on_device, name_of_kind
from tcusim.arrays.segments import Segments, given_segments
from tcusim.arrays.spec import Spec
from tcusim.call_options import AnyOptions, alone, options_of
from tcusim.errors import InputError, Unsupported
from tcusim.machine.formats import array_name_of


def segmented_mean(
    a: Any,
    segments: int | ArrayLike | Segments,
    *,
    axis: int = -1,
    dtype: DTypeLike | None = None,
    out: Any = None,
    options: AnyOptions = None,
) -> Any:
    """Return the mean of every segment of an axis: its sum, divided by its number of elements.

    Parameters
    ----------
    a : array_like
        As in `tcusim.segmented_sum`, in the computer's memory.
    dtype : dtype, optional
        Type of the computation and of the result, as in `numpy.mean`: by default that of `a`, and
        float64 for integers.
    segments, axis, out
        As in `tcusim.segmented_sum`.
    options : Options or mapping, optional
        As there, for the sums.

    Returns
    -------
    array of the shape of `a` with the axis' length replaced by the number of segments
        Sums are of float32, or float64; the quotient is rounded to that, and then to the result's
        type. The mean of a segment without elements is NaN.

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import numpy as np, tcusim
    >>> tcusim.segmented_mean(np.arange(6, dtype=np.float16), [0, 2, 2, 6])
    array([0.5, nan, 3.5], dtype=float16)
    """
    own = options_of(options, "segmented_mean", "strategy")
    values, edges, by = _laid("segmented_mean", a, segments, axis)
    is_integer = values.dtype.kind in "biu"
    result = np.dtype(np.float64) if is_integer else values.dtype
    if dtype is not None:
        result = numpy_type(array_name_of(dtype))
    if result.name not in FLOATS:
        raise InputError(f"dtype of a mean must be one of {', '.join(FLOATS)}, got {result}")
    is_wide = is_integer or np.dtype(np.float64) in (values.dtype, result)
    wide = np.dtype(np.float64 if is_wide else np.float32)
    sums: Any = segmented_sum(values, by, axis=axis, dtype=wide, options=alone(own))
    lengths = np.diff(edges).astype(wide)
    shape = [1] * sums.ndim
    shape[axis] = lengths.size
    with np.errstate(invalid="ignore", over="ignore"):
        means = (sums / lengths.reshape(shape)).astype(result)
    warn_of_overflow("segmented_mean", means, [sums])
    return returned(means, out, a)


def segmented_max(
    a: Any,
    segments: int | ArrayLike | Segments,
    *,
    axis: int = -1,
    out: Any = None,
) -> Any:
    """Return the largest element of every segment of an axis.

    Parameters
    ----------
    a : array_like
        Of any type that `tcusim.segmented_sum` takes, in the computer's memory.
    segments, axis, out
        As in `tcusim.segmented_sum`.

    Returns
    -------
    array of the type of `a`, its axis' length replaced by the number of segments
        NaN if one is in the segment. Of zeros of both signs, +0.0. Of a segment without elements,
        the identity of the maximum: minus infinity, the least integer, or False.

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import numpy as np, tcusim
    >>> tcusim.segmented_max(np.array([3, 1, 4, 1, 5], np.float32), [0, 2, 2, 5])
    array([  3., -inf,   5.], dtype=float32)
    """
    return _extreme("max", a, segments, axis, out)


def segmented_min(
    a: Any,
    segments: int | ArrayLike | Segments,
    *,
    axis: int = -1,
    out: Any = None,
) -> Any:
    """Return the smallest element of every segment of an axis.

    Parameters
    ----------
    a, segments, axis, out
        As in `segmented_max`.

    Returns
    -------
    array of the type of `a`, its axis' length replaced by the number of segments
        NaN if one is in the segment. Of zeros of both signs, -0.0. Of a segment without elements,
        the identity of the minimum: infinity, the largest integer, or True.

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import numpy as np, tcusim
    >>> tcusim.segmented_min(np.array([3, 1, 4, 1, 5]), 2)
    array([1, 1, 5])
    """
    return _extreme("min", a, segments, axis, out)


def _laid(name: str, a: Any, segments: Any, axis: Any) -> tuple[Array, Array, Any]:
    """Return a NumPy array, the bounds of segments on its axis, and the segments to sum by."""
    size, by = given_segments(segments)
    given = None if by is None else by.given
    if any(map(is_on_device, (a, given))):
        raise Unsupported(
            f"{name} takes arrays in the computer's memory, and one is in GPU memory. There is no "
            f"kernel for it: use its own library, or tcusim.segmented_sum, and copy the "
            f"{name_of_kind(a)} to a NumPy array otherwise"
        )
    values = as_numpy("a", a)
    # The result is in the machine's own order of bytes.
    values = values.astype(values.dtype.newbyteorder("="), copy=False)
    layout = Spec("segmented_sum", axis, size).layout(values.shape, by_offsets=by is not None)
    if by is None:
        return values, layout.even_edges, size
    edges = by.edges(layout.length)
    if by.sort:
        values, _ = by.in_order(values, axis)
    return values, edges, edges if by.sort else by


def _extreme(name: Literal["max", "min"], a: Any, segments: Any, axis: Any, out: Any) -> Any:
    values, edges, _ = _laid(f"segmented_{name}", a, segments, axis)
    rows = np.moveaxis(values, axis, -1)
    is_float = rows.dtype.kind not in "biu"
    found = np.full((*rows.shape[:-1], edges.size - 1), _least(rows.dtype, name), rows.dtype)
    present = np.flatnonzero(np.diff(edges))
    if present.size and found.size:
        # bfloat16 is float32 as well.
        wide = rows.astype(np.float32) if rows.dtype.name == "bfloat16" else rows
        reduce = np.maximum.reduceat if name == "max" else np.minimum.reduceat
        extremes = reduce(wide, edges[present], axis=-1)
        if is_float and (extremes == 0).any():
            # +0.0 is the greater of the two.
            zero = 0.0 if name == "max" else -0.0
            own = (wide == 0) & (np.signbit(wide) == (name == "min"))
            has_own = np.logical_or.reduceat(own, edges[present], axis=-1)
            extremes = np.where(extremes == 0, np.where(has_own, zero, -zero), extremes)
        found[..., present] = extremes.astype(found.dtype)
    return returned(np.ascontiguousarray(np.moveaxis(found, -1, axis)), out, a)


def _least(dtype: np.dtype[Any], name: str) -> Any:
    """Return the value that changes no maximum, or no minimum."""
    if dtype.kind == "b":
        return name == "min"
    if dtype.kind in "iu":
        ends = np.iinfo(dtype)
        return ends.min if name == "max" else ends.max
    return -math.inf if name == "max" else math.inf
