"""Files that tcusim reads: a value that does not fit is named with its place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tcusim.arrays.tuned import TunedRow, read_rows, write_rows
from tcusim.errors import InputError
from tcusim.judge.correctness.shape_report import ShapeReport
from tcusim.records import of_json, of_plain


class Pair(NamedTuple):
    name: str
    values: tuple[int, ...]


@dataclass(frozen=True)
class Inner:
    count: int
    share: float | None = None

    @property
    def twice(self) -> int:
        return 2 * self.count

    def __post_init__(self) -> None:
        if self.count < 0:
            raise InputError("count must be at least 0")


@dataclass(frozen=True)
class Outer:
    inner: Inner
    rows: list[Inner] = field(default_factory=list)
    pairs: tuple[Pair, ...] = ()
    options: tuple[tuple[str, bool], ...] = ()
    by_size: Mapping[int, Inner] = field(default_factory=dict)
    where: int | tuple[int, int] | None = None
    more: dict[str, Any] = field(default_factory=dict)


WHOLE = Outer(
    Inner(1, 0.5),
    [Inner(2), Inner(3, 4)],
    (Pair("a", (1, 2)),),
    (("on", True),),
    {16: Inner(5)},
    (3, 4),
    {"any": [None, "thing"]},
)


def test_what_is_written_is_read_again() -> None:
    assert of_json(Outer, json.dumps(asdict(WHOLE)), "x") == WHOLE
    assert of_plain(Outer, {"inner": {"count": 1, "twice": 2}}, "x") == Outer(Inner(1))
    assert of_plain(Outer, {"inner": {"count": 1}, "options": {"on": False}}, "x").options == (
        ("on", False),
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"inner": {"count": "x"}}, "f: inner.count: expected an integer, got 'x'"),
        ({"inner": {"count": True}}, "f: inner.count: expected an integer, got True"),
        ({"inner": {"cuont": 1}}, "f: inner: unknown key 'cuont'. Did you mean 'count'?"),
        ({"inner": {"q": 1}}, "f: inner: unknown key 'q'. Valid: count, share"),
        ({"inner": {"share": 1.0}}, "f: inner: 'count' is needed"),
        ({"inner": {"count": -1}}, "f: inner: count must be at least 0"),
        ({"inner": 7}, "f: inner: expected a table of keys and values, got 7"),
        ({"rows": [{"count": 1}, {"count": 1, "share": "y"}]}, "f: rows[1].share: expected a numb"),
        ({"rows": {}}, "f: rows: expected a list, got {}"),
        ({"pairs": [["a", [1, 2.5]]]}, "f: pairs[0][1][1]: expected an integer, got 2.5"),
        ({"pairs": [["a"]]}, "f: pairs[0]: expected a list of 2, got ['a']"),
        ({"options": {"on": 1}}, "f: options[0][1]: expected true or false, got 1"),
        ({"by_size": {"16": {"count": None}}}, "f: by_size.16.count: expected an integer, got N"),
        ({"by_size": {"x": {"count": 1}}}, "f: by_size: expected keys that are integers, got ['x"),
        ({"where": [1, "y"]}, "f: where[1]: expected an integer, got 'y'"),
        (
            {"where": "z" * 99},
            "f: where: expected an integer or a list or a table or nothing",
        ),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as raised:
        of_plain(Outer, json.loads(json.dumps(asdict(WHOLE))) | change, "f")
    assert str(raised.value).startswith(said)
    assert len(str(raised.value)) < 160


def test_files_name_what_is_wrong(tmp_path: Path) -> None:
    record = json.loads(write_rows([TunedRow("hopper", "scan", "f16", 64, 22)]))
    path = tmp_path / "tuning.json"
    for change, said in (
        ({"size": "64"}, r"rows\[0\].size: expected an integer, got '64'"),
        ({"sizes": 64}, r"rows\[0\]: unknown key 'sizes'. Did you mean 'size'\?"),
        ({"numbers": {"panel_warps": 3}}, r"rows\[0\]: panel_warps must be a power of two"),
    ):
        path.write_text(json.dumps({**record, "rows": [record["rows"][0] | change]}))
        with pytest.raises(InputError, match=rf"is no 'tcusim tuning 1' file: {said}"):
            read_rows(path)
    path.write_bytes(b"\xff")
    with pytest.raises(InputError, match="is no 'tcusim tuning 1' file: it is no JSON"):
        read_rows(path)
    with pytest.raises(InputError, match=r"full: expected true or false, got 1. Read what to_json"):
        ShapeReport.from_json('{"full": 1}')
