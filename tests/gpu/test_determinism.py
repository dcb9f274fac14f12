"""A thousand runs of one launch for a whole array give one set of bits, however blocks finish.

The second half of the runs has a third of the GPU: a kernel that only waits holds the other
multiprocessors, each by nearly all of its shared memory.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import tcusim
from tcusim.backends import why_unavailable

LENGTH = 2**26
RUNS = 500

pytestmark = [pytest.mark.gpu(min_sm=80), pytest.mark.slow]

# Blocks count themselves in, and wait for a word in the host's memory.
OCCUPANT = r"""
extern "C" __global__ void occupy(unsigned int* started, const volatile unsigned int* leave) {
    if (threadIdx.x == 0) atomicAdd(started, 1u);
    while (*leave == 0) __nanosleep(1000);
}
"""


@pytest.fixture
def cupy() -> Any:
    reason = why_unavailable("cupy")
    if reason is not None:
        pytest.skip(reason)
    return importlib.import_module("cupy")


@contextmanager
def occupied(cupy: Any, share: float) -> Iterator[int]:
    """Hold this share of the multiprocessors; give their number."""
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    count = int(properties["multiProcessorCount"] * share)
    if count == 0:
        yield 0
        return
    room = properties["sharedMemPerBlockOptin"]
    kernel = cupy.RawKernel(OCCUPANT, "occupy")
    kernel.max_dynamic_shared_size_bytes = room
    started = cupy.zeros(1, cupy.uint32)
    pinned = cupy.cuda.alloc_pinned_memory(4)
    leave = importlib.import_module("numpy").frombuffer(pinned, "u4", 1)
    leave[0] = 0
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        kernel((count,), (32,), (started, cupy.uint64(pinned.ptr)), shared_mem=room)
    try:
        seen = cupy.cuda.Stream(non_blocking=True)
        with seen:
            while int(started.get(stream=seen)[0]) < count:
                pass
        yield count
    finally:
        leave[0] = 1
        stream.synchronize()


@pytest.mark.parametrize("algorithm", ["reduction_single_pass", "scan_single_pass"])
@pytest.mark.parametrize("share", [0.0, 2 / 3], ids=["whole GPU", "a third of it"])
def test_repeated_runs_have_the_same_bits(cupy: Any, algorithm: str, share: float) -> None:
    program = tcusim.build(algorithm, masked=True, warps=8, accumulation_length=16)
    x = cupy.random.default_rng(7).random(LENGTH, dtype=cupy.float32).astype(cupy.float16)
    own = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with own:
        first = tcusim.run(program, {"in": x}, backend="cupy")["out"].view(cupy.uint32)
        out = cupy.empty(first.size, cupy.float32)
        different = cupy.zeros(1, cupy.int64)

        def once() -> None:
            tcusim.run(program, {"in": x}, backend="cupy", out={"out": out}, poison=True)
            cupy.add(different, (out.view(cupy.uint32) != first).sum(), out=different)

        # Loading a kernel waits for those that run: all that is needed is loaded before.
        once()
        own.synchronize()
        with occupied(cupy, share):
            for _ in range(RUNS):
                once()
            own.synchronize()
        assert int(different.get()[0]) == 0
