"""The common parts of matrix products: their arrays, accumulators in short chains, and stages.

C = A.B + C with row-major arrays: A is rows x inner, B inner x cols, C rows x cols. The number of
rows is a scalar of the program, found from the size of A, and may be any; `inner` and `cols` are
fixed when the program is built, because an index of the grammar has no product of two scalars.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, TypeAlias

from tcusim.algorithms.builder import Builder, numbered, padded, require, stored_type
from tcusim.errors import Given
from tcusim.machine.formats import format_of
from tcusim.machine.shapes import LDM_BYTES, TILE_BYTES
from tcusim.program.grammar import COL, ROW, WARP, Bound, Buffer, Extent, Frag, Index, View

ROWS = Index.symbol("rows")


@dataclass(frozen=True, slots=True)
class Inner:
    """The parameters of every product besides its tiles.

    Attributes
    ----------
    inner : int, optional
        Columns of A. Default: four tiles.
    add_c : bool
        Add the products to an input `c`.
    """

    inner: int | None = None
    add_c: bool = False

    def size(self, b: Builder) -> int:
        """Return the columns of A."""
        return self.inner or 4 * b.k

    def arrays(self, b: Builder, cols: int) -> tuple[Buffer, Buffer, Buffer | None, Buffer]:
        """Declare A, whose size gives the scalar `rows`, B, C if there is one, and the result."""
        inner, source, result = self.size(b), b.options.source, b.options.result
        size = Extent(ROWS * cols)
        return (
            b.input("a", source, Extent(ROWS * inner)),
            b.input("b", source, Extent.of(inner * cols)),
            b.input("c", result, size) if self.add_c else None,
            b.output("out", result, size),
        )


INNER = Inner()

Cols: TypeAlias = Annotated[int | None, "Columns of B. Default: one tile, or those of one block."]


def edge(place: Index, size: int, per: int) -> list[Bound]:
    """Return the bound that keeps `place` below `size`, if pieces of `per` do not fill it."""
    return [Bound(place, Index.of(size))] if size % per else []


def rows_of_warp(warps: int, rows: int) -> tuple[int, Index, list[Bound]]:
    """Return the number of `rows` that each warp copies, its first row, and the last bound."""
    count = -(-rows // warps)
    first = WARP * count if warps > 1 else Index()
    return count, first, edge(first + ROW, rows, warps)


# --- Accumulators -----------------------------------------------------------------------------


class Sums:
    """The accumulators of a warp: down x across tiles of results, and the chains they add up.

    A tensor core truncates each product's sum, so a long chain drifts. With `accumulation_length`,
    at most that many k tiles accumulate, and their sum is added to the total by a rounded addition.
    If there are no more of them (`tiles`), they accumulate in the total itself.

    A float32 is three bf16 parts, each 2**8 times smaller than the one before, and a product of two
    is nine products of parts. All nine are taken: with the three smallest left out (A1.B2, A2.B1
    and A2.B2, up to 2**-23 of a product) a single product would be off by its last bits. The eight
    that are not A0.B0 have an accumulator of their own, where their last bits are not lost beside
    the large sum.
    """

    def __init__(self, b: Builder, tiles: int, down: int = 1, across: int = 1) -> None:
        self.b = b
        limit = b.options.accumulation_length
        self.limit = None if limit is None or limit >= tiles else limit
        places = [(i, j) for i in range(down) for j in range(across)]

        def named(name: str) -> dict[tuple[int, int], Frag]:
            several = len(places) > 1
            return {(i, j): b.accumulator(f"{name}{i}_{j}" if several else name) for i, j in places}

        self.totals = named("C")
        parts = b.options.parts > 1
        self.large = named("R") if parts or self.limit else self.totals
        self.small = named("S") if parts else {}
        # The addend to the totals at the end of a chain.
        self.apart = [
            frags for frags in (self.large, self.small) if frags and frags is not self.totals
        ]

    def start(
        self, c: Buffer | None, tile: Callable[[Buffer, int, int], View], stage: str = ""
    ) -> None:
        """Set the totals to tiles of C or, without it, to zeros."""
        b = self.b
        for place, total in self.totals.items():
            if c is None:
                b.zero(total)
                continue
            view = tile(c, *place)
            load = b.broadcast if 0 in (view.row_stride, view.col_stride) else b.load
            load(total, view, stage=stage)

    def multiply(self, place: tuple[int, int], left: Sequence[Frag], right: Sequence[Frag]) -> None:
        """Add the product of two tiles, each one operand or the parts of one."""
        for p, one in enumerate(left):
            for q, two in enumerate(right):
                d = (self.small if p + q else self.large)[place]
                self.b.mma(d, one, two, d)

    @contextmanager
    def blocked(self) -> Iterator[None]:
        """Accumulate the products inside, then add them to the totals."""
        b = self.b
        for frags in self.apart:
            for frag in frags.values():
                b.zero(frag)
        yield
        for frags in reversed(self.apart):
            for place, frag in frags.items():
                b.add(self.totals[place], self.totals[place], frag)

    def cut(self, span: int) -> bool:
        """Whether `span` k tiles, one after the other, are more than one chain."""
        return self.limit is not None and self.limit < span

    def tiles(self, count: int, span: int, body: Callable[[int], None]) -> None:
        """Run `body` for each of `count` k tiles; within `span` of them chains may have to end."""
        if not self.cut(span):
            for q in range(count):
                body(q)
            return
        limit = self.limit or count
        for first in range(0, count, limit):
            with self.blocked():
                for q in range(first, min(first + limit, count)):
                    body(q)


# --- Shared memory ----------------------------------------------------------------------------


class Stage:
    """Room in shared memory for a part of A or B, row-major: one array for each part of a type.

    width: columns of a tile. right: its tiles are right operands. own: it belongs to one warp, not
    to the block. Rows are an odd number of 16 bytes apart, so that the eight rows that
    are read together lie in different banks. Where tiles side by side would not begin at multiples
    of 32 bytes, as WMMA asks, each column of tiles is a panel of its own.
    """

    def __init__(
        self,
        b: Builder,
        name: str,
        rows: int,
        cols: int,
        width: int,
        *,
        right: bool = False,
        own: bool = False,
    ) -> None:
        dtype = stored_type(b.options.ab)
        unit = max(1, LDM_BYTES // format_of(dtype).itemsize)
        self.b = b
        self.operand = b.right if right else b.left
        self.rows = rows
        self.warps = 1 if own else b.options.warps
        self.width = width
        self.panel = cols if width * format_of(dtype).itemsize % TILE_BYTES == 0 else width
        self.panels = cols // self.panel
        units = -(-self.panel // unit)
        self.ldm = (units + 1 - units % 2) * unit
        self.size = padded(rows * self.ldm, dtype)
        parts = b.options.parts
        declare = b.scratch if own else b.shared
        names = numbered(name, parts, "_") if parts > 1 else [f"{name}_s"]
        self.buffers = [declare(one, dtype, self.panels * self.size) for one in names]

    def fill(
        self,
        source: Buffer,
        offset: Index,
        stride: int,
        inside: Callable[[Index, Index], list[Bound]],
    ) -> None:
        """Copy from global memory; inside(row, col) gives the array's bounds."""
        per_warp, row, ours = rows_of_warp(self.warps, self.rows)
        for number in range(self.panels):
            col = number * self.panel
            at = offset + row * stride + col
            bounds = [*inside(row + ROW, col + COL), *ours]
            size = (per_warp, self.panel)
            view = self.b.rect(source, at, *size, stride, 1, bounds)
            own = number * self.size + row * self.ldm
            stages = [self.b.rect(buffer, own, *size, self.ldm, 1, ours) for buffer in self.buffers]
            self.b.copy_parts(stages, view)

    def load(self, name: str, row: Index, col: Index, height: int) -> list[Frag]:
        """Load the tile at this row and column, as one operand or as its parts."""
        b = self.b
        at = row * self.ldm + col
        if self.panels > 1:
            at = row * self.ldm + _divided(col, self.width) * self.size
        return [
            b.load(self.operand(part), b.rect(buffer, at, height, self.width, self.ldm))
            for part, buffer in zip(
                numbered(name, len(self.buffers), "_"), self.buffers, strict=True
            )
        ]


def _divided(index: Index, by: int) -> Index:
    """Return an index divided by a number that divides all of its terms."""
    return Index(tuple((name, factor // by) for name, factor in index.terms), index.const // by)


# --- Loops over the inner axis ----------------------------------------------------------------


def grouped(b: Builder, sums: Sums, count: int, span: int, body: Callable[[Index], None]) -> None:
    """Run `body` for 0 .. count-1, each of `span` k tiles, in chains of as many as may be."""
    if count == 0:
        return
    cut = sums.cut(span)
    # A body that is longer than a chain makes its own, in `Sums.tiles`.
    group = count if cut or sums.limit is None else min(count, sums.limit // span)
    whole, rest = divmod(count, group)
    blocked = nullcontext if cut else sums.blocked
    with b.loop("g", whole) as g, blocked(), b.loop("i", group) as i:
        body(g * group + i)
    if rest:
        with blocked(), b.loop("j", rest) as j:
            body(j + whole * group)


class Pipeline:
    """`count` steps of `depth` k tiles: while one is multiplied, the next ones are copied.

    There is room for as many steps as there are stages. The copy of the last of these comes before
    the products of the first one, and a barrier after both. Loops are of as many steps, so that
    each has its stage.

    Where chains end follows from the numbers of steps and tiles alone, and from `chunk`, after so
    many steps of which all chains end; not from the stages. It is part of the order of additions.

    stages: at most as many as are asked for, and so many that loops have whole chains. Where chains
    have an odd number of steps, there are two, and a round of a loop has several chains.
    """

    def __init__(
        self, sums: Sums, count: int, depth: int, stages: int, chunk: int | None = None
    ) -> None:
        require(
            stages > 1,
            Given("stages"),
            " must be at least 2: while one is multiplied, another is copied",
        )
        self.b, self.sums = sums.b, sums
        self.count, self.depth = count, depth
        self.chunk = min(chunk or count, count) if sums.apart else count
        repeated = [chain.steps for chain in self._chains(self.chunk) if chain.times > 1]
        if count >= 2 * self.chunk:
            repeated.append(self.chunk)
        most = min(stages, count)
        fits = (n for n in range(most, 1, -1) if math.gcd(*repeated) % n == 0)
        self.stages = next(fits, min(2, most))

    def _chains(self, count: int) -> Iterator[_Chains]:
        """Yield the chains of so many steps, one after the other; those at the end are shorter."""
        sums, depth = self.sums, self.depth
        if not sums.apart:
            yield _Chains(count, 1, count * depth, blocked=False)
            return
        pairs = (count - 1) // 2
        rest = count - 2 * pairs
        # A step that is longer than a chain makes its own, in `Sums.tiles`.
        blocked = not sums.cut(2 * depth)
        if pairs:
            group = pairs
            if blocked and sums.limit is not None:
                group = min(pairs, sums.limit // (2 * depth))
            whole, less = divmod(pairs, group)
            yield _Chains(2 * group, whole, 2 * depth, blocked)
            if less:
                yield _Chains(2 * less, 1, 2 * depth, blocked)
        yield _Chains(rest, 1, rest * depth, not sums.cut(rest * depth))

    def start(self, fill: Callable[[int, Index], None]) -> None:
        """Copy the stages needed before the first products; fill(stage, step) copies a step."""
        for stage in range(max(1, self.stages - 1)):
            fill(stage, Index.of(stage))

    def run(
        self,
        fill: Callable[[int, Index], None],
        multiply: Callable[[Turn], None],
        wait: Callable[[], None] | None,
    ) -> None:
        """Do all steps after `start`.

        multiply(turn): use the operands of a step, and call the callbacks of its `Turn`. wait():
        makes the copies of other warps visible; None if each warp uses only its own.
        """
        ahead = self.stages - 1

        def step(first: int, number: Index, span: int) -> None:
            """Do a step, which is number `first` when a loop around it begins."""

            def copy() -> None:
                if ahead and first + ahead < self.count:
                    fill((first + ahead) % self.stages, number + ahead)

            later = (first + 1) % self.stages if first + 1 < self.count else None
            turn = Turn(first % self.stages, number, span, later, copy)
            multiply(replace(turn, wait=wait) if wait and later is not None else turn)

        def chain(first: int, number: Index, chains: _Chains) -> None:
            """Do the steps of one chain: in a loop those after which there is more to copy."""
            rounds = min(chains.steps, max(0, self.count - ahead - first)) // self.stages
            with self.sums.blocked() if chains.blocked else nullcontext():
                if rounds:
                    with self.b.loop("i", rounds) as i:
                        for turn in range(self.stages):
                            step(first + turn, number + i * self.stages + turn, chains.span)
                for turn in range(rounds * self.stages, chains.steps):
                    step(first + turn, number + turn, chains.span)

        def chunk(first: int, number: Index, count: int) -> None:
            for chains in self._chains(count):
                size = chains.steps
                self._alike(first, number, (size, chains.times, "g"), partial(chain, chains=chains))
                first, number = first + size * chains.times, number + size * chains.times

        whole, rest = divmod(self.count, self.chunk)
        self._alike(0, Index(), (self.chunk, whole, "c"), partial(chunk, count=self.chunk))
        if rest:
            chunk(whole * self.chunk, Index.of(whole * self.chunk), rest)

    def _alike(
        self,
        first: int,
        number: Index,
        of: tuple[int, int, str],
        body: Callable[[int, Index], None],
    ) -> None:
        """Do equal parts of so many steps so many times: a loop of those that copy in all steps.

        A round of it has so many parts that each begins with the same stage in every round.
        """
        size, times, var = of
        each = self.stages // math.gcd(size, self.stages)
        copying = max(0, self.count - self.stages + 1 - first) // size
        rounds = min(times, copying) // each
        looped = rounds * each if rounds > 1 else 0
        if looped:
            with self.b.loop(var, rounds) as turn:
                for one in range(each):
                    body(first + one * size, number + turn * (each * size) + one * size)
        for one in range(looped, times):
            body(first + one * size, number + one * size)


def nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One step of a pipeline.

    stage: where its operands are. step: its number. span: chains may have to end within so many k
    tiles. later: the stage of the step after it; None after the last one. copy(): copies another
    step, to where the one before this was. wait(): lets `later` be read, and this stage no more.
    """

    stage: int
    step: Index
    span: int
    later: int | None
    copy: Callable[[], None]
    wait: Callable[[], None] = nothing


@dataclass(frozen=True, slots=True)
class _Chains:
    """Equal chains, one after the other: the steps of each, and the k tiles that may be one.

    blocked: whether each is added to the totals at its end.
    """

    steps: int
    times: int
    span: int
    blocked: bool
