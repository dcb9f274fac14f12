"""How much warps and blocks take: sizes that fit the problem, and that no bit depends on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcusim
from tcusim.algorithms import build
from tcusim.arrays.planner import choose
from tcusim.arrays.problem import Problem, ProductProblem, Types
from tcusim.arrays.sizes import (
    Grid,
    block_sizes,
    longest_scanned,
    panel_options,
    product_blocks,
    vector_readings,
)
from tcusim.arrays.tuning import DEFAULT
from tcusim.machine.shapes import MmaShape, shape_of
from tcusim.simulate.backend import NUMPY

TILE = shape_of("16x16x16")
TYPES = Types("f16", "f32", "f16", "f32")
# Numbers of many magnitudes: sums in another order round to other bits.
ELEMENTS = 40_000
X = (np.random.default_rng(5).lognormal(0, 4, ELEMENTS).clip(0, 6e4)).astype(np.float16)


def problem(kind: str, length: int, size: int) -> Problem:
    return Problem(kind=kind, length=length, segment_size=size, tile=TILE, types=TYPES)


def product(rows: int, inner: int, cols: int | None) -> ProductProblem:
    return ProductProblem(rows=rows, inner=inner, cols=cols, tile=TILE, types=TYPES)


def bits(p: Problem, options: dict[str, Any]) -> bytes:
    program = build(
        f"{p.kind}_single_pass",
        tile=p.tile,
        segment_size=p.whole_or_size,
        ab="f16",
        acc="f32",
        result="f32",
        masked=True,
        **options,
    )
    out = tcusim.run(program, {"in": X[: p.length]})["out"]
    return np.asarray(out).tobytes()


def test_the_grid_of_segments() -> None:
    grid = Grid.of(TILE)
    assert (grid.row, grid.panel, grid.chunk) == (32, 1024, 8192)
    assert Grid.of(shape_of("8x8x4")).row == 8
    assert grid.group % grid.chunk == 0


@pytest.mark.parametrize("kind", ["reduction", "scan"])
@pytest.mark.parametrize("size", [ELEMENTS, 20_000, 9_000])
def test_no_bit_depends_on_the_size_of_blocks(kind: str, size: int) -> None:
    p = problem(kind, ELEMENTS, size)
    # As few elements, and as many, as make small blocks and large ones.
    tunings = [DEFAULT, replace(DEFAULT, enough_blocks=1)]
    found = [options for tuning in tunings for options in block_sizes(p, tuning)]
    assert len({str(options) for options in found}) > 1
    expected = np.asarray(NUMPY.run(choose(p, "a plan").plan, {"in": X})["out"]).tobytes()
    assert {bits(p, options) for options in found} == {expected}


def test_blocks_become_smaller() -> None:
    for kind in ("reduction", "scan"):
        for size in (2**28, 2**16):
            warps = [each["warps"] for each in block_sizes(problem(kind, 2**28, size), DEFAULT)]
            assert warps[0] == max(warps) > warps[-1]


def test_a_warp_takes_whole_segments() -> None:
    for kind in ("reduction", "scan"):
        for size in (20, 64, 200, 1000):
            options, text = panel_options(problem(kind, 2**26, size), DEFAULT)
            assert options["warps"] > 1, "a long array has blocks of several warps"
            assert f"of {size} elements" in text
            few, _ = panel_options(problem(kind, size, size), DEFAULT)
            assert few["warps"] == 1, "one segment is for one warp"


def test_tiles_whose_panels_fill_no_chunks_have_a_longest_scan() -> None:
    assert longest_scanned(TILE) is None
    odd = MmaShape(24, 24, 16)
    longest = longest_scanned(odd)
    assert longest is not None
    assert longest % Grid.of(odd).chunk == 0


def test_a_block_of_a_product_has_no_more_tiles_than_the_result() -> None:
    for rows, cols in ((1, 1), (16, 300), (40, 40), (4096, 4096)):
        for options in product_blocks(product(rows, 512, cols), DEFAULT.product, None):
            assert 1 <= options["down"] <= max(1, 2 * rows // TILE.m)
            assert 1 <= options["across"] <= max(1, 2 * cols // TILE.n)


def test_long_rows_are_shared_and_short_ones_are_not() -> None:
    long = vector_readings(product(4, 2**20, None), DEFAULT.product)
    assert all(options["share_rows"] for options in long)
    assert [options["warps"] for options in long] == list(DEFAULT.product.vector_warps)
    assert vector_readings(product(4, 64, None), DEFAULT.product) == [{"width": long[0]["width"]}]
