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
from tcusim_bench.device import Device, Problem, matrix_columns, read_limits
from tcusim_bench.peers import DEFAULT_PEERS, Contender, Peers, first_line
from tcusim_bench.programs import KINDS, Recipe, recipes
from tcusim_cuda.driver import arch_name

__all__ = ["SEGMENTS", "WHOLE", "Attempt", "Report", "Row", "Settings", "bench"]

# The segment size that stands for the length: the whole array is one segment.
WHOLE: Final = 0
SEGMENTS: Final = (16, 64, 256, 1024, 4096, 2**14, 2**16, 2**18, 2**20, WHOLE)
QUICK_SEGMENTS: Final = (16, 256, 4096, WHOLE)
QUICK_LOG2_LENGTH: Final = 27

OURS: Final = "tcusim"
FORMAT: Final = "tcusim bench 1"

# A sum writes next to nothing, a scan as many numbers as it reads.
_LIMIT_OF: Final = {"sum": "read", "scan": "copy", "matvec": "read"}

_REPEATS: Final = 9
_LIMIT_REPEATS: Final = 21

Say: TypeAlias = Callable[[str], None]

# Largest errors, relative to the norm of a segment. An f32 sum of a chain of truncating products
# stays under 2^-20; f16 results are rounded to 2^-11 of themselves; and f16 sums of thousands of
# elements lose some bits more, the more the longer the segment: of a million, up to `_LOOSE`.
_TOLERANCES: Final = {("f32", "f32"): 2.0**-17, ("f32", "f16"): 2.0**-9}
_LOOSE: Final = 2.0**-4
_LOOSE_SIZE: Final = 2**20


@dataclass(frozen=True, slots=True)
class Attempt:
    """One way to solve a problem, and how it went.

    status: "ok", or what was wrong. error: the largest of the sample, relative to a segment's norm.
    bits_compared, bits_differ: results that were compared with the simulator's.
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

    @property
    def ok(self) -> bool:
        """Whether it was right, and timed."""
        return self.status == "ok"


@dataclass(frozen=True, slots=True)
class Row:
    """The best attempt of one library at one problem.

    segment_size: of "matvec", the columns of the matrix. length: elements of the data. bytes: of
    the data read once and the results written once. of_limit: the bytes a second over the GPU's
    limit, that of copying for scans and that of reading for the others. of_peer: elements a second
    over those of the best other library (for scans: with results of the same type), if there is
    one. tried: every attempt.
    """

    kind: str
    segment_size: int
    length: int
    bytes: int
    best: Attempt
    tried: tuple[Attempt, ...]
    of_limit: float | None = None
    of_peer: float | None = None

    @property
    def elements_per_s(self) -> float | None:
        """Elements of the data in a second."""
        return self.length / self.best.ms * 1e3 if self.best.ms else None

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes that must be moved, in a second."""
        return self.bytes / self.best.ms * 1e3 if self.best.ms else None

    @property
    def is_ours(self) -> bool:
        """Whether it is one of tcusim's own kernels."""
        return self.best.who == OURS


@dataclass(slots=True)
class Report:
    """What was measured.

    device: the GPU, driver and CUDA. versions: of the libraries. limits: bytes a second, "read"
    and "copy". notes: what could not be done.
    """

    device: dict[str, Any]
    versions: dict[str, str]
    limits: dict[str, float]
    length: int
    date: str
    rows: tuple[Row, ...] = ()
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def wrong(self) -> tuple[Attempt, ...]:
        """Every attempt of tcusim's own that did not end well."""
        return tuple(
            one for row in self.rows for one in row.tried if one.who == OURS and not one.ok
        )

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
            f"{self.length} f16 elements, uniform in [-1, 1), in {self.seconds:.0f} s",
            f"limits: reading {self.limits['read'] / 1e12:.3f} TB/s, "
            f"copying {self.limits['copy'] / 1e12:.3f} TB/s",
            "",
        ]
        return "\n".join([*head, *_aligned(self.table()), *(f"note: {one}" for one in self.notes)])

    def as_json(self) -> dict[str, Any]:
        """Return everything as a dict for `json.dump`."""
        record = {"format": FORMAT, **asdict(self)}
        for plain, row in zip(record["rows"], self.rows, strict=True):
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

    segments: sizes, divisors of the length, or `WHOLE`. kinds: out of `KINDS`; the matrix of
    "matvec" is the data, square or twice as high as wide. peers: out of `tcusim_bench.peers.PEERS`.
    backend: what launches tcusim's kernels, "cuda", "cupy" or "pycuda"; the data are in CuPy arrays
    in any case. quick: at most 2**27 elements, few segment sizes, and one way for each. seconds:
    begin no further problem after this time; whole arrays and products come first.
    """

    log2_length: int = 30
    segments: tuple[int, ...] = SEGMENTS
    kinds: tuple[str, ...] = KINDS
    peers: tuple[str, ...] = DEFAULT_PEERS
    backend: str = "cupy"
    quick: bool = False
    seconds: float | None = None

    def __post_init__(self) -> None:
        if not 20 <= self.log2_length <= 34:
            raise InputError(f"log2_length must be from 20 to 34, got {self.log2_length}")
        for size in self.segments:
            if size != WHOLE and (size < 1 or self.length % size):
                text = f"segment sizes must divide 2**{self.log2_length}; {size} does not"
                raise InputError(text)
        if not self.segments:
            raise InputError("segments is empty; name at least one segment size")
        for kind in self.kinds:
            if kind not in KINDS:
                raise unknown_name("kind", kind, KINDS)

    @property
    def length(self) -> int:
        """Elements of the data."""
        return 1 << self.log2_length

    @property
    def sizes(self) -> tuple[int, ...]:
        """Elements of a segment."""
        return tuple(size or self.length for size in self.segments)

    def reduced(self) -> Settings:
        """Return what is measured in truth: less, if it is to be quick."""
        if not self.quick:
            return self
        segments = tuple(size for size in self.segments if size in QUICK_SEGMENTS)
        length = min(self.log2_length, QUICK_LOG2_LENGTH)
        return replace(self, log2_length=length, segments=segments or self.segments[:1])


def bench(settings: Settings, say: Say | None = None) -> Report:
    """Measure sums and scans of f16 numbers, and a product, on this machine's GPU.

    The rows are in the order of `KINDS` and of the segments; `say` is given a line of text for each
    problem, as it is done. Raises InputError if an argument is wrong, or the GPU has too little
    memory, and BackendUnavailable if CuPy or a GPU is missing.
    """
    given = settings.reduced()
    began = time.monotonic()
    device = Device(given.length, given.backend)
    others = Peers(device, given.peers)
    try:
        report = _start(device, others, given.length)
        rows: list[Row] = []
        problems = [Problem(kind, size, device) for kind, size in _in_order(given)]
        device.compile_ahead(recipe for one in problems for recipe in _fitting(one, given.quick))
        for problem in problems:
            if given.seconds is not None and time.monotonic() - began > given.seconds:
                report.notes.append(f"{problem} was left out: the time was up")
                continue
            # A new one, so that its sample does not outlive it.
            rows.extend(_solve(replace(problem), others, given.quick, say))
        _measure_limits_again(report, device)
        sizes = [*given.sizes, matrix_columns(given.length)]
        rows.sort(key=lambda row: (KINDS.index(row.kind), sizes.index(row.segment_size)))
        report.rows = with_ratios(rows, report.limits)
        report.notes.append(f"tcusim's kernels were launched through {given.backend}")
    finally:
        if others.cub is not None:
            others.cub.close()
    report.seconds = time.monotonic() - began
    return report


def _in_order(given: Settings) -> Iterator[tuple[str, int]]:
    """Yield each kind and size, first what asks most of the GPU.

    Sums and scans come in turn, so that a run that is cut short has some of both.
    """
    if "matvec" in given.kinds:
        yield "matvec", matrix_columns(given.length)
    whole_first = sorted(dict.fromkeys(given.sizes), key=lambda size: size != given.length)
    for size, kind in itertools.product(whole_first, given.kinds):
        if kind != "matvec":
            yield kind, size


def _start(device: Device, others: Peers, length: int) -> Report:
    report = Report(
        device=device.info,
        versions={**_versions(), **others.versions},
        limits=read_limits(device, _LIMIT_REPEATS),
        length=length,
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    report.notes += [f"{name} was left out: {why}" for name, why in others.missing.items()]
    if device.data.nbytes < 4 * report.device["l2_bytes"]:
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


def _solve(problem: Problem, others: Peers, quick: bool, say: Say | None) -> list[Row]:
    """Try every way to solve a problem; return the best of each library and types."""
    began = time.monotonic()
    attempts = [_attempt_ours(problem, recipe) for recipe in _fitting(problem, quick)]
    attempts += [_attempt(problem, one) for one in others.contenders(problem)]
    rows = best_rows(problem.kind, problem.segment_size, problem.device.length, attempts)
    if say is not None:
        rates = [(row.best.who, row.elements_per_s) for row in rows]
        best = ", ".join(f"{who} {rate / 1e9:.0f} G/s" for who, rate in rates if rate)
        say(f"{problem}: {best}  ({time.monotonic() - began:.1f} s)")
    return rows


def _fitting(problem: Problem, quick: bool) -> Iterator[Recipe]:
    """Yield the recipes whose blocks fit into the length."""
    size = None if problem.is_whole else problem.segment_size
    arch = arch_name(problem.device.sm)
    for recipe in recipes(problem.kind, size, quick=quick, arch=arch):
        try:
            recipe.plan(problem.device.length)
        except InputError:
            continue  # a block takes more than there is
        except TcusimError:
            pass  # it will be raised again where it becomes a row
        yield recipe


def _attempt_ours(problem: Problem, recipe: Recipe) -> Attempt:
    label, prepare = recipe.label_at(problem.device.length), partial(problem.device.program, recipe)
    return _attempt(problem, Contender(OURS, label, recipe.acc, recipe.result, prepare), recipe)


def _attempt(problem: Problem, contender: Contender, recipe: Recipe | None = None) -> Attempt:
    """Run a contender, verify what it wrote, and time it; whatever goes wrong is its status."""
    attempt = Attempt(contender.who, contender.label, contender.acc, contender.result, "not run")
    try:
        out = problem.device.output(contender.result, problem.size)
        run = contender.prepare(out)
        run()
        error = problem.error(out)
        attempt = replace(attempt, error=None if math.isnan(error) else error)
        if recipe is not None:
            compared, differ = problem.compare_bits(recipe, out)
            attempt = replace(attempt, bits_compared=compared, bits_differ=differ)
        status = verdict(attempt, problem.segment_size)
        if status != "ok":
            return replace(attempt, status=status)
        ms = problem.device.median_ms(run, _REPEATS)
    except Exception as reason:  # a peer may raise anything; the others are still to be run
        return replace(attempt, status=f"failed: {first_line(reason)}")
    return replace(attempt, status="ok", ms=ms)


def verdict(attempt: Attempt, segment_size: int) -> str:
    """Return "ok" if a result is right, else what is wrong with it."""
    if attempt.bits_differ:
        return f"wrong: {attempt.bits_differ} of {attempt.bits_compared} differ from the simulator"
    if attempt.error is None:
        return "wrong: some results are NaN, or were not written"
    # Sums whose own digits are too few are off by as much in each addition, relative to the norm.
    loose = _LOOSE * math.sqrt(max(1.0, segment_size / _LOOSE_SIZE))
    allowed = _TOLERANCES.get((attempt.acc, attempt.result), loose)
    if attempt.error > allowed:
        return f"wrong: error {attempt.error:.2g}, more than {allowed:.2g} of a segment's norm"
    return "ok"


# --- Rows -------------------------------------------------------------------------------------


def moved_bytes(kind: str, segment_size: int, length: int, result: str) -> int:
    """Return the bytes that must be moved: f16 data read once, results written once."""
    results = length if kind == "scan" else length // segment_size
    vector = segment_size if kind == "matvec" else 0
    return 2 * (length + vector) + results * format_of(result).itemsize


def best_rows(kind: str, segment_size: int, length: int, attempts: Iterable[Attempt]) -> list[Row]:
    """Return a row for each library and types: its fastest right attempt, or its first of all."""
    groups: dict[tuple[str, str, str], list[Attempt]] = {}
    for attempt in attempts:
        groups.setdefault((attempt.who, attempt.acc, attempt.result), []).append(attempt)
    rows = []
    for (_, _, result), tried in groups.items():
        best = min(tried, key=lambda one: math.inf if one.ms is None else one.ms)
        size = moved_bytes(kind, segment_size, length, result)
        rows.append(Row(kind, segment_size, length, size, best, tuple(tried)))
    return rows


def with_ratios(rows: Sequence[Row], limits: dict[str, float]) -> tuple[Row, ...]:
    """Return the rows with their parts of the limit, and ours with those of the best peer."""
    return tuple(
        replace(
            row,
            of_limit=row.bytes_per_s and row.bytes_per_s / limits[_LIMIT_OF[row.kind]],
            of_peer=_of_peer(row, rows),
        )
        for row in rows
    )


def _of_peer(row: Row, rows: Sequence[Row]) -> float | None:
    peers = [
        other.elements_per_s
        for other in rows
        if not other.is_ours
        and other.elements_per_s
        and (other.kind, other.segment_size) == (row.kind, row.segment_size)
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
    size = "array" if row.segment_size == row.length else str(row.segment_size)
    return [row.kind, size, best.who, best.acc, best.result, *numbers, how]


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
