"""The stepper's words for single elements: their numbers, their marks, their sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tcusim.errors import InputError
from tcusim.machine import Values, format_of
from tcusim.machine.accounts.explanation import Explanation, explain
from tcusim.machine.bits import hex_bits, to_bits
from tcusim.stepper.frames import Frame, Tile, number_text
from tcusim.stepper.store import About

__all__ = [
    "LEGEND",
    "Cell",
    "cell_of",
    "explanation_of",
    "is_uniform",
    "product_cell",
    "texts_of",
]

# A tile whose elements are all equal is said in words from this size on.
_SMALL: Final = 8

LEGEND: Final = (
    "?  NaN: nothing was written there yet, or a sum is not a number",
    ".  out of bounds: read as 0, never written",
    "…  left out for lack of room",
)


def texts_of(tile: Tile, *, hexadecimal: bool = False) -> list[list[str]]:
    """Return the text of each element; see `LEGEND`. hexadecimal: bits, of NaN too."""
    flat = np.ascontiguousarray(tile.values).ravel()
    # Equal bits are equal texts, and to find out the text takes long.
    _, first, inverse = np.unique(
        flat.view(f"u{flat.itemsize}"), return_index=True, return_inverse=True
    )
    if hexadecimal:
        fmt = format_of(tile.dtype)
        known = [hex_bits(to_bits(value, fmt), fmt) for value in flat[first]]
    else:
        known = [number_text(float(value)) for value in flat[first]]
    texts = np.array(known, object)[inverse].reshape(tile.values.shape)
    if not hexadecimal:
        texts[tile.unknown] = "?"
    texts[~tile.inside] = "."
    rows: list[list[str]] = texts.tolist()
    return rows


def is_uniform(tile: Tile) -> bool:
    """Return whether a tile is to be said in words, as all its elements are the same."""
    if tile.values.size < _SMALL:
        return False
    if not tile.inside.all():
        return not tile.inside.any()
    flat = np.ascontiguousarray(tile.values).ravel()
    bits = flat.view(f"u{flat.itemsize}")
    return bool(tile.unknown.all() or (bits == bits[0]).all())


@dataclass(frozen=True, slots=True)
class Cell:
    """One element of a tile, in words.

    part: the tile's role in the step, such as d. name: such as ``V[3,5]``, or ``in[517]``.
    value, bits: its number, and the bits of its type. before: the old number of a written cell; ""
    if it was only read. notes: further remarks, such as that it changed.
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
    fmt = format_of(tile.dtype)
    value = tile.values[row, column]
    notes = []
    if tile.changed[row, column]:
        notes.append("changed")
    if tile.unknown[row, column] and not fmt.is_float:
        notes.append("never written")
    if not tile.inside[row, column]:
        notes.append("out of bounds")
    if tile.note:
        notes.append(tile.note)
    name = f"{tile.label}[{row},{column}]"
    if tile.places is not None:
        name = f"{tile.buffer}[{int(tile.places[row, column])}]"
    return Cell(
        part=tile.part,
        name=name,
        value=_number(value, fmt.is_float),
        bits=hex_bits(to_bits(value, fmt), fmt),
        before="" if tile.before is None else _number(tile.before[row, column], fmt.is_float),
        notes=tuple(notes),
    )


def _number(value: Values, is_float: bool) -> str:
    """Return a number so that it is told from every other of its type."""
    return "NaN" if is_float and np.isnan(value) else str(value.item())


def product_cell(frame: Frame, row: int, column: int) -> str:
    """Return why a cell of a step has no sum to explain; "" if it has one."""
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

    Raises InputError if the step is no product, or its result has no such cell.
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
