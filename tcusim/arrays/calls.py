"""Calls: the way from arrays to a result, prepared once for like calls and kept.

`run` is the way of every call. It finds in `_PREPARED` the call for a specification and arrays of
these signatures, or prepares it (types, layout, problem, plan), and launches where the arrays are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from tcusim.arrays.dtypes import TypeRule, numpy_type, types_on_device, types_on_host
from tcusim.arrays.exact import Stage, batch
from tcusim.arrays.home import (
    HOST,
    Home,
    Host,
    addend_of,
    delivered,
    gathered,
    returned,
    warn_of_overflow,
)
from tcusim.arrays.libraries import (
    as_numpy,
    is_foreign,
    is_on_device,
    keep,
    require_plain,
    signature,
)
from tcusim.arrays.plans import (
    Planned,
    launches_for,
    lies_by_offsets,
    plan_for,
    product_problem,
    segment_problem,
)
from tcusim.arrays.problem import (
    Problem,
    ProductProblem,
    require_unnamed,
    rounded_longest,
    segments_in_words,
    tile_for,
)
from tcusim.arrays.report import Report
from tcusim.arrays.segments import MOST_KEPT, Offsets, Segments, initial_of, require_longest
from tcusim.arrays.spec import Call, Layout, ProductLayout, Spec, arch_of_run, numbers_of
from tcusim.backends import (
    DeviceArrayFacts,
    DeviceBackend,
    PreparedLaunch,
    Session,
    prepared_launch_of,
)
from tcusim.errors import InputError, Unsupported, told
from tcusim.machine.registry import UNITS

# The order of an array's axes, and its type.
Arrangement: TypeAlias = tuple[tuple[int, ...], str]


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """The part that is the same for all calls with one specification on arrays of like signatures.

    home: where the arrays are. rule: their types. arch: whose arithmetic. plan: of the launches;
    None if there is nothing to compute, and until the offsets of segments are known. arranged: for
    each array, by the plan's name, its order of axes and the type to which it is cast first; None
    where it is taken as it is. layout: of a sum or a scan. shape: of the result. flat: its shape
    for the user, if the session computes it in another. offsets: of the segments, if they are the
    same for all these calls. starts: the beginnings of products that are computed one by one, in
    elements. before: the stages before the plan's own. session: of a GPU. signatures: of the call's
    arrays, if it is kept. initial_there: whether initial values are in GPU memory, too.
    """

    spec: Spec
    home: Home
    rule: TypeRule
    arch: str
    plan: Planned | None
    arranged: tuple[tuple[str, Arrangement | None], ...]
    shape: tuple[int, ...]
    layout: Layout | None = None
    flat: tuple[int, ...] | None = None
    offsets: Offsets | None = None
    starts: Sequence[Mapping[str, int]] | None = None
    before: tuple[Stage, ...] = ()
    session: Session | None = None
    signatures: Hashable = None
    initial_there: bool = False
    # By the number of segments, and the rounded length of the longest: the same calls with a plan.
    planned: dict[Hashable, PreparedCall] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    # Prepared launches of the plan, by the signatures of offsets and out; None where there is none.
    launches: dict[Hashable, PreparedLaunch | None] = field(
        default_factory=dict, repr=False, compare=False
    )
    # The axes of the result, where the last is to go back to its place.
    back: tuple[int, ...] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.layout is not None:
            object.__setattr__(self, "back", self.layout.back)

    @property
    def is_one_launch(self) -> bool:
        """Whether each call is one launch of the plan on the arrays as they are."""
        edge = self.layout is not None and self.layout.initial is not None
        as_they_are = all(arrangement is None for _, arrangement in self.arranged)
        return as_they_are and self.starts is None and not edge


# The latest calls, by all on which they depend beside values. Those by `tcusim.Segments` that are
# checked once are kept there.
_PREPARED: Final[dict[Hashable, PreparedCall]] = {}
_MOST_PREPARED: Final = 256
# Of one prepared call: calls by offsets, prepared launches.
_MOST_PLANNED: Final = 64
_MOST_LAUNCHES: Final = 8
_NOTICED: Final[ContextVar[list[PreparedCall] | None]] = ContextVar("tcusim.noticed", default=None)


# The calls of `forget`: a Segments object keeps prepared calls of its own.
_forgotten = 0


def forget() -> None:
    """Let go of all prepared calls and plans, and with them of the sessions of backends."""
    global _forgotten
    _forgotten += 1
    _PREPARED.clear()
    plan_for.cache_clear()
    launches_for.cache_clear()


# A plan fits the arithmetic of a unit that its file, changed and read again, describes anew.
UNITS.after_replacing.append(forget)


@contextmanager
def noticed() -> Iterator[list[PreparedCall]]:
    """Give a list, to which each call that is run within this context is added."""
    seen: list[PreparedCall] = []
    token = _NOTICED.set(seen)
    try:
        yield seen
    finally:
        _NOTICED.reset(token)


def run(request: Spec | Planned, arrays: tuple[Any, ...], call: Call) -> Any:
    """Compute arrays as a specification or a plan says; `call` has the keywords of this call alone.

    Arrays of other libraries in the computer's memory are taken as NumPy's, and the result is
    returned as theirs.
    """
    key, by = _key_of(request, arrays, call), call.segments
    try:
        prepared = (_PREPARED if by is None else by.calls).get(key)
    except TypeError:
        # An argument has no hash.
        key = prepared = None
    if prepared is not None:
        offsets = prepared.offsets
    elif any(map(is_foreign, arrays)) and not any(map(is_on_device, arrays)):
        return _run_foreign(request, arrays, call)
    else:
        prepared, offsets = _prepared(request, arrays, call, key)
    seen = _NOTICED.get()
    if seen is not None:
        seen.append(prepared)
    if prepared.session is None and isinstance(prepared.home, Host):
        return _on_host(prepared, arrays, call, offsets)
    return _on_device(prepared, arrays, call, offsets)


def _key_of(
    request: Spec | Planned, arrays: tuple[Any, ...], call: Call
) -> tuple[Hashable, ...] | None:
    """Return all on which a call depends beside values; None if that cannot be told quickly."""
    signatures, of_initial = tuple(map(signature, arrays)), call.initial
    if of_initial is not None:
        # Initial values on the computer are copied each time.
        of_initial = signature(of_initial) if is_on_device(of_initial) else Host
        if of_initial is None:
            return None
    if None in signatures:
        return None
    # True is 1, and 1.0 is, too: a specification of other types is checked by itself.
    kinds = tuple(map(type, numbers_of(request))) if isinstance(request, Spec) else ()
    return request, kinds, signatures, of_initial, call.segments is not None, _forgotten


def _run_foreign(request: Spec | Planned, arrays: tuple[Any, ...], call: Call) -> Any:
    """Compute arrays of other libraries in the computer's memory; return one of the same kind."""
    names = ("a", "b", "c")
    taken = tuple(
        as_numpy(name, array) if is_foreign(array) else array
        for name, array in zip(names, arrays, strict=False)
    )
    like = next(array for array in arrays if is_foreign(array))
    if call.out is not None and not is_foreign(call.out):
        return run(request, taken, call)
    result = run(request, taken, call._replace(out=None))
    return returned(np.asarray(result), call.out, like)


def prepared_of(prepared: PreparedCall, array: Any) -> Callable[[Any], Any] | None:
    """Return the prepared launch for a call that has been run on this array only, if any.

    It takes such an array, and returns None, without a launch, if the call is to be made again.
    """
    if prepared.back is not None or prepared.signatures != (signature(array),):
        return None
    offsets = prepared.offsets
    launch = prepared.launches.get(() if offsets is None else (offsets.signature,))
    if launch is None or offsets is None:
        return launch
    return lambda array: launch(array, offsets.array)


# --- Running a prepared call ----------------------------------------------------------------------


def _on_host(
    prepared: PreparedCall, arrays: tuple[Any, ...], call: Call, offsets: Offsets | None
) -> Any:
    """Compute NumPy arrays: flatten, compute, and shape the result."""
    if call.stream is not None:
        raise InputError("stream= is for arrays in GPU memory, and a is a NumPy array")
    if call.report is not None:
        _require_report(call.report)
    layout, plan, dtype = prepared.layout, prepared.plan, numpy_type(prepared.rule.result)
    flat: dict[str, Any] = {}
    for (name, arrangement), array in zip(prepared.arranged, arrays, strict=False):
        assert arrangement is not None
        if name == "c":
            array = addend_of(array, prepared.shape, dtype)
        flat[name] = HOST.arranged(np.asarray(array), *arrangement).reshape(-1)
    if offsets is not None:
        flat["offsets"] = offsets.array
    if layout is not None and prepared.spec.carry:
        flat["carry"] = initial_of(HOST, arrays[0], call.initial, layout, prepared.rule)
    if plan is None:
        zeros = np.zeros(prepared.shape, dtype)
        result = flat["c"].reshape(prepared.shape).copy() if "c" in flat else zeros
    else:
        if layout is not None and layout.missing:
            whole = flat["in"].reshape(layout.rows, layout.length)
            flat["in"] = np.pad(whole, ((0, 0), (0, layout.missing))).reshape(-1)
        result = plan.compute(flat, call, prepared.before)
        warn_of_overflow(plan.operation, result, flat.values())
        if layout is not None:
            result = layout.unfilled(result, None if offsets is None else offsets.edges)
        result = result.reshape(prepared.shape)
    if layout is not None and layout.back is not None:
        result = HOST.restored(result, layout.back)
    return delivered(result, call.out, None if layout is None else arrays[0])


def _require_report(report: Any) -> None:
    if not isinstance(report, Report):
        raise InputError(
            "report must be a tcusim.arrays.report.Report, which the call fills in; got "
            f"{told(report)}"
        )


def _on_device(
    prepared: PreparedCall, arrays: tuple[Any, ...], call: Call, offsets: Offsets | None
) -> Any:
    """Compute arrays in GPU memory where they are: by a prepared launch, or by the session."""
    home, out = prepared.home, call.out
    assert not isinstance(home, Host)
    key: tuple[Hashable, ...] = ()
    beside = {}
    if offsets is not None:
        key, beside["offsets"] = (offsets.signature,), offsets.array
    if out is not None:
        key = (*key, signature(out))
    launch = prepared.launches.get(key)
    if prepared.spec.carry and prepared.layout is not None:
        # Where there is a prepared launch, initial values of the same signature were right.
        as_it_is = launch is not None and prepared.initial_there
        beside["carry"] = call.initial if as_it_is else _initial(prepared, home, arrays[0], call)
    result = None
    if launch is not None:
        as_they_are = arrays[: len(prepared.arranged)]
        result = launch(*as_they_are, *beside.values(), out=out, stream=call.stream)
    if result is None:
        if out is not None:
            require_plain("out", out)
        if prepared.plan is None:
            return _zeros(prepared, home, arrays, out)
        result = _launched(prepared, home, arrays, beside, call, key)
    if call.report is not None:
        _require_report(call.report)
        assert prepared.plan is not None
        for _ in prepared.starts or (None,):
            call.report.note(prepared.plan.launch_plan, prepared.plan.problem.arch or "")
    if prepared.flat is not None:
        result = out if out is not None else result.reshape(prepared.flat)
    return result if prepared.back is None else home.restored(result, prepared.back)


def _initial(prepared: PreparedCall, home: DeviceBackend, a: Any, call: Call) -> Any:
    """Return the initial values of a call, flat, where `a` is: those of a number may be kept."""
    plan, initial, layout = prepared.plan, call.initial, prepared.layout
    assert layout is not None
    if plan is None or prepared.signatures is None or type(initial) not in (int, float):
        return initial_of(home, a, initial, layout, prepared.rule)
    # 0.0 is -0.0 as well, and nan is none.
    key = prepared.signatures, initial.hex() if type(initial) is float else initial
    kept = plan.initials.get(key)
    if kept is None:
        kept = initial_of(home, a, initial, layout, prepared.rule)
        plan.keep_initial(key, kept, home)
    return kept


def _launched(
    prepared: PreparedCall,
    home: DeviceBackend,
    arrays: tuple[Any, ...],
    beside: Mapping[str, Any],
    call: Call,
    key: tuple[Hashable, ...],
) -> Any:
    """Launch by the session on a call's arrays, and prepare launches for such calls.

    beside: other inputs of the plan, by its names. key: of the prepared launch.
    """
    out, session = call.out, prepared.session
    assert session is not None
    if out is not None and prepared.back is not None:
        raise Unsupported(
            "out= for an array in GPU memory goes with the last axis alone: the result is "
            "computed with its axis last. Leave out= out, and copy what comes back"
        )
    inputs = {
        name: array if arrangement is None else home.arranged(array, *arrangement)
        for (name, arrangement), array in zip(prepared.arranged, arrays, strict=False)
    }
    inputs |= beside
    if out is not None and prepared.flat is not None:
        out = out.reshape(prepared.shape)
    result = session.run(
        inputs,
        out=out,
        shape=prepared.shape,
        stream=call.stream,
        initial=None if prepared.layout is None else prepared.layout.initial,
        starts=prepared.starts,
    )
    if key not in prepared.launches and None not in key and prepared.is_one_launch:
        launch = prepared_launch_of(session, inputs, out, prepared.shape)
        keep(prepared.launches, key, launch, _MOST_LAUNCHES)
    return result


def _zeros(prepared: PreparedCall, home: DeviceBackend, arrays: tuple[Any, ...], out: Any) -> Any:
    """Return the result for arrays in GPU memory without elements."""
    if out is not None or any(array is not None for array in arrays[2:]):
        raise Unsupported(
            "out= and c for matrices without elements in GPU memory; leave them out"
            if prepared.spec.is_product
            else "out= for an array without elements in GPU memory; leave it out"
        )
    back = None if prepared.layout is None else prepared.layout.back
    zeros = home.zeros(arrays[0], prepared.shape, prepared.rule.result)
    return zeros if back is None else home.restored(zeros, back)


# --- Preparing sums and scans ---------------------------------------------------------------------


def _prepared(
    request: Spec | Planned, arrays: tuple[Any, ...], call: Call, key: Any
) -> tuple[PreparedCall, Offsets | None]:
    """Return the call prepared for such arrays, and its offsets; keep it by its key, if any."""
    prepared, by = _PREPARED.get(key), call.segments
    if prepared is None:
        prepared = _prepare(request, arrays, call)
        if key is not None:
            there = call.initial is not None and is_on_device(call.initial)
            prepared = replace(prepared, signatures=key[2], initial_there=there)
            keep(_PREPARED, key, prepared, _MOST_PREPARED)
    if by is None:
        return prepared, prepared.offsets
    prepared, offsets = _with_offsets(prepared, arrays[0], by)
    if key is not None and offsets.is_repeated:
        keep(by.calls, key, replace(prepared, offsets=offsets), MOST_KEPT)
    return prepared, offsets


def _prepare(request: Spec | Planned, arrays: tuple[Any, ...], call: Call) -> PreparedCall:
    """Prepare calls with such arrays; refuse arguments that do not go together."""
    if isinstance(request, Planned):
        request.require_arithmetic()
        if isinstance(request.problem, ProductProblem):
            return _product_by_plan(request, request.problem, arrays)
        return _segments_by_plan(request, arrays[0], call)
    request.require_names()
    return _product(request, arrays) if request.is_product else _segments(request, arrays[0], call)


def _segments(spec: Spec, a: Any, call: Call) -> PreparedCall:
    """Prepare a sum or a scan: without its plan if calls give offsets."""
    by_offsets = call.segments is not None
    if by_offsets or spec.carry:
        require_unnamed(spec.algorithm, "initial" if spec.carry else "")
    home, given = gathered({"a": a}, spec.backend)
    a, spec = given["a"], _on(home, spec)
    facts, arch = home.describe(a), _arch_on(home, spec, a)
    rule = _types(spec, home, facts.dtype, arch)
    layout = spec.layout(tuple(facts.shape), by_offsets=by_offsets)
    needed = _needed(home, a, facts, (layout.order, rule.work))
    prepared = PreparedCall(spec, home, rule, arch, None, (("in", needed),), layout.result, layout)
    if by_offsets:
        return prepared
    uneven = layout.missing > 0 and not isinstance(home, Host)
    if uneven and spec.algorithm is not None:
        raise Unsupported(
            f"{layout.segment_size} does not divide the axis' length, {layout.length}: in GPU "
            "memory the last segment of each row is then shorter, and segments lie by offsets, "
            "for which there is no algorithm to name. Leave algorithm out, or pass row by row"
        )
    own = None
    if uneven or lies_by_offsets(spec, layout, rule):
        even = Segments(layout.even_edges)
        own = even.at(home, a, None, length=layout.length, rows=layout.rows)
    return _planned(replace(prepared, offsets=own), layout, own)


def _with_offsets(
    prepared: PreparedCall, a: Any, segments: Segments
) -> tuple[PreparedCall, Offsets]:
    """Return the call prepared for segments like those of a call, and their checked offsets."""
    layout, where = prepared.layout, prepared.signatures
    assert layout is not None
    if prepared.plan is not None:
        numbered = segments.numbered(layout.segments)
        offsets = numbered.at(prepared.home, a, where, length=layout.length, rows=1)
        _require_fitting(prepared.plan, offsets)
        return prepared, offsets
    offsets = segments.at(prepared.home, a, where, length=layout.length, rows=layout.rows)
    longest = offsets.longest
    if longest is not None:
        k = tile_for(prepared.rule.types, prepared.spec.tile).k
        longest = rounded_longest(longest, layout.elements, k)
    key = offsets.segments, longest
    planned = prepared.planned.get(key)
    if planned is None:
        planned = _planned(prepared, layout, offsets)
        keep(prepared.planned, key, planned, _MOST_PLANNED)
    return planned, offsets


def _planned(prepared: PreparedCall, layout: Layout, offsets: Offsets | None) -> PreparedCall:
    """Return the call with a plan for its segments, of one size or by such offsets."""
    longest = None
    if offsets is not None:
        layout, longest = replace(layout, by_offsets=offsets.segments), offsets.longest
    plan, spec = None, prepared.spec
    if layout.elements:
        problem = segment_problem(spec, layout, prepared.rule, prepared.arch, longest)
        of_plan = Spec(spec.operation, backend=spec.backend, arch=spec.arch)
        plan = plan_for(of_plan, problem, prepared.rule)
    return _shaped(prepared, layout, plan)


def _shaped(prepared: PreparedCall, layout: Layout, plan: Planned | None) -> PreparedCall:
    """Return the call with a plan, its session, and the shape of the result."""
    if isinstance(prepared.home, Host) or plan is None:
        return replace(prepared, plan=plan, layout=layout, shape=layout.result)
    shape, flat = layout.result, None
    if layout.initial is not None and not layout.is_whole and layout.segments > 1:
        if layout.segments * layout.segment_size != layout.length:
            raise Unsupported(
                "include_initial in GPU memory goes with segments of one size that divides the "
                "axis. Scan with exclusive=True, and add the sums yourself"
            )
        shape, flat = (*layout.lead, layout.segments, layout.segment_size + 1), shape
    session = plan.session_on(prepared.home)
    return replace(
        prepared, plan=plan, layout=layout, shape=shape, flat=flat, session=session, launches={}
    )


def _segments_by_plan(plan: Planned, a: Any, call: Call) -> PreparedCall:
    """Prepare the sum or scan of a plan."""
    p, spec = plan.problem, plan.spec
    assert isinstance(p, Problem)
    by_offsets = _require_offsets(plan, p, call)
    if (call.initial is not None) != spec.carry:
        raise InputError(
            "this plan takes initial values: give initial="
            if spec.carry
            else "this plan takes no initial values; make one with initial=True"
        )
    home, given = gathered({"a": a}, plan.backend)
    a, facts = given["a"], home.describe(given["a"])
    shape = tuple(facts.shape)
    if facts.dtype != plan.dtype or math.prod(shape) != p.length:
        raise InputError(
            f"this plan takes {p.length} elements of {plan.dtype}, got {math.prod(shape)} of "
            f"{facts.dtype}; make another plan, or cast the array"
        )
    plan, layout, own = _plan_at(plan, home), _layout_by_plan(plan, p, shape), None
    if p.by_offsets is not None and not by_offsets:
        own = Segments(layout.even_edges).at(home, a, None, length=p.length, rows=1)
    needed = _needed(home, a, facts, (layout.order, plan.rule.work))
    arch = p.arch or "hopper"
    prepared = PreparedCall(spec, home, plan.rule, arch, None, (("in", needed),), (), offsets=own)
    return _shaped(prepared, layout, plan)


def _layout_by_plan(plan: Planned, p: Problem, shape: tuple[int, ...]) -> Layout:
    """Return the layout of an array of a shape that is taken as flat, and scanned in it."""
    layout = Layout(
        kind=p.kind,
        order=tuple(range(len(shape))),
        lead=(),
        length=p.length,
        segment_size=p.segment_size or plan.spec.segment_size or p.length,
        is_whole=not plan.spec.is_segmented,
        by_offsets=p.by_offsets,
        initial=plan.spec.initial,
    )
    if p.kind == "scan":
        return layout if layout.initial else replace(layout, kept=shape)
    return replace(layout, kept=() if plan.operation == "sum" else (layout.segments,))


def _require_offsets(plan: Planned, p: Problem, call: Call) -> bool:
    """Return whether a call gives offsets; refuse it if the plan is not for them."""
    given = call.segments is not None
    takes_some = p.by_offsets is not None and plan.spec.segment_size is None
    if given and not takes_some:
        raise InputError(
            f"{plan!r} takes no segments; plan {plan.operation!r} with "
            "segments=tcusim.Segments(count=...), their number"
        )
    if takes_some and not given:
        raise InputError(
            f"this plan is for {segments_in_words(p.segments)} by offsets; give segments="
        )
    return given


def _require_fitting(plan: Planned, offsets: Offsets) -> None:
    """Refuse offsets of other segments than planned."""
    p = plan.problem
    assert isinstance(p, Problem)
    if offsets.segments != p.segments:
        raise InputError(
            f"this plan takes {p.segments + 1} offsets, of {segments_in_words(p.segments)}, got "
            f"{offsets.segments + 1}; make another plan"
        )
    if p.longest is not None and offsets.facts is not None:
        require_longest(offsets.facts, p.longest)


def _plan_at(plan: Planned, home: Home) -> Planned:
    """Return the plan for arrays of the same type there; refuse a type that has none."""
    if isinstance(home, Host):
        return plan
    p, spec = plan.problem, plan.spec
    rule = types_on_device(spec, plan.rule.given, p.arch or "hopper")
    problem = p
    if rule.types != p.types:
        # The usual tile is that of the types.
        named = None if p.tile == tile_for(p.types, None) else p.tile
        problem = replace(p, types=rule.types, tile=tile_for(rule.types, named))
    if isinstance(problem, Problem):
        # Digits of NumPy arrays had none.
        problem = replace(problem, carry=spec.carry)
    if (problem, rule.result) == (p, plan.rule.result):
        return plan
    return plan_for(spec, problem, rule)


# --- Preparing products ---------------------------------------------------------------------------


def _product(spec: Spec, arrays: tuple[Any, ...]) -> PreparedCall:
    """Prepare a product."""
    a, b, c = arrays
    named = {"a": a, spec.second: b} | ({} if c is None else {"c": c})
    home, given = gathered(named, spec.backend)
    spec = _on(home, spec)
    left, right = home.describe(given["a"]), home.describe(given[spec.second])
    if not isinstance(home, Host):
        _require_on_device(spec, left, right)
    arch = _arch_on(home, spec, given["a"])
    layout = spec.product_layout(tuple(left.shape), tuple(right.shape))
    if isinstance(home, Host):
        factors = _common_type(left.dtype, right.dtype)
        dtype = _with_addend(factors, c) if spec.dtype is None else spec.dtype
        rule = _types(spec._replace(dtype=dtype), home, factors.name, arch)
        addend_of(c, layout.result, numpy_type(rule.result))
    else:
        rule = _types(spec, home, left.dtype, arch)
        if c is not None:
            _require_addend(home, c, layout.result, rule)
    plan = None
    if not layout.is_empty:
        # Digits are multiplied in slices, so that the rows of integers may have any length.
        inner = min(layout.inner, 2**16) if rule.method == "digits" else layout.inner
        one = replace(layout, inner=inner)
        problem = product_problem(spec, one, rule, arch, add_c=c is not None)
        of_plan = Spec(spec.operation, backend=spec.backend, arch=spec.arch)
        plan = plan_for(of_plan, problem, rule)
    return _prepared_product(spec, home, given, layout, rule, arch, plan)


def _prepared_product(
    spec: Spec, home: Home, given: Mapping[str, Any], layout: ProductLayout, rule: TypeRule,
    arch: str, plan: Planned | None,
) -> PreparedCall:  # fmt: skip
    """Return the prepared product of arrays, which are given by the users' names of them."""
    arranged: list[tuple[str, Arrangement | None]] = []
    for name, array in zip(("in", layout.second, "c"), given.values(), strict=False):
        wanted, facts = (tuple(range(len(layout.result))), rule.result), None
        if name != "c":
            facts = home.describe(array)
            # Digits are those of each factor's own type; other factors are cast to one.
            work = facts.dtype if rule.method == "digits" else rule.work
            wanted = (tuple(range(len(facts.shape))), work)
        arranged.append((name, wanted if plan is None else _needed(home, array, facts, wanted)))
    starts = None if plan is None else layout.starts()
    before = () if starts is None else (partial(batch, starts=starts, inner=layout.inner),)
    session = None if plan is None or isinstance(home, Host) else plan.session_on(home)
    return PreparedCall(
        spec, home, rule, arch, plan, tuple(arranged), layout.result,
        starts=starts, before=before, session=session,
    )  # fmt: skip


def _product_by_plan(plan: Planned, p: ProductProblem, arrays: tuple[Any, ...]) -> PreparedCall:
    """Prepare the product of a plan."""
    a, b, c = arrays
    if (c is not None) != p.add_c:
        raise InputError(
            "this plan adds an array: give c"
            if p.add_c
            else "this plan adds no array; leave c out, or make one with add_c=True"
        )
    named = {"a": a, p.second: b} | ({} if c is None else {"c": c})
    home, given = gathered(named, plan.backend)
    if "c" in given and isinstance(home, Host):
        given["c"] = as_numpy("c", c)
    facts = {name: home.describe(array) for name, array in given.items()}
    shape = _shape_by_plan(p, {name: tuple(one.shape) for name, one in facts.items()})
    plan = _plan_at(plan, home)
    for name, one in facts.items():
        wanted = plan.result if name == "c" else plan.dtype
        if one.dtype != wanted:
            raise InputError(
                f"this plan takes {name} of {wanted}, got {one.dtype}; make another plan, or "
                "cast the array"
            )
    layout = ProductLayout(p.rows, p.inner, p.cols, shape)
    arch = p.arch or "hopper"
    return _prepared_product(plan.spec, home, given, layout, plan.rule, arch, plan)


def _shape_by_plan(p: ProductProblem, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Return the result's shape; refuse arrays of other shapes than planned."""
    right = (p.inner,) if p.cols is None else (p.inner, p.cols)
    first = shapes["a"]
    if not first or first[-1] != p.inner or math.prod(first[:-1]) != p.rows:
        raise InputError(
            f"this plan takes a of shape ({p.rows}, {p.inner}), or with more axes and as many "
            f"rows; got {first}. Make another plan"
        )
    result = first[:-1] + right[1:]
    for name, wanted in ((p.second, right), ("c", result)):
        if name in shapes and shapes[name] != wanted:
            raise InputError(
                f"this plan takes {name} of shape {wanted}, got {shapes[name]}; make another plan"
            )
    return result


def _on(home: Home, spec: Spec) -> Spec:
    """Return the specification with the backend that arrays in GPU memory have."""
    return spec if isinstance(home, Host) else spec._replace(backend=home.name)


def _types(spec: Spec, home: Home, given: str, arch: str) -> TypeRule:
    """Return the types for arrays of the type `given`, where they are."""
    types = types_on_host if isinstance(home, Host) else types_on_device
    return types(spec, given, arch)


def _arch_on(home: Home, spec: Spec, a: Any) -> str:
    """Return the architecture whose arithmetic a call follows on an array, where it is."""
    there = None if isinstance(home, Host) else a
    return arch_of_run(spec.arch, spec.backend, there)


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


def _require_on_device(spec: Spec, left: DeviceArrayFacts, right: DeviceArrayFacts) -> None:
    """Refuse factors that go together in NumPy, and not in GPU memory."""
    if left.dtype != right.dtype:
        raise InputError(
            f"a is of {left.dtype} and {spec.second} of {right.dtype}; in GPU memory both "
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


def _needed(
    home: Home, array: Any, facts: DeviceArrayFacts | None, wanted: Arrangement
) -> Arrangement | None:
    """Return the arrangement that an array needs; None if one in GPU memory has it already."""
    if isinstance(home, Host):
        return wanted
    axes, dtype = wanted
    facts = facts or home.describe(array)
    if axes != tuple(range(len(axes))) or not facts.contiguous or facts.dtype != dtype:
        return wanted
    # It may still begin where no tile may: then there is a copy.
    return None if home.arranged(array, axes, dtype) is array else wanted
