"""Step through a program in plain text, for pipes and files: no colours, no control characters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tcusim.errors import InputError
from tcusim.stepper.frames import Frame
from tcusim.stepper.layout import cut_block, placed
from tcusim.stepper.panes import cell_of, explanation_of, panes_of, place_text, product_cell
from tcusim.stepper.steps import Steps, Viewing

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
    panes = panes_of(frame, hexadecimal=hexadecimal)
    room = width - _INDENT
    picture = placed([cut_block(pane, room, rows) for pane in panes], room, _GAP)
    lines = [f"step {frame.number}{place}", f"  {frame.line}"]
    for y in range(picture.height):
        text = ""
        for _, block in picture.blocks_at(y):
            line = y - block.y
            own = block.head[line : line + 1] or (cell for _, cell in block.cells(y))
            text = f"{text:<{block.x}}{' '.join(own)}"
        lines.append(f"{'':{_INDENT}}{text}")
    lines.append("")
    return "\n".join(map(str.rstrip, lines))


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
