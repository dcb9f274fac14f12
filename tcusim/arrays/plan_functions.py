"""Plans that a user makes by sizes and a type, before there are arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypedDict, Unpack, overload

from tcusim.arrays.calls import run
from tcusim.arrays.dtypes import real_type_of, types_on_host
from tcusim.arrays.home import HOST
from tcusim.arrays.libraries import Array, HostArray, Kind, is_on_device
from tcusim.arrays.plans import Planned, lies_by_offsets, plan_for, product_problem, segment_problem
from tcusim.arrays.problem import ProductProblem, require_unnamed
from tcusim.arrays.segments import Segments, given_segments
from tcusim.arrays.spec import OPERATIONS, Call, ProductLayout, Spec, arch_of_run, count_of
from tcusim.call_options import AnyOptions, options_of
from tcusim.errors import InputError, require_flags, require_names, unknown_name
from tcusim.machine.formats import array_name_of


class _OfCall(TypedDict, total=False):
    segments: Any
    initial: Any


class Plan(Planned):
    """The launches of one sum or scan, ready to be called; `tcusim.plan` makes one.

    `plan(a)` computes. The first call on a backend emits, compiles and loads the programs, and
    allocates memory between launches. Further calls only launch.

    Attributes
    ----------
    spec, problem, rule, launch_plan, strategy, rationale, stages
        As `Planned` has them: a backend runs the `launch_plan`; `rationale` gives the reasons.
    """

    @overload
    def __call__(
        self, a: HostArray, out: Any = ..., stream: Any = ..., **keywords: Unpack[_OfCall]
    ) -> Array: ...
    @overload
    def __call__(
        self, a: Kind, out: Any = ..., stream: Any = ..., **keywords: Unpack[_OfCall]
    ) -> Kind: ...
    def __call__(
        self,
        a: Any,
        out: Any = None,
        stream: Any = None,
        *,
        segments: Any = None,
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
        segments : array_like of int or Segments, optional
            For plans of segments by offsets: their offsets, as in `tcusim.segmented_sum`. With
            ``tcusim.Segments(..., check=False)`` the call waits for nothing.
        initial : number or array, optional
            For plans made with initial=True: the initial values of segments, as in
            `tcusim.segmented_cumsum`.

        Returns
        -------
        array of a's kind; of a's shape for scans, (segments,) for segmented sums, () for sums

        Raises
        ------
        InputError
            If an array does not fit.
        """
        size, by = given_segments(segments)
        if size is not None:
            raise InputError(f"this plan knows the size of its segments: leave out segments={size}")
        if by is not None and by.sort:
            raise InputError(
                "sort=True sorts the elements, which is no part of a plan. Sort them by their ids, "
                "or call tcusim." + self.operation
            )
        return run(self, (a,), Call(out, stream, segments=by, initial=initial))


class ProductPlan(Planned):
    """The launch of one product, ready to be called; `tcusim.plan_product` makes one.

    `plan(a, b)` multiplies. The first call on a backend emits, compiles and loads the kernel;
    further calls launch it, and nothing else.

    Attributes
    ----------
    spec, problem, rule, launch_plan, strategy, rationale, stages
        As `Planned` has them: a backend runs the `launch_plan`; `rationale` gives the reasons.
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
    segments: int | Segments | None = None,
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
        The operation; the first two take the array as one segment.
    length : int
        Elements of the array, at least 1.
    segments : int or Segments, optional
        For the last two operations. The elements of each segment, up to `length`; the last one may
        be shorter. Or, for segments of any lengths, whose offsets calls give, their number:
        ``tcusim.Segments(count=...)``, with ``longest=``, which may save launches, if it is known
        that none has more elements. It is rounded up, and calls with a longer segment are refused.
        Or segments themselves, for their number and the longest one.
    dtype : dtype
        Element type of the array, by NumPy's name or as a type, as in `tcusim.sum`.
    result : dtype, optional
        Type of the computation and of the result, like `dtype` in `tcusim.sum`. By default the type
        of the array; for integers, NumPy's wide one.
    exclusive, include_initial, reverse : bool
        Of a scan, as in `tcusim.segmented_cumsum`. With an initial zero the result is flat.
    initial : bool
        Of a scan: whether calls give the values that precede the segments' first elements.
    options : Options or mapping, optional
        As in `tcusim.Options`: `backend`, by default that of the array of each call, `tile`,
        `arch`, `acc`, `algorithm`, `bits` and `strategy`.

    Returns
    -------
    Plan
        The launches; call the plan with an array of `length` elements.

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import numpy as np, tcusim
    >>> plan = tcusim.plan("segmented_sum", length=8, segments=4)
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
    size, by = _checked_segments(operation, segments)
    number, longest = (None, None) if by is None else _number_of(by, length)
    order = {"exclusive": exclusive, "include_initial": include_initial, "reverse": reverse}
    require_flags(**order, initial=initial)
    for name, wanted in (order | {"initial": initial}).items():
        if wanted and OPERATIONS[operation] != "scan":
            raise InputError(f"{name} is for scans, and {operation!r} is none")
    own = options_of(options, "plan", "report", "progress", "stream")
    spec = Spec(
        operation, 0, size, result, False, exclusive, reverse, include_initial, initial,
        *own.planned, own.strategy,
    )  # fmt: skip
    spec.require_names()
    used = arch_of_run(spec.arch, spec.backend)
    named_result = None if result is None else array_name_of(result)
    rule = types_on_host(spec, real_type_of(dtype), used)
    layout = spec.layout((length,), by_offsets=by is not None)
    if initial:
        require_unnamed(spec.algorithm, "initial")
    is_cut = by is None and lies_by_offsets(spec, layout, rule)
    if is_cut:
        number, longest = layout.segments, layout.segment_size
    layout = replace(layout, by_offsets=number)
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


def _checked_segments(operation: str, segments: Any) -> tuple[int | None, Segments | None]:
    """Return the size of segments, or segments by offsets; refuse those of a whole-array call."""
    size, by = given_segments(segments)
    if operation in ("sum", "cumsum"):
        if segments is not None:
            raise InputError(
                f"{operation!r} takes the array as one segment; leave segments out, or plan "
                f"'segmented_{operation}'"
            )
        return None, None
    if segments is None:
        raise InputError(
            f"{operation!r} needs segments: the elements of each one, or their number, as "
            "tcusim.Segments(count=...), if calls give offsets"
        )
    return None if by is not None else count_of("segments", size), by


def _number_of(by: Segments, length: int) -> tuple[int, int | None]:
    """Return the number of segments that calls will give, and the most elements of one if known."""
    if by.name == "count":
        return count_of("count", by.count), by.longest
    if is_on_device(by.given):
        raise InputError(
            "a plan reads no integers in GPU memory. Give tcusim.Segments(count=..., longest=...), "
            "and the offsets in each call"
        )
    known = by.at(HOST, None, None, length=length, rows=1)
    return known.segments, known.longest


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
        The operation.
    rows, inner : int
        Rows and columns of the left matrix, at least 1.
    cols : int, optional
        Columns of the right one, for "matmul".
    dtype : dtype
        Element type of the factors, as in `tcusim.matmul`.
    result : dtype, optional
        Type of the computation and of the result, like `dtype` in `tcusim.matmul`. By default the
        type of the factors; for integers, NumPy's wide one, and int32 in GPU memory.
    add_c : bool
        Add an array of the result's shape and type, given in each call.
    options : Options or mapping, optional
        As in `plan`, without `bits`.

    Returns
    -------
    ProductPlan
        The launches; call the plan with arrays (rows, inner) and (inner, cols), or (inner,).

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
    spec = Spec.of_product(operation, result, own, own.strategy)
    spec.require_names()
    used = arch_of_run(spec.arch, spec.backend)
    named_result = None if result is None else array_name_of(result)
    rule = types_on_host(spec, real_type_of(dtype), used)
    problem = product_problem(spec, layout, rule, used, add_c=bool(add_c))
    of_plan = spec._replace(dtype=rule.named(named_result), tile=None)
    made = plan_for(of_plan, problem, rule, ProductPlan)
    assert isinstance(made, ProductPlan)
    return made
