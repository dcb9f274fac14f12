"""`tcusim bench paper`: which programs each figure of the evaluation has, and its record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench_standin import NoGpu, NoPeers, NotAhead
from tcusim.errors import InputError, UnknownName
from tcusim_bench import paper, throughput
from tcusim_bench.paper import FIGURES, measure_figure, read_authors
from tcusim_bench.report import OURS
from tcusim_bench.sections import Case
from tcusim_bench.throughput import Settings


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "Device", NoGpu)
    monkeypatch.setattr(throughput, "Peers", NoPeers)
    monkeypatch.setattr(throughput, "Ahead", NotAhead)
    # There is no cache that the data would fit into.
    monkeypatch.setattr(throughput, "_LOG2_LENGTHS", (14, 34))


SERIES = {
    "figures": {"full_reduction_cub": [{"label": "CUB", "x": [4096], "y": [0.5]}], "gemv": []}
}


@pytest.mark.parametrize("name", FIGURES)
def test_every_program_of_a_figure_can_be_built(name: str) -> None:
    """At the smallest size at which it is taken; none has the name and types of another."""
    figure, length = FIGURES[name], 2**22
    seen: dict[tuple[str, str], Any] = {}
    for case in figure.cases(name, length):
        found = [(who, one.acc, one.result) for who, one in figure.programs(case)]
        assert len(set(found)) == len(found)
        for who, recipe in figure.programs(case):
            seen.setdefault((who, recipe.acc), (recipe, case.length))
    for recipe, size in seen.values():
        assert recipe.plan(size).launches


def test_what_each_figure_has() -> None:
    """The paper's own programs by name, with every tile and both accumulators."""

    def names(figure: str, kind: str, size: int) -> set[str]:
        case = Case("x", kind, size, 2**20)
        return {who.split()[1] for who, _ in FIGURES[figure].programs(case)}

    assert names("10", "sum", 16) == {"reduction_16"}
    assert names("10", "sum", 256) == {"reduction_16n", "reduction_16n_coalesced", "reduction_256"}
    assert names("12", "scan", 1024) == {"scan_16n", "scan_256n", "scan_256n_block"}
    assert names("2", "matmul", 1024) == {"gemm_naive", "gemm"}
    case = Case("x", "scan", 1024, 2**20)
    types = {(one.shape, one.acc) for _, one in FIGURES["12"].programs(case)}
    assert types == {(s, a) for s in ("16x16x16", "32x8x16", "8x32x16") for a in ("f16", "f32")}


def test_sizes_that_fit() -> None:
    sizes = [case.segment_size for case in FIGURES["2"].cases("2", 2**22)]
    assert sizes == [256, 512, 1024]
    whole = FIGURES["13"].cases("13", 2**14)
    assert [(case.segment_size, case.length, case.size) for case in whole] == [
        (size, size, str(size)) for size in (2**12, 2**13, 2**14)
    ]


@pytest.mark.usefixtures("no_gpu")
def test_a_figure_is_measured(tmp_path: Path) -> None:
    """Sizes of its own, the authors' series beside it, and what it lacks."""
    source = tmp_path / "v100.json"
    source.write_text(json.dumps(SERIES))
    authors = read_authors(source)
    report = measure_figure("13", Settings(20, segments=(2**14,)), authors)
    assert report.wrong == ()
    assert report.figure == "13: reduction of a whole array"
    assert list(report.authors) == ["full_reduction_cub"]
    names = {row.best.who for row in report.rows if row.is_ours}
    assert names == {OURS, f"{OURS} reduction_256n_block, two launches"}
    assert all(row.best.bits_compared == 1 for row in report.rows if row.is_ours)
    report = measure_figure("14", Settings(20, segments=(2**14,)))
    assert any("three launches" in note for note in report.notes)


@pytest.mark.usefixtures("no_gpu")
def test_programs_as_printed_are_right() -> None:
    for name, size in (("10", 64), ("12", 1024)):
        report = measure_figure(name, Settings(14, segments=(size,)))
        assert report.wrong == ()
        assert len({row.best.who for row in report.rows if row.is_ours}) > 6


@pytest.mark.usefixtures("no_gpu")
def test_what_cannot_be_built_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(paper._SUMS, "reduction_16", (64, 64))
    report = measure_figure("10", Settings(14, segments=(64,)))
    assert any("tcusim reduction_16 16x16x16, f16, 64: " in note for note in report.notes)
    assert report.wrong == ()


def test_wrong_names_and_files(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="unknown figure '9'"):
        measure_figure("9", Settings(20))
    source = tmp_path / "x.json"
    for text in ("{", "[]", '{"figures": {"a": [{"label": "b", "x": [1], "y": []}]}}'):
        source.write_text(text)
        with pytest.raises(InputError, match="has no series"):
            read_authors(source)
