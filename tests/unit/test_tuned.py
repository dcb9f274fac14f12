"""Measured numbers: those that can be set, and their users."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tcusim
from launch_plans import forget_plans
from tcusim.arrays.tuned import TunedRow, read_rows, write_rows
from tcusim.errors import InputError

ROW = TunedRow("hopper", "reduction", "f16", 64, 22, (("panel_warps", 2),))


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """Give a function that has plans use a file."""

    def name(path: Path) -> None:
        monkeypatch.setenv("TCUSIM_TUNING", str(path))
        forget_plans()

    yield name
    forget_plans()


def warps(length: int) -> int:
    plan = tcusim.plan("segmented_sum", length=length, segments=64, options={"arch": "hopper"})
    (launch,) = plan.launches
    return launch.program.warps


def test_plans_use_what_was_measured(use: Callable[[Path], None], tmp_path: Path) -> None:
    """For arrays of such a size; others are as they were."""
    path = tmp_path / "tuning.json"
    path.write_text(write_rows([ROW]))
    usual = {length: warps(length) for length in (2**22, 2**24)}
    use(path)
    assert usual[2**22] != 2
    assert (warps(2**22), warps(2**22 + 64), warps(2**24)) == (2, 2, usual[2**24])


def test_a_file_that_is_not_there(use: Callable[[Path], None], tmp_path: Path) -> None:
    use(tmp_path / "none.json")
    with pytest.raises(InputError, match=r"TCUSIM_TUNING names .*none\.json, which cannot be read"):
        warps(2**22)


def test_files(tmp_path: Path) -> None:
    """Rows come back; of two for the same problems, the last stays."""
    path = tmp_path / "tuning.json"
    later = TunedRow("hopper", "reduction", "f16", 64, 22, (("panel_warps", 4),))
    scan = TunedRow("hopper", "scan", "f16", 0, 20, (("block_bytes", 2**15),))
    path.write_text(write_rows([ROW, scan, later]))
    assert set(read_rows(path)) == {later, scan}
    record = json.loads(path.read_text())
    others: list[object] = [{"format": "x"}, {"format": record["format"]}, []]
    for broken in (*others, {**record, "rows": [{}]}):
        path.write_text(json.dumps(broken))
        with pytest.raises(InputError, match="is no 'tcusim tuning 1' file"):
            read_rows(path)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("accumulation_length", 8, "'accumulation_length' is no number that can be tuned"),
        ("panel_warps", 3, "panel_warps must be a power of two from 1 to 16, got 3"),
        ("panel_warps", 32, "got 32"),
        ("panel_warps", "4", "got '4'"),
    ],
)
def test_numbers_that_are_refused(name: str, value: int, text: str) -> None:
    with pytest.raises(InputError, match=text):
        TunedRow("hopper", "scan", "f16", 64, 20, ((name, value),))
