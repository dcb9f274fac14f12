"""Sums and scans of tensors whose pieces lie on the ranks of a process group.

Each rank holds one piece, in the order of the ranks, and computes it; `tcusim.torch.pieces` moves
elements between them. Any number of ranks has the bits of one. A `DTensor` knows its ranks, and
goes to `tcusim.torch`, also from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from numbers import Integral
from typing import Any

import torch
import torch.distributed as dist

import tcusim
from tcusim.arrays.partial import Operation, cut_size
from tcusim.arrays.segments import Segments, require_one_each, require_sorted, require_within
from tcusim.arrays.spec import count_of
from tcusim.call_options import DEFAULTS
from tcusim.errors import InputError
from tcusim.machine.formats import array_name_of
from tcusim.torch import functions
from tcusim.torch.functions import Tensor
from tcusim.torch.operators import is_integer, require_summable, result_type
from tcusim.torch.pieces import (
    cumsum_of_pieces,
    edges_of_lengths,
    gathered,
    gathered_numbers,
    moved,
    sum_of_pieces,
    without_empty,
)
from tcusim.torch.segments import facts_in_torch, require_integers
from tcusim.torch.segments import segment_sum as sum_of_segments
from tcusim.torch.simulation import own_arch

__all__ = ["cumsum", "segment_sum", "shard_sizes", "sum"]


def shard_sizes(
    length: int, *, dtype: Any, operation: Operation = "cumsum", group: Any = None
) -> list[int]:
    """Return the number of elements of each rank, of a tensor of this length.

    With other pieces, a cell of the grid that several ranks share is moved to the first of them,
    and its results back.

    Parameters
    ----------
    length : int
        Elements of all ranks together.
    dtype : torch.dtype
        Their type.
    operation : {"sum", "cumsum"}
        Operation on them; pieces for scans also serve for sums.
    group : ProcessGroup, optional
        By default all ranks.

    Returns
    -------
    list of int
        For each rank: whole pieces of the grid, shared as evenly as they can be.

    Raises
    ------
    InputError
        If the length is negative.
    """
    if not is_integer(length) or length < 0:
        raise InputError(f"length must be an integer from 0 on, got {length!r}")
    cut = cut_size(array_name_of(dtype), operation, options=DEFAULTS)
    world, pieces = dist.get_world_size(group), -(-length // cut)
    share, more = divmod(pieces, world)
    ends, sizes = 0, []
    for rank in range(world):
        begin = ends
        ends = min(length, begin + cut * (share + (rank < more)))
        sizes.append(ends - begin)
    return sizes


def sum(
    local: Tensor, *, dtype: Any = None, sizes: Sequence[int] | None = None, group: Any = None
) -> Tensor:
    """Sum a tensor of one axis whose pieces the ranks hold.

    Parameters
    ----------
    local : Tensor, shape (n,)
        This rank's piece, of any length, or a `DTensor`.
    dtype : torch.dtype, optional
        Type of the result; by default that of `local`, int64 for integers.
    sizes : sequence of int, optional
        How many elements each rank holds, as `shard_sizes` has it. Without it the ranks ask each
        other, and wait for the answer. It is the same on all ranks.
    group : ProcessGroup, optional
        By default all ranks. A DTensor has its own.

    Returns
    -------
    Tensor
        The sum, on every rank: the bits of `tcusim.torch.sum` of the whole.

    Raises
    ------
    InputError
        If the tensor requires a gradient, or has several axes, and is no DTensor; if `sizes` are
        not one for each rank, and this rank's its own.
    """
    if _is_dtensor(local, group, sizes):
        return functions.sum(local, dtype=dtype)
    own = _plain(local)
    return sum_of_pieces(own, _edges(own, sizes, group), group, result_type(dtype, own.dtype))


def cumsum(
    local: Tensor,
    *,
    dtype: Any = None,
    exclusive: bool = False,
    reverse: bool = False,
    sizes: Sequence[int] | None = None,
    group: Any = None,
) -> Tensor:
    """Scan a tensor of one axis whose pieces the ranks hold.

    Parameters
    ----------
    exclusive, reverse : bool
        As in `tcusim.torch.cumsum`.
    local, dtype, sizes, group
        As in `sum`.

    Returns
    -------
    Tensor, shape (n,)
        This rank's piece of the scan, a DTensor for one: the bits of `tcusim.torch.cumsum` of the
        whole.

    Raises
    ------
    InputError
        As in `sum`.
    """
    if _is_dtensor(local, group, sizes):
        return functions.cumsum(local, 0, dtype=dtype, exclusive=exclusive, reverse=reverse)
    own = _plain(local)
    wanted = result_type(dtype, own.dtype)
    edges = _edges(own, sizes, group)
    return cumsum_of_pieces(own, edges, group, wanted, exclusive=exclusive, reverse=reverse)


def segment_sum(
    local: Tensor, segment_ids: Tensor, num_segments: int, *, dtype: Any = None, group: Any = None
) -> Tensor:
    """Sum segments whose elements lie on the ranks, in the order of the ranks.

    Parameters
    ----------
    local : Tensor, shape (n,) or (n, columns)
        This rank's elements, or rows of them; of any number.
    segment_ids : Tensor of int, shape (n,)
        The segment of each. They never decrease, within a rank and from one to the next.
    num_segments : int
        How many segments there are.
    dtype, group
        As in `sum`.

    Returns
    -------
    Tensor, shape (num_segments,) or (num_segments, columns)
        All sums, on every rank; of a DTensor sharded as it is. A segment that several ranks have
        elements of is summed by the first of them, which receives the others' elements: its grid
        begins there.

    Raises
    ------
    InputError
        If `segment_ids` decrease, or the tensor requires a gradient and is no DTensor.
    """
    if _is_dtensor(local, group):
        by = Segments(ids=segment_ids, count=num_segments)
        return sum_of_segments(local, by, dim=0, dtype=dtype)
    own = _plain(local)
    rank, wanted = dist.get_rank(group), result_type(dtype, own.dtype)
    count_of("num_segments", num_segments, 0)
    require_integers("segment_ids", segment_ids)
    require_one_each("segment_ids", segment_ids.shape[0], own.shape[0])
    # The first and the last id of each rank; -1 of those without elements.
    ends = [-1, -1]
    if segment_ids.shape[0]:
        facts = facts_in_torch(segment_ids)
        require_sorted("segment_ids", facts)
        ends = [facts.first, facts.last]
    every = gathered_numbers([*ends, own.shape[0]], own, group)
    known = [(first, last) for first, last, length in every if length]
    if any(last > first for (_, last), (first, _) in pairwise(known)):
        raise InputError("segment_ids must not decrease from one rank to the next")
    if known:
        require_within("segment_ids", known[0][0], known[-1][1], num_segments)
    # The part of a segment that begins on an earlier rank is sent there.
    before = [max((last for _, last, _ in every[:each]), default=-1) for each in range(len(every))]
    head = int((segment_ids == before[rank]).sum())
    heads = [number for (number,) in gathered_numbers([head], own, group)]
    have = edges_of_lengths([length for _, _, length in every])
    keeps = [length > head for (_, _, length), head in zip(every, heads, strict=True)]
    want = without_empty(
        [
            edge + head if keep else None
            for edge, head, keep in zip(have, heads, keeps, strict=False)
        ],
        have[-1],
    )
    # The segments that begin on each rank. They are one rank's: nothing is added any more.
    segments = without_empty(
        [last + 1 if keep else None for last, keep in zip(before, keeps, strict=True)], num_segments
    )
    values, places = moved(own, have, want, group), moved(segment_ids, have, want, group)
    count = segments[rank + 1] - segments[rank]
    sums = own.new_zeros((count, *own.shape[1:]), dtype=wanted)
    if values.shape[0]:
        by = Segments(ids=places - segments[rank], count=count)
        name = array_name_of(wanted)
        sums = tcusim.segmented_sum(values, by, axis=0, dtype=name, options=own_arch(own))
    return gathered(sums, segments, group)


def _is_dtensor(local: Tensor, group: Any, sizes: Sequence[int] | None = None) -> bool:
    found = hasattr(local, "device_mesh")
    if found and group is not None:
        raise InputError("a DTensor has the groups of its mesh: leave group out")
    if found and sizes is not None:
        raise InputError("a DTensor knows the sizes of its pieces: leave sizes out")
    return found


def _plain(local: Tensor) -> Tensor:
    """Return a rank's elements; refuse to lose a gradient."""
    functions.require_tensor("local", local)
    require_summable("local", local)
    if local.requires_grad and torch.is_grad_enabled():
        raise InputError(
            "local requires a gradient, which would be lost: pieces have no autograd. Pass a "
            "DTensor, which has; or local.detach()"
        )
    return local.detach()


def _edges(own: Tensor, sizes: Sequence[int] | None, group: Any) -> list[int]:
    """Return the edges of all pieces of one axis."""
    if own.dim() != 1:
        raise InputError(f"local must have one axis, got shape {tuple(own.shape)}")
    if sizes is not None:
        world, rank = dist.get_world_size(group), dist.get_rank(group)
        known = len(sizes) == world and all(isinstance(n, Integral) and n >= 0 for n in sizes)
        if not known or sizes[rank] != own.shape[0]:
            raise InputError(
                f"sizes must be {world} integers, the elements that each rank holds, and of rank "
                f"{rank} {own.shape[0]}; got {sizes!r}"
            )
        return edges_of_lengths([int(size) for size in sizes])
    lengths = gathered_numbers([own.shape[0]], own, group)
    return edges_of_lengths([length for (length,) in lengths])
