"""Reductions: their bits are those of the products and additions that their texts name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from numbers_of_types import uneven_halves
from tcusim.algorithms import build
from tcusim.machine import mma
from tcusim.machine.shapes import MmaShape
from tcusim.simulate.interpreter import run_numpy

M = K = 16


def sums(name: str, x: Any, size: int, **options: Any) -> NDArray[np.float32]:
    program = build(name, segment_size=size, tile="16x16x16", side="a", **options)
    return np.asarray(run_numpy(program, {"in": x})["out"])


def chain(tiles: NDArray[np.float16], limit: int | None = None) -> NDArray[np.float32]:
    """Return V = A.P' + V over the tiles, in chains that are added up by rounded additions."""
    first = np.zeros((K, 16), np.float16)
    first[:, 0] = 1
    total: NDArray[np.float32] | None = None
    count = limit or len(tiles)
    for start in range(0, len(tiles), count):
        v = np.zeros((M, 16), np.float32)
        for tile in tiles[start : start + count]:
            v = np.asarray(mma(tile, first, v, arch="hopper"))
        total = v if total is None and limit is None else (v if total is None else total + v)
    assert total is not None
    return total[:, 0]


@pytest.mark.parametrize("limit", [None, 2, 3])
def test_a_segment_to_a_row_accumulates_its_pieces(limit: int | None) -> None:
    size = 5 * K
    x = uneven_halves(M * size)
    tiles = x.reshape(M, 5, K).swapaxes(0, 1)
    result = sums("reduction_kn", x, size, accumulation_length=limit)
    np.testing.assert_array_equal(result, chain(tiles, limit))


def test_a_segment_of_tiles_is_finished_by_a_second_product() -> None:
    """R = P.V, with the row sums in the type of the operands; or by additions of halves."""
    x = uneven_halves(3 * M * K)
    rows = chain(x.reshape(3, M, K))
    top = np.zeros((16, 16), np.float16)
    top[0] = 1
    column = np.zeros((16, 16), np.float16)
    column[:, 0] = rows.astype(np.float16)
    by_mma = np.asarray(mma(top, column, np.zeros((16, 16), np.float32), arch="hopper"))[0, 0]
    assert sums("reduction_tn", x, x.size, combine="mma").tolist() == [by_mma]
    while rows.size > 1:
        rows = rows[: rows.size // 2] + rows[rows.size // 2 :]
    assert sums("reduction_tn", x, x.size, combine="add").tolist() == rows.tolist()


def test_additions_alone_are_in_pairs() -> None:
    x = uneven_halves(64).astype(np.float32)
    rows = x.copy()
    while rows.size > 1:
        rows = rows[::2] + rows[1::2]
    result = sums("reduction_panel", x, 64, ab="f32", masked=True)
    assert result.tolist() == rows.tolist()


@pytest.mark.parametrize("warps", [1, 2, 3])
@pytest.mark.parametrize("tiles", [1, 2, 5])
def test_a_block_shares_a_segment_of_any_tiles(warps: int, tiles: int) -> None:
    """The last tile of some is not whole: the elements after it are the next segment's."""
    size = tiles * M * K - 5 * ((warps + tiles) % 2)
    x = np.random.default_rng(tiles).integers(-9, 10, 2 * size).astype(np.float16)
    for combine in ("add", "mma") if warps > 1 else ("add",):
        # Small enough for partial sums that are operands.
        given = x if combine == "add" else np.where(np.arange(x.size) % 9, 0, x)
        result = sums("reduction_tn_block", given, size, warps=warps, combine=combine)
        np.testing.assert_array_equal(result, given.reshape(2, -1).sum(1, dtype=np.float32))


@pytest.mark.parametrize("m", [1, 2, 5])
@pytest.mark.parametrize("warps", [4, 5])
def test_more_warps_than_an_operand_has_columns(warps: int, m: int) -> None:
    """The first warp takes their values as several operands; their first row is used."""
    tile = MmaShape(m, 3, 2)
    size = warps * m * tile.k
    x = np.random.default_rng(m).integers(-3, 4, 3 * size).astype(np.float16)
    rows = x.astype(np.float32).reshape(3, size)
    for name, expected in (("reduction_tn_block", rows.sum(1)), ("scan_tn_block", rows.cumsum(1))):
        program = build(name, segment_size=size, tile=tile, warps=warps, side="a", combine="mma")
        found = run_numpy(program, {"in": x})["out"]
        np.testing.assert_array_equal(found, expected.ravel(), name)
