"""The tasks of a matrix unit, and the best algorithm for each: counted on its programs.

A task is the same for every unit, so that units can be compared. The comparison
counts multiply-accumulates of a tile, not those possible at a time: that needs figures of a
machine, and then time decides.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, Final, TypeAlias

import numpy as np

from tcusim.algorithms import algorithm_of, build
from tcusim.algorithms import algorithms as registered
from tcusim.errors import Unsupported
from tcusim.judge.correctness.agreement import Agreement, agree
from tcusim.judge.correctness.cases import CaseGrid, Column
from tcusim.judge.correctness.shape_report import ShapeReport, ShapeRow, Variant, variants_of
from tcusim.judge.correctness.validation import Trial, report_of, trials_of
from tcusim.judge.cost.predicted import Cost
from tcusim.judge.cost.predicted import cost as cost_of_program
from tcusim.judge.run import Progress, part_of, run_cases
from tcusim.judge.verdict.subjects import Subject
from tcusim.machine.shapes import MmaShape
from tcusim.program.grammar import Program
from tcusim.program.resources import SharedMemory
from tcusim.simulate.counts import Counts, counts_of_text
from tcusim.simulate.interpreter import run_numpy

Make: TypeAlias = Callable[..., Program]

_SHORT: Final = 16
_LONG: Final = 2**16
# Elements of an array of segments, about; rows, columns and depth of a product.
_ELEMENTS: Final = 2**26
_SIDE: Final = 1024
_SECONDS_PER_PROGRAM: Final = 0.7
# Of the algorithms, one of so many is compared on a tile that is not the first.
_PART: Final = 3
# Counting needs no proof of a program, which takes most of the time: the best is tried after.
_UNVERIFIED: Final = inspect.unwrap(build)
# Sides of a product that is run to see how often it reads its operands.
_SMALL_SIDE: Final = 128


@dataclass(frozen=True, slots=True)
class Task:
    """Something to do on a matrix unit.

    Attributes
    ----------
    name : str
        Its usual name.
    kind : str
        The algorithms' kind.
    size : int
        Elements of a segment; of a product, its rows, columns and depth.
    """

    name: str
    kind: str
    size: int

    @property
    def terms(self) -> str:
        """The unit of the work that an mma takes."""
        return "multiply-adds" if self.kind == "product" else "elements"

    def __str__(self) -> str:
        """Return the name with its size."""
        sides = f"{self.size} x {self.size} x {self.size}"
        return f"{self.name}, {sides if self.kind == 'product' else f'segments of {self.size:,}'}"


TASKS: Final = (
    Task("short sums", "reduction", _SHORT),
    Task("long sums", "reduction", _LONG),
    Task("short scans", "scan", _SHORT),
    Task("long scans", "scan", _LONG),
    Task("matrix products", "product", _SIDE),
)


@dataclass(frozen=True, slots=True)
class Candidate(Variant):
    """A variant of an algorithm for a task on one tile.

    Attributes
    ----------
    task : str
        The task's name.
    tile : str
        Such as ``"16x16x16"``.
    combine : str
        How partial sums are combined: by rounded additions, ``"add"``, where it can, as the array
        functions do; the paper's products, ``"mma"``, round them to the operands' type.
    mma : float
        Multiply-accumulates of a tile for each element of the input; of a product, for each
        multiply-add.
    useful : float
        The useful share of the tile's multiply-adds, as in `ShapeRow`.
    reads : float
        How often an element of the input is read from global memory.
    shared_bytes : int
        Shared memory of a block with one warp, all that an emitted kernel declares.
    seconds : float or None
        Predicted time on the unit; None where a figure is unknown.
    bound : str
        The bound of that time; empty where it is unknown.
    unknown : tuple of str
        The figures that a prediction lacks.
    most_bytes : int or None
        The shared memory that a block of the unit can have; None where it is unknown.
    """

    task: str
    tile: str
    combine: str
    mma: float
    useful: float
    reads: float
    shared_bytes: int
    seconds: float | None = None
    bound: str = ""
    unknown: tuple[str, ...] = ()
    most_bytes: int | None = None

    @property
    def fits(self) -> bool:
        """Whether the unit has as much shared memory as a block needs, or its memory is unknown."""
        return self.most_bytes is None or self.shared_bytes <= self.most_bytes

    @property
    def timed(self) -> bool:
        """Whether its time is known."""
        return self.seconds is not None

    @property
    def uses_mma(self) -> bool:
        """Whether it needs a matrix unit at all."""
        return self.mma > 0


# --- The candidates of a unit, tried or only counted ----------------------------------------------


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
    found: list[tuple[ShapeRow, tuple[Candidate, ...]]] = run_cases(
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


def compared(
    subject: Subject,
    backend: str,
    algorithms: Sequence[str] | None = None,
    *,
    full: bool = False,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Agreement:
    """Compare a backend with the simulator, bit for bit, on a program of each algorithm and tile.

    On the other tiles than the first, a third of the algorithms, unless it is `full`. The other
    arguments are those of `tried`.

    Raises
    ------
    UnknownName, BackendUnavailable
        If there is no such backend, or it cannot run here.
    """
    start = time.monotonic()
    found: list[Agreement] = []
    for number, tile in enumerate(subject.tiles):
        share = (number / len(subject.tiles), (number + 1) / len(subject.tiles))
        one = agree(
            CaseGrid(
                _compared_names(algorithms, 0 if full else number),
                (Column(tile.name, subject.ab, subject.acc),),
            ),
            backend=backend,
            arch=subject.arch,
            jobs=executor or 1,
            progress=part_of(progress, *share),
        )
        found.append(one)
    cases = tuple(case for one in found for case in one.compared)
    return replace(found[0], compared=cases, seconds=time.monotonic() - start)


def _compared_names(algorithms: Sequence[str] | None, number: int) -> list[str]:
    """Return the algorithms to compare on a subject's tile of this index: all on the first."""
    names = [row.name for row in registered()] if algorithms is None else list(algorithms)
    return names[number % _PART :: _PART] or names[:1] if number else names


def seconds_of(
    subject: Subject,
    algorithms: Sequence[str] | None = None,
    *,
    full: bool = False,
    backend: bool = False,
) -> float:
    """Return the seconds that `tried` takes in one process, to within a factor of a few.

    backend: those of `compared` as well, which compiles its programs.
    """
    seconds = sum(trial.seconds for trial in _trials(subject, algorithms, full))
    if backend:
        tiles = range(len(subject.tiles))
        programs = sum(len(_compared_names(algorithms, 0 if full else one)) for one in tiles)
        seconds += _SECONDS_PER_PROGRAM * programs
    return seconds


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


def _outcome(
    subject: Subject, machine: Subject | None, trial: Trial
) -> tuple[ShapeRow, tuple[Candidate, ...]]:
    """Return the row of a trial, and the candidates of a right algorithm."""
    row = trial.run()
    if not (row.possible and row.ok):
        return row, ()
    return row, tuple(_candidates_of(subject, row, trial.shape, machine=machine))


def program_of(one: Candidate, task: Task, subject: Subject) -> tuple[Program, dict[str, int]]:
    """Return the program of a candidate, and its scalars for the task's amount of data."""
    program = _build(task, one, subject, subject.unit.tile(one.tile), one.combine)
    return program, _scalars(task, program)


def _candidates_of(
    subject: Subject,
    row: ShapeRow,
    tile: MmaShape,
    tasks: Iterable[Task] = TASKS,
    *,
    machine: Subject | None = None,
    make: Make = build,
) -> Iterator[Candidate]:
    """Yield the candidates of each task for a row of a report on a tile.

    An algorithm that a task is too long or too short for is no candidate.

    machine: the unit whose figures times are predicted with; None for no times. make: builds the
    programs.
    """
    possible = row.combines or algorithm_of(row.algorithm).combines
    combines = [one for one in ("add", "mma") if one in possible]
    for task in tasks:
        if task.kind != row.kind:
            continue
        made = _first(combines, partial(_build, task, row, subject, tile, make=make))
        if made is not None:
            yield _candidate(task, row, subject, tile, machine, *made)


def cost_of(one: Candidate, task: Task, subject: Subject) -> Cost:
    """Return the cost of a candidate on the unit, for the task's amount of data."""
    return _cost(*program_of(one, task, subject), subject)


def _cost(program: Program, scalars: Mapping[str, int], subject: Subject) -> Cost:
    arrays = {buffer.name: buffer.size.evaluate(scalars) for buffer in program.inputs}
    return cost_of_program(program, subject.unit, sizes=arrays)


def best_of(
    candidates: Sequence[Candidate], task: Task, *, by_time: bool = True
) -> Candidate | None:
    """Return the best for a task of those that fit; None if none does it on the matrix unit.

    The fastest of those whose time is known. If there is none, or not `by_time`, the one with the
    fewest mma; of those, the one that reads its input least often, then the one with the least
    shared memory.
    """
    own = [one for one in candidates if one.task == task.name and one.uses_mma and one.fits]
    known = [one for one in own if by_time and one.timed]
    if known:
        return min(known, key=lambda one: (one.seconds or 0.0, one.mma))
    return min(
        own,
        key=lambda one: (round(one.mma, 9), round(one.reads, 3), one.shared_bytes),
        default=None,
    )


def counted(
    subject: Subject,
    algorithms: Sequence[str] | None = None,
    tasks: Iterable[Task] = TASKS,
    *,
    machine: Subject | None = None,
) -> tuple[Candidate, ...]:
    """Return the candidates of each task on the first tile, right or not.

    It serves to compare others with; how often inputs are read is not counted for sums and scans.

    machine: whose figures times are predicted with; None for no times.
    """
    return tuple(
        found
        for variant in variants_of(algorithms)
        for found in _candidates_of(
            *(subject, variant.untried(), subject.tiles[0], tasks),
            machine=machine,
            make=_UNVERIFIED,
        )
    )


def _candidate(
    task: Task,
    row: ShapeRow,
    subject: Subject,
    tile: MmaShape,
    machine: Subject | None,
    combine: str,
    program: Program,
) -> Candidate:
    """Return the candidate of a program."""
    sizes = _scalars(task, program)
    elements = _elements(task, sizes)
    mma = counts_of_text(program, sizes).mma
    volume = tile.m * tile.n * tile.k * mma
    shared = SharedMemory(program).needed
    space = (machine or subject).unit.shared_bytes_per_block
    most = None if space is None else int(space.value)
    fits = most is None or shared <= most
    # Here, with the program at hand: to build it again takes as long as to predict its time.
    cost = _cost(program, sizes, machine) if machine is not None and fits else None
    seconds = None if cost is None else cost.seconds
    return Candidate(
        row.algorithm,
        row.options,
        row.side,
        task.name,
        tile.name,
        combine,
        mma / elements,
        elements / volume if volume else 0.0,
        _reads(task, row, subject, tile, combine),
        shared,
        seconds,
        "" if cost is None or seconds is None else cost.bound,
        () if cost is None or seconds is not None else cost.unknown,
        most,
    )


def _first(combines: Sequence[str], make: Callable[[str], Program]) -> tuple[str, Program] | None:
    """Return the first way to combine of which there is a program, and that."""
    for combine in combines:
        try:
            return combine, make(combine)
        except (Unsupported, MemoryError):
            continue
    return None


def _build(
    task: Task,
    row: Variant,
    subject: Subject,
    tile: MmaShape,
    combine: str,
    *,
    make: Make = build,
) -> Program:
    """Build the program of a task; Unsupported or MemoryError if there is none."""
    given: dict[str, Any] = {"tile": tile, "ab": subject.ab, "acc": subject.acc}
    if task.kind == "product":
        if "cols" not in algorithm_of(row.algorithm).options:
            raise Unsupported(f"{row.algorithm} multiplies a matrix by a vector")
        given |= {"cols": task.size, "inner": task.size}
    else:
        given["segment_size"] = task.size
    given |= dict(row.options)
    return make(row.algorithm, side=row.side, combine=combine, **given)


def _scalars(task: Task, program: Program) -> dict[str, int]:
    """Return as many elements, or rows, as the program takes: the task's amount, or a bit more."""
    (scalar,) = program.scalars
    amount = task.size if task.kind == "product" else _ELEMENTS
    step = math.lcm(scalar.multiple_of, program.blocks.per)
    if task.kind != "product":
        step = math.lcm(step, task.size)
    return {scalar.name: -(-amount // step) * step}


def _elements(task: Task, sizes: Mapping[str, int]) -> int:
    (amount,) = sizes.values()
    return amount * task.size**2 if task.kind == "product" else amount


def _reads(task: Task, row: ShapeRow, subject: Subject, tile: MmaShape, combine: str) -> float:
    """Return the reads of an element of the input from global memory."""
    if task.kind != "product":
        return row.reads or 0.0
    # One that is so large that its tiles of operands are needed again.
    small = Task("", "product", _SMALL_SIDE)
    made = _first((combine,), partial(_build, small, row, subject, tile))
    if made is None:
        return 0.0
    _, program = made
    sizes = _scalars(small, program)
    inputs = {
        buffer.name: np.zeros(buffer.size.evaluate(sizes), np.int64) for buffer in program.inputs
    }
    counts = Counts()
    run_numpy(program, inputs, arch="exact", watch=counts)
    return counts.bytes_read / counts_of_text(program, sizes).bytes_read
