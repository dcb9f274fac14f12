"""The maps of `tcusim.layout` are those that an H200 has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcusim
from tcusim.machine import Values
from tcusim.machine.layouts.maps import FragmentMap, mma_sync_map, wmma_map
from tcusim.machine.shapes import shape_of, shapes

PARTS = "abcd"


@pytest.fixture(name="recorded", scope="module")
def all_arrays() -> dict[str, Values]:
    with np.load(Path(__file__).with_name("layouts_h200.npz")) as archive:
        return dict(archive)


def sizes_of(shape: str) -> tuple[int, int, int]:
    found = shape_of(shape)
    return found.m, found.n, found.k


def loads(recorded: dict[str, Values]) -> Iterator[tuple[str, str, str, str, Values]]:
    """Yield type, shape, operand, order and numbers of each WMMA fragment."""
    for name, numbers in recorded.items():
        if name.startswith("wmma_"):
            dtype, shape, operand, order = name.split("_")[1:]
            yield dtype, shape, operand, order, numbers


def test_every_wmma_fragment_is_where_it_was_recorded(recorded: dict[str, Values]) -> None:
    count = 0
    for dtype, shape, operand, order, numbers in loads(recorded):
        rows = [row for row in shape_of(shape).operands if row.family == "wmma"]
        for row in rows:
            if dtype != (row.acc if operand == "c" else row.ab):
                continue
            one = wmma_map(sizes_of(shape), operand, row.ab, row.acc, order)
            assert np.array_equal(one.rows * one.size[1] + one.cols, numbers), (shape, operand)
            count += 1
    assert count == 114
    found = tcusim.layout("16x16x16", "a", order="col")
    assert (found.evidence, found.source) == ("recorded", "[H200]")


def matrices(one: FragmentMap, numbers: Values) -> Values:
    """Return the lanes' elements, (tries, 32, n), as matrices (tries, tiles, rows, cols)."""
    shape = len(numbers), int(one.tiles.max()) + 1, *one.size
    result = np.zeros(shape, np.int64)
    result[:, one.tiles[:, None], one.rows, one.cols] = numbers
    return result


def test_documented_places_multiply_right(recorded: dict[str, Values]) -> None:
    count = 0
    for shape in shapes():
        for row in shape.operands:
            sizes: Any = (shape.m, shape.n, shape.k)
            if row.family != "mma.sync":
                continue
            for orders in ("rc", "rr", "cr", "cc"):
                name = f"mma_{row.ab}_{row.acc}_{shape.name}_{orders}"
                if f"{name}_a" not in recorded:
                    continue
                taken = {
                    letter: {"r": "row", "c": "col"}[o]
                    for letter, o in zip("ab", orders, strict=True)
                }
                maps = {
                    letter: mma_sync_map(sizes, letter, row.ab, row.acc, taken.get(letter, ""))
                    for letter in "abc"
                }
                a, b, c, d = (
                    matrices(maps["c" if part == "d" else part], recorded[f"{name}_{part}"])
                    for part in PARTS
                )
                if row.ab == "b1":
                    # One bit of one or the other, counted.
                    product = (a[..., :, :, None] ^ b[..., None, :, :]).sum(-2)
                else:
                    product = a @ b
                assert np.array_equal(product + c, d), name
                count += 1
    assert count == 43
