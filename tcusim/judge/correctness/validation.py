"""Is a tile shape any good? Every registered algorithm is built for it, run, checked and counted.

`validate_shape` needs nothing but the three sizes: the simulator multiplies tiles that no GPU has.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, Final

import numpy as np

from tcusim.algorithms import Algorithm, algorithm_of, build
from tcusim.backends import find_emitter
from tcusim.errors import InputError, TcusimError, Unsupported, require_flags
from tcusim.judge.correctness.cases import Case, Recipe
from tcusim.judge.correctness.kinds import KINDS, Kind, Tile, exact_up_to, layouts
from tcusim.judge.correctness.memory import require_bytes
from tcusim.judge.correctness.shape_report import (
    MmaCount,
    ShapeReport,
    ShapeRow,
    Variant,
    has_formula,
    variants_of,
)
from tcusim.judge.cost.occupancy import fragment_registers
from tcusim.judge.run import Progress, run_cases
from tcusim.machine import arches, format_of, rule_for
from tcusim.machine.shapes import MmaShape, shape_of
from tcusim.program.bind import offsets_of
from tcusim.program.checks.verifier import verify
from tcusim.program.grammar import Accesses, Mma, Program, Space
from tcusim.program.resources import SharedMemory
from tcusim.simulate.counts import Counts
from tcusim.simulate.interpreter import Event, run_numpy

# The simulator's costs, roughly, on a core of 2024. An mma of one warp: bytes held for each element
# of the three tiles, and seconds for each multiply-add. A program: seconds to build and to verify
# it for each element, and seconds for each run, however small.
_BYTES_PER_ELEMENT: Final = 64
_SECONDS_PER_MULTIPLY_ADD: Final = 2e-9
_SECONDS_PER_ELEMENT: Final = 5e-7
_SECONDS_PER_RUN: Final = 0.01
# Blocks that a run has, and mma steps that a tile takes: a sum takes one, most scans three.
_BLOCKS: Final = 2
_MMA_PER_TILE: Final = 2
# Lengths that are tried of a program, if several are, and if not.
_LENGTHS: Final = {True: 8, False: 2}


def validate_shape(
    shape: str | tuple[int, int, int] | MmaShape,
    *,
    ab: str = "f16",
    acc: str = "f32",
    arch: str = "exact",
    algorithms: Sequence[str] | None = None,
    full: bool = False,
    progress: Progress | None = None,
) -> ShapeReport:
    """Find the algorithms that a tile shape can do, their correctness, and their cost.

    Each algorithm of the registry is tried with the data in either operand: whether it can be
    built; whether it gives the exact sums of small random integers, for segments and lengths
    around the edges of the tile; whether it takes as many mma steps as its formula says; how much
    of the tile it uses; and whether a GPU's instruction can run it.

    Parameters
    ----------
    shape : str, tuple or MmaShape
        Three sizes, M-N-K order, such as ``"64x8x16"``; a registered shape, or any sizes at all.
    ab, acc : str
        Element types of the operands and of the accumulator.
    arch : str
        Whose arithmetic; "exact" looks at the algorithms alone.
    algorithms : sequence of str, optional
        Names of the registry, or the paper's; by default all.
    full : bool
        Try many more sizes and layouts, which takes some ten times as long.
    progress : callable, optional
        Called with the part that is done and the whole, which is 1000.

    Returns
    -------
    ShapeReport
        A row for each algorithm and side; `print` shows it.

    Raises
    ------
    UnknownName
        For a type, architecture or algorithm that is not registered.
    Unsupported
        If the shape, or the architecture, does not take these types.
    InputError
        If the shape is not three sizes of at least 1, or one mma does not fit in memory.

    Examples
    --------
    >>> report = validate_shape((5, 7, 3), algorithms=["reduction_t", "scan_k"])
    >>> report.ok, [row.mma for row in report.rows]
    (True, [3, 4, 1, 1])
    """
    trials = trials_of(shape_of(shape), algorithms, ab=ab, acc=acc, arch=arch, full=full)
    rows = run_cases(Trial.run, trials, seconds=attrgetter("seconds"), progress=progress)
    return report_of(trials[0], rows)


def report_of(trial: Trial, rows: Sequence[ShapeRow]) -> ShapeReport:
    """Return the report of the rows of a tile, by one of its trials."""
    return ShapeReport(trial.shape.name, trial.ab, trial.acc, trial.arch, trial.full, tuple(rows))


# Of the programs for a tile, one of so many is tried where it is brief.
_PART: Final = 3


def trials_of(
    shape: MmaShape,
    algorithms: Sequence[str] | None = None,
    *,
    ab: str,
    acc: str,
    arch: str,
    full: bool = False,
    brief: bool = False,
) -> list[Trial]:
    """Return a trial of each algorithm, with each set of its options and on each side.

    brief: a third of the programs, as other tiles of the unit have all. The other arguments and
    the errors are those of `validate_shape`.
    """
    require_flags(full=full)
    require_types(shape, ab, acc)
    rule_for(arch, ab, acc, shape.family(ab, acc))
    require_bytes(_mma_bytes(shape), f"one mma of {shape.name} tiles on the simulator")
    variants = variants_of(algorithms)
    return [Trial(shape, ab, acc, arch, full, brief, variant) for variant in variants]


def _mma_bytes(shape: MmaShape) -> int:
    """Return the bytes that an mma of one warp takes on the simulator."""
    return _BYTES_PER_ELEMENT * _elements(shape)


def _elements(shape: MmaShape) -> int:
    """Return the elements of the three tiles of an mma."""
    return shape.m * shape.n + shape.m * shape.k + shape.k * shape.n


def require_types(shape: MmaShape, ab: str, acc: str) -> None:
    """Refuse types that are none, or that a shape does not take."""
    format_of(ab)
    format_of(acc)
    if not shape.supports(ab, acc):
        pairs = ", ".join(f"{one} to {other}" for one, other in shape.pairs())
        if shape.operands and not pairs:
            pairs = "types that tcusim does not sum"
        raise Unsupported(
            f"shape {shape.name} does not take {ab} to {acc}; it takes "
            f"{pairs or 'f16 to f32 and other types of tensor cores'}. Choose ab and acc"
        )


@dataclass
class Trial:
    """A variant of an algorithm on a tile.

    attempt: the program or run in progress. programs, unproven: the number of programs tried, and
    the properties not proved of them for all sizes.
    """

    shape: MmaShape
    ab: str
    acc: str
    arch: str
    full: bool
    brief: bool
    variant: Variant
    attempt: str = ""
    too_large: list[str] = field(default_factory=list)
    programs: int = 0
    unproven: dict[str, str] = field(default_factory=dict)

    @property
    def row(self) -> Algorithm:
        """The row of the registry; UnknownName in a process that does not know it."""
        return algorithm_of(self.variant.algorithm)

    @property
    def options(self) -> dict[str, str]:
        """The options of the variant."""
        return dict(self.variant.options)

    @cached_property
    def limit(self) -> int:
        """An integer up to which all is exact."""
        rule = rule_for(self.arch, self.ab, self.acc, self.shape.family(self.ab, self.acc))
        return exact_up_to(self.ab, self.acc, rule)

    @cached_property
    def kind(self) -> Kind:
        """How algorithms like this one are tried."""
        return KINDS[self.row.kind]

    @cached_property
    def tile(self) -> Tile:
        """The tile as an algorithm sees it that has its data in this operand."""
        shape = self.shape
        down, across = (shape.n, shape.m) if self.variant.side == "b" else (shape.m, shape.n)
        return Tile(down, across, shape.k)

    @property
    def seconds(self) -> float:
        """How long the trial takes, about."""
        row = self.row
        if row.kind not in KINDS:
            return _SECONDS_PER_RUN
        return sum(self._seconds_of(*tried) for tried in self.recipes) * len(row.combines)

    @cached_property
    def recipes(self) -> list[tuple[Recipe, bool]]:
        """Return the builds, each with a flag for many lengths; brief trials split them by side."""
        every = list(self.kind.programs(self.row, self.tile, self.full))
        if not self.brief or len(every) < _PART:
            return every
        return every[0 if self.variant.side == "a" else 1 :: _PART]

    def _seconds_of(self, recipe: Recipe, many: bool) -> float:
        """Return the seconds that a program takes to build and to run."""
        items: int = recipe.get("warps") * recipe.get("items_per_warp")
        mma = _MMA_PER_TILE * _BLOCKS * items * self.kind.tiles(self.row, self.tile, recipe)
        run = math.prod(self.tile) * mma * _SECONDS_PER_MULTIPLY_ADD + _SECONDS_PER_RUN
        return (
            _SECONDS_PER_ELEMENT * _elements(self.shape) + _SECONDS_PER_RUN + _LENGTHS[many] * run
        )

    def build(self, recipe: Recipe) -> Program:
        """Build the program; MemoryError if there is none for its tiles.

        The fragments of all warps are held at once, and as much again while they are multiplied.
        """
        self.attempt = recipe.text or "the default"
        try:
            require_bytes(2 * recipe.get("warps") * _mma_bytes(self.shape), "it")
        except InputError as error:
            raise MemoryError(str(error)) from error
        own = {"tile": self.shape, "side": self.variant.side, "ab": self.ab, "acc": self.acc}
        given: dict[str, Any] = {**self.options, **dict(recipe.options), **own}
        return build(self.row.name, **given)

    def run(self) -> ShapeRow:
        """Return the row of the algorithm in a report."""
        start = time.monotonic()
        found = self._tried()
        return replace(found, seconds=round(time.monotonic() - start, 3))

    def _tried(self) -> ShapeRow:
        row = self.row
        found = self.variant.untried()
        if row.kind not in KINDS:
            return replace(found, reason=f"algorithms of kind {row.kind!r} cannot be checked here")
        try:
            combines, recipe, program = self.first()
            reason = self.kind.unknown(program)
            if reason:
                return replace(found, reason=reason)
            found = self.measured(replace(found, combines=combines), recipe, program)
        except Unsupported as error:
            return replace(found, reason=str(error).removeprefix(f"{row.name}: "))
        except MemoryError as error:
            return replace(found, reason=self._no_memory(error))
        # An algorithm of somebody else's may raise anything.
        except Exception as error:
            return replace(found, cases=1, first_wrong=self._finding(error))
        outcomes = list(self._outcomes(found.combines))
        wrong = [text for text in outcomes if text]
        return replace(
            found,
            cases=len(outcomes),
            right=len(outcomes) - len(wrong),
            programs=self.programs,
            unproven=tuple(self.unproven.values()),
            first_wrong=wrong[0] if wrong else "",
            left_out=len(self.too_large),
            why_left_out=self.too_large[0] if self.too_large else "",
        )

    def _finding(self, error: Exception) -> str:
        """Return an error as a finding, if it is about the program or from another's algorithm.

        Anything else is a fault of tcusim, and is raised.
        """
        foreign = not self.row.function.__module__.startswith("tcusim.")
        if foreign or isinstance(error, TcusimError):
            return f"{self.attempt}: {type(error).__name__}: {error}"
        raise error

    def _no_memory(self, error: MemoryError) -> str:
        return f"{self.attempt}: {str(error) or 'out of memory'}"

    def first(self) -> tuple[tuple[str, ...], Recipe, Program]:
        """Return the ways to combine that are possible, and the program that is measured."""
        built: dict[str, tuple[Recipe, Program]] = {}
        refused: list[Unsupported] = []
        for combine in self.row.combines:
            recipe = self._measured_recipe(self.row.repeats, combine)
            try:
                built[combine] = (recipe, self.build(recipe))
            except Unsupported as error:
                refused.append(error)
        if not built:
            raise refused[0]
        return tuple(built), *next(iter(built.values()))

    def _measured_recipe(self, repeats: int, combine: str) -> Recipe:
        warps, items = layouts(self.row, self.tile)[0]
        measured = self.kind.measured(self.row, self.tile, repeats)
        return measured.but(**self.options, combine=combine, warps=warps, items_per_warp=items)

    def measured(self, found: ShapeRow, recipe: Recipe, program: Program) -> ShapeRow:
        """Add the counts of one block of the default program, and its needs."""
        case, usage = self._run_on_ones(program, recipe)
        volume = usage.mma * math.prod(self.tile)
        elements = self.kind.useful(case)
        gpu, gpu_reason = _on_gpu(program)
        return replace(
            found,
            counts=tuple(self._counts(case, usage.mma)),
            elements=elements,
            mma=usage.mma,
            useful=elements / volume if volume else None,
            tile_used=usage.used / volume if volume else None,
            shared_bytes=_bytes(program, Space.WARP),
            block_bytes=_bytes(program, Space.SHARED),
            bytes_read=usage.bytes_read,
            input_bytes=usage.input_bytes,
            registers=fragment_registers(program),
            gpu=gpu,
            gpu_reason=gpu_reason,
        )

    def _run_on_ones(self, program: Program, recipe: Recipe) -> tuple[Case, _Usage]:
        """Count a run of one block whose data have no zero."""
        case, usage = next(self.kind.runs(program, recipe, True)), _Usage()
        self.attempt = case.text
        inputs = self.kind.inputs(program, case, self.limit)
        for name in inputs.keys() - offsets_of(program).keys():
            inputs[name] = np.ones_like(inputs[name])
        run_numpy(program, inputs, arch=self.arch, watch=usage)
        usage.input_bytes = sum(
            len(inputs[buffer.name]) * format_of(buffer.dtype).itemsize for buffer in program.inputs
        )
        return case, usage

    def _counts(self, case: Case, counted: int) -> Iterator[MmaCount]:
        """Yield counts of the default segment, and of others if it may have any length."""
        combine, repeats = case.recipe.get("combine"), self.row.repeats
        known = combine == self.row.combines[0] and has_formula(self.variant)
        formula = self.kind.formula(self.row, self.tile, case, repeats) if known else None
        yield MmaCount(repeats, counted, formula)
        for other in sorted({1, 2, repeats + 1} - {repeats}) if known and repeats > 1 else ():
            recipe = self._measured_recipe(other, combine)
            case, usage = self._run_on_ones(self.build(recipe), recipe)
            yield MmaCount(other, usage.mma, self.kind.formula(self.row, self.tile, case, other))

    def _outcomes(self, combines: Sequence[str]) -> Iterator[str]:
        """Yield the error of each case; "" for a right one."""
        for (tried, many), combine in itertools.product(self.recipes, combines):
            recipe = tried.but(**self.options, combine=combine)
            try:
                program = self.build(recipe)
            except Unsupported:
                # Such as a segment that is longer than the algorithm's longest.
                continue
            except MemoryError as error:
                self.too_large.append(self._no_memory(error))
                continue
            # As above, here and where it runs: `_finding` raises faults of tcusim itself.
            except Exception as error:
                yield self._finding(error)
                continue
            self.programs += 1
            for name, text in zip(verify(program).unproven, verify(program).notes, strict=True):
                self.unproven.setdefault(name, f"{recipe.text or 'the default'}: {text}")
            for case in self.kind.runs(program, recipe, many):
                yield from self._outcome(program, case)

    def _outcome(self, program: Program, case: Case) -> Iterator[str]:
        """Run a case; yield its faults, "" if there are none, no text if it did not fit."""
        self.attempt = case.text
        try:
            inputs = self.kind.inputs(program, case, self.limit)
            expected = self.kind.expected(program, case, inputs)
            outputs = run_numpy(program, inputs, arch=self.arch)
        except MemoryError as error:
            self.too_large.append(self._no_memory(error))
        except Exception as error:
            yield self._finding(error)
        else:
            yield _difference(case, program.outputs[0].name, outputs, expected)


def _difference(
    case: Case, name: str, outputs: Mapping[str, Any], expected: np.ndarray[Any, Any]
) -> str:
    """Return the difference of a result from the expected one, "" if there is none."""
    got = np.asarray(outputs[name], np.float64)
    if got.shape != expected.shape:
        return f"{case.text}: {name!r} has {got.size} elements, not {expected.size}"
    places = np.flatnonzero(got != expected)
    if not places.size:
        return ""
    at = int(places[0])
    return (
        f"{case.text}: {name}[{at}] is {got[at]:g}, not {expected[at]}; "
        f"{places.size} of {got.size} elements are wrong"
    )


class _Usage(Counts):
    """A watcher that also counts the multiply-adds without a factor of zero.

    input_bytes: of the arrays that the program was given.
    """

    used: float = 0.0
    input_bytes: int = 0

    def __call__(self, event: Event, touched: Accesses | None = None) -> None:
        """Count one step."""
        super().__call__(event, touched)
        if isinstance(event.step, Mma):
            a = event.state.fragment(event.step.a, event.warps) != 0
            b = event.state.fragment(event.step.b, event.warps) != 0
            # For each l < k: the rows of column l of A, times the columns of row l of B.
            self.used += float((a.sum(axis=1) * b.sum(axis=2)).sum())


def _bytes(program: Program, space: Space) -> int:
    """Return the bytes of a program's shared memory of one space."""
    return sum(
        buffer.size.evaluate({}) * format_of(buffer.dtype).itemsize
        for buffer in program.scratch
        if buffer.space is space
    )


def _on_gpu(program: Program) -> tuple[str, str]:
    """Return the instruction that would run a program, or "" and why there is none."""
    emitter = find_emitter()
    if emitter is None:
        return "", "no installed backend emits kernels"
    try:
        instruction = emitter.instruction(program)
    except Unsupported as error:
        return "", str(error).removeprefix(f"{program.name}: ").split(". ")[0]
    needed = SharedMemory(program, lanes=instruction == "lanes").needed
    most = 1024 * max(one.shared_kb or 0 for one in arches())
    if needed <= most:
        return instruction, ""
    given = f"no GPU gives more than {most:,}"
    return "", f"a block needs {needed:,} bytes of shared memory; {given}"
