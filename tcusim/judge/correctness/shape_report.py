"""The report of `validate`: a row for each algorithm and side, as data, as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from tcusim.algorithms import Algorithm, algorithm_of, algorithms
from tcusim.records import of_json
from tcusim.table import Table, Tabular


@dataclass(frozen=True, slots=True)
class MmaCount:
    """The mma steps of a warp's or a block's work: counted, and by the formula, if there is one.

    repeats: N of the formula, the segment in rows or tiles.
    """

    repeats: int
    counted: int
    formula: int | None

    @property
    def ok(self) -> bool:
        """Whether the two are equal, or there is no formula."""
        return self.formula is None or self.counted == self.formula


@dataclass(frozen=True, slots=True)
class Variant:
    """One algorithm with its options, the data in one operand.

    Attributes
    ----------
    algorithm : str
        Its name in the registry.
    options : tuple of (str, str)
        The options that make it another algorithm than its default, such as
        ``(("form", "L(A1)"),)``.
    side : {"a", "b"}
        The operand that holds the data.
    """

    algorithm: str
    options: tuple[tuple[str, str], ...]
    side: str

    @property
    def name(self) -> str:
        """The algorithm with its options, such as ``"scan_t L(A1)"``."""
        return " ".join([self.algorithm, *(value for _, value in self.options)])

    def untried(self) -> ShapeRow:
        """Return a row of a report without results."""
        kind = algorithm_of(self.algorithm).kind
        return ShapeRow(self.algorithm, self.options, self.side, kind)


def variants_of(names: Sequence[str] | None = None) -> list[Variant]:
    """Return the variants of some algorithms of the registry, or of all."""
    rows = algorithms() if names is None else map(algorithm_of, names)
    return [
        Variant(row.name, options, side)
        for row in rows
        for options in _option_sets(row)
        for side in "ab"
    ]


def has_formula(variant: Variant) -> bool:
    """Return whether the formula of the registry is for a variant: it is for the first form."""
    row = algorithm_of(variant.algorithm)
    return row.formula not in ("", "0") and variant.options == _option_sets(row)[0]


def _option_sets(row: Algorithm) -> list[tuple[tuple[str, str], ...]]:
    """Return the options that make another algorithm of a row; one empty set if it has none."""
    form = row.options.get("form")
    return [()] if form is None else [(("form", str(value)),) for value in form.choices]


@dataclass(frozen=True, slots=True)
class ShapeRow(Variant):
    """The result for a variant of an algorithm on a tile.

    Attributes
    ----------
    kind : str
        The kind of the algorithm in the registry.
    reason : str
        Why it is not possible on the shape, as the builder says it; empty if it is.
    combines : tuple of str
        The ways to combine partial sums that are possible: ``"mma"``, ``"add"``.
    cases, right : int
        Runs on random small integers, and those in which every output was the exact sum.
    first_wrong : str
        The first case that was wrong, and how.
    programs : int
        Programs whose runs these are; `verify` found nothing wrong with any.
    unproven : tuple of str
        Unproven properties: the program's name, the property, the sizes that `verify`
        tried.
    left_out, why_left_out : int, str
        Programs and runs that would not fit in memory, and the need of the first.
    counts : tuple of MmaCount
        Of segments of several lengths, the default one first, without masks.
    elements, mma : int
        Of one block with the default segment: elements of its input (of a product: multiply-adds),
        and mma steps. The next values are of this block, too.
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
    bytes_read, input_bytes : int
        Of global memory, each element counted each time it is read; and those of the inputs.
    registers : int
        Registers of 32 bits that the fragments of a warp take in each lane, if no two share one:
        the least that a kernel has at once may be fewer, and its addresses take more.
    gpu, gpu_reason : str
        The instruction that runs it on a GPU, such as ``"wmma m16n16k16"`` or ``"grid of
        4 x 1 x 1 wmma m16n16k16"``; empty if the emitter cannot, and why not.
    seconds : float
        The time taken; rows that differ only in it are equal.
    """

    kind: str
    reason: str = ""
    combines: tuple[str, ...] = ()
    cases: int = 0
    right: int = 0
    first_wrong: str = ""
    programs: int = 0
    unproven: tuple[str, ...] = ()
    left_out: int = 0
    why_left_out: str = ""
    counts: tuple[MmaCount, ...] = ()
    elements: int = 0
    mma: int = 0
    useful: float | None = None
    tile_used: float | None = None
    shared_bytes: int = 0
    block_bytes: int = 0
    bytes_read: int = 0
    input_bytes: int = 0
    registers: int = 0
    gpu: str = ""
    gpu_reason: str = ""
    seconds: float = field(default=0.0, compare=False)

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

    @property
    def reads(self) -> float | None:
        """How often an element of the input is read from global memory; None without an input."""
        return self.bytes_read / self.input_bytes if self.input_bytes else None


@dataclass(frozen=True, slots=True)
class ShapeReport(Tabular):
    """The result of `validate_shape`; `print` shows a table, `to_json` returns everything.

    Attributes
    ----------
    shape, ab, acc, arch : str
        The tile, the types and the architecture that were tried.
    full : bool
        Whether the longer list of cases was tried.
    rows : tuple of ShapeRow
        One for each algorithm, form and side, in the order of the registry.
    """

    shape: str
    ab: str
    acc: str
    arch: str
    full: bool
    rows: tuple[ShapeRow, ...]

    @property
    def ok(self) -> bool:
        """Whether something is possible on the shape, and all that is possible is right."""
        return any(row.possible for row in self.rows) and all(row.ok for row in self.rows)

    @property
    def seconds(self) -> float:
        """The time taken by all rows."""
        return sum(row.seconds for row in self.rows)

    def as_json(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        more = ("possible", "ok", "elements_per_mma", "reads")
        rows = [
            {**asdict(row), "options": dict(row.options)}
            | {name: getattr(row, name) for name in more}
            for row in self.rows
        ]
        return {**asdict(self), "rows": rows, "ok": self.ok, "seconds": round(self.seconds, 3)}

    def to_json(self) -> str:
        """Return everything as JSON text, which `from_json` reads."""
        return json.dumps(self.as_json(), ensure_ascii=False, indent=2)

    @staticmethod
    def from_json(text: str) -> ShapeReport:
        """Return the report that `to_json` wrote; InputError if the text is none."""
        return of_json(
            ShapeReport,
            text,
            "the text is no report of validate_shape",
            "Read what to_json or `tcusim validate --json` wrote",
        )

    def table(self) -> Table:
        """Return the table; sides that do equally well share a row."""
        lines: dict[tuple[str, ...], list[str]] = {}
        for row in self.rows:
            if row.possible:
                lines.setdefault((row.name, *_cells(row)), []).append(row.side)
        rows = [(name, ", ".join(sides), *cells) for (name, *cells), sides in lines.items()]
        notes = [*self.notes(), self.verified()]
        return Table(_HEADER, rows, notes=notes, summary=self.summary(), align="llrrrrrrrr")

    def notes(self) -> list[str]:
        """Return a line for each thing that went wrong, or cannot be, with the reason."""
        sides: dict[tuple[str, str], dict[str, list[str]]] = {}
        for row in self.rows:
            for note in _notes(row):
                sides.setdefault(note, {}).setdefault(row.name, []).append(row.side)
        lines = []
        for (kind, text), names in sorted(sides.items(), key=lambda item: _NOTES.index(item[0][0])):
            where = ", ".join(f"{name} (data in {', '.join(ab)})" for name, ab in names.items())
            lines.append(f"{kind}: {text}" if kind == _NOTES[-1] else f"{kind}: {where}: {text}")
        return lines

    def summary(self) -> str:
        """Return one line for all."""
        possible = [row for row in self.rows if row.possible]
        cases, right = (sum(getattr(row, name) for row in possible) for name in ("cases", "right"))
        verdict = (
            "all right, where nothing is rounded"
            if self.ok
            else "NOT RIGHT"
            if possible
            else "NOTHING IS POSSIBLE"
        )
        return (
            f"{self.shape}, {self.ab} to {self.acc}, {self.arch}: "
            f"{len({row.name for row in possible})} of {len({row.name for row in self.rows})} "
            f"algorithms possible, {right:,} of {cases:,} cases right: {verdict}"
        )

    def verified(self) -> str:
        """Return one line on the properties that `verify` proved of the programs that ran."""
        programs = sum(row.programs for row in self.rows)
        left = sum(bool(row.unproven) for row in self.rows)
        what = "for all sizes" if not left else f"but for what notes of {left} rows say"
        return f"{programs:,} programs verified {what}"


_HEADER: Final = (
    *("algorithm", "data", "right", "mma steps", "elements an mma", "useful", "tile used"),
    *("reads", "registers", "shared bytes", "on a GPU"),
)

# The kinds of notes, in the order in which they are printed; the last is of no single algorithm.
_NOTES: Final = ("WRONG", "not proven", "not possible", "too large", "simulator only")


def _notes(row: ShapeRow) -> Iterator[tuple[str, str]]:
    """Yield the notes of a row: the kind of each, and its text."""
    if row.first_wrong:
        yield "WRONG", row.first_wrong
    for count in row.counts:
        if not count.ok:
            text = f"{count.counted} mma steps where the formula has {count.formula}"
            yield "WRONG", f"{text} (N = {count.repeats})"
    for text in row.unproven:
        yield "not proven", text
    if row.reason:
        yield "not possible", row.reason
    if row.left_out:
        yield "too large", f"{row.left_out} not tried, such as {row.why_left_out}"
    if row.gpu_reason:
        yield "simulator only", row.gpu_reason


def _cells(row: ShapeRow) -> tuple[str, ...]:
    """Return the text of a row in the table, after its name and side."""
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
        "" if row.reads is None else f"{row.reads:.3g}",
        str(row.registers),
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
