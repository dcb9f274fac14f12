"""Panels: rows of a few tiles side by side, many of which a warp takes at once.

Not in the paper, where a warp goes from tile to tile and passes on a sum each time. Here it loads
all its tiles first. Then only a value a row is left, and rounded additions combine these: `log2`
rounds for all tiles together.

A.J gives the totals of a tile's rows, and A.U their scans, which lie in shared memory while what
precedes each row is found. That is added to the row's elements on their way to global memory, each
sum rounded once. The next tile of a row accumulates onto the total so far: R1 = A1.U + (A0.J).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from tcusim.algorithms.builder import SUM_SKEW, Builder, never, skewed
from tcusim.algorithms.order import FORWARD, Order
from tcusim.algorithms.rows import Share, consecutive
from tcusim.algorithms.tile_scan import results, upper
from tcusim.algorithms.tree import Vectors, scan_vectors
from tcusim.machine import format_of
from tcusim.program.grammar import Buffer, Frag, Index, PatternKind, View, whole

# Bytes of the widest elements that are held in fragments. The 255 registers of a thread ([CPG]
# "Technical Specifications per Compute Capability") do not suffice for wider ones, and their narrow
# parts would take more memory than they do themselves.
WIDEST_HELD = 2

# What gives the operands that hold a tile, by its group of rows and its place in them.
TileParts: TypeAlias = Callable[[Index, int], list[Frag]]


class Panel:
    """The tiles that a warp takes at a time: some side by side, in groups of m rows.

    ones: J, for the rows' totals, where they are needed.

    Attributes
    ----------
    count, row, size : int
        Rows, elements of a row, and of them all.
    """

    def __init__(
        self, b: Builder, share: Share, order: Order = FORWARD, ones: Frag | None = None
    ) -> None:
        self.b = b
        self.order = order
        self.tiles_per_row = share.tiles_per_row
        self.groups = share.groups
        self.count = share.groups * b.m
        self.row = share.tiles_per_row * b.k
        self.size = self.count * self.row
        self.ones = ones
        self.zero = b.zero(b.accumulator("Z"))

    @property
    def turns(self) -> Sequence[int]:
        """The places of a row's tiles in the order of the scan."""
        places = range(self.tiles_per_row)
        return places[::-1] if self.order.reverse else places

    def add(self, s: Frag, parts: list[Frag]) -> Frag:
        """S <- A.J + S: the totals of a tile's rows, in every column."""
        assert self.ones is not None
        for part in parts:
            s = self.b.mma(self.b.accumulator("S"), part, self.ones, s)
        return s

    def total(self, parts: TileParts, g: Index) -> Frag:
        """S = the totals of m rows, in every column."""
        s = self.zero
        for j in self.turns:
            s = self.add(s, parts(g, j))
        return s

    def each_group(self, view: View, step: Callable[[TileParts, Index], None]) -> None:
        """Do a step for each group of m rows of an array's rectangle."""
        b = self.b

        def groups(parts: TileParts) -> None:
            with b.loop("g", self.groups) as g:
                step(parts, g)

        if not self._is_loadable(view):
            groups(self._kept(view))
        else:
            # One test for all: between the loads of a warp there is none, and none waits.
            b.as_whole(view, lambda view: groups(self._lying(view)))

    def hold(self, view: View, widest: int) -> TileParts:
        """Load all tiles of an array's rectangle, of any number of groups; return what gives them.

        Each stays in a fragment of its own or, if it must be staged, in shared memory; so do those
        of elements of more than `widest` bytes.
        """
        b = self.b
        if format_of(b.options.source).itemsize > widest:
            return self._lying(b.keep_source("kept", view))
        if not self._is_loadable(view):
            return self._kept(view)
        b.as_whole(view, self._hold)
        return lambda g, j: b.left_parts(self._name(g, j))

    def _is_loadable(self, view: View) -> bool:
        """Whether the rectangle's tiles can be loaded where they lie, at least in most warps."""
        b = self.b
        tile = b.cut(replace(view, bounds=()), b.m, b.k)
        return b.loads_directly(b.left("A"), tile) and not any(map(never, whole(view)))

    def _tile(self, view: View, g: Index, j: int) -> View:
        return self.b.cut(view, self.b.m, self.b.k, g * self.b.m, j * self.b.k)

    def _lying(self, view: View) -> TileParts:
        """Return what loads tiles where they lie; those not whole go through shared memory."""
        return lambda g, j: self.b.load_parts("A", self._tile(view, g, j))

    def _hold(self, view: View) -> None:
        rows, _ = self.b.size(view)
        for g in map(Index.of, range(rows // self.b.m)):
            for j in range(self.tiles_per_row):
                self.b.load_parts(self._name(g, j), self._tile(view, g, j), stage="t_A")

    def _name(self, g: Index, j: int) -> str:
        return f"A{g.const * self.tiles_per_row + j}"

    def _kept(self, view: View) -> TileParts:
        """Copy all rows to shared memory, in the operands' type; return what loads their tiles."""
        b = self.b
        kept = b.keep("kept", view)
        return lambda g, j: [
            b.load(frag, self._tile(part, g, j))
            for frag, part in zip(b.left_parts("A"), kept, strict=True)
        ]


class ScannedPanel(Panel):
    """Rows that are scanned, each by itself, in shared memory, and added to on their way out.

    held: whether the tiles are held, and give their totals before they are scanned. Otherwise the
    scanned rows give them: their last elements or, of an exclusive scan, a column beside them.
    """

    def __init__(self, b: Builder, share: Share, order: Order, *, held: bool = False) -> None:
        self.u = upper(b, order)
        self.beside = order.exclusive and not held
        ones = None
        if held or share.tiles_per_row > 1 or self.beside:
            ones = b.const(b.right("J"), PatternKind.ONES)
        super().__init__(b, share, order, ones)
        width = self.row + (b.n if self.beside else 0)
        acc = b.options.acc
        self.ldm = skewed(width, acc, SUM_SKEW)
        self.scanned = b.scratch("scanned", acc, self.count * self.ldm)

    def begin(self, g: int) -> View:
        """Return the first columns of a group of m rows, as many as an accumulator has."""
        b = self.b
        place = g * b.m * self.ldm
        return b.rect(self.scanned, place, b.m, min(b.n, self.row), self.ldm)

    def scan(self, view: View) -> None:
        """Scan each row of an array's rectangle by products with U; the results stay here."""
        self.each_group(view, lambda parts, g: self._scan_group(parts, g, g))

    def scan_totals(self, per_segment: int) -> Buffer:
        """Scan the totals of the rows, within segments of that many rows; return their buffer."""
        b = self.b
        lines = self.count // per_segment
        x, y = (b.scratch(name, b.options.acc, self.count) for name in ("x", "y"))
        column = self.row if self.beside else self.order.last(self.row)
        totals = b.rect(self.scanned, column, self.count, 1, self.ldm)
        b.copy(b.rect(x, 0, self.count, 1, 1), totals)
        apart = per_segment if lines > 1 else 1
        vectors = Vectors(per_segment, lines, apart)
        return scan_vectors(b, x, (y, x), vectors, self.order)

    def sum_held(self, parts: TileParts, first: int, into: View) -> None:
        """Copy the totals of the rows of the tiles from group `first` on to a column of values."""
        b = self.b
        for g in range(self.groups):
            b.store([self.total(parts, Index.of(first + g))], self.begin(g))
        b.copy(into, b.rect(self.scanned, 0, self.count, 1, self.ldm))

    def scan_held(self, parts: TileParts, first: int) -> None:
        """Scan the rows of the tiles from group `first` on; the results stay here."""
        for g in range(self.groups):
            self._scan_group(parts, Index.of(first + g), Index.of(g))

    def write(self, view: View, before: Buffer | None, first: int = 0) -> None:
        """Write the rows to an array's rectangle; add what precedes them.

        before: one value a row, from number `first` on.
        """
        b = self.b
        plus = None if before is None else b.rect(before, first, self.count, self.row, 1, 0)
        b.copy(view, b.rect(self.scanned, 0, self.count, self.row, self.ldm), plus, "out")

    def _scan_group(self, parts: TileParts, source: Index, target: Index) -> None:
        """R = A.U + S for each tile of m rows, S being the sum of those before it in the row."""
        b = self.b
        here = target * (b.m * self.ldm)
        s = self.zero
        for turn, j in enumerate(self.turns, start=1):
            tile = parts(source, j)
            rows = results(b, "R")
            for r, u in zip(rows, self.u, strict=True):
                for number, part in enumerate(tile):
                    b.mma(r, part, u, r if number else s)
            b.store(rows, b.rect(self.scanned, here + j * b.k, b.m, b.k, self.ldm))
            if turn < self.tiles_per_row or self.beside:
                s = self.add(s, tile)
        if self.beside:
            b.store([s], b.rect(self.scanned, here + self.row, b.m, b.n, self.ldm))


class PanelWork:
    """What a warp has to do: several segments at once, or one in `passes`.

    per_segment: the rows of a segment; in passes, all of them. per_unit: elements of the warp.
    """

    def __init__(self, panel: Panel, per_segment: int | None, segment_size: int) -> None:
        self.panel = panel
        self.segment_size = segment_size
        self.per_segment = per_segment or panel.count
        self.passes = 1 if per_segment else -(-segment_size // panel.size)
        self.per_unit = panel.size if per_segment else segment_size

    def view(self, buffer: Buffer, i: Index) -> View:
        """Return the rows of an array that have their turn after `i` passes."""
        panel = self.panel
        begin = panel.b.item * self.per_unit
        start = panel.order.turn(i, self.passes) * panel.size
        end = self.segment_size if self.per_unit % panel.size else None
        return consecutive(panel.b, buffer, begin, start, (panel.count, panel.row), end)
