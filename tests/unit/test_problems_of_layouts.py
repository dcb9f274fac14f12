"""The problems that requests pose: how long arrays are, and which segments lie by offsets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import tcusim
from tcusim.arrays.dtypes import TypeRule, types_on_device, types_on_host
from tcusim.arrays.plans import lies_by_offsets, product_problem, segment_problem
from tcusim.arrays.problem import Problem, RaggedProblem
from tcusim.arrays.spec import Layout, ProductLayout, Spec

FLOATS = types_on_host("float16", None, "f32", "hopper")
DIGITS = types_on_host("int32", None, "f32", "hopper")
WIDE = types_on_device("int8", "int64", "f32", "hopper")


def laid(
    operation: str, shape: tuple[int, ...], size: int | None = None, **more: Any
) -> tuple[Spec, Layout]:
    spec = Spec(operation, axis=-1, segment_size=size, **more)
    return spec, spec.layout(shape)


def test_rows_with_a_shorter_last_segment_are_filled() -> None:
    spec, layout = laid("segmented_sum", (3, 10), 4)
    problem = segment_problem(spec, layout, FLOATS, "ada")
    assert isinstance(problem, Problem)
    assert (problem.kind, problem.length, problem.segment_size) == ("reduction", 36, 4)
    assert (problem.arch, problem.tile.name) == ("ada", "16x16x16")


def test_an_order_and_names_are_passed_on() -> None:
    spec, layout = laid("cumsum", (100,), reverse=True, exclusive=True)
    spec = spec._replace(tile="8x32x16", algorithm="scan_tn", strategy="panels")
    problem = segment_problem(spec, layout, FLOATS, "hopper")
    assert isinstance(problem, Problem)
    assert (problem.order.exclusive, problem.order.reverse) == (True, True)
    assert (problem.tile.name, problem.algorithm) == ("8x32x16", "scan_tn")
    assert (problem.strategy, problem.segment_size) == ("panels", 100)


@pytest.mark.parametrize(("rule", "carried"), [(FLOATS, True), (DIGITS, False)])
def test_all_rows_are_one_list_of_segments_by_offsets(rule: TypeRule, carried: bool) -> None:
    """Initial values are added to sums of digits, and precede floats in the launches."""
    spec = Spec("segmented_cumsum", axis=-1, carry=True)
    layout = replace(spec.layout((3, 1000), by_offsets=True), by_offsets=7)
    problem = segment_problem(spec, layout, rule, "hopper", 300)
    assert isinstance(problem, RaggedProblem)
    assert (problem.segments, problem.length) == (21, 3000)
    assert problem.longest is not None
    assert 300 <= problem.longest <= 3000
    assert problem.carry == carried


def test_no_sum_of_one_segment_lies_by_offsets() -> None:
    spec, layout = laid("sum", (2**30,))
    for rule in (DIGITS, WIDE, FLOATS):
        assert not lies_by_offsets(spec, layout, rule)


def test_scans_lie_by_offsets_if_their_segments_are_too_long_for_a_warp_that_takes_them() -> None:
    tcusim.register_shape(tcusim.MmaShape(5, 7, 3))
    spec = Spec("segmented_cumsum")
    short, long = (laid("segmented_cumsum", (2**26,), size)[1] for size in (2**10, 2**25))
    for layout, tile, apart in (
        (short, "5x7x3", False),
        (long, "5x7x3", True),
        (long, None, False),
    ):
        assert lies_by_offsets(spec._replace(tile=tile), layout, FLOATS) == apart
    # Whoever names an algorithm has segments as it takes them.
    named = spec._replace(algorithm="scan_tn", tile="5x7x3")
    assert not lies_by_offsets(named, long, FLOATS)


def test_a_product() -> None:
    layout = ProductLayout(3, 40, None, (3,))
    problem = product_problem(Spec("matvec"), layout, FLOATS, "hopper", add_c=True)
    assert (problem.rows, problem.inner, problem.cols) == (3, 40, None)
    assert (problem.add_c, problem.second) == (True, "x")
