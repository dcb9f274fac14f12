"""Is a backend right? Random cases are run on it and on the simulator; all bits are compared."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from typing import Any, Final

import numpy as np

from tcusim.algorithms import algorithms
from tcusim.backends import get_backend, native_arch, run
from tcusim.check.cases import COLUMNS, Case, Grid, Recipe, cases_of
from tcusim.check.testing import differences
from tcusim.errors import Unsupported
from tcusim.program.grammar import Program

__all__ = ["Problem", "Report", "Tally", "agree"]


# --- The comparison ---------------------------------------------------------------------------


@dataclass(slots=True)
class Tally:
    """Of one algorithm and column: cases that ran, outputs compared, and how many differ."""

    cases: int = 0
    outputs: int = 0
    differ: int = 0
    failed: int = 0

    def add(self, other: Tally) -> None:
        """Count another tally in."""
        for name, count in asdict(other).items():
            setattr(self, name, getattr(self, name) + count)

    def __str__(self) -> str:
        if self.failed:
            return f"{self.failed} of {self.cases + self.failed} failed"
        return f"{self.differ} DIFFER" if self.differ else f"{self.cases} ok"


@dataclass(frozen=True, slots=True)
class Problem:
    """A case that did not agree, or did not run. text: what was seen."""

    case: str
    text: str


@dataclass(slots=True)
class Report:
    """What a comparison found.

    backend, arch: what was compared with the simulator, in whose arithmetic. tallies: by algorithm
    and column. skipped: reasons why programs did not run, with how many. problems: the first ones.
    left: programs that time did not suffice for.
    """

    backend: str
    arch: str
    tallies: dict[tuple[str, str], Tally] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    problems: list[Problem] = field(default_factory=list)
    left: int = 0
    seconds: float = 0.0

    @property
    def total(self) -> Tally:
        """The sum of all tallies."""
        total = Tally()
        for tally in self.tallies.values():
            total.add(tally)
        return total

    @property
    def ok(self) -> bool:
        """Whether outputs were compared, and all agree."""
        total = self.total
        return total.outputs > 0 and not total.differ and not total.failed

    @property
    def algorithms(self) -> list[str]:
        """Names of the algorithms that ran, in the order of the registry."""
        ran = {name for name, _ in self.tallies}
        return [row.name for row in algorithms() if row.name in ran]

    @property
    def columns(self) -> list[str]:
        """Columns in which something ran: the grid's order, then others."""
        ran = dict.fromkeys(column for _, column in self.tallies)
        first = [str(column) for column in COLUMNS if str(column) in ran]
        return first + [column for column in ran if column not in first]

    def command(self, problem: Problem) -> str:
        """Return the command that shows a problem again."""
        return f"tcusim agree --backend {self.backend} --arch {self.arch} --case '{problem.case}'"

    def summary(self) -> str:
        """Return one line for all, then lines for what was skipped and what went wrong."""
        total = self.total
        lines = [
            f"{self.backend} and the simulator ({self.arch}): {total.cases:,} cases, "
            f"{total.outputs:,} outputs compared, {total.differ:,} differ, "
            f"{total.failed:,} cases failed; {self.seconds:.0f} s"
        ]
        lines += [f"not run, {count}: {reason}" for reason, count in self.skipped.most_common()]
        if self.left:
            lines.append(f"not run, {self.left}: the time was up")
        if not total.outputs:
            lines.append("nothing was compared")
        for problem in self.problems[:_SHOWN_PROBLEMS]:
            lines += [problem.text, f"  {self.command(problem)}"]
        more = len(self.problems) - _SHOWN_PROBLEMS
        return "\n".join([*lines, *([f"and {more} more cases"] if more > 0 else [])])

    def text(self) -> str:
        """Return the table as plain text, a line for each cell, and the summary."""
        cells = [
            f"{name:<26} {column:<26} {tally}" for (name, column), tally in self.tallies.items()
        ]
        return "\n".join([*cells, self.summary()])

    def as_json(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return {
            "backend": self.backend,
            "arch": self.arch,
            "seconds": round(self.seconds, 3),
            **asdict(self.total),
            "left": self.left,
            "skipped": dict(self.skipped),
            "cells": [
                {"algorithm": name, "column": column, **asdict(tally)}
                for (name, column), tally in self.tallies.items()
            ],
            "problems": [
                {"case": one.case, "text": one.text, "command": self.command(one)}
                for one in self.problems
            ],
        }


_SHOWN_PROBLEMS: Final = 5
_KEPT_PROBLEMS: Final = 100


def agree(
    grid: Grid | None = None,
    *,
    backend: str = "host",
    arch: str | None = None,
    seconds: float | None = None,
    jobs: int = 1,
    progress: Callable[[int, int], object] | None = None,
    options: dict[str, Any] | None = None,
) -> Report:
    """Compare a backend with the simulator over a grid.

    Parameters
    ----------
    grid : Grid, optional
        Which programs; by default one for each algorithm and column.
    backend : str
        Name of the backend.
    arch : str, optional
        The numerics to follow; by default those of the backend's device, else "hopper".
    seconds : float, optional
        Begin no further program after this time.
    jobs : int
        Processes; what a backend compiles, it then compiles in that many at a time.
    progress : callable, optional
        Called with the programs done and their number.
    options : dict, optional
        Options for the backend's `run`.

    Raises
    ------
    BackendUnavailable
        If the backend cannot run here.
    """
    grid = grid or Grid()
    report = Report(backend, arch or native_arch(get_backend(backend)) or "hopper")
    start = time.monotonic()
    tasks = [
        _Task(number, recipe, grid.full, backend, report.arch, options or {})
        for number, recipe in enumerate(grid.recipes())
    ]
    for done, (task, outcome) in enumerate(_outcomes(tasks, jobs, start, seconds), start=1):
        _count(report, task, outcome)
        if progress is not None:
            progress(done, len(tasks))
    order = {str(column): place for place, column in enumerate(grid.columns)}
    rank = {row.name: place for place, row in enumerate(algorithms())}
    ordered = sorted(report.tallies.items(), key=lambda i: (rank[i[0][0]], order.get(i[0][1], 0)))
    report.tallies = dict(ordered)
    report.seconds = time.monotonic() - start
    return report


@dataclass(frozen=True, slots=True)
class _Task:
    """One recipe for one backend."""

    number: int
    recipe: Recipe
    full: bool
    backend: str
    arch: str
    options: dict[str, Any]


@dataclass(slots=True)
class _Outcome:
    """What became of one recipe. skipped: why it did not run; "" if it did."""

    tally: Tally = field(default_factory=Tally)
    skipped: str = ""
    problems: list[Problem] = field(default_factory=list)


def _outcomes(
    tasks: list[_Task], jobs: int, start: float, seconds: float | None
) -> Iterator[tuple[_Task, _Outcome | None]]:
    """Yield what became of each task, None if the time was up; in order if there is one process."""
    limit = None if seconds is None else start + seconds
    if jobs == 1:
        for task in tasks:
            late = limit is not None and time.monotonic() > limit
            yield task, None if late else _run(task)
        return
    # A process that was forked could not use CUDA.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(_run_in_time, task, _remaining(limit)): task for task in tasks}
        for future in as_completed(waiting):
            yield waiting[future], future.result()


def _remaining(limit: float | None) -> float | None:
    """Return the time of day at which no task may begin any more."""
    return None if limit is None else time.time() + (limit - time.monotonic())


def _run_in_time(task: _Task, limit: float | None) -> _Outcome | None:
    return None if limit is not None and time.time() > limit else _run(task)


def _run(task: _Task) -> _Outcome:
    """Run every case of a recipe on the backend and on the simulator."""
    outcome = _Outcome()
    runner, reference = get_backend(task.backend), get_backend("numpy")
    for case in cases_of(task.recipe, task.number, full=task.full):
        program, inputs = case.recipe.build(), case.inputs()
        try:
            expected = run(program, inputs, backend=reference, arch=task.arch)
            got = run(program, inputs, backend=runner, arch=task.arch, **task.options)
        except Unsupported as error:
            return _Outcome(skipped=_reason(program, error))
        except Exception as error:
            outcome.tally.failed += 1
            outcome.problems.append(
                Problem(str(case), f"{case}\n  {type(error).__name__}: {error}")
            )
            continue
        _compare(case, expected, got, outcome, task.backend)
    if not outcome.tally.cases and not outcome.tally.failed:
        outcome.skipped = "the options do not go together"
    return outcome


def _compare(
    case: Case, expected: dict[str, Any], got: dict[str, Any], outcome: _Outcome, runner: str
) -> None:
    program = case.recipe.build()
    outcome.tally.cases += 1
    outcome.tally.outputs += sum(int(np.size(expected[one.name])) for one in program.outputs)
    for found in differences(program, expected, got):
        count, first = found.places.size, int(found.places[0])
        outcome.tally.differ += count
        text = (
            f"{case}\n  {count} of {found.one.size} elements of {found.name!r} differ, first "
            f"[{first}]: {_hex(found.one[first])} on the simulator, "
            f"{_hex(found.two[first])} on {runner}"
        )
        outcome.problems.append(Problem(str(case), text))


def _reason(program: Program, error: Unsupported) -> str:
    """Return why a program does not run, without its name, so that like reasons count together."""
    text = str(error).removeprefix(f"{program.name}: ").split(". ")[0]
    return text.removeprefix(program.name).lstrip(", ")


def _hex(bits: Any) -> str:
    return f"0x{int(bits):0{2 * bits.dtype.itemsize}x}"


def _count(report: Report, task: _Task, outcome: _Outcome | None) -> None:
    if outcome is None:
        report.left += 1
        return
    if outcome.skipped:
        report.skipped[outcome.skipped] += 1
        return
    key = (task.recipe.algorithm, str(task.recipe.column))
    report.tallies.setdefault(key, Tally()).add(outcome.tally)
    room = _KEPT_PROBLEMS - len(report.problems)
    report.problems.extend(outcome.problems[:room])
