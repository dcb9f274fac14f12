"""The benchmark without a GPU: its arithmetic, its table, and whole runs."""

from __future__ import annotations

import itertools
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import bench_standin
from bench_standin import NoGpu, NoPeers, NotAhead
from command_line import runner
from tcusim.errors import BackendUnavailable
from tcusim_bench import problems as bench_problems
from tcusim_bench import sections
from tcusim_bench import throughput as bench
from tcusim_bench.device import Device, Times
from tcusim_bench.problems import Problem
from tcusim_bench.programs import Recipe
from tcusim_bench.report import OURS, Report
from tcusim_bench.sections import Case, matrix_columns
from tcusim_bench.throughput import Settings

LENGTH = 2**20
SUM, SCAN = (Case(f"{kind}s", kind, 16, LENGTH) for kind in ("sum", "scan"))


# --- A whole run, on a stand-in for the GPU ---------------------------------------------------


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "Device", NoGpu)
    monkeypatch.setattr(bench, "Peers", NoPeers)
    monkeypatch.setattr(bench, "Ahead", NotAhead)
    # There is no cache that the data would fit into.
    monkeypatch.setattr(bench, "_LOG2_LENGTHS", (16, 34))


@pytest.mark.usefixtures("no_gpu")
def test_a_run() -> None:
    lines: list[str] = []
    settings = Settings(17, quick=True, commit="abc")
    report = bench.bench(settings, say=lines.append)
    assert report.wrong == ()
    assert [line.split(":")[0] for line in lines] == [
        *("sum 16", "scan 16", "matvec 256", "sum 131072", "scan 131072"),
        *("sum 256", "scan 256", "sum 4096", "scan 4096"),
    ]
    sizes = (16, 256, 4096, 2**17)
    order = [(kind, size) for kind in ("sum", "scan") for size in sizes] + [("matvec", 2**8)]
    assert list(dict.fromkeys((row.kind, row.segment_size) for row in report.rows)) == order
    assert report.limits == {"read": 2 * 2**17 / 0.5e-3, "copy": 4 * 2**17 / 0.5e-3}
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
    report = bench.bench(Settings(17, (section,), sizes.get(section, ()), peers=()))
    ours = [row for row in report.rows if row.best.who == OURS]
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
    report = bench.bench(Settings(17, ("products",), (256,)))
    assert report.wrong == ()
    rows = [row for row in report.rows if row.kind == "matmul"]
    ours = next(row for row in rows if row.best.who == OURS)
    assert ours.best.bits_compared == 32 * 256
    assert (ours.of_limit, ours.of_peer) == (None, 1.0)


@pytest.mark.usefixtures("no_gpu")
def test_wrong_bits_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def flip(out: Any) -> None:
        out.view(np.uint8)[0] ^= 1

    monkeypatch.setattr(bench_standin, "damage", flip)
    report = bench.bench(Settings(16, ("sums", "scans"), (16,), quick=True))
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
    done = runner().invoke(main, [*arguments, "--json"])
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
    monkeypatch.setattr(Problem, "expected", lambda *_: None)
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
    assert problem.compare_bits(problem.expected(recipe), out) == (2**15, 0)
    out[7] += 1
    assert problem.compare_bits(problem.expected(recipe), out) == (2**15, 1)


@pytest.mark.parametrize(("log2", "columns"), [(20, 1024), (21, 1024), (30, 32768)])
def test_the_matrix_is_square_or_high(log2: int, columns: int) -> None:
    assert matrix_columns(2**log2) == columns


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

    from tcusim.cli.main import main

    path = tmp_path / "results.json"
    arguments = ["bench", "throughput", "-o", str(path), "--log2-length", "20", "--segment", "16"]
    done = runner().invoke(main, [*arguments, "--section", "sums"])
    assert done.exit_code == 0, done.output
    assert "reduction_packed" in done.output
    assert Report.from_json(json.loads(path.read_text())).length == LENGTH


def test_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(BackendUnavailable, match="CuPy cannot be imported"):
        bench.bench(Settings(20))
