"""The result of an exploration: rows, as a table, CSV, JSON or a page, and the best of them."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tcusim.judge.explore.axes import Grid
from tcusim.judge.explore.metrics import Settings
from tcusim.judge.explore.page import MOST_ROWS, page_of
from tcusim.judge.explore.ranking import ordered, pairs_of, pareto
from tcusim.judge.explore.row import COLUMNS, Done, Row
from tcusim.table import Table, Tabular

__all__ = ["Exploration"]

# The columns of the table for people.
_HEADER: Final = (
    *("unit", "tile", "types", "L", "F", "rounding", "error", "measured", "area", "each"),
    *("sum: waste", "sum: by", "sum: seconds", "scan: waste", "scan: by", "scan: seconds"),
    "best in",
)
_ALIGN: Final = "lllrrlrrrrrlrrlrl"
# Lines of reasons in a text.
_MOST_REASONS: Final = 8


@dataclass(frozen=True, slots=True)
class Exploration(Tabular):
    """The result of `explore`; `print` shows a table, `to_html` returns a page with plots.

    Attributes
    ----------
    grid : Grid
        The units that were asked for.
    settings : Settings
        What was evaluated of each.
    rows : tuple of Row
        One for each unit, in the order of the grid.
    """

    grid: Grid
    settings: Settings
    rows: tuple[Row, ...]

    @property
    def evaluated(self) -> tuple[Row, ...]:
        """The rows that have no reason against them."""
        return tuple(row for row in self.rows if not row.reason)

    def pareto(self, one: str = "error", other: str = "area_each") -> tuple[Row, ...]:
        """Return the rows that no other beats in two of `METRICS`, by the first of them.

        A row is beaten by one that is less in one metric and no more in the other. Rows that lack
        either are left out, and of equal ones all are kept.
        """
        return pareto(self.rows, one, other)

    def ordered(self, by: str = "error") -> tuple[Row, ...]:
        """Return the rows by one of `METRICS`, the least first; those without it come last."""
        possible, others = self.evaluated, [row for row in self.rows if row.reason]
        return (*ordered(possible, by), *others)

    def table(self, by: str = "error", most: int | None = None) -> Table:
        """Return the evaluated units, at most `most`, without the columns that are empty."""
        best = {
            pair: {id(row) for row in self.pareto(*pair)} for pair in pairs_of(self.rows) if pair
        }
        rows = [row for row in self.ordered(by) if not row.reason][:most]
        lines = [_cells(row, [pair for pair, of in best.items() if id(row) in of]) for row in rows]
        kept = [at for at in range(len(_HEADER)) if any(line[at] for line in lines)]
        header, *cells = (tuple(line[at] for at in kept) for line in (_HEADER, *lines))
        align = "".join(_ALIGN[at] for at in kept)
        notes = [*self.reasons(), *self.notes()]
        return Table(header, cells, notes=notes, summary=self.summary(), align=align, whole=2)

    def reasons(self) -> list[str]:
        """Return a line for each reason why units cannot be, with how many and the first."""
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            if row.reason:
                found.setdefault(row.reason, []).append(row)
        lines = [
            f"{len(rows)} not possible, such as {rows[0].name}: {why}"
            for why, rows in itertools.islice(found.items(), _MOST_REASONS)
        ]
        if len(found) > _MOST_REASONS:
            lines.append(f"{len(found) - _MOST_REASONS} more reasons; CSV and JSON have them all")
        return lines

    def notes(self) -> list[str]:
        """Return a line for each kind of thing that a designer should know, with an example."""
        found: dict[str, list[str]] = {}
        for row in self.rows:
            for note in row.notes:
                name, _, text = note.partition(": ")
                found.setdefault(name, []).append(f"{row.name}: {text}")
        return [f"{len(texts)} with {name}, such as {texts[0]}" for name, texts in found.items()]

    def summary(self) -> str:
        """Return one line for all."""
        settings = self.settings
        return (
            f"{len(self.evaluated):,} of {len(self.rows):,} units evaluated; error of sums of "
            f"{settings.length:,} terms, {settings.family}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return {
            "grid": self.grid.as_json(),
            "settings": self.settings.as_json(),
            "rows": [row.as_json() for row in self.rows],
        }

    def to_json(self) -> str:
        """Return everything as JSON text."""
        return json.dumps(self.as_json(), ensure_ascii=False, indent=2)

    def to_csv(self) -> str:
        """Return a line for each row, by `COLUMNS`; what is not known is empty."""
        out = io.StringIO()
        writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for row in self.rows:
            values = row.as_json()
            writer.writerow(values | {"notes": "; ".join(values["notes"])})
        return out.getvalue()

    def to_html(self) -> str:
        """Return a page with plots and the table, which asks for nothing else."""
        return page_of(self.rows, self.table(most=MOST_ROWS))


def _cells(row: Row, best: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    point = row.point
    return (
        point.unit,
        point.tile,
        f"{point.ab}→{point.acc}",
        _text(point.fused_length),
        _text(point.fraction_bits),
        point.output_rounding + (" rne terms" if point.alignment == "rne" else ""),
        _text(row.error),
        _text(row.measured),
        _text(row.area),
        _text(row.value("area_each")),
        *(text for done in (row.sums, row.scans) for text in _done(done)),
        ", ".join("/".join(pair) for pair in best),
    )


def _done(done: Done | None) -> tuple[str, str, str]:
    if done is None:
        return "", "none", ""
    seconds = "" if done.seconds is None else f"{done.seconds:.3g}"
    return f"{100 * done.waste:.4g}%", f"{done.algorithm} {done.side}", seconds


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
