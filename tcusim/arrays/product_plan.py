"""Plans of products: of matrices or of a matrix and a vector, launched where they lie."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tcusim.arrays.arguments import deliver, refuse_stream
from tcusim.arrays.devices import chosen_backend, is_on_device, library_of
from tcusim.arrays.launches import Launches, Memory
from tcusim.arrays.planned import Planned
from tcusim.arrays.problem import Shape, name_of_dtype, types_of, unit_of_run
from tcusim.arrays.product_programs import product_program
from tcusim.backends import DeviceBackend, get_backend
from tcusim.errors import InputError, Unsupported, unknown_name
from tcusim.machine import rule_for, unit_of
from tcusim.machine.shapes import MmaShape, shape_of
from tcusim.program.grammar import Program

__all__ = ["ProductPlan", "ProductProblem", "plan_product", "product_plan_for"]

# Products of int8 whose sum int32 holds: each is at most 2**14.
_MOST_INNER_INT8 = 2**16


@dataclass(frozen=True, slots=True)
class ProductProblem:
    """Sizes and types of a product: (rows, inner) times (inner, cols), or times a vector.

    cols: None for a vector. ab, acc: element types of operands and accumulators; source, result: of
    the factors and the result. add_c: whether an array is added. given: the tile as the user gave
    it. algorithm: a name, or None for the one that suits. unit: whose tensor cores and shared
    memory there are, by name; None has room for any block.
    """

    rows: int
    inner: int
    cols: int | None
    ab: str
    acc: str
    source: str
    result: str
    add_c: bool = False
    given: Shape | None = None
    algorithm: str | None = None
    unit: str | None = None

    @property
    def shape(self) -> MmaShape:
        """The tile."""
        return self.chosen()[0].shape

    def chosen(self) -> tuple[Program, str | None]:
        """Return the step program, and why its blocks are smaller than usual, if they are."""
        return product_program(
            (self.ab, self.acc, self.source, self.result),
            self.rows,
            self.cols or 1,
            self.inner,
            add_c=self.add_c,
            shape=self.given,
            algorithm=self.algorithm,
            unit=self.unit,
        )

    @property
    def second(self) -> str:
        """What the right factor is called: "x" if it is a vector."""
        return "x" if self.cols is None else "b"


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

    def _sizes(self) -> str:
        p = self.problem
        right = f"({p.inner})" if p.cols is None else f"({p.inner}, {p.cols})"
        plus = " + c" if p.add_c else ""
        return f"({p.rows}, {p.inner}) by {right}{plus}, {self.dtype} to {self.result}"


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
    wanted = None if result is None else name_of_dtype(result)
    types = types_of(name_of_dtype(dtype), wanted, accumulate)
    problem = ProductProblem(
        int(rows),
        int(inner),
        None if cols is None else int(cols),
        *types,
        add_c=bool(add_c),
        given=shape if shape is None else shape_of(shape),
        algorithm=algorithm,
        unit=unit_of(unit_of_run(arch, backend)).name,
    )
    return product_plan_for(problem, arch, backend)


@lru_cache(maxsize=256)
def product_plan_for(problem: ProductProblem, arch: str | None, backend: str | None) -> ProductPlan:
    """Return the plan for a product; the latest are kept."""
    p = problem
    rule_for(p.unit or unit_of_run(arch, backend), p.ab, p.acc)
    if p.ab == "s8" and p.inner > _MOST_INNER_INT8:
        raise Unsupported(
            f"sums of more than {_MOST_INNER_INT8} products of int8 do not fit int32; cut the "
            "matrices, or multiply NumPy arrays, whose integers are exact"
        )
    program, smaller = problem.chosen()
    columns = p.cols or 1
    given = [
        Memory("in", p.source, p.rows * p.inner),
        Memory(p.second, p.source, p.inner * columns),
    ]
    inputs = {buffer.name: buffer.name for buffer in program.inputs}
    inputs |= {"a": "in"}
    inputs[program.inputs[1].name] = p.second
    if p.add_c:
        given.append(Memory("c", p.result, p.rows * columns))
    draft = Launches(*given)
    draft.add(program, inputs, "out")
    draft.why.append(
        f"algorithm={p.algorithm!r} was asked for"
        if p.algorithm is not None
        else f"{program.name} suits {'a vector' if columns == 1 else 'a matrix'} on the right"
    )
    if smaller is not None:
        draft.why.append(smaller)
    operation = "matvec" if p.cols is None else "matmul"
    return ProductPlan(
        operation=operation,
        problem=problem,
        arch=arch,
        backend=backend,
        launch_plan=draft.finish(operation),
        why=tuple(draft.why),
    )
