"""Calls made ready: what is the same for every call with like arrays is found out once, and kept.

`READY` is the one cache of calls. A key is what was asked for and the signatures of the arrays; the
value is a `HostCall` or a `DeviceCall`, which only moves arrays and launches.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from tcusim.arrays.dtypes import TypeRule, numpy_type
from tcusim.arrays.exact import Stage, batch
from tcusim.arrays.libraries import (
    HOST,
    Array,
    Home,
    Host,
    addend_of,
    as_numpy,
    is_foreign,
    is_on_device,
    like_array,
    name_of_kind,
    signature,
)
from tcusim.arrays.offsets import initial_of
from tcusim.arrays.problem import AnyProblem
from tcusim.arrays.report import Report
from tcusim.arrays.request import Call, Layout, ProductLayout
from tcusim.backends import DeviceBackend, Edge, Lane, QuickSession, Session
from tcusim.errors import InputError, Unsupported
from tcusim.program.launches import LaunchPlan

__all__ = [
    "READY",
    "Cache",
    "Computation",
    "ReadyCall",
    "lane_of",
    "noticed",
    "product_call",
    "run_ready",
    "segment_call",
]

Arrays: TypeAlias = tuple[Any, ...]
# Computes arrays like those that it was prepared for.
ReadyCall: TypeAlias = Callable[[Arrays, Call], Any]
# Makes the plan's input of a call's array and initial values.
MakeCarry: TypeAlias = Callable[[Any, Any], Any]
Prepare: TypeAlias = Callable[[Arrays, Arrays, Call], ReadyCall]
# The order of an array's axes, and its type.
Arrangement: TypeAlias = tuple[tuple[int, ...], str]


class Computation(Protocol):
    """What a call needs of the plan that it launches. Plans are made above, and make calls."""

    @property
    def operation(self) -> str:
        """The name of the function."""
        ...

    @property
    def problem(self) -> AnyProblem:
        """The sizes, types and tile of the launches."""
        ...

    @property
    def launch_plan(self) -> LaunchPlan:
        """What backends run."""
        ...

    def compute(self, arrays: Mapping[str, Array], call: Call, before: Sequence[Stage]) -> Array:
        """Return the flat result for flat NumPy arrays by the plan's names."""
        ...

    def session_on(self, backend: DeviceBackend) -> Session:
        """Return the plan made ready on a backend."""
        ...


class Cache:
    """The latest calls that were made ready, up to a number."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._calls: dict[Hashable, ReadyCall] = {}
        self._lock = threading.Lock()

    def find(self, key: Hashable) -> ReadyCall | None:
        """Return the call of this key; None if it is not kept, or an argument has no hash."""
        try:
            return self._calls.get(key)
        except TypeError:
            return None

    def keep(self, key: Hashable, call: ReadyCall) -> None:
        """Keep a call; the one kept first is let go if there are too many."""
        with self._lock, suppress(TypeError):
            self._calls[key] = call
            while len(self._calls) > self.most:
                del self._calls[next(iter(self._calls))]

    def clear(self) -> None:
        """Let go of all calls, and with them of what backends made ready."""
        with self._lock:
            self._calls.clear()

    def __len__(self) -> int:
        """Return how many calls are kept."""
        return len(self._calls)


READY: Final = Cache(256)
_NOTICED: Final[ContextVar[list[ReadyCall] | None]] = ContextVar("tcusim.noticed", default=None)
NO_EXTRA: Final[Mapping[str, Any]] = {}


@contextmanager
def noticed() -> Iterator[list[ReadyCall]]:
    """Give a list, to which each call that is run within this context is added."""
    seen: list[ReadyCall] = []
    token = _NOTICED.set(seen)
    try:
        yield seen
    finally:
        _NOTICED.reset(token)


def run_ready(asked: Arrays, arrays: Arrays, call: Call, prepare: Prepare) -> Any:
    """Compute `arrays` by the call that is kept for them, or that `prepare` makes of `asked`.

    Arrays of other libraries in the computer's memory are taken as NumPy's, and the result is
    returned as theirs.
    """
    signatures = tuple([() if array is None else signature(array) for array in arrays])
    plain = call.offsets is call.segment_ids is call.num_segments is None
    of_initial = _signature_of_initial(call.initial)
    is_known = plain and of_initial is not None and None not in signatures
    key = (asked, signatures, of_initial)
    ready = READY.find(key) if is_known else None
    if ready is None:
        if any(map(is_foreign, arrays)) and not any(map(is_on_device, arrays)):
            return _run_foreign(asked, arrays, call, prepare)
        ready = prepare(asked, arrays, call)
        if is_known:
            READY.keep(key, ready)
    seen = _NOTICED.get()
    if seen is not None:
        seen.append(ready)
    return ready(arrays, call)


def _signature_of_initial(initial: Any) -> Hashable | None:
    """Return what a call depends on of initial values; those on the computer are copied each time.

    None if that cannot be told quickly.
    """
    if initial is None:
        return ()
    return signature(initial) if is_on_device(initial) else Host


def _run_foreign(asked: Arrays, arrays: Arrays, call: Call, prepare: Prepare) -> Any:
    names = ("a", "b", "c")
    taken = tuple(
        as_numpy(name, array) if is_foreign(array) else array
        for name, array in zip(names, arrays, strict=False)
    )
    like = next(array for array in arrays if is_foreign(array))
    out = call.out
    if out is None:
        return like_array(like, run_ready(asked, taken, call, prepare))
    if not is_foreign(out):
        return run_ready(asked, taken, call, prepare)
    same_out = as_numpy("out", out)
    result = np.asarray(run_ready(asked, taken, call._replace(out=None), prepare))
    require_out(same_out, result)
    try:
        out[...] = like_array(out, result)
    except TypeError as error:
        raise InputError(f"out cannot be written to: {error}. Leave it out") from error
    return out


# --- On the computer ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HostCall:
    """Computes NumPy arrays.

    plan: what is launched; None if there is nothing to compute. layouts: for each array, by the
    plan's name, its axes in the order in which it is flattened, and the type to which it is cast
    first. shape, dtype: the result's. layout: of a sum or scan. stages: what splits the work before
    the plan's own stages. extra: inputs of the plan beside the arrays: offsets, carries.
    """

    plan: Computation | None
    layouts: Mapping[str, Arrangement]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    layout: Layout | None = None
    stages: tuple[Stage, ...] = ()
    extra: Mapping[str, Array] = field(default_factory=dict)
    carry: MakeCarry | None = None

    def __call__(self, arrays: Arrays, call: Call) -> Any:
        """Flatten, compute, and shape the result."""
        if call.stream is not None:
            raise InputError("stream= is for arrays in GPU memory, and a is a NumPy array")
        if call.report is not None:
            _require_report(call.report)
        flat = {}
        for (name, layout), array in zip(self.layouts.items(), arrays, strict=False):
            if name == "c":
                array = addend_of(array, self.shape, self.dtype)
            flat[name] = HOST.arranged(np.asarray(array), *layout).reshape(-1)
        rows, extra = self.layout, self.extra
        if self.carry is not None:
            extra = {**extra, "carry": self.carry(arrays[0], call.initial)}
        if self.plan is None:
            zeros = np.zeros(self.shape, self.dtype)
            result = flat["c"].reshape(self.shape).copy() if "c" in flat else zeros
        else:
            if rows is not None and rows.missing:
                whole = flat["in"].reshape(rows.rows, rows.length)
                flat["in"] = np.pad(whole, ((0, 0), (0, rows.missing))).reshape(-1)
            result = self.plan.compute({**flat, **extra}, call, self.stages)
            inputs = (*flat.values(), *extra.values())
            warn_of_overflow(self.plan.operation, result, inputs)
            result = (result if rows is None else rows.unfilled(result)).reshape(self.shape)
        if rows is not None and rows.back is not None:
            result = HOST.restored(result, rows.back)
        return _delivered(result, call.out, None if rows is None else arrays[0])


def _require_report(report: Any) -> None:
    if not isinstance(report, Report):
        raise InputError(
            f"report must be a tcusim.arrays.report.Report, which the call fills in; got {report!r}"
        )


def warn_of_overflow(operation: str, result: Array, inputs: Any) -> None:
    """Warn as NumPy does if finite numbers have infinite results, or as `numpy.errstate` says."""
    if result.dtype.kind in "biu" or not np.isinf(result).any():
        return
    if not all(x.dtype.kind in "biu" or np.isfinite(x).all() for x in inputs):
        return
    text = f"overflow encountered in tcusim.{operation}: beyond the range of {result.dtype}"
    match np.geterr()["over"]:
        case "warn":
            warnings.warn(text, RuntimeWarning, stacklevel=_frames_to_user())
        case "raise":
            raise FloatingPointError(text)
        case _:
            # NumPy's own overflow, for what else the caller's settings say.
            np.multiply(np.float32(2.0**127), np.float32(2))


def _frames_to_user() -> int:
    """Return the number of frames from the caller up to the first that is not tcusim's."""
    frame, count = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("tcusim."):
        frame, count = frame.f_back, count + 1
    return count


def _delivered(result: Array, out: Any, a: Any) -> Any:
    """Return the result, or put it into `out`, which may be `a` but not overlap it otherwise."""
    if out is None:
        return result[()]
    require_out(out, result)
    if isinstance(a, np.ndarray) and not _same(a, out) and np.shares_memory(a, out):
        raise InputError(
            "out overlaps a in memory. Give "
            + ("a itself, to compute in place, or " if a.shape == out.shape else "")
            + "an array of its own."
        )
    out[...] = result
    return out


def require_out(out: Any, result: Array) -> None:
    """Refuse what cannot take a result."""
    if not isinstance(out, np.ndarray) or out.shape != result.shape or out.dtype != result.dtype:
        kind, remedy = type(out).__name__, ""
        if is_on_device(out):
            kind = f"{name_of_kind(out)}, which is in GPU memory"
        elif isinstance(out, np.ndarray):
            kind = f"{out.dtype}, {out.shape}"
            if out.shape == result.shape:
                remedy = ". Give such an array, or dtype=out.dtype to compute in that type"
        raise InputError(
            f"out must be an array of {result.dtype}, shape {result.shape}; got {kind}{remedy}"
        )
    if not out.flags.writeable:
        raise InputError("out is read-only. Give an array to write to.")


def _same(one: Array, other: Array) -> bool:
    """Return whether two arrays are views of the very same elements."""
    if one.dtype != other.dtype or one.ctypes.data != other.ctypes.data:
        return False
    if one.flags.c_contiguous and other.flags.c_contiguous:
        return one.size == other.size
    return one.shape == other.shape and one.strides == other.strides


# --- In GPU memory --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeviceCall:
    """Computes arrays in GPU memory where they lie.

    layouts: for each array, by the plan's name, how it is arranged first; None where it is taken as
    it is. shape: of the result, for the session. initial: where its rows are longer by a zero.
    starts: where the parts of the arrays begin that are computed one by one. back: the axes of the
    result, if they are to be put back. flat: its shape for the user, if it is another. extra:
    inputs of the plan beside the arrays: offsets. carry: as in `HostCall`.
    """

    plan: Computation
    backend: DeviceBackend
    session: Session
    layouts: tuple[tuple[str, Arrangement | None], ...]
    shape: tuple[int, ...]
    initial: Edge | None = None
    starts: Sequence[Mapping[str, int]] | None = None
    back: tuple[int, ...] | None = None
    flat: tuple[int, ...] | None = None
    extra: Mapping[str, Any] | None = None
    carry: MakeCarry | None = None

    def __call__(self, arrays: Arrays, call: Call) -> Any:
        """Arrange, launch, and shape the result."""
        out = call.out
        if out is not None and self.back is not None:
            raise Unsupported(
                "out= for an array in GPU memory goes with the last axis alone: the result is "
                "computed with its axis last. Leave out= out, and copy what comes back"
            )
        inputs = {
            name: array if layout is None else self.backend.arranged(array, *layout)
            for (name, layout), array in zip(self.layouts, arrays, strict=False)
        }
        if self.extra is not None:
            inputs.update(self.extra)
        if self.carry is not None:
            inputs["carry"] = self.carry(arrays[0], call.initial)
        target = out if out is None or self.flat is None else out.reshape(self.shape)
        result = self.session.run(
            inputs,
            out=target,
            shape=self.shape,
            stream=call.stream,
            initial=self.initial,
            starts=self.starts,
        )
        if call.report is not None:
            _require_report(call.report)
            for _ in self.starts or (None,):
                call.report.note(self.plan.launch_plan, self.plan.problem.arch or "")
        if self.flat is not None:
            result = out if out is not None else result.reshape(self.flat)
        return result if self.back is None else self.backend.restored(result, self.back)


def lane_of(ready: ReadyCall, array: Any) -> Lane | None:
    """Return the shortest way for a call of one array that has been run, if there is one."""
    if not isinstance(ready, DeviceCall) or ready.layouts != (("in", None),):
        return None
    extras = (ready.initial, ready.starts, ready.back, ready.flat, ready.extra, ready.carry)
    if any(extra is not None for extra in extras):
        return None
    session = ready.session
    return session.lane((array,), ready.shape) if isinstance(session, QuickSession) else None


@dataclass(frozen=True, slots=True)
class _Zeros:
    """The result for arrays in GPU memory without elements; refused: what does not go with it."""

    backend: DeviceBackend
    shape: tuple[int, ...]
    result: str
    refused: str
    back: tuple[int, ...] | None = None
    carry: MakeCarry | None = None

    def __call__(self, arrays: Arrays, call: Call) -> Any:
        """Make zeros."""
        if self.carry is not None:
            # It refuses what is wrong.
            self.carry(arrays[0], call.initial)
        if call.out is not None or any(array is not None for array in arrays[2:]):
            raise Unsupported(self.refused)
        zeros = self.backend.zeros(arrays[0], self.shape, self.result)
        return zeros if self.back is None else self.backend.restored(zeros, self.back)


# --- Wherever the arrays are ----------------------------------------------------------------------


def segment_call(
    plan: Computation | None,
    home: Home,
    a: Any,
    layout: Layout,
    rule: TypeRule,
    extra: Mapping[str, Any] = NO_EXTRA,
    *,
    carried: bool = False,
) -> ReadyCall:
    """Return the call for a sum or scan of an array; without a plan there is nothing to compute.

    extra: inputs of the plan beside the array, where it is. carried: whether calls give initial
    values.
    """
    arrangement = (layout.order, rule.work)
    carry = partial(initial_of, home, layout=layout, rule=rule) if carried else None
    if isinstance(home, Host):
        dtype = numpy_type(rule.result)
        return HostCall(
            plan, {"in": arrangement}, layout.result, dtype, layout, extra=extra, carry=carry
        )
    if plan is None:
        refused = "out= for an array without elements in GPU memory; leave it out"
        return _Zeros(home, layout.result, rule.result, refused, layout.back, carry)
    shape, flat = layout.result, None
    if layout.initial is not None and not layout.is_whole and layout.segments > 1:
        if layout.segments * layout.segment_size != layout.length:
            raise Unsupported(
                "include_initial in GPU memory goes with segments of one size that divides the "
                "axis. Scan with exclusive=True, and add the sums yourself"
            )
        shape, flat = (*layout.lead, layout.segments, layout.segment_size + 1), shape
    return DeviceCall(
        plan=plan,
        backend=home,
        session=plan.session_on(home),
        layouts=(("in", _needed(home, a, arrangement)),),
        shape=shape,
        initial=layout.initial,
        back=layout.back,
        flat=flat,
        extra=extra or None,
        carry=carry,
    )


def product_call(
    plan: Computation | None,
    home: Home,
    given: Mapping[str, Any],
    layout: ProductLayout,
    rule: TypeRule,
) -> ReadyCall:
    """Return the call for a product of arrays by the users' names of them."""
    layouts: dict[str, Arrangement] = {}
    named = dict(zip(("in", layout.second, "c"), given.values(), strict=False))
    for name, array in named.items():
        if name == "c":
            layouts[name] = tuple(range(len(layout.result))), rule.result
            continue
        facts = home.describe(array)
        # Digits are those of each factor's own type; other factors are cast to one.
        work = facts.dtype if rule.method == "digits" else rule.work
        layouts[name] = tuple(range(len(facts.shape))), work
    starts = None if plan is None else layout.starts()
    if isinstance(home, Host):
        stages = () if starts is None else (partial(batch, starts=starts, inner=layout.inner),)
        return HostCall(plan, layouts, layout.result, numpy_type(rule.result), stages=stages)
    if plan is None:
        refused = "out= and c for matrices without elements in GPU memory; leave them out"
        return _Zeros(home, layout.result, rule.result, refused)
    needed = tuple((name, _needed(home, x, layouts[name])) for name, x in named.items())
    return DeviceCall(plan, home, plan.session_on(home), needed, layout.result, starts=starts)


def _needed(home: DeviceBackend, array: Any, wanted: Arrangement) -> Arrangement | None:
    """Return how an array in GPU memory is to be arranged; None if it may be taken as it is."""
    facts, (axes, dtype) = home.describe(array), wanted
    if axes != tuple(range(len(axes))) or not facts.contiguous or facts.dtype != dtype:
        return wanted
    # It may still begin where no tile may: then there is a copy.
    return None if home.arranged(array, axes, dtype) is array else wanted
