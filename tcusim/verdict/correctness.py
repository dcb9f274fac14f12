"""Whether the algorithms are right on a unit's tiles: the reports of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from typing import Final, TypeAlias

from tcusim.check.report import ShapeReport
from tcusim.check.validation import Validation
from tcusim.machine import Unit, register_unit, registered_units
from tcusim.verdict.subjects import Subject

__all__ = ["Share", "reports_of", "seconds_of"]

# Called with the share that is done, up to 1.
Share: TypeAlias = Callable[[float], object]

# Work of fewer seconds is not worth another process, which takes one to begin.
_WORTH_SECONDS: Final = 6.0


def reports_of(
    subject: Subject,
    algorithms: Sequence[str] | None = None,
    *,
    full: bool = False,
    jobs: int = 1,
    share: Share | None = None,
) -> tuple[ShapeReport, ...]:
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
    jobs : int
        Processes. What was registered by the program that calls is tried in its own.
    share : callable, optional
        Called with the share that is done.

    Returns
    -------
    tuple of ShapeReport
        One for each tile.
    """
    whole = [_validation(subject, tile.name, algorithms, full) for tile in subject.tiles]
    seconds = sum(one.seconds for one in whole)
    done = 0.0

    def add(spent: float) -> None:
        nonlocal done
        done += spent
        if share is not None:
            share(min(1.0, done / seconds))

    if jobs == 1 or seconds < _WORTH_SECONDS:
        reports = []
        for one in whole:
            before = done
            reports.append(one.run(partial(_forward, share, before, one.seconds, seconds)))
            add(one.seconds)
        return tuple(reports)
    parts = [
        [_validation(subject, tile.name, [row.name], full) for row in one.algorithms]
        for tile, one in zip(subject.tiles, whole, strict=True)
    ]
    flat = [part for of_tile in parts for part in of_tile]
    found: dict[int, ShapeReport] = {}
    for number, report in _each(flat, jobs):
        found[number] = report
        add(flat[number].seconds)
    numbers = iter(range(len(flat)))
    return tuple(_joined([found[next(numbers)] for _ in of_tile]) for of_tile in parts)


def seconds_of(
    subject: Subject, algorithms: Sequence[str] | None = None, *, full: bool = False
) -> float:
    """Return how long `reports_of` takes in one process, to within a factor of a few."""
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


def _forward(
    share: Share | None, before: float, own: float, seconds: float, done: int, total: int
) -> None:
    if share is not None:
        share(min(1.0, (before + own * done / total) / seconds))


def _each(parts: list[Validation], jobs: int) -> Iterator[tuple[int, ShapeReport]]:
    """Yield each part's number and report, as they come; those that take longest begin first."""
    # Another process knows tcusim's own algorithms and those of entry points, but not what a
    # program registered; as for files' units, these are few, and are told to it.
    own = [number for number, part in enumerate(parts) if _importable(part)]
    own.sort(key=lambda number: -parts[number].seconds)
    known = partial(_know, registered_units())
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=known) as pool:
        futures: dict[Future[ShapeReport], int] = {
            pool.submit(parts[number].run): number for number in own
        }
        for number, part in enumerate(parts):
            if not _importable(part):
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
