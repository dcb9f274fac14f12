"""The benchmark without a GPU: its arithmetic, its table, and whole runs."""

from __future__ import annotations

import importlib
import itertools
import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import bench_standin
from bench_standin import NoGpu, NoPeers
from tcusim.errors import BackendUnavailable, InputError
from tcusim_bench import device as bench_device
from tcusim_bench import problems as bench_problems
from tcusim_bench import sections
from tcusim_bench import throughput as bench
from tcusim_bench.device import Device, Times
from tcusim_bench.problems import Problem
from tcusim_bench.programs import Recipe
from tcusim_bench.sections import Case, matrix_columns
from tcusim_bench.throughput import (
    Attempt,
    Report,
    Row,
    Settings,
    best_rows,
    moved_bytes,
    verdict,
    with_ratios,
)

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


# --- A whole run, on a stand-in for the GPU ---------------------------------------------------


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "Device", NoGpu)
    monkeypatch.setattr(bench, "Peers", NoPeers)


@pytest.mark.usefixtures("no_gpu")
def test_a_run() -> None:
    lines: list[str] = []
    settings = Settings(20, quick=True, commit="abc")
    report = bench.bench(settings, say=lines.append)
    assert report.wrong == ()
    assert [line.split(":")[0] for line in lines] == [
        *("matvec 1024", "sum 1048576", "scan 1048576"),
        *("sum 16", "scan 16", "sum 256", "scan 256", "sum 4096", "scan 4096"),
    ]
    sizes = (16, 256, 4096, LENGTH)
    order = [(kind, size) for kind in ("sum", "scan") for size in sizes] + [("matvec", 2**10)]
    assert list(dict.fromkeys((row.kind, row.segment_size) for row in report.rows)) == order
    assert report.limits == {"read": 2 * LENGTH / 0.5e-3, "copy": 4 * LENGTH / 0.5e-3}
    rows = {(r.kind, r.segment_size, r.best.who, r.best.acc, r.best.result): r for r in report.rows}
    for kind, size in order:
        assert rows[kind, size, "tcusim", "f32", "f32"].best.bits_compared > 0
        assert rows[kind, size, "right", "f32", "f32"].best.ok
    ours = rows["sum", 16, "tcusim", "f32", "f32"]
    assert (report.commit, ours.times) == ("abc", Times(0.5, 0.25, 1.0))
    assert ours.best.bits_compared == 2**15 // 16
    assert ours.best.bits_differ == 0
    assert ours.of_peer == 1.0
    assert rows["scan", 4096, "tcusim", "f32", "f16"].best.ok
    idle = rows["sum", 16, "idle", "f32", "f32"].best
    assert idle.status == "wrong: some results are NaN, or were not written"
    broken = rows["sum", 16, "broken", "f32", "f16"].best
    assert broken.status == "failed: MemoryError: no memory"
    assert "cub was left out: BackendUnavailable: no nvcc" in report.notes
    assert report.text()


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("section", ["types", "ragged", "graphs", "small", "sizes"])
def test_other_sections(section: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What plans launch is right, and has the bits of the simulator, in every section."""
    monkeypatch.setattr(sections, "RAGGED_LENGTH", 2**15)
    sizes = {"types": (256,), "graphs": (2**17,), "small": (3, 15), "sizes": (24, 1000)}
    report = bench.bench(Settings(20, (section,), sizes.get(section, ()), peers=()))
    ours = [row for row in report.rows if row.best.who == bench.OURS]
    kinds = {(row.kind, row.dtype, row.case.size) for row in ours}
    counts = {"types": 8, "ragged": 10, "graphs": 2, "small": 4, "sizes": 4}
    assert len(kinds) == counts[section]
    assert report.wrong == ()
    assert all(row.best.bits_compared > 0 and not row.best.bits_differ for row in ours)
    for row in ours:
        assert row.best.ms == (0.125 if section == "graphs" else 0.5)
        assert (row.of_limit is None) == (section == "graphs")


@pytest.mark.usefixtures("no_gpu")
def test_products_of_matrices() -> None:
    """Rows of 256: two matrices fit, the first rows are simulated."""
    report = bench.bench(Settings(20, ("products",), (256,)))
    assert report.wrong == ()
    rows = [row for row in report.rows if row.kind == "matmul"]
    ours = next(row for row in rows if row.best.who == bench.OURS)
    assert ours.best.bits_compared == 32 * 256
    assert (ours.of_limit, ours.of_peer) == (None, 1.0)


@pytest.mark.usefixtures("no_gpu")
def test_wrong_bits_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def flip(out: Any) -> None:
        out.view(np.uint8)[0] ^= 1

    monkeypatch.setattr(bench_standin, "damage", flip)
    report = bench.bench(Settings(20, ("sums", "scans"), (16,), quick=True))
    assert {one.status for one in report.wrong} == {
        "wrong: 1 of 2048 differ from the simulator",
        "wrong: 1 of 32768 differ from the simulator",
    }


@pytest.mark.usefixtures("no_gpu")
def test_a_run_that_is_cut_short() -> None:
    report = bench.bench(Settings(20, ("sums",), (16,), seconds=-1))
    assert report.rows == ()
    assert "sum 16 was left out: the time was up" in report.notes


@pytest.mark.usefixtures("no_gpu")
def test_the_command_of_tcusim() -> None:
    from click.testing import CliRunner

    from tcusim.cli.main import main

    arguments = [
        "bench",
        "throughput",
        "--quick",
        "--log2-length",
        "20",
        "--section",
        "sums",
        "--segment",
        "0",
    ]
    done = CliRunner().invoke(main, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    rows = json.loads(done.output)["rows"]
    assert {(row["kind"], row["segment_size"]) for row in rows} == {("sum", LENGTH)}


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("section", ["sums", "scans", "products"])
def test_a_wrong_element_of_a_long_array_is_found(
    section: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that the simulator does not compute, by far too much; the last one is in every sample."""

    def spoil(out: Any) -> None:
        out[-1] += 100

    monkeypatch.setattr(bench_standin, "damage", spoil)
    monkeypatch.setattr(Problem, "compare_bits", lambda *_: (0, 0))
    sizes = () if section == "products" else (sections.WHOLE,)
    report = bench.bench(Settings(20, (section,), sizes, quick=True))
    assert report.wrong
    assert {one.status.split()[1] for one in report.wrong} == {"error"}


def test_the_sample_of_a_whole_array() -> None:
    device = NoGpu(LENGTH, "cupy")
    exact = device.data().astype(np.float64).cumsum()
    whole = replace(SCAN, segment_size=LENGTH)
    assert Problem(replace(whole, kind="sum"), device).error(exact[-1:], "f64") == 0
    scan = Problem(whole, device)
    assert scan.error(exact, "f64") == 0
    for place in (0, 2**14 - 1, 2**19 - 1, LENGTH - 1):
        wrong = exact.copy()
        wrong[place] += 1
        norm = np.sqrt((device.data().astype(float) ** 2).sum())
        assert scan.error(wrong, "f64") == pytest.approx(1 / norm)


@pytest.mark.parametrize("kind", ["sum", "scan"])
@pytest.mark.parametrize("lengths", ["uniform 0..20", "one giant"])
def test_the_sample_of_ragged_segments(
    kind: str, lengths: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the first segment, the last and the longest, however long."""
    monkeypatch.setattr(bench_problems, "_SAMPLE", 2**16)
    device = NoGpu(LENGTH, "cupy")
    problem = Problem(Case("ragged", kind, 0, LENGTH, lengths=lengths), device)
    edges, wide = problem.offsets, device.data().astype(np.float64)
    sums = np.array([wide[a:b].sum() for a, b in itertools.pairwise(edges)])
    scan = wide.cumsum()
    exact = scan - np.repeat(np.concatenate([[0], scan])[edges[:-1]], np.diff(edges))
    exact = sums if kind == "sum" else exact
    assert exact.size == problem.size
    assert problem.error(exact, "f64") < 1e-9
    longest = int(np.diff(edges).argmax())
    place = longest if kind == "sum" else int(edges[longest + 1]) - 1
    for wrong in (0, place, exact.size - 1):
        broken = exact.copy()
        broken[wrong] += 100
        assert problem.error(broken, "f64") > 1e-3


def test_bits_are_those_of_the_plan_for_all_of_the_data() -> None:
    """The simulator runs on their beginning; whatever blocks are chosen, the bits are the same."""
    device = NoGpu(2**22, "cupy")
    recipe = Recipe("scan", 2**14, None)
    out = recipe.simulate(device.data()[: 2**17], "sm_90", length=2**22)
    problem = Problem(Case("x", "scan", 2**14, 2**22), device)
    assert problem.compare_bits(recipe, out) == (2**15, 0)
    out[7] += 1
    assert problem.compare_bits(recipe, out) == (2**15, 1)


@pytest.mark.parametrize(("log2", "columns"), [(20, 1024), (21, 1024), (30, 32768)])
def test_the_matrix_is_square_or_high(log2: int, columns: int) -> None:
    assert matrix_columns(2**log2) == columns


def test_programs_are_compiled_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, whatever fails."""
    tried: list[tuple[str, int]] = []

    def refuse(kernel: Any, sm: int) -> None:
        tried.append((kernel.program.name, sm))
        raise BackendUnavailable("no compiler")

    monkeypatch.setattr(bench_device, "compile_kernel", refuse)
    found = [Recipe("sum", 64, "reduction_kn"), Recipe("scan", 64, None), Recipe("sum", 7, "scan")]
    plans = [partial(one.plan, LENGTH) for one in found]
    Device.compile_ahead(NoGpu(LENGTH, "cupy"), plans)
    assert sorted(tried) == [("reduction_kn", 90), ("scan_panel", 90)]


def test_a_plan_is_launched_as_it_is() -> None:
    calls: list[Any] = []

    def prepare(plan: Any) -> Any:
        return SimpleNamespace(run=lambda inputs, **given: calls.append((plan, inputs, given)))

    device: Any = NoGpu(LENGTH, "cupy")
    device._launcher = SimpleNamespace(prepare=prepare)
    out, plan = np.zeros(LENGTH, np.float32), Recipe("scan", 2**14, None).plan(LENGTH)
    run = Device.program(device, plan, (device.data(),), out)
    run()
    run()
    (launched, inputs, given), again = calls
    assert again == (launched, inputs, given)
    assert launched is plan
    assert list(inputs) == ["in"]
    assert (given["out"] is out, given["shape"]) == (True, out.shape)


@pytest.mark.usefixtures("no_gpu")
def test_the_command_writes_a_file(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from tcusim.cli.main import main

    path = tmp_path / "results.json"
    arguments = ["bench", "throughput", "-o", str(path), "--log2-length", "20", "--segment", "16"]
    done = CliRunner().invoke(main, [*arguments, "--section", "sums"])
    assert done.exit_code == 0, done.output
    assert "reduction_packed" in done.output
    assert Report.from_json(json.loads(path.read_text())).length == LENGTH


def test_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(BackendUnavailable, match="CuPy cannot be imported"):
        bench.bench(Settings(20))


# --- Peers ------------------------------------------------------------------------------------


def test_rows_name_their_own() -> None:
    for who in (bench.OURS, bench.PROGRAMS):
        assert Row("sum", 16, 1024, 1, attempt(who, 1.0), ()).is_ours
    assert not Row("sum", 16, 1024, 1, attempt("CUB", 1.0), ()).is_ours


# --- The pages --------------------------------------------------------------------------------


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "docs" / "tools"))
    return importlib.import_module("gpu_results")


def test_pages_without_a_recorded_run(pages: Any, tmp_path: Path) -> None:
    for text in (pages.benchmark("sum", tmp_path), pages.kernels(tmp_path)):
        assert text == "*No run of the benchmark on a GPU is recorded in this copy of the source.*"
    assert "No run of `tcusim agree`" in pages.agreement(tmp_path)


def test_the_page_of_a_benchmark(pages: Any, tmp_path: Path, report: Report) -> None:
    (tmp_path / "bench_h200.json").write_text(json.dumps(report.as_json()))
    lines = pages.benchmark("sum", tmp_path).splitlines()
    assert lines[2] == "| segment | tcusim | of reading | of the best other | CuPy |"
    assert lines[4] == "| 16 | **1** | 0.0% | 2.00 | 0 |"
    assert "| sum | 16 | f32 → f32 | `x` |" in pages.kernels(tmp_path)
    # A run of before there were such rows.
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
    (tmp_path / "bench_h200.json").write_text(json.dumps(record.as_json()))
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
    """They are on no other table, and compared with what solves the same problem."""
    path = tmp_path / "bench_h200.json"
    path.write_text(json.dumps(report.as_json()))
    assert pages.sections(tmp_path).startswith("*No run of the benchmark's other sections")
    tried = [attempt("tcusim", 2.0), attempt("PyTorch", 4.0, "f16")]
    ragged = Case("ragged", "sum", 0, LENGTH, lengths="one giant")
    rows = [
        *best_rows(ragged, tried, 7),
        *best_rows(Case("types", "sum", 16, LENGTH, "f32"), tried),
    ]
    record = replace(report, rows=with_ratios([*report.rows, *rows], report.limits))
    path.write_text(json.dumps(record.as_json()))
    lines = pages.sections(tmp_path).splitlines()
    assert lines[0] == "**`ragged`**"
    assert lines[4] == "| sum | one giant | f16 → f32 | **1** | 0.0% | 2.00 | 0 |"
    assert "| sum | 16 | f32 → f32 | **1** | 0.0% | 2.00 | 0 |" in lines
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
