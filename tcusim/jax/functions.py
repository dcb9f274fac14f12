"""`sum`, `cumsum`, `segment_sum` and `matmul` as functions that JAX can transform."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

import tcusim
from tcusim.errors import InputError

__all__ = ["cumsum", "matmul", "segment_sum", "sum"]

Array: TypeAlias = Any


def _called(
    function: Callable[..., Any], shape: tuple[int, ...], dtype: Any, *arrays: Array
) -> Array:
    """Return what a function of NumPy arrays computes, as an operation of JAX.

    The function takes more axes in front, which `jax.vmap` adds.
    """
    result = jax.ShapeDtypeStruct(shape, dtype)

    def compute(*values: Any) -> Any:
        found = function(*map(np.asarray, values))
        return np.asarray(found, dtype)

    return jax.pure_callback(compute, result, *arrays, vmap_method="broadcast_all")


def _axis(a: Array, axis: int) -> int:
    """Return an axis counted from the last, so that more may come in front."""
    if not -a.ndim <= axis < a.ndim:
        raise InputError(f"axis must be within {-a.ndim}..{a.ndim - 1}, got {axis!r}")
    place: int = axis % a.ndim - a.ndim
    return place


def _result(a: Array, dtype: Any) -> Any:
    """Return the type of sums: JAX's, which has 64 bits where it is told to."""
    if dtype is not None:
        return jnp.dtype(dtype)
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
    arch: str = "hopper",
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
    arch : str
        Whose bits.

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
def _sum(a: Array, axis: int, dtype: Any, arch: str) -> Array:
    shape = a.shape[: a.ndim + axis] + a.shape[a.ndim + axis + 1 :]
    return _called(partial(tcusim.sum, axis=axis, dtype=dtype, arch=arch), shape, dtype, a)


def _sum_forward(a: Array, axis: int, dtype: Any, arch: str) -> tuple[Array, Array]:
    return _sum(a, axis, dtype, arch), a


def _sum_backward(axis: int, dtype: Any, arch: str, a: Array, gradient: Array) -> tuple[Array]:
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
    arch: str = "hopper",
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
def _cumsum(a: Array, how: tuple[int, bool, bool, str], dtype: Any) -> Array:
    axis, exclusive, reverse, arch = how
    scan = partial(
        tcusim.cumsum, axis=axis, dtype=dtype, exclusive=exclusive, reverse=reverse, arch=arch
    )
    return _called(scan, a.shape, dtype, a)


def _cumsum_forward(a: Array, how: Any, dtype: Any) -> tuple[Array, Array]:
    return _cumsum(a, how, dtype), a


def _cumsum_backward(how: Any, dtype: Any, a: Array, gradient: Array) -> tuple[Array]:
    axis, exclusive, reverse, arch = how
    turned = (axis, exclusive, not reverse, arch)
    return (_cumsum(gradient, turned, dtype).astype(a.dtype),)


_cumsum.defvjp(_cumsum_forward, _cumsum_backward)


@partial(jax.jit, static_argnames=("num_segments", "dtype", "arch"))
def segment_sum(
    data: Array,
    segment_ids: Array,
    num_segments: int,
    *,
    dtype: Any = None,
    arch: str = "hopper",
) -> Array:
    """Sum segments of the first axis on tensor cores, as `jax.ops.segment_sum` does.

    Parameters
    ----------
    data : array, shape (n, ...)
        As in `sum`.
    segment_ids : array of int, shape (n,)
        The segment of each element; they never decrease.
    num_segments : int
        How many segments there are.
    dtype, arch
        As in `sum`.

    Returns
    -------
    array, shape (num_segments, ...)
        A segment's bits do not depend on the others.

    Raises
    ------
    InputError
        When it is computed: if ids decrease, or are not below `num_segments`.

    Examples
    --------
    >>> import jax.numpy as jnp, tcusim.jax
    >>> tcusim.jax.segment_sum(jnp.arange(4.0), jnp.array([0, 0, 2, 2]), 3).tolist()
    [1.0, 0.0, 5.0]
    """
    values = jnp.asarray(data)
    return _segment_sum(
        values, jnp.asarray(segment_ids), num_segments, _result(values, dtype), arch
    )


@partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def _segment_sum(data: Array, ids: Array, count: int, dtype: Any, arch: str) -> Array:
    rank = data.ndim

    def compute(values: Any, numbers: Any) -> Any:
        if numbers.ndim == 1:
            return tcusim.segmented_sum(
                values, segment_ids=numbers, num_segments=count, axis=-rank, dtype=dtype, arch=arch
            )
        # Of a batch each example has ids of its own.
        return np.stack([compute(*one) for one in zip(values, numbers, strict=True)])

    return _called(compute, (count, *data.shape[1:]), dtype, data, ids)


def _segment_sum_forward(data: Array, ids: Array, count: int, dtype: Any, arch: str) -> Any:
    return _segment_sum(data, ids, count, dtype, arch), (data, ids)


def _segment_sum_backward(count: int, dtype: Any, arch: str, kept: Any, gradient: Array) -> Any:
    del count, dtype, arch
    data, ids = kept
    return gradient[ids].astype(data.dtype), np.zeros(ids.shape, jax.dtypes.float0)


_segment_sum.defvjp(_segment_sum_forward, _segment_sum_backward)


@partial(jax.jit, static_argnames=("dtype", "arch"))
def matmul(a: Array, b: Array, *, dtype: Any = None, arch: str = "hopper") -> Array:
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
def _matmul(a: Array, b: Array, dtype: Any, arch: str) -> Array:
    stack = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    multiply = partial(tcusim.matmul, dtype=dtype, arch=arch)
    return _called(multiply, (*stack, a.shape[-2], b.shape[-1]), dtype, a, b)


def _matmul_forward(a: Array, b: Array, dtype: Any, arch: str) -> Any:
    return _matmul(a, b, dtype, arch), (a, b)


def _matmul_backward(dtype: Any, arch: str, kept: Any, gradient: Array) -> Any:
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
