"""The file of an exploration: gone on with after any cut, and nobody else's file is touched."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tcusim.errors import InputError
from tcusim.judge.explore.axes import Point
from tcusim.judge.explore.row import Row, row_of_json
from tcusim.judge.journal import Journal

ABOUT: dict[str, Any] = {"tcusim": "1", "grid": {"m": [4, 8]}}
POINT: Any = asdict(Point(16, 16, 16, "f16", "f32", 8, 20, "rz", "rz"))
ROWS = [
    Row(**POINT, error=1e-7, area=2.0, sums_algorithm="reduction_k", sums_mma=0.25, notes=("é",)),
    Row(**POINT, reason="it cannot be"),
    Row(**POINT, measured=0.5),
]


def journal_of(path: Path, about: dict[str, Any] = ABOUT) -> Journal[Row]:
    return Journal(path, about, Row.as_json, row_of_json)


def written(path: Path) -> bytes:
    with journal_of(path) as journal:
        journal.add([(0, ROWS[0])])
        journal.add([(2, ROWS[2]), (1, ROWS[1])])
    return path.read_bytes()


def test_rows_come_back(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    before = written(path)
    with journal_of(path) as journal:
        assert journal.done == dict(enumerate(ROWS))
    assert path.read_bytes() == before


def test_a_file_that_was_cut_anywhere_is_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    whole = written(path)
    lines = whole.splitlines(keepends=True)
    for end in (*range(0, len(whole), 11), len(whole) - 1, len(whole)):
        path.write_bytes(whole[:end])
        with journal_of(path) as journal:
            complete = whole[:end].count(b"\n")
            assert len(journal.done) == max(0, complete - 1)
            journal.add([(7, ROWS[1])])
        # The truncated row is gone, and the new row is a line of its own.
        found = path.read_bytes().splitlines(keepends=True)
        assert found[:-1] == lines[: max(1, complete)]
        assert json.loads(found[-1])["number"] == 7


@pytest.mark.parametrize(
    "content", [b"precious", b'{"kind": "something else"}\n', b"\n", b"\0" * 9]
)
def test_another_file_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"a\.jsonl is no file of an exploration; name a new file"):
        journal_of(path)
    assert path.read_bytes() == content


def test_a_file_of_another_grid_is_refused_with_the_difference(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    before = written(path)
    with pytest.raises(InputError, match=r"its m is \[4, 8\], and \[4\] is asked for\. Name"):
        journal_of(path, {**ABOUT, "grid": {"m": [4]}})
    assert path.read_bytes() == before


def test_a_spoiled_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = written(path).splitlines(keepends=True)
    for spoiled in (b"{]\n", b"[]\n", b"{}\n", b'{"number": 1}\n'):
        path.write_bytes(b"".join([lines[0], lines[1], spoiled, lines[3]]))
        with pytest.raises(
            InputError, match=r"a\.jsonl, line 3: this is no row .* Delete the line"
        ):
            journal_of(path)
    whole = json.loads(lines[2])
    path.write_text(
        json.dumps(json.loads(lines[0])) + "\n" + json.dumps({**whole, "m": "4"}) + "\n"
    )
    with pytest.raises(InputError, match=r"line 2: .*m: expected an integer, got '4'"):
        journal_of(path)


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written: No such file or directory"):
        journal_of(tmp_path / "no" / "a.jsonl")
