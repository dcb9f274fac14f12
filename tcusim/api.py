"""Sums and scans of arrays, as NumPy has them, computed by step programs on tensor cores.

Results follow NumPy: the same shapes, the same result types, the last axis by default where there
are segments. Arithmetic follows the tensor core of `arch`, bit for bit. With accumulate="f32" (the
default) nothing is rounded to the operand type on the way, and long sums are cut into short chains
whose results are combined by rounded float32 additions.

Infinities and NaN never enter a tensor core here, where 0*Inf = NaN would spread them over their
tile; they are set to zero and put into the results where they belong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tcusim.errors import InputError
from tcusim.kernels import Array, Report, Settings, kernel_for
from tcusim.plan import Shape, deliver, unit_of_run
from tcusim.rows import (
    scan_irregular,
    scan_rows,
    shifted,
    sum_irregular,
    sum_rows,
    sum_segments,
)

__all__ = ["Report", "cumsum", "segmented_cumsum", "segmented_sum", "sum"]


def sum(
    a: ArrayLike,
    *,
    axis: int | tuple[int, ...] | None = None,
    dtype: DTypeLike | None = None,
    out: Array | None = None,
    keepdims: bool = False,
    backend: str | None = None,
    shape: Shape | None = None,
    arch: str | None = None,
    accumulate: str = "f32",
    algorithm: str | None = None,
    report: Report | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Any:
    """Sum an array on tensor cores, as `numpy.sum` does.

    Parameters
    ----------
    a : array_like
        float16, float32, float64, bfloat16 (ml_dtypes), any integer type or bool; any shape.
        float32 is split exactly into three bf16 parts (on Volta and Turing, which have no bf16,
        into three float16 parts after scaling by a power of two: what lies 2**39 below the
        largest element is lost).
    axis : int or tuple of int, optional
        Axes to sum; None sums all elements.
    dtype : dtype, optional
        Type of accumulation and result, as in NumPy: float64 computes in float64. Default: the
        type of `a`, and NumPy's wide integer for integers.
    out : array, optional
        Where to put the result: of the result's shape and type.
    keepdims : bool
        Keep summed axes with length 1.
    backend : str, optional
        Who runs the programs; default "numpy", the simulator.
    shape : str, tuple or MmaShape, optional
        The tile, M-N-K order; default "16x16x16" ("8x8x4" for float64).
    arch : str, optional
        Whose arithmetic: an architecture, a GPU's name or a registered unit. Default: the GPU that
        the backend runs on, and "hopper" on the simulator.
    accumulate : {"f32", "f16"}
        Accumulator of float16 input. "f16" is literal to the paper, with its rounding: see
        docs/numerics.md before using it on long segments.
    algorithm : str, optional
        Name of the algorithm; by default one is chosen by size. A name of the paper's, such as
        "reduction_256n", is run as printed, partial sums rounded to the operand type included.
    report : Report, optional
        Filled with the programs and counts of the call.
    progress : callable, optional
        Called with (steps done, steps in all) of the launch that is running.

    Returns
    -------
    array, or a scalar if nothing is left of the shape

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import numpy as np, tcusim
    >>> float(tcusim.sum(np.arange(100, dtype=np.float16)))
    4950.0
    """
    settings = Settings(
        backend, shape, unit_of_run(arch, backend), accumulate, algorithm, report, progress
    )
    array = _array(a)
    axes = _axes(axis, array.ndim)
    kept = tuple(1 if i in axes else size for i, size in enumerate(array.shape))
    moved = np.moveaxis(array, axes, range(-len(axes), 0))
    lead = moved.shape[: array.ndim - len(axes)]
    rows = moved.reshape((*lead, -1) if moved.size else (*lead, 0))
    job = kernel_for("total", rows.dtype, dtype, settings)
    result = sum_rows(job, rows).reshape(kept if keepdims else lead)
    return deliver(result, out, a)


def cumsum(
    a: ArrayLike,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    out: Array | None = None,
    include_initial: bool = False,
    backend: str | None = None,
    shape: Shape | None = None,
    arch: str | None = None,
    accumulate: str = "f32",
    algorithm: str | None = None,
    report: Report | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Any:
    """Scan an array on tensor cores, as `numpy.cumsum` does.

    Parameters
    ----------
    axis : int, optional
        Axis to scan; None scans the flattened array.
    include_initial : bool
        Begin with 0, so that the axis grows by one and element i is the sum of those before i.
    a, dtype, out, backend, shape, arch, accumulate, algorithm, report, progress
        As in `sum`.

    Returns
    -------
    array of the shape of `a` (flat if axis is None), the axis longer by one if include_initial

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import numpy as np, tcusim
    >>> tcusim.cumsum(np.ones(4, np.float16), include_initial=True)
    array([0., 1., 2., 3., 4.], dtype=float16)
    """
    settings = Settings(
        backend, shape, unit_of_run(arch, backend), accumulate, algorithm, report, progress
    )
    array = _array(a)
    if axis is None:
        array, axis = array.reshape(-1), 0
    axis = _one_axis(axis, array.ndim)
    rows = np.moveaxis(array, axis, -1)
    job = kernel_for("scan", rows.dtype, dtype, settings)
    result = scan_rows(job, rows, max(1, rows.shape[-1]))
    if include_initial:
        zeros = np.zeros((*result.shape[:-1], 1), result.dtype)
        result = np.concatenate([zeros, result], axis=-1)
    return deliver(np.moveaxis(result, -1, axis), out, a)


def segmented_sum(
    a: ArrayLike,
    segment_size: int | None = None,
    *,
    offsets: ArrayLike | None = None,
    axis: int = -1,
    dtype: DTypeLike | None = None,
    out: Array | None = None,
    backend: str | None = None,
    shape: Shape | None = None,
    arch: str | None = None,
    accumulate: str = "f32",
    algorithm: str | None = None,
    report: Report | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Any:
    """Sum every segment of an axis on tensor cores.

    Parameters
    ----------
    segment_size : int, optional
        Elements of a segment, at least 1 and at most the axis. If it does not divide the axis,
        the last segment is shorter.
    offsets : array_like of int, shape (segments + 1,), optional
        Instead of a size: segment i is elements offsets[i] to offsets[i+1], as in CSR. Starts
        with 0, ends with the axis' length, never decreases; equal neighbours are an empty segment.
    axis : int
        The axis that is made of segments.
    a, dtype, out, backend, shape, arch, accumulate, algorithm, report, progress
        As in `sum`.

    Returns
    -------
    array of the shape of `a` with the axis' length replaced by the number of segments

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import numpy as np, tcusim
    >>> tcusim.segmented_sum(np.arange(8, dtype=np.float16), 4)
    array([ 6., 22.], dtype=float16)
    >>> tcusim.segmented_sum(np.arange(8, dtype=np.float16), offsets=[0, 1, 1, 8])
    array([ 0.,  0., 28.], dtype=float16)
    """
    settings = Settings(
        backend, shape, unit_of_run(arch, backend), accumulate, algorithm, report, progress
    )
    array = _array(a)
    axis = _one_axis(axis, array.ndim)
    rows = np.moveaxis(array, axis, -1)
    job = kernel_for("total", rows.dtype, dtype, settings)
    if offsets is not None:
        result = sum_irregular(job, rows, _offsets(offsets, segment_size, rows.shape[-1]))
    else:
        result = sum_segments(job, rows, _segment_size(segment_size, rows.shape[-1]))
    return deliver(np.moveaxis(result, -1, axis), out, a)


def segmented_cumsum(
    a: ArrayLike,
    segment_size: int | None = None,
    *,
    offsets: ArrayLike | None = None,
    axis: int = -1,
    exclusive: bool = False,
    dtype: DTypeLike | None = None,
    out: Array | None = None,
    backend: str | None = None,
    shape: Shape | None = None,
    arch: str | None = None,
    accumulate: str = "f32",
    algorithm: str | None = None,
    report: Report | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Any:
    """Scan every segment of an axis on tensor cores: prefix sums that begin anew in each.

    Parameters
    ----------
    exclusive : bool
        Leave each element out of its own prefix, so that every segment begins with 0.
    segment_size, offsets, axis
        As in `segmented_sum`.
    a, dtype, out, backend, shape, arch, accumulate, algorithm, report, progress
        As in `sum`.

    Returns
    -------
    array of the shape of `a`

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import numpy as np, tcusim
    >>> tcusim.segmented_cumsum(np.ones(6, np.float16), 3)
    array([1., 2., 3., 1., 2., 3.], dtype=float16)
    >>> tcusim.segmented_cumsum(np.ones(6, np.float16), 3, exclusive=True)
    array([0., 1., 2., 0., 1., 2.], dtype=float16)
    """
    settings = Settings(
        backend, shape, unit_of_run(arch, backend), accumulate, algorithm, report, progress
    )
    array = _array(a)
    axis = _one_axis(axis, array.ndim)
    rows = np.moveaxis(array, axis, -1)
    job = kernel_for("scan", rows.dtype, dtype, settings)
    length = rows.shape[-1]
    if offsets is not None:
        edges = _offsets(offsets, segment_size, length)
        result = scan_irregular(job, rows, edges)
    else:
        size = _segment_size(segment_size, length)
        edges = np.append(np.arange(0, length, size), length)
        result = scan_rows(job, rows, size)
    if exclusive:
        result = shifted(result, edges)
    return deliver(np.moveaxis(result, -1, axis), out, a)


# --- Arguments --------------------------------------------------------------------------------


def _array(a: ArrayLike) -> Array:
    array = np.asarray(a)
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        raise InputError(
            f"a must hold real numbers (float16, float32, float64, bfloat16, integers or bool), "
            f"got dtype {array.dtype}; cast it first, for example a.real or a.astype(np.float32)"
        )
    return array


def _axes(axis: int | tuple[int, ...] | None, ndim: int) -> tuple[int, ...]:
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


def _one_axis(axis: int | tuple[int, ...] | None, ndim: int) -> int:
    """Return the axis counted from the front; refuse several, or none."""
    if axis is None or isinstance(axis, tuple):
        raise InputError(f"axis must be one integer, got {axis!r}")
    return _axes(axis, ndim)[0]


def _segment_size(segment_size: int | None, length: int) -> int:
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


def _offsets(offsets: ArrayLike, segment_size: int | None, length: int) -> NDArray[np.int64]:
    if segment_size is not None:
        raise InputError("give segment_size or offsets, not both")
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
