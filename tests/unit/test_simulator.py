"""tcusim_bench.simulator: its timings, on few numbers."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from command_line import runner
from tcusim.cli.main import main
from tcusim.machine.native import why_no_compiler
from tcusim_bench import simulator as module
from tcusim_bench.simulator import simulator


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_TILES", 20), ("_SIDE", 32), ("_TURNS", 1)):
        monkeypatch.setattr(module, name, value)


def test_each_path_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCUSIM_CORE", "auto")
    report = simulator(10, ("volta",))
    assert os.environ["TCUSIM_CORE"] == "auto"
    cores = {"numpy"} if why_no_compiler() else {"numpy", "compiled"}
    assert {row.core for row in report.rows} == cores
    assert len(report.rows) == 9 * len(cores)
    assert all(row.value > 0 for row in report.rows)
    assert "sums of the array" in report.text()


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "speed.json"
    result = runner().invoke(main, ["bench", "simulator", "--log2-length", "10", "-o", str(path)])
    assert result.exit_code == 0, result.output
    found = json.loads(path.read_text())
    assert found["format"] == "tcusim simulator 1"
    assert {row["arch"] for row in found["rows"]} == {"hopper", "volta"}
