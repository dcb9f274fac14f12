"""`tcusim explore`: its output, files and refusals."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

import tcusim.cli.explore as command
from command_line import fails, succeeds, tcusim_command
from tcusim.judge.explore import grid as sweep

FEW = ("--algorithm", "reduction_kn", "--algorithm", "scan_kn", "--length", "64", "--jobs", "1")


def test_a_table_is_printed() -> None:
    printed = succeeds("explore", "--fraction-bits", "12:14", "--fused-length", "4,8", *FEW)
    lines = printed.splitlines()
    assert lines[-1] == "6 of 6 units evaluated; error of sums of 64 terms, same_sign"
    assert sum(line.split()[1:2] == ["16x16x16"] for line in lines) == 6
    assert "6 with bits_never_set, such as 16x16x16 f16→f32 F=12 L=4 rz: f32 has 23" in printed
    assert "unit" not in lines[0].split()  # no unit has a name, so there is no column


def test_few_rows_are_told_of() -> None:
    printed = succeeds("explore", "--fraction-bits", "12:14", "--rows", "1", "--sort", "area", *FEW)
    assert "2 more: --rows 3 shows all, --csv FILE has them" in printed
    assert " 12 " in next(line for line in printed.splitlines() if "16x16x16" in line)


def test_files_are_written_and_one_is_printed(tmp_path: Path) -> None:
    page, table = tmp_path / "a.html", tmp_path / "a.csv"
    arguments = ("explore", "--tile", "4x4x4,8x8x4", "--fused-length", "4", *FEW)
    printed = succeeds(*arguments, "--html", str(page), "--csv", str(table), "--json", "-")
    assert len(json.loads(printed)["rows"]) == 2
    assert page.read_text().startswith("<!DOCTYPE html>")
    tiles = [line["tile"] for line in csv.DictReader(io.StringIO(table.read_text()))]
    assert tiles == ["4x4x4", "8x8x4"]
    assert "only one of" in fails(2, *arguments, "--csv", "-", "--json", "-")


def test_a_unit_that_exists_is_beside_the_invented_ones() -> None:
    printed = succeeds("explore", "--unit", "v100", *FEW)
    assert re.search(r"\n +1  v100  ", printed)


def test_nothing_possible_is_exit_code_1() -> None:
    result = tcusim_command("explore", "--fraction-bits", "60", *FEW)
    assert result.exit_code == 1
    assert (
        "1 not possible, such as 16x16x16 f16→f32 F=60 L=16 rz: Fused of 16 terms" in result.stdout
    )


def test_wrong_values_are_told() -> None:
    assert "error: m: 8:4 is no range" in fails(1, "explore", "--m", "8:4")
    assert "4097 is not in the range 1<=x<=4096" in fails(
        2, "explore", "--m", "8", "--jobs", "4097"
    )
    assert "cannot write" in fails(1, "explore", "--m", "8", "--html", "/no/where.html")


def test_ctrl_c_tells_what_is_done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = str(tmp_path / "sweep.jsonl")
    arguments = ("explore", "--tile", "4x4x4,8x8x4", "--fused-length", "4", "--file", path, *FEW)

    def stopping(*args: Any, progress: Any, **options: Any) -> Any:
        def stop(done: int, whole: int) -> None:
            progress(done, whole)
            if done:
                raise KeyboardInterrupt

        return sweep.explore(*args, progress=stop, **options)

    monkeypatch.setattr(command, "explore", stopping)
    assert fails(130, *arguments) == (
        f"interrupted; {path} has 1 of 2 units, and the same command goes on\n"
    )
    monkeypatch.undo()
    assert "2 of 2 units evaluated" in succeeds(*arguments)
