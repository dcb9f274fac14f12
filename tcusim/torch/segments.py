"""Sums, means, scans and extremes of the segments of an axis, in torch's words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, TypeAlias

import torch

from tcusim.arrays.offsets import edges_of, require_number
from tcusim.arrays.spec import size_of
from tcusim.call_options import AnyOptions
from tcusim.errors import InputError, require_flags
from tcusim.torch.functions import (
    Tensor,
    bits_of,
    everywhere,
    is_simple,
    is_traced,
    put,
    require_memory,
    require_options,
    require_tensor,
    sum_type,
    tensor_beside,
)
from tcusim.torch.jagged import is_nested, segments_of
from tcusim.torch.operators import (
    LIBRARY,
    axis_of,
    is_integer,
    operator,
    require_summable,
    result_type,
    segment_cumsum_kernel,
    segment_sum_kernel,
    segments_at,
)
from tcusim.torch.repeated import launched

Integers: TypeAlias = Tensor | Sequence[int]

__all__ = ["segment_cumsum", "segment_max", "segment_mean", "segment_min", "segment_sum"]


def segment_sum(
    input: Tensor,
    segment_size: int | None = None,
    *,
    offsets: Integers | None = None,
    lengths: Integers | None = None,
    segment_ids: Integers | None = None,
    num_segments: int | None = None,
    sort: bool = False,
    dim: int = -1,
    check_offsets: bool = True,
    dtype: Any = None,
    out: Tensor | None = None,
    options: AnyOptions = None,
) -> Tensor:
    """Sum every segment of an axis on tensor cores.

    Parameters
    ----------
    input : Tensor
        As in `sum`. Or a nested tensor of the layout jagged: its segments are taken, and `dim` is
        its ragged axis.
    segment_size : int, optional
        Elements of each segment; the last one may be shorter.
    offsets : Tensor or list of int, shape (segments + 1,), optional
        Instead of a size: segment i is elements offsets[i] to offsets[i + 1].
    lengths : Tensor or list of int, shape (segments,), optional
        Instead of offsets: the number of elements of each segment, as in `torch.segment_reduce`.
    segment_ids : Tensor or list of int, shape (elements of the axis,), optional
        Instead of offsets: the number of each element's segment, never decreasing.
    num_segments : int, optional
        With `segment_ids`: how many segments there are. By default one more than the largest id,
        which has to be read: on a GPU the call waits, and torch.compile breaks the graph.
    sort : bool
        With `segment_ids` in any order: the elements of a segment are added in their order.
    dim : int
        The axis that is made of segments. Rows (N, D) of N elements have ``dim=0``.
    check_offsets : bool
        Whether offsets, lengths or ids on a GPU are checked, for which the call waits; compiled
        code checks them when it runs. Without it, wrong ones give wrong results, but no access
        outside the tensors.
    dtype, out, options
        As in `sum`.

    Returns
    -------
    Tensor
        Of the shape of `input`, the axis' length replaced by the number of segments; of a nested
        tensor, one row for each of its segments.

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import tcusim.torch as tct, torch
    >>> x = torch.arange(5, dtype=torch.float32)
    >>> tct.segment_sum(x, offsets=torch.tensor([0, 2, 2, 5]))
    tensor([1., 0., 9.])
    >>> tct.segment_sum(x, segment_ids=torch.tensor([2, 0, 2, 0, 2]), sort=True)
    tensor([4., 0., 6.])
    """
    given = _segments(
        input, segment_size, offsets, lengths, segment_ids, num_segments, sort, dim, check_offsets
    )
    bits = bits_of(options, "segment_sum")
    require_options(bits)
    arguments = given.size, given.dim, check_offsets, sum_type(given.input, dtype), bits
    return put(_computed("segment_sum", segment_sum_kernel, given, *arguments), out)


def segment_cumsum(
    input: Tensor,
    segment_size: int | None = None,
    *,
    offsets: Integers | None = None,
    lengths: Integers | None = None,
    segment_ids: Integers | None = None,
    num_segments: int | None = None,
    sort: bool = False,
    dim: int = -1,
    check_offsets: bool = True,
    exclusive: bool = False,
    reverse: bool = False,
    initial: float | Tensor | None = None,
    dtype: Any = None,
    out: Tensor | None = None,
    options: AnyOptions = None,
) -> Tensor:
    """Scan every segment of an axis on tensor cores: prefix sums that begin anew in each.

    Parameters
    ----------
    exclusive, reverse : bool
        As in `cumsum`.
    initial : number or Tensor, optional
        What precedes the first element of each segment, as in `cumsum`: a number, or a tensor that
        is broadcast to the shape of `segment_sum`.
    input, segment_size, offsets, lengths, segment_ids, num_segments, sort, dim, check_offsets
        As in `segment_sum`.
    dtype, out, options
        As in `sum`.

    Returns
    -------
    Tensor
        Of the shape of `input`, each sum in the place of its element; of a nested tensor, of its
        values, the ragged axis first.

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import tcusim.torch as tct, torch
    >>> tct.segment_cumsum(torch.ones(5), offsets=torch.tensor([0, 2, 5]))
    tensor([1., 2., 1., 2., 3.])
    """
    given = _segments(
        input, segment_size, offsets, lengths, segment_ids, num_segments, sort, dim, check_offsets
    )
    bits = bits_of(options, "segment_cumsum")
    require_options(bits, exclusive=exclusive, reverse=reverse)
    wanted = sum_type(given.input, dtype)
    arguments = given.size, given.dim, check_offsets, exclusive, reverse, wanted, bits
    before = tensor_beside(given.input, initial, wanted, bits)
    result = _computed("segment_cumsum", segment_cumsum_kernel, given, *arguments, before)
    if given.order is not None:
        # Back to where the elements were.
        result = result.index_select(given.dim, torch.argsort(given.order))
    return put(result, out)


def segment_mean(
    input: Tensor,
    segment_size: int | None = None,
    *,
    offsets: Integers | None = None,
    lengths: Integers | None = None,
    segment_ids: Integers | None = None,
    num_segments: int | None = None,
    sort: bool = False,
    dim: int = -1,
    check_offsets: bool = True,
    dtype: Any = None,
) -> Tensor:
    """Return the mean of every segment of an axis.

    Parameters
    ----------
    input : Tensor
        Of a float type.
    segment_size, offsets, lengths, segment_ids, num_segments, sort, dim, check_offsets
        As in `segment_sum`.
    dtype : torch.dtype, optional
        Type of the result; by default that of `input`.

    Returns
    -------
    Tensor
        The sum in float32, or float64, divided by the number of elements; NaN of a segment without
        any, as in `torch.segment_reduce`.

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import tcusim.torch as tct, torch
    >>> tct.segment_mean(torch.arange(5.0), lengths=[2, 3])
    tensor([0.5000, 3.0000])
    """
    given = _segments(
        input, segment_size, offsets, lengths, segment_ids, num_segments, sort, dim, check_offsets
    )
    kind = given.input.dtype
    if not kind.is_floating_point:
        raise InputError(f"segment_mean takes float tensors, got {kind}. Cast it: input.float()")
    wanted = result_type(dtype, kind)
    if not wanted.is_floating_point:
        raise InputError(f"means are floats: dtype must be a float type of torch, got {dtype}")
    wide = torch.float64 if torch.float64 in (kind, wanted) else torch.float32
    arguments = given.size, given.dim, check_offsets, wide, "segment"
    total = _computed("segment_sum", segment_sum_kernel, given, *arguments)
    counts = given.counts().to(wide).reshape(-1, *[1] * (total.dim() - 1 - given.dim))
    return (total / counts).to(wanted)


def segment_max(
    input: Tensor,
    segment_size: int | None = None,
    *,
    offsets: Integers | None = None,
    lengths: Integers | None = None,
    segment_ids: Integers | None = None,
    num_segments: int | None = None,
    sort: bool = False,
    dim: int = -1,
    check_offsets: bool = True,
) -> Tensor:
    """Return the largest element of every segment of an axis.

    Parameters
    ----------
    input, segment_size, offsets, lengths, segment_ids, num_segments, sort, dim, check_offsets
        As in `segment_sum`, but that offsets on a GPU are not checked, nor waited for.

    Returns
    -------
    Tensor
        Of the type of `input`: the first of equal elements, which has the gradient, or the first
        NaN. A segment without elements has -inf, or the least integer.

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import tcusim.torch as tct, torch
    >>> tct.segment_max(torch.tensor([3.0, 1.0, 4.0, 1.0]), 2)
    tensor([3., 4.])
    """
    given = _segments(
        input, segment_size, offsets, lengths, segment_ids, num_segments, sort, dim, check_offsets
    )
    return _extreme(given, "amax", check_offsets)


def segment_min(
    input: Tensor,
    segment_size: int | None = None,
    *,
    offsets: Integers | None = None,
    lengths: Integers | None = None,
    segment_ids: Integers | None = None,
    num_segments: int | None = None,
    sort: bool = False,
    dim: int = -1,
    check_offsets: bool = True,
) -> Tensor:
    """Return the least element of every segment of an axis.

    Parameters
    ----------
    input, segment_size, offsets, lengths, segment_ids, num_segments, sort, dim, check_offsets
        As in `segment_max`.

    Returns
    -------
    Tensor
        As of `segment_max`; a segment without elements has inf, or the largest integer.

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import tcusim.torch as tct, torch
    >>> tct.segment_min(torch.tensor([3.0, 1.0, 4.0, 1.0]), 2)
    tensor([1., 1.])
    """
    given = _segments(
        input, segment_size, offsets, lengths, segment_ids, num_segments, sort, dim, check_offsets
    )
    return _extreme(given, "amin", check_offsets)


# --- The segments of a call -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Segments:
    """The elements of a call in the order of their segments, which are along axis `dim`.

    size: 0 if there are offsets. order: where each element was, if they were sorted. is_given:
    whether the offsets are those of the call, which the kernels of sums check.
    """

    input: Any
    dim: int
    size: int = 0
    offsets: Any = None
    order: Any = None
    is_given: bool = False

    def counts(self) -> Any:
        """Return the number of elements of each segment."""
        if self.offsets is not None:
            return self.offsets.diff().to(self.input.device)
        length = self.input.shape[self.dim]
        starts = torch.arange(0, length, self.size, device=self.input.device)
        return (length - starts).clamp(max=self.size)


def _computed(name: str, kernel: Callable[..., Any], given: _Segments, *arguments: Any) -> Tensor:
    """Return an operator's result; that of segments of one size by the way that is kept."""
    input, offsets, initial = given.input, given.offsets, None
    if name == "segment_cumsum":
        initial = arguments[-1]
    if not is_simple(input, offsets, initial):
        return operator(name)(input, offsets, *arguments)
    if offsets is None and initial is None:
        return launched(kernel, input, None, *arguments)
    return kernel(input, offsets, *arguments)


def _extreme(given: _Segments, reduce: str, check: bool) -> Tensor:
    """Return the first of each segment's largest or least elements."""
    input, dim = given.input, given.dim
    require_summable("input", input)
    if hasattr(input, "device_mesh"):
        raise InputError(
            "segment_max and segment_min take no DTensor: redistribute it to Replicate(), and call "
            "them with its to_local()"
        )
    length = input.shape[dim]
    # Of offsets on a GPU the call would have to wait.
    if given.is_given and check and not given.offsets.is_cuda:
        given = replace(given, offsets=_offsets_by("offsets", given.offsets, length, dim))
    counts = given.counts()
    shape = list(input.shape)
    shape[dim] = counts.shape[0]
    segments = segments_at(length, given.offsets, given.size, input.device)
    behind = [1] * (input.dim() - 1 - dim)
    owner = segments.reshape(-1, *behind).expand(input.shape)
    none = _worst(input.dtype, reduce)
    values = input.detach()
    best = values.new_full(shape, none).scatter_reduce(dim, owner, values, reduce)
    if not length:
        # Of a result that reads no count, compiled code would leave out the checks.
        return torch.where(counts.reshape(-1, *behind) > 0, best, none)
    found = values == best.gather(dim, owner)
    if input.dtype.is_floating_point:
        found = found | values.isnan()
    places = torch.arange(length, device=input.device).reshape(-1, *behind).expand(input.shape)
    far = torch.full((), length, dtype=places.dtype, device=input.device)
    first = places.new_full(shape, length).scatter_reduce(
        dim, owner, torch.where(found, places, far), "amin"
    )
    chosen = input.gather(dim, first.clamp(max=length - 1))
    return torch.where(first < length, chosen, chosen.new_full((), none))


def _worst(dtype: Any, reduce: str) -> Any:
    """Return the identity of the reduction: no element is beyond it."""
    if dtype.is_floating_point:
        return float("-inf") if reduce == "amax" else float("inf")
    if dtype == torch.bool:
        raise InputError("segment_max and segment_min take no tensor of torch.bool: cast it first")
    limits = torch.iinfo(dtype)
    return limits.min if reduce == "amax" else limits.max


def _segments(
    input: Tensor,
    segment_size: int | None,
    offsets: Any,
    lengths: Any,
    segment_ids: Any,
    num_segments: int | None,
    sort: bool,
    dim: int,
    check: bool,
) -> _Segments:
    """Return the segments of a call; refuse what does not fit together."""
    ways = {
        "segment_size": segment_size,
        "offsets": offsets,
        "lengths": lengths,
        "segment_ids": segment_ids,
    }
    named = [name for name, one in ways.items() if one is not None]
    require_tensor("input", input)
    require_flags(sort=sort, check_offsets=check)
    if is_nested(input):
        if named:
            raise InputError(f"a nested tensor has its own segments: leave out {named[0]}")
        values, own = segments_of(input)
        _require_own(input, num_segments, sort, dim)
        return _Segments(values, 0, offsets=own)
    if len(named) != 1:
        what = " and ".join(named) or "nothing"
        raise InputError(f"give one of {', '.join(ways)}; got {what}")
    if segment_ids is None and (num_segments is not None or sort):
        given = "sort" if num_segments is None else "num_segments"
        raise InputError(f"{given} is for segment_ids, not for {named[0]}")
    if not input.dim():
        raise InputError("input has no axes, and no segments; reshape it to (1,)")
    axis = axis_of(dim, input.dim())
    if segment_size is not None:
        if not is_integer(segment_size) or segment_size < 1:
            raise InputError(f"segment_size must be an integer from 1 on, got {segment_size!r}")
        if isinstance(segment_size, Integral):
            segment_size = size_of(int(segment_size), input.shape[axis])
        return _Segments(input, axis, size=int(segment_size))
    if offsets is not None:
        return _Segments(input, axis, offsets=_integers("offsets", offsets, input), is_given=True)
    if lengths is not None:
        counts = _integers("lengths", lengths, input)
        edges = _offsets_by("lengths", counts, input.shape[axis], int(dim), check=check)
        return _Segments(input, axis, offsets=edges)
    # In narrower types the borders of the segments might not fit.
    ids = _integers("segment_ids", segment_ids, input).to(torch.int64)
    return _by_ids(input, dim, ids, num_segments, sort, check)


def _require_own(input: Tensor, num_segments: int | None, sort: bool, dim: Any) -> None:
    """Refuse what a nested tensor, whose segments are its own, would not look at."""
    told = {
        "num_segments": num_segments is not None,
        "sort": sort,
        "dim": dim not in (-1, input._ragged_idx),
    }
    for name, is_told in told.items():
        if is_told:
            raise InputError(f"a nested tensor has its own segments: leave out {name}")


def _by_ids(
    input: Tensor, dim: int, ids: Tensor, num_segments: int | None, sort: bool, check: bool
) -> _Segments:
    axis = axis_of(dim, input.dim())
    if ids.dim() != 1 or ids.shape[0] != input.shape[axis]:
        raise InputError(
            f"segment_ids must have one number for each of the {input.shape[axis]} elements of "
            f"dim {dim}; their shape is {tuple(ids.shape)}"
        )
    order = None
    if sort:
        ids, order = torch.sort(ids, stable=True)
        order = order.to(input.device)
        input = input.index_select(axis, order)
    is_named = num_segments is not None
    if num_segments is None:
        if ids.is_meta:
            raise InputError("segment_ids on the device meta have no values: give num_segments")
        num_segments = int(ids[-1]) + 1 if ids.shape[0] else 0
    elif not is_integer(num_segments) or num_segments < 0:
        raise InputError(f"num_segments must be an integer from 0 on, got {num_segments!r}")
    length = input.shape[axis]
    edges = _offsets_by("segment_ids", ids, length, int(dim), num_segments, is_named, check)
    return _Segments(input, axis, offsets=edges, order=order)


def _integers(name: str, given: Any, input: Tensor) -> Any:
    """Return offsets, lengths or ids as a tensor of integers, which may be a list."""
    if not isinstance(given, torch.Tensor):
        try:
            given = torch.as_tensor(given, device=input.device)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"{name} must be integers, got {given!r}: {error}") from error
        if not given.numel():
            given = given.to(torch.int64)
    require_memory(name, given)
    if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        raise InputError(f"{name} must be integers, got a tensor of {given.dtype}")
    if given.dim() != 1:
        raise InputError(f"{name} must have one axis; its shape is {tuple(given.shape)}")
    given = everywhere(given)
    # The only ones of which torch's functions know all.
    return given if given.dtype in (torch.int32, torch.int64) else given.to(torch.int64)


# --- Offsets, by an operator where the call is traced ---------------------------------------------
#
# Values are checked when they are there: compiled code calls the operator, checks and all.

LIBRARY.define(
    "segment_offsets(Tensor numbers, str name, SymInt length, int dim, SymInt segments, bool named,"
    " bool check) -> Tensor"
)


def _offsets_by(
    name: str,
    numbers: Tensor,
    length: int,
    dim: int,
    segments: int = 0,
    named: bool = False,
    check: bool = True,
) -> Any:
    """Return the offsets that lengths, ids or offsets tell of an axis; refuse wrong ones.

    name: of the argument. dim: as it was given. segments, named: of ids, how many segments there
    are, and whether the user said so.
    """
    if is_traced() or numbers.is_meta or type(numbers) is not torch.Tensor:
        call = torch.ops.tcusim.segment_offsets.default
        return call(numbers, name, length, dim, segments, named, check)
    return _offsets_of(numbers, name, length, dim, segments, named, check)


def _offsets_of(
    numbers: Any, name: str, length: int, dim: int, segments: int, named: bool, check: bool
) -> Any:
    if name == "offsets":
        edges_of(numbers.numpy(), length)
        return numbers
    if name == "lengths":
        if check:
            _require_lengths(numbers, length, dim)
        return torch.nn.functional.pad(numbers.cumsum(0), (1, 0))
    if check:
        _require_ids(numbers, segments)
    require_number(segments, length, named=named)
    borders = torch.arange(segments + 1, device=numbers.device, dtype=numbers.dtype)
    return torch.searchsorted(numbers.contiguous(), borders)


def _segment_offsets_kernel(numbers: Any, *more: Any) -> Any:
    """Compute the operator `segment_offsets`, whose result is none of its arguments."""
    result = _offsets_of(numbers, *more)
    return result.clone() if result is numbers else result


def _segment_offsets_shape(numbers: Any, name: str, *more: Any) -> Any:
    if name == "offsets":
        return torch.empty_like(numbers)
    segments = numbers.shape[0] if name == "lengths" else more[2]
    return numbers.new_empty((segments + 1,), dtype=torch.int64)


def _require_lengths(counts: Tensor, length: int, dim: int) -> None:
    """Refuse lengths that are negative, or not those of all elements."""
    if bool((counts < 0).any()):
        raise InputError(f"lengths must be from 0 on; the least is {int(counts.min())}")
    if int(counts.sum()) != length:
        raise InputError(
            f"lengths must add up to the {length} elements of dim {dim}; they come to "
            f"{int(counts.sum())}"
        )


def _require_ids(ids: Tensor, num_segments: int) -> None:
    """Refuse ids that decrease, or that no segment has."""
    if not ids.shape[0]:
        return
    if bool((ids[1:] < ids[:-1]).any()):
        place = int((ids[1:] < ids[:-1]).nonzero()[0, 0]) + 1
        raise InputError(
            f"segment_ids must never decrease, but segment_ids[{place}] is less than the one "
            "before. Pass sort=True"
        )
    first, last = int(ids[0]), int(ids[-1])
    if first < 0 or last >= num_segments:
        raise InputError(
            f"segment_ids must be within 0..{num_segments - 1}; they are from {first} to {last}"
        )


for _device in ("CPU", "CUDA"):
    LIBRARY.impl("segment_offsets", _segment_offsets_kernel, _device)
torch.library.register_fake("tcusim::segment_offsets", _segment_offsets_shape, lib=LIBRARY)
