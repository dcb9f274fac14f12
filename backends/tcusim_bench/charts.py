"""Charts of recorded benchmarks, in the manner of the paper's figures: `tcusim bench chart`.

They are drawn from the JSON alone. Each chart has a panel for each kind and types of its section,
and a line for each library.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from tcusim.errors import BackendUnavailable, InputError
from tcusim_bench.report import OURS, Report, Row

__all__ = ["CHARTS", "authors", "draw", "energy", "of_limit", "of_peers", "throughput"]

# The key of a panel: kind, type of the data, type of the results.
Panel: TypeAlias = tuple[str, str, str]

_KINDS: Final = {"sum": "sums", "scan": "scans", "matvec": "matrix by vector", "matmul": "matrices"}
_SPEED: Final = "10⁹ elements a second"
_OPERATIONS: Final = "10¹² operations a second"
_WIDTH: Final = 6.0
_HEIGHT: Final = 4.0
# Text of SVG files stays text, and the same chart gives the same file.
_STYLE: Final = {"svg.fonttype": "none", "svg.hashsalt": "tcusim", "font.size": 9}


@dataclass(frozen=True, slots=True)
class Line:
    """A library's values in a panel: one for each size, by the sizes' places on the axis."""

    name: str
    places: tuple[int, ...]
    values: tuple[float, ...]


def throughput(section: str, report: Report) -> Any:
    """Return a chart of elements a second against segment size; of matrices, of operations."""
    return _chart(section, report, _SPEED, lambda rows: _lines(rows, _speed))


def of_limit(section: str, report: Report) -> Any:
    """Return a chart of the share of the GPU's limit: bytes a second over those of a copy."""
    text = "% of the limit of reading or copying"
    return _chart(section, report, text, lambda rows: _lines(rows, _percent), top=100.0)


def of_peers(section: str, report: Report) -> Any:
    """Return a chart of how many times as fast tcusim is as each other library."""
    return _chart(section, report, "times as fast as", _lines_of_ratios, level=1.0)


def authors(section: str, report: Report) -> Any:
    """Return a chart of the paper authors' measurements, a panel for each of their charts.

    Our programs of the same figure are shown beside them; None if none was recorded.
    """
    shown = {name: lines for name, lines in report.authors.items() if lines}
    if not shown:
        return None
    figure, panels = _figure(len(shown))
    for axes, (name, lines) in zip(panels, shown.items(), strict=True):
        for line in lines:
            axes.loglog(line["x"], line["y"], marker="o", markersize=3, label=line["label"])
        axes.set_title(name)
        axes.set_xlabel("size")
        unit = "10¹² operations" if name.startswith("gem") else "10⁹ elements"
        axes.set_ylabel(f"{unit} a second")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    figure.suptitle("The paper's authors, on a V100")
    return figure


def energy(section: str, report: Report) -> Any:
    """Return a chart of picojoules per element; None if energy was not measured."""
    return _chart(section, report, "10⁻¹² joules an element", _lines_of_energy)


CHARTS: Final[dict[str, Callable[[str, Report], Any]]] = {
    "throughput": throughput,
    "of_limit": of_limit,
    "of_peers": of_peers,
    "energy": energy,
    "authors": authors,
}


def draw(source: Path, folder: Path) -> list[Path]:
    """Draw every chart of a recorded benchmark into a folder, as PNG and SVG; return the files.

    A chart that has no values is left out. Raises InputError if the file is no such record, and
    BackendUnavailable without matplotlib.
    """
    try:
        record = json.loads(source.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{source} is no JSON: {error}") from error
    if not isinstance(record, dict):
        raise InputError(f"{source} is no record of `tcusim bench throughput`: it is no object")
    report = Report.from_json(record)
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for section in dict.fromkeys(row.section for row in report.rows):
        for name, make in CHARTS.items():
            figure = make(section, report)
            if figure is None:
                continue
            stem = f"{section or 'all'} {name}".replace(" ", "_")
            for ending in ("png", "svg"):
                path = folder / f"{stem}.{ending}"
                with _matplotlib("rc_context")(_STYLE):
                    metadata = {"Date": None} if ending == "svg" else {}
                    figure.savefig(path, dpi=150, metadata=metadata)
                drawn.append(path)
    return drawn


def _matplotlib(name: str, module: str = "matplotlib") -> Any:
    """Return a module of matplotlib, set to draw without a screen."""
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise BackendUnavailable(
            f"charts need matplotlib, which cannot be imported ({error}). Install it with: "
            f"pip install 'tcusim[chart]'"
        ) from error


def _chart(
    section: str,
    report: Report,
    label: str,
    lines_of: Callable[[Sequence[Row]], Iterable[Line]],
    *,
    level: float | None = None,
    top: float | None = None,
) -> Any:
    """Return a figure with a panel for each kind and types; None if there is nothing to show.

    level: where to draw a line across. top: the least upper end of the axis.
    """
    panels = [
        (panel, rows, lines)
        for panel, rows in _panels(section, report)
        if (lines := [line for line in lines_of(rows) if line.values])
    ]
    if not panels:
        return None
    figure, all_axes = _figure(len(panels))
    for axes, (panel, rows, lines) in zip(all_axes, panels, strict=True):
        for line in lines:
            ours = line.name == OURS
            width, order = (2.2, 3) if ours else (1.2, 2)
            axes.plot(
                *(line.places, line.values),
                marker="o", markersize=3, linewidth=width, zorder=order, label=line.name,
            )  # fmt: skip
        is_speed = label == _SPEED and panel[0] == "matmul"
        _finish(axes, panel, rows, _OPERATIONS if is_speed else label)
        if level is not None:
            axes.axhline(level, color="black", linewidth=0.8, linestyle="--")
        axes.set_ylim(bottom=0)
        if top is not None and axes.get_ylim()[1] < top:
            axes.set_ylim(top=top)
    device = report.device
    figure.suptitle(f"{device.get('gpu')}, CUDA {device.get('cuda')}, {report.date}")
    return figure


def _figure(panels: int) -> tuple[Any, list[Any]]:
    """Return a figure and as many pairs of axes, two beside each other."""
    across = min(2, panels)
    down = -(-panels // across)
    with _matplotlib("rc_context")(_STYLE):
        size = (_WIDTH * across, _HEIGHT * down)
        figure = _matplotlib("Figure", "matplotlib.figure")(figsize=size, layout="constrained")
        return figure, [figure.add_subplot(down, across, number + 1) for number in range(panels)]


def _finish(axes: Any, panel: Panel, rows: Sequence[Row], label: str) -> None:
    """Name a panel's axes and lines."""
    kind, dtype, result = panel
    axes.set_title(f"{_KINDS[kind]}, {dtype} to {result}")
    names = _sizes(rows)
    slanted = any(len(name) > 8 for name in names)
    axes.set_xticks(
        range(len(names)), names, rotation=30 if slanted else 0, ha="right" if slanted else "center"
    )
    ragged, product = bool(rows[0].lengths), rows[0].case.is_product
    what = "lengths of segments" if ragged else "columns" if product else "elements of a segment"
    axes.set_xlabel("elements of the array" if rows[0].in_graph else what)
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7 if len(axes.get_lines()) < 9 else 5)


# --- Values -----------------------------------------------------------------------------------


def _panels(section: str, report: Report) -> Iterator[tuple[Panel, list[Row]]]:
    """Yield the rows of each panel: those with tcusim's results, and libraries that have others.

    A library whose sums have another type only, such as torch's of ragged segments, is shown beside
    the first of ours.
    """
    shown = [row for row in report.rows if row.section == section]
    groups: dict[Panel, list[Row]] = {}
    for row in shown:
        if row.is_ours:
            groups.setdefault((row.kind, row.dtype, row.best.result), [])
    first = {panel[:2]: panel for panel in reversed(groups)}
    for row in shown:
        panel = (row.kind, row.dtype, row.best.result)
        if panel not in groups and panel[:2] in first:
            panel = first[panel[:2]]
        groups.setdefault(panel, []).append(row)
    yield from groups.items()


def _sizes(rows: Sequence[Row]) -> list[str]:
    """Return the names of the sizes of rows, in their order: powers of two as such."""
    return [_power(name) for name in dict.fromkeys(row.case.size for row in rows)]


def _power(name: str) -> str:
    number = int(name) if name.isdigit() else 0
    if number < 2**13 or number & (number - 1):
        return name
    return f"$2^{{{number.bit_length() - 1}}}$"


def _lines(
    rows: Sequence[Row],
    value: Callable[[Row], float | None],
    best: Callable[[float, float], float] = max,
) -> Iterator[Line]:
    """Yield a line for each library, ours first, of its best row at each size."""
    sizes = list(dict.fromkeys(row.case.size for row in rows))
    names = sorted(dict.fromkeys(row.best.who for row in rows), key=lambda name: name != OURS)
    for name in names:
        found: dict[int, float] = {}
        for row in rows:
            number = value(row) if row.best.who == name else None
            if number is not None:
                place = sizes.index(row.case.size)
                found[place] = best(number, found.get(place, number))
        yield Line(name, tuple(sorted(found)), tuple(found[place] for place in sorted(found)))


def _speed(row: Row) -> float | None:
    """Return billions of elements a second; of products of matrices, trillions of operations."""
    if row.kind == "matmul":
        return row.flops / 1e12 if row.flops else None
    return row.elements_per_s / 1e9 if row.elements_per_s else None


def _percent(row: Row) -> float | None:
    return 100 * row.of_limit if row.of_limit else None


def _lines_of_energy(rows: Sequence[Row]) -> Iterator[Line]:
    yield from _lines(rows, _picojoules, min)


def _picojoules(row: Row) -> float | None:
    return 1e12 * row.joules_per_element if row.joules_per_element else None


def _lines_of_ratios(rows: Sequence[Row]) -> Iterator[Line]:
    """Yield our speed over that of each other library, where both were timed."""
    ours, *others = _lines(rows, _speed)
    speeds = dict(zip(ours.places, ours.values, strict=True))
    if ours.name != OURS:
        return
    for line in others:
        pairs = [
            (place, speeds[place] / value)
            for place, value in zip(line.places, line.values, strict=True)
            if place in speeds
        ]
        yield Line(line.name, tuple(p for p, _ in pairs), tuple(ratio for _, ratio in pairs))
