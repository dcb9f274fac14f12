"""Exact sums of float16 without products: every plan against integers, on both backends.

A float16 is an integer times 2**-24, so integers of 64 bits are the reference, and one rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tcusim
from launch_plans import launch_plan
from tcusim.algorithms.order import FORWARD, Order
from tcusim.arrays.problem import MOST_FLOAT16
from tcusim.backends import why_unavailable
from tcusim.errors import Unsupported
from tcusim.machine.formats import format_of
from tcusim.program.launches import LaunchPlan
from tcusim.simulate.backend import NUMPY
from tcusim_host import BACKEND as HOST

ORDERS = (FORWARD, Order(exclusive=True), Order(reverse=True), Order(exclusive=True, reverse=True))


def plan_of(kind: str, length: int, size: int, result: str, order: Order = FORWARD) -> LaunchPlan:
    types = ("f16", "f64", "f16", result)
    return launch_plan(
        kind, length, size=size, types=types, tile="16x16x16", arch="hopper", order=order
    )


def numbers(length: int, seed: int, kind: str) -> NDArray[np.float16]:
    """Draw float16 of all magnitudes; or large ones that cancel; or those near ties of a sum."""
    rng = np.random.default_rng(seed)
    if kind == "wide":
        x = rng.standard_normal(length) * np.exp2(rng.integers(-24, 16, length))
    elif kind == "cancel":
        x = rng.choice([65504.0, -65504.0, 2.0**-24, -(2.0**-24), 0.0, -0.0], length)
    else:
        x = rng.choice([4096.0, 1.0, 0.5, 2.0**-24, -(2.0**-24)], length)
    return x.clip(-65504, 65504).astype(np.float16)


def rounded(wholes: NDArray[np.int64], result: str) -> NDArray[np.float64]:
    """Return wholes * 2**-24, each rounded once to nearest even."""
    kind, sizes = format_of(result), np.abs(wholes)
    # The last bit of a result: of float16's subnormal numbers, that of the elements.
    top = np.frexp(sizes.astype(np.float64))[1].astype(np.int64) - 1
    last = np.maximum(top - kind.fraction_bits, 0)
    kept = sizes >> last
    rest, half = sizes - (kept << last), (1 << last) >> 1
    kept += (rest > half) | ((rest == half) & (last > 0) & (kept % 2 == 1))
    found = np.ldexp(kept.astype(np.float64), last - 24)
    found[found > kind.largest] = np.inf
    return np.where(wholes == 0, 0.0, np.copysign(found, wholes))


def expected(
    x: NDArray[np.float16], kind: str, size: int, result: str, order: Order
) -> NDArray[np.float64]:
    """Return sums of integers: those of 2**15 elements of 41 bits fit 64."""
    wholes = np.ldexp(x.astype(np.float64), 24).astype(np.int64)
    found = []
    for start in range(0, len(wholes), size):
        segment = wholes[start : start + size]
        if kind == "reduction":
            found.append(segment.sum(keepdims=True))
            continue
        turned = segment[::-1] if order.reverse else segment
        sums = turned.cumsum()
        if order.exclusive:
            sums = sums - turned
        found.append(sums[::-1] if order.reverse else sums)
    return rounded(np.concatenate(found), result)


def assert_exact(
    kind: str, length: int, size: int, result: str, order: Order, numbers_of: str
) -> None:
    plan, x = plan_of(kind, length, size, result, order), numbers(length, length + size, numbers_of)
    (name,) = plan.outputs
    found = NUMPY.run(plan, {"in": x})[name]
    wanted = expected(x, kind, size, result, order)
    np.testing.assert_array_equal(found.astype(np.float64), wanted)
    np.testing.assert_array_equal(np.signbit(found.astype(np.float64)), np.signbit(wanted))
    if why_unavailable("host") is None:
        there = HOST.run(plan, {"in": x})[name]
        np.testing.assert_array_equal(there.view("u1"), found.view("u1"))


SIZES = (
    # Short, of a row, of several, odd; the longest that float64 holds.
    *((1000, 7), (1000, 16), (3000, 100), (4100, 999), (20_000, 8192), (12_288, 4096)),
    # Cut into chunks: of a divisor, of the whole array, of a size that no chunk divides.
    *((40_960, 10_240), (30_000, 15_000), (27_003, 27_003), (19_946, 9973), (25_000, 10_000)),
)


@pytest.mark.parametrize("numbers_of", ["wide", "cancel", "ties"])
@pytest.mark.parametrize(("length", "size"), SIZES)
def test_sums_and_prefixes_are_rounded_once(length: int, size: int, numbers_of: str) -> None:
    order = ORDERS[(length + len(numbers_of)) % len(ORDERS)]
    for result in ("f16", "f32"):
        assert_exact("reduction", length, size, result, FORWARD, numbers_of)
        assert_exact("scan", length, size, result, order, numbers_of)
    assert_exact("scan", length, size, "f64", order, numbers_of)


@settings(max_examples=40)
@given(
    st.sampled_from(["reduction", "scan"]),
    st.integers(1, 30_000),
    st.integers(1, 30_000),
    st.sampled_from(ORDERS),
    st.sampled_from(["f16", "f32", "bf16"]),
)
def test_any_length_is_rounded_once(
    kind: str, length: int, size: int, order: Order, result: str
) -> None:
    order = FORWARD if kind == "reduction" else order
    plan, x = plan_of(kind, length, size, result, order), numbers(length, size, "wide")
    found = NUMPY.run(plan, {"in": x})[plan.outputs[0]].astype(np.float64)
    np.testing.assert_array_equal(found, expected(x, kind, size, result, order))


def test_a_carry_that_float64_does_not_hold() -> None:
    """Of float16 prefixes one float64 precedes a chunk: beyond its 53 bits all are infinite."""
    size = 3 * MOST_FLOAT16
    x = np.full(size, 65504, np.float16)
    x[size // 2 :] = -65504
    x[::512] = 2.0**-24
    for order in (FORWARD, Order(reverse=True)):
        plan = plan_of("scan", size, size, "f16", order)
        assert [len(launch.inputs) for launch in plan.launches][-1] == 2
        found = NUMPY.run(plan, {"in": x})[plan.outputs[0]].astype(np.float64)
        assert np.isinf(found).any()
        assert np.isfinite(found[-20:] if not order.reverse else found[:20]).any()
        np.testing.assert_array_equal(found, expected(x, "scan", size, "f16", order))


@pytest.mark.parametrize("size", [1000, 20_480])
def test_what_is_not_finite_stays_in_its_place(size: int) -> None:
    x = numbers(2 * size, 3, "wide")
    x[700], x[size + 5] = np.inf, np.nan
    for kind in ("reduction", "scan"):
        plan = plan_of(kind, 2 * size, size, "f32")
        found = NUMPY.run(plan, {"in": x})[plan.outputs[0]].reshape(2, -1)
        if kind == "scan":
            assert np.isfinite(found[0, :700]).all()
            assert np.isfinite(found[1, :5]).all()
            assert np.isnan(found[1, 5:]).all()
        assert (found[0, 700 if kind == "scan" else 0 :] == np.inf).all()
        assert np.isnan(found[1, -1])


def test_nothing_is_multiplied() -> None:
    for kind in ("reduction", "scan"):
        for size in (16, 1000, 4096, 2**20, 2**24):
            plan = plan_of(kind, 2**24, size, "f32")
            for launch in plan.launches:
                assert (launch.program.ab, launch.program.acc) == ("f16", "f64")
                assert not any("Mma" in line for line in map(repr, launch.program.steps))


def test_the_elements_are_read_once_by_sums_and_twice_by_scans() -> None:
    for kind, reads in (("reduction", 1), ("scan", 2)):
        plan = plan_of(kind, 2**22, 2**20, "f16")
        assert sum("in" in launch.inputs.values() for launch in plan.launches) == reads


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ab": "f16", "acc": "f32"}, "behind_parts is for sums in f64 without products"),
        ({"ab": "f16", "acc": "f64", "carry": True}, "of f16 to f64, with carry=True"),
        ({"ab": "f16", "acc": "f64", "segment_size": 4096}, "of segments of a panel"),
        ({"ab": "f16", "acc": "f64", "segment_size": 32}, "that have several rows"),
    ],
)
def test_what_nothing_precedes(options: dict[str, Any], text: str) -> None:
    given_options = {"segment_size": 1024, "combine": "add", "masked": True, **options}
    with pytest.raises(Unsupported, match=text):
        tcusim.build("scan_panel", behind_parts=True, **given_options)
