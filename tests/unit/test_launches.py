"""Launch plans: a program as a plan of one launch, the parts of plans, and work in place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tcusim.algorithms import build
from tcusim.errors import InputError
from tcusim.program.launches import Launch, LaunchPlan, Memory, PlanBuilder
from tcusim.simulate.backend import NUMPY

SUM = build("reduction_kn", segment_size=64, combine="add", masked=True)
TOTAL = build("reduction_panel", segment_size=8, ab="f32", masked=True)
SCAN = build("scan_kn", segment_size=64, result="f16", masked=True)
CARRIED = build("scan_tn", segment_size=512, carry=True, combine="add", masked=True)


def two_levels() -> LaunchPlan:
    """Return a plan that sums segments of 64, and then these sums by eights."""
    builder = PlanBuilder(Memory("data", "f16", 1000))
    sums = builder.add(SUM, {"in": "data"}, "sums")
    builder.add(TOTAL, {"in": sums}, "sums")
    return builder.finish("two levels")


def test_a_program_is_a_plan_of_one_launch() -> None:
    plan = LaunchPlan.of_program(CARRIED, {"in": 1000, "carry": 2})
    assert plan.title == "scan_tn"
    assert plan.arrays == (
        Memory("carry", "f32", 2), Memory("in", "f16", 1000), Memory("out", "f32", 1000),
    )  # fmt: skip
    assert (plan.inputs, plan.outputs, plan.temporaries) == (("carry", "in"), ("out",), ())
    (launch,) = plan.launches
    assert launch == Launch(CARRIED, {"in": "in", "carry": "carry"}, {"out": "out"})
    assert plan.scalars(launch) == {"length": 1000}
    with pytest.raises(InputError, match="inputs must be carry, in; got in"):
        LaunchPlan.of_program(CARRIED, {"in": 1000})


def test_a_builder_sizes_and_names_what_launches_make() -> None:
    plan = two_levels()
    assert plan.arrays == (
        Memory("data", "f16", 1000), Memory("sums", "f32", 16), Memory("sums2", "f32", 2),
    )  # fmt: skip
    assert [array.nbytes for array in plan.arrays] == [2000, 64, 8]
    assert (plan.inputs, plan.outputs) == (("data",), ("sums2",))
    assert plan.temporaries == (plan.memory["sums"],)
    assert [plan.scalars(launch) for launch in plan.launches] == [{"length": 1000}, {"length": 16}]
    x = np.random.default_rng(0).integers(-9, 10, 1000).astype(np.float16)
    result = NUMPY.run(plan, {"data": x})
    assert list(result) == ["sums2"]
    np.testing.assert_array_equal(result["sums2"], [x[:512].sum(), x[512:].sum()])


def test_plans_are_told_apart_however_alike() -> None:
    one, other = two_levels(), two_levels()
    assert one != other
    assert len({one, other, one}) == 2


def test_why_plans_do_not_work_in_place() -> None:
    def reason(program: Any, length: int = 100) -> str | None:
        return LaunchPlan.of_program(program, {"in": length}).why_not_in_place

    assert reason(SCAN) is None
    assert reason(replace(SUM, name="total")) == "its elements are f16 and its results f32"
    assert reason(TOTAL) == "it has 100 elements and the result 13"
    # A scan with a first launch that reads the output of its last.
    builder = PlanBuilder(Memory("in", "f16", 1000))
    whole: dict[str, Any] = {"segment_size": 512, "combine": "add", "masked": True}
    narrow = build("scan_tn", carry=True, result="f16", **whole)
    sums = builder.add(build("reduction_tn", **whole), {"in": "in"}, "sums")
    builder.add(narrow, {"in": "in", "carry": sums}, "out")
    plan = builder.finish("a scan")
    assert plan.why_not_in_place is None
    turned = replace(plan, launches=plan.launches[::-1])
    assert turned.why_not_in_place == "reduction_tn reads it after results were written"
