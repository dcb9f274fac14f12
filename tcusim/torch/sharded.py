"""The operators `torch.ops.tcusim` on DTensors: the bits of the whole tensor on one rank.

The rules lie below autograd, so derivatives, which are made of the same operators, have the bits of
one rank, too. Elements, partial sums and results are moved; no collective adds anything. Along axes
that no rank has cut, each rank computes its own elements. An axis that is cut is either computed in
pieces, or the tensor is cut along another axis for the time of the call.

This module imports `torch.distributed.tensor`, and is imported when the first DTensor is met.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import torch
from torch.distributed.tensor import DTensor, Replicate, Shard

from tcusim.arrays.segments import Segments
from tcusim.arrays.spec import size_of
from tcusim.errors import InputError
from tcusim.torch.operators import LIBRARY, OPERATORS, axes_of, operator
from tcusim.torch.pieces import cumsum_of_pieces, cut_of, moved, sum_of_pieces

Tensor: TypeAlias = Any
Placements: TypeAlias = list[Any]


def require_settled(name: str, tensor: Tensor) -> None:
    """Refuse values that are still to be added, and shards in another order than that of ranks."""
    for placement in tensor.placements:
        if placement.is_partial():
            raise InputError(
                f"{name} is a DTensor placed {placement}: its values are still to be added by a "
                "collective, whose order nobody knows. Sum with tcusim.torch, which gives no such "
                "values; or accept the collective's bits: redistribute it to Replicate() or Shard()"
            )
        if type(placement) not in (Shard, Replicate):
            raise InputError(
                f"{name} is a DTensor placed {placement}, whose elements are not in the order of "
                "the ranks. Redistribute it to Replicate() or Shard()"
            )


# --- Where the elements are -----------------------------------------------------------------------


def _made(local: Tensor, like: Tensor, placements: Placements, shape: Sequence[int]) -> Tensor:
    """Return a DTensor of a shape, of which this rank has `local`."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(1, extent)
    return DTensor.from_local(
        local.contiguous(), like.device_mesh, placements, run_check=False,
        shape=torch.Size(shape), stride=tuple(reversed(strides)),
    )  # fmt: skip


def _shape_of(name: str, *arguments: Any) -> list[int]:
    """Return the shape of an operator's result."""
    rule = OPERATORS[name].shape
    assert rule is not None
    return list(rule(*arguments))


def _cut_by(tensor: Tensor, axes: Sequence[int]) -> list[int]:
    """Return the dimensions of the mesh along which one of these axes is cut."""
    return [
        place
        for place, placement in enumerate(tensor.placements)
        if placement.is_shard() and placement.dim in axes
    ]


def _placed(tensor: Tensor, placements: Placements) -> Tensor:
    if tuple(placements) == tuple(tensor.placements):
        return tensor
    return tensor.redistribute(placements=placements)


def with_whole(tensor: Tensor, axes: Sequence[int]) -> Tensor:
    """Return the tensor with these axes whole on each rank: others are cut, if they are long."""
    placements = list(tensor.placements)
    for place in _cut_by(tensor, axes):
        taken = {one.dim for one in placements if one.is_shard()}
        spare = [one for one in range(tensor.dim()) if one not in taken and one not in axes]
        longest = max(spare, key=lambda one: int(tensor.shape[one]), default=None)
        is_long = longest is not None and tensor.shape[longest] >= tensor.device_mesh.size(place)
        placements[place] = Shard(longest) if is_long else Replicate()
    return _placed(tensor, placements)


def _with_one_cut(tensor: Tensor, axis: int, axes: Sequence[int]) -> tuple[Tensor, int]:
    """Return the tensor with one of these axes cut, along one dimension of the mesh, and that."""
    cuts = _cut_by(tensor, axes)
    own = [place for place in cuts if tensor.placements[place].dim == axis]
    kept = (own or cuts)[0]
    placements = list(tensor.placements)
    for place in cuts:
        placements[place] = Shard(axis) if place == kept else Replicate()
    return _placed(tensor, placements), kept


def _chunks(length: int, ranks: int) -> list[int]:
    """Return the edges of an axis' pieces, as `torch.chunk` cuts it."""
    share = -(-length // ranks)
    return [min(length, share * rank) for rank in range(ranks + 1)]


# --- Sums and scans -------------------------------------------------------------------------------


def _sum(input: Tensor, dim: Any, keepdim: bool, dtype: Any, bits: str) -> Tensor:
    rank = input.dim()
    axes = axes_of(dim, rank)
    shape = _shape_of("sum", input, dim, keepdim)
    # The axis whose pieces are pieces of the flattened axes.
    major = next((one for one in axes if input.shape[one] > 1), None)
    length = math.prod(input.shape[one] for one in axes)
    cuts = _cut_by(input, axes)
    pieces = bool(cuts) and major is not None and bits != "exact"
    if pieces and len(axes) < rank:
        # Too few pieces of the grid for all ranks: rows are shared instead.
        ranks = max(input.device_mesh.size(place) for place in cuts)
        pieces = length > ranks * cut_of(input.to_local(), "sum")
    if not pieces:
        input = with_whole(input, axes)
        result = operator("sum")(input.to_local(), dim, keepdim, dtype, bits)
        placements = [_after_sum(one, axes, keepdim) for one in input.placements]
        whole = _made(result, input, placements, shape)
        # A sum along a cut axis is on every rank.
        wanted = [Replicate() if place in cuts else one for place, one in enumerate(placements)]
        return _placed(whole, wanted)
    assert major is not None
    input, place = _with_one_cut(input, major, axes)
    others = [one for one in range(rank) if one not in axes]
    local = input.to_local()
    rows = local.permute(*axes, *others)
    rows = rows.reshape(-1, *rows.shape[len(axes) :])
    inner = length // input.shape[major]
    edges = [inner * edge for edge in _chunks(input.shape[major], input.device_mesh.size(place))]
    result = sum_of_pieces(rows, edges, input.device_mesh.get_group(place), dtype)
    if keepdim:
        result = result.reshape(
            [1 if one in axes else extent for one, extent in enumerate(local.shape)]
        )
    return _made(result, input, [_after_sum(one, axes, keepdim) for one in input.placements], shape)


def _after_sum(placement: Any, axes: Sequence[int], keepdim: bool) -> Any:
    """Return the placements of a sum's result."""
    if not placement.is_shard() or placement.dim in axes:
        return Replicate()
    if keepdim:
        return placement
    return Shard(placement.dim - sum(axis < placement.dim for axis in axes))


def _require_no_initial(initial: Any) -> None:
    """Refuse initial values of rows that several ranks have."""
    if initial is not None:
        raise InputError(
            "a scan of a DTensor takes no initial=. Scan its to_local() on each rank, or add it to "
            "the result, which rounds elsewhere"
        )


def _cumsum(
    input: Tensor, dim: int, exclusive: bool, reverse: bool, dtype: Any, bits: str, initial: Any
) -> Tensor:
    _require_no_initial(initial)
    dim = dim % max(1, input.dim())
    wanted, cuts = list(input.placements), _cut_by(input, [dim])
    pieces = bool(cuts) and bits != "exact"
    if pieces and input.dim() > 1:
        ranks = max(input.device_mesh.size(place) for place in cuts)
        pieces = input.shape[dim] > ranks * cut_of(input.to_local(), "cumsum")
    if not pieces:
        input = with_whole(input, [dim])
        result = operator("cumsum")(input.to_local(), dim, exclusive, reverse, dtype, bits, None)
    else:
        input, place = _with_one_cut(input, dim, [dim])
        edges = _chunks(input.shape[dim], input.device_mesh.size(place))
        rows = input.to_local().movedim(dim, 0)
        group = input.device_mesh.get_group(place)
        result = cumsum_of_pieces(
            rows, edges, group, dtype, exclusive=exclusive, reverse=reverse
        ).movedim(0, dim)
    return _placed(_made(result, input, list(input.placements), input.shape), wanted)


# --- Segments: each lies on a grid of its own, and is computed where it begins --------------------


class _Segments:
    """The segments of a cut axis, and who computes them.

    have: the edges of the elements, as they are. want: as they are computed. first: the edges of
    the segments. offsets, size: those of this rank's segments.
    """

    def __init__(self, input: Tensor, place: int, offsets: Any, size: int, dim: int, check: bool):
        mesh, length = input.device_mesh, input.shape[dim]
        self.group, self.rank = mesh.get_group(place), mesh.get_local_rank(place)
        self.have = _chunks(length, mesh.size(place))
        if offsets is None:
            size_of(size, length)
            self.count = -(-length // size)
            self.first = [min(self.count, -(-edge // size)) for edge in self.have]
            self.want = [min(length, size * one) for one in self.first]
            self.offsets = None
            # That of the last segment may be shorter, and alone on its rank.
            self.size = min(size, max(1, self.want[self.rank + 1] - self.want[self.rank]))
            return
        self.size = 0
        if check:
            Segments(offsets.cpu().numpy()).edges(length)
        self.count = offsets.shape[0] - 1
        borders = torch.tensor(self.have[1:-1], device=offsets.device, dtype=offsets.dtype)
        inner = torch.searchsorted(offsets.contiguous(), borders).clamp(max=self.count)
        both = torch.stack([inner, offsets[inner]]).tolist()
        self.first = [0, *both[0], self.count]
        # Unchecked offsets may be wrong, but lead nowhere outside of the tensors.
        self.want = [0]
        for edge in both[1]:
            self.want.append(min(length, max(self.want[-1], edge)))
        self.want.append(length)
        own = offsets[self.first[self.rank] : self.first[self.rank + 1] + 1] - self.want[self.rank]
        self.offsets = own.clamp(0, self.want[self.rank + 1] - self.want[self.rank])

    def elements(self, local: Tensor, dim: int) -> Tensor:
        """Return the elements of this rank's segments, along the first axis."""
        return moved(local.movedim(dim, 0), self.have, self.want, self.group)

    def is_empty(self) -> bool:
        """Return whether no segment begins on this rank."""
        begin, end = self.first[self.rank : self.rank + 2]
        return bool(begin == end)


def _segment_sum(
    input: Tensor, offsets: Any, size: int, dim: int, check: bool, dtype: Any, bits: str
) -> Tensor:
    dim = dim % input.dim()
    wanted, shape = list(input.placements), _shape_of("segment_sum", input, offsets, size, dim)
    if not _cut_by(input, [dim]):
        result = operator("segment_sum")(input.to_local(), offsets, size, dim, check, dtype, bits)
        return _made(result, input, wanted, shape)
    input, place = _with_one_cut(input, dim, [dim])
    segments = _Segments(input, place, offsets, size, dim, check)
    rows = segments.elements(input.to_local(), dim)
    result = rows.new_zeros((0, *rows.shape[1:]), dtype=dtype)
    if not segments.is_empty():
        result = operator("segment_sum")(
            rows, segments.offsets, segments.size, 0, check, dtype, bits
        )
    have = _chunks(segments.count, input.device_mesh.size(place))
    result = moved(result, segments.first, have, segments.group).movedim(0, dim)
    return _placed(_made(result, input, list(input.placements), shape), wanted)


def _segment_cumsum(
    input: Tensor, offsets: Any, size: int, dim: int, check: bool, *more: Any
) -> Tensor:
    _require_no_initial(more[-1])
    dim, wanted, dtype = dim % input.dim(), list(input.placements), more[-3]
    if not _cut_by(input, [dim]):
        result = operator("segment_cumsum")(input.to_local(), offsets, size, dim, check, *more)
        return _made(result, input, wanted, input.shape)
    input, place = _with_one_cut(input, dim, [dim])
    segments = _Segments(input, place, offsets, size, dim, check)
    rows = segments.elements(input.to_local(), dim)
    result = rows.new_zeros(rows.shape, dtype=dtype)
    if not segments.is_empty():
        result = operator("segment_cumsum")(rows, segments.offsets, segments.size, 0, check, *more)
    result = moved(result, segments.want, segments.have, segments.group).movedim(0, dim)
    return _placed(_made(result, input, list(input.placements), input.shape), wanted)


def _segment_spread(
    input: Tensor, offsets: Any, size: int, dim: int, length: int, bits: str
) -> Tensor:
    dim = dim % input.dim()
    wanted = list(input.placements)
    shape = _shape_of("segment_spread", input, offsets, size, dim, length)
    whole = input
    if _cut_by(input, [dim]):
        keep = [Replicate() if one.is_shard(dim) else one for one in wanted]
        whole = _placed(input, keep)
    result = operator("segment_spread")(whole.to_local(), offsets, size, dim, length, bits)
    return _placed(_made(result, whole, list(whole.placements), shape), wanted)


# --- Norms and products ---------------------------------------------------------------------------


def _require_alike(first: Tensor, second: Tensor) -> None:
    """Refuse a DTensor beside another tensor: who has which of its gradients could not be told."""
    found = [getattr(one, "device_mesh", None) for one in (first, second)]
    if found[0] != found[1]:
        raise InputError(
            "a DTensor goes with DTensors of its mesh. Make one of the other tensor: "
            "distribute_tensor(tensor, mesh, [Replicate()])"
        )


def _rms_norm(input: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    if weight is not None:
        _require_alike(input, weight)
        weight = _placed(weight, [Replicate()] * weight.device_mesh.ndim).to_local()
    input = with_whole(input, [input.dim() - 1])
    result = operator("rms_norm")(input.to_local(), weight, eps)
    return _made(result, input, list(input.placements), input.shape)


def _of_elements(name: str) -> Callable[[Tensor], Tensor]:
    """Return the rule of an operator on each element."""

    def rule(input: Tensor) -> Tensor:
        result = operator(name)(input.to_local())
        return _made(result, input, list(input.placements), input.shape)

    return rule


def _rms_scales(input: Tensor, eps: float) -> Tensor:
    input = with_whole(input, [input.dim() - 1])
    result = operator("rms_scales")(input.to_local(), eps)
    return _made(result, input, list(input.placements), input.shape[:-1])


def _product(name: str) -> Callable[..., Tensor]:
    """Return the rule of a product: rows and stacks may be cut, the summed axis is whole."""
    own = 2 if name == "matmul" else 1

    def rule(a: Tensor, b: Tensor, dtype: Any) -> Tensor:
        _require_alike(a, b)
        shape = _shape_of(name, a, b, dtype)
        for_a: Placements = []
        for_b: Placements = []
        result: Placements = []
        for placement in a.placements:
            # Counted from the first axis of both stacks, from the right.
            axis = placement.dim - a.dim() if placement.is_shard() else -1
            if axis == -1 or (axis < -2 and a.shape[axis] == 1):
                for_a.append(Replicate())
                for_b.append(Replicate())
                result.append(Replicate())
                continue
            for_a.append(placement)
            behind = b.dim() + axis + 2 - own
            shared = axis < -2 and behind >= 0 and b.shape[behind] > 1
            for_b.append(Shard(behind) if shared else Replicate())
            result.append(Shard(len(shape) + axis + 2 - own))
        left, right = _placed(a, for_a), _placed(b, for_b)
        local = operator(name)(left.to_local(), right.to_local(), dtype)
        return _made(local, a, result, shape)

    return rule


# --- All rules ------------------------------------------------------------------------------------

_RULES: Final[dict[str, Callable[..., Tensor]]] = {
    "sum": _sum,
    "cumsum": _cumsum,
    "segment_sum": _segment_sum,
    "segment_cumsum": _segment_cumsum,
    "segment_spread": _segment_spread,
    "rms_norm": _rms_norm,
    "rms_scales": _rms_scales,
    **{name: _of_elements(name) for name in ("sqrt", "exp", "log")},
    "matmul": _product("matmul"),
    "matvec": _product("matvec"),
}


def _register(name: str, rule: Callable[..., Tensor]) -> None:
    """Give an operator its rule for DTensors."""

    def call(cls: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Tensor:
        for one in args:
            if isinstance(one, DTensor):
                require_settled("a tensor", one)
        # Gradients are recorded above.
        with torch.no_grad():
            return rule(*args, **kwargs)

    torch.library.register_torch_dispatch(f"tcusim::{name}", DTensor, call, lib=LIBRARY)


for _name, _rule in _RULES.items():
    _register(_name, _rule)
