"""Stand-ins for a GPU and for other libraries, for the tests of the benchmark."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tcusim.machine.formats import from_memory, to_memory
from tcusim.program.launches import LaunchPlan
from tcusim.simulate.backend import NUMPY
from tcusim_bench import run as bench_run
from tcusim_bench.device import Device
from tcusim_bench.energy import Drawn
from tcusim_bench.problems import Contender, Problem, reference
from tcusim_cuda.microbench.stopwatch import Times


class NoGpu(Device):
    """Runs programs on the simulator; every run takes half a millisecond."""

    def __init__(self, length: int, backend: str) -> None:
        self.length = length
        self.backend = backend
        self.cp = SimpleNamespace(asnumpy=np.asarray, asarray=np.asarray)
        rng = np.random.default_rng(0)
        self.numbers = {
            "f16": rng.uniform(-1, 1, length).astype(np.float16),
            # Half to one, of both signs.
            "bf16": (rng.integers(0, 2**8, length) * 0x101 & 0x807F | 0x3F00).astype(np.uint16),
            "f32": rng.uniform(-1, 1, length // 2).astype(np.float32),
            "f64": rng.uniform(-1, 1, length // 4),
            "s8": rng.integers(-128, 128, length, np.int8),
        }
        self.vector = rng.uniform(-1, 1, 2**10).astype(np.float16)
        self._room = np.empty(length * 4, np.uint8)
        self.__dict__["info"] = {"gpu": "none", "sm": 90, "l2_bytes": 1, "cuda": "", "driver": ""}

    @property
    def sm(self) -> int:
        return 90

    def data(self, dtype: str = "f16") -> Any:
        return self.numbers[dtype]

    def once(self, run: Any, *, busy: bool = False) -> float:
        run()
        return 0.5

    def has_nan(self, array: Any, dtype: str) -> bool:
        if dtype == "bf16":
            return bool(((array & 0x7FFF) > 0x7F80).any())
        return bool(np.isnan(array).any())

    def times(self, run: Any, repeats: int, *, warm: bool = False) -> Times:
        return Times(0.5, 0.25, 1.0)

    def times_in_graph(self, run: Any, repeats: int, *, of_torch: bool = False) -> Times:
        return Times(0.125, 0.125, 0.125)

    def energy(self, run: Any, seconds: float) -> Drawn:
        return Drawn(500.0, 0.5)

    def reader(self) -> Any:
        return lambda: None

    def copier(self) -> Any:
        return lambda: None

    def program(self, plan: LaunchPlan, arrays: tuple[Any, ...], out: Any) -> Any:
        inputs = dict(zip(plan.inputs, arrays, strict=True))
        inputs = {
            name: from_memory(array, plan.memory[name].dtype) for name, array in inputs.items()
        }
        (result,) = NUMPY.run(plan, inputs, arch="sm_90").values()

        def run() -> None:
            out[:] = to_memory(result, plan.memory["out"].dtype)
            damage(out)

        return run


def damage(out: Any) -> None:
    """Stand for the fault of a broken kernel; tests replace it."""


class NoPeers:
    """One peer that is right, one that writes nothing, and one that raises."""

    def __init__(self, device: Device, names: tuple[str, ...]) -> None:
        self.missing = {"cub": "BackendUnavailable: no nvcc"}
        self.versions = {"cupy": "14"}
        self.names = names

    def close(self) -> None:
        pass

    def ways(self, problem: Problem, names: tuple[str, ...]) -> Iterator[Contender]:
        if not names:
            return

        def right(out: Any) -> Any:
            def run() -> None:
                rows = problem.matrix
                if problem.kind == "matvec":
                    rows = rows * problem.right.astype(np.float64)
                if problem.kind == "matmul":
                    right = problem.right.reshape(rows.shape)
                    out[:] = (rows.astype(np.float64) @ right.astype(np.float64)).ravel()
                else:
                    out[:] = reference(problem.kind, rows).ravel()

            return run

        def broken(out: Any) -> Any:
            raise MemoryError("no memory\nmore")

        yield Contender("right", "a", "f32", "f32", right)
        yield Contender("idle", "b", "f32", "f32", lambda out: lambda: None)
        yield Contender("broken", "c", "f32", "f16", broken)


def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the benchmark measure on these stand-ins, also on few elements."""
    for name, value in (
        ("Device", NoGpu),
        ("Contenders", NoPeers),
        ("compile_kernel", lambda *_: None),
        ("_LOG2_LENGTHS", (14, 34)),
    ):
        monkeypatch.setattr(bench_run, name, value)
