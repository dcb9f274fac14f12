"""Memory of many warps, and the layout of a view's elements in it: strided or scattered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tcusim.machine.formats import Values, unwritten_values
from tcusim.program.grammar import View
from tcusim.program.walk import Ints, Mask, Placement, from_first

# Padding after the elements of one index of all warps: a stride of a power of two would map them to
# the same few cache sets.
_PADDING: Final = 16


def pitch_of_warps(warps: int) -> int:
    """Return the stride between elements of one warp, in elements."""
    return warps + _PADDING


def memory_of_warps(warps: int, size: int, dtype: str) -> tuple[Values, Values]:
    """Return unwritten memory: in its contiguous layout, and as (warps, size).

    The warps are the fastest axis, as in the tiles of an mma, so that an operation on all warps is
    one long loop.
    """
    lying = unwritten_values((size, pitch_of_warps(warps)), dtype)
    return lying, lying[:, :warps].T


class OutOfBounds(Exception):
    """A view has elements outside its buffer: it touches `first` to `last`."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__(first, last)
        self.first = first
        self.last = last


@dataclass(frozen=True, slots=True)
class Window:
    """Strided elements of contiguous memory: the first, and strides, in elements.

    Examples
    --------
    >>> Window(7, (1, 2, 2), (0, 10, 2)).of(np.arange(100))
    array([[[ 7,  9],
            [17, 19]]])
    """

    first: int
    shape: tuple[int, int, int]
    steps: tuple[int, int, int]

    def of(self, memory: NDArray[Any]) -> NDArray[Any]:
        """Return the elements as a view of the memory, (W or 1, rows, cols)."""
        size = memory.itemsize
        tile, row, col = self.steps
        strides = tile * size, row * size, col * size
        return np.ndarray(self.shape, memory.dtype, memory, self.first * size, strides)

    @property
    def is_apart(self) -> bool:
        """Whether no two elements evidently share an address."""
        reach = 0
        for step, size in sorted(zip(self.steps, self.shape, strict=True)):
            if size > 1 and step <= reach:
                return False
            reach += step * (size - 1)
        return True


class Elements:
    """The elements of a view in some warps of a batch, all of them in its buffer.

    Attributes
    ----------
    places : array (W,) of int
        Positions of these warps in the batch.
    shape : tuple of int
        Shape of the elements: (W, rows, cols).
    mask : array (W or 1, rows, cols) of bool, or None
        Mask of the bounds; None if all hold.
    reads, writes : Window or None
        Layout of the elements in the flat memory, if strided; `writes` only if no two coincide.
    rows_written : slice
        The rows of `writes`: of coinciding rows only the last remains.
    """

    __slots__ = (
        "_firsts",
        "_index",
        "_kept",
        "_over",
        "mask",
        "places",
        "reads",
        "rows_written",
        "shape",
        "writes",
    )

    def __init__(
        self, places: Ints, over: Ints, firsts: Ints, index: Ints | None, mask: Mask | None
    ) -> None:
        """Store indices in the buffer: `firsts` (W or 1,) plus `over`, or `index`; see `find`."""
        self.places = places
        self.shape = (places.size, *over.shape[1:])
        self.mask = mask
        self.reads: Window | None = None
        self.writes: Window | None = None
        self.rows_written = slice(None)
        self._over = over
        self._firsts = firsts
        self._index = index
        self._kept: Ints | None = None

    @staticmethod
    def find(placement: Placement, view: View, places: Ints, size: int, pitch: int) -> Elements:
        """Return the elements of a view in the warps at these positions.

        size: elements of the buffer. pitch: 1 in memory that all warps share. In memory of each
        warp, `pitch_of_warps` for all warps, and 0 for a subset, which has no common stride.

        Raises
        ------
        OutOfBounds
            If an element within the view's bounds is not in the buffer.
        """
        firsts = placement.value(view.offset, places)[:, 0, 0]
        over = from_first(view)
        mask = index = None
        if view.bounds or view.ranges is not None:
            mask = placement.inside(view, places)
            if mask.all():
                mask = None
        if mask is not None or view.ranges is not None:
            index = placement.addresses(view, places)
            if mask is not None:
                index = np.where(mask, index, 0)
        found = Elements(places, over, firsts, index, mask)
        found._require_inside(view, size)
        if index is None and pitch:
            found._look_for_windows(view, pitch)
        return found

    def _require_inside(self, view: View, size: int) -> None:
        """Require that all elements are inside a buffer of this size."""
        index = self._index
        if not self._firsts.size:
            return
        if index is None:
            ends = (view.rows - 1) * view.row_stride, (view.cols - 1) * view.col_stride
            first = int(self._firsts.min()) + sum(min(0, end) for end in ends)
            last = int(self._firsts.max()) + sum(max(0, end) for end in ends)
        else:
            first, last = int(index.min()), int(index.max())
        if first >= 0 and last < size:
            return
        if index is not None:
            # Out-of-bounds elements have index 0 here, which an empty buffer lacks.
            used = self.kept
            if not used.size:
                return
            first, last = int(used.min()), int(used.max())
        raise OutOfBounds(first, last)

    def _look_for_windows(self, view: View, pitch: int) -> None:
        """Determine whether the elements are strided in memory."""
        firsts, down, across = self._firsts, view.row_stride, view.col_stride
        tiles, rows, cols = firsts.size, *self.shape[1:]
        if not tiles or min(down, across) < 0:
            return
        first, step = int(firsts[0]), 0
        if pitch > 1:
            # The memories of consecutive warps are adjacent.
            if tiles > 1:
                return
            tiles, step = self.places.size, 1
        elif tiles > 1:
            step = int(firsts[1]) - first
            if step < 0 or (firsts != first + np.arange(tiles) * step).any():
                return
        steps = step, down * pitch, across * pitch
        self.reads = Window(first * pitch, (tiles, rows, cols), steps)
        written = self.reads
        if down == 0 and rows > 1:
            self.rows_written = slice(-1, None)
            written = Window(first * pitch, (tiles, 1, cols), steps)
        # Elements that several warps write to one address have no window.
        if tiles == self.places.size and written.is_apart:
            self.writes = written

    @property
    def index(self) -> Ints:
        """Indices in the buffer, 0 if out of bounds: (W or 1, rows, cols)."""
        return self._firsts[:, None, None] + self._over if self._index is None else self._index

    @property
    def keep(self) -> Mask:
        """Mask of the bounds, in all of the warps: (W, rows, cols)."""
        mask = self.mask
        if mask is not None and mask.shape == self.shape:
            return mask
        return np.broadcast_to(np.True_ if mask is None else mask, self.shape)

    @property
    def kept(self) -> Ints:
        """Indices in the buffer of the in-bounds elements, warp by warp."""
        if self._kept is None:
            self._kept = np.broadcast_to(self.index, self.shape)[self.keep]
        return self._kept

    @property
    def nbytes(self) -> int:
        """Maximum bytes of its arrays, including the indices of all elements."""
        all_of_them = 0 if self._index is None else 9 * int(np.prod(self.shape))
        return self._firsts.nbytes + all_of_them

    def chosen(self, values: Values) -> Values:
        """Return the in-bounds values of (W or 1, rows, cols), warp by warp."""
        kept: Values = np.broadcast_to(values, self.shape)[self.keep]
        return kept

    def put(self, memory: Values, values: Values) -> None:
        """Write values, (W or 1, rows, cols), to the in-bounds elements of memory."""
        if self.writes is not None:
            self.writes.of(memory)[...] = values[:, self.rows_written]
        elif self.mask is None:
            memory[self.index] = values
        else:
            memory[self.kept] = self.chosen(values)

    def of(self, chosen: Mask) -> Elements:
        """Return only the elements of the chosen warps."""
        firsts, index, mask = self._firsts, self._index, self.mask
        if len(firsts) > 1:
            firsts = firsts[chosen]
        if index is not None and len(index) > 1:
            index = index[chosen]
        if mask is not None and len(mask) > 1:
            mask = mask[chosen]
        return Elements(self.places[chosen], self._over, firsts, index, mask)

    def of_one(self, at: int) -> tuple[Ints, Mask | None]:
        """Return `index` and `mask`, (1, rows, cols), of the warp at this index of `places`."""
        own = slice(at, at + 1)
        index, mask = self._index, self.mask
        if index is None:
            firsts = self._firsts[own] if len(self._firsts) > 1 else self._firsts
            index = firsts[:, None, None] + self._over
        elif len(index) > 1:
            index = index[own]
        return index, mask[own] if mask is not None and len(mask) > 1 else mask
