"""The probes of tcusim microbench: the probes of each GPU, and the measurement of times."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest

from lab_standin import Clockwork, NoLab
from tcusim.machine import unit_of
from tcusim.machine.shapes import MmaShape, Operands
from tcusim_cuda.microbench.probes import instructions_of
from tcusim_cuda.microbench.report import measured


def test_what_a_gpu_lacks_is_not_asked_of_it() -> None:
    def names(unit: str, sm: int) -> Iterator[tuple[MmaShape, Operands]]:
        return instructions_of(unit_of(unit), sm)

    volta = {(shape.name, row.ab, row.acc) for shape, row in names("v100", 70)}
    sizes = ("16x16x16", "32x8x16", "8x32x16")
    assert volta == {(size, "f16", acc) for size in sizes for acc in ("f16", "f32")}
    assert all(row.min_sm <= 80 for _, row in names("a100", 80))


def test_times_that_were_not_taken_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clockwork, "__call__", lambda *_: None)
    report, _ = measured(NoLab(), time.monotonic() + 100)
    assert report.failed["flag between blocks"] == "a block ended before it had taken its times"


def test_a_small_cache_is_not_filled() -> None:
    lab = NoLab()
    assert lab.cached_bytes == 16 * 2**20
    lab.gpu.info["l2_bytes"] = 6 * 2**20
    assert lab.cached_bytes == 2 * 2**20
    lab.close()


def test_cycles_are_those_of_one_core() -> None:
    """Each core has a counter of its own: two blocks' times are not compared."""
    lab = NoLab()

    def kernel(blocks: int, threads: int, arguments: tuple[object, ...]) -> None:
        times = arguments[0]
        assert isinstance(times, np.ndarray)
        # Two blocks of two warps: start and end of each.
        times[:] = (10, 50, 20, 60, 9000, 9030, 9010, 9045)

    assert lab.cycles_once(kernel, 2, blocks=2) == 50
    lab.close()
