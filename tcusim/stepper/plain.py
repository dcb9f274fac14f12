"""Step through a program in plain text, for pipes and files: no colours, no control characters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tcusim.errors import InputError
from tcusim.stepper.breakpoints import Breakpoint
from tcusim.stepper.comparison import Comparison
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
from tcusim.stepper.steps import Steps

__all__ = ["Layout", "Plain", "frame_text"]

# Columns before the tiles of a step, and between two of them.
_INDENT: Final = 2
_GAP: Final = 3


@dataclass(frozen=True, slots=True)
class Layout:
    """How much room there is. width: columns. rows: the most of a tile that are shown.

    hexadecimal: numbers are shown as the bits of their type.
    """

    width: int = 120
    rows: int = 32
    hexadecimal: bool = False


def frame_text(frame: Frame, layout: Layout | None = None) -> str:
    """Return a frame as plain text."""
    return "\n".join(line.rstrip() for line in _frame_lines(frame, layout or Layout()))


# --- One frame --------------------------------------------------------------------------------


def _frame_lines(frame: Frame, layout: Layout) -> Iterator[str]:
    place = place_text(frame)
    # The path of a step outside loops is its index.
    place = place[len(frame.path) :] if frame.path == str(frame.number) else f": {place}"
    yield f"step {frame.number}{place}"
    yield f"  {frame.line}"
    blocks = [_block(pane, layout) for pane in panes_of(frame, hexadecimal=layout.hexadecimal)]
    yield from _side_by_side(blocks, layout.width)
    yield ""


def _block(pane: Pane, layout: Layout) -> list[str]:
    """Return a tile as a head of two lines and one line for each row."""
    head = [f"{pane.verb} {pane.name}", f"{pane.size}, {pane.place}"]
    if pane.tile.note:
        return [*head, pane.tile.note]
    if pane.change:
        head[1] += f", {pane.change}"
    return [*head, *_table(pane.texts, layout)]


def _table(cells: Sequence[Sequence[str]], layout: Layout) -> list[str]:
    """Return rows of aligned cells, as many rows and columns as there is room for."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    columns = _columns_that_fit(widths, layout.width)
    lines = []
    for row in _chosen(len(cells), layout.rows):
        line = ""
        for column in columns:
            text = "…" if row is None or column is None else cells[row][column]
            width = 1 if column is None else widths[column]
            line += f"{text:>{width}} "
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


@dataclass(slots=True)
class Plain:
    """Writes the steps of one warp, one after the other.

    write: takes each piece of text. start: where the first step to show is, such as its path; None
    is the first of all. only: kinds of steps to show; empty is all. breakpoints: show only the
    steps at which one of them stops; empty is all. cell: an element, row and column, to tell of at
    every step, and of products how it was summed. beside: a backend's trace and the simulator's.
    """

    write: Callable[[str], object]
    layout: Layout = Layout()
    start: Callable[[Frame], bool] | None = None
    only: tuple[str, ...] = ()
    breakpoints: tuple[Breakpoint, ...] = ()
    cell: tuple[int, int] | None = None
    beside: Comparison | None = None

    def run(self, steps: Steps) -> None:
        """Write the steps of a warp.

        Raises InputError if no tile that was shown has the cell.
        """
        shown = 0
        started = self.start is None
        told = self.cell is None
        for frame in steps:
            started = started or (self.start is not None and self.start(frame))
            stopping = [one for one in self.breakpoints if one(frame)]
            if not started or (self.only and frame.kind not in self.only):
                continue
            if self.breakpoints and not stopping:
                continue
            shown += 1
            if stopping:
                self.write(f"break: {', '.join(map(str, stopping))}")
            self.write(frame_text(frame, self.layout))
            if self.beside is not None and (remark := self._remark(self.beside, frame)):
                self.write(remark)
            for line in self._cell_lines(steps, frame):
                told = True
                self.write(line)
        if not shown:
            self.write(self._nothing())
        elif not told and self.cell is not None:
            row, column = self.cell
            raise InputError(
                f"no tile of the steps that were shown has a cell {row},{column}; rows and columns "
                "count from 0"
            )

    def _remark(self, beside: Comparison, frame: Frame) -> str:
        """Return the differences at a step and the simulator's tiles; "" if there are none."""
        lines = [
            f"  {'FIRST DIFFERENCE' if one is beside.differences[0] else 'difference'}: {one.what}"
            for one in beside.at(frame)
        ]
        other = beside.other(frame)
        if not lines or other is None:
            return ""
        return "\n".join([*lines, "", "  the simulator:", frame_text(other, self.layout)])

    def _nothing(self) -> str:
        which = f"{' or '.join(self.only)} step" if self.only else "step"
        place = "" if self.start is None else f" at {self.start}"
        met = f" and meets {' or '.join(map(str, self.breakpoints))}" if self.breakpoints else ""
        return f"no {which}{place} runs in this warp{met}"

    def _cell_lines(self, steps: Steps, frame: Frame) -> Iterator[str]:
        """Yield the lines about the cell; none if no tile of the step has it."""
        if self.cell is None:
            return
        row, column = self.cell
        found = [cell_of(tile, row, column) for tile in (*frame.reads, *frame.writes)]
        lines = [f"  {cell}" for cell in found if cell is not None]
        if not lines:
            return
        yield "\n".join([f"cell {row},{column}", *lines])
        if not product_cell(frame, row, column):
            yield f"\n{explanation_of(steps.about, frame, row, column).to_text()}"
        else:
            yield ""
