"""Rows of the benchmark, its report, and the pages that are made of a recorded one."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tcusim.errors import InputError
from tcusim_bench.report import (
    OURS,
    PROGRAMS,
    Attempt,
    Report,
    Row,
    best_rows,
    moved_bytes,
    verdict,
    with_ratios,
)
from tcusim_bench.sections import Case

LENGTH = 2**20
SUM, SCAN = (Case(f"{kind}s", kind, 16, LENGTH) for kind in ("sum", "scan"))


# --- Rows -------------------------------------------------------------------------------------


def attempt(who: str, ms: float | None, result: str = "f32", label: str = "x") -> Attempt:
    return Attempt(who, label, "f32", result, "failed" if ms is None else "ok", ms=ms)


@pytest.mark.parametrize(
    ("kind", "size", "result", "expected"),
    [
        ("sum", 16, "f32", 2 * 1024 + 64 * 4),
        ("sum", 1024, "f16", 2 * 1024 + 2),
        ("scan", 16, "f16", 4 * 1024),
        ("scan", 16, "f32", 6 * 1024),
        ("sum", 1024, "f32", 2 * 1024 + 4),
        ("matvec", 32, "f16", 2 * 1024 + 2 * 32 + 2 * 32),
    ],
)
def test_bytes(kind: str, size: int, result: str, expected: int) -> None:
    case = Case("x", kind, size, 1024)
    assert moved_bytes(case, 1024 if kind == "scan" else 1024 // size, result) == expected


def test_the_fastest_of_a_group_is_its_row() -> None:
    tried = [attempt("tcusim", 3.0), attempt("tcusim", 2.0), attempt("tcusim", None)]
    rows = best_rows(
        Case("x", "sum", 16, 1024),
        [*tried, attempt("CuPy", None), attempt("tcusim", 9.0, "f16")],
    )
    assert [(row.best.who, row.best.result, row.best.ms) for row in rows] == [
        ("tcusim", "f32", 2.0),
        ("CuPy", "f32", None),
        ("tcusim", "f16", 9.0),
    ]
    assert rows[0].tried == tuple(tried)
    assert rows[0].elements_per_s == pytest.approx(1024 / 2e-3)
    assert rows[0].bytes_per_s == pytest.approx((2048 + 256) / 2e-3)
    assert rows[1].elements_per_s is None


def test_ratios() -> None:
    sums = best_rows(
        Case("x", "sum", 16, 1000),
        [attempt("tcusim", 2.0), attempt("A", 4.0, "f16"), attempt("B", 3.0), attempt("C", None)],
    )
    scans = best_rows(
        Case("x", "scan", 16, 1000), [attempt("tcusim", 2.0, "f32"), attempt("A", 1.0, "f16")]
    )
    limits = {"read": 2e6, "copy": 4e6}
    rows = with_ratios([*sums, *scans], limits)
    by = {(row.kind, row.best.who): row for row in rows}
    ours = by["sum", "tcusim"]
    assert ours.bytes_per_s is not None
    assert ours.of_limit == pytest.approx(ours.bytes_per_s / 2e6)
    assert ours.of_peer == pytest.approx(3.0 / 2.0)
    assert by["sum", "B"].of_peer is None
    assert by["sum", "C"].of_limit is None
    # A scan is compared with scans whose results have the same type.
    assert by["scan", "tcusim"].of_peer is None
    assert by["scan", "A"].of_limit == pytest.approx(4000 / 1e-3 / 4e6)
    # A product reads, and is compared whatever the type of the result.
    tried = [attempt("tcusim", 2.0, "f32"), attempt("A", 1.0, "f16")]
    ours, _ = with_ratios(best_rows(Case("x", "matvec", 10, 1000), tried), limits)
    assert ours.of_limit == pytest.approx((2020 + 400) / 2e-3 / 2e6)
    assert ours.of_peer == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"error": 1e-7}, "ok"),
        ({"error": 1e-3}, "wrong: error 0.001, more than 7.6e-06 of a segment's norm"),
        ({"error": 1e-3, "result": "f16"}, "ok"),
        ({"error": 1e-2, "result": "f16", "acc": "f16"}, "ok"),
        ({"error": None}, "wrong: some results are NaN, or were not written"),
        (
            {"error": 0.0, "bits_compared": 9, "bits_differ": 2},
            "wrong: 2 of 9 differ from the simulator",
        ),
    ],
)
def test_verdict(given: dict[str, Any], expected: str) -> None:
    values = {"who": "x", "label": "x", "acc": "f32", "result": "f32", "status": "", **given}
    assert verdict(Attempt(**values), 1024) == expected


def test_f16_sums_may_be_off_the_more_the_longer() -> None:
    one = Attempt("CUB", "x", "f16", "f16", "", error=0.1)
    assert verdict(one, 2**20) == "wrong: error 0.1, more than 0.062 of a segment's norm"
    assert verdict(one, 2**22) == "ok"
    # Sums by f32 may not.
    assert verdict(replace(one, acc="f32"), 2**30).startswith("wrong: error 0.1")


# --- The report -------------------------------------------------------------------------------


@pytest.fixture
def report() -> Report:
    rows = [
        *best_rows(SUM, [attempt("tcusim", 2.0), attempt("CuPy", 4.0)]),
        *best_rows(SCAN, [attempt("CUB", None)]),
    ]
    limits = {"read": 4.5e12, "copy": 4.2e12}
    return Report(
        device={"gpu": "NVIDIA X", "sm": 90, "driver": "580.1", "cuda": "13.0"},
        versions={"numpy": "2.0"},
        limits=limits,
        length=LENGTH,
        date="2026-01-02 03:04 UTC",
        rows=with_ratios(rows, limits),
        notes=["something"],
    )


def test_table(report: Report) -> None:
    table = report.table()
    assert {len(row) for row in table} == {11}
    assert table[1][:5] == ["sum", "16", "tcusim", "f32", "f32"]
    assert table[1][5:] == ["2.000", "1", "0.001", "0.0%", "2.00", "x"]
    assert table[3][5:] == ["", "", "", "", "", "x: failed"]


def test_text(report: Report) -> None:
    lines = report.text().splitlines()
    assert lines[0] == "NVIDIA X (sm_90), driver 580.1, CUDA 13.0; 2026-01-02 03:04 UTC"
    assert lines[2] == "limits: reading 4.500 TB/s, copying 4.200 TB/s"
    assert lines[4].split()[:3] == ["kind", "segment", "by"]
    assert lines[-1] == "note: something"


def test_json_and_back(report: Report) -> None:
    record = json.loads(json.dumps(report.as_json(), allow_nan=False))
    assert record["rows"][0]["elements_per_s"] == report.rows[0].elements_per_s
    assert Report.from_json(record) == report
    with pytest.raises(InputError, match="its format is 'x'"):
        Report.from_json({"format": "x"})


def test_rows_name_their_own() -> None:
    for who in (OURS, PROGRAMS):
        assert Row("sum", 16, 1024, 1, attempt(who, 1.0), ()).is_ours
    assert not Row("sum", 16, 1024, 1, attempt("CUB", 1.0), ()).is_ours


# --- The pages --------------------------------------------------------------------------------


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "docs" / "tools"))
    return importlib.import_module("gpu_results")


def record_in(folder: Path, report: Report) -> None:
    """Write a report as `tcusim bench all` does: a file for each section."""
    (folder / "h200").mkdir(exist_ok=True)
    for name in {row.section for row in report.rows}:
        rows = tuple(row for row in report.rows if row.section == name)
        text = json.dumps(replace(report, rows=rows).as_json())
        (folder / "h200" / f"{name}.json").write_text(text)


def test_pages_without_a_recorded_run(pages: Any, tmp_path: Path) -> None:
    assert pages.kernels(tmp_path) == (
        "*No run of the benchmark on a GPU is recorded in this copy of the source.*"
    )
    assert "No run of the benchmark with sums on a GPU" in pages.benchmark("sum", tmp_path)
    assert "No run of `tcusim agree`" in pages.agreement(tmp_path)
    assert "`tcusim agree --backend`" in pages.agreement_by_backend(tmp_path)


def test_the_page_of_a_benchmark(pages: Any, tmp_path: Path, report: Report) -> None:
    record_in(tmp_path, report)
    lines = pages.benchmark("sum", tmp_path).splitlines()
    assert lines[2] == "| segment | tcusim | of reading | of the best other | CuPy |"
    assert lines[4] == "| 16 | **1** | 0.0% | 2.00 | 0 |"
    assert "| sum | 16 | f32 → f32 | `x` |" in pages.kernels(tmp_path)
    # A section that no run measured.
    assert pages.benchmark("matvec", tmp_path) == (
        "*No run of the benchmark with products of a matrix and a vector on a GPU is recorded in "
        "this copy of the source.*"
    )


def test_the_page_of_whole_arrays_and_products(pages: Any, tmp_path: Path, report: Report) -> None:
    tried = [attempt("CUB", 4.0), attempt("tcusim", 2.0), attempt("tcusim", 1.0, "f16")]
    rows = [
        *best_rows(SCAN, tried[:1]),
        *best_rows(replace(SCAN, segment_size=LENGTH), [*tried, attempt("CuPy", None)]),
        *best_rows(Case("products", "matvec", 512, LENGTH), tried),
    ]
    record = replace(report, rows=with_ratios(rows, report.limits))
    record_in(tmp_path, record)
    lines = pages.benchmark("scan", tmp_path, result="f32").splitlines()
    assert lines[2] == "| segment | tcusim | of copying | of the best other | CUB | CuPy |"
    assert lines[4:6] == [
        "| 16 | **—** | — | — | 0 | — |",
        "| whole array | **1** | 0.1% | 2.00 | 0 | failed |",
    ]
    assert lines[-1] == "- CuPy, whole array: failed"
    assert pages.benchmark("scan", tmp_path).splitlines()[4] == "| whole array | **1** | 0.1% | — |"
    lines = pages.benchmark("matvec", tmp_path).splitlines()
    assert "limit of reading: 4.500 TB/s" in lines[0]
    assert lines[4] == "| 2,048 x 512 | **1** | 0.0% | 4.00 | 0 |"
    assert "| scan | whole array | f32 → f16 | `x` |" in pages.kernels(tmp_path)


def test_the_page_of_other_sections(pages: Any, tmp_path: Path, report: Report) -> None:
    """They are in no other table, and compared with programs for the same problem."""
    record_in(tmp_path, report)
    assert pages.sections(tmp_path).startswith("*No run of the benchmark's other sections")
    tried = [attempt("tcusim", 2.0), attempt("PyTorch", 4.0, "f16")]
    ragged = Case("ragged", "sum", 0, LENGTH, lengths="one giant")
    rows = [
        *best_rows(ragged, tried, 7),
        *best_rows(Case("types", "sum", 16, LENGTH, "f32"), tried),
    ]
    record = replace(report, rows=with_ratios([*report.rows, *rows], report.limits))
    record_in(tmp_path, record)
    lines = pages.sections(tmp_path).splitlines()
    assert lines[0] == "**`types`**"
    assert lines[4] == "| sum | 16 | f32 → f32 | **1** | 0.0% | 2.00 | 0 |"
    assert "**`ragged`**" in lines
    assert "| sum | one giant | f16 → f32 | **1** | 0.0% | 2.00 | 0 |" in lines
    assert "f32" not in pages.benchmark("sum", tmp_path)


def test_the_page_of_a_comparison(pages: Any, tmp_path: Path) -> None:
    counts = {"cases": 2, "outputs": 1000, "differ": 0, "failed": 0}
    run = {"backend": "cupy", "arch": "hopper", "left": 0, "skipped": {"no such tile": 3}, **counts}
    run["cells"] = [
        {"algorithm": name, "column": "16x16x16 f16→f32", **counts} for name in ("scan_k", "scan_t")
    ]
    record = {"gpu": "NVIDIA H200", "date": "2026-01-02", "driver": "580.1", "runs": [run, run]}
    for written in (record, run):
        (tmp_path / "agreement_h200.json").write_text(json.dumps(written))
        text = pages.agreement(tmp_path)
        assert "1,000 outputs compared, **0 differ**" in text
        assert "| `16x16x16 f16→f32` | 4 | 2,000 | 0 | 0 |" in text
        assert "| 3 | no such tile |" in text
    (tmp_path / "agreement_h200.json").write_text(json.dumps(record))
    assert "Recorded on: NVIDIA H200, 2026-01-02, driver 580.1." in pages.agreement(tmp_path)
