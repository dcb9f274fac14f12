"""tcusim.judge.cost.roofline: roofs and points, and the size that makes memory the bound."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tcusim
from tcusim.judge.cost.predicted import Cost, cost
from tcusim.judge.cost.roofline import memory_bound_sizes, roofline
from tcusim.machine import unit_of


def sums(size: int, **given: object) -> Cost:
    plan = tcusim.plan("segmented_sum", length=2**24 // size * size, segments=size)
    return cost(plan, cached=False)


def test_roofs_are_the_units_and_points_lie_below() -> None:
    h200 = unit_of("h200")
    found = roofline({"16": sums(16), "1024": sums(1024)})
    one = h200.instruction("16x16x16", "f16", "f32", "wmma")
    assert one is not None
    assert one.interval is not None
    assert h200.clock is not None
    assert found.peak == pytest.approx(132 * 4 * h200.clock.value * 4096 / one.interval.value)
    assert found.roofs["memory"] == h200.memory_bandwidth.value  # type: ignore[union-attr]
    for intensity, rate in found.points.values():
        # One product of 4096 for 256 elements, of two bytes and their results.
        assert 7 < intensity <= 8
        assert rate < min(found.peak or 0, intensity * found.roofs["memory"])


def test_the_chart_has_each_point_and_each_roof() -> None:
    text = roofline({"sums of 16": sums(16)}).plot().html()
    for word in ("sums of 16", "memory", "L2", "all matrix units", "<svg"):
        assert word in text


def test_what_is_unknown_has_no_roof_and_no_point() -> None:
    bare = replace(unit_of("h200"), clock=None, l2_bandwidth=None)
    plan = tcusim.plan("segmented_sum", length=2**20, segments=16)
    found = roofline({"16": cost(plan, bare)}, bare)
    assert (found.peak, dict(found.points), set(found.roofs)) == (None, {}, {"memory"})


def test_the_size_from_which_memory_bounds() -> None:
    bound, found = memory_bound_sizes([16, 3, 5, 64], sums)
    assert [size for size, _ in found] == [3, 5, 16, 64]
    bounds = {size: one.bound for size, one in found}
    assert bounds[5] == "cores"
    assert bounds[16] == bounds[64] == "memory"
    assert bound == (16, 64)
    assert memory_bound_sizes([5], sums)[0] is None
