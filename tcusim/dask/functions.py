"""`sum`, `cumsum` and their segmented kin for dask arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

import dask.array as da
import numpy as np
from numpy.typing import DTypeLike

import tcusim
from tcusim.arrays.dtypes import numpy_type, real_type_of
from tcusim.arrays.fixed_point import FixedPoint, places_of, terms_of
from tcusim.arrays.home import first_terms
from tcusim.arrays.libraries import as_numpy, require_real
from tcusim.arrays.partial import (
    Operation,
    are_modular,
    carries,
    combine,
    cut_size,
    partials,
    sums_type,
    type_of_work,
)
from tcusim.arrays.segments import Segments, given_segments, require_side_by_side
from tcusim.arrays.spec import Spec, axes_of, size_of
from tcusim.call_options import (
    DEFAULTS,
    AnyOptions,
    Options,
    alone,
    options_of,
    others,
    require_bits,
)
from tcusim.errors import Given, InputError, Unsupported, require_flags

__all__ = ["cumsum", "segmented_cumsum", "segmented_sum", "sum"]

DaskArray: TypeAlias = Any
# dask's functions have no types.
_DA: Any = da

_FLOATS: Final = ("float16", "bfloat16", "float32", "float64")


def sum(
    a: DaskArray,
    *,
    axis: int | tuple[int, ...] | None = None,
    dtype: DTypeLike | None = None,
    keepdims: bool = False,
    options: AnyOptions = None,
) -> DaskArray:
    """Sum a dask array, with the bits of `tcusim.sum` for every way to cut it into chunks.

    Parameters
    ----------
    a : dask array
        Of NumPy chunks, or of CuPy's, which are computed on their GPU. Of the types that
        `tcusim.sum` takes. Chunks along the axis are cut anew where they do not end at multiples of
        `tcusim.cut_size`.
    axis : int or tuple of int, optional
        The axes to sum; None sums all elements, in the order of the flattened array.
    dtype : dtype, optional
        Type of the result; by default that of `a`, or NumPy's wide integer.
    keepdims : bool
        Keep the axes, with length 1.
    options : Options or mapping, optional
        `tile`, `arch` and `bits`, as `tcusim.Options` tells; "exact" bits are for NumPy chunks.

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
    require_flags(keepdims=keepdims)
    result = _result_type(a, dtype)
    own = _options("sum", options)
    if axis is None or isinstance(axis, tuple):
        axes = tuple(range(a.ndim)) if axis is None else axes_of("axis", axis, a.ndim)
        others = tuple(place for place in range(a.ndim) if place not in axes)
        flat = a.transpose((*others, *axes)).reshape((*(a.shape[place] for place in others), -1))
        whole = sum(flat, axis=-1, dtype=result, options=own)
        kept = tuple(1 if place in axes else size for place, size in enumerate(a.shape))
        return whole.reshape(kept) if keepdims else whole
    (axis,) = axes_of("axis", axis, a.ndim)
    is_exact = _is_exact(a, result, own)
    if 0 in a.shape:
        shape = tuple(1 if place == axis else size for place, size in enumerate(a.shape))
        zeros = da.zeros(shape, dtype=result)
        return zeros if keepdims else zeros[(slice(None),) * axis + (0,)]
    if is_exact:
        return _exact_sum(a, axis, result, keepdims=keepdims)
    a = _worked(a, result)
    totals = _partials(_cut(a, axis, "sum", own), axis, "sum", own)
    totals = totals.rechunk({axis: -1})
    # Sums of integers are integers until all are added up.
    wide = totals.dtype if totals.dtype.kind in "iu" else result
    combined = totals.map_blocks(
        partial(_combined, axis=axis, dtype=wide),
        dtype=wide,
        chunks=_with_chunks(totals, axis, (1,)),
    ).astype(result)
    return combined if keepdims else combined[(slice(None),) * axis + (0,)]


def cumsum(
    a: DaskArray,
    axis: int | None = None,
    *,
    dtype: DTypeLike | None = None,
    exclusive: bool = False,
    include_initial: bool = False,
    reverse: bool = False,
    initial: Any = None,
    options: AnyOptions = None,
) -> DaskArray:
    """Scan a dask array, with the bits of `tcusim.cumsum` for every way to cut it into chunks.

    Parameters
    ----------
    axis : int, optional
        The axis to scan; None scans the flattened array. Its chunks are cut anew to whole groups of
        the grid, ``tcusim.cut_size(dtype, "cumsum")`` elements; each is read twice.
    exclusive, include_initial, reverse : bool
        As in `tcusim.cumsum`. The initial zero is a chunk of its own.
    initial : number or array_like, optional
        As there, in the computer's memory.
    a, dtype, options
        As in `sum`.

    Returns
    -------
    dask array
        Lazy, of the shape of `a`, the axis longer by one if include_initial.

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
    if axis is None:
        a, axis = a.reshape(-1), 0
    result = _result_type(a, dtype)
    (axis,) = axes_of("axis", axis, a.ndim, several=False)
    own = _options("cumsum", options)
    order: dict[str, Any] = {"exclusive": exclusive, "reverse": reverse}
    edge = _edge("cumsum", order, include_initial, initial)
    if edge is not None:
        scans = cumsum(a, axis, dtype=result, options=own, **order)
        shape = (*a.shape[:axis], 1, *a.shape[axis + 1 :])
        zeros = _DA.zeros_like(scans, shape=shape, chunks=_with_chunks(scans, axis, (1,)))
        return _DA.concatenate([zeros, scans] if edge == "first" else [scans, zeros], axis=axis)
    is_exact = _is_exact(a, result, own)
    shape = (*a.shape[:axis], *a.shape[axis + 1 :])
    if 0 in a.shape:
        return a.astype(result)
    if is_exact:
        before = first_terms(initial, shape, np.dtype(np.float64), result)
        return _exact_scan(a, axis, result, order, before)
    if a.dtype.kind in "biu" and result.kind not in "biu":
        # Integers until the end: the prefix of a group would be rounded to the result.
        sums = cumsum(a, axis, **order, options=_of_grid(own)).astype(np.float64)
        value = first_terms(initial, shape, result, result)
        if value is not None:
            sums = sums + np.expand_dims(value.astype(np.float64), axis)
        return sums.astype(result)
    a = _worked(a, result)
    scan = partial(_scanned, axis=axis, dtype=result, options=own, **order)
    cut = _cut(a, axis, "cumsum", own)
    if cut.numblocks[axis] == 1 and initial is None:
        return cut.map_blocks(scan, dtype=result)
    groups = _partials(cut, axis, "cumsum", own, reverse=reverse)
    counts, first = groups.chunks[axis], 0
    if initial is not None:
        # As if it were the sum of a group before the first one.
        value = first_terms(initial, shape, groups.dtype, result)
        one = _DA.from_array(np.expand_dims(np.asarray(value), axis))
        groups = _DA.concatenate([groups, one] if reverse else [one, groups], axis=axis)
        first = 0 if reverse else 1
    before = groups.rechunk({axis: -1}).map_blocks(
        partial(carries, axis=axis, reverse=reverse), dtype=groups.dtype
    )
    # Each chunk begins with the prefix of its first group; in reverse of its last.
    ends = np.cumsum(counts)
    firsts = first + (ends - 1 if reverse else ends - counts)
    starts = da.take(before, firsts, axis=axis).rechunk({axis: 1})
    return _DA.map_blocks(scan, cut, starts, dtype=result, chunks=cut.chunks)


def segmented_sum(
    a: DaskArray,
    segments: int | Sequence[int] | Segments,
    *,
    axis: int = -1,
    dtype: DTypeLike | None = None,
    options: AnyOptions = None,
) -> DaskArray:
    """Sum every segment of an axis of a dask array.

    Parameters
    ----------
    segments : int, sequence of int or Segments
        The elements of each segment, offsets, or `tcusim.Segments`, as in `tcusim.segmented_sum`;
        in the computer's memory. Where ids are sorted, elements move between chunks.
    axis : int
        The axis that is made of segments. Its chunks are cut anew to whole segments, each of which
        must fit into memory.
    a, dtype, options
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
    >>> tcusim.dask.segmented_sum(x, [0, 1, 1, 8]).compute()
    array([ 0.,  0., 28.], dtype=float16)
    """
    more: dict[str, Any] = {"options": _options("segmented_sum", options)}
    given = _laid(a, axis, segments)
    return _by_segments(tcusim.segmented_sum, given, dtype, more)


def segmented_cumsum(
    a: DaskArray,
    segments: int | Sequence[int] | Segments,
    *,
    axis: int = -1,
    dtype: DTypeLike | None = None,
    exclusive: bool = False,
    include_initial: bool = False,
    reverse: bool = False,
    initial: Any = None,
    options: AnyOptions = None,
) -> DaskArray:
    """Scan every segment of an axis of a dask array.

    Parameters
    ----------
    exclusive, include_initial, reverse : bool
        As in `tcusim.segmented_cumsum`.
    initial : number or array_like, optional
        As there, in the computer's memory.
    a, segments, axis, dtype, options
        As in `segmented_sum`. With ids in any order, results lie where their elements do.

    Returns
    -------
    dask array
        Lazy, of the shape of `a`, the axis longer by the number of segments if include_initial.

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
    own = _options("segmented_cumsum", options)
    order = {"exclusive": exclusive, "reverse": reverse}
    _edge("segmented_cumsum", order, include_initial, initial)
    require_side_by_side(given_segments(segments)[1], include_initial=include_initial)
    more = {**order, "include_initial": include_initial, "options": own}
    given = _laid(a, axis, segments)
    scans = _by_segments(tcusim.segmented_cumsum, given, dtype, more, initial)
    if given.order is None:
        return scans
    return da.take(scans, np.argsort(given.order), axis=given.axis)


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


class _Laid(NamedTuple):
    """An array whose axis is made of segments, and where these begin and end.

    order: which element of the given array each one is; None if they lie as they were given.
    """

    a: DaskArray
    axis: int
    borders: Any
    order: Any


def _laid(a: DaskArray, axis: int, segments: Any) -> _Laid:
    """Return an array with the elements of each segment side by side."""
    _require(a)
    (axis,) = axes_of("axis", axis, a.ndim, several=False)
    length = a.shape[axis]
    size, by = given_segments(segments)
    if by is None:
        borders = np.append(np.arange(0, length, size_of(size, length)), length)
        return _Laid(a, axis, borders, None)
    borders, order = by.edges(length), None
    if by.sort:
        _, order = by.in_order(np.arange(length), 0)
        a = a if order is None else da.take(a, order, axis=axis)
    return _Laid(a, axis, borders, order)


def _options(function: str, given: AnyOptions) -> Options:
    """Return the options of a call, which are those of all its chunks, whenever they run."""
    own = options_of(given, f"tcusim.dask.{function}", *others("tile", "arch", "bits"))
    return alone(Options(tile=own.tile, arch=own.arch, bits=own.bits))


def _is_exact(a: DaskArray, result: np.dtype[Any], own: Options) -> bool:
    """Return whether sums are to be rounded once; those of integers are not rounded anyway.

    Nor are those of 64 bits modulo 2**64, if the result is a float.
    """
    bits = own.planned[-1]
    require_bits(bits)
    if result.kind in "biu" or (bits == "segment" and not are_modular(a.dtype, result)):
        return False
    if not isinstance(a._meta, np.ndarray):
        raise Unsupported(
            "exact sums of dask arrays are for NumPy chunks: those with ",
            Given("bits", "exact"),
            ", and those of 64-bit integers in a float type. Leave bits and dtype out, or copy the "
            "chunks to NumPy",
        )
    return True


def _result_type(a: DaskArray, dtype: DTypeLike | None) -> np.dtype[Any]:
    require_real("a", a.dtype)
    if dtype is not None:
        return numpy_type(real_type_of(dtype))
    return a.dtype if a.dtype.name in _FLOATS else sums_type(a.dtype)


def _edge(operation: str, order: dict[str, bool], include_initial: bool, initial: Any) -> Any:
    """Return the end at which scans are longer by a zero, None for neither; check the order."""
    require_flags(**order, include_initial=include_initial)
    more: dict[str, Any] = {**order, "include_initial": include_initial}
    return Spec(operation, carry=initial is not None, **more).initial


# --- Chunks ---------------------------------------------------------------------------------------


def _of_grid(own: Options) -> Options:
    return alone(Options(tile=own.tile, arch=own.arch))


def _cut(a: DaskArray, axis: int, operation: Operation, own: Options) -> DaskArray:
    """Return the array with chunks that begin on the grid, of about the sizes that they have."""
    cut = cut_size(a.dtype, operation, options=_of_grid(own))
    ends = np.cumsum(a.chunks[axis])
    return _rechunked(a, axis, [int(end + cut // 2) // cut * cut for end in ends[:-1]])


def _rechunked(a: DaskArray, axis: int, cuts: Sequence[int]) -> DaskArray:
    """Return the array with chunks along an axis that end at some of these places."""
    length = a.shape[axis]
    places = [0, *sorted({cut for cut in cuts if 0 < cut < length}), length]
    return a.rechunk({axis: tuple(end - begin for begin, end in pairwise(places))})


def _with_chunks(a: DaskArray, axis: int, chunks: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return (*a.chunks[:axis], chunks, *a.chunks[axis + 1 :])


def _partials(
    a: DaskArray,
    axis: int,
    operation: Operation,
    own: Options,
    *,
    reverse: bool = False,
) -> DaskArray:
    """Return the partial sums of all chunks."""
    cut = cut_size(a.dtype, operation, options=_of_grid(own))
    counts = tuple(-(-size // cut) for size in a.chunks[axis])
    return a.map_blocks(
        partial(partials, axis=axis, operation=operation, reverse=reverse, options=_of_grid(own)),
        dtype=sums_type(a.dtype),
        chunks=_with_chunks(a, axis, counts),
        meta=a._meta.astype(sums_type(a.dtype)),
    )


def _worked(a: DaskArray, result: np.dtype[Any]) -> DaskArray:
    """Return the array in the type of the computation."""
    return a.astype(numpy_type(type_of_work(a.dtype, result)))


def _combined(totals: Any, axis: int, dtype: Any) -> Any:
    whole: Any = combine(totals, axis=axis, dtype=dtype)
    return whole.reshape((*totals.shape[:axis], 1, *totals.shape[axis + 1 :]))


def _scanned(block: Any, initial: Any = None, *, axis: int, dtype: Any, **more: Any) -> Any:
    """Scan a chunk from its initial value."""
    if initial is not None:
        initial = initial.reshape((*block.shape[:axis], *block.shape[axis + 1 :]))
        if isinstance(initial, np.ndarray) and np.dtype(dtype).kind in "iu":
            # Sums of chunks wrap, as those of elements do.
            initial = initial.astype(dtype)
    return tcusim.cumsum(block, axis=axis, dtype=dtype, initial=initial, **more)


# --- Exact sums: those of digits, by place -------------------------------------------------------


def _exact_sum(a: DaskArray, axis: int, result: np.dtype[Any], *, keepdims: bool) -> DaskArray:
    """Sum digits chunk by chunk, then the digit sums of all chunks, and round the total."""
    total = partial(_rounded, dtype=a.dtype, result=result)
    sums = _digit_sums(a, axis).sum(axis=axis, keepdims=keepdims)
    sums = sums.rechunk({sums.ndim - 1: -1})
    return sums.map_blocks(
        total, dtype=result, drop_axis=sums.ndim - 1, meta=a._meta.astype(result)
    )


def _exact_scan(
    a: DaskArray, axis: int, result: np.dtype[Any], order: dict[str, bool], initial: Any
) -> DaskArray:
    """Scan each chunk behind numbers that come to the exact sum of those before it."""
    sums = _digit_sums(a, axis)
    turned = _DA.flip(sums, axis) if order["reverse"] else sums
    before = turned.rechunk({axis: -1}).cumsum(axis=axis) - turned.rechunk({axis: -1})
    before = _DA.flip(before, axis) if order["reverse"] else before
    before = before.rechunk({axis: 1, before.ndim - 1: -1})
    scan = partial(_exactly_scanned, axis=axis, result=result, order=order)
    names = tuple(range(a.ndim))
    given: list[Any] = [a, names, before, (*names, a.ndim)]
    if initial is not None:
        chunks = _with_chunks(a, axis, (1,))
        given += [_DA.from_array(np.expand_dims(initial, axis), chunks=chunks), names]
    return _DA.blockwise(
        scan, names, *given, concatenate=True, dtype=result,
        align_arrays=False, meta=a._meta.astype(result),
    )  # fmt: skip


def _digit_sums(a: DaskArray, axis: int) -> DaskArray:
    """Return the sums of digits of each chunk, their places along a last axis of its own."""
    count = len(places_of(a.dtype))
    return a.map_blocks(
        partial(_digits_summed, axis=axis),
        dtype=np.int64,
        new_axis=a.ndim,
        chunks=(*_with_chunks(a, axis, (1,) * a.numblocks[axis]), (count,)),
        meta=np.zeros((0,) * (a.ndim + 1), np.int64),
    )


def _digits_summed(block: Any, axis: int) -> Any:
    places = places_of(block.dtype)
    digits = FixedPoint(np.dtype(np.float64)).digits(block.reshape(-1))
    shape = tuple(1 if place == axis else size for place, size in enumerate(block.shape))
    sums = np.zeros((*shape, len(places)), np.int64)
    stacked = np.stack([digit.reshape(block.shape) for digit in digits.values()])
    totals = tcusim.sum(stacked, axis % block.ndim + 1, keepdims=True, options=DEFAULTS)
    sums[..., [places.index(place) for place in digits]] = np.moveaxis(totals, 0, -1)
    return sums


def _rounded(sums: Any, dtype: np.dtype[Any], result: np.dtype[Any]) -> Any:
    flat = sums.reshape(-1, sums.shape[-1])
    by_place = {place: flat[:, at].copy() for at, place in enumerate(places_of(dtype))}
    with np.errstate(all="ignore"):
        return FixedPoint(result).total(by_place).reshape(sums.shape[:-1])


def _exactly_scanned(
    block: Any,
    before: Any,
    initial: Any = None,
    *,
    axis: int,
    result: np.dtype[Any],
    order: dict[str, bool],
) -> Any:
    terms = np.moveaxis(terms_of(places_of(block.dtype), before.take(0, axis)), -1, axis)
    if initial is not None:
        terms = np.concatenate([initial, terms], axis=axis)
    parts = [block.astype(np.float64)]
    if are_modular(block.dtype, result):
        # float64 holds each half of an element; both are added before its sum is looked at.
        low = block & block.dtype.type(2**32 - 1)
        parts = [(block - low).astype(np.float64), low.astype(np.float64)]
    count, length = len(parts), block.shape[axis]
    shape = (*block.shape[:axis], count * length, *block.shape[axis + 1 :])
    values = [terms, np.stack(parts, axis + 1).reshape(shape)]
    if order["reverse"]:
        values.reverse()
    whole = np.concatenate(values, axis=axis)
    exact = alone(Options(bits="exact"))
    scans: Any = tcusim.cumsum(whole, axis=axis, dtype=result, options=exact, **order)
    first = 0 if order["reverse"] else terms.shape[axis]
    if order["reverse"] == order["exclusive"]:
        first += count - 1
    return scans.take(first + count * np.arange(length), axis=axis)


def _by_segments(
    function: Callable[..., Any],
    given: _Laid,
    dtype: DTypeLike | None,
    more: dict[str, Any],
    initial: Any = None,
) -> DaskArray:
    """Return the results of a function on whole segments, chunk by chunk."""
    a, axis, borders, _ = given
    result = _result_type(a, dtype)
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
    counts = tuple(len(one) - 1 for one in own)
    sizes = cut.chunks[axis]
    if function is tcusim.segmented_sum:
        sizes = counts
    elif more["include_initial"]:
        sizes = tuple(size + count for size, count in zip(sizes, counts, strict=True))
    arrays = [cut]
    if initial is not None:
        shape = (*a.shape[:axis], len(borders) - 1, *a.shape[axis + 1 :])
        before = _before_segments(initial, shape, result)
        arrays.append(_DA.from_array(before, chunks=_with_chunks(cut, axis, counts)))

    def compute(block: Any, *before: Any, block_info: Any = None) -> Any:
        place = 0 if not block_info else block_info[0]["chunk-location"][axis]
        keywords = {"initial": before[0], **more} if before else more
        return function(block, own[place], axis=axis, dtype=result, **keywords)

    return _DA.map_blocks(
        compute,
        *arrays,
        dtype=result,
        chunks=_with_chunks(cut, axis, sizes),
        meta=cut._meta.astype(result),
    )


def _before_segments(initial: Any, shape: tuple[int, ...], result: np.dtype[Any]) -> Any:
    """Return the initial values of segments, in the shape of their sums; refuse lossy ones."""
    is_whole = result.kind in "iu"
    value = first_terms(initial, shape, result if is_whole else np.dtype(np.float64), result)
    if type(initial) is int or is_whole:
        return value
    # Rounded once, where it is added.
    return np.broadcast_to(as_numpy("initial", initial), shape)
