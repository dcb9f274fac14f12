"""Packed tiles: equal arrays are there once, and rectangles are three numbers."""

from __future__ import annotations

import numpy as np

import tcusim
from tcusim.program.grammar import Buffer, Index, Space, View
from tcusim.simulate.interpreter import everywhere
from tcusim.stepper.frames import default_inputs
from tcusim.stepper.packing import Packer
from tcusim.stepper.trace_file import Packed
from tcusim.stepper.watcher import Seen


def test_equal_arrays_and_tiles_are_there_once() -> None:
    packed = Packed()
    packer = Packer(packed)
    one = np.arange(4.0).reshape(2, 2)
    kept = packer.keep(one)
    assert kept.tobytes() == one.tobytes()
    assert packer.keep(one.copy()) is kept
    seen = Seen("a", "f64", "matrix_a", "A")
    assert [packer.tile(seen, values) for values in (kept, one, one + 1)] == [0, 0, 1]
    assert len(packed.arrays) == 2
    assert packed.bytes == 2 * one.nbytes
    # What was kept does not change with what it was made of.
    one[0, 0] = 9
    assert packed.tile(0).values[0, 0] == 0


def test_rectangles_are_three_numbers_whatever_their_strides() -> None:
    program = tcusim.build("scan_256")
    buffer: Buffer = program.inputs[0]
    assert buffer.space is Space.GLOBAL
    packed = Packed()
    packer = Packer(packed)
    for down, across in ((4, 1), (1, 2), (-4, 1), (-1, -2)):
        view = View.strided(buffer, Index(), 2, 2, down, across)
        places = 20 + np.arange(2)[:, None] * down + np.arange(2) * across
        seen = Seen("src", "f16", "global", "", view, (places, everywhere((2, 2))))
        number = packer.tile(seen, np.ones((2, 2), np.float16))
        tile = packed.tile(number)
        assert packed.tiles[number].places == (20, down, across)
        assert tile.places is not None
        assert np.array_equal(tile.places, places)
        low, high = int(places.min()), int(places.max())
        assert tile.label == f"in[{low} … +{high - low + 1}]"


def test_bounds_are_kept_where_they_fail() -> None:
    program = tcusim.build("reduction_16", masked=True)
    kept = tcusim.trace(program, {"in": np.ones(250, np.float16)})
    masked = {tile.inside is not None for tile in kept.packed.tiles if tile.places is not None}
    assert masked == {True, False}
    whole = tcusim.trace(program, default_inputs(program))
    assert all(tile.inside is None for tile in whole.packed.tiles)
