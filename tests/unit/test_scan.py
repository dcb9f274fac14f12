"""Scans: their bits are those of the products and additions that their texts name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from numbers_of_types import uneven_halves
from tcusim.algorithms import build
from tcusim.machine import mma
from tcusim.simulate.interpreter import run_numpy

M = N = K = 16


def scan(name: str, x: Any, size: int, carry: Any = None, **options: Any) -> NDArray[np.float32]:
    more: dict[str, Any] = {} if carry is None else {"carry": True}
    program = build(name, segment_size=size, tile="16x16x16", side="a", **more, **options)
    given = {"in": x} | ({} if carry is None else {"carry": carry})
    return np.asarray(run_numpy(program, given)["out"])


@pytest.mark.parametrize("combine", ["mma", "add"])
@pytest.mark.parametrize("given", [False, True])
def test_a_segment_to_a_row_goes_on_from_its_last_column(combine: str, given: bool) -> None:
    """R = A.U + S, where S is the column before; by a product, or by a rounded addition."""
    x, count = uneven_halves(M * 4 * K), 4
    u = np.triu(np.ones((K, N), np.float16))
    carry = uneven_halves(M).astype(np.float32) if given else np.zeros(M, np.float32)
    rows = np.empty((M, 4 * K), np.float32)
    s = np.repeat(carry[:, None], N, axis=1)
    for i in range(count):
        tile = x.reshape(M, count, K)[:, i]
        if combine == "mma":
            r = np.asarray(mma(tile, u, s, arch="hopper"))
        else:
            r = np.asarray(mma(tile, u, np.zeros_like(s), arch="hopper")) + s
        rows[:, i * K : (i + 1) * K] = r
        s = np.repeat(r[:, -1:], N, axis=1)
    result = scan("scan_kn", x, count * K, carry if given else None, combine=combine)
    np.testing.assert_array_equal(result, rows.ravel())


@pytest.mark.parametrize("given", [False, True])
def test_additions_alone_double_their_distance(given: bool) -> None:
    """What precedes the segment is added to each sum, last."""
    x = uneven_halves(50).astype(np.float32)
    expected, distance = x.copy(), 1
    while distance < x.size:
        expected[distance:] = expected[distance:] + expected[:-distance]
        distance *= 2
    carry = np.array([1234.567], np.float32) if given else None
    result = scan("scan_simt", x, 50, carry, source="f32")
    np.testing.assert_array_equal(result, expected if carry is None else carry + expected)


@pytest.mark.parametrize("name", ["scan_kn", "scan_tn", "scan_tn_block", "scan_panel"])
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
