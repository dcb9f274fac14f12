"""Sums, scans, segments and products as functions that JAX can transform."""

from __future__ import annotations

import math
import operator
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from tcusim.arrays.dtypes import TypeRule, numpy_type, result_type, types_on_host
from tcusim.arrays.home import first_terms, no_integers
from tcusim.arrays.libraries import require_broadcast, require_real
from tcusim.arrays.segments import require_flat, require_one_each
from tcusim.arrays.spec import Spec, axes_of, count_of
from tcusim.call_options import AnyOptions, Bits, options_of, others, require_bits
from tcusim.errors import InputError, require_flags
from tcusim.jax.primitives import How, computed
from tcusim.machine import arch_of
from tcusim.machine.formats import format_of

__all__ = ["cumsum", "matmul", "matvec", "segment_cumsum", "segment_sum", "sum"]

Array: TypeAlias = jax.Array


def _index(value: Any) -> Any:
    """Return an integer of any library as Python's; other values as they are."""
    # A number that is traced has no value.
    with suppress(TypeError):
        return value if isinstance(value, bool) else operator.index(value)
    return value


def _axes(a: Array, axis: Any, *, several: bool = True) -> tuple[int, ...]:
    """Return axes counted from the first, in the order in which they are named; None is all."""
    if axis is None:
        return tuple(range(a.ndim))
    given = tuple(map(_index, axis)) if isinstance(axis, tuple | list) else _index(axis)
    return axes_of("axis", given, a.ndim, several=several)


def _options(function: str, given: AnyOptions) -> tuple[str | None, Bits]:
    """Return the architecture and the kind of bits of a call: static under tracing."""
    taken = ("arch", "bits") if function in ("sum", "cumsum") else ("arch",)
    own = options_of(given, f"tcusim.jax.{function}", *others(*taken))
    return own.arch, own.planned[-1]


def _rule(
    a: Array,
    dtype: Any,
    arch: str | None,
    *,
    keeps: bool = False,
    product: bool = False,
    bits: str = "segment",
    name: str = "a",
) -> TypeRule:
    """Return the types of sums. The result's is JAX's, which has 64 bits where it is told to.

    Impossible calls are refused here, while they are traced, and not when they run. keeps:
    whether sums of integers are of their own type, and not of the wide one. name: of the array.
    """
    require_real(name, a.dtype)
    require_bits(bits)
    given, kind = a.dtype.name, _kind(a)
    keeps = keeps and kind != "b" and dtype is None
    wanted = given if keeps else result_type(given, kind, dtype)
    result = jax.dtypes.canonicalize_dtype(numpy_type(wanted))
    place = "hopper" if arch is None else arch_of(arch).name
    spec = Spec("matmul" if product else "sum", dtype=result.name, bits=bits)
    rule = types_on_host(spec, given, place)
    rule.types.require_on(place)
    return rule


def _kind(a: Array) -> str:
    """Return NumPy's letter for the kind of a type; of a key of JAX's, none."""
    return getattr(a.dtype, "kind", "")


def _work(rule: TypeRule) -> Any:
    """Return the type in which sums come, before they are cast to the result's.

    GPUs sum int8 in int32, of which a narrower integer keeps the last bits.
    """
    result = jnp.dtype(rule.result)
    is_narrow = rule.given == "int8" and result.kind in "iu" and result.itemsize <= 4
    return np.dtype(np.int32) if is_narrow else result


def sum(
    a: ArrayLike,
    axis: int | tuple[int, ...] | None = None,
    dtype: Any = None,
    *,
    keepdims: bool = False,
    options: AnyOptions = None,
) -> Array:
    """Sum an array on tensor cores, as `jax.numpy.sum` does.

    Parameters
    ----------
    a : array
        float16, bfloat16, float32, integers or bool; float64 where JAX has it.
    axis : int or tuple of int, optional
        The axes to sum; None sums all.
    dtype : dtype, optional
        Type of the result; by default that of `a`; of integers JAX's wide one, which is unsigned
        for unsigned integers. Integers are summed modulo 2 to the power of its bits.
    keepdims : bool
        Keep the axes, with length 1.
    options : Options or mapping, optional
        `arch` and `bits`, as `tcusim.Options` tells. By default it has the bits of the GPU on which
        it runs, on the CPU those of Hopper; those of another GPU, and exact ones, are computed on
        the host. Options are traced: those of `tcusim.options` are read then.

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
    arch, bits = _options("sum", options)
    rule = _rule(values, dtype, arch, bits=bits)
    require_flags(keepdims=keepdims)
    axes = _axes(values, axis)
    total = _sum(values, axes, How("sum", _work(rule), arch, bits=bits)).astype(rule.result)
    return jnp.expand_dims(total, axes) if keepdims else total


@partial(jax.jit, static_argnums=(1, 2))
def _sum(values: Array, axes: tuple[int, ...], how: How) -> Array:
    rows = jnp.moveaxis(values, axes, range(-len(axes), 0)) if axes else values
    rest = rows.shape[: values.ndim - len(axes)]
    return computed(how, rows.reshape(*rest, math.prod(values.shape[one] for one in axes)))


def cumsum(
    a: ArrayLike,
    axis: int | None = None,
    dtype: Any = None,
    *,
    exclusive: bool = False,
    reverse: bool = False,
    initial: ArrayLike | None = None,
    options: AnyOptions = None,
) -> Array:
    """Scan an array along an axis on tensor cores, as `jax.numpy.cumsum` does.

    Parameters
    ----------
    axis : int, optional
        The axis; None scans the flattened array.
    exclusive, reverse : bool
        As in `tcusim.cumsum`.
    initial : array or number, optional
        An addend of every sum, before the first element (in reverse, after the last): it
        is broadcast to the shape of `a` without the axis. It is added before the rounding; where
        exact sums are rounded, as float64 if JAX has it. Integer sums take integers alone.
    dtype : dtype, optional
        Type of the result; by default that of `a`, or JAX's wide integer for bool.
    a, options
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
    arch, bits = _options("cumsum", options)
    rule = _rule(values, dtype, arch, keeps=True, bits=bits)
    require_flags(exclusive=exclusive, reverse=reverse)
    if axis is None:
        values, axis = values.reshape(-1), 0
    (place,) = _axes(values, axis, several=False)
    rows = jnp.moveaxis(values, place, -1)
    given = [rows]
    if initial is not None:
        given.append(_before(initial, rows.shape[:-1], rule))
    how = How("cumsum", _work(rule), arch, bool(exclusive), bool(reverse), bits)
    return jnp.moveaxis(computed(how, *given).astype(rule.result), -1, place)


def _before(initial: ArrayLike, shape: tuple[int, ...], rule: TypeRule) -> Array:
    """Return the initial values of rows, broadcast to them, in the type of their sums."""
    name = format_of(rule.types.sums).array_name
    if rule.method in ("digits", "fixed point"):
        name = rule.result if rule.method == "digits" else "float64"
    is_integer = jnp.dtype(rule.result).kind in "iu"
    wide = _work(rule) if is_integer else jax.dtypes.canonicalize_dtype(jnp.dtype(name))
    kept, result = np.dtype(wide), np.dtype(rule.result)
    if not isinstance(initial, jax.Array):
        # JAX would cast to 32 bits first.
        initial = first_terms(initial, np.shape(initial), kept, result)
    values = jnp.asarray(initial)
    require_real("initial", values.dtype)
    if is_integer and _kind(values) not in tuple("biu"):
        raise no_integers("initial", values.dtype, rule.result)
    own = result if is_integer else kept
    if not isinstance(values, jax.core.Tracer) and not np.can_cast(values.dtype, own):
        first_terms(np.asarray(values), values.shape, kept, result)
    require_broadcast("initial", values.shape, shape)
    # Its own axes stay, so that its gradient is summed over the others in one order.
    return jnp.expand_dims(values, tuple(range(len(shape) - values.ndim))).astype(wide)


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
    options: AnyOptions = None,
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
    dtype : dtype, optional
        Type of the result; by default that of `data`, or JAX's wide integer for bool.
    options : Options or mapping, optional
        `arch`, as in `sum`.

    Returns
    -------
    array, shape (num_segments, ...)
        A segment's bits do not depend on the others.

    Raises
    ------
    InputError
        If the shapes or types do not fit, or `num_segments` or `mode` is another.

    Examples
    --------
    >>> import jax.numpy as jnp, tcusim.jax
    >>> tcusim.jax.segment_sum(jnp.arange(4.0), jnp.array([0, 0, 2, 2]), 3).tolist()
    [1.0, 0.0, 5.0]
    """
    require_flags(indices_are_sorted=indices_are_sorted, unique_indices=unique_indices)
    del bucket_size
    if mode is not None and _mode(mode) != _DROP:
        raise InputError(f"mode must be None or 'drop', got {mode!r}")
    values, ids = _with_ids(data, segment_ids)
    arch, _ = _options("segment_sum", options)
    rule = _rule(values, dtype, arch, keeps=True, name="data")
    if num_segments is None:
        if isinstance(ids, jax.core.Tracer):
            raise InputError("num_segments must be given where segment_ids are traced")
        num_segments = int(ids.max()) + 1 if ids.size else 0
    count = _count(num_segments)
    how = How("segmented_sum", _work(rule), arch)
    return _sums(values, ids, count, bool(indices_are_sorted), how).astype(rule.result)


_DROP = jax.lax.GatherScatterMode.from_any("drop")


def _mode(mode: Any) -> Any:
    """Return a mode of JAX's, or None."""
    try:
        return jax.lax.GatherScatterMode.from_any(mode)
    except (ValueError, TypeError):
        return None


def _count(number: Any) -> int:
    """Return a number of segments; refuse other values."""
    return count_of("num_segments", _index(number), 0)


def _with_ids(data: ArrayLike, segment_ids: ArrayLike) -> tuple[Array, Array]:
    """Return elements and their ids, of a type that holds their number."""
    values, ids = jnp.asarray(data), jnp.asarray(segment_ids)
    if not values.ndim:
        raise InputError("data has no axes, and no segments; reshape it to (1,)")
    require_flat("segment_ids", ids, is_integer=jnp.issubdtype(ids.dtype, jnp.integer))
    require_one_each("segment_ids", ids.size, values.shape[0])
    return values, ids if ids.size else ids.astype(int)


def _rows_of(data: Array) -> Array:
    """Return the first axis of an array as the last one of rows."""
    return data.reshape(data.shape[0], math.prod(data.shape[1:])).T


@partial(jax.jit, static_argnums=(2, 3, 4))
def _sums(data: Array, ids: Array, count: int, is_sorted: bool, how: How) -> Array:
    if not is_sorted:
        order = jnp.argsort(ids, stable=True)
        data, ids = data[order], ids[order]
    # A type that holds the number of segments.
    ids = ids.astype(jnp.promote_types(ids.dtype, jnp.int32))
    # Elements before the first segment and after the last one are left out.
    borders = jnp.searchsorted(ids, jnp.arange(count + 1, dtype=ids.dtype))
    edges = jnp.concatenate([jnp.array([0]), borders, jnp.array([ids.size])])
    rows = _rows_of(data)
    offsets = jnp.broadcast_to(edges, (rows.shape[0], edges.size))
    sums = computed(how, rows, offsets)[:, 1:-1]
    return sums.T.reshape(count, *data.shape[1:])


def segment_cumsum(
    data: ArrayLike,
    segment_ids: ArrayLike,
    indices_are_sorted: bool = False,
    *,
    exclusive: bool = False,
    reverse: bool = False,
    dtype: Any = None,
    options: AnyOptions = None,
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
    dtype, options
        As in `segment_sum`.

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
    arch, _ = _options("segment_cumsum", options)
    rule = _rule(values, dtype, arch, keeps=True, name="data")
    require_flags(indices_are_sorted=indices_are_sorted, exclusive=exclusive, reverse=reverse)
    if not ids.size:
        return jnp.zeros(values.shape, rule.result)
    how = How("segmented_cumsum", _work(rule), arch, bool(exclusive), bool(reverse))
    return _scans(values, ids, bool(indices_are_sorted), how).astype(rule.result)


@partial(jax.jit, static_argnums=(2, 3))
def _scans(values: Array, ids: Array, is_sorted: bool, how: How) -> Array:
    order = jnp.arange(ids.size)
    if not is_sorted:
        order = jnp.argsort(ids, stable=True)
    values, ids = values[order], ids[order]
    # Segments are numbered in their order; there are as many as elements at most.
    number = jnp.cumsum(jnp.concatenate([jnp.zeros(1, int), ids[1:] != ids[:-1]]))
    edges = jnp.searchsorted(number, jnp.arange(ids.size + 1))
    rows = _rows_of(values)
    offsets = jnp.broadcast_to(edges, (rows.shape[0], edges.size))
    scans = computed(how, rows, offsets).T.reshape(values.shape)
    return scans[jnp.argsort(order)]


def matmul(a: ArrayLike, b: ArrayLike, *, dtype: Any = None, options: AnyOptions = None) -> Array:
    """Multiply matrices on tensor cores, as `jax.numpy.matmul` does.

    Parameters
    ----------
    a, b : array, shape (..., m, k) and (..., k, n)
        Of one float type, or of integers; axes in front are broadcast.
    dtype
        As in `sum`.
    options : Options or mapping, optional
        `arch`, as in `sum`.

    Returns
    -------
    array, shape (..., m, n)
        A row's bits do not depend on the other rows of `a`.

    Raises
    ------
    InputError, Unsupported
        If the shapes do not fit, or such types are not multiplied; while it is traced.

    Examples
    --------
    >>> import jax.numpy as jnp, tcusim.jax
    >>> tcusim.jax.matmul(jnp.eye(2), jnp.ones((2, 1))).tolist()
    [[1.0], [1.0]]
    """
    return _product("matmul", a, b, dtype, options)


def matvec(a: ArrayLike, x: ArrayLike, *, dtype: Any = None, options: AnyOptions = None) -> Array:
    """Multiply matrices by vectors on tensor cores, as `jax.numpy.matvec` does.

    Parameters
    ----------
    a, x : array, shape (..., m, k) and (..., k)
        Of one float type, or of integers; axes in front are broadcast.
    dtype
        As in `sum`.
    options : Options or mapping, optional
        `arch`, as in `sum`.

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
    return _product("matvec", a, x, dtype, options)


def _product(name: str, a: ArrayLike, b: ArrayLike, dtype: Any, options: AnyOptions) -> Array:
    left, right = jnp.asarray(a), jnp.asarray(b)
    own = 2 if name == "matmul" else 1
    if name == "matmul" and min(left.ndim, right.ndim) < 2:
        raise InputError(
            f"a must be (..., m, k) and b (..., k, n); got shapes {left.shape} and {right.shape}"
        )
    # Refuses factors that do not fit.
    Spec(name).product_layout(left.shape, right.shape)
    arch, _ = _options(name, options)
    factors = {"a": left, "b" if own == 2 else "x": right}
    how = How(name, _product_type(factors, dtype, arch), arch)
    lead = max(left.ndim - 2, right.ndim - own)
    # Axes that vmap adds in front of both must find each other.
    left, right = (
        jnp.expand_dims(one, tuple(range(lead - one.ndim + last)))
        for one, last in ((left, 2), (right, own))
    )
    return computed(how, left, right)


def _product_type(factors: dict[str, Array], dtype: Any, arch: str | None) -> Any:
    left, right = factors.values()
    kinds = {_kind(one) in tuple("biu") for one in (left, right)}
    if left.dtype != right.dtype and kinds != {True}:
        raise InputError(
            f"factors must be of one float type, or of integers; got {left.dtype} and "
            f"{right.dtype}: cast one of them"
        )
    results = (
        _rule(one, dtype, arch, product=True, name=name).result for name, one in factors.items()
    )
    # The signed type of integers of both kinds, as of NumPy arrays.
    return jnp.dtype(min(results))
