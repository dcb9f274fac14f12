"""Is a tile shape any good? Every registered algorithm is built for it, run, checked and counted.

`validate_shape` needs nothing but the three sizes: the simulator multiplies tiles that no GPU has.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final

import numpy as np

from tcusim.algorithms import Algorithm, algorithm_of, algorithms, build
from tcusim.cost import Counts
from tcusim.errors import Unsupported
from tcusim.interpret import Event, run_numpy
from tcusim.ir import Level, Mma, Program, walk
from tcusim.numerics import format_of, rule_for
from tcusim.shapes import MmaShape, shape_or_virtual
from tcusim.validate_cases import (
    KINDS,
    Case,
    Kind,
    Tile,
    exact_up_to,
    has_formula,
    layouts,
    variants,
)

__all__ = ["MmaCount", "ShapeReport", "ShapeRow", "validate_shape"]

_SIDES: Final = ("a", "b")
_COMBINES: Final = ("mma", "add")
# [CPG, compute capabilities]: a block of sm_90 and sm_100 may have 227 KB, other GPUs have less.
_MOST_SHARED_BYTES: Final = 227 * 1024


# --- The report -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MmaCount:
    """The mma steps of a piece of work, a warp's or a block's: counted, and by the formula.

    repeats: N of the formula, the segment in rows or tiles. formula: None where the registry has
    no formula for the row.
    """

    repeats: int
    counted: int
    formula: int | None

    @property
    def ok(self) -> bool:
        """Whether the two are equal, or there is no formula."""
        return self.formula is None or self.counted == self.formula


@dataclass(frozen=True, slots=True)
class ShapeRow:
    """What was found out about one algorithm with the data in one operand.

    Attributes
    ----------
    algorithm, kind : str
        The registry's name and kind.
    options : tuple of (str, str)
        What makes it another algorithm than its default, such as ``(("form", "L(A1)"),)``.
    side : {"a", "b"}
        The operand that holds the data.
    reason : str
        Why it is not possible on the shape, as the builder says it; empty if it is.
    combines : tuple of str
        The ways to combine partial sums that are possible: ``"mma"``, ``"add"``.
    cases, right : int
        Runs on random small integers, and those in which every output was the exact sum.
    first_wrong : str
        The first case that was wrong, and how.
    counts : tuple of MmaCount
        Of segments of several lengths, the default one first, without raggedness.
    elements, mma : int
        Of one block with the default segment: elements of its input (of a product: multiply-adds),
        and mma steps. What follows is of this block, too.
    useful : float or None
        The useful share of multiply-adds: elements / (m*n*k*mma). A sum or a scan of N elements
        takes N - 1 additions, so each element counts as one; the step P.A of m*k elements has
        1/n, which is 1/16 for 16x16x16 (derived; [DAKKAK19] section 4.1 has the step). For a
        product every multiply-add is useful. None if there is no mma.
    tile_used : float or None
        The share of multiply-adds whose factors are both other than zero, if no element of the
        input is zero. The rest of the tile is zeros: of P, U and L, or of padding.
    shared_bytes, block_bytes : int
        Shared memory that a warp needs for itself, and that its block shares, without the tables
        of constants that an emitted kernel may add.
    gpu : str
        The instruction that runs it on a GPU, such as ``"wmma m16n16k16"`` or ``"grid of
        4 x 1 x 1 wmma m16n16k16"``; empty if the emitter cannot.
    gpu_reason : str
        Why the emitter cannot.
    """

    algorithm: str
    kind: str
    options: tuple[tuple[str, str], ...]
    side: str
    reason: str = ""
    combines: tuple[str, ...] = ()
    cases: int = 0
    right: int = 0
    first_wrong: str = ""
    counts: tuple[MmaCount, ...] = ()
    elements: int = 0
    mma: int = 0
    useful: float | None = None
    tile_used: float | None = None
    shared_bytes: int = 0
    block_bytes: int = 0
    gpu: str = ""
    gpu_reason: str = ""

    @property
    def name(self) -> str:
        """The algorithm with its options, such as ``"scan_t L(A1)"``."""
        return " ".join([self.algorithm, *(value for _, value in self.options)])

    @property
    def possible(self) -> bool:
        """Whether the algorithm can be built for the shape."""
        return not self.reason

    @property
    def ok(self) -> bool:
        """Whether it is not possible, or every case is right and every count is the formula's."""
        if not self.possible:
            return True
        return self.right == self.cases > 0 and all(count.ok for count in self.counts)

    @property
    def elements_per_mma(self) -> float | None:
        """Elements of the input for each mma step; None if there is none."""
        return self.elements / self.mma if self.mma else None


@dataclass(frozen=True, slots=True)
class ShapeReport:
    """What `validate_shape` found; `str` gives a table, `to_json` everything.

    Attributes
    ----------
    shape, ab, accumulate, arch : str
        The tile, the types and the unit that were tried.
    full : bool
        Whether the longer list of cases was tried.
    rows : tuple of ShapeRow
        One for each algorithm, form and side, in the order of the registry.
    seconds : float
        How long it took; reports that differ in this alone are equal.
    """

    shape: str
    ab: str
    accumulate: str
    arch: str
    full: bool
    rows: tuple[ShapeRow, ...]
    seconds: float = field(default=0.0, compare=False)

    @property
    def ok(self) -> bool:
        """Whether something is possible on the shape, and all that is possible is right."""
        return any(row.possible for row in self.rows) and all(row.ok for row in self.rows)

    def as_json(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        rows = [
            {**asdict(row), "options": dict(row.options), "possible": row.possible, "ok": row.ok}
            for row in self.rows
        ]
        whole = {item.name: getattr(self, item.name) for item in fields(self)}
        return {**whole, "rows": rows, "ok": self.ok, "seconds": round(self.seconds, 3)}

    def to_json(self) -> str:
        """Return everything as JSON text, which `from_json` reads."""
        return json.dumps(self.as_json(), ensure_ascii=False, indent=2)

    @staticmethod
    def from_json(text: str) -> ShapeReport:
        """Return the report that `to_json` wrote."""
        given = json.loads(text)
        known = {item.name for item in fields(ShapeReport)}
        rows = tuple(map(_row_from_json, given["rows"]))
        return ShapeReport(**{name: given[name] for name in known} | {"rows": rows})

    @property
    def header(self) -> tuple[str, ...]:
        """Names of the columns of `table`."""
        return _HEADER

    def table(self) -> list[tuple[str, ...]]:
        """Return the cells of the table; sides that do equally well share a line."""
        lines: dict[tuple[str, ...], list[str]] = {}
        for row in self.rows:
            if row.possible:
                lines.setdefault((row.name, *_cells(row)), []).append(row.side)
        return [(name, ", ".join(sides), *cells) for (name, *cells), sides in lines.items()]

    def notes(self) -> list[str]:
        """Return a line for each thing that went wrong, or cannot be, with the reason."""
        wrong, impossible, simulated = _Notes(), _Notes(), _Notes()
        for row in self.rows:
            if not row.possible:
                impossible.add(row.reason, row)
            if row.first_wrong:
                wrong.add(row.first_wrong, row)
            for count in row.counts:
                if not count.ok:
                    text = f"{count.counted} mma steps where the formula has {count.formula}"
                    wrong.add(f"{text} (N = {count.repeats})", row)
            if row.gpu_reason:
                simulated.add(row.gpu_reason, row)
        lines = [f"WRONG: {where}: {text}" for text, where in wrong.lines()]
        lines += [f"not possible: {where}: {text}" for text, where in impossible.lines()]
        return lines + [f"simulator only: {text}" for text, _ in simulated.lines()]

    def summary(self) -> str:
        """Return one line for all."""
        possible = [row for row in self.rows if row.possible]
        cases, right = (sum(getattr(row, name) for row in possible) for name in ("cases", "right"))
        verdict = "all right" if self.ok else "NOT RIGHT" if possible else "NOTHING IS POSSIBLE"
        return (
            f"{self.shape}, {self.ab} to {self.accumulate}, {self.arch}: "
            f"{len({row.name for row in possible})} of {len({row.name for row in self.rows})} "
            f"algorithms possible, {right:,} of {cases:,} cases right: {verdict}"
        )

    def __str__(self) -> str:
        """Print the table, the notes and the summary as plain text."""
        lines = [self.header, *self.table()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [
            "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
            for cells in lines
        ]
        return "\n".join([*text, "", *self.notes(), self.summary()])


_HEADER: Final = (
    "algorithm",
    "data",
    "right",
    "mma steps",
    "elements an mma",
    "useful",
    "tile used",
    "shared bytes",
    "on a GPU",
)


class _Notes:
    """Reasons, each with the algorithms and sides that it is for."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, list[str]]] = {}

    def add(self, text: str, row: ShapeRow) -> None:
        self._rows.setdefault(text, {}).setdefault(row.name, []).append(row.side)

    def lines(self) -> Iterator[tuple[str, str]]:
        for text, names in self._rows.items():
            places = [f"{name} (data in {', '.join(sides)})" for name, sides in names.items()]
            yield text, ", ".join(places)


def _cells(row: ShapeRow) -> tuple[str, ...]:
    """Return what a line of the table says of a row, after its name and side."""
    each = row.elements_per_mma
    shared = f"{row.shared_bytes:,}"
    if row.block_bytes:
        shared += f" + {row.block_bytes:,} a block"
    return (
        f"{row.right}/{row.cases}",
        _count_text(row.counts),
        "" if each is None else f"{each:,.4g}" if each < 1000 else f"{each:,.0f}",
        "" if row.useful is None else f"{100 * row.useful:.3g}%",
        "" if row.tile_used is None else f"{100 * row.tile_used:.3g}%",
        shared,
        row.gpu or "simulator only",
    )


def _count_text(counts: Sequence[MmaCount]) -> str:
    """Return the mma steps; the formula's number as well if there is none, or another one."""
    if not counts:
        return ""
    shown = next((count for count in counts if not count.ok), counts[0])
    if shown.formula is None:
        return f"{shown.counted}, no formula" if shown.counted else "0"
    return str(shown.counted) if shown.ok else f"{shown.counted}, formula {shown.formula}"


def _row_from_json(given: Mapping[str, Any]) -> ShapeRow:
    known = {item.name: given[item.name] for item in fields(ShapeRow)}
    known["options"] = tuple(given["options"].items())
    known["combines"] = tuple(given["combines"])
    known["counts"] = tuple(MmaCount(**count) for count in given["counts"])
    return ShapeRow(**known)


# --- The validation ---------------------------------------------------------------------------


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
        sizes = {level: _bytes(program, level) for level in (Level.WARP, Level.BLOCK)}
        return replace(
            found,
            combines=combines,
            counts=tuple(self._counts(case, usage.mma)),
            elements=elements,
            mma=usage.mma,
            useful=elements / volume if volume else None,
            tile_used=usage.used / volume if volume else None,
            shared_bytes=sizes[Level.WARP],
            block_bytes=sizes[Level.BLOCK],
            gpu=gpu,
            gpu_reason=reason,
        )

    def _whole(self, program: Program, case: Case) -> Case:
        """Return the case with the sizes of one block's input."""
        first = next(self.kind.runs(program, case, True))
        self.attempt = str(first)
        return first

    def _run_on_ones(self, program: Program, case: Case) -> _Usage:
        """Count a run whose input has no zero."""
        usage = _Usage()
        inputs = self.kind.inputs(program, case, self.target.limit)
        ones = {name: np.ones_like(values) for name, values in inputs.items()}
        run_numpy(program, _typed(program, ones), arch=self.target.arch, watch=usage)
        return usage

    def _counts(self, case: Case, counted: int) -> Iterator[MmaCount]:
        """Yield counts of the default segment, and of others if it may have any length."""
        combine, repeats = case.keywords["combine"], self.row.repeats
        known = combine == "mma" and has_formula(self.row, self.options)
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


def _bytes(program: Program, level: Level) -> int:
    """Return the bytes of a program's shared memory of one level."""
    return sum(
        buffer.size.evaluate({}) * format_of(buffer.dtype).itemsize
        for buffer in program.scratch
        if buffer.level is level
    )


def _on_gpu(program: Program) -> tuple[str, str]:
    """Return the instruction that would run a program, or "" and why there is none."""
    try:
        from tcusim_cuda.emit import emit, instruction_for
    except ImportError:
        return "", "the package tcusim_cuda, which emits CUDA, is not installed"
    try:
        instruction = instruction_for(program)
        kernel = emit(program)
    except Unsupported as error:
        return "", str(error).removeprefix(f"{program.name}: ").split(". ")[0]
    if kernel.dynamic_shared_bytes > _MOST_SHARED_BYTES:
        return "", (
            f"a block needs {kernel.dynamic_shared_bytes:,} bytes of shared memory; no GPU gives "
            f"more than {_MOST_SHARED_BYTES:,}"
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
