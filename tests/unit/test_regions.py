"""The elements of shared memory that views touch, and whether two of them meet."""

from __future__ import annotations

import numpy as np
import pytest

from tcusim.algorithms import build
from tcusim.machine.shapes import shape_of
from tcusim.program.checks.regions import (
    MOST_ELEMENTS,
    Footprint,
    bound_symbols,
    bounds_on,
    depends_on_warp,
    footprint,
    is_shared,
    meets,
    relative_addresses,
)
from tcusim.program.grammar import (
    COL,
    ROW,
    WARP,
    WARP_COL,
    WARP_ROW,
    Assign,
    Bound,
    Buffer,
    BufferRole,
    Extent,
    Index,
    Loop,
    Program,
    Scalar,
    Space,
    View,
    When,
    accesses,
)
from tcusim.program.walk import Placement, sites

LENGTH, TURN = Index.symbol("length"), Index.symbol("i")
IN = Buffer("in", "f32", Extent(LENGTH), BufferRole.INPUT)
SHARED = Buffer("s", "f32", Extent.of(64), BufferRole.SCRATCH, Space.SHARED)
WARPS = 4


def found(
    view: View, *, loop: int | Index | None = None, when: Bound | None = None, columns: int = 1
) -> Footprint:
    """Return the footprint of a copy to a view, in a loop or a branch; `columns` of warps."""
    step: Assign | Loop | When
    step = Assign(view, View.strided(IN, Index(), view.rows, view.cols, 0, 0))
    if when is not None:
        step = When((when,), (step,))
    if loop is not None:
        step = Loop("i", Extent.of(loop), (step,))
    program = Program(
        name="by_hand",
        shape=shape_of("16x16x16"),
        ab="f16",
        acc="f32",
        scalars=(Scalar("length"),),
        buffers=(IN, SHARED),
        blocks=Extent(LENGTH, 256),
        warps=WARPS,
        warp_columns=columns,
        steps=(step,),
    )
    site = next(site for site in sites(program) if isinstance(site.step, Assign))
    return footprint(program, site, view)


def row(start: Index | int, count: int = 16, *bounds: Bound) -> View:
    return View.strided(SHARED, Index.of(start), 1, count, count, 1, bounds)


def touched(one: Footprint) -> list[int]:
    return np.flatnonzero(one.union).tolist()


def test_each_warp_touches_its_own_part() -> None:
    one = found(row(WARP * 16))
    assert (one.count, one.exact, one.complete) == (WARPS, True, True)
    assert one.columns["warp"].tolist() == [0, 1, 2, 3]
    for warp in range(WARPS):
        assert one.elements[one.places == warp].tolist() == list(range(16 * warp, 16 * warp + 16))
    assert touched(one) == list(range(64))


def test_rows_and_columns_of_warps_follow_from_their_numbers() -> None:
    one = found(row(WARP_ROW * 32 + WARP_COL * 16), columns=2)
    for warp in range(WARPS):
        assert one.elements[one.places == warp].tolist() == list(range(16 * warp, 16 * warp + 16))
    two = found(row(WARP_ROW * 16), columns=2)
    assert two.columns["warp"].tolist() == [0, 1, 2, 3]
    assert [int(two.elements[two.places == warp][0]) for warp in range(WARPS)] == [0, 0, 16, 16]


def test_bounds_of_what_is_known_cut_and_others_may() -> None:
    known = found(row(0, 16, Bound(COL + WARP * 4, Index.of(6))))
    assert [int((known.places == warp).sum()) for warp in range(WARPS)] == [6, 2, 0, 0]
    assert known.exact
    unknown = found(row(0, 16, Bound(COL, LENGTH)))
    assert touched(unknown) == list(range(16))
    assert not unknown.exact
    assert unknown.complete


def test_a_branch_leaves_out_the_other_warps() -> None:
    one = found(row(WARP * 16), when=Bound(WARP, Index.of(1)))
    assert touched(one) == list(range(16))


def test_a_loop_of_unknown_length_is_followed_until_it_leaves_the_buffer() -> None:
    assert touched(found(row(TURN * 16), loop=3)) == list(range(48))
    assert touched(found(row(TURN * 16), loop=LENGTH)) == list(range(64))


@pytest.mark.parametrize("start", [LENGTH, WARP * 2**20 + TURN])
def test_what_cannot_be_followed_touches_everything(start: Index) -> None:
    loop = None if start == LENGTH else MOST_ELEMENTS
    one = found(row(start), loop=loop)
    assert (one.count, one.complete, one.exact) == (1, False, False)
    assert touched(one) == list(range(64))


def test_warps_meet_where_their_parts_overlap() -> None:
    apart, over = found(row(WARP * 16)), found(row(WARP * 12, 16))
    assert not meets(apart, apart, {"warp": np.not_equal})
    assert meets(apart, apart, {"warp": np.equal})
    assert meets(over, over, {"warp": np.not_equal})
    assert not meets(found(row(0, 8)), found(row(8, 8)), {})


def test_symbols_of_bounds() -> None:
    bounds = (Bound(COL + WARP, Index.of(3)), Bound(ROW, LENGTH), Bound(ROW, Index.of(2)))
    assert bound_symbols(bounds) == {"col", "warp", "row", "length"}
    assert bounds_on(bounds, frozenset({"row"})) == bounds[2:]
    assert depends_on_warp(bounds)
    assert not depends_on_warp(bounds[1:])
    view = View.strided(SHARED, WARP * 16, 3, 4, 8, 1, bounds)
    assert relative_addresses(view).tolist() == [0, 1, 2, 3, 8, 9, 10, 11]


@pytest.mark.parametrize("name", ["scan_tn_block", "reduction_tn_block"])
def test_no_warp_of_a_run_touches_more(name: str) -> None:
    """All that views of a program reach in two blocks, wherever their loops and bounds are."""
    program = build(name, segment_size=1024, masked=True, warps=2)
    views = 0
    for site in sites(program):
        for view in accesses(site.step).views:
            if not is_shared(view):
                continue
            views += 1
            whole = footprint(program, site, view)
            axes = {"warp": np.arange(2), **{loop.var: np.arange(3) for loop in site.loops}}
            placement = Placement.over(axes, {"length": 2000, "block": 1})
            inside = placement.inside(view) & placement.reached(site.guards)[:, None, None]
            shape = inside.shape
            reached = np.broadcast_to(placement.addresses(view), shape)[inside]
            assert set(reached[reached < whole.union.size].tolist()) <= set(touched(whole))
    assert views > 5
