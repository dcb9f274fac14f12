"""Rows that begin at single elements: read from aligned vectors, and written as one run."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numpy.typing import NDArray

from launch_plans import launch_plan
from tcusim.algorithms.order import FORWARD, Order
from tcusim.backends import why_unavailable
from tcusim.program.launches import LaunchPlan
from tcusim.simulate.backend import NUMPY
from tcusim_cuda.emit import emit
from tcusim_host import BACKEND as HOST

TYPES = {
    "f16": ("f16", "f32", "f16", "f16"),
    "bf16": ("bf16", "f32", "bf16", "bf16"),
    "s8": ("s8", "s32", "s8", "s32"),
    "exact": ("f16", "f64", "f16", "f16"),
    "f32": ("f32", "f32", "f32", "f32"),
}


def plan_of(kind: str, types: str, size: int, order: Order = FORWARD) -> LaunchPlan:
    """Return the plan for seven segments; the last one lacks three elements."""
    return launch_plan(
        kind, 7 * size - 3, size=size, types=TYPES[types], tile="16x16x16", arch="hopper",
        order=order,
    )  # fmt: skip


def numbers(types: str, length: int) -> NDArray[np.generic]:
    rng = np.random.default_rng(length)
    if types == "s8":
        return rng.integers(-128, 128, length).astype(np.int8)
    x = rng.standard_normal(length).astype(np.float32)
    # bf16 is a float32 without its last 16 bits.
    return (x.view(np.uint32) & 0xFFFF0000).view(np.float32) if types == "bf16" else x.astype("f2")


@pytest.mark.skipif(why_unavailable("host") is not None, reason="needs a C++ compiler")
@pytest.mark.parametrize("types", ["f16", "bf16", "s8", "exact"])
@pytest.mark.parametrize("size", [129, 333, 999, 3001])
def test_odd_segments_have_the_simulators_bits(types: str, size: int) -> None:
    for kind, order in (
        ("reduction", FORWARD),
        ("scan", FORWARD),
        ("scan", Order(exclusive=True, reverse=True)),
    ):
        plan, x = plan_of(kind, types, size, order), numbers(types, 7 * size - 3)
        (name,) = plan.outputs
        there, here = (backend.run(plan, {"in": x})[name] for backend in (HOST, NUMPY))
        assert there.tobytes() == here.tobytes()


def text_of(kind: str, types: str, size: int) -> str:
    return "".join(emit(launch.program).text for launch in plan_of(kind, types, size).launches)


@pytest.mark.parametrize("types", ["f16", "bf16"])
def test_rows_of_odd_segments_are_read_and_written_in_vectors(types: str) -> None:
    text = text_of("scan", types, 999)
    assert re.search(r"tcu::parts<8>\(fast, &in\[", text)
    assert re.search(r"tcu::join<8>\(fast, held, &in\[", text)
    assert re.search(r"tcu::store_run<31, 32, 4>\(&out\[", text)
    # Where some of the row is out of bounds, by elements.
    assert re.search(r"< length\) \{\s+tcu::store_run", text)


def test_what_is_aligned_is_moved_as_it_is() -> None:
    for types, size in (("f16", 1000), ("f16", 1002), ("f32", 999)):
        for kind in ("scan", "reduction"):
            text = text_of(kind, types, size)
            assert "tcu::parts<" not in text
            assert "tcu::store_run<" not in text


def test_wide_results_of_odd_segments_are_written_by_elements() -> None:
    text = text_of("scan", "s8", 999)
    assert "tcu::parts<16>(" in text
    assert "tcu::store_run<" not in text


def test_vectors_around_the_last_row_end_with_the_array() -> None:
    """31 rows of 32 elements and one more: seven others lie in the vector around the last."""
    text = text_of("scan", "f16", 993)
    assert re.search(r"lane, 993\*block \+ 998 < length,\s+.* tcu::parts<8>\(", text)
