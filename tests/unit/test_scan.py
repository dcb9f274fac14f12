"""Scans: their bits are those of the products and additions that their texts name."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from numbers_of_types import uneven_halves
from tcusim.algorithms import Level, algorithms, build
from tcusim.machine import mma
from tcusim.machine.shapes import MmaShape
from tcusim.simulate.interpreter import run_numpy

Floats = NDArray[np.float32]

M = K = 16
# k is more than n, as much, and less; m is more than k. Of two shapes no side divides another.
SHAPES = (MmaShape(17, 9, 16), MmaShape(16, 16, 16), MmaShape(8, 32, 16), MmaShape(5, 7, 3))


def orders(shape: int, way: int) -> list[tuple[dict[str, bool], bool]]:
    """Return two orders, each with or without a carry; other shapes and ways have the others."""
    reverse, given = (shape + way) % 2 > 0, (shape // 2 + way) % 2 > 0
    return [
        ({"exclusive": exclusive, "reverse": reverse}, given != exclusive)
        for exclusive in (False, True)
    ]


def scan(
    name: str, x: Any, size: int, carry: Any = None, *, tile: Any = "16x16x16", **options: Any
) -> Floats:
    more: dict[str, Any] = {} if carry is None else {"carry": True}
    program = build(name, segment_size=size, tile=tile, side="a", **more, **options)
    given = {"in": x} | ({} if carry is None else {"carry": carry})
    return np.asarray(run_numpy(program, given)["out"])


class Tiles:
    """Products with U, L and ones of one tile after the other, by any combination."""

    def __init__(self, m: int, k: int, combine: str, *, exclusive: bool, reverse: bool) -> None:
        self.k, self.adds, self.exclusive = k, combine == "add", exclusive
        self.turns = slice(None, None, -1 if reverse else 1)
        self.last = 0 if reverse else -1
        turned = self.turns, self.turns
        self.u = np.triu(np.ones((k, k), np.float16), exclusive)[turned]
        self.low = np.tril(np.ones((m, m), np.float16), -1)[turned]
        self.ones = np.ones((k, 1), np.float16)

    def rows(self, tile: Any, s: Any) -> Any:
        """Return A.U + S and the carry for the next tile of the same rows."""
        r = product(tile, self.u, 0) + s if self.adds else product(tile, self.u, s)
        if not self.exclusive:
            return r, r[:, [self.last]]
        return r, product(tile, self.ones, 0) + s if self.adds else product(tile, self.ones, s)

    def whole(self, tile: Any, s: Any, *, paper: bool) -> Any:
        """Return L.(A.1) + A.U + S, or (L.A).1 + A.U + S, and the carry for the next tile."""
        if self.adds:
            totals = product(tile, self.ones, 0)
            sums = doubled(totals[self.turns, 0])[self.turns]
            c = np.append(0, sums[self.turns][:-1])[self.turns].astype(np.float32) + s
            return product(tile, self.u, 0) + c[:, None], sums[self.last] + s
        prefixes = product(tile, self.u, s)
        if paper:
            la = self._of_rows(self.low, tile, 0).astype(np.float16)
            r, total = product(la, self.ones, prefixes), product(tile, self.ones, s)
            before = product(la, self.ones, total)[self.last, 0]
        else:
            x = product(tile, self.ones, 0).astype(np.float16)
            r = self._of_rows(self.low, x, prefixes)
            before = self._of_rows(np.ones((1, len(x)), np.float16), x, s)[0, 0]
        return r, before if self.exclusive else r[self.last, self.last]

    def _of_rows(self, left: Any, right: Any, c: Any) -> Any:
        """Return left.right + C, k rows of the right operand at a time."""
        for first in range(0, len(right), self.k):
            part = np.zeros((self.k, right.shape[1]), np.float16)
            rows = right[first : first + self.k]
            part[: len(rows)] = rows
            own = np.zeros((len(left), self.k), np.float16)
            own[:, : len(rows)] = left[:, first : first + self.k]
            c = product(own, part, c)
        return c


def product(a: Any, b: Any, c: Any) -> Floats:
    """Return A.B + C on the unit; a single column of B stands for as many as C has."""
    size = np.broadcast_shapes((len(a), b.shape[1]), np.shape(c))
    b, c = np.broadcast_to(b, (len(b), size[1])), np.broadcast_to(np.asarray(c, np.float32), size)
    return np.asarray(mma(a, b, c, arch="hopper"))


def doubled(x: Floats) -> Floats:
    """Return the prefix sums of additions at doubling distances."""
    sums, distance = x.copy(), 1
    while distance < x.size:
        sums[distance:] = sums[distance:] + sums[:-distance]
        distance *= 2
    return sums


@pytest.mark.parametrize("combine", ["mma", "add"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_segment_to_a_row_goes_on_from_its_last_column(shape: MmaShape, combine: str) -> None:
    """R = A.U + S, where S is the column before; by a product, or by a rounded addition."""
    m, k, count = shape.m, shape.k, 3
    x = uneven_halves(m * count * k)
    tiles = x.reshape(m, count, k)
    for order, given in orders(SHAPES.index(shape), combine == "add"):
        own = Tiles(m, k, combine, **order)
        carry = uneven_halves(m).astype(np.float32) * given
        rows, s = np.empty(tiles.shape, np.float32), carry[:, None]
        for i in range(count)[own.turns]:
            rows[:, i], s = own.rows(tiles[:, i], s)
        more = {"tile": shape, "combine": combine, **order}
        result = scan("scan_kn", x, count * k, carry if given else None, **more)
        np.testing.assert_array_equal(result, rows.ravel(), str(order))


# The paper's form is that of products, if none is named.
WAYS = (("mma", None), ("mma", "L(A1)"), ("mma", "[U|1]"), ("add", None))


@pytest.mark.parametrize(
    ("shape", "way"),
    [
        (shape, way)
        for shape, way in itertools.product(SHAPES, WAYS)
        if way[1] != "[U|1]" or shape.n > shape.k
    ],
    ids=str,
)
def test_a_segment_of_tiles_goes_on_from_its_last_element(
    shape: MmaShape, way: tuple[str, str | None]
) -> None:
    """With [U|1] in one operand the sums are those of U and of ones, each by itself."""
    combine, form = way
    m, k, count = shape.m, shape.k, 3
    x = uneven_halves(m * count * k)
    tiles = x.reshape(count, m, k)
    for order, given in orders(SHAPES.index(shape), WAYS.index(way)):
        own = Tiles(m, k, combine, **order)
        carry = uneven_halves(1).astype(np.float32) * given
        found, s = np.empty(tiles.shape, np.float32), carry[0]
        for i in range(count)[own.turns]:
            found[i], s = own.whole(tiles[i], s, paper=form is None)
        more = {"tile": shape, "combine": combine, "form": form, **order}
        result = scan("scan_tn", x, x.size, carry if given else None, **more)
        np.testing.assert_array_equal(result, found.ravel(), str(order))


@pytest.mark.parametrize("given", [False, True])
def test_additions_alone_double_their_distance(given: bool) -> None:
    """The segment's prefix is added to each sum, last."""
    x = uneven_halves(50).astype(np.float32)
    arrays = {"in": x, "offsets": np.array([0, x.size])}
    arrays |= {"carry": np.array([1234.567], np.float32)} if given else {}
    options: dict[str, Any] = {"segment_size": x.size, "whole": True, "source": "f32"}
    result = run_numpy(build("scan_ragged_simt", carry=given, **options), arrays)["out"]
    expected = arrays["carry"] + doubled(x) if given else doubled(x)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", ["scan_tn_block", "scan_panel"])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_each_scan_goes_either_way(name: str, exclusive: bool, reverse: bool) -> None:
    size = 2 * M * K
    x = np.random.default_rng(1).integers(-3, 4, M * size).astype(np.float16)
    rows = x.reshape(M, size).astype(np.float32)
    sums = rows[:, ::-1].cumsum(1)[:, ::-1] if reverse else rows.cumsum(1)
    warps = 2 if name == "scan_tn_block" else 1
    order = {"exclusive": exclusive, "reverse": reverse}
    result = scan(name, x, size, warps=warps, **order)
    np.testing.assert_array_equal(result, (sums - rows if exclusive else sums).ravel())


@pytest.mark.parametrize("reverse", [False, True])
def test_exclusive_scans_of_one_element_take_an_array(reverse: bool) -> None:
    """Some read nothing of it."""
    x = np.array([3, 1, 2], np.float16)
    names = [one.name for one in algorithms() if one.kind == "scan" and one.level is not Level.GRID]
    for name in names:
        order: dict[str, Any] = {"exclusive": True, "reverse": reverse}
        program = build(name, segment_size=1, masked=True, **order)
        out = run_numpy(program, {"in": x})["out"]
        assert out.tolist() == [0, 0, 0], name
