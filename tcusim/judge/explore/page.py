"""An exploration as one page: error against fraction bits, the Pareto front, the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape
from typing import Final

from tcusim.judge.explore.row import METRICS, Row, pairs_of, pareto
from tcusim.line_charts import Line, Plot, charts, draw, missing, style
from tcusim.markup import page, provenance, shown
from tcusim.table import Table

# Lines of a chart, which have as many looks; charts and rows of a page that one can still read.
_MOST_LINES: Final = 16
_MOST_CHARTS: Final = 12
# Places of a front that are named below its chart, and numbers of one place.
_MOST_NAMES: Final = 16
_MOST_NUMBERS: Final = 2
MOST_ROWS: Final = 200
# Values this far apart, as a factor, are drawn on a logarithmic axis.
_DECADE: Final = 10.0
_COLUMNS: Final = (
    ("no.", "The unit's number in the exploration, at its point of a front and in CSV and JSON."),
    ("L, F", "Products of a fused step, and bits that it keeps below the largest exponent."),
    ("error", "Of a sum, predicted: the root mean square of |sum - exact| / sum of |terms|."),
    ("measured", "The same error, measured on the simulator."),
    ("area, each", "Full adders of a unit that does a tile a cycle, and of one multiply-add."),
    (
        "pJ",
        "Energy of a multiply-add, or of an element's: as the unit's file states it; else if each "
        "full adder of a 45 nm process switches, without registers, wires and memory.",
    ),
    ("waste", "The share of multiply-adds that long sums or scans do not need."),
    ("by", "The algorithm with the fewest mma, or the fastest, and the operand with the data."),
    ("seconds", "Of 2^24 elements, predicted."),
    (
        "best in",
        "Pairs of metrics in which no other unit is better in one and as good in the "
        "other. Errors are compared by two digits.",
    ),
)


def page_of(rows: Sequence[Row], table: Table, command: str = "") -> str:
    """Return the page of an exploration: its plots and its table, without other files."""
    evaluated = [row for row in rows if not row.reason]
    made = provenance(command or "none: tcusim.explore was called in Python")
    said = [f"<p>{escape(table.summary)}.</p>", Table(rows=list(made.items())).html()]
    for title, drawn in (("Fronts", fronts_of(rows)), ("Errors", errors_of(rows))):
        plots = list(drawn) if evaluated else []
        said += [f"<h2>{title}</h2>", charts(plots)] if plots else []
    said += [f"<p>{escape(text)}</p>" for text in _left_out(evaluated)]
    below = replace(table, title="Units, the least error first", summary="")
    said += [below.html(2), Table(rows=_COLUMNS, title="Legend").html(2)]
    return page("Units explored", shown(f"<style>{style()}</style>", *said))


def errors_of(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the charts of errors, by all that differs but F and L."""
    for title, group in list(_groups(rows))[:_MOST_CHARTS]:
        yield _error_chart(title, group)


def fronts_of(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the charts of pairs of metrics, with the units that no other beats in both."""
    for pair in pairs_of(rows):
        yield _pair_chart(rows, *pair)


def _left_out(evaluated: Sequence[Row]) -> Iterator[str]:
    """Yield the parts of an exploration that a page leaves out, and their places."""
    groups = len(list(_groups(evaluated)))
    if groups > _MOST_CHARTS:
        yield f"Of {groups} charts of errors, the first {_MOST_CHARTS} are shown."
    if len(evaluated) > MOST_ROWS:
        yield (
            f"The table has the first {MOST_ROWS} of {len(evaluated):,} units; all are in the CSV "
            f"and JSON files."
        )


def _groups(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Yield invented units that differ in F and L alone, as far as an error goes, with a title."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        if row.unit == "" and row.error is not None:
            key = (row.k, row.ab, row.acc, row.output_rounding, row.alignment)
            groups.setdefault(key, []).append(row)
    for (k, ab, acc, output, alignment), group in groups.items():
        rounding = f"{output}, terms {alignment}" if alignment != output else output
        yield f"k = {k}, {ab} to {acc}, {rounding}", group


def _error_chart(title: str, rows: list[Row]) -> str:
    """Return the error against F, a line for each L; against L if there is one F."""
    lengths = sorted({row.fused_length or 0 for row in rows})
    bits = sorted({row.fraction_bits or 0 for row in rows})
    # Tiles of one k have one error: each place has one point.
    places = {(row.fused_length, row.fraction_bits): row.error or 0.0 for row in rows}
    if not any(places.values()):
        return missing(f"Error: {title}", "No sum has an error: nothing is rounded.")
    at = {value: number for number, value in enumerate(bits)}
    lines = tuple(
        Line(
            f"L = {length}",
            tuple(
                (float(at[one]), places[length, one]) for one in bits if places.get((length, one))
            ),
        )
        for length in lengths[:_MOST_LINES]
    )
    names = tuple(map(str, bits))
    return draw(Plot(f"Error: {title}", lines, "fraction bits F", "error", names, log=True))


def _pair_chart(rows: Sequence[Row], one: str, other: str) -> str:
    """Return every unit by two metrics; those that no other beats have their numbers."""
    numbers = {id(row): number for number, row in enumerate(rows, 1)}
    places: dict[tuple[float, float], list[Row]] = {}
    for row in rows:
        x, y = row.value(other), row.value(one)
        if x is not None and y is not None:
            places.setdefault((x, y), []).append(row)
    log, decades = (_spans([at[axis] for at in places]) for axis in (1, 0))
    title = f"{METRICS[one].capitalize()}, and {METRICS[other]}"
    # The front has one point for all units of a place.
    best = {(row.value(other), row.value(one)): row for row in pareto(rows, other, one)}
    front = [at for at in places if at in best]
    front.sort()
    labels = [_several([numbers[id(row)] for row in places[at]]) for at in front]

    def dots(name: str, *, real: bool) -> Line:
        own = tuple(
            at for at, some in places.items() if any(bool(row.unit) is real for row in some)
        )
        return Line(name, own, joined=False)

    names = [f"{label}: {places[at][0].name}" for label, at in zip(labels, front, strict=True)]
    more = len(names) - _MOST_NAMES
    return draw(
        Plot(
            title,
            (
                Line("no other is better in both", tuple(front), len(front) > 1, tuple(labels)),
                dots("invented units", real=False),
                dots("units that exist", real=True),
            ),
            METRICS[other],
            METRICS[one],
            log=log,
            linear=not decades,
            decades=decades,
            notes=(*names[:_MOST_NAMES], *[f"{more} more: see the table"] * (more > 0)),
        )
    )


def _spans(values: Sequence[float]) -> bool:
    """Return whether values are all positive and span decades."""
    return min(values) > 0 and max(values) >= _DECADE * min(values)


def _several(numbers: Sequence[int]) -> str:
    """Return the numbers of the units of one place, of many the first."""
    some = ", ".join(map(str, numbers[:_MOST_NUMBERS]))
    return f"{some}, …" if len(numbers) > _MOST_NUMBERS else some
