"""`sum`, `cumsum`, `segment_sum` and `matmul` as functions that JAX can transform."""

from __future__ import annotations

import math
import operator
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from tcusim.errors import InputError
from tcusim.jax.operations import called

__all__ = ["cumsum", "matmul", "segment_sum", "sum"]

Array: TypeAlias = Any


def _axis(a: Array, axis: int) -> int:
    """Return an axis counted from the last, so that more may come in front."""
    try:
        axis = operator.index(axis)
    except TypeError:
        text = f"axis must be one integer, got {axis!r}; call once for each axis"
        raise InputError(text) from None
    if a.ndim == 0:
        raise InputError("an array without axes has none to sum along; reshape it to (1,)")
    if not -a.ndim <= axis < a.ndim:
        raise InputError(f"axis must be within {-a.ndim}..{a.ndim - 1}, got {axis!r}")
    place: int = axis % a.ndim - a.ndim
    return place


def _result(a: Array, dtype: Any) -> Any:
    """Return the type of sums: JAX's, which has 64 bits where it is told to."""
    if not any(jnp.issubdtype(a.dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_)):
        raise InputError(f"arrays of {a.dtype} are not summed; cast it to a real type")
    if dtype is not None:
        return jax.dtypes.canonicalize_dtype(dtype)
    if jnp.issubdtype(a.dtype, jnp.floating):
        return a.dtype
    return jax.dtypes.canonicalize_dtype(np.int64)


@partial(jax.jit, static_argnames=("axis", "dtype", "keepdims", "arch"))
def sum(
    a: Array,
    axis: int | None = None,
    dtype: Any = None,
    *,
    keepdims: bool = False,
    arch: str | None = None,
) -> Array:
    """Sum an array on tensor cores, as `jax.numpy.sum` does.

    Parameters
    ----------
    a : array
        float16, bfloat16, float32, integers or bool; float64 where JAX has it.
    axis : int, optional
        The axis to sum; None sums all.
    dtype : dtype, optional
        Type of the result; by default that of `a`, or JAX's wide integer.
    keepdims : bool
        Keep the axis, with length 1.
    arch : str, optional
        Whose bits: by default those of the GPU on which it runs, on the CPU those of Hopper. The
        bits of another GPU are computed on the host.

    Returns
    -------
    array
        The bits of `tcusim.sum`.

    Raises
    ------
    InputError
        If there is no such axis.

    Examples
    --------
    >>> import jax.numpy as jnp, tcusim.jax
    >>> float(tcusim.jax.sum(jnp.arange(5.0)))
    10.0
    """
    values = jnp.asarray(a)
    if axis is None:
        whole = sum(values.reshape(-1), 0, dtype, arch=arch)
        return whole.reshape((1,) * values.ndim) if keepdims else whole
    place = _axis(values, axis)
    result = _sum(values, place, _result(values, dtype), arch)
    return jnp.expand_dims(result, place) if keepdims else result


@partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3))
def _sum(a: Array, axis: int, dtype: Any, arch: str | None) -> Array:
    rows = jnp.moveaxis(a, axis, -1)
    return called("sum", jax.ShapeDtypeStruct(rows.shape[:-1], dtype), rows, arch=arch)


def _sum_forward(a: Array, axis: int, dtype: Any, arch: str | None) -> tuple[Array, Array]:
    return _sum(a, axis, dtype, arch), a


def _sum_backward(
    axis: int, dtype: Any, arch: str | None, a: Array, gradient: Array
) -> tuple[Array]:
    del dtype, arch
    return (jnp.broadcast_to(jnp.expand_dims(gradient, axis), a.shape).astype(a.dtype),)


_sum.defvjp(_sum_forward, _sum_backward)


@partial(jax.jit, static_argnames=("axis", "dtype", "exclusive", "reverse", "arch"))
def cumsum(
    a: Array,
    axis: int = -1,
    dtype: Any = None,
    *,
    exclusive: bool = False,
    reverse: bool = False,
    arch: str | None = None,
) -> Array:
    """Scan an array along an axis on tensor cores, as `jax.numpy.cumsum` does.

    Parameters
    ----------
    axis : int
        The axis.
    exclusive, reverse : bool
        As in `tcusim.cumsum`.
    a, dtype, arch
        As in `sum`.

    Returns
    -------
    array
        Of the shape of `a`.

    Raises
    ------
    InputError
        If there is no such axis.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, tcusim.jax
    >>> jax.grad(lambda x: tcusim.jax.cumsum(x).sum())(jnp.ones(3)).tolist()
    [3.0, 2.0, 1.0]
    """
    values = jnp.asarray(a)
    how = (_axis(values, axis), exclusive, reverse, arch)
    return _cumsum(values, how, _result(values, dtype))


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _cumsum(a: Array, how: tuple[int, bool, bool, str | None], dtype: Any) -> Array:
    axis, exclusive, reverse, arch = how
    rows = jnp.moveaxis(a, axis, -1)
    order = {"exclusive": exclusive, "reverse": reverse}
    scans = called("cumsum", jax.ShapeDtypeStruct(rows.shape, dtype), rows, arch=arch, **order)
    return jnp.moveaxis(scans, -1, axis)


def _cumsum_forward(a: Array, how: Any, dtype: Any) -> tuple[Array, Array]:
    return _cumsum(a, how, dtype), a


def _cumsum_backward(how: Any, dtype: Any, a: Array, gradient: Array) -> tuple[Array]:
    axis, exclusive, reverse, arch = how
    turned = (axis, exclusive, not reverse, arch)
    return (_cumsum(gradient, turned, dtype).astype(a.dtype),)


_cumsum.defvjp(_cumsum_forward, _cumsum_backward)


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
    values, ids = jnp.asarray(data), jnp.asarray(segment_ids)
    if ids.ndim != 1 or values.shape[:1] != ids.shape or not jnp.issubdtype(ids.dtype, jnp.integer):
        raise InputError(
            f"segment_ids must be integers, one for each of the first axis of data; data is "
            f"{values.shape}, segment_ids {ids.dtype} {ids.shape}"
        )
    if mode is not None and jax.lax.GatherScatterMode.from_any(mode) != _DROP:
        raise InputError(f"mode must be None or 'drop', got {mode!r}")
    if num_segments is None:
        num_segments = int(ids.max()) + 1 if ids.size else 0
    return _segments(values, ids, num_segments, indices_are_sorted, _result(values, dtype), arch)


_DROP = jax.lax.GatherScatterMode.from_any("drop")


@partial(jax.jit, static_argnums=(2, 3, 4, 5))
def _segments(
    data: Array, ids: Array, count: int, is_sorted: bool, dtype: Any, arch: str | None
) -> Array:
    return _segment_sum(data, ids, count, is_sorted, dtype, arch)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4, 5))
def _segment_sum(
    data: Array, ids: Array, count: int, is_sorted: bool, dtype: Any, arch: str | None
) -> Array:
    if not is_sorted:
        order = jnp.argsort(ids, stable=True)
        data, ids = data[order], ids[order]
    # A type that holds the number of segments.
    ids = ids.astype(jnp.promote_types(ids.dtype, jnp.int32))
    # In front of the first segment and behind the last one lies what is left out.
    borders = jnp.searchsorted(ids, jnp.arange(count + 1, dtype=ids.dtype))
    edges = jnp.concatenate([jnp.array([0]), borders, jnp.array([ids.size])])
    rows = data.reshape(ids.size, math.prod(data.shape[1:])).T
    offsets = jnp.broadcast_to(edges, (rows.shape[0], edges.size))
    sums = _sums_of_rows(rows, offsets, dtype, arch)[:, 1:-1]
    return sums.T.reshape(count, *data.shape[1:])


def _sums_of_rows(rows: Array, offsets: Array, dtype: Any, arch: str | None) -> Array:
    """Return the sums of segments of rows, each with offsets of its own."""

    def compute(rows: Array, offsets: Array) -> Array:
        number, length = rows.shape
        wide = offsets.astype(_result(offsets, None))
        if rows.size > jnp.iinfo(wide.dtype).max:
            raise InputError(
                f"{rows.size} elements have offsets of 64 bits: set jax_enable_x64, or sum fewer"
            )
        # End to end, the rows are one.
        starts = jnp.arange(number, dtype=wide.dtype)[:, None] * length
        flat = jnp.append((wide[:, :-1] + starts).reshape(-1), jnp.array(rows.size, wide.dtype))
        result = jax.ShapeDtypeStruct((flat.size - 1,), dtype)
        found = called("segmented_sum", result, rows.reshape(-1), _halves(flat), arch=arch)
        return found.reshape(number, offsets.shape[1] - 1)

    def compute_batch(size: int, batched: list[bool], *given: Array) -> tuple[Array, bool]:
        # More rows.
        rows, offsets = (
            one if own else jnp.broadcast_to(one, (size, *one.shape))
            for one, own in zip(given, batched, strict=True)
        )
        flat = (one.reshape(math.prod(one.shape[:2]), one.shape[2]) for one in (rows, offsets))
        return sums(*flat).reshape(*rows.shape[:2], offsets.shape[2] - 1), True

    sums: Any = jax.custom_batching.custom_vmap(compute)
    sums.def_vmap(compute_batch)
    found: Array = sums(rows, offsets)
    return found


def _halves(offsets: Array) -> Array:
    """Return integers of 64 bits as pairs of 32, which JAX always has; the lower ones first."""
    if offsets.dtype.itemsize == 8:
        return jax.lax.bitcast_convert_type(offsets, jnp.uint32)
    low = offsets.astype(jnp.uint32)
    return jnp.stack([low, jnp.zeros_like(low)], -1)


def _segment_sum_forward(
    data: Array, ids: Array, count: int, is_sorted: bool, dtype: Any, arch: str | None
) -> Any:
    return _segment_sum(data, ids, count, is_sorted, dtype, arch), (data, ids)


def _segment_sum_backward(
    count: int, is_sorted: bool, dtype: Any, arch: str | None, kept: Any, gradient: Array
) -> Any:
    del is_sorted, dtype, arch
    data, ids = kept
    if not count:
        return jnp.zeros_like(data), np.zeros(ids.shape, jax.dtypes.float0)
    is_within = ((ids >= 0) & (ids < count)).reshape(-1, *[1] * (data.ndim - 1))
    own = jnp.where(is_within, gradient.at[ids].get(mode="clip"), 0).astype(data.dtype)
    return own, np.zeros(ids.shape, jax.dtypes.float0)


_segment_sum.defvjp(_segment_sum_forward, _segment_sum_backward)


@partial(jax.jit, static_argnames=("dtype", "arch"))
def matmul(a: Array, b: Array, *, dtype: Any = None, arch: str | None = None) -> Array:
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
    return _matmul(left, right, _result(left, dtype), arch)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _matmul(a: Array, b: Array, dtype: Any, arch: str | None) -> Array:
    stack = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    # Axes that vmap adds in front of both must find each other.
    rank = len(stack) + 2
    a, b = (jnp.expand_dims(one, tuple(range(rank - one.ndim))) for one in (a, b))
    result = jax.ShapeDtypeStruct((*stack, a.shape[-2], b.shape[-1]), dtype)
    return called("matmul", result, a, b, arch=arch)


def _matmul_forward(a: Array, b: Array, dtype: Any, arch: str | None) -> Any:
    return _matmul(a, b, dtype, arch), (a, b)


def _matmul_backward(dtype: Any, arch: str | None, kept: Any, gradient: Array) -> Any:
    a, b = kept
    for_a = _matmul(gradient.astype(b.dtype), jnp.swapaxes(b, -1, -2), dtype, arch)
    for_b = _matmul(jnp.swapaxes(a, -1, -2), gradient.astype(a.dtype), dtype, arch)
    return _summed_to(for_a, a), _summed_to(for_b, b)


_matmul.defvjp(_matmul_forward, _matmul_backward)


def _summed_to(gradient: Array, like: Array) -> Array:
    """Return a gradient summed over what was broadcast."""
    spare = gradient.ndim - like.ndim
    axes = [*range(spare)]
    axes += [
        place + spare
        for place, size in enumerate(like.shape)
        if size == 1 and gradient.shape[place + spare] != 1
    ]
    for place in sorted(axes, reverse=True):
        gradient = sum(gradient, place, keepdims=True)
    return gradient.reshape(like.shape).astype(like.dtype)
