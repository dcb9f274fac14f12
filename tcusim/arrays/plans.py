"""Plans: launches that are chosen once, kept, and run often.

A plan is data: launches of step programs on named arrays ("in", "out" and the arrays between), and
the reasons for them. `print` shows all of it. Every function on arrays makes one, from its
specification and the layout of the array; `tcusim.arrays.planner` decides on the launches.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from tcusim.arrays.dtypes import TypeRule, numpy_type
from tcusim.arrays.exact import Stage, Work, few_summed, stages_of, through
from tcusim.arrays.libraries import Array
from tcusim.arrays.planner import Choice, choose
from tcusim.arrays.problem import (
    MOST_BY_PARTS,
    AnyProblem,
    Problem,
    ProductProblem,
    pieces_of,
    rounded_longest,
    tile_for,
)
from tcusim.arrays.sizes import longest_scanned
from tcusim.arrays.spec import Call, Layout, ProductLayout, Spec
from tcusim.backends import DeviceBackend, Session, get_backend, is_offsets_backend
from tcusim.errors import Given, InputError, Unsupported, VerifyError
from tcusim.machine import Arch, arch_of
from tcusim.program.launches import Launch, LaunchPlan, Memory
from tcusim.simulate.counts import Counts, counts_of_text
from tcusim.table import Table, Tabular, aligned

# Initial values in GPU memory that a plan keeps.
_MOST_INITIALS: Final = 8


@dataclass(frozen=True, eq=False, repr=False)
class Planned(Tabular):
    """Launches for one problem, ready to be run where arrays are.

    Attributes
    ----------
    spec : Spec
        The operation, and the keywords that were given beside those in `problem` and `rule`.
    problem : Problem or ProductProblem
        Sizes, types and tile of the launches of a sum or a scan, or of a product.
    rule : TypeRule
        The types of arrays and results, and how they are made to fit those of the launches.
    launch_plan : LaunchPlan
        The launches that backends run, from "in" and other arguments to "out".
    strategy : str
        The name of the strategy that chose the launches.
    rationale : tuple of str
        For each choice a line.
    stages : tuple of Stage
        The stages that make NumPy arrays fit.
    """

    spec: Spec
    problem: AnyProblem
    rule: TypeRule
    launch_plan: LaunchPlan
    strategy: str
    rationale: tuple[str, ...]
    stages: tuple[Stage, ...] = ()
    # The problem of the launches: the plan's own, or with digits one of shorter segments.
    _launched: AnyProblem | None = field(default=None, repr=False)
    # Sessions of backends, by the backend's name.
    _sessions: dict[str, Session] = field(default_factory=dict, init=False)
    # Initial values in GPU memory, by the signatures of a call's arrays and the number; None of a
    # number that was given once.
    initials: dict[Hashable, Any] = field(default_factory=dict, init=False)
    # The arithmetic of the problem's architecture when the plan was made.
    _arithmetic: Arch | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Note the arithmetic: a unit that is read again may change it."""
        arch = self.problem.arch
        object.__setattr__(self, "_arithmetic", None if arch is None else arch_of(arch))

    def require_arithmetic(self) -> None:
        """Refuse to run where the unit of the plan has been replaced by one of other arithmetic."""
        arch = self.problem.arch
        if arch is not None and arch_of(arch) != self._arithmetic:
            raise InputError(
                f"the arithmetic of {arch} has changed since this plan was made; make it again"
            )

    def compute(self, arrays: Mapping[str, Array], call: Call, before: Sequence[Stage]) -> Array:
        """Return the flat result for flat NumPy arrays by the plan's names."""
        spec, whole = self.spec, Work(self.problem, arrays)
        runner = get_backend(spec.backend or "numpy")
        steps = through(whole, (*before, *self.stages))
        result: Any = None
        watched = not (spec.backend is None and call.report is None and call.progress is None)
        with np.errstate(all="ignore"):
            if self.rule.method == "fixed point" and not watched:
                few = few_summed(whole, numpy_type(self.rule.result))
                if few is not None:
                    return few
            try:
                while True:
                    work = steps.send(result)
                    launches = self._launches_of(work.problem)
                    made = runner.run(launches, work.arrays, arch=spec.arch, progress=call.progress)
                    result = made["out"]
                    if call.report is not None:
                        call.report.note(launches, self.problem.arch or "")
            except StopIteration as end:
                total: Array = end.value
                return total

    def _launches_of(self, problem: AnyProblem) -> LaunchPlan:
        """Return the launches for the problem of a stage: the plan's own, if it is this one."""
        return self.launch_plan if problem is self._launched else launches_for(problem).plan

    def session_on(self, backend: DeviceBackend) -> Session:
        """Return the plan made ready on a backend, the first time it is asked for."""
        session = self._sessions.get(backend.name)
        if session is None:
            made = backend.prepare(self.launch_plan, self.arch)
            session = self._sessions.setdefault(backend.name, made)
        return session

    def keep_initial(self, key: Hashable, initial: Any, backend: DeviceBackend) -> None:
        """Keep initial values for further calls, if their number is given a second time.

        The call that keeps them waits, which calls with distinct numbers need not. Kept values are
        never freed: a captured graph may read them.
        """
        if key in self.initials:
            if is_offsets_backend(backend) and backend.settled(initial):
                self.initials[key] = initial
            return
        if len(self.initials) >= _MOST_INITIALS:
            for once in [one for one, kept in self.initials.items() if kept is None]:
                self.initials.pop(once, None)
        if len(self.initials) < _MOST_INITIALS:
            self.initials[key] = None

    # --- Description -------------------------------------------------------------------------

    @property
    def operation(self) -> str:
        """The name of the function: "sum", "segmented_cumsum", "matmul" and so on."""
        return self.spec.operation

    @property
    def arch(self) -> str | None:
        """The architecture as given; None is settled when the plan is called."""
        return self.spec.arch

    @property
    def backend(self) -> str | None:
        """The backend as given; None is that of the arrays."""
        return self.spec.backend

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
        """The arrays of the launches: "in" and other arguments, temporaries, "out"."""
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

    def table(self) -> Table:
        """Return everything: sizes, arrays, launches with their counts, and why."""
        return Table(title=f"plan {self.operation}", rows=list(self._rows()))

    def _rows(self) -> Iterator[tuple[str, str]]:
        """Yield everything: heads and texts."""
        p, t = self.problem, self.problem.types
        yield "problem", _sizes(p, self.rule)
        parts = f"{t.source} as {t.ab}" if t.source != t.ab and not t.adds else t.source
        yield "tile", f"{p.tile.name}, {parts} to {t.acc}"
        yield "arch", self.arch or "that of the GPU; hopper on the simulator"
        arrays = (
            (array.name, f"{array.dtype} x {array.size}, {array.nbytes} bytes")
            for array in self.arrays
        )
        for number, text in enumerate(aligned(arrays)):
            yield "arrays" if number == 0 else "", text
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
    told, own = problem.told(rule.given, rule.result), str(problem)
    if told == own:
        return own
    how = "as" if rule.method == "as it is" else f"in {rule.method},"
    return f"{told} ({how} {problem.types.dtype} to {problem.types.result_dtype})"


# --- The problem of a specification ---------------------------------------------------------------


def segment_problem(
    spec: Spec, layout: Layout, rule: TypeRule, arch: str, longest: int | None = None
) -> Problem:  # fmt: skip
    """Return the problem of a sum or scan of arrays of a layout."""
    length = layout.rows * (layout.length + layout.missing)
    common = _common(spec, rule, arch)
    common |= {"kind": spec.kind, "length": length, "order": spec.order}
    # Digits are added up as they are, and initial values to their sums.
    common["carry"] = spec.carry and rule.method not in ("digits", "fixed point")
    if layout.by_offsets is None:
        return Problem(segment_size=min(layout.segment_size, length), **common)
    return Problem(
        by_offsets=layout.by_offsets * layout.rows,
        longest=rounded_longest(longest, length, common["tile"].k),
        **common,
    )


def lies_by_offsets(spec: Spec, layout: Layout, rule: TypeRule) -> bool:
    """Return whether segments of one size are scanned by offsets: they are too long to share."""
    if spec.algorithm is not None or layout.by_offsets is not None:
        return False
    if layout.kind != "scan":
        return False
    longest = longest_scanned(tile_for(rule.types, spec.tile))
    return longest is not None and layout.segment_size > longest


def product_problem(
    spec: Spec, layout: ProductLayout, rule: TypeRule, arch: str, *, add_c: bool
) -> ProductProblem:
    """Return the problem of one product of arrays of a layout."""
    sizes: dict[str, Any] = {"rows": layout.rows, "inner": layout.inner, "cols": layout.cols}
    return ProductProblem(**sizes, add_c=add_c, **_common(spec, rule, arch))


def _common(spec: Spec, rule: TypeRule, arch: str) -> dict[str, Any]:
    return {
        "types": rule.types,
        "tile": tile_for(rule.types, spec.tile),
        "arch": arch,
        "algorithm": spec.algorithm,
        "strategy": spec.strategy,
    }


# --- Making one -----------------------------------------------------------------------------------


@functools.lru_cache(maxsize=512)
def launches_for(problem: AnyProblem) -> Choice:
    """Return the launches for a problem; the latest are kept."""
    try:
        return choose(problem, str(problem))
    except VerifyError as error:
        raise Unsupported(f"tiles of {problem.tile.name} do not do: ", *error.pieces) from error


@functools.lru_cache(maxsize=256)
def plan_for(
    spec: Spec, problem: AnyProblem, rule: TypeRule, kind: type[Planned] = Planned
) -> Planned:
    """Return the plan for a problem; the latest are kept. kind: its class."""
    launched = problem
    if isinstance(problem, Problem):
        _require_exact(problem, rule)
        if rule.method in ("digits", "fixed point"):
            launched = pieces_of(problem)
    choice = launches_for(launched)
    names = ", ".join(launch.program.name for launch in choice.plan.launches)
    title = f"Plan({spec.operation!r}, {_sizes(problem, rule)}: {names})"
    return kind(
        spec=spec,
        problem=problem,
        rule=rule,
        launch_plan=replace(choice.plan, title=title),
        strategy=choice.strategy,
        rationale=choice.rationale,
        stages=stages_of(rule, problem),
        _launched=launched,
    )


def _require_exact(problem: Problem, rule: TypeRule) -> None:
    """Refuse problems that stages cannot make exact, or not safe."""
    if rule.method == "fixed point" and problem.types.acc == "f64" and problem.most > MOST_BY_PARTS:
        raise Unsupported(
            Given("bits", "exact"),
            f" in GPU memory takes float16 segments of up to {MOST_BY_PARTS} elements, "
            f"and there are some of up to {problem.most}. Cut them into shorter ones",
        )
    if rule.method == "fixed point" and problem.as_printed:
        raise Unsupported(
            f"{problem.algorithm!r} is run as printed, and rounds partial sums; with ",
            *(Given("bits", "exact"), " nothing is rounded on the way. Leave "),
            *(Given("algorithm"), " out, or ", Given("bits")),
        )
    most = problem.types.most_digits or problem.most
    if problem.types.acc == "s32" and rule.method == "as it is" and problem.most > most:
        if problem.types.sums == "s32":
            raise Unsupported(
                f"sums of more than {most} integers may not fit int32; choose int64 as dtype, or "
                "cut the segments into shorter ones"
            )
        if problem.algorithm and not problem.algorithm.endswith("_single_pass"):
            raise Unsupported(
                f"{problem.algorithm!r} sums up to {most} integers in a segment, as many as int32 "
                "has room for; leave ",
                *(Given("algorithm"), f" out, or take '{problem.kind}_single_pass'"),
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
            "overflow. Leave ",
            *(Given("algorithm"), " out, or cast the array to float16"),
        )
