"""Measure parts of the benchmark on a GPU: its own limits, tcusim's kernels, other libraries.

Everything is measured in one run, since figures drift from machine to machine. A result is verified
before it is timed: a sample of it with float64, and the first results of tcusim's own kernels with
the bits of the simulator. A failure, or a wrong result, is a row that says so.

Each part has its file, which is written during the measurement. A run that ends early keeps its
problems, and the next one on the same folder goes on with the others.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import math
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from tcusim.errors import BackendUnavailable, InputError, TcusimError, unknown_name
from tcusim_bench import host
from tcusim_bench.contenders import IN_TORCH, PEERS, Contenders
from tcusim_bench.device import Array, Device, read_limits
from tcusim_bench.parts import EXACT, FIGURES, PARTS, Named, Part, cases
from tcusim_bench.problems import Contender, Problem
from tcusim_bench.programs import Recipe, plans, recipes, variants
from tcusim_bench.record import (
    OURS,
    PROGRAMS,
    ROUNDED,
    Case,
    Report,
    Row,
    first_line,
    moved_bytes,
    now,
    verdict,
)
from tcusim_cuda.compile import compile_kernel
from tcusim_cuda.driver import arch_name
from tcusim_cuda.emit import emit
from tcusim_cuda.microbench.stopwatch import Run

NAMES: Final = (*PARTS, *host.PARTS)
# The name of all figures together.
PAPER: Final = "paper"
_QUICK_LOG2: Final = 27
# Processors that are left to the benchmark itself and to nvcc.
_SPARED: Final = 3
# Less would fit into a cache; more into no GPU's memory.
_LOG2_LENGTHS: Final = (20, 34)
_REPEATS: Final = 9
_LIMIT_REPEATS: Final = 21
# Seconds in which energy is measured: as many as there are, but within these. It counts as several
# problems when time is shared.
_ENERGY_SECONDS: Final = (0.6, 2.0)
_ENERGY_COST: Final = 3.0
# A program that takes longer leaves most of the GPU idle, whatever its numbers: it is not tuned.
_TUNED_MS: Final = 100.0
# A file is written again after this many seconds.
_KEEP_SECONDS: Final = 2.0

Say: TypeAlias = Callable[[str], None]
# A contender, and its recipe if it is one of tcusim's programs.
_Way: TypeAlias = tuple[Contender, Recipe | None]


@dataclass(frozen=True, slots=True)
class Settings:
    """The measurements to make, on 2**log2_length elements: 2**20 to 2**34, far more than a cache.

    segments: sizes to take instead of the parts' own; 0 is the whole array. peers: to compare with
    instead of the parts' own. backend: the launcher of tcusim's kernels, "cuda", "cupy" or
    "pycuda"; the data are in CuPy arrays in any case. programs: whether other programs are tried
    beside those of the default plan. tune: whether the fastest program of each of a figure's
    algorithms is tried with other warps, segments a warp and parts, too. quick: at most 2**27
    elements, and few sizes. seconds: for all problems, which have equal shares. commit: of tcusim's
    source, for the record.
    """

    log2_length: int = 30
    segments: tuple[int, ...] = ()
    peers: tuple[str, ...] = ()
    backend: str = "cupy"
    programs: bool = False
    tune: bool = False
    quick: bool = False
    seconds: float | None = None
    commit: str = ""

    def __post_init__(self) -> None:
        least, most = _LOG2_LENGTHS
        if not least <= self.log2_length <= most:
            text = f"log2_length must be from {least} to {most}, got {self.log2_length}"
            raise InputError(text)
        for size in self.segments:
            if not 0 <= size <= 1 << self.log2_length:
                text = f"segment sizes must be from 0 to 2**{self.log2_length}, got {size}"
                raise InputError(text)
        for name in self.peers:
            if name not in PEERS:
                raise unknown_name("peer", name, PEERS)

    @property
    def length(self) -> int:
        """Elements of the data."""
        return 1 << (min(self.log2_length, _QUICK_LOG2) if self.quick else self.log2_length)


@dataclass(slots=True)
class _Planned:
    """A part, with its state: its report, the problems that are left, and its file."""

    name: str
    part: Part
    cases: tuple[Case, ...]
    path: Path | None
    report: Report | None = None
    found: dict[Case, list[Named]] = field(default_factory=dict)
    refused: dict[str, None] = field(default_factory=dict)

    @property
    def left(self) -> list[Case]:
        """Problems without rows, in the order of measurement."""
        solved = {row.case for row in self.report.rows} if self.report else set()
        return in_order(case for case in self.cases if case not in solved)

    @property
    def cost(self) -> float:
        """The cost of the problems that are left, in usual ones."""
        return len(self.left) * (_ENERGY_COST if self.part.energy else 1.0)

    def keep(self) -> None:
        """Write its file, if it has one."""
        if self.path is not None and self.report is not None:
            self.report.write(self.path)


def run(
    names: Sequence[str],
    settings: Settings,
    folder: Path | None = None,
    say: Say | None = None,
) -> dict[str, Report]:
    """Measure parts on this machine's GPU, into files NAME.json of a folder if one is given.

    The name "paper" stands for all figures.
    Problems that files there have already are not measured again. `say` is given a line for each
    problem. Raises UnknownName if a name is none of `NAMES`, InputError if the GPU has too little
    memory or a file there is another record, and BackendUnavailable if CuPy or a GPU is missing.
    """
    given = (one for name in names for one in (FIGURES if name == PAPER else (name,)))
    wanted = tuple(dict.fromkeys(given)) or NAMES
    for name in wanted:
        if name not in NAMES:
            raise unknown_name("part", name, (*NAMES, PAPER))
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    planned = [_planned(name, settings, folder) for name in wanted if name in PARTS]
    rest = [one for one in planned if one.left]
    until = math.inf if settings.seconds is None else time.monotonic() + settings.seconds
    if rest:
        peers = tuple(dict.fromkeys(name for one in rest for name in one.part.peers))
        with contextlib.closing(Bench(settings, peers)) as bench:
            for number, one in enumerate(rest):
                cost = sum(later.cost for later in rest[number:])
                # The compilers begin with the next part, too.
                for later in rest[number : number + 2]:
                    bench.begin(later)
                bench.measure(one, (until - time.monotonic()) * one.cost / cost, say)
                one.keep()
    found = {one.name: one.report for one in planned if one.report is not None}
    for name in (name for name in wanted if name not in PARTS):
        try:
            found[name] = _by_the_clock(name, settings, folder)
        except BackendUnavailable as error:
            if names:
                raise
            if say is not None:
                say(f"{name} was left out: {error}")
    return found


def _by_the_clock(name: str, settings: Settings, folder: Path | None) -> Report:
    """Return the report of a part in `host`: that in the folder, if there is one."""
    path = None if folder is None else folder / f"{name}.json"
    if path is not None and path.exists():
        return Report.read(path)
    began = time.monotonic()
    report = host.PARTS[name](settings.length, quick=settings.quick)
    report.commit, report.seconds = settings.commit, time.monotonic() - began
    if path is not None:
        report.write(path)
    return report


def _planned(name: str, settings: Settings, folder: Path | None) -> _Planned:
    part = PARTS[name]
    if settings.peers and part.peers:
        part = replace(part, peers=settings.peers)
    problems = cases(name, settings.length, settings.segments, quick=settings.quick)
    one = _Planned(name, part, problems, None if folder is None else folder / f"{name}.json")
    if one.path is not None and one.path.exists():
        one.report = Report.read(one.path)
        if one.report.length != settings.length:
            raise InputError(
                f"{one.path} is of {one.report.length} elements, not of {settings.length}. Name "
                f"another folder, or remove it"
            )
    return one


class Bench:
    """A GPU with its data, the libraries to compare with, and threads that compile ahead."""

    def __init__(self, settings: Settings, peers: tuple[str, ...]) -> None:
        self._settings = settings
        self.device = Device(settings.length, settings.backend)
        self.contenders = Contenders(self.device, peers)
        self._compilers = ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - _SPARED))
        self._compiled: dict[tuple[Recipe, int], Future[None]] = {}

    def close(self) -> None:
        """Stop the work that was begun."""
        self.contenders.close()
        self._compilers.shutdown(wait=False, cancel_futures=True)

    def begin(self, one: _Planned) -> None:
        """Find the programs for a part's problems, and begin to compile them in other threads."""
        for case in one.left if not one.found else ():
            problem = Problem(case, self.device)
            one.found[case] = list(_programs(problem, one, more=self._settings.programs))
            for key in ((recipe, case.length) for _, recipe in one.found[case]):
                if key not in self._compiled:
                    job = self._compilers.submit(_compile, *key, self.device.sm)
                    self._compiled[key] = job

    def measure(self, one: _Planned, seconds: float = math.inf, say: Say | None = None) -> Report:
        """Measure a part's problems that are left, in so many seconds."""
        self.begin(one)
        began = kept = time.monotonic()
        report = one.report = self._start(one)
        places = {case: place for place, case in enumerate(one.cases)}
        untried = 0
        while one.found:
            left = began + seconds - time.monotonic()
            if left < 0:
                report.notes += [f"{case} was left out: the time was up" for case in one.found]
                break
            share, case = left / len(one.found), next(iter(one.found))
            problem = Problem(case, self.device)
            rows, skipped = self._solve(problem, one, one.found.pop(case), share)
            untried += skipped
            everything = (*report.rows, *rows)
            report.rows = tuple(sorted(everything, key=lambda row: places.get(row.case, -1)))
            report.seconds = time.monotonic() - began
            if say is not None:
                best = Report({}, {}, report.limits, 0, "", rows).best()
                rates = [(row.who, row.result, row.elements_per_s) for row in best]
                text = ", ".join(
                    f"{who} {to} {rate / 1e9:.0f} G/s" for who, to, rate in rates if rate
                )
                say(f"{one.name}, {case}: {text}")
            if time.monotonic() - kept > _KEEP_SECONDS:
                one.keep()
                kept = time.monotonic()
        if untried:
            report.notes.append(f"{untried} more ways of libraries and programs: no time was left")
        self._measure_limits_again(report)
        report.notes.append(f"tcusim's kernels were launched through {self._settings.backend}")
        refused = (f"not measured: {what}" for what in one.refused)
        report.notes += [note for note in refused if note not in report.notes]
        report.seconds = time.monotonic() - began
        return report

    def _start(self, one: _Planned) -> Report:
        report = Report(
            device=self.device.info,
            versions={**_versions(), **self.contenders.versions},
            limits=read_limits(self.device, _LIMIT_REPEATS),
            length=self._settings.length,
            date=now(),
            commit=self._settings.commit,
        )
        if one.report is not None:
            before = one.report
            text = f"{len(before.rows)} rows are of an earlier run, of {before.date}"
            report.notes += [text, *(f"earlier: {note}" for note in before.notes)]
            report.rows = before.rows
        missing = self.contenders.missing.items()
        report.notes += [
            f"{name} was left out: {why}" for name, why in missing if name in one.part.peers
        ]
        if 2 * self._settings.length < 4 * report.device["l2_bytes"]:
            report.notes.append("the data are not far larger than the cache: the figures flatter")
        return report

    def _measure_limits_again(self, report: Report) -> None:
        """Keep the higher limits: a GPU that was slow at the start must not flatter the rows."""
        try:
            again = read_limits(self.device, _LIMIT_REPEATS)
        except Exception as error:  # measurements must not be lost
            report.notes.append(f"the limits could not be measured again: {first_line(error)}")
            return
        spread = max(abs(again[name] / report.limits[name] - 1) for name in again)
        report.notes.append(f"the limits, measured first and last, were {spread:.1%} apart")
        report.limits = {name: max(report.limits[name], again[name]) for name in again}

    # --- One problem -------------------------------------------------------------------------

    def _solve(
        self, problem: Problem, one: _Planned, programs: list[Named], seconds: float
    ) -> tuple[tuple[Row, ...], int]:
        """Return the rows of a problem, and the count of ways for which no time was left.

        The plan and one way of each library are always tried, others while there is time.
        """
        until = time.monotonic() + seconds
        ways: list[_Way] = [
            *((contender(problem, *named), named[1]) for named in programs),
            *((way, None) for way in self.contenders.ways(problem, one.part.peers)),
        ]
        seen: set[str] = set()
        always = []
        for way, recipe in ways:
            always.append(way.who in (OURS, ROUNDED) or (recipe is None and way.who not in seen))
            seen.add(way.who)
        # The sort is stable: those that are always tried come first.
        ways = [way for _, way in sorted(zip(always, ways, strict=True), key=lambda x: not x[0])]
        rows: list[Row] = []
        for number, one_way in enumerate(ways):
            if number >= sum(always) and time.monotonic() > until:
                break
            rows.append(self._row(problem, *one_way))
        skipped = len(ways) - len(rows)
        if self._settings.tune and one.part.programs:
            for tuned, row in self._tuned(problem, list(zip(rows, ways, strict=False)), until):
                ways.insert(len(rows), tuned)
                rows.append(row)
        if one.part.energy:
            self._add_energy(problem, one, rows, [way for way, _ in ways], until)
        return tuple(rows), skipped

    def _tuned(
        self, problem: Problem, measured: list[tuple[Row, _Way]], until: float
    ) -> Iterator[tuple[_Way, Row]]:
        """Yield variants of the fastest program of each algorithm of a figure, with their rows.

        Its numbers are varied one at a time, and then the best value of each is combined.
        """
        fastest: dict[str, tuple[float, str, Recipe]] = {}
        for row, (way, recipe) in measured:
            if recipe is None or recipe.algorithm is None or row.ms is None:
                continue
            if row.ms < fastest.get(recipe.algorithm, (math.inf,))[0]:
                fastest[recipe.algorithm] = row.ms, way.who, recipe
        for ms, who, recipe in fastest.values():
            if ms > _TUNED_MS:
                continue
            best = recipe
            for name, some in variants(recipe).items():
                least = ms
                for variant, (tuned, row) in self._tried(problem, who, some, until):
                    yield tuned, row
                    if row.ms is not None and row.ms < least:
                        least, best = row.ms, _with_number(best, name, variant)
            if best != recipe and all(best not in some for some in variants(recipe).values()):
                yield from (found for _, found in self._tried(problem, who, [best], until))

    def _tried(
        self, problem: Problem, who: str, some: list[Recipe], until: float
    ) -> Iterator[tuple[Recipe, tuple[_Way, Row]]]:
        """Yield the recipes that can be built and are measured in time, with their rows."""
        length = problem.case.length
        fit = []
        for recipe in some:
            with contextlib.suppress(TcusimError):
                recipe.plan(length)
                fit.append(recipe)
        for key in ((recipe, length) for recipe in fit):
            if key not in self._compiled:
                self._compiled[key] = self._compilers.submit(_compile, *key, self.device.sm)
        for recipe in fit:
            if time.monotonic() < until:
                one_way = contender(problem, who, recipe), recipe
                yield recipe, (one_way, self._row(problem, *one_way))

    def _row(self, problem: Problem, way: Contender, recipe: Recipe | None) -> Row:
        """Run a contender, verify its results, and time it; an error becomes its status."""
        device, case = self.device, problem.case
        size = moved_bytes(case, problem.size, way.result)
        row = Row(case, way.who, way.label, way.acc, way.result, "not run", bytes=size)
        try:
            expected = None
            if recipe is not None:
                self._compiled[recipe, case.length].result()
                expected = problem.expected(recipe)
            out = device.output(way.result, problem.size)
            launch = way.prepare(out)
            device.once(launch)
            error = problem.error(out, way.result)
            compared, differ = problem.compare_bits(expected, out)
            row = replace(
                row,
                error=None if math.isnan(error) else error,
                bits_compared=compared,
                bits_differ=differ,
            )
            status = verdict(row, printed=recipe is not None and recipe.is_printed)
            if status != "ok":
                return replace(row, status=status)
            if case.in_graph:
                in_torch = way.who in IN_TORCH
                times = device.times_in_graph(launch, _REPEATS, of_torch=in_torch)
            else:
                times = device.times(launch, _REPEATS, warm=True)
        except Exception as reason:  # a library may raise anything; the others are still to be run
            return replace(row, status=f"failed: {first_line(reason)}")
        return row.timed(times)

    def _add_energy(
        self,
        problem: Problem,
        one: _Planned,
        rows: list[Row],
        ways: list[Contender],
        until: float,
    ) -> None:
        """Measure the energy of each library's best row of the usual type of results."""
        usual = next(plans(problem.case)).result
        best: dict[tuple[str, str], int] = {}
        for place, row in enumerate(rows):
            if row.ms is not None and row.result == usual:
                key = (row.who, row.acc)
                if key not in best or row.ms < (rows[best[key]].ms or math.inf):
                    best[key] = place
        least, most = _ENERGY_SECONDS
        share = (until - time.monotonic()) / max(1, len(best))
        for place in best.values():
            row = rows[place]
            try:
                launch = ways[place].prepare(self.device.output(usual, problem.size))
                found = self.device.energy(launch, min(most, max(least, share)))
            except Exception as reason:  # its time was measured all the same
                note = f"{problem.case}, {row.who}: no energy: {first_line(reason)}"
                if one.report is not None:
                    one.report.notes.append(note)
            else:
                rows[place] = replace(row, watts=found.watts, steady_ms=found.ms)


def _with_number(recipe: Recipe, name: str, variant: Recipe) -> Recipe:
    """Return the recipe with the variant's number of this name."""
    if name == "parts":
        return replace(recipe, options=variant.options)
    return replace(recipe, **{name: getattr(variant, name)})


def _compile(recipe: Recipe, length: int, sm: int) -> None:
    """Compile the programs of a recipe's plan, so that they are found on disk.

    A plan that cannot be made or compiled raises when it is measured, and becomes a row.
    """
    with contextlib.suppress(TcusimError):
        for launch in recipe.plan(length).launches:
            compile_kernel(emit(launch.program), sm)


def contender(problem: Problem, who: str, recipe: Recipe) -> Contender:
    """Return one of tcusim's programs as a contender, by its name in the record."""
    length = problem.case.length

    def prepare(out: Array) -> Run:
        plan = recipe.plan(length)
        return problem.device.program(plan, problem.arrays_for(plan), out)

    return Contender(who, recipe.label_at(length), recipe.acc, recipe.result, prepare)


def _programs(problem: Problem, one: _Planned, *, more: bool) -> Iterator[Named]:
    """Yield the planner's choices, a figure's programs, and if `more`, other programs that fit.

    Programs of a figure that cannot be built are noted.
    """
    case, arch = problem.case, arch_name(problem.device.sm)
    if case.lengths:
        longest = int(np.diff(problem.offsets).max())
        for recipe in plans(case, arch, segments=problem.segments, longest=longest):
            yield (PROGRAMS if recipe.longest is None else OURS), recipe
        return
    for recipe in plans(case, arch):
        if case.section == EXACT:
            yield OURS, replace(recipe, bits="exact")
            yield ROUNDED, recipe
        else:
            yield OURS, recipe
    for name, given in one.part.programs(case) if one.part.programs else ():
        recipe = replace(given, arch=arch)
        try:
            recipe.plan(case.length)
        except TcusimError as error:
            one.refused[f"{name}, {recipe.acc}, {case.size}: {error}"] = None
        else:
            yield name, recipe
    if more and one.name in ("sums", "scans"):
        for recipe in recipes(case.kind, None if case.is_whole else case.segment_size, arch=arch):
            with contextlib.suppress(TcusimError):
                recipe.plan(case.length)
                yield PROGRAMS, recipe


def in_order(found: Iterable[Case]) -> list[Case]:
    """Return cases so that a run that is cut short has some of each section, kind and type.

    Of each the first, the last, and then those at multiples of the largest power of two.
    """
    groups: dict[tuple[str, str, str], list[Case]] = {}
    for case in found:
        groups.setdefault((case.section, case.kind, case.dtype), []).append(case)
    ranked: list[tuple[int, Case]] = []
    for group in groups.values():
        last = len(group) - 1
        order = sorted(range(last + 1), key=lambda at: (at != 0, at != last, -(at & -at)))
        ranked += [(rank, group[at]) for rank, at in enumerate(order)]
    return [case for _, case in sorted(ranked, key=lambda one: one[0])]


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version(), "numpy": np.__version__}
    for name in ("tcusim", "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions
