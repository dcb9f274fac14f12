"""Products of matrices and vectors, as NumPy has them, computed by step programs on tensor cores.

Shapes and broadcasting are `numpy.matmul`'s. Arithmetic follows the tensor core of `arch`, bit for
bit. With accumulate="f32" (the default) long sums are cut into short chains whose results are added
by rounded float32 additions, and float32 matrices are multiplied as exact bf16 parts. Integers are
exact: they are multiplied digit by digit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from tcusim.arrays.arguments import Array, broadcast, deliver, refuse_stream
from tcusim.arrays.devices import is_on_device
from tcusim.arrays.kernels import Report, Settings, digits_of, launch_program
from tcusim.arrays.problem import ProductProblem, Shape, Types, tile_for, unit_of_run
from tcusim.arrays.product_plan import product_plan_for
from tcusim.arrays.products_on_device import multiply
from tcusim.errors import InputError, Unsupported, unknown_name
from tcusim.machine import format_of, rule_for, split_values

__all__ = ["matmul", "matvec"]

# Multiplies (M, K) by (K, N) and adds (M, N) if there is one; all sizes are at least 1.
Multiply: TypeAlias = Callable[[Array, Array, Array | None], Array]

# Operand, accumulator and array types by the NumPy type of the computation.
_TYPES: Final = {
    "float16": ("f16", "f32", "f16"),
    "bfloat16": ("bf16", "f32", "bf16"),
    "float32": ("bf16", "f32", "f32"),
    "float64": ("f64", "f64", "f64"),
}
_RESULTS: Final = {"float16": "f16", "float32": "f32", "float64": "f64", "bfloat16": "bf16"}


def matmul(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    out: Any = None,
    dtype: DTypeLike | None = None,
    backend: str | None = None,
    shape: Shape | None = None,
    arch: str | None = None,
    accumulate: str = "f32",
    algorithm: str | None = None,
    report: Report | None = None,
    progress: Callable[[int, int], object] | None = None,
    stream: Any = None,
) -> Any:
    """Multiply matrices on tensor cores, as `numpy.matmul` does: a @ b, or a @ b + c.

    Parameters
    ----------
    a, b : array_like
        float16, float32, float64, bfloat16 (ml_dtypes), any integer type or bool. The last two axes
        are matrices, the others are broadcast; one axis is a row of `a` or a column of `b`. float32
        is split exactly into three bf16 parts (on Volta and Turing, which have no bf16, into three
        float16 parts after scaling rows of `a` and columns of `b` by powers of two: what lies
        2**39 below the largest element of its row or column is lost). Arrays in GPU memory stay
        there; both are of one float type or int8 (with int32 results).
    c : array_like, optional
        Added to the products: of the result's shape, or broadcast to it.
    out : array, optional
        Where to put the result: of the result's shape and type.
    dtype : dtype, optional
        Type of accumulation and result, as in NumPy: float64 computes in float64. Default: the
        common type of a, b and c; of integers, which are exact, NumPy's wide integer as in
        `tcusim.sum` (`numpy.matmul` would wrap around in int8).
    shape : str, tuple or MmaShape, optional
        The tile, M-N-K order; default "16x16x16", "8x8x4" for float64, and for vectors the tile
        that holds more rows, "8x32x16".
    accumulate : {"f32", "f16"}
        Accumulator of float16 input; "f16" is the paper's HGEMM with its rounding, in one chain.
    algorithm : str, optional
        "gemm", "gemm_naive", or for a vector "gemv" or "gemv_reduction"; by default the first that
        suits, staged in shared memory.
    backend, arch, report, progress, stream
        As in `tcusim.sum`.

    Returns
    -------
    array, or a scalar if both are vectors

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
    if any(is_on_device(given) for given in (a, b, c)):
        settings = Settings(backend, shape, arch, accumulate, algorithm, report, progress)
        return multiply(
            a,
            b,
            c,
            second="b",
            out=out,
            dtype=dtype,
            settings=settings,
            stream=stream,
        )
    refuse_stream(stream)
    settings = Settings(
        backend, shape, unit_of_run(arch, backend), accumulate, algorithm, report, progress
    )
    left, right = _array("a", a), _array("b", b)
    if left.ndim == 0 or right.ndim == 0:
        raise InputError(
            f"matmul takes arrays of one axis or more, got shapes {left.shape} and {right.shape}; "
            "multiply by a scalar with *"
        )
    one_row, one_column = left.ndim == 1, right.ndim == 1
    given = (left.shape, right.shape)
    left = left[None, :] if one_row else left
    right = right[:, None] if one_column else right
    if left.shape[-1] != right.shape[-2]:
        raise InputError(
            f"a has {left.shape[-1]} columns and b {right.shape[-2]} rows, which must be equal; "
            f"got shapes {given[0]} and {given[1]}"
        )
    lead = broadcast(left.shape[:-2], right.shape[:-2], given)
    full = (*lead, left.shape[-2], right.shape[-1])
    dropped = tuple(axis for axis, drop in ((-2, one_row), (-1, one_column)) if drop)
    kept = (*lead, *(() if one_row else full[-2:-1]), *(() if one_column else full[-1:]))
    addend = _addend(c, _common_type([left, right]), kept, dropped)
    result = _product(left, right, addend, lead, dtype, settings)
    return deliver(result.reshape(kept), out, None)


def matvec(
    a: Any,
    x: Any,
    c: Any = None,
    *,
    out: Any = None,
    dtype: DTypeLike | None = None,
    backend: str | None = None,
    shape: Shape | None = None,
    arch: str | None = None,
    accumulate: str = "f32",
    algorithm: str | None = None,
    report: Report | None = None,
    progress: Callable[[int, int], object] | None = None,
    stream: Any = None,
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
    algorithm : str, optional
        "gemv_reduction" (the default), which reads the matrix once at the speed of memory, or
        "gemv", a product of matrices with a padded vector, as in the paper.
    out, dtype, backend, shape, arch, accumulate, report, progress, stream
        As in `matmul`.

    Returns
    -------
    array, shape (..., M)

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
    if any(is_on_device(given) for given in (a, x, c)):
        settings = Settings(backend, shape, arch, accumulate, algorithm, report, progress)
        return multiply(
            a,
            x,
            c,
            second="x",
            out=out,
            dtype=dtype,
            settings=settings,
            stream=stream,
        )
    refuse_stream(stream)
    settings = Settings(
        backend, shape, unit_of_run(arch, backend), accumulate, algorithm, report, progress
    )
    left, right = _array("a", a), _array("x", x)
    if left.ndim < 2 or right.ndim < 1:
        raise InputError(
            f"matvec takes a matrix, of two axes or more, and a vector, of one or more; got shapes "
            f"{left.shape} and {right.shape}"
        )
    if left.shape[-1] != right.shape[-1]:
        raise InputError(
            f"a has {left.shape[-1]} columns and x {right.shape[-1]} elements, which must be "
            f"equal; got shapes {left.shape} and {right.shape}"
        )
    lead = broadcast(left.shape[:-2], right.shape[:-1], (left.shape, right.shape))
    kept = (*lead, left.shape[-2])
    addend = _addend(c, _common_type([left, right]), kept, (-1,))
    result = _product(left, right[..., None], addend, lead, dtype, settings)
    return deliver(result.reshape(kept), out, None)


# --- Arguments --------------------------------------------------------------------------------


def _array(name: str, given: ArrayLike) -> Array:
    array = np.asarray(given)
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        raise InputError(
            f"{name} must hold real numbers (float16, float32, float64, bfloat16, integers or "
            f"bool), got dtype {array.dtype}; cast it first, for example {name}.real or "
            f"{name}.astype(np.float32)"
        )
    return array


def _addend(
    c: ArrayLike | None, common: np.dtype[Any], kept: tuple[int, ...], dropped: tuple[int, ...]
) -> Array | None:
    """Return c in the full shape of the products: that of the result, and the dropped axes of 1."""
    if c is None:
        return None
    # As in NumPy, a Python scalar has no type of its own.
    array = np.asarray(c, np.result_type(common, c)) if type(c) in (int, float) else _array("c", c)
    try:
        wide = np.broadcast_to(array, kept)
    except ValueError:
        raise InputError(
            f"c must have the result's shape, {kept}, or be broadcast to it; got {array.shape}"
        ) from None
    return np.expand_dims(wide, dropped)


def _common_type(arrays: list[Array]) -> np.dtype[Any]:
    try:
        common: np.dtype[Any] = np.result_type(*(array.dtype for array in arrays))
    except TypeError as error:
        names = ", ".join(array.dtype.name for array in arrays)
        raise InputError(f"{names} have no common type; cast one of them") from error
    return common


def _result_type(given: np.dtype[Any], dtype: DTypeLike | None) -> np.dtype[Any]:
    """Return the type of the result: the named one, or the common one, wide for integers."""
    if dtype is None:
        if given.kind in "biu":
            return np.dtype(np.uint64 if given.kind == "u" else np.int64)
        wanted = given
    else:
        try:
            wanted = np.dtype(dtype)
        except TypeError as error:
            raise InputError(f"dtype: {error}") from error
    if wanted.kind not in "iu" and wanted.name not in _RESULTS:
        raise InputError(f"dtype must be an integer type or {', '.join(_RESULTS)}, got {wanted}")
    return wanted


# --- Many matrices ----------------------------------------------------------------------------


def _product(
    left: Array,
    right: Array,
    addend: Array | None,
    lead: tuple[int, ...],
    dtype: DTypeLike | None,
    settings: Settings,
) -> Array:
    """Multiply (..., M, K) by (..., K, N): one launch if there is one right matrix, else many."""
    if settings.accumulate not in ("f32", "f16"):
        raise unknown_name("accumulator", settings.accumulate, ("f32", "f16"))
    arrays = [left, right] if addend is None else [left, right, addend]
    wanted = _result_type(_common_type(arrays), dtype)
    multiply = _multiply_for(_common_type([left, right]), wanted, settings)
    rows, inner, cols = left.shape[-2], left.shape[-1], right.shape[-1]
    full = (*lead, rows, cols)
    if 0 in (*full, inner):
        zeros = np.zeros(full, wanted)
        return zeros if addend is None else _cast(addend, wanted)
    if right.ndim == 2:
        tall = left.reshape(-1, inner)
        start = None if addend is None else addend.reshape(-1, cols)
        return multiply(tall, right, start).reshape(full)
    lefts = np.broadcast_to(left, (*lead, rows, inner))
    rights = np.broadcast_to(right, (*lead, inner, cols))
    result = np.empty(full, wanted)
    for place in np.ndindex(*lead):
        start = None if addend is None else addend[place]
        result[place] = multiply(lefts[place], rights[place], start)
    return result


def _cast(x: Array, to: np.dtype[Any]) -> Array:
    """Convert to the type of the computation; refuse to make infinities."""
    if x.dtype == to:
        return x
    with np.errstate(over="ignore"):
        cast: Array = x.astype(to)
    if to.kind not in "iu" and not np.array_equal(np.isfinite(cast), np.isfinite(x)):
        raise InputError(
            f"the input holds values beyond the range of {to}, the type of the computation; "
            "give a wider dtype, or scale the input"
        )
    return cast


# --- Types ------------------------------------------------------------------------------------


def _multiply_for(given: np.dtype[Any], wanted: np.dtype[Any], settings: Settings) -> Multiply:
    """Return what multiplies matrices of type `given` into one of type `wanted`."""
    if wanted.kind in "iu":
        if given.kind not in "biu":
            raise InputError(
                f"dtype {wanted} would cut the fractions of {given} input; "
                "multiply in a float type, then round and cast the result yourself"
            )
        return _of_integers(wanted, settings)
    # As in NumPy, `dtype` is the type of the computation; what is narrower needs no cast.
    keep = given.name in _TYPES and "float64" not in (given.name, wanted.name)
    work = given if keep else wanted
    multiply = _of_floats(work, wanted, settings)

    def compute(a: Array, b: Array, c: Array | None) -> Array:
        start = None if c is None else _cast(c, wanted)
        return multiply(_cast(a, work), _cast(b, work), start)

    return compute


def _of_floats(work: np.dtype[Any], wanted: np.dtype[Any], settings: Settings) -> Multiply:
    ab, acc, source = _TYPES[work.name]
    result = _RESULTS[wanted.name]
    if settings.accumulate == "f16":
        if ab != "f16":
            raise Unsupported(f"accumulate='f16' is for float16 input, not {work}")
        acc = "f16"
    if source == ab:
        return _launched(Types(ab, acc, source, result), settings)
    if _has(settings.arch, "bf16", "f32"):
        in_range = _launched(Types(ab, acc, source, result), settings)
        wide = _launched(Types(ab, acc, source, "f32"), settings)
        return _keeping_specials(_by_bf16_parts(in_range, wide, wanted))
    parts = _launched(Types("f16", "f32", "f16", "f32"), settings)
    return _keeping_specials(_by_f16_parts(parts, wanted))


def _has(arch: str, ab: str, acc: str) -> bool:
    """Return whether an architecture multiplies these types."""
    try:
        rule_for(arch, ab, acc)
    except Unsupported:
        return False
    return True


def _by_bf16_parts(in_range: Multiply, wide: Multiply, wanted: np.dtype[Any]) -> Multiply:
    """Return what also takes the few float32 values that bf16 would round to infinity."""
    largest = format_of("bf16").largest

    def compute(a: Array, b: Array, c: Array | None) -> Array:
        halves = [int(np.abs(x).max() > largest) for x in (a, b)]
        if not any(halves):
            return in_range(a, b, c)
        a, b = (np.ldexp(x, -half) for x, half in zip((a, b), halves, strict=True))
        with np.errstate(over="ignore"):
            return _plus(np.ldexp(wide(a, b, None), halves[0] + halves[1]), c, wanted)

    return compute


def _by_f16_parts(parts: Multiply, wanted: np.dtype[Any]) -> Multiply:
    """Return what multiplies float32 as three float16 parts, each row and column scaled to fit.

    Of the nine products of parts those count that are within 2**-33 of the largest.
    """

    def compute(a: Array, b: Array, c: Array | None) -> Array:
        scales = [
            15 - np.frexp(np.abs(x).max(axis, keepdims=True))[1] for x, axis in ((a, 1), (b, 0))
        ]
        lefts, rights = (
            [part.astype(np.float16) for part in split_values(np.ldexp(x, scale), "f16", 3)]
            for x, scale in zip((a, b), scales, strict=True)
        )
        total: Array = np.zeros((a.shape[0], b.shape[1]), np.float32)
        for p, q in ((2, 0), (1, 1), (0, 2), (1, 0), (0, 1), (0, 0)):
            total = total + parts(lefts[p], rights[q], None)
        with np.errstate(over="ignore", under="ignore"):
            return _plus(np.ldexp(total, -scales[0] - scales[1]), c, wanted)

    return compute


def _plus(result: Array, c: Array | None, wanted: np.dtype[Any]) -> Array:
    """Add c by a rounded addition in float32, and convert."""
    total = result if c is None else result + c.astype(result.dtype)
    return total.astype(wanted)


def _keeping_specials(multiply: Multiply) -> Multiply:
    """Return what takes infinities and NaN, which have no parts.

    Every result of a row of `a`, or column of `b`, that holds one is infinite or NaN itself; which
    of them, the signs of the other factors decide.
    """

    def compute(a: Array, b: Array, c: Array | None) -> Array:
        finite_a, finite_b = np.isfinite(a), np.isfinite(b)
        if finite_a.all() and finite_b.all():
            return multiply(a, b, c)
        zero = a.dtype.type(0)
        result = multiply(np.where(finite_a, a, zero), np.where(finite_b, b, zero), c)
        # Sums of infinities, NaN, and of the other factors the signs alone.
        signs_a, signs_b = np.where(finite_a, np.sign(a), a), np.where(finite_b, np.sign(b), b)
        with np.errstate(invalid="ignore"):
            special = signs_a @ signs_b
            if c is not None:
                special = special + c
        return np.where(np.isfinite(special), result, special.astype(result.dtype))

    return compute


def _of_integers(wanted: np.dtype[Any], settings: Settings) -> Multiply:
    """Return what multiplies integers exactly, modulo 2**64, by signed digits of 8 bits."""
    if settings.accumulate == "f16":
        raise Unsupported("accumulate='f16' is for float16 input; integers are exact")
    exact = _has(settings.arch, "s8", "s32")
    types = Types("s8", "s32", "s8", "s32") if exact else Types("f16", "f32", "f16", "f32")
    # A product of digits is at most 2**14: sums of so many stay exact in s32, or in f32's 24 bits.
    limit = 2**16 if exact else 2**10
    digit_type = np.int8 if exact else np.float16
    multiply = _launched(types, settings)

    def compute(a: Array, b: Array, c: Array | None) -> Array:
        total = np.zeros((a.shape[0], b.shape[1]), np.int64)
        lefts, rights = list(digits_of(a)), list(digits_of(b))
        for (p, left), (q, right) in itertools.product(enumerate(lefts), enumerate(rights)):
            if p + q >= 8:
                continue
            for first in range(0, a.shape[1], limit):
                piece = slice(first, first + limit)
                pair = (left[:, piece].astype(digit_type), right[piece].astype(digit_type))
                total += multiply(*pair, None).astype(np.int64) << (8 * (p + q))
        if c is not None:
            total += c.astype(np.int64)
        return total.view(np.uint64).astype(wanted) if wanted.kind == "u" else total.astype(wanted)

    return compute


# --- Programs ---------------------------------------------------------------------------------


def _launched(types: Types, settings: Settings) -> Multiply:
    """Return what plans a product of these types, and runs its program."""
    rule_for(settings.arch, types.ab, types.acc)

    def compute(a: Array, b: Array, c: Array | None) -> Array:
        (rows, inner), cols = a.shape, b.shape[1]
        problem = ProductProblem(
            rows=rows,
            inner=inner,
            cols=cols,
            types=types,
            tile=tile_for(types, settings.shape),
            add_c=c is not None,
            algorithm=settings.algorithm,
            arch=settings.arch,
        )
        (launch,) = product_plan_for(problem, settings.arch, settings.backend).launches
        arrays = {"in": a.reshape(-1), "b": b.reshape(-1)}
        if c is not None:
            arrays["c"] = c.reshape(-1)
        inputs = {buffer: arrays[name] for buffer, name in launch.inputs.items()}
        product: Array = launch_program(launch.program, inputs, settings)["out"]
        return product.reshape(rows, cols)

    return compute
