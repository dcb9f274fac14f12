"""The benchmark's record: its arithmetic, its table, its file, and the pages made of it."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tcusim.errors import InputError
from tcusim_bench import charts
from tcusim_bench.record import Case, Report, Row, moved_bytes, verdict

LENGTH = 2**20
SUM, SCAN = (Case(f"{kind}s", kind, 16, LENGTH) for kind in ("sum", "scan"))


def row(case: Case, who: str, ms: float | None, result: str = "f32", **more: Any) -> Row:
    """Return a row that was right, or failed if it has no time."""
    status, size = "failed" if ms is None else "ok", moved_bytes(case, _results(case), result)
    given = {"label": "x", "acc": "f32", "status": status, "bytes": size, **more}
    return Row(case, who, result=result, ms=ms, **given)


def _results(case: Case) -> int:
    return case.length if case.kind == "scan" else case.length // (case.segment_size or case.length)


def report_of(*rows: Row, **more: Any) -> Report:
    given: dict[str, Any] = {
        "device": {"gpu": "NVIDIA X", "sm": 90, "driver": "580.1", "cuda": "13.0"},
        "versions": {"numpy": "2.0"},
        "limits": {"read": 4.5e12, "copy": 4.2e12},
        "length": LENGTH,
        "date": "2026-01-02 03:04 UTC",
        "notes": ["something"],
    }
    return Report(**{**given, **more}, rows=rows)


@pytest.fixture
def report() -> Report:
    sums = (row(SUM, "tcusim", 2.0, least_ms=1.5, error=1e-9), row(SUM, "CuPy", 4.0))
    return report_of(*sums, row(SCAN, "CUB", None))


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


def test_the_fastest_of_a_group_is_its_best() -> None:
    case = Case("x", "sum", 16, 1024)
    tried = [row(case, "tcusim", ms) for ms in (3.0, 2.0, None)]
    best = report_of(*tried, row(case, "CuPy", None), row(case, "tcusim", 9.0, "f16")).best()
    assert [(one.who, one.result, one.ms) for one in best] == [
        ("tcusim", "f32", 2.0),
        ("CuPy", "f32", None),
        ("tcusim", "f16", 9.0),
    ]
    assert best[0].elements_per_s == pytest.approx(1024 / 2e-3)
    assert best[0].bytes_per_s == pytest.approx((2048 + 256) / 2e-3)
    assert best[1].elements_per_s is None


def test_ratios() -> None:
    sums, scans = (Case("x", kind, 16, 1000) for kind in ("sum", "scan"))
    product = Case("x", "matvec", 10, 1000)
    found = report_of(
        row(sums, "tcusim", 2.0), row(sums, "A", 4.0, "f16"), row(sums, "B", 3.0),
        row(sums, "C", None), row(scans, "tcusim", 2.0), row(scans, "A", 1.0, "f16"),
        row(product, "tcusim", 2.0), row(product, "A", 1.0, "f16"),
        limits={"read": 2e6, "copy": 4e6},
    ).best()  # fmt: skip
    by = {(one.case.kind, one.who): one for one in found}
    ours = by["sum", "tcusim"]
    assert ours.bytes_per_s is not None
    assert ours.of_limit == pytest.approx(ours.bytes_per_s / 2e6)
    assert ours.of_peer == pytest.approx(3.0 / 2.0)
    assert by["sum", "B"].of_peer is None
    assert by["sum", "C"].of_limit is None
    # A scan is compared with scans to the same type.
    assert by["scan", "tcusim"].of_peer is None
    assert by["scan", "A"].of_limit == pytest.approx(4000 / 1e-3 / 4e6)
    # A product reads, and is compared for any type of the result.
    assert by["matvec", "tcusim"].of_limit == pytest.approx((2020 + 400) / 2e-3 / 2e6)
    assert by["matvec", "tcusim"].of_peer == pytest.approx(0.5)


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
    values = {"acc": "f32", "result": "f32", **given}
    assert verdict(Row(Case("x", "sum", 1024, 1024), "x", **values)) == expected


def test_f16_sums_may_be_off_the_more_the_longer() -> None:
    def one(size: int, acc: str = "f16") -> str:
        case = Case("x", "sum", size, size)
        return verdict(Row(case, "CUB", acc=acc, result="f16", error=0.1))

    assert one(2**20) == "wrong: error 0.1, more than 0.062 of a segment's norm"
    assert one(2**22) == "ok"
    # Sums by f32 may not.
    assert one(2**30, "f32").startswith("wrong: error 0.1")


@pytest.mark.parametrize(("size", "said"), [(2**29, "ok"), (2**26, "wrong: error 7.8e-06")])
def test_long_sums_of_libraries(size: int, said: str) -> None:
    """An error that CUB had on an H200 in segments of 2^29."""
    case = Case("x", "sum", size, 2**30)
    row = Row(case, "CUB", acc="f32", result="f32", error=7.8e-6)
    assert verdict(row).startswith(said)


def test_products_of_libraries_may_be_off_the_more_the_longer() -> None:
    """Errors that cuBLAS had on an H200; a wrong element is off by far more."""

    def one(cols: int, acc: str, error: float, kind: str = "matmul") -> str:
        case = Case("x", kind, cols, cols**2)
        return verdict(Row(case, "cuBLAS", acc=acc, result=acc, error=error))

    assert one(8192, "f32", 5.1e-5) == one(2048, "f32", 1.2e-5) == one(16384, "f16", 0.21) == "ok"
    assert one(32768, "f32", 4.3e-5, "matvec") == one(4096, "f32", 3.2e-5) == "ok"
    assert one(15360, "f16", 0.27) == "ok"
    assert one(256, "f32", 1e-5) == "wrong: error 1e-05, more than 7.6e-06 of a segment's norm"
    assert one(8192, "f32", 1e-3).startswith("wrong")
    assert one(8192, "f16", 0.5).startswith("wrong")


def test_text(report: Report) -> None:
    lines = report.text().splitlines()
    assert lines[0] == "gpu NVIDIA X; sm 90; driver 580.1; cuda 13.0; numpy 2.0"
    assert lines[2] == "limit of read: 4.500 TB/s"
    heads = ["kind", "size", "by", "sums", "result", "ms", "G/s", "TB/s"]
    assert lines[5].split("  ")[0] == "kind"
    assert " ".join(lines[5].split()) == " ".join([*heads, "of limit of best peer how"])
    assert lines[6].split() == [
        "sum",
        "16",
        "tcusim",
        "f32",
        "f32",
        "2.000",
        "1",
        "0.001",
        "0.0%",
        "2.00",
        "x",
    ]
    assert lines[8].split() == ["scan", "16", "CUB", "f32", "f32", "x:", "failed"]
    assert lines[-1] == "note: something"
    # A field of no row has no column; a field of calls only has one.
    call = Row(Case("latency", "call", 0, 64), "f(x)", ms=0.001, ratio=2.5, against="g(x)")
    lines = report_of(call, limits={}).text().splitlines()
    assert lines[3].split() == ["kind", "size", "by", "ms", "ratio", "how"]
    assert lines[4].split() == ["call", "64", "f(x)", "0.001", "2.50", "to", "g(x)"]


def test_a_file_and_back(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    report.write(path)
    assert Report.read(path) == report
    assert [one.name for one in tmp_path.iterdir()] == ["x.json"]
    for text, message in (("{", "x.json is no record"), ("[]", "no record"), ("{}", "'format'")):
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            Report.read(path)


def test_a_page_of_charts(report: Report) -> None:
    page = charts.page(report)
    assert "Sums, f16 (sums): share of the limit" in page
    assert "<title>Benchmark</title>" in page


# --- The pages --------------------------------------------------------------------------------


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "docs" / "tools"))
    return importlib.import_module("gpu_results")


def record_in(folder: Path, report: Report) -> None:
    """Write a report as `tcusim bench run` does: a file for each part."""
    (folder / "h200").mkdir(exist_ok=True)
    for name in {row.case.section for row in report.rows}:
        rows = tuple(row for row in report.rows if row.case.section == name)
        replace(report, rows=rows).write(folder / "h200" / f"{name}.json")


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


def test_the_page_of_whole_arrays_and_products(pages: Any, tmp_path: Path) -> None:
    tried = (("CUB", 4.0, "f32"), ("tcusim", 2.0, "f32"), ("tcusim", 1.0, "f16"))
    whole, product = replace(SCAN, segment_size=LENGTH), Case("products", "matvec", 512, LENGTH)
    rows = [row(SCAN, *tried[0]), *(row(whole, *one) for one in tried), row(whole, "CuPy", None)]
    record_in(tmp_path, report_of(*rows, *(row(product, *one) for one in tried)))
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
    ragged = Case("ragged", "sum", 0, LENGTH, lengths="one giant")
    typed = Case("types", "sum", 16, LENGTH, "f32")
    rows = [
        row(case, *one)
        for case in (ragged, typed)
        for one in (("tcusim", 2.0, "f32"), ("PyTorch", 4.0, "f16"))
    ]
    record_in(tmp_path, report_of(*report.rows, *rows))
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
