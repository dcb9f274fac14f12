"""Which launches the plan chooses, and that pieces of any size make the same sums."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tcusim import plan
from tcusim.backends import run
from tcusim.ir import Program
from tcusim.plan import CHUNK, SHORT, Job
from tcusim.shapes import shape_of

Array = NDArray[Any]


class Recorder:
    """Runs programs and remembers them."""

    def __init__(self) -> None:
        self.programs: list[Program] = []

    def __call__(self, program: Program, inputs: Mapping[str, Array]) -> Array:
        self.programs.append(program)
        result: Array = run(program, inputs)["out"]
        return result

    @property
    def names(self) -> list[str]:
        return [program.name for program in self.programs]


def job(launch: Recorder, **changes: Any) -> Job:
    usual: dict[str, Any] = {
        "shape": shape_of("16x16x16"),
        "ab": "f16",
        "acc": "f32",
        "source": "f16",
        "result": "f32",
        "literal": False,
        "algorithm": None,
        "launch": launch,
    }
    return Job(**{**usual, **changes})


def integers(length: int) -> NDArray[np.float16]:
    return np.random.default_rng(length).integers(-9, 10, length).astype(np.float16)


def segments(x: Array, size: int) -> list[NDArray[np.float64]]:
    return [x[at : at + size].astype(np.float64) for at in range(0, x.size, size)]


def assert_right(x: Array, size: int, launch: Recorder, **changes: Any) -> tuple[list[str], ...]:
    """Sum and scan through the plan, compare, and return the names of the launches of each."""
    total = plan.total(job(launch, **changes), x, size)
    names = launch.names
    launch.programs = []
    np.testing.assert_array_equal(total, [part.sum() for part in segments(x, size)])
    scan = plan.scan(job(launch, **changes), x, size)
    expected = np.concatenate([part.cumsum() for part in segments(x, size)])
    np.testing.assert_array_equal(scan, expected)
    return names, launch.names


@pytest.mark.parametrize(
    ("size", "suffix"), [(1, "kn"), (16, "kn"), (16 * SHORT, "kn"), (16 * SHORT + 1, "tn")]
)
def test_short_segments_go_side_by_side(size: int, suffix: str) -> None:
    names = assert_right(integers(3000), size, Recorder())
    assert names == ([f"reduction_{suffix}"], [f"scan_{suffix}"])


@pytest.mark.parametrize("size", [CHUNK, CHUNK + 256])
def test_a_segment_that_is_not_cut_takes_one_launch(size: int) -> None:
    # Chunks would reach across the second case's segments.
    names = assert_right(integers(2 * size + 3), size, Recorder())
    assert names == (["reduction_tn"], ["scan_tn"])


def test_a_long_array_is_cut_whatever_its_length() -> None:
    for length in (CHUNK + 1, 3 * CHUNK):
        names = assert_right(integers(length), length, Recorder())
        assert names == (
            ["reduction_tn", "reduction_plain"],
            ["reduction_tn", "scan_plain", "scan_tn"],
        )


def test_long_segments_of_whole_chunks_are_cut() -> None:
    launch = Recorder()
    names = assert_right(integers(5 * CHUNK - 100), 2 * CHUNK, launch)
    assert names[0] == ["reduction_tn", "reduction_plain"]
    assert names[1] == ["reduction_tn", "scan_plain", "scan_tn"]
    sizes = [program.blocks.per for program in launch.programs]
    assert sizes == [CHUNK, 2, CHUNK]


@pytest.mark.parametrize("shape", ["16x16x16", "32x8x16", "8x32x16", "16x8x16"])
def test_partial_sums_are_combined_in_groups_of_groups(
    monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    monkeypatch.setattr(plan, "CHUNK", 512)
    monkeypatch.setattr(plan, "PLAIN", 4)
    tile = shape_of(shape)
    x = integers(100 * 512 + 77)
    launch = Recorder()
    names = assert_right(x, x.size, launch, shape=tile)
    assert names[0] == ["reduction_tn", *["reduction_plain"] * 4]
    assert names[1] == [
        "reduction_tn", *["reduction_plain"] * 3, *["scan_plain"] * 4, "scan_tn",
    ]  # fmt: skip


@pytest.mark.parametrize("count", [5, 6, 7, 8, 12, 25])
def test_groups_do_not_reach_across_segments(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(plan, "CHUNK", 256)
    monkeypatch.setattr(plan, "PLAIN", 4)
    size = count * 256
    assert_right(integers(4 * size - 300), size, Recorder())
    assert_right(integers(4 * size), size, Recorder())
    assert_right(integers(2 * size + 1), size, Recorder())


def test_chunks_are_whole_tiles() -> None:
    for shape in ("16x16x16", "32x8x16", "8x32x16", "16x16x8", "8x8x4", "16x8x16"):
        tile = shape_of(shape)
        chunk = job(Recorder(), shape=tile).chunk
        assert chunk % (tile.m * tile.k) == 0
        assert chunk % (tile.n * tile.k) == 0
        assert 0 < chunk <= CHUNK


def test_a_named_algorithm_is_run_in_one_launch() -> None:
    launch = Recorder()
    x = integers(CHUNK * 2)
    assert_right(x, x.size, launch, algorithm=None)
    launch.programs = []
    plan.total(job(launch, algorithm="reduction_kn"), x, x.size)
    plan.scan(job(launch, algorithm="scan_kn"), x, x.size)
    assert launch.names == ["reduction_kn", "scan_kn"]


def test_float32_totals_of_float16_chunks_stay_float32() -> None:
    launch = Recorder()
    x = np.full(3 * CHUNK, 60000, np.float16)
    total = plan.total(job(launch), x, x.size)
    assert total.tolist() == [59968.0 * 3 * CHUNK] if x[0] == 59968 else [60000.0 * 3 * CHUNK]
    assert [program.outputs[0].dtype for program in launch.programs] == ["f32", "f32"]
    halves = plan.total(job(Recorder(), result="f16"), x, x.size)
    assert halves.tolist() == [np.inf]


def test_literal_plans_combine_by_mma_without_chains() -> None:
    launch = Recorder()
    x = np.zeros(8192, np.float16)
    x[:3] = 2048, 1, 2
    plain = plan.total(job(launch), x, x.size)
    literal = plan.total(job(launch, literal=True), x, x.size)
    assert (plain.tolist(), literal.tolist()) == ([2051], [2052])
