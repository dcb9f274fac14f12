"""A fragment's map as a picture and as text: the matrix as a grid, with each element's lane."""

from __future__ import annotations

import colorsys
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Final

from tcusim.machine.layouts.maps import FragmentMap
from tcusim.machine.multiprocessors import LANES
from tcusim.markup import page, scrolling, themed
from tcusim.table import Table, aligned

_ROW, _LETTER, _MARGIN, _GAP = 17.0, 6.8, 30.0, 34.0
_LEAST: Final = 3.0

_STYLE: Final = (
    themed(
        ".tcusim-lanes", "--text: #1f1f1f; --focus: #0b57d0", "--text: #e6e6e6; --focus: #8ab4f8"
    )
    + """
.tcusim-lanes text { font: 11px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace;
  fill: var(--text) }
.tcusim-lanes .lane text { fill: #111111; pointer-events: none }
.tcusim-lanes .lane rect { stroke: #ffffff; stroke-width: .7 }
.tcusim-lanes .lane { outline: none; cursor: default }
.tcusim-lanes .lane:is(:hover, :focus) rect { stroke: #111111; stroke-width: 1.6 }
.tcusim-lanes .lanes:hover .lane:not(:hover),
.tcusim-lanes .lanes:not(:hover):focus-within .lane:not(:focus) { opacity: .25 }
"""
)
_FRAGMENT_STYLE: Final = """
.tcusim-layout { font: 14px/1.45 system-ui, sans-serif; text-align: left }
.tcusim-layout .scroll { overflow-x: auto; max-width: 100% }
.tcusim-layout svg { max-width: none }
.tcusim-layout table { border-collapse: collapse; font-size: 13px; margin: .4em 0 }
.tcusim-layout th, .tcusim-layout td { padding: .1em .9em .1em 0; text-align: left;
  font-weight: normal; background: none; border: 0; vertical-align: top }
"""


@dataclass(frozen=True, slots=True)
class _Run:
    """Neighbours in a row, or in a column, that a lane holds as consecutive elements.

    tile, row, col: of the first element. elements: the first element's indices in the lane; several
    if the lane holds it more than once. copy: the number of lanes before this one that hold the
    same elements. rows, cols: the height and the width in elements; one of them is 1.
    """

    lane: int
    tile: int
    row: int
    col: int
    elements: tuple[int, ...]
    copy: int
    rows: int = 1
    cols: int = 1

    @property
    def length(self) -> int:
        """The number of neighbours."""
        return self.rows * self.cols

    @property
    def label(self) -> str:
        """The lane and the elements' numbers, such as ``"T5:0-1,8-9"``."""
        return f"T{self.lane}:{self.numbers()}"

    def numbers(self) -> str:
        """Return the elements' numbers, such as ``"0-1,8-9"``."""
        return ",".join(_span(first, self.length) for first in self.elements)

    def where(self) -> str:
        """Return their location in words."""
        row = f"row{'s' * (self.rows > 1)} {_span(self.row, self.rows)}"
        return f"{row}, column{'s' * (self.cols > 1)} {_span(self.col, self.cols)}"

    def joined(self, new: _Run, *, down: bool) -> _Run | None:
        """Return this run with a run of one element at its end; None if that does not continue it.

        down: whether the end is the lower end, else the right one.
        """
        end = (self.row + self.rows, self.col) if down else (self.row, self.col + self.cols)
        numbers = tuple(first + self.length for first in self.elements)
        if (*end, numbers, self.copy) != (new.row, new.col, new.elements, new.copy):
            return None
        return replace(self, rows=self.rows + down, cols=self.cols + (not down))


def _span(first: int, length: int) -> str:
    return str(first) if length == 1 else f"{first}-{first + length - 1}"


def _runs(one: FragmentMap, *, down: bool) -> list[_Run]:
    """Return the runs of all lanes, along the rows or down the columns."""
    runs: list[_Run] = []
    copies: Counter[tuple[int, int, int]] = Counter()
    for lane in range(LANES):
        tile = int(one.tiles[lane])
        held: dict[tuple[int, int], list[int]] = {}
        places = zip(one.rows[lane].tolist(), one.cols[lane].tolist(), strict=True)
        for element, place in enumerate(places):
            held.setdefault(place, []).append(element)
        last: _Run | None = None
        for row, col in sorted(held, key=lambda place: place[::-1] if down else place):
            new = _Run(lane, tile, row, col, tuple(held[row, col]), copies[tile, row, col])
            copies[tile, row, col] += 1
            longer = last and last.joined(new, down=down)
            if longer:
                runs[-1] = longer
            else:
                runs.append(new)
            last = runs[-1]
    return runs


def _best_runs(one: FragmentMap) -> list[_Run]:
    """Return the runs of the direction that has fewer."""
    return min(_runs(one, down=False), _runs(one, down=True), key=len)


# --- Text -------------------------------------------------------------------------------------


def in_words(one: FragmentMap) -> str:
    """Return a sentence that describes a map."""
    order = f", {one.order}" if one.order else ""
    rows, cols = one.size
    bits = one.element_bits
    each = one.register_bits // bits
    packed = f", {each} to a register" if each > 1 else f", a register of {bits} bits each"
    several = int(one.tiles.max()) + 1
    text = (
        f"{one.family} {one.shape}, {one.operand} ({rows}x{cols} {one.dtype}{order}): each lane "
        f"holds {one.count} element{'s' * (one.count > 1)}{packed}."
    )
    if several > 1:
        text += f" The warp multiplies {several} tiles, each by eight lanes."
    elif one.count * LANES > rows * cols:
        text += f" Every element is held {one.count * LANES // (rows * cols)} times."
    return f"{text} Source: {one.source}; {one.evidence}."


def grid_text(one: FragmentMap) -> str:
    """Return the matrix as text: ``T5:0-1`` is elements 0 and 1 of lane 5."""
    runs = _runs(one, down=False)
    lines: list[str] = []
    for tile in range(int(one.tiles.max()) + 1):
        if one.tiles.any():
            lines += ["", f"tile {tile}"]
        cells: dict[int, dict[int, list[str]]] = {}
        lengths: dict[int, int] = {}
        for run in runs:
            if run.tile == tile:
                lengths[run.col] = run.length
                cells.setdefault(run.row, {}).setdefault(run.col, []).append(run.label)
        names = [_span(col, lengths[col]) for col in sorted(lengths)]
        rows = [["col    ", *names]]
        for row in sorted(cells):
            rows.append([f"row {row:>3}", *("/".join(cells[row][col]) for col in sorted(lengths))])
        lines += aligned(rows)
    return "\n".join(lines).lstrip("\n")


def lane_text(one: FragmentMap, lane: int) -> str:
    """Return the elements of a lane, a line for each run of neighbours."""
    runs = sorted(
        (run for run in _best_runs(one) if run.lane == lane), key=lambda run: run.elements
    )
    return "\n".join([f"lane {lane}", *(f"  {_held(one, run)}  {run.where()}" for run in runs)])


def _held(one: FragmentMap, run: _Run) -> str:
    """Return the names of elements with their registers."""
    parts = []
    for first in run.elements:
        (low, bit), (high, last) = (
            one.register(element) for element in (first, first + run.length - 1)
        )
        register = f"register {low}" if low == high else f"registers {low}-{high}"
        if low == high and run.length * one.element_bits < one.register_bits:
            register += f", bits {bit}-{last + one.element_bits - 1}"
        parts.append(f"{one.letter}[{_span(first, run.length)}] ({register})")
    return " and ".join(parts)


# --- Picture ----------------------------------------------------------------------------------


def page_of(one: FragmentMap) -> str:
    """Return a whole page."""
    return page(f"{one.family} {one.shape}: the lanes of {one.operand}", fragment_of(one))


def fragment_of(one: FragmentMap) -> str:
    """Return an element with the picture, and with the same as a table."""
    held: list[list[str]] = [[] for _ in range(LANES)]
    for run in _best_runs(one):
        held[run.lane].append(f"{_held(one, run)}: {run.where()}")
    rows = [(str(lane), "\n".join(texts)) for lane, texts in enumerate(held)]
    lanes = Table(("lane", "holds"), rows, "Lane by lane")
    return "\n".join(
        [
            f'<div class="tcusim-layout"><style>{_FRAGMENT_STYLE}</style>',
            f"<p>{escape(in_words(one))} Point at a lane, or move there with Tab.</p>",
            f"{scrolling('The matrix, with the lane of each element')}{drawing_of(one)}</div>",
            f"{lanes.html(folded=True)}</div>",
        ]
    )


def drawing_of(one: FragmentMap) -> str:
    """Return an SVG document with the elements of each lane as one group, for hovering."""
    runs = _best_runs(one)
    grid = _Grid(one, runs)
    lanes = []
    for lane in range(LANES):
        own = [run for run in runs if run.lane == lane]
        told = "; ".join(f"{one.letter}[{run.numbers()}] {run.where()}" for run in own)
        label = escape(f"lane {lane}: {told}")
        lanes.append(
            f'<g class="lane" tabindex="0" role="img" aria-label="{label}"><title>{label}</title>'
            f"{''.join(grid.cell(run) for run in own)}</g>"
        )
    width, height = f"{grid.width:g}", f"{grid.height:g}"
    title = escape(f"{one.family} {one.shape}: the lanes of {one.operand}")
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="tcusim-lanes" role="group" '
            f'aria-label="{title}" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}">',
            f"<style>{_STYLE}</style>",
            *grid.rulers(),
            '<g class="lanes">',
            *lanes,
            "</g>",
            "</svg>\n",
        ]
    )


class _Grid:
    """Where cells are drawn. Tiles stand side by side."""

    def __init__(self, one: FragmentMap, runs: Sequence[_Run]) -> None:
        self.one = one
        self.copies = max(run.copy for run in runs) + 1
        longest = max(len(run.label) / run.cols for run in runs)
        padding = 8 if any(run.rows > 1 for run in runs) else 5
        self.across = max(_LEAST, longest * _LETTER + padding)
        self.below = max(_LEAST, _ROW / min(run.rows for run in runs)) * self.copies
        self.tile_width = one.size[1] * self.across + _GAP
        self.width = _MARGIN + (int(one.tiles.max()) + 1) * self.tile_width
        self.height = _MARGIN + one.size[0] * self.below + 6

    def cell(self, run: _Run) -> str:
        """Return the rectangle and the text of a run."""
        height = self.below / self.copies
        x = _MARGIN + run.tile * self.tile_width + run.col * self.across
        y = _MARGIN + run.row * self.below + run.copy * height
        width, height = self.across * run.cols, height * run.rows
        return (
            f'<rect x="{x:.4g}" y="{y:.4g}" width="{width:.4g}" height="{height:.4g}" '
            f'fill="{_colour(run.lane)}"/><text x="{x + 3:.4g}" y="{y + height / 2 + 3.5:.4g}">'
            f"{run.label}</text>"
        )

    def rulers(self) -> Iterator[str]:
        """Yield the numbers of rows and columns, as many as there is room for."""
        rows, cols = self.one.size
        for row in range(0, rows, _numbered(self.below, 12)):
            y = _MARGIN + row * self.below + min(self.below, _ROW) / 2 + 3.5
            yield f'<text x="{_MARGIN - 5:g}" y="{y:.4g}" text-anchor="end">{row}</text>'
        for tile in range(int(self.one.tiles.max()) + 1):
            for col in range(0, cols, _numbered(self.across, 24)):
                x = _MARGIN + tile * self.tile_width + col * self.across + 3
                yield f'<text x="{x:.5g}" y="{_MARGIN - 8:g}">{col}</text>'


def _numbered(size: float, least: float) -> int:
    """Return the power of two of rows or columns, of this size, from one number to the next."""
    return 1 << max(0, math.ceil(math.log2(least / size)))


def _colour(lane: int) -> str:
    """Return a colour on which black is read well: a hue for each group of four lanes."""
    red, green, blue = colorsys.hls_to_rgb((lane >> 2) / 8, 0.9 - 0.055 * (lane & 3), 0.75)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"
