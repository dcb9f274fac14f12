"""MatMulScan, the scan of [ZOUZIAS23]: a tree of nodes with k children, only by products.

It is the scan of Brent and Kung with k in place of 2. Level t of the *up-sweep* takes each k**t-th
element, k of them to a group, and scans each group by a product with U (their L_s). Level t of the
*down-sweep* takes each k**(t-1)-th element from element k**t - 1 on, and adds the first of a group
to the others by a product with B_s, which has ones in its first row and on its diagonal. In the
(s**2, l)-TCU model that takes 2*floor(log_s(n)) steps and about 2*n/s**2 products.

The diagonal of B_s is the C of the multiply-add here, so that elements keep the precision of the
accumulator and only the addends are operands. It costs no product.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tcusim.algorithms.builder import LENGTH, Builder, Level, require, require_float_operands
from tcusim.algorithms.order import FORWARD, Carry, Order
from tcusim.algorithms.registry import algorithm, listing
from tcusim.algorithms.rows import carried, data, share_of_block, tile_of
from tcusim.algorithms.tile_scan import row_scan, upper
from tcusim.errors import Given
from tcusim.program.grammar import COL, ROW, WARP, Bound, Extent, Frag, Index, PatternKind, View


@dataclass(frozen=True, slots=True)
class Sweep:
    """One level: elements `start`, `start` + `step` and so on of a segment, in its order.

    count: how many there are. group: how many of them are taken together.
    """

    start: int
    step: int
    count: int
    group: int

    def tiles(self, m: int) -> int:
        """Return the number of tiles of m groups that they fill."""
        return -(-self.count // (m * self.group))

    def turns(self, m: int, warps: int) -> int:
        """Return the tiles that warps take together: less than a turn of all, or whole turns."""
        tiles = self.tiles(m)
        return tiles if tiles < warps else -(-tiles // warps) * warps


def children(k: int) -> int:
    """Return the children of a node: k, or two where that would be no tree."""
    return max(2, k)


def up_sweep(size: int, k: int) -> list[Sweep]:
    """Return the levels of the up-sweep, which scan groups; the first one has all elements.

    size: elements of a segment, whole tiles.
    """
    levels, step = [Sweep(0, 1, size, k)], k
    while size // step > 1:
        levels.append(Sweep(step - 1, step, size // step, children(k)))
        step *= children(k)
    return levels


def down_sweep(size: int, k: int) -> list[Sweep]:
    """Return the levels of the down-sweep, which add the first element of a group to the others.

    That one has been summed up before.
    """
    levels, step, s = [], 1, children(k)
    while step * (s + 1) <= size:
        start = step * s - 1
        levels.append(Sweep(start, step, (size - 1 - start) // step + 1, s))
        step *= s
    return levels[::-1]


@algorithm(
    "scan_matmul",
    "scan",
    "[ZOUZIAS23] Algorithm 1, MatMulScan",
    tiles=True,
    repeats=4,
    level=Level.BLOCK,
    lines=listing("Alg. 1", up=3, down=8),
)
def scan_matmul(
    b: Builder, segment_size: int, *, carry: Carry = False, order: Order = FORWARD
) -> int:
    """Scan segments of T*N elements by sweeps up and down a tree of k children a node (MatMulScan).

    A segment lies in shared memory, where the warps of a block share the tiles of each level. With
    combine="add", products scan the data alone: sums are added to sums by rounded additions.
    """
    _require_operands(b)
    tiles, beyond = share_of_block(b, segment_size)
    out = b.output("out", b.options.result, Extent(LENGTH))
    sweeps = _Sweeps(b, tiles * b.options.warps * b.m * b.k, order)
    first, *rest = up_sweep(sweeps.size, b.k)
    with b.items():
        with sweeps.each_tile(first) as number:
            turn = order.turn(number, tiles * b.options.warps)
            view = tile_of(b, data(b), segment_size, turn, beyond=beyond)
            b.store(row_scan(b, b.load_parts("A", view, "up"), sweeps.u, None), sweeps.tile(turn))
        for level in rest:
            b.barrier("up")
            with sweeps.each_tile(level) as number:
                sweeps.scan(level, number)
        for level in down_sweep(sweeps.size, b.k):
            b.barrier("down")
            with sweeps.each_tile(level) as number:
                sweeps.add_first(level, number)
        b.barrier()
        with sweeps.each_tile(first) as number:
            before = carried(b, segment_size, b.k) if carry else None
            target = tile_of(b, out, segment_size, number, beyond=beyond)
            b.copy(target, sweeps.result(number), before)
        if b.options.items_per_warp > 1:
            b.barrier()
    return segment_size


def _require_operands(b: Builder) -> None:
    """Raise an error for operands that the sweeps cannot multiply."""
    options = b.options
    if options.combine == "mma":
        require_float_operands(b)
        require(
            options.parts == 1,
            f"a {options.source} tile is several {options.ab} parts, but sums are rounded to one "
            "operand by ",
            *(Given("combine", "mma"), "; use ", Given("combine", "add")),
        )


class _Sweeps:
    """A segment of `size` elements in shared memory, whole tiles for each warp, and its levels."""

    def __init__(self, b: Builder, size: int, order: Order) -> None:
        self.b, self.size, self.order = b, size, order
        self.buffer = b.shared("x", b.options.acc, size)
        # Sums are inclusive here: an exclusive scan writes them one place later.
        self.inclusive = Order(reverse=order.reverse)
        self.u = upper(b, self.inclusive)
        s = children(b.k)
        # Where in a group its first element is, and the piece of k that has it.
        self.first = s - 1 if order.reverse else 0
        self.piece = s - b.k if order.reverse else 0
        self.zero: Frag | None = None
        if b.options.combine == "mma":
            self.zero = b.zero(b.accumulator("Z"))
            self.spread = b.const(b.right("B"), PatternKind.ROW, self.first - self.piece)

    @contextmanager
    def each_tile(self, level: Sweep) -> Iterator[Index]:
        """Run the steps inside for each tile of a level, split over the warps; gives its index."""
        b, warps = self.b, self.b.options.warps
        tiles = level.tiles(b.m)
        if tiles < warps:
            with b.when([Bound(WARP, Index.of(tiles))]):
                yield WARP
            return
        with b.loop("i", -(-tiles // warps)) as i:
            yield i * warps + WARP if warps > 1 else i

    def tile(self, number: Index) -> View:
        """Return a tile of consecutive elements."""
        b = self.b
        return b.rect(self.buffer, number * (b.m * b.k), b.m, b.k, b.k)

    def result(self, number: Index) -> View:
        """Return the sums of a tile of consecutive elements."""
        b, tile = self.b, self.b.m * self.b.k
        if not self.order.exclusive:
            return self.tile(number)
        place = number * tile + ROW * b.k + COL
        shift, inside = self.order.earlier(1, place, self.size)
        return b.rect(self.buffer, number * tile + shift, b.m, b.k, b.k, 1, inside)

    def scan(self, level: Sweep, number: Index) -> None:
        """Scan each group of a tile: R = A.U."""
        b = self.b
        if self.zero is None:
            self._scan_by_additions(level, number)
            return
        if level.group == b.k:
            view = self._part(level, number)
            a = self._operand(level, view, "up")
            b.store(row_scan(b, [a], self.u, self.zero), view)
            return
        # Pieces of one element each.
        pieces = range(level.group)
        operands = [
            self._operand(level, self._part(level, number, piece, 1), "up", piece)
            for piece in pieces
        ]
        for j in range(0, level.group, b.n):
            r = b.accumulator(f"R{j}")
            for piece, a in enumerate(operands):
                u = b.const(b.right(f"U{piece}"), *self._piece_of_u(piece, j))
                b.mma(r, a, u, r if piece else self.zero, "up")
            b.store([r], self._part(level, number, j, b.n))

    def _piece_of_u(self, row: int, column: int) -> tuple[PatternKind, int]:
        """Return U from a row and a column on."""
        kind, offset = self.inclusive.summed(column)
        return kind, offset + (row if self.order.reverse else -row)

    def add_first(self, level: Sweep, number: Index) -> None:
        """Add the first element of each group of a tile to the others: R = A.B + C."""
        b = self.b
        if self.zero is None:
            rest = self._part(level, number, rest=True)
            b.copy(rest, rest, self._part(level, number, rest=True, repeat=True))
            return
        a = self._operand(level, self._part(level, number, self.piece, b.k), "down")
        for j in range(0, level.group, b.n):
            rest = self._part(level, number, j, b.n, rest=True)
            c = b.broadcast(b.accumulator("C"), rest)
            b.store([b.mma(b.accumulator("R"), a, self.spread, c, "down")], rest)

    def _operand(self, level: Sweep, view: View, line: str, piece: int = 0) -> Frag:
        """Load a tile of a level, converted, as an operand."""
        # Contiguous elements have the layout of the data, others the same layout for either side;
        # a piece of one element is laid out by the distance to the next.
        name = "A" if level.step == 1 else "G"
        if level.group != self.b.k:
            name = f"{name}{piece}s{level.step}"
        return self.b.load(self.b.left(name), view, line)

    def _part(
        self,
        level: Sweep,
        number: Index,
        begin: int = 0,
        cols: int = 0,
        *,
        rest: bool = False,
        repeat: bool = False,
    ) -> View:
        """Return columns begin .. begin+cols (default: all) of a tile of a level; a group a row.

        rest: leave out the first element of each group. repeat: only the first, in every column.
        """
        b, step, cols = self.b, level.step, cols or level.group
        tile, end, bounds = b.m * level.group, level.group, []
        place = ROW * level.group + (self.first if repeat else COL + begin)
        if self.order.reverse:
            # The last row of a tile, and its last column, come first.
            offset = self.size - 1 - level.start - ((number + 1) * tile - 1) * step
            inside = Bound((number + 1) * tile - 1, place + level.count)
            end -= rest
        else:
            offset = number * (tile * step) + level.start
            inside = Bound(number * tile + place, Index.of(level.count))
            if rest and begin == 0:
                bounds.append(Bound(Index.of(0), COL))
        if begin + cols > end:
            bounds.append(Bound(COL + begin, Index.of(end)))
        if level.turns(b.m, b.options.warps) * tile > level.count:
            bounds.append(inside)
        offset += (self.first if repeat else begin) * step
        across = 0 if repeat else step
        return b.rect(self.buffer, offset, b.m, cols, level.group * step, across, bounds)

    def _scan_by_additions(self, level: Sweep, number: Index) -> None:
        """Add to each element of a group the one before it, in turn."""
        b, step = self.b, -1 if self.order.reverse else 1
        view = self._part(level, number)
        with b.loop("j", level.group - 1) as j:
            column = self.order.turn(j + 1, level.group)
            here = b.cut(view, b.m, 1, 0, column)
            b.copy(here, here, b.cut(view, b.m, 1, 0, column - step))
