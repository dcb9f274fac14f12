"""What a rank of a test of tcusim.torch.distributed does: run as a script, by each process."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import tcusim
import tcusim.torch.distributed as tcd


def same(got: Any, expected: Any) -> None:
    """Fail unless a tensor has these bits."""
    values = np.asarray(expected)
    assert tuple(got.shape) == values.shape, (got.shape, values.shape)
    assert got.numpy().tobytes() == values.tobytes()


def check(rank: int) -> None:
    """Compare sums, scans and segments of all ranks with those of one array."""
    rng = np.random.default_rng(0)
    x = (10 * rng.standard_normal(2**21 + 12_345)).astype(np.float64)
    for operation in ("sum", "cumsum"):
        sizes = tcd.shard_sizes(x.size, dtype=torch.float64, operation=operation)
        assert sum(sizes) == x.size
        begin = sum(sizes[:rank])
        own = torch.from_numpy(x[begin : begin + sizes[rank]])
        same(tcd.sum(own), tcusim.sum(x))
    for reverse in (False, True):
        whole = tcusim.cumsum(x, reverse=reverse)
        same(tcd.cumsum(own, reverse=reverse), whole[begin : begin + sizes[rank]])
    half = x[:50_000].astype(np.float16)
    cuts = np.linspace(0, half.size, dist.get_world_size() + 1).astype(int)
    ids = np.sort(rng.integers(0, 40, half.size))
    # One segment lies on all ranks, and some have no elements.
    ids[5000:45_000] = ids[5000]
    part = slice(cuts[rank], cuts[rank + 1])
    segments = tcd.segment_sum(torch.from_numpy(half[part]), torch.from_numpy(ids[part]), 45)
    same(segments, tcusim.segmented_sum(half, segment_ids=ids, num_segments=45))
    # Pieces that do not end on the grid, and ranks without elements.
    for sizes in (cuts, np.minimum(cuts * 3, half.size)):
        piece = torch.from_numpy(half[sizes[rank] : sizes[rank + 1]])
        same(tcd.sum(piece), tcusim.sum(half))
        same(tcd.cumsum(piece), tcusim.cumsum(half)[sizes[rank] : sizes[rank + 1]])
        numbers = torch.from_numpy(ids[sizes[rank] : sizes[rank + 1]])
        same(tcd.segment_sum(piece, numbers, 45), segments)


def main() -> None:
    """Join the group and check."""
    rank, world, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=world)
    check(rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
