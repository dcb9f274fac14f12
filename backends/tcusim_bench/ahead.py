"""Work done ahead in other processes: programs compiled, expected bits simulated.

The GPU's numbers are a hash of their places, so that each process makes those that it needs.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Iterable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import TcusimError
from tcusim.machine import format_of
from tcusim.machine.formats import Values, from_memory
from tcusim_bench.parts import matrix_columns
from tcusim_bench.problems import Problem
from tcusim_bench.programs import Recipe
from tcusim_bench.record import Case
from tcusim_cuda.compile import compile_kernel
from tcusim_cuda.emit import emit

__all__ = ["Ahead", "Numbers", "Place", "make_compiled", "make_expected"]

# Processors that are left to the benchmark itself and to nvcc.
_SPARED: Final = 3
_FACTORS: Final = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_STEP: Final = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class Numbers:
    """Some of the random numbers that `Device` fills its memory with; slicing gives fewer.

    They are made when `values` is called, as the GPU makes them (see `tcusim_bench.device`).
    """

    dtype: str
    seed: int
    start: int
    stop: int

    def __getitem__(self, part: slice) -> Numbers:
        """Return the numbers of a slice without a step."""
        start, stop, _ = part.indices(self.stop - self.start)
        return replace(self, start=self.start + start, stop=self.start + max(start, stop))

    def values(self) -> NDArray[Any]:
        """Return them as they lie in memory."""
        places = np.arange(self.start + 1, self.stop + 1, dtype=np.uint64)
        z = np.uint64(self.seed) + np.uint64(_STEP) * places
        for shift, factor in zip((30, 27), _FACTORS, strict=True):
            z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
        z ^= z >> np.uint64(31)
        if self.dtype == "s8":
            return (z >> np.uint64(56)).astype(np.uint8).view(np.int8)
        if self.dtype == "f64":
            return (z >> np.uint64(11)).astype(np.float64) / 2.0**52 - 1
        uniform = (z >> np.uint64(40)).astype(np.float32) / np.float32(2**23) - np.float32(1)
        if self.dtype == "bf16":
            return (uniform.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
        return uniform.astype(format_of(self.dtype).memory_dtype)


class Place:
    """Where a problem's data are for the simulator: as much of `Device` as its bits follow from."""

    def __init__(self, length: int, sm: int) -> None:
        self.length, self.sm = length, sm
        self.vector = Numbers("f16", length + 1, 0, matrix_columns(length))

    def data(self, dtype: str = "f16") -> Numbers:
        """Return the numbers that fill the memory."""
        return Numbers(dtype, self.length, 0, 2 * self.length // format_of(dtype).itemsize)

    def to_host(self, array: Numbers, dtype: str) -> Values:
        """Return numbers as values of their type."""
        return from_memory(array.values(), dtype)


def make_compiled(recipe: Recipe, length: int, sm: int) -> None:
    """Compile the programs of a recipe's plan, so that they are found on disk.

    A plan that cannot be made or compiled raises when it is measured, and becomes a row.
    """
    with contextlib.suppress(TcusimError):
        for launch in recipe.plan(length).launches:
            compile_kernel(emit(launch.program), sm)


def make_expected(case: Case, recipe: Recipe, place: Place) -> Values | None:
    """Return the first results of a recipe as they lie in memory, or None; see `Problem`."""
    device: Any = place
    return Problem(case, device).expected(recipe)


class Ahead:
    """Processes that compile and simulate the next measurements, in the order of `start`."""

    def __init__(self, length: int, sm: int, pool: Executor | None = None) -> None:
        self._place = Place(length, sm)
        processes = max(1, (os.cpu_count() or 1) - _SPARED)
        self._pool = pool or ProcessPoolExecutor(
            processes, mp_context=multiprocessing.get_context("spawn")
        )
        self._compiled: dict[tuple[Recipe, int], Future[None]] = {}
        self._expected: dict[tuple[Case, Recipe], Future[Values | None]] = {}

    def start(self, case: Case, recipes: Iterable[Recipe]) -> None:
        """Begin with the programs and results of a case."""
        for recipe in recipes:
            key = (recipe, case.length)
            if key not in self._compiled:
                self._compiled[key] = self._pool.submit(make_compiled, *key, self._place.sm)
            alone = recipe.alone()
            if (case, alone) not in self._expected:
                self._expected[case, alone] = self._pool.submit(
                    make_expected, case, alone, self._place
                )

    def expected(self, problem: Problem, recipe: Recipe) -> Values | None:
        """Return the expected first results of a recipe, once its programs are compiled too."""
        compiled = self._compiled.get((recipe, problem.case.length))
        expected = self._expected.get((problem.case, recipe.alone()))
        try:
            if compiled is not None:
                compiled.result()
            if expected is not None:
                return expected.result()
        except BrokenExecutor:
            pass  # a process was killed, perhaps for its memory: do it here
        return problem.expected(recipe)

    def is_ready(self, case: Case, recipes: Iterable[Recipe]) -> bool:
        """Return whether everything that a case needs is done."""
        futures: list[Future[Any] | None] = []
        for recipe in recipes:
            futures.append(self._compiled.get((recipe, case.length)))
            futures.append(self._expected.get((case, recipe.alone())))
        return all(one is None or one.done() for one in futures)

    def close(self) -> None:
        """Stop, and cancel the work that has not begun."""
        self._pool.shutdown(wait=False, cancel_futures=True)
