"""The best algorithms for a tile: those of a verdict, and kept for units that share a tile."""

from __future__ import annotations

from tcusim.judge.explore.metrics import best_for_tile
from tcusim.machine import fused_unit
from tcusim.machine.shapes import MmaShape

FEW = ("reduction_kn", "reduction_tn", "scan_kn")


def test_the_fewest_products_are_best() -> None:
    unit = fused_unit(4, 20, tiles=(MmaShape(4, 8, 4),))
    sums, scans = best_for_tile(unit, "f16", "f32", FEW)
    assert sums is not None
    assert scans is not None
    # Data in the larger operand: 8 columns of b, so 32 elements a product, and a quarter is useful.
    assert (sums.algorithm, sums.side, sums.mma, sums.waste) == ("reduction_kn", "b", 1 / 32, 0.75)
    assert scans.algorithm == "scan_kn"
    assert scans.mma >= sums.mma


def test_what_no_algorithm_does_is_none() -> None:
    unit = fused_unit(4, 20, tiles=(MmaShape(4, 8, 4),))
    sums, scans = best_for_tile(unit, "f16", "f32", ("scan_kn",))
    assert sums is None
    assert scans is not None
