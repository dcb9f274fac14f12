"""Sums and scans of arrays in GPU memory: planned from what they are, run where they lie.

What the functions do for NumPy arrays around a plan takes a look at the data, or memory of its own.
Here the data are not looked at, and what that makes impossible is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from tcusim.algorithms.order import FORWARD, Order
from tcusim.arrays.arguments import axes_of, one_axis, size_of
from tcusim.arrays.device_offsets import DeviceOffsets, offsets_on_device
from tcusim.arrays.devices import chosen_backend
from tcusim.arrays.kernels import Settings, note_plan
from tcusim.arrays.plans import OPERATIONS, plan_for
from tcusim.arrays.problem import (
    FLOATS,
    Problem,
    RaggedProblem,
    Types,
    require_unnamed,
    rounded_longest,
    tile_for,
    types_of,
    unit_of_run,
)
from tcusim.backends import DeviceBackend, Edge
from tcusim.errors import InputError, Unsupported
from tcusim.machine import rule_for
from tcusim.machine.formats import array_name_of

__all__ = ["Task", "compute", "require_bf16", "types_on_device"]


@dataclass(frozen=True, slots=True)
class Task:
    """What to do with an array in GPU memory.

    operation: as of a plan. axis, segment_size, dtype, keepdims: as the user gave them.
    order: of a scan. offsets, check_offsets: of segments by offsets, as the user gave them.
    initial: whether a scan begins with 0 (in reverse: ends), in one element more.
    """

    operation: str
    axis: int | tuple[int, ...] | None
    segment_size: int | None = None
    dtype: Any = None
    keepdims: bool = False
    order: Order = FORWARD
    offsets: Any = None
    check_offsets: bool = True
    initial: bool = False

    @property
    def initial_at(self) -> Edge | None:
        """Where a scan's result is longer by a zero."""
        if not self.initial:
            return None
        return "last" if self.order.reverse else "first"

    @property
    def is_segmented(self) -> bool:
        """Whether the axis is made of segments."""
        return self.operation.startswith("segmented")

    def axes(self, ndim: int) -> tuple[int, ...]:
        """Return the axes, counted from the front."""
        if self.operation == "sum" or (self.operation == "cumsum" and self.axis is None):
            return axes_of(self.axis, ndim)
        return (one_axis(self.axis, ndim),)


def compute(a: Any, task: Task, out: Any, settings: Settings, stream: Any = None) -> Any:
    """Return the result as an array of a's kind, on its device.

    stream: to launch on; by default its library's current one.
    """
    backend = chosen_backend(a, settings.backend)
    facts = backend.describe(a)
    work, wanted = types_on_device(facts.dtype, task.dtype)
    unit = unit_of_run(settings.named_arch, backend.name)
    require_bf16(work, unit)
    layout = _Layout.of(task, tuple(facts.shape))
    found = None
    if task.offsets is not None:
        found = _offsets_of(backend, a, task, layout, settings)
        layout = layout.by_offsets(task, found.segments)
    if out is not None and not layout.in_order and task.operation != "sum":
        raise Unsupported(
            "out= for an array in GPU memory goes with the last axis alone: the result is computed "
            "with its axis last. Leave out= out, and copy what comes back"
        )
    rows = backend.arranged(a, layout.order, work)
    if layout.elements == 0:
        return _of_nothing(backend, rows, task, layout, wanted, out)
    types = types_of(work, wanted, settings.accumulate)
    problem = _problem(task, layout, found, types, unit, settings)
    plan = plan_for(task.operation, problem, settings.named_arch, backend.name)
    inputs = {"in": rows} if found is None else {"in": rows, "offsets": found.there}
    result = plan.launched(backend, inputs, out, layout.result, stream, task.initial_at)
    note_plan(plan, unit, settings)
    return result if task.operation == "sum" else _with_axis_back(backend, result, layout)


def _offsets_of(
    backend: DeviceBackend, a: Any, task: Task, layout: _Layout, settings: Settings
) -> DeviceOffsets:
    if task.segment_size is not None:
        raise InputError("give segment_size or offsets, not both")
    require_unnamed(settings.algorithm)
    return offsets_on_device(
        backend,
        a,
        task.offsets,
        length=layout.segment_size,
        rows=layout.rows,
        check=task.check_offsets,
    )


def _problem(
    task: Task,
    layout: _Layout,
    found: DeviceOffsets | None,
    types: Types,
    unit: str,
    settings: Settings,
) -> Problem | RaggedProblem:
    shared: dict[str, Any] = {
        "kind": OPERATIONS[task.operation],
        "length": layout.elements,
        "types": types,
        "tile": tile_for(types, settings.shape),
        "arch": unit,
        "algorithm": settings.algorithm,
        "order": task.order,
    }
    if found is None:
        return Problem(**shared, segment_size=layout.segment_size)
    longest = rounded_longest(found.longest, layout.elements, shared["tile"].k)
    return RaggedProblem(**shared, segments=found.segments * layout.rows, longest=longest)


@dataclass(frozen=True, slots=True)
class _Layout:
    """How an array is made of segments that lie end to end.

    order: its axes, those that are summed or scanned last. elements: in all. segment_size: elements
    of a segment; of the axis, if segments lie by offsets. lead: the other axes' lengths. result:
    the result's shape, with the axis of segments or of the scan last.
    """

    order: tuple[int, ...]
    elements: int
    segment_size: int
    lead: tuple[int, ...]
    result: tuple[int, ...]

    @property
    def rows(self) -> int:
        """How many lines there are along the axis."""
        return math.prod(self.lead)

    def by_offsets(self, task: Task, segments: int) -> _Layout:
        """Return the layout of rows of so many segments each."""
        if OPERATIONS[task.operation] == "scan":
            return self
        return replace(self, result=(*self.lead, segments))

    @property
    def in_order(self) -> bool:
        """Whether the axes stay where they are."""
        return self.order == tuple(range(len(self.order)))

    @staticmethod
    def of(task: Task, shape: tuple[int, ...]) -> _Layout:
        """Return the layout of an array of this shape."""
        axes = task.axes(len(shape))
        others = tuple(axis for axis in range(len(shape)) if axis not in axes)
        lead = tuple(shape[axis] for axis in others)
        length = math.prod(shape[axis] for axis in axes)
        if task.offsets is not None:
            size = length
        else:
            size = size_of(task.segment_size, length) if task.is_segmented else max(1, length)
        if size and length % size and math.prod(lead) > 1:
            raise Unsupported(
                f"in GPU memory segments lie end to end; {size} does not divide the axis' length, "
                f"{length}, so they would reach across rows. Pad the axis, or pass row by row"
            )
        if OPERATIONS[task.operation] == "scan":
            result = (*lead, length + task.initial)
        elif task.is_segmented:
            result = (*lead, -(-length // max(1, size)))
        elif task.keepdims:
            result = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
        else:
            result = lead
        return _Layout((*others, *axes), math.prod(shape), size, lead, result)


def types_on_device(given: str, dtype: Any) -> tuple[str, str]:
    """Return NumPy's names of the types of the computation and of the result."""
    wanted = None if dtype is None else array_name_of(dtype)
    if given == "int8":
        if wanted not in (None, "int32"):
            raise InputError(
                f"int8 arrays in GPU memory have int32 results, not {wanted}; cast the result"
            )
        return "int8", "int32"
    if given not in FLOATS:
        raise InputError(
            f"arrays in GPU memory must be of {', '.join(FLOATS)} or int8, got {given}; cast it "
            f"there, or copy it to a NumPy array, for which every integer type is summed exactly"
        )
    if wanted is None:
        return given, given
    if wanted not in FLOATS:
        raise InputError(
            f"dtype of a {given} array in GPU memory must be one of {', '.join(FLOATS)}, got "
            f"{wanted}; cast the result"
        )
    # As for NumPy arrays: dtype is the type of the computation, what is narrower needs no cast.
    return (wanted if "float64" in (given, wanted) else given), wanted


def require_bf16(work: str, unit: str) -> None:
    """Refuse float32 where it would have to be scaled, which takes a look at the data."""
    if work != "float32":
        return
    try:
        rule_for(unit, "bf16", "f32")
    except Unsupported as error:
        raise Unsupported(
            f"float32 arrays in GPU memory are split into bf16 parts, and {unit} has no bf16. Cast "
            f"the array to float16, or copy it to a NumPy array, which is scaled and split there"
        ) from error


def _of_nothing(
    backend: DeviceBackend, rows: Any, task: Task, layout: _Layout, wanted: str, out: Any
) -> Any:
    """Return zeros: sums of no elements, or no elements."""
    if out is not None:
        raise Unsupported("out= for an array without elements in GPU memory; leave it out")
    zeros = backend.zeros(rows, layout.result, wanted)
    return zeros if task.operation == "sum" else _with_axis_back(backend, zeros, layout)


def _with_axis_back(backend: DeviceBackend, result: Any, layout: _Layout) -> Any:
    """Return a result with its last axis where the array's was."""
    return result if layout.in_order else backend.restored(result, layout.order)
