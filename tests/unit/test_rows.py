"""Sums and scans of rows of tiles: how segments lie in them, and that the results are right."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tcusim
from numpy_results import of_rows
from segment_oracle import Oracle
from some import Some
from tcusim.algorithms import build
from tcusim.backends import run
from tcusim.errors import InputError, Unsupported
from tcusim.machine.shapes import MmaShape, shape_of
from tcusim.simulate.counts import Counts
from tcusim.simulate.interpreter import interpret

SHAPES = (
    shape_of("16x16x16"),
    shape_of("32x8x16"),
    shape_of("8x32x16"),
    MmaShape(4, 4, 4),
    MmaShape(5, 7, 3),
)
# Segments of less than a row, of whole rows, of more tiles than a warp takes; and uneven ones.
SIZES = (1, 16, 31, 48, 80, 100, 144, 256, 1000, 1024, 1536, 2048, 3000, 5000)
# How many times the fewest groups of rows a warp takes at once; None: as suits the segments.
FACTORS = (None, 1, 3)
ORDERS = tuple(itertools.product((False, True), repeat=2))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("side", "ab")
def test_rows_equal_integers(shape: MmaShape, side: str, some: Some) -> None:
    rng = np.random.default_rng(1)
    turns = list(itertools.product(FACTORS, ORDERS))
    rng.shuffle(turns)
    every = zip(SIZES, itertools.cycle(turns), strict=False)
    start = SHAPES.index(shape) + (side == "b")
    for size, (factor, (exclusive, reverse)) in some(every, 3, start):
        order = {"exclusive": exclusive, "reverse": reverse}
        cases: tuple[tuple[str, dict[str, Any]], ...]
        cases = (("reduction_panel", {}), ("scan_panel", order))
        for name, more in cases:
            if factor and name == "scan_panel":
                more = {**more, "groups": factor * -(-32 // (shape.m if side == "a" else shape.n))}
            elif factor:
                more = {"groups": factor}
            program = build(
                name, tile=shape, side=side, segment_size=size, masked=True, warps=2, **more
            )
            x = rng.integers(-8, 9, int(rng.integers(1, 7000))).astype(np.float16)
            result = run(program, {"in": x})["out"]
            wanted = of_rows(name, x, size, exclusive=exclusive, reverse=reverse)
            np.testing.assert_array_equal(result, wanted, f"{name} {size}")


@pytest.mark.parametrize("name", ["reduction_panel", "scan_panel"])
def test_each_element_is_read_once_and_written_once(name: str) -> None:
    for size in (64, 1000, 1024, 3000):
        counts = Counts()
        x = np.ones(6000, np.float16)
        for event in interpret(build(name, segment_size=size, masked=True), {"in": x}):
            counts(event)
        written = -(-x.size // size) if name == "reduction_panel" else x.size
        assert (counts.bytes_read, counts.bytes_written) == (2 * x.size, 4 * written), size


@pytest.mark.parametrize("arch", ["volta", "ampere", "hopper"])
def test_rows_are_as_precise_as_float32(arch: str) -> None:
    x = np.random.default_rng(2).standard_normal(2**15).astype(np.float16)
    for name, size in itertools.product(("reduction_panel", "scan_panel"), (64, 1024, 2**15)):
        result = run(build(name, segment_size=size), {"in": x}, arch=arch)["out"]
        scale = np.abs(x).astype(np.float64).reshape(-1, size).sum(1).max()
        assert np.abs(result - of_rows(name, x, size)).max() < 2e-6 * scale, (name, size)


@pytest.mark.parametrize(
    "name", ["reduction_panel", "scan_panel", "scan_short", "reduction_ragged"]
)
def test_float32_is_not_split_in_rows(name: str) -> None:
    text = "f32 elements are several bf16 operands each, .*; reduction_panel .* with ab 'f32'"
    with pytest.raises(Unsupported, match=text):
        build(name, ab="bf16", source="f32", segment_size=16)


@pytest.mark.parametrize("shape", [shape_of("16x16x16"), MmaShape(5, 7, 3)], ids=str)
def test_float32_follows_the_grid_in_rows_of_any_length(shape: MmaShape) -> None:
    """Segments may have rows of their own length, with nothing behind: no sum shows it."""
    rng, oracle = np.random.default_rng(4), Oracle(ab="f32", k=shape.k)
    types: dict[str, Any] = {"ab": "f32", "source": "f32", "masked": True, "tile": shape}
    # One row, and more: without a rest, to a multiple of 16 bytes, to none; and drawn ones.
    for size in (2 * shape.k, 6 * shape.k, 100, 999, *rng.integers(2, 1100, 3).tolist()):
        length = 2 * size + size // 2
        x = (rng.standard_normal(length) * np.exp2(rng.integers(-8, 9, length))).astype(np.float32)
        segments = np.split(x, [size, 2 * size])
        sums = run(build("reduction_panel", segment_size=size, **types), {"in": x})["out"]
        assert sums.tolist() == [oracle.sum(one) for one in segments], size
        scan = run(build("scan_panel", segment_size=size, **types), {"in": x})["out"]
        assert scan.tolist() == np.concatenate([oracle.scan(one) for one in segments]).tolist()


def test_a_size_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="groups must be an integer of at least 1, got 0"):
        build("scan_panel", groups=0)


def test_a_scan_takes_a_segment_or_a_panel_at_once() -> None:
    assert build("scan_panel", segment_size=256, groups=1)
    for size, rows in ((512 + 1, 17), (9000, 32)):
        with pytest.raises(Unsupported, match=f"the {rows} rows .* got groups=1, use 2 or more"):
            build("scan_panel", segment_size=size, groups=1)


def test_the_listing_tells_what_a_warp_does() -> None:
    text = tcusim.listing(build("scan_panel", segment_size=1024))
    for line in ("R ← A·U + Z", "S ← A·J + Z", "R ← A·U + S", "+ before[row]"):
        assert line in text
    # A row of one tile has none that begins with another's sum.
    assert "J" not in tcusim.listing(build("scan_panel", segment_size=16))
