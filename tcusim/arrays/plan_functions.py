"""Plans that a user makes by sizes and a type, before there are arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypedDict, Unpack, overload

from tcusim.arrays.calls import run
from tcusim.arrays.dtypes import real_type_of, types_on_host
from tcusim.arrays.libraries import Array, HostArray, Kind
from tcusim.arrays.plans import (
    Planned,
    lies_by_offsets,
    plan_for,
    product_problem,
    segment_problem,
)
from tcusim.arrays.problem import ProductProblem, require_unnamed
from tcusim.arrays.spec import (
    OPERATIONS,
    Call,
    ProductLayout,
    Spec,
    arch_of_run,
    count_of,
)
from tcusim.call_options import AnyOptions, options_of
from tcusim.errors import InputError, require_flags, require_names, unknown_name
from tcusim.machine.formats import array_name_of

__all__ = ["Plan", "ProductPlan", "plan", "plan_product"]


class _ByOffsets(TypedDict, total=False):
    offsets: Any
    check_offsets: bool
    segment_ids: Any
    initial: Any


class Plan(Planned):
    """The launches of one sum or scan, ready to be called; `tcusim.plan` makes one.

    `plan(a)` computes. What it takes is prepared in the first call on a backend and kept: programs
    emitted, compiled and loaded, and memory for what lies between launches. Further calls launch.

    Attributes
    ----------
    spec, problem, rule, launch_plan, strategy, rationale, stages
        As `Planned` has them: `launch_plan` is what a backend runs, and `rationale` says why.
    """

    @overload
    def __call__(
        self, a: HostArray, out: Any = ..., stream: Any = ..., **keywords: Unpack[_ByOffsets]
    ) -> Array: ...
    @overload
    def __call__(
        self, a: Kind, out: Any = ..., stream: Any = ..., **keywords: Unpack[_ByOffsets]
    ) -> Kind: ...
    def __call__(
        self,
        a: Any,
        out: Any = None,
        stream: Any = None,
        *,
        offsets: Any = None,
        check_offsets: bool = True,
        segment_ids: Any = None,
        initial: Any = None,
    ) -> Any:
        """Compute: launch for an array of the planned type and length.

        Results are those of `tcusim.sum` and its kin for such an array.

        Parameters
        ----------
        a : array
            Of the planned element type and `length` elements in any shape. A NumPy array runs on
            the plan's backend, "numpy" by default; an array in GPU memory stays there.
        out : array, optional
            Where to put the result: of a's kind, the result's element type and shape. For a scan
            it may be `a` itself if the two element types are equal.
        stream : optional
            For arrays in GPU memory, the stream to launch on; by default their library's current
            one. Calls on several streams or from several threads do not disturb each other.
        offsets : array_like of int, shape (segments + 1,), optional
            For plans of segments by offsets: where each begins and ends, as in
            `tcusim.segmented_sum`. For an array in GPU memory they may be there too, flat, of int64
            or int32.
        check_offsets : bool
            False leaves offsets in GPU memory unchecked, and the call waits for nothing: see
            `tcusim.segmented_sum`.
        segment_ids : array_like of int, optional
            Instead of offsets: the number of each element's segment, from 0 up, as there.
        initial : number or array, optional
            For plans made with initial=True: what precedes the first element of each segment, as in
            `tcusim.segmented_cumsum`.

        Returns
        -------
        array of a's kind; of a's shape for scans, (segments,) for segmented sums, () for sums

        Raises
        ------
        InputError
            If an array does not fit.
        """
        call = Call(out, stream, None, None, offsets, check_offsets, segment_ids, initial=initial)
        return run(self, (a,), call)


class ProductPlan(Planned):
    """The launch of one product, ready to be called; `tcusim.plan_product` makes one.

    `plan(a, b)` multiplies. The first call on a backend emits, compiles and loads the kernel;
    further calls launch it, and nothing else.

    Attributes
    ----------
    spec, problem, rule, launch_plan, strategy, rationale, stages
        As `Planned` has them: `launch_plan` is what a backend runs, and `rationale` says why.
    """

    problem: ProductProblem

    @overload
    def __call__(
        self, a: HostArray, b: HostArray, c: Any = ..., *, out: Any = ..., stream: Any = ...
    ) -> Array: ...
    @overload
    def __call__(
        self, a: Kind, b: Any, c: Any = ..., *, out: Any = ..., stream: Any = ...
    ) -> Kind: ...
    def __call__(
        self, a: Any, b: Any, c: Any = None, *, out: Any = None, stream: Any = None
    ) -> Any:
        """Multiply: launch for arrays of the planned types and sizes.

        Results are those of `tcusim.matmul` and `tcusim.matvec` for such arrays.

        Parameters
        ----------
        a : array, shape (..., inner)
            Of `rows` rows in all.
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
        return run(self, (a, b, c), Call(out, stream))


def plan(
    operation: str,
    *,
    length: int,
    segment_size: int | None = None,
    segments: int | None = None,
    longest: int | None = None,
    dtype: Any = "float16",
    result: Any = None,
    exclusive: bool = False,
    include_initial: bool = False,
    reverse: bool = False,
    initial: bool = False,
    options: AnyOptions = None,
) -> Plan:
    """Plan a sum or a scan of arrays of one length and type, to be called many times.

    `tcusim.sum` and its kin make such plans, keep the latest ones, and call them.

    Parameters
    ----------
    operation : {"sum", "cumsum", "segmented_sum", "segmented_cumsum"}
        What to compute; the first two take the array as one segment.
    length : int
        Elements of the array, at least 1.
    segment_size : int, optional
        Elements of a segment, up to `length`, for the last two operations. The last segment may be
        shorter.
    segments : int, optional
        Instead: how many segments there are, of any lengths. Calls then take `offsets`.
    longest : int, optional
        With `segments`: the most elements that any of them has, which may save launches. It is
        rounded up; offsets of a longer segment are refused.
    dtype : dtype
        Element type of the array, by NumPy's name or as a type: what `tcusim.sum` takes.
    result : dtype, optional
        What `dtype` is in `tcusim.sum`: the type of the computation and of the result. By default
        that of the array; of integers NumPy's wide one.
    exclusive, include_initial, reverse : bool
        Of a scan, as in `tcusim.segmented_cumsum`. With an initial zero the result is flat.
    initial : bool
        Of a scan: whether calls give the values that precede the segments' first elements.
    options : Options or mapping, optional
        How to compute, as `tcusim.Options` tells: `backend`, by default that of the array of each
        call, `tile`, `arch`, `acc`, `algorithm`, `bits` and `strategy`.

    Returns
    -------
    Plan
        What is launched; call it with an array of `length` elements.

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import numpy as np, tcusim
    >>> plan = tcusim.plan("segmented_sum", length=8, segment_size=4)
    >>> plan
    Plan('segmented_sum', 8 float16 in segments of 4 to float16: reduction_short)
    >>> plan(np.arange(8, dtype=np.float16))
    array([ 6., 22.], dtype=float16)
    """
    require_names(operation=operation)
    if operation in ("matmul", "matvec"):
        raise InputError(f"{operation!r} is a product; plan it with tcusim.plan_product")
    if operation not in OPERATIONS:
        raise unknown_name("operation", operation, OPERATIONS)
    length = count_of("length", length)
    sizes = _checked_sizes(
        operation, {"segment_size": segment_size, "segments": segments, "longest": longest}
    )
    size = sizes.get("segment_size")
    order = {"exclusive": exclusive, "include_initial": include_initial, "reverse": reverse}
    require_flags(**order, initial=initial)
    for name, wanted in (order | {"initial": initial}).items():
        if wanted and OPERATIONS[operation] != "scan":
            raise InputError(f"{name} is for scans, and {operation!r} is none")
    own = options_of(options, "plan", "report", "progress", "stream")
    backend, tile, arch, acc, algorithm, bits = own.planned
    spec = Spec(
        operation, 0, size, result, False, exclusive, reverse, include_initial, initial,
        *own.planned, own.strategy,
    )  # fmt: skip
    spec.require_names()
    used = arch_of_run(arch, backend)
    named_result = None if result is None else array_name_of(result)
    given = real_type_of(dtype)
    rule = types_on_host(given, named_result, acc, used, bits=bits, algorithm=algorithm, tile=tile)
    layout = spec.layout((length,), by_offsets="segments" in sizes)
    if initial:
        require_unnamed(algorithm, "initial=")
    is_cut = "segments" not in sizes and lies_by_offsets(spec, layout, rule)
    segments = layout.segments if is_cut else sizes.get("segments")
    longest = layout.segment_size if is_cut else sizes.get("longest")
    layout = replace(layout, by_offsets=segments)
    problem = segment_problem(spec, layout, rule, used, longest)
    made = plan_for(
        spec._replace(
            segment_size=layout.segment_size if is_cut else None,
            dtype=rule.named(named_result),
            tile=None,
        ),
        problem,
        rule,
        Plan,
    )
    assert isinstance(made, Plan)
    return made


def _checked_sizes(operation: str, sizes: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes of segments that were given; refuse those that do not go together."""
    given = {name: value for name, value in sizes.items() if value is not None}
    if operation in ("sum", "cumsum"):
        if given:
            raise InputError(
                f"{operation!r} takes the array as one segment; leave {next(iter(given))} out, or "
                f"plan 'segmented_{operation}'"
            )
    elif ("segment_size" in given) == ("segments" in given):
        raise InputError(
            f"{operation!r} needs segment_size, the elements of a segment, or segments, the number "
            f"of those by offsets; {'not both' if given else 'one of them'}"
        )
    elif "longest" in given and "segments" not in given:
        raise InputError("longest goes with segments, the number of those by offsets")
    return {name: count_of(name, value) for name, value in given.items()}


def plan_product(
    operation: str,
    *,
    rows: int,
    inner: int,
    cols: int | None = None,
    dtype: Any = "float16",
    result: Any = None,
    add_c: bool = False,
    options: AnyOptions = None,
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
        Element type of the factors: what `tcusim.matmul` takes.
    result : dtype, optional
        What `dtype` is in `tcusim.matmul`: the type of the computation and of the result. By
        default that of the factors; of integers NumPy's wide one, int32 in GPU memory.
    add_c : bool
        Add an array of the result's shape and type, given in each call.
    options : Options or mapping, optional
        As in `plan`, without `bits`.

    Returns
    -------
    ProductPlan
        What is launched; call it with arrays (rows, inner) and (inner, cols), or (inner,).

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
    if not isinstance(operation, str) or operation not in ("matmul", "matvec"):
        raise unknown_name("operation", operation, ("matmul", "matvec"))
    require_flags(add_c=add_c)
    if (cols is None) != (operation == "matvec"):
        raise InputError("'matmul' needs cols, the columns of b; 'matvec' has none")
    layout = ProductLayout(
        rows=count_of("rows", rows),
        inner=count_of("inner", inner),
        cols=None if cols is None else count_of("cols", cols),
        result=(),
    )
    own = options_of(options, "plan_product", "bits", "report", "progress", "stream")
    backend, tile, arch, acc, algorithm, _ = own.planned
    spec = Spec(
        operation, backend=backend, tile=tile, arch=arch, acc=acc, algorithm=algorithm,
        strategy=own.strategy,
    )  # fmt: skip
    spec.require_names()
    used = arch_of_run(arch, backend)
    named_result = None if result is None else array_name_of(result)
    given = real_type_of(dtype)
    rule = types_on_host(given, named_result, acc, used, product=True, tile=tile)
    problem = product_problem(spec, layout, rule, used, add_c=bool(add_c))
    of_plan = spec._replace(dtype=rule.named(named_result), tile=None)
    made = plan_for(of_plan, problem, rule, ProductPlan)
    assert isinstance(made, ProductPlan)
    return made
