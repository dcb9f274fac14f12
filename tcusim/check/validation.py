"""Is a tile shape any good? Every registered algorithm is built for it, run, checked and counted.

`validate_shape` needs nothing but the three sizes: the simulator multiplies tiles that no GPU has.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from tcusim.algorithms import Algorithm, algorithm_of, algorithms, build
from tcusim.backends import Emitter, find_emitter
from tcusim.check.cases import Case, Recipe
from tcusim.check.kinds import KINDS, Kind, Tile, exact_up_to, has_formula, layouts, variants
from tcusim.check.memory import require_bytes
from tcusim.check.report import MmaCount, ShapeReport, ShapeRow
from tcusim.errors import InputError, TcusimError, Unsupported
from tcusim.machine import arches, format_of, rule_for
from tcusim.machine.shapes import MmaShape, shape_or_virtual
from tcusim.program.bind import offsets_of
from tcusim.program.grammar import Mma, Program, Space
from tcusim.program.resources import SharedMemory
from tcusim.simulate.counts import Counts
from tcusim.simulate.interpreter import Event, run_numpy

__all__ = ["Validation", "validate_shape"]

_SIDES: Final = ("a", "b")
_COMBINES: Final = ("mma", "add")

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


@dataclass(frozen=True, slots=True)
class _Target:
    """What is validated: tile, types, architecture. limit: integers up to which all is exact."""

    shape: MmaShape
    ab: str
    acc: str
    arch: str
    limit: int
    emitter: Emitter | None

    @property
    def elements(self) -> int:
        """Elements of the three tiles of an mma."""
        m, n, k = self.shape.m, self.shape.n, self.shape.k
        return m * n + m * k + k * n

    def tile(self, side: str) -> Tile:
        """Return the tile as an algorithm sees it that has its data in this operand."""
        m, n, k = self.shape.m, self.shape.n, self.shape.k
        return Tile(n, m, k) if side == "b" else Tile(m, n, k)


def validate_shape(
    shape: str | tuple[int, int, int] | MmaShape,
    *,
    ab: str = "f16",
    acc: str = "f32",
    arch: str = "exact",
    algorithms: Sequence[str] | None = None,
    full: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> ShapeReport:
    """Find out which algorithms a tile shape can do, whether they are right, and at what cost.

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
        Called with the part that is done and the whole, which is 1000; see `Validation`.

    Returns
    -------
    ShapeReport
        It is `ok` if something is possible, and all that is possible is right.

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
    validation = Validation.of(shape, algorithms, ab=ab, acc=acc, arch=arch, full=full)
    return validation.run(progress)


@dataclass(frozen=True)
class Validation:
    """What `validate_shape` is about to do: how long it takes can be asked before it is run."""

    target: _Target
    trials: tuple[_Trial, ...]
    full: bool

    @classmethod
    def of(
        cls,
        shape: str | tuple[int, int, int] | MmaShape,
        algorithms: Sequence[str] | None = None,
        *,
        ab: str = "f16",
        acc: str = "f32",
        arch: str = "exact",
        full: bool = False,
    ) -> Validation:
        """Return what there is to do; the arguments and errors are those of `validate_shape`."""
        target = _target(shape_or_virtual(shape), ab, acc, arch)
        return cls(target, tuple(_trials(target, algorithms, full)), full)

    @property
    def seconds(self) -> float:
        """How long it takes, to within a factor of a few."""
        return sum(trial.seconds for trial in self.trials)

    def run(self, progress: Callable[[int, int], object] | None = None) -> ShapeReport:
        """Try everything; progress is called with the part that is done, of 1000."""
        start = time.monotonic()
        rows, before, whole = [], 0.0, self.seconds
        for trial in self.trials:

            def tell(part: float, done: float = before, trial: _Trial = trial) -> None:
                if progress is not None:
                    progress(round(1000 * (done + part * trial.seconds) / whole), 1000)

            rows.append(trial.validated(tell))
            before += trial.seconds
            tell(1.0)
        target = self.target
        return ShapeReport(
            shape=target.shape.name,
            ab=target.ab,
            acc=target.acc,
            arch=target.arch,
            full=self.full,
            rows=tuple(rows),
            seconds=time.monotonic() - start,
        )


def _target(shape: MmaShape, ab: str, acc: str, arch: str) -> _Target:
    """Check that shape, types and architecture go together."""
    format_of(ab)
    format_of(acc)
    if not shape.supports(ab, acc):
        pairs = ", ".join(f"{one} to {other}" for one, other in shape.pairs())
        raise Unsupported(
            f"shape {shape.name} does not take {ab} to {acc}; it takes "
            f"{pairs or 'f16 to f32 and other types of tensor cores'}. Choose ab and acc"
        )
    rule = rule_for(arch, ab, acc, shape.family(ab, acc))
    limit = exact_up_to(ab, acc, rule)
    target = _Target(shape, ab, acc, arch, limit, find_emitter())
    needed = _BYTES_PER_ELEMENT * target.elements
    require_bytes(needed, f"one mma of {shape.name} tiles on the simulator")
    return target


def _trials(target: _Target, names: Sequence[str] | None, full: bool) -> Iterator[_Trial]:
    """Yield every algorithm, with the options that make another of it, and side."""
    rows = algorithms() if names is None else tuple(map(algorithm_of, names))
    for row in rows:
        for options in variants(row):
            for side in _SIDES:
                yield _Trial(target, row, tuple(options.items()), side, full)


class _TooLargeError(Exception):
    """A case needs more memory than there is."""


@dataclass
class _Trial:
    """One algorithm, its options and a side, under test. attempt: what is being tried."""

    target: _Target
    row: Algorithm
    options: tuple[tuple[str, Any], ...]
    side: str
    full: bool
    attempt: str = ""
    too_large: list[str] = field(default_factory=list)

    @cached_property
    def kind(self) -> Kind:
        """How algorithms like this one are tried."""
        return KINDS[self.row.kind]

    @cached_property
    def tile(self) -> Tile:
        """The tile as the algorithm sees it."""
        return self.target.tile(self.side)

    @cached_property
    def seconds(self) -> float:
        """How long the trial takes, about."""
        if self.row.kind not in KINDS:
            return 0.0
        programs = self.kind.programs(self.row, self.tile, self.full)
        return sum(self._seconds_of(*tried) for tried in programs) * len(self.row.combines)

    def _seconds_of(self, recipe: Recipe, many: bool) -> float:
        """Return how long a program takes to build and to run."""
        volume = self.tile.m * self.tile.n * self.tile.k * _MMA_PER_TILE * _BLOCKS
        run = volume * self._tiles(recipe) * _SECONDS_PER_MULTIPLY_ADD + _SECONDS_PER_RUN
        return _SECONDS_PER_ELEMENT * self.target.elements + _SECONDS_PER_RUN + _LENGTHS[many] * run

    def _tiles(self, recipe: Recipe) -> int:
        """Return the tiles of data that a block takes, about."""
        tile = self.tile
        each = recipe.get("warps") * recipe.get("items_per_warp")
        if self.row.kind == "product":
            cols, inner = recipe.get("cols") or 1, recipe.get("inner") or 1
            return int(each * -(-cols // tile.n) * -(-inner // tile.k))
        unit = tile.m * tile.k if self.row.tiles else tile.k
        return int(each * -(-(recipe.get("segment_size") or unit) // unit))

    def build(self, recipe: Recipe) -> Program:
        """Build the program, if there is memory for its tiles.

        The fragments of all warps are held at once, and as much again while they are multiplied.
        """
        self.attempt = recipe.text
        needed = 2 * recipe.get("warps") * _BYTES_PER_ELEMENT * self.target.elements
        try:
            require_bytes(needed, self.attempt)
        except InputError as error:
            raise _TooLargeError(str(error)) from error
        return build(
            self.row.name,
            **{
                **dict(self.options),
                **dict(recipe.options),
                "tile": self.target.shape,
                "ab": self.target.ab,
                "acc": self.target.acc,
                "side": self.side,
            },
        )

    def validated(self, tell: Callable[[float], None]) -> ShapeRow:
        """Return what there is to say about the algorithm; tell the part that is done."""
        row = self.row
        named = tuple((name, str(value)) for name, value in self.options)
        found = ShapeRow(row.name, row.kind, named, self.side)
        if row.kind not in KINDS:
            return replace(found, reason=f"algorithms of kind {row.kind!r} cannot be checked here")
        try:
            combines, recipe, program = self.first()
            reason = self.kind.unknown(program)
            if reason:
                return replace(found, reason=reason)
            found = self.measured(found, recipe, program, combines)
        except (Unsupported, _TooLargeError) as error:
            return replace(found, reason=str(error).removeprefix(f"{row.name}: "))
        except Exception as error:
            return replace(
                found, cases=1, first_wrong=f"with {self.attempt}: {self._finding(error)}"
            )
        return self.checked(found, tell)

    def _finding(self, error: Exception) -> str:
        """Return an error as a finding, if it is about the program or from another's algorithm.

        Anything else is a fault of tcusim, and is raised.
        """
        foreign = not self.row.function.__module__.startswith("tcusim.")
        if foreign or isinstance(error, TcusimError):
            return f"{type(error).__name__}: {error}"
        raise error

    def first(self) -> tuple[tuple[str, ...], Recipe, Program]:
        """Return the ways to combine that are possible, and the program that is measured."""
        built: dict[str, tuple[Recipe, Program]] = {}
        refused: Unsupported | None = None
        for combine in _COMBINES:
            recipe = self._measured_recipe(self.row.repeats, combine)
            try:
                built[combine] = (recipe, self.build(recipe))
            except Unsupported as error:
                refused = refused or error
        if not built:
            assert refused is not None
            raise refused
        return tuple(built), *next(iter(built.values()))

    def _measured_recipe(self, repeats: int, combine: str) -> Recipe:
        warps, tiles = layouts(self.row, self.tile)[0]
        measured = self.kind.measured(self.row, self.tile, repeats)
        return measured.but(**self._combined(combine), warps=warps, items_per_warp=tiles)

    def _combined(self, combine: str) -> dict[str, Any]:
        return dict(self.options) | {"combine": combine}

    # --- Counts and costs --------------------------------------------------------------------

    def measured(
        self, found: ShapeRow, recipe: Recipe, program: Program, combines: tuple[str, ...]
    ) -> ShapeRow:
        """Add what one block of the default program counts, and what it needs."""
        case = next(self.kind.runs(program, recipe, True))
        usage = self._run_on_ones(program, case)
        volume = usage.mma * self.target.shape.m * self.target.shape.n * self.target.shape.k
        elements = self.kind.useful(case)
        gpu, reason = _on_gpu(program, self.target.emitter)
        sizes = {space: _bytes(program, space) for space in (Space.WARP, Space.SHARED)}
        return replace(
            found,
            combines=combines,
            counts=tuple(self._counts(case, usage.mma)),
            elements=elements,
            mma=usage.mma,
            useful=elements / volume if volume else None,
            tile_used=usage.used / volume if volume else None,
            shared_bytes=sizes[Space.WARP],
            block_bytes=sizes[Space.SHARED],
            gpu=gpu,
            gpu_reason=reason,
        )

    def _run_on_ones(self, program: Program, case: Case) -> _Usage:
        """Count a run whose data have no zero."""
        self.attempt = case.text
        usage = _Usage()
        inputs = self.kind.inputs(program, case, self.target.limit)
        kept = offsets_of(program)
        ones = {
            name: values if name in kept else np.ones_like(values)
            for name, values in inputs.items()
        }
        run_numpy(program, _typed(program, ones), arch=self.target.arch, watch=usage)
        return usage

    def _counts(self, case: Case, counted: int) -> Iterator[MmaCount]:
        """Yield counts of the default segment, and of others if it may have any length."""
        combine, repeats = case.recipe.get("combine"), self.row.repeats
        known = combine == self.row.combines[0] and has_formula(self.row, dict(self.options))
        formula = self.kind.formula(self.row, self.tile, case, repeats) if known else None
        yield MmaCount(repeats, counted, formula)
        for other in sorted({1, 2, repeats + 1} - {repeats}) if known and repeats > 1 else ():
            recipe = self._measured_recipe(other, combine)
            program = self.build(recipe)
            shorter = next(self.kind.runs(program, recipe, True))
            usage = self._run_on_ones(program, shorter)
            yield MmaCount(other, usage.mma, self.kind.formula(self.row, self.tile, shorter, other))

    # --- Right or wrong ----------------------------------------------------------------------

    def checked(self, found: ShapeRow, tell: Callable[[float], None]) -> ShapeRow:
        """Add how many cases there were, and how many of them were right."""
        outcomes = list(self._outcomes(found.combines, tell))
        wrong = [text for text in outcomes if text]
        return replace(
            found,
            cases=len(outcomes),
            right=len(outcomes) - len(wrong),
            first_wrong=wrong[0] if wrong else "",
            left_out=len(self.too_large),
            why_left_out=self.too_large[0] if self.too_large else "",
        )

    def _outcomes(self, combines: Sequence[str], tell: Callable[[float], None]) -> Iterator[str]:
        """Yield for each case what is wrong with it; "" if nothing is."""
        programs = self.kind.programs(self.row, self.tile, self.full)
        spent = 0.0
        for (tried, many), combine in itertools.product(programs, combines):
            tell(min(1.0, spent / self.seconds))
            spent += self._seconds_of(tried, many)
            recipe = tried.but(**self._combined(combine))
            try:
                program = self.build(recipe)
            except Unsupported:
                # Such as a segment that is longer than the algorithm's longest.
                continue
            except _TooLargeError as error:
                self.too_large.append(str(error))
                continue
            except Exception as error:
                yield f"{recipe.text}: {self._finding(error)}"
                continue
            for case in self.kind.runs(program, recipe, many):
                yield from self._outcome(program, case)

    def _outcome(self, program: Program, case: Case) -> Iterator[str]:
        """Run a case; yield what is wrong with it, "" if nothing is, no text if it did not fit."""
        try:
            inputs = self.kind.inputs(program, case, self.target.limit)
            expected = self.kind.expected(program, case, inputs)
            outputs = run_numpy(program, _typed(program, inputs), arch=self.target.arch)
        except MemoryError as error:
            self.too_large.append(f"{case.text}: {error or 'out of memory'}")
            return
        except Exception as error:
            yield f"{case.text}: {self._finding(error)}"
            return
        yield _difference(case, program.outputs[0].name, outputs, expected)


def _difference(
    case: Case, name: str, outputs: Mapping[str, Any], expected: np.ndarray[Any, Any]
) -> str:
    """Return how a result differs from what is expected, "" if it does not."""
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
    """A watcher that also counts the multiply-adds without a factor of zero."""

    used: float = 0.0

    def __call__(self, event: Event) -> None:
        """Count one step."""
        super().__call__(event)
        if isinstance(event.step, Mma):
            a = event.state.fragment(event.step.a, event.warps) != 0
            b = event.state.fragment(event.step.b, event.warps) != 0
            # For each l < k: the rows of column l of A, times the columns of row l of B.
            self.used += float((a.sum(axis=1) * b.sum(axis=2)).sum())


def _typed(program: Program, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return integers as arrays that the simulator takes for the inputs' types."""
    formats = {buffer.name: format_of(buffer.dtype) for buffer in program.inputs}
    return {
        name: values.astype(np.float64 if formats[name].is_float else formats[name].dtype)
        for name, values in inputs.items()
    }


def _bytes(program: Program, space: Space) -> int:
    """Return the bytes of a program's shared memory of one space."""
    return sum(
        buffer.size.evaluate({}) * format_of(buffer.dtype).itemsize
        for buffer in program.scratch
        if buffer.space is space
    )


def _on_gpu(program: Program, emitter: Emitter | None) -> tuple[str, str]:
    """Return the instruction that would run a program, or "" and why there is none."""
    if emitter is None:
        return "", "no installed backend emits kernels"
    try:
        instruction = emitter.instruction(program)
    except Unsupported as error:
        return "", str(error).removeprefix(f"{program.name}: ").split(". ")[0]
    needed, most = SharedMemory(program).needed, 1024 * max(one.shared_kb or 0 for one in arches())
    if needed > most:
        return (
            "",
            f"a block needs {needed:,} bytes of shared memory; no GPU gives more than {most:,}",
        )
    return instruction, ""
