"""Where two traces of one program first differ, to the bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import AgreementError, InputError
from tcusim.machine import format_of
from tcusim.machine.formats import to_memory
from tcusim.program.grammar import Space
from tcusim.program.walk import Mask
from tcusim.simulate.frames import IN_FLIGHT, Frame, Tile
from tcusim.simulate.trace_file import About

__all__ = ["Comparable", "Difference", "differences_of", "differing", "first_difference"]

# Digits that tell any two numbers of a type apart; in double precision, and so in all.
_DIGITS: Final = 17
# A step of a warp: which warp, and the step's number in it.
_Key: TypeAlias = tuple[int, int]


class Comparable(Protocol):
    """What is asked of a trace."""

    @property
    def about(self) -> About:
        """What it is of."""

    def __iter__(self) -> Iterator[Frame]: ...


@dataclass(frozen=True, slots=True, eq=False)
class Difference:
    """An element that one step left different in two traces.

    Attributes
    ----------
    frame : Frame
        The step, in the first trace.
    tile : Tile
        What it read or wrote there.
    row, col : int
        The first element of the tile that differs.
    bits : tuple of int
        Its bits in the one trace and in the other, as an unsigned integer.
    values : tuple of float or int
        The numbers that these are.
    count : int
        How many elements of the tile differ.
    places : tuple of str
        Who ran the one and the other.
    origin : Frame or None
        The earlier step that wrote the element to memory, where it is seen only now.
    """

    frame: Frame
    tile: Tile
    row: int
    col: int
    bits: tuple[int, int]
    values: tuple[float, float]
    count: int
    places: tuple[str, str]
    origin: Frame | None = None

    def __str__(self) -> str:
        """Say in words what differs, and where."""
        frame = self.frame
        loops = "".join(f", {name} = {value}" for name, value in frame.loops.items())
        step = f"warp {frame.warp}, step {frame.number} ({frame.path}{loops})"
        return f"{step} `{frame.line}`: {self.what}"

    @property
    def what(self) -> str:
        """What differs at the step, in words."""
        tile, written = self.tile, ""
        if self.origin is not None:
            written = f", written by step {self.origin.number} ({self.origin.path})"
        return (
            f"{tile.part} {tile.label}, row {self.row}, column {self.col}{written}, "
            f"is {self._number(0)} and {self._number(1)}; "
            f"{self.count} of {tile.values.size} elements differ"
        )

    def _number(self, which: int) -> str:
        digits = 2 * format_of(self.tile.dtype).itemsize
        value, place = self.values[which], self.places[which]
        return f"{value:.{_DIGITS}g} (0x{self.bits[which]:0{digits}x}) by {place}"


def first_difference(one: Comparable, two: Comparable) -> Difference | None:
    """Return where two traces of one program first differ, in the order of the first; None if not.

    Raises
    ------
    InputError
        If they are of different programs, or no step is in both.
    AgreementError
        If they took different branches, all else being equal so far.
    """
    return next(differences_of(one, two), None)


def differences_of(one: Comparable, two: Comparable) -> Iterator[Difference]:
    """Yield a difference for each tile that differs; see `first_difference`."""
    if one.about.listing != two.about.listing:
        raise InputError(
            f"traces of different programs cannot be compared: {one.about.name} and "
            f"{two.about.name}, or their options, differ"
        )
    others: Mapping[_Key, Frame] = {(frame.warp, frame.number): frame for frame in two}
    places = _names(one.about, two.about)
    seen: list[Frame] = []
    found = False
    for frame in one:
        seen.append(frame)
        other = others.get((frame.warp, frame.number))
        if other is None:
            continue
        found = True
        if other.path != frame.path:
            raise AgreementError(
                f"{one.about.name}, step {frame.number} of warp {frame.warp} is {frame.path} by "
                f"{places[0]} and {other.path} by {places[1]}: they took different branches"
            )
        for mine, yours in _pairs(frame, other):
            if differing(mine, yours).any():
                yield _difference(frame, (mine, yours), places, _writers(seen, one.about.warps))
    if not found:
        raise InputError(
            f"the traces of {one.about.name} have no step in common; choose the same warps, first= "
            f"and last= for both"
        )


def _names(one: About, two: About) -> tuple[str, str]:
    """Return who ran the one and the other, and as what if that alone tells them apart."""
    if one.place != two.place:
        return one.place, two.place
    return f"{one.place} as {one.arch}", f"{two.place} as {two.arch}"


def differing(one: Tile, two: Tile) -> Mask:
    """Return where two tiles of one type and size have different bits."""
    return np.asarray(_bits(one) != _bits(two))


def _bits(tile: Tile) -> NDArray[np.unsignedinteger]:
    return to_memory(tile.values, tile.dtype).view(f"u{format_of(tile.dtype).itemsize}")


def _pairs(one: Frame, two: Frame) -> Iterator[tuple[Tile, Tile]]:
    """Yield the tiles of two frames of one step that belong together.

    A barrier shows only what changed: what one of the frames lacks is in it as it was before.
    """
    left, right = (
        {(tile.part, tile.label): tile for tile in (*frame.reads, *frame.writes)}
        for frame in (one, two)
    )
    for key in dict.fromkeys((*left, *right)):
        mine, yours = left.get(key), right.get(key)
        if mine is None:
            assert yours is not None
            mine = _unchanged(yours)
        yield mine, yours or _unchanged(mine)


def _unchanged(tile: Tile) -> Tile:
    return tile if tile.before is None else replace(tile, values=tile.before)


def _writers(seen: list[Frame], warps: int) -> Iterator[tuple[Frame, Tile]]:
    """Yield the writes to shared memory before the last frame, in its block, the latest first."""
    block = seen[-1].warp // warps
    for frame in reversed(seen[:-1]):
        if frame.warp // warps == block:
            yield from ((frame, tile) for tile in frame.writes if tile.note == IN_FLIGHT)


def _difference(
    frame: Frame,
    tiles: tuple[Tile, Tile],
    places: tuple[str, str],
    writers: Iterator[tuple[Frame, Tile]],
) -> Difference:
    """Return the first difference between two tiles."""
    where = differing(*tiles)
    row, col = (int(number) for number in np.argwhere(where)[0])
    first, second = (int(_bits(tile)[row, col]) for tile in tiles)
    tile = tiles[0]
    return Difference(
        frame=frame,
        tile=tile,
        row=row,
        col=col,
        bits=(first, second),
        values=(tiles[0].values[row, col].item(), tiles[1].values[row, col].item()),
        count=int(where.sum()),
        places=places,
        origin=_origin(frame, tile, (row, col), writers),
    )


def _origin(
    frame: Frame, tile: Tile, at: tuple[int, int], writers: Iterator[tuple[Frame, Tile]]
) -> Frame | None:
    """Return the step that wrote an element of shared memory, which a barrier shows."""
    if frame.kind != "sync" or tile.places is None:
        return None
    place = tile.places[at]
    for writer, written in writers:
        own = tile.where != str(Space.WARP) or writer.warp == frame.warp
        if not own or written.buffer != tile.buffer or written.places is None:
            continue
        if (written.places[written.inside] == place).any():
            return writer
    return None
