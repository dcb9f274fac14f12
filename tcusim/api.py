"""Sums and scans of arrays, as NumPy has them, computed by step programs on tensor cores.

Results follow NumPy: the same shapes, the same result types, the last axis by default where there
are segments. Arithmetic follows the tensor core of `arch`, bit for bit. With accumulate="f32" (the
default) nothing is rounded to the operand type on the way, and long sums are cut into short chains
whose results are combined by rounded float32 additions.

Infinities and NaN never enter a tensor core here, where 0*Inf = NaN would spread them over their
tile; they are set to zero and put into the results where they belong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tcusim import plan
from tcusim.backends import get_backend
from tcusim.cost import Counts, steps_to_run
from tcusim.errors import InputError, Unsupported, unknown_name
from tcusim.interpret import Event
from tcusim.ir import Program
from tcusim.numerics import Values, rule_for, split_values
from tcusim.shapes import MmaShape, shape_of

__all__ = ["Report", "cumsum", "segmented_cumsum", "segmented_sum", "sum"]

Array: TypeAlias = NDArray[Any]
Shape: TypeAlias = str | tuple[int, int, int] | MmaShape
# Sums or scans every segment of a flat array; segments have the given size.
Kernel: TypeAlias = Callable[[Array, int], Array]


@dataclass(slots=True)
class Report:
    """What a call did: pass one as `report=`, and read it afterwards.

    programs: each program that was launched, with its scalars. counts: mma steps and bytes.
    """

    programs: list[tuple[Program, dict[str, int]]] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)

    @property
    def launches(self) -> int:
        """Number of launches."""
        return len(self.programs)

    @property
    def mma(self) -> int:
        """Number of mma steps, over all warps."""
        return self.counts.mma

    @property
    def bytes_read(self) -> int:
        """Bytes read from global memory."""
        return self.counts.bytes_read

    @property
    def bytes_written(self) -> int:
        """Bytes written to global memory."""
        return self.counts.bytes_written


@dataclass(frozen=True, slots=True)
class Settings:
    """The keywords that all functions share."""

    backend: str | None
    shape: Shape | None
    arch: str
    accumulate: str
    algorithm: str | None
    report: Report | None
    progress: Callable[[int, int], object] | None


def sum(
    a: ArrayLike,
    *,
    axis: int | tuple[int, ...] | None = None,
    dtype: DTypeLike | None = None,
    out: Array | None = None,
    keepdims: bool = False,
    backend: str | None = None,
    shape: Shape | None = None,
    arch: str = "hopper",
    accumulate: str = "f32",
    algorithm: str | None = None,
    report: Report | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Any:
    """Sum an array on tensor cores, as `numpy.sum` does.

    Parameters
    ----------
    a : array_like
        float16, float32, float64, bfloat16 (ml_dtypes), any integer type or bool; any shape.
        float32 is split exactly into three bf16 parts (on Volta and Turing, which have no bf16,
        into three float16 parts after scaling by a power of two: what lies 2**39 below the
        largest element is lost).
    axis : int or tuple of int, optional
        Axes to sum; None sums all elements.
    dtype : dtype, optional
        Type of accumulation and result, as in NumPy: float64 computes in float64. Default: the
        type of `a`, and NumPy's wide integer for integers.
    out : array, optional
        Where to put the result: of the result's shape and type.
    keepdims : bool
        Keep summed axes with length 1.
    backend : str, optional
        Who runs the programs; default "numpy", the simulator.
    shape : str, tuple or MmaShape, optional
        The tile, M-N-K order; default "16x16x16" ("8x8x4" for float64).
    arch : str
        Whose arithmetic: an architecture, a GPU's name or a registered unit.
    accumulate : {"f32", "f16"}
        Accumulator of float16 input. "f16" is literal to the paper, with its rounding: see
        docs/numerics.md before using it on long segments.
    algorithm : str, optional
        Name of the algorithm; by default one is chosen by size. A name of the paper's, such as
        "reduction_256n", is run as printed, partial sums rounded to the operand type included.
    report : Report, optional
        Filled with the programs and counts of the call.
    progress : callable, optional
        Called with (steps done, steps in all) of the launch that is running.

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
    >>> float(tcusim.sum(np.arange(100, dtype=np.float16)))
    4950.0
    """
    settings = Settings(backend, shape, arch, accumulate, algorithm, report, progress)
    array = _array(a)
    axes = _axes(axis, array.ndim)
    kept = tuple(1 if i in axes else size for i, size in enumerate(array.shape))
    moved = np.moveaxis(array, axes, range(-len(axes), 0))
    lead = moved.shape[: array.ndim - len(axes)]
    rows = moved.reshape((*lead, -1) if moved.size else (*lead, 0))
    job = _kernel("total", rows.dtype, dtype, settings)
    result = _sum_rows(job, rows).reshape(kept if keepdims else lead)
    return _deliver(result, out)


def cumsum(
    a: ArrayLike,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    out: Array | None = None,
    include_initial: bool = False,
    backend: str | None = None,
    shape: Shape | None = None,
    arch: str = "hopper",
    accumulate: str = "f32",
    algorithm: str | None = None,
    report: Report | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Any:
    """Scan an array on tensor cores, as `numpy.cumsum` does.

    Parameters
    ----------
    axis : int, optional
        Axis to scan; None scans the flattened array.
    include_initial : bool
        Begin with 0, so that the axis grows by one and element i is the sum of those before i.
    a, dtype, out, backend, shape, arch, accumulate, algorithm, report, progress
        As in `sum`.

    Returns
    -------
    array of the shape of `a` (flat if axis is None), the axis longer by one if include_initial

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import numpy as np, tcusim
    >>> tcusim.cumsum(np.ones(4, np.float16), include_initial=True)
    array([0., 1., 2., 3., 4.], dtype=float16)
    """
    settings = Settings(backend, shape, arch, accumulate, algorithm, report, progress)
    array = _array(a)
    if axis is None:
        array, axis = array.reshape(-1), 0
    axis = _one_axis(axis, array.ndim)
    rows = np.moveaxis(array, axis, -1)
    job = _kernel("scan", rows.dtype, dtype, settings)
    result = _scan_rows(job, rows, max(1, rows.shape[-1]))
    if include_initial:
        zeros = np.zeros((*result.shape[:-1], 1), result.dtype)
        result = np.concatenate([zeros, result], axis=-1)
    return _deliver(np.moveaxis(result, -1, axis), out)


def segmented_sum(
    a: ArrayLike,
    segment_size: int | None = None,
    *,
    offsets: ArrayLike | None = None,
    axis: int = -1,
    dtype: DTypeLike | None = None,
    out: Array | None = None,
    backend: str | None = None,
    shape: Shape | None = None,
    arch: str = "hopper",
    accumulate: str = "f32",
    algorithm: str | None = None,
    report: Report | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Any:
    """Sum every segment of an axis on tensor cores.

    Parameters
    ----------
    segment_size : int, optional
        Elements of a segment, at least 1 and at most the axis. If it does not divide the axis,
        the last segment is shorter.
    offsets : array_like of int, shape (segments + 1,), optional
        Instead of a size: segment i is elements offsets[i] to offsets[i+1], as in CSR. Starts
        with 0, ends with the axis' length, never decreases; equal neighbours are an empty segment.
    axis : int
        The axis that is made of segments.
    a, dtype, out, backend, shape, arch, accumulate, algorithm, report, progress
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
    >>> tcusim.segmented_sum(np.arange(8, dtype=np.float16), offsets=[0, 1, 1, 8])
    array([ 0.,  0., 28.], dtype=float16)
    """
    settings = Settings(backend, shape, arch, accumulate, algorithm, report, progress)
    array = _array(a)
    axis = _one_axis(axis, array.ndim)
    rows = np.moveaxis(array, axis, -1)
    job = _kernel("total", rows.dtype, dtype, settings)
    if offsets is not None:
        result = _sum_irregular(job, rows, _offsets(offsets, segment_size, rows.shape[-1]))
    else:
        result = _sum_segments(job, rows, _segment_size(segment_size, rows.shape[-1]))
    return _deliver(np.moveaxis(result, -1, axis), out)


def segmented_cumsum(
    a: ArrayLike,
    segment_size: int | None = None,
    *,
    offsets: ArrayLike | None = None,
    axis: int = -1,
    exclusive: bool = False,
    dtype: DTypeLike | None = None,
    out: Array | None = None,
    backend: str | None = None,
    shape: Shape | None = None,
    arch: str = "hopper",
    accumulate: str = "f32",
    algorithm: str | None = None,
    report: Report | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Any:
    """Scan every segment of an axis on tensor cores: prefix sums that begin anew in each.

    Parameters
    ----------
    exclusive : bool
        Leave each element out of its own prefix, so that every segment begins with 0.
    segment_size, offsets, axis
        As in `segmented_sum`.
    a, dtype, out, backend, shape, arch, accumulate, algorithm, report, progress
        As in `sum`.

    Returns
    -------
    array of the shape of `a`

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
    """
    settings = Settings(backend, shape, arch, accumulate, algorithm, report, progress)
    array = _array(a)
    axis = _one_axis(axis, array.ndim)
    rows = np.moveaxis(array, axis, -1)
    job = _kernel("scan", rows.dtype, dtype, settings)
    length = rows.shape[-1]
    if offsets is not None:
        edges = _offsets(offsets, segment_size, length)
        result = _scan_irregular(job, rows, edges)
    else:
        size = _segment_size(segment_size, length)
        edges = np.append(np.arange(0, length, size), length)
        result = _scan_rows(job, rows, size)
    if exclusive:
        result = _shifted(result, edges)
    return _deliver(np.moveaxis(result, -1, axis), out)


# --- Arguments --------------------------------------------------------------------------------


def _array(a: ArrayLike) -> Array:
    array = np.asarray(a)
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        raise InputError(
            f"a must hold real numbers (float16, float32, float64, bfloat16, integers or bool), "
            f"got dtype {array.dtype}; cast it first, for example a.real or a.astype(np.float32)"
        )
    return array


def _axes(axis: int | tuple[int, ...] | None, ndim: int) -> tuple[int, ...]:
    """Return axes counted from the front."""
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, tuple) else (axis,)
    for one in given:
        if not isinstance(one, (int, np.integer)) or not -ndim <= one < ndim:
            raise InputError(f"axis {one!r} is out of range for an array of {ndim} dimensions")
    found = tuple(int(one) % ndim for one in given)
    if len(set(found)) != len(found):
        raise InputError(f"axis {axis} names an axis twice")
    return found


def _one_axis(axis: int | tuple[int, ...] | None, ndim: int) -> int:
    """Return the axis counted from the front; refuse several, or none."""
    if axis is None or isinstance(axis, tuple):
        raise InputError(f"axis must be one integer, got {axis!r}")
    return _axes(axis, ndim)[0]


def _segment_size(segment_size: int | None, length: int) -> int:
    if segment_size is None:
        raise InputError("give segment_size, the elements of a segment, or offsets")
    if isinstance(segment_size, bool) or not isinstance(segment_size, (int, np.integer)):
        raise InputError(f"segment_size must be an integer, got {segment_size!r}")
    if segment_size < 1:
        raise InputError(f"segment_size must be at least 1, got {segment_size}")
    if segment_size > length > 0:
        raise InputError(
            f"segment_size {segment_size} is longer than the axis, which has {length} elements"
        )
    return int(segment_size)


def _offsets(offsets: ArrayLike, segment_size: int | None, length: int) -> NDArray[np.int64]:
    if segment_size is not None:
        raise InputError("give segment_size or offsets, not both")
    edges = np.asarray(offsets)
    if edges.ndim != 1 or edges.size == 0 or edges.dtype.kind not in "iu":
        raise InputError(
            "offsets must be a flat array of segments + 1 integers, got shape "
            f"{edges.shape}, dtype {edges.dtype}"
        )
    edges = edges.astype(np.int64)
    down = np.flatnonzero(np.diff(edges) < 0)
    if down.size:
        at = int(down[0])
        raise InputError(
            f"offsets must not decrease, but offsets[{at}] = {edges[at]} and "
            f"offsets[{at + 1}] = {edges[at + 1]}"
        )
    if edges[0] != 0 or edges[-1] != length:
        raise InputError(
            f"offsets must begin with 0 and end with the axis' length, {length}; got "
            f"{edges[0]} and {edges[-1]}"
        )
    return edges


def _deliver(result: Array, out: Array | None) -> Any:
    if out is None:
        return result[()]
    if not isinstance(out, np.ndarray) or out.shape != result.shape or out.dtype != result.dtype:
        kind = f"{out.dtype}, {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
        raise InputError(
            f"out must be an array of {result.dtype}, shape {result.shape}; got {kind}"
        )
    out[...] = result
    return out


# --- Types: which kernel computes an array ----------------------------------------------------

# Operand, accumulator and array types by the NumPy type of the computation.
_TYPES = {
    "float16": ("f16", "f32", "f16"),
    "bfloat16": ("bf16", "f32", "bf16"),
    "float32": ("bf16", "f32", "f32"),
    "float64": ("f64", "f64", "f64"),
}
_RESULTS = {"float16": "f16", "float32": "f32", "float64": "f64", "bfloat16": "bf16"}


def _kernel(kind: str, given: np.dtype[Any], dtype: DTypeLike | None, settings: Settings) -> Kernel:
    """Return what computes flat arrays of type `given` into results of type `dtype`."""
    if settings.accumulate not in ("f32", "f16"):
        raise unknown_name("accumulator", settings.accumulate, ("f32", "f16"))
    wanted = _result_type(given, dtype)
    if given.kind in "biu":
        return _of_integers(kind, given, wanted, settings)
    if wanted.kind in "biu":
        raise InputError(
            f"dtype {wanted} would cut the fractions of {given} input; "
            "sum in a float type, then round and cast the result yourself"
        )
    # As in NumPy, `dtype` is the type of the computation; what is narrower needs no cast.
    work = wanted if wanted.itemsize > given.itemsize and wanted.name == "float64" else given
    if given.name == "float64" and wanted.name != "float64":
        work = wanted
    kernel = _of_floats(kind, work, wanted, settings)
    return _keeping_specials(kind, lambda x, size: kernel(_cast(x, work), size))


def _result_type(given: np.dtype[Any], dtype: DTypeLike | None) -> np.dtype[Any]:
    if dtype is None:
        if given.kind == "b" or (given.kind in "iu" and given.itemsize < 8):
            return np.dtype(np.uint64 if given.kind == "u" else np.int64)
        return given
    try:
        wanted: np.dtype[Any] = np.dtype(dtype)
    except TypeError as error:
        raise InputError(f"dtype: {error}") from error
    if wanted.kind not in "iuf" and wanted.name != "bfloat16":
        raise InputError(f"dtype must be a real number type, got {wanted}")
    if wanted.kind == "f" and wanted.name not in _RESULTS:
        raise InputError(f"dtype must be one of {', '.join(_RESULTS)}, got {wanted}")
    return wanted


def _cast(x: Array, work: np.dtype[Any]) -> Array:
    """Convert to the type of the computation; refuse to make infinities."""
    if x.dtype == work:
        return x
    with np.errstate(over="ignore"):
        cast = x.astype(work)
    if not np.isfinite(cast).all():
        raise InputError(
            f"the input holds values beyond the range of {work}, the type of the computation; "
            "leave dtype out, or scale the input"
        )
    return cast


def _of_floats(kind: str, work: np.dtype[Any], wanted: np.dtype[Any], settings: Settings) -> Kernel:
    ab, acc, source = _TYPES.get(work.name, ("", "", ""))
    if not ab:
        raise InputError(f"input of dtype {work} is not supported; cast it to float32 or float64")
    if settings.accumulate == "f16":
        if ab != "f16":
            raise Unsupported(f"accumulate='f16' is for float16 input, not {work}")
        acc = "f16"
    result = _RESULTS[wanted.name]
    if source == "f32" and not _has(settings.arch, "bf16"):
        parts = _flat_kernel(kind, ("f16", "f32", "f16", "f32"), settings)
        return lambda x, size: _by_scaled_parts(parts, x, size).astype(wanted)
    return _flat_kernel(kind, (ab, acc, source, result), settings)


def _flat_kernel(kind: str, types: tuple[str, str, str, str], settings: Settings) -> Kernel:
    """Return a kernel that plans and launches programs of these (ab, acc, source, result) types."""
    ab, acc, source, result = types
    rule_for(settings.arch, ab, acc)
    shape = settings.shape or ("8x8x4" if ab == "f64" else "16x16x16")
    literal = settings.accumulate == "f16" or _is_paper_name(settings.algorithm)
    job = plan.Job(
        shape=shape_of(shape),
        ab=ab,
        acc=acc,
        source=source,
        result=result,
        literal=literal,
        algorithm=settings.algorithm,
        launch=lambda program, inputs: _launch(program, inputs, settings),
    )
    compute = plan.total if kind == "total" else plan.scan
    return lambda x, size: compute(job, x, size)


def _is_paper_name(name: str | None) -> bool:
    from tcusim.algorithms import algorithm_of

    return name is not None and algorithm_of(name).alias == name.lower()


def _has(arch: str, ab: str) -> bool:
    """Return whether an architecture multiplies this type."""
    try:
        rule_for(arch, ab, "f32")
    except Unsupported:
        return False
    return True


def _launch(program: Program, inputs: Mapping[str, Values], settings: Settings) -> Values:
    """Run one program, counting and showing progress if asked to."""
    runner = get_backend(settings.backend or "numpy")
    scalars = {"length": int(inputs["in"].size)}
    options: dict[str, Any] = {}
    if settings.report is not None:
        settings.report.programs.append((program, scalars))
    if runner.name == "numpy":
        options["watch"] = _watcher(program, scalars, settings)
    outputs = runner.run(program, inputs, arch=settings.arch, **options)
    result: Values = outputs["out"]
    return result


def _watcher(
    program: Program, scalars: Mapping[str, int], settings: Settings
) -> Callable[[Event], None] | None:
    """Return what looks at every step of a launch, None if nobody does."""
    report, progress = settings.report, settings.progress
    if report is None and progress is None:
        return None
    blocks = max(1, program.blocks.evaluate(scalars))
    per_batch = max(1, steps_to_run(program, scalars))
    done = 0
    last = -1

    def watch(event: Event) -> None:
        nonlocal done, last
        if report is not None:
            report.counts(event)
        if progress is None:
            return
        batch = int(event.state.warps[0])
        if batch != last:
            last = batch
            done = 0
        done += 1
        before = batch // program.warps
        here = event.state.warps.size // program.warps
        progress(before * per_batch + here * min(done, per_batch), blocks * per_batch)

    return watch


# --- Numbers that one product cannot hold -----------------------------------------------------


def _by_scaled_parts(kernel: Kernel, x: Array, size: int) -> Array:
    """Compute float32 input as three float16 parts, scaled so that the largest fits."""
    largest = float(np.abs(x).max(initial=0.0))
    scale = 15 - int(np.frexp(largest)[1])
    parts = [kernel(part, size) for part in split_values(x, "f16", 3, scale)]
    result = parts[0] + (parts[1] + parts[2])
    scaled: Array = np.ldexp(result, -scale)
    return scaled


def _of_integers(
    kind: str, given: np.dtype[Any], wanted: np.dtype[Any], settings: Settings
) -> Kernel:
    """Return a kernel that sums integers exactly, digit by digit of 8 bits."""
    exact = _has_integers(settings.arch)
    if settings.accumulate == "f16":
        raise Unsupported("accumulate='f16' is for float16 input; integers are summed exactly")
    types = ("s8", "s32", "s8", "s32") if exact else ("f16", "f32", "f16", "f32")
    # A digit is at most 2**7 in magnitude: sums of s32 stay exact, or float32's 24 bits do.
    limit = 2**23 if exact else 2**16
    kernel = _flat_kernel(kind, types, settings)
    digit_type = np.int8 if exact else np.float16

    def compute(x: Array, size: int) -> Array:
        if size > limit:
            raise Unsupported(
                f"integer segments of more than {limit} elements are not exact on "
                f"{settings.arch}; cut them into shorter ones, or sum float64"
            )
        result: Array = np.zeros(0, np.int64)
        for place, digit in enumerate(_digits(x)):
            part = kernel(digit.astype(digit_type), size)
            term = _weighted(part, place, wanted)
            result = term if place == 0 else result + term
        if wanted.kind == "u":
            return result.view(np.uint64).astype(wanted)
        with np.errstate(over="ignore"):
            return result.astype(wanted)

    return compute


def _has_integers(arch: str) -> bool:
    try:
        rule_for(arch, "s8", "s32")
    except Unsupported:
        return False
    return True


def _digits(x: Array) -> Iterator[NDArray[np.int64]]:
    """Yield signed digits of base 256, lowest first, until nothing is left."""
    rest: Array = x if x.dtype == np.uint64 else x.astype(np.int64)
    while True:
        low = (rest & rest.dtype.type(255)).astype(np.int64)
        digit = np.where(low < 128, low, low - 256)
        yield digit
        rest = (rest >> rest.dtype.type(8)).astype(np.int64) + (digit < 0)
        if not rest.any():
            return


def _weighted(part: Array, place: int, wanted: np.dtype[Any]) -> Array:
    """Return part * 256**place: integers modulo 2**64, as NumPy's, or float64 for a float type."""
    if wanted.kind not in "iu":
        return np.ldexp(part.astype(np.float64), 8 * place)
    return part.astype(np.int64) << (8 * place) if place < 8 else np.zeros(part.shape, np.int64)


def _keeping_specials(kind: str, kernel: Kernel) -> Kernel:
    """Return a kernel that keeps infinities and NaN to the results that they are part of."""

    def compute(x: Array, size: int) -> Array:
        finite = np.isfinite(x)
        if finite.all():
            return kernel(x, size)
        result = kernel(np.where(finite, x, x.dtype.type(0)), size)
        # Sums of 0, infinities and NaN alone: what they make of each prefix or segment.
        marks = np.where(finite, 0.0, x.astype(np.float64))
        count = -(-x.size // size)
        padded = np.concatenate([marks, np.zeros(count * size - x.size)]).reshape(count, size)
        with np.errstate(invalid="ignore"):
            special = padded.sum(1) if kind == "total" else padded.cumsum(1).ravel()[: x.size]
        return np.where(special == 0.0, result, special.astype(result.dtype))

    return compute


# --- Rows: from arrays of any shape to flat ones ----------------------------------------------


def _sum_rows(kernel: Kernel, rows: Array) -> Array:
    """Sum the last axis; an empty one gives zeros."""
    length = rows.shape[-1]
    if rows.size == 0:
        empty = kernel(np.zeros(1, rows.dtype), 1)
        return np.zeros(rows.shape[:-1], empty.dtype)
    return kernel(rows.reshape(-1), length).reshape(rows.shape[:-1])


def _sum_segments(kernel: Kernel, rows: Array, size: int) -> Array:
    """Sum segments of the last axis."""
    count = -(-rows.shape[-1] // size)
    flat = _whole_segments(rows, size)
    if flat.size == 0:
        return np.zeros((*rows.shape[:-1], count), kernel(np.zeros(1, rows.dtype), 1).dtype)
    return kernel(flat, size).reshape(*rows.shape[:-1], count)


def _scan_rows(kernel: Kernel, rows: Array, size: int) -> Array:
    """Scan segments of the last axis."""
    length = rows.shape[-1]
    flat = _whole_segments(rows, size)
    if flat.size == 0:
        return np.zeros(rows.shape, kernel(np.zeros(1, rows.dtype), 1).dtype)
    return kernel(flat, size).reshape(*rows.shape[:-1], -1)[..., :length]


def _whole_segments(rows: Array, size: int) -> Array:
    """Return rows end to end, each filled up to whole segments if there is more than one row."""
    length = rows.shape[-1]
    missing = -length % size
    many = rows.size > length
    if missing and many:
        zeros = np.zeros((*rows.shape[:-1], missing), rows.dtype)
        rows = np.concatenate([rows, zeros], axis=-1)
    return rows.reshape(-1)


def _groups(edges: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield (padded length, segment numbers): segments of like length, padded to a power of two.

    Padding is how the paper has irregular segments; by length, it at most doubles the work.
    """
    lengths = np.diff(edges)
    power = np.ceil(np.log2(np.maximum(lengths, 1))).astype(np.int64)
    for exponent in np.unique(power[lengths > 0]):
        yield 1 << int(exponent), np.flatnonzero((power == exponent) & (lengths > 0))


def _gathered(
    rows: Array, edges: NDArray[np.int64], chosen: NDArray[np.int64], size: int
) -> tuple[Array, NDArray[np.int64], NDArray[np.bool_]]:
    """Return segments padded with zeros, (rows, segments, size), their places, and which count."""
    places = edges[chosen, None] + np.arange(size)
    inside = places < edges[chosen + 1, None]
    places = np.where(inside, places, 0)
    return np.where(inside, rows[..., places], rows.dtype.type(0)), places, inside


def _sum_irregular(kernel: Kernel, rows: Array, edges: NDArray[np.int64]) -> Array:
    """Sum the segments between the edges of the last axis."""
    sample = kernel(np.zeros(1, rows.dtype), 1)
    result = np.zeros((*rows.shape[:-1], edges.size - 1), sample.dtype)
    for size, chosen in _groups(edges):
        padded, _, _ = _gathered(rows, edges, chosen, size)
        if padded.size:
            sums = kernel(padded.reshape(-1), size)
            result[..., chosen] = sums.reshape(*rows.shape[:-1], chosen.size)
    return result


def _scan_irregular(kernel: Kernel, rows: Array, edges: NDArray[np.int64]) -> Array:
    """Scan the segments between the edges of the last axis."""
    sample = kernel(np.zeros(1, rows.dtype), 1)
    result = np.zeros(rows.shape, sample.dtype)
    for size, chosen in _groups(edges):
        padded, places, inside = _gathered(rows, edges, chosen, size)
        if padded.size:
            scans = kernel(padded.reshape(-1), size).reshape(padded.shape)
            result[..., places[inside]] = scans[..., inside]
    return result


def _shifted(result: Array, edges: NDArray[np.int64]) -> Array:
    """Return exclusive prefixes from inclusive ones, segment by segment."""
    shifted = np.zeros_like(result)
    shifted[..., 1:] = result[..., :-1]
    starts = edges[:-1][np.diff(edges) > 0]
    shifted[..., starts] = 0
    return shifted
