"""The direction of a scan through a segment, and its inclusive or exclusive form.

All that an inclusive scan from the front and its three relatives differ in is here: the triangles
of ones, the turn of each tile, and where the last element is. Reverse scans copy nothing and need
no negative strides: their matrices are the transposes, and their tiles come last to first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from tcusim.program.grammar import Bound, Index, PatternKind


@dataclass(frozen=True, slots=True)
class Order:
    """The elements of a segment summed for an element: itself and those before it.

    In reverse, "before" means behind it in memory, and the last element is the one with number 0.

    Attributes
    ----------
    exclusive : bool
        Leave the element itself out.
    reverse : bool
        Sum from the element to the segment's end.
    """

    exclusive: bool = False
    reverse: bool = False

    def summed(self, start: int) -> tuple[PatternKind, int]:
        """Return U from its column `start` on: ones where element r is summed for start + c."""
        strict = int(self.exclusive)
        if self.reverse:
            return PatternKind.LOWER, -start - strict
        return PatternKind.UPPER, start - strict

    def preceding(self, start: int) -> tuple[PatternKind, int]:
        """Return L from its column `start` on: ones where row start + c comes before row r."""
        if self.reverse:
            return PatternKind.UPPER, start - 1
        return PatternKind.LOWER, -1 - start

    def beside_total(self, k: int) -> tuple[int, int]:
        """Return the positions in [U|1] of U's first column, and of the column of ones.

        Beyond its k-th column a U is all ones; its transpose is that before its first.
        """
        return (1, 0) if self.reverse else (0, k)

    def turn(self, index: Index, count: int) -> Index:
        """Return the number of the tile, of `count`, that has its turn after `index` others."""
        return count - 1 - index if self.reverse else index

    def last(self, count: int) -> int:
        """Return the number of the last of `count` rows, columns or elements."""
        return 0 if self.reverse else count - 1

    def earlier(self, distance: int, place: Index, count: int) -> tuple[int, tuple[Bound]]:
        """Return the memory offset of the element `distance` earlier, and its bound.

        place: the number of an element, of `count`, as an expression in `row` or `col`.
        """
        if self.reverse:
            return distance, (Bound(place + distance, Index.of(count)),)
        return -distance, (Bound(Index.of(distance - 1), place),)


FORWARD = Order()

Carry: TypeAlias = Annotated[
    bool,
    "Add an input `carry`, one value for each segment or number of a chunk, to its sums: what "
    "precedes it or, in reverse, follows it.",
]
