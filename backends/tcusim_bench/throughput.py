"""Measure sums, scans and products on a GPU: its own limits, tcusim's kernels, other libraries.

    tcusim bench throughput --json -o results.json

Everything is measured in one run, since figures drift from machine to machine. A result is verified
before it is timed: a sample of it with float64, and the first results of tcusim's own kernels with
the bits of the simulator. A failure, or a wrong result, is a row that says so.

Time is shared evenly by the problems. Each is solved by tcusim and once by each library; more
ways, such as other tiles of Triton, are tried while the problem's share lasts.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import math
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from tcusim.errors import InputError, TcusimError, unknown_name
from tcusim_bench.ahead import Ahead
from tcusim_bench.contender import Contender, first_line
from tcusim_bench.device import Array, Device, Run, read_limits
from tcusim_bench.peers import DEFAULT_PEERS, IN_TORCH, Peers
from tcusim_bench.problems import Problem
from tcusim_bench.programs import Recipe, plans, recipes
from tcusim_bench.report import (
    OURS,
    PROGRAMS,
    Attempt,
    Report,
    Row,
    best_rows,
    verdict,
    with_ratios,
)
from tcusim_bench.sections import ENERGY, EXACT, SECTIONS, WHOLE, Case, cases
from tcusim_cuda.driver import arch_name

__all__ = ["ROUNDED", "Bench", "Named", "Part", "Say", "Settings", "bench", "measure", "section"]

DEFAULT_SECTIONS: Final = ("sums", "scans", "products")
QUICK_SEGMENTS: Final = (16, 256, 4096, WHOLE)
QUICK_LOG2_LENGTH: Final = 27
# Less would fit into a cache; more into no GPU's memory.
_LOG2_LENGTHS: Final = (20, 34)
# The usual sums, beside exact ones.
ROUNDED: Final = "tcusim, rounded sums"

_REPEATS: Final = 9
_LIMIT_REPEATS: Final = 21
# Seconds in which energy is measured: as many as there are, but within these.
_ENERGY_SECONDS: Final = (0.6, 2.0)

Say: TypeAlias = Callable[[str], None]
# A program, with its name in the report.
Named: TypeAlias = tuple[str, Recipe]


@dataclass(frozen=True, slots=True)
class Settings:
    """The measurements to make, on 2**log2_length elements: 2**20 to 2**34, far more than a cache.

    sections: out of `SECTIONS`. segments: sizes to take instead of the sections' own, or `WHOLE`.
    peers: out of `tcusim_bench.peers.PEERS`. backend: the launcher of tcusim's kernels, "cuda",
    "cupy" or "pycuda"; the data are in CuPy arrays in any case. programs: whether other programs
    are tried beside those of the default plan. quick: at most 2**27 elements, few segment sizes,
    and no other programs. seconds: for all problems, which have equal shares; begin none later.
    commit: of tcusim's source, for the record.
    """

    log2_length: int = 30
    sections: tuple[str, ...] = DEFAULT_SECTIONS
    segments: tuple[int, ...] = ()
    peers: tuple[str, ...] = DEFAULT_PEERS
    backend: str = "cupy"
    programs: bool = True
    quick: bool = False
    seconds: float | None = None
    commit: str = ""

    def __post_init__(self) -> None:
        least, most = _LOG2_LENGTHS
        if not least <= self.log2_length <= most:
            text = f"log2_length must be from {least} to {most}, got {self.log2_length}"
            raise InputError(text)
        for size in self.segments:
            if not 0 <= size <= self.length:
                text = f"segment sizes must be from 0 to 2**{self.log2_length}, got {size}"
                raise InputError(text)
        for name in self.sections:
            if name not in SECTIONS:
                raise unknown_name("section", name, SECTIONS)

    @property
    def length(self) -> int:
        """Elements of the data."""
        return 1 << self.log2_length

    def reduced(self) -> Settings:
        """Return the effective settings: fewer measurements, if it is to be quick."""
        if not self.quick:
            return self
        length = min(self.log2_length, QUICK_LOG2_LENGTH)
        return replace(self, log2_length=length, programs=False)

    def cases(self) -> tuple[Case, ...]:
        """Return the problems, in the order of the report."""
        found = cases(self.sections, self.length, self.segments)
        if not self.quick or self.segments:
            return found
        quick = {size or self.length for size in QUICK_SEGMENTS}
        few = [one for one in found if one.section not in ("sums", "scans", "types")]
        few += [one for one in found if one not in few and one.segment_size in quick]
        return tuple(one for one in found if one in few)


@dataclass(frozen=True, slots=True)
class Part:
    """Problems that are measured together and make one report.

    recipes_for: tcusim's programs for a problem, by names for the report. peers: that are
    compared with. energy: whether energy is measured, too. figure: of the paper, in words.
    """

    cases: tuple[Case, ...]
    recipes_for: Callable[[Problem], Iterable[Named]]
    peers: tuple[str, ...] = DEFAULT_PEERS
    energy: bool = False
    figure: str = ""


def section(given: Settings) -> Part:
    """Return the sections of settings as one part."""
    recipes_for = partial(_fitting, programs=given.programs)
    return Part(given.cases(), recipes_for, given.peers, energy=ENERGY in given.sections)


def bench(settings: Settings, say: Say | None = None) -> Report:
    """Measure sums, scans and products on this machine's GPU.

    The rows are in the order of the sections and of the segments; `say` is given a line of text for
    each problem, as it is done. Raises InputError if an argument is wrong, or the GPU has too
    little memory, and BackendUnavailable if CuPy or a GPU is missing.
    """
    given = settings.reduced()
    return measure(given, section(given), say)


def measure(given: Settings, part: Part, say: Say | None = None) -> Report:
    """Measure one part in a run of its own."""
    with contextlib.closing(Bench(given, part.peers)) as one:
        return one.measure(part, given.seconds, say)


class Bench:
    """A GPU with its data, the libraries to compare with, and processes that work ahead."""

    def __init__(self, given: Settings, peers: tuple[str, ...]) -> None:
        self._given = given
        self._device = Device(given.length, given.backend)
        self._peers = Peers(self._device, peers)
        self._ahead = Ahead(given.length, self._device.sm)
        # The recipes for the problems of parts, by the parts' identities.
        self._begun: dict[int, dict[Case, list[Named]]] = {}

    def close(self) -> None:
        """Stop the work that was begun."""
        self._peers.close()
        self._ahead.close()

    def measure(
        self,
        part: Part,
        seconds: float | None = None,
        say: Say | None = None,
        *,
        before: Report | None = None,
        keep: Callable[[Report], None] | None = None,
    ) -> Report:
        """Measure a part, in so many seconds if they are given.

        before: an earlier report of the part, whose rows are kept and not measured again. keep: is
        given the report whenever a problem is solved.
        """
        began = time.monotonic()
        found = self._begun.pop(id(part), None) or self._left(part, before)
        report = self._start(part, before)
        rows = list(report.rows)
        untried = 0
        while found:
            left = math.inf if seconds is None else began + seconds - time.monotonic()
            if left < 0:
                report.notes += [f"{case} was left out: the time was up" for case in found]
                break
            share = left / len(found)
            case = self._next(found)
            one = _Solver(self._device, self._peers, self._ahead, part, found.pop(case))
            rows += one.solve(Problem(case, self._device), share, say)
            untried += one.untried
            report.notes += one.notes
            report.rows = _ordered(part, rows, report.limits)
            report.seconds = time.monotonic() - began
            if keep is not None:
                keep(report)
        if untried:
            report.notes.append(f"{untried} more ways of libraries and programs: no time was left")
        _measure_limits_again(report, self._device)
        report.rows = _ordered(part, rows, report.limits)
        report.notes.append(f"tcusim's kernels were launched through {self._given.backend}")
        report.seconds = time.monotonic() - began
        if keep is not None:
            keep(report)
        return report

    def begin(self, part: Part, before: Report | None = None) -> None:
        """Let the other processes begin with a part that will be measured soon."""
        self._begun[id(part)] = self._left(part, before)

    def _left(self, part: Part, before: Report | None) -> dict[Case, list[Named]]:
        """Return the recipes for the problems that are left, in order, and begin with them."""
        solved = set() if before is None else {row.case for row in before.rows}
        found = {}
        for case in in_order(case for case in part.cases if case not in solved):
            found[case] = list(part.recipes_for(Problem(case, self._device)))
            self._ahead.start(case, [recipe for _, recipe in found[case]])
        return found

    def _next(self, found: dict[Case, list[Named]]) -> Case:
        """Return the first case that does not have to wait for the other processes, if any."""
        for case, named in found.items():
            if self._ahead.is_ready(case, [recipe for _, recipe in named]):
                return case
        return next(iter(found))

    def _start(self, part: Part, before: Report | None) -> Report:
        report = Report(
            device=self._device.info,
            versions={**_versions(), **self._peers.versions},
            limits=read_limits(self._device, _LIMIT_REPEATS),
            length=self._given.length,
            date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
            commit=self._given.commit,
            figure=part.figure,
        )
        if before is not None:
            text = f"{len(before.rows)} rows are of an earlier run, of {before.date}"
            report.notes += [text, *(f"earlier: {note}" for note in before.notes)]
            report.rows = before.rows
        missing = self._peers.missing.items()
        report.notes += [
            f"{name} was left out: {why}" for name, why in missing if name in part.peers
        ]
        if 2 * self._given.length < 4 * report.device["l2_bytes"]:
            report.notes.append("the data are not far larger than the cache: the figures flatter")
        return report


def in_order(found: Iterable[Case]) -> list[Case]:
    """Return cases so that a run that is cut short has some of each section, kind and type.

    Of each the first, the last, the middle, and so on, until the gaps are filled.
    """
    groups: dict[tuple[str, str, str], list[Case]] = {}
    for case in found:
        groups.setdefault((case.section, case.kind, case.dtype), []).append(case)
    ranked = [
        (rank, number, group[place])
        for number, group in enumerate(groups.values())
        for rank, place in enumerate(_spread(len(group)))
    ]
    return [case for _, _, case in sorted(ranked, key=lambda one: one[:2])]


def _spread(size: int) -> list[int]:
    """Return the numbers below `size`: both ends, the middle between them, and so on."""
    order, gaps = [0, size - 1], [(0, size - 1)]
    for low, high in gaps:
        middle = (low + high) // 2
        if low < middle:
            order.append(middle)
            gaps += [(low, middle), (middle, high)]
    return list(dict.fromkeys(order)) if size else []


def _ordered(part: Part, rows: list[Row], limits: dict[str, float]) -> tuple[Row, ...]:
    """Return rows in the order of the part's cases, with their ratios."""
    places = {case: place for place, case in enumerate(part.cases)}
    known = [row for row in rows if row.case in places]
    return with_ratios(sorted(known, key=lambda row: places[row.case]), limits)


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version(), "numpy": np.__version__}
    for name in ("tcusim", "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def _measure_limits_again(report: Report, device: Device) -> None:
    """Keep the higher limits: a GPU that was slow at the start must not flatter the rows."""
    try:
        again = read_limits(device, _LIMIT_REPEATS)
    except Exception as error:  # measurements must not be lost
        report.notes.append(f"the limits could not be measured again: {first_line(error)}")
        return
    spread = max(abs(again[name] / report.limits[name] - 1) for name in again)
    report.notes.append(f"the limits, measured first and last, were {100 * spread:.1f} % apart")
    report.limits = {name: max(report.limits[name], again[name]) for name in again}


# --- One problem ------------------------------------------------------------------------------


@dataclass(slots=True)
class _Solver:
    """Tries every way to solve a problem.

    untried: the number of ways that there was no time for. notes: other failures.
    """

    device: Device
    peers: Peers
    ahead: Ahead
    part: Part
    recipes: Sequence[Named]
    untried: int = 0
    notes: list[str] = field(default_factory=list)

    def solve(self, problem: Problem, seconds: float, say: Say | None) -> list[Row]:
        """Return the best of each library and types."""
        began, case = time.monotonic(), problem.case
        ways: dict[Attempt, tuple[Contender, Recipe | None]] = {}
        first, more = self._ways(problem)
        for number, way in enumerate([*first, *more]):
            if number >= len(first) and time.monotonic() - began > seconds:
                self.untried += 1
            else:
                ways[self._attempt(problem, *way)] = way
        rows = best_rows(case, ways, problem.size)
        if self.part.energy:
            left = (seconds - time.monotonic() + began) / max(1, len(rows))
            rows = [self._with_energy(problem, row, ways[row.best][0], left) for row in rows]
        if say is not None:
            rates = [(row.best.who, row.best.result, row.elements_per_s) for row in rows]
            best = ", ".join(f"{who} {to} {rate / 1e9:.0f} G/s" for who, to, rate in rates if rate)
            say(f"{case}: {best}  ({time.monotonic() - began:.1f} s)")
        return rows

    def _ways(self, problem: Problem) -> tuple[list[Any], list[Any]]:
        """Return the ways that are always tried, and those that are tried if there is time."""
        ours = [(_contender(problem, *named), named[1]) for named in self.recipes]
        others = [(one, None) for one in self.peers.contenders(problem, self.part.peers)]
        first: list[Any] = [way for way in ours if way[0].who in (OURS, ROUNDED)]
        seen = set()
        for way in others:
            if way[0].who not in seen:
                seen.add(way[0].who)
                first.append(way)
        return first, [way for way in (*ours, *others) if way not in first]

    def _attempt(self, problem: Problem, contender: Contender, recipe: Recipe | None) -> Attempt:
        """Run a contender, verify its results, and time it; an error becomes its status."""
        attempt = Attempt(
            contender.who, contender.label, contender.acc, contender.result, "not run"
        )
        device, case = self.device, problem.case
        try:
            expected = None if recipe is None else self.ahead.expected(problem, recipe)
            out = device.output(contender.result, problem.size)
            run = contender.prepare(out)
            device.once(run)
            error = problem.error(out, contender.result)
            attempt = replace(attempt, error=None if math.isnan(error) else error)
            compared, differ = problem.compare_bits(expected, out)
            attempt = replace(attempt, bits_compared=compared, bits_differ=differ)
            printed = recipe is not None and recipe.is_printed
            status = verdict(attempt, case.segment_size, printed=printed)
            if status != "ok":
                return replace(attempt, status=status)
            if case.in_graph:
                of_torch = contender.who in IN_TORCH
                times = device.times_in_graph(run, _REPEATS, of_torch=of_torch)
            else:
                times = device.times(run, _REPEATS, warm=True)
        except Exception as reason:  # a peer may raise anything; the others are still to be run
            return replace(attempt, status=f"failed: {first_line(reason)}")
        return replace(
            attempt, status="ok", ms=times.median, least_ms=times.least, most_ms=times.most
        )

    def _with_energy(self, problem: Problem, row: Row, contender: Contender, seconds: float) -> Row:
        """Return a row with its best attempt's energy, if it is of the usual type of results."""
        usual = next(plans(problem.case)).result
        if not row.best.ok or row.best.result != usual:
            return row
        least, most = _ENERGY_SECONDS
        try:
            run = contender.prepare(self.device.output(usual, problem.size))
            found = self.device.energy(run, min(most, max(least, seconds)))
        except Exception as reason:  # its time was measured all the same
            text = f"{problem.case}, {contender.who}: no energy: {first_line(reason)}"
            self.notes.append(text)
            return row
        return replace(row, best=replace(row.best, watts=found.watts, steady_ms=found.ms))


def _contender(problem: Problem, who: str, recipe: Recipe) -> Contender:
    length = problem.case.length

    def prepare(out: Array) -> Run:
        plan = recipe.plan(length)
        return problem.device.program(plan, problem.arrays_for(plan), out)

    return Contender(who, recipe.label_at(length), recipe.acc, recipe.result, prepare)


def _fitting(problem: Problem, *, programs: bool) -> Iterator[Named]:
    """Yield the planner's choices, and other programs with blocks that fit into the length."""
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
    if not programs or case.section not in DEFAULT_SECTIONS:
        return
    for recipe in recipes(case.kind, None if case.is_whole else case.segment_size, arch=arch):
        if fits(recipe, case.length):
            yield PROGRAMS, recipe


def fits(recipe: Recipe, length: int) -> bool:
    """Return whether blocks take no more than there is; any other error becomes a row."""
    try:
        recipe.plan(length)
    except InputError:
        return False
    except TcusimError:
        pass  # it will be raised again where it becomes a row
    return True
