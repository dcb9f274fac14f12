"""The results of the benchmark: attempts, the best of each library as a row, and a run's report.

A report is JSON that charts and pages are made of, and a table to read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from tcusim.errors import InputError
from tcusim.machine import format_of
from tcusim_bench.device import Times
from tcusim_bench.sections import Case

__all__ = [
    "OURS",
    "PROGRAMS",
    "Attempt",
    "Report",
    "Row",
    "best_rows",
    "moved_bytes",
    "verdict",
    "with_ratios",
]

# Labels of the array functions' default launches, and of the best of some other programs.
OURS: Final = "tcusim"
PROGRAMS: Final = "tcusim, other programs"
FORMAT: Final = "tcusim bench 1"

# A sum writes next to nothing, a scan as many numbers as it reads. Products of matrices are bound
# by the tensor cores, and arrays that a graph takes again and again lie in the cache.
_LIMIT_OF: Final = {"sum": "read", "scan": "copy", "matvec": "read"}

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
    """One way to solve a problem, and its outcome.

    status: "ok", or the fault. ms: the median of several runs, least_ms and most_ms the ends.
    error: the largest of the sample, relative to a segment's norm. bits_compared, bits_differ:
    results that were compared with the simulator's. watts: the power of the GPU while it ran
    repeatedly, and steady_ms: the time of one run then; None if that was not measured.
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
    watts: float | None = None
    steady_ms: float | None = None

    @property
    def joules(self) -> float | None:
        """The energy of one run."""
        if self.watts is None or self.steady_ms is None:
            return None
        return self.watts * self.steady_ms / 1e3

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
    def joules_per_element(self) -> float | None:
        """The energy of an element of the data, if that was measured."""
        return None if self.best.joules is None else self.best.joules / self.length

    @property
    def is_ours(self) -> bool:
        """Whether it is one of tcusim's own kernels."""
        return self.best.who.startswith(OURS)


@dataclass(slots=True)
class Report:
    """The measurements.

    device: the GPU, driver and CUDA. versions: of the libraries. limits: bytes a second, "read"
    and "copy". notes: failures, in words. commit: of tcusim's source, if it was given. figure:
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
        table = [[*heads, "of limit", "of best peer", "how"], *map(_cells, self.rows)]
        if any(row.best.watts for row in self.rows):
            energy = [_number(row.joules_per_element, ".0f", 1e12) for row in self.rows]
            for cells, cell in zip(table, ["pJ", *energy], strict=True):
                cells.insert(-1, cell)
        return table

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
            if row.joules_per_element:
                plain["joules_per_element"] = row.joules_per_element
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


def verdict(attempt: Attempt, segment_size: int, *, printed: bool = False) -> str:
    """Return "ok" if a result is right, else its fault.

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


# The fields that `as_json` adds to a row for other readers.
_COMPUTED: Final = ("flops_per_s", "joules_per_element", "elements_per_s", "bytes_per_s")


def _row_of(plain: dict[str, Any]) -> Row:
    fields = {name: value for name, value in plain.items() if name not in _COMPUTED}
    fields["best"] = Attempt(**plain["best"])
    fields["tried"] = tuple(Attempt(**attempt) for attempt in plain["tried"])
    return Row(**fields)


# --- Text -------------------------------------------------------------------------------------


def _cells(row: Row) -> list[str]:
    best = row.best
    numbers = [
        _number(value, form, factor)
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


def _number(value: float | None, form: str, factor: float) -> str:
    return "" if value is None else format(value * factor, form)


def _aligned(table: list[list[str]]) -> list[str]:
    """Return a table's lines, with numbers to the right and words to the left."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    words = (0, 2, 3, 4, len(widths) - 1)
    pads = [str.ljust if place in words else str.rjust for place in range(len(widths))]
    return [
        "  ".join(
            pad(cell, width) for pad, cell, width in zip(pads, cells, widths, strict=True)
        ).rstrip()
        for cells in table
    ]
