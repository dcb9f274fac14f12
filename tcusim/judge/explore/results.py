"""The result of an exploration: rows, as a table, CSV, JSON or a page, and the best of them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from tcusim.judge.explore.axes import Grid
from tcusim.judge.explore.metrics import Settings
from tcusim.judge.explore.page import MOST_ROWS, page_of
from tcusim.judge.explore.row import COLUMNS, EXTRA, Row, ordered, pairs_of, pareto
from tcusim.table import Table, Tabular

# The columns of the table for people that are aligned to the left.
_LEFT: Final = ("unit", "tile", "types", "rounding", "sum: by", "scan: by", "best in")
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
        The evaluated properties.
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
        beside = {id(row): more for row, more in zip(self.rows, self._extra(), strict=True)}
        rows = [row for row in self.ordered(by) if not row.reason][:most]
        lines = [_cells(row, *beside[id(row)]) for row in rows]
        header = [name for name in lines[0] if any(line[name] for line in lines)] if lines else []
        return Table(
            header,
            [[line[name] for name in header] for line in lines],
            notes=[*self.reasons(), *self.notes()],
            summary=self.summary(),
            align="".join("l" if name in _LEFT else "r" for name in header),
            whole=3,
        )

    def _extra(self) -> list[tuple[int, list[str]]]:
        """Return the columns `EXTRA` of each row."""
        fronts = {"/".join(pair): {*map(id, self.pareto(*pair))} for pair in pairs_of(self.rows)}
        return [
            (number, [pair for pair, front in fronts.items() if id(row) in front])
            for number, row in enumerate(self.rows, 1)
        ]

    def _flat(self) -> list[dict[str, Any]]:
        """Return each row with all its columns."""
        return [
            row.as_json() | dict(zip(EXTRA, more, strict=True))
            for row, more in zip(self.rows, self._extra(), strict=True)
        ]

    def reasons(self) -> list[str]:
        """Return a line for each reason why units cannot be, with how many and the first."""
        found = _grouped((row.reason, row.name) for row in self.rows if row.reason)
        lines = [
            f"{len(names)} not possible, such as {names[0]}: {why}" for why, names in found.items()
        ]
        more = len(lines) - _MOST_REASONS
        if more > 0:
            lines[_MOST_REASONS:] = [f"{more} more reasons; CSV and JSON have them all"]
        return lines

    def notes(self) -> list[str]:
        """Return a line for each kind of thing that a designer should know, with an example."""
        split = ((row.name, note.partition(": ")) for row in self.rows for note in row.notes)
        found = _grouped((kind, f"{name}: {text}") for name, (kind, _, text) in split)
        return [f"{len(texts)} with {kind}, such as {texts[0]}" for kind, texts in found.items()]

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
            "settings": asdict(self.settings),
            "rows": self._flat(),
        }

    def to_json(self) -> str:
        """Return everything as JSON text."""
        return json.dumps(self.as_json(), ensure_ascii=False, indent=2)

    def to_csv(self) -> str:
        """Return a line for each row, by `COLUMNS` and `EXTRA`; unknown values are empty."""
        out = io.StringIO()
        writer = csv.DictWriter(out, (*COLUMNS, *EXTRA), lineterminator="\n")
        writer.writeheader()
        for values in self._flat():
            writer.writerow(
                {
                    name: "; ".join(one) if isinstance(one, list) else one
                    for name, one in values.items()
                }
            )
        return out.getvalue()

    def to_html(self, command: str = "") -> str:
        """Return a page with plots and the table, which asks for nothing else.

        Parameters
        ----------
        command : str
            The command line that made it, for the head of the page.
        """
        return page_of(self.rows, self.table(most=MOST_ROWS), command)


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the second texts of pairs by the first, in their order."""
    found: dict[str, list[str]] = {}
    for one, other in pairs:
        found.setdefault(one, []).append(other)
    return found


def _cells(row: Row, number: int, best: Sequence[str]) -> dict[str, str]:
    """Return the cells of a row by the names of their columns."""
    cells = {
        "no.": str(number),
        "unit": row.unit,
        "tile": row.tile,
        "types": f"{row.ab}→{row.acc}",
        "L": _text(row.fused_length),
        "F": _text(row.fraction_bits),
        "rounding": row.output_rounding + (" rne terms" if row.alignment == "rne" else ""),
        "error": _text(row.error),
        "measured": _text(row.measured),
        "area": _text(row.area),
        "each": _text(row.area_each),
        "pJ": _text(row.energy),
    }
    for task in ("sum", "scan"):
        algorithm, side, waste, energy, seconds = (
            getattr(row, f"{task}s_{name}")
            for name in ("algorithm", "side", "waste", "energy", "seconds")
        )
        cells[f"{task}: waste"] = "" if waste is None else f"{100 * waste:.4g}%"
        cells[f"{task}: by"] = "none" if algorithm is None else f"{algorithm} {side}"
        cells[f"{task}: pJ"] = _text(energy)
        cells[f"{task}: seconds"] = "" if seconds is None else f"{seconds:.3g}"
    return {**cells, "best in": ", ".join(best)}


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
