"""Panels: rows of a few tiles side by side; a warp takes many at once.

Not in the paper, where a warp goes from tile to tile and passes on a sum each time. Here it loads
all its tiles first. Then only a value a row is left, and rounded additions combine these: `log2`
rounds for all tiles together.

A.J gives the totals of a tile's rows, and A.U their scans. The scans stay in shared memory until
each row's exclusive prefix is known. It is added to the row's elements on their way to global
memory, each sum rounded once. The next tile of a row accumulates onto the total so far: R1 = A1.U +
(A0.J).

Segments of a few elements share a row of one tile: of segments of 2 elements seven eighths of each
product would be zeros. A row has *slots* then, of the least power of 2 that holds a segment, and
the constant factor keeps them apart. In V = A.P_j column c of P_j has its ones where slot c - j*s
of a row is, s being the slots of a row, so that n/s tiles fill V. In A.U, U has its triangles of
ones within each slot. A product adds nothing but zeros to a segment's elements, and so does a row
with one segment: both have the same bits, if no fused step takes parts of two slots
(`rows.fits_fused_steps`).

float32 rows cannot be operands. One step adds them in place, all at once, and gives the same
results as the products: totals, or scanned rows.

As 0*Inf is NaN, A.U gives NaN for elements before an infinity in its tile. The totals of the rows
reveal this to the warp, which then scans them again; see `ScannedPanel.mend`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from tcusim.algorithms.builder import LENGTH, NEVER, SUM_SKEW, Builder, never, require, skewed
from tcusim.algorithms.order import FORWARD, Order
from tcusim.algorithms.rows import Share, consecutive, data
from tcusim.algorithms.tile_scan import results, upper
from tcusim.algorithms.tree import Vectors, scan_vectors
from tcusim.errors import Given
from tcusim.machine import format_of
from tcusim.machine.shapes import LDM_BYTES
from tcusim.program.grammar import (
    COL,
    ROW,
    Bound,
    Buffer,
    Frag,
    Index,
    Operation,
    PatternKind,
    View,
    whole,
)

# Bytes of the widest elements that are held in fragments. The 255 registers of a thread ([CPG]
# "Technical Specifications per Compute Capability") do not suffice for wider ones, and scans of
# those take no more room than they do themselves.
WIDEST_HELD = 2

# Tiles that a warp holds while it only adds: those of WMMA take 4 registers each.
MOST_HELD = 16

# A function that gives the operand of a tile, by its group of rows and its position in them.
Tiles: TypeAlias = Callable[[Index, int], Frag]


def only_products(view: View, first: int) -> None:
    """Raise an error: this operation adds no rows."""
    raise AssertionError("rows are added without products by an operation that has only products")


@dataclass(frozen=True, slots=True)
class RowStep:
    """An operation on the rows of a panel, by products or without them.

    multiply: for a group of m rows, given their tiles. add: for a rectangle of rows from an index
    on; by default, an operation that has only products.
    """

    multiply: Callable[[Tiles, Index], None]
    add: Callable[[View, int], None] = only_products


class Panel:
    """The tiles that a warp takes at a time: some side by side, in groups of m rows.

    totals: whether those of the rows are needed, which are products with J.

    Attributes
    ----------
    count, row, size : int
        Rows, elements of a row, and of them all.
    """

    def __init__(
        self, b: Builder, share: Share, order: Order = FORWARD, *, totals: bool = False
    ) -> None:
        self.b = b
        self.order = order
        self.tiles_per_row = share.tiles_per_row
        self.groups = share.groups
        self.count = share.groups * b.m
        self.row = share.row or share.tiles_per_row * b.k
        self.size = self.count * self.row
        self.slots = share.slots
        # The elements that a segment has in a row, and how many of them there are.
        self.width = self.row if share.slots is None else share.slots.width
        self.lines = self.size // self.width
        # Operations on groups: a sum by slots takes several together.
        self.steps = self.groups // (1 if share.slots is None else share.slots.tiles)
        source, ab = b.options.source, b.options.ab
        require(
            b.options.parts == 1,
            f"{source} elements are several {ab} operands each, and panels multiply only one; "
            f"reduction_panel and scan_panel add rows of {source} without products, with ",
            Given("ab", source),
        )
        if not b.options.adds_rows:
            self._ones = b.const(b.right("J"), PatternKind.ONES) if totals else None
            self.zero = b.zero(b.accumulator("Z"))

    @property
    def keeps_rows(self) -> bool:
        """Whether rows in shared memory are as they were after a step for them."""
        return True

    @property
    def turns(self) -> Sequence[int]:
        """The places of a row's tiles in the order of the scan."""
        places = range(self.tiles_per_row)
        return places[::-1] if self.order.reverse else places

    def add(self, s: Frag, tile: Frag) -> Frag:
        """S <- A.J + S: the totals of a tile's rows, in every column."""
        assert self._ones is not None
        return self.b.mma(self.b.accumulator("S"), tile, self._ones, s)

    def total(self, tiles: Tiles, g: Index) -> Frag:
        """S = the totals of m rows, in every column."""
        s = self.zero
        for j in self.turns:
            s = self.add(s, tiles(g, j))
        return s

    def each_row(self, view: View, step: RowStep) -> None:
        """Do a step for the rows of an array's rectangle."""
        b = self.b

        def load(view: View) -> None:
            if view.bounds or self.groups * self.tiles_per_row > MOST_HELD:
                self.each_group_of(self.lying(view), step.multiply)
                return
            # All loads come first, so that a warp waits for memory once.
            self._hold(view)
            for g in range(self.steps):
                step.multiply(self._held, Index.of(g))

        if b.options.adds_rows:
            step.add(view, 0)
        elif not self.is_loadable(view):
            self.each_group_of(self._kept(view), step.multiply)
        else:
            b.as_whole(view, load)

    def each_kept_row(self, kept: View, step: RowStep) -> None:
        """Do a step for rows in shared memory, as `room` has them."""
        if self.b.options.adds_rows:
            step.add(kept, 0)
        else:
            self.each_group_of(self.lying(kept), step.multiply)

    def each_group_of(self, tiles: Tiles, step: Callable[[Tiles, Index], None]) -> None:
        """Apply `step` to each group of m rows of the given tiles."""
        with self.b.loop("g", self.steps) as g:
            step(tiles, g)

    def room(self) -> View:
        """Return shared memory for all rows."""
        return self._room(self.b.rect(data(self.b), 0, self.count, self.row, self.row))

    def _room(self, view: View) -> View:
        return self.b.room("kept", view, dense=self.slots is not None)

    def source(self, view: View) -> View:
        """Return the rows of a rectangle that are loaded again: in place, or as copied."""
        return view if self.is_loadable(view) else self._room(view)

    def by_lines(self, view: View) -> View:
        """Return rows of shared memory as rows of segments: the slots of all, if there are some."""
        if self.slots is None:
            return view
        return self.b.rect(view.buffer, 0, self.lines, self.width, self.width)

    def slots_of(self, view: View, g: Index, place: Index | int) -> View:
        """Return the column of elements `place` of the slots of group `g` of m rows."""
        b, slots = self.b, self.slots
        assert slots is not None
        return b.cut(view, b.m, slots.per_row, g * b.m, place, every=(1, slots.width))

    def values_of_slots(self, name: str) -> View:
        """Return shared memory for a value of each slot of a group."""
        b, slots = self.b, self.slots
        assert slots is not None
        values = b.scratch(name, b.options.acc, b.m * slots.per_row)
        return b.rect(values, 0, b.m, slots.per_row, slots.per_row)

    def hold(self, view: View, most: int) -> Tiles:
        """Load all tiles of a rectangle, of any number of groups; return their accessor.

        Each stays in a fragment of its own, up to the tiles of `most` groups; others, and those
        that must be staged, in shared memory.
        """
        b = self.b
        groups = b.size(view)[0] // b.m
        if not self.is_loadable(view):
            return self._kept(view)
        if groups <= most:
            b.as_whole(view, self._hold)
            return self._held
        # These copies come first, so that they are on their way while the others are multiplied.
        rest = self._kept(b.cut(view, (groups - most) * b.m, self.row, most * b.m))
        b.as_whole(b.cut(view, most * b.m, self.row), self._hold)
        return lambda g, j: self._held(g, j) if g.const < most else rest(g - most, j)

    def choose(self, totals: View, special: Callable[[], None], usual: Callable[[], None]) -> None:
        """Do one thing if one of the rows holds an infinity or NaN, as `totals` tell; else another.

        Integers never do, and additions need no other thing.
        """
        if self.b.options.adds_rows or not format_of(self.b.options.ab).is_float:
            usual()
            return
        with self.b.when([], not_finite=totals) as otherwise:
            special()
            with otherwise():
                usual()

    def add_not_finite(
        self,
        count: int,
        values: tuple[View, View],
        given: Callable[[Index], View],
        scanned: Callable[[Index], View] | None = None,
    ) -> None:
        """Add the infinities and NaN of `count` columns to sums, one column after the other.

        values: the sums, and as much memory for a column. given(place): a column of elements.
        scanned(place): the column of a scan that gets the sums so far.
        """
        b, order, (sums, found) = self.b, self.order, values
        with b.loop("t", count) as t:
            place = order.turn(t, count)
            here = None if scanned is None else scanned(place)
            if here is not None and order.exclusive:
                b.copy(here, here, sums)
            b.copy_only(Operation.NOT_FINITE, found, given(place))
            b.copy(sums, sums, found)
            if here is not None and not order.exclusive:
                b.copy(here, here, sums)

    def is_loadable(self, view: View) -> bool:
        """Whether the rectangle's tiles can be loaded where they lie, at least in most warps."""
        b = self.b
        tile = b.cut(replace(view, bounds=()), b.m, b.k)
        return b.loads_directly(b.left("A"), tile) and not any(map(never, whole(view)))

    def _tile(self, view: View, g: Index, j: int) -> View:
        return self.b.cut(view, self.b.m, self.b.k, g * self.b.m, j * self.b.k)

    def lying(self, view: View, only: Operation | None = None) -> Tiles:
        """Return a loader of tiles in place; partial tiles go through shared memory."""
        b = self.b
        return lambda g, j: b.load(b.left("A"), self._tile(view, g, j), only=only)

    def _hold(self, view: View) -> None:
        rows, _ = self.b.size(view)
        for g in map(Index.of, range(rows // self.b.m)):
            for j in range(self.tiles_per_row):
                self.b.load(self._held(g, j), self._tile(view, g, j), stage="t_A")

    def _held(self, g: Index, j: int) -> Frag:
        return self.b.left(f"A{g.const * self.tiles_per_row + j}")

    def _kept(self, view: View) -> Tiles:
        """Copy all rows to shared memory, in the operands' type; return a loader of their tiles."""
        kept = self._room(view)
        self.b.copy(kept, view)
        return self.lying(kept)


class ScannedPanel(Panel):
    """Rows that are scanned, each by itself, in shared memory, and added to on their way out.

    held: whether the tiles are held, and give their totals before they are scanned. Otherwise the
    scanned rows give them: their last elements or, of an exclusive scan, totals of their own.
    totals: whether somebody asks for them.
    """

    def __init__(
        self,
        b: Builder,
        share: Share,
        order: Order,
        *,
        held: bool = False,
        totals: bool = True,
    ) -> None:
        acc, adds = b.options.acc, b.options.adds_rows
        slots = share.slots
        size = slots.width if slots and slots.per_row > 1 else 0
        self.held = held
        self.u = [] if adds else upper(b, order, size=size)
        self.beside = totals if adds else order.exclusive and not held and not slots
        multiplied = held or share.tiles_per_row > 1 or self.beside
        super().__init__(b, share, order, totals=multiplied)
        # Rows that are added are read and written along, and need no other banks.
        self.ldm = self.row if adds or slots else skewed(self.row, acc, SUM_SKEW)
        self.scanned = b.scratch("scanned", acc, self.count * self.ldm)
        if self.beside:
            self.ends = b.scratch("ends", acc, self.count)

    @property
    def rows(self) -> View:
        """The scanned rows."""
        return self.b.rect(self.scanned, 0, self.count, self.row, self.ldm)

    @property
    def totals(self) -> View:
        """The totals of the rows, until they are mended; of slots, one sum of each row."""
        if self.slots is not None:
            return one_sum_of_rows(
                self.b, self.scanned, self.steps, self.size // self.groups, self.ldm, self.row
            )
        if self.beside:
            return self.b.rect(self.ends, 0, self.count, 1, 1)
        return self.b.rect(self.scanned, self.order.last(self.row), self.count, 1, self.ldm)

    @property
    def step(self) -> RowStep:
        """The operation that scans rows; the results stay here."""
        return RowStep(self.scan_group, self._scan_rows)

    def room(self) -> View:
        """Return shared memory for all rows; rows without products are scanned in place."""
        return self.rows if self.b.options.adds_rows else super().room()

    @property
    def keeps_rows(self) -> bool:
        """Whether scanned rows have a place of their own."""
        return not self.b.options.adds_rows

    def _scan_rows(self, view: View, first: int) -> None:
        """Scan rows by additions, from number `first` on."""
        b, order = self.b, self.order
        rows, cols = b.size(view)
        ends = b.rect(self.ends, first, rows, 1, 1) if self.beside else None
        scanned = b.cut(self.rows, rows, cols, first)
        b.prefix(scanned, view, ends, reverse=order.reverse, exclusive=order.exclusive)

    def scan_group(self, tiles: Tiles, g: Index) -> None:
        """Scan m rows by products with U; the results stay here."""
        self._scan_group(tiles, g, g)

    def scan_totals(self, per_segment: int, lines: int) -> Buffer:
        """Scan the totals of the rows, within segments of that many rows; return their buffer."""
        b = self.b
        y = b.scratch("y", b.options.acc, self.count)
        if b.options.adds_rows:
            x = self.ends
        else:
            x = b.scratch("x", b.options.acc, self.count)
            b.copy(b.rect(x, 0, self.count, 1, 1), self.totals)
        apart = per_segment if lines > 1 else 1
        vectors = Vectors(per_segment, lines, apart)
        self.sums = scan_vectors(b, x, (y, x), vectors, self.order)
        return self.sums

    def scan_held(self, tiles: Tiles, number: int) -> None:
        """Scan the rows of a batch of tiles, in a panel of one group; the results stay here."""
        self._scan_group(tiles, Index.of(number), Index())

    def mend(self, totals: View, rows: Callable[[], View]) -> None:
        """Scan the rows once more if one of them holds an infinity or NaN.

        totals: of the rows, or sums of these, for the test. rows: returns the argument of
        `scan_finite`.
        """
        self.choose(totals, lambda: self.scan_finite(rows()), lambda: None)

    def scan_finite(self, rows: View) -> None:
        """Scan all rows, of which some hold infinities or NaN; the results stay here.

        U multiplies the finite elements alone. The others are added up by themselves, column by
        column, and to the scanned rows: 0 to those that come before the first.

        rows: as `source` has them.
        """
        b, finite = self.b, self.lying(rows, Operation.FINITE)
        if self.slots is not None:
            self.each_group_of(finite, partial(self._scan_slots, self.slots.segment_size, rows))
            return
        self.each_group_of(finite, self.scan_group)
        # There is room for two values between the rows.
        found, sums = (
            b.rect(self.scanned, self.ldm - place, self.count, 1, self.ldm) for place in (2, 1)
        )
        if self._width > b.k:
            b.settle()
        b.clear(sums)
        self.add_not_finite(
            self.row,
            (sums, found),
            lambda place: b.cut(rows, self.count, 1, 0, place),
            lambda place: b.cut(self.rows, self.count, 1, 0, place),
        )

    def _scan_slots(self, size: int, given: View, tiles: Tiles, g: Index) -> None:
        """Scan the finite elements of slots; add the others of `size` elements of each."""
        self.scan_group(tiles, g)
        values = self.values_of_slots("sums"), self.values_of_slots("found")
        self.b.clear(values[0])
        given_at, scanned_at = (partial(self.slots_of, view, g) for view in (given, self.rows))
        self.add_not_finite(size, values, given_at, scanned_at)

    def write(self, view: View, before: Buffer | None, first: Index | int = 0) -> None:
        """Write the rows to an array's rectangle; add their prefixes.

        before: one value a row, from number `first` on.
        """
        b = self.b
        plus = None if before is None else b.rect(before, first, self.count, self.row, 1, 0)
        b.copy(view, self.rows, plus, "out")

    @property
    def _width(self) -> int:
        """Number of stored columns of a tile's results: k, or all if the rest does no harm.

        The columns past k fall on the next tile's results, and at the end between rows.
        """
        b = self.b
        if self.order.reverse or self.row - b.k + b.n > self.ldm:
            return b.k
        return max(b.n, b.k)

    def _scan_group(self, tiles: Tiles, source: Index, target: Index) -> None:
        """R = A.U + S for each tile of m rows, S being the sum of those before it in the row."""
        b = self.b
        here = target * (b.m * self.ldm)
        s = self.zero
        for turn, j in enumerate(self.turns, start=1):
            tile = tiles(source, j)
            rows = results(b, "R")
            for r, u in zip(rows, self.u, strict=True):
                b.mma(r, tile, u, s)
            if turn > 1 and self._width > b.k:
                b.settle()
            b.store(rows, b.rect(self.scanned, here + j * b.k, b.m, self._width, self.ldm))
            if turn < self.tiles_per_row or self.beside:
                s = self.add(s, tile)
        if self.beside:
            b.store_column(s, b.rect(self.ends, target * b.m, b.m, 1, 1))


def one_sum_of_rows(b: Builder, sums: Buffer, groups: int, tile: int, ldm: int, width: int) -> View:
    """Return a sum of each row of groups of m rows, of `width` sums each.

    An infinity or NaN makes all sums of its row NaN or infinite, so one of them tells. Lanes read
    the diagonals of the groups, with elements in different banks.

    tile, ldm: the distances of groups and of rows.
    """
    return b.rect(sums, 0, groups, b.m, tile, ldm + int(b.m <= width))


def together_aligned(nbytes: int) -> int:
    """Return the number of segments of `nbytes` bytes that together begin at multiples of 16 bytes.

    Groups of more than two begin at no multiple of 8 bytes: they are staged contiguously, then
    split.
    """
    return LDM_BYTES // math.gcd(nbytes, LDM_BYTES)


class PanelWork:
    """The work of a warp: several segments at once, or one in `passes`.

    Attributes
    ----------
    lines, rows : int
        Segments at once, and rows of each that are at hand: all or, of long ones, those of a pass.
    passes, per_unit : int
        How often the warp takes rows for a work item, and the elements of that.
    """

    def __init__(self, panel: Panel, share: Share, segment_size: int, a_pass: int) -> None:
        self.panel = panel
        self.segment_size = segment_size
        self.lines, slots = max(1, share.lines), share.slots is not None
        together = together_aligned(format_of(panel.b.options.source).itemsize * segment_size)
        fills = panel.size == share.lines * segment_size
        self._moved = not fills and (slots or 2 < together <= share.lines)
        if self._moved and not slots:
            self.lines -= self.lines % together
        self.rows = share.rows if share.lines else a_pass
        self.passes = -(-share.rows // self.rows)
        self.per_unit = self.lines * segment_size
        # Whether rows follow one another in memory as they do in the panel. If not, they are copied
        # to rows of shared memory first, of which the rest is zeros for good.
        self._lies_so = not share.lines or panel.size == self.per_unit
        self._full, self._rest = divmod(segment_size, panel.width)
        # Rows of one segment can be added up where they lie, the last one by itself.
        self._alone = panel.b.options.adds_rows and self.lines == 1 and not self._lies_so
        # Rows that are copied one by one get their zeros again each time, with their elements.
        self._one_by_one = self._moved and not self._full
        if not self._lies_so and not self._alone:
            self._kept, used = panel.room(), self.lines * self.rows
            if panel.keeps_rows:
                self._clear_ends(self._kept)
            self._clear(self._kept, used, 0, (panel.lines - used, panel.width))

    def each_row(self, i: Index, step: RowStep) -> None:
        """Do a step for the rows of pass `i`."""
        panel = self.panel
        if self._lies_so:
            panel.each_row(self._view(data(panel.b), i), step)
            return
        if self._alone:
            first = 0
            for _, lying in self._pieces([], self._array(data(panel.b))):
                step.add(lying, first)
                first += panel.b.size(lying)[0]
            return
        self._fill()
        panel.each_kept_row(self._kept, step)

    def source(self, i: Index) -> View:
        """Return the rows of pass `i` to load them again."""
        if self._lies_so:
            return self.panel.source(self._view(data(self.panel.b), i))
        return self._kept

    def _fill(self) -> None:
        """Copy the segments to the rows of shared memory."""
        b = self.panel.b
        array = self._array(data(b))
        if self._moved:
            moved = self._room("moved_in", array)
            b.copy(moved, array)
            array = moved
        if self._one_by_one:
            size, width = self.segment_size, self.panel.width
            inside = [Bound(COL, Index.of(size))]
            spread = b.rect(array.buffer, 0, self.lines, width, size, 1, inside)
            b.copy(b.cut(self.panel.by_lines(self._kept), self.lines, width), spread)
            return
        if not self.panel.keeps_rows:
            self._clear_ends(self._kept)
        for (rows,), lying in self._pieces([self._kept], array):
            b.copy(rows, lying)

    def _clear_ends(self, kept: View) -> None:
        """Set the elements past the last row of each segment to zeros."""
        rest = self.panel.width - self._rest if self._rest and not self._one_by_one else 0
        self._clear(kept, self.rows - 1, self._rest, (self.lines, rest), self.rows)

    def write(
        self, i: Index, out: Buffer, rows: View, before: Buffer | None, *, join: bool = False
    ) -> None:
        """Write scanned rows to their elements in an array; add each row's prefix.

        join: round each sum of float64 once, to the array's type.
        """
        b, panel = self.panel.b, self.panel

        def put(to: View, source: View, plus: View | None, line: str) -> None:
            if join and plus is not None:
                b.join(to, source, plus)
            else:
                b.copy(to, source, plus, line)

        if self._lies_so and panel.slots is not None:
            # Full slots are as dense as the array: one row is fewer addresses to compute.
            put(self._array(out), b.rect(rows.buffer, 0, 1, panel.size, panel.size), None, "out")
            return
        values = [] if before is None else [b.rect(before, 0, panel.count, panel.row, 1, 0)]
        if self._lies_so:
            plus = self._of_pass(values[0]) if values else None
            put(self._view(out, i), rows, plus, "out")
            return
        array = self._array(out)
        results = self._room("moved_out", array) if self._moved else array
        lines = panel.by_lines(rows)
        for (source, *given), lying in self._pieces([lines, *values], results):
            put(lying, source, given[0] if given else None, "" if self._moved else "out")
        if self._moved:
            b.copy(array, results, line="out")

    def add(self, rows: View, before: Buffer) -> None:
        """Add a value to each row of the panel where it has elements."""
        b, panel = self.panel.b, self.panel
        values = b.rect(before, 0, panel.count, panel.row, 1, 0)
        if self._lies_so:
            b.copy(rows, rows, values)
            return
        for (here, plus), _ in self._pieces([rows, values], self._array(data(b))):
            b.copy(here, here, plus)

    def _array(self, buffer: Buffer) -> View:
        """Return the work item's elements of an array, as a row."""
        b, size = self.panel.b, self.per_unit
        return consecutive(b, buffer, b.item * size, Index(), (1, size), None)

    def _room(self, name: str, array: View) -> View:
        """Return shared memory for the elements."""
        b, size = self.panel.b, self.per_unit
        return b.rect(b.scratch(name, array.buffer.dtype, size), 0, 1, size, size)

    def _view(self, buffer: Buffer, i: Index) -> View:
        """Return the rows of an array that pass `i` takes, counted from the segment's beginning."""
        panel, taken = self.panel, self.rows * self.panel.row
        begin = panel.b.item * self.per_unit
        end = self.segment_size if self.passes > 1 and self.segment_size % taken else None
        size = (panel.count, panel.row)
        return self._of_pass(consecutive(panel.b, buffer, begin, i * taken, size, end))

    def _of_pass(self, view: View) -> View:
        """Return a view of the panel's rows without those that a pass leaves."""
        if self.passes > 1 and self.rows < self.panel.count:
            return self.panel.b.limited(view, self.rows)
        return view

    def _pieces(self, rows: Sequence[View], array: View) -> Iterator[tuple[list[View], View]]:
        """Yield rectangles of rows of the panel, each with where its elements lie in an array.

        They are as large as may be: of few segments the rows of each, of many the same row of all.
        """
        b, size, width = self.panel.b, self.segment_size, self.panel.width

        def lying(start: Index, count: int, cols: int, apart: int) -> View:
            first = array.offset + start
            inside = Bound(first + ROW * apart + COL, LENGTH)
            bounds = [inside] if array.bounds else []
            return b.rect(array.buffer, first, count, cols, apart, 1, bounds)

        def taken(first: Index, count: int, cols: int, every: int) -> list[View]:
            return [b.cut(row, count, cols, first, every=(every, 1)) for row in rows]

        if self.lines < self._full:
            with b.loop("j", self.lines) as j:
                place = taken(j * self.rows, self._full, width, 1)
                yield place, lying(j * size, self._full, width, width)
        elif self._full:
            with b.loop("j", self._full) as j:
                place = taken(j, self.lines, width, self.rows)
                yield place, lying(j * width, self.lines, width, size)
        if self._rest:
            place = taken(Index.of(self._full), self.lines, self._rest, self.rows)
            yield place, lying(Index.of(self._full * width), self.lines, self._rest, size)

    def _clear(self, kept: View, row: int, col: int, size: tuple[int, int], every: int = 1) -> None:
        """Set a rectangle of the rows to zeros."""
        b = self.panel.b
        if 0 in size:
            return
        to = b.cut(kept, *size, row, col, every=(every, 1))
        b.copy(to, b.rect(data(b), 0, *size, 0, 0, [NEVER]))
