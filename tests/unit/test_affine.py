"""Proofs about affine expressions hold at every point tried, and usual bounds are proved."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest

from tcusim.machine.shapes import shape_of
from tcusim.program.checks.affine import Region, Regions
from tcusim.program.checks.writes import has_one_writer, one_writer
from tcusim.program.grammar import (
    BLOCK,
    BLOCK_COL,
    BLOCK_ROW,
    COL,
    ROW,
    WARP,
    Assign,
    Bound,
    Buffer,
    BufferRole,
    Extent,
    Index,
    Loop,
    Program,
    Scalar,
    Step,
    View,
    When,
)
from tcusim.program.walk import Placement, grid_symbols, sites

LENGTH, TURN = Index.symbol("length"), Index.symbol("i")
IN = Buffer("in", "f32", Extent(LENGTH), BufferRole.INPUT)
OUT = Buffer("out", "f32", Extent(LENGTH), BufferRole.OUTPUT, partial=True)


def program(
    *steps: Step, columns: int = 1, rows: int = 1, warps: int = 1, multiple: int = 1
) -> Program:
    return Program(
        name="affine",
        shape=shape_of("16x16x16"),
        ab="f16",
        acc="f32",
        scalars=(Scalar("length", multiple),),
        buffers=(IN, OUT),
        blocks=Extent(LENGTH, 4),
        warps=warps,
        steps=steps,
        columns=columns,
        rows=rows,
    )


class Random:
    """Small expressions and conditions."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)

    def index(self, names: tuple[str, ...]) -> Index:
        used = self.choose.sample(names, self.choose.randint(1, min(3, len(names))))
        total = Index.of(self.choose.randint(-6, 6))
        for name in used:
            total = total + Index.symbol(name) * self.choose.choice((-4, -2, -1, 1, 2, 3, 4))
        return total

    def region(self) -> Region:
        names = ("a", "b", "c", "n")
        low = {name: self.choose.randint(-2, 1) for name in names}
        box = {name: (low[name], float(low[name] + self.choose.randint(0, 4))) for name in low}
        box["n"] = low["n"], math.inf
        conditions = tuple(self.index(names) for _ in range(self.choose.randint(0, 3)))
        return Region(box, conditions, {})


def values(region: Region) -> list[dict[str, int]]:
    """Return all values in a region; unlimited symbols go up to 12."""
    ranges = [
        range(low, (12 if high == math.inf else int(high)) + 1) for low, high in region.box.values()
    ]
    every = (dict(zip(region.box, chosen, strict=True)) for chosen in itertools.product(*ranges))
    return [one for one in every if all(c.evaluate(one) <= 0 for c in region.conditions)]


@pytest.mark.parametrize("seed", range(60))
def test_what_is_proved_holds(seed: int) -> None:
    draw = Random(seed)
    region = draw.region()
    inside = values(region)
    assert not (region.empty and inside)
    for _ in range(12):
        index = draw.index(("a", "b", "c", "n"))
        most = max((int(index.evaluate(one)) for one in inside), default=0)
        for limit in (most - 1, most, most + 3):
            if region.never_exceeds(index, limit):
                assert all(index.evaluate(one) <= limit for one in inside)


def test_bounds_of_ragged_tiles_are_proved() -> None:
    """256 elements a block, masked; and whole ones, of a length that is a multiple."""
    view = View.strided(IN, BLOCK * 4, 2, 2, 2, 1, (Bound(BLOCK * 4 + ROW * 2 + COL, LENGTH),))
    (site,) = sites(program(Assign(view, view)))
    (region,) = Regions(program()).around(site, view)
    assert region.never_exceeds(view.address - LENGTH, -1)
    assert not region.never_exceeds(view.address - LENGTH, -2)
    whole = View.strided(IN, BLOCK * 4, 2, 2, 2, 1)
    for multiple, proved in ((4, True), (8, True), (2, False), (1, False)):
        made = program(Assign(whole, whole), multiple=multiple)
        (region,) = Regions(made).around(sites(made)[0], whole)
        assert region.never_exceeds(whole.address - LENGTH, -1) == proved


def test_the_other_branch_is_all_that_the_first_leaves() -> None:
    both = (Bound(BLOCK, Index.of(2)), Bound(WARP, Index.of(1)))
    copy = Assign(View.strided(OUT, Index(), 1, 1, 1, 1), View.strided(IN, Index(), 1, 1, 1, 1))
    made = program(When(both, (), (copy,)), warps=2)
    boxes = [region.box for region in Regions(made).around(sites(made)[1])]
    low = [(box["block"][0], box["warp"][0]) for box in boxes]
    assert low == [(2, 0), (0, 1)]


def test_rows_of_two_warps_are_not_the_same_rows() -> None:
    """Block 0 writes out[0] for row 6, and block 1 for row 2: both are the last element."""
    place = BLOCK * 4 + ROW
    last = (Bound(place, LENGTH), Bound(LENGTH, place + 2))
    view = View.strided(OUT, Index(), 8, 1, 0, 1, last)
    made = program(Assign(view, View.strided(IN, Index(), 8, 1, 0, 0)))
    assert not has_one_writer(made)
    # Of the block alone, this is the last block, and it is one.
    guard = (Bound(BLOCK * 4, LENGTH), Bound(LENGTH, BLOCK * 4 + 5))
    first = View.strided(OUT, Index(), 1, 1, 1, 1)
    assert has_one_writer(program(When(guard, (Assign(first, first),))))


def test_a_turn_that_is_the_first_in_one_branch_alone() -> None:
    """In iteration 1 block 0 writes out[4], and so does block 1 in iteration 0."""
    own, both = (
        View.strided(OUT, place, 1, 1, 1, 1, (Bound(place, LENGTH),))
        for place in (BLOCK * 4 + TURN, BLOCK * 4 + TURN * 4)
    )
    first = When((Bound(TURN, Index.of(1)),), (Assign(own, own),))
    other = When((Bound(BLOCK, Index.of(1)),), (Assign(both, both),))
    made = program(Loop("i", Extent.of(2), (first, other)))
    assert not has_one_writer(made)
    assert len(list(one_writer(made))) == 1


def random_writes(seed: int) -> Program:
    """Return a program that writes one rectangle in a loop, or two in two branches."""
    choose = random.Random(seed)
    columns, warps, turns = (choose.choice((1, 1, 2, 3)) for _ in range(3))
    of_blocks = choose.choice((1, 1, 2, 3))
    place = BLOCK * choose.choice((4, 6, 8, 12, 24)) + WARP * choose.choice((0, 1, 2, 4, 6))
    place = place + BLOCK_COL * choose.choice((0, 2, 4, 12)) + TURN * choose.choice((0, 2, 4))
    if of_blocks > 1:
        place = place + BLOCK_ROW * choose.choice((0, 2, 4, 12))
    rows, cols = choose.choice(((1, 1), (1, 4), (2, 2), (2, 3)))
    view = View.strided(OUT, place, rows, cols, choose.choice((1, 2, 4)), 1)
    bounds = [Bound(view.address, LENGTH)]
    if choose.random() < 0.4:
        within = view.address - BLOCK * view.address.coefficient("block")
        bounds.append(Bound(within, Index.of(choose.choice((4, 6, 8)))))
    view = View(OUT, view.offset, view.row_axis, view.col_axis, tuple(bounds))
    step: Step = Assign(view, View.strided(IN, Index(), rows, cols, 0, 0))
    if choose.random() < 0.3:
        step = When((Bound(choose.choice((WARP, BLOCK_COL)), Index.of(1)),), (step,))
    loop = Loop("i", Extent.of(turns), (step,))
    return program(loop, columns=columns, rows=of_blocks, warps=warps)


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_programs_proved_to_have_one_writer_have_one(first: int) -> None:
    proved = refuted = 0
    for seed in range(first, first + 50):
        made = random_writes(seed)
        shared = any(has_two_writers(made, length) for length in (1, 3, 4, 9, 16, 33))
        if has_one_writer(made):
            proved += 1
            assert not shared, seed
        elif list(one_writer(made)):
            refuted += 1
    assert proved > 5
    assert refuted > 5


def has_two_writers(made: Program, length: int) -> bool:
    """Look at every element that every warp writes."""
    site = sites(made)[-1]
    assert isinstance(site.step, Assign)
    warps = np.arange(made.grid({"length": length}) * made.warps)
    owner: dict[int, int] = {}
    for turn in range(site.loops[0].count.constant or 0):
        placement = Placement(
            warps.size, {"length": length, "i": turn, **grid_symbols(made, warps)}
        )
        shape = (warps.size, site.step.dst.rows, site.step.dst.cols)
        index = np.broadcast_to(placement.addresses(site.step.dst), shape)
        used = placement.inside(site.step.dst) & placement.reached(site.guards)[:, None, None]
        for warp, *place in np.argwhere(np.broadcast_to(used, shape)).tolist():
            if owner.setdefault(int(index[warp, place[0], place[1]]), warp) != warp:
                return True
    return False
