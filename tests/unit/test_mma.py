"""`tcusim.mma`: integers, masks, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcusim
from tcusim.errors import InputError, UnknownName
from tcusim.machine import mma

# --- integers --------------------------------------------------------------------------------


@pytest.mark.parametrize(("ab", "low", "high"), [("s8", -128, 128), ("u8", 0, 256)])
def test_integers_are_exact_and_wrap(ab: str, low: int, high: int) -> None:
    rng = np.random.default_rng(6)
    a = rng.integers(low, high, (3, 16, 32))
    b = rng.integers(low, high, (32, 8))
    c = rng.choice([-(2**31), 2**31 - 1], (16, 8))
    d = mma(a, b, c, ab=ab, acc="s32")
    exact = a @ b + c
    assert d.dtype == np.int32
    assert np.array_equal(d, (exact + 2**31) % 2**32 - 2**31)
    assert (exact != d).any()


# --- shapes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "c", "message"),
    [
        ((4,), (4, 4), None, r"a must have at least 2 dimensions .* got shape \(4,\)"),
        ((4, 4), (4,), None, r"b must have at least 2 dimensions"),
        ((4, 4), (4, 4), (4,), r"c must have at least 2 dimensions"),
        ((4, 5), (6, 3), None, r"a \(\.\.\., m, k\) has shape \(4, 5\), b .* \(6, 3\), so k is 5 "),
        ((4, 5), (5, 3), (3, 4), r"c must be \(\.\.\., m, n\) = \(\.\.\., 4, 3\) .* \(3, 4\)"),
        ((2, 4, 5), (3, 5, 3), None, r"must broadcast, got \(2,\), \(3,\) and \(\)"),
    ],
)
def test_wrong_shapes(a: Any, b: Any, c: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        mma(np.ones(a), np.ones(b), None if c is None else np.ones(c))


def test_wrong_arguments() -> None:
    ones = np.ones((2, 2), np.float32)
    with pytest.raises(UnknownName, match="unknown architecture 'pascal'"):
        mma(ones, ones, arch="pascal")
    with pytest.raises(UnknownName, match="unknown type 'fp32'"):
        mma(ones, ones, acc="fp32")
    with pytest.raises(
        InputError, match=r"b is a float32 array, .* b\.astype\(np\.float16\) first"
    ):
        mma(ones, ones * np.float32(0.1))
    with pytest.raises(InputError, match="c must hold real numbers, got dtype complex64"):
        mma(ones, ones, ones * 1j)


def test_a_mask_is_not_lost_in_silence() -> None:
    masked = np.ma.MaskedArray(np.ones((2, 2), np.float16), mask=[[True, False], [False, False]])
    with pytest.raises(InputError, match="a is a masked array, and masks are not looked at"):
        mma(masked, np.ones((2, 2), np.float16))
    program = tcusim.build("reduction_k")
    with pytest.raises(InputError, match="in is a masked array"):
        tcusim.run(program, {"in": np.ma.MaskedArray(np.ones(256, np.float16))})


@pytest.mark.parametrize("kind", ["exact", "sequential", "fused"])
@pytest.mark.parametrize("tiles", ["8x8x8", "8x8x4", "4x4x3"])
def test_the_tile_of_a_unit_is_part_of_its_mma(tmp_path: Path, kind: str, tiles: str) -> None:
    """A product of more k than a tile has is one tile after the other, for any rounding."""
    bits = "fraction_bits = 12\nfused_length = 3" if kind == "fused" else ""
    path = tmp_path / f"{kind}-{tiles}.toml"
    path.write_text(f'tiles = "{tiles}"\nkind = "{kind}"\n{bits}\n')
    name, k = tcusim.unit_of(path).name, int(tiles.split("x")[2])
    rng = np.random.default_rng(4)
    a = rng.standard_normal((5, 4 * k)).astype(np.float16) * 2.0 ** rng.integers(-8, 8, (5, 4 * k))
    b = rng.standard_normal((4 * k, 6)).astype(np.float16)
    a = a.astype(np.float16)
    one_by_one = np.zeros((5, 6), np.float32)
    for first in range(0, 4 * k, k):
        part = slice(first, first + k)
        one_by_one = tcusim.mma(a[:, part], b[part], one_by_one, arch=name)
    assert tcusim.mma(a, b, arch=name).tobytes() == one_by_one.tobytes()
    if kind == "exact":
        assert tcusim.mma(a, b, arch="exact").tobytes() != one_by_one.tobytes()


@pytest.mark.parametrize("ab", ["f16", "tf32", "e4m3"])
def test_a_family_that_no_instruction_has_is_named(ab: str) -> None:
    with pytest.raises(tcusim.InputError, match="unknown family 'zz'"):
        tcusim.mma(np.ones((1, 1)), np.ones((1, 1)), ab=ab, family="zz")
