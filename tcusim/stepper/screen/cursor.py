"""The cell of a step under the cursor; it stays in place from step to step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tcusim.stepper.frames import Frame
from tcusim.stepper.layout import Spot


class Cursor:
    """A cell that a user chose, in whatever step is shown.

    It is in the tile with the role of the chosen one, such as b; if a step has none, in the tile
    that the step writes. In a tile that is too small it is on the last row or column, and
    comes back in the next that is larger.
    """

    def __init__(self, cell: tuple[int, int] | None = None) -> None:
        self._row, self._column = cell or (0, 0)
        self._part = ""

    def spot(self, frame: Frame) -> Spot:
        """Return its cell in a step."""
        tiles = frame.tiles
        if not tiles:
            return Spot(0, 0, 0)
        parts = [tile.part for tile in tiles]
        number = min(len(frame.reads), len(tiles) - 1)
        if self._part in parts:
            number = parts.index(self._part)
        rows, columns = tiles[number].values.shape
        return Spot(
            number, max(0, min(self._row, rows - 1)), max(0, min(self._column, columns - 1))
        )

    def move(self, frame: Frame, down: int, across: int) -> None:
        """Move by rows and columns, inside the tile."""
        tiles = frame.tiles
        if not tiles:
            return
        spot = self.spot(frame)
        rows, columns = tiles[spot.tile].values.shape
        self._row = max(0, min(spot.row + down, rows - 1))
        self._column = max(0, min(spot.column + across, columns - 1))

    def turn(self, frame: Frame, count: int) -> None:
        """Go to another tile of the step, round from the last to the first."""
        tiles = frame.tiles
        if tiles:
            self._part = tiles[(self.spot(frame).tile + count) % len(tiles)].part

    def seek(self, frame: Frame) -> bool:
        """Go to the tile's next NaN; if it has none, to the next cell that changed.

        From the last one round to the first. Return whether there was any.
        """
        tiles = frame.tiles
        if not tiles:
            return False
        spot = self.spot(frame)
        tile = tiles[spot.tile]
        columns = tile.values.shape[1]
        marked = np.flatnonzero(tile.unknown if tile.unknown.any() else tile.changed)
        if not marked.size:
            return False
        after = marked[marked > spot.row * columns + spot.column]
        self._row, self._column = divmod(int(after[0] if after.size else marked[0]), columns)
        return True

    def related(self, frame: Frame) -> tuple[Spot, ...]:
        """Return the cells that an output is made of: of a product, a row, a column, an addend."""
        spot = self.spot(frame)
        reads = len(frame.reads)
        if spot.tile < reads or frame.kind not in ("mma", "add"):
            return ()
        return tuple(_made_of(frame, spot))


def _made_of(frame: Frame, spot: Spot) -> Iterator[Spot]:
    if frame.kind == "add":
        yield from (Spot(number, spot.row, spot.column) for number in range(len(frame.reads)))
        return
    for k in range(frame.reads[0].values.shape[1]):
        yield Spot(0, spot.row, k)
        yield Spot(1, k, spot.column)
    yield Spot(2, spot.row, spot.column)
