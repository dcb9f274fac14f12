"""Sums and scans of one segment in NumPy: the order that docs/bits.md promises, stated once more.

It knows nothing of algorithms, plans or launches. `tcusim.mma` adds within a row, and NumPy above;
of float32 it is NumPy alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

import tcusim

Array: TypeAlias = NDArray[Any]

# A row has two tiles, a panel so many rows, a chunk so many panels, and a group so many chunks.
ROWS, PANELS, CHUNKS = 32, 8, 512


@dataclass(frozen=True)
class Oracle:
    """Whose products, of tiles with k columns, of which types.

    ab="f32" has none: rows are added in their own type, float32 or float64.
    """

    arch: str = "hopper"
    k: int = 16
    ab: str = "f16"
    acc: str = "f32"

    def sum(self, x: Array) -> Any:
        """Return the sum of a segment, in the type of the accumulator."""
        return in_pairs(self._totals(self._rows(x), range(self._width(x))))

    def scan(
        self, x: Array, *, exclusive: bool = False, reverse: bool = False, initial: Any = 0
    ) -> Array:
        """Return the scan of a segment, in the type of the accumulator."""
        if self.ab == "f32":
            own, total = _by_halves(self._rows(x) + np.float32(0), reverse=reverse)
            if exclusive:
                nothing = np.zeros_like(total)[:, None]
                parts = (own[:, 1:], nothing) if reverse else (nothing, own[:, :-1])
                own = np.concatenate(parts, axis=1)
            return (own + preceding(total, reverse, initial)[:, None]).reshape(-1)[: len(x)]
        places = range(self._width(x))
        turns = places[::-1] if reverse else places
        # Column j of U has ones where the elements lie that element j's prefix has in its tile.
        upto = np.tri(self.k, self.k, -int(exclusive)).T
        u = upto[::-1, ::-1] if reverse else upto
        rows = self._rows(x)
        own = np.empty(rows.shape, self._dtype)
        total = np.zeros((len(rows), 1), self._dtype)
        for j in turns:
            tile = rows[:, j * self.k : (j + 1) * self.k]
            before_tile = np.repeat(total, self.k, axis=1)
            own[:, j * self.k : (j + 1) * self.k] = self._chain(tile, u, before_tile)
            total = self._chain(tile, np.ones((self.k, 1)), total)
        return (own + preceding(total[:, 0], reverse, initial)[:, None]).reshape(-1)[: len(x)]

    @property
    def _dtype(self) -> np.dtype[Any]:
        return np.dtype({"f16": np.float16, "f32": np.float32, "f64": np.float64}[self.acc])

    def _width(self, x: Array) -> int:
        return 1 if len(x) <= self.k else 2

    def _rows(self, x: Array) -> Array:
        return cut(x, self._width(x) * self.k)

    def _totals(self, rows: Array, turns: range) -> Array:
        if self.ab == "f32":
            return in_pairs(rows + np.float32(0))
        total = np.zeros((len(rows), 1), self._dtype)
        for j in turns:
            tile = rows[:, j * self.k : (j + 1) * self.k]
            total = self._chain(tile, np.ones((self.k, 1)), total)
        return total[:, 0]

    def _chain(self, tile: Array, right: Array, c: Array) -> Array:
        """Return tile @ right + c."""
        types = {"arch": self.arch, "ab": self.ab, "acc": self.acc}
        return tcusim.mma(tile, right.astype(tile.dtype), c, **types)


def _by_halves(rows: Array, *, reverse: bool) -> tuple[Array, Array]:
    """Return prefix sums of rows, and their sums, by halves: the first's sum is added to the other.

    Zeros behind a row make it a power of 2 long.
    """
    width = rows.shape[1]
    if width == 1:
        return rows, rows[:, 0]
    half = 1 << (width - 1).bit_length() - 1
    left, of_left = _by_halves(rows[:, :half], reverse=reverse)
    right = np.zeros_like(left)
    right[:, : width - half] = rows[:, half:]
    right, of_right = _by_halves(right, reverse=reverse)
    if reverse:
        left = left + of_right[:, None]
    else:
        right = right + of_left[:, None]
    return np.concatenate([left, right], axis=1)[:, :width], of_left + of_right


def cut(x: Array, size: int) -> Array:
    """Return rows of `size` elements; zeros fill up the last one."""
    rows = np.zeros((-(-len(x) // size), size), x.dtype)
    rows.reshape(-1)[: len(x)] = x
    return rows


def in_pairs(values: Array) -> Array:
    """Add up the last axis: neighbours, then neighbours' sums, until one is left."""
    while (n := values.shape[-1]) > 1:
        even = n // 2 * 2
        pairs = values[..., 0:even:2] + values[..., 1:even:2]
        values = np.concatenate([pairs, values[..., even:]], axis=-1)
    return values[..., 0] if values.shape[-1] else np.zeros(values.shape[:-1], values.dtype)


def preceding(totals: Array, reverse: bool, initial: Any) -> Array:
    """Return the exclusive prefix of each row in the order of the scan, given the rows' totals.

    initial: the prefix of the first row, and the start of the running sum of groups.
    """
    panels = cut(totals, ROWS)
    chunks = cut(in_pairs(panels), PANELS)
    groups = cut(in_pairs(chunks), CHUNKS)
    step = -1 if reverse else 1
    carry = _in_turn(in_pairs(groups)[None, ::step], initial)[0, ::step]
    for level, of_level in (
        (_in_tree(groups, len(chunks), reverse), chunks),
        (_in_turn(chunks[:, ::step])[:, ::step], panels),
        (_by_doubling(panels[:, ::step])[:, ::step], totals),
    ):
        carry = (level + carry[:, None]).reshape(-1)[: len(of_level)]
    return carry


def _in_turn(values: Array, initial: Any = 0) -> Array:
    """Return each value's exclusive prefix in its row, sequentially, beginning with `initial`."""
    result = np.zeros_like(values)
    result[:, :1] += result.dtype.type(initial)
    for i in range(1, values.shape[1]):
        result[:, i] = result[:, i - 1] + values[:, i - 1]
    return result


def _in_tree(groups: Array, count: int, reverse: bool) -> Array:
    """Return each chunk's exclusive prefix in its group, in pairs, the other chunks being zeros."""
    number = np.arange(CHUNKS)
    result = np.zeros_like(groups)
    for i in range(min(count, CHUNKS)):
        result[:, i] = in_pairs(np.where(number > i if reverse else number < i, groups, 0))
    return result


def _by_doubling(values: Array) -> Array:
    """Return each value's exclusive prefix in its row, by distances 1, 2, 4 and so on."""
    width = values.shape[1]
    result = values.copy()
    distance = 1
    while distance < width:
        result[:, distance:] += result[:, :-distance].copy()
        distance *= 2
    return np.concatenate([np.zeros_like(result[:, :1]), result[:, :-1]], axis=1)
