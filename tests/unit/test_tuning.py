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


def test_chunks_of_a_warp_fit_what_it_holds() -> None:
    ragged = RaggedTuning()
    for line in (1, 16, 33, 1024, 5000):
        rows = ragged.rows_of(line)
        assert 1 <= rows <= ragged.rows
        assert rows == 1 or rows * line <= ragged.held_values


def test_warps_go_on_only_where_there_are_enough_of_them() -> None:
    ragged = RaggedTuning(simt_items=4, filling_warps=100)
    counts = {chunks: ragged.simt_items_of(chunks, 8) for chunks in (1, 1599, 1600, 3199, 3200)}
    assert counts == {1: 1, 1599: 1, 1600: 2, 3199: 2, 3200: 4}


def test_blocks_of_products_come_largest_first() -> None:
    results = []
    for block in DEFAULT.product.blocks:
        assert block.warps % block.warps_down == 0
        results.append(block.rows * block.cols)
        assert results[-1] == block.warps * block.height * block.width
    assert results == sorted(results, reverse=True)
