"""Line charts as SVG in HTML: for the site, and for pages that ask for nothing else.

A chart is drawn 360 wide, so that its text is readable on a phone as it is. Its colours are those
of `style`, which a page has once.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tcusim.markup import themed

# Where a value is along an axis, and the values that the axis names.
_Axis: TypeAlias = tuple[Callable[[float], float], list[tuple[float, str]]]

# Left, top, right and bottom.
_Box: TypeAlias = tuple[float, float, float, float]

WIDTH: Final = 360
HEIGHT: Final = 236
LEFT: Final = 48
RIGHT: Final = 8
TOP: Final = 10
BOTTOM: Final = 38
# About the width of a letter of a label.
_LETTER: Final = 6.5
# Colours by light and dark, which differ in lightness, too; further lines begin anew with dashes.
_LIGHT: Final = (
    *("#3949ab", "#c43e00", "#00796b", "#a0307a"),
    *("#8a6d00", "#0277bd", "#6d4c41", "#757575"),
)
_DARK: Final = (
    *("#9fa8ff", "#ff8a50", "#4dd0b8", "#f48fd0"),
    *("#ffd54f", "#64c4ff", "#c8a490", "#b0b0b0"),
)
_COLOURS: Final = len(_LIGHT)

_RULES: Final = """
.charts { display: flex; flex-wrap: wrap; gap: .4em 1.2em; margin: 1em 0 }
figure.chart { display: block; flex: 1 1 350px; margin: .4em 0; max-width: 30rem; min-width: 0;
  text-align: left; width: auto }
figure.chart figcaption { font-style: normal; font-weight: 500; margin: 0; max-width: none }
figure.chart figcaption small { display: block; font-weight: 400; opacity: .7 }
figure.chart > svg { display: block; height: auto; width: 100% }
.chart text { fill: currentColor; font-family: system-ui, sans-serif; font-size: 12px }
.chart .quiet { opacity: .7 }
.chart .grid { stroke: currentColor; stroke-opacity: .12; stroke-width: .8 }
.chart .line { fill: none; stroke: var(--c); stroke-linejoin: round; stroke-width: 1.4 }
.chart .line.c0.d0 { stroke-width: 2.4 }
.chart .line.d1 { stroke-dasharray: 5 3 }
.chart .level { stroke: currentColor; stroke-dasharray: 2 3 }
.chart .dot { fill: var(--c) }
.chart text.label { font-size: 11px; font-weight: 600; paint-order: stroke; stroke: Canvas;
  stroke-width: 3px }
figure.chart p { font-size: 12px; margin: .2em 0 }
figure.chart ul { display: flex !important; flex-wrap: wrap; gap: 0 .9em; list-style: none;
  padding: 0; margin: .2em 0 0 !important }
figure.chart ul li { font-size: 12px; line-height: 1.5; margin: 0 !important }
@media print {
  .charts { display: block }
  figure.chart { break-inside: avoid; display: inline-block; vertical-align: top; width: 48% }
}
figure.chart ul svg { height: .5em; margin-right: .4em; vertical-align: middle; width: 1.4em }
"""


@dataclass(frozen=True, slots=True)
class Line:
    """A series: its name, and its points by x.

    joined: whether a line leads through them. labels: a short text at each point, or none.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    joined: bool = True
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plot:
    """The contents of a chart.

    lines: at most sixteen, ours first. x, y: titles of the axes. names: of places 0, 1, ... on
    the x axis, which has powers of two otherwise. log: whether the y axis is logarithmic. level:
    the value of a line across, with its name. first: the number of the first line's colour, which
    is 0 for ours. linear: whether the x axis is linear, from the least x on, instead. decades:
    whether it has powers of ten instead. notes: lines of text below the legend.
    """

    title: str
    lines: tuple[Line, ...]
    x: str
    y: str
    names: tuple[str, ...] = ()
    log: bool = False
    level: tuple[str, float] | None = None
    first: int = 0
    linear: bool = False
    decades: bool = False
    notes: tuple[str, ...] = ()

    def html(self) -> str:
        """Return the chart as HTML with SVG, and its style."""
        return f"<style>{style()}</style>\n{draw(self)}"

    def _repr_html_(self) -> str:
        return self.html()


def style() -> str:
    """Return the style of all charts of a page, for its `<style>` or a file of its own."""
    light, dark = (
        "; ".join(f"--c{number}: {colour}" for number, colour in enumerate(colours))
        for colours in (_LIGHT, _DARK)
    )
    looks = "".join(
        f".chart .c{number} {{ --c: var(--c{number}) }}\n" for number in range(_COLOURS)
    )
    return themed("figure.chart", light, dark) + _RULES + looks


def charts(plots: Iterable[str]) -> str:
    """Return drawn charts beside each other, where there is room, else below each other."""
    return "\n".join(['<div class="charts">', *plots, "</div>"])


def draw(plot: Plot) -> str:
    """Return a chart with its legend, as HTML without a blank line."""
    lines = [line for line in plot.lines if line.points]
    if not lines:
        return missing(plot.title, "Nothing of this was recorded.")
    place_x, x_ticks = _x_axis(plot, [x for line in lines for x, _ in line.points])
    values = [y for line in lines for _, y in line.points]
    place_y, y_ticks = _y_axis(plot, [*values, *([plot.level[1]] if plot.level else [])])
    parts = []
    for at, label in y_ticks:
        y = place_y(at)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 4}" y="{y + 3.5:.1f}" text-anchor="end">{label}</text>')
    bottom = HEIGHT - BOTTOM
    for at, label in x_ticks:
        x = place_x(at)
        parts.append(f'<path class="grid" d="M{x:.1f} {TOP}V{bottom}"/>')
        # Long names at the right end must not be cut off.
        long = plot.names or plot.linear
        anchor = "end" if long and x > WIDTH - RIGHT - 24 else "middle"
        parts.append(f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="{anchor}">{label}</text>')
    middle = LEFT + (WIDTH - LEFT - RIGHT) / 2
    parts.append(
        f'<text class="quiet" x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">'
        f"{html.escape(plot.x)}</text>"
    )
    if plot.level is not None:
        y = place_y(plot.level[1])
        parts.append(f'<path class="level" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
    for number in reversed(range(len(lines))):
        points = [(place_x(x), place_y(y)) for x, y in lines[number].points]
        path, look = "L".join(f"{x:.1f} {y:.1f}" for x, y in points), _look(number + plot.first)
        joined = lines[number].joined
        if joined:
            parts.append(f'<path class="line {look}" d="M{path}"/>')
        size = 1.8 if joined else 3.2
        parts += [
            f'<circle class="dot {look}" cx="{x:.1f}" cy="{y:.1f}" r="{size}"/>' for x, y in points
        ]
    labels = (
        (place_x(x), place_y(y), text)
        for line in lines
        for (x, y), text in zip(line.points, line.labels, strict=False)
    )
    parts += _labels(labels)
    label = html.escape(f"{plot.title}: {plot.y} against {plot.x}")
    return "\n".join(
        (
            f'<figure class="chart"><figcaption>{html.escape(plot.title)}'
            f"<small>{html.escape(plot.y)}</small></figcaption>",
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">',
            *parts,
            f"</svg>{_legend(lines, plot)}",
            *(f"<p>{html.escape(note)}</p>" for note in plot.notes),
            "</figure>",
        )
    )


def _labels(places: Iterable[tuple[float, float, str]]) -> Iterator[str]:
    """Yield texts beside points, each where it covers no other text; left out if it would."""
    taken: list[_Box] = []
    for x, y, text in places:
        wide = _LETTER * len(text)
        before, after, middle, below, above = x - 5 - wide, x + 5, x - wide / 2, y + 12, y - 5
        around = (before, below), (after, above), (after, below), (before, above)
        for left, base in (*around, (before, y + 4), (after, y + 4), (middle, below)):
            box = left, base - 9, left + wide, base
            inside = left > LEFT and box[2] < WIDTH and box[1] > 0 and base < HEIGHT - BOTTOM
            if inside and not any(_meet(box, other) for other in taken):
                taken.append(box)
                label = html.escape(text)
                yield f'<text class="label" x="{left:.1f}" y="{base:.1f}">{label}</text>'
                break


def _meet(one: _Box, other: _Box) -> bool:
    """Return whether two boxes of left, top, right, bottom overlap."""
    return all(one[i] < other[i + 2] and other[i] < one[i + 2] for i in (0, 1))


def missing(title: str, why: str) -> str:
    """Return the placeholder of a missing chart."""
    return (
        f'<figure class="chart"><figcaption>{html.escape(title)}</figcaption>'
        f"<p><em>{html.escape(why)}</em></p></figure>"
    )


def _look(number: int) -> str:
    """Return the classes of a line: its colour, and its dashes."""
    return f"c{number % _COLOURS} d{number // _COLOURS % 2}"


def _legend(lines: Sequence[Line], plot: Plot) -> str:
    path, dot = '<path class="{}" d="M1 4H21"/>', '<circle class="dot {}" cx="11" cy="4" r="3.2"/>'
    names = []
    for number, line in enumerate(lines, plot.first):
        look = _look(number)
        names.append((path.format(f"line {look}") if line.joined else dot.format(look), line.name))
    if plot.level is not None:
        names.append((path.format("level"), plot.level[0]))
    items = (
        f'<li><svg viewBox="0 0 22 8">{mark}</svg>{html.escape(name)}</li>' for mark, name in names
    )
    return f"<ul>{''.join(items)}</ul>"


def _x_axis(plot: Plot, xs: list[float]) -> _Axis:
    first, last = min(xs), max(xs)
    if plot.names:
        step = max(1, math.ceil(len(plot.names) / 6))
        ticks = [(float(n), html.escape(plot.names[n])) for n in range(0, len(plot.names), step)]
        first, last = 0.0, max(1.0, len(plot.names) - 1.0)
    elif plot.linear:
        width = _round_step((last - first) / 4 or abs(first) or 1.0)
        ticks = [(n * width, _number(n * width)) for n in _multiples(first, last, width)]
    elif plot.decades:
        ticks = [(at, _tens(at)) for at in _round_numbers(first, last)]
    else:
        low, high = math.ceil(math.log2(first)), math.floor(math.log2(last))
        step = max(1, math.ceil((high - low) / 7))
        ticks = [(2.0**n, _power(2, n)) for n in range(low, high + 1, step)]
    scale = float if plot.names or plot.linear else math.log2
    start, span = scale(first), (scale(last) - scale(first)) or 1.0
    width = WIDTH - LEFT - RIGHT - 8
    return lambda x: LEFT + 4 + width * (scale(x) - start) / span, ticks


def _y_axis(plot: Plot, values: list[float]) -> _Axis:
    height = HEIGHT - TOP - BOTTOM
    if not plot.log:
        top = max(values) * 1.04
        step = _round_step(top / 5)
        ticks = [(n * step, f"{n * step:,g}") for n in _multiples(0.0, top, step)]
        return lambda y: TOP + height * (1 - y / top), ticks
    low = math.floor(math.log10(min(values)))
    high = max(low + 1, math.ceil(math.log10(max(values))))
    names = {n: f"{10**n:,g}" if -3 < n < 5 else _power(10, n) for n in range(low, high + 1)}
    step = max(1, math.ceil((high - low) / 8))
    ticks = [(10.0**n, name) for n, name in names.items() if (n - low) % step == 0]
    return lambda y: TOP + height * (1 - (math.log10(y) - low) / (high - low)), ticks


def _round_numbers(first: float, last: float) -> list[float]:
    """Return powers of ten within limits; if there are few, 2 and 5 times them as well."""
    low, high = math.floor(math.log10(first)), math.ceil(math.log10(last))
    for factors in ((1,), (1, 2, 5)):
        found = [n * 10.0**e for e in range(low, high + 1) for n in factors]
        found = [one for one in found if first * 0.999 <= one <= last * 1.001]
        if len(found) > 2:
            break
    return found[:: max(1, math.ceil(len(found) / 6))]


def _tens(value: float) -> str:
    """Return 1, 2 or 5 times a power of ten as text."""
    exponent = math.floor(math.log10(value) + 1e-9)
    factor = round(value / 10.0**exponent)
    if -3 < exponent < 4:
        return f"{factor * 10.0**exponent:,g}"
    return f"{factor}·" * (factor > 1) + _power(10, exponent)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.6g}"


def _power(base: int, exponent: int) -> str:
    return f'{base}<tspan dy="-4" font-size="11.5">{exponent}</tspan>'


def _round_step(least: float) -> float:
    """Return 1, 2 or 5 times a power of ten, at least as large."""
    power = 10.0 ** math.floor(math.log10(least)) if least > 0 else 1.0
    return next(power * n for n in (1, 2, 5, 10) if power * n >= least * 0.999)


def _multiples(first: float, last: float, step: float) -> range:
    return range(math.ceil(first / step), math.floor(last / step) + 1)
