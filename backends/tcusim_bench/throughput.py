"""Measure sums, scans and products on a GPU: its own limits, tcusim's kernels, other libraries.

    tcusim bench throughput --json -o results.json

Everything is measured in one run, since figures drift from machine to machine. A result is verified
before it is timed: a sample of it with float64, and the first results of tcusim's own kernels with
the bits of the simulator. What cannot run, or is wrong, is a row that says so.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import itertools
import math
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from tcusim.errors import InputError, TcusimError, unknown_name
from tcusim.machine import format_of
from tcusim.program.launches import LaunchPlan
from tcusim_bench.device import Array, Device, Run, Times, read_limits
from tcusim_bench.peers import DEFAULT_PEERS, PYTORCH, Contender, Peers, first_line
from tcusim_bench.problems import Problem
from tcusim_bench.programs import Recipe, plans, recipes
from tcusim_bench.sections import SECTIONS, WHOLE, Case, cases
from tcusim_cuda.driver import arch_name

__all__ = ["OURS", "PROGRAMS", "Attempt", "Report", "Row", "Say", "Settings", "bench", "measure"]

DEFAULT_SECTIONS: Final = ("sums", "scans", "products")
QUICK_SEGMENTS: Final = (16, 256, 4096, WHOLE)
QUICK_LOG2_LENGTH: Final = 27

# What the functions on arrays launch, and the best of some programs beside it.
OURS: Final = "tcusim"
PROGRAMS: Final = "tcusim, other programs"
FORMAT: Final = "tcusim bench 1"

# A sum writes next to nothing, a scan as many numbers as it reads. Products of matrices are bound
# by the tensor cores, and arrays that a graph takes again and again lie in the cache.
_LIMIT_OF: Final = {"sum": "read", "scan": "copy", "matvec": "read"}

_REPEATS: Final = 9
_LIMIT_REPEATS: Final = 21

Say: TypeAlias = Callable[[str], None]

# Largest errors, relative to the norm of a segment. An f32 sum of a chain of truncating products
# stays under 2^-20; f16 results are rounded to 2^-11 of themselves, bf16 ones to 2^-8; and f16 sums
# of thousands of elements lose some bits more, the more the longer the segment: of a million, up to
# `_LOOSE`.
_TOLERANCES: Final = {
    ("f32", "f32"): 2.0**-17,
    ("f32", "f16"): 2.0**-9,
    ("f32", "bf16"): 2.0**-6,
    ("f64", "f64"): 2.0**-36,
    ("s32", "s32"): 0.0,
}
_LOOSE: Final = 2.0**-4
_LOOSE_SIZE: Final = 2**20


@dataclass(frozen=True, slots=True)
class Attempt:
    """One way to solve a problem, and how it went.

    status: "ok", or what was wrong. ms: the median of several runs, least_ms and most_ms the ends.
    error: the largest of the sample, relative to a segment's norm. bits_compared, bits_differ:
    results that were compared with the simulator's.
    """

    who: str
    label: str
    acc: str
    result: str
    status: str
    ms: float | None = None
    error: float | None = None
    bits_compared: int = 0
    bits_differ: int = 0
    least_ms: float | None = None
    most_ms: float | None = None

    @property
    def ok(self) -> bool:
        """Whether it was right, and timed."""
        return self.status == "ok"


@dataclass(frozen=True, slots=True)
class Row:
    """The best attempt of one library at one problem.

    kind, segment_size, length, section, dtype, lengths, in_graph: see `Case`. bytes: of the data
    read once and the results written once. of_limit: the bytes a second over the GPU's limit, that
    of copying for scans and that of reading for the others. of_peer: elements a second over those
    of the best other library (for scans: with results of the same type), if there is one. tried:
    every attempt.
    """

    kind: str
    segment_size: int
    length: int
    bytes: int
    best: Attempt
    tried: tuple[Attempt, ...]
    of_limit: float | None = None
    of_peer: float | None = None
    section: str = ""
    dtype: str = "f16"
    lengths: str = ""
    in_graph: bool = False

    @property
    def case(self) -> Case:
        """The problem."""
        return Case(
            *(self.section, self.kind, self.segment_size, self.length),
            *(self.dtype, self.lengths, self.in_graph),
        )

    @property
    def times(self) -> Times | None:
        """Milliseconds of the best attempt, if it was right and its spread was recorded."""
        one = self.best
        if one.ms is None or one.least_ms is None or one.most_ms is None:
            return None
        return Times(one.ms, one.least_ms, one.most_ms)

    @property
    def elements_per_s(self) -> float | None:
        """Elements of the data in a second."""
        return self.length / self.best.ms * 1e3 if self.best.ms else None

    @property
    def flops(self) -> float | None:
        """Multiplications and additions in a second, of a product."""
        cols = self.segment_size if self.kind == "matmul" else 1
        speed = self.elements_per_s if self.case.is_product else None
        return 2 * cols * speed if speed else None

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes that must be moved, in a second."""
        return self.bytes / self.best.ms * 1e3 if self.best.ms else None

    @property
    def is_ours(self) -> bool:
        """Whether it is one of tcusim's own kernels."""
        return self.best.who.startswith(OURS)


@dataclass(slots=True)
class Report:
    """What was measured.

    device: the GPU, driver and CUDA. versions: of the libraries. limits: bytes a second, "read"
    and "copy". notes: what could not be done. commit: of tcusim's source, if it was told. figure:
    of the paper, if it is one, and authors: the series that its authors measured, if they were
    given.
    """

    device: dict[str, Any]
    versions: dict[str, str]
    limits: dict[str, float]
    length: int
    date: str
    rows: tuple[Row, ...] = ()
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    commit: str = ""
    figure: str = ""
    authors: dict[str, Any] = field(default_factory=dict)

    @property
    def wrong(self) -> tuple[Attempt, ...]:
        """Every attempt of tcusim's own that did not end well."""
        return tuple(one for row in self.rows if row.is_ours for one in row.tried if not one.ok)

    def table(self) -> list[list[str]]:
        """Return the rows as text, the heads first."""
        heads = ["kind", "segment", "by", "sums", "result", "ms", "G/s", "TB/s"]
        return [[*heads, "of limit", "of best peer", "how"], *map(_cells, self.rows)]

    def text(self) -> str:
        """Return the whole report as plain text."""
        device = self.device
        head = [
            f"{device.get('gpu')} (sm_{device.get('sm')}), driver {device.get('driver')}, "
            f"CUDA {device.get('cuda')}; {self.date}",
            f"up to {self.length} f16 elements, uniform in [-1, 1), in {self.seconds:.0f} s",
            f"limits: reading {self.limits['read'] / 1e12:.3f} TB/s, "
            f"copying {self.limits['copy'] / 1e12:.3f} TB/s",
            "",
        ]
        return "\n".join([*head, *_aligned(self.table()), *(f"note: {one}" for one in self.notes)])

    def as_json(self) -> dict[str, Any]:
        """Return everything as a dict for `json.dump`."""
        record = {"format": FORMAT, **asdict(self)}
        for plain, row in zip(record["rows"], self.rows, strict=True):
            if row.flops:
                plain["flops_per_s"] = row.flops
            plain["elements_per_s"] = row.elements_per_s
            plain["bytes_per_s"] = row.bytes_per_s
        return record

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Report:
        """Return the report that `as_json` gave; InputError if it is not one."""
        if record.get("format") != FORMAT:
            raise InputError(f"this is no {FORMAT!r}: its format is {record.get('format')!r}")
        fields = {name: value for name, value in record.items() if name != "format"}
        return cls(**{**fields, "rows": tuple(map(_row_of, record["rows"]))})


@dataclass(frozen=True, slots=True)
class Settings:
    """What to measure, on 2**log2_length elements: 2**20 to 2**34, far more than a cache holds.

    sections: out of `SECTIONS`. segments: sizes to take instead of the sections' own, or `WHOLE`.
    peers: out of `tcusim_bench.peers.PEERS`. backend: what launches tcusim's kernels, "cuda",
    "cupy" or "pycuda"; the data are in CuPy arrays in any case. programs: whether other programs
    are tried beside those of the default plan. quick: at most 2**27 elements, few segment sizes,
    and no other programs. seconds: begin no further problem after this time; whole arrays and
    products come first. commit: of tcusim's source, for the record.
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
        if not 20 <= self.log2_length <= 34:
            raise InputError(f"log2_length must be from 20 to 34, got {self.log2_length}")
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
        """Return what is measured in truth: less, if it is to be quick."""
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
class Job:
    """A problem, and who is to solve it: recipes of tcusim by their names in the report."""

    problem: Problem
    recipes: tuple[tuple[str, Recipe], ...]

    @property
    def ahead(self) -> list[Callable[[], LaunchPlan]]:
        """What makes the plans of the recipes."""
        length = self.problem.case.length
        return [partial(recipe.plan, length) for _, recipe in self.recipes]


def bench(settings: Settings, say: Say | None = None) -> Report:
    """Measure sums, scans and products on this machine's GPU.

    The rows are in the order of the sections and of the segments; `say` is given a line of text for
    each problem, as it is done. Raises InputError if an argument is wrong, or the GPU has too
    little memory, and BackendUnavailable if CuPy or a GPU is missing.
    """
    given = settings.reduced()
    return measure(
        given, given.cases(), lambda problem: _fitting(problem, programs=given.programs), say
    )


def measure(
    given: Settings,
    found: Sequence[Case],
    recipes_for: Callable[[Problem], Iterable[tuple[str, Recipe]]],
    say: Say | None = None,
) -> Report:
    """Measure cases in one run: limits, recipes by their names in the report, and peers."""
    began = time.monotonic()
    device = Device(given.length, given.backend)
    others = Peers(device, given.peers)
    try:
        report = _start(device, others, given)
        rows: list[Row] = []
        jobs = [_job(Problem(case, device), recipes_for) for case in _in_order(found)]
        device.compile_ahead(itertools.chain.from_iterable(job.ahead for job in jobs))
        for job in jobs:
            if given.seconds is not None and time.monotonic() - began > given.seconds:
                report.notes.append(f"{job.problem.case} was left out: the time was up")
                continue
            # A new one, so that its sample does not outlive it.
            rows.extend(_solve(replace(job, problem=replace(job.problem)), others, say))
        _measure_limits_again(report, device)
        rows.sort(key=lambda row: found.index(row.case))
        report.rows = with_ratios(rows, report.limits)
        report.notes.append(f"tcusim's kernels were launched through {given.backend}")
    finally:
        if others.cub is not None:
            others.cub.close()
    report.seconds = time.monotonic() - began
    return report


def _in_order(found: Iterable[Case]) -> list[Case]:
    """Return cases, first what asks most of the GPU; those of one type together.

    Sums and scans come in turn, so that a run that is cut short has some of both.
    """
    numbers = {"f16": 0}
    listed = list(found)
    for case in listed:
        numbers.setdefault(case.dtype, len(numbers))
    # Products, then whole arrays; of the others, the same size of each section one after the other.
    seen: dict[tuple[str, str, str], int] = {}
    keys = {}
    for case in listed:
        group = (case.section, case.kind, case.dtype)
        seen[group] = seen.get(group, -1) + 1
        first = 0 if case.is_product else 1 if case.is_whole and not case.in_graph else 2
        keys[case] = (numbers[case.dtype], first, seen[group])
    return sorted(listed, key=keys.__getitem__)


def _job(problem: Problem, recipes_for: Callable[[Problem], Iterable[tuple[str, Recipe]]]) -> Job:
    return Job(problem, tuple(recipes_for(problem)))


def _start(device: Device, others: Peers, given: Settings) -> Report:
    report = Report(
        device=device.info,
        versions={**_versions(), **others.versions},
        limits=read_limits(device, _LIMIT_REPEATS),
        length=given.length,
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        commit=given.commit,
    )
    report.notes += [f"{name} was left out: {why}" for name, why in others.missing.items()]
    if 2 * given.length < 4 * report.device["l2_bytes"]:
        report.notes.append("the data are not far larger than the cache: the figures flatter")
    return report


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
    except Exception as error:  # what was measured must not be lost
        report.notes.append(f"the limits could not be measured again: {first_line(error)}")
        return
    spread = max(abs(again[name] / report.limits[name] - 1) for name in again)
    report.notes.append(f"the limits, measured first and last, were {100 * spread:.1f} % apart")
    report.limits = {name: max(report.limits[name], again[name]) for name in again}


# --- One problem ------------------------------------------------------------------------------


def _solve(job: Job, others: Peers, say: Say | None) -> list[Row]:
    """Try every way to solve a problem; return the best of each library and types."""
    began, problem = time.monotonic(), job.problem
    attempts = [_attempt_ours(problem, who, recipe) for who, recipe in job.recipes]
    attempts += [_attempt(problem, one) for one in others.contenders(problem)]
    rows = best_rows(problem.case, attempts, problem.size)
    if say is not None:
        rates = [(row.best.who, row.best.result, row.elements_per_s) for row in rows]
        best = ", ".join(f"{who} {to} {rate / 1e9:.0f} G/s" for who, to, rate in rates if rate)
        say(f"{problem.case}: {best}  ({time.monotonic() - began:.1f} s)")
    return rows


def _fitting(problem: Problem, *, programs: bool) -> Iterator[tuple[str, Recipe]]:
    """Yield what plans choose, and other programs whose blocks fit into the length."""
    case, arch = problem.case, arch_name(problem.device.sm)
    if case.lengths:
        longest = int(np.diff(problem.offsets).max())
        for recipe in plans(case, arch, segments=problem.segments, longest=longest):
            yield (PROGRAMS if recipe.longest is None else OURS), recipe
        return
    for recipe in plans(case, arch):
        yield OURS, recipe
    if not programs or case.section not in DEFAULT_SECTIONS:
        return
    for recipe in recipes(case.kind, None if case.is_whole else case.segment_size, arch=arch):
        if fits(recipe, case.length):
            yield PROGRAMS, recipe


def fits(recipe: Recipe, length: int) -> bool:
    """Return whether blocks take no more than there is; what else is wrong becomes a row."""
    try:
        recipe.plan(length)
    except InputError:
        return False
    except TcusimError:
        pass  # it will be raised again where it becomes a row
    return True


def _attempt_ours(problem: Problem, who: str, recipe: Recipe) -> Attempt:
    length = problem.case.length

    def prepare(out: Array) -> Run:
        plan = recipe.plan(length)
        return problem.device.program(plan, problem.arrays_for(plan), out)

    label = recipe.label_at(length)
    return _attempt(problem, Contender(who, label, recipe.acc, recipe.result, prepare), recipe)


def _attempt(problem: Problem, contender: Contender, recipe: Recipe | None = None) -> Attempt:
    """Run a contender, verify what it wrote, and time it; whatever goes wrong is its status."""
    attempt = Attempt(contender.who, contender.label, contender.acc, contender.result, "not run")
    device, case = problem.device, problem.case
    try:
        out = device.output(contender.result, problem.size)
        run = contender.prepare(out)
        run()
        error = problem.error(out, contender.result)
        attempt = replace(attempt, error=None if math.isnan(error) else error)
        if recipe is not None:
            compared, differ = problem.compare_bits(recipe, out)
            attempt = replace(attempt, bits_compared=compared, bits_differ=differ)
        printed = recipe is not None and recipe.is_printed
        status = verdict(attempt, case.segment_size, printed=printed)
        if status != "ok":
            return replace(attempt, status=status)
        if case.in_graph:
            times = device.times_in_graph(run, _REPEATS, of_torch=contender.who == PYTORCH)
        else:
            times = device.times(run, _REPEATS)
    except Exception as reason:  # a peer may raise anything; the others are still to be run
        return replace(attempt, status=f"failed: {first_line(reason)}")
    return replace(attempt, status="ok", ms=times.median, least_ms=times.least, most_ms=times.most)


def verdict(attempt: Attempt, segment_size: int, *, printed: bool = False) -> str:
    """Return "ok" if a result is right, else what is wrong with it.

    printed: whether partial sums are rounded to f16, as the paper prints its programs.
    """
    if attempt.bits_differ:
        return f"wrong: {attempt.bits_differ} of {attempt.bits_compared} differ from the simulator"
    if attempt.error is None:
        return "wrong: some results are NaN, or were not written"
    # Sums whose own digits are too few are off by as much in each addition, relative to the norm.
    loose = _LOOSE * math.sqrt(max(1.0, segment_size / _LOOSE_SIZE))
    usual = _TOLERANCES.get((attempt.acc, attempt.result), loose)
    allowed = loose if printed else usual
    if attempt.error > allowed:
        return f"wrong: error {attempt.error:.2g}, more than {allowed:.2g} of a segment's norm"
    return "ok"


# --- Rows -------------------------------------------------------------------------------------


def moved_bytes(case: Case, results: int, result: str) -> int:
    """Return the bytes that must be moved: data read once, results written once."""
    second = {"matvec": case.segment_size, "matmul": case.segment_size**2}.get(case.kind, 0)
    read = (case.length + second) * format_of(case.dtype).itemsize
    return read + results * format_of(result).itemsize


def best_rows(case: Case, attempts: Iterable[Attempt], results: int | None = None) -> list[Row]:
    """Return a row for each library and types: its fastest right attempt, or its first of all.

    results: how many there are, if that does not follow from the case.
    """
    groups: dict[tuple[str, str, str], list[Attempt]] = {}
    for attempt in attempts:
        groups.setdefault((attempt.who, attempt.acc, attempt.result), []).append(attempt)
    if results is None:
        results = case.length if case.kind == "scan" else case.length // case.segment_size
    rows = []
    for (_, _, result), tried in groups.items():
        best = min(tried, key=lambda one: math.inf if one.ms is None else one.ms)
        size = moved_bytes(case, results, result)
        rows.append(Row(**asdict(case), bytes=size, best=best, tried=tuple(tried)))
    return rows


def with_ratios(rows: Sequence[Row], limits: dict[str, float]) -> tuple[Row, ...]:
    """Return the rows with their parts of the limit, and ours with those of the best peer."""
    return tuple(
        replace(row, of_limit=_of_limit(row, limits), of_peer=_of_peer(row, rows)) for row in rows
    )


def _of_limit(row: Row, limits: dict[str, float]) -> float | None:
    limit = None if row.in_graph else _LIMIT_OF.get(row.kind)
    return row.bytes_per_s / limits[limit] if limit and row.bytes_per_s else None


def _of_peer(row: Row, rows: Sequence[Row]) -> float | None:
    peers = [
        other.elements_per_s
        for other in rows
        if not other.is_ours
        and other.elements_per_s
        and other.case == row.case
        and (row.kind != "scan" or other.best.result == row.best.result)
    ]
    ours = row.elements_per_s if row.is_ours else None
    return ours / max(peers) if ours and peers else None


def _row_of(plain: dict[str, Any]) -> Row:
    fields = {name: value for name, value in plain.items() if not name.endswith("_per_s")}
    fields["best"] = Attempt(**plain["best"])
    fields["tried"] = tuple(Attempt(**attempt) for attempt in plain["tried"])
    return Row(**fields)


# --- Text -------------------------------------------------------------------------------------


def _cells(row: Row) -> list[str]:
    best = row.best
    numbers = [
        "" if value is None else format(value * factor, form)
        for value, form, factor in (
            (best.ms, ".3f", 1.0),
            (row.elements_per_s, ".0f", 1e-9),
            (row.bytes_per_s, ".3f", 1e-12),
            (row.of_limit, ".1%", 1.0),
            (row.of_peer, ".2f", 1.0),
        )
    ]
    how = best.label if best.ok else f"{best.label}: {best.status}"
    kind = row.kind if row.dtype == "f16" else f"{row.kind} {row.dtype}"
    return [kind, row.case.size, best.who, best.acc, best.result, *numbers, how]


def _aligned(table: list[list[str]]) -> list[str]:
    """Return a table's lines, with numbers to the right and words to the left."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    pads = [str.rjust if place in (1, 5, 6, 7, 8, 9) else str.ljust for place in range(len(widths))]
    return [
        "  ".join(
            pad(cell, width) for pad, cell, width in zip(pads, cells, widths, strict=True)
        ).rstrip()
        for cells in table
    ]
