"""Sums and scans in pieces: partial results of pieces, and their combination.

A segment lies on a grid that is counted from its beginning, with fixed trees above it. A piece that
begins and ends on the grid therefore has partial results that belong to the whole, whoever computed
them and where. Put together here, they give the bits of one call.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from tcusim.algorithms.rows import CHUNK_PANELS, GROUP_CHUNKS, PANEL_ROWS, ROW_TILES
from tcusim.arrays.dtypes import FLOATS, numpy_type, real_type_of, types_on_host
from tcusim.arrays.functions import segmented_sum
from tcusim.arrays.libraries import as_numpy, library_of, like_array
from tcusim.arrays.problem import tile_for
from tcusim.arrays.spec import Spec
from tcusim.call_options import AnyOptions, Options, alone, options_of, others
from tcusim.errors import InputError, require_flags, require_names, told
from tcusim.machine import arch_of
from tcusim.machine.formats import array_name_of

Operation: TypeAlias = Literal["sum", "cumsum"]

_DEFAULT_ARCH: Final = "hopper"


def cut_size(
    dtype: DTypeLike,
    operation: Operation = "sum",
    *,
    options: AnyOptions = None,
) -> int:
    """Return the number of elements at whose multiples an axis may be cut into pieces.

    Parameters
    ----------
    dtype : dtype
        Of the elements.
    operation : {"sum", "cumsum"}
        Operation on them: a scan is cut at groups, which are longer.
    options : Options or mapping, optional
        `tile` and `arch`, as `tcusim.Options` tells.

    Returns
    -------
    int
        Elements, a power of two: a chunk of the grid, 8,192 with k = 16, or for scans a group,
        4,194,304.

    Raises
    ------
    InputError
        If there is no such type or operation.

    Examples
    --------
    >>> import tcusim
    >>> tcusim.cut_size("float16"), tcusim.cut_size("float16", "cumsum")
    (8192, 4194304)
    """
    own = options_of(options, "cut_size", *others("tile", "arch"))
    if not isinstance(operation, str) or operation not in ("sum", "cumsum"):
        raise InputError(f"operation must be 'sum' or 'cumsum', got {told(operation)}")
    return _tile_columns(dtype, own) * (
        ROW_TILES * PANEL_ROWS * CHUNK_PANELS * (GROUP_CHUNKS if operation == "cumsum" else 1)
    )


def _tile_columns(dtype: DTypeLike, own: Options) -> int:
    """Return the elements that a tile has of a row of the grid: its k."""
    require_names(arch=own.arch)
    arch = _DEFAULT_ARCH if own.arch is None else own.arch
    rule = types_on_host(Spec("sum"), real_type_of(dtype), arch_of(arch).name)
    return tile_for(rule.types, own.tile).k


def sums_type(dtype: DTypeLike) -> np.dtype[Any]:
    """Return the type in which sums of elements of a type are added: that of partial results."""
    name = array_name_of(dtype)
    if name not in FLOATS:
        return np.dtype(np.uint64 if np.dtype(name).kind == "u" else np.int64)
    return np.dtype(np.float64 if name == "float64" else np.float32)


def are_modular(given: DTypeLike, result: DTypeLike) -> bool:
    """Return whether partial sums are modulo 2**64, but the result is not: it is a float."""
    name, wanted = array_name_of(given), array_name_of(result)
    return name not in FLOATS and np.dtype(name).itemsize == 8 and wanted in FLOATS


def type_of_work(given: DTypeLike, result: DTypeLike) -> str:
    """Return the type to which pieces are cast before anything, for results of a type.

    float64, as the elements' type or the result's, is that of the whole computation, as in NumPy.
    """
    return types_on_host(Spec("sum", dtype=result), array_name_of(given), _DEFAULT_ARCH).work


def partials(
    a: Any,
    *,
    axis: int = -1,
    operation: Operation = "sum",
    reverse: bool = False,
    options: AnyOptions = None,
) -> Any:
    """Return the partial sums of a piece: one for each cut.

    Parameters
    ----------
    a : array_like
        A piece of an axis that begins at a multiple of `cut_size` of the whole, and ends at one, or
        with the whole. Arrays in GPU memory stay there.
    axis : int
        The axis that is cut.
    operation : {"sum", "cumsum"}
        Operation that the partial sums are for.
    reverse : bool
        For a scan from the end, which takes the two tiles of each row of the grid in turn from the
        last on.
    options : Options or mapping, optional
        `tile`, `arch` and `backend`, as `tcusim.Options` tells.

    Returns
    -------
    array
        Of the shape of `a`, the axis' length divided by `cut_size`; of the type in which sums are
        added: float32, float64 or an integer of 64 bits.

    Raises
    ------
    InputError, Unsupported
        As `cut_size` and `tcusim.segmented_sum` do.

    Examples
    --------
    >>> import numpy as np, tcusim
    >>> x = np.random.default_rng(0).standard_normal(100_000).astype(np.float16)
    >>> pieces = x[:8192], x[8192:65536], x[65536:]
    >>> sums = np.concatenate([tcusim.partials(piece) for piece in pieces])
    >>> tcusim.combine(sums) == tcusim.sum(x, dtype=np.float32)
    np.True_
    """
    given_options = options_of(options, "partials", *others("tile", "arch", "backend"))
    own = Options(given_options.backend, given_options.tile, given_options.arch)
    require_names(arch=own.arch, backend=own.backend)
    require_flags(reverse=reverse)
    a = _array("a", a, axis)
    dtype = a.dtype
    of_grid = alone(Options(tile=own.tile, arch=own.arch))
    cut = cut_size(dtype, operation, options=of_grid)
    length = a.shape[axis]
    if length == 0:
        raise InputError("a piece without elements has no partial sums; leave it out")
    given: Any = a
    if reverse:
        given = _swapped(a, axis, _tile_columns(dtype, own))
        length = given.shape[axis]
    wide = sums_type(dtype)
    return segmented_sum(given, min(cut, length), axis=axis, dtype=wide, options=alone(own))


def _swapped(a: Any, axis: int, k: int) -> Any:
    """Return an array in which the two tiles of each row change places; zeros fill the last row."""
    rows = _moved(a, axis)
    row = ROW_TILES * k
    missing = -rows.shape[0] % row
    if missing:
        zeros = library_of(rows).zeros_like(rows[:1])
        rows = _joined([rows, *([zeros] * missing)])
    tiles = rows.reshape((rows.shape[0] // row, ROW_TILES, k, *rows.shape[1:]))
    turned = library_of(rows).stack([tiles[:, place] for place in reversed(range(ROW_TILES))], 1)
    return _moved_back(turned.reshape(rows.shape), axis)


def combine(partials: Any, *, axis: int = -1, dtype: DTypeLike | None = None) -> Any:
    """Return the sum whose partial sums these are, all of them in their order.

    Parameters
    ----------
    partials : array
        The results of `partials` for all pieces, end to end.
    axis : int
        The axis of the cuts.
    dtype : dtype, optional
        Type of the result: that which `tcusim.sum` of the whole was to have. By default that of the
        partial sums, which those of integers keep: cast the result.

    Returns
    -------
    array
        Of the shape of `partials` without the axis; the bits of `tcusim.sum` of the whole.

    Raises
    ------
    InputError
        If there are no partial sums, or if they are no parts of a sum in `dtype`.

    Examples
    --------
    >>> import numpy as np, tcusim
    >>> float(tcusim.combine(np.array([1, 2, 3], np.float32)))
    6.0
    """
    values = _array("partials", partials, axis)
    if dtype is not None and values.dtype == np.float32 and array_name_of(dtype) == "float64":
        raise InputError(
            "sums of float32 are no parts of a sum in float64: cast the pieces to float64 before "
            "tcusim.partials"
        )
    if dtype is not None and are_modular(values.dtype, dtype):
        raise InputError(
            f"sums of integers are modulo 2**64, and no parts of a sum in {array_name_of(dtype)}. "
            "If the whole sum fits 64 bits, leave dtype out and cast the result; else sum with "
            "tcusim.sum, or tcusim.dask.sum, which are exact"
        )
    if values.shape[axis] == 0:
        raise InputError("there are no partial sums to combine")
    # Along the first axis, so that a pair is a slice.
    values = _moved(values, axis)
    with np.errstate(over="ignore", invalid="ignore"):
        while values.shape[0] > 1:
            even = values.shape[0] // 2 * 2
            pairs = values[:even:2] + values[1:even:2]
            values = pairs if even == values.shape[0] else _joined([pairs, values[even:]])
    result = values[0]
    return result if dtype is None else _cast(result, dtype)


def carries(partials: Any, *, axis: int = -1, reverse: bool = False) -> Any:
    """Return the initial value of each group of a scan: the sum of all groups before it.

    Parameters
    ----------
    partials : array
        The results of ``partials(..., operation="cumsum")`` for all pieces, end to end.
    axis : int
        The axis of the groups.
    reverse : bool
        For a scan from the end: return the sum of the groups after each.

    Returns
    -------
    array
        Of the shape of `partials`: for a piece, the value of its first group (in reverse, of its
        last) is the `initial` of ``tcusim.cumsum``, with which it has the bits of the whole. For a
        result of another type of integers cast it to that first: it wraps there, as sums do.

    Examples
    --------
    >>> import numpy as np, tcusim
    >>> tcusim.carries(np.array([1, 2, 3], np.float32))
    array([0., 1., 3.], dtype=float32)
    """
    require_flags(reverse=reverse)
    values = _array("partials", partials, axis)
    module = library_of(values)
    if module is not np and module.__name__ != "torch":
        return _carries_one_by_one(values, axis, reverse=reverse)
    # NumPy accumulates one after the other, in the type that it is told.
    rows = as_numpy("partials", values if module is np else values.detach().cpu())
    rows = np.moveaxis(rows, axis, 0)[:: -1 if reverse else 1]
    before = np.concatenate([np.zeros_like(rows[:1]), rows[:-1]])
    with np.errstate(over="ignore", invalid="ignore"):
        sums = np.add.accumulate(before, axis=0, dtype=before.dtype)[:: -1 if reverse else 1]
    found = np.moveaxis(sums, 0, axis).copy()
    return found if module is np else like_array(values, found).to(values.device)


def _carries_one_by_one(values: Any, axis: int, *, reverse: bool) -> Any:
    """Return the initial value of each group, by additions of the array's library."""
    rows = _moved(values, axis)
    order = range(rows.shape[0])
    found: dict[int, Any] = {}
    total: Any = None
    for place in reversed(order) if reverse else order:
        found[place] = total if found else library_of(rows).zeros_like(rows[0])
        total = found[place] + rows[place]
    if not found:
        return values
    stacked: Any = library_of(rows).stack([found[place] for place in order])
    return _moved_back(stacked, axis)


def _array(name: str, a: Any, axis: Any) -> Any:
    """Return an array of any library, NumPy's for lists and numbers; refuse an axis it lacks."""
    values = a if hasattr(a, "shape") and hasattr(a, "dtype") else as_numpy(name, a)
    if isinstance(values, np.ndarray):
        values = as_numpy(name, values)
    Spec("segmented_sum", axis).axes(len(values.shape))
    return values


def _moved(values: Any, axis: int) -> Any:
    return library_of(values).moveaxis(values, axis, 0)


def _moved_back(values: Any, axis: int) -> Any:
    return library_of(values).moveaxis(values, 0, axis)


def _joined(parts: list[Any]) -> Any:
    module = library_of(parts[0])
    join = getattr(module, "cat", None) or module.concatenate
    return join(parts)


def _cast(values: Any, dtype: DTypeLike) -> Any:
    name = real_type_of(dtype)
    if hasattr(values, "astype"):
        with np.errstate(over="ignore"):
            return values.astype(numpy_type(name))
    return values.to(getattr(library_of(values), name))
