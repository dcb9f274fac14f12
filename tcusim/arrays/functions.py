"""Sums and scans of arrays, as NumPy has them, computed by step programs on tensor cores.

Results follow NumPy: the same shapes, the same result types, the last axis by default where there
are segments. Arithmetic follows the tensor core of `arch`, bit for bit. With accumulate="f32" (the
default) nothing is rounded to the operand type on the way, and long sums are cut into short chains
whose results are combined by rounded float32 additions.

Infinities and NaN of NumPy arrays never enter a tensor core here, where 0*Inf = NaN would spread
them over their tile; they are set to zero and put into the results where they belong.

Arrays in GPU memory (CuPy's, torch's, PyCUDA's, or any with `__cuda_array_interface__` or DLPack)
are computed where they are, on their library's current stream, into arrays of the same kind. Their
values are not looked at; docs/gpu.md says what follows from that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from tcusim.algorithms.order import Order
from tcusim.arrays.arguments import (
    as_array,
    axes_of,
    deliver,
    offsets_of,
    one_axis,
    refuse_stream,
    size_of,
)
from tcusim.arrays.devices import is_on_device
from tcusim.arrays.kernels import REDUCTION, Operation, Report, Settings, kernel_for
from tcusim.arrays.on_device import Task, compute
from tcusim.arrays.on_host import (
    scan_irregular,
    scan_segments,
    sum_irregular,
    sum_rows,
    sum_segments,
)
from tcusim.arrays.problem import Shape, require_unnamed

__all__ = ["Report", "cumsum", "segmented_cumsum", "segmented_sum", "sum"]


def sum(
    a: ArrayLike,
    *,
    axis: int | tuple[int, ...] | None = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    keepdims: bool = False,
    backend: str | None = None,
    shape: Shape | None = None,
    arch: str | None = None,
    accumulate: str = "f32",
    algorithm: str | None = None,
    report: Report | None = None,
    progress: Callable[[int, int], object] | None = None,
    stream: Any = None,
) -> Any:
    """Sum an array on tensor cores, as `numpy.sum` does.

    Parameters
    ----------
    a : array_like
        float16, float32, float64, bfloat16 (ml_dtypes), any integer type or bool; any shape. Or an
        array in GPU memory, of a float type or int8: it stays there.
        float32 is split exactly into three bf16 parts (on Volta and Turing, which have no bf16,
        into three float16 parts after scaling by a power of two: what lies 2**39 below the
        largest element is lost).
    axis : int or tuple of int, optional
        Axes to sum; None sums all elements.
    dtype : dtype, optional
        Type of accumulation and result, as in NumPy: float64 computes in float64. Default: the
        type of `a`, and NumPy's wide integer for integers (int32 for int8 in GPU memory).
    out : array, optional
        Where to put the result: of a's kind, the result's shape and type. It may be `a` itself, to
        scan in place, but not overlap it otherwise.
    keepdims : bool
        Keep summed axes with length 1.
    backend : str, optional
        Who runs the programs. Default: "numpy", the simulator; for an array in GPU memory "pycuda"
        if it is PyCUDA's, else "cupy" or what is available.
    shape : str, tuple or MmaShape, optional
        The tile, M-N-K order; default "16x16x16" ("8x8x4" for float64).
    arch : str, optional
        Whose arithmetic: an architecture, a GPU's name or a registered unit. Default: the GPU that
        the backend runs on, and "hopper" on the simulator.
    accumulate : {"f32", "f16"}
        Accumulator of float16 input. "f16" is literal to the paper, with its rounding: see
        docs/numerics.md before using it on long segments.
    algorithm : str, optional
        Name of the algorithm; by default one is chosen by sizes, types and architecture, as
        `tcusim.plan` shows. A name of the paper's, such as "reduction_256n", is run as printed,
        partial sums rounded to the operand type included.
    report : Report, optional
        Filled with the programs and counts of the call.
    progress : callable, optional
        Called with (steps done, steps in all) of the launch that is running.
    stream : optional
        For arrays in GPU memory, the stream to launch on: any library's, or a handle. By default
        their library's current one.

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
    >>> float(tcusim.sum(np.arange(100, dtype=np.float16), dtype=np.float32))
    4950.0
    """
    settings = Settings(backend, shape, arch, accumulate, algorithm, report, progress)
    if is_on_device(a):
        return compute(a, Task("sum", axis, dtype=dtype, keepdims=keepdims), out, settings, stream)
    refuse_stream(stream)
    array = as_array(a)
    axes = axes_of(axis, array.ndim)
    kept = tuple(1 if i in axes else size for i, size in enumerate(array.shape))
    moved = np.moveaxis(array, axes, range(-len(axes), 0))
    lead = moved.shape[: array.ndim - len(axes)]
    rows = moved.reshape((*lead, -1) if moved.size else (*lead, 0))
    job = kernel_for(REDUCTION, rows.dtype, dtype, settings)
    result = sum_rows(job, rows).reshape(kept if keepdims else lead)
    return deliver(result, out, a)


def cumsum(
    a: ArrayLike,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    include_initial: bool = False,
    reverse: bool = False,
    backend: str | None = None,
    shape: Shape | None = None,
    arch: str | None = None,
    accumulate: str = "f32",
    algorithm: str | None = None,
    report: Report | None = None,
    progress: Callable[[int, int], object] | None = None,
    stream: Any = None,
) -> Any:
    """Scan an array on tensor cores, as `numpy.cumsum` does.

    Parameters
    ----------
    axis : int, optional
        Axis to scan; None scans the flattened array.
    include_initial : bool
        Begin with 0, so that the axis grows by one and element i is the sum of those before i; in
        reverse, end with 0. An `out` is then longer too, and never `a` itself.
    reverse : bool
        Sum from the end: element i is the sum of itself and those after it.
    a, dtype, out, backend, shape, arch, accumulate, algorithm, report, progress, stream
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
    order = Order(reverse=bool(reverse))
    settings = Settings(backend, shape, arch, accumulate, algorithm, report, progress)
    if is_on_device(a):
        initial = bool(include_initial)
        task = Task("cumsum", axis, dtype=dtype, order=order, initial=initial)
        return compute(a, task, out, settings, stream)
    refuse_stream(stream)
    array = as_array(a)
    if axis is None:
        array, axis = array.reshape(-1), 0
    axis = one_axis(axis, array.ndim)
    rows = np.moveaxis(array, axis, -1)
    job = kernel_for(Operation("scan", order), rows.dtype, dtype, settings)
    result = scan_segments(job, rows, max(1, rows.shape[-1]))
    if include_initial:
        zeros = np.zeros((*result.shape[:-1], 1), result.dtype)
        parts = [result, zeros] if reverse else [zeros, result]
        result = np.concatenate(parts, axis=-1)
    return deliver(np.moveaxis(result, -1, axis), out, a)


def segmented_sum(
    a: ArrayLike,
    segment_size: int | None = None,
    *,
    offsets: Any = None,
    check_offsets: bool = True,
    axis: int = -1,
    dtype: DTypeLike | None = None,
    out: Any = None,
    backend: str | None = None,
    shape: Shape | None = None,
    arch: str | None = None,
    accumulate: str = "f32",
    algorithm: str | None = None,
    report: Report | None = None,
    progress: Callable[[int, int], object] | None = None,
    stream: Any = None,
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
        The launches are chosen by the number of segments and the longest one; there is no
        `algorithm` to name. For an array in GPU memory they may be there too, of int64 or int32.
    check_offsets : bool
        Offsets in GPU memory are copied back and checked, for which the call waits until the GPU
        has them. False spares that where they are known to be right: bad ones then give wrong
        results, though no access outside the arrays, and that no segment is long is not seen, which
        may take more launches, with sums in another order.
    axis : int
        The axis that is made of segments.
    a, dtype, out, backend, shape, arch, accumulate, algorithm, report, progress, stream
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
    settings = Settings(backend, shape, arch, accumulate, algorithm, report, progress)
    if is_on_device(a):
        task = Task(
            "segmented_sum",
            axis,
            segment_size,
            dtype=dtype,
            offsets=offsets,
            check_offsets=check_offsets,
        )
        return compute(a, task, out, settings, stream)
    refuse_stream(stream)
    array = as_array(a)
    axis = one_axis(axis, array.ndim)
    rows = np.moveaxis(array, axis, -1)
    job = kernel_for(REDUCTION, rows.dtype, dtype, settings)
    if offsets is not None:
        require_unnamed(algorithm)
        result = sum_irregular(job, rows, offsets_of(offsets, segment_size, rows.shape[-1]))
    else:
        result = sum_segments(job, rows, size_of(segment_size, rows.shape[-1]))
    return deliver(np.moveaxis(result, -1, axis), out, a)


def segmented_cumsum(
    a: ArrayLike,
    segment_size: int | None = None,
    *,
    offsets: Any = None,
    check_offsets: bool = True,
    axis: int = -1,
    exclusive: bool = False,
    reverse: bool = False,
    dtype: DTypeLike | None = None,
    out: Any = None,
    backend: str | None = None,
    shape: Shape | None = None,
    arch: str | None = None,
    accumulate: str = "f32",
    algorithm: str | None = None,
    report: Report | None = None,
    progress: Callable[[int, int], object] | None = None,
    stream: Any = None,
) -> Any:
    """Scan every segment of an axis on tensor cores: prefix sums that begin anew in each.

    Parameters
    ----------
    exclusive : bool
        Leave each element out of its own prefix, so that every segment begins with 0.
    reverse : bool
        Sum from the end of each segment: with `exclusive`, each ends with 0.
    segment_size, offsets, check_offsets, axis
        As in `segmented_sum`.
    a, dtype, out, backend, shape, arch, accumulate, algorithm, report, progress, stream
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
    >>> tcusim.segmented_cumsum(np.ones(6, np.float16), 3, reverse=True)
    array([3., 2., 1., 3., 2., 1.], dtype=float16)
    """
    order = Order(bool(exclusive), bool(reverse))
    settings = Settings(backend, shape, arch, accumulate, algorithm, report, progress)
    if is_on_device(a):
        task = Task(
            "segmented_cumsum",
            axis,
            segment_size,
            dtype=dtype,
            order=order,
            offsets=offsets,
            check_offsets=check_offsets,
        )
        return compute(a, task, out, settings, stream)
    refuse_stream(stream)
    array = as_array(a)
    axis = one_axis(axis, array.ndim)
    rows = np.moveaxis(array, axis, -1)
    job = kernel_for(Operation("scan", order), rows.dtype, dtype, settings)
    length = rows.shape[-1]
    if offsets is not None:
        require_unnamed(algorithm)
        result = scan_irregular(job, rows, offsets_of(offsets, segment_size, length))
    else:
        result = scan_segments(job, rows, size_of(segment_size, length))
    return deliver(np.moveaxis(result, -1, axis), out, a)
