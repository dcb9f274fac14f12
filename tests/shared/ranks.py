"""The ranks of a test of tcusim.torch.distributed: a script that starts them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
    init_device_mesh,
)
from torch.multiprocessing import start_processes

import tcusim
import tcusim.torch as tct
import tcusim.torch.distributed as tcd


def same(got: Any, expected: Any) -> None:
    """Fail unless a tensor has these bits."""
    values = np.asarray(expected)
    assert tuple(got.shape) == values.shape, (got.shape, values.shape)
    assert got.numpy().tobytes() == values.tobytes()


def of_one(compute: Callable[[], Any]) -> Any:
    """Return the first rank's result: the simulator takes its time."""
    found = [compute() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(found)
    return found[0]


def check_pieces(rank: int) -> None:
    """Compare sums, scans and segments of all ranks with those of one array."""
    rng = np.random.default_rng(0)
    # Two groups of a scan.
    x = 10 * rng.standard_normal(2**20 + 12_345)
    for operation in ("sum", "cumsum"):
        sizes = tcd.shard_sizes(x.size, dtype=torch.float64, operation=operation)
        assert sum(sizes) == x.size
        begin = sum(sizes[:rank])
        own = torch.from_numpy(x[begin : begin + sizes[rank]])
        same(tcd.sum(own), of_one(lambda: tcusim.sum(x)))
    for reverse in (False, True):
        whole = of_one(partial(tcusim.cumsum, x, reverse=reverse))
        same(tcd.cumsum(own, reverse=reverse), whole[begin : begin + sizes[rank]])
        known = tcd.cumsum(own, reverse=reverse, sizes=sizes)
        same(known, whole[begin : begin + sizes[rank]])
    check_sizes(own, sizes, rank)
    half = x[:50_000].astype(np.float16)
    even = np.linspace(0, half.size, dist.get_world_size() + 1).astype(int)
    ids = np.sort(rng.integers(0, 40, half.size))
    # One segment lies on all ranks, and some have no elements.
    ids[5000:45_000] = ids[5000]
    # Pieces that do not end on the grid, and ranks without elements.
    for cuts in (even, np.minimum(even * 3, half.size)):
        part = slice(cuts[rank], cuts[rank + 1])
        piece, numbers = torch.from_numpy(half[part]), torch.from_numpy(ids[part])
        same(tcd.sum(piece), tcusim.sum(half))
        same(tcd.cumsum(piece), tcusim.cumsum(half)[part])
        segments = tcusim.segmented_sum(half, tcusim.Segments(ids=ids, count=45))
        same(tcd.segment_sum(piece, numbers, 45), segments)
    few = torch.tensor([250, 250, 250], dtype=torch.uint8)
    assert int(tcd.sum(few)) == 750 * dist.get_world_size()


def check_integers(rank: int) -> None:
    """Compare float sums of integers with those of one array, where 64 bits would not hold them."""
    world = dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    large = np.arange(7 * world, dtype=np.int64) * (2**62 // 5) + 2**61
    for x in (large, -large, large.astype(np.uint64), (large >> 33).astype(np.int32)):
        whole = torch.from_numpy(x)
        own = whole.chunk(world)[rank]
        # torch itself moves no uint64.
        there = DTensor.from_local(own, mesh, [Shard(0)])
        for result in (torch.float64, torch.float32):
            name = str(result).removeprefix("torch.")
            expected = tcusim.sum(x, dtype=name)
            same(tcd.sum(own, dtype=result), expected)
            same(tct.sum(there, dtype=result).full_tensor(), expected)
            for reverse in (False, True):
                scans = tcusim.cumsum(x, dtype=name, reverse=reverse)
                got = tcd.cumsum(own, dtype=result, reverse=reverse)
                same(got, scans.reshape(world, -1)[rank])
                got = tct.cumsum(there, 0, dtype=result, reverse=reverse)
                same(got.full_tensor(), scans)


def check_sizes(own: Any, sizes: list[int], rank: int) -> None:
    """Sum with known sizes, without asking a rank for them; refuse wrong ones."""
    expected = tcd.sum(own)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tcusim.torch.distributed.gathered_numbers", None)
        assert torch.equal(tcd.sum(own, sizes=sizes), expected)
    own_size = sizes[rank]
    wrong: list[Any] = [sizes[:-1], [*sizes, 0], [own_size + 1] * len(sizes)]
    for given in (*wrong, [float(size) for size in sizes]):
        with pytest.raises(tcusim.InputError, match="sizes must be"):
            tcd.sum(own, sizes=given)


def offsets(x: Any) -> Any:
    """Return segments of the first axis: empty ones, one element, and nearly all."""
    return torch.tensor([0, 0, 1, 3, 3, x.shape[0] - 1, x.shape[0]])


def weight(x: Any) -> Any:
    """Return a weight of the rows; torch adds up its gradient for float32."""
    return x[0] if x.dim() == 2 and x.dtype != torch.float32 else None


CALLS: dict[str, Callable[[Any], Any]] = {
    "sum": tct.sum,
    "sum of rows": lambda x: tct.sum(x, -1, True),
    "sum of columns": lambda x: tct.sum(x, 0, dtype=torch.float32),
    "sum in another order": lambda x: tct.sum(x, tuple(reversed(range(x.dim())))),
    "exact": lambda x: tct.sum(x.detach(), options={"bits": "exact"}),
    "cumsum": lambda x: tct.cumsum(x, 0, reverse=True),
    "cumsum of rows": lambda x: tct.cumsum(x, -1, exclusive=True),
    "segments": lambda x: tct.segment_sum(x, 3, dim=0),
    "segments by offsets": lambda x: tct.segment_sum(x, offsets(x), dim=0),
    "segments by ids": lambda x: tct.segment_sum(
        x, tcusim.Segments(ids=torch.arange(x.shape[0]) // 5), dim=0
    ),
    "scans of segments": lambda x: tct.segment_cumsum(x, offsets(x), dim=0),
    "mean": lambda x: tct.mean(x, 0),
    "rms_norm": lambda x: tct.rms_norm(x, x.shape[-1], weight(x)),
    "rms_norm of all": lambda x: tct.rms_norm(x, tuple(x.shape)),
    "layer_norm": lambda x: tct.layer_norm(x, x.shape[-1]),
}
MATRICES: dict[str, Callable[[Any], Any]] = {
    # Rows of 16 elements: torch computes rows that do not fill a vector register another way.
    "softmax": lambda x: tct.softmax(x, 1),
    "logsumexp": lambda x: tct.logsumexp(x, 1),
    "matmul": lambda x: tct.matmul(x, x.mT),
    "matvec": lambda x: tct.matvec(x, x[0]),
}


def check_dtensor(name: str, call: Callable[[Any], Any], x: Any, mesh: Any, where: Any) -> None:
    """Compare a result and a gradient of a DTensor with those of the whole tensor."""
    whole, sharded = x.clone().requires_grad_(), distribute_tensor(x, mesh, where).requires_grad_()
    expected, got = call(whole), call(sharded)
    assert isinstance(got, DTensor)
    about = name, x.dtype, tuple(x.shape), where, got.placements
    assert torch.equal(got.full_tensor(), expected), about
    if expected.requires_grad:
        gradient = torch.linspace(-1, 1, expected.numel(), dtype=x.dtype).reshape(expected.shape)
        expected.backward(gradient)
        got.backward(distribute_tensor(gradient, mesh, [Replicate()] * mesh.ndim))
        assert sharded.grad.placements == tuple(where), about
        assert torch.equal(sharded.grad.full_tensor(), whole.grad), about


def check_dtensors(shape: tuple[int, ...]) -> None:
    """Try DTensors of every placement on a mesh."""
    mesh = init_device_mesh("cpu", shape)
    generator = torch.Generator().manual_seed(0)
    # Two cells of the grid, fewer elements than ranks, rows, and rows of a few cells.
    dtypes = (torch.float16, torch.bfloat16, torch.float32)
    shapes = ((17_001,), (4,), (37, 16), (16_500, 2))
    for extents in shapes[: {2: 4, 4: 3}.get(mesh.size(), 2)]:
        for dtype in dtypes if mesh.size() == 2 and extents in shapes[::2] else dtypes[:1]:
            x = torch.randn(extents, generator=generator).to(dtype)
            names = [*CALLS, *(MATRICES if extents == (37, 16) else ())]
            if mesh.size() != 2 or dtype != torch.float16:
                names = ["sum", "sum of rows", "cumsum", "segments by offsets", "rms_norm"]
            if extents == (16_500, 2):
                names = ["sum of columns", "segments by offsets"]
            one = [Replicate(), *map(Shard, range(x.dim()))]
            for where, name in product(product(one, repeat=mesh.ndim), names):
                check_dtensor(name, {**CALLS, **MATRICES}[name], x, mesh, where)


def check_refused() -> None:
    """A collective adds in no known order; a plain tensor has no place on a mesh."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    x = torch.ones(4, 8, dtype=torch.float16)
    unsettled = DTensor.from_local(x, mesh, [Partial()])
    for call in (tct.sum, tcd.sum, CALLS["cumsum"], CALLS["segments"], CALLS["layer_norm"]):
        with pytest.raises(tcusim.InputError, match="still to be added by a collective"):
            call(unsettled)
    sharded = distribute_tensor(x, mesh, [Shard(0)])
    with pytest.raises(tcusim.InputError, match="a DTensor goes with DTensors of its mesh"):
        tct.matmul(sharded, x.mT)
    with pytest.raises(tcusim.InputError, match=r"elements are in other tensors.*full_tensor\(\)"):
        tcusim.sum(sharded)
    with pytest.raises(tcusim.InputError, match="has the groups of its mesh: leave group out"):
        tcd.sum(sharded, group=dist.group.WORLD)
    with pytest.raises(tcusim.InputError, match="segments=5 is longer"):
        tct.segment_sum(sharded, 5, dim=0)
    with pytest.raises(tcusim.InputError, match="local requires a gradient"):
        tcd.sum(x[0].clone().requires_grad_())
    flat = distribute_tensor(x.reshape(-1), mesh, [Shard(0)])
    assert tcd.sum(flat).full_tensor() == 32
    assert tcd.cumsum(flat).placements == flat.placements
    ids = distribute_tensor(torch.arange(32) // 8, mesh, [Shard(0)])
    assert tcd.segment_sum(flat, ids, 4).full_tensor().tolist() == [8] * 4


def work(rank: int, world: int, path: str) -> None:
    """Join the group and check."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=world)
    if world == 4:
        check_dtensors((2, 2))
    else:
        check_pieces(rank)
        check_integers(rank)
        check_refused()
        check_dtensors((world,))
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks = int(sys.argv[1])
    # Forked, they need not import everything again.
    start_processes(work, (ranks, sys.argv[2]), nprocs=ranks, start_method="fork")
