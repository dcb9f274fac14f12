"""Whether the algorithms are right on a unit's tiles, and the costs of those that are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial
from operator import attrgetter
from typing import TypeAlias

from tcusim.judge.correctness.shape_report import ShapeReport, ShapeRow
from tcusim.judge.correctness.validation import Trial, report_of, trials_of
from tcusim.judge.run import Progress, run_cases
from tcusim.judge.verdict.subjects import Subject
from tcusim.judge.verdict.tasks import Candidate, candidates_of

__all__ = ["seconds_of", "tried"]

_Outcome: TypeAlias = tuple[ShapeRow, tuple[Candidate, ...]]


def tried(
    subject: Subject,
    algorithms: Sequence[str] | None = None,
    *,
    full: bool = False,
    machine: Subject | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> tuple[tuple[ShapeReport, ...], tuple[Candidate, ...]]:
    """Try algorithms on every tile of a subject.

    A third of the cases of its other tiles is tried, unless it is `full`.

    Parameters
    ----------
    subject : Subject
        The tiles.
    algorithms : sequence of str, optional
        Names; by default all of the registry.
    full : bool
        As for `validate_shape`.
    machine : Subject, optional
        The figures that times are predicted with; None for no times.
    executor, progress
        As for `run_cases`.

    Returns
    -------
    reports : tuple of ShapeReport
        One for each tile.
    candidates : tuple of Candidate
        The right algorithms, for each of their tasks.
    """
    trials = _trials(subject, algorithms, full)
    found: list[_Outcome] = run_cases(
        partial(_outcome, subject, machine),
        trials,
        executor,
        seconds=attrgetter("seconds"),
        progress=progress,
    )
    size = len(trials) // len(subject.tiles)
    reports = tuple(
        report_of(trials[first], [row for row, _ in found[first : first + size]])
        for first in range(0, len(trials), size)
    )
    return reports, tuple(one for _, candidates in found for one in candidates)


def seconds_of(
    subject: Subject, algorithms: Sequence[str] | None = None, *, full: bool = False
) -> float:
    """Return the seconds that `tried` takes in one process, to within a factor of a few."""
    return sum(trial.seconds for trial in _trials(subject, algorithms, full))


def _trials(subject: Subject, algorithms: Sequence[str] | None, full: bool) -> list[Trial]:
    """Return as many trials of each tile, by tiles."""
    return [
        trial
        for tile in subject.tiles
        for trial in trials_of(
            tile,
            algorithms,
            ab=subject.ab,
            acc=subject.acc,
            arch=subject.arch,
            full=full,
            # Whether an algorithm is right depends on the sizes of the tile only.
            brief=not full and tile != subject.tiles[0],
        )
    ]


def _outcome(subject: Subject, machine: Subject | None, trial: Trial) -> _Outcome:
    """Return the row of a trial, and the candidates of a right algorithm."""
    row = trial.run()
    if not (row.possible and row.ok):
        return row, ()
    shared = subject.unit.shared_bytes_per_block
    most = math.inf if shared is None else shared.value
    return row, tuple(candidates_of(subject, row, trial.shape, machine=machine, most=most))
