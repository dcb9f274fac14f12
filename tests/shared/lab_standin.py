"""A laboratory without a GPU, for the tests of `tcusim microbench`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tcusim.errors import Unsupported
from tcusim_cuda.microbench.gpu import Gpu, Memory
from tcusim_cuda.microbench.probes import SCHEDULERS, Lab
from tcusim_cuda.microbench.report import known_unit
from tcusim_cuda.microbench.texts import A_ROUND

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

    def __call__(self, blocks: int, threads: int, arguments: Any) -> None:
        first = arguments[0]
        if self.name == "ticks":
            first.reshape(-1, 2)[:] = (1755, 1000)
        elif isinstance(first, np.ndarray) and first.dtype == np.int64:
            warps = threads // 32
            rounds = int(arguments[2]) * (1 if self.name in ("follow", "answer") else A_ROUND)
            cycles = CYCLES.get(self.name, 10.0) * rounds
            if self.name in ("beside", "shuffle_beside"):
                cycles *= warps / SCHEDULERS
            elif self.name.startswith("shared_read"):
                cycles *= warps
            first.reshape(-1, 2)[:] = (100, 100 + int(cycles))


class NoGpuHere(Gpu):
    """A GPU of clockwork: half a millisecond by events, and 2 microseconds in a graph."""

    def __init__(self, broken: tuple[str, ...] = ()) -> None:
        self.broken = broken
        self.data, self.output = (Memory(0, 2**23) for _ in range(2))
        self.__dict__["info"] = {
            "gpu": "NVIDIA H200", "sm": 90, "multiprocessors": 132, "l2_bytes": 60 * 2**20,
            "driver": "1.2",
        }  # fmt: skip

    @property
    def sm(self) -> int:
        return 90

    def zeros(self, count: int, dtype: Any) -> Any:
        return np.zeros(count, dtype)

    def values(self, memory: Any, dtype: Any) -> Any:
        return memory

    def fill(self, memory: Memory, value: int) -> None:
        pass

    def copy(self, source: Memory, target: Memory) -> None:
        pass

    def load(self, cubin: bytes) -> None:
        pass

    def kernel(self, module: None, name: str) -> Any:
        if name in self.broken:
            raise Unsupported(f"{name}: refused")
        if name == "empty":
            raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS\nmore")
        return Clockwork(name)

    def once(self, run: Any, *, busy: bool = False) -> float:
        run()
        return 0.5


class NoLab(Lab):
    """A laboratory without a GPU; it compiles nothing."""

    def __init__(self, *broken: str) -> None:
        gpu = NoGpuHere(broken)
        super().__init__(gpu, known_unit(gpu.info))

    def compile_ahead(self, several: Any) -> None:
        pass

    def kernel(self, text: str, name: str) -> Any:
        return self.gpu.kernel(None, name)
