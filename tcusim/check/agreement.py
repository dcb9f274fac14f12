"""The grid: every algorithm on every tile, with random inputs, on a backend and on the simulator.

A `Recipe` says how to build one program, a `Case` is a recipe with a length and a kind of input.
Both print as one line of text, which `tcusim agree --case` takes, and that text seeds the inputs:
a case is the same everywhere. NumPy alone is needed here, so that a machine with a GPU needs no
more.
"""

from __future__ import annotations

import itertools
import random
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, fields
from functools import lru_cache
from multiprocessing import get_context
from typing import Any, Final

import numpy as np

from tcusim.algorithms import (
    Algorithm,
    Level,
    algorithm_of,
    algorithms,
    build,
    segmented_algorithms,
)
from tcusim.backends import get_backend, native_arch, run
from tcusim.check.testing import differences, input_kinds, random_inputs
from tcusim.errors import InputError, Unsupported
from tcusim.machine.shapes import shape_or_virtual
from tcusim.program.grammar import Program

__all__ = [
    "COLUMNS",
    "Case",
    "Column",
    "Problem",
    "Recipe",
    "Report",
    "Tally",
    "agree",
    "cases",
    "columns_of",
    "recipes",
]


# --- What is compared -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column:
    """A tile with its types. source: the type of the input where it is wider than `ab`."""

    shape: str
    ab: str
    acc: str
    source: str = ""

    def __str__(self) -> str:
        parts = f"{self.source}={self.ab}" if self.source else self.ab
        return f"{self.shape} {parts}→{self.acc}"


# The tiles of WMMA and of mma.sync that kernels can be emitted for, float32 input in three bf16
# parts, and two tiles that are made of several WMMA tiles.
COLUMNS: Final = (
    *(
        Column(shape, "f16", acc)
        for shape in ("16x16x16", "32x8x16", "8x32x16")
        for acc in ("f32", "f16")
    ),
    Column("16x16x16", "bf16", "f32"),
    Column("32x8x16", "bf16", "f32"),
    Column("8x32x16", "bf16", "f32"),
    Column("16x16x16", "bf16", "f32", "f32"),
    Column("16x16x8", "tf32", "f32"),
    Column("8x8x4", "f64", "f64"),
    Column("16x16x16", "s8", "s32"),
    Column("32x8x16", "s8", "s32"),
    Column("8x32x16", "s8", "s32"),
    Column("16x8x16", "f16", "f32"),
    Column("16x8x16", "f16", "f16"),
    Column("16x8x16", "bf16", "f32"),
    Column("16x8x8", "f16", "f32"),
    Column("16x8x8", "f16", "f16"),
    Column("16x8x8", "bf16", "f32"),
    Column("16x8x8", "tf32", "f32"),
    Column("32x32x32", "f16", "f32"),
    Column("64x8x16", "f16", "f32"),
)
# An algorithm without products runs in the type of its accumulator, and has no tile.
_PLAIN_COLUMNS: Final = (
    Column("16x16x16", "f16", "f32"),
    Column("16x16x16", "f16", "f16"),
    Column("16x16x16", "s8", "s32"),
    Column("8x8x4", "f64", "f64"),
)
_FORMS: Final = ("(LA)1", "L(A1)", "[U|1]")
# ragged, segment size, warps of a block, tiles of a warp.
_LAYOUTS: Final = (
    (True, 100, 2, 2),
    (True, 1000, 4, 1),
    (True, 7, 4, 1),
    (False, None, 1, 1),
    (True, 3, 1, 2),
)
# ragged, segment size (None: the whole array), warps of a block, blocks of a group. Each warp takes
# one tile, so that several blocks share these segments.
_GRID_LAYOUTS: Final = (
    (True, None, 2, 3),
    (True, 1000, 2, 0),
    (True, None, 1, 1),
    (False, None, 1, 2),
    (True, 3000, 1, 0),
)
# The option that says how much a warp takes.
_SHARE: Final = {"reduction_grid": "per_warp", "scan_grid": "batches"}
_LENGTHS: Final = (1237, 257, 5003, 17, 1, 0)


def columns_of(shape: str) -> tuple[Column, ...]:
    """Return the columns of one shape: those of the grid, else what its instructions take."""
    own = tuple(column for column in COLUMNS if column.shape == shape_or_virtual(shape).name)
    if own:
        return own
    tile = shape_or_virtual(shape)
    return tuple(Column(tile.name, *pair) for pair in tile.pairs() or (("f16", "f32"),))


@dataclass(frozen=True, slots=True)
class Recipe:
    """The arguments of `tcusim.build` for one program; empty fields are left to it."""

    algorithm: str
    shape: str = "16x16x16"
    ab: str = "f16"
    accumulate: str = "f32"
    source: str = ""
    result: str = ""
    side: str = ""
    combine: str = "mma"
    form: str = ""
    segment_size: int = 0
    warps: int = 1
    tiles: int = 1
    ragged: bool = False
    per_warp: int = 0
    batches: int = 0
    columns: int = 0
    cols: int = 0
    inner: int = 0
    add_c: bool = False

    @property
    def column(self) -> Column:
        """The column of the grid that it belongs to."""
        return Column(self.shape, self.ab, self.accumulate, self.source)

    def build(self) -> Program:
        """Build the program; Unsupported if its parts do not go together."""
        return _built(self)

    def __str__(self) -> str:
        """Print as `scan_t shape=8x32x16 ab=f16 ...`; defaults are left out."""
        given = [
            f"{item.name}={int(value) if isinstance(value, bool) else value}"
            for item in fields(self)[1:]
            if (value := getattr(self, item.name)) != item.default
        ]
        return " ".join([self.algorithm, *given])


@lru_cache(maxsize=64)
def _built(recipe: Recipe) -> Program:
    given = {item.name: getattr(recipe, item.name) for item in fields(recipe)[1:]}
    options = {name: value for name, value in given.items() if value or name == "ragged"}
    options["shape"] = shape_or_virtual(recipe.shape)
    if not algorithm_of(recipe.algorithm).uses_mma:
        options.setdefault("source", recipe.accumulate)
    return build(recipe.algorithm, **options)


@dataclass(frozen=True, slots=True)
class Case:
    """A program with an input. kind: one of `tcusim.check.testing.INPUT_KINDS`."""

    recipe: Recipe
    length: int
    kind: str

    def inputs(self) -> dict[str, Any]:
        """Return the inputs, drawn from the case's text as the seed."""
        rng = np.random.default_rng(zlib.crc32(str(self).encode()))
        return random_inputs(self.recipe.build(), self.kind, self.length, rng)

    def __str__(self) -> str:
        return f"{self.recipe} length={self.length} input={self.kind}"

    @staticmethod
    def parse(text: str) -> Case:
        """Return the case that a text such as `scan_t side=a length=17 input=normal` says.

        Raises
        ------
        InputError
            If a word is not NAME=VALUE, or no case has such a name.
        """
        algorithm, *words = text.split() or [""]
        given = dict(_pair(word) for word in words)
        length = _integer("length", given.pop("length", "1000"))
        kind = given.pop("input", "normal")
        types = {item.name: item.type for item in fields(Recipe)[1:]}
        arguments: dict[str, Any] = {}
        for name, value in given.items():
            if name not in types:
                known = ", ".join((*types, "length", "input"))
                raise InputError(f"a case has no {name!r}; it has {known}")
            integral = types[name] in ("int", "bool")
            arguments[name] = _integer(name, value) if integral else value
            if types[name] == "bool":
                arguments[name] = bool(arguments[name])
        return Case(Recipe(algorithm_of(algorithm).name, **arguments), length, kind)


def _pair(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals:
        raise InputError(f"a case is ALGORITHM NAME=VALUE ..., got {word!r}")
    return name, value


def _integer(name: str, value: str) -> int:
    if not value.isdecimal():
        raise InputError(f"{name} must be a whole number, got {value!r}")
    return int(value)


# --- The grid ---------------------------------------------------------------------------------


def recipes(
    names: Sequence[str] = (), columns: Sequence[Column] = COLUMNS, *, full: bool = False
) -> Iterator[Recipe]:
    """Yield the recipes of a grid, always the same ones in the same order.

    Parameters
    ----------
    names : sequence of str
        Algorithms; none for all that are registered.
    columns : sequence of Column
        Tiles and types.
    full : bool
        Every side, form, way to combine and layout, shuffled so that a part is a fair sample. If
        not, one program for each algorithm and column; which options it has goes round.
    """
    rows = [algorithm_of(name) for name in names] or list(segmented_algorithms())
    for row in rows:
        if row.kind == "product":
            raise Unsupported(
                f"the grid is of sums and scans of segments, and {row.name!r} is a product; "
                "compare its program with tcusim.check.testing.assert_agree"
            )
    cells = [(row, column) for row in rows for column in columns if _has_cell(row, column)]
    if not full:
        for number, (row, column) in enumerate(cells):
            yield from _one_of(list(_options(row, column)), number)
        return
    everything = [recipe for row, column in cells for recipe in _options(row, column)]
    random.Random(0).shuffle(everything)
    yield from everything


def _has_cell(row: Algorithm, column: Column) -> bool:
    return row.uses_mma or column in _PLAIN_COLUMNS


def _options(row: Algorithm, column: Column) -> Iterator[Recipe]:
    """Yield every recipe of one cell; some may not go together."""
    sides = ("a", "b") if row.uses_mma else ("",)
    # Parts of a split input are combined by additions: products would round them.
    combines = ("add",) if column.source or not row.uses_mma else tuple(sorted(row.combines))
    forms = _FORMS if "form" in row.options else ("",)
    results = {"f32": ("", "f16"), "f16": ("", "f32")}.get(column.acc, ("",))
    if column.ab == "bf16":
        results = ("", "bf16")
    if row.level is Level.GRID:
        yield from _options_of_grid(row, column, results)
        return
    for layout, side, combine, form in itertools.product(_LAYOUTS, sides, combines, forms):
        ragged, segment_size, warps, tiles = layout
        result = results[ragged and warps == 4 and len(results) > 1 and side != "a"]
        yield Recipe(
            row.name,
            column.shape,
            column.ab,
            column.acc,
            column.source,
            result,
            side,
            combine,
            form,
            segment_size or 0,
            warps,
            tiles,
            ragged,
        )


def _options_of_grid(row: Algorithm, column: Column, results: tuple[str, ...]) -> Iterator[Recipe]:
    """Yield every recipe of one cell in which blocks share segments, or the whole array."""
    for layout, side in itertools.product(_GRID_LAYOUTS, ("a", "b")):
        ragged, segment_size, warps, columns = layout
        given: dict[str, Any] = {_SHARE[row.name]: 1} if row.name in _SHARE else {}
        yield Recipe(
            row.name,
            column.shape,
            column.ab,
            column.acc,
            column.source,
            results[columns == 3 and len(results) > 1 and side == "b"],
            side,
            row.combines[0],
            segment_size=segment_size or 0,
            warps=warps,
            ragged=ragged,
            columns=columns,
            **given,
        )


def _one_of(choices: list[Recipe], number: int) -> Iterator[Recipe]:
    """Yield one recipe that can be built, beginning at a place that depends on the number."""
    for turn in range(len(choices)):
        # A step of 7 visits all choices, and changes several options at once.
        recipe = choices[(7 * number + turn) % len(choices)]
        try:
            recipe.build()
        except Unsupported:
            continue
        yield recipe
        return


def cases(
    names: Sequence[str] = (), columns: Sequence[Column] = COLUMNS, *, full: bool = False
) -> Iterator[Case]:
    """Yield the cases of a grid: each recipe that can be built, with two kinds of input, or all.

    The parameters are those of `recipes`.
    """
    for number, recipe in enumerate(recipes(names, columns, full=full)):
        yield from _cases_of(recipe, number, full)


def _cases_of(recipe: Recipe, number: int, full: bool) -> Iterator[Case]:
    try:
        program = recipe.build()
    except Unsupported:
        return
    kinds = input_kinds(program.inputs[0].dtype)
    if not full:
        kinds = tuple(kinds[(2 * number + turn) % len(kinds)] for turn in range(2))
    for turn, kind in enumerate(kinds):
        multiple = program.scalars[0].multiple_of
        length = _LENGTHS[(number + turn) % len(_LENGTHS)] if recipe.ragged else 3 * multiple
        yield Case(recipe, length, kind)


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
        self.cases += other.cases
        self.outputs += other.outputs
        self.differ += other.differ
        self.failed += other.failed

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
        total = self.total
        return {
            "backend": self.backend,
            "arch": self.arch,
            "seconds": round(self.seconds, 3),
            "cases": total.cases,
            "outputs": total.outputs,
            "differ": total.differ,
            "failed": total.failed,
            "left": self.left,
            "skipped": dict(self.skipped),
            "cells": [
                {
                    "algorithm": name,
                    "column": column,
                    "cases": tally.cases,
                    "outputs": tally.outputs,
                    "differ": tally.differ,
                    "failed": tally.failed,
                }
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
    names: Sequence[str] = (),
    *,
    backend: str = "host",
    arch: str | None = None,
    columns: Sequence[Column] = COLUMNS,
    full: bool = False,
    seconds: float | None = None,
    jobs: int = 1,
    progress: Callable[[int, int], object] | None = None,
    options: dict[str, Any] | None = None,
) -> Report:
    """Compare a backend with the simulator over a grid.

    Parameters
    ----------
    names, columns, full
        Which grid; see `recipes`.
    backend : str
        Name of the backend.
    arch : str, optional
        The numerics to follow; by default those of the backend's device, else "hopper".
    seconds : float, optional
        Begin no further program after this time.
    jobs : int
        Processes; what a backend compiles, it then compiles in so many at a time.
    progress : callable, optional
        Called with the programs done and their number.
    options : dict, optional
        Options for the backend's `run`.

    Raises
    ------
    BackendUnavailable
        If the backend cannot run here.
    """
    runner = get_backend(backend)
    report = Report(backend, arch or native_arch(runner) or "hopper")
    start = time.monotonic()
    todo = list(enumerate(recipes(names, columns, full=full)))
    tasks = [
        _Task(number, recipe, full, backend, report.arch, options or {}) for number, recipe in todo
    ]
    for done, (task, outcome) in enumerate(_outcomes(tasks, jobs, start, seconds), start=1):
        _count(report, task, outcome)
        if progress is not None:
            progress(done, len(tasks))
    order = {str(column): place for place, column in enumerate(columns)}
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
    for case in _cases_of(task.recipe, task.number, task.full):
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
