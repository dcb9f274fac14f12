"""Record everything that the benchmark has: `tcusim bench all`.

Each section and each figure of the paper is a part with a file of its own, which is written as it
is measured. A run that ends early keeps what it has, and the next one, on the same folder, goes on
with the problems that are left.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tcusim.errors import InputError, unknown_name
from tcusim_bench import latency
from tcusim_bench.paper import finish, part_of
from tcusim_bench.report import Report
from tcusim_bench.sections import ENERGY, EXACT
from tcusim_bench.throughput import Bench, Part, Say, Settings, section

__all__ = ["LATENCY", "NAMES", "Recorded", "record_all"]

LATENCY: Final = "latency"
_FIGURE: Final = "figure-"
# Parts without CUB come first, since nvcc takes a minute to compile it.
NAMES: Final = (
    *("types", "graphs", "graph-segments", "products", EXACT, ENERGY),
    *("sums", "scans", "ragged", "sizes", "small"),
    *(_FIGURE + name for name in ("10", "12", "11", "13", "14", "2", "3", "power")),
    LATENCY,
)
# Libraries that a section is compared with; the others with all of the usual ones.
_PEERS: Final = {
    "types": ("torch", "triton", "cub", "cupy"),
    "graphs": ("torch", "triton"),
    "graph-segments": ("torch", "triton"),
    "products": ("torch", "cublas"),
    EXACT: (),
    ENERGY: ("torch", "triton"),
}
_USUAL_PEERS: Final = ("torch", "triton", "cub", "cupy")
# Shares of the time, as problems of the usual cost.
_ENERGY_COST: Final = 3.0
# Figures with many programs for each problem.
_PROGRAMS_COST: Final = 2.0
_MANY_PROGRAMS: Final = ("figure-10", "figure-12", "figure-11")
_LATENCY_COST: Final = 20.0
# A file is written again after so many seconds.
_KEEP_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Recorded:
    """How a part went: its name, how many problems it has, and how many of them have rows."""

    name: str
    problems: int
    solved: int
    wrong: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return a line."""
        text = f"{self.name}: {self.solved} of {self.problems} problems"
        return "; ".join((text, *self.wrong))


@dataclass(slots=True)
class _Planned:
    """A part, with its state: its file, an earlier report, and the problems that are left."""

    name: str
    path: Path
    part: Part
    before: Report | None
    refused: dict[str, None]

    @property
    def left(self) -> int:
        """Problems without rows."""
        solved = {row.case for row in self.before.rows} if self.before else set()
        return sum(case not in solved for case in self.part.cases)

    @property
    def cost(self) -> float:
        """The cost of measuring it, in problems of the usual cost."""
        many = _PROGRAMS_COST if self.name in _MANY_PROGRAMS else 1.0
        return self.left * (_ENERGY_COST if self.part.energy else many)


def record_all(
    folder: Path,
    settings: Settings,
    names: tuple[str, ...] = (),
    authors: Mapping[str, Any] | None = None,
    say: Say | None = None,
) -> list[Recorded]:
    """Measure every part, or those named, into files NAME.json of a folder; return how they went.

    settings: `sections`, `segments`, `peers` and `programs` do not matter; `seconds` are for all
    parts together. Problems that files there have already are not measured again. authors: series
    of the paper's authors, for the figures. Raises UnknownName if a name is none of `NAMES`, and
    InputError if a file there is no report of the same length.
    """
    for name in names:
        if name not in NAMES:
            raise unknown_name("part", name, NAMES)
    given = replace(settings.reduced(), segments=(), programs=False)
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [name for name in NAMES if not names or name in names]
    planned = [_planned(name, folder, given) for name in wanted if name != LATENCY]
    rest = [one for one in planned if one.left]
    until = None if given.seconds is None else time.monotonic() + given.seconds
    host = _LATENCY_COST if LATENCY in wanted and not (folder / "latency.json").exists() else 0.0
    if rest:
        peers = tuple(dict.fromkeys(name for one in rest for name in one.part.peers))
        with contextlib.closing(Bench(given, peers)) as bench:
            for number, one in enumerate(rest):
                seconds = None
                if until is not None:
                    cost = sum(later.cost for later in rest[number:]) + host
                    seconds = (until - time.monotonic()) * one.cost / cost
                for later in rest[number + 1 : number + 2]:
                    bench.begin(later.part, later.before)
                _measure(bench, one, seconds, authors or {}, say)
    if host:
        _write(folder / "latency.json", latency.latency().as_json())
    return [_recorded(one) for one in planned]


def _planned(name: str, folder: Path, given: Settings) -> _Planned:
    refused: dict[str, None] = {}
    if name.startswith(_FIGURE):
        part = part_of(name.removeprefix(_FIGURE), given, refused)
    else:
        part = section(replace(given, sections=(name,), peers=_PEERS.get(name, _USUAL_PEERS)))
    path = folder / f"{name}.json"
    return _Planned(name, path, part, _read(path, given), refused)


def _read(path: Path, given: Settings) -> Report | None:
    """Return the content of a file, or None if there is none."""
    if not path.exists():
        return None
    try:
        report = Report.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no report: {error}. Remove it, and it is made anew") from error
    if report.length != given.length:
        raise InputError(
            f"{path} is of {report.length} elements, not of {given.length}. Name another folder, "
            f"or remove it"
        )
    return report


def _measure(
    bench: Bench, one: _Planned, seconds: float | None, authors: Mapping[str, Any], say: Say | None
) -> None:
    if say is not None:
        share = "" if seconds is None else f", {seconds:.0f} s"
        say(f"{one.name}: {one.left} problems{share}")
    last = time.monotonic()

    def keep(report: Report) -> None:
        nonlocal last
        if time.monotonic() - last > _KEEP_SECONDS:
            _write(one.path, report.as_json())
            last = time.monotonic()

    report = bench.measure(one.part, seconds, say, before=one.before, keep=keep)
    if one.name.startswith(_FIGURE):
        finish(report, one.name.removeprefix(_FIGURE), one.refused, authors)
    _write(one.path, report.as_json())
    one.before = report


def _write(path: Path, record: dict[str, Any]) -> None:
    """Write a file at once, so that whoever stops the program leaves the old one or the new one."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(record) + "\n", encoding="utf-8")
    new.replace(path)


def _recorded(one: _Planned) -> Recorded:
    report = one.before
    wrong = () if report is None else tuple(_wrong(report))
    return Recorded(one.name, len(one.part.cases), len(one.part.cases) - one.left, wrong)


def _wrong(report: Report) -> Iterator[str]:
    for attempt in report.wrong:
        yield f"{attempt.who}, {attempt.label}: {attempt.status}"
