"""Plans of products: of matrices or of a matrix and a vector, launched where they lie."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from tcusim.arrays.arguments import deliver, refuse_stream
from tcusim.arrays.devices import chosen_backend, is_on_device, library_of
from tcusim.arrays.planned import Planned
from tcusim.arrays.planner import choose
from tcusim.arrays.problem import ProductProblem, Shape, tile_for, types_of, unit_of_run
from tcusim.backends import DeviceBackend, get_backend
from tcusim.errors import InputError, unknown_name
from tcusim.machine.formats import array_name_of

__all__ = ["ProductPlan", "plan_product", "product_plan_for"]


class ProductPlan(Planned):
    """The launch of one product, ready to be called; `tcusim.plan_product` makes one.

    `plan(a, b)` multiplies. The first call on a backend emits, compiles and loads the kernel;
    further calls launch it, and nothing else.
    """

    problem: ProductProblem

    def __call__(
        self, a: Any, b: Any, c: Any = None, *, out: Any = None, stream: Any = None
    ) -> Any:
        """Multiply: launch for arrays of the planned types and sizes.

        The data are not looked at: float32 values that are not finite, or beyond 3.39e38, make the
        results NaN to which they contribute.

        Parameters
        ----------
        a : array, shape (..., inner)
            Of `rows` rows in all, C-contiguous if in GPU memory.
        b : array, shape (inner, cols) or (inner,)
            Where `a` is.
        c : array, optional
            Of the result's shape and type, if the plan was made with add_c.
        out : array, optional
            Where to put the result; it overlaps no other array.
        stream : optional
            For arrays in GPU memory, the stream to launch on.

        Returns
        -------
        array of a's kind, shape (..., cols) or (...)

        Raises
        ------
        InputError
            If an array does not fit.
        """
        p = self.problem
        if (c is not None) != p.add_c:
            raise InputError(
                "this plan adds an array: give c"
                if p.add_c
                else "this plan adds no array; leave c out, or make one with add_c=True"
            )
        inputs = {"in": a, p.second: b} if c is None else {"in": a, p.second: b, "c": c}
        if is_on_device(a):
            backend = chosen_backend(a, self.backend)
            shapes = {name: tuple(backend.describe(x).shape) for name, x in _there(inputs)}
            return self.on_device(backend, inputs, out, self._shape_of_result(shapes), stream)
        refuse_stream(stream)
        return self._on_host({name: _here(name, x) for name, x in inputs.items()}, out)

    def on_device(
        self,
        backend: DeviceBackend,
        inputs: dict[str, Any],
        out: Any,
        shape: tuple[int, ...],
        stream: Any,
    ) -> Any:
        """Multiply arrays in GPU memory, by the plan's names; the result has this shape."""
        return self.launched(backend, inputs, out, shape, stream)

    def _on_host(self, inputs: dict[str, Any], out: Any) -> Any:
        shape = self._shape_of_result({name: array.shape for name, array in inputs.items()})
        for name, array in inputs.items():
            wanted = self.result if name == "c" else self.dtype
            if array.dtype.name != wanted:
                raise InputError(
                    f"this plan takes {_called(name)} of {wanted}, got {array.dtype}; make another "
                    "plan, or cast the array"
                )
        runner = get_backend(self.backend or "numpy")
        flat = {name: np.ascontiguousarray(array).reshape(-1) for name, array in inputs.items()}
        result = runner.run(self.launch_plan, flat, arch=self.arch)["out"]
        return deliver(result.reshape(shape), out, None)

    def _shape_of_result(self, shapes: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
        """Return the result's shape; refuse arrays of other shapes than planned."""
        p = self.problem
        right = (p.inner,) if p.cols is None else (p.inner, p.cols)
        first = shapes["in"]
        if not first or first[-1] != p.inner or math.prod(first[:-1]) != p.rows:
            raise InputError(
                f"this plan takes a of shape ({p.rows}, {p.inner}), or with more axes and as many "
                f"rows; got {first}. Make another plan"
            )
        result = first[:-1] + right[1:]
        for name, wanted in ((p.second, right), ("c", result)):
            if name in shapes and shapes[name] != wanted:
                raise InputError(
                    f"this plan takes {name} of shape {wanted}, got {shapes[name]}; make another "
                    "plan"
                )
        return result


def _called(name: str) -> str:
    return "a" if name == "in" else name


def _there(inputs: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the inputs by name; refuse one that is not in GPU memory, as `a` is."""
    for name, array in inputs.items():
        if not is_on_device(array):
            raise InputError(
                f"a is in GPU memory, but {name} is a {library_of(array)}; copy it there first"
            )
    return list(inputs.items())


def _here(name: str, array: Any) -> Any:
    """Return an input as a NumPy array."""
    if is_on_device(array):
        raise InputError(
            f"{_called(name)} is a {library_of(array)} in GPU memory, but a is not; copy a there, "
            f"or {name} to a NumPy array"
        )
    return np.asarray(array)


def plan_product(
    operation: str,
    *,
    rows: int,
    inner: int,
    cols: int | None = None,
    dtype: Any = "float16",
    result: Any = None,
    add_c: bool = False,
    backend: str | None = None,
    shape: Shape | None = None,
    arch: str | None = None,
    accumulate: str = "f32",
    algorithm: str | None = None,
) -> ProductPlan:
    """Plan a product of arrays of given sizes and type, to be called many times.

    Parameters
    ----------
    operation : {"matmul", "matvec"}
        What to compute.
    rows, inner : int
        Rows and columns of the left matrix, at least 1.
    cols : int, optional
        Columns of the right one, for "matmul".
    dtype : dtype
        Element type of the factors: float16, bfloat16, float32, float64 or int8.
    result : dtype, optional
        Element type of the result: a float type for floats, int32 for int8. Default: dtype, or
        int32.
    add_c : bool
        Add an array of the result's shape and type, given in each call.
    backend, shape, arch, accumulate, algorithm
        As in `tcusim.matmul`.

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import numpy as np, tcusim
    >>> plan = tcusim.plan_product("matvec", rows=2, inner=3)
    >>> plan
    Plan('matvec', (2, 3) by (3), float16 to float16: gemv_reduction)
    >>> plan(np.ones((2, 3), np.float16), np.arange(3, dtype=np.float16))
    array([3., 3.], dtype=float16)
    """
    if operation not in ("matmul", "matvec"):
        raise unknown_name("operation", operation, ("matmul", "matvec"))
    if (cols is None) != (operation == "matvec"):
        raise InputError("'matmul' needs cols, the columns of b; 'matvec' has none")
    for name, size in (("rows", rows), ("inner", inner), ("cols", cols)):
        if size is not None and (not isinstance(size, (int, np.integer)) or size < 1):
            raise InputError(f"{name} must be an integer of at least 1, got {size!r}")
    wanted = None if result is None else array_name_of(result)
    types = types_of(array_name_of(dtype), wanted, accumulate)
    problem = ProductProblem(
        rows=int(rows),
        inner=int(inner),
        cols=None if cols is None else int(cols),
        types=types,
        tile=tile_for(types, shape),
        add_c=bool(add_c),
        algorithm=algorithm,
        arch=unit_of_run(arch, backend),
    )
    return product_plan_for(problem, arch, backend)


@lru_cache(maxsize=256)
def product_plan_for(problem: ProductProblem, arch: str | None, backend: str | None) -> ProductPlan:
    """Return the plan for a product; the latest are kept."""
    operation = "matvec" if problem.cols is None else "matmul"
    choice = choose(problem, operation)
    return ProductPlan(
        operation=operation,
        problem=problem,
        arch=arch,
        backend=backend,
        launch_plan=choice.plan,
        strategy=choice.strategy,
        rationale=choice.rationale,
    )
