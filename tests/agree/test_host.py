"""The emitted text, run on the CPU, gives the bits of the simulator: the whole grid, small."""

from __future__ import annotations

import numpy as np
import pytest

import tcusim
from some import Some
from tcusim.algorithms import segmented_algorithms
from tcusim.backends import Backend
from tcusim.errors import Unsupported
from tcusim.judge.correctness.agreement import agree
from tcusim.judge.correctness.cases import COLUMNS, Case, CaseGrid, Column, Recipe
from tcusim.judge.correctness.testing import assert_agree, random_inputs
from tcusim_host import compile_programs

ALGORITHMS = [row.name for row in segmented_algorithms()]
# Cases that depend much on barriers.
LANES = (
    "reduction_tn masked=1 segment_size=1000 warps=4 combine=add length=5003",
    "reduction_kn_coalesced masked=1 segment_size=100 warps=2 items_per_warp=2 side=b length=1237",
    "scan_tn tile=32x8x16 masked=1 segment_size=1000 warps=2 combine=add length=5003",
    "scan_t tile=8x32x16 side=a masked=1 form=[U|1] warps=2 length=1237",
    "scan_kn ab=bf16 source=f32 combine=add masked=1 segment_size=100 warps=2 length=1237",
    "reduction_tn_block masked=1 segment_size=1000 warps=8 items_per_warp=2 combine=add"
    " length=5003",
    "reduction_tn_block masked=1 segment_size=300 warps=17 side=b length=5003",
    "scan_tn_block masked=1 tile=32x8x16 segment_size=3000 warps=4 combine=add length=5003",
    "scan_tn_block masked=1 segment_size=9000 warps=17 length=9999",
    "scan_tn_block masked=1 segment_size=300 warps=8 side=b items_per_warp=2 length=5003",
    "reduction_panel masked=1 segment_size=100 warps=2 combine=add length=1237",
    "scan_panel masked=1 segment_size=64 warps=4 items_per_warp=2 combine=add length=5003",
    "scan_panel masked=1 segment_size=3000 warps=2 combine=add length=9999",
    "scan_single_pass masked=1 warps=4 columns=3 combine=add length=30000",
    "scan_single_pass masked=1 warps=8 columns=2 segment_size=20000 combine=add length=45000",
)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_grid(algorithm: str, host: Backend, some: Some) -> None:
    grid = CaseGrid([algorithm], tuple(some(COLUMNS, 5, ALGORITHMS.index(algorithm))))
    # In one test, so that all kernels are compiled together.
    compile_programs(recipe.build() for recipe in grid.recipes())
    report = agree(grid, arch="hopper")
    assert report.ok, report.summary()
    # Some tiles of a grid are not aligned: one of the few that the default run tries.
    ran = len(report.tallies) / sum(1 for _ in grid.recipes())
    assert ran >= (0.9 if some.full else 0.75), report.summary()
    # The text is the same for all, and its arithmetic has tests of its own: a few on another.
    arches = ("ampere", "volta", "cdna3", "exact", "cdna2", "ieee")
    arch = arches[ALGORITHMS.index(algorithm) % len(arches)]
    compared = 0
    for case in grid.cases():
        if compared == 3:
            break
        try:
            assert_agree(case.recipe.build(), case.inputs(), arch=arch)
        except Unsupported:
            # Few have bf16, tf32 and f64.
            continue
        compared += 1
    assert compared >= 1


@pytest.fixture(scope="module")
def compiled(host: Backend) -> Backend:
    compile_programs(Case.parse(text).recipe.build() for text in LANES)
    return host


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("text", LANES)
def test_the_order_of_lanes_and_blocks_does_not_matter(
    text: str, seed: int, compiled: Backend
) -> None:
    case = Case.parse(text)
    block_order = ("ascending", "descending", "shuffled")[seed - 1]
    options = {compiled.name: {"seed": seed, "block_order": block_order}}
    assert_agree(case.recipe.build(), case.inputs(), options=options)


def test_no_elements(host: Backend) -> None:
    for algorithm in ("reduction_tn", "scan_tn"):
        program = tcusim.build(algorithm, masked=True)
        empty = np.zeros(0, np.float16)
        assert assert_agree(program, {"in": empty})["out"].size == 0


def test_carries(host: Backend) -> None:
    program = tcusim.build("scan_tn", masked=True, combine="add", carry=True, segment_size=100)
    inputs = random_inputs(program, "normal", 1234, np.random.default_rng(1))
    assert set(inputs) > {"in"}
    assert_agree(program, inputs)


def test_the_grid_holds_every_algorithm_and_column() -> None:
    quick = list(CaseGrid(ALGORITHMS).cases())
    assert {case.recipe.algorithm for case in quick} == set(ALGORITHMS)
    assert {case.recipe.column for case in quick} == set(COLUMNS)
    used = {case.kind for case in quick}
    assert used == {"normal", "uniform", "wide", "subnormal", "special", "overflow", "integers"}
    for name, values in {
        "side": {"a", "b"},
        "combine": {"add", "mma"},
        "form": {"(LA)1", "L(A1)", "[U|1]", None},
        "warps": {1, 2, 4, 8},
        "items_per_warp": {1, 2},
        "masked": {False, True},
        "result": {None, "f16", "f32", "bf16"},
    }.items():
        assert {case.recipe.get(name) for case in quick} == values, name


def test_the_full_grid_is_larger_and_always_the_same() -> None:
    column = (Column("16x16x16", "f16", "f32"),)
    once, twice = (list(CaseGrid(["scan_t"], column, full=True).recipes()) for _ in range(2))
    assert once == twice
    assert len(set(once)) == len(once) == 5 * 2 * 2 * 3


def test_a_recipe_of_unlike_parts_is_refused() -> None:
    with pytest.raises(Unsupported):
        Recipe.of("reduction_k", segment_size=17, masked=True).build()
