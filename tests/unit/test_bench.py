"""The benchmark without a GPU: its arithmetic, its table, its programs and its peers' sources."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tcusim.errors import BackendUnavailable, InputError, UnknownName
from tcusim.numerics import format_of
from tcusim_cuda import bench, bench_device, bench_peers
from tcusim_cuda.bench import Attempt, Report, Row, best_rows, moved_bytes, verdict, with_ratios
from tcusim_cuda.bench_device import Device, Problem, reference
from tcusim_cuda.bench_peers import Contender
from tcusim_cuda.bench_programs import KINDS, Recipe, recipes
from tcusim_cuda.emit import emit

LENGTH = 2**20
ALL = [(kind, size) for kind in KINDS for size in bench.SEGMENTS]


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
    ],
)
def test_bytes(kind: str, size: int, result: str, expected: int) -> None:
    assert moved_bytes(kind, size, 1024, result) == expected


def test_the_fastest_of_a_group_is_its_row() -> None:
    tried = [attempt("tcusim", 3.0), attempt("tcusim", 2.0), attempt("tcusim", None)]
    rows = best_rows(
        "sum", 16, 1024, [*tried, attempt("CuPy", None), attempt("tcusim", 9.0, "f16")]
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
        *("sum", 16, 1000),
        [attempt("tcusim", 2.0), attempt("A", 4.0, "f16"), attempt("B", 3.0), attempt("C", None)],
    )
    scans = best_rows("scan", 16, 1000, [attempt("tcusim", 2.0, "f32"), attempt("A", 1.0, "f16")])
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


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"error": 1e-7}, "ok"),
        ({"error": 1e-3}, "wrong: error 0.001, more than 7.6e-06 of a segment's norm"),
        ({"error": 1e-3, "result": "f16"}, "ok"),
        ({"error": 1e-2, "result": "f16", "accumulate": "f16"}, "ok"),
        ({"error": None}, "wrong: some results are NaN, or were not written"),
        (
            {"error": 0.0, "bits_compared": 9, "bits_differ": 2},
            "wrong: 2 of 9 differ from the simulator",
        ),
    ],
)
def test_verdict(given: dict[str, Any], expected: str) -> None:
    values = {"who": "x", "label": "x", "accumulate": "f32", "result": "f32", "status": "", **given}
    assert verdict(Attempt(**values)) == expected


# --- The report -------------------------------------------------------------------------------


@pytest.fixture
def report() -> Report:
    rows = [
        *best_rows("sum", 16, LENGTH, [attempt("tcusim", 2.0), attempt("CuPy", 4.0)]),
        *best_rows("scan", 16, LENGTH, [attempt("CUB", None)]),
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


# --- Programs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "size"), ALL)
def test_programs_build_and_emit(kind: str, size: int) -> None:
    found = recipes(kind, size)
    assert len(set(found)) == len(found)
    labels = [(recipe.accumulate, recipe.result, recipe.label) for recipe in found]
    assert len(set(labels)) == len(labels)
    for recipe in found:
        launches = recipe.launches(2**30)
        assert launches.arrays[0] == ("f16", 2**30)
        results = 2**30 // size if kind == "sum" else 2**30
        assert launches.arrays[-1] == (recipe.result, results)
        assert launches.stages[-1].target == len(launches.arrays) - 1
        for stage in launches.stages:
            kernel = emit(stage.program)
            assert 0 < kernel.blocks(stage.scalars) < 2**31


@pytest.mark.parametrize(("kind", "size"), ALL)
def test_quick_keeps_one_of_each_type(kind: str, size: int) -> None:
    types = [(recipe.accumulate, recipe.result) for recipe in recipes(kind, size)]
    quick = [(recipe.accumulate, recipe.result) for recipe in recipes(kind, size, quick=True)]
    assert sorted(quick) == sorted(set(types))


@pytest.mark.parametrize(("kind", "size"), [(kind, size) for kind, size in ALL if size <= 65536])
def test_programs_are_right(kind: str, size: int) -> None:
    data = np.random.default_rng(size).uniform(-1, 1, 2**18).astype(np.float16)
    right = reference(kind, data.reshape(-1, size)).ravel()
    largest = np.abs(right).max()
    for recipe in {recipe.alone() for recipe in recipes(kind, size)}:
        got = recipe.simulate(data, "sm_90")
        assert got.dtype == format_of(recipe.result).dtype
        f32 = recipe.accumulate == recipe.result == "f32"
        assert np.abs(got - right).max() <= largest * (1e-5 if f32 else 0.01), recipe.label


def test_the_plan_is_that_of_the_functions() -> None:
    """The recipe "plan" has the bits of `tcusim.segmented_sum` and `segmented_cumsum`."""
    import tcusim

    data = np.random.default_rng(3).uniform(-1, 1, 2**17).astype(np.float16)
    for kind, function in (("sum", tcusim.segmented_sum), ("scan", tcusim.segmented_cumsum)):
        for size in (64, 65536):
            recipe = Recipe(kind, size, None, ragged=True)
            expected = function(data, size, dtype=np.float32, arch="sm_90")
            np.testing.assert_array_equal(recipe.simulate(data, "sm_90"), expected)


def test_a_length_that_does_not_fit() -> None:
    with pytest.raises(InputError, match="not a multiple of 8388608"):
        Recipe("sum", 2**20, "reduction_tn", warps=8).launches(2**22)


# --- A whole run, on a stand-in for the GPU ---------------------------------------------------


class _NoGpu(Device):
    """Runs programs on the simulator; every run takes half a millisecond."""

    def __init__(self, length: int, backend: str) -> None:
        self.length = length
        self.backend = backend
        self.cp = SimpleNamespace(asnumpy=np.asarray, asarray=np.asarray, isnan=np.isnan)
        self.data = np.random.default_rng(0).uniform(-1, 1, length).astype(np.float16)
        self._room = np.empty(length * 4, np.uint8)
        self.__dict__["info"] = {"gpu": "none", "sm": 90, "l2_bytes": 1, "cuda": "", "driver": ""}

    @property
    def sm(self) -> int:
        return 90

    def median_ms(self, run: Any, repeats: int) -> float:
        return 0.5

    def reader(self) -> Any:
        return lambda: None

    def copier(self) -> Any:
        return lambda: None

    def program(self, recipe: Recipe, out: Any) -> Any:
        result = recipe.alone().simulate(self.data, "sm_90")

        def run() -> None:
            out[:] = result
            damage(out)

        return run


def damage(out: Any) -> None:
    """Stand for what a broken kernel does; tests replace it."""


class _NoPeers:
    """One peer that is right, one that writes nothing, and one that raises."""

    def __init__(self, device: Device, names: tuple[str, ...]) -> None:
        self.missing = {"cub": "BackendUnavailable: no nvcc"}
        self.versions = {"cupy": "14"}
        self.cub = None

    def contenders(self, problem: Problem) -> Iterator[Contender]:
        def right(out: Any) -> Any:
            def run() -> None:
                out[:] = reference(problem.kind, problem.matrix).ravel()

            return run

        def broken(out: Any) -> Any:
            raise MemoryError("no memory\nmore")

        yield Contender("right", "a", "f32", "f32", right)
        yield Contender("idle", "b", "f32", "f32", lambda out: lambda: None)
        yield Contender("broken", "c", "f32", "f16", broken)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "Device", _NoGpu)
    monkeypatch.setattr(bench, "Peers", _NoPeers)


@pytest.mark.usefixtures("no_gpu")
def test_a_run() -> None:
    lines: list[str] = []
    report = bench.bench(log2_length=20, segments=(16, 65536), say=lines.append)
    assert report.wrong == ()
    assert len(lines) == 4
    assert report.limits == {"read": 2 * LENGTH / 0.5e-3, "copy": 4 * LENGTH / 0.5e-3}
    rows = {
        (r.kind, r.segment_size, r.best.who, r.best.accumulate, r.best.result): r
        for r in report.rows
    }
    ours = rows["sum", 16, "tcusim", "f32", "f32"]
    assert ours.best.bits_compared == 2**15 // 16
    assert ours.best.bits_differ == 0
    assert ours.of_peer == 1.0
    assert rows["scan", 65536, "tcusim", "f32", "f16"].best.ok
    assert rows["scan", 16, "right", "f32", "f32"].best.ok
    idle = rows["sum", 16, "idle", "f32", "f32"].best
    assert idle.status == "wrong: some results are NaN, or were not written"
    broken = rows["sum", 16, "broken", "f32", "f16"].best
    assert broken.status == "failed: MemoryError: no memory"
    assert "cub was left out: BackendUnavailable: no nvcc" in report.notes
    assert report.text()


@pytest.mark.usefixtures("no_gpu")
def test_wrong_bits_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def flip(out: Any) -> None:
        out.view(np.uint8)[0] ^= 1

    monkeypatch.setitem(globals(), "damage", flip)
    report = bench.bench(log2_length=20, segments=(16,), quick=True)
    assert {one.status for one in report.wrong} == {
        "wrong: 1 of 2048 differ from the simulator",
        "wrong: 1 of 32768 differ from the simulator",
    }


@pytest.mark.usefixtures("no_gpu")
def test_a_run_that_is_cut_short() -> None:
    report = bench.bench(log2_length=20, segments=(16,), seconds=-1)
    assert report.rows == ()
    assert "sum 16 was left out: the time was up" in report.notes


@pytest.mark.usefixtures("no_gpu")
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "results.json"
    arguments = ["--json", str(path), "--log2-length", "20", "--segments", "16", "--quick"]
    assert bench.main(arguments) == 0
    assert "reduction_packed" in capsys.readouterr().out
    assert Report.from_json(json.loads(path.read_text())).length == LENGTH


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"log2_length": 10}, "log2_length must be from 20 to 34, got 10"),
        ({"log2_length": 20, "segments": (48,)}, r"must divide 2\*\*20; 48 does not"),
        ({"log2_length": 20, "segments": ()}, "segments is empty"),
        ({"log2_length": 20, "backend": "host"}, "backend must be one of cupy, pycuda"),
    ],
)
def test_wrong_arguments(given: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        bench.bench(**{"segments": (16,), **given})


def test_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(BackendUnavailable, match="CuPy cannot be imported"):
        bench.bench(log2_length=20)


# --- Peers ------------------------------------------------------------------------------------


def test_peers_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    device: Any = SimpleNamespace(sm=90)
    peers = bench_peers.Peers(device, ("triton", "cub"))
    assert peers.names == ()
    assert peers.missing["cub"].endswith("nvcc, which compiles CUB, is not on the PATH")
    assert "triton" in peers.missing["triton"]
    with pytest.raises(UnknownName, match="unknown peer 'cubb'"):
        bench_peers.Peers(device, ("cubb",))


def test_a_peer_that_raises_is_a_contender_that_fails() -> None:
    device: Any = SimpleNamespace(sm=90)
    peers = bench_peers.Peers(device, ())
    peers.names = ("torch.compile",)
    problem: Any = SimpleNamespace(kind="sum")
    (contender,) = peers.contenders(problem)
    assert (contender.who, contender.label) == ("torch.compile", "sum")
    with pytest.raises((ImportError, AttributeError)):
        contender.prepare(None)


@pytest.mark.parametrize("size", bench.SEGMENTS)
def test_triton_tiles_cover_whole_segments(size: int) -> None:
    for rows, step, warps in bench_peers.triton_tiles(size):
        assert size % step == 0
        assert rows == 1 or step == size
        assert rows * step in (1024, 2048, 4096, 8192, 16384)
        assert warps in (1, 2, 4, 8)


@pytest.mark.parametrize("name", ["sum_rows", "scan_rows"])
def test_triton_kernels_compile(name: str) -> None:
    pytest.importorskip("triton")
    compiler = importlib.import_module("triton.compiler")
    target = importlib.import_module("triton.backends.compiler").GPUTarget("cuda", 90, 32)
    kernels = importlib.import_module("tcusim_cuda.bench_triton")
    types = {"data": "*fp16", "out": "*fp32" if name == "sum_rows" else "*fp16"}
    sizes = {"size": 256, "rows": 8, "step": 256}
    signature = {**types, **dict.fromkeys(sizes, "constexpr")}
    source = compiler.ASTSource(getattr(kernels, name), signature, sizes)
    assert compiler.compile(source, target=target).asm["cubin"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH")
def test_cub_compiles(tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc") or ""
    version, folders = bench_peers.newest_cccl(nvcc)
    if version < 3_000_000:
        pytest.skip("CCCL 3 is not there")
    command = bench_peers.cub_command(nvcc, 90, folders, tmp_path / "cub.so")
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH")
def test_the_reading_kernel_compiles(tmp_path: Path) -> None:
    source = tmp_path / "read.cu"
    source.write_text(bench_device.READ_ONLY)
    command = ["nvcc", "-arch=sm_90", "-cubin", "-o", str(tmp_path / "read.cubin"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert 2**20 * 2 % bench_device.READ_BYTES == 0


def test_rows_name_their_own() -> None:
    row = Row("sum", 16, 1024, 1, attempt("tcusim", 1.0), ())
    assert row.is_ours
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
