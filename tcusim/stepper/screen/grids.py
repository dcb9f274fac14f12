"""Where the tiles of a step go on the screen, and how each of their cells looks.

This is plain data: places and texts. `panes` draws it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import numpy as np

from tcusim.program.grammar import Space
from tcusim.stepper.cells import is_uniform, texts_of
from tcusim.stepper.frames import Frame, Tile

__all__ = ["MARKS", "Block", "Look", "Picture", "Spot", "picture_of"]

# Styles of cells, by priority: a cell has one style.
Look: TypeAlias = Literal["outside", "nan", "changed", "zero", "constant", "other"]
# Marks to the right of a cell, so that colours are not needed; of NaN where its bits are shown.
MARKS: Final[dict[Look, str]] = {"changed": "*", "nan": "?"}

# Columns between two tiles, lines of a tile's head, and lines between two rows of tiles.
_GAP: Final = 2
_HEAD: Final = 2
_BELOW: Final = 1
# A row or a column is folded into lines of a multiple of this many cells.
_FOLD: Final = 8

_PLACES: Final = {
    str(Space.GLOBAL): "global memory",
    str(Space.SHARED): "shared memory",
    str(Space.WARP): "shared memory of the warp",
}


@dataclass(frozen=True, slots=True)
class Spot:
    """A cell: the index of its tile in the step, read tiles before written ones; row and column."""

    tile: int
    row: int
    column: int


@dataclass(frozen=True, slots=True)
class Block:
    """A tile on the screen.

    tile: the tile. verb: whether it is read or written. x, y: its upper left corner. cell: columns
    of a cell, its mark included. across: cells of a line; a row or a column may be folded. texts,
    looks: of the cells, row by row; or one, if all cells are equal.
    """

    tile: Tile
    verb: str
    x: int
    y: int
    cell: int
    across: int
    head: tuple[str, str]
    texts: tuple[str, ...]
    looks: tuple[Look, ...]

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
        return _HEAD + -(-len(self.texts) // self.across)

    def place(self, number: int) -> tuple[int, int]:
        """Return the column and the line of a cell, by its number row by row."""
        down, across = divmod(number, self.across)
        return self.x + across * self.cell, self.y + _HEAD + down

    @property
    def is_said_in_words(self) -> bool:
        """Whether all its cells are equal, and one stands for them."""
        return len(self.texts) < self.tile.values.size

    def numbers(self, line: int) -> range:
        """Return the numbers of the cells in a line of the screen."""
        first = (line - self.y - _HEAD) * self.across
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
    frame: Frame, width: int, *, hexadecimal: bool = False, constants: Collection[str] = ()
) -> Picture:
    """Return the tiles of a step, side by side as far as a width allows, the others below.

    constants: fragments that hold a constant throughout.
    """
    named = [("reads", tile) for tile in frame.reads] + [("writes", tile) for tile in frame.writes]
    blocks: list[Block] = []
    x = y = tallest = 0
    for verb, tile in named:
        one = _block(tile, verb, width, hexadecimal, tile.label in constants)
        if x and x + one.width > width:
            x, y, tallest = 0, y + tallest + _BELOW, 0
        blocks.append(replace(one, x=x, y=y))
        x += one.width + _GAP
        tallest = max(tallest, one.height)
    return Picture(
        tuple(blocks),
        max((one.x + one.width for one in blocks), default=0),
        max((one.y + one.height for one in blocks), default=0),
    )


def _block(tile: Tile, verb: str, width: int, hexadecimal: bool, constant: bool) -> Block:
    """Return a tile in the upper left corner."""
    rows, columns = tile.values.shape
    texts = [text for row in texts_of(tile, hexadecimal=hexadecimal) for text in row]
    looks = _looks(tile, constant)
    across = columns
    if is_uniform(tile) and len(set(looks)) == 1:
        texts, looks, across = [f"all {texts[0]}"], looks[:1], 1
    cell = max(map(len, texts), default=1) + 1
    if 1 in (rows, columns) and len(texts) > 1:
        fitting = max(1, width // cell)
        across = min(rows * columns, fitting // _FOLD * _FOLD or fitting)
    size = f"{rows}x{columns} {tile.dtype}"
    details = [_PLACES.get(tile.where, tile.where)]
    if constant:
        details.append("constant")
    if tile.before is not None and not tile.note:
        count = np.count_nonzero(tile.changed)
        details.append("all changed" if count == tile.values.size else f"{count} changed")
    if tile.note:
        details.append(tile.note)
    head = (f"{verb} {tile.part}: {tile.label}  {size}", ", ".join(details))
    return Block(tile, verb, 0, 0, cell, across, head, tuple(texts), looks)


def _looks(tile: Tile, constant: bool) -> tuple[Look, ...]:
    looks = np.full(tile.values.shape, "constant" if constant else "other", object)
    looks[tile.values == 0] = "zero"
    looks[tile.changed] = "changed"
    looks[tile.unknown] = "nan"
    looks[~tile.inside] = "outside"
    flat: Sequence[Look] = looks.ravel().tolist()
    return tuple(flat)
