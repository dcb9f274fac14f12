"""Pack the reads and writes of a traced warp, with equal arrays and equal tiles stored once."""

from __future__ import annotations

import numpy as np

from tcusim.machine import Values
from tcusim.program.grammar import View
from tcusim.program.walk import Ints, Mask
from tcusim.simulate.interpreter import everywhere
from tcusim.stepper.frames import label_of, label_of_range
from tcusim.stepper.trace_file import Packed, PackedTile
from tcusim.stepper.watcher import Seen

__all__ = ["Packer"]


class Packer:
    """Makes tiles by index, in `packed`; a watcher keeps the packed arrays themselves."""

    def __init__(self, packed: Packed) -> None:
        self.packed = packed
        # By type and shape, and then by content.
        self._arrays: dict[tuple[str, tuple[int, ...]], dict[bytes, int]] = {}
        # By identity, so that a packed array is not hashed again.
        self._known: dict[int, int] = {}
        self._tiles: dict[PackedTile, int] = {}

    def keep(self, values: Values) -> Values:
        """Return an equal array that never changes."""
        return self.packed.arrays[self._array(values)]

    def tile(self, seen: Seen, values: Values) -> int:
        """Return the index of a tile."""
        label, places, inside = seen.label, None, None
        if seen.view is not None and seen.where is not None:
            label, places, inside = self._placed(seen.view, *seen.where)
        tile = PackedTile(
            label,
            seen.part,
            seen.dtype,
            seen.role,
            seen.note,
            self._array(values),
            None if seen.before is None else self._array(seen.before),
            places,
            inside,
        )
        number = self._tiles.setdefault(tile, len(self._tiles))
        if number == len(self.packed.tiles):
            self.packed.tiles.append(tile)
        return number

    def _placed(
        self, view: View, places: Ints, inside: Mask
    ) -> tuple[str, int | tuple[int, int, int], int | None]:
        """Return the label of memory, the indices of its elements, and the mask of its bounds."""
        whole = inside is everywhere(places.shape)
        if view.ranges is not None:
            label, number = label_of(view, (places, inside)), self._array(places)
            return label, number, None if whole or inside.all() else self._array(inside)
        first, down, across = int(places[0, 0]), view.row_stride, view.col_stride
        if not whole:
            label = label_of(view, (places, inside))
            return label, (first, down, across), None if inside.all() else self._array(inside)
        # Strides may be negative.
        end, more = (view.rows - 1) * down, (view.cols - 1) * across
        low = first + (end if end < 0 else 0) + (more if more < 0 else 0)
        high = first + (end if end > 0 else 0) + (more if more > 0 else 0)
        return label_of_range(view, low, high), (first, down, across), None

    def _array(self, array: Values | Ints | Mask) -> int:
        number = self._known.get(id(array))
        if number is not None and self.packed.arrays[number] is array:
            return number
        content = array.tobytes()
        # Keys without references are not tracked by the garbage collector.
        like = self._arrays.setdefault((array.dtype.char, array.shape), {})
        arrays = self.packed.arrays
        number = like.setdefault(content, len(arrays))
        if number == len(arrays):
            arrays.append(np.frombuffer(content, array.dtype).reshape(array.shape))
            self._known[id(arrays[number])] = number
            self.packed.bytes += len(content)
        return number
