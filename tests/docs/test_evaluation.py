"""The page of the paper's evaluation: charts and claims, with and without records."""

from __future__ import annotations

import importlib
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from tcusim_bench.cub import block_ways
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


def record(
    folder: Path,
    name: str,
    found: dict[Case, list[dict[str, Any]]],
    limits: dict[str, float] = LIMITS,
) -> None:
    rows = [
        Row(
            case, **one, steady_ms=one["ms"], bytes=moved_bytes(case, _results(case), one["result"])
        )
        for case, tried in found.items()
        for one in tried
    ]
    report = Report(
        device={"gpu": "NVIDIA H200", "cuda": "13.0", "driver": "580"},
        versions={}, limits=limits, length=LENGTH, date="2026-01-02 03:04 UTC", commit="abcdef",
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


def cells_of(text: str) -> list[list[str]]:
    """Return the cells of the rows of a table; a claim that is not repeated is."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def claim(text: str, against: str, at: str) -> list[str]:
    """Return a row of the claims: of the V100, of the paper's programs, and of tcusim."""
    (row,) = [row[-3:] for row in cells_of(text) if row[-5:-3] == [against, at]]
    return row


def rows_of(rows: list[list[str]], against: str) -> list[list[str]]:
    return [row[-4:] for row in rows if row[-5] == against]


def test_claims_that_nothing_is_recorded_of(tools: Any, folder: Path) -> None:
    evaluation = tools("evaluation")
    text = evaluation.claims(folder)
    assert "Nothing was recorded on an H200" in text
    rows = cells_of(text)
    assert len(rows) == 33
    assert {cell for row in rows for cell in row[-2:]} == {"not recorded"}
    assert claim(text, "CUB, offsets", "16")[0] == "116.04"
    assert claim(text, "Thrust", "16")[0] == "2.91"
    assert claim(text, "the limit of sums", "2⁴ to 2²⁴")[0] == "84% to 99%"
    text = evaluation.products(folder)
    assert "| cuBLAS, tensor cores | 96.2 | — | 85.7 | — |" in text
    assert "| with over without | 3.5 times | not recorded | 6.2 times | not recorded |" in text


RECORDED = Path(TOOLS.parent / "data")


# The authors' sizes, which the figure of each has been recorded at.
SIZES = {
    "2": ("gemm_16_16", "matmul"),
    "3": ("gemv", "matvec"),
    "10": ("paper_tune_segmented_reduction", "sum"),
    "12": ("paper_tune_segmented_prefixsum", "scan"),
    "13": ("full_reduction_ker2", "sum"),
    "14": ("full_prefixsum_ker3", "scan"),
}


@pytest.mark.parametrize("name", SIZES)
def test_no_size_of_the_authors_is_missing(tools: Any, name: str) -> None:
    """tcusim, the best of the paper's programs, and each library are right at every size."""
    evaluation, records = tools("evaluation"), tools("records")
    series, kind = SIZES[name]
    sizes = {x for one in records.authors(series, RECORDED) for x in one["x"]}
    report = records.figure(name, RECORDED)
    found: dict[str, set[float]] = {}
    for row in report.rows:
        if row.ok and row.case.kind == kind:
            who = "paper's best" if evaluation._is_papers(row) else row.who
            found.setdefault(who, set()).add(row.case.segment_size)
    assert {OURS, "paper's best"} < found.keys()
    found = {who: has for who, has in found.items() if not who.startswith(f"{OURS} ")}
    assert {who: sizes - has for who, has in found.items() if sizes - has} == {}


def test_every_claim_is_recorded(tools: Any) -> None:
    evaluation = tools("evaluation")
    text = evaluation.claims(RECORDED) + evaluation.products(RECORDED) + evaluation.profile()
    assert "not recorded" not in text
    assert re.search(r"NVIDIA H200, \d+ MHz.*CUDA [\d.]+.*CCCL [\d.]+.*; 20\d\d-", text)
    # Of the authors alone a dash, but their programs are of no other library.
    rows = [row[-2:] for row in cells_of(evaluation.claims(RECORDED))]
    assert not any("—" in cell for row in rows for cell in row)


def test_the_prose(tools: Any) -> None:
    """Sentences of the page without a number of their own in a table hold in the records."""
    records, evaluation = tools("records"), tools("evaluation")
    reads = records.figure("10").limits["read"] / 2e9 / 450
    assert 4.5 < reads < 5.5  # "about five times as fast as a V100"
    rows = cells_of(evaluation.claims())
    triton = [float(cell) for row in rows if row[-5] == "Triton" for cell in row[-2:]]
    assert all(0.85 < ratio < 1.15 for ratio in triton)  # "the advantage is gone"
    for against, *_, papers, _ in (row[-5:] for row in rows if row[-5].endswith("watts")):
        low, high = (int(number) for number in re.findall(r"([+-]\d+)%", papers))
        assert high > 50  # "draw more watts"
        assert low > (-10 if against.startswith("CUB, offsets") else 0)  # "except ... by offsets"
    report = records.figure("11")
    for kind, least, most in (("sum", 0.9, 1.02), ("scan", 1.04, 1.105)):
        theirs = evaluation._best_by_size(report, evaluation._of("CUB, warp or block", kind))
        ours = evaluation._best_by_size(report, evaluation._of(OURS, kind))
        # "as fast as tcusim's plans", "faster than them by 5 to 10 %", "from 32 on"
        assert all(least < theirs[size] / ours[size] < most for size in theirs if size >= 32)
    small = [row for row in report.rows if (row.case.kind, row.case.segment_size) == ("sum", 64)]
    (block,) = (row for row in small if row.label.startswith("BlockReduce, 64 x 1,"))
    (warp,) = (row for row in small if row.label.startswith("WarpReduce, 4 x 16,"))
    assert 18 < block.ms / warp.ms < 22  # "about 20 times as fast in segments of 64"
    for kind, size, kernel, *counts in cells_of(evaluation.profile()):
        half, between, integer = map(float, counts)
        if kernel.startswith("`"):
            assert (between, half <= 1) == (0, True)  # the paper's
        elif kind == "scan" and kernel != OURS:
            assert (2.7 < between < 3.7, 31 <= round(integer) <= 33) == (True, True)
        elif (size, kernel) == ("16", "CUB, offsets"):
            assert (between, round(integer)) == (80, 692)
        elif (size, kernel) == ("16", "CUB"):
            assert (between, integer < 1) == (0, True)


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
    assert "| `reduction_16n 8x32x16` | f16 | 2⁴ to 2¹⁰ | 1,790 at 2⁴ |" in table
    # Labels are "x" here; of two types of sums and two libraries, the faster.
    fastest = evaluation.fastest("10", folder)
    assert "| 2⁴ | `x` , f16 | 1,790 | 2,147 | CUB: x | 537 |" in fastest
    claims = evaluation.claims(folder)
    assert claim(claims, "the limit of sums", "2⁴ to 2²⁴")[1:] == ["78%", "93%"]
    assert claim(claims, "CUB, offsets", "16")[1:] == ["100.00", "120.00"]
    assert "driver 580, CUDA 13.0; 2026-01-02 03:04 UTC to" in claims
    # The records of Triton are of another run, on a GPU that was half as fast.
    slow = {Case("sums", "sum", 16, LENGTH): [attempt("Triton", 1.2)]}
    record(folder, "sums", slow, {"read": LIMITS["read"] / 2, "copy": LIMITS["copy"] / 2})
    triton = [
        row[-2:] for row in cells_of(evaluation.claims(folder)) if row[-5:-3] == ["Triton", "16"]
    ]
    assert triton == [["1.00", "1.20"], ["not recorded", "not recorded"]]


def test_power_and_products(tools: Any, folder: Path) -> None:
    paper = f"{OURS} reduction_256n 16x16x16"
    case = Case("figure power", "sum", 256, LENGTH)
    tried = [attempt(paper, 0.5, watts=600), attempt("CUB", 1.0, watts=500)]
    record(folder, "figure-power", {case: tried})
    square = Case("figure 2", "matmul", 8192, 2**26)
    fast, slow = attempt("cuBLAS", 2.0, "f16"), attempt("cuBLAS without tensor cores", 20.0, "f16")
    # No ratio is of two sizes.
    small = {Case("figure 2", "matmul", 256, 2**16): [attempt(slow["who"], 0.001, "f16")]}
    large = {Case("figure 2", "matmul", 4096, 2**24): [attempt("cuBLAS", 0.1, "f16")]}
    middle = {square: [fast, slow, attempt(f"{OURS} gemm", 4.0, "f16")]}
    record(folder, "figure-2", small | middle | large)
    vector = Case("figure 3", "matvec", 4096, 2**24)
    programs = [
        attempt(f"{OURS} gemv 16x16x16", 0.2),
        attempt(f"{OURS} gemv_reduction 8x32x16", 0.1),
    ]
    record(folder, "figure-3", {vector: programs})
    evaluation = tools("evaluation")
    rows = cells_of(evaluation.claims(folder))
    assert rows_of(rows, "CUB, watts")[0] == ["2⁸", "—", "+20%", "not recorded"]
    assert rows_of(rows, "CUB, energy")[0] == ["2⁸", "—", "-40%", "not recorded"]
    text = evaluation.products(folder)
    assert "n = 8,192, where the authors'" in text
    assert "| cuBLAS, tensor cores | 96.2 | 549.8 | 85.7 | — |" in text
    assert "| with over without | 3.5 times | 10.0 times | 6.2 times | not recorded |" in text
    assert "| the paper's, tiled | 62.4 | 274.9 | 54.1 | — |" in text
    watts, energy, *_ = drawn(evaluation.figure("power", folder))
    assert names_of(watts) == names_of(energy) == ["paper: reduction_256n", "CUB"]
    assert "paper: gemm" in names_of(drawn(evaluation.figure("2", folder))[1])
    shown = names_of(drawn(evaluation.figure("3", folder))[-1])
    assert set(shown) == {"paper: gemv", f"{OURS}: gemv_reduction"}


def test_blocks_and_whole_arrays(tools: Any, folder: Path) -> None:
    for name, kind in (("13", "sum"), ("14", "scan")):
        case = Case(f"figure {name}", kind, 2**30, 2**30)
        record(folder, f"figure-{name}", {case: [attempt(OURS, 0.5), attempt("CUB", 1.0)]})
    blocks = {
        Case("figure 11", "sum", size, LENGTH): [
            attempt(OURS, 1.0),
            attempt(f"{OURS} reduction_16 16x16x16", 2.0),
            attempt("CUB, warp or block", 3.0),
            attempt("CUB, warp or block", 6.0) | {"label": block_ways()["sum", size][0]},
        ]
        for size in (16, 2048)
    }
    record(folder, "figure-11", blocks)
    text = tools("evaluation").claims(folder)
    assert claim(text, "BlockReduce at its best", "2⁴ to 2⁹") == ["—", "1.50", "3.00"]
    assert claim(text, "BlockReduce at its best", "2¹⁰ to 2¹³") == ["—", "1.50", "3.00"]
    assert claim(text, "BlockReduce as the authors", "2⁴ to 2⁹")[1:] == ["3.00", "6.00"]
    assert claim(text, "CUB, sum", "2³⁰") == ["1.09", "not recorded", "2.00"]
    assert claim(text, "CUB, scan", "2³⁰") == ["fails", "not recorded", "2.00"]
    _, sums, _, scans = drawn(tools("evaluation").figure("11", folder))
    collectives = ["CUB, warp or block", "CUB, as the authors"]
    assert names_of(sums) == [OURS, "paper's best", *collectives, "limit"]
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
