"""What lies evenly in memory is a view of it, and nothing else is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tcusim.simulate.windows import memory_of_warps, window

MEMORY = np.arange(1000)


def places(first: int, steps: tuple[int, int, int], shape: tuple[int, int, int]) -> Any:
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
def test_even_places(first: int, steps: Any, shape: Any) -> None:
    index = places(first, steps, shape)
    for known in (None, steps[1:]):
        seen = window(MEMORY, index, to_write=False, steps=known)
        assert seen is not None
        np.testing.assert_array_equal(seen, index)
        assert not seen.flags.writeable


def test_uneven_places() -> None:
    index = places(0, (256, 16, 1), (3, 16, 16))
    for at in ((2, 0, 0), (1, 5, 5), (0, 0, 15)):
        moved = index.copy()
        moved[at] += 1
        assert window(MEMORY, moved, to_write=False) is None
    moved = index.copy()
    moved[2] += 1
    assert window(MEMORY, moved, to_write=False, steps=(16, 1)) is None
    assert window(MEMORY, index[::-1], to_write=False) is None
    assert window(MEMORY, index[:0], to_write=False) is None


@pytest.mark.parametrize(
    ("steps", "apart"),
    [((256, 16, 1), True), ((1, 256, 16), True), ((16, 1, 64), True), ((8, 16, 1), False)],
)
def test_what_is_written_has_no_element_twice(steps: Any, apart: bool) -> None:
    index = places(0, steps, (2, 3, 16))
    assert (np.unique(index).size == index.size) or not apart
    memory = np.zeros(1000)
    seen = window(memory, index, to_write=True)
    assert (seen is not None) == apart
    if seen is not None:
        seen[...] = index + 1
        np.testing.assert_array_equal(memory[index], index + 1)


def test_memories_of_all_warps() -> None:
    memory = memory_of_warps(5, 300, "f32")
    assert memory.shape == (5, 300)
    assert np.isnan(memory).all()
    index = places(20, (0, 16, 1), (1, 4, 8))
    seen = window(memory, index, to_write=True)
    assert seen is not None
    assert seen.shape == (5, 1, 4, 8)
    seen[...] = np.arange(5)[:, None, None, None]
    for warp in range(5):
        assert (memory[warp, index] == warp).all()
    assert np.isnan(memory).sum() == 5 * (300 - 32)
