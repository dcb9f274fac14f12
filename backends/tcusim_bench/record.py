"""The record of a benchmark: a problem, a contender, its time, and whether its bits are right.

Every part of the benchmark gives such rows. A report is JSON that pages are made of, and a table.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from tcusim.errors import InputError
from tcusim.machine import format_of
from tcusim.table import aligned
from tcusim_cuda.microbench.stopwatch import Times

# The array functions' default launches, the best of some other programs, and rounded sums beside
# exact ones.
OURS: Final = "tcusim"
PROGRAMS: Final = "tcusim, other programs"
ROUNDED: Final = "tcusim, rounded sums"
FORMAT: Final = "tcusim bench 2"

# A sum writes next to nothing, a scan as many numbers as it reads. Products of matrices are bound
# by the tensor cores, and arrays that a graph reads again and again are in the cache.
_LIMIT_OF: Final = {
    "sum": "read",
    "scan": "copy",
    "matvec": "read",
    "mean": "read",
    "cumsum": "copy",
    "rms_norm": "copy",
    "softmax": "copy",
}

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
# A library's thread adds its share of a longer segment one number after another: its errors grow as
# the square root.
_LONG_SIZE: Final = 2**26
# The norms that the largest of many outputs of a product has.
_NORMS: Final = 4
_LOOSE: Final = 2.0**-4
_LOOSE_SIZE: Final = 2**20
# Sections of whole arrays of several lengths: figures of the paper.
_BY_LENGTH: Final = ("figure 13", "figure 14")


@dataclass(frozen=True, slots=True)
class Case:
    """One problem.

    kind: sum, scan, matvec or matmul; or another operation, such as a call. segment_size: elements
    of a segment; of a product, the columns of the left matrix; 0 if segments are ragged. length:
    elements of the array, or of the left matrix. dtype: their type, as PTX calls it. lengths: of
    ragged segments, their distribution. in_graph: timed as many launches of one CUDA graph.
    """

    section: str
    kind: str
    segment_size: int
    length: int
    dtype: str = "f16"
    lengths: str = ""
    in_graph: bool = False

    @property
    def is_product(self) -> bool:
        """Whether it multiplies."""
        return self.kind in ("matvec", "matmul")

    @property
    def is_whole(self) -> bool:
        """Whether the whole array is one segment."""
        return not self.is_product and self.segment_size == self.length

    @property
    def size(self) -> str:
        """Its description within its section."""
        if self.lengths:
            return self.lengths
        if self.in_graph or not self.segment_size or self.section in _BY_LENGTH:
            return str(self.length)
        return "array" if self.is_whole else str(self.segment_size)

    def __str__(self) -> str:
        """Return kind, type and size in words."""
        dtype = "" if self.dtype == "f16" else f" {self.dtype}"
        return f"{self.kind}{dtype} {self.lengths or self.segment_size or self.length}"


@dataclass(frozen=True, slots=True)
class Row:
    """One contender at one problem.

    Attributes
    ----------
    who, label : str
        The library or program, and its way to solve the problem, with the names of its kernels
        where they are tcusim's.
    acc, result : str
        Types of the sums and of the results.
    status : str
        "ok", or the fault.
    ms, least_ms, most_ms : float
        Milliseconds of a run on the GPU, or of a call: the median of several, the minimum and the
        maximum. None if the results were wrong.
    error : float
        The largest error of a sample of the results, relative to a segment's norm.
    bits_compared, bits_differ : int
        Results that were compared with the simulator's.
    watts, steady_ms : float
        The power of the GPU during repeated runs, and the time of one of them.
    host_us : float
        Microseconds of the host for one call.
    ratio : float
        Its time over that of the contender that `against` names.
    bytes : int
        Of the data read once and the results written once.
    of_limit : float
        The bytes a second over the GPU's limit: of copying for scans, of reading for others.
    of_peer : float
        Elements a second over those of the best other library; for scans, with results of one type.
    """

    case: Case
    who: str
    label: str = ""
    acc: str = ""
    result: str = ""
    status: str = "ok"
    ms: float | None = None
    least_ms: float | None = None
    most_ms: float | None = None
    error: float | None = None
    bits_compared: int = 0
    bits_differ: int = 0
    watts: float | None = None
    steady_ms: float | None = None
    host_us: float | None = None
    ratio: float | None = None
    against: str = ""
    bytes: int = 0
    # Known in a report alone, and not recorded.
    of_limit: float | None = None
    of_peer: float | None = None

    @property
    def ok(self) -> bool:
        """Whether it was right, and timed."""
        return self.status == "ok"

    @property
    def is_ours(self) -> bool:
        """Whether it is one of tcusim's own kernels."""
        return self.who.startswith(OURS)

    @property
    def elements_per_s(self) -> float | None:
        """Elements of the data in a second."""
        return self.case.length / self.ms * 1e3 if self.ms else None

    @property
    def flops(self) -> float | None:
        """Multiplications and additions in a second, of a product."""
        cols = self.case.segment_size if self.case.kind == "matmul" else 1
        speed = self.elements_per_s if self.case.is_product else None
        return 2 * cols * speed if speed else None

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes that must be moved, in a second."""
        return self.bytes / self.ms * 1e3 if self.ms and self.bytes else None

    @property
    def joules_per_element(self) -> float | None:
        """The energy of an element of the data, if that was measured."""
        if self.watts is None or self.steady_ms is None:
            return None
        return self.watts * self.steady_ms / 1e3 / self.case.length

    def timed(self, times: Times) -> Row:
        """Return the row of a right result, with its times."""
        return replace(self, status="ok", ms=times.median, least_ms=times.least, most_ms=times.most)

    def plain(self) -> dict[str, Any]:
        """Return the record of it: of the case and of itself, what is not as usual."""
        found = {one.name: getattr(self.case, one.name) for one in fields(Case)}
        found |= {one.name: getattr(self, one.name) for one in fields(Row)[1:-2]}
        return {name: value for name, value in found.items() if value not in _USUAL.get(name, ())}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Row:
        """Return the row of a record."""
        names = {one.name for one in fields(Case)}
        case = {"segment_size": 0, **{k: v for k, v in plain.items() if k in names}}
        return cls(Case(**case), **{k: v for k, v in plain.items() if k not in names})


# Values that a record leaves out.
_USUAL: Final[dict[str, tuple[Any, ...]]] = {
    one.name: (one.default,) for one in (*fields(Case)[4:], *fields(Row)[2:])
}


@dataclass(slots=True)
class Report:
    """The measurements.

    device: the GPU and its driver, or the processor. versions: of the libraries. limits: bytes a
    second, "read" and "copy". length: elements of the longest arrays. notes: failures, in words.
    commit: of tcusim's source, if it was given.
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

    @property
    def wrong(self) -> tuple[Row, ...]:
        """Every row of tcusim's own that did not end well."""
        return tuple(row for row in self.rows if row.is_ours and not row.ok)

    def best(self, section: str = "") -> tuple[Row, ...]:
        """Return a row for each problem, library and types, with its ratios.

        It is the fastest right one, or the first of all. section: of its problems only.
        """
        groups: dict[tuple[Any, ...], Row] = {}
        for row in self.rows:
            if section in ("", row.case.section):
                key = (row.case, row.who, row.acc, row.result)
                known = groups.setdefault(key, row)
                if row.ms is not None and row.ms < (math.inf if known.ms is None else known.ms):
                    groups[key] = row
        by_case: dict[Case, list[Row]] = {}
        for row in groups.values():
            by_case.setdefault(row.case, []).append(row)
        return tuple(
            replace(row, of_limit=self._of_limit(row), of_peer=_of_peer(row, rows))
            for rows in by_case.values()
            for row in rows
        )

    def _of_limit(self, row: Row) -> float | None:
        limit = None if row.case.in_graph else _LIMIT_OF.get(row.case.kind)
        return row.bytes_per_s / self.limits[limit] if limit and row.bytes_per_s else None

    def text(self) -> str:
        """Return the whole report as plain text."""
        head = [
            "; ".join(f"{name} {value}" for name, value in (self.device | self.versions).items()),
            f"{self.date}; up to {self.length:,} elements, in {self.seconds:.0f} s",
            *(f"limit of {name}: {rate / 1e12:.3f} TB/s" for name, rate in self.limits.items()),
            "",
        ]
        return "\n".join([*head, *_table(self.best()), *(f"note: {one}" for one in self.notes)])

    def as_json(self) -> dict[str, Any]:
        """Return everything as a dict for `json.dump`."""
        plain = {one.name: getattr(self, one.name) for one in fields(self)}
        return {"format": FORMAT, **plain, "rows": [row.plain() for row in self.rows]}

    def write(self, path: Path) -> None:
        """Write it to a file, a row a line, at once: a stopped program leaves the old file or this.

        `read` returns it.
        """
        record = self.as_json()
        rows = ",\n".join(json.dumps(row) for row in record.pop("rows"))
        new = path.with_suffix(".new")
        new.write_text(f'{json.dumps(record)[:-1]}, "rows": [\n{rows}\n]}}\n', encoding="utf-8")
        new.replace(path)

    @classmethod
    def read(cls, path: Path) -> Report:
        """Return the report in a file; InputError if it has none."""
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            if record.pop("format") != FORMAT:
                raise ValueError("its format is another one")
            return cls(**{**record, "rows": tuple(map(Row.of, record["rows"]))})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"{path} is no record of `tcusim bench run`, of the format {FORMAT!r} "
                f"({type(error).__name__}: {error}). Remove it, or record it anew"
            ) from error


def first_line(error: BaseException) -> str:
    """Return an error in one line of at most 300 letters."""
    text = str(error).strip().split("\n", 1)[0]
    return f"{type(error).__name__}: {text}"[:300]


def now() -> str:
    """Return the date and the time, as a record has them."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def verdict(row: Row, *, printed: bool = False) -> str:
    """Return "ok" if results are right, else their fault.

    printed: whether partial sums are rounded to f16, as the paper prints its programs.
    """
    if row.bits_differ:
        return f"wrong: {row.bits_differ} of {row.bits_compared} differ from the simulator"
    if row.error is None:
        return "wrong: some results are NaN, or were not written"
    # Sums whose own digits are too few are off by as much in each addition, relative to the norm.
    loose = _LOOSE * math.sqrt(max(1.0, row.case.segment_size / _LOOSE_SIZE))
    allowed = loose if printed else _TOLERANCES.get((row.acc, row.result), loose)
    if (row.acc, row.result) == ("f32", "f32"):
        allowed *= math.sqrt(max(1.0, row.case.segment_size / _LONG_SIZE))
    if row.case.is_product:
        allowed = max(allowed, _error_of_chain(row.case.segment_size, row.acc))
    if row.error > allowed:
        return f"wrong: error {row.error:.2g}, more than {allowed:.2g} of a segment's norm"
    return "ok"


def _error_of_chain(products: int, acc: str) -> float:
    """Return the error, relative to the norm, that a library's long chain of products may have.

    tcusim's own programs end a chain after some products; libraries go on. A tensor core truncates
    a float32 sum after each 16 products ([KHATTAK25]), always towards zero, by up to 2^-23 of the
    sum, which is a few norms in some of many outputs. A float16 sum is rounded to nearest, so its
    errors grow as the square root, by some deviations in some of many outputs.
    """
    if acc == "f16":
        return math.sqrt(products) * 2.0**-8
    return _NORMS * products / 16 * 2.0**-23 if acc == "f32" else 0.0


def moved_bytes(case: Case, results: int, result: str) -> int:
    """Return the bytes that must be moved: data read once, results written once."""
    second = {"matvec": case.segment_size, "matmul": case.segment_size**2}.get(case.kind, 0)
    read = (case.length + second) * format_of(case.dtype).itemsize
    return read + results * format_of(result).itemsize


def _of_peer(row: Row, rows: Iterable[Row]) -> float | None:
    """Return its speed over that of the best other library at the same problem."""
    peers = [
        other.elements_per_s
        for other in rows
        if not other.is_ours
        and other.elements_per_s
        and (row.case.kind != "scan" or other.result == row.result)
    ]
    ours = row.elements_per_s if row.is_ours else None
    return ours / max(peers) if ours and peers else None


def _table(rows: Sequence[Row]) -> list[str]:
    """Return lines of a table; a column that all rows lack is left out."""
    table = [list(_HEADS), *map(_cells, rows)]
    columns = [one for one in zip(*table, strict=True) if any(one[1:])]
    align = "".join("r" if column[0] in _NUMBERS else "l" for column in columns)
    return aligned(zip(*columns, strict=True), align)


_NUMBERS: Final = (
    *("size", "ms", "G/s", "TB/s", "of limit", "of best peer", "host us", "ratio", "pJ"),
)
_HEADS: Final = ("kind", "size", "by", "sums", "result", *_NUMBERS[1:], "how")


def _cells(row: Row) -> list[str]:
    case, is_call = row.case, not row.bytes
    numbers = (
        (row.ms, ".4g" if is_call else ".3f", 1.0),
        (None if is_call else row.elements_per_s, ".0f", 1e-9),
        (row.bytes_per_s, ".3f", 1e-12),
        (row.of_limit, ".1%", 1.0),
        (row.of_peer, ".2f", 1.0),
        (row.host_us, ".2f", 1.0),
        (row.ratio, ".2f", 1.0),
        (row.joules_per_element, ".0f", 1e12),
    )
    kind = case.kind if case.dtype == "f16" else f"{case.kind} {case.dtype}"
    cells = ["" if x is None else format(x * factor, form) for x, form, factor in numbers]
    against = f"to {row.against}" if row.against else row.label
    how = against if row.ok else f"{row.label}: {row.status}".removeprefix(": ")
    return [kind, case.size, row.who, row.acc, row.result, *cells, how]
