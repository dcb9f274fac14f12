"""Step through a program in plain text, for pipes and files: no colours, no control characters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tcusim.errors import InputError
from tcusim.stepper.frames import Frame
from tcusim.stepper.panes import (
    Pane,
    cell_of,
    explanation_of,
    flowed,
    panes_of,
    place_text,
    product_cell,
)
from tcusim.stepper.steps import Steps, Viewing

__all__ = ["WIDTH", "Plain", "frame_text"]

# Columns before the tiles of a step, and between two of them.
_INDENT: Final = 2
_GAP: Final = 3


# Default columns of text, and default maximum of rows of a tile.
WIDTH: Final = 120
_ROWS: Final = 32


# --- One frame --------------------------------------------------------------------------------


def frame_text(
    frame: Frame, *, width: int = WIDTH, rows: int = _ROWS, hexadecimal: bool = False
) -> str:
    """Return a frame as plain text. rows: maximum of rows of a tile."""
    place = place_text(frame)
    # The path of a step outside loops is its index.
    place = place[len(frame.path) :] if frame.path == str(frame.number) else f": {place}"
    blocks = [
        [*_head(pane), *([] if pane.tile.note else _table(pane.texts, width, rows))]
        for pane in panes_of(frame, hexadecimal=hexadecimal)
    ]
    lines = [f"step {frame.number}{place}", f"  {frame.line}", *_side_by_side(blocks, width), ""]
    return "\n".join(map(str.rstrip, lines))


def _head(pane: Pane) -> list[str]:
    """Return the lines above the elements of a tile."""
    separator = "\n" if pane.tile.note else ", "
    second = separator.join(filter(None, (f"{pane.size}, {pane.place}", pane.change)))
    return [f"{pane.verb} {pane.name}", *second.splitlines()]


def _table(cells: Sequence[Sequence[str]], width: int, rows: int) -> list[str]:
    """Return rows of aligned cells, as many rows and columns as there is room for."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    columns = _columns_that_fit(widths, width)
    lines = []
    for row in _chosen(len(cells), rows):
        line = ""
        for column in columns:
            text = "…" if row is None or column is None else cells[row][column]
            line += f"{text:>{1 if column is None else widths[column]}} "
        lines.append(line)
    return lines


def _columns_that_fit(widths: list[int], width: int) -> list[int | None]:
    """Return the columns to show; None stands for those left out, before the last."""
    for count in range(len(widths), 2, -1):
        shown = _chosen(len(widths), count)
        if sum(2 if i is None else widths[i] + 1 for i in shown) <= width - _INDENT:
            return shown
    return _chosen(len(widths), 2)


def _chosen(total: int, limit: int) -> list[int | None]:
    """Return at most `limit` numbers below `total`, the last among them, and None for a gap."""
    if total <= limit:
        return list(range(total))
    return [*range(limit - 1), None, total - 1]


def _side_by_side(blocks: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Yield blocks next to each other, as many as fit, the others below; indented."""
    sizes = [(max(map(len, block)), len(block)) for block in blocks]
    placed = list(zip(flowed(sizes, width - _INDENT, _GAP), blocks, strict=True))
    for line in range(max((y + len(block) for (_, y), block in placed), default=0)):
        text = ""
        for (x, y), block in placed:
            if y <= line < y + len(block):
                text = f"{text:<{x}}{block[line - y]}"
        yield f"{'':{_INDENT}}{text}"


# --- Stepping ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plain:
    """Writes the steps of one warp, one after the other.

    write: takes each piece of text. viewing: with breakpoints, only the steps at which one of them
    stops are written; of the cell of a product, how it was summed.
    """

    write: Callable[[str], object]
    viewing: Viewing
    width: int = WIDTH

    def run(self, steps: Steps) -> None:
        """Write the steps of a warp.

        Raises InputError if no tile that was written has the cell.
        """
        viewing = self.viewing
        shown, started, told = 0, viewing.start is None, viewing.cell is None
        for frame in steps:
            started = started or (viewing.start is not None and viewing.start(frame))
            stopping = viewing.stopping(frame)
            if not (started and viewing.shows(frame) and (stopping or not viewing.breakpoints)):
                continue
            shown += 1
            if stopping:
                self.write(f"break: {', '.join(map(str, stopping))}")
            for text in (self._text(frame), self._remark(frame)):
                if text:
                    self.write(text)
            for line in self._cell_lines(steps, frame):
                told = True
                self.write(line)
        if not shown:
            self.write(self._nothing())
        elif not told and viewing.cell is not None:
            row, column = viewing.cell
            raise InputError(
                f"no tile of the steps that were shown has a cell {row},{column}; rows and columns "
                "count from 0"
            )

    def _text(self, frame: Frame) -> str:
        return frame_text(frame, width=self.width, hexadecimal=self.viewing.hexadecimal)

    def _remark(self, frame: Frame) -> str:
        """Return the differences at a step and the simulator's tiles; "" if there are none."""
        beside = self.viewing.beside
        other = None if beside is None else beside.other(frame)
        if beside is None or other is None or not beside.at(frame):
            return ""
        lines = [
            f"  {'FIRST DIFFERENCE' if one is beside.differences[0] else 'difference'}: {one.what}"
            for one in beside.at(frame)
        ]
        return "\n".join([*lines, "", "  the simulator:", self._text(other)])

    def _nothing(self) -> str:
        viewing = self.viewing
        which = f"{' or '.join(viewing.only)} step" if viewing.only else "step"
        place = "" if viewing.start is None else f" at {viewing.start}"
        stops = " or ".join(map(str, viewing.breakpoints))
        return f"no {which}{place} runs in this warp{f' and meets {stops}' * bool(stops)}"

    def _cell_lines(self, steps: Steps, frame: Frame) -> Iterator[str]:
        """Yield the lines about the cell; none if no tile of the step has it."""
        if self.viewing.cell is None:
            return
        row, column = self.viewing.cell
        found = [cell_of(tile, row, column) for tile in frame.tiles]
        lines = [f"  {cell}" for cell in found if cell is not None]
        if not lines:
            return
        yield "\n".join([f"cell {row},{column}", *lines])
        if not product_cell(frame, row, column):
            yield f"\n{explanation_of(steps.about, frame, row, column).to_text()}"
        else:
            yield ""
