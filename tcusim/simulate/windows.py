"""Memory of many warps, and what lies evenly in it as a view: no number for each element."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from tcusim.machine.formats import Values, unwritten_values

__all__ = ["memory_of_warps", "window"]

# Elements between the memories of neighbouring places of all warps, besides one for each warp: a
# power of two would put all of them in the same few lines of a cache.
_PADDING: Final = 16


def memory_of_warps(warps: int, size: int, dtype: str) -> Values:
    """Return memory that nothing was written to, (warps, size).

    The warps go last in memory: tiles of an mma lie so too, and what all warps do at once is then
    one long loop.
    """
    return unwritten_values((size, warps + _PADDING), dtype)[:, :warps].T


def window(
    memory: NDArray[Any],
    index: NDArray[np.int64],
    *,
    to_write: bool,
    steps: tuple[int, int] | None = None,
) -> Values | None:
    """Return the elements of a memory at these places as a view, if they lie evenly in it.

    Parameters
    ----------
    memory : array (..., size)
        The last axis is that of the places.
    index : array (W, rows, cols) of int64
        Places, all within the memory.
    to_write : bool
        Whether the view is written, so that no two of its elements may be the same.
    steps : tuple of int, optional
        From one row to the next, and from one column to the next, where that is known: to find it
        out every place is looked at.

    Returns
    -------
    array (..., W, rows, cols) or None
        None if the places are not the first one plus a multiple of each coordinate.

    Examples
    --------
    >>> window(np.arange(100), np.array([[[7, 9], [17, 19]]]), to_write=True)
    array([[[ 7,  9],
            [17, 19]]])
    >>> window(np.arange(100), np.array([[[1, 2, 4]]]), to_write=False) is None
    True
    """
    if not index.size:
        return None
    first = index[0, 0, 0]
    lines = (index[:, 0, 0] - first, index[0, :, 0] - first, index[0, 0] - first)
    every = [int(line[1]) if line.size > 1 else 0 for line in lines]
    if steps is not None:
        every[1:] = steps
    if min(every) < 0 or (to_write and not _are_apart(every, index.shape)):
        return None
    if steps is not None:
        even = bool((lines[0] == np.arange(len(index)) * every[0]).all())
    else:
        tiles, rows, cols = (
            np.arange(size) * step for size, step in zip(index.shape, every, strict=True)
        )
        even = bool((index - first == tiles[:, None, None] + rows[:, None] + cols).all())
    if not even:
        return None
    *lead, unit = memory.strides
    strides = (*lead, *(step * unit for step in every))
    shape = (*memory.shape[:-1], *index.shape)
    return as_strided(memory[..., int(first) :], shape, strides, writeable=to_write)


def _are_apart(steps: list[int], sizes: tuple[int, ...]) -> bool:
    """Whether no two elements are at the same place, as far as is plain to see."""
    reach = 0
    for step, size in sorted(zip(steps, sizes, strict=True)):
        if size > 1 and step <= reach:
            return False
        reach += step * (size - 1)
    return True
