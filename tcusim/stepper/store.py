"""The one store of frames: packed tiles, with equal arrays and equal tiles stored once.

A trace is such a store, a file is its content, and a running program fills one after another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from tcusim.machine import Values, format_of
from tcusim.program.grammar import Space, View
from tcusim.program.walk import Ints, Mask
from tcusim.simulate.counts import Counts
from tcusim.simulate.interpreter import everywhere
from tcusim.stepper.frames import Frame, Tile

# The default runner of a program.
SIMULATOR: Final = "the simulator"


@dataclass(frozen=True, slots=True)
class About:
    """A trace's description of its program.

    Attributes
    ----------
    name, arch, ab, acc, family : str
        Names of the program and of the architecture, the types, and the instruction family if
        instructions of one architecture differ.
    warps : int
        Warps of a block.
    listing : str
        The whole program as text.
    lines : dict of str to str
        The line of each step, by its path.
    constants : tuple of str
        Fragments that are constant throughout.
    place : str
        The runner: "the simulator", "host", or such as "cupy on NVIDIA H200".
    """

    name: str
    arch: str
    ab: str
    acc: str
    family: str
    warps: int
    listing: str
    lines: Mapping[str, str]
    constants: tuple[str, ...]
    place: str = SIMULATOR

    @property
    def rows(self) -> list[tuple[str, str]]:
        """The lines of the listing, each with its path; an "else" has its own word for one."""
        body = self.listing.partition("\n\n")[2].splitlines()
        return [(line.split(maxsplit=1)[0], line.rstrip()) for line in body]


class PackedTile(NamedTuple):
    """A `Tile` with its arrays by index. places: an array's index, or (offset, stride, stride)."""

    label: str
    part: str
    dtype: str
    where: str
    note: str
    values: int
    before: int | None
    places: int | tuple[int, int, int] | None
    inside: int | None


class PackedFrame(NamedTuple):
    """A `Frame` with its tiles by index."""

    warp: int
    number: int
    path: str
    kind: str
    loops: tuple[tuple[str, int], ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(slots=True)
class FrameStore:
    """Frames, with their shared tiles and arrays. nbytes: total of the arrays."""

    frames: list[PackedFrame] = field(default_factory=list)
    tiles: list[PackedTile] = field(default_factory=list)
    arrays: list[Values] = field(default_factory=list)
    nbytes: int = 0
    # Indices of arrays: by type and shape, and then by content; and by identity, so that a stored
    # array is not hashed again.
    _contents: dict[tuple[str, tuple[int, ...]], dict[bytes, int]] = field(default_factory=dict)
    _known: dict[int, int] = field(default_factory=dict)
    _numbers: dict[PackedTile, int] = field(default_factory=dict)
    # Bytes of global memory of a tile.
    _bytes: dict[int, int] = field(default_factory=dict)

    # --- Reading -----------------------------------------------------------------------------

    def tile(self, number: int) -> Tile:
        """Return an unpacked tile."""
        one = self.tiles[number]
        values = self.arrays[one.values]
        inside, places = np.ones(values.shape, bool), None
        if one.inside is not None:
            inside = self.arrays[one.inside]
        if isinstance(one.places, tuple):
            first, down, across = one.places
            rows, cols = np.ogrid[: values.shape[0], : values.shape[1]]
            places = first + rows * down + cols * across
        elif one.places is not None:
            places = self.arrays[one.places]
        before = None if one.before is None else self.arrays[one.before]
        return Tile(
            one.label, one.part, one.dtype, one.where, values, before, places, inside, one.note
        )

    def frame(self, index: int, about: About) -> Frame:
        """Return an unpacked frame, in the order of execution."""
        one = self.frames[index]
        return Frame(
            number=one.number,
            path=one.path,
            kind=one.kind,
            line=about.lines[one.path],
            loops=dict(one.loops),
            warp=one.warp,
            reads=tuple(map(self.tile, one.reads)),
            writes=tuple(map(self.tile, one.writes)),
        )

    def sizes(self) -> dict[str, int]:
        """Return the touched extent of each buffer."""
        sizes: dict[str, int] = {}
        for tile in map(self.tile, range(len(self.tiles))):
            if tile.ranges:
                sizes[tile.buffer] = max(tile.ranges[-1][1], sizes.get(tile.buffer, 0))
        return sizes

    def counts(self, frames: Iterable[PackedFrame]) -> Counts:
        """Return the work of some of its steps. Status words do not count."""
        done = Counts()
        for one in frames:
            done.mma += one.kind == "mma"
            done.additions += one.kind == "add"
            # These access offsets and status words in global memory, not data.
            if one.kind not in ("locate", "await"):
                done.bytes_read += sum(map(self._bytes_of, one.reads))
            if one.kind != "publish":
                done.bytes_written += sum(map(self._bytes_of, one.writes))
        return done

    def _bytes_of(self, number: int) -> int:
        if number not in self._bytes:
            tile, elements = self.tiles[number], 0
            if tile.where == Space.GLOBAL and tile.inside is not None:
                elements = int(self.arrays[tile.inside].sum())
            elif tile.where == Space.GLOBAL:
                elements = self.arrays[tile.values].size
            self._bytes[number] = elements * format_of(tile.dtype).itemsize
        return self._bytes[number]

    # --- Writing -----------------------------------------------------------------------------

    def keep(self, values: Values) -> Values:
        """Return an equal array that never changes."""
        return self.arrays[self._array(values)]

    def fragment(
        self, name: str, part: str, dtype: str, role: str, values: Values, before: Values | None
    ) -> int:
        """Store a tile in registers; return its index."""
        arrays = self._array(values), None if before is None else self._array(before)
        return self._tile(PackedTile(name, part, dtype, role, "", *arrays, None, None))

    def memory(
        self,
        view: View,
        part: str,
        where: tuple[Ints, Mask],
        values: Values,
        before: Values | None,
        note: str = "",
    ) -> int:
        """Store a rectangle of memory; return its index. where: its elements, those in bounds."""
        label, places, inside = self._placed(view, *where)
        buffer = view.buffer
        arrays = self._array(values), None if before is None else self._array(before)
        head = label, part, buffer.dtype, buffer.space.value, note
        return self._tile(PackedTile(*head, *arrays, places, inside))

    def _tile(self, tile: PackedTile) -> int:
        """Return the index of a tile."""
        number = self._numbers.setdefault(tile, len(self.tiles))
        if number == len(self.tiles):
            self.tiles.append(tile)
        return number

    def _placed(
        self, view: View, places: Ints, inside: Mask
    ) -> tuple[str, int | tuple[int, int, int], int | None]:
        """Return the label of memory, the indices of its elements, and the mask of its bounds."""
        name = view.buffer.name
        whole = inside is everywhere(places.shape)
        kept: int | tuple[int, int, int] = (
            (int(places[0, 0]), view.row_stride, view.col_stride)
            if view.ranges is None
            else self._array(places)
        )
        if whole and view.ranges is None:
            # The lowest and highest addresses of a rectangle are at corners.
            corners = [int(places[row, column]) for row in (0, -1) for column in (0, -1)]
            return _label(name, min(corners), max(corners)), kept, None
        mask = None if whole or inside.all() else self._array(inside)
        chosen = places[inside]
        if not chosen.size:
            return f"{name}[nothing]", kept, mask
        return _label(name, int(chosen.min()), int(chosen.max())), kept, mask

    def _array(self, array: Values | Ints | Mask) -> int:
        number = self._known.get(id(array))
        if number is not None and self.arrays[number] is array:
            return number
        content = array.tobytes()
        # Keys without references are not tracked by the garbage collector.
        like = self._contents.setdefault((array.dtype.char, array.shape), {})
        number = like.setdefault(content, len(self.arrays))
        if number == len(self.arrays):
            self.arrays.append(np.frombuffer(content, array.dtype).reshape(array.shape))
            self._known[id(self.arrays[number])] = number
            self.nbytes += len(content)
        return number


def _label(buffer: str, first: int, last: int) -> str:
    """Return the label of a range, first to last element, as in a listing."""
    touched = str(first) if first == last else f"{first} … +{last - first + 1}"
    return f"{buffer}[{touched}]"
