"""Is a backend right? Random cases are run on it and on the simulator; all bits are compared."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, product
from typing import Any, Final

from tcusim.algorithms import algorithms
from tcusim.backends import get_backend, native_arch, run
from tcusim.errors import Unsupported
from tcusim.judge.correctness.cases import COLUMNS, CaseGrid, Recipe, cases_of
from tcusim.judge.correctness.testing import Difference, differences
from tcusim.judge.run import Jobs, Progress, executor_of, run_cases
from tcusim.program.grammar import Program
from tcusim.table import Table, Tabular

_SHOWN_FAILURES: Final = 5
_LATE: Final = "the time was up"


@dataclass(frozen=True, slots=True)
class Compared:
    """A case on a backend and on the simulator; or a program without a case that ran.

    Attributes
    ----------
    algorithm, column : str
        The row and the column of the table.
    case : str
        The case, as `--case` takes it; empty where none ran.
    outputs, differ : int
        Elements compared, and elements that differ.
    failed : bool
        Whether the backend raised an error.
    text : str
        The difference or the error; of a program that did not run, the reason.
    """

    algorithm: str
    column: str
    case: str = ""
    outputs: int = 0
    differ: int = 0
    failed: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class Tally:
    """Numbers of cases that ran, outputs compared, outputs that differ, and cases that failed."""

    cases: int
    outputs: int
    differ: int
    failed: int

    @staticmethod
    def of(compared: Iterable[Compared]) -> Tally:
        """Return the tally of cases."""
        ran = [one for one in compared if one.case]
        failed = sum(one.failed for one in ran)
        outputs, differ = (sum(getattr(one, n) for one in ran) for n in ("outputs", "differ"))
        return Tally(len(ran) - failed, outputs, differ, failed)

    def __str__(self) -> str:
        if self.failed:
            return f"{self.failed} of {self.cases + self.failed} failed"
        return f"{self.differ} DIFFER" if self.differ else f"{self.cases} ok"


@dataclass(frozen=True, slots=True)
class Agreement(Tabular):
    """The result of a comparison.

    Attributes
    ----------
    backend, arch : str
        The backend that was compared with the simulator, and the arithmetic of both.
    compared : tuple of Compared
        The cases, and the programs that did not run.
    seconds : float
        The time taken.
    native : bool
        Whether the arithmetic is that of the backend's own device: its instructions computed.
    """

    backend: str
    arch: str
    compared: tuple[Compared, ...] = ()
    seconds: float = 0.0
    native: bool = False

    @property
    def total(self) -> Tally:
        """The tally of all cases."""
        return Tally.of(self.compared)

    @property
    def tallies(self) -> dict[tuple[str, str], Tally]:
        """Tallies by algorithm, as in the registry, and column: the grid's order, then others."""
        cells: dict[tuple[str, str], list[Compared]] = {}
        for one in self.compared:
            if one.case:
                cells.setdefault((one.algorithm, one.column), []).append(one)
        names = (row.name for row in algorithms())
        every = product(names, _ordered(column for _, column in cells))
        return {cell: Tally.of(cells[cell]) for cell in every if cell in cells}

    @property
    def skipped(self) -> Counter[str]:
        """Numbers of programs that did not run, by their reasons."""
        return Counter(one.text for one in self.compared if not one.case and one.text != _LATE)

    @property
    def left(self) -> int:
        """The number of programs that the time did not suffice for."""
        return sum(one.text == _LATE for one in self.compared)

    @property
    def problems(self) -> list[Compared]:
        """The cases that differ or failed."""
        return [one for one in self.compared if one.differ or one.failed]

    @property
    def compared_in_words(self) -> str:
        """The cases and outputs that were compared, and those that differ or failed."""
        total = self.total
        return (
            f"{total.cases:,} cases, {total.outputs:,} outputs compared, {total.differ:,} differ, "
            f"{total.failed:,} cases failed"
        )

    @property
    def in_brief(self) -> str:
        """The cases and outputs that were compared, for a cell of a table."""
        return f"{self.total}, {self.total.outputs:,} outputs"

    @property
    def ok(self) -> bool:
        """Whether outputs were compared, and all agree."""
        total = self.total
        return total.outputs > 0 and not total.differ and not total.failed

    def command(self, problem: Compared) -> str:
        """Return the command that shows a problem again."""
        return f"tcusim agree --backend {self.backend} --arch {self.arch} --case '{problem.case}'"

    def summary(self) -> str:
        """Return one line for all, with the time taken, then `notes`."""
        first = f"{self.backend} and the simulator ({self.arch}): {self.compared_in_words}"
        return "\n".join([f"{first}; {self.seconds:.0f} s", *self.notes()])

    def notes(self) -> list[str]:
        """Return lines for programs that did not run, and for failures."""
        lines = [f"not run, {count}: {reason}" for reason, count in self.skipped.most_common()]
        if self.left:
            lines.append(f"not run, {self.left}: {_LATE}")
        if not self.total.outputs:
            lines.append("nothing was compared")
        problems = self.problems
        for problem in problems[:_SHOWN_FAILURES]:
            lines += [f"{problem.case}\n  {problem.text}", f"  {self.command(problem)}"]
        if len(problems) > _SHOWN_FAILURES:
            lines.append(f"and {len(problems) - _SHOWN_FAILURES} more cases")
        return lines

    def table(self) -> Table:
        """Return a row for each algorithm, a column for each tile and types, and the totals."""
        tallies = self.tallies
        names = dict.fromkeys(name for name, _ in tallies)
        columns = _ordered(column for _, column in tallies)
        rows = [
            (name, *(str(tallies.get((name, column), "")) for column in columns)) for name in names
        ]
        for name, count in (("outputs compared", "outputs"), ("outputs that differ", "differ")):
            sums = dict.fromkeys(columns, 0)
            for (_, column), tally in tallies.items():
                sums[column] += getattr(tally, count)
            rows.append((name, *(f"{total:,}" for total in sums.values())))
        return Table(
            ("algorithm", *(column.replace(" ", "\n") for column in columns)),
            rows if tallies else (),
            summary=self.summary(),
            align="l" + "r" * len(columns),
            totals=2,
        )

    def as_json(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return {
            "backend": self.backend,
            "arch": self.arch,
            "native": self.native,
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


def _ordered(columns: Iterable[str]) -> list[str]:
    """Return columns in the grid's order, then others."""
    ran = dict.fromkeys(columns)
    first = [str(column) for column in COLUMNS if str(column) in ran]
    return first + [column for column in ran if column not in first]


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
    own = native_arch(get_backend(backend))
    arch = arch or own or "hopper"
    compare = partial(
        _compare,
        full=grid.full,
        backend=backend,
        arch=arch,
        until=math.inf if seconds is None else start + seconds,
        options=options or {},
    )
    with executor_of(jobs) as executor:
        programs = list(enumerate(grid.recipes()))
        found = run_cases(compare, programs, executor, progress=progress)
    cases = tuple(chain.from_iterable(found))
    return Agreement(backend, arch, cases, time.time() - start, arch == own)


def _compare(
    numbered: tuple[int, Recipe],
    *,
    full: bool,
    backend: str,
    arch: str,
    until: float,
    options: dict[str, Any],
) -> list[Compared]:
    """Run every case of a recipe on the backend and on the simulator, if there is time."""
    number, recipe = numbered
    none = Compared(recipe.algorithm, str(recipe.column))
    if time.time() > until:
        return [replace(none, text=_LATE)]
    runner, reference = get_backend(backend), get_backend("numpy")
    compared = []
    for case in cases_of(recipe, number, full=full):
        program, inputs = recipe.build(), case.inputs()
        one = replace(none, case=str(case))
        try:
            expected = run(program, inputs, backend=reference, arch=arch)
            got = run(program, inputs, backend=runner, arch=arch, **options)
            found = differences(program, expected, got)
        except Unsupported as error:
            return [replace(none, text=_reason(program, error))]
        # Whatever a backend raises, or returns, is a finding about it.
        except Exception as error:
            compared.append(replace(one, failed=True, text=f"{type(error).__name__}: {error}"))
            continue
        outputs = sum(output.size for output in expected.values())
        differ = sum(each.places.size for each in found)
        text = "\n  ".join(_difference(each, backend) for each in found)
        compared.append(replace(one, outputs=outputs, differ=differ, text=text))
    return compared or [replace(none, text="the options do not go together")]


def _difference(one: Difference, backend: str) -> str:
    first = int(one.places[0])
    right, wrong = one.numbers(first)
    return (
        f"{one.places.size} of {one.one.size} elements of {one.name!r} differ, "
        f"first [{first}]: {right} on the simulator, {wrong} on {backend}"
    )


def _reason(program: Program, error: Unsupported) -> str:
    """Return why a program does not run, without its name, so that like reasons count together."""
    text = str(error).removeprefix(f"{program.name}: ").split(". ")[0]
    return text.removeprefix(program.name).lstrip(", ")
