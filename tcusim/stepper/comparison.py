"""Two traces of one program beside each other: their differences, to the bit."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import AgreementError, InputError, require_int
from tcusim.machine import format_of
from tcusim.machine.bits import hex_bits, to_bits
from tcusim.machine.formats import to_memory
from tcusim.program.grammar import Space
from tcusim.program.walk import Mask
from tcusim.stepper.frames import IN_FLIGHT, Frame, Tile
from tcusim.stepper.page import CELLS, MOST_CELLS, Side, frame_of, page_of
from tcusim.stepper.panes import value_text
from tcusim.stepper.store import About

# Digits that distinguish any two numbers in double precision, and so in every type.
_DIGITS: Final = 17
# A step of a warp: the index of the warp, and of the step in it.
_Key: TypeAlias = tuple[int, int]


@dataclass(frozen=True, repr=False, eq=False)
class Comparison:
    """Two traces of one program: `print` it, or show it in a notebook.

    Attributes
    ----------
    one, two : Side
        The traces, with their frames.
    """

    one: Side
    two: Side

    @functools.cached_property
    def differences(self) -> tuple[Difference, ...]:
        """A difference for each tile that a step left different, in the order of the first trace.

        Raises InputError or AgreementError, as `Trace.first_difference` does.
        """
        return tuple(differences_of(self.one, self.two))

    @functools.cached_property
    def _by_step(self) -> dict[_Key, tuple[Difference, ...]]:
        found: dict[_Key, tuple[Difference, ...]] = {}
        for one in self.differences:
            key = _key(one.frame)
            found[key] = (*found.get(key, ()), one)
        return found

    @functools.cached_property
    def _others(self) -> dict[_Key, Frame]:
        return {_key(frame): frame for frame in self.two.frames}

    def at(self, frame: Frame) -> tuple[Difference, ...]:
        """Return the differences at a step."""
        return self._by_step.get(_key(frame), ())

    def other(self, frame: Frame) -> Frame | None:
        """Return a step of the first trace as the second has it; None if it has no such step."""
        return self._others.get(_key(frame))

    @property
    def titles(self) -> tuple[str, str]:
        """Distinct titles of the traces: the runner, or the architecture."""
        if self.one.about.place != self.two.about.place:
            return _names(self.one.about, self.two.about)
        one, two = self.one.title, self.two.title
        return (one, two) if one != two else (f"{one}, first", f"{two}, second")

    def __str__(self) -> str:
        """Report the first difference, or that there is none."""
        titles, common = " and ".join(self.titles), f"{self._common} steps"
        if not self.differences:
            return f"{titles}: no bit differs at the {common} that both have"
        return f"{titles} differ at {len(self._by_step)} of {common}, first: {self.differences[0]}"

    @property
    def _common(self) -> int:
        return sum(_key(frame) in self._others for frame in self.one.frames)

    def __repr__(self) -> str:
        return f"<Comparison of {self.one.about.name}: {' and '.join(self.titles)}>"

    def to_html(self, *, cells: int = CELLS) -> str:
        """Return a page to step through both, as of `Trace.to_html`, with differences marked."""
        require_int("cells", cells, 0, MOST_CELLS)
        one, two = self.titles
        sides = self.one._replace(title=one), self.two._replace(title=two)
        steps = len(self._by_step)
        verdict = f"They differ at {steps} step{'s' * (steps != 1)}."
        if not steps:
            verdict = "No bit differs at any step that both have."
        rows = [
            (*_key(one.frame), f"{one.what}.", one.tile.part, one.row, one.col)
            for one in self.differences
        ]
        return page_of(sides, cells, rows, self._exact(), verdict)

    def _exact(self) -> dict[str, dict[str, str]]:
        """Return all digits of the numbers that differ, by type and bits."""
        found: dict[str, dict[str, str]] = {}
        for one, *_ in self._by_step.values():
            for tiles in _pairs(one.frame, self._others[_key(one.frame)]):
                where, fmt = differing(*tiles), format_of(tiles[0].dtype)
                for value in np.concatenate([tile.values[where] for tile in tiles]):
                    text = value_text(value, fmt.is_float)
                    found.setdefault(fmt.name, {})[hex_bits(to_bits(value, fmt), fmt)] = text
        return found

    def _repr_html_(self) -> str:
        return frame_of(self.to_html())


def _key(frame: Frame) -> _Key:
    return frame.warp, frame.number


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


def differences_of(one: Side, two: Side) -> Iterator[Difference]:
    """Yield a difference for each tile that differs, in the order of the first trace.

    Raises
    ------
    InputError
        If they are traces of different programs, or have no step in common.
    AgreementError
        If they took different branches after equal bits.
    """
    if one.about.listing != two.about.listing:
        raise InputError(
            f"traces of different programs cannot be compared: {one.about.name} and "
            f"{two.about.name}, or their options, differ"
        )
    others: Mapping[_Key, Frame] = {_key(frame): frame for frame in two.frames}
    places = _names(one.about, two.about)
    seen: list[Frame] = []
    found = False
    for frame in one.frames:
        seen.append(frame)
        other = others.get(_key(frame))
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
    left, right = ({(tile.part, tile.label): tile for tile in frame.tiles} for frame in (one, two))
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
