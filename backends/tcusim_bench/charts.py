"""Charts of a recorded benchmark: those of the pages, and of `tcusim bench chart`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from typing import Final

from tcusim import line_charts, markup
from tcusim.line_charts import Line, Plot
from tcusim_bench.record import OURS, Report, Row

_TITLES: Final = {
    "sum": "Sums",
    "scan": "Scans",
    "matvec": "Matrix by vector",
    "matmul": "Matrices",
}


def page(report: Report) -> str:
    """Return a page with every chart of a report, which asks for nothing else."""
    drawn: list[str] = []
    for section in dict.fromkeys(row.case.section for row in report.rows):
        drawn += plots(report.best(section), f" ({section})")
    style = f"<style>{line_charts.style()}</style>"
    where = "; ".join(f"{name} {value}" for name, value in report.device.items())
    body = f"{style}\n<p>{escape(f'{where}; {report.date}')}</p>\n"
    return markup.page("Benchmark", body + line_charts.charts(drawn))


def plots(rows: Sequence[Row], suffix: str = "") -> Iterator[str]:
    """Yield charts of the best rows of a section: speed, share of the limit, speed-up, energy.

    suffix: of each title.
    """
    for kind, dtype in dict.fromkeys((row.case.kind, row.case.dtype) for row in rows):
        shown = [row for row in rows if (row.case.kind, row.case.dtype) == (kind, dtype)]
        result = next((row.result for row in shown if row.who == OURS), shown[0].result)
        shown = [row for row in shown if kind != "scan" or row.result == result]
        title = f"{_TITLES.get(kind, kind)}, {dtype}{suffix}"
        yield _plot(title, shown, "10⁹ elements a second", giga)
        if any(row.of_limit for row in shown):
            yield _plot(f"{title}: share of the limit", shown, "%", _share)
        yield _ratios(title, shown)
        if any(row.joules_per_element for row in shown):
            yield _plot(f"{title}: energy", shown, "10⁻¹² joules an element", pico, log=True)


def best_of(rows: Iterable[Row], who: str) -> Row | None:
    """Return a library's fastest row, or any if none was timed."""
    found = [row for row in rows if row.who == who]
    return max(found, key=lambda row: row.elements_per_s or 0.0, default=None)


def giga(row: Row) -> float | None:
    """Return 10⁹ elements a second."""
    return row.elements_per_s / 1e9 if row.elements_per_s else None


def pico(row: Row) -> float | None:
    """Return 10⁻¹² joules an element."""
    return 1e12 * row.joules_per_element if row.joules_per_element else None


def _share(row: Row) -> float | None:
    return 100 * row.of_limit if row.of_limit else None


def _plot(
    title: str,
    rows: Sequence[Row],
    y: str,
    value: Callable[[Row], float | None],
    *,
    log: bool = False,
) -> str:
    """Draw a line for each library, ours first."""
    names = tuple(dict.fromkeys(row.case.size for row in rows))
    whos = sorted(dict.fromkeys(row.who for row in rows), key=lambda who: who != OURS)
    lines = tuple(Line(who, _points(rows, names, who, value)) for who in whos)
    short = tuple(map(_short_name, names))
    return line_charts.draw(Plot(title, lines, _x(rows), y, names=short, log=log))


def _ratios(title: str, rows: Sequence[Row]) -> str:
    """Draw the speed of ours over that of each other library."""
    names = tuple(dict.fromkeys(row.case.size for row in rows))
    ours = dict(_points(rows, names, OURS, giga))
    lines = []
    for who in dict.fromkeys(row.who for row in rows):
        points = _points(rows, names, who, giga)
        if who != OURS:
            lines.append(Line(who, tuple((x, ours[x] / y) for x, y in points if x in ours)))
    short, level = tuple(map(_short_name, names)), ("as fast", 1.0)
    plot = Plot(
        *(f"{title}: speed-up", tuple(lines), _x(rows), "times as fast as"),
        names=short, first=1, log=True, level=level,
    )  # fmt: skip
    return line_charts.draw(plot)


def _points(
    rows: Sequence[Row], names: Sequence[str], who: str, value: Callable[[Row], float | None]
) -> tuple[tuple[float, float], ...]:
    """Return a library's fastest rows, at the places of their sizes."""
    found = []
    for place, name in enumerate(names):
        best = best_of([row for row in rows if row.case.size == name], who)
        number = None if best is None else value(best)
        if number:
            found.append((float(place), number))
    return tuple(found)


def _x(rows: Sequence[Row]) -> str:
    case = rows[0].case
    if case.lengths:
        return "lengths of segments"
    if case.is_product:
        return "columns"
    return "elements of the array" if case.in_graph else "elements of a segment"


def _short_name(name: str) -> str:
    """Return the name of a size that fits below an axis."""
    if not name.isdigit():
        return name.removeprefix("uniform ").replace("..", " to ").replace("000", "k")
    number = int(name)
    if number < 2**13 or number & (number - 1):
        return name
    digits = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
    return "2" + str(number.bit_length() - 1).translate(digits)
