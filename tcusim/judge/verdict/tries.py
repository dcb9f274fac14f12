"""Whether the algorithms are right on a unit's tiles, and what those that are cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from typing import Final, TypeAlias

from tcusim.judge.correctness.shape_report import ShapeReport
from tcusim.judge.correctness.validation import Validation
from tcusim.judge.verdict.subjects import Subject
from tcusim.judge.verdict.tasks import Candidate, candidates_of
from tcusim.machine import Unit, register_unit, registered_units

__all__ = ["Share", "seconds_of", "tried"]

# Called with the share that is done, up to 1.
Share: TypeAlias = Callable[[float], object]
# Of one algorithm on one tile.
_Found: TypeAlias = tuple[ShapeReport, tuple[Candidate, ...]]

# Work of fewer seconds is not worth another process, which takes one to begin.
_WORTH_SECONDS: Final = 6.0


def tried(
    subject: Subject,
    algorithms: Sequence[str] | None = None,
    *,
    full: bool = False,
    machine: Subject | None = None,
    jobs: int = 1,
    share: Share | None = None,
) -> tuple[tuple[ShapeReport, ...], tuple[Candidate, ...]]:
    """Try algorithms on every tile of a subject, in several processes if that is worth it.

    Of the cases of its other tiles a third is tried, unless it is `full`.

    Parameters
    ----------
    subject : Subject
        Whose tiles.
    algorithms : sequence of str, optional
        Names; by default all of the registry.
    full : bool
        As for `validate_shape`.
    machine : Subject, optional
        Whose figures times are predicted with; None for no times.
    jobs : int
        Processes. What was registered by the program that calls is tried in its own.
    share : callable, optional
        Called with the share that is done.

    Returns
    -------
    reports : tuple of ShapeReport
        One for each tile.
    candidates : tuple of Candidate
        What was right, for each task that it can do.
    """
    rows = _validation(subject, subject.tiles[0].name, algorithms, full).algorithms
    parts = [
        [_Part(_validation(subject, tile.name, [row.name], full), subject, machine) for row in rows]
        for tile in subject.tiles
    ]
    flat = [part for of_tile in parts for part in of_tile]
    seconds = sum(part.seconds for part in flat)
    done = 0.0
    found: dict[int, _Found] = {}
    alone = jobs == 1 or seconds < _WORTH_SECONDS
    for number, one in enumerate(map(_Part.run, flat)) if alone else _each(flat, jobs):
        found[number] = one
        done += flat[number].seconds
        if share is not None:
            share(min(1.0, done / seconds))
    numbers = iter(range(len(flat)))
    reports = tuple(_joined([found[next(numbers)][0] for _ in of_tile]) for of_tile in parts)
    return reports, tuple(one for number in range(len(flat)) for one in found[number][1])


@dataclass(frozen=True, slots=True)
class _Part:
    """One algorithm on one tile: it is tried, and what it is good for has its time predicted."""

    validation: Validation
    subject: Subject
    machine: Subject | None

    @property
    def seconds(self) -> float:
        """How long it takes, to within a factor of a few."""
        return self.validation.seconds

    def run(self) -> _Found:
        """Return the report, and the candidates of what was right."""
        report = self.validation.run()
        return report, candidates_of(self.subject, [report], machine=self.machine)


def seconds_of(
    subject: Subject, algorithms: Sequence[str] | None = None, *, full: bool = False
) -> float:
    """Return how long `tried` takes in one process, to within a factor of a few."""
    return sum(_validation(subject, tile.name, algorithms, full).seconds for tile in subject.tiles)


def _validation(
    subject: Subject, tile: str, algorithms: Sequence[str] | None, full: bool
) -> Validation:
    made = Validation.of(
        subject.unit.tile(tile),
        algorithms,
        ab=subject.ab,
        acc=subject.acc,
        arch=subject.arch,
        full=full,
    )
    # The first tile has every case; that an algorithm is right hangs on the tile's sizes alone.
    return replace(made, brief=not full and tile != subject.tiles[0].name)


def _each(parts: list[_Part], jobs: int) -> Iterator[tuple[int, _Found]]:
    """Yield each part's number and result, as they come; those that take longest begin first."""
    # Another process knows tcusim's own algorithms and those of entry points, but not what a
    # program registered; as for files' units, these are few, and are told to it.
    own = [number for number, part in enumerate(parts) if _importable(part.validation)]
    own.sort(key=lambda number: -parts[number].seconds)
    known = partial(_know, registered_units())
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=known) as pool:
        futures: dict[Future[_Found], int] = {
            pool.submit(parts[number].run): number for number in own
        }
        for number, part in enumerate(parts):
            if not _importable(part.validation):
                yield number, part.run()
        for future in as_completed(futures):
            yield futures[future], future.result()


def _importable(part: Validation) -> bool:
    return all(row.function.__module__.startswith("tcusim.") for row in part.algorithms)


def _know(registered: tuple[Unit, ...]) -> None:
    """Register units in another process."""
    for unit in registered:
        register_unit(unit)


def _joined(reports: list[ShapeReport]) -> ShapeReport:
    """Return one report of all that was tried on one tile."""
    rows = tuple(row for report in reports for row in report.rows)
    return replace(reports[0], rows=rows, seconds=sum(report.seconds for report in reports))
