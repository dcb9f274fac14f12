"""Segments of a few elements, several to a row of a tile.

Not in the paper, where a row of a tile is a segment, or a part of one: of segments of 2 elements
seven eighths of each product are zeros. Here a row of k elements is cut into *slots* of the least
power of 2 that holds a segment, and the constant factor keeps the slots apart. In V = A.P_j column
c of P_j has its ones where slot c - j*s of a row is, s being the slots of a row, so that n/s tiles
fill V. In A.U, U has its triangles of ones within each slot.

A product adds nothing but zeros to a segment's elements, and so does a row that holds one segment:
both have the same bits, if no fused step takes parts of two slots (`fits_fused_steps`). As 0*Inf is
NaN, an infinity spoils its whole row. The sums tell a warp of it, which then sums its rows again,
the finite elements first, like a scan in panels (`panel.ScannedPanel.mend`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from tcusim.algorithms.builder import (
    LENGTH,
    NEVER,
    Builder,
    numbered,
    padded,
    skewed,
    stored_type,
)
from tcusim.algorithms.order import FORWARD, Order
from tcusim.algorithms.panel import MOST_HELD, Panel, TileParts
from tcusim.algorithms.registry import algorithm
from tcusim.algorithms.rows import MOST_TILES, Groups, Share, consecutive, data
from tcusim.algorithms.tile_scan import results, upper
from tcusim.machine.rules import Fused, Numerics
from tcusim.machine.shapes import LDM_BYTES
from tcusim.program.grammar import (
    COL,
    ROW,
    Bound,
    Buffer,
    Extent,
    Index,
    Only,
    PatternKind,
    View,
)

# Elements that a warp takes at a time if no options say it, chosen on an H200 for f16.
TAKEN = 2048


def slot_of_sums(n: int, k: int, segment_size: int) -> int:
    """Return the elements of a slot: the least power of 2 that holds a segment, if it divides k.

    Otherwise k: one segment to a row. A tile has room for n sums of a row.
    """
    return _slot_of(k, segment_size, lambda slot: k // slot <= n)


def slot_of_scans(n: int, k: int, segment_size: int) -> int:
    """Return the elements of a slot, as for sums; U is cut between slots, if it is cut."""
    return _slot_of(k, segment_size, lambda slot: slot > 1 and (k <= n or n % slot == 0))


def _slot_of(k: int, segment_size: int, suits: Callable[[int], bool]) -> int:
    slots = itertools.takewhile(lambda slot: slot < k, (1 << i for i in itertools.count()))
    fitting = (slot for slot in slots if slot >= segment_size and k % slot == 0 and suits(slot))
    return next(fitting, k)


def fits_fused_steps(how: Numerics, slot: int) -> bool:
    """Return whether fused steps take whole slots, or slots whole steps.

    Then a segment's bits are those that it has in a row of its own.
    """
    return not isinstance(how, Fused) or how.length % slot == 0 or slot % how.length == 0


def _tiles_of_a_sum(n: int, k: int, segment_size: int) -> int:
    """Return the number of tiles with sums that fill an accumulator."""
    return max(1, n // (k // slot_of_sums(n, k, segment_size)))


def _groups_of(m: int, k: int, tiles: int, groups: int | None) -> int:
    if groups is not None:
        return groups
    return max(1, min(TAKEN // (m * k), MOST_TILES) // tiles)


def tiles_of_short_sums(values: Mapping[str, int]) -> dict[str, int]:
    """Return T, the tiles of a warp that sums segments of N rows of k."""
    m, n, k = values["m"], values["n"], values["k"]
    across = _tiles_of_a_sum(n, k, values["N"] * k)
    return {"T": across * _groups_of(m, k, across, values["groups"])}


def tiles_of_short_scans(values: Mapping[str, int]) -> dict[str, int]:
    """Return T, the tiles of a warp that scans segments of at most k."""
    return {"T": _groups_of(values["m"], values["k"], 1, values["groups"])}


class _Slots:
    """The segments that a warp takes at a time, in slots of rows of one tile.

    sizes: of a segment and of a slot. groups: of `tiles` tiles each. Tile j of group g is number j
    * groups + g, so that tiles of one j of all groups are adjacent.

    Attributes
    ----------
    panel : Panel
        The rows of all tiles.
    groups, slot, per_row : int
        Groups, elements of a slot, and segments in a row.
    segments, per_unit : int
        All segments, and their elements.
    """

    def __init__(
        self,
        b: Builder,
        sizes: tuple[int, int],
        tiles: int,
        groups: int | None,
        order: Order = FORWARD,
    ) -> None:
        self.b = b
        self.segment_size, self.slot = sizes
        segment_size = self.segment_size
        self.groups = _groups_of(b.m, b.k, tiles, groups)
        self.per_row = b.k // self.slot
        self.panel = Panel(b, Share(1, self.groups * tiles, 1, 1), order)
        self.segments = self.panel.count * self.per_row
        self.per_unit = self.segments * segment_size
        size = (self.panel.count, self.panel.row)
        self._view = consecutive(b, data(b), b.item * self.per_unit, Index(), size, None)
        self._kept: list[Buffer] = []
        if self.slot > segment_size or not self.panel.is_loadable(self._view):
            self._kept = [
                b.scratch(name, stored_type(b.options.ab), self.panel.size)
                for name in numbered("kept", b.options.parts)
            ]

    def array(self, buffer: Buffer) -> View:
        """Return the work item's elements of an array, as a row."""
        begin, size = self.b.item * self.per_unit, (1, self.per_unit)
        return consecutive(self.b, buffer, begin, Index(), size, None)

    def each_group(self, step: Callable[[TileParts, Index], None]) -> None:
        """Do a step for each group."""
        b, panel = self.b, self.panel
        if not self._kept and panel.groups <= MOST_HELD:
            held = panel.hold(self._view, panel.groups)
            for number in range(self.groups):
                step(held, Index.of(number))
            return
        if self._kept:
            self._fill()
        with b.loop("g", self.groups) as g:
            step(panel.tiles_of(self._rows) if self._kept else panel.lying(self._view), g)

    def _fill(self) -> None:
        """Copy the elements to shared memory, each segment to its slot, with zeros behind it."""
        b, size, array = self.b, self.segment_size, self.array(data(self.b))
        if self.slot == size:
            as_row = (1, self.per_unit, self.per_unit)
            b.copy_parts([b.rect(kept, 0, *as_row) for kept in self._kept], array)
            return
        # Contiguous elements are staged through shared memory, and then split.
        moved = b.scratch("moved_in", array.buffer.dtype, self.per_unit)
        b.copy(b.rect(moved, 0, 1, self.per_unit, self.per_unit), array)
        inside = [Bound(COL, Index.of(size))]
        b.copy_parts(
            [b.rect(kept, 0, self.segments, self.slot, self.slot) for kept in self._kept],
            b.rect(moved, 0, self.segments, self.slot, size, 1, inside),
        )

    @property
    def _rows(self) -> list[View]:
        count, row = self.panel.count, self.panel.row
        return [self.b.rect(kept, 0, count, row, row) for kept in self._kept]

    @property
    def finite(self) -> TileParts:
        """A loader of tiles with zeros for infinities and NaN."""
        if self._kept:
            return self.panel.tiles_of(self._rows, Only.FINITE)
        return self.panel.lying(self._view, Only.FINITE)

    def room(self, name: str) -> View:
        """Return shared memory for a value of each segment of a tile."""
        b = self.b
        values = b.scratch(name, b.options.acc, b.m * self.per_row)
        return b.rect(values, 0, b.m, self.per_row, self.per_row)

    def column(self, tile: Index, place: Index) -> View:
        """Return element `place` of the segments of a tile."""
        b = self.b
        buffer, offset, bounds = data(b), b.item * self.per_unit, []
        if self._kept:
            buffer, offset = self._kept[0], Index()
        offset = offset + tile * (b.m * b.k) + place
        if b.options.masked and not self._kept:
            bounds = [Bound(offset + ROW * b.k + COL * self.slot, LENGTH)]
        return b.rect(buffer, offset, b.m, self.per_row, b.k, self.slot, bounds)

    def choose(
        self, sums: Buffer, width: int, tile: tuple[int, int], mend: Callable[[Index], None]
    ) -> None:
        """Do something for each group if one of its rows holds an infinity or NaN.

        That makes all sums of a row NaN or infinite, so one of them tells. Lanes read the diagonals
        of the groups, whose elements lie in different banks.

        width: sums of a row. tile: how far apart those of groups lie, and those of rows.
        """
        b, (apart, ldm) = self.b, tile
        diagonal = int(b.m <= width)
        told = b.rect(sums, 0, self.groups, b.m, apart, ldm + diagonal)

        def special() -> None:
            with b.loop("g", self.groups) as g:
                mend(g)

        self.panel.choose(told, special, lambda: None)

    def write(self, out: Buffer, scanned: Buffer) -> None:
        """Write scanned slots to where their elements lie in an array."""
        b, size, array = self.b, self.segment_size, self.array(out)
        if self.slot == size:
            b.copy(array, b.rect(scanned, 0, 1, self.per_unit, self.per_unit), line="out")
            return
        moved = b.scratch("moved_out", out.dtype, self.per_unit)
        b.copy(
            b.rect(moved, 0, self.segments, size, size),
            b.rect(scanned, 0, self.segments, size, self.slot),
        )
        b.copy(array, b.rect(moved, 0, 1, self.per_unit, self.per_unit), line="out")


@algorithm(
    "reduction_short",
    "reduction",
    "not in the paper",
    "T",
    limited=True,
    combines=("add",),
    symbols=tiles_of_short_sums,
)
def reduction_short(b: Builder, segment_size: int, *, groups: Groups = None) -> int:
    """Sum segments of at most k elements, several to a row of a tile, into full result tiles."""
    tiles = _tiles_of_a_sum(b.n, b.k, segment_size)
    slot = slot_of_sums(b.n, b.k, segment_size)
    slots = _Slots(b, (segment_size, slot), tiles, groups)
    panel, per_row = slots.panel, slots.per_row
    out = b.output("out", b.options.result, Extent(LENGTH, segment_size))
    ldm = skewed(b.n, b.options.acc, LDM_BYTES)
    tile = padded(b.m * ldm, b.options.acc)
    totals = b.scratch("totals", b.options.acc, slots.groups * tile)
    ones = [
        b.const(b.right(name), PatternKind.COL, j * per_row, size=slot)
        for j, name in enumerate(numbered("P", tiles))
    ]

    def store(parts: TileParts, g: Index) -> None:
        s = panel.zero
        for j, one in enumerate(ones):
            for part in parts(g + j * slots.groups, 0):
                s = b.mma(b.accumulator("S"), part, one, s)
        b.store([s], b.rect(totals, g * tile, b.m, b.n, ldm))

    def mend(g: Index) -> None:
        store(slots.finite, g)
        for j in range(tiles):
            sums = b.rect(totals, g * tile + j * per_row, b.m, per_row, ldm)
            tile_of_g = g + j * slots.groups
            panel.add_not_finite(
                segment_size,
                (sums, slots.room("found")),
                partial(slots.column, tile_of_g),
            )

    with b.items():
        slots.each_group(store)
        slots.choose(totals, b.n, (tile, ldm), mend)
        # Where tiles of sums follow each other as their rows do, all rows are one rectangle.
        whole = tile == b.m * ldm
        lines = slots.groups * b.m if whole else b.m
        for j, g in ((j, g) for j in range(tiles) for g in range(1 if whole else slots.groups)):
            at = (j * slots.groups + g) * b.m * per_row
            first, bounds = b.item * slots.segments + at, []
            if b.options.masked:
                bounds.append(Bound((first + ROW * per_row + COL) * segment_size, LENGTH))
            sums = b.rect(totals, g * tile + j * per_row, lines, per_row, ldm)
            b.copy(b.rect(out, first, lines, per_row, per_row, 1, bounds), sums, line="out")
    return slots.per_unit


@algorithm(
    "scan_short",
    "scan",
    "not in the paper",
    "T*ceil(k/n)",
    limited=True,
    combines=("add",),
    symbols=tiles_of_short_scans,
)
def scan_short(
    b: Builder, segment_size: int, *, groups: Groups = None, order: Order = FORWARD
) -> int:
    """Scan segments of at most k elements, several to a row of a tile."""
    slot = slot_of_scans(b.n, b.k, segment_size)
    slots = _Slots(b, (segment_size, slot), 1, groups, order)
    panel = slots.panel
    u = upper(b, order, size=slot if slot < b.k else 0)
    out = b.output("out", b.options.result, Extent(LENGTH))
    scanned = b.scratch("scanned", b.options.acc, panel.size)

    def store(parts: TileParts, g: Index) -> None:
        tile, rows = parts(g, 0), results(b, "R")
        for r, right in zip(rows, u, strict=True):
            for number, part in enumerate(tile):
                b.mma(r, part, right, r if number else panel.zero)
        b.store(rows, b.rect(scanned, g * (b.m * b.k), b.m, b.k, b.k))

    def mend(g: Index) -> None:
        store(slots.finite, g)
        sums = slots.room("sums")
        b.copy(sums, replace(sums, bounds=(NEVER,)))
        panel.add_not_finite(
            segment_size,
            (sums, slots.room("found")),
            partial(slots.column, g),
            lambda place: b.rect(scanned, g * (b.m * b.k) + place, b.m, slots.per_row, b.k, slot),
        )

    with b.items():
        slots.each_group(store)
        slots.choose(scanned, b.k, (b.m * b.k, b.k), mend)
        slots.write(out, scanned)
    return slots.per_unit
