"""Sums, scans, segments and products as functions that JAX can transform."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from tcusim.arrays.dtypes import FLOATS, types_on_host
from tcusim.errors import InputError
from tcusim.jax.primitives import How, computed
from tcusim.machine import arch_of

__all__ = ["cumsum", "matmul", "matvec", "segment_cumsum", "segment_sum", "sum"]

Array: TypeAlias = jax.Array
Bits: TypeAlias = Literal["segment", "exact"]


def _axes(a: Array, axis: Any) -> list[int]:
    """Return axes counted from the first, in the order in which they are named; None is all."""
    if axis is None:
        return list(range(a.ndim))
    given = axis if isinstance(axis, Sequence) else (axis,)
    if not all(hasattr(one, "__index__") for one in given):
        raise InputError(f"axis must be an integer, a tuple of integers, or None, got {axis!r}")
    if a.ndim == 0 and given:
        raise InputError("an array without axes has none to sum along; reshape it to (1,)")
    for one in given:
        if not -a.ndim <= one < a.ndim:
            raise InputError(f"axis must be within {-a.ndim}..{a.ndim - 1}, got {one!r}")
    places = [int(one) % a.ndim for one in given]
    if len(set(places)) < len(places):
        raise InputError(f"axis names one axis twice: {axis!r}")
    return places


def _result(
    a: Array,
    dtype: Any,
    arch: str | None,
    *,
    product: bool = False,
    bits: str = "segment",
) -> Any:
    """Return the type of sums, JAX's, which has 64 bits where it is told to.

    What cannot be computed is refused here, while it is traced, and not where it runs.
    """
    given = a.dtype.name
    if given not in FLOATS and a.dtype.kind not in "biu":
        raise InputError(f"arrays of {given} are not summed; cast it to a real type of NumPy's")
    if bits not in ("segment", "exact"):
        raise InputError(f"bits must be 'segment' or 'exact', got {bits!r}")
    if dtype is None:
        wanted = a.dtype if given in FLOATS else np.dtype(np.int64)
    else:
        try:
            wanted = jnp.dtype(dtype)
        except TypeError:
            raise InputError(f"dtype must be a type of real numbers, got {dtype!r}") from None
        if wanted.name not in FLOATS and wanted.kind not in "iu":
            raise InputError(f"dtype must be a type of real numbers, got {wanted.name}")
    result = jax.dtypes.canonicalize_dtype(wanted)
    place = "hopper" if arch is None else arch_of(arch).name
    rule = types_on_host(given, result.name, "f32", place, product=product, bits=bits)
    rule.types.require_on(place)
    return result


@partial(jax.jit, static_argnames=("axis", "dtype", "keepdims", "bits", "arch"))
def sum(
    a: ArrayLike,
    axis: int | tuple[int, ...] | None = None,
    dtype: Any = None,
    *,
    keepdims: bool = False,
    bits: Bits = "segment",
    arch: str | None = None,
) -> Array:
    """Sum an array on tensor cores, as `jax.numpy.sum` does.

    Parameters
    ----------
    a : array
        float16, bfloat16, float32, integers or bool; float64 where JAX has it.
    axis : int or tuple of int, optional
        The axes to sum; None sums all.
    dtype : dtype, optional
        Type of the result; by default that of `a`, or JAX's wide integer.
    keepdims : bool
        Keep the axes, with length 1.
    bits : {"segment", "exact"}
        ``"exact"`` rounds the true sum once, on the host: one set of bits on every GPU.
    arch : str, optional
        Whose bits: by default those of the GPU on which it runs, on the CPU those of Hopper. The
        bits of another GPU are computed on the host.

    Returns
    -------
    array
        The bits of `tcusim.sum`.

    Raises
    ------
    InputError, Unsupported
        If there is no such axis, or such types are not summed; while it is traced.

    Examples
    --------
    >>> import jax.numpy as jnp, tcusim.jax
    >>> float(tcusim.jax.sum(jnp.arange(5.0)))
    10.0
    """
    values = jnp.asarray(a)
    result = _result(values, dtype, arch, bits=bits)
    axes = _axes(values, axis)
    rows = jnp.moveaxis(values, axes, range(-len(axes), 0)) if axes else values
    rest = rows.shape[: values.ndim - len(axes)]
    rows = rows.reshape(*rest, math.prod(values.shape[one] for one in axes))
    total = computed(How("sum", result, arch, bits=bits), rows)
    return jnp.expand_dims(total, axes) if keepdims else total


@partial(jax.jit, static_argnames=("axis", "dtype", "exclusive", "reverse", "bits", "arch"))
def cumsum(
    a: ArrayLike,
    axis: int | None = None,
    dtype: Any = None,
    *,
    exclusive: bool = False,
    reverse: bool = False,
    initial: ArrayLike | None = None,
    bits: Bits = "segment",
    arch: str | None = None,
) -> Array:
    """Scan an array along an axis on tensor cores, as `jax.numpy.cumsum` does.

    Parameters
    ----------
    axis : int, optional
        The axis; None scans the flattened array.
    exclusive, reverse : bool
        As in `tcusim.cumsum`.
    initial : array or number, optional
        What precedes the first element (in reverse, follows the last), and is part of every sum: it
        is broadcast to the shape of `a` without the axis.
    a, dtype, bits, arch
        As in `sum`.

    Returns
    -------
    array
        Of the shape of `a`; flat if axis is None.

    Raises
    ------
    InputError, Unsupported
        If there is no such axis, or such types are not summed; while it is traced.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, tcusim.jax
    >>> jax.grad(lambda x: tcusim.jax.cumsum(x).sum())(jnp.ones(3)).tolist()
    [3.0, 2.0, 1.0]
    """
    values = jnp.asarray(a)
    result = _result(values, dtype, arch, bits=bits)
    if isinstance(axis, Sequence):
        raise InputError(f"axis of a scan must be one integer, or None, got {axis!r}")
    if axis is None:
        values, axis = values.reshape(-1), 0
    (place,) = _axes(values, axis)
    rows = jnp.moveaxis(values, place, -1)
    given = [rows]
    if initial is not None:
        given.append(_before(initial, rows, result))
    how = How("cumsum", result, arch, bool(exclusive), bool(reverse), bits)
    return jnp.moveaxis(computed(how, *given), -1, place)


def _before(initial: ArrayLike, rows: Array, result: Any) -> Array:
    """Return what precedes rows, in the type of their sums."""
    wide = result
    if result.name in FLOATS:
        wide = np.dtype("float64" if "float64" in (rows.dtype.name, result.name) else "float32")
    try:
        return jnp.broadcast_to(jnp.asarray(initial), rows.shape[:-1]).astype(wide)
    except ValueError:
        text = f"initial must be broadcast to {rows.shape[:-1]}, got {np.shape(initial)}"
        raise InputError(text) from None


def segment_sum(
    data: Array,
    segment_ids: Array,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: Any = None,
    *,
    dtype: Any = None,
    arch: str | None = None,
) -> Array:
    """Sum segments of the first axis on tensor cores, as `jax.ops.segment_sum` does.

    Parameters
    ----------
    data : array, shape (n, ...)
        As in `sum`.
    segment_ids : array of int, shape (n,)
        The segment of each element. Elements of other ids than those from 0 up to, but not
        including, `num_segments` are left out.
    num_segments : int, optional
        How many segments there are; by default one more than the largest id, for which the ids
        must have values: not under `jax.jit`.
    indices_are_sorted : bool
        Whether the ids never decrease. If not, elements are sorted by them first, and those of a
        segment keep their order.
    unique_indices, bucket_size
        Not needed: the order of the additions is fixed, and that of a tree.
    mode : optional
        None or ``"drop"``, which are the same.
    dtype, arch
        As in `sum`.

    Returns
    -------
    array, shape (num_segments, ...)
        A segment's bits do not depend on the others.

    Raises
    ------
    InputError
        If the shapes do not fit, or `mode` is another.

    Examples
    --------
    >>> import jax.numpy as jnp, tcusim.jax
    >>> tcusim.jax.segment_sum(jnp.arange(4.0), jnp.array([0, 0, 2, 2]), 3).tolist()
    [1.0, 0.0, 5.0]
    """
    del unique_indices, bucket_size
    if mode is not None and jax.lax.GatherScatterMode.from_any(mode) != _DROP:
        raise InputError(f"mode must be None or 'drop', got {mode!r}")
    values, ids = _with_ids(data, segment_ids)
    if num_segments is None:
        num_segments = int(ids.max()) + 1 if ids.size else 0
    return _sums(values, ids, num_segments, indices_are_sorted, dtype, arch)


_DROP = jax.lax.GatherScatterMode.from_any("drop")


def _with_ids(data: ArrayLike, segment_ids: ArrayLike) -> tuple[Array, Array]:
    """Return elements and their ids, of a type that holds their number."""
    values, ids = jnp.asarray(data), jnp.asarray(segment_ids)
    if ids.ndim != 1 or values.shape[:1] != ids.shape or not jnp.issubdtype(ids.dtype, jnp.integer):
        raise InputError(
            f"segment_ids must be integers, one for each of the first axis of data; data is "
            f"{values.shape}, segment_ids {ids.dtype} {ids.shape}"
        )
    return values, ids


def _rows_of(data: Array) -> Array:
    """Return the first axis of an array as the last one of rows."""
    return data.reshape(data.shape[0], math.prod(data.shape[1:])).T


@partial(jax.jit, static_argnums=(2, 3, 4, 5))
def _sums(
    data: Array, ids: Array, count: int, is_sorted: bool, dtype: Any, arch: str | None
) -> Array:
    result = _result(data, dtype, arch)
    if not is_sorted:
        order = jnp.argsort(ids, stable=True)
        data, ids = data[order], ids[order]
    # A type that holds the number of segments.
    ids = ids.astype(jnp.promote_types(ids.dtype, jnp.int32))
    # In front of the first segment and behind the last one lies what is left out.
    borders = jnp.searchsorted(ids, jnp.arange(count + 1, dtype=ids.dtype))
    edges = jnp.concatenate([jnp.array([0]), borders, jnp.array([ids.size])])
    rows = _rows_of(data)
    offsets = jnp.broadcast_to(edges, (rows.shape[0], edges.size))
    sums = computed(How("segmented_sum", result, arch), rows, offsets)[:, 1:-1]
    return sums.T.reshape(count, *data.shape[1:])


@partial(jax.jit, static_argnames=("indices_are_sorted", "exclusive", "reverse", "dtype", "arch"))
def segment_cumsum(
    data: ArrayLike,
    segment_ids: ArrayLike,
    indices_are_sorted: bool = False,
    *,
    exclusive: bool = False,
    reverse: bool = False,
    dtype: Any = None,
    arch: str | None = None,
) -> Array:
    """Scan the segments of the first axis on tensor cores: prefix sums that begin anew in each.

    Parameters
    ----------
    data : array, shape (n, ...)
        As in `sum`.
    segment_ids : array of int, shape (n,)
        The segment of each element: any numbers.
    indices_are_sorted : bool
        Whether the ids never decrease. If not, elements are sorted by them first, and those of a
        segment keep their order.
    exclusive, reverse : bool
        As in `tcusim.segmented_cumsum`.
    dtype, arch
        As in `sum`.

    Returns
    -------
    array, shape (n, ...)
        Each sum in the place of its element.

    Raises
    ------
    InputError, Unsupported
        If the shapes do not fit, or such types are not summed.

    Examples
    --------
    >>> import jax.numpy as jnp, tcusim.jax
    >>> tcusim.jax.segment_cumsum(jnp.ones(5), jnp.array([7, 2, 2, 7, 2])).tolist()
    [1.0, 1.0, 2.0, 2.0, 3.0]
    """
    values, ids = _with_ids(data, segment_ids)
    result = _result(values, dtype, arch)
    if not ids.size:
        return jnp.zeros(values.shape, result)
    order = jnp.arange(ids.size)
    if not indices_are_sorted:
        order = jnp.argsort(ids, stable=True)
    values, ids = values[order], ids[order]
    # Segments are numbered in their order; there are as many as elements at most.
    number = jnp.cumsum(jnp.concatenate([jnp.zeros(1, int), ids[1:] != ids[:-1]]))
    edges = jnp.searchsorted(number, jnp.arange(ids.size + 1))
    rows = _rows_of(values)
    offsets = jnp.broadcast_to(edges, (rows.shape[0], edges.size))
    how = How("segmented_cumsum", result, arch, bool(exclusive), bool(reverse))
    scans = computed(how, rows, offsets).T.reshape(values.shape)
    return scans[jnp.argsort(order)]


@partial(jax.jit, static_argnames=("dtype", "arch"))
def matmul(a: ArrayLike, b: ArrayLike, *, dtype: Any = None, arch: str | None = None) -> Array:
    """Multiply matrices on tensor cores, as `jax.numpy.matmul` does.

    Parameters
    ----------
    a, b : array, shape (..., m, k) and (..., k, n)
        Of one float type; axes in front are broadcast.
    dtype, arch
        As in `sum`.

    Returns
    -------
    array, shape (..., m, n)
        A row's bits do not depend on the other rows of `a`.

    Raises
    ------
    InputError
        If the shapes do not fit.

    Examples
    --------
    >>> import jax.numpy as jnp, tcusim.jax
    >>> tcusim.jax.matmul(jnp.eye(2), jnp.ones((2, 1))).tolist()
    [[1.0], [1.0]]
    """
    left, right = jnp.asarray(a), jnp.asarray(b)
    if min(left.ndim, right.ndim) < 2 or left.shape[-1] != right.shape[-2]:
        raise InputError(
            f"a must be (..., m, k) and b (..., k, n), with the same k; got {left.shape} and "
            f"{right.shape}"
        )
    how = How("matmul", _product_type(left, right, dtype, arch), arch)
    rank = max(left.ndim, right.ndim)
    # Axes that vmap adds in front of both must find each other.
    left, right = (jnp.expand_dims(one, tuple(range(rank - one.ndim))) for one in (left, right))
    return computed(how, left, right)


def _product_type(left: Array, right: Array, dtype: Any, arch: str | None) -> Any:
    _result(right, dtype or left.dtype, arch, product=True)
    return _result(left, dtype, arch, product=True)


@partial(jax.jit, static_argnames=("dtype", "arch"))
def matvec(a: ArrayLike, x: ArrayLike, *, dtype: Any = None, arch: str | None = None) -> Array:
    """Multiply matrices by vectors on tensor cores, as `jax.numpy.matvec` does.

    Parameters
    ----------
    a, x : array, shape (..., m, k) and (..., k)
        Of one float type; axes in front are broadcast.
    dtype, arch
        As in `sum`.

    Returns
    -------
    array, shape (..., m)
        These are not the bits of a column of `matmul`, which adds in another order.

    Raises
    ------
    InputError, Unsupported
        If the shapes do not fit, or such types are not multiplied.

    Examples
    --------
    >>> import jax.numpy as jnp, tcusim.jax
    >>> tcusim.jax.matvec(jnp.eye(2), jnp.ones(2)).tolist()
    [1.0, 1.0]
    """
    left, right = jnp.asarray(a), jnp.asarray(x)
    if left.ndim < 2 or right.ndim < 1 or left.shape[-1] != right.shape[-1]:
        raise InputError(
            f"a must be (..., m, k) and x (..., k), with the same k; got {left.shape} and "
            f"{right.shape}"
        )
    how = How("matvec", _product_type(left, right, dtype, arch), arch)
    rank = max(left.ndim, right.ndim + 1)
    left = jnp.expand_dims(left, tuple(range(rank - left.ndim)))
    right = jnp.expand_dims(right, tuple(range(rank - 1 - right.ndim)))
    return computed(how, left, right)
