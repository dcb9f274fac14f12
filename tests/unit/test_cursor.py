"""The cursor: it stays in the same part of a step, and inside its tile."""

from __future__ import annotations

import numpy as np

import tcusim
from stepped import frames
from tcusim.stepper.frames import Frame, default_inputs
from tcusim.stepper.layout import Spot
from tcusim.stepper.screen.cursor import Cursor


def all_frames(name: str, **options: str) -> list[Frame]:
    program = tcusim.build(name, **options)  # type: ignore[arg-type]
    return list(frames(program, default_inputs(program)))


def test_it_is_on_what_is_written() -> None:
    shown = all_frames("scan_256n")
    product = next(frame for frame in shown if frame.kind == "mma")
    assert Cursor().spot(product) == Spot(3, 0, 0)
    assert Cursor((3, 5)).spot(product) == Spot(3, 3, 5)
    assert Cursor((99, 99)).spot(product) == Spot(3, 15, 15)
    others = all_frames("scan_256n", combine="add")
    barrier = next(frame for frame in others if not (frame.reads or frame.writes))
    assert Cursor().spot(barrier) == Spot(0, 0, 0)


def test_it_stays_in_the_part_that_was_chosen() -> None:
    products = [frame for frame in all_frames("scan_256n") if frame.kind == "mma"]
    cursor = Cursor((2, 3))
    cursor.turn(products[0], 2)
    assert cursor.spot(products[0]) == Spot(1, 2, 3)
    assert cursor.spot(products[1]) == Spot(1, 2, 3)
    cursor.turn(products[0], -1)
    assert cursor.spot(products[0]).tile == 0
    cursor.turn(products[0], -1)
    assert cursor.spot(products[0]).tile == 3


def test_it_comes_back_from_a_small_tile() -> None:
    shown = all_frames("reduction_16")
    product = next(frame for frame in shown if frame.kind == "mma")
    row = next(frame for frame in shown if frame.writes and frame.writes[0].values.shape[0] == 1)
    cursor = Cursor((9, 4))
    assert cursor.spot(row) == Spot(len(row.reads), 0, 4)
    assert cursor.spot(product) == Spot(3, 9, 4)
    cursor.move(product, 100, -100)
    assert cursor.spot(product) == Spot(3, 15, 0)


def test_what_an_output_is_made_of() -> None:
    product = next(frame for frame in all_frames("scan_256n") if frame.kind == "mma")
    made_of = Cursor((3, 5)).related(product)
    assert {(spot.row, spot.column) for spot in made_of if spot.tile == 0} == {
        (3, k) for k in range(16)
    }
    assert {(spot.row, spot.column) for spot in made_of if spot.tile == 1} == {
        (k, 5) for k in range(16)
    }
    assert [spot for spot in made_of if spot.tile == 2] == [Spot(2, 3, 5)]
    operand = Cursor()
    operand.turn(product, 1)
    assert operand.related(product) == ()
    added = next(f for f in all_frames("scan_256n", combine="add") if f.kind == "add")
    assert Cursor((1, 2)).related(added) == (Spot(0, 1, 2), Spot(1, 1, 2))


def test_it_goes_to_what_changed() -> None:
    store = next(frame for frame in all_frames("reduction_256n") if frame.path == "11")
    places = np.argwhere(store.writes[0].changed).tolist()
    cursor = Cursor((15, 15))
    for expected in (*places, places[0]):
        assert cursor.seek(store)
        spot = cursor.spot(store)
        assert [spot.row, spot.column] == expected
    operand = Cursor()
    operand.turn(store, 1)
    assert not operand.seek(store)
