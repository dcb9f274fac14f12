"""Is a tile shape any good? Every registered algorithm is built for it, run, checked and counted.

`validate_shape` needs nothing but the three sizes: the simulator multiplies tiles that no GPU has.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from tcusim.algorithms import Algorithm, algorithm_of, algorithms, build
from tcusim.check.cases import (
    KINDS,
    Case,
    Kind,
    Tile,
    exact_up_to,
    has_formula,
    layouts,
    variants,
)
from tcusim.check.report import MmaCount, ShapeReport, ShapeRow
from tcusim.errors import Unsupported
from tcusim.machine import format_of, rule_for, units
from tcusim.machine.shapes import MmaShape, shape_or_virtual
from tcusim.program.bind import offsets_of
from tcusim.program.grammar import Mma, Program, Space, walk
from tcusim.program.resources import SharedMemory
from tcusim.simulate.counts import Counts
from tcusim.simulate.interpreter import Event, run_numpy

__all__ = ["validate_shape"]

_SIDES: Final = ("a", "b")
_COMBINES: Final = ("mma", "add")


@dataclass(frozen=True, slots=True)
class _Target:
    """What is validated: a shape, types and a unit. limit: integers up to which all is exact."""

    shape: MmaShape
    ab: str
    accumulate: str
    arch: str
    limit: int

    def build(self, row: Algorithm, side: str, keywords: Mapping[str, Any]) -> Program:
        """Build a row's program with more keywords of `tcusim.build`."""
        return build(
            row.name,
            shape=self.shape,
            ab=self.ab,
            accumulate=self.accumulate,
            side=side,
            **keywords,
        )

    def tile(self, side: str) -> Tile:
        """Return the tile as an algorithm sees it that has its data in this operand."""
        m, n, k = self.shape.m, self.shape.n, self.shape.k
        return Tile(n, m, k) if side == "b" else Tile(m, n, k)


def validate_shape(
    shape: str | tuple[int, int, int] | MmaShape,
    *,
    ab: str = "f16",
    accumulate: str = "f32",
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
    ab, accumulate : str
        Element types of the operands and of the accumulator.
    arch : str
        Whose arithmetic; "exact" looks at the algorithms alone. A registered unit will do.
    algorithms : sequence of str, optional
        Names of the registry, or the paper's; by default all.
    full : bool
        Try many more sizes and layouts, which takes some ten times as long.
    progress : callable, optional
        Called with the rows done and their number.

    Returns
    -------
    ShapeReport
        It is `ok` if something is possible, and all that is possible is right.

    Raises
    ------
    UnknownName
        For a type, unit or algorithm that is not registered.
    Unsupported
        If the shape, or the unit, does not take these types.
    InputError
        If the shape is not three sizes of at least 1.

    Examples
    --------
    >>> report = validate_shape((5, 7, 3), algorithms=["reduction_t", "scan_k"])
    >>> report.ok, [row.mma for row in report.rows]
    (True, [3, 4, 1, 1])
    """
    start = time.monotonic()
    target = _target(shape_or_virtual(shape), ab, accumulate, arch)
    tasks = list(_tasks(algorithms))
    rows = []
    for done, (row, options, side) in enumerate(tasks, start=1):
        rows.append(_validated(target, row, options, side, full))
        if progress is not None:
            progress(done, len(tasks))
    return ShapeReport(
        shape=target.shape.name,
        ab=ab,
        accumulate=accumulate,
        arch=arch,
        full=full,
        rows=tuple(rows),
        seconds=time.monotonic() - start,
    )


def _target(shape: MmaShape, ab: str, accumulate: str, arch: str) -> _Target:
    """Check that shape, types and unit go together."""
    format_of(ab)
    format_of(accumulate)
    if not shape.supports(ab, accumulate):
        pairs = ", ".join(f"{one} to {other}" for one, other in shape.pairs())
        raise Unsupported(
            f"shape {shape.name} does not take {ab} to {accumulate}; it takes "
            f"{pairs or 'f16 to f32 and other types of tensor cores'}. Choose ab and accumulate"
        )
    operands = shape.operands_for(ab, accumulate)
    rule = rule_for(arch, ab, accumulate, "" if operands is None else operands.family)
    return _Target(shape, ab, accumulate, arch, exact_up_to(ab, accumulate, rule))


def _tasks(names: Sequence[str] | None) -> Iterator[tuple[Algorithm, dict[str, Any], str]]:
    """Yield every algorithm, with the options that make another of it, and side."""
    rows = algorithms() if names is None else tuple(map(algorithm_of, names))
    for row in rows:
        for options in variants(row):
            yield from ((row, options, side) for side in _SIDES)


def _validated(
    target: _Target, row: Algorithm, options: dict[str, Any], side: str, full: bool
) -> ShapeRow:
    """Return what there is to say about one algorithm and side."""
    named = tuple((name, str(value)) for name, value in options.items())
    found = ShapeRow(row.name, row.kind, named, side)
    kind = KINDS.get(row.kind)
    if kind is None:
        return replace(found, reason=f"algorithms of kind {row.kind!r} cannot be checked here")
    trial = _Trial(target, row, options, side, kind)
    try:
        combines, case, program = trial.first()
        reason = kind.unknown(program)
        if reason:
            return replace(found, reason=reason)
        found = trial.measured(found, case, program, combines)
    except Unsupported as error:
        return replace(found, reason=_plain(row, error))
    except Exception as error:
        # Whatever an algorithm of somebody else does wrong is a finding, not an end.
        text = f"with {trial.attempt}: {_named(error)}"
        return replace(found, cases=1, first_wrong=text)
    return trial.checked(found, full)


@dataclass(slots=True)
class _Trial:
    """One algorithm, its options and a side, under test. attempt: what is being tried."""

    target: _Target
    row: Algorithm
    options: dict[str, Any]
    side: str
    kind: Kind
    attempt: str = ""

    def build(self, keywords: Mapping[str, Any]) -> Program:
        """Build the program for more keywords."""
        return self.target.build(self.row, self.side, {**self.options, **keywords})

    def first(self) -> tuple[tuple[str, ...], Case, Program]:
        """Return the ways to combine that are possible, and the program that is measured."""
        built: dict[str, tuple[Case, Program]] = {}
        refused: Unsupported | None = None
        warps, tiles = layouts(self.row, self.target.tile(self.side))[0]
        for combine in _COMBINES:
            case = self._measured_case(self.row.repeats, combine, warps, tiles)
            try:
                built[combine] = (case, self.build(case.keywords))
            except Unsupported as error:
                refused = refused or error
        if not built:
            assert refused is not None
            raise refused
        return tuple(built), *next(iter(built.values()))

    def _measured_case(self, repeats: int, combine: str, warps: int, tiles: int) -> Case:
        case = self.kind.measured(self.row, self.target.tile(self.side), repeats)
        keywords = {**case.keywords, "combine": combine, "warps": warps, "tiles": tiles}
        case = Case(keywords, case.sizes)
        self.attempt = str(case)
        return case

    # --- Counts and costs --------------------------------------------------------------------

    def measured(
        self, found: ShapeRow, case: Case, program: Program, combines: tuple[str, ...]
    ) -> ShapeRow:
        """Add what one block of the default program counts, and what it needs."""
        case = self._whole(program, case)
        usage = self._run_on_ones(program, case)
        volume = usage.mma * self.target.shape.m * self.target.shape.n * self.target.shape.k
        elements = self.kind.useful(case)
        gpu, reason = _on_gpu(program)
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

    def _whole(self, program: Program, case: Case) -> Case:
        """Return the case with the sizes of one block's input."""
        first = next(self.kind.runs(program, case, True))
        self.attempt = str(first)
        return first

    def _run_on_ones(self, program: Program, case: Case) -> _Usage:
        """Count a run whose data have no zero."""
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
        combine, repeats = case.keywords["combine"], self.row.repeats
        known = combine == self.row.combines[0] and has_formula(self.row, self.options)
        tile = self.target.tile(self.side)
        formula = self.kind.formula(self.row, tile, case, repeats) if known else None
        yield MmaCount(repeats, counted, formula)
        warps, tiles = case.keywords["warps"], case.keywords["tiles"]
        for other in sorted({1, 2, repeats + 1} - {repeats}) if known and repeats > 1 else ():
            shorter = self._measured_case(other, combine, warps, tiles)
            program = self.build(shorter.keywords)
            usage = self._run_on_ones(program, self._whole(program, shorter))
            yield MmaCount(other, usage.mma, self.kind.formula(self.row, tile, shorter, other))

    # --- Right or wrong ----------------------------------------------------------------------

    def checked(self, found: ShapeRow, full: bool) -> ShapeRow:
        """Add how many cases there were, and how many of them were right."""
        cases, wrong = 0, []
        for text in self._outcomes(found.combines, full):
            cases += 1
            if text:
                wrong.append(text)
        first = wrong[0] if wrong else ""
        return replace(found, cases=cases, right=cases - len(wrong), first_wrong=first)

    def _outcomes(self, combines: Sequence[str], full: bool) -> Iterator[str]:
        """Yield for each case what is wrong with it; "" if nothing is."""
        tile = self.target.tile(self.side)
        programs = self.kind.programs(self.row, tile, full)
        for (case, many), combine in itertools.product(programs, combines):
            case = Case({**case.keywords, "combine": combine}, case.sizes)
            self.attempt = str(case)
            try:
                program = self.build(case.keywords)
            except Unsupported:
                # Such as a segment that is longer than the algorithm's longest.
                continue
            except Exception as error:
                yield f"{case}: {_named(error)}"
                continue
            yield from (self._outcome(program, run) for run in self.kind.runs(program, case, many))

    def _outcome(self, program: Program, case: Case) -> str:
        """Run a case; return what is wrong with it, "" if nothing is."""
        inputs = self.kind.inputs(program, case, self.target.limit)
        expected = self.kind.expected(program, case, inputs)
        try:
            outputs = run_numpy(program, _typed(program, inputs), arch=self.target.arch)
        except Exception as error:
            return f"{case}: {_named(error)}"
        name = program.outputs[0].name
        got = np.asarray(outputs[name], np.float64)
        if got.shape != expected.shape:
            return f"{case}: {name!r} has {got.size} elements, not {expected.size}"
        places = np.flatnonzero(got != expected)
        if not places.size:
            return ""
        at = int(places[0])
        return (
            f"{case}: {name}[{at}] is {got[at]:g}, not {expected[at]}; "
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
    """Return the bytes of a program's shared memory of one level."""
    return sum(
        buffer.size.evaluate({}) * format_of(buffer.dtype).itemsize
        for buffer in program.scratch
        if buffer.space is space
    )


def _on_gpu(program: Program) -> tuple[str, str]:
    """Return the instruction that would run a program, or "" and why there is none."""
    try:
        from tcusim_cuda.emit import emit, instruction_for
    except ImportError:
        return "", "the package tcusim_cuda, which emits CUDA, is not installed"
    try:
        instruction = instruction_for(program)
        emit(program)
    except Unsupported as error:
        return "", str(error).removeprefix(f"{program.name}: ").split(". ")[0]
    needed, most = SharedMemory(program).needed, 1024 * max(one.shared_kb or 0 for one in units())
    if needed > most:
        return (
            "",
            f"a block needs {needed:,} bytes of shared memory; no GPU gives more than {most:,}",
        )
    if not any(isinstance(step, Mma) for _, step in walk(program.steps)):
        return "without tensor core", ""
    name = f"{instruction.operands.family} {instruction.shape.ptx}"
    grid = " x ".join(map(str, instruction.grid))
    return name if instruction.single else f"grid of {grid} {name}", ""


def _plain(row: Algorithm, error: Exception) -> str:
    return str(error).removeprefix(f"{row.name}: ")


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
