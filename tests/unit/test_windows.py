"""Places of the elements of a view: only regular ones are a window of memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tcusim.program.grammar import COL, ROW, WARP, Bound, Buffer, BufferRole, Extent, Index, View
from tcusim.program.walk import Placement
from tcusim.simulate.windows import Elements, OutOfBounds, Window, memory_of_warps, pitch_of_warps

SIZE = 1000
MEMORY = np.arange(SIZE)
BUFFER = Buffer("in", "s32", Extent.of(SIZE), BufferRole.INPUT)


def elements(
    offset: Index | int,
    strides: tuple[int, int],
    shape: tuple[int, int],
    *bounds: Bound,
    warps: int = 3,
    chosen: Any = None,
    pitch: int = 1,
    size: int = SIZE,
) -> Elements:
    """Return the elements of a view in some of the warps; they have a symbol of their own."""
    numbers = np.arange(warps)
    placement = Placement(warps, {"warp": numbers, "uneven": numbers**2 * 5, "less": -numbers})
    view = View.strided(BUFFER, Index.of(offset), *shape, *strides, bounds)
    places = numbers if chosen is None else np.array(chosen, int)
    return Elements.find(placement, view, places, size, pitch)


def expected(first: int, steps: tuple[int, int, int], shape: tuple[int, int, int]) -> Any:
    tiles, rows, cols = np.indices(shape)
    return first + tiles * steps[0] + rows * steps[1] + cols * steps[2]


@pytest.mark.parametrize(
    ("first", "steps", "shape"),
    [
        (0, (256, 16, 1), (3, 16, 16)),
        (5, (1, 0, 7), (4, 1, 9)),
        (9, (0, 40, 2), (1, 5, 20)),
        (999, (0, 0, 0), (1, 1, 1)),
        (3, (16, 1, 100), (6, 16, 4)),
    ],
)
def test_even_elements(first: int, steps: Any, shape: Any) -> None:
    found = elements(WARP * steps[0] + first, steps[1:], shape[1:], warps=shape[0])
    index = expected(first, steps, shape)
    assert found.shape == shape
    assert found.mask is None
    assert found.reads is not None
    np.testing.assert_array_equal(found.reads.of(MEMORY), index)
    np.testing.assert_array_equal(np.broadcast_to(found.index, shape), index)
    np.testing.assert_array_equal(found.kept, index.ravel())
    assert found.keep.all()


@pytest.mark.parametrize(
    ("offset", "strides", "chosen"),
    [
        (Index.symbol("uneven"), (16, 1), None),
        (Index.symbol("less") * 16 + 100, (16, 1), None),
        (WARP * 16, (16, 1), (0, 2, 3)),
        (200, (-16, 1), None),
        (200, (1, -16), None),
    ],
)
def test_uneven_elements(offset: Any, strides: Any, chosen: Any) -> None:
    found = elements(offset, strides, (4, 4), warps=4, chosen=chosen)
    assert found.reads is None
    assert found.writes is None
    assert not elements(WARP, (1, 1), (2, 2), chosen=()).kept.size


@pytest.mark.parametrize(
    ("steps", "apart"),
    [((256, 16, 1), True), ((1, 256, 16), True), ((16, 1, 64), True), ((8, 16, 1), False)],
)
def test_what_is_written_has_no_element_twice(steps: Any, apart: bool) -> None:
    found = elements(WARP * steps[0], steps[1:], (3, 16), warps=2)
    index = expected(0, steps, (2, 3, 16))
    assert (np.unique(index).size == index.size) or not apart
    assert (found.writes is not None) == apart
    if found.writes is not None:
        memory = np.zeros(SIZE)
        found.writes.of(memory)[...] = index + 1
        np.testing.assert_array_equal(memory[index], index + 1)


def test_what_several_warps_write_to_one_place_is_no_window() -> None:
    found = elements(7, (16, 1), (4, 4))
    assert found.reads is not None
    assert found.reads.shape == (1, 4, 4)
    assert found.writes is None
    assert elements(7, (16, 1), (4, 4), warps=1).writes is not None


def test_of_equal_rows_the_last_one_stays() -> None:
    found = elements(WARP * 16 + 5, (0, 1), (4, 16))
    assert found.writes is not None
    values = np.arange(3 * 4 * 16).reshape(3, 4, 16)
    memory, by_number = np.zeros((2, SIZE))
    found.writes.of(memory)[...] = values[:, found.rows_written]
    by_number[found.index] = values
    np.testing.assert_array_equal(memory, by_number)


def test_bounds() -> None:
    inside = Bound(WARP * 64 + ROW * 16 + COL, Index.of(100))
    found = elements(WARP * 64, (16, 1), (4, 16), inside)
    index = expected(0, (64, 16, 1), (3, 4, 16))
    np.testing.assert_array_equal(found.keep, index < 100)
    np.testing.assert_array_equal(found.index, np.where(index < 100, index, 0))
    np.testing.assert_array_equal(found.kept, np.arange(100))
    assert found.reads is None
    # A condition that always holds is no bound.
    found = elements(WARP * 64, (16, 1), (4, 16), Bound(COL, Index.of(16)))
    assert found.mask is None
    assert found.reads is not None


def test_out_of_bounds() -> None:
    with pytest.raises(OutOfBounds) as caught:
        elements(WARP * 64 - 1, (16, 1), (4, 16))
    assert (caught.value.first, caught.value.last) == (-1, 190)
    with pytest.raises(OutOfBounds) as caught:
        elements(60, (-16, 1), (5, 16), size=75)
    assert (caught.value.first, caught.value.last) == (-4, 75)
    bound = Bound(ROW, Index.of(2))
    with pytest.raises(OutOfBounds) as caught:
        elements(WARP * 64, (16, 1), (4, 16), bound, size=150)
    assert (caught.value.first, caught.value.last) == (0, 159)
    nothing = Bound(ROW, Index.of(0))
    assert not elements(WARP * 64, (16, 1), (4, 16), nothing, size=0).kept.size


@pytest.mark.parametrize("bounds", [(), (Bound(WARP * 64 + ROW * 16 + COL, Index.of(100)),)])
def test_some_warps_and_one(bounds: Any) -> None:
    for offset in (WARP * 64, Index.of(3)):
        found = elements(offset, (16, 1), (4, 16), *bounds, warps=4)
        some = found.of(np.array([True, False, True, True]))
        np.testing.assert_array_equal(some.places, [0, 2, 3])
        index = np.broadcast_to(found.index, found.shape)
        np.testing.assert_array_equal(np.broadcast_to(some.index, some.shape), index[[0, 2, 3]])
        np.testing.assert_array_equal(some.keep, found.keep[[0, 2, 3]])
        assert some.reads is None
        for at in range(4):
            own, mask = found.of_one(at)
            np.testing.assert_array_equal(own[0], index[at])
            np.testing.assert_array_equal(True if mask is None else mask[0], found.keep[at])


def test_memories_of_all_warps() -> None:
    lying, memory = memory_of_warps(5, 300, "f32")
    assert memory.shape == (5, 300)
    assert np.isnan(memory).all()
    pitch = pitch_of_warps(5)
    found = elements(20, (16, 1), (4, 8), warps=5, pitch=pitch)
    assert found.writes is not None
    seen = found.writes.of(lying)
    assert seen.shape == (5, 4, 8)
    seen[...] = np.arange(5)[:, None, None]
    index = expected(20, (0, 16, 1), (1, 4, 8))
    for warp in range(5):
        assert (memory[warp, index] == warp).all()
    assert np.isnan(memory).sum() == 5 * (300 - 32)
    # Each warp's own place in its memory, and the memories of some warps, lie unevenly.
    assert elements(WARP, (16, 1), (4, 8), warps=5, pitch=pitch).reads is None
    assert elements(20, (16, 1), (4, 8), warps=5, chosen=(1, 2), pitch=0).reads is None


def test_a_window_of_memory_that_is_read_only() -> None:
    memory = np.arange(10)
    memory.flags.writeable = False
    assert not Window(1, (1, 2, 2), (0, 4, 1)).of(memory).flags.writeable
