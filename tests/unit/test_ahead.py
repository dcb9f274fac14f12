"""The benchmark's other processes: the GPU's numbers, programs compiled, bits simulated."""

from __future__ import annotations

import os
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tcusim.errors import BackendUnavailable
from tcusim.machine import format_of
from tcusim_bench import ahead
from tcusim_bench.ahead import Ahead, Numbers, Place, make_compiled, make_expected
from tcusim_bench.problems import Problem
from tcusim_bench.programs import Recipe
from tcusim_bench.record import Case

LENGTH = 2**20
MASK = 2**64 - 1


def hashed(seed: int, place: int) -> int:
    """Return the hash of a place by Python's integers, as the text of the kernel has it."""
    z = seed + 0x9E3779B97F4A7C15 * (place + 1) & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64", "s8"])
def test_the_numbers_are_the_gpus(dtype: str) -> None:
    """A hash of their indices; each type takes the bits that it can hold."""
    numbers = Numbers(dtype, LENGTH, 0, 100)[40:50][1:]
    got = numbers.values()
    assert got.dtype == format_of(dtype).memory_dtype
    for place, value in zip(range(41, 50), got, strict=True):
        z = hashed(LENGTH, place)
        uniform = np.float32((z >> 40) / 2**23 - 1)
        expected = {
            "f16": np.float16(uniform),
            "bf16": uniform.view(np.uint32) >> 16,
            "f32": uniform,
            "f64": (z >> 11) / 2**52 - 1,
            "s8": np.uint8(z >> 56).view(np.int8),
        }[dtype]
        assert value == expected


def test_where_the_numbers_lie() -> None:
    place = Place(LENGTH, 90)
    assert {dtype: place.data(dtype).stop for dtype in ("f16", "f32", "f64", "s8")} == {
        "f16": LENGTH,
        "f32": LENGTH // 2,
        "f64": LENGTH // 4,
        "s8": 2 * LENGTH,
    }
    assert place.vector.values().size == 1024
    assert place.to_host(place.data()[:3], "f16").dtype == np.float16


def test_right_bits_are_simulated() -> None:
    case, recipe = Case("x", "sum", 16, LENGTH), Recipe("sum", 16, None, arch="hopper")
    bits = make_expected(case, recipe, Place(LENGTH, 90))
    assert bits is not None
    sums = Place(LENGTH, 90).data()[: 2**15].values().reshape(-1, 16).astype(float).sum(axis=1)
    np.testing.assert_allclose(bits, sums, atol=1e-5)


def test_programs_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, whatever fails."""
    tried: list[tuple[str, int]] = []

    def refuse(kernel: Any, sm: int) -> None:
        tried.append((kernel.program.name, sm))
        raise BackendUnavailable("no compiler")

    monkeypatch.setattr(ahead, "compile_kernel", refuse)
    for recipe in (
        Recipe("sum", 64, "reduction_kn"),
        Recipe("scan", 64, None),
        Recipe("sum", 7, "scan"),
    ):
        make_compiled(recipe, LENGTH, 90)
    assert tried == [("reduction_kn", 90), ("scan_panel", 90)]


def test_each_thing_is_done_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that differ in their blocks alone have the same right bits."""
    done: list[str] = []

    def expected(*_: Any) -> Any:
        done.append("expected")
        return np.zeros(1)

    monkeypatch.setattr(ahead, "make_compiled", lambda *_: done.append("compiled"))
    monkeypatch.setattr(ahead, "make_expected", expected)
    case = Case("x", "sum", 64, LENGTH)
    found = [Recipe("sum", 64, "reduction_kn", warps=warps) for warps in (1, 4)]
    one = Ahead(LENGTH, 90, ThreadPoolExecutor(1))
    one.start(case, [*found, *found])
    problem: Any = Problem(case, Place(LENGTH, 90))  # type: ignore[arg-type]
    assert all(one.expected(problem, recipe) is not None for recipe in found)
    assert one.is_ready(case, found)
    assert sorted(done) == ["compiled", "compiled", "expected"]
    one.close()


def test_what_a_killed_process_leaves_is_done_here() -> None:
    class Broken(ThreadPoolExecutor):
        def submit(self, *_: Any, **__: Any) -> Future[Any]:
            future: Future[Any] = Future()
            future.set_exception(BrokenExecutor())
            return future

    case, recipe = Case("x", "sum", 16, LENGTH), Recipe("sum", 16, None, arch="hopper")
    one = Ahead(LENGTH, 90, Broken())
    one.start(case, [recipe])
    problem: Any = Problem(case, Place(LENGTH, 90))  # type: ignore[arg-type]
    assert one.expected(problem, recipe) is not None


def test_other_processes_really_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCUSIM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    case, recipe = Case("x", "sum", 16, LENGTH), Recipe("sum", 16, None, arch="hopper")
    one = Ahead(LENGTH, 90)
    one.start(case, [recipe])
    problem: Any = Problem(case, Place(LENGTH, 90))  # type: ignore[arg-type]
    np.testing.assert_array_equal(one.expected(problem, recipe), problem.expected(recipe))
    one.close()
