"""Sums, means, scans and extremes of the segments of an axis, in torch's words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import torch
from torch.compiler import is_compiling

from tcusim.arrays.libraries import as_numpy, is_on_device, keep
from tcusim.arrays.segments import (
    MOST_KEPT,
    Segments,
    given_segments,
    require_flat,
    require_length,
    require_lengths,
    require_number,
    require_one_each,
    segments_of,
)
from tcusim.arrays.spec import count_of, size_of
from tcusim.backends import IntegerFacts
from tcusim.call_options import AnyOptions
from tcusim.errors import InputError
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
from tcusim.torch.jagged import is_nested, segments_of_nested
from tcusim.torch.operators import (
    Operator,
    axis_of,
    is_integer,
    no_batch_of,
    operator,
    register,
    require_summable,
    result_type,
    segment_cumsum_kernel,
    segment_sum_kernel,
    segments_at,
)
from tcusim.torch.repeated import launched

Integers: TypeAlias = Tensor | Sequence[int]

# The types of integers of which torch's functions know all.
_INTEGERS: Final = (torch.int32, torch.int64)

__all__ = [
    "facts_in_torch",
    "offsets_in_torch",
    "require_integers",
    "segment_cumsum",
    "segment_max",
    "segment_mean",
    "segment_min",
    "segment_sum",
]


def segment_sum(
    input: Tensor,
    segments: int | Integers | Segments | None = None,
    *,
    dim: int = -1,
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
    segments : int, Tensor or list of int, or Segments
        The elements of each segment, of which the last one may be shorter; or offsets: segment i is
        elements segments[i] to segments[i+1]; or `tcusim.Segments` of tensors or lists, by offsets,
        by lengths, as in `torch.segment_reduce`, or by ids, checked once for many calls. Where ids
        name no `count`, the largest has to be read: on a GPU the call waits, and torch.compile
        breaks the graph. ``check=False`` leaves integers on a GPU unchecked, and the call waits for
        none; compiled code checks them whenever it runs. Left out, `input` is a nested tensor.
    dim : int
        The axis that is made of segments. Rows (N, D) of N elements have ``dim=0``.
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
    >>> import tcusim, tcusim.torch as tct, torch
    >>> x = torch.arange(5, dtype=torch.float32)
    >>> tct.segment_sum(x, torch.tensor([0, 2, 2, 5]))
    tensor([1., 0., 9.])
    >>> tct.segment_sum(x, tcusim.Segments(ids=[2, 0, 2, 0, 2], sort=True))
    tensor([4., 0., 6.])
    """
    given = _segments(input, segments, dim)
    bits = bits_of(options, "segment_sum")
    require_options(bits)
    arguments = given.size, given.dim, given.check, sum_type(given.input, dtype), bits
    return put(_computed("segment_sum", segment_sum_kernel, given, *arguments), out)


def segment_cumsum(
    input: Tensor,
    segments: int | Integers | Segments | None = None,
    *,
    dim: int = -1,
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
        An addend of every sum of a segment, as in `cumsum`: a number, or a tensor that
        is broadcast to the shape of `segment_sum`.
    input, segments, dim
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
    >>> tct.segment_cumsum(torch.ones(5), torch.tensor([0, 2, 5]))
    tensor([1., 2., 1., 2., 3.])
    """
    given = _segments(input, segments, dim)
    bits = bits_of(options, "segment_cumsum")
    require_options(bits, exclusive=exclusive, reverse=reverse)
    wanted = sum_type(given.input, dtype)
    arguments = given.size, given.dim, given.check, exclusive, reverse, wanted, bits
    before = tensor_beside(given.input, initial, wanted, bits)
    result = _computed("segment_cumsum", segment_cumsum_kernel, given, *arguments, before)
    if given.order is not None:
        # Back to where the elements were.
        result = result.index_select(given.dim, torch.argsort(given.order))
    return put(result, out)


def segment_mean(
    input: Tensor,
    segments: int | Integers | Segments | None = None,
    *,
    dim: int = -1,
    dtype: Any = None,
) -> Tensor:
    """Return the mean of every segment of an axis.

    Parameters
    ----------
    input : Tensor
        Of a float type.
    segments, dim
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
    >>> import tcusim, tcusim.torch as tct, torch
    >>> tct.segment_mean(torch.arange(5.0), tcusim.Segments(lengths=[2, 3]))
    tensor([0.5000, 3.0000])
    """
    given = _segments(input, segments, dim)
    kind = given.input.dtype
    if not kind.is_floating_point:
        raise InputError(f"segment_mean takes float tensors, got {kind}. Cast it: input.float()")
    wanted = result_type(dtype, kind)
    if not wanted.is_floating_point:
        raise InputError(f"means are floats: dtype must be a float type of torch, got {dtype}")
    wide = torch.float64 if torch.float64 in (kind, wanted) else torch.float32
    arguments = given.size, given.dim, given.check, wide, bits_of(None, "segment_mean")
    total = _computed("segment_sum", segment_sum_kernel, given, *arguments)
    counts = given.counts().to(wide).reshape(-1, *[1] * (total.dim() - 1 - given.dim))
    return (total / counts).to(wanted)


def segment_max(
    input: Tensor,
    segments: int | Integers | Segments | None = None,
    *,
    dim: int = -1,
) -> Tensor:
    """Return the largest element of every segment of an axis.

    Parameters
    ----------
    input, segments, dim
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
    given = _segments(input, segments, dim)
    return _extreme(given, "amax")


def segment_min(
    input: Tensor,
    segments: int | Integers | Segments | None = None,
    *,
    dim: int = -1,
) -> Tensor:
    """Return the least element of every segment of an axis.

    Parameters
    ----------
    input, segments, dim
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
    given = _segments(input, segments, dim)
    return _extreme(given, "amin")


# --- The segments of a call -----------------------------------------------------------------------


class _Segments(NamedTuple):
    """The elements of a call in the order of their segments, which are along axis `dim`.

    size: 0 if there are offsets. check: whether offsets on a GPU are checked. order: where each
    element was, if they were sorted. is_given: whether the offsets are those of the call, not yet
    checked, as the kernels of sums do. known: the segments for calls that nothing traces.
    """

    input: Any
    dim: int
    size: int = 0
    offsets: Any = None
    check: bool = True
    order: Any = None
    is_given: bool = False
    known: Segments | None = None

    def counts(self) -> Any:
        """Return the number of elements of each segment."""
        if self.offsets is not None:
            return self.offsets.diff().to(self.input.device)
        length = self.input.shape[self.dim]
        starts = torch.arange(0, length, self.size, device=self.input.device)
        return (length - starts).clamp(max=self.size)


def _computed(name: str, kernel: Callable[..., Any], given: _Segments, *arguments: Any) -> Tensor:
    """Return an operator's result: for segments of many calls by the launch that is kept."""
    input, offsets, by, initial = given.input, given.offsets, given.known, None
    if name == "segment_cumsum":
        initial = arguments[-1]
    if not is_simple(input, offsets if by is None else None, initial):
        return operator(name)(input, offsets, *arguments)
    is_repeated = offsets is None or (by is not None and not by.is_of_one_call)
    if is_repeated and initial is None:
        return launched(kernel, input, by, *arguments)
    return kernel(input, by or offsets, *arguments)


def _extreme(given: _Segments, reduce: str) -> Tensor:
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
    if given.is_given and given.check and not given.offsets.is_cuda:
        given = given._replace(offsets=_offsets_by("offsets", given.offsets, length))
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


def _segments(input: Tensor, segments: Any, dim: int) -> _Segments:
    """Return the segments of a call; refuse arguments that do not go together."""
    require_tensor("input", input)
    if is_nested(input):
        values, own = segments_of_nested(input)
        if segments is not None or dim not in (-1, input._ragged_idx):
            what = "dim" if segments is None else "segments"
            raise InputError(f"a nested tensor has its own segments: leave out {what}")
        return _Segments(values, 0, offsets=own)
    if not input.dim():
        raise InputError("input has no axes, and no segments; reshape it to (1,)")
    axis = axis_of(dim, input.dim())
    size, by = (segments, None) if is_integer(segments) else given_segments(segments)
    if by is None:
        return _Segments(input, axis, size=_size(size, input.shape[axis]))
    if by.name == "count":
        raise InputError(f"{by!r} is for tcusim.plan: give offsets, lengths or ids")
    edges, order, known = _offsets_of_call(by, input, axis)
    if order is not None:
        input = input.index_select(axis, order)
    is_given = by.name == "offsets" and known is None
    return _Segments(input, axis, 0, edges, by.check, order, is_given=is_given, known=known)


def _offsets_of_call(by: Segments, input: Tensor, axis: int) -> tuple[Tensor, Any, Segments | None]:
    """Return the offsets of a call, the order of its elements, and the segments to launch by.

    Integers are converted and checked once for all calls that nothing traces or maps, unless they
    may change: in GPU memory, unchecked.
    """
    key = input.device, input.shape[axis]
    kept = None if by.is_of_one_call or not is_simple() else by.derived.get(key)
    if kept is not None:
        edges, order, known = kept
        return edges, order, known or by
    if is_compiling() or not torch.is_inference_mode_enabled():
        edges, order, known = _converted(by, input, axis)
    else:
        # Calls that are recorded, later on, cannot read tensors of this mode.
        with torch.inference_mode(False):
            edges, order, known = _converted(by, input, axis)
    if known is not None and not by.is_of_one_call:
        # Segments that refer to themselves would not be let go at once.
        keep(by.derived, key, (edges, order, None if known is by else known), MOST_KEPT)
    return edges, order, known


def _converted(by: Segments, input: Tensor, axis: int) -> tuple[Tensor, Any, Segments | None]:
    """Return offsets as torch's functions take them, the order of elements, and segments by them.

    The segments are None if the call is traced or mapped, or if the offsets may change.
    """
    given, length = by.given, input.shape[axis]
    if is_simple(given if isinstance(given, torch.Tensor) else None) and not is_on_device(given):
        bounds, order = by.edges(length), by.order(length)
        if order is not None:
            order = torch.from_numpy(order).to(input.device)
        if by.name == "offsets" and getattr(given, "dtype", None) in _INTEGERS:
            return given, None, by
        edges = torch.from_numpy(bounds)
        known = by.by_offsets(edges)
        there = isinstance(given, torch.Tensor) or by.is_of_one_call
        return edges if there else edges.to(input.device), order, known
    edges, order = _converted_in_torch(by, input, length)
    if not is_simple(edges) or not (by.check or edges is given):
        return edges, order, None
    return edges, order, by if edges is given else by.by_offsets(edges)


def _converted_in_torch(by: Segments, input: Tensor, length: int) -> tuple[Tensor, Any]:
    """Return offsets, and the order of elements, by torch's functions, which may be traced."""
    numbers, order = _integers(by.name, by.given, input), None
    if by.name == "offsets":
        return numbers, None
    # In narrower types the borders of the segments might not fit.
    numbers, count = numbers.to(torch.int64), 0
    if by.name == "ids":
        require_one_each("ids", numbers.shape[0], length)
        if by.sort:
            numbers, order = torch.sort(numbers, stable=True)
            order = order.to(input.device)
        count = _number_of(by, numbers)
    named = by.count is not None
    return _offsets_by(by.name, numbers, length, count, named, by.check), order


def _size(size: Any, length: Any) -> int:
    """Return the elements of a segment; not checked if they are being traced."""
    if isinstance(size, torch.SymInt):
        return int(size)
    return size_of(None if size is None else int(size), length)


def _number_of(by: Segments, ids: Tensor) -> int:
    """Return the number of segments: the given one, or one more than the last of the sorted ids."""
    if by.count is not None:
        traced = isinstance(by.count, torch.SymInt)
        return by.count if traced else count_of("count", by.count, 0)
    if isinstance(by.ids, list | tuple):
        # Known while code is traced, too.
        return max(by.ids, default=-1) + 1
    where, cause = "on the device meta" if ids.is_meta else "that torch.compile traces", None
    if not ids.is_meta and not is_compiling():
        try:
            return int(ids[-1]) + 1 if ids.shape[0] else 0
        except RuntimeError as error:
            # Of fake tensors, and of those that make_fx records.
            if not is_traced():
                raise
            where, cause = "that are traced", error
    raise InputError(f"ids {where} have no values: give count, the number of segments") from cause


def _integers(name: str, given: Any, input: Tensor) -> Any:
    """Return offsets, lengths or ids, of a list too, as a tensor of integers."""
    if not isinstance(given, torch.Tensor):
        known = is_compiling() or is_on_device(given)
        given = torch.as_tensor(given if known else as_numpy(name, given), device=input.device)
    require_memory(name, given)
    if not is_compiling() and torch._C._functorch.is_batchedtensor(given):
        raise no_batch_of(name)
    require_integers(name, given)
    given = everywhere(given)
    return given if given.dtype in _INTEGERS else given.to(torch.int64)


def require_integers(name: str, given: Tensor) -> None:
    """Refuse other tensors than flat ones of integers."""
    kind = given.dtype
    is_integer = not (kind.is_floating_point or kind.is_complex or kind == torch.bool)
    require_flat(name, given, is_integer=is_integer)


# --- Offsets, by an operator where the call is traced ---------------------------------------------
#
# Values are checked when they are there: compiled code calls the operator, checks and all.


def _offsets_by(
    name: str, numbers: Tensor, length: int, count: int = 0, named: bool = False, check: bool = True
) -> Any:
    """Return the offsets that lengths, ids or offsets tell of an axis; refuse wrong ones.

    name: of the argument. count, named: the number of segments of ids, and whether the user gave
    it.
    """
    traced = is_traced() or numbers.is_meta or type(numbers) is not torch.Tensor
    call = torch.ops.tcusim.segment_offsets.default if traced else _segment_offsets_kernel
    return call(numbers, name, length, count, named, check)


def _segment_offsets_kernel(
    numbers: Any, name: str, length: int, count: int, named: bool, check: bool
) -> Any:
    """Compute the operator `segment_offsets`."""
    if numbers.is_cuda:
        return offsets_in_torch(numbers, name, length, count, named, check)
    by = Segments(**{name: numbers.numpy()}, count=count if named else None)
    return torch.from_numpy(by.edges(length))


def offsets_in_torch(
    numbers: Any, name: str, length: int, count: int, named: bool, check: bool
) -> Any:
    """Return the offsets of lengths or sorted ids, computed and checked where these are."""
    if name == "lengths":
        if check:
            place = numbers.argmin() if numbers.shape[0] else None
            total = numbers.sum()
            if place is not None:
                least, at, most = torch.stack([numbers[place], place, numbers.max()]).tolist()
                require_lengths(least, at, most)
            require_length(name, 0, int(total), length)
        return torch.nn.functional.pad(numbers.cumsum(0), (1, 0))
    if check and numbers.shape[0]:
        segments_of(facts_in_torch(numbers), count if named else None, length)
    else:
        require_number(count, length, named=named)
    borders = torch.arange(count + 1, device=numbers.device, dtype=numbers.dtype)
    return torch.searchsorted(numbers.contiguous(), borders)


def facts_in_torch(ids: Any) -> IntegerFacts:
    """Return the ends of ids, and their first decrease, found where these are."""
    falls = ids[1:] < ids[:-1]
    first, last, at = int(ids[0]), int(ids[-1]), None
    if bool(falls.any()):
        place = int(falls.to(torch.uint8).argmax())
        at = place, int(ids[place]), int(ids[place + 1])
    return IntegerFacts(first, last, at, 0, 0)


def _segment_offsets_shape(numbers: Any, name: str, length: int, count: int, *_: Any) -> Any:
    return (count + 1 if name == "ids" else numbers.shape[0] + (name == "lengths"),)


register(
    Operator(
        "segment_offsets",
        "Tensor numbers, str name, SymInt length, SymInt count, bool named, bool check",
        _segment_offsets_kernel,
        _segment_offsets_shape,
        dtype=torch.int64,
    )
)
