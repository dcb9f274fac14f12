"""The layout of a step's tiles and of their elements: one for the screen and for plain text.

This is plain data: places and texts. The screen and the text draw it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tcusim.stepper.frames import Tile
from tcusim.stepper.panes import LOOKS, Look, Pane

# Marks to the right of a cell, so that colours are not needed; of NaN where its bits are shown.
MARKS: Final[dict[Look, str]] = {"changed": "*", "nan": "?"}

# Columns between two tiles. The head of a tile is bold: no line is between two rows of tiles.
_GAP: Final = 2
# A row or a column is folded into lines of a multiple of this many cells.
_FOLD: Final = 8


@dataclass(frozen=True, slots=True)
class Spot:
    """A cell: the index of its tile in the step, read tiles before written ones; row and column."""

    tile: int
    row: int
    column: int


@dataclass(frozen=True, slots=True)
class Block:
    """A pane, and the places of its elements.

    head: the lines above the elements. lines: for each line the elements, by their index row by
    row; None stands for those left out. widths: columns of each text in a line; one more follows
    it, for a mark. x, y: the upper left corner.
    """

    pane: Pane
    head: tuple[str, ...]
    lines: tuple[tuple[int | None, ...], ...] = ()
    widths: tuple[int, ...] = ()
    x: int = 0
    y: int = 0

    @property
    def tile(self) -> Tile:
        """The tile that it shows."""
        return self.pane.tile

    @property
    def width(self) -> int:
        """Its columns."""
        return max(sum(self.widths) + len(self.widths), *map(len, self.head))

    @property
    def height(self) -> int:
        """Its lines."""
        return len(self.head) + len(self.lines)

    @property
    def is_said_in_words(self) -> bool:
        """Whether all its cells are equal, and one stands for them."""
        return sum(map(len, self.lines)) < self.tile.values.size

    def text(self, number: int | None) -> str:
        """Return the text of a cell."""
        if number is None:
            return "…"
        row, column = divmod(number, len(self.pane.texts[0]))
        return self.pane.texts[row][column]

    def look(self, number: int) -> Look:
        """Return the look of a cell."""
        return LOOKS[self.pane.looks.flat[number]]

    def mark(self, number: int) -> str:
        """Return the mark to the right of a cell."""
        look = self.look(number)
        # The head says that all changed.
        is_said = look == "changed" and self.tile.changed.all()
        return " " if is_said or self.text(number).endswith("?") else MARKS.get(look, " ")

    def place(self, number: int) -> tuple[int, int, int]:
        """Return the column, the line and the width of a cell, by its index; no line is cut."""
        down, across = divmod(number, max(1, len(self.widths)))
        x = self.x + sum(self.widths[:across]) + across
        return x, self.y + len(self.head) + down, self.widths[across] + 1

    def cells(self, y: int) -> list[tuple[int | None, str]]:
        """Return the cells in a line below the head, each with its text, aligned."""
        # The last line of a folded row may be shorter than the others.
        line = zip(self.lines[y - self.y - len(self.head)], self.widths, strict=False)
        return [(number, f"{self.text(number):>{width}}") for number, width in line]


@dataclass(frozen=True, slots=True)
class Picture:
    """The tiles of a step at their places, those read first."""

    blocks: tuple[Block, ...]

    @property
    def width(self) -> int:
        """The columns of all together."""
        return max((one.x + one.width for one in self.blocks), default=0)

    @property
    def height(self) -> int:
        """The lines of all together."""
        return max((one.y + one.height for one in self.blocks), default=0)

    def blocks_at(self, y: int) -> list[tuple[int, Block]]:
        """Return the blocks in a line, from left to right, each with its index."""
        every = enumerate(self.blocks)
        return [(index, one) for index, one in every if one.y <= y < one.y + one.height]

    def spot(self, spot: Spot) -> tuple[Block, int] | None:
        """Return the block of a cell, and the cell's index in it; None if there is none."""
        if not 0 <= spot.tile < len(self.blocks):
            return None
        block = self.blocks[spot.tile]
        rows, columns = block.tile.values.shape
        if not (0 <= spot.row < rows and 0 <= spot.column < columns):
            return None
        return block, 0 if block.is_said_in_words else spot.row * columns + spot.column


def placed(blocks: Sequence[Block], width: int, gap: int = _GAP) -> Picture:
    """Return blocks beside each other, as many as a width allows, the others below."""
    found: list[Block] = []
    x = y = tallest = 0
    for one in blocks:
        if x and x + one.width > width:
            x, y, tallest = 0, y + tallest, 0
        found.append(replace(one, x=x, y=y))
        x += one.width + gap
        tallest = max(tallest, one.height)
    return Picture(tuple(found))


def picture_of(
    panes: Sequence[Pane], width: int, height: int | None = None, *, chosen: int = 0
) -> Picture:
    """Return panes with all of their elements.

    height: lines for them. If they need more, all but the chosen pane are lines, except those that
    fit nevertheless.
    """
    blocks = [folded_block(pane, width) for pane in panes]
    picture = placed(blocks, width)
    if height is None or picture.height <= height:
        return picture
    shown = [one if at == chosen else _line_of(one.pane, width) for at, one in enumerate(blocks)]
    for at, one in enumerate(blocks):
        tried = [*shown[:at], one, *shown[at + 1 :]]
        if placed(tried, width).height <= height:
            shown = tried
    return placed(shown, width)


def _line_of(pane: Pane, width: int) -> Block:
    """Return a pane as one line of a width."""
    line = f"{pane.name}  {pane.size}  {pane.summary}"
    return Block(pane, (line if len(line) <= width else f"{line[: width - 1]}…",))


def folded_block(pane: Pane, width: int) -> Block:
    """Return a pane with all of its elements; a row or a column is folded to a width."""
    head = f"{pane.name}  {pane.size}", ", ".join(filter(None, (pane.place, pane.change)))
    lengths = [len(text) for row in pane.texts for text in row]
    across = len(pane.texts[0])
    if 1 in pane.tile.values.shape and len(lengths) > 1:
        fitting = max(1, width // (max(lengths) + 1))
        across = min(len(lengths), fitting // _FOLD * _FOLD or fitting)
    starts = range(0, len(lengths), max(1, across))
    lines = tuple(tuple(range(len(lengths))[start : start + across]) for start in starts)
    return Block(pane, head, lines, tuple(max(lengths[at::across]) for at in range(across)))


def cut_block(pane: Pane, width: int, rows: int) -> Block:
    """Return a pane with as many columns and rows as fit; of a write in flight, its head only."""
    separator = "\n" if pane.tile.note else ", "
    second = separator.join(filter(None, (f"{pane.size}, {pane.place}", pane.change)))
    head = f"{pane.verb} {pane.name}", *second.splitlines()
    if pane.tile.note:
        return Block(pane, head)
    widths = [max(map(len, column)) for column in zip(*pane.texts, strict=True)]
    shown = _columns_that_fit(widths, width)
    lines = tuple(
        tuple(None if row is None or at is None else row * len(widths) + at for at in shown)
        for row in _chosen(len(pane.texts), rows)
    )
    return Block(pane, head, lines, tuple(1 if at is None else widths[at] for at in shown))


def _columns_that_fit(widths: Sequence[int], width: int) -> list[int | None]:
    """Return the columns to show; None stands for those left out, before the last."""
    for count in range(len(widths), 2, -1):
        shown = _chosen(len(widths), count)
        if sum(2 if at is None else widths[at] + 1 for at in shown) <= width:
            return shown
    return _chosen(len(widths), 2)


def _chosen(total: int, limit: int) -> list[int | None]:
    """Return at most `limit` numbers below `total`, the last among them, and None for a gap."""
    if total <= limit:
        return list(range(total))
    return [*range(limit - 1), None, total - 1]
