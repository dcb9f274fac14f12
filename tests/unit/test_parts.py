"""Sums of whole numbers and of fractions, added with one rounding."""

from __future__ import annotations

import numpy as np
import pytest

import tcusim
from tcusim.algorithms.parts import join_parts
from tcusim.errors import Unsupported
from tcusim.machine.shapes import shape_of

TILE = shape_of("8x8x4")


@pytest.mark.parametrize(
    ("result", "whole", "fraction", "expected"),
    [
        # Rounded to float64 first, the first three would be ties.
        ("f32", 2.0**53 + 2.0**29, 2.0**-24, 2.0**53 + 2.0**30),
        ("f32", 2.0**53 + 2.0**29, -(2.0**-24), 2.0**53),
        ("bf16", -(2.0**53) - 2.0**45, -(2.0**-24), -(2.0**53) - 2.0**46),
        ("f32", 2.0**53 + 2.0**29, 0.0, 2.0**53),
        ("f16", 2048.0, 1.0 + 2.0**-24, 2050.0),
        ("f16", 2048.0, 1.0, 2048.0),
        ("f16", 65504.0, 16.0, np.inf),
        ("f64", 2.0**53, 1.0 + 2.0**-24, 2.0**53 + 2),
        ("f64", 2.0**53, 1.0, 2.0**53),
        ("f32", np.inf, 0.5, np.inf),
        ("f32", np.nan, 0.0, np.nan),
        ("f32", 1.0, -1.0, 0.0),
    ],
)
def test_a_sum_of_parts_is_rounded_once(
    result: str, whole: float, fraction: float, expected: float
) -> None:
    given = {"whole": np.full(700, whole), "fraction": np.full(700, fraction)}
    found = tcusim.run(join_parts(TILE, result), given)["out"].astype(np.float64)
    np.testing.assert_array_equal(found, np.full(700, expected))


@pytest.mark.parametrize(
    ("name", "tile", "ab", "source"),
    [
        ("reduction_panel", "16x16x16", "f16", None),
        ("scan_panel", "16x16x16", "f16", "f16"),
        ("scan_panel", "8x8x4", "f64", "f16"),
        ("reduction_tn", "8x8x4", "f64", "f16"),
    ],
)
def test_programs_take_a_part_of_each_element(
    name: str, tile: str, ab: str, source: str | None
) -> None:
    x = np.linspace(-900, 900, 500).astype(np.float16)
    x[:4] = 0.5, 1.5, -2.5, 2.0**-24
    wide = x.astype(np.float64)
    found = {
        part: tcusim.run(
            tcusim.build(
                name, tile=tile, ab=ab, acc="f64", source=source, part=part, segment_size=500,
                masked=True, combine="add",
            ),
            {"in": x},
        )["out"]
        for part in ("whole", "fraction", None)
    }  # fmt: skip
    sums = np.cumsum if name.startswith("scan") else np.sum
    np.testing.assert_array_equal(found["whole"], np.atleast_1d(sums(np.rint(wide))))
    np.testing.assert_array_equal(found["fraction"], np.atleast_1d(sums(wide - np.rint(wide))))
    np.testing.assert_array_equal(found[None], found["whole"] + found["fraction"])


def test_parts_of_other_types_are_refused() -> None:
    with pytest.raises(
        Unsupported, match="'reduction_panel' has f16 elements, f16 operands and f32"
    ):
        tcusim.build("reduction_panel", part="whole")
    # Tiles that are loaded where they lie would be taken whole.
    with pytest.raises(Unsupported, match="part 'fraction' is of f16 elements that become f64"):
        tcusim.build("scan_panel", tile="8x8x4", ab="f64", acc="f64", source="f64", part="fraction")
    with pytest.raises(Unsupported, match="part 'whole' is of f16 elements"):
        tcusim.build("reduction_tn", ab="f16", acc="f64", part="whole")
    with pytest.raises(Unsupported, match="float64 adds rows of f16 or f64 elements without"):
        tcusim.build("scan_panel", ab="f16", acc="f64", source="f32")
    with pytest.raises(tcusim.errors.InputError, match="part must be one of whole, fraction"):
        tcusim.build("reduction_panel", part="half")
