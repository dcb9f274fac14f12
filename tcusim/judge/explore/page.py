"""An exploration as one page: error against fraction bits, the Pareto front, the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape
from typing import Final

from tcusim.judge.explore.row import METRICS, Row, pairs_of, pareto
from tcusim.line_charts import Line, Plot, charts, draw, missing, style
from tcusim.markup import page, shown
from tcusim.table import Table

__all__ = ["MOST_ROWS", "page_of", "plots_of"]

# Lines of a chart, which have as many looks; charts and rows of a page that one can still read.
_MOST_LINES: Final = 16
_MOST_CHARTS: Final = 12
# Units of a front that have their names in the legend, the best by the y axis last.
_MOST_NAMES: Final = 12
MOST_ROWS: Final = 200
# A waste is drawn as a share, all else over decades.
_SHARES: Final = ("sums_waste", "scans_waste")


def page_of(rows: Sequence[Row], table: Table) -> str:
    """Return the page of an exploration: its plots and its table, without other files."""
    evaluated = [row for row in rows if not row.reason]
    said = [f"<p>{escape(table.summary)}.</p>"]
    if evaluated:
        said += ["<h2>Plots</h2>", charts(plots_of(rows))]
    said += [f"<p>{escape(text)}</p>" for text in _left_out(evaluated)]
    below = replace(table, title="Units, the least error first", summary="")
    said.append(shown(below.html(2)))
    return page("Units explored", f"<style>{style()}</style>\n" + "\n".join(said))


def plots_of(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the charts: of errors, by all that differs but F and L; then of pairs of metrics."""
    for title, group in list(_groups(rows))[:_MOST_CHARTS]:
        yield _error_chart(title, group)
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
    """Return every unit by two metrics, and those that no other beats."""
    points = {
        id(row): (row.value(other), row.value(one))
        for row in rows
        if None not in (row.value(one), row.value(other))
    }
    log = one not in _SHARES
    drawn = {key: at for key, at in points.items() if not log or (at[1] or 0.0) > 0}
    title = f"{METRICS[one].capitalize()}, and {METRICS[other]}"
    if not drawn:
        return missing(title, "Every unit has zero.")

    def line(name: str, rows: tuple[Row, ...], *, joined: bool = False) -> Line:
        own = dict.fromkeys(drawn[id(row)] for row in rows if id(row) in drawn)
        return Line(name, tuple((x or 0.0, y or 0.0) for x, y in own), joined)

    best = pareto(rows, other, one)
    named = tuple(row for row in rows if row.unit)
    lines = (
        line("no other is better in both", best, joined=len(best) > 1),
        line("invented units", tuple(row for row in rows if not row.unit)),
        line("units that exist", named),
        *(line(row.name, (row,)) for row in best[:_MOST_NAMES]),
    )
    linear = other in _SHARES
    return draw(Plot(title, lines, METRICS[other], METRICS[one], log=log, linear=linear))
