"""Plans: launches that are chosen once, kept, and called often.

A plan is data: launches of step programs on named arrays ("in", "out" and what lies between), and
the reasons for them. `print` shows all of it. Every function on arrays makes one; called with an
array, it only launches. Which launches those are, `tcusim.arrays.planner` decides.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any, Final, NamedTuple, TypedDict, Unpack, overload

import numpy as np

from tcusim.arrays.calls import ReadyCall, product_call, run_ready, segment_call
from tcusim.arrays.dtypes import TypeRule, numpy_type, types_on_device
from tcusim.arrays.exact import Stage, Work, few_summed, stages_of, through
from tcusim.arrays.libraries import Array, Home, Host, HostArray, Kind, as_numpy, gathered
from tcusim.arrays.offsets import Offsets, offsets_of, require_longest
from tcusim.arrays.planner import Choice, choose
from tcusim.arrays.problem import (
    MOST_BY_PARTS,
    AnyProblem,
    Problem,
    ProductProblem,
    RaggedProblem,
    SegmentProblem,
    pieces_of,
    tile_for,
)
from tcusim.arrays.request import (
    Call,
    Layout,
    ProductLayout,
)
from tcusim.backends import DeviceBackend, Edge, Session, get_backend
from tcusim.errors import InputError, Unsupported, VerifyError
from tcusim.markup import shown, table
from tcusim.program.launches import Launch, LaunchPlan, Memory
from tcusim.simulate.counts import Counts, counts_of_text

__all__ = ["Asked", "Plan", "Planned", "ProductPlan", "launches_for", "plan_for"]


class Asked(NamedTuple):
    """What a user asked of a plan beside its problem.

    result: the type of the result, if it was named. initial: where scans are longer by a zero.
    size: of segments that lie by offsets that the plan makes. carry: whether calls give what
    precedes the first element of each segment.
    """

    result: str | None = None
    initial: Edge | None = None
    size: int | None = None
    carry: bool = False


_USUAL: Final = Asked()


@dataclass(frozen=True, eq=False, repr=False)
class Planned:
    """Launches for one problem, ready to be run where arrays are.

    Attributes
    ----------
    operation : str
        "sum", "cumsum", "segmented_sum", "segmented_cumsum", "matmul" or "matvec".
    problem : Problem, RaggedProblem or ProductProblem
        Sizes, types and tile of the launches; the second if segments lie by offsets.
    rule : TypeRule
        The types of arrays and results, and how they are made to fit those of the launches.
    asked : Asked
        What the user asked for beside that.
    arch, backend : str or None
        As given; None is settled when the plan is called.
    launch_plan : LaunchPlan
        What backends run, from "in" and other arguments to "out".
    strategy : str
        The name of the strategy that chose the launches.
    rationale : tuple of str
        For each choice a line.
    stages : tuple of Stage
        What makes NumPy arrays fit.
    """

    operation: str
    problem: AnyProblem
    rule: TypeRule
    asked: Asked
    arch: str | None
    backend: str | None
    launch_plan: LaunchPlan
    strategy: str
    rationale: tuple[str, ...]
    stages: tuple[Stage, ...] = ()
    # What backends made ready, by the backend's name.
    _sessions: dict[str, Session] = field(default_factory=dict, init=False)

    def compute(self, arrays: Mapping[str, Array], call: Call, before: Sequence[Stage]) -> Array:
        """Return the flat result for flat NumPy arrays by the plan's names."""
        runner = get_backend(self.backend or "numpy")
        whole = Work(self.problem, arrays)
        steps = through(whole, (*before, *self.stages))
        result: Any = None
        watched = any(one is not None for one in (self.backend, call.report, call.progress))
        with np.errstate(all="ignore"):
            if self.rule.method == "fixed point" and not watched:
                few = few_summed(whole, numpy_type(self.rule.result))
                if few is not None:
                    return few
            try:
                while True:
                    work = steps.send(result)
                    launches = launches_for(work.problem).plan
                    made = runner.run(launches, work.arrays, arch=self.arch, progress=call.progress)
                    result = made["out"]
                    if call.report is not None:
                        call.report.note(launches, self.problem.arch or "")
            except StopIteration as end:
                total: Array = end.value
                return total

    def session_on(self, backend: DeviceBackend) -> Session:
        """Return the plan made ready on a backend, the first time it is asked for."""
        session = self._sessions.get(backend.name)
        if session is None:
            made = backend.prepare(self.launch_plan, self.arch)
            session = self._sessions.setdefault(backend.name, made)
        return session

    def _at(self, home: Home) -> Planned:
        """Return the plan for arrays of the same type there; refuse what has none."""
        if isinstance(home, Host):
            return self
        p = self.problem
        acc = "f16" if p.types.acc == "f16" else "f32"
        bits = "exact" if self.rule.method == "fixed point" else "segment"
        arch = p.arch or "hopper"
        is_product = isinstance(p, ProductProblem)
        rule = types_on_device(
            self.rule.given,
            self.asked.result,
            acc,
            arch,
            product=is_product,
            bits=bits,
            algorithm=p.algorithm,
        )
        problem = p
        if rule.types != p.types:
            # The usual tile is that of the types.
            named = None if p.tile == tile_for(p.types, None) else p.tile
            problem = replace(p, types=rule.types, tile=tile_for(rule.types, named))
        if isinstance(problem, SegmentProblem):
            # Digits of NumPy arrays had none.
            problem = replace(problem, carry=self.asked.carry)
        if (problem, rule.result) == (p, self.rule.result):
            return self
        made: Planned = plan_for(self.operation, problem, self.arch, self.backend, rule, self.asked)
        return made

    # --- What it is --------------------------------------------------------------------------

    @property
    def dtype(self) -> str:
        """NumPy's name of the type of the array."""
        return self.rule.given

    @property
    def result(self) -> str:
        """NumPy's name of the type of the result for a NumPy array."""
        return self.rule.result

    @property
    def arrays(self) -> tuple[Memory, ...]:
        """The arrays of the launches: "in" and other arguments, what lies between, "out"."""
        return self.launch_plan.arrays

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The launches in order; the last one writes "out"."""
        return self.launch_plan.launches

    @property
    def temporaries(self) -> tuple[Memory, ...]:
        """The arrays between "in" and "out", which the plan keeps."""
        return self.launch_plan.temporaries

    @property
    def why_not_in_place(self) -> str | None:
        """Why the result may not overwrite the very array; None if it may."""
        return self.launch_plan.why_not_in_place

    @property
    def in_place(self) -> bool:
        """Whether the result may overwrite the very array."""
        return self.why_not_in_place is None

    def scalars(self, launch: Launch) -> dict[str, int]:
        """Return the scalars of a launch."""
        return self.launch_plan.scalars(launch)

    @property
    def counts(self) -> Counts:
        """Mma steps, additions and bytes of one round of launches."""
        total = Counts()
        for launch in self.launches:
            total.add(counts_of_text(launch.program, self.scalars(launch)))
        return total

    def __repr__(self) -> str:
        """Name the operation and the launches."""
        return self.launch_plan.title

    def __str__(self) -> str:
        """Show everything: sizes, arrays, launches with their counts, and why."""
        lines = (f"  {head:<8}  {text}" for head, text in self._rows())
        return "\n".join([f"plan {self.operation}", *lines])

    def _repr_html_(self) -> str:
        title = f"<p><strong>plan {escape(self.operation)}</strong></p>"
        return shown(title, table("Plan", self._rows()))

    def _rows(self) -> Iterator[tuple[str, str]]:
        """Yield everything: what it is of, and text."""
        p, t = self.problem, self.problem.types
        yield "problem", _sizes(p, self.rule)
        parts = f"{t.source} as {t.ab}" if t.source != t.ab and not t.adds else t.source
        yield "tile", f"{p.tile.name}, {parts} to {t.acc}"
        yield "arch", self.arch or "that of the GPU; hopper on the simulator"
        for number, array in enumerate(self.arrays):
            head = "arrays" if number == 0 else ""
            yield head, f"{array.name:<9} {array.dtype} x {array.size}, {array.nbytes} bytes"
        for number, launch in enumerate(self.launches, start=1):
            yield f"launch {number}", self._line_of(launch)
        yield "strategy", self.strategy
        for number, reason in enumerate(self.rationale):
            yield "why" if number == 0 else "", reason

    def _line_of(self, launch: Launch) -> str:
        program, scalars = launch.program, self.scalars(launch)
        counts = counts_of_text(program, scalars)
        given = ", ".join(launch.inputs.values())
        return (
            f"{program.name}: {given} -> {', '.join(launch.outputs.values())}; "
            f"{program.grid(scalars)} x {program.warps} warps, {counts.mma} mma, "
            f"{counts.bytes_read} bytes read, {counts.bytes_written} written"
        )


def _sizes(problem: AnyProblem, rule: TypeRule) -> str:
    """Return sizes and types in words, and how arrays are made to fit."""
    if (rule.given, rule.result) == (problem.types.dtype, problem.types.result_dtype):
        return str(problem)
    how = "" if rule.method == "as it is" else f" in {rule.method}"
    return f"{problem}, of {rule.given} to {rule.result}{how}"


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
    operation, problem, rule, asked, backend, arch, launch_plan, strategy, rationale, stages
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
        return run_ready((self,), (a,), call, _prepare_plan)

    def _prepare(self, a: Any, call: Call) -> ReadyCall:
        by_offsets = self._require_offsets(call)
        if (call.initial is not None) != self.asked.carry:
            raise InputError(
                "this plan takes initial values: give initial="
                if self.asked.carry
                else "this plan takes no initial values; make one with initial=True"
            )
        home, given = gathered({"a": a}, self.backend)
        a, facts, p = given["a"], home.describe(given["a"]), self.problem
        assert isinstance(p, SegmentProblem)
        shape = tuple(facts.shape)
        if facts.dtype != self.dtype or math.prod(shape) != p.length:
            raise InputError(
                f"this plan takes {p.length} elements of {self.dtype}, got {math.prod(shape)} of "
                f"{facts.dtype}; make another plan, or cast the array"
            )
        plan, layout, extra = self._at(home), self._layout(shape), {}
        if by_offsets or self.asked.size is not None:
            if not by_offsets:
                call = call._replace(offsets=layout.even_edges)
            elif call.segment_ids is not None:
                call = call._replace(num_segments=layout.segments)
            offsets = offsets_of(home, a, call, length=p.length, rows=1)
            self._require_fitting(offsets)
            layout, extra["offsets"] = offsets.applied(layout), offsets.array
        carried = call.initial is not None
        return segment_call(plan, home, a, layout, plan.rule, extra, carried=carried)

    def _layout(self, shape: tuple[int, ...]) -> Layout:
        """Return the layout of an array of a shape that is taken as flat, and scanned in it."""
        p = self.problem
        assert isinstance(p, SegmentProblem)
        layout = Layout(
            kind=p.kind,
            order=tuple(range(len(shape))),
            lead=(),
            length=p.length,
            segment_size=p.segment_size if isinstance(p, Problem) else self.asked.size or p.length,
            is_whole=not self.operation.startswith("segmented"),
            by_offsets=p.segments if isinstance(p, RaggedProblem) else None,
            initial=self.asked.initial,
        )
        if p.kind == "scan":
            return layout if layout.initial else replace(layout, kept=shape)
        return replace(layout, kept=() if self.operation == "sum" else (layout.segments,))

    def _require_offsets(self, call: Call) -> bool:
        """Return whether a call gives offsets; refuse it if the plan is not for them."""
        given, p = call.by_offsets, self.problem
        takes_some = isinstance(p, RaggedProblem) and self.asked.size is None
        if given and not takes_some:
            raise InputError(
                f"{self!r} takes no offsets; plan {self.operation!r} with segments=, their number"
            )
        if takes_some and not given:
            assert isinstance(p, RaggedProblem)
            raise InputError(f"this plan is for {p.segments} segments by offsets; give offsets=")
        return given

    def _require_fitting(self, offsets: Offsets) -> None:
        p = self.problem
        assert isinstance(p, RaggedProblem)
        if offsets.segments != p.segments:
            raise InputError(
                f"this plan takes {p.segments + 1} offsets, of {p.segments} segments, got "
                f"{offsets.segments + 1}; make another plan"
            )
        if p.longest is not None and offsets.facts is not None:
            require_longest(offsets.facts, p.longest)


def _prepare_plan(asked: tuple[Any, ...], arrays: tuple[Any, ...], call: Call) -> ReadyCall:
    (made,) = asked
    ready: ReadyCall = made._prepare(*arrays, call)
    return ready


class ProductPlan(Planned):
    """The launch of one product, ready to be called; `tcusim.plan_product` makes one.

    `plan(a, b)` multiplies. The first call on a backend emits, compiles and loads the kernel;
    further calls launch it, and nothing else.

    Attributes
    ----------
    operation, problem, rule, asked, backend, arch, launch_plan, strategy, rationale, stages
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
        return run_ready((self,), (a, b, c), Call(out, stream), _prepare_plan)

    def _prepare(self, a: Any, b: Any, c: Any, call: Call) -> ReadyCall:
        p = self.problem
        if (c is not None) != p.add_c:
            raise InputError(
                "this plan adds an array: give c"
                if p.add_c
                else "this plan adds no array; leave c out, or make one with add_c=True"
            )
        named = {"a": a, p.second: b} | ({} if c is None else {"c": c})
        home, given = gathered(named, self.backend)
        if "c" in given and isinstance(home, Host):
            given["c"] = as_numpy("c", c)
        facts = {name: home.describe(array) for name, array in given.items()}
        shape = self._shape_of_result({name: tuple(one.shape) for name, one in facts.items()})
        plan = self._at(home)
        for name, one in facts.items():
            wanted = plan.result if name == "c" else plan.dtype
            if one.dtype != wanted:
                raise InputError(
                    f"this plan takes {name} of {wanted}, got {one.dtype}; make another plan, or "
                    "cast the array"
                )
        layout = ProductLayout(p.rows, p.inner, p.cols, shape)
        return product_call(plan, home, given, layout, plan.rule)

    def _shape_of_result(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
        """Return the result's shape; refuse arrays of other shapes than planned."""
        p = self.problem
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
                    f"this plan takes {name} of shape {wanted}, got {shapes[name]}; make another "
                    "plan"
                )
        return result


# --- Making one -----------------------------------------------------------------------------------


@functools.lru_cache(maxsize=512)
def launches_for(problem: AnyProblem) -> Choice:
    """Return the launches for a problem; the latest are kept."""
    try:
        return choose(problem, str(problem))
    except VerifyError as error:
        raise Unsupported(f"tiles of {problem.tile.name} do not do: {error}") from error


@functools.lru_cache(maxsize=256)
def plan_for(
    operation: str,
    problem: AnyProblem,
    arch: str | None,
    backend: str | None,
    rule: TypeRule,
    asked: Asked = _USUAL,
) -> Any:
    """Return the plan for a problem; the latest are kept."""
    is_product = isinstance(problem, ProductProblem)
    if isinstance(problem, SegmentProblem):
        _require_exact(problem, rule)
    launched = problem
    if isinstance(problem, (Problem, RaggedProblem)) and rule.method in ("digits", "fixed point"):
        launched = pieces_of(problem)
    choice = launches_for(launched)
    names = ", ".join(launch.program.name for launch in choice.plan.launches)
    return (ProductPlan if is_product else Plan)(
        operation=operation,
        problem=problem,
        rule=rule,
        asked=asked,
        arch=arch,
        backend=backend,
        launch_plan=replace(
            choice.plan, title=f"Plan({operation!r}, {_sizes(problem, rule)}: {names})"
        ),
        strategy=choice.strategy,
        rationale=choice.rationale,
        stages=stages_of(rule, product=is_product),
    )


def _require_exact(problem: SegmentProblem, rule: TypeRule) -> None:
    """Refuse what stages cannot make exact, or not safe."""
    if rule.method == "fixed point" and problem.types.acc == "f64" and problem.most > MOST_BY_PARTS:
        raise Unsupported(
            f"bits='exact' in GPU memory takes float16 segments of up to {MOST_BY_PARTS} elements, "
            f"and there are some of up to {problem.most}. Cut them into shorter ones"
        )
    if rule.method == "fixed point" and problem.as_printed:
        raise Unsupported(
            f"{problem.algorithm!r} is run as printed, and rounds partial sums; with bits='exact' "
            "nothing is rounded on the way. Leave algorithm out, or bits"
        )
    most = problem.types.most_digits or problem.most
    if problem.types.ab == "s8" and rule.method == "as it is" and problem.most > most:
        if problem.types.result != "s64":
            raise Unsupported(
                f"sums of more than {most} integers may not fit int32; choose int64 as dtype, or "
                "cut the segments into shorter ones"
            )
        if problem.algorithm and not problem.algorithm.endswith("_single_pass"):
            raise Unsupported(
                f"{problem.algorithm!r} sums up to {most} integers in a segment, as many as int32 "
                f"has room for; leave algorithm out, or take '{problem.kind}_single_pass'"
            )
    named = problem.algorithm or problem.strategy
    if named and rule.method in ("digits", "fixed point") and problem.most > most:
        raise Unsupported(
            f"segments of more than {most} elements are summed exactly in pieces, and {named!r} "
            "is for whole ones; leave it out"
        )
    if rule.method == "f16 parts" and problem.as_printed:
        raise Unsupported(
            f"{problem.algorithm!r} rounds partial sums to float16, and on {problem.arch}, which "
            "has no bf16, float32 is computed as parts that fill the range of float16: they would "
            "overflow. Leave algorithm out, or cast the array to float16"
        )
