"""Means, norms and softmax whose bits do not depend on the batch.

Only their sums add anything, and those are this package's. Everything else is done element by
element, or is a maximum, for which the order does not matter. Squares and terms of sums are
float32; the results have the type of the input. But for float64, `rms_norm` is one program, which
reads a row once.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import torch
from torch.compiler import is_compiling

from tcusim.errors import InputError, require_flags
from tcusim.torch.functions import (
    Tensor,
    dims_of,
    is_simple,
    require_memory,
    require_tensor,
    sqrt,
    sum_at_once,
    with_whole,
)
from tcusim.torch.functions import sum as tensor_sum
from tcusim.torch.jagged import along, elements, is_nested
from tcusim.torch.norm_operators import (
    are_fused,
    asked_of,
    rms_norm_again,
    rms_norm_at_once,
    rms_norm_kernel,
    rms_scales_kernel,
)
from tcusim.torch.operators import (
    axes_of,
    axis_of,
    divided,
    divisor,
    is_integer,
    operator,
    require_one_place,
    require_summable,
    result_type,
)

__all__ = [
    "centred",
    "last_axes",
    "layer_norm",
    "log_softmax",
    "logsumexp",
    "mean",
    "normalised",
    "rms_norm",
    "softmax",
]


def _wide(input: Tensor) -> Tensor:
    """Return a tensor in the type of the sums: float32, or float64."""
    return input if input.dtype == torch.float64 else input.float()


def _narrow(result: Tensor, wanted: Any) -> Tensor:
    return result if result.dtype == wanted else result.to(wanted)


def _float_type(name: str, input: Tensor, dtype: Any) -> Any:
    """Return the type of a result; raise InputError for one of integers."""
    wanted = result_type(dtype, input.dtype)
    if not wanted.is_floating_point:
        raise InputError(f"{name} has results of float types, not of {wanted}: cast the result")
    return wanted


def _rounded(
    function: Callable[..., Tensor], fresh: Tensor, other: Tensor, wanted: Any, *, simple: bool
) -> Tensor:
    """Return torch's quotient or difference of two tensors, rounded to a type in the end.

    simple: whether no operation is recorded; then one pass computes and rounds it, into `fresh` if
    that has the type.
    """
    if not simple:
        return _narrow(function(fresh, other), wanted)
    # The result is rounded to the type of the operands first, wherever it is put.
    out = fresh if fresh.dtype == wanted else torch.empty_like(fresh, dtype=wanted)
    return function(fresh, other, out=out)


def _require_float(name: str, input: Tensor) -> None:
    require_tensor("input", input)
    require_memory("input", input)
    require_summable("input", input)
    if not input.dtype.is_floating_point:
        raise InputError(f"{name} takes float tensors, got {input.dtype}. Cast it: input.float()")


def _of_elements(name: str, wide: Tensor) -> Tensor:
    """Return torch's "exp" or "log" of each element.

    Compiled code calls it as an operator's kernel: Inductor's own code has other last bits.
    """
    if is_compiling():
        return operator(name)(wide)
    result: Tensor = getattr(torch, name)(wide)
    return result


def _by_rows(
    input: Tensor, axes: tuple[int, ...], compute: Callable[[Tensor], Tensor], **named: Any
) -> Tensor:
    """Return the result of whole rows, where a DTensor has its elements.

    named: the argument that tells the axes, if that is no shape.

    Derivatives have sums of torch's own, along these axes. Of rows that are cut, a collective would
    add them.
    """
    if is_nested(input):
        ((name, dim),) = named.items() or [("the axes of normalized_shape", axes)]
        return along(input, dim, True, lambda values, _: compute(values), name)
    whole = with_whole(input, axes)
    result = compute(whole)
    return result if whole is input else result.redistribute(placements=input.placements)


def _from_the_last(input: Tensor, dim: int) -> int:
    """Return an axis counted from the last, as it is in the values of a nested tensor, too."""
    rank = max(1, input.dim())
    axis: int = axis_of(dim, rank) - rank
    return axis


def mean(
    input: Tensor,
    dim: int | tuple[int, ...] | None = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Tensor:
    """Return the mean along axes, as `torch.mean` does.

    Parameters
    ----------
    input : Tensor
        Of a float type.
    dim : int or tuple of int, optional
        Axes; None takes all.
    keepdim : bool
        Keep these axes, with length 1.
    dtype : torch.dtype, optional
        Type of the result; by default that of `input`.

    Returns
    -------
    Tensor
        The sum in float32, or float64, divided by the number of elements.

    Raises
    ------
    InputError
        If `input` is of integers.

    Examples
    --------
    >>> import tcusim.torch as tct, torch
    >>> tct.mean(torch.arange(6.0).reshape(2, 3), dim=1)
    tensor([1., 4.])
    """
    _require_float("mean", input)
    axes = dims_of(dim)
    wanted = _float_type("mean", input, dtype)
    wide = torch.float64 if torch.float64 in (input.dtype, dtype) else torch.float32
    if is_simple(input):
        total = sum_at_once(input, axes, keepdim, wide)
        by = divisor(input.numel() // (total.numel() or 1), total)
        return _rounded(torch.div, total, by, wanted, simple=True)
    if is_nested(input):
        if axes is None:
            return mean(elements(input), dtype=dtype)
        return along(input, dim, keepdim, partial(mean, keepdim=keepdim, dtype=dtype))
    total = tensor_sum(input, axes, keepdim, dtype=wide)
    count = 1
    for axis in axes_of(axes, input.dim()):
        count = count * input.shape[axis]
    return _narrow(divided(total, count), wanted)


def last_axes(input: Tensor, normalized_shape: Any, eps: Any, **beside: Any) -> tuple[int, ...]:
    """Return the axes that a norm is over; refuse other shapes than that of the last axes.

    beside: factors and addends of the result, by name.
    """
    one_axis = is_integer(normalized_shape)
    if not one_axis and not isinstance(normalized_shape, tuple | list):
        raise InputError(
            f"normalized_shape must be an integer or a tuple of integers, got {normalized_shape!r}"
        )
    shape = (normalized_shape,) if one_axis else tuple(normalized_shape)
    if not shape or tuple(input.shape[-len(shape) :]) != shape:
        raise InputError(
            f"normalized_shape must be the last axes of the input; it is {shape}, and the input "
            f"has shape {tuple(input.shape)}"
        )
    for name, one in beside.items():
        if one is None:
            continue
        require_tensor(name, one)
        require_one_place({"input": input, name: one})
        require_memory(name, one)
        if tuple(one.shape) != shape:
            raise InputError(
                f"{name} must be of the same shape as normalized_shape, {shape}; its shape is "
                f"{tuple(one.shape)}"
            )
    if not isinstance(eps, numbers.Real | torch.SymFloat):
        raise InputError(f"eps must be a number, got {eps!r}")
    if isinstance(eps, numbers.Integral) and abs(int(eps)) >= 2**1023:
        raise InputError("eps is beyond the range of torch.float64")
    return tuple(range(-len(shape), 0))


def rms_norm(
    input: Tensor,
    normalized_shape: int | tuple[int, ...],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Divide by the root of the mean square, as `torch.nn.functional.rms_norm` does.

    Parameters
    ----------
    input : Tensor
        Of a float type.
    normalized_shape : int or tuple of int
        The last axes, over which the mean is.
    weight : Tensor, optional
        Multiplies the result; of that shape.
    eps : float, optional
        Added to the mean square. By default the smallest step at 1 of the type of the computation,
        float32 or float64, as in torch.

    Returns
    -------
    Tensor
        Of the shape and type of `input`: input / sqrt(mean of the squares + eps) * weight in
        float32, or float64, each operation rounded once. Of rows of up to 20,480 elements of half
        precision, or 10,240 of float32, it is input * (1 / sqrt(...)) * weight. A row whose mean
        square overflows is 0, as in torch.

    Raises
    ------
    InputError
        If the input does not end in that shape or is of integers, or if `weight` has another shape.

    Examples
    --------
    >>> import tcusim.torch as tct, torch
    >>> tct.rms_norm(torch.tensor([[3.0, 4.0]]), 2, eps=0.0)
    tensor([[0.8485, 1.1314]])
    """
    key = None
    if is_simple(input, weight) and input.is_cuda:
        key = asked_of(input, weight, normalized_shape, eps)
        result = rms_norm_again(key, input, weight)
        if result is not None:
            return result
    _require_float("rms_norm", input)
    added = added_by_rms_norm(input, eps)
    axes = last_axes(input, normalized_shape, added, weight=weight)
    return _by_rows(input, axes, lambda rows: normalised(rows, axes, weight, added, key=key)[0])


def added_by_rms_norm(input: Tensor, eps: float | None) -> float:
    """Return the addend of mean squares: `eps`, or the epsilon of the computation's type."""
    if eps is not None:
        return eps
    of_double = input.dtype == torch.float64
    return float(torch.finfo(torch.float64 if of_double else torch.float32).eps)


def normalised(
    input: Tensor,
    axes: tuple[int, ...],
    weight: Tensor | None,
    eps: float,
    *,
    scales: bool = False,
    key: Hashable | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Return rows divided by the root of their mean square, and the factor of each.

    axes: the last ones. scales: whether that is asked for, and not None. key: by which the launch
    is kept.
    """
    columns = math.prod(input.shape[axes[0] :])
    # A program adds a finite float32.
    is_odd = isinstance(eps, int | float) and not abs(float(eps)) <= torch.finfo(torch.float32).max
    if is_odd or not are_fused(input, columns, weight):
        wide = _wide(input)
        # A division is rounded correctly on every device. Neither rsqrt nor, on a GPU, the
        # reciprocal of torch is.
        rms = sqrt(mean(wide * wide, axes, True) + eps)
        result = wide / rms
        result = _narrow(result if weight is None else result * weight, input.dtype)
        return result, 1 / rms if scales else None
    simple = is_simple(input, weight)
    if simple and not scales:
        return rms_norm_at_once(input, weight, columns, eps, key), None
    # Rows of one axis; more are flattened.
    rows, flat = input, weight
    if len(axes) > 1:
        rows = input.flatten(axes[0])
        flat = None if weight is None else with_whole(weight, axes).flatten()
    result = (rms_norm_kernel if simple else operator("rms_norm"))(rows, flat, eps)
    found = None
    if scales:
        found = (rms_scales_kernel if simple else operator("rms_scales"))(rows, eps)
        found = found.reshape(*input.shape[: axes[0]], *(1 for _ in axes))
    return result if len(axes) == 1 else result.reshape(input.shape), found


def layer_norm(
    input: Tensor,
    normalized_shape: int | tuple[int, ...],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Subtract the mean and divide by the deviation, as `torch.nn.functional.layer_norm` does.

    Parameters
    ----------
    input : Tensor
        Of a float type.
    normalized_shape : int or tuple of int
        The last axes, over which mean and variance are.
    weight, bias : Tensor, optional
        Multiply the result, and are added to it; of that shape.
    eps : float
        Added to the variance, which is the mean square of the differences from the mean.

    Returns
    -------
    Tensor
        Of the shape and type of `input`. A row whose variance overflows the type of the sums (one
        of float32 or bfloat16, with an element beyond some 1.8e19) is NaN, as in torch.

    Raises
    ------
    InputError
        If the input does not end in that shape or is of integers, or if `weight` or `bias` has
        another shape.

    Examples
    --------
    >>> import tcusim.torch as tct, torch
    >>> tct.layer_norm(torch.tensor([[1.0, 3.0]]), 2, eps=0.0)
    tensor([[-1.,  1.]])
    """
    _require_float("layer_norm", input)
    axes = last_axes(input, normalized_shape, eps, weight=weight, bias=bias)
    return _by_rows(input, axes, lambda rows: centred(rows, axes, weight, bias, eps)[0])


def centred(
    input: Tensor, axes: tuple[int, ...], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows normalised by their mean and deviation, and both: the second is a root."""
    wide = _wide(input)
    centre = mean(wide, axes, True)
    differences = wide - centre
    deviation = sqrt(mean(differences * differences, axes, True) + eps)
    # An overflow is NaN, as in torch: finite differences divided by infinity would look right.
    deviation = deviation + (deviation - deviation)
    result = differences / deviation
    result = result if weight is None else result * weight
    result = result if bias is None else result + bias
    return _narrow(result, input.dtype), centre, deviation


def softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Return exponentials divided by their sum, as `torch.softmax` does.

    Parameters
    ----------
    input : Tensor
        Of a float type.
    dim : int
        The axis whose results sum to 1.
    dtype : torch.dtype, optional
        Type of the result; by default that of `input`.

    Returns
    -------
    Tensor
        Of the shape of `input`. The exponentials are torch's, whose last bit differs between
        devices.

    Raises
    ------
    InputError
        If `input` is of integers.

    Examples
    --------
    >>> import tcusim.torch as tct, torch
    >>> tct.softmax(torch.zeros(1, 4), dim=1)
    tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """
    return _of_rows("softmax", input, dim, dtype, _softmax)


def _of_rows(
    name: str, input: Tensor, dim: int, dtype: Any, compute: Callable[..., Tensor]
) -> Tensor:
    """Return the result of rows by their differences from the largest elements, along an axis."""
    _require_float(name, input)
    wanted, axis = _float_type(name, input, dtype), _from_the_last(input, dim)

    def of_values(rows: Tensor) -> Tensor:
        simple = bool(rows.numel()) and is_simple(rows)
        return compute(_shifted(rows, axis), axis, wanted, simple=simple)

    return _by_rows(input, (axis,), of_values, dim=dim)


def _softmax(shifted: Tensor, dim: int, wanted: Any, *, simple: bool) -> Tensor:
    if simple:
        powers = shifted.exp_()
        total = sum_at_once(powers, (dim,), True)
    else:
        powers = _of_elements("exp", shifted)
        total = tensor_sum(powers, dim, True)
    return _rounded(torch.div, powers, total, wanted, simple=simple)


def log_softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Return the logarithm of `softmax`, as `torch.log_softmax` does.

    Parameters
    ----------
    input, dim, dtype
        As in `softmax`.

    Returns
    -------
    Tensor
        Of the shape of `input`.

    Raises
    ------
    InputError
        If `input` is of integers.

    Examples
    --------
    >>> import tcusim.torch as tct, torch
    >>> tct.log_softmax(torch.zeros(1, 4), dim=1)
    tensor([[-1.3863, -1.3863, -1.3863, -1.3863]])
    """
    return _of_rows("log_softmax", input, dim, dtype, _log_softmax)


def _log_softmax(shifted: Tensor, dim: int, wanted: Any, *, simple: bool) -> Tensor:
    total = tensor_sum(_of_elements("exp", shifted), dim, True)
    return _rounded(torch.sub, shifted, _of_elements("log", total), wanted, simple=simple)


def logsumexp(input: Tensor, dim: int | tuple[int, ...] | None, keepdim: bool = False) -> Tensor:
    """Return the logarithm of the sum of exponentials, as `torch.logsumexp` does.

    Parameters
    ----------
    input
        As in `softmax`.
    dim : int or tuple of int, optional
        Axes; None or an empty tuple takes all.
    keepdim : bool
        Keep these axes, with length 1.

    Returns
    -------
    Tensor
        Of the shape of `input` without the axes; -inf where they have no elements.

    Raises
    ------
    InputError
        If `input` is of integers.

    Examples
    --------
    >>> import tcusim.torch as tct, torch
    >>> tct.logsumexp(torch.zeros(1, 4), dim=1)
    tensor([1.3863])
    """
    _require_float("logsumexp", input)
    require_flags(keepdim=keepdim)
    given = dims_of(dim)
    if is_nested(input):
        if given is None:
            return logsumexp(elements(input), None)
        return along(input, dim, keepdim, lambda values, axes: logsumexp(values, axes, keepdim))
    axes = axes_of(given, input.dim()) or (-1,)
    wide = _wide(with_whole(input, axes))
    largest = _largest(wide, axes)
    total = tensor_sum(_of_elements("exp", wide - largest), axes, True)
    total = _of_elements("log", total) + largest
    return _narrow(total if keepdim else total.squeeze(axes), input.dtype)


def _shifted(input: Tensor, dim: int) -> Tensor:
    """Return the differences of elements from the largest, in the type of the sums."""
    if 0 in input.shape:
        return _wide(input)
    # As in torch, a row of -inf gives NaN. Half precision becomes float32 on the way.
    return input - _wide(torch.amax(input, dim, keepdim=True).detach())


def _largest(wide: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return the maximum along axes, 0 where it is infinite: then nothing is subtracted."""
    if 0 in wide.shape:
        shape = list(wide.shape)
        for axis in axes:
            shape[axis] = 1
        return wide.new_zeros(shape)
    found = torch.amax(wide, axes, keepdim=True).detach()
    return torch.where(torch.isfinite(found), found, torch.zeros_like(found))
