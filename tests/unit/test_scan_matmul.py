"""MatMulScan: its bits are those of the sweeps that its text names, for any shape."""

from __future__ import annotations

from math import floor, log

import numpy as np
import pytest
from numpy.typing import NDArray

import tcusim
from numbers_of_types import uneven_halves
from tcusim.algorithms import build
from tcusim.algorithms.scan_matmul import down_sweep, up_sweep
from tcusim.errors import Unsupported
from tcusim.machine import mma
from tcusim.machine.shapes import MmaShape
from tcusim.simulate.counts import counts_of_text
from tcusim.simulate.interpreter import run_numpy

Floats = NDArray[np.float32]


def groups_of(x: Floats, start: int, step: int, s: int) -> tuple[Floats, int]:
    """Return every step-th element in rows of s, zeros at the end, and how many there are."""
    taken = x[start::step]
    rows = np.zeros((-(-taken.size // s), s), np.float32)
    rows.ravel()[: taken.size] = taken
    return rows, taken.size


def printed(x: NDArray[np.float16], s: int = 16) -> Floats:
    """Return MatMulScan of x by its definition: B's diagonal is the accumulator."""
    found = x.astype(np.float32)
    upper = np.triu(np.ones((s, s), np.float16))
    first = np.zeros((s, s), np.float16)
    first[0] = 1
    steps = [s**t for t in range(floor(log(found.size, s)) + 1) if found.size // s**t > 1]
    for step in steps:
        rows, count = groups_of(found, step - 1, step, s)
        scanned = product(rows, upper, np.zeros_like(rows))
        found[step - 1 :: step] = scanned.ravel()[:count]
    for step in [one for one in steps[::-1] if one * (s + 1) <= found.size]:
        rows, count = groups_of(found, step * s - 1, step, s)
        others = rows.copy()
        others[:, 0] = 0
        added = product(rows, first, others)
        added[:, 0] = rows[:, 0]
        found[step * s - 1 :: step] = added.ravel()[:count]
    return found


def product(rows: Floats, right: NDArray[np.float16], c: Floats) -> Floats:
    """Return rows.right + c, 16 rows at a time."""
    s = rows.shape[1]
    tiles = -(-len(rows) // s)
    padded, start = np.zeros((2, tiles * s, s), np.float32)
    padded[: len(rows)], start[: len(rows)] = rows, c
    results = [
        mma(part.astype(np.float16), right, to, arch="hopper")
        for part, to in zip(np.split(padded, tiles), np.split(start, tiles), strict=True)
    ]
    return np.concatenate(results)[: len(rows)].astype(np.float32)


@pytest.mark.parametrize("size", [256, 4 * 256, 17 * 256])
def test_it_is_the_printed_algorithm_bit_for_bit(size: int) -> None:
    x = uneven_halves(size)
    program = build("scan_matmul", segment_size=size, side="a")
    np.testing.assert_array_equal(run_numpy(program, {"in": x}, arch="hopper")["out"], printed(x))


def test_bits_do_not_depend_on_the_warps() -> None:
    x = uneven_halves(4 * 256)
    results = [
        run_numpy(build("scan_matmul", segment_size=x.size, warps=warps), {"in": x})["out"]
        for warps in (1, 2, 4)
    ]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_the_depth_is_what_the_paper_says() -> None:
    """At most 2*floor(log_s(n)) levels after the data, and about 2*n/s**2 products."""
    for s in (2, 4, 16):
        for size in (s * s, 4 * s * s, s**3 + s * s):
            levels = len(up_sweep(size, s)) - 1 + len(down_sweep(size, s))
            assert levels <= 2 * floor(log(size, s) + 1e-9)
    n = 16**4
    steps = counts_of_text(build("scan_matmul", segment_size=n), {"length": n}).mma
    assert 2 * n / 256 <= steps < 2.2 * n / 256


@pytest.mark.parametrize("sizes", [(4, 4, 1), (1, 16, 1), (2, 3, 2), (5, 7, 3)])
@pytest.mark.parametrize("combine", ["mma", "add"])
@pytest.mark.parametrize("reverse", [False, True])
def test_any_shape_has_such_a_tree(
    sizes: tuple[int, int, int], combine: str, reverse: bool
) -> None:
    """Where k = 1 its nodes have two children."""
    x = np.random.default_rng(1).integers(-3, 4, 60).astype(np.float16)
    program = build(
        "scan_matmul", tile=MmaShape(*sizes), combine=combine, segment_size=37, masked=True,
        reverse=reverse, warps=3,
    )  # fmt: skip
    parts = (x[:37].astype(np.float64), x[37:].astype(np.float64))
    sums = [one[::-1].cumsum()[::-1] if reverse else one.cumsum() for one in parts]
    np.testing.assert_array_equal(run_numpy(program, {"in": x})["out"], np.concatenate(sums))


def test_a_whole_array_is_summed_by_name() -> None:
    x = np.random.default_rng(2).integers(-3, 4, 5003).astype(np.float16)
    sums = tcusim.cumsum(x, dtype=np.float32, options={"algorithm": "scan_matmul"})
    np.testing.assert_array_equal(sums, x.astype(np.float64).cumsum())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ab": "s8", "acc": "s32"}, "partial sums do not fit"),
        ({"ab": "bf16", "source": "f32"}, "use combine 'add'"),
    ],
)
def test_what_products_cannot_sum_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        build("scan_matmul", **given)  # type: ignore[arg-type]
