"""Products of arrays in GPU memory: planned from what they are, run where they lie."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcusim.arrays.arguments import broadcast
from tcusim.arrays.devices import chosen_backend, is_on_device, library_of
from tcusim.arrays.kernels import Settings, note_plan
from tcusim.arrays.on_device import require_bf16, types_on_device
from tcusim.arrays.problem import ProductProblem, tile_for, types_of, unit_of_run
from tcusim.arrays.product_plan import product_plan_for
from tcusim.backends import DeviceBackend
from tcusim.errors import InputError, Unsupported

__all__ = ["multiply"]


def multiply(
    a: Any,
    b: Any,
    c: Any,
    *,
    second: str,
    out: Any,
    dtype: Any,
    settings: Settings,
    stream: Any,
) -> Any:
    """Return a @ b, or a @ b + c, as an array of a's kind, on its device.

    a: (..., M, K) or (K,). b: (..., K, N) or (K,), which messages call by the name `second`. If
    it is several matrices, they are multiplied one by one, each by the plan for one.
    """
    given = {"a": a, second: b} if c is None else {"a": a, second: b, "c": c}
    for name, array in given.items():
        if not is_on_device(array):
            other = next(other for other in given if is_on_device(given[other]))
            raise InputError(
                f"{name} is a {library_of(array)}, but {other} is in GPU memory; copy {name} there "
                "too"
            )
    backend = chosen_backend(a, settings.backend)
    facts = {name: backend.describe(array) for name, array in given.items()}
    shapes = {name: tuple(fact.shape) for name, fact in facts.items()}
    if facts["a"].dtype != facts[second].dtype:
        raise InputError(
            f"a is of {facts['a'].dtype} and {second} of {facts[second].dtype}; in GPU memory both "
            "must be of one type: cast one of them"
        )
    work, wanted = types_on_device(facts["a"].dtype, dtype)
    unit = unit_of_run(settings.named_arch, backend.name)
    require_bf16(work, unit)
    left, right = shapes["a"], shapes[second]
    result = _result_shape(left, right, second)
    if c is not None and (shapes["c"] != result or facts["c"].dtype != wanted):
        raise InputError(
            f"c must be of {wanted}, shape {result}, as the result in GPU memory; got "
            f"{facts['c'].dtype}, {shapes['c']}"
        )
    if 0 in (*left, *right):
        if out is not None or c is not None:
            raise Unsupported(
                "out= and c for matrices without elements in GPU memory; leave them out"
            )
        return backend.zeros(a, result, wanted)
    stacked = len(right) > 2
    types = types_of(work, wanted, settings.accumulate)
    problem = ProductProblem(
        rows=math.prod(left[-2:-1] if stacked else left[:-1]),
        inner=left[-1],
        cols=right[-1] if len(right) > 1 else None,
        types=types,
        tile=tile_for(types, settings.shape),
        add_c=c is not None,
        algorithm=settings.algorithm,
        arch=unit,
    )
    plan = product_plan_for(problem, settings.named_arch, backend.name)
    inputs = {"in": _in_order(backend, a, work), problem.second: _in_order(backend, b, work)}
    if c is not None:
        inputs["c"] = _in_order(backend, c, wanted)
    starts = _starts(left, right, problem) if stacked else None
    made = plan.launched(backend, inputs, out, result, stream, starts=starts)
    for _ in range(1 if starts is None else len(starts)):
        note_plan(plan, unit, settings)
    return made


def _starts(
    left: tuple[int, ...], right: tuple[int, ...], p: ProductProblem
) -> list[dict[str, int]]:
    """Return where the factors, the addend and the result of each product begin, in elements."""
    assert p.cols is not None
    lead = np.broadcast_shapes(left[:-2], right[:-2])
    number = np.arange(math.prod(lead))
    places = {
        "in": _places(left[:-2], lead) * p.rows * p.inner,
        "b": _places(right[:-2], lead) * p.inner * p.cols,
        "c": number * p.rows * p.cols,
        "out": number * p.rows * p.cols,
    }
    return [{name: int(start[i]) for name, start in places.items()} for i in number]


def _places(axes: tuple[int, ...], lead: tuple[int, ...]) -> NDArray[np.int64]:
    """Return which matrix of an array with these axes before it is each one of those broadcast."""
    return np.broadcast_to(np.arange(math.prod(axes)).reshape(axes), lead).ravel()


def _result_shape(left: tuple[int, ...], right: tuple[int, ...], second: str) -> tuple[int, ...]:
    """Return the result's shape; refuse shapes that do not go together."""
    if second == "x" and (len(left) < 2 or len(right) != 1):
        raise InputError(
            f"matvec of arrays in GPU memory takes a matrix, of two axes or more, and one vector; "
            f"got shapes {left} and {right}"
        )
    if not left or not right:
        raise InputError(
            f"matmul takes arrays of one axis or more, got shapes {left} and {right}; multiply by "
            "a scalar with *"
        )
    inner = right[0] if len(right) == 1 else right[-2]
    if left[-1] != inner:
        unit = "elements" if second == "x" else "rows"
        raise InputError(
            f"a has {left[-1]} columns and {second} {inner} {unit}, which must be equal; got "
            f"shapes {left} and {right}"
        )
    if len(right) <= 2:
        return left[:-1] + right[1:]
    return broadcast(left[:-2], right[:-2], (left, right)) + left[-2:-1] + right[-1:]


def _in_order(backend: DeviceBackend, array: Any, dtype: str) -> Any:
    """Return the array without gaps and of this type: itself, or a copy by its own library."""
    return backend.arranged(array, tuple(range(len(backend.describe(array).shape))), dtype)
