"""Times on a GPU: warm-ups, repetitions and medians, by a clock that is made up."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tcusim_cuda.microbench.gpu import Gpu, Memory
from tcusim_cuda.microbench.stopwatch import IN_GRAPH, Run, Stopwatch, Times


class FakeClock(Stopwatch):
    """Returns the given times, one after the other, and the last one from then on."""

    def __init__(self, times: Iterable[float]) -> None:
        self.left = list(times)
        self.runs = 0

    def once(self, run: Run, *, busy: bool = False) -> float:
        self.runs += 1
        run()
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]

    def graph(self, run: Run, *, of_torch: bool = False) -> Run:
        return lambda: [run() for _ in range(IN_GRAPH)]


@pytest.mark.parametrize(
    ("taken", "expected", "runs"),
    [
        # A library compiles in the first run, however long that takes.
        ([9000, 2, 3, 1, 2, 9, 2], Times(2, 1, 9), 7),
        # Another one compiles in the second run, too: neither is its speed.
        ([9000, 2500, 2, 1, 3], Times(3, 1, 3), 6),
        ([9000, 2500, 300], Times(300, 300, 2500), 3),
        # Few runs of one that takes long.
        ([5, 50, 50, 60, 40], Times(50, 40, 60), 5),
    ],
)
def test_a_first_run_is_never_a_time(taken: list[float], expected: Times, runs: int) -> None:
    clock = FakeClock(taken)
    repeats = 5 if len(taken) == 7 else 3
    assert (clock.times(lambda: None, repeats), clock.runs) == (expected, runs)


def test_a_run_in_a_graph_is_one_of_many() -> None:
    done: list[int] = []
    clock = FakeClock([20.0])
    assert clock.times_in_graph(lambda: done.append(1), 3) == Times(1.0, 1.0, 1.0)
    assert len(done) == IN_GRAPH * clock.runs


def test_arguments_of_a_launch_reach_the_driver() -> None:
    """Each pointer leads to the bytes of its argument: an address, or a scalar."""
    seen: list[Any] = []

    def launch(function: str, *given: Any) -> tuple[int]:
        sizes, pointers = given[:8], (ctypes.c_void_p * 3).from_address(given[8])
        address = ctypes.c_uint64.from_address(pointers[0] or 0).value
        number = ctypes.c_int32.from_address(pointers[1] or 0).value
        long = ctypes.c_uint64.from_address(pointers[2] or 0).value
        seen.append((function, sizes, address, number, long))
        return (0,)

    gpu: Any = object.__new__(Gpu)
    gpu._stream = 7
    gpu._cuda = SimpleNamespace(
        cuModuleGetFunction=lambda module, name: (0, f"{module}.{name.decode()}"),
        cuLaunchKernel=launch,
    )
    memory = Memory(0x7F00, 1024)[256:]
    gpu.kernel("m", "k")(3, 64, (memory, np.int32(-5), np.uint64(2**40)))
    assert seen == [("m.k", (3, 1, 1, 64, 1, 1, 0, 7), 0x8000, -5, 2**40)]
