"""`tcusim validate`: its output, files and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import click.testing
import pytest

from command_line import runner
from faulty import plant
from tcusim.algorithms.builder import Builder
from tcusim.cli import main as cli
from tcusim.errors import Unsupported
from tcusim.judge.correctness.shape_report import ShapeReport


def command(*arguments: str) -> click.testing.Result:
    return runner().invoke(cli.main, ["validate", *arguments])


def test_the_command_prints_a_table() -> None:
    result = command("64x8x16", "scan_k", "scan_t")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["algorithm", "data", "right", "mma"] in [line[:4] for line in lines]
    rows = [line for line in lines if line and line[0] == "scan_k"]
    assert [line[1] for line in rows] == ["a", "b"]
    assert [line[3] for line in rows] == ["2", "1"]
    assert "not possible: scan_t [U|1] (data in a): form '[U|1]' needs more" in result.stdout
    assert "cases right: all right, where nothing is rounded" in result.stdout


def test_the_command_fails_where_something_is_wrong() -> None:
    plant()
    result = command("4x4x4", "planted")
    assert result.exit_code == 1
    assert "WRONG: planted" in result.stdout

    def never(b: Builder, segment_size: int) -> int:
        """Sum nothing."""
        raise Unsupported("not with this tile")

    plant(never, kind="reduction", name="never")
    result = command("4x4x4", "never", "--json", "-")
    assert result.exit_code == 1
    rows = json.loads(result.stdout)["units"][0]["correctness"][0]["rows"]
    assert {row["possible"] for row in rows} == {False}


def test_the_command_prints_or_writes_json(tmp_path: Path) -> None:
    printed = command("2x2x2", "scan_k", "--json", "-")
    assert printed.exit_code == 0
    path = tmp_path / "report.json"
    path.write_text("old")
    written = command("2x2x2", "scan_k", "--json", str(path))
    assert written.exit_code == 0
    assert "all right" in written.stdout
    one, two = (
        ShapeReport.from_json(json.dumps(json.loads(text)["units"][0]["correctness"][0]))
        for text in (printed.stdout, path.read_text())
    )
    assert one == two
    assert one.ok
    assert [file.name for file in tmp_path.iterdir()] == ["report.json"]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["16x16"], 1, "a shape is written '16x16x16'"),
        (["16x16x8"], 1, "it takes tf32 to f32. Choose ab and acc"),
        (["4x4x4", "scan_kk"], 1, "Did you mean 'scan_k'?"),
        (["4x4x4", "--arch", "hoper"], 1, "Did you mean 'hopper'?"),
        (["4x4x4", "--acc", "f8"], 2, "unknown accumulator 'f8'"),
        (["4x4x4", "--json", "/no/such/folder/x.json"], 1, "there is no directory"),
        (["4x4x4", "--json", "/"], 1, "it is a directory"),
    ],
)
def test_the_command_refuses(arguments: list[str], code: int, text: str) -> None:
    result = command(*arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert text in result.stderr
    assert "Traceback" not in result.stderr
