"""The numbers that choose plans: the planner can follow each file."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import tcusim.arrays
from tcusim.arrays.tuning import tuning_of
from tcusim.machine import arch_of

FILES = sorted((Path(tcusim.arrays.__file__).parent / "tunings").iterdir())


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_a_file_says_of_what_it_is(file: Path) -> None:
    assert arch_of(file.stem).name == file.stem
    assert {*tomllib.loads(file.read_text())["measured"]} == {"card", "date", "command"}


@pytest.mark.parametrize("name", [file.stem for file in FILES])
def test_tables_begin_with_the_shortest_segments_and_the_largest_blocks(name: str) -> None:
    tuning = tuning_of(name)
    for sizes in (tuning.reduction, tuning.scan):
        turns = [sizes.panel_turns, sizes.staged_turns, sizes.exact_turns]
        for table in (*turns, sizes.added_turns, sizes.added_staged_turns):
            rows = [row for row, _, _ in table]
            assert rows[0] == 1
            assert rows == sorted(set(rows))
        assert sizes.columns & (sizes.columns - 1) == 0
    results = [block.rows * block.cols for block in tuning.product.blocks]
    assert results == sorted(results, reverse=True)


def test_what_nobody_has_measured_has_the_numbers_of_hopper() -> None:
    assert tuning_of(None) == tuning_of("volta") == tuning_of("hopper")
    assert tuning_of("../tunings/hopper") == tuning_of("hopper")
