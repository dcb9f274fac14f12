"""The numbers by which plans are chosen: each row is one that the planner can follow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tcusim.arrays.tuning import DEFAULT, TUNINGS, RaggedTuning, SegmentTuning, Tuning
from tcusim.machine import arch_of

ROWS = [("default", DEFAULT), *TUNINGS.items()]


def test_rows_are_of_known_architectures() -> None:
    assert [arch_of(name).name for name in TUNINGS] == list(TUNINGS)


@pytest.mark.parametrize("tuning", [row for _, row in ROWS], ids=[name for name, _ in ROWS])
@pytest.mark.parametrize("kind", ["reduction", "scan"])
def test_every_number_of_rows_has_its_warps(tuning: Tuning, kind: str) -> None:
    sizes = tuning.of(kind)
    rows = [row for row, _, _ in sizes.panel_turns]
    # From one row on, so that there is an entry for every segment.
    assert rows[0] == 1
    assert rows == sorted(set(rows))
    assert all(warps > 0 and turns > 0 for _, warps, turns in sizes.panel_turns)
    assert sizes.columns & (sizes.columns - 1) == 0
    assert sizes.panel_elements > 0


def test_sums_and_scans_have_sizes_of_their_own() -> None:
    scan = replace(DEFAULT.scan, columns=8)
    tuning = replace(DEFAULT, scan=scan)
    assert tuning.of("scan") is scan
    assert tuning.of("reduction") is DEFAULT.reduction
    assert isinstance(DEFAULT.reduction, SegmentTuning)


@pytest.mark.parametrize("arrays", [1, 2])
def test_chunks_of_a_warp_fit_what_it_holds(arrays: int) -> None:
    ragged = RaggedTuning()
    for line in (1, 16, 33, 1024, 5000):
        rows = ragged.rows_of(line, arrays)
        assert 1 <= rows <= ragged.rows
        assert rows == 1 or rows * line * arrays <= ragged.held_values


def test_blocks_of_products_come_largest_first() -> None:
    results = []
    for block in DEFAULT.product.blocks:
        assert block.warps % block.warps_down == 0
        results.append(block.rows * block.cols)
        assert results[-1] == block.warps * block.height * block.width
    assert results == sorted(results, reverse=True)
