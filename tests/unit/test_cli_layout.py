"""`tcusim layout`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tcusim
from command_line import tcusim_command


def test_it_prints_the_matrix_a_lane_or_an_element() -> None:
    whole = tcusim_command("layout", "m16n8k16", "--operand", "a")
    assert whole.output.rstrip("\n") == str(tcusim.layout("m16n8k16", "a"))
    lane = tcusim_command("layout", "m16n8k16", "--operand", "b", "--lane", "5")
    assert lane.output.endswith("b[2-3] (register 1)  rows 10-11, column 1\n")
    one = tcusim_command("layout", "m16n8k16", "--element", "3,7")
    assert one.output == "row 3, column 7: lane 15, a[1], register 0, bits 16-31\n"
    tiles = tcusim_command(
        "layout", "m8n8k4", "--family", "mma.sync", "--ab", "f16", "--element", "3,2"
    ).output
    assert tiles.splitlines()[1] == "row 3, column 2: tile 1: lane 7, a[2], register 1, bits 0-15"


def test_json() -> None:
    whole = json.loads(tcusim_command("layout", "m16n8k16", "--json").output)
    assert (whole["operand"], len(whole["lanes"])) == ("a", 32)
    (held,) = json.loads(tcusim_command("layout", "m16n8k16", "--element", "3,7", "--json").output)
    assert (held["lane"], held["element"]) == (15, 1)
    lane = json.loads(tcusim_command("layout", "m16n8k16", "--lane", "3", "--json").output)
    assert [one["element"] for one in lane] == list(range(8))


def test_files(tmp_path: Path) -> None:
    page, picture = tmp_path / "a.html", tmp_path / "a.svg"
    result = tcusim_command("layout", "m16n8k16", "--html", str(page), "--svg", str(picture))
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"wrote {page}\nwrote {picture}\n"
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert picture.read_text() == tcusim_command("layout", "m16n8k16", "--svg", "-").output


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("m16n8k16", "--element", "3"), "--element must be a row and a column"),
        (("m16n8k16", "--element", "3,70"), "col must be an integer within 0..15, got 70"),
        (("m16n8k16", "--element", "3,7", "--lane", "1"), "exclude each other"),
        (("m16n8k16", "--lane", "1", "--html", "-"), "--lane is for text and --json"),
        (("m16n8k16", "--element", "3,7", "--svg", "-"), "--element is for text and --json"),
        (("m16n8k16", "--operand", "e"), "operand"),
        (("m16n8k16", "--arch", "volta"), "sm_80 is the first"),
    ],
)
def test_mistakes_are_explained(words: tuple[str, ...], text: str) -> None:
    result = tcusim_command("layout", *words)
    assert result.exit_code in (1, 2)
    assert text in result.stderr
