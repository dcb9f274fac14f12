"""Several segments to a row of a tile: their bits are those of a row of their own."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tcusim.algorithms import build
from tcusim.algorithms.rows import fits_fused_steps, slot_of
from tcusim.errors import VerifyError
from tcusim.machine import Arch, Exact, Fused, Rule, register_arch
from tcusim.machine.shapes import MmaShape
from tcusim.simulate.interpreter import run_numpy

ORDERS: tuple[dict[str, bool], ...] = (
    {},
    {"exclusive": True},
    {"reverse": True},
    {"exclusive": True, "reverse": True},
)


def halves(length: int, *, special: bool) -> NDArray[np.float16]:
    """Return numbers of very different size, some of them infinite or NaN."""
    rng = np.random.default_rng(length)
    x = (rng.standard_normal(length) * 2.0 ** rng.integers(-14, 10, length)).astype(np.float16)
    if special:
        at = rng.integers(0, length, length // 20)
        x[at] = rng.choice([np.inf, -np.inf, np.nan], at.size)
    return x


def assert_same_bits(name: str, arch: str, x: NDArray[np.float16], **options: Any) -> None:
    """Compare with the results of a row for each segment."""
    result = []
    for kind, masked in (("short", options.pop("masked")), ("panel", True)):
        program = build(f"{name}_{kind}", masked=masked, **options)
        with np.errstate(all="ignore"):
            result.append(run_numpy(program, {"in": x}, arch=arch)["out"])
    assert result[0].tobytes() == result[1].tobytes()


@pytest.mark.parametrize("arch", ["volta", "ampere", "hopper"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("special", [False, True])
def test_bits_are_those_of_a_row_of_its_own(arch: str, size: int, special: bool) -> None:
    x = halves(1237, special=special)
    acc = "f16" if size % 2 else "f32"
    options: dict[str, Any] = {"segment_size": size, "acc": acc, "result": acc, "masked": True}
    assert_same_bits("reduction", arch, x, **options)
    assert_same_bits("scan", arch, x, **options, **ORDERS[size % 4])


@pytest.mark.parametrize("tile", [(32, 8, 16), (8, 32, 16), (16, 8, 16), (5, 7, 3), (12, 6, 12)])
@pytest.mark.parametrize("side", ["a", "b"])
def test_on_any_tile(tile: tuple[int, int, int], side: str) -> None:
    shape = MmaShape(*tile)
    options: dict[str, Any] = {"tile": shape, "side": side, "segment_size": 2, "masked": True}
    x = halves(500, special=True)
    assert_same_bits("reduction", "hopper", x, **options)
    for order in ORDERS:
        assert_same_bits("scan", "hopper", x, **options, **order)


@pytest.mark.parametrize("order", ORDERS)
def test_whole_blocks_need_no_bounds(order: dict[str, bool]) -> None:
    for size in (2, 3):
        options: dict[str, Any] = {"segment_size": size, "groups": 2, "items_per_warp": 2}
        per_block = build("scan_short", **options).blocks.per
        x = halves(2 * per_block, special=True)
        del options["items_per_warp"]
        assert_same_bits("scan", "volta", x, masked=False, **options, **order)


def test_a_slot_is_a_power_of_two_that_divides_the_row() -> None:
    assert [slot_of("reduction", 16, 16, size) for size in (1, 2, 3, 8, 9, 16)] == [
        1,
        2,
        4,
        8,
        16,
        16,
    ]
    assert [slot_of("reduction", 16, 12, size) for size in (2, 3, 5)] == [2, 4, 12]
    # A tile with 4 columns has room for 4 sums of a row.
    assert slot_of("reduction", 4, 16, 1) == 4
    # U is cut between slots, and of one element there is nothing to scan.
    assert [slot_of("scan", n, 16, 3) for n in (16, 8, 6)] == [4, 4, 16]
    assert slot_of("scan", 16, 16, 1) == 2


def test_steps_that_cut_slots_have_other_bits() -> None:
    """The rule that keeps such units out is needed: of three products a step the bits differ."""
    how = Fused(3, 8, output="rz")
    assert not fits_fused_steps(how, 2)
    assert fits_fused_steps(how, 3)
    assert fits_fused_steps(how, 6)
    assert fits_fused_steps(Exact(), 2)
    # Steps of tensor cores have powers of two as well.
    for length, slot in itertools.product((4, 8, 16), (1, 2, 4, 8, 16, 32)):
        assert fits_fused_steps(Fused(length, 24, output="rz"), slot)
    register_arch(Arch("thirds", "", (), (), (Rule("f16", "f32", how, "invented", "none"),), ""))
    with pytest.raises(AssertionError):
        assert_same_bits(
            "reduction", "thirds", halves(4000, special=False), segment_size=2, masked=True
        )


@pytest.mark.parametrize("name", ["reduction_short", "scan_short"])
def test_rows_of_float32_are_not_added_here(name: str) -> None:
    with pytest.raises(VerifyError, match="shape 16x16x16 does not take f32 to f32"):
        build(name, ab="f32")
