"""The first difference between two traces of one program, to the bit."""

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

# Digits that distinguish any two numbers in double precision, and so in every type.
_DIGITS: Final = 17
# A step of a warp: the index of the warp, and of the step in it.
_Key: TypeAlias = tuple[int, int]


class Comparable(Protocol):
    """Requirements of a trace to compare."""

    @property
    def about(self) -> About:
        """The program and the architecture."""

    def __iter__(self) -> Iterator[Frame]: ...


@dataclass(frozen=True, slots=True, eq=False)
class Difference:
    """An element that one step left different in two traces.

    Attributes
    ----------
    frame : Frame
        The step, in the first trace.
    tile : Tile
        The fragment or rectangle that it read or wrote.
    row, col : int
        The first element of the tile that differs.
    bits : tuple of int
        Its bits in each trace, as an unsigned integer.
    values : tuple of float or int
        The values of these bits.
    count : int
        Number of elements of the tile that differ.
    places : tuple of str
        The runner of each trace.
    origin : Frame or None
        The earlier step that wrote the element to memory, if it becomes visible only now.
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
        """Describe the difference and its location in words."""
        frame = self.frame
        loops = "".join(f", {name} = {value}" for name, value in frame.loops.items())
        step = f"warp {frame.warp}, step {frame.number} ({frame.path}{loops})"
        return f"{step} `{frame.line}`: {self.what}"

    @property
    def what(self) -> str:
        """The difference at the step, in words."""
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
    """Return the first difference of two traces, in the order of the first trace, or None.

    Raises
    ------
    InputError
        If they are traces of different programs, or have no step in common.
    AgreementError
        If they took different branches after equal bits.
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
    """Return the runner of each trace, with the architecture if only that distinguishes them."""
    if one.place != two.place:
        return one.place, two.place
    return f"{one.place} as {one.arch}", f"{two.place} as {two.arch}"


def differing(one: Tile, two: Tile) -> Mask:
    """Return a mask of the elements with different bits in two tiles of one type and size."""
    return np.asarray(_bits(one) != _bits(two))


def _bits(tile: Tile) -> NDArray[np.unsignedinteger]:
    return to_memory(tile.values, tile.dtype).view(f"u{format_of(tile.dtype).itemsize}")


def _pairs(one: Frame, two: Frame) -> Iterator[tuple[Tile, Tile]]:
    """Yield the matching tiles of two frames of one step.

    A barrier shows only changes: a tile that one frame lacks is unchanged there.
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
    """Yield the block's writes to shared memory before the last frame, latest first."""
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
    """Return the writer of an element of shared memory that a barrier shows."""
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
