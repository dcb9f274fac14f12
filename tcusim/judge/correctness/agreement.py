"""Is a backend right? Random cases are run on it and on the simulator; all bits are compared."""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import product
from typing import Any, Final

from tcusim.algorithms import algorithms
from tcusim.backends import get_backend, native_arch, run
from tcusim.errors import Unsupported
from tcusim.judge.correctness.cases import COLUMNS, CaseGrid, Recipe, cases_of
from tcusim.judge.correctness.testing import differences
from tcusim.judge.run import Jobs, Progress, executor_of, run_cases
from tcusim.program.grammar import Program
from tcusim.table import Table, Tabular

__all__ = ["Agreement", "Failure", "Tally", "agree"]

_SHOWN_FAILURES: Final = 5
_KEPT_FAILURES: Final = 100


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
class Failure:
    """A case that did not agree, or did not run. text: what was seen."""

    case: str
    text: str


@dataclass(slots=True)
class Agreement(Tabular):
    """The result of a comparison.

    backend, arch: what was compared with the simulator, in whose arithmetic. tallies: by algorithm
    and column. skipped: reasons why programs did not run, with how many. problems: the first ones.
    left: programs that time did not suffice for.
    """

    backend: str
    arch: str
    tallies: dict[tuple[str, str], Tally] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    problems: list[Failure] = field(default_factory=list)
    left: int = 0
    seconds: float = 0.0

    def add(self, other: Agreement) -> None:
        """Take in what was found of other programs."""
        for key, tally in other.tallies.items():
            self.tallies.setdefault(key, Tally()).add(tally)
        self.skipped += other.skipped
        self.problems += other.problems[: _KEPT_FAILURES - len(self.problems)]
        self.left += other.left

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

    def command(self, problem: Failure) -> str:
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
        for problem in self.problems[:_SHOWN_FAILURES]:
            lines += [problem.text, f"  {self.command(problem)}"]
        if len(self.problems) > _SHOWN_FAILURES:
            lines.append(f"and {len(self.problems) - _SHOWN_FAILURES} more cases")
        return "\n".join(lines)

    def table(self) -> Table:
        """Return a row for each algorithm, a column for each tile and types, and the totals."""
        rows = [
            (name, *(str(self.tallies.get((name, column), "")) for column in self.columns))
            for name in self.algorithms
        ]
        for name, count in (("outputs compared", "outputs"), ("outputs that differ", "differ")):
            sums = dict.fromkeys(self.columns, 0)
            for (_, column), tally in self.tallies.items():
                sums[column] += getattr(tally, count)
            rows.append((name, *(f"{total:,}" for total in sums.values())))
        return Table(
            ("algorithm", *(column.replace(" ", "\n") for column in self.columns)),
            rows if self.tallies else (),
            summary=self.summary(),
            align="l" + "r" * len(self.columns),
            totals=2,
        )

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
            "problems": [{**asdict(one), "command": self.command(one)} for one in self.problems],
        }


def agree(
    grid: CaseGrid | None = None,
    *,
    backend: str = "host",
    arch: str | None = None,
    seconds: float | None = None,
    jobs: Jobs = 1,
    progress: Progress | None = None,
    options: dict[str, Any] | None = None,
) -> Agreement:
    """Compare a backend with the simulator over a grid.

    Parameters
    ----------
    grid : CaseGrid, optional
        Which programs; by default one for each algorithm and column.
    backend : str
        Name of the backend.
    arch : str, optional
        The numerics to follow; by default those of the backend's device, else "hopper".
    seconds : float, optional
        Begin no further program after this time.
    jobs : int or Executor, optional
        A number of processes, each of which compiles and runs programs, None for one a processor;
        or an executor.
    progress : callable, optional
        Called with the programs done and their number, before the first and after each.
    options : dict, optional
        Options for the backend's `run`.

    Raises
    ------
    BackendUnavailable
        If the backend cannot run here.
    """
    grid = grid or CaseGrid()
    start = time.time()
    report = Agreement(backend, arch or native_arch(get_backend(backend)) or "hopper")
    compare = partial(
        _compare,
        full=grid.full,
        backend=backend,
        arch=report.arch,
        until=math.inf if seconds is None else start + seconds,
        options=options or {},
    )
    with executor_of(jobs) as executor:
        programs = list(enumerate(grid.recipes()))
        for found in run_cases(compare, programs, executor, progress=progress):
            report.add(found)
    cells = product(report.algorithms, report.columns)
    report.tallies = {cell: report.tallies[cell] for cell in cells if cell in report.tallies}
    report.seconds = time.time() - start
    return report


def _compare(
    numbered: tuple[int, Recipe],
    *,
    full: bool,
    backend: str,
    arch: str,
    until: float,
    options: dict[str, Any],
) -> Agreement:
    """Run every case of a recipe on the backend and on the simulator, if there is time."""
    number, recipe = numbered
    report, tally = Agreement(backend, arch), Tally()
    if time.time() > until:
        report.left = 1
        return report
    runner, reference = get_backend(backend), get_backend("numpy")
    for case in cases_of(recipe, number, full=full):
        program, inputs = recipe.build(), case.inputs()
        try:
            expected = run(program, inputs, backend=reference, arch=arch)
            got = run(program, inputs, backend=runner, arch=arch, **options)
            found = differences(program, expected, got)
        except Unsupported as error:
            return Agreement(backend, arch, skipped=Counter([_reason(program, error)]))
        # Whatever a backend raises, or returns, is a finding about it.
        except Exception as error:
            tally.failed += 1
            text = f"{case}\n  {type(error).__name__}: {error}"
            report.problems.append(Failure(str(case), text))
            continue
        tally.cases += 1
        tally.outputs += sum(output.size for output in expected.values())
        for one in found:
            tally.differ += one.places.size
            first = int(one.places[0])
            right, wrong = one.numbers(first)
            text = (
                f"{case}\n  {one.places.size} of {one.one.size} elements of {one.name!r} differ, "
                f"first [{first}]: {right} on the simulator, {wrong} on {backend}"
            )
            report.problems.append(Failure(str(case), text))
    if tally.cases or tally.failed:
        report.tallies[recipe.algorithm, str(recipe.column)] = tally
    else:
        report.skipped["the options do not go together"] += 1
    return report


def _reason(program: Program, error: Unsupported) -> str:
    """Return why a program does not run, without its name, so that like reasons count together."""
    text = str(error).removeprefix(f"{program.name}: ").split(". ")[0]
    return text.removeprefix(program.name).lstrip(", ")
