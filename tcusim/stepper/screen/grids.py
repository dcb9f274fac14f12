"""Where the tiles of a step go on the screen, and how each of their cells looks.

This is plain data: places and texts. `panes` draws it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tcusim.stepper.frames import Frame, Tile
from tcusim.stepper.panes import LOOKS, Look, Pane, flowed, panes_of

__all__ = ["MARKS", "Block", "Picture", "Spot", "picture_of"]

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
    """A pane on the screen.

    x, y: its upper left corner. cell: columns of an element, its mark included. across: elements of
    a line; a row or a column may be folded. texts, looks: of the elements, row by row; or one; or
    none, if there is room for one line only.
    """

    pane: Pane
    x: int
    y: int
    cell: int
    across: int
    texts: tuple[str, ...]
    looks: tuple[Look, ...]

    @property
    def tile(self) -> Tile:
        """The tile that it shows."""
        return self.pane.tile

    @property
    def head(self) -> tuple[str, ...]:
        """Its two lines above the elements; the operand says whether it is read or written."""
        pane = self.pane
        if not self.texts:
            line = f"{pane.name}  {pane.size}  {pane.summary}"
            return (line if len(line) <= self.across else f"{line[: self.across - 1]}…",)
        change = f", {pane.change}" if pane.change else ""
        return f"{pane.name}  {pane.size}", f"{pane.place}{change}"

    def mark(self, number: int) -> str:
        """Return the mark to the right of a cell."""
        look = self.looks[number]
        if look == "changed" and self.tile.changed.all():
            # The head says so.
            return " "
        if self.texts[number].endswith("?"):
            return " "
        return MARKS.get(look, " ")

    @property
    def width(self) -> int:
        """Columns that it takes."""
        return max(self.across * self.cell, *map(len, self.head))

    @property
    def height(self) -> int:
        """Lines that it takes."""
        return len(self.head) + -(-len(self.texts) // self.across)

    def place(self, number: int) -> tuple[int, int]:
        """Return the column and the line of a cell, by its number row by row."""
        down, across = divmod(number, self.across)
        return self.x + across * self.cell, self.y + len(self.head) + down

    @property
    def is_said_in_words(self) -> bool:
        """Whether all its cells are equal, and one stands for them."""
        return len(self.texts) < self.tile.values.size

    def numbers(self, line: int) -> range:
        """Return the numbers of the cells in a line of the screen."""
        first = (line - self.y - len(self.head)) * self.across
        if first < 0:
            return range(0)
        return range(first, min(first + self.across, len(self.texts)))


@dataclass(frozen=True, slots=True)
class Picture:
    """The tiles of a step on the screen, those read first. width, height: of all together."""

    blocks: tuple[Block, ...]
    width: int
    height: int

    def spot(self, spot: Spot) -> tuple[Block, int] | None:
        """Return the block of a cell, and the cell's number in it; None if there is none."""
        if not 0 <= spot.tile < len(self.blocks):
            return None
        block = self.blocks[spot.tile]
        rows, columns = block.tile.values.shape
        if not (0 <= spot.row < rows and 0 <= spot.column < columns):
            return None
        return block, 0 if block.is_said_in_words else spot.row * columns + spot.column


def picture_of(
    frame: Frame,
    width: int,
    height: int | None = None,
    *,
    chosen: int = 0,
    hexadecimal: bool = False,
    constants: Collection[str] = (),
) -> Picture:
    """Return the tiles of a step, side by side as far as a width allows, the others below.

    height: lines for them. If they need more, all but the chosen tile are lines, except those that
    fit nevertheless. constants: fragments that hold a constant throughout.
    """
    panes = panes_of(frame, hexadecimal=hexadecimal, constants=constants)
    blocks = [_block(pane, width) for pane in panes]
    picture = _placed(blocks, width)
    if height is None or picture.height <= height:
        return picture
    shown = [one if number == chosen else _line(one, width) for number, one in enumerate(blocks)]
    for number, one in enumerate(blocks):
        tried = [*shown[:number], one, *shown[number + 1 :]]
        if _placed(tried, width).height <= height:
            shown = tried
    return _placed(shown, width)


def _placed(blocks: Sequence[Block], width: int) -> Picture:
    """Return blocks beside and below each other."""
    places = flowed([(one.width, one.height) for one in blocks], width, _GAP)
    placed = [replace(one, x=x, y=y) for one, (x, y) in zip(blocks, places, strict=True)]
    return Picture(
        tuple(placed),
        max((one.x + one.width for one in placed), default=0),
        max((one.y + one.height for one in placed), default=0),
    )


def _line(block: Block, width: int) -> Block:
    """Return a block as one line of a width."""
    return replace(block, cell=1, across=width, texts=(), looks=())


def _block(pane: Pane, width: int) -> Block:
    """Return a pane in the upper left corner."""
    rows, columns = pane.tile.values.shape
    texts = tuple(text for row in pane.texts for text in row)
    looks: tuple[Look, ...] = tuple(LOOKS[look] for look in pane.looks.flat[: len(texts)])
    cell = max(map(len, texts), default=1) + 1
    across = columns if len(texts) > 1 else 1
    if 1 in (rows, columns) and len(texts) > 1:
        fitting = max(1, width // cell)
        across = min(rows * columns, fitting // _FOLD * _FOLD or fitting)
    return Block(pane, 0, 0, cell, across, texts, looks)
