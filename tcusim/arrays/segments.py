"""Means, and largest and smallest elements, of the segments of an axis.

A mean is a sum, as `tcusim.segmented_sum` adds it up, and a quotient. Largest and smallest elements
have no order of additions, and nothing that a tensor core could do: NumPy finds them.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike

from tcusim.arrays.dtypes import FLOATS, numpy_type
from tcusim.arrays.functions import segmented_sum
from tcusim.arrays.home import HOST, returned, warn_of_overflow
from tcusim.arrays.libraries import (
    Array,
    as_numpy,
    is_on_device,
    name_of_kind,
)
from tcusim.arrays.offsets import offsets_of, sorted_by_ids
from tcusim.arrays.spec import Call, Spec
from tcusim.call_options import AnyOptions, alone, options_of
from tcusim.errors import InputError, Unsupported, require_flags
from tcusim.machine.formats import array_name_of

__all__ = ["segmented_max", "segmented_mean", "segmented_min"]


def segmented_mean(
    a: Any,
    segment_size: int | None = None,
    *,
    offsets: Any = None,
    segment_ids: Any = None,
    num_segments: int | None = None,
    sort: bool = False,
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
    segment_size, offsets, segment_ids, num_segments, sort, axis, out
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
    >>> tcusim.segmented_mean(np.arange(6, dtype=np.float16), offsets=[0, 2, 2, 6])
    array([0.5, nan, 3.5], dtype=float16)
    """
    own = options_of(options, "segmented_mean", "strategy")
    values, edges, by = _laid(
        "segmented_mean", a, segment_size, axis, (offsets, segment_ids, num_segments), sort=sort
    )
    is_integer = values.dtype.kind in "biu"
    result = np.dtype(np.float64) if is_integer else values.dtype
    if dtype is not None:
        result = numpy_type(array_name_of(dtype))
    if result.name not in FLOATS:
        raise InputError(f"dtype of a mean must be one of {', '.join(FLOATS)}, got {result}")
    is_wide = is_integer or np.dtype(np.float64) in (values.dtype, result)
    wide = np.dtype(np.float64 if is_wide else np.float32)
    sums: Any = segmented_sum(values, **by, axis=axis, dtype=wide, options=alone(own))
    lengths = np.diff(edges).astype(wide)
    shape = [1] * sums.ndim
    shape[axis] = lengths.size
    with np.errstate(invalid="ignore", over="ignore"):
        means = (sums / lengths.reshape(shape)).astype(result)
    warn_of_overflow("segmented_mean", means, [sums])
    return returned(means, out, a)


def segmented_max(
    a: Any,
    segment_size: int | None = None,
    *,
    offsets: Any = None,
    segment_ids: Any = None,
    num_segments: int | None = None,
    sort: bool = False,
    axis: int = -1,
    out: Any = None,
) -> Any:
    """Return the largest element of every segment of an axis.

    Parameters
    ----------
    a : array_like
        Of any type that `tcusim.segmented_sum` takes, in the computer's memory.
    segment_size, offsets, segment_ids, num_segments, sort, axis, out
        As in `tcusim.segmented_sum`.

    Returns
    -------
    array of the type of `a`, its axis' length replaced by the number of segments
        NaN if one is in the segment. Of zeros of both signs, +0.0. Of a segment without elements,
        what changes no maximum: minus infinity, the least integer, or False.

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import numpy as np, tcusim
    >>> tcusim.segmented_max(np.array([3, 1, 4, 1, 5], np.float32), offsets=[0, 2, 2, 5])
    array([  3., -inf,   5.], dtype=float32)
    """
    given = (offsets, segment_ids, num_segments)
    return _extreme("max", a, segment_size, axis, given, sort=sort, out=out)


def segmented_min(
    a: Any,
    segment_size: int | None = None,
    *,
    offsets: Any = None,
    segment_ids: Any = None,
    num_segments: int | None = None,
    sort: bool = False,
    axis: int = -1,
    out: Any = None,
) -> Any:
    """Return the smallest element of every segment of an axis.

    Parameters
    ----------
    a, segment_size, offsets, segment_ids, num_segments, sort, axis, out
        As in `segmented_max`.

    Returns
    -------
    array of the type of `a`, its axis' length replaced by the number of segments
        NaN if one is in the segment. Of zeros of both signs, -0.0. Of a segment without elements,
        what changes no minimum: infinity, the largest integer, or True.

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
    given = (offsets, segment_ids, num_segments)
    return _extreme("min", a, segment_size, axis, given, sort=sort, out=out)


_BY = tuple[Any, Any, Any]


def _laid(
    name: str, a: Any, segment_size: Any, axis: Any, given: _BY, *, sort: bool
) -> tuple[Array, Array, dict[str, Any]]:
    """Return a NumPy array, where its segments lie on the axis, and the keywords for that."""
    offsets, ids, number = given
    if any(map(is_on_device, (a, offsets, ids))):
        raise Unsupported(
            f"{name} takes arrays in the computer's memory, and one is in GPU memory. There is no "
            f"kernel for it: use its own library, or tcusim.segmented_sum, and copy the "
            f"{name_of_kind(a)} to a NumPy array otherwise"
        )
    require_flags(sort=sort)
    values = as_numpy("a", a)
    # The result is in the machine's own order of bytes.
    values = values.astype(values.dtype.newbyteorder("="), copy=False)
    if sort:
        values, ids, *_ = sorted_by_ids(values, ids, axis)
    call = Call(offsets=offsets, segment_ids=ids, num_segments=number)
    spec = Spec("segmented_sum", axis, segment_size)
    layout = spec.layout(values.shape, by_offsets=call.by_offsets)
    if not call.by_offsets:
        return values, layout.even_edges, {"segment_size": segment_size}
    edges = offsets_of(HOST, values, call, length=layout.length, rows=1).edges
    assert edges is not None
    return values, edges, {"offsets": edges}


def _extreme(
    name: Literal["max", "min"], a: Any, segment_size: Any, axis: Any, given: _BY,
    *, sort: bool, out: Any,
) -> Any:  # fmt: skip
    values, edges, _ = _laid(f"segmented_{name}", a, segment_size, axis, given, sort=sort)
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
