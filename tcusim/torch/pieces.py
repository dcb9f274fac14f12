"""An axis in pieces, which the ranks of a process group hold one after another.

Pieces are tensors whose first axis is cut. `edges` has their places: rank r has the elements
from edges[r] to edges[r + 1], and edges[-1] is the length of the whole. All ranks know all edges.

Collectives move elements, partial sums and results, and add nothing; ranks add in the order
of the whole. So any number of ranks has the bits of one.

Sums of integers are integers until all is added up, and become floats then. Those of 64 bits would
be modulo 2**64: every rank gets all elements for a float result, and adds them exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

import tcusim
from tcusim.arrays.partial import (
    Operation,
    are_modular,
    carries,
    combine,
    cut_size,
    partials,
    type_of_work,
)
from tcusim.call_options import DEFAULTS
from tcusim.machine.formats import array_name_of
from tcusim.torch.simulation import own_arch

Tensor: TypeAlias = Any
Edges: TypeAlias = Sequence[int]


def edges_of_lengths(lengths: Sequence[int]) -> list[int]:
    """Return the edges of pieces of these lengths."""
    edges = [0]
    for length in lengths:
        edges.append(edges[-1] + length)
    return edges


def without_empty(begins: Sequence[int | None], end: int) -> list[int]:
    """Return edges of pieces that begin here; None has no elements, and begins where the next does.

    The first one begins at 0.
    """
    edges = [end]
    for begin in reversed(begins):
        edges.append(edges[-1] if begin is None else begin)
    edges[-1] = 0
    return edges[::-1]


def cut_of(tensor: Tensor, operation: Operation) -> int:
    """Return `tcusim.cut_size` for a tensor's type, which is the same on all GPUs."""
    return cut_size(array_name_of(tensor.dtype), operation, options=DEFAULTS)


# --- Moved elements -------------------------------------------------------------------------------


def moved(own: Tensor, have: Edges, want: Edges, group: Any) -> Tensor:
    """Return this rank's piece by other edges. Only elements that change their rank are sent."""
    if list(have) == list(want):
        return own
    rank = dist.get_rank(group)
    sent, received = _overlaps(rank, have, want), _overlaps(rank, want, have)
    result = own.new_empty((want[rank + 1] - want[rank], *own.shape[1:]))
    dist.all_to_all_single(result, own.contiguous(), received, sent, group=group)
    return result


def _overlaps(rank: int, own: Edges, others: Edges) -> list[int]:
    """Return the elements of a rank's piece within each piece by other edges."""
    begin, end = own[rank], own[rank + 1]
    return [
        max(0, min(end, others[place + 1]) - max(begin, others[place]))
        for place in range(len(others) - 1)
    ]


def gathered(own: Tensor, edges: Edges, group: Any) -> Tensor:
    """Return the pieces of all ranks end to end, on every rank, by one all_gather."""
    lengths = [end - begin for begin, end in pairwise(edges)]
    most = max(lengths)
    padded = own.contiguous()
    if own.shape[0] < most:
        padded = own.new_zeros((most, *own.shape[1:]))
        padded[: own.shape[0]] = own
    found = padded.new_empty((len(lengths) * most, *own.shape[1:]))
    dist.all_gather_into_tensor(found, padded, group=group)
    if min(lengths) == most:
        return found
    pieces = found.split(most)
    return torch.cat([one[:length] for one, length in zip(pieces, lengths, strict=True)])


def gathered_numbers(own: Sequence[int], like: Tensor, group: Any) -> list[list[int]]:
    """Return a few integers of every rank."""
    numbers = torch.tensor(own, device=like.device)
    found = numbers.new_empty(dist.get_world_size(group) * len(own))
    dist.all_gather_into_tensor(found, numbers, group=group)
    every: list[list[int]] = found.view(-1, len(own)).tolist()
    return every


# --- Sums and scans -------------------------------------------------------------------------------


def _worked(own: Tensor, dtype: Any) -> Tensor:
    """Return a piece in the type of the computation."""
    work = type_of_work(array_name_of(own.dtype), array_name_of(dtype))
    return own.to(getattr(torch, work))


def sum_of_pieces(own: Tensor, edges: Edges, group: Any, dtype: Any) -> Tensor:
    """Return the sum along the first axis, on every rank."""
    if not edges[-1]:
        return own.new_zeros(own.shape[1:], dtype=dtype)
    if _are_modular(own, dtype):
        whole = _whole(own, edges, group)
        return tcusim.sum(whole, axis=0, dtype=array_name_of(dtype), options=own_arch(own))
    own = _worked(own, dtype)
    cut = cut_of(own, "sum")
    want = _on_grid(edges, cut)
    sums = _partials(moved(own, edges, want, group), want, cut, "sum", group)
    name = array_name_of(dtype)
    if sums.dtype == torch.float32:
        # The tree of `combine` in one launch: no partial sum is -0, which would count as 0.
        return tcusim.sum(sums, axis=0, dtype=name, options=own_arch(own))
    if not sums.dtype.is_floating_point:
        return combine(sums, axis=0).to(dtype)
    return combine(sums, axis=0, dtype=name)


def cumsum_of_pieces(
    own: Tensor, edges: Edges, group: Any, dtype: Any, *, exclusive: bool, reverse: bool
) -> Tensor:
    """Return this rank's piece of the scan along the first axis."""
    if not edges[-1]:
        return own.new_empty(own.shape, dtype=dtype)
    rank = dist.get_rank(group)
    order: dict[str, Any] = {"exclusive": exclusive, "reverse": reverse}
    if _are_modular(own, dtype):
        name, here = array_name_of(dtype), own_arch(own)
        whole = _whole(own, edges, group)
        scans = tcusim.cumsum(whole, axis=0, dtype=name, options=here, **order)
        return scans[edges[rank] : edges[rank + 1]]
    if dtype.is_floating_point and not own.dtype.is_floating_point:
        sums = cumsum_of_pieces(
            own, edges, group, torch.int64, exclusive=exclusive, reverse=reverse
        )
        return sums.double().to(dtype)
    own = _worked(own, dtype)
    cut = cut_of(own, "cumsum")
    want = _on_grid(edges, cut)
    piece = moved(own, edges, want, group)
    sums = _partials(piece, want, cut, "cumsum", group, reverse=reverse)
    result = piece.new_empty(piece.shape, dtype=dtype)
    if piece.shape[0]:
        # They are few, and added one after the other: by the host at once.
        before = carries(sums.cpu(), axis=0, reverse=reverse)
        if not dtype.is_floating_point:
            # Sums of pieces wrap, as those of elements do.
            before = before.to(dtype)
        place = -(-want[rank + 1] // cut) - 1 if reverse else want[rank] // cut
        result = tcusim.cumsum(
            piece, axis=0, dtype=array_name_of(dtype), initial=before[place],
            options=own_arch(piece), **order,
        )  # fmt: skip
    return moved(result, want, edges, group)


def _are_modular(own: Tensor, dtype: Any) -> bool:
    return are_modular(array_name_of(own.dtype), array_name_of(dtype))


def _whole(own: Tensor, edges: Edges, group: Any) -> Tensor:
    """Return all integers of 64 bits on every rank; collectives know no uint64."""
    return gathered(own.view(torch.int64), edges, group).view(own.dtype)


def _on_grid(edges: Edges, cut: int) -> list[int]:
    """Return edges on the grid: a piece shared by several ranks is the first one's."""
    return [min(edges[-1], -(-edge // cut) * cut) for edge in edges]


def _partials(
    piece: Tensor,
    edges: Edges,
    cut: int,
    operation: Operation,
    group: Any,
    *,
    reverse: bool = False,
) -> Tensor:
    """Return the partial sums of all ranks' pieces, on every rank."""
    counts = [-(-(end - begin) // cut) for begin, end in pairwise(edges)]
    # A rank without elements takes one zero, for the type of its partial sums.
    given = piece if piece.shape[0] else piece.new_zeros((1, *piece.shape[1:]))
    ours = partials(given, axis=0, operation=operation, reverse=reverse, options=own_arch(piece))
    if ours.dtype == torch.uint64:
        # In which torch does not add; the bits of the sums are the same.
        ours = ours.view(torch.int64)
    return gathered(ours[: counts[dist.get_rank(group)]], edges_of_lengths(counts), group)
