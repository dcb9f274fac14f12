"""From what a user asks for, and like arrays, to a call made ready: one path for every function.

request and options -> types -> layout -> problem -> plan -> call.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tcusim.arrays.calls import ReadyCall, product_call, segment_call
from tcusim.arrays.dtypes import TypeRule, numpy_type, types_on_device, types_on_host
from tcusim.arrays.libraries import Home, Host, addend_of, as_numpy, gathered
from tcusim.arrays.offsets import offsets_of
from tcusim.arrays.plans import plan_for
from tcusim.arrays.posed import lies_by_offsets, product_problem, segment_problem
from tcusim.arrays.problem import require_unnamed
from tcusim.arrays.request import Call, Options, ProductRequest, SegmentRequest, arch_of_run
from tcusim.backends import DeviceArrayFacts, DeviceBackend
from tcusim.errors import InputError, Unsupported

__all__ = ["prepare_product", "prepare_segments"]


def prepare_segments(asked: tuple[Any, ...], arrays: tuple[Any, ...], call: Call) -> ReadyCall:
    """Return the call for a sum or scan: `asked` begins with a request and options."""
    request: SegmentRequest = asked[0]
    options: Options = asked[1].checked()
    by_offsets, carry = call.by_offsets, call.initial is not None
    if by_offsets or carry:
        require_unnamed(options.algorithm, "initial=" if carry else "")
    home, given = gathered({"a": arrays[0]}, options.backend)
    a, options = given["a"], _on(home, options)
    facts, arch = home.describe(a), _arch_on(home, options, a)
    types = types_on_device
    if isinstance(home, Host):
        types = partial(types_on_host, tile=options.tile)
    rule = types(
        facts.dtype,
        request.dtype,
        options.acc,
        arch,
        bits=options.bits,
        algorithm=options.algorithm,
    )
    layout = request.layout(tuple(facts.shape), by_offsets=by_offsets)
    uneven = layout.missing > 0 and not isinstance(home, Host)
    if uneven and options.algorithm is not None:
        raise Unsupported(
            f"{layout.segment_size} does not divide the axis' length, {layout.length}: in GPU "
            "memory the last segment of each row is then shorter, and segments lie by offsets, "
            "for which there is no algorithm to name. Leave algorithm out, or pass row by row"
        )
    if uneven or (not by_offsets and lies_by_offsets(layout, rule, options)):
        call, by_offsets = call._replace(offsets=layout.even_edges), True
    plan, longest, extra = None, None, {}
    if by_offsets:
        found = offsets_of(home, a, call, length=layout.length, rows=layout.rows)
        layout, longest, extra["offsets"] = found.applied(layout), found.longest, found.array
    if layout.elements:
        problem = segment_problem(request, layout, rule, options, arch, longest, carry=carry)
        plan = plan_for(request.operation, problem, options.arch, options.backend, rule)
    return segment_call(plan, home, a, layout, rule, extra, carried=carry)


def prepare_product(asked: tuple[Any, ...], arrays: tuple[Any, ...], call: Call) -> ReadyCall:
    """Return the call for a product: `asked` begins with a request and options."""
    request: ProductRequest = asked[0]
    a, b, c = arrays
    named = {"a": a, request.second: b} | ({} if c is None else {"c": c})
    options: Options = asked[1].checked()
    home, given = gathered(named, options.backend)
    options = _on(home, options)
    left, right = home.describe(given["a"]), home.describe(given[request.second])
    if not isinstance(home, Host):
        _require_on_device(request, left, right)
    arch = _arch_on(home, options, given["a"])
    layout = request.layout(tuple(left.shape), tuple(right.shape))
    if isinstance(home, Host):
        factors = _common_type(left.dtype, right.dtype)
        dtype = _with_addend(factors, c) if request.dtype is None else request.dtype
        rule = types_on_host(
            factors.name, dtype, options.acc, arch, product=True, tile=options.tile
        )
        addend_of(c, layout.result, numpy_type(rule.result))
    else:
        rule = types_on_device(left.dtype, request.dtype, options.acc, arch, product=True)
        if c is not None:
            _require_addend(home, c, layout.result, rule)
    plan = None
    if not layout.is_empty:
        # Digits are multiplied in slices, so that the rows of integers may have any length.
        inner = min(layout.inner, 2**16) if rule.method == "digits" else layout.inner
        one = replace(layout, inner=inner)
        problem = product_problem(one, rule, options, arch, add_c=c is not None)
        plan = plan_for(request.operation, problem, options.arch, options.backend, rule)
    return product_call(plan, home, given, layout, rule)


def _on(home: Home, options: Options) -> Options:
    """Return the options with the backend that arrays in GPU memory have."""
    return options if isinstance(home, Host) else options._replace(backend=home.name)


def _arch_on(home: Home, options: Options, a: Any) -> str:
    """Return whose arithmetic a call follows on an array, where it is."""
    there = None if isinstance(home, Host) else a
    return arch_of_run(options.arch, options.backend, there)


def _with_addend(factors: np.dtype[Any], c: Any) -> str:
    """Return the usual type of the result, of integers the wide one."""
    common = factors
    if type(c) is float and factors.kind in "biu":
        common = np.dtype(np.float64)
    elif c is not None and type(c) not in (int, float):
        # As in NumPy, a Python scalar has no type of its own.
        common = _common_type(factors.name, as_numpy("c", c).dtype.name)
    if common.kind in "biu":
        return "uint64" if common.kind == "u" else "int64"
    return common.name


def _common_type(*names: str) -> np.dtype[Any]:
    try:
        common: np.dtype[Any] = np.result_type(*map(numpy_type, names))
    except TypeError as error:
        raise InputError(f"{', '.join(names)} have no common type; cast one of them") from error
    return common


def _require_on_device(
    request: ProductRequest, left: DeviceArrayFacts, right: DeviceArrayFacts
) -> None:
    """Refuse factors that go together in NumPy, and not in GPU memory."""
    if left.dtype != right.dtype:
        raise InputError(
            f"a is of {left.dtype} and {request.second} of {right.dtype}; in GPU memory both "
            "must be of one type: cast one of them"
        )


def _require_addend(backend: DeviceBackend, c: Any, shape: tuple[int, ...], rule: TypeRule) -> None:
    """Refuse an addend in GPU memory that is not like the result."""
    facts = backend.describe(c)
    if tuple(facts.shape) != shape or facts.dtype != rule.result:
        raise InputError(
            f"c must be of {rule.result}, shape {shape}, as the result in GPU memory; got "
            f"{facts.dtype}, {tuple(facts.shape)}"
        )
