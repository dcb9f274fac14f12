"""The maps of fragments: those of PTX in PTX's own words, and that each element has its place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tcusim.machine.layouts.maps import FragmentMap, bits_of, mma_sync_map, volta_wmma_map
from tcusim.machine.multiprocessors import LANES
from tcusim.machine.shapes import shapes

SYNC = [
    ((shape.m, shape.n, shape.k), row.ab, row.acc)
    for shape in shapes()
    for row in shape.operands
    if row.family == "mma.sync"
]

Formula = Callable[[int, int, int], tuple[int, int]]
# Row and column of element i, by groupID and threadID_in_group, as [PTX sec. 9.7.14.5] has them.
PTX: dict[tuple[str, str, str], Formula] = {
    ("16x8x16", "f16", "a"): lambda g, t, i: (
        g if 0 <= i < 2 or 4 <= i < 6 else g + 8,
        t * 2 + (i & 1) + (0 if i < 4 else 8),
    ),
    ("16x8x16", "f16", "b"): lambda g, t, i: (t * 2 + (i & 1) + (0 if i < 2 else 8), g),
    ("16x8x16", "f16", "c"): lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1)),
    ("16x8x16", "f64", "a"): lambda g, t, i: (
        g if i % 2 == 0 else g + 8,
        i * 2 + t if i % 2 == 0 else i * 2 - 2 + t,
    ),
    ("16x8x16", "f64", "b"): lambda g, t, i: (t + i * 4, g),
    ("16x8x8", "bf16", "a"): lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1)),
    ("16x8x8", "tf32", "a"): lambda g, t, i: (g if i in (0, 2) else g + 8, t if i < 2 else t + 4),
    ("16x8x8", "tf32", "b"): lambda g, t, i: (t if i == 0 else t + 4, g),
    ("16x8x4", "tf32", "a"): lambda g, t, i: (g if i == 0 else g + 8, t),
    ("16x8x16", "e4m3", "a"): lambda g, t, i: (g if i < 4 else g + 8, t * 4 + (i & 3)),
    ("16x8x32", "s8", "a"): lambda g, t, i: (
        g if 0 <= i < 4 or 8 <= i < 12 else g + 8,
        t * 4 + (i & 3) + (0 if i < 8 else 16),
    ),
    ("16x8x32", "s8", "b"): lambda g, t, i: (t * 4 + (i & 3) + (0 if i < 4 else 16), g),
    ("16x8x64", "s4", "a"): lambda g, t, i: (
        g if 0 <= i < 8 or 16 <= i < 24 else g + 8,
        t * 8 + (i & 7) + (0 if i < 16 else 32),
    ),
    ("16x8x128", "b1", "a"): lambda g, t, i: (g if i < 32 else g + 8, t * 32 + (i & 31)),
    ("16x8x128", "b1", "b"): lambda g, t, i: (t * 32 + i, g),
    ("8x8x16", "u8", "a"): lambda g, t, i: (g, t * 4 + i),
    ("8x8x16", "u8", "c"): lambda g, t, i: (g, t * 2 + i),
    ("8x8x4", "f64", "a"): lambda g, t, i: (g, t),
    ("8x8x4", "f64", "b"): lambda g, t, i: (t, g),
}


def sizes_of(shape: str) -> tuple[int, int, int]:
    m, n, k = map(int, shape.split("x"))
    return m, n, k


def map_of(sizes: tuple[int, int, int], operand: str, ab: str, acc: str) -> FragmentMap:
    return mma_sync_map(sizes, operand, ab, acc, "col" if operand == "b" else "row")


@pytest.mark.parametrize(("shape", "ab", "operand"), PTX)
def test_maps_are_those_of_ptx(shape: str, ab: str, operand: str) -> None:
    acc = next(acc for sizes, name, acc in SYNC if (sizes, name) == (sizes_of(shape), ab))
    one = map_of(sizes_of(shape), operand, ab, acc)
    for lane in range(LANES):
        for i in range(one.count):
            row, col = PTX[shape, ab, operand](lane >> 2, lane % 4, i)
            assert (one.rows[lane, i], one.cols[lane, i]) == (row, col)


@pytest.mark.parametrize("order", ["row", "col"])
@pytest.mark.parametrize("operand", ["a", "b", "c"])
def test_each_element_is_held_once(operand: str, order: str) -> None:
    for sizes, ab, acc in SYNC:
        one = mma_sync_map(sizes, operand, ab, acc, order)
        rows, cols = one.size
        tiles = int(one.tiles.max()) + 1
        assert tiles == (4 if (sizes, ab) == ((8, 8, 4), "f16") else 1)
        place = (one.tiles[:, None] * rows + one.rows) * cols + one.cols
        assert np.array_equal(np.sort(place, axis=None), np.arange(tiles * rows * cols))


def test_quad_pairs_are_those_of_ptx() -> None:
    for lane in range(LANES):
        low = lane % 4 + (0 if lane < 16 else 4)
        for i in range(4):
            high = i % 4 + (0 if lane < 16 else 4)
            expected = {
                ("a", "row"): (low, i),
                ("a", "col"): (high, lane % 4),
                ("b", "row"): (lane % 4, high),
                ("b", "col"): (i, low),
            }
            for (operand, order), place in expected.items():
                one = mma_sync_map((8, 8, 4), operand, "f16", "f32", order)
                assert (one.rows[lane, i], one.cols[lane, i]) == place
        for i in range(8):
            x = (lane & 1) + (i & 2) + (0 if lane < 16 else 4)
            for acc, place in (("f16", (low, i)), ("f32", (x, (i & 4) + (lane & 2) + (i & 1)))):
                one = mma_sync_map((8, 8, 4), "c", "f16", acc, "row")
                assert (one.rows[lane, i], one.cols[lane, i]) == place
    assert one.tiles.tolist() == [lane >> 2 & 3 for lane in range(LANES)]


@pytest.mark.parametrize("order", ["row", "col"])
@pytest.mark.parametrize("acc", ["f16", "f32"])
def test_volta_holds_factors_twice(acc: str, order: str) -> None:
    for operand, times in (("a", 2), ("b", 2), ("c", 1)):
        one = volta_wmma_map(operand, "f16", acc, order)
        counts = np.bincount((one.rows * 16 + one.cols).ravel(), minlength=256)
        assert set(counts.tolist()) == {times}


def test_volta_multiplies_what_its_lanes_hold() -> None:
    # Lanes 0-3 and 16-19 of a quad pair give rows of a and columns of b for its quarter of c.
    a, b, c = (volta_wmma_map(operand, "f16", "f32", order) for operand, order in
               (("a", "row"), ("b", "col"), ("c", "")))  # fmt: skip
    for pair in range(4):
        lanes = [lane for lane in range(LANES) if lane >> 2 & 3 == pair]
        assert set(c.rows[lanes].ravel()) == set(a.rows[lanes].ravel())
        assert set(c.cols[lanes].ravel()) == set(b.cols[lanes].ravel())


def test_registers() -> None:
    half, double = (
        map_of((16, 8, 16), "a", ab, acc) for ab, acc in (("f16", "f32"), ("f64", "f64"))
    )
    assert [half.register(i) for i in range(3)] == [(0, 0), (0, 16), (1, 0)]
    assert (double.register(3), double.register_bits) == ((3, 0), 64)
    assert [bits_of(name) for name in ("b1", "u4", "e4m3", "bf16", "tf32")] == [1, 4, 8, 16, 32]


def test_sources_name_the_section() -> None:
    found = {map_of(sizes, "a", ab, acc).source for sizes, ab, acc in SYNC}
    assert len(found) == 13
    assert "[PTX sec. 9.7.14.5.9, mma.m16n8k16 with integer type]" in found
    fp8 = map_of((16, 8, 16), "a", "e4m3", "f32").source
    assert "9.7.14.5.9" in fp8
