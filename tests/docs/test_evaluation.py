"""The page of the paper's evaluation: charts and claims, with and without records."""

from __future__ import annotations

import importlib
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from tcusim_bench.parts import FIGURES
from tcusim_bench.record import OURS, ROUNDED, Case, Report, Row, moved_bytes

LENGTH = 2**30
LIMITS = {"read": 4.6e12, "copy": 4.3e12}
TOOLS = Path(__file__).resolve().parents[2] / "docs" / "tools"
AUTHORS = TOOLS.parent / "data" / "authors_v100.json"


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(TOOLS))
    return importlib.import_module


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of records that has the authors' series alone."""
    (tmp_path / "authors_v100.json").write_text(AUTHORS.read_text(encoding="utf-8"))
    (tmp_path / "h200").mkdir()
    return tmp_path


def attempt(who: str, ms: float, acc: str = "f32", watts: float | None = None) -> dict[str, Any]:
    return {"who": who, "label": "x", "acc": acc, "result": acc, "ms": ms, "watts": watts}


def record(folder: Path, name: str, found: dict[Case, list[dict[str, Any]]]) -> None:
    rows = [
        Row(
            case, **one, steady_ms=one["ms"], bytes=moved_bytes(case, _results(case), one["result"])
        )
        for case, tried in found.items()
        for one in tried
    ]
    report = Report(
        device={"gpu": "NVIDIA H200", "cuda": "13.0", "driver": "580"},
        versions={}, limits=LIMITS, length=LENGTH, date="2026-01-02 03:04 UTC", commit="abcdef",
        rows=tuple(rows), notes=["not measured: CUTLASS <1>"],
    )  # fmt: skip
    report.write(folder / "h200" / f"{name}.json")


def _results(case: Case) -> int:
    return case.length if case.kind == "scan" else case.length // case.segment_size


def drawn(text: str) -> list[ET.Element]:
    """Return the charts of a page; its HTML is well formed."""
    assert "\n\n" not in text  # Markdown would end it there
    return ET.fromstring(f"<div>{text}</div>").findall(".//figure")


def names_of(chart: ET.Element) -> list[str]:
    return ["".join(item.itertext()) for item in chart.findall("ul/li")]


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_that_is_not_recorded(tools: Any, folder: Path, name: str) -> None:
    """The authors' charts are there, and ours say that they are not."""
    name = name.removeprefix("figure-")
    text = tools("evaluation").figure(name, folder)
    charts = drawn(text)
    assert "Not recorded yet." in text
    ours = [chart for chart in charts if chart.find("svg") is None]
    assert len(ours) == (4 if name == "power" else len(charts) // 2)
    assert all("This was not recorded." in "".join(chart.itertext()) for chart in ours)


def test_claims_that_nothing_is_recorded_of(tools: Any, folder: Path) -> None:
    lines = tools("evaluation").claims(folder).splitlines()[2:]
    assert len(lines) == 8
    assert all("not recorded" in line.split("|")[3] for line in lines)
    shares, sums, scans, *_ = lines
    assert "116.0 times CUB at 16" in sums
    assert "2.9 times Thrust at 16" in scans
    assert "sums 84% to 99%" in shares
    assert "HGEMM 96.2 TFLOP/s (85% of the peak), 3.4 times" in lines[-1]


def test_figure_10(tools: Any, folder: Path) -> None:
    """The paper's programs by algorithm, of any tile; ours before all others."""
    found = {
        Case("figure 10", "sum", size, LENGTH): [
            attempt(OURS, 0.5),
            attempt(f"{OURS} reduction_16n 16x16x16", 0.8),
            attempt(f"{OURS} reduction_16n 8x32x16", 0.6, "f16"),
            attempt("CUB, offsets", 60.0),
            attempt("CUB", 2.0),
        ]
        for size in (16, 1024)
    }
    record(folder, "figure-10", found)
    evaluation = tools("evaluation")
    text = evaluation.figure("10", folder)
    v100, h200 = drawn(text)
    assert names_of(v100)[0] == "Our 16N"
    assert names_of(h200) == [OURS, "paper: reduction_16n", "CUB, offsets", "CUB", "limit"]
    assert "tcusim at abcdef" in text
    assert "not measured: CUTLASS &lt;1>" in text
    table = evaluation.programs("10", folder)
    assert "| `reduction_16n 8x32x16` | f16 | 16 to 1,024 | 1,790 at 16 |" in table
    shares, sums = evaluation.claims(folder).splitlines()[2:4]
    assert "sums by the paper's programs 78%; sums by what tcusim launches 93%" in shares
    assert "100.0 times CUB, offsets at 16" in sums
    assert "Triton" not in sums
    record(folder, "sums", {Case("sums", "sum", 16, LENGTH): [attempt("Triton", 0.6)]})
    assert "the paper's 1.00 times, tcusim 1.20 times" in evaluation.claims(folder)


def test_power_and_products(tools: Any, folder: Path) -> None:
    paper = f"{OURS} reduction_256n 16x16x16"
    case = Case("figure power", "sum", 256, LENGTH)
    tried = [attempt(paper, 0.5, watts=600), attempt("CUB", 1.0, watts=500)]
    record(folder, "figure-power", {case: tried})
    square = Case("figure 2", "matmul", 1024, 2**20)
    fast, slow = attempt("cuBLAS", 0.01, "f16"), attempt("cuBLAS without tensor cores", 0.1, "f16")
    # Of other sizes there is one way alone: no ratio is of two sizes.
    small = {Case("figure 2", "matmul", 256, 2**16): [attempt(slow["who"], 0.001, "f16")]}
    large = {Case("figure 2", "matmul", 4096, 2**24): [attempt("cuBLAS", 0.1, "f16")]}
    middle = {square: [fast, slow, attempt(f"{OURS} gemm", 0.02, "f16")]}
    record(folder, "figure-2", small | middle | large)
    vector = Case("figure 3", "matvec", 4096, 2**24)
    programs = [
        attempt(f"{OURS} gemv 16x16x16", 0.2),
        attempt(f"{OURS} gemv_reduction 8x32x16", 0.1),
    ]
    record(folder, "figure-3", {vector: programs})
    evaluation = tools("evaluation")
    lines = evaluation.claims(folder).splitlines()
    assert "power +20% of CUB's; energy an element -40% of CUB's" in lines[5]
    assert "at n = 1,024: HGEMM 215 TFLOP/s, 10 times; tcusim 107 TFLOP/s" in lines[-1]
    watts, energy, *_ = drawn(evaluation.figure("power", folder))
    assert names_of(watts) == names_of(energy) == ["paper: reduction_256n", "CUB"]
    assert "paper: gemm" in names_of(drawn(evaluation.figure("2", folder))[1])
    shown = names_of(drawn(evaluation.figure("3", folder))[-1])
    assert set(shown) == {"paper: gemv", f"{OURS}: gemv_reduction"}


def test_blocks_and_whole_arrays(tools: Any, folder: Path) -> None:
    for name, kind in (("13", "sum"), ("14", "scan")):
        case = Case(f"figure {name}", kind, 2**20, 2**20)
        record(folder, f"figure-{name}", {case: [attempt(OURS, 0.5), attempt("CUB", 1.0)]})
    blocks = {
        Case("figure 11", "sum", size, LENGTH): [
            attempt(OURS, 1.0),
            attempt(f"{OURS} reduction_16 16x16x16", 2.0),
            attempt("CUB, warp or block", 3.0),
        ]
        for size in (16, 2048)
    }
    record(folder, "figure-11", blocks)
    lines = tools("evaluation").claims(folder).splitlines()
    assert "the paper's sums 1.50 times below 1024, 1.50 beyond" in lines[7]
    assert "tcusim's sums 3.00 times below 1024" in lines[7]
    assert "sum by what tcusim launches 2.00 times CUB at 1,048,576 elements" in lines[8]
    _, sums, _, scans = drawn(tools("evaluation").figure("11", folder))
    assert names_of(sums) == [OURS, "paper's best", "CUB, warp or block", "limit"]
    assert scans.find("svg") is None


def test_charts_of_sections(tools: Any, folder: Path) -> None:
    found = {
        Case("sizes", kind, size, LENGTH // size * size): [
            attempt(OURS, 0.5),
            attempt("PyTorch", 1.0),
        ]
        for size in (24, 10**6)
        for kind in ("sum", "scan")
    }
    record(folder, "sizes", found)
    charts = drawn(tools("gpu_results").charts("sizes", "small", folder=folder))
    titles = [chart.find("figcaption").text for chart in charts]  # type: ignore[union-attr]
    assert titles == [
        *(f"Sums, f16 (sizes){what}" for what in ("", ": share of the limit", ": speed-up")),
        *(f"Scans, f16 (sizes){what}" for what in ("", ": share of the limit", ": speed-up")),
        "Section small",
    ]
    assert names_of(charts[2]) == ["PyTorch", "as fast"]
    # Colours tell who it is: the first is ours alone.
    looks = [chart.findall("svg/path[@d]")[-1].get("class") for chart in charts[:3]]
    assert looks == ["line c0 d0", "line c0 d0", "line c1 d0"]


def test_exact_sums_and_energy(tools: Any, folder: Path) -> None:
    pages = tools("gpu_results")
    assert "section `exact`" in pages.exact(folder)
    assert "section `energy`" in pages.energy(folder)
    exact = Case("exact", "sum", 16, LENGTH)
    record(folder, "exact", {exact: [attempt(OURS, 1.0), attempt(ROUNDED, 0.6)]})
    assert "| sum | 16 | f16 → f32 | **1,074** | 1,790 | 60% |" in pages.exact(folder)
    case = Case("energy", "sum", 16, LENGTH)
    tried = [attempt(OURS, 0.5, watts=700), attempt("Triton", 0.6, watts=600)]
    record(folder, "energy", {case: tried})
    assert "| sum | 16 | **326 (700 W)** | 335 (600 W) |" in pages.energy(folder)
