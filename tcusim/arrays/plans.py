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
from typing import Any, Final, NamedTuple, TypedDict, Unpack, overload

import numpy as np

from tcusim.arrays.calls import ReadyCall, product_call, run_ready, segment_call
from tcusim.arrays.dtypes import Bits, TypeRule, types_on_device, types_on_host
from tcusim.arrays.exact import Stage, Work, stages_of
from tcusim.arrays.libraries import Array, Home, Host, HostArray, Kind, as_numpy, gathered
from tcusim.arrays.offsets import Offsets, initial_of, offsets_of, require_longest
from tcusim.arrays.planner import Choice, choose, longest_scanned
from tcusim.arrays.problem import (
    MOST_BY_PARTS,
    MOST_DIGITS,
    AnyProblem,
    Problem,
    ProductProblem,
    RaggedProblem,
    SegmentProblem,
    Shape,
    pieces_of,
    require_unnamed,
    rounded_longest,
    tile_for,
)
from tcusim.arrays.request import (
    OPERATIONS,
    Call,
    Layout,
    Options,
    ProductLayout,
    SegmentRequest,
    arch_of_run,
    count_of,
)
from tcusim.backends import DeviceBackend, Edge, Session, get_backend
from tcusim.errors import InputError, Unsupported, VerifyError, unknown_name
from tcusim.machine.formats import array_name_of
from tcusim.program.launches import Launch, LaunchPlan, Memory
from tcusim.simulate.counts import Counts, counts_of_text

__all__ = ["Plan", "Planned", "ProductPlan", "plan", "plan_for", "plan_product", "segment_problem"]


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
        works, levels, results = [Work(self.problem, arrays)], [], []
        with np.errstate(all="ignore"):
            for stage in (*before, *self.stages):
                levels.append([stage(work) for work in works])
                works = [work for split in levels[-1] for work in split.works]
            for work in works:
                launches = launches_for(work.problem).plan
                made = runner.run(launches, work.arrays, arch=self.arch, progress=call.progress)
                results.append(made["out"])
                if call.report is not None:
                    call.report.note(launches, self.problem.arch or "")
            for splits in reversed(levels):
                left = iter(results)
                results = [merge([next(left) for _ in works]) for works, merge in splits]
        result: Array = results[0]
        return result

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
            self.rule.given, self.asked.result, acc, arch, bits=bits, product=is_product
        )
        problem = p
        if rule.types != p.types:
            # The usual tile is that of the types.
            named = None if p.tile == tile_for(p.types, None) else p.tile
            problem = replace(p, types=rule.types, tile=tile_for(rule.types, named))
        if isinstance(problem, RaggedProblem):
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
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        p, t = self.problem, self.problem.types
        yield f"plan {self.operation}"
        yield f"  problem   {_sizes(p, self.rule)}"
        parts = f"{t.source} as {t.ab}" if t.source != t.ab else t.ab
        yield f"  tile      {p.tile.name}, {parts} to {t.acc}"
        yield f"  arch      {self.arch or 'that of the GPU; hopper on the simulator'}"
        for number, array in enumerate(self.arrays):
            head = "arrays" if number == 0 else ""
            yield f"  {head:<8}  {array.name:<9} {array.dtype} x {array.size}, {array.nbytes} bytes"
        for number, launch in enumerate(self.launches, start=1):
            yield f"  {f'launch {number}':<8}  {self._line_of(launch)}"
        yield f"  strategy  {self.strategy}"
        for number, reason in enumerate(self.rationale):
            yield f"  {'why' if number == 0 else '':<8}  {reason}"

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
    Its data are those of `Planned`.
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
        plan, layout = self._at(home), self._layout(shape)
        if not by_offsets and self.asked.size is None:
            return segment_call(plan, home, a, layout, plan.rule)
        if not by_offsets:
            call = call._replace(offsets=layout.even_edges)
        elif call.segment_ids is not None:
            call = call._replace(num_segments=layout.segments)
        offsets = offsets_of(home, a, call, length=p.length, rows=1)
        self._require_fitting(offsets)
        layout, extra = offsets.applied(layout), {"offsets": offsets.array}
        if call.initial is not None:
            extra["carry"] = initial_of(home, a, call.initial, layout, plan.rule)
        return segment_call(plan, home, a, layout, plan.rule, extra)

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
        if p.longest is not None and offsets.edges is not None:
            require_longest(offsets.edges, p.longest)


def _prepare_plan(asked: tuple[Any, ...], arrays: tuple[Any, ...], call: Call) -> ReadyCall:
    (made,) = asked
    ready: ReadyCall = made._prepare(*arrays, call)
    return ready


class ProductPlan(Planned):
    """The launch of one product, ready to be called; `tcusim.plan_product` makes one.

    `plan(a, b)` multiplies. The first call on a backend emits, compiles and loads the kernel;
    further calls launch it, and nothing else.
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
        launched = pieces_of(problem) or problem
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
    if rule.method == "fixed point" and problem.types.ab == "f64" and problem.most > MOST_BY_PARTS:
        raise Unsupported(
            f"bits='exact' in GPU memory takes float16 segments of up to {MOST_BY_PARTS} elements, "
            f"and there are some of up to {problem.most}. Cut them into shorter ones"
        )
    if rule.method == "fixed point" and problem.as_printed:
        raise Unsupported(
            f"{problem.algorithm!r} is run as printed, and rounds partial sums; with bits='exact' "
            "nothing is rounded on the way. Leave algorithm out, or bits"
        )
    most = MOST_DIGITS.get(problem.types.ab, problem.most)
    if problem.types.ab == "s8" and rule.method == "as it is" and problem.most > most:
        if problem.types.result != "s64":
            raise Unsupported(
                f"sums of more than {most} integers may not fit int32; choose int64 as dtype, or "
                "cut the segments into shorter ones"
            )
        if isinstance(problem, Problem):
            raise Unsupported(
                f"segments of more than {most} integers are summed by offsets, and "
                f"{problem.algorithm!r} is for other segments; leave it out"
            )
    named = problem.algorithm or problem.strategy
    if named and rule.method in ("digits", "fixed point") and problem.most > most:
        raise Unsupported(
            f"segments of more than {most} elements are summed exactly in pieces by offsets, and "
            f"{named!r} is for other segments; leave it out"
        )
    if rule.method == "f16 parts" and problem.as_printed:
        raise Unsupported(
            f"{problem.algorithm!r} rounds partial sums to float16, and on {problem.arch}, which "
            "has no bf16, float32 is computed as parts that fill the range of float16: they would "
            "overflow. Leave algorithm out, or cast the array to float16"
        )


def segment_problem(
    request: SegmentRequest, layout: Layout, rule: TypeRule, options: Options, arch: str,
    longest: int | None = None, *, carry: bool = False,
) -> Problem | RaggedProblem:  # fmt: skip
    """Return the problem of a sum or scan of arrays of a layout."""
    length = layout.rows * (layout.length + layout.missing)
    common = _common(rule, options, arch)
    common |= {"kind": request.kind, "length": length, "order": request.order}
    if layout.by_offsets is None:
        return Problem(segment_size=min(layout.segment_size, length), **common)
    return RaggedProblem(
        segments=layout.by_offsets * layout.rows,
        longest=rounded_longest(longest, length, common["tile"].k),
        # Digits are added up as they are, and initial values to their sums.
        carry=carry and rule.method not in ("digits", "fixed point"),
        **common,
    )


def lies_by_offsets(layout: Layout, rule: TypeRule, options: Options) -> bool:
    """Return whether segments of one size are scanned by offsets: they are too long to share.

    So are integers, and summed, if accumulators have no room for their sums.
    """
    if options.algorithm is not None or layout.by_offsets is not None:
        return False
    is_integer = rule.method == "digits" or rule.types.result == "s64"
    if is_integer and layout.segment_size > MOST_DIGITS[rule.types.ab]:
        return True
    if layout.kind != "scan":
        return False
    tile, several = tile_for(rule.types, options.tile), layout.rows * layout.segments > 1
    longest = longest_scanned(tile, several=several)
    return longest is not None and layout.segment_size > longest


def product_problem(
    layout: ProductLayout, rule: TypeRule, options: Options, arch: str, *, add_c: bool
) -> ProductProblem:
    """Return the problem of one product of arrays of a layout."""
    sizes: dict[str, Any] = {"rows": layout.rows, "inner": layout.inner, "cols": layout.cols}
    return ProductProblem(**sizes, add_c=add_c, **_common(rule, options, arch))


def _common(rule: TypeRule, options: Options, arch: str) -> dict[str, Any]:
    return {
        "types": rule.types,
        "tile": tile_for(rule.types, options.tile),
        "arch": arch,
        "algorithm": options.algorithm,
        "strategy": options.strategy,
    }


def plan(
    operation: str,
    *,
    length: int,
    segment_size: int | None = None,
    segments: int | None = None,
    longest: int | None = None,
    dtype: Any = "float16",
    result: Any = None,
    backend: str | None = None,
    tile: Shape | None = None,
    arch: str | None = None,
    acc: str = "f32",
    algorithm: str | None = None,
    bits: Bits = "segment",
    strategy: str | None = None,
    exclusive: bool = False,
    include_initial: bool = False,
    reverse: bool = False,
    initial: bool = False,
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
        Elements of a segment, for the last two operations. The last segment may be shorter.
    segments : int, optional
        Instead: how many segments there are, of any lengths. Calls then take `offsets`.
    longest : int, optional
        With `segments`: the most elements that any of them has, which may save launches. It is
        rounded up; offsets of a longer segment are refused.
    dtype : dtype
        Element type of the array, by NumPy's name or as a type: what `tcusim.sum` takes.
    result : dtype, optional
        What `dtype` is in `tcusim.sum`: the type of the computation and of the result. By default
        that of the array; of integers NumPy's wide one, int32 in GPU memory.
    backend : str, optional
        Who runs it. By default that of the array: the simulator for NumPy arrays.
    tile, arch, acc, algorithm, bits
        As in `tcusim.sum`.
    strategy : str, optional
        How to compute, by name, where several ways are open: "panels", "single_pass", or of
        segments by offsets "row_per_segment" or "rows". All that apply have the same bits. By
        default the first; the plan says which that is, and why.
    exclusive, include_initial, reverse : bool
        Of a scan, as in `tcusim.segmented_cumsum`. With an initial zero the result is flat.
    initial : bool
        Of a scan: whether calls give the values that precede the segments' first elements.

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import numpy as np, tcusim
    >>> plan = tcusim.plan("segmented_sum", length=8, segment_size=4)
    >>> plan
    Plan('segmented_sum', 8 float16 in segments of 4 to float16: reduction_kn)
    >>> plan(np.arange(8, dtype=np.float16))
    array([ 6., 22.], dtype=float16)
    """
    options = Options(backend, tile, arch, acc, algorithm, bits, strategy).checked()
    if operation in ("matmul", "matvec"):
        raise InputError(f"{operation!r} is a product; plan it with tcusim.plan_product")
    if not isinstance(operation, str) or operation not in OPERATIONS:
        raise unknown_name("operation", operation, OPERATIONS)
    length = count_of("length", length)
    sizes = _checked_sizes(
        operation, {"segment_size": segment_size, "segments": segments, "longest": longest}
    )
    size = min(sizes["segment_size"], length) if "segment_size" in sizes else None
    order = {"exclusive": exclusive, "include_initial": include_initial, "reverse": reverse}
    for name, wanted in (order | {"initial": initial}).items():
        if wanted and OPERATIONS[operation] != "scan":
            raise InputError(f"{name} is for scans, and {operation!r} is none")
    request = SegmentRequest(operation, axis=0, segment_size=size, **order)
    used = arch_of_run(arch, backend)
    named_result = None if result is None else array_name_of(result)
    rule = types_on_host(_given_type(dtype), named_result, acc, used, bits=options.bits)
    layout = request.layout((length,), by_offsets="segments" in sizes)
    if initial:
        require_unnamed(algorithm, "initial=")
    own = "segments" not in sizes and (initial or lies_by_offsets(layout, rule, options))
    segments = layout.segments if own else sizes.get("segments")
    longest = layout.segment_size if own else sizes.get("longest")
    layout = replace(layout, by_offsets=segments)
    problem = segment_problem(request, layout, rule, options, used, longest, carry=initial)
    own_size = layout.segment_size if own else None
    asked = Asked(rule.named(named_result), request.initial, own_size, initial)
    made: Plan = plan_for(operation, problem, arch, backend, rule, asked)
    return made


def _given_type(dtype: Any) -> str:
    name = array_name_of(dtype)
    if name != "bfloat16" and np.dtype(name).kind not in "biuf":
        raise InputError(f"dtype must be a real number type, got {name}")
    return name


def _checked_sizes(operation: str, sizes: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes of segments that were given; refuse what does not go together."""
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
    backend: str | None = None,
    tile: Shape | None = None,
    arch: str | None = None,
    acc: str = "f32",
    algorithm: str | None = None,
    strategy: str | None = None,
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
    backend, tile, arch, acc, algorithm
        As in `tcusim.matmul`.
    strategy : str, optional
        The name of the planner's strategy to follow; by default the first that applies.

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
    options = Options(backend, tile, arch, acc, algorithm, strategy=strategy).checked()
    if not isinstance(operation, str) or operation not in ("matmul", "matvec"):
        raise unknown_name("operation", operation, ("matmul", "matvec"))
    if (cols is None) != (operation == "matvec"):
        raise InputError("'matmul' needs cols, the columns of b; 'matvec' has none")
    layout = ProductLayout(
        rows=count_of("rows", rows),
        inner=count_of("inner", inner),
        cols=None if cols is None else count_of("cols", cols),
        result=(),
    )
    used = arch_of_run(arch, backend)
    named_result = None if result is None else array_name_of(result)
    rule = types_on_host(_given_type(dtype), named_result, acc, used, product=True)
    problem = product_problem(layout, rule, options, used, add_c=bool(add_c))
    asked = Asked(rule.named(named_result))
    made: ProductPlan = plan_for(operation, problem, arch, backend, rule, asked)
    return made
