"""tcusim microbench: figures from times, its files, and failures; without a GPU."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from command_line import runner
from lab_standin import NoLab
from tcusim.errors import BackendUnavailable
from tcusim.machine import read_unit, unit_of
from tcusim_cuda.microbench import report as module
from tcusim_cuda.microbench.probes import Found
from tcusim_cuda.microbench.report import Report, known_unit, measured


@pytest.fixture(scope="module")
def done() -> tuple[Report, Any]:
    return measured(NoLab(), time.monotonic() + 100)


def test_times_become_figures(done: tuple[Report, Any]) -> None:
    report, unit = done
    assert unit.name == "h200-measured"
    found = {
        "shuffle_latency": 23.0,
        "shuffle_interval": 2.0,
        "l2_latency": 250.0,
        "barrier_latency": 20.0,
        "shared_bandwidth": 128.0,
        "clock": 1.755e9,
    }
    for name, value in found.items():
        figure = getattr(unit, name)
        assert (figure.value, figure.confidence) == (pytest.approx(value, rel=1e-3), "measured")
        assert figure.source == f"tcusim microbench on NVIDIA H200, driver 1.2, {report.date}"
    instruction = unit.instruction("16x16x16", "f16", "f32", "wmma")
    assert (instruction.latency.value, instruction.interval.value) == (33.0, 8.0)
    # As it was: no probe is about it.
    assert unit.warps_per_core == unit_of("h200").warps_per_core


def test_every_instruction_of_the_unit_is_measured(done: tuple[Report, Any]) -> None:
    _, unit = done
    times = {(one.family, one.tile, one.ab): one for one in unit.instructions}
    assert all(one.latency and one.interval for one in times.values())
    assert {key[0] for key in times} == {"wmma", "mma.sync"}
    assert ("mma.sync", "8x8x4", "f16") not in times, "it multiplies four tiles"


def test_a_probe_that_fails_is_named_and_the_others_stay(done: tuple[Report, Any]) -> None:
    report, _ = done
    assert report.failed == {"launch": "RuntimeError: CUDA_ERROR_ILLEGAL_ADDRESS"}
    assert "failed: launch: RuntimeError" in report.text()
    broken, unit = measured(NoLab("shuffle_beside"), time.monotonic() + 100)
    assert broken.failed["shuffle"] == "shuffle_beside: refused"
    # Earlier findings stay.
    assert unit.shuffle_latency is not None
    assert unit.shuffle_latency.value == 23.0


def test_no_probe_begins_when_the_time_is_over() -> None:
    report, unit = measured(NoLab(), time.monotonic() - 1)
    assert report.found == {}
    assert "wmma 16x16x16 f16 f32" in report.left
    assert "no time was left: memory bandwidth, " in report.text()
    assert replace(unit, name="h200") == unit_of("h200")


def test_two_figures_that_bound_each_other_may_both_be_new() -> None:
    unit = unit_of("h200")
    about = {"tile": "16x16x16", "ab": "f16", "acc": "f32", "family": "wmma"}
    report = Report({}, "h200", "", "")
    # By itself, each would contradict the unit's file.
    report.found["x"] = [
        Found("latency", 10.0, "cycles", about),
        Found("interval", 8.0, "cycles", about),
    ]
    new, notes = report.measured_unit(unit)
    one = new.instruction("16x16x16", "f16", "f32", "wmma")
    assert one is not None
    assert one.latency is not None
    assert one.interval is not None
    assert (one.latency.value, one.interval.value, notes) == (10.0, 8.0, [])
    report.found["x"] = [Found("l2_bandwidth", 1e9, "bytes a second")]
    new, (note,) = report.measured_unit(unit)
    assert note.startswith("l2_bandwidth, 1e+09, was left out: Unit 'h200': memory_bandwidth")
    assert new.l2_bandwidth == unit.l2_bandwidth
    report.found["x"] = [
        Found("interval", 80.0, "cycles", about),
        Found("latency", 20.0, "cycles", about),
    ]
    new, notes = report.measured_unit(unit)
    assert len(notes) == 1
    assert "is longer than the latency" in notes[0]


def test_a_gpu_that_is_no_unit_is_one_without_figures() -> None:
    assert known_unit({"gpu": "NVIDIA H200", "sm": 90}).name == "h200"
    unit = known_unit({"gpu": "NVIDIA Unheard 1", "sm": 86})
    assert (unit.arch.name, unit.units_per_core) == ("ampere", None)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    from tcusim_cuda.microbench.command import microbench_command

    def on_no_gpu(seconds: float, *, say: Any, keep: Any) -> Any:
        return measured(NoLab(), time.monotonic() + seconds, say, keep)

    monkeypatch.setattr(module, "microbench", on_no_gpu)
    done = runner().invoke(microbench_command, ["-o", str(tmp_path / "new"), "--seconds", "90"])
    assert done.exit_code == 1, "one probe failed"
    record = json.loads((tmp_path / "new" / "microbench.json").read_text())
    assert record["format"] == "tcusim microbench 1"
    unit = read_unit(tmp_path / "new" / "h200-measured.toml")
    assert unit.l2_latency is not None
    assert unit.l2_latency.confidence == "measured"


def test_no_gpu_is_a_sentence() -> None:
    with pytest.raises(BackendUnavailable, match=r"driver|GPU|compile"):
        module.microbench(1.0)
