"""The store of frames: equal arrays are there once, and rectangles are three numbers."""

from __future__ import annotations

import numpy as np

import tcusim
from tcusim.program.grammar import Buffer, Index, Space, View
from tcusim.simulate.interpreter import everywhere
from tcusim.stepper.frames import default_inputs
from tcusim.stepper.store import FrameStore


def test_equal_arrays_and_tiles_are_there_once() -> None:
    store = FrameStore()
    one = np.arange(4.0).reshape(2, 2)
    kept = store.keep(one)
    assert kept.tobytes() == one.tobytes()
    assert store.keep(one.copy()) is kept
    head = "A", "a", "f64", "matrix_a"
    assert [store.fragment(*head, values, None) for values in (kept, one, one + 1)] == [0, 0, 1]
    assert len(store.arrays) == 2
    assert store.nbytes == 2 * one.nbytes
    # The stored copy does not change with its source.
    one[0, 0] = 9
    assert store.tile(0).values[0, 0] == 0


def test_rectangles_are_three_numbers_whatever_their_strides() -> None:
    program = tcusim.build("scan_256")
    buffer: Buffer = program.inputs[0]
    assert buffer.space is Space.GLOBAL
    store = FrameStore()
    for down, across in ((4, 1), (1, 2), (-4, 1), (-1, -2)):
        view = View.strided(buffer, Index(), 2, 2, down, across)
        places = 20 + np.arange(2)[:, None] * down + np.arange(2) * across
        where = places, everywhere((2, 2))
        number = store.memory(view, "src", where, np.ones((2, 2), np.float16), None)
        tile = store.tile(number)
        assert store.tiles[number].places == (20, down, across)
        assert tile.places is not None
        assert np.array_equal(tile.places, places)
        low, high = int(places.min()), int(places.max())
        assert tile.label == f"in[{low} … +{high - low + 1}]"


def test_bounds_are_kept_where_they_fail() -> None:
    program = tcusim.build("reduction_16", masked=True)
    kept = tcusim.trace(program, {"in": np.ones(250, np.float16)})
    masked = {tile.inside is not None for tile in kept.store.tiles if tile.places is not None}
    assert masked == {True, False}
    whole = tcusim.trace(program, default_inputs(program))
    assert all(tile.inside is None for tile in whole.store.tiles)
