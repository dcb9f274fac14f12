"""Sums, scans and products of arrays, as NumPy has them, computed by step programs.

Results follow NumPy: the same shapes, the same result types, the last axis by default where there
are segments. Arithmetic follows the tensor core of `arch`, bit for bit. With acc="f32" (the
default) nothing is rounded to the operand type on the way, and long sums are cut into short chains
whose results are combined by rounded float32 additions. float32 is added up as it is, and
multiplied as exact bf16 parts; integers, which are exact, are computed as digits of 8 bits.

Infinities and NaN of NumPy arrays never enter the tensor core of a sum or scan, where 0*Inf = NaN
would spread them over their tile; they are put into the results where they belong.

Arrays in GPU memory (CuPy's, torch's, PyCUDA's, or any with `__cuda_array_interface__` or DLPack)
are computed on their GPU, on the current stream of their library, into arrays of the same kind.
tcusim does not read their values first; docs/gpu.md lists the consequences.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypedDict, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from tcusim.arrays.calls import run
from tcusim.arrays.libraries import (
    Array,
    HostArray,
    Kind,
    compressed_rows,
    is_foreign,
    like_array,
    only_where,
)
from tcusim.arrays.report import Report as Report
from tcusim.arrays.segments import Segments, given_segments, require_side_by_side, restored
from tcusim.arrays.spec import Call, Spec
from tcusim.call_options import AnyOptions, options_of
from tcusim.errors import InputError

Axes: TypeAlias = int | tuple[int, ...] | None


class Keywords(TypedDict, total=False):
    """The keywords that all functions take, for type checkers."""

    dtype: DTypeLike | None
    out: Any
    options: AnyOptions


class TotalKeywords(Keywords, total=False):
    """Those of sums."""

    where: Any


class CumsumKeywords(Keywords, total=False):
    """Those of scans."""

    exclusive: bool
    include_initial: bool
    reverse: bool
    initial: Any


class SegmentKeywords(Keywords, total=False):
    """Those of functions on segments."""

    axis: int


class SegmentScanKeywords(SegmentKeywords, CumsumKeywords, total=False):
    """Those of scans of segments."""


@overload
def sum(
    a: HostArray,
    axis: None = None,
    *,
    keepdims: Literal[False] = False,
    **more: Unpack[TotalKeywords],
) -> np.number[Any]: ...
@overload
def sum(
    a: HostArray,
    axis: int | tuple[int, ...],
    *,
    keepdims: bool = False,
    **more: Unpack[TotalKeywords],
) -> Array: ...
@overload
def sum(
    a: HostArray, axis: Axes = None, *, keepdims: Literal[True], **more: Unpack[TotalKeywords]
) -> Array: ...
@overload
def sum(
    a: HostArray, axis: Axes = None, *, keepdims: bool = False, **more: Unpack[TotalKeywords]
) -> np.number[Any] | Array: ...
@overload
def sum(
    a: Kind, axis: Axes = None, *, keepdims: bool = False, **more: Unpack[TotalKeywords]
) -> Kind: ...
def sum(
    a: Any,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    *,
    keepdims: bool = False,
    where: Any = None,
    options: AnyOptions = None,
) -> Any:
    """Sum an array on tensor cores, as `numpy.sum` does.

    Parameters
    ----------
    a : array_like
        float16, float32, float64, bfloat16 (ml_dtypes), any integer type or bool; any shape. Or an
        array in GPU memory, of a float type or 8-bit integers: it stays there. A tensor of torch on
        the CPU, or another library's array there, is taken as NumPy's, and the result is of its
        kind.
        float32 is added up as it is, in rounded additions, with the same bits on every
        architecture; see docs/bits.md. An `algorithm` that is named multiplies it, split into three
        bf16 parts: exactly, but that in GPU memory, where nobody looks at values, bits below
        ``2**-133`` are lost. (On Volta and Turing, which have no bf16, into three float16 parts
        after scaling by a power of two: bits ``2**39`` below the largest element of its segment are
        lost.)
    axis : int or tuple of int, optional
        Axes to sum; None sums all elements.
    dtype : dtype, optional
        Type of accumulation and result, as in NumPy: float64 computes in float64. Default: the
        type of `a`, and NumPy's wide integer for integers (in GPU memory int64; or float32, float64
        or int32, which has room for sums of 2**23).
    out : array, optional
        Where to put the result: an array of the same library, or of NumPy for arrays in the
        computer's memory, of the result's shape and type, that does not overlap `a`.
    keepdims : bool
        Keep summed axes with length 1.
    where : array_like of bool, optional
        Which elements to sum, broadcast to the shape of `a`; the others count as 0. Not in GPU
        memory.
    options : Options or mapping, optional
        How to compute and who watches, as `tcusim.Options` tells: `backend`, `tile`, `arch`, `acc`,
        `algorithm`, `bits`, `report`, `progress` and `stream`.

    Returns
    -------
    array, or a scalar if nothing is left of the shape

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import numpy as np, tcusim
    >>> float(tcusim.sum(np.arange(100, dtype=np.float16), dtype=np.float32))
    4950.0
    """
    if where is not None:
        a = only_where(a, where)
    own = options_of(options, "sum", "strategy")
    spec = Spec("sum", axis, None, dtype, keepdims, False, False, False, False, *own.planned)
    return run(spec, (a,), Call(out, own.stream, own.report, own.progress))


@overload
def cumsum(a: HostArray, axis: int | None = None, **more: Unpack[CumsumKeywords]) -> Array: ...
@overload
def cumsum(a: Kind, axis: int | None = None, **more: Unpack[CumsumKeywords]) -> Kind: ...
def cumsum(
    a: Any,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    *,
    exclusive: bool = False,
    include_initial: bool = False,
    reverse: bool = False,
    initial: Any = None,
    options: AnyOptions = None,
) -> Any:
    """Scan an array on tensor cores, as `numpy.cumsum` does.

    Parameters
    ----------
    axis : int, optional
        Axis to scan; None scans the flattened array.
    exclusive : bool
        Leave each element out of its own prefix: element i is the sum of those before i.
    include_initial : bool
        Begin with 0 and end with the sum of all, so that the axis grows by one; in reverse, the
        other way round. An `out` is then longer too, and never `a` itself.
    reverse : bool
        Sum from the end: element i is the sum of itself and those after it.
    initial : number or array_like, optional
        An addend of every sum, before the first element (in reverse, after the last): a number, or
        one for each row, of the shape of `sum` along the axis, or broadcast to it. It is
        kept in the type of the sums: float32, or float64 and the result's integer, float64 if bits
        are exact; in GPU memory an array of that type. Sums of integers take integers only, by
        type: 1 and not 1.0. A scan that is cut at certain places has the bits of the whole: see the
        notes.
    out : array, optional
        As in `sum`, but it may be `a` itself, which is then scanned in place.
    a, dtype, options
        As in `sum`.

    Returns
    -------
    array of the shape of `a` (flat if axis is None), the axis longer by one if include_initial

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Notes
    -----
    An axis may be scanned in pieces that begin at multiples of ``2**18 * k`` elements (``2**22``
    for tiles of 16x16x16), with the bits of one scan. The `initial` of each piece is then the sum
    of all such groups of elements before it, added one after the other in the type of the sums:
    after group g, ``carry = carry + tcusim.sum(g, dtype=np.float32)``. `tcusim.partials` and
    `tcusim.carries` do so, in reverse too, where rows of the grid are added from their other end.
    Cut elsewhere, the sums are rounded elsewhere.

    Examples
    --------
    >>> import numpy as np, tcusim
    >>> tcusim.cumsum(np.ones(4, np.float16), initial=10)
    array([11., 12., 13., 14.], dtype=float16)
    >>> tcusim.cumsum(np.ones(4, np.float16), include_initial=True)
    array([0., 1., 2., 3., 4.], dtype=float16)
    """
    own = options_of(options, "cumsum", "strategy")
    spec = Spec(
        "cumsum", axis, None, dtype, False, exclusive, reverse, include_initial,
        initial is not None, *own.planned,
    )  # fmt: skip
    return run(spec, (a,), Call(out, own.stream, own.report, own.progress, initial=initial))


@overload
def cumulative_sum(
    a: HostArray, *, axis: int | None = None, **more: Unpack[CumsumKeywords]
) -> Array: ...
@overload
def cumulative_sum(a: Kind, *, axis: int | None = None, **more: Unpack[CumsumKeywords]) -> Kind: ...
def cumulative_sum(a: Any, *, axis: int | None = None, **more: Any) -> Any:
    """Scan an array, as `numpy.cumulative_sum` and the array API standard do.

    Parameters
    ----------
    axis : int, optional
        Axis to scan. It may be left out for an array of one axis alone.
    a, **more
        As in `cumsum`.

    Returns
    -------
    array of the shape of `a`, the axis longer by one if include_initial

    Raises
    ------
    InputError
        If the axis is left out for an array of several, or as `cumsum` does.

    Examples
    --------
    >>> import numpy as np, tcusim
    >>> tcusim.cumulative_sum(np.ones(3, np.float16), include_initial=True)
    array([0., 1., 2., 3.], dtype=float16)
    """
    if axis is None:
        if _axes(a) != 1:
            raise InputError(
                f"cumulative_sum needs an axis for an array of {_axes(a)} axes; tcusim.cumsum "
                "scans the flattened array without one"
            )
        axis = 0
    return cumsum(a, axis=axis, **more)


def _axes(a: Any) -> int:
    return int(a.ndim) if hasattr(a, "ndim") else np.ndim(a)


@overload
def segmented_sum(a: HostArray, segments: Any = None, **more: Unpack[SegmentKeywords]) -> Array: ...
@overload
def segmented_sum(a: Kind, segments: Any = None, **more: Unpack[SegmentKeywords]) -> Kind: ...
def segmented_sum(
    a: Any,
    segments: int | ArrayLike | Segments | None = None,
    *,
    axis: int = -1,
    dtype: DTypeLike | None = None,
    out: Any = None,
    options: AnyOptions = None,
) -> Any:
    """Sum every segment of an axis on tensor cores.

    Parameters
    ----------
    segments : int, array_like of int or Segments
        The elements of each segment, at least 1 and at most the axis; if they do not divide the
        axis, the last segment is shorter. Or the offsets of segments of any lengths, as in CSR:
        segment i is elements segments[i] to segments[i+1]. Or `tcusim.Segments`, which takes
        lengths and the number of each element's segment, too, and is checked once for many calls.
        Segments by offsets have no `algorithm` to name: launches are chosen by their number and
        the longest one. Left out, `a` is a sparse matrix of SciPy or CuPy: CSR with ``axis=1``, for
        the sums of its rows, or CSC with ``axis=0``. Only the stored elements are summed.
    axis : int
        The axis that is made of segments.
    a, dtype, out, options
        As in `sum`.

    Returns
    -------
    array of the shape of `a` with the axis' length replaced by the number of segments

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import numpy as np, tcusim
    >>> tcusim.segmented_sum(np.arange(8, dtype=np.float16), 4)
    array([ 6., 22.], dtype=float16)
    >>> tcusim.segmented_sum(np.arange(8, dtype=np.float16), [0, 1, 1, 8])
    array([ 0.,  0., 28.], dtype=float16)
    >>> by_id = tcusim.Segments(ids=[0, 0, 2, 2])
    >>> tcusim.segmented_sum(np.arange(4, dtype=np.float16), by_id)
    array([1., 0., 5.], dtype=float16)
    """
    if segments is None:
        rows = compressed_rows(a, axis)
        if rows is not None:
            (a, segments), axis = rows, -1
    size, by = given_segments(segments)
    given = a
    if by is not None and by.sort:
        a, _ = by.in_order(a, axis)
    own = options_of(options, "segmented_sum", "strategy")
    spec = Spec("segmented_sum", axis, size, dtype, False, False, False, False, False, *own.planned)
    sums = run(spec, (a,), Call(out, own.stream, own.report, own.progress, by))
    return like_array(given, sums) if a is not given and out is None and is_foreign(given) else sums


@overload
def segmented_cumsum(
    a: HostArray, segments: Any = None, **more: Unpack[SegmentScanKeywords]
) -> Array: ...
@overload
def segmented_cumsum(
    a: Kind, segments: Any = None, **more: Unpack[SegmentScanKeywords]
) -> Kind: ...
def segmented_cumsum(
    a: Any,
    segments: int | ArrayLike | Segments | None = None,
    *,
    axis: int = -1,
    exclusive: bool = False,
    include_initial: bool = False,
    reverse: bool = False,
    initial: Any = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    options: AnyOptions = None,
) -> Any:
    """Scan every segment of an axis on tensor cores: prefix sums that begin anew in each.

    Parameters
    ----------
    exclusive : bool
        Leave each element out of its own prefix, so that every segment begins with 0.
    include_initial : bool
        Begin each segment with 0 and end it with its sum, so that each grows by one.
    reverse : bool
        Sum from the end of each segment: with `exclusive` or `include_initial`, each ends with 0.
    initial : number or array_like, optional
        An addend of every sum of a segment, as in `cumsum`: a number, or one for each segment, of
        the shape of `segmented_sum`, or broadcast to it.
    segments, axis
        As in `segmented_sum`. With ids in any order, results lie where their elements do.
    out : array, optional
        As in `sum`, but it may be `a` itself, which is then scanned in place.
    a, dtype, options
        As in `sum`.

    Returns
    -------
    array of the shape of `a`, the axis longer by the number of segments if include_initial

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import numpy as np, tcusim
    >>> tcusim.segmented_cumsum(np.ones(6, np.float16), 3)
    array([1., 2., 3., 1., 2., 3.], dtype=float16)
    >>> tcusim.segmented_cumsum(np.ones(6, np.float16), 3, exclusive=True)
    array([0., 1., 2., 0., 1., 2.], dtype=float16)
    >>> tcusim.segmented_cumsum(np.ones(6, np.float16), 3, reverse=True)
    array([3., 2., 1., 3., 2., 1.], dtype=float16)
    """
    size, by = given_segments(segments)
    require_side_by_side(by, include_initial=include_initial)
    sort = by if by is not None and by.sort else None
    own = options_of(options, "segmented_cumsum", "strategy")
    spec = Spec(
        "segmented_cumsum", axis, size, dtype, False, exclusive, reverse, include_initial,
        initial is not None, *own.planned,
    )  # fmt: skip
    call = Call(out, own.stream, own.report, own.progress, by, initial)
    if sort is None:
        return run(spec, (a,), call)
    values, order = sort.in_order(a, axis)
    return restored(run(spec, (values,), call._replace(out=None)), order, axis, out, a)


@overload
def matmul(a: HostArray, b: HostArray, c: Any = None, **more: Unpack[Keywords]) -> Array: ...
@overload
def matmul(a: Kind, b: Any, c: Any = None, **more: Unpack[Keywords]) -> Kind: ...
def matmul(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    out: Any = None,
    dtype: DTypeLike | None = None,
    options: AnyOptions = None,
) -> Any:
    """Multiply matrices on tensor cores, as `numpy.matmul` does: a @ b, or a @ b + c.

    Parameters
    ----------
    a, b : array_like
        float16, float32, float64, bfloat16 (ml_dtypes), any integer type or bool. The last two axes
        are matrices, the others are broadcast; one axis is a row of `a` or a column of `b`. float32
        is split into three bf16 parts, after scaling rows of `a` and columns of `b` by powers of
        two where bf16 needs it: exactly, but for bits ``2**259`` below the largest element of its
        row or column (on Volta and Turing, without bf16, into three float16 parts: ``2**39``).
        Arrays in GPU memory stay there; both are of one float type, or of 8-bit integers (with
        int32 results), and bits of float32 below ``2**-133``, which bf16 lacks, are lost.
    c : array_like, optional
        Added to the products: of the result's shape, or broadcast to it.
    out : array, optional
        Where to put the result: of the result's shape and type.
    dtype : dtype, optional
        Type of accumulation and result, as in NumPy: float64 computes in float64. Default: the
        common type of a, b and c; of integers, which are exact, NumPy's wide integer as in
        `tcusim.sum` (`numpy.matmul` would wrap around in int8).
    options : Options or mapping, optional
        As in `tcusim.sum`, without `bits`. An `algorithm` is "gemm", "gemm_naive", or for a vector
        "gemv" or "gemv_reduction"; by default the first that suits, staged in shared memory.

    Returns
    -------
    array, or a scalar if both are vectors

    Notes
    -----
    A float32 result that float32 can hold is finite, even if sums on the way are beyond its range;
    one that is too large is infinite. In float64 a sum that overflows on the way is infinite or
    NaN. In GPU memory both are so, since nobody looks at the data.

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import numpy as np, tcusim
    >>> a = np.arange(6, dtype=np.float16).reshape(2, 3)
    >>> tcusim.matmul(a, a.T)
    array([[ 5., 14.],
           [14., 50.]], dtype=float16)
    """
    return run(*_product("matmul", (a, b, c), out, dtype, options))


@overload
def matvec(a: HostArray, x: HostArray, c: Any = None, **more: Unpack[Keywords]) -> Array: ...
@overload
def matvec(a: Kind, x: Any, c: Any = None, **more: Unpack[Keywords]) -> Kind: ...
def matvec(
    a: Any,
    x: Any,
    c: Any = None,
    *,
    out: Any = None,
    dtype: DTypeLike | None = None,
    options: AnyOptions = None,
) -> Any:
    """Multiply matrices by vectors on tensor cores, as `numpy.matvec` does: a @ x, or a @ x + c.

    Parameters
    ----------
    a : array_like, shape (..., M, K)
        Matrices: their last two axes.
    x : array_like, shape (..., K)
        Vectors: their last axis. The other axes of both are broadcast.
    c : array_like, shape (..., M), optional
        Added to the products: of the result's shape, or broadcast to it.
    options : Options or mapping, optional
        As in `matmul`. An `algorithm` is "gemv_reduction" (the default), which reads the matrix
        once at the speed of memory, or "gemv", a product of matrices with a padded vector, as in
        the paper.
    out, dtype
        As in `matmul`.

    Returns
    -------
    array, shape (..., M)

    Notes
    -----
    Each product has the bits that it has alone. They are not those of a column of `matmul`, which
    adds in another order; in GPU memory, where each vector is a launch, many are faster as columns.

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import numpy as np, tcusim
    >>> tcusim.matvec(np.eye(3, dtype=np.float16), [1, 2, 3])
    array([1., 2., 3.])
    """
    return run(*_product("matvec", (a, x, c), out, dtype, options))


def _product(
    operation: str, arrays: tuple[Any, ...], out: Any, dtype: DTypeLike | None, options: AnyOptions
) -> tuple[Spec, tuple[Any, ...], Call]:
    """Return the arguments of `run` for a product."""
    own = options_of(options, operation, "bits", "strategy")
    spec = Spec.of_product(operation, dtype, own)
    return spec, arrays, Call(out, own.stream, own.report, own.progress)
