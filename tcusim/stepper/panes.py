"""The panes of a step: its tiles, as every view shows them, and single elements in words.

The screen, the plain text and the page take titles, texts, looks and marks from here; each only
decides where they go.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import InputError
from tcusim.machine import Values, format_of
from tcusim.machine.accounts.explanation import Explanation, explain
from tcusim.machine.bits import hex_bits, to_bits
from tcusim.program.grammar import Space
from tcusim.stepper.frames import Frame, Tile, number_text
from tcusim.stepper.store import About

# The look of an element, by priority: an element has one. The page takes its index.
Look: TypeAlias = Literal["other", "constant", "zero", "changed", "nan", "outside"]
LOOKS: Final[tuple[Look, ...]] = get_args(Look)

LEGEND: Final = (
    "?  NaN: nothing was written there yet, or a sum is not a number",
    ".  out of bounds: read as 0, never written",
    "…  left out for lack of room",
)

_PLACES: Final = {
    str(Space.GLOBAL): "global memory",
    str(Space.SHARED): "shared memory",
    str(Space.WARP): "shared memory of the warp",
}
# Numbers with known texts: to make a text takes long, and most tiles come again.
_KNOWN: Final = 2**15
# A tile with equal elements is reduced to one text from this size on.
_SMALL: Final = 8


def place_text(frame: Frame) -> str:
    """Return a step's path and its loop variables."""
    return "".join([frame.path, *(f"  {name} = {value}" for name, value in frame.loops.items())])


# --- Tiles ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pane:
    """A tile as views show it. constant: whether it is the same at every step."""

    tile: Tile
    verb: Literal["reads", "writes"]
    constant: bool = False
    hexadecimal: bool = False

    @property
    def name(self) -> str:
        """The operand's name, and the fragment or the range of memory."""
        return f"{self.tile.part}: {self.tile.label}"

    @property
    def size(self) -> str:
        """The rows, the columns and the type."""
        rows, columns = self.tile.values.shape
        return f"{rows}x{columns} {self.tile.dtype}"

    @property
    def change(self) -> str:
        """The effect of the step on the tile, in words; "" if it is only read."""
        tile = self.tile
        if tile.note or tile.before is None:
            return tile.note
        count = np.count_nonzero(tile.changed)
        return "all changed" if count == tile.values.size else f"{count} changed"

    @property
    def place(self) -> str:
        """The fragment's role or the memory, and whether the tile is constant."""
        place = _PLACES.get(self.tile.where, self.tile.where)
        return f"{place}, constant" if self.constant else place

    @cached_property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """The half-open ranges of buffer elements that the step touches; empty for a fragment."""
        return self.tile.ranges

    @property
    def strip(self) -> str:
        """The touched elements of the buffer, in words, beside their drawing as a strip."""
        if not self.ranges:
            return f"{self.verb} nothing"
        first, last = self.ranges[0][0], self.ranges[-1][1] - 1
        parts = f" in {len(self.ranges)} parts" if len(self.ranges) > 1 else ""
        return f"{self.verb} {f'{first} to {last}' if last > first else first}{parts}"

    @cached_property
    def looks(self) -> NDArray[np.uint8]:
        """The look of each element, as an index of `LOOKS`."""
        tile = self.tile
        looks = np.full(tile.values.shape, LOOKS.index("constant" if self.constant else "other"))
        looks[tile.values == 0] = LOOKS.index("zero")
        looks[tile.changed] = LOOKS.index("changed")
        looks[tile.unknown] = LOOKS.index("nan")
        looks[~tile.inside] = LOOKS.index("outside")
        return looks.astype(np.uint8)

    @property
    def is_uniform(self) -> bool:
        """Whether one text says it all: every element has the same bits and the same look."""
        tile, looks = self.tile, self.looks
        if looks.size < _SMALL or (looks != looks[0, 0]).any():
            return False
        if LOOKS[looks[0, 0]] in ("outside", "nan"):
            return True
        flat = np.ascontiguousarray(tile.values).ravel()
        return flat.tobytes() == flat[:1].tobytes() * flat.size

    @cached_property
    def texts(self) -> tuple[tuple[str, ...], ...]:
        """The text of each element, by rows; of a uniform tile, one text."""
        tile = self.tile
        known, which = distinct(tile.values, tile.dtype)
        texts = np.array([text[not self.hexadecimal] for text in known], object)[which]
        if not self.hexadecimal:
            texts[tile.unknown] = "?"
        texts[~tile.inside] = "."
        if self.is_uniform:
            return ((f"all {texts[0, 0]}",),)
        return tuple(map(tuple, texts))

    @property
    def summary(self) -> str:
        """The elements on one line, equal rows together, for a view with no room for them."""
        if self.is_uniform:
            return self.texts[0][0]
        runs, first = [], 0
        for row, same in groupby(self.texts):
            end = first + len(list(same))
            rows = f"row {first}" if end - first == 1 else f"rows {first} to {end - 1}"
            values = f"all {row[0]}" if len(set(row)) == 1 < len(row) else " ".join(row)
            runs.append(f"{rows}: {values}")
            first = end
        return ", ".join(runs)


def panes_of(
    frame: Frame, *, hexadecimal: bool = False, constants: Collection[str] = ()
) -> tuple[Pane, ...]:
    """Return the panes of a step, those that it reads first. constants: names of fragments."""
    return (
        *(Pane(one, "reads", one.label in constants, hexadecimal) for one in frame.reads),
        *(Pane(one, "writes", one.label in constants, hexadecimal) for one in frame.writes),
    )


def distinct(values: Values, dtype: str) -> tuple[list[tuple[str, str]], NDArray[Any]]:
    """Return bits and text of each distinct element, and the index of each element's."""
    flat = np.ascontiguousarray(values).ravel()
    patterns, which = np.unique(flat.view(f"u{flat.itemsize}"), return_inverse=True)
    return [_words(one, dtype) for one in patterns.tolist()], which.reshape(values.shape)


@lru_cache(_KNOWN)
def _words(pattern: int, dtype: str) -> tuple[str, str]:
    """Return the bits and the text of a value, given as the integer that NumPy stores."""
    fmt = format_of(dtype)
    value = np.array(pattern, f"u{fmt.dtype.itemsize}").view(fmt.dtype)
    is_nan = fmt.is_float and bool(np.isnan(value))
    text = "NaN" if is_nan else number_text(float(value))
    return hex_bits(to_bits(value, fmt), fmt), text


# --- Elements ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cell:
    """One element of a tile, in words.

    part: the tile's operand name in the step, such as d. name: such as ``V[3,5]``, or ``in[517]``.
    value, bits: its number, and the bits of its type. before: the previous number of a written
    element; "" if it was only read. notes: remarks, such as that it changed.
    """

    part: str
    name: str
    value: str
    bits: str
    before: str
    notes: tuple[str, ...]

    def __str__(self) -> str:
        was = f", was {self.before}" if self.before else ""
        notes = "".join(f", {note}" for note in self.notes)
        return f"{self.part}: {self.name} = {self.value} (0x{self.bits}){was}{notes}"


def cell_of(tile: Tile, row: int, column: int) -> Cell | None:
    """Return an element; None if the tile is smaller."""
    rows, columns = tile.values.shape
    if not (0 <= row < rows and 0 <= column < columns):
        return None
    fmt, at = format_of(tile.dtype), (row, column)
    notes = {
        "changed": tile.changed[at],
        "never written": tile.unknown[at] and not fmt.is_float,
        "out of bounds": not tile.inside[at],
        tile.note: tile.note,
    }
    name = f"{tile.label}[{row},{column}]"
    if tile.places is not None:
        name = f"{tile.buffer}[{int(tile.places[at])}]"
    return Cell(
        part=tile.part,
        name=name,
        value=value_text(tile.values[at], fmt.is_float),
        bits=hex_bits(to_bits(tile.values[at], fmt), fmt),
        before="" if tile.before is None else value_text(tile.before[at], fmt.is_float),
        notes=tuple(note for note, holds in notes.items() if holds),
    )


def value_text(value: Values, is_float: bool) -> str:
    """Return a number with the digits that distinguish it from every other of its type."""
    return "NaN" if is_float and np.isnan(value) else str(value.item())


def product_cell(frame: Frame, row: int, column: int) -> str:
    """Return the reason why an element of a step has no sum to explain; "" if it has one."""
    if frame.kind != "mma":
        return (
            f"step {frame.number}, {frame.path}, is no product ({frame.kind}): only outputs of mma "
            "steps are sums to explain"
        )
    rows, columns = frame.writes[0].values.shape
    if not (0 <= row < rows and 0 <= column < columns):
        return f"{frame.writes[0].label} has {rows} x {columns} cells, and none is {row},{column}"
    return ""


def explanation_of(about: About, frame: Frame, row: int, column: int) -> Explanation:
    """Return the account of one output of a product, as `tcusim.explain` gives it.

    Raises InputError if the step is no product, or its result has no such element.
    """
    refusal = product_cell(frame, row, column)
    if refusal:
        raise InputError(refusal)
    a, b, c = (tile.values for tile in frame.reads)
    return explain(
        a[row],
        b[:, column],
        c[row, column],
        arch=about.arch,
        ab=about.ab,
        acc=about.acc,
        family=about.family,
    )
