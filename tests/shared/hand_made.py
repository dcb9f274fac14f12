"""Small correct programs of random shape and random constants: bases of planted faults."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tcusim.machine.shapes import shape_of
from tcusim.program.grammar import (
    BLOCK,
    COL,
    ROW,
    WARP,
    Assign,
    Await,
    Bound,
    Buffer,
    BufferRole,
    Extent,
    Formula,
    Index,
    Loop,
    Operation,
    Prefix,
    Program,
    Publish,
    Scalar,
    Scope,
    Space,
    Step,
    Sync,
    View,
    When,
    split,
)

LENGTH = Index.symbol("length")
ITERATION = Index.symbol("i")
Rng = np.random.Generator


def scratch(name: str, size: int, space: Space, dtype: str = "f32") -> Buffer:
    return Buffer(name, dtype, Extent.of(size), BufferRole.SCRATCH, space)


class Small:
    """The sizes of one program: its blocks' elements are `turns` x `warps` x `cols`."""

    def __init__(self, rng: Rng) -> None:
        self.warps = int(rng.integers(1, 4))
        self.cols = int(rng.choice((5, 8, 16)))
        self.turns = int(rng.integers(1, 4))
        self.per = self.warps * self.cols * self.turns
        self.data = Buffer("in", "f32", Extent(LENGTH), BufferRole.INPUT)
        self.out = Buffer("out", "f32", Extent(LENGTH), BufferRole.OUTPUT)
        self.buffers = [self.data, self.out]

    def part(self, buffer: Buffer, warp: Index, turn: Index) -> View:
        """Return the view of a warp in one iteration, in bounds."""
        place = BLOCK * self.per + turn * (self.warps * self.cols) + warp * self.cols
        inside = Bound(place + COL, LENGTH)
        return View.strided(buffer, place, 1, self.cols, self.cols, 1, (inside,))

    def row(self, buffer: Buffer, offset: Index | int = 0, count: int | None = None) -> View:
        """Return a row of shared memory."""
        cols = count or self.cols
        return View.strided(buffer, Index.of(offset), 1, cols, cols, 1)

    def looped(self, body: tuple[Step, ...]) -> tuple[Step, ...]:
        """Return the turns."""
        return (Loop("i", Extent.of(self.turns), body),)

    def program(self, name: str, *steps: Step) -> Program:
        """Return the whole."""
        return Program(
            name=name,
            shape=shape_of("16x16x16"),
            ab="f16",
            acc="f32",
            scalars=(Scalar("length"),),
            buffers=tuple(self.buffers),
            blocks=Extent(LENGTH, self.per),
            warps=self.warps,
            steps=steps,
        )


def through_shared(rng: Rng) -> Program:
    """Return a copy through memory of the block: warps read the writes of others."""
    s = Small(rng)
    tile = scratch("tile", s.warps * s.cols, Space.SHARED)
    s.buffers.append(tile)
    other = WARP if rng.random() < 0.3 else WARP * -1 + (s.warps - 1)
    body = (
        Assign(s.row(tile, WARP * s.cols), s.part(s.data, WARP, ITERATION)),
        Sync(Scope.BLOCK),
        Assign(s.part(s.out, other, ITERATION), s.row(tile, other * s.cols)),
        Sync(Scope.BLOCK),
    )
    return s.program("through_shared", *s.looped(body))


def through_turns(rng: Rng) -> Program:
    """Return a copy: its iterations fill memory first, and are written out afterwards."""
    s = Small(rng)
    space = Space.WARP if rng.random() < 0.5 else Space.SHARED
    whole = s.turns * s.cols * (s.warps if space is Space.SHARED else 1)
    tile = scratch("tile", whole, space)
    s.buffers.append(tile)
    own = ITERATION * s.cols + (WARP * (s.turns * s.cols) if space is Space.SHARED else 0)
    return s.program(
        "through_turns",
        *s.looped((Assign(s.row(tile, own), s.part(s.data, WARP, ITERATION)),)),
        Sync(Scope.WARP),
        *s.looped((Assign(s.part(s.out, WARP, ITERATION), s.row(tile, own)),)),
    )


def in_branches(rng: Rng) -> Program:
    """Return a copy in two ways, told by the block, the warp, the turn or the length."""
    s = Small(rng)
    border = int(rng.integers(1, 5))
    told = (
        Bound(BLOCK, Index.of(border)),
        Bound(WARP, Index.of(min(border, s.warps))),
        Bound(ITERATION, Index.of(min(border, s.turns))),
        Bound(LENGTH, Index.of(border * s.per + int(rng.integers(s.per)))),
        Bound(BLOCK * s.per + border, LENGTH),
    )[rng.integers(5)]
    cut = int(rng.integers(1, s.cols))
    whole = s.part(s.out, WARP, ITERATION)
    left = View.strided(s.out, whole.offset, 1, cut, cut, 1, whole.bounds)
    bounds = tuple(Bound(bound.lhs + cut, bound.rhs) for bound in whole.bounds)
    right = View.strided(s.out, whole.offset + cut, 1, s.cols - cut, s.cols, 1, bounds)
    given = s.part(s.data, WARP, ITERATION)
    first = View.strided(s.data, given.offset, 1, cut, cut, 1, given.bounds)
    second = View.strided(s.data, given.offset + cut, 1, s.cols - cut, s.cols, 1, bounds)
    halves = (Assign(left, first), Assign(right, second))
    body = When((told,), (Assign(whole, given),), halves)
    return s.program("in_branches", *s.looped((body,)))


def computed(rng: Rng) -> Program:
    """Return a program that splits, maps and adds up rows in memory of a warp."""
    s = Small(rng)
    parts = tuple(scratch(f"part{n}", 2 * s.cols, Space.WARP, "bf16") for n in range(3))
    tile, sums = (scratch(name, s.cols, Space.WARP) for name in ("tile", "sums"))
    total = scratch("total", 2, Space.WARP)
    s.buffers += [*parts, tile, sums, total]
    at = int(rng.integers(0, s.cols))
    body = (
        split(tuple(s.row(p, at) for p in parts), s.part(s.data, WARP, ITERATION)),
        Sync(Scope.WARP),
        Assign(
            s.row(tile),
            Formula(
                Operation.PLUS,
                (s.row(parts[0], at), Formula(Operation.TIMES, (s.row(parts[1], at), 2.0))),
            ),
        ),
        Sync(Scope.WARP),
        Prefix(s.row(sums), s.row(tile), s.row(total, int(rng.integers(2)), 1)),
        Sync(Scope.WARP),
        Assign(s.part(s.out, WARP, ITERATION), s.row(sums)),
        Sync(Scope.WARP),
    )
    return s.program("computed", *s.looped(body))


def chained(rng: Rng) -> Program:
    """Return a program: blocks publish words and await those of some earlier blocks."""
    s = Small(rng)
    words = int(rng.integers(1, 4))
    back = int(rng.integers(1, 4))
    # As many as blocks have, and no fewer for a block that is not full.
    count = Extent(LENGTH * words + (words - 1) * s.per, s.per)
    status = Buffer("words", "f32", count, BufferRole.STATUS)
    own = rng.random() < 0.5
    tile = scratch("tile", words, Space.WARP if own else Space.SHARED)
    before = scratch("before", back * words, Space.WARP)
    s.buffers += [status, tile, before]
    first = Bound(WARP, Index.of(1))
    inside = Bound(BLOCK * s.per + COL * 0, LENGTH)
    given = View.strided(s.data, BLOCK * s.per, 1, words, 1, 0, (inside,))
    publish = Publish(s.row(status, BLOCK * words, words), s.row(tile, 0, words))
    row = View.strided(
        status,
        (BLOCK - back) * words,
        back,
        words,
        words,
        1,
        (Bound(Index.of(back - 1), BLOCK + ROW),),
    )
    there = View.strided(before, Index(), back, words, words, 1)
    waiting: tuple[Step, ...] = (Await(there, row), Sync(Scope.WARP))
    if rng.random() < 0.5:
        waiting = (When((Bound(Index.of(0), BLOCK),), (Await(there, row), Sync(Scope.WARP))),)
    out = s.part(s.out, WARP, ITERATION)
    fill = (Assign(s.row(tile, 0, words), given), Sync(Scope.WARP))
    # Where each warp has a tile, one of them publishes its own.
    giving: tuple[Step, ...] = (When((first,), (*fill, publish)),)
    if own:
        giving = (*fill, When((first,), (publish,)))
    steps: tuple[Step, ...] = (
        *giving,
        *waiting,
        *s.looped((Assign(out, s.part(s.data, WARP, ITERATION)),)),
    )
    return s.program("chained", *steps)


MAKERS: tuple[Callable[[Rng], Program], ...] = (
    through_shared,
    through_turns,
    in_branches,
    computed,
    chained,
)
