"""The one numbering of steps, and the one evaluator of addresses and bounds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tcusim
from tcusim.algorithms import algorithms
from tcusim.errors import InputError
from tcusim.program.grammar import (
    COL,
    ROW,
    Bound,
    Buffer,
    BufferRole,
    Extent,
    Gathered,
    Index,
    Loop,
    Ranges,
    Strided,
    View,
    When,
    walk,
)
from tcusim.program.walk import Placement, order_of_blocks, sites, span
from tcusim.simulate.interpreter import interpret
from tcusim.stepper.frames import default_inputs

DATA = Buffer("in", "f32", Extent(Index.symbol("length")), BufferRole.INPUT)
X, J, N = (Index.symbol(name) for name in "ijn")


@pytest.mark.parametrize("name", [row.name for row in algorithms()])
def test_sites_listings_and_events_have_the_numbers_of_walk(name: str) -> None:
    program = tcusim.build(name)
    steps = dict(walk(program.steps))
    assert {site.path: site.step for site in sites(program)} == steps
    listed = tcusim.listing(program).split("\n\n", 1)[1].splitlines()
    numbers = [line.split()[0] for line in listed if line.split()[0] != "else"]
    assert numbers == list(steps)
    # A run shares the steps of an equal program that ran before: they are equal, not the same.
    for event in itertools.islice(interpret(tcusim.build(name), default_inputs(program)), 200):
        assert steps[event.path] == event.step


def test_a_site_knows_the_loops_and_branches_around_it() -> None:
    program = tcusim.build("scan_single_pass", warps=2, columns=4)
    for site in sites(program):
        around = [path for path, _ in walk(program.steps) if site.path.startswith(f"{path}.")]
        steps = dict(walk(program.steps))
        assert [steps[path] for path in around if isinstance(steps[path], Loop)] == [*site.loops]
        whens = [path for path in around if isinstance(steps[path], When)]
        assert [guard.path for guard in site.guards] == whens


def test_addresses_and_bounds_are_those_of_the_expressions() -> None:
    bounds = (Bound(X * 3 + ROW * 2 + COL, N), Bound(Index.of(0), J + COL))
    view = View.strided(DATA, X * 5 - J + 7, 3, 4, 10, 2, bounds)
    placement = Placement.over({"i": np.arange(4), "j": np.arange(-2, 3)}, {"n": 9})
    assert placement.count == 20
    addresses = np.broadcast_to(placement.addresses(view), (20, 3, 4))
    inside = np.broadcast_to(placement.inside(view), (20, 3, 4))
    for place, row, col in np.ndindex(20, 3, 4):
        i, j = (int(placement.symbols[name][place]) for name in "ij")
        env = {"i": i, "j": j, "n": 9, "row": row, "col": col}
        assert addresses[place, row, col] == view.address.evaluate(env)
        holds = all(bound.lhs.evaluate(env) < bound.rhs.evaluate(env) for bound in bounds)
        assert inside[place, row, col] == holds
    some = np.array([3, 17])
    assert np.array_equal(placement.addresses(view, some), addresses[some])
    assert np.array_equal(placement.inside(view, some), inside[some])


@pytest.mark.parametrize("down", [True, False])
def test_gathered_rows_lie_in_their_ranges(down: bool) -> None:
    axes = (Gathered(Ranges("r", 2)), Strided(3, 2))
    view = View(DATA, X + 1, *(axes if down else axes[::-1]))
    placement = Placement.over({"i": np.arange(2)}, {})
    placement.ranges["r"] = np.array([[0, 10], [20, 30]]), np.array([[4, 12], [20, 40]])
    expected = np.array([[[1, 3, 5], [11, 13, 15]], [[22, 24, 26], [32, 34, 36]]])
    inside = np.array([[[1, 1, 0], [1, 0, 0]], [[0, 0, 0], [1, 1, 1]]], bool)
    if not down:
        expected, inside = expected.transpose(0, 2, 1), inside.transpose(0, 2, 1)
    assert np.array_equal(placement.addresses(view), expected)
    assert np.array_equal(placement.inside(view), inside)


def test_a_span_is_reached_at_the_corners() -> None:
    box = {"i": (-1, 3), "j": (0, 2)}
    assert span(X * 4 - J * 5 + 2, box) == (-12, 14)
    assert span(Index.of(7), box) == (7, 7)


def test_orders_of_blocks() -> None:
    assert order_of_blocks(4, "ascending", 0).tolist() == [0, 1, 2, 3]
    assert order_of_blocks(4, "descending", 0).tolist() == [3, 2, 1, 0]
    one, two = (order_of_blocks(100, "shuffled", seed) for seed in (1, 2))
    assert sorted(one.tolist()) == sorted(two.tolist()) == list(range(100))
    assert one.tolist() != two.tolist()
    with pytest.raises(InputError, match="block_order must be 'ascending', 'descending' or"):
        order_of_blocks(4, "up", 0)
