"""`tcusim bench run` without a GPU: whole runs, parts, files, and errors."""

from __future__ import annotations

import itertools
import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import numpy as np
import pytest

import bench_standin
from bench_standin import NoGpu, without_gpu
from command_line import runner
from tcusim.cli.main import main
from tcusim.errors import BackendUnavailable, InputError, UnknownName
from tcusim_bench import device as bench_device
from tcusim_bench import host, parts
from tcusim_bench import problems as bench_problems
from tcusim_bench import run as bench_run
from tcusim_bench.command import bench_command, tune_command
from tcusim_bench.device import Device
from tcusim_bench.parts import FIGURES, PARTS, cases
from tcusim_bench.problems import Contender, Problem
from tcusim_bench.profile import KINDS, between_markers, profile
from tcusim_bench.programs import Recipe
from tcusim_bench.record import OURS, Case, Report
from tcusim_bench.run import NAMES, Settings, in_order, run
from tcusim_cuda.microbench.stopwatch import Times

LENGTH = 2**20
SCAN = Case("scans", "scan", 16, LENGTH)
DATA = Path(__file__).resolve().parents[2] / "docs" / "data" / "h200"


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    without_gpu(monkeypatch)


def measured(name: str, settings: Settings) -> Report:
    return run([name], settings)[name]


# --- Parts --------------------------------------------------------------------------------------


RECORDED = [name for name in PARTS if (DATA / f"{name}.json").is_file()]


@pytest.mark.parametrize("name", RECORDED)
def test_what_was_recorded_is_what_is_measured(name: str) -> None:
    """Every problem of the recorded files is a problem of its part."""
    report = Report.read(DATA / f"{name}.json")
    recorded = {row.case for row in report.rows}
    now = cases(name, report.length)
    assert recorded <= set(now)
    quick = cases(name, 2**27, quick=True)
    assert 0 < len(quick) <= len(now)


def test_a_run_that_is_cut_short_has_some_of_each_kind() -> None:
    found = cases("sums", 2**30) + cases("scans", 2**30)
    sizes = [(case.kind, case.segment_size) for case in in_order(found)][:6]
    ends = [(kind, size) for size in (16, 2**30, 2**14) for kind in ("sum", "scan")]
    assert sizes == ends
    assert set(in_order(found)) == set(found)


@pytest.mark.parametrize("name", FIGURES)
def test_every_program_of_a_figure_can_be_built(name: str) -> None:
    """At the smallest size that takes it; none has the name and types of another."""
    programs = PARTS[name].programs
    assert programs is not None
    seen: dict[tuple[str, str], Any] = {}
    for case in cases(name, 2**22):
        found = [(who, one.acc, one.result) for who, one in programs(case)]
        assert len(set(found)) == len(found)
        for who, recipe in programs(case):
            seen.setdefault((who, recipe.acc), (recipe, case.length))
    for recipe, size in seen.values():
        assert recipe.plan(size).launches


def test_what_each_figure_has() -> None:
    """The paper's own programs by name, with every tile and both accumulators."""

    def programs(figure: str, kind: str, size: int) -> Any:
        made = PARTS[f"figure-{figure}"].programs
        return list(made(Case("x", kind, size, 2**20))) if made else []

    def names(*given: Any) -> set[str]:
        return {who.split()[1] for who, _ in programs(*given)}

    assert names("10", "sum", 16) == {"reduction_16"}
    assert names("10", "sum", 256) == {"reduction_16n", "reduction_16n_coalesced", "reduction_256"}
    assert names("12", "scan", 1024) == {"scan_16n", "scan_256n", "scan_256n_block"}
    assert names("2", "matmul", 1024) == {"gemm_naive", "gemm"}
    types = {(one.shape, one.acc) for _, one in programs("12", "scan", 1024)}
    assert types == {(s, a) for s in ("16x16x16", "32x8x16", "8x32x16") for a in ("f16", "f32")}


# --- Whole runs, on a stand-in for the GPU --------------------------------------------------------


@pytest.mark.usefixtures("no_gpu")
def test_a_run() -> None:
    lines: list[str] = []
    found = run(["sums", "scans"], Settings(17, quick=True, commit="abc"), say=lines.append)
    assert [line.split(":")[0] for line in lines] == [
        *(f"sums, sum {size}" for size in (16, 2**17, 4096, 256)),
        *(f"scans, scan {size}" for size in (16, 2**17, 4096, 256)),
    ]
    for name, report in found.items():
        assert report.wrong == ()
        sizes = list(dict.fromkeys(row.case.segment_size for row in report.rows))
        assert sizes == [16, 256, 4096, 2**17]
        assert report.limits == {"read": 2 * 2**17 / 0.5e-3, "copy": 4 * 2**17 / 0.5e-3}
        rows = {(r.case.segment_size, r.who, r.acc, r.result): r for r in report.best()}
        assert all(rows[size, OURS, "f32", "f32"].bits_compared > 0 for size in sizes)
        ours = rows[16, OURS, "f32", "f32"]
        assert (report.commit, ours.ms, ours.least_ms, ours.most_ms) == ("abc", 0.5, 0.25, 1.0)
        assert (ours.bits_differ, ours.of_peer) == (0, 1.0)
        assert ours.bits_compared == (2**15 // 16 if name == "sums" else 2**15)
        assert rows[16, "right", "f32", "f32"].ok
        idle = rows[16, "idle", "f32", "f32"]
        assert (idle.status, idle.ms) == ("wrong: some results are NaN, or were not written", None)
        assert rows[16, "broken", "f32", "f16"].status == "failed: MemoryError: no memory"
        assert "cub was left out: BackendUnavailable: no nvcc" in report.notes
        assert report.text()


@pytest.mark.usefixtures("no_gpu")
def test_the_papers_programs_are_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fastest program of each algorithm is tried with other numbers, and with the best."""
    usual = bench_run.contender

    def contender(problem: Problem, who: str, recipe: Recipe) -> Contender:
        made = usual(problem, who, recipe)

        def prepare(out: Any) -> Any:
            run: Any = made.prepare(out)
            run.gain = 0.1 * (recipe.warps == 8) + 0.1 * (recipe.items_per_warp == 2)
            run.gain += 0.1 * (dict(recipe.options).get("parts") == 2**13)
            return run

        return replace(made, prepare=prepare)

    def times(self: NoGpu, run: Any, repeats: int, *, warm: bool = False) -> Times:
        ms = 0.5 - getattr(run, "gain", 0.0)
        return Times(ms, ms, ms)

    monkeypatch.setattr(bench_run, "contender", contender)
    monkeypatch.setattr(NoGpu, "times", times)
    report = measured("figure-10", Settings(16, (256,), tune=True))
    assert report.wrong == ()
    rows = [row for row in report.rows if row.who == "tcusim reduction_256 16x16x16"]
    best = min(rows, key=lambda row: row.ms or 1.0)
    assert best.label == "reduction_256 16x16x16 warps=8 items_per_warp=2 mma"
    labels = [row.label for row in rows if row.acc == "f32"]
    assert {f"reduction_256 16x16x16 warps={n} mma" for n in (1, 2, 4, 8, 16)} <= set(labels)
    assert len(labels) == len(set(labels)) == 10
    untuned = measured("figure-10", Settings(16, (256,))).rows
    assert {row.who for row in report.rows} == {row.who for row in untuned}
    # A whole array is split into other parts.
    rows = list(measured("figure-13", Settings(16, (2**16,), tune=True)).rows)
    best = min(rows, key=lambda row: row.ms or 1.0)
    assert "warps=8" in best.label
    assert "parts=8192" in best.label


@pytest.mark.parametrize("kind", ["sum", "scan"])
def test_long_segments_are_verified_by_pieces(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sum, and every end of a piece of a scan; and a wrong one is found."""
    monkeypatch.setattr(bench_problems, "_SAMPLE", 2**15)
    device = NoGpu(2**18, "cupy")
    problem = Problem(Case("x", kind, 2**16, 2**18), device)
    right = bench_problems.reference(
        kind, np.reshape(np.asarray(device.numbers["f16"]), (-1, 2**16))
    ).ravel()
    assert problem.error(right.astype(np.float32), "f32") < 1e-6
    for place in (0, right.size - 1) if kind == "sum" else (2**14 - 1, right.size - 1):
        wrong = right.astype(np.float32)
        wrong[place] += 100
        assert problem.error(wrong, "f32") > 0.1


def test_paper_stands_for_all_figures(no_gpu: None) -> None:
    found = run(["paper"], Settings(14, (64,), quick=True))
    assert set(found) == set(FIGURES)
    with pytest.raises(UnknownName, match="paper"):
        run(["papers"], Settings(14))


NCU = f'''==PROF== Connected to process 7
tcusim-profile {{}}
"ID","Kernel Name","Metric Name","Metric Value"
"0","fill()","{KINDS["half"]}","1"
"1","tcusim_marker()","{KINDS["half"]}","0"
"2","sum_a(int)","{KINDS["half"]}","1,024"
"2","sum_a(int)","{KINDS["integer"]}","7"
"3","sum_b(int)","{KINDS["half"]}","16"
"4","tcusim_marker()","{KINDS["half"]}","0"
"5","tcusim_marker()","{KINDS["half"]}","0"
"6","tcusim_marker()","{KINDS["half"]}","0"
'''


def test_instructions_between_markers() -> None:
    """The counts of a contender are the sums over its kernels, 0 without kernels."""
    first, second = between_markers(NCU.splitlines())
    assert first[0] == ("sum_a", "sum_b")
    assert (first[1]["half"], first[1]["integer"], first[1]["single"]) == (1040, 7, 0)
    assert second == ((), dict.fromkeys(KINDS, 0.0))


def fake_ncu(folder: Path, text: str, status: int) -> None:
    path = folder / "ncu"
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\nexit {status}\n")
    path.chmod(0o755)


def test_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Nsight Compute, without its permission, and with a contender that it lost."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BackendUnavailable, match="ncu, of Nsight Compute, is not on the PATH"):
        profile(20, "", print)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    fake_ncu(tmp_path, "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n", 1)
    with pytest.raises(BackendUnavailable, match="counted nothing: ==ERROR== ERR_NVGPUCTRPERM"):
        profile(20, "", print)
    one = {"kind": "sum", "segment_size": 16, "length": 1024, "who": "CUB", "label": "a"}
    told = f"tcusim-profile {json.dumps(one)}\n"
    fake_ncu(tmp_path, told + NCU, 0)
    with pytest.raises(BackendUnavailable, match="counted 2 contenders of 1"):
        profile(20, "", print)
    fake_ncu(tmp_path, NCU.replace("{}\n", "{}\n" + told + told), 0)
    path = tmp_path / "profile.json"
    result = runner().invoke(bench_command, ["profile", "-o", str(path), "--log2-length", "20"])
    assert result.exit_code == 0, result.output
    assert "1.016" in result.output  # 1,040 half-precision instructions of 1,024 elements
    assert json.loads(path.read_text())["rows"][0]["counts"]["integer"] == 7


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("section", ["types", "ragged", "graphs", "small", "sizes"])
def test_other_sections(section: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches of plans are right, with the simulator's bits, in every section."""
    monkeypatch.setattr(parts, "RAGGED_LENGTH", 2**15)
    sizes = {"types": (256,), "graphs": (2**17,), "small": (3, 15), "sizes": (24, 1000)}
    report = measured(section, Settings(17, sizes.get(section, ())))
    ours = [row for row in report.best() if row.who == OURS]
    kinds = {(row.case.kind, row.case.dtype, row.case.size) for row in ours}
    counts = {"types": 8, "ragged": 10, "graphs": 2, "small": 4, "sizes": 4}
    assert len(kinds) == counts[section]
    assert report.wrong == ()
    assert all(row.bits_compared > 0 and not row.bits_differ for row in ours)
    for row in ours:
        assert row.ms == (0.125 if section == "graphs" else 0.5)
        assert (row.of_limit is None) == (section == "graphs")


@pytest.mark.usefixtures("no_gpu")
def test_products_of_matrices() -> None:
    """Rows of 256: two matrices fit, the first rows are simulated."""
    report = measured("products", Settings(17, (256,)))
    assert report.wrong == ()
    rows = [row for row in report.best() if row.case.kind == "matmul"]
    ours = next(row for row in rows if row.who == OURS)
    assert ours.bits_compared == 32 * 256
    assert (ours.of_limit, ours.of_peer) == (None, 1.0)


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
    sizes = (256,) if section == "products" else (parts.WHOLE,)
    report = measured(section, Settings(20, sizes, quick=True))
    assert {row.status.split()[1] for row in report.wrong} == {"error"}


@pytest.mark.usefixtures("no_gpu")
def test_a_run_that_is_cut_short() -> None:
    report = measured("sums", Settings(20, (16,), seconds=-1))
    assert report.rows == ()
    assert "sum 16 was left out: the time was up" in report.notes


@pytest.mark.usefixtures("no_gpu")
def test_a_figure_is_measured(tmp_path: Path) -> None:
    """Sizes of its own, and programs of several launches."""
    report = run(["figure-13"], Settings(20, (2**14,)), tmp_path)["figure-13"]
    assert report.wrong == ()
    ours = [row for row in report.rows if row.is_ours]
    assert {row.who for row in ours} == {OURS, f"{OURS} reduction_256n_block, two launches"}
    assert all(row.bits_compared == 1 for row in ours)
    assert Report.read(tmp_path / "figure-13.json") == replace(report, rows=report.rows)
    report = measured("figure-14", Settings(20, (2**12,)))
    assert report.wrong == ()
    names = {f"{OURS} scan_256n, three launches", f"{OURS} scan_256n, scan then add"}
    assert names == {row.who for row in report.rows if row.is_ours} - {OURS}
    assert all(row.bits_compared == 2**12 for row in report.rows if row.is_ours)


@pytest.mark.usefixtures("no_gpu")
def test_what_cannot_be_built_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(parts._SUMS, "reduction_16", (64, 64))
    report = measured("figure-10", Settings(14, (64,)))
    assert any("tcusim reduction_16 16x16x16, f16, 64: " in note for note in report.notes)
    assert report.wrong == ()


@pytest.mark.usefixtures("no_gpu")
def test_a_run_goes_on_where_it_was_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Solved problems are kept, and not measured again; energy is measured where requested."""
    monkeypatch.setattr(bench_run, "_KEEP_SECONDS", -1.0)
    settings = Settings(20, (16,), commit="abc")

    def cut(line: str) -> None:
        if "scan" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(["energy"], settings, tmp_path, say=cut)
    path = tmp_path / "energy.json"
    assert {row.case.kind for row in Report.read(path).rows} == {"sum"}
    report = run(["energy"], settings, tmp_path)["energy"]
    assert Report.read(path) == report
    ours = [row for row in report.rows if row.who == OURS]
    assert [row.case.kind for row in ours] == ["sum", "sum", "scan", "scan"]
    assert ours[0].joules_per_element == pytest.approx(500 * 0.5e-3 / LENGTH)
    assert any("rows are of an earlier run" in note for note in report.notes)
    assert "pJ" in report.text()
    monkeypatch.setattr(bench_run, "Device", None)  # there is nothing left to do
    assert run(["energy"], settings, tmp_path)["energy"] == report


# --- Commands and refusals ------------------------------------------------------------------------


@pytest.mark.usefixtures("no_gpu")
def test_the_command(tmp_path: Path) -> None:
    arguments = ["bench", "run", "sums", "--quick", "--log2-length", "20", "--segment", "0"]
    done = runner().invoke(main, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["sums"]["rows"]
    assert {(row["kind"], row["segment_size"]) for row in rows} == {("sum", LENGTH)}
    done = runner().invoke(main, [*arguments, "-o", str(tmp_path)])
    assert "reduction_single_pass" in done.output
    page = tmp_path / "sums.html"
    done = runner().invoke(main, ["bench", "chart", str(tmp_path / "sums.json"), "-o", str(page)])
    assert done.exit_code == 0, done.output
    assert "Sums, f16 (sums): speed-up" in page.read_text()


@pytest.mark.usefixtures("no_gpu")
def test_wrong_results_fail_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def flip(out: Any) -> None:
        out.view("u1")[0] ^= 1

    monkeypatch.setattr(bench_standin, "damage", flip)
    done = runner().invoke(main, ["bench", "run", "sums", "--log2-length", "20", "--segment", "16"])
    assert done.exit_code == 1
    assert "differ from the simulator" in done.stderr


def test_every_example_of_the_help_is_a_command() -> None:
    commands: list[click.Command] = [*bench_command.commands.values(), tune_command]
    for command in commands:
        lines = [line for line in str(command.epilog).splitlines() if "  tcusim " in line]
        assert lines
        for line in lines:
            words = shlex.split(line.replace("$(git rev-parse --short HEAD)", "abc"))[1:]
            given = words[1:] if command is tune_command else words[2:]
            # A file of an example need not be there.
            given = [__file__ if word.endswith(".json") else word for word in given]
            command.make_context(words[0], given)


@pytest.mark.parametrize(
    ("names", "given", "text"),
    [
        (["sums"], {"log2_length": 10}, "log2_length must be from 20 to 34, got 10"),
        (["sums"], {"segments": (-1,)}, r"must be from 0 to 2\*\*20, got -1"),
        (["sums"], {"peers": ("cubb",)}, "unknown peer 'cubb'"),
        (["sums"], {"backend": "host"}, "backend must be one of cuda, cupy, pycuda"),
        (["sum"], {}, "unknown part 'sum'"),
    ],
)
def test_wrong_arguments(names: list[str], given: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        run(names, Settings(**{"log2_length": 20, **given}))


def test_files_of_other_measurements_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "sums.json"
    path.write_text("{")
    with pytest.raises(InputError, match=r"sums\.json is no record of `tcusim bench run`"):
        run(["sums"], Settings(20), tmp_path)
    Report({}, {}, {}, 2**21, "now").write(path)
    with pytest.raises(InputError, match="is of 2097152 elements, not of 1048576"):
        run(["sums"], Settings(20), tmp_path)


def test_a_library_that_is_missing_leaves_the_other_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails the command only where its part was named."""

    def missing(length: int, **given: Any) -> Report:
        raise BackendUnavailable("no torch here")

    monkeypatch.setattr(bench_run, "NAMES", ("latency", "operators"))
    monkeypatch.setitem(host.PARTS, "operators", missing)
    report = Report({}, {}, {}, 0, "now")
    monkeypatch.setitem(host.PARTS, "latency", lambda length, **given: report)
    lines: list[str] = []
    assert run([], Settings(20, commit="abc"), tmp_path, say=lines.append) == {"latency": report}
    assert lines == ["operators was left out: no torch here"]
    assert Report.read(tmp_path / "latency.json").commit == "abc"
    assert run(["latency"], Settings(20), tmp_path) == {"latency": report}  # as it was recorded
    with pytest.raises(BackendUnavailable, match="no torch here"):
        run(["operators"], Settings(20))


def test_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(BackendUnavailable, match="CuPy cannot be imported"):
        run(["sums"], Settings(20))


def test_all_parts_are_named_in_the_help() -> None:
    text = "".join(runner().invoke(bench_command, ["run", "--help"]).output.split())
    for name in NAMES:
        assert name.removeprefix("figure-") in text
    with pytest.raises(UnknownName, match="unknown part 'figure-9'"):
        run(["figure-9"], Settings(20))


# --- Right results --------------------------------------------------------------------------------


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


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64", "s8"])
def test_results_that_nobody_wrote_are_found(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory for results has the bits of NaN everywhere, in each type that has them."""
    monkeypatch.setattr(bench_device, "CHUNK", 3)
    device: Any = object.__new__(Device)
    device.cp, device._room = np, np.zeros(80, np.uint8)
    out = device.output(dtype, 10)
    assert device.has_nan(out, dtype) == (dtype != "s8")
    out[:] = 0
    assert not device.has_nan(out, dtype)
    out.view(np.uint8)[-out.itemsize :] = 0xFF
    assert device.has_nan(out, dtype) == (dtype != "s8")


def test_bits_are_those_of_the_plan_for_all_of_the_data() -> None:
    """The simulator runs on their beginning; the bits are the same for any blocks."""
    device = NoGpu(2**22, "cupy")
    recipe = Recipe("scan", 2**14, None)
    out = recipe.simulate(device.data()[: 2**17], "sm_90", length=2**22)
    problem = Problem(Case("x", "scan", 2**14, 2**22), device)
    assert problem.compare_bits(problem.expected(recipe), out) == (2**15, 0)
    out[7] += 1
    assert problem.compare_bits(problem.expected(recipe), out) == (2**15, 1)


def test_a_plan_is_launched_as_it_is() -> None:
    calls: list[Any] = []

    def prepare(plan: Any) -> Any:
        return SimpleNamespace(run=lambda inputs, **given: calls.append((plan, inputs, given)))

    device: Any = NoGpu(LENGTH, "cupy")
    device._launcher = SimpleNamespace(prepare=prepare)
    out, plan = np.zeros(LENGTH, np.float32), Recipe("scan", 2**14, None).plan(LENGTH)
    launch = Device.program(device, plan, (device.data(),), out)
    launch()
    launch()
    (launched, inputs, given), again = calls
    assert again == (launched, inputs, given)
    assert launched is plan
    assert list(inputs) == ["in"]
    assert (given["out"] is out, given["shape"]) == (True, out.shape)
