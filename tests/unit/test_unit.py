"""`tcusim unit`: the file of a unit to begin from."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import fails, succeeds
from tcusim.cli.unit import unit_command
from tcusim.machine import FIGURES, Fused, arch_of, read_unit, rule_for, unit_of


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_new_file_says_what_may_be_said() -> None:
    assert succeeds("unit", "MyChip.toml") == ""
    made = read_unit("MyChip.toml")
    assert (made.name, made.arch.name) == ("mychip", "mychip")
    assert made.arch.rows[0].how == Fused(16, 24)
    text = Path("MyChip.toml").read_text()
    assert succeeds("unit", "-") == text
    for name, figure in FIGURES.items():
        assert f"# {name} =  # {figure.quantity}: {figure.meaning}; not known" in text
    assert "fraction_bits = 24  # bits that a fused step keeps below the largest exponent" in text


def test_a_copy_of_a_known_unit_has_its_figures() -> None:
    succeeds("unit", "board.toml", "--like", "h200")
    made = read_unit("board.toml")
    assert made.name == "board"
    assert made.arch is arch_of("hopper")
    assert made.figures() == unit_of("h200").figures()
    succeeds("unit", "coarse.toml")
    succeeds("unit", "coarser.toml", "--like", "coarse.toml")
    assert read_unit("coarser.toml").arch.rows[0].how == Fused(16, 24)


def test_what_is_refused() -> None:
    Path("a.toml").write_text("")
    assert unit_command.no_args_is_help
    assert "error: a.toml is there already; name a new file" in fails(1, "unit", "a.toml")
    assert "error: a.txt: the name of a unit's file ends in .toml" in fails(1, "unit", "a.txt")
    assert "unknown unit or architecture 'h20x'" in fails(1, "unit", "-", "--like", "h20x")
    assert Path("a.toml").read_text() == ""


def test_a_unit_is_recorded_from_a_backend(tmp_path: Path) -> None:
    path = tmp_path / "mygpu.toml"
    succeeds(
        *("unit", str(path), "--record", "numpy", "--arch", "volta", "--tile", "4x4x8"),
        *("--acc", "f16", "--source", "the lab", "--like", "h200"),
    )
    unit = read_unit(path)
    assert unit.name == "mygpu"
    (rule,) = unit.arch.rows
    assert rule.how == rule_for("volta", "f16", "f16").how
    assert (rule.source, rule.evidence) == ("the lab", "recorded bits")
    assert unit.clock == unit_of("h200").clock
    assert [shape.name for shape in unit.shapes] == ["4x4x8"]


def test_what_is_of_a_recording_needs_one(tmp_path: Path) -> None:
    text = fails(2, "unit", str(tmp_path / "a.toml"), "--ab", "bf16")
    assert "--ab is of a unit that is probed; it needs --record" in text
