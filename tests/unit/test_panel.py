"""Panels: the elements of a warp, their places, and rows with an infinity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcusim
from tcusim.algorithms import build
from tcusim.algorithms.panel import WIDEST_HELD
from tcusim.machine.formats import format_of
from tcusim.program.grammar import BufferRole, Load, Mma, When, walk
from tcusim.simulate.interpreter import run_numpy


def test_one_test_is_enough_for_all_tiles_of_a_warp() -> None:
    """Where all of it is in bounds, the tiles are loaded where they lie, with no test between."""
    program = build("reduction_panel", segment_size=64, masked=True)
    (branch,) = [step for _, step in walk(program.steps) if isinstance(step, When)][:1]
    loads = [step for _, step in walk(branch.body) if isinstance(step, Load)]
    assert {step.src.buffer.name for step in loads} == {"in"}
    assert not any(step.src.bounds for step in loads)
    assert not any(isinstance(step, When) for _, step in walk(branch.body))


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("size", [16, 33, 64, 1000, 1500])
def test_a_warp_keeps_no_more_than_it_needs(size: int, *, masked: bool, added: bool) -> None:
    """Tiles of whole rows are loaded where they lie, and float32 is added up there."""
    types: dict[str, Any] = {"ab": "f32", "acc": "f32", "source": "f32"} if added else {}

    def scratch(name: str, **options: Any) -> set[str]:
        program = build(name, segment_size=size, masked=masked, **types, **options)
        return {buffer.name for buffer in program.buffers if buffer.role is BufferRole.SCRATCH}

    for exclusive in (False, True):
        scan = scratch("scan_panel", exclusive=exclusive)
        # Totals that are no elements of the scan; segments of one row need none.
        assert ("ends" in scan) == (size > 32 if added else exclusive)
    filled = size % (16 if size <= 16 else 32) > 0
    sums = scratch("reduction_panel")
    for names in (scan, sums):
        assert ("t_A" in names) == (masked and not filled and not added)
    assert ("kept" in scan) == (filled and not added)
    # Two segments of 1,000 elements have rows with zeros at the end; a single one has not.
    assert ("kept" in sums) == (size == 1000 if added else filled)


@pytest.mark.parametrize(
    ("source", "ab", "tile"), [("f16", "f16", "16x16x16"), ("f32", "tf32", "16x16x8")]
)
def test_rows_of_wide_elements_are_scanned_before_the_wait(source: str, ab: str, tile: str) -> None:
    program = build("scan_single_pass", source=source, ab=ab, tile=tile, masked=False)
    whens = (step for _, step in walk(program.steps) if isinstance(step, When))
    (choice,) = [when for when in whens if when.not_finite is not None]
    wide = format_of(source).itemsize > WIDEST_HELD
    assert any(isinstance(step, Mma) for _, step in walk(choice.otherwise)) == (not wide)


def test_rows_that_wmma_cannot_load_are_copied_first() -> None:
    """An odd segment begins at no multiple of 32 bytes."""
    for size, name in ((64, "in"), (33, "kept")):
        program = build("reduction_panel", segment_size=size, masked=True)
        loads = [s for _, s in walk(program.steps) if isinstance(s, Load) and s.dst.name == "A"]
        assert any(step.src.buffer.name == name for step in loads)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize(("ab", "size"), [("f16", 128), ("f32", 33)])
def test_an_infinity_changes_only_what_follows_it(
    ab: str, size: int, exclusive: bool, bad: float
) -> None:
    at = size + 7
    x = np.random.default_rng(0).standard_normal(4 * size).astype(format_of(ab).dtype)
    types: dict[str, Any] = {"ab": ab, "source": ab}
    program = build("scan_panel", segment_size=size, exclusive=exclusive, masked=True, **types)
    clean = run_numpy(program, {"in": x})["out"]
    x[at] = bad
    result = run_numpy(program, {"in": x})["out"]
    spoilt = np.zeros(x.size, bool)
    spoilt[at + exclusive : 2 * size] = True
    np.testing.assert_array_equal(result[~spoilt], clean[~spoilt])
    np.testing.assert_array_equal(result[spoilt], np.full(spoilt.sum(), bad))


@pytest.mark.parametrize(("ab", "mended"), [("f16", True), ("s8", False)])
def test_rows_of_integers_are_never_scanned_again(ab: str, mended: bool) -> None:
    types: dict[str, Any] = {"ab": ab, "acc": "s32" if ab == "s8" else "f32", "combine": "add"}
    program = build("scan_panel", segment_size=64, **types)
    tests = [step for _, step in walk(program.steps) if isinstance(step, When) and step.not_finite]
    assert bool(tests) == mended


@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize("tile", [(16, 16, 8), (16, 16, 4), (16, 32, 4)])
def test_products_wider_than_what_is_left_of_a_row(tile: tuple[int, int, int], side: str) -> None:
    """A product's columns beyond k overlap those of the next tile; its warp waits for them."""
    x = np.random.default_rng(0).integers(-9, 10, 1200).astype(np.float16)
    expected = np.cumsum(x.astype(np.float32).reshape(-1, 300), axis=1).ravel()
    program = build(
        "scan_panel",
        tile=tcusim.MmaShape(*tile),
        segment_size=300,
        masked=True,
        side=side,
        result="f32",
    )
    assert np.array_equal(run_numpy(program, {"in": x}, arch="exact")["out"], expected)
