"""From a type of array to what computes it: programs planned, launched and counted.

A kernel here is a function of a flat NumPy array and of its segments, which makes a plan and runs
it. What one product cannot hold is dealt with around it: float32 on units without bf16, integers,
infinities and NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tcusim.algorithms.order import FORWARD, Order
from tcusim.arrays.arguments import Array
from tcusim.arrays.planned import Planned
from tcusim.arrays.plans import plan_for
from tcusim.arrays.problem import (
    FLOATS,
    MOST_INT8,
    Problem,
    RaggedProblem,
    Shape,
    Types,
    rounded_longest,
    tile_for,
    types_of,
    unit_of_run,
)
from tcusim.backends import get_backend
from tcusim.errors import InputError, Unsupported, unknown_name
from tcusim.machine import format_of, rule_for, split_values
from tcusim.program.bind import bind_scalars
from tcusim.program.grammar import Program
from tcusim.program.launches import LaunchPlan
from tcusim.simulate.counts import Counts, counts_of_text

__all__ = [
    "REDUCTION",
    "Ints",
    "Kernel",
    "Operation",
    "Report",
    "Segments",
    "Settings",
    "digits_of",
    "kernel_for",
    "launch_program",
    "note_plan",
]

Ints: TypeAlias = NDArray[np.int64]
# The elements of each segment, or where segments begin and end: from 0 to the array's length.
Segments: TypeAlias = int | Ints
# Sums or scans every segment of a flat array.
Kernel: TypeAlias = Callable[[Array, Segments], Array]


@dataclass(slots=True)
class Report:
    """What a call did: pass one as `report=`, and read it afterwards.

    arch: whose arithmetic. programs: each program that was launched, with its scalars. counts: mma
    steps and bytes; those of the simulator's events, or on another backend what the programs' text
    says, each array's bytes once.
    """

    arch: str = ""

    programs: list[tuple[Program, dict[str, int]]] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)

    def note(self, program: Program, scalars: dict[str, int], arch: str) -> None:
        """Add a launch."""
        self.arch = arch
        self.programs.append((program, scalars))

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
    """The keywords that all functions share, as the user gave them."""

    backend: str | None
    shape: Shape | None
    named_arch: str | None
    accumulate: str
    algorithm: str | None
    report: Report | None
    progress: Callable[[int, int], object] | None

    @property
    def arch(self) -> str:
        """Whose arithmetic a call on NumPy arrays follows."""
        return unit_of_run(self.named_arch, self.backend)


@dataclass(frozen=True, slots=True)
class Operation:
    """What a kernel computes: a "reduction", or a "scan" in some order."""

    kind: str
    order: Order = FORWARD


REDUCTION = Operation("reduction")


def kernel_for(
    operation: Operation, given: np.dtype[Any], dtype: DTypeLike | None, settings: Settings
) -> Kernel:
    """Return what computes flat arrays of type `given` into results of type `dtype`."""
    if settings.accumulate not in ("f32", "f16"):
        raise unknown_name("accumulator", settings.accumulate, ("f32", "f16"))
    wanted = _result_type(given, dtype)
    if given.kind in "biu":
        return _of_integers(operation, given, wanted, settings)
    if wanted.kind in "biu":
        raise InputError(
            f"dtype {wanted} would cut the fractions of {given} input; "
            "sum in a float type, then round and cast the result yourself"
        )
    # As in NumPy, `dtype` is the type of the computation; what is narrower needs no cast.
    work = wanted if wanted.itemsize > given.itemsize and wanted.name == "float64" else given
    if given.name == "float64" and wanted.name != "float64":
        work = wanted
    kernel = _of_floats(operation, work, wanted, settings)
    return _keeping_specials(operation, lambda x, segments: kernel(_cast(x, work), segments))


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
    if wanted.kind == "f" and wanted.name not in FLOATS:
        raise InputError(f"dtype must be one of {', '.join(FLOATS)}, got {wanted}")
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


def _of_floats(
    operation: Operation, work: np.dtype[Any], wanted: np.dtype[Any], settings: Settings
) -> Kernel:
    if work.name not in FLOATS:
        raise InputError(f"input of dtype {work} is not supported; cast it to float32 or float64")
    types = types_of(work.name, wanted.name, settings.accumulate)
    if types.source == "f32" and not _has(settings.arch, "bf16"):
        parts = _flat_kernel(operation, Types("f16", "f32", "f16", "f32"), settings)
        return lambda x, segments: _by_scaled_parts(parts, x, segments).astype(wanted)
    kernel = _flat_kernel(operation, types, settings)
    return _in_range(kernel) if types.source != types.ab else kernel


def _flat_kernel(operation: Operation, types: Types, settings: Settings) -> Kernel:
    """Return a kernel that plans and launches programs of these types."""
    name = "segmented_sum" if operation.kind == "reduction" else "segmented_cumsum"

    def compute(x: Array, segments: Segments) -> Array:
        inputs = {"in": x}
        shared: dict[str, Any] = {
            "kind": operation.kind,
            "length": x.size,
            "types": types,
            "tile": tile_for(types, settings.shape),
            "arch": settings.arch,
            "algorithm": settings.algorithm,
            "order": operation.order,
        }
        problem: Problem | RaggedProblem
        if isinstance(segments, int):
            problem = Problem(**shared, segment_size=segments)
        else:
            inputs["offsets"] = segments
            longest = rounded_longest(_longest(segments), x.size, shared["tile"].k)
            problem = RaggedProblem(**shared, segments=segments.size - 1, longest=longest)
        plan = plan_for(name, problem, settings.arch, settings.backend)
        result: Array = plan.run(
            inputs, lambda program, given: launch_program(program, given, settings)
        )
        return result

    rule_for(settings.arch, types.ab, types.acc)
    return compute


def _longest(segments: Segments) -> int:
    """Return the elements of the longest segment."""
    return segments if isinstance(segments, int) else int(np.diff(segments).max(initial=0))


def _has(arch: str, ab: str) -> bool:
    """Return whether an architecture multiplies this type."""
    try:
        rule_for(arch, ab, "f32")
    except Unsupported:
        return False
    return True


def launch_program(
    program: Program, inputs: Mapping[str, Array], settings: Settings
) -> Mapping[str, Array]:
    """Run one program, counting and showing progress if asked to."""
    runner = get_backend(settings.backend or "numpy")
    scalars = bind_scalars(program, {name: array.size for name, array in inputs.items()})
    if settings.report is not None:
        settings.report.note(program, scalars, settings.arch)
        settings.report.counts.add(counts_of_text(program, scalars))
    plan = LaunchPlan.of_program(program, {name: array.size for name, array in inputs.items()})
    return runner.run(plan, inputs, arch=settings.arch, progress=settings.progress)


def note_plan(plan: Planned, unit: str, settings: Settings) -> None:
    """Tell the report what a plan launched on arrays in GPU memory."""
    if settings.report is None:
        return
    for launch in plan.launches:
        scalars = plan.scalars(launch)
        settings.report.note(launch.program, scalars, unit)
        settings.report.counts.add(counts_of_text(launch.program, scalars))


# --- Numbers that one product cannot hold -----------------------------------------------------


def _in_range(kernel: Kernel) -> Kernel:
    """Return a kernel that also takes the few float32 values that bf16 would round to infinity."""

    def compute(x: Array, segments: Segments) -> Array:
        if np.abs(x).max(initial=0.0) <= format_of("bf16").largest:
            return kernel(x, segments)
        with np.errstate(over="ignore"):
            result: Array = np.ldexp(kernel(np.ldexp(x, -1), segments), 1)
        return result

    return compute


def _by_scaled_parts(kernel: Kernel, x: Array, segments: Segments) -> Array:
    """Compute float32 input as three float16 parts, scaled so that the largest fits."""
    largest = float(np.abs(x).max(initial=0.0))
    scale = 15 - int(np.frexp(largest)[1])
    parts = [kernel(part, segments) for part in split_values(x, "f16", 3, scale)]
    result = parts[0] + (parts[1] + parts[2])
    scaled: Array = np.ldexp(result, -scale)
    return scaled


def _of_integers(
    operation: Operation, given: np.dtype[Any], wanted: np.dtype[Any], settings: Settings
) -> Kernel:
    """Return a kernel that sums integers exactly, digit by digit of 8 bits."""
    exact = _has_integers(settings.arch)
    if settings.accumulate == "f16":
        raise Unsupported("accumulate='f16' is for float16 input; integers are summed exactly")
    types = Types("s8", "s32", "s8", "s32") if exact else Types("f16", "f32", "f16", "f32")
    # A digit is at most 2**7 in magnitude: sums of s32 stay exact, or float32's 24 bits do.
    limit = MOST_INT8 if exact else 2**16
    kernel = _flat_kernel(operation, types, settings)
    digit_type = np.int8 if exact else np.float16

    def compute(x: Array, segments: Segments) -> Array:
        if _longest(segments) > limit:
            raise Unsupported(
                f"integer segments of more than {limit} elements are not exact on "
                f"{settings.arch}; cut them into shorter ones, or sum float64"
            )
        result: Array = np.zeros(0, np.int64)
        for place, digit in enumerate(digits_of(x)):
            part = kernel(digit.astype(digit_type), segments)
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


def digits_of(x: Array) -> Iterator[NDArray[np.int64]]:
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


def _keeping_specials(operation: Operation, kernel: Kernel) -> Kernel:
    """Return a kernel that keeps infinities and NaN to the results that they are part of."""

    def compute(x: Array, segments: Segments) -> Array:
        finite = np.isfinite(x)
        if finite.all():
            return kernel(x, segments)
        result = kernel(np.where(finite, x, x.dtype.type(0)), segments)
        begin, end = _terms(operation, x.size, segments)
        # How many infinities of each sign, and NaN, are among the terms of each result.
        above, below, neither = (
            _counted(marks, begin, end) for marks in (x == np.inf, x == -np.inf, np.isnan(x))
        )
        special = np.where(above > 0, np.inf, -np.inf)
        special[((above > 0) & (below > 0)) | (neither > 0)] = np.nan
        return np.where(above + below + neither == 0, result, special.astype(result.dtype))

    return compute


def _terms(operation: Operation, length: int, segments: Segments) -> tuple[Ints, Ints]:
    """Return where the elements begin and end of which each result is the sum."""
    if isinstance(segments, int):
        edges = np.minimum(np.arange(-(-length // segments) + 1) * segments, length)
    else:
        edges = segments
    if operation.kind == "reduction":
        return edges[:-1], edges[1:]
    first, last = (np.repeat(ends, np.diff(edges)) for ends in (edges[:-1], edges[1:]))
    own = np.arange(length)
    if operation.order.reverse:
        return own + operation.order.exclusive, last
    return first, own + (not operation.order.exclusive)


def _counted(marks: Array, begin: Ints, end: Ints) -> Ints:
    """Return how many marks lie from each `begin` up to each `end`."""
    before = np.concatenate([[0], np.cumsum(marks)])
    counts: Ints = before[end] - before[begin]
    return counts
