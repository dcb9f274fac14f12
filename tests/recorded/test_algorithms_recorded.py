"""The simulator and the host backend return every algorithm's results of a real GPU."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from some import Some
from tcusim.algorithms import algorithms
from tcusim.backends import Backend
from tcusim.judge.correctness.cases import COLUMNS, Case
from tcusim.simulate.backend import NUMPY
from tcusim_host import compile_programs

HERE = Path(__file__).parent
FILE = HERE / "algorithms_h200.npz"


def load(path: Path) -> ModuleType:
    """Import a script that is in no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


record_algorithms = load(HERE / "record_algorithms.py")


def read(path: Path) -> dict[str, Any]:
    with np.load(path) as archive:
        arrays = {key: archive[key] for key in archive.files}
    return {**arrays, "index": json.loads(arrays["index"].tobytes())}


RECORDED = read(FILE)
ALGORITHMS = list(
    dict.fromkeys(
        Case.parse(entry["case"]).recipe.algorithm for entry in RECORDED["index"]["cases"]
    )
)


Recorded = list[tuple[str, bytes]]


def recorded_of(data: dict[str, Any], algorithm: str) -> Recorded:
    """Return the cases of an algorithm, each with the bytes of its output."""
    recorded: Recorded = []
    start = 0
    for entry in data["index"]["cases"]:
        expected = data["out"][start : start + entry["bytes"]].tobytes()
        start += entry["bytes"]
        if Case.parse(entry["case"]).recipe.algorithm == algorithm:
            recorded.append((entry["case"], expected))
    assert start == data["out"].size
    assert recorded, f"nothing was recorded of {algorithm}"
    return recorded


def differing(data: dict[str, Any], backend: Backend, recorded: Recorded) -> list[str]:
    """Return the cases for which a backend returns other bytes."""
    return [
        text
        for text, expected in recorded
        if record_algorithms.run_case(backend, text, data) != expected
    ]


# Each algorithm has this many cases or more: the next one begins with another of the first.
FEWEST = 3


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_simulator(algorithm: str, some: Some) -> None:
    chosen = some(recorded_of(RECORDED, algorithm), 7, ALGORITHMS.index(algorithm) % FEWEST)
    assert differing(RECORDED, NUMPY, chosen) == []


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_host_backend(algorithm: str, host: Backend, some: Some) -> None:
    # Each text takes the C++ compiler a while.
    recorded = recorded_of(RECORDED, algorithm)[ALGORITHMS.index(algorithm) % FEWEST :: 4]
    chosen = some(recorded, 4)
    compile_programs(Case.parse(text).recipe.build() for text, _ in chosen)
    assert differing(RECORDED, host, chosen) == []


def test_every_algorithm_was_recorded() -> None:
    assert {row.name for row in algorithms()} == set(ALGORITHMS)


@pytest.mark.full
def test_every_algorithm_would_be_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Choosing the cases builds all programs: one test looks at them, and records some."""
    chosen: list[Case] = record_algorithms.chosen_cases()
    assert_every_kind(chosen)
    assert_written_and_compared(chosen, tmp_path, capsys)


def assert_every_kind(chosen: list[Case]) -> None:
    assert {case.recipe.algorithm for case in chosen} == {row.name for row in algorithms()}
    # Blocks get mail of others; segments by offsets are empty, tiny and long.
    grids = [case.recipe for case in chosen if case.recipe.algorithm.endswith("_single_pass")]
    assert sum(recipe.build().columns > 1 for recipe in grids) > 20
    several = [case for case in chosen if case.length == record_algorithms.LONG]
    assert {case.recipe.algorithm for case in several} == {recipe.algorithm for recipe in grids}
    scan = next(case for case in chosen if case.recipe.algorithm == "scan_ragged")
    pools = record_algorithms.drawn_inputs([scan])
    lengths = np.diff(record_algorithms.inputs_of(scan, pools)["offsets"])
    assert lengths.min() == 0
    assert lengths.max() > 100
    assert lengths.sum() == scan.length


def test_what_was_recorded() -> None:
    index = RECORDED["index"]
    cases = [Case.parse(entry["case"]) for entry in index["cases"]]
    assert {case.recipe.column for case in cases} == set(COLUMNS)
    assert index["gpu"].startswith("NVIDIA")
    assert index["sm"] == "90"
    assert FILE.stat().st_size < 900_000


def assert_written_and_compared(
    chosen: list[Case], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = list({case.recipe.algorithm: case for case in reversed(chosen)}.values())
    cases = [case for case in reversed(cases) if case.recipe.get("ab") == "f16"]
    assert len(cases) > 20
    path = tmp_path / "small.npz"
    assert record_algorithms.record("numpy", path, cases, jobs=1) == 0
    assert f"{len(cases)} cases" in capsys.readouterr().out
    data = read(path)
    names = {case.recipe.algorithm for case in cases}
    assert all(differing(data, NUMPY, recorded_of(data, name)) == [] for name in names)
    data["out"][5] ^= 1
    first = cases[0]
    recorded = recorded_of(data, first.recipe.algorithm)
    assert differing(data, NUMPY, recorded) == [str(first)]
