"""Cases: they print themselves exactly, and the same text gives the same inputs."""

from __future__ import annotations

import numpy as np
import pytest

from tcusim.algorithms import algorithms
from tcusim.errors import InputError, Unsupported
from tcusim.judge.correctness.cases import COLUMNS, Case, CaseGrid, Column, Recipe, columns_of
from tcusim.machine import FORMATS
from tcusim.machine.shapes import shapes


def test_a_case_can_have_any_option_of_its_algorithm() -> None:
    for text, options in (
        (
            "scan_single_pass warps=8 batches=2 columns=3 length=10",
            {"warps": 8, "batches": 2, "columns": 3},
        ),
        ("reduction_ragged levels=8,4 length=10", {"levels": (8, 4)}),
        ("gemv_reduction inner=64 share_rows=1 length=10", {"inner": 64, "share_rows": True}),
    ):
        case = Case.parse(f"{text} input=normal")
        assert dict(case.recipe.options) == options
        assert str(case) == f"{text} input=normal"
        assert case.recipe.build() is not None


def test_cases_print_and_parse() -> None:
    case = Case(
        Recipe.of("scan_t", tile="64x8x16", side="a", form="[U|1]", masked=True),
        {"length": 17},
        "wide",
    )
    assert str(case) == "scan_t tile=64x8x16 side=a form=[U|1] masked=1 length=17 input=wide"
    assert Case.parse(str(case)) == case
    with pytest.raises(InputError, match="unknown algorithm ''"):
        Case.parse("")


def test_every_algorithm_is_of_the_grid() -> None:
    every = {row.name for row in algorithms()}
    for column, none in (
        (COLUMNS[0], set()),
        (Column("5x7x3", "f16", "f32"), {"scan_single_pass"}),
    ):
        of_grid = {recipe.algorithm for recipe in CaseGrid(columns=[column]).recipes()}
        assert of_grid == every - none
    (case, _) = CaseGrid(["gemm"], COLUMNS[:1]).cases()
    assert Case.parse(str(case)) == case
    assert case.inputs()["a"].size == case.length * case.recipe.get("inner")


def test_every_column_of_a_shape_is_of_types_that_are_summed() -> None:
    for shape in shapes():
        if not shape.pairs():
            with pytest.raises(Unsupported, match=f"{shape.name} takes .*does not sum"):
                columns_of(shape.name)
            continue
        for column in columns_of(shape.name):
            assert {column.ab, column.acc} <= FORMATS.keys()


def test_inputs_of_a_case_are_its_own() -> None:
    one, two = (Case.parse(f"scan_k masked=1 length={size}") for size in (50, 50))
    assert np.array_equal(one.inputs()["in"], two.inputs()["in"])
    other = Case.parse("scan_k masked=1 side=b length=50").inputs()["in"]
    assert not np.array_equal(one.inputs()["in"], other)


def test_columns_of_shapes_beyond_the_grid() -> None:
    assert columns_of("4x4x4") == (Column("4x4x4", "f16", "f32"),)
    assert Column("16x8x32", "e4m3", "f32") in columns_of("16x8x32")
    assert str(Column("16x16x16", "bf16", "f32", "f32")) == "16x16x16 f32=bf16→f32"


def test_a_recipe_says_what_is_not_the_default() -> None:
    recipe = Recipe.of(
        "scan_tn",
        warps=1,
        items_per_warp=2,
        combine="mma",
        side=None,
        result="",
        accumulation_length=3,
    )
    assert str(recipe) == "scan_tn items_per_warp=2 accumulation_length=3"
    assert recipe.get("warps") == 1
    assert recipe.get("combine") == "mma"
    assert recipe.but(items_per_warp=1, form="L(A1)") == Recipe.of(
        "scan_tn", form="L(A1)", accumulation_length=3
    )
    assert recipe.column == Column("16x16x16", "f16", "f32")


def test_every_option_comes_in_rounds_of_all_algorithms_and_columns() -> None:
    names, columns = ["scan_kn", "reduction_t", "gemm"], columns_of("16x16x16")[:3]
    every = list(CaseGrid(names, columns, full=True).recipes())
    cells = [(one.algorithm, one.get("ab"), one.get("acc")) for one in every]
    assert len(set(cells)) == len(set(cells[:9])) == 9
    assert len(set(cells[9:18])) == 9
    assert len(set(every)) == len(every)
    assert len({name for name, *_ in cells[:3]}) > 1  # In random order.
