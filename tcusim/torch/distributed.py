"""Sums and scans of tensors whose pieces lie on the ranks of a process group.

Each rank holds one piece, in the order of the ranks, and computes it. Collectives move partial sums
and add nothing; every rank adds them in the order of the whole. So any number of ranks has the bits
of one.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import torch
import torch.distributed as dist

import tcusim
from tcusim.arrays.partial import Operation, carries, combine, cut_size, partials, sums_type
from tcusim.errors import InputError
from tcusim.machine.formats import array_name_of
from tcusim.torch.functions import Tensor
from tcusim.torch.operators import result_type
from tcusim.torch.simulation import arch_for

__all__ = ["cumsum", "segment_sum", "shard_sizes", "sum"]

_DEFAULT_ARCH: Final = "hopper"


def shard_sizes(
    length: int, *, dtype: Any, operation: Operation = "cumsum", group: Any = None
) -> list[int]:
    """Return how many elements each rank should hold of a tensor of this length.

    Parameters
    ----------
    length : int
        Elements of all ranks together.
    dtype : torch.dtype
        Their type.
    operation : {"sum", "cumsum"}
        What is done with them; pieces for scans do for sums, too.
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
    if length < 0:
        raise InputError(f"length must be 0 or more, got {length!r}")
    cut = cut_size(array_name_of(dtype), operation)
    world, pieces = dist.get_world_size(group), -(-length // cut)
    share, more = divmod(pieces, world)
    ends, sizes = 0, []
    for rank in range(world):
        begin = ends
        ends = min(length, begin + cut * (share + (rank < more)))
        sizes.append(ends - begin)
    return sizes


def sum(local: Tensor, *, dtype: Any = None, group: Any = None) -> Tensor:
    """Sum a tensor of one axis whose pieces the ranks hold.

    Parameters
    ----------
    local : Tensor, shape (n,)
        This rank's piece, which may be empty. All but the last that is not empty have a multiple of
        ``tcusim.cut_size(dtype)`` elements. Or a `DTensor` of one axis, sharded along it.
    dtype : torch.dtype, optional
        Type of the result; by default that of `local`, int64 for integers.
    group : ProcessGroup, optional
        By default all ranks, or those of the DTensor.

    Returns
    -------
    Tensor
        The sum, on every rank; of a DTensor a plain tensor. The bits of `tcusim.torch.sum` of the
        whole.

    Raises
    ------
    InputError
        If a piece does not end on the grid, or the tensor requires a gradient.
    """
    own, group = _piece(local, group)
    wanted = result_type(dtype, own.dtype)
    lengths = _lengths(own, group, "sum")
    if not any(lengths):
        return own.new_zeros((), dtype=wanted)
    totals = _gathered_partials(own, lengths, group, "sum", reverse=False)
    return combine(torch.cat(totals), dtype=array_name_of(wanted))


def cumsum(
    local: Tensor,
    *,
    dtype: Any = None,
    exclusive: bool = False,
    reverse: bool = False,
    group: Any = None,
) -> Tensor:
    """Scan a tensor of one axis whose pieces the ranks hold.

    Parameters
    ----------
    local : Tensor, shape (n,)
        As in `sum`; but pieces are multiples of ``tcusim.cut_size(dtype, "cumsum")``.
    exclusive, reverse : bool
        As in `tcusim.torch.cumsum`.
    dtype, group
        As in `sum`.

    Returns
    -------
    Tensor, shape (n,)
        This rank's piece of the scan, a DTensor for one. The bits of `tcusim.torch.cumsum` of the
        whole.

    Raises
    ------
    InputError
        As in `sum`.
    """
    own, process_group = _piece(local, group)
    wanted = result_type(dtype, own.dtype)
    lengths = _lengths(own, process_group, "cumsum")
    rank = dist.get_rank(process_group)
    result = own.new_empty(0, dtype=wanted)
    if any(lengths):
        groups = _gathered_partials(own, lengths, process_group, "cumsum", reverse=reverse)
        before = carries(torch.cat(groups), reverse=reverse)
        first = 0
        for each in groups[:rank]:
            first += each.shape[0]
        place = first + groups[rank].shape[0] - 1 if reverse else first
        if own.shape[0]:
            result = tcusim.cumsum(
                own, axis=0, dtype=array_name_of(wanted), exclusive=exclusive, reverse=reverse,
                initial=before[place], arch=arch_for(own),
            )  # fmt: skip
    return _like(local, result)


def segment_sum(
    local: Tensor, ids: Tensor, num_segments: int, *, dtype: Any = None, group: Any = None
) -> Tensor:
    """Sum segments whose elements lie on the ranks, in the order of the ranks.

    Parameters
    ----------
    local : Tensor, shape (n,) or (n, columns)
        This rank's elements, or rows of them; of any number.
    ids : Tensor of int, shape (n,)
        The segment of each. They never decrease, within a rank and from one to the next.
    num_segments : int
        How many segments there are.
    dtype, group
        As in `sum`.

    Returns
    -------
    Tensor, shape (num_segments,) or (num_segments, columns)
        All sums, on every rank. A segment that several ranks have elements of is summed by the
        first of them, which receives the others' elements: its grid begins there.

    Raises
    ------
    InputError
        If the ids decrease, or the tensor requires a gradient.
    """
    own, group = _piece(local, group)
    wanted = result_type(dtype, own.dtype)
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    if ids.shape != own.shape[:1] or bool((ids[1:] < ids[:-1]).any()):
        raise InputError("ids must have one number for each element, and never decrease")
    # The first and the last id of each rank; -1 of those without elements.
    ends = ids.new_full((2,), -1)
    if ids.shape[0]:
        ends[0], ends[1] = ids[0], ids[-1]
    every = [[int(end) for end in pair] for pair in _all_gather(ends, world, group)]
    known = [pair for pair in every if pair[0] >= 0]
    if any(last > first for (_, last), (first, _) in pairwise(known)):
        raise InputError("ids must never decrease from one rank to the next")
    if known and known[-1][1] >= num_segments:
        raise InputError(f"ids must be below num_segments, {num_segments}; got {known[-1][1]}")
    # What belongs to a segment that begins on an earlier rank goes there.
    before = max((last for _, last in every[:rank]), default=-1)
    head = int((ids == before).sum()) if before >= 0 else 0
    heads = _all_gather_uneven(own[:head], world, group)
    owners = _all_gather_uneven(ids[:head], world, group)
    parts, numbers = [own[head:]], [ids[head:]]
    if ids.shape[0] > head:
        for other in range(rank + 1, world):
            taken = owners[other] == ids[-1]
            parts.append(heads[other][taken])
            numbers.append(owners[other][taken])
    values, places = torch.cat(parts), torch.cat(numbers)
    shape = (num_segments, *own.shape[1:])
    sums = own.new_zeros(shape, dtype=wanted)
    if values.shape[0]:
        sums = tcusim.segmented_sum(
            values, segment_ids=places, num_segments=num_segments, axis=0,
            dtype=array_name_of(wanted), arch=arch_for(own),
        )  # fmt: skip
    # Each segment is one rank's: its row is taken, and nothing is added.
    rows = _all_gather(sums.contiguous(), world, group)
    result = own.new_zeros(shape, dtype=wanted)
    begins = [
        (first if first > max((last for _, last in every[:place]), default=-1) else first + 1, last)
        for place, (first, last) in enumerate(every)
    ]
    for row, (first, last) in zip(rows, begins, strict=True):
        if last >= 0:
            result[first : last + 1] = row[first : last + 1]
    return result


# --- Pieces ---------------------------------------------------------------------------------------


def _piece(local: Tensor, group: Any) -> tuple[Tensor, Any]:
    """Return a rank's elements, and the ranks."""
    if hasattr(local, "device_mesh"):
        if local.device_mesh.ndim != 1 or not local.placements[0].is_shard(0):
            raise InputError(
                "a DTensor must be sharded along its first axis, over a mesh of one dimension: "
                "redistribute it to [Shard(0)]"
            )
        group = local.device_mesh.get_group() if group is None else group
        local = local.to_local()
    if local.requires_grad and torch.is_grad_enabled():
        raise InputError(
            "a requires a gradient, which would be lost: these functions have no autograd. Pass "
            "local.detach()"
        )
    return local.detach(), group


def _like(local: Tensor, result: Tensor) -> Tensor:
    """Return a rank's piece of the result, as a DTensor if its piece of the input was one."""
    if not hasattr(local, "device_mesh"):
        return result
    return type(local).from_local(
        result,
        local.device_mesh,
        local.placements,
        run_check=False,
        shape=local.shape,
        stride=local.stride(),
    )


def _lengths(own: Tensor, group: Any, operation: Operation) -> list[int]:
    """Return the number of elements of each rank; refuse pieces that do not end on the grid."""
    if own.dim() != 1:
        raise InputError(f"local must have one axis, got shape {tuple(own.shape)}")
    world = dist.get_world_size(group)
    count = torch.tensor([own.shape[0]], device=own.device)
    lengths = [int(one) for one in _all_gather(count, world, group)]
    cut = cut_size(array_name_of(own.dtype), operation, arch=arch_for(own) or _DEFAULT_ARCH)
    filled = [rank for rank, length in enumerate(lengths) if length]
    for rank in filled[:-1]:
        if lengths[rank] % cut:
            raise InputError(
                f"rank {rank} has {lengths[rank]} elements, and ranks after it have more. Only the "
                f"last may have other than a multiple of {cut}; shard_sizes says how to share"
            )
    return lengths


def _gathered_partials(
    own: Tensor, lengths: list[int], group: Any, operation: Operation, *, reverse: bool
) -> list[Tensor]:
    """Return the partial sums of each rank, on every rank."""
    arch = arch_for(own)
    cut = cut_size(array_name_of(own.dtype), operation, arch=arch or _DEFAULT_ARCH)
    counts = [-(-length // cut) for length in lengths]
    wide = getattr(torch, sums_type(array_name_of(own.dtype)).name)
    padded = own.new_zeros(max(counts), dtype=wide)
    if own.shape[0]:
        ours = partials(own, operation=operation, reverse=reverse, arch=arch)
        padded[: ours.shape[0]] = ours
    gathered = _all_gather(padded, len(lengths), group)
    return [one[:count] for one, count in zip(gathered, counts, strict=True)]


def _all_gather(tensor: Tensor, world: int, group: Any) -> list[Tensor]:
    found = [torch.empty_like(tensor) for _ in range(world)]
    dist.all_gather(found, tensor.contiguous(), group=group)
    return found


def _all_gather_uneven(tensor: Tensor, world: int, group: Any) -> list[Tensor]:
    """Gather tensors whose first axes differ in length."""
    count = torch.tensor([tensor.shape[0]], device=tensor.device)
    counts = [int(one) for one in _all_gather(count, world, group)]
    padded = tensor.new_zeros((max(counts), *tensor.shape[1:]))
    padded[: tensor.shape[0]] = tensor
    return [
        one[:length] for one, length in zip(_all_gather(padded, world, group), counts, strict=True)
    ]
