"""`tcusim.explore`: every unit of a grid evaluated, in several processes, to be gone on with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import tcusim
from tcusim.errors import InputError
from tcusim.judge.explore.axes import Grid, Point
from tcusim.judge.explore.metrics import Settings, evaluate
from tcusim.judge.explore.results import Exploration
from tcusim.judge.explore.row import Row, row_of_json
from tcusim.judge.journal import Journal
from tcusim.judge.run import Jobs, Progress, executor_of, run_cases


def explore(
    grid: Grid | Mapping[str, Any] | None = None,
    *,
    length: int = 2**12,
    family: str = "same_sign",
    measure: bool = False,
    algorithms: Sequence[str] | None = None,
    file: str | Path | None = None,
    jobs: Jobs = None,
    progress: Progress | None = None,
) -> Exploration:
    """Evaluate every unit of a grid: its error, its area, and its cost of sums and scans.

    The rows are equal for any number of processes, on a cluster, and after any interruption.

    Parameters
    ----------
    grid : Grid or mapping, optional
        Which units: a `Grid`, or the keywords of `Grid.of`, such as ``{"fraction_bits": "16:25",
        "fused_length": (4, 8, 16)}``. By default one unit.
    length : int
        Terms of the sum whose error is told.
    family : str
        The kind of terms: one of ``tcusim.judge.explore.metrics.FAMILIES``.
    measure : bool
        Whether the error is measured on the simulator, too, beside the predicted one.
    algorithms : sequence of str, optional
        Names of the registry to choose the best from; by default all that sum or scan segments.
    file : str or Path, optional
        A file of JSON lines, to which each row is appended as soon as it is known. If it exists
        for the same grid, its units are not evaluated again.
    jobs : int or Executor, optional
        A number of processes; by default one a processor. A script that uses more than one calls
        this below ``if __name__ == "__main__":``. Or any executor of ``concurrent.futures``, such
        as ``client.get_executor()`` of a Dask client; its workers need this version of tcusim.
    progress : callable, optional
        Called with the number of rows that are done, and of all.

    Returns
    -------
    Exploration
        A row for each unit, in the order of the grid; impossible ones have a reason.

    Raises
    ------
    InputError
        If the grid, the settings or `jobs` cannot be, or `file` is of another exploration.
    UnknownName
        For a unit, algorithm, type or axis that does not exist.

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
    points = list(grid.points())
    with ExitStack() as stack:
        executor = stack.enter_context(executor_of(jobs))
        journal = None
        if file is not None:
            description = {
                "tcusim": tcusim.__version__,
                "grid": grid.as_json(),
                "settings": asdict(settings),
            }
            journal = stack.enter_context(Journal(file, description, Row.as_json, row_of_json))
            _require_rows_of(points, journal)
        rows = run_cases(
            partial(evaluate, grid, settings),
            points,
            executor,
            # The algorithms of a tile are built once for a batch.
            alike=lambda point: (point.tile, point.ab, point.acc),
            journal=journal,
            progress=progress,
        )
    return Exploration(grid, settings, tuple(rows))


def _require_rows_of(points: Sequence[Point], journal: Journal[Row]) -> None:
    """Raise InputError if a row of a file is not of its point."""
    known = dict(enumerate(points))
    for number, row in journal.done.items():
        if known.get(number) != row.point:
            raise InputError(
                f"{journal.path}: the row with number {number!r} is not of this grid. Delete its "
                f"line, and it is evaluated again."
            )
