"""`tcusim.explore`: equal rows however it is run, and reasons for missing ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tcusim
from faulty import plant
from tcusim.algorithms.builder import Builder
from tcusim.errors import InputError, TcusimError
from tcusim.judge.explore.grid import explore
from tcusim.judge.explore.results import Exploration

# Few algorithms, built in little time.
FEW: Any = {"algorithms": ["reduction_kn", "scan_kn"], "length": 64}
GRID = {"tile": "16x16x16,8x8x4", "fraction_bits": "12:20:2", "fused_length": "4,8"}


@pytest.fixture(scope="module")
def found() -> Exploration:
    return explore(GRID, jobs=1, **FEW)


def test_there_is_a_row_for_each_unit_in_the_order_of_the_grid(found: Exploration) -> None:
    assert [row.point for row in found.rows] == list(tcusim.Grid.of(**GRID).points())
    assert len(found.rows) == len(found.evaluated) == 15


def test_more_fraction_bits_have_less_error(found: Exploration) -> None:
    errors = [row.error or 0.0 for row in found.rows if row.point.fused_length == 8][:5]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 50 * errors[-1] > 0


def test_several_processes_and_a_file_give_the_same(found: Exploration, tmp_path: Path) -> None:
    path = tmp_path / "sweep.jsonl"
    seen: list[tuple[int, int]] = []
    two = explore(GRID, jobs=2, file=path, progress=lambda *now: seen.append(now), **FEW)
    assert two == found
    assert seen[0] == (0, 15)
    assert seen[-1] == (15, 15)
    # Cut short: only the lost row is evaluated again.
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:9]) + lines[9][:40])
    seen.clear()
    again = explore(GRID, jobs=1, file=path, progress=lambda *now: seen.append(now), **FEW)
    assert again == found
    assert seen[0] == (8, 15)
    assert sorted(path.read_bytes().splitlines()) == sorted(b"".join(lines).splitlines())


def test_an_interruption_loses_nothing(found: Exploration, tmp_path: Path) -> None:
    path = tmp_path / "sweep.jsonl"

    def stop(done: int, whole: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        explore(GRID, jobs=1, file=path, progress=stop, **FEW)
    assert len(path.read_bytes().splitlines()) == 1 + 8
    assert explore(GRID, jobs=1, file=path, **FEW) == found


def test_a_file_of_other_settings_is_refused(tmp_path: Path) -> None:
    one = {"tile": "4x4x4", "fraction_bits": 12, "fused_length": 4}
    explore(one, jobs=1, file=tmp_path / "a", **FEW)
    with pytest.raises(InputError, match="exploration: its length is 64, and 65 is asked for"):
        explore(one, jobs=1, file=tmp_path / "a", **{**FEW, "length": 65})
    with pytest.raises(InputError, match=r"its fraction_bits is \[12\], and \[13\] is asked"):
        explore({**one, "fraction_bits": 13}, jobs=1, file=tmp_path / "a", **FEW)


def test_what_cannot_be_is_a_row_with_its_reason() -> None:
    found = explore(
        {"fraction_bits": "20,60", "ab": "f16,s8", "units": ["mi100"], "fused_length": 8},
        jobs=1,
        **FEW,
    )
    reasons = [row.reason for row in found.rows]
    assert reasons[0] == ""
    assert "needs sums beyond 2**53" in reasons[1]
    assert "s8 accumulates in s32 here" in reasons[2]
    assert "its two published models contradict" in reasons[4]
    text = str(found)
    assert "not possible, such as mi100" in text
    assert text.endswith("1 of 11 units evaluated; error of sums of 64 terms, same_sign")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"length": 0}, r"length must be an integer within 1\.\.16777216, got 0"),
        ({"family": "none"}, "unknown family .none."),
        ({"jobs": 0}, r"jobs must be an integer within 1\.\.4096, got 0"),
        ({"jobs": 2**99}, r"jobs must be an integer within 1\.\.4096, got 6338"),
        ({"algorithms": ["matmul_block"]}, "unknown algorithm|must sum or scan segments"),
        ({"algorithms": ["scan_of"]}, "unknown algorithm 'scan_of'"),
    ],
)
def test_wrong_settings(given: dict[str, Any], text: str) -> None:
    with pytest.raises(TcusimError, match=text):
        explore(**given)


def test_an_algorithm_of_this_process_alone_is_evaluated_in_it() -> None:
    def only_here(b: Builder, segment_size: int) -> int:
        """Sum nothing."""
        raise tcusim.Unsupported("not with this tile")

    plant(only_here, kind="reduction", name="only_here")
    one, two = (explore(GRID, jobs=jobs, algorithms=["only_here"], length=16) for jobs in (1, 2))
    assert one == two
    assert (one.rows[0].reason, one.rows[0].sums_mma, one.rows[0].scans_mma) == ("", None, None)
