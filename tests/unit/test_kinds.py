"""The kinds of algorithms that validate tries: exact inputs and their results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tcusim
from tcusim.algorithms import Level, algorithm_of, algorithms
from tcusim.judge.correctness.cases import Case, Recipe
from tcusim.judge.correctness.kinds import KINDS, Tile, layouts


def test_every_algorithm_is_of_a_kind() -> None:
    assert set(KINDS) == {row.kind for row in algorithms()}


@pytest.mark.parametrize(("size", "limit"), [(1, 2), (3, 8), (16, 8), (100, 2048), (5000, 2048)])
def test_inputs_stay_exact_and_reach_the_ends(size: int, limit: int) -> None:
    program = tcusim.build("scan_kn", segment_size=size, masked=True)
    case = Case(Recipe.of("scan_kn", segment_size=size, masked=True), {"length": 7 * size})
    inputs = KINDS["scan"].inputs(program, case, limit)
    rows = inputs["in"].reshape(7, size)
    assert np.abs(rows).sum(axis=1).max() <= limit
    assert (rows[:, 0] != 0).all()
    assert (rows[:, -1] != 0).all()
    again = KINDS["scan"].inputs(program, case, limit)
    assert np.array_equal(inputs["in"], again["in"])
    scans = KINDS["scan"].expected(program, case, inputs)
    assert np.array_equal(scans.reshape(7, size)[:, -1], rows.sum(axis=1))


def test_exclusive_and_carried_scans_are_expected() -> None:
    program = tcusim.build("scan_kn", segment_size=3, masked=True, exclusive=True, carry=True)
    recipe = Recipe.of("scan_kn", segment_size=3, exclusive=True)
    inputs = {"in": np.array([1, 2, 3, 4, 5]), "carry": np.array([10, 20])}
    scan = KINDS["scan"]
    found = scan.expected(program, Case(recipe, {"length": 5}), inputs)
    assert found.tolist() == [10, 11, 13, 20, 24]
    reverse = Case(Recipe.of("scan_kn", segment_size=3, reverse=True), {"length": 5})
    assert scan.expected(program, reverse, {"in": inputs["in"]}).tolist() == [6, 5, 3, 9, 5]


def test_products_are_expected() -> None:
    case = Case(Recipe.of("gemv"), {"rows": 2, "cols": 1, "inner": 3})
    inputs = {"a": np.arange(6), "b": np.array([1, 0, -1]), "c": np.array([5, 7])}
    product = KINDS["product"]
    assert product.expected(tcusim.build("scan_k"), case, inputs).tolist() == [3, 5]
    assert product.useful(case) == 6
    text = product.unknown(tcusim.build("scan_k"))
    assert text == "what must come out is not known here for the scalars length"


def test_blocks_are_measured_with_no_more_warps_than_k() -> None:
    row = replace(algorithm_of("scan_k"), level=Level.BLOCK)
    assert layouts(row, Tile(5, 7, 3))[0] == (3, 1)
    assert layouts(row, Tile(16, 16, 16))[0] == (4, 1)
    assert layouts(algorithm_of("scan_k"), Tile(5, 7, 3))[0] == (1, 1)
