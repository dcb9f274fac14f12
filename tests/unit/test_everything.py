"""`tcusim bench all`: every part has a file, and a run that was cut short goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench_standin import NoGpu, NoPeers, NotAhead
from command_line import runner
from tcusim.cli.main import main
from tcusim.errors import InputError, UnknownName
from tcusim_bench import everything, latency, sections, throughput
from tcusim_bench.everything import LATENCY, NAMES, record_all
from tcusim_bench.paper import FIGURES
from tcusim_bench.report import Report
from tcusim_bench.sections import SECTIONS
from tcusim_bench.throughput import Settings

LENGTH = 2**20


class Noting(NoGpu):
    """Notes which devices were made."""

    made = 0

    def __init__(self, length: int, backend: str) -> None:
        super().__init__(length, backend)
        Noting.made += 1


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "Device", Noting)
    monkeypatch.setattr(throughput, "Peers", NoPeers)
    monkeypatch.setattr(throughput, "Ahead", NotAhead)
    monkeypatch.setattr(Noting, "made", 0)
    monkeypatch.setattr(sections, "ENERGY_SUMS", (16,))
    monkeypatch.setattr(sections, "ENERGY_SCANS", (16,))


def read(folder: Path, name: str) -> Report:
    return Report.from_json(json.loads((folder / f"{name}.json").read_text()))


def test_every_section_and_figure_is_a_part() -> None:
    figures = {f"figure-{name}" for name in FIGURES}
    assert set(NAMES) == {*SECTIONS, *figures, LATENCY}
    assert len(NAMES) == len(set(NAMES))


@pytest.mark.usefixtures("no_gpu")
def test_a_run_goes_on_where_it_was_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Solved problems are kept, and not measured again; energy is measured where requested."""
    settings = Settings(20, commit="abc")
    monkeypatch.setattr(everything, "_KEEP_SECONDS", -1.0)
    real = throughput._Solver.solve
    solved: list[str] = []

    def cut(self: Any, problem: Any, seconds: float, say: Any) -> Any:
        if len(solved) == 1:
            raise KeyboardInterrupt
        solved.append(str(problem.case))
        return real(self, problem, seconds, say)

    monkeypatch.setattr(throughput._Solver, "solve", cut)
    with pytest.raises(KeyboardInterrupt):
        record_all(tmp_path, settings, ("energy",))
    assert {row.kind for row in read(tmp_path, "energy").rows} == {"sum"}
    monkeypatch.setattr(throughput._Solver, "solve", real)
    (recorded,) = record_all(tmp_path, settings, ("energy",))
    assert (recorded.problems, recorded.solved, recorded.wrong) == (2, 2, ())
    report = read(tmp_path, "energy")
    assert [row.kind for row in report.rows if row.best.who == "tcusim"] == [
        *("sum", "sum"),
        *("scan", "scan"),
    ]
    usual = next(row for row in report.rows if row.best.who == "tcusim")
    assert usual.joules_per_element == pytest.approx(500 * 0.5e-3 / LENGTH)
    assert any("rows are of an earlier run" in note for note in report.notes)
    assert report.commit == "abc"
    assert "pJ" in report.table()[0]
    made = Noting.made
    record_all(tmp_path, settings, ("energy",))
    assert Noting.made == made  # there was nothing left to do


@pytest.mark.usefixtures("no_gpu")
def test_all_parts_share_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One device serves all of them; the calls are timed last."""
    shares: dict[str, float] = {}

    def measure(self: Any, part: Any, seconds: float, say: Any, **given: Any) -> Report:
        shares[part.figure or part.cases[0].section] = seconds
        return Report({}, {}, {"read": 1.0, "copy": 1.0}, LENGTH, "now")

    monkeypatch.setattr(throughput.Bench, "measure", measure)
    monkeypatch.setattr(latency, "latency", lambda: latency.Report("none", 0, {}, notes=["calls"]))
    authors = {"gemv": [{"label": "a", "x": [1], "y": [2.0]}]}
    recorded = record_all(tmp_path, Settings(20, seconds=1000), authors=authors)
    assert Noting.made == 1
    assert [one.name for one in recorded] == [name for name in NAMES if name != LATENCY]
    assert {path.stem for path in tmp_path.iterdir()} == set(NAMES)
    assert shares["types"] > shares["products"] > 0
    assert read(tmp_path, "figure-3").authors == authors
    assert "CUTLASS" in " ".join(read(tmp_path, "figure-2").notes)


@pytest.mark.usefixtures("no_gpu")
def test_the_command(tmp_path: Path) -> None:
    arguments = ["bench", "all", "-o", str(tmp_path), "--log2-length", "20", "--part", "products"]
    done = runner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[-1] == "products: 1 of 1 problems"


@pytest.mark.usefixtures("no_gpu")
def test_wrong_results_fail_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flip(out: Any) -> None:
        out.view("u1")[0] ^= 1

    monkeypatch.setattr("bench_standin.damage", flip)
    arguments = ["bench", "all", "-o", str(tmp_path), "--log2-length", "20", "--part", "products"]
    done = runner().invoke(main, arguments)
    assert done.exit_code == 1
    assert "differ from the simulator" in done.output


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="unknown part 'sum'"):
        record_all(tmp_path, Settings(20), ("sum",))
    path = tmp_path / "sums.json"
    path.write_text("{")
    with pytest.raises(InputError, match=r"sums\.json is no report: .*Remove it"):
        record_all(tmp_path, Settings(20), ("sums",))
    report = Report({}, {}, {}, 2**21, "now")
    path.write_text(json.dumps(report.as_json()))
    with pytest.raises(InputError, match="is of 2097152 elements, not of 1048576"):
        record_all(tmp_path, Settings(20), ("sums",))
