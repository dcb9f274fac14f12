"""A laboratory without a GPU, for the tests of `tcusim microbench`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from bench_standin import NoGpu
from tcusim.errors import Unsupported
from tcusim_bench.microbench import known_unit
from tcusim_bench.probe_texts import A_ROUND
from tcusim_bench.probes import SCHEDULERS, Lab

__all__ = ["Clockwork", "NoLab"]

# Cycles of one instruction of a kernel, in the stand-in; of many warps, those of a scheduler.
CYCLES = {
    "chain": 33.0,
    "beside": 8.0,
    "shuffle_chain": 23.0,
    "shuffle_beside": 2.0,
    "follow": 250.0,
    "shared_read_16": 4.0,
    "block_barrier": 20.0,
}


class Clockwork:
    """A kernel that does nothing, and takes the time that it should."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, blocks: Any, threads: Any, arguments: Any) -> None:
        first = arguments[0]
        if self.name == "ticks":
            first.reshape(-1, 2)[:] = (1755, 1000)
        elif first.dtype == np.int64:
            warps = threads[0] // 32
            rounds = int(arguments[2]) * (1 if self.name in ("follow", "answer") else A_ROUND)
            cycles = CYCLES.get(self.name, 10.0) * rounds
            if self.name in ("beside", "shuffle_beside"):
                cycles *= warps / SCHEDULERS
            elif self.name.startswith("shared_read"):
                cycles *= warps
            first.reshape(-1, 2)[:] = (100, 100 + int(cycles))


class NoLab(Lab):
    """A laboratory without a GPU: half a millisecond by events, and clockwork for kernels."""

    broken: tuple[str, ...] = ()

    def __init__(self) -> None:
        device = NoGpu(2**22, "cupy")
        device.cp = SimpleNamespace(asnumpy=np.asarray, zeros=np.zeros)
        device.info.update(
            {"gpu": "NVIDIA H200", "multiprocessors": 132, "l2_bytes": 60 * 2**20, "driver": "1.2"}
        )
        super().__init__(device, known_unit(device.info))

    def compile_ahead(self, several: Any) -> None:
        pass

    def kernel(self, text: str, name: str) -> Any:
        if name in self.broken:
            raise Unsupported(f"{name}: refused")
        if name == "empty":
            raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS\nmore")
        return Clockwork(name)

    def seconds_in_graph(self, run: Any) -> float:
        return 2e-6
