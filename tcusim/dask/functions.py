"""`sum`, `cumsum` and their segmented kin for dask arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final, TypeAlias

import dask.array as da
import numpy as np
from numpy.typing import DTypeLike

import tcusim
from tcusim.arrays.partial import Operation, carries, combine, cut_size, partials, sums_type
from tcusim.arrays.problem import Shape
from tcusim.errors import InputError

__all__ = ["cumsum", "segmented_cumsum", "segmented_sum", "sum"]

DaskArray: TypeAlias = Any

_DEFAULT_ARCH: Final = "hopper"
_FLOATS: Final = ("float16", "bfloat16", "float32", "float64")


def sum(
    a: DaskArray,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    keepdims: bool = False,
    tile: Shape | None = None,
    arch: str | None = None,
) -> DaskArray:
    """Sum a dask array, with the bits of `tcusim.sum` for every way to cut it into chunks.

    Parameters
    ----------
    a : dask array
        Of NumPy chunks, or of CuPy's, which are computed on their GPU. Of the types that
        `tcusim.sum` takes. Chunks along the axis are cut anew where they do not end at multiples of
        `tcusim.cut_size`.
    axis : int, optional
        The axis to sum; None sums all elements, in the order of the flattened array.
    dtype : dtype, optional
        Type of the result; by default that of `a`, or NumPy's wide integer.
    keepdims : bool
        Keep the axis, with length 1.
    tile, arch
        As in `tcusim.sum`.

    Returns
    -------
    dask array
        Lazy, of the shape of `a` without the axis.

    Raises
    ------
    InputError, Unsupported
        As `tcusim.cut_size` does, or if `a` is no dask array of a known length.

    Examples
    --------
    >>> import dask.array as da, numpy as np, tcusim.dask
    >>> x = np.random.default_rng(0).standard_normal(100_000).astype(np.float16)
    >>> sums = [tcusim.dask.sum(da.from_array(x, chunks)).compute() for chunks in (999, 70_000)]
    >>> sums[0] == sums[1] == tcusim.sum(x)
    np.True_
    """
    _require(a)
    result = _result_type(a, dtype)
    if axis is None:
        whole = sum(a.reshape(-1), axis=0, dtype=result, tile=tile, arch=arch)
        return whole.reshape((1,) * a.ndim) if keepdims else whole
    axis = _axis(a, axis)
    if a.shape[axis] == 0:
        shape = tuple(1 if place == axis else size for place, size in enumerate(a.shape))
        zeros = da.zeros(shape, dtype=result)
        return zeros if keepdims else zeros[(slice(None),) * axis + (0,)]
    totals = _partials(_cut(a, axis, "sum", tile, arch), axis, "sum", tile, arch)
    totals = totals.rechunk({axis: -1})
    combined = totals.map_blocks(
        partial(_combined, axis=axis, dtype=result),
        dtype=result,
        chunks=_with_chunks(totals, axis, (1,)),
    )
    return combined if keepdims else combined[(slice(None),) * axis + (0,)]


def cumsum(
    a: DaskArray,
    axis: int,
    *,
    dtype: DTypeLike | None = None,
    exclusive: bool = False,
    reverse: bool = False,
    tile: Shape | None = None,
    arch: str | None = None,
) -> DaskArray:
    """Scan a dask array, with the bits of `tcusim.cumsum` for every way to cut it into chunks.

    Parameters
    ----------
    axis : int
        The axis to scan. Its chunks are cut anew to whole groups of the grid,
        ``tcusim.cut_size(dtype, "cumsum")`` elements; each is read twice.
    exclusive, reverse : bool
        As in `tcusim.cumsum`.
    a, dtype, tile, arch
        As in `sum`.

    Returns
    -------
    dask array
        Lazy, of the shape of `a`.

    Raises
    ------
    InputError, Unsupported
        As `sum` does.

    Examples
    --------
    >>> import dask.array as da, numpy as np, tcusim.dask
    >>> tcusim.dask.cumsum(da.ones(5, chunks=2, dtype=np.float16), axis=0).compute()
    array([1., 2., 3., 4., 5.], dtype=float16)
    """
    _require(a)
    result, axis = _result_type(a, dtype), _axis(a, axis)
    scan = partial(
        _scanned, axis=axis, dtype=result, exclusive=exclusive, reverse=reverse, tile=tile,
        arch=arch,
    )  # fmt: skip
    if a.shape[axis] == 0:
        return a.astype(result)
    cut = _cut(a, axis, "cumsum", tile, arch)
    if cut.numblocks[axis] == 1:
        return cut.map_blocks(scan, dtype=result)
    groups = _partials(cut, axis, "cumsum", tile, arch, reverse=reverse)
    before = groups.rechunk({axis: -1}).map_blocks(
        partial(carries, axis=axis, reverse=reverse), dtype=groups.dtype
    )
    # Each chunk begins with what precedes its first group; in reverse its last.
    ends = np.cumsum(groups.chunks[axis])
    firsts = ends - 1 if reverse else ends - groups.chunks[axis]
    initial = da.take(before, firsts, axis=axis).rechunk({axis: 1})
    return da.map_blocks(scan, cut, initial, dtype=result, chunks=cut.chunks)


def segmented_sum(
    a: DaskArray,
    segment_size: int | None = None,
    *,
    offsets: Sequence[int] | None = None,
    axis: int = -1,
    dtype: DTypeLike | None = None,
    tile: Shape | None = None,
    arch: str | None = None,
) -> DaskArray:
    """Sum every segment of an axis of a dask array.

    Parameters
    ----------
    segment_size : int, optional
        Elements of a segment; the last one may be shorter.
    offsets : sequence of int, shape (segments + 1,), optional
        Instead of a size, as in `tcusim.segmented_sum`; in the computer's memory.
    axis : int
        The axis that is made of segments. Its chunks are cut anew to whole segments, each of which
        must fit into memory.
    a, dtype, tile, arch
        As in `sum`.

    Returns
    -------
    dask array
        Lazy; the axis' length is the number of segments.

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import dask.array as da, numpy as np, tcusim.dask
    >>> x = da.arange(8, chunks=3, dtype=np.float16)
    >>> tcusim.dask.segmented_sum(x, offsets=[0, 1, 1, 8]).compute()
    array([ 0.,  0., 28.], dtype=float16)
    """
    more: dict[str, Any] = {"tile": tile, "arch": arch}
    return _by_segments(tcusim.segmented_sum, a, segment_size, offsets, axis, dtype, more)


def segmented_cumsum(
    a: DaskArray,
    segment_size: int | None = None,
    *,
    offsets: Sequence[int] | None = None,
    axis: int = -1,
    dtype: DTypeLike | None = None,
    exclusive: bool = False,
    reverse: bool = False,
    tile: Shape | None = None,
    arch: str | None = None,
) -> DaskArray:
    """Scan every segment of an axis of a dask array.

    Parameters
    ----------
    exclusive, reverse : bool
        As in `tcusim.segmented_cumsum`.
    a, segment_size, offsets, axis, dtype, tile, arch
        As in `segmented_sum`.

    Returns
    -------
    dask array
        Lazy, of the shape of `a`.

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import dask.array as da, numpy as np, tcusim.dask
    >>> tcusim.dask.segmented_cumsum(da.ones(5, chunks=2), 3).compute()
    array([1., 2., 3., 1., 2.])
    """
    more = {"exclusive": exclusive, "reverse": reverse, "tile": tile, "arch": arch}
    return _by_segments(tcusim.segmented_cumsum, a, segment_size, offsets, axis, dtype, more)


# --- Arguments ------------------------------------------------------------------------------------


def _require(a: DaskArray) -> None:
    if not isinstance(a, da.Array):
        raise InputError(
            f"a must be a dask array, got {type(a).__name__}. Other arrays are for tcusim.sum and "
            "its kin; dask.array.from_array makes a dask array of one"
        )
    if any(np.isnan(size) for size in a.shape):
        raise InputError(
            "the chunks of a have unknown sizes, so nobody knows where it may be cut. Call "
            "a.compute_chunk_sizes() first"
        )


def _result_type(a: DaskArray, dtype: DTypeLike | None) -> np.dtype[Any]:
    if dtype is not None:
        return np.dtype(dtype)
    return a.dtype if a.dtype.name in _FLOATS else sums_type(a.dtype)


def _axis(a: DaskArray, axis: int) -> int:
    if not isinstance(axis, int) or not -a.ndim <= axis < a.ndim:
        raise InputError(f"axis must be within {-a.ndim}..{a.ndim - 1}, got {axis!r}")
    place: int = axis % a.ndim
    return place


# --- Chunks ---------------------------------------------------------------------------------------


def _cut(
    a: DaskArray, axis: int, operation: Operation, tile: Shape | None, arch: str | None
) -> DaskArray:
    """Return the array with chunks that begin on the grid, of about the sizes that they have."""
    cut = cut_size(a.dtype, operation, tile=tile, arch=arch or _DEFAULT_ARCH)
    ends = np.cumsum(a.chunks[axis])
    return _rechunked(a, axis, [int(end + cut // 2) // cut * cut for end in ends[:-1]])


def _rechunked(a: DaskArray, axis: int, cuts: Sequence[int]) -> DaskArray:
    """Return the array with chunks along an axis that end at some of these places."""
    length = a.shape[axis]
    places = sorted({0, length, *(cut for cut in cuts if 0 < cut < length)})
    return a.rechunk({axis: tuple(end - begin for begin, end in pairwise(places))})


def _with_chunks(a: DaskArray, axis: int, chunks: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return (*a.chunks[:axis], chunks, *a.chunks[axis + 1 :])


def _partials(
    a: DaskArray,
    axis: int,
    operation: Operation,
    tile: Shape | None,
    arch: str | None,
    *,
    reverse: bool = False,
) -> DaskArray:
    """Return the partial sums of all chunks."""
    cut = cut_size(a.dtype, operation, tile=tile, arch=arch or _DEFAULT_ARCH)
    counts = tuple(-(-size // cut) for size in a.chunks[axis])
    return a.map_blocks(
        partial(partials, axis=axis, operation=operation, reverse=reverse, tile=tile, arch=arch),
        dtype=sums_type(a.dtype),
        chunks=_with_chunks(a, axis, counts),
        meta=a._meta.astype(sums_type(a.dtype)),
    )


def _combined(totals: Any, axis: int, dtype: Any) -> Any:
    whole: Any = combine(totals, axis=axis, dtype=dtype)
    return whole.reshape((*totals.shape[:axis], 1, *totals.shape[axis + 1 :]))


def _scanned(block: Any, initial: Any = None, *, axis: int, dtype: Any, **more: Any) -> Any:
    """Scan a chunk from what precedes it."""
    if initial is not None:
        initial = initial.reshape((*block.shape[:axis], *block.shape[axis + 1 :]))
    return tcusim.cumsum(block, axis=axis, dtype=dtype, initial=initial, **more)


def _by_segments(
    function: Callable[..., Any],
    a: DaskArray,
    size: int | None,
    offsets: Sequence[int] | None,
    axis: int,
    dtype: DTypeLike | None,
    more: dict[str, Any],
) -> DaskArray:
    """Return what a function makes of whole segments, chunk by chunk."""
    _require(a)
    axis, result = _axis(a, axis), _result_type(a, dtype)
    if (size is None) == (offsets is None):
        raise InputError("give either segment_size or offsets")
    length = a.shape[axis]
    if offsets is None:
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise InputError(f"segment_size must be an integer from 1 on, got {size!r}")
        borders = np.append(np.arange(0, length, size), length)
    else:
        borders = np.asarray(offsets)
        if borders.ndim != 1 or not len(borders) or borders[0] != 0 or borders[-1] != length:
            raise InputError(f"offsets must begin with 0 and end with the axis' length, {length}")
        if (np.diff(borders) < 0).any():
            raise InputError("offsets must never decrease")
    # The nearest border of each end of a chunk; of equal ones all segments go to one side.
    ends = np.cumsum(a.chunks[axis])[:-1]
    cut = _rechunked(a, axis, [int(borders[np.searchsorted(borders, end)]) for end in ends])
    whole = np.cumsum(cut.chunks[axis])
    firsts = np.searchsorted(borders, whole - cut.chunks[axis], side="left")
    # Empty segments at the end of a chunk are the next one's, and those of the array the last's.
    lasts = np.append(firsts[1:], len(borders) - 1)
    own = [
        borders[first : last + 1] - borders[first]
        for first, last in zip(firsts, lasts, strict=True)
    ]
    is_sum = function is tcusim.segmented_sum
    counts = tuple(len(one) - 1 for one in own) if is_sum else cut.chunks[axis]

    def compute(block: Any, block_info: Any = None) -> Any:
        place = 0 if not block_info else block_info[0]["chunk-location"][axis]
        return function(block, offsets=own[place], axis=axis, dtype=result, **more)

    return cut.map_blocks(
        compute,
        dtype=result,
        chunks=_with_chunks(cut, axis, counts),
        meta=cut._meta.astype(result),
    )
