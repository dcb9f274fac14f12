"""From what a user asks for, and like arrays, to a call made ready: one path for every function.

request and options -> types -> layout -> problem -> plan -> `HostCall` or `DeviceCall`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tcusim.arrays.calls import HostCall, ReadyCall, addend_of
from tcusim.arrays.dtypes import numpy_type, types_on_device, types_on_host
from tcusim.arrays.exact import Stage, batch
from tcusim.arrays.libraries import (
    as_numpy,
    chosen_backend,
    is_on_device,
    name_of_kind,
    require_plain,
)
from tcusim.arrays.offsets import Offsets, offsets_on_device, offsets_on_host
from tcusim.arrays.plans import (
    device_call,
    plan_for,
    product_call,
    product_problem,
    segment_problem,
)
from tcusim.arrays.problem import require_unnamed
from tcusim.arrays.request import Call, Layout, Options, ProductRequest, SegmentRequest, arch_of_run
from tcusim.backends import DeviceBackend
from tcusim.errors import InputError, Unsupported

__all__ = ["prepare_product", "prepare_segments"]


# --- Sums and scans -------------------------------------------------------------------------------


def prepare_segments(asked: tuple[Any, ...], arrays: tuple[Any, ...], call: Call) -> ReadyCall:
    """Return the call for a sum or scan: `asked` begins with a request and options."""
    request: SegmentRequest = asked[0]
    options: Options = asked[1].checked()
    (a,) = arrays
    require_plain("a", a)
    if call.offsets is not None:
        require_unnamed(options.algorithm)
    if is_on_device(a):
        return _segments_on_device(request, options, a, call)
    array = as_numpy("a", a)
    arch = arch_of_run(options.arch, options.backend)
    rule = types_on_host(array.dtype.name, request.dtype, options.acc, arch)
    layout = request.layout(array.shape, by_offsets=call.offsets is not None)
    longest, extra = None, {}
    if call.offsets is not None:
        offsets = offsets_on_host(call.offsets, length=layout.length, rows=layout.rows)
        layout = _by_offsets(layout, offsets)
        longest, extra = offsets.longest, {"offsets": offsets.array}
    plan = None
    if layout.elements:
        problem = segment_problem(request, layout, rule, options, arch, longest)
        plan = plan_for(request.operation, problem, options.arch, options.backend, None, rule)
    result = numpy_type(rule.result)
    layouts = {"in": (layout.order, rule.work)}
    return HostCall(plan, layouts, layout.result, result, layout, extra=extra)


def _segments_on_device(request: SegmentRequest, options: Options, a: Any, call: Call) -> ReadyCall:
    backend = chosen_backend(a, options.backend)
    facts = backend.describe(a)
    arch = arch_of_run(options.arch, backend.name)
    rule = types_on_device(facts.dtype, request.dtype, options.acc, arch)
    layout = request.layout(tuple(facts.shape), by_offsets=call.offsets is not None)
    if layout.missing:
        raise Unsupported(
            f"in GPU memory segments lie end to end; {layout.segment_size} does not divide the "
            f"axis' length, {layout.length}, so they would reach across rows. Pad the axis, or "
            "pass row by row"
        )
    longest, extra = None, None
    if call.offsets is not None:
        offsets = offsets_on_device(
            backend,
            a,
            call.offsets,
            length=layout.length,
            rows=layout.rows,
            check=call.check_offsets,
        )
        layout = _by_offsets(layout, offsets)
        longest, extra = offsets.longest, {"offsets": offsets.array}
    if not layout.elements:
        refused = "out= for an array without elements in GPU memory; leave it out"
        return _Zeros(backend, layout.result, rule.result, refused, layout.back)
    problem = segment_problem(request, layout, rule, options, arch, longest)
    plan = plan_for(request.operation, problem, options.arch, backend.name, None, rule)
    arranged = _is_arranged(backend, a, layout.order, rule.work)
    return device_call(
        plan, backend, layout, (None if arranged else (layout.order, rule.work),), extra
    )


def _by_offsets(layout: Layout, offsets: Offsets) -> Layout:
    return replace(layout, by_offsets=offsets.segments, edges=offsets.edges)


def _is_arranged(backend: DeviceBackend, a: Any, axes: tuple[int, ...], dtype: str) -> bool:
    """Return whether an array may be taken as it is."""
    facts = backend.describe(a)
    in_order = axes == tuple(range(len(axes)))
    if not (in_order and facts.contiguous and facts.dtype == dtype):
        return False
    # It may still begin where no tile may: then there is a copy.
    return backend.arranged(a, axes, dtype) is a


@dataclass(frozen=True, slots=True)
class _Zeros:
    """The result for arrays in GPU memory without elements.

    Attributes
    ----------
    backend : DeviceBackend
        Who makes it.
    shape, result : tuple of int, str
        Its shape and type.
    refused : str
        What it cannot be combined with, for a message.
    back : tuple of int, optional
        Its axes, if they are to be put back.
    """

    backend: DeviceBackend
    shape: tuple[int, ...]
    result: str
    refused: str
    back: tuple[int, ...] | None = None

    def __call__(self, arrays: tuple[Any, ...], call: Call) -> Any:
        """Make zeros."""
        if call.out is not None or any(array is not None for array in arrays[2:]):
            raise Unsupported(self.refused)
        zeros = self.backend.zeros(arrays[0], self.shape, self.result)
        return zeros if self.back is None else self.backend.restored(zeros, self.back)


# --- Products -------------------------------------------------------------------------------------


def prepare_product(asked: tuple[Any, ...], arrays: tuple[Any, ...], call: Call) -> ReadyCall:
    """Return the call for a product: `asked` begins with a request and options."""
    request: ProductRequest = asked[0]
    options: Options = asked[1].checked()
    a, b, c = arrays
    given = {"a": a, request.second: b} | ({} if c is None else {"c": c})
    for name, array in given.items():
        require_plain(name, array)
    if any(map(is_on_device, arrays)):
        return _product_on_device(request, options, given)
    left, right = as_numpy("a", a), as_numpy(request.second, b)
    layout = request.layout(left.shape, right.shape)
    arch = arch_of_run(options.arch, options.backend)
    factors = _common_type(left.dtype, right.dtype)
    rule = types_on_host(
        factors.name,
        _with_addend(factors, c).name if request.dtype is None else request.dtype,
        options.acc,
        arch,
        product=True,
    )
    result = numpy_type(rule.result)
    addend_of(c, layout.result, result)
    # Digits are those of each factor's own type; other factors are cast to one.
    casts = (left.dtype.name, right.dtype.name) if rule.method == "digits" else (rule.work,) * 2
    stages: tuple[Stage, ...] = ()
    plan, second = None, "b" if layout.cols is not None else "x"
    if not layout.is_empty:
        # Digits are multiplied in slices, so that the rows of integers may have any length.
        inner = min(layout.inner, 2**16) if rule.method == "digits" else layout.inner
        one = replace(layout, inner=inner)
        problem = product_problem(one, rule, options, arch, add_c=c is not None)
        plan = plan_for(request.operation, problem, options.arch, options.backend, None, rule)
        starts = layout.starts(second)
        stages = () if starts is None else (partial(batch, starts=starts, inner=layout.inner),)
    layouts = {
        "in": (tuple(range(left.ndim)), casts[0]),
        second: (tuple(range(right.ndim)), casts[1]),
        "c": (tuple(range(len(layout.result))), rule.result),
    }
    return HostCall(plan, layouts, layout.result, result, stages=stages)


def _with_addend(factors: np.dtype[Any], c: Any) -> np.dtype[Any]:
    """Return the usual type of the result, of integers the wide one."""
    common = factors
    if type(c) is float and factors.kind in "biu":
        common = np.dtype(np.float64)
    elif c is not None and type(c) not in (int, float):
        # As in NumPy, a Python scalar has no type of its own.
        common = _common_type(factors, as_numpy("c", c).dtype)
    if common.kind in "biu":
        return np.dtype(np.uint64 if common.kind == "u" else np.int64)
    return common


def _common_type(*dtypes: np.dtype[Any]) -> np.dtype[Any]:
    try:
        common: np.dtype[Any] = np.result_type(*dtypes)
    except TypeError as error:
        names = ", ".join(dtype.name for dtype in dtypes)
        raise InputError(f"{names} have no common type; cast one of them") from error
    return common


def _product_on_device(
    request: ProductRequest, options: Options, given: Mapping[str, Any]
) -> ReadyCall:
    for name, array in given.items():
        if not is_on_device(array):
            other = next(other for other in given if is_on_device(given[other]))
            raise InputError(
                f"{name} is a {name_of_kind(array)}, but {other} is in GPU memory; copy {name} "
                "there too"
            )
    a, second = given["a"], request.second
    backend = chosen_backend(a, options.backend)
    facts = {name: backend.describe(array) for name, array in given.items()}
    shapes = {name: tuple(fact.shape) for name, fact in facts.items()}
    if facts["a"].dtype != facts[second].dtype:
        raise InputError(
            f"a is of {facts['a'].dtype} and {second} of {facts[second].dtype}; in GPU memory both "
            "must be of one type: cast one of them"
        )
    if request.operation == "matvec" and (len(shapes["a"]) < 2 or len(shapes[second]) != 1):
        raise InputError(
            f"matvec of arrays in GPU memory takes a matrix, of two axes or more, and one vector; "
            f"got shapes {shapes['a']} and {shapes[second]}"
        )
    arch = arch_of_run(options.arch, backend.name)
    rule = types_on_device(facts["a"].dtype, request.dtype, options.acc, arch)
    layout = request.layout(shapes["a"], shapes[second])
    if "c" in given and (shapes["c"] != layout.result or facts["c"].dtype != rule.result):
        raise InputError(
            f"c must be of {rule.result}, shape {layout.result}, as the result in GPU memory; got "
            f"{facts['c'].dtype}, {shapes['c']}"
        )
    if layout.is_empty or 0 in (*shapes["a"], *shapes[second]):
        refused = "out= and c for matrices without elements in GPU memory; leave them out"
        return _Zeros(backend, layout.result, rule.result, refused)
    problem = product_problem(layout, rule, options, arch, add_c="c" in given)
    plan = plan_for(request.operation, problem, options.arch, backend.name, None, rule)
    layouts: list[tuple[tuple[int, ...], str] | None] = []
    for name, array in given.items():
        axes, work = tuple(range(len(shapes[name]))), rule.result if name == "c" else rule.work
        layouts.append(None if _is_arranged(backend, array, axes, work) else (axes, work))
    starts = layout.starts(problem.second)
    return product_call(plan, backend, tuple(given), tuple(layouts), layout.result, starts)
