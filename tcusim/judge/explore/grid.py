"""`tcusim.explore`: every unit of a grid evaluated, in several processes, to be gone on with."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import tcusim
from tcusim.errors import InputError, told
from tcusim.judge.explore.axes import Grid, Point
from tcusim.judge.explore.journal import Journal
from tcusim.judge.explore.metrics import Settings, evaluate
from tcusim.judge.explore.results import Exploration
from tcusim.judge.explore.row import Row
from tcusim.judge.explore.workers import Part, Work, in_dask, in_processes, processors

__all__ = ["explore"]

# Units that are evaluated together: of one tile, so that its algorithms are built once for them.
_TOGETHER: Final = 8


def explore(
    grid: Grid | Mapping[str, Any] | None = None,
    *,
    length: int = 2**12,
    family: str = "same_sign",
    measure: bool = False,
    algorithms: Sequence[str] | None = None,
    file: str | Path | None = None,
    jobs: int | None = None,
    scheduler: str | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Exploration:
    """Evaluate every unit of a grid: its error, its area, and what sums and scans cost on it.

    The rows are equal for any number of processes, on a cluster, and after any interruption.

    Parameters
    ----------
    grid : Grid or mapping, optional
        Which units: a `Grid`, or the keywords of `Grid.of`, such as ``{"fraction_bits": "16:25",
        "fused_length": (4, 8, 16)}``. By default one unit.
    length : int
        Terms of the sum whose error is told.
    family : str
        What the terms are: one of ``tcusim.judge.explore.metrics.FAMILIES``.
    measure : bool
        Whether the error is measured on the simulator, too, beside the predicted one.
    algorithms : sequence of str, optional
        Names of the registry to choose the best from; by default all that sum or scan segments.
    file : str or Path, optional
        A file of JSON lines, to which each row is appended as soon as it is known. If it is there
        and of the same grid, what it has is not evaluated again.
    jobs : int, optional
        Processes; by default as many as there are processors. A script that uses more than one
        calls this below ``if __name__ == "__main__":``.
    scheduler : str, optional
        The address of a Dask scheduler, such as ``"tcp://10.0.0.1:8786"``, whose workers are used
        in place of processes of this machine. They need this version of tcusim.
    progress : callable, optional
        Called with the number of rows that are done, and of all.

    Returns
    -------
    Exploration
        A row for each unit, in the order of the grid; what cannot be has its reason.

    Raises
    ------
    InputError
        If the grid or the settings cannot be, or `file` is of another exploration.
    UnknownName
        For a unit, algorithm, type or axis that does not exist.
    BackendUnavailable
        If `scheduler` is given and ``distributed`` is not installed, or nothing answers.

    Examples
    --------
    >>> found = explore({"fraction_bits": (12, 20), "fused_length": 8}, length=64, jobs=1)
    >>> [(row.point.fraction_bits, row.reason) for row in found.rows]
    [(12, ''), (20, '')]
    >>> found.rows[0].error > found.rows[1].error
    True
    """
    grid = grid if isinstance(grid, Grid) else Grid.of(**(grid or {}))
    settings = Settings.of(length, family, measure=measure, algorithms=algorithms)
    if jobs is not None and (not isinstance(jobs, int) or jobs < 1):
        raise InputError(f"jobs must be a whole number from 1 on, got {told(jobs)}")
    if scheduler is not None and jobs is not None:
        raise InputError(
            "jobs is of processes of this machine, and scheduler names a cluster, which has its "
            "own; give one of them"
        )
    description = {
        "tcusim": tcusim.__version__,
        "grid": grid.as_json(),
        "settings": settings.as_json(),
    }
    points = dict(enumerate(grid.points()))
    with ExitStack() as stack:
        rows: dict[int, Row] = {}
        journal = None
        if file is not None:
            journal = stack.enter_context(Journal(file, description))
            rows |= _known(journal, points)
        left = {number: point for number, point in points.items() if number not in rows}
        if progress is not None:
            progress(len(rows), len(points))
        work = partial(evaluate, grid, settings)
        evaluated = _evaluated(work, _parts(left), jobs, scheduler)
        for part, found in stack.enter_context(closing(evaluated)):
            numbered = [(number, row) for (number, _), row in zip(part, found, strict=True)]
            rows.update(numbered)
            if journal is not None:
                journal.add(numbered)
            if progress is not None:
                progress(len(rows), len(points))
    return Exploration(grid, settings, tuple(rows[number] for number in points))


def _known(journal: Journal, points: Mapping[int, Point]) -> dict[int, Row]:
    """Return the rows that a file has; each must be of its point."""
    for number, row in journal.done.items():
        if points.get(number) != row.point:
            raise InputError(
                f"{journal.path}: the row with number {number!r} is not of this grid. Delete its "
                f"line, and it is evaluated again."
            )
    return dict(journal.done)


def _evaluated(
    work: Work, parts: list[Part], jobs: int | None, scheduler: str | None
) -> Generator[tuple[Part, list[Row]], None, None]:
    """Yield parts with their rows, as they come."""
    if scheduler is not None:
        yield from in_dask(work, parts, scheduler)
    else:
        yield from in_processes(work, parts, min(jobs or processors(), max(1, len(parts))))


def _parts(points: Mapping[int, Point]) -> list[Part]:
    """Return numbered points in parts of one tile and one pair of types each."""
    alike: dict[tuple[str, str, str], list[tuple[int, Point]]] = {}
    for number, point in points.items():
        alike.setdefault((point.tile, point.ab, point.acc), []).append((number, point))
    return [
        tuple(numbered[first : first + _TOGETHER])
        for numbered in alike.values()
        for first in range(0, len(numbered), _TOGETHER)
    ]
