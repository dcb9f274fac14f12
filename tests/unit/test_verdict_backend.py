"""`validate(backend=...)`: programs also run on a backend, and its bits are the simulator's."""

from __future__ import annotations

import json
from html import unescape
from typing import Any

import pytest

from judged import judge
from tcusim.backends import get_backend, register_backend
from tcusim.errors import BackendUnavailable, InputError, Unsupported
from tcusim.program.launches import LaunchPlan

SCANS: Any = {"sections": ["correctness"], "algorithms": ["scan_kn"]}


class Faulty:
    """The simulator, with a mistake."""

    def __init__(self, mistake: str) -> None:
        self.name = self.title = mistake

    def available(self) -> str | None:
        return "it lies in pieces" if self.name == "absent" else None

    def run(self, plan: LaunchPlan, inputs: Any, **options: Any) -> dict[str, Any]:
        if self.name == "declines" and "gemm_naive" not in plan.title:
            raise Unsupported(f"{plan.title}: not yet")
        outputs = dict(get_backend("numpy").run(plan, inputs, **options))
        if self.name == "differs" and "scan" in plan.title:
            outputs["out"] = outputs["out"].copy()
            outputs["out"][-1:] += 1
        return outputs


def plant(mistake: str) -> str:
    return register_backend(Faulty(mistake)).name


def test_bits_of_a_backend_are_told_everywhere() -> None:
    verdict = judge("4x4x4", "5x3x2", backend="numpy", **SCANS)
    assert verdict.ok
    table = " ".join(str(verdict.sections()[0]).split())
    assert "bits of numpy 2 ok, 1,494 outputs 2 ok, " in table
    (unit, other) = verdict.units
    assert unit.agreement is not None
    assert other.agreement is not None
    assert {one.algorithm for one in unit.agreement.compared} == {"scan_kn"}
    value = json.loads(verdict.to_json())["units"][0]
    assert value["backend"] == "numpy"
    assert value["agreement"]["outputs"] == unit.agreement.total.outputs > 1000
    page = verdict.to_html()
    assert "Bits of numpy, against the simulator" in page
    assert "outputs that differ" in page
    assert "1,494 outputs of numpy have the simulator's bits" in unescape(page)


def test_a_device_is_the_hardware_of_its_own_arithmetic() -> None:
    class Device(Faulty):
        def native_arch(self, array: Any = None) -> str:
            return "volta"

    name = register_backend(Device("device")).name
    own, other = (
        judge("4x4x4", arch=arch, backend=name, **SCANS).lines()[0][4].text
        for arch in ("volta", "exact")
    )
    assert "hardware" not in own
    assert "hardware: its rule was computed, not compared" in other


def test_bits_that_differ_fail() -> None:
    verdict = judge("4x4x4", backend=plant("differs"), **SCANS)
    assert not verdict.ok
    best = verdict.lines()[0][0]
    assert not best.good
    assert "WRONG: differs beside the simulator: 2 cases" in best.text
    assert "first scan_kn tile=4x4x4" in best.text
    assert "of 'out' differ" in str(verdict)


def test_programs_that_did_not_run_are_named() -> None:
    verdict = judge(
        "4x4x4",
        backend=plant("declines"),
        sections=["correctness"],
        algorithms=["scan_kn", "gemm_naive"],
    )
    assert verdict.ok
    assert "1 programs on declines: not yet" in verdict.lines()[0][4].text
    nothing = judge("4x4x4", backend="declines", **SCANS)
    assert not nothing.ok
    assert "nothing was compared" in str(nothing)


def test_a_backend_that_cannot_run_is_refused_at_once() -> None:
    with pytest.raises(BackendUnavailable, match="lies in pieces"):
        judge("4x4x4", backend=plant("absent"))
    with pytest.raises(InputError, match="is compared in the section correctness; add it to time"):
        judge("4x4x4", backend="numpy", sections=["time"])
