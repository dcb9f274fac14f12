"""Choose the launches for a sum or a scan, and keep them: a plan is made once and called often.

A plan is data: launches of step programs on named arrays ("in", "out" and what lies between), and
the reasons for them. `print` shows all of it. Called with an array, it only launches.

Which launches there are, `_choose` decides, by the table `_RULES`: the first row that holds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.algorithms import algorithm_of, build
from tcusim.algorithms.order import FORWARD, Order
from tcusim.arguments import edges_of, refuse_stream, require_longest
from tcusim.backends import get_backend, native_arch
from tcusim.device_offsets import offsets_on_device
from tcusim.devices import chosen_backend, is_on_device, library_of
from tcusim.errors import InputError, Unsupported, unknown_name
from tcusim.ir import Level, Program
from tcusim.irregular import IrregularProblem, cut_of, draft_by_offsets
from tcusim.launches import CHAIN, Launch, Launches, Memory
from tcusim.numerics import Values, format_of, rule_for
from tcusim.planned import DTYPES, SHORT_NAMES, Planned
from tcusim.shapes import MmaShape, shape_of
from tcusim.verify import in_place

__all__ = [
    "CHAIN",
    "CHUNK",
    "DTYPES",
    "FLOATS",
    "MOST_INT8",
    "OPERATIONS",
    "SHORT",
    "SHORT_NAMES",
    "Draft",
    "Launch",
    "Memory",
    "Plan",
    "Problem",
    "Shape",
    "deliver",
    "drafted",
    "name_of_dtype",
    "plan",
    "plan_for",
    "problem_by_offsets",
    "problem_of",
    "require_unnamed",
    "types_of",
    "unit_of_run",
]

# Segments of more rows than this are read tile by tile.
SHORT = 4
# Elements that one warp takes of a longer segment.
CHUNK = 2**14
# Values that one warp combines by plain additions.
PLAIN = 1024
# Elements from which on blocks have several warps: there are enough for all multiprocessors then.
MANY = 2**18
WARPS = 8
# Elements of a block of the algorithms that share segments among blocks: the least, the most, and
# how many blocks an array should give at least.
LEAST_BLOCK = 2**13
MOST_BLOCK = 2**16
ENOUGH_BLOCKS = 256
# A block keeps what it scans in shared memory.
KEPT_BYTES = 2**16
# Blocks of a whole array that wait for each other's totals; groups wait for the group before.
GROUP = 64
# The most blocks of a segment whose totals each of them waits for.
MOST_COLUMNS = 128
# The longest segment of int8 whose sum int32 holds, with room to spare.
MOST_INT8 = 2**23

Shape: TypeAlias = str | tuple[int, int, int] | MmaShape

# Whether an operation reduces or scans.
OPERATIONS: Mapping[str, str] = {
    "sum": "reduction",
    "cumsum": "scan",
    "segmented_sum": "reduction",
    "segmented_cumsum": "scan",
}
# Operand, accumulator and array types by the NumPy type of an array, and its own result type.
_TYPES = {
    "float16": ("f16", "f32", "f16", "float16"),
    "bfloat16": ("bf16", "f32", "bf16", "bfloat16"),
    "float32": ("bf16", "f32", "f32", "float32"),
    "float64": ("f64", "f64", "f64", "float64"),
    "int8": ("s8", "s32", "s8", "int32"),
}
FLOATS = ("float16", "float32", "float64", "bfloat16")


@dataclass(frozen=True, slots=True)
class Problem:
    """What launches are chosen for.

    kind: "reduction" or "scan". length: elements of the array. segment_size: elements of a segment;
    the last one may be shorter. ab, acc: element types of operands and accumulators; source,
    result: of the arrays "in" and "out". literal: as the paper has it, with partial sums rounded to
    `ab` and chains without limit. algorithm: a name, or None for the choice by `_RULES`. order:
    whether a scan is exclusive, and whether it goes from the end.
    """

    kind: str
    length: int
    segment_size: int
    shape: MmaShape
    ab: str
    acc: str
    source: str
    result: str
    literal: bool = False
    algorithm: str | None = None
    order: Order = FORWARD

    def build(self, name: str, segment_size: int | None, result: str, **options: Any) -> Program:
        """Build a program for any length with this problem's types."""
        if self.length >= MANY and algorithm_of(name).level is Level.WARP:
            options = {"warps": WARPS, **options}
        return build(
            name,
            shape=self.shape,
            segment_size=segment_size,
            ab=self.ab,
            accumulate=self.acc,
            source=self.source,
            result=result,
            ragged=True,
            combine="mma" if self.literal else "add",
            chain=None if self.literal else CHAIN,
            **options,
        )

    def plain(self, name: str, segment_size: int, result: str, **options: Any) -> Program:
        """Build a program of rounded additions alone, on values of the accumulator's type."""
        return build(
            name,
            shape=self.shape,
            segment_size=segment_size,
            ab=self.ab,
            accumulate=self.acc,
            source=self.acc,
            result=result,
            ragged=True,
            **options,
        )

    @property
    def scan_options(self) -> dict[str, bool]:
        """What an algorithm is to be told of the order, if it is not the usual one."""
        given = {"exclusive": self.order.exclusive, "reverse": self.order.reverse}
        return {name: value for name, value in given.items() if value}

    @property
    def chunk(self) -> int:
        """Elements of a chunk: whole tiles, whichever operand holds the data."""
        tile = self.shape.k * max(self.shape.m, self.shape.n)
        return tile * max(1, CHUNK // tile)

    @property
    def whole_or_size(self) -> int | None:
        """The segment size; None if the whole array is one segment."""
        return None if self.segment_size >= self.length else self.segment_size

    @property
    def segments(self) -> int:
        """Number of segments."""
        return -(-self.length // self.segment_size)

    @property
    def division(self) -> str:
        """How the array is divided into segments, in words; nothing if it is one."""
        return f" in segments of {self.segment_size}" if self.segment_size < self.length else ""


# --- The plan ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Planned):
    """The launches of one sum or scan, ready to be called; `tcusim.plan` makes one.

    `plan(a)` computes. What it takes is prepared in the first call on a backend and kept: programs
    emitted, compiled and loaded, and memory for what lies between launches. Further calls launch.

    Attributes
    ----------
    operation : str
        "sum", "cumsum", "segmented_sum" or "segmented_cumsum".
    problem : Problem or IrregularProblem
        Lengths, types and tile; the latter if segments lie by offsets.
    arch, backend : str or None
        As given to `tcusim.plan`; None is settled when the plan is called.
    arrays : tuple of Memory
        "in", and "offsets" if segments lie by them, then what lies between, then "out".
    launches : tuple of Launch
        In order; the last one writes "out".
    why : tuple of str
        For each choice a line.
    """

    problem: Problem | IrregularProblem

    def __call__(
        self,
        a: Any,
        out: Any = None,
        stream: Any = None,
        *,
        offsets: Any = None,
        check_offsets: bool = True,
    ) -> Any:
        """Compute: launch for an array of the planned type and length.

        The data are not looked at, as they are by `tcusim.sum` and its kin for NumPy arrays: see
        docs/gpu.md for what infinities, NaN and float32 values beyond 3.39e38 come to.

        Parameters
        ----------
        a : array
            Of the planned element type and `length` elements in any shape, C-contiguous if in GPU
            memory. A NumPy array runs on the plan's backend, "numpy" by default; an array in GPU
            memory stays there.
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

        Returns
        -------
        array of a's kind; of a's shape for scans, (segments,) for segmented sums, () for sums

        Raises
        ------
        InputError
            If an array does not fit.
        """
        self._require_offsets(offsets)
        if is_on_device(a):
            there = None if offsets is None else self._offsets_there(a, offsets, check_offsets)
            return self.on_device(a, out, stream=stream, offsets=there)
        return self._on_host(np.asarray(a), out, stream, offsets)

    def on_device(
        self,
        a: Any,
        out: Any,
        shape: tuple[int, ...] | None = None,
        stream: Any = None,
        offsets: Any = None,
    ) -> Any:
        """Compute where the array is; return an array of its kind and this shape, or `out`.

        offsets: of segments by offsets, in GPU memory and of int64. Nothing here looks at them.
        """
        backend = chosen_backend(a, self.backend)
        if shape is None:
            shape = self.shape_of_result(tuple(backend.describe(a).shape))
        inputs = {"in": a} if offsets is None else {"in": a, "offsets": offsets}
        return self.launched(backend, inputs, out, shape, stream)

    def _require_offsets(self, offsets: Any) -> None:
        if isinstance(self.problem, IrregularProblem):
            if offsets is None:
                raise InputError(
                    f"this plan is for {self.problem.segments} segments by offsets; give offsets="
                )
        elif offsets is not None:
            raise InputError(
                f"{self!r} takes no offsets; plan {self.operation!r} with segments=, their number"
            )

    def _offsets_there(self, a: Any, offsets: Any, check: bool) -> Any:
        """Return offsets for an array in GPU memory, there; refuse others than this plan takes."""
        backend = chosen_backend(a, self.backend)
        length = self.problem.length
        found = offsets_on_device(backend, a, offsets, length=length, rows=1, check=check)
        self._require_edges(found.segments, found.edges)
        return found.there

    def _require_edges(self, segments: int, edges: NDArray[np.int64] | None) -> None:
        p = self.problem
        assert isinstance(p, IrregularProblem)
        if segments != p.segments:
            raise InputError(
                f"this plan takes {p.segments + 1} offsets, of {p.segments} segments, got "
                f"{segments + 1}; make another plan"
            )
        if p.longest is not None and edges is not None:
            require_longest(edges, p.longest)

    def _on_host(self, a: NDArray[Any], out: Any, stream: Any, offsets: Any) -> Any:
        refuse_stream(stream)
        if a.dtype.name != self.dtype or a.size != self.problem.length:
            raise InputError(
                f"this plan takes {self.problem.length} elements of {self.dtype}, got {a.size} of "
                f"{a.dtype}; make another plan, or cast the array"
            )
        runner = get_backend(self.backend or "numpy")
        inputs = {"in": np.ascontiguousarray(a).reshape(-1)}
        if offsets is not None:
            edges = inputs["offsets"] = edges_of(offsets, self.problem.length)
            self._require_edges(edges.size - 1, edges)
        result = self.run(
            inputs,
            lambda program, given: runner.run(program, given, arch=self.arch),
        )
        return deliver(result.reshape(self.shape_of_result(a.shape)), out, a)

    # --- What it is --------------------------------------------------------------------------

    def shape_of_result(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the result for an array of this shape."""
        if self.problem.kind == "scan":
            return shape
        return () if self.operation == "sum" else (self.problem.segments,)

    @property
    def why_not_in_place(self) -> str | None:
        """Why "out" may not be the very array "in"; None if it may be."""
        return self._why_not_in_place

    @functools.cached_property
    def _why_not_in_place(self) -> str | None:
        """Find the reason, once.

        It may be if what is written over has been read by then, within each launch and by them all.
        """
        if self.problem.kind != "scan":
            return "only scans have a result for each element"
        if self.problem.source != self.problem.result:
            return f"its elements are {self.dtype} and its results {self.result}"
        written = False
        for launch in self.launches:
            reads, writes = launch.inputs.items(), launch.outputs.items()
            sources = [buffer for buffer, name in reads if name == "in"]
            targets = [buffer for buffer, name in writes if name == "out"]
            if sources and written:
                return f"{launch.program.name} reads it after results were written"
            for source in sources:
                for target in targets:
                    reason = in_place(launch.program, source, target)
                    if reason is not None:
                        return reason
            written = written or bool(targets)
        return None

    def _sizes(self) -> str:
        p = self.problem
        order = "".join(f", {name}" for name in p.scan_options)
        return f"{p.length} {self.dtype}{p.division} to {self.result}{order}"


# --- Making one -------------------------------------------------------------------------------


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
    shape: Shape | None = None,
    arch: str | None = None,
    accumulate: str = "f32",
    algorithm: str | None = None,
    exclusive: bool = False,
    reverse: bool = False,
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
        Element type of the array, by NumPy's name or as a type: float16, bfloat16, float32,
        float64 or int8.
    result : dtype, optional
        Element type of the result: a float type for floats, int32 for int8. Default: dtype, or
        int32. (float64 results of narrower arrays have the digits of their float32 sums.)
    backend : str, optional
        Who runs it. By default that of the array: the simulator for NumPy arrays.
    shape, arch, accumulate, algorithm
        As in `tcusim.sum`.
    exclusive, reverse : bool
        Of a scan: leave each element out of its own prefix; sum from the end of each segment.

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
    if operation in ("matmul", "matvec"):
        raise InputError(f"{operation!r} is a product; plan it with tcusim.plan_product")
    if operation not in OPERATIONS:
        raise unknown_name("operation", operation, OPERATIONS)
    _require_count("length", length)
    named = {"segment_size": segment_size, "segments": segments, "longest": longest}
    sizes = {name: value for name, value in named.items() if value is not None}
    _require_sizes(operation, sizes)
    for name, given in (("exclusive", exclusive), ("reverse", reverse)):
        if given and OPERATIONS[operation] != "scan":
            raise InputError(f"{name} is for scans, and {operation!r} is none")
    wanted = None if result is None else name_of_dtype(result)
    types = types_of(name_of_dtype(dtype), wanted, accumulate)
    kind, unit = OPERATIONS[operation], unit_of_run(arch, backend)
    order = Order(bool(exclusive), bool(reverse))
    if segments is not None:
        require_unnamed(algorithm)
        problem: Problem | IrregularProblem = problem_by_offsets(
            kind,
            int(length),
            int(segments),
            types,
            unit=unit,
            shape=shape,
            accumulate=accumulate,
            longest=longest,
            order=order,
        )
        return plan_for(operation, problem, arch, backend)
    problem = problem_of(
        kind,
        int(length),
        min(int(segment_size or length), int(length)),
        types,
        unit=unit,
        shape=shape,
        accumulate=accumulate,
        algorithm=algorithm,
        order=order,
    )
    return plan_for(operation, problem, arch, backend)


def unit_of_run(arch: str | None, backend: str | None) -> str:
    """Return whose arithmetic a call follows: the named one, or that of the backend's GPU."""
    if arch is not None:
        return arch
    own = None if backend is None else native_arch(get_backend(backend))
    return own or "hopper"


def problem_of(
    kind: str,
    length: int,
    segment_size: int,
    types: tuple[str, str, str, str],
    *,
    unit: str,
    shape: Shape | None,
    accumulate: str,
    algorithm: str | None,
    order: Order = FORWARD,
) -> Problem:
    """Return the problem for these (ab, acc, source, result) types; refuse what `unit` lacks."""
    ab, acc, source, result = types
    rule_for(unit, ab, acc)
    _require_exact(ab, segment_size, unit)
    return Problem(
        kind=kind,
        length=length,
        segment_size=segment_size,
        shape=_tile(shape, ab),
        ab=ab,
        acc=acc,
        source=source,
        result=result,
        literal=accumulate == "f16" or _is_paper_name(algorithm),
        algorithm=algorithm,
        order=order,
    )


def problem_by_offsets(
    kind: str,
    length: int,
    segments: int,
    types: tuple[str, str, str, str],
    *,
    unit: str,
    shape: Shape | None,
    accumulate: str,
    longest: int | None = None,
    order: Order = FORWARD,
) -> IrregularProblem:
    """Return the problem for segments by offsets, none of more than `longest` elements.

    That is rounded up, so that few problems, and plans, serve all lengths.
    """
    ab, acc, source, result = types
    rule_for(unit, ab, acc)
    tile = _tile(shape, ab)
    most = length if longest is None else min(longest, length)
    _require_exact(ab, most, unit)
    most = cut_of(most, 1, tile.k, 2 * tile.k * max(1, most))
    return IrregularProblem(
        kind=kind,
        length=length,
        segments=segments,
        shape=tile,
        ab=ab,
        acc=acc,
        source=source,
        result=result,
        literal=accumulate == "f16",
        exclusive=order.exclusive,
        reverse=order.reverse,
        longest=None if longest is None or most >= length else most,
    )


def _tile(shape: Shape | None, ab: str) -> MmaShape:
    return shape_of(shape or ("8x8x4" if ab == "f64" else "16x16x16"))


def _require_exact(ab: str, longest: int, unit: str) -> None:
    if ab == "s8" and longest > MOST_INT8:
        raise Unsupported(
            f"integer segments of more than {MOST_INT8} elements are not exact on {unit}; cut them "
            "into shorter ones, or sum float64"
        )


def require_unnamed(algorithm: str | None) -> None:
    """Refuse the name of an algorithm for segments by offsets."""
    if algorithm is not None:
        raise Unsupported(
            f"algorithm={algorithm!r} goes with segments of one size; those by offsets have "
            "launches of their own. Leave algorithm out"
        )


@functools.lru_cache(maxsize=256)
def plan_for(
    operation: str, problem: Problem | IrregularProblem, arch: str | None, backend: str | None
) -> Plan:
    """Return the plan for a problem; the latest are kept."""
    if isinstance(problem, IrregularProblem):
        draft: Launches = draft_by_offsets(problem)
    else:
        draft = drafted(problem)
    return Plan(
        operation=operation,
        problem=problem,
        arch=arch,
        backend=backend,
        arrays=tuple(draft.arrays.values()),
        launches=tuple(draft.launches),
        why=tuple(draft.why),
    )


def drafted(problem: Problem) -> Draft:
    """Return the launches for a problem, and why."""
    draft = Draft(problem)
    _choose(draft)
    return draft


def types_of(dtype: str, result: str | None, accumulate: str) -> tuple[str, str, str, str]:
    """Return the (ab, acc, source, result) types for NumPy's names."""
    if dtype not in _TYPES:
        raise InputError(
            f"a plan takes arrays of {', '.join(_TYPES)}, not {dtype}; cast them first "
            f"(tcusim.sum and its kin also take other integers, as NumPy arrays)"
        )
    ab, acc, source, own = _TYPES[dtype]
    wanted = own if result is None else result
    valid = ("int32",) if dtype == "int8" else FLOATS
    if wanted not in valid:
        raise InputError(f"the result of {dtype} must be {' or '.join(valid)}, not {wanted}")
    if accumulate not in ("f32", "f16"):
        raise unknown_name("accumulator", accumulate, ("f32", "f16"))
    if accumulate == "f16":
        if dtype != "float16":
            raise Unsupported(f"accumulate='f16' is for float16 input, not {dtype}")
        acc = "f16"
    return ab, acc, source, SHORT_NAMES[wanted]


def name_of_dtype(dtype: Any) -> str:
    """Return NumPy's name of a type, which may also be torch's, or just a name."""
    name = str(dtype).removeprefix("torch.")
    if name in SHORT_NAMES:
        return name
    try:
        return str(np.dtype(dtype).name)
    except TypeError as error:
        raise InputError(f"dtype: {error}") from error


def _require_sizes(operation: str, sizes: Mapping[str, int]) -> None:
    """Refuse sizes of segments that do not go with an operation, or with each other."""
    if operation in ("sum", "cumsum"):
        if sizes:
            raise InputError(
                f"{operation!r} takes the array as one segment; leave {next(iter(sizes))} out, or "
                f"plan 'segmented_{operation}'"
            )
    elif ("segment_size" in sizes) == ("segments" in sizes):
        raise InputError(
            f"{operation!r} needs segment_size, the elements of a segment, or segments, the number "
            f"of those by offsets; {'not both' if sizes else 'one of them'}"
        )
    elif "longest" in sizes and "segments" not in sizes:
        raise InputError("longest goes with segments, the number of those by offsets")
    for name, value in sizes.items():
        _require_count(name, value)


def _is_paper_name(name: str | None) -> bool:
    return name is not None and algorithm_of(name).alias == name.lower()


def _require_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise InputError(f"{name} must be an integer, got {value!r}")
    if value < 1:
        raise InputError(f"{name} must be at least 1, got {value}")


# --- Which launches ---------------------------------------------------------------------------


class Draft(Launches):
    """The launches for a problem of segments of one size, in the making."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(Memory("in", problem.source, problem.length))
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table by which launches are chosen.

    holds: whether the row is for a problem. launches: adds them to a draft. why: says so in words.
    """

    holds: Callable[[Problem], bool]
    launches: Callable[[Draft], None]
    why: Callable[[Problem], str]


def _choose(draft: Draft) -> None:
    """Add the launches of the first rule that holds, and the reason."""
    problem = draft.problem
    rule = next(rule for rule in _RULES if rule.holds(problem))
    draft.why.append(rule.why(problem))
    rule.launches(draft)
    if problem.literal:
        draft.why.append("literal to the paper: partial sums are rounded, products not in chains")
    elif problem.kind == "reduction":
        draft.why.append(f"at most {CHAIN} products accumulate before a rounded addition")


def _one_launch(suffix: str) -> Callable[[Draft], None]:
    """Return what adds one launch of the algorithm of this kind, for example reduction_kn."""

    def add(draft: Draft) -> None:
        p = draft.problem
        name = f"{p.kind}_{suffix}"
        program = p.build(name, p.segment_size, p.result, **p.scan_options)
        draft.add(program, {"in": "in"}, "out")

    return add


def _as_named(draft: Draft) -> None:
    """Add one launch of the algorithm that the user named."""
    p = draft.problem
    assert p.algorithm is not None
    row = algorithm_of(p.algorithm)
    if row.kind != p.kind:
        raise Unsupported(f"{p.algorithm!r} is a {row.kind}, and this is a {p.kind}")
    if row.products is None and p.source != p.acc:
        raise Unsupported(
            f"{p.algorithm!r} adds values of the accumulator's type, {p.acc}; it combines the "
            f"partial sums of other algorithms, and does not take {p.source} arrays"
        )
    program = p.build(p.algorithm, p.segment_size, p.result, **p.scan_options)
    draft.add(program, {"in": "in"}, "out")


def _block_elements(p: Problem) -> int:
    """Return how many elements a block takes where blocks share segments: a power of two."""
    wanted = min(MOST_BLOCK, p.segment_size, max(LEAST_BLOCK, p.length // ENOUGH_BLOCKS))
    return 1 << max(0, wanted - 1).bit_length()


def _in_one_launch(draft: Draft) -> None:
    """Add one launch in which blocks share segments, or the array if it is one segment."""
    p = draft.problem
    program = p.build(f"{p.kind}_grid", p.whole_or_size, p.result, **_share(p), **p.scan_options)
    draft.add(program, {"in": "in"}, "out")


def _share(p: Problem) -> dict[str, int]:
    """Return the warps of a block, and how much each of them takes."""
    tile = p.shape.k * max(p.shape.m, p.shape.n)
    elements = _block_elements(p)
    if p.kind == "reduction":
        warps = min(16, max(1, elements // 2**11))
        each = max(1, elements // (warps * tile))
        return {"warps": warps, "per_warp": each, **_columns(p, warps * each * tile)}
    elements = min(elements, KEPT_BYTES // format_of(p.source).itemsize)
    warps = min(WARPS, max(1, elements // 2**11))
    each = max(1, elements // (warps * tile))
    return {"warps": warps, "pieces": each, **_columns(p, warps * each * tile)}


def _columns(p: Problem, block: int) -> dict[str, int]:
    """Return how many blocks of the whole array make a group: no more than there are, about."""
    if p.whole_or_size is not None:
        return {}
    blocks = -(-p.length // block)
    return {"columns": min(GROUP, 1 << (blocks - 1).bit_length())}


def _shares_blocks(p: Problem) -> bool:
    """Return whether blocks share segments: long ones, and not so long that each waits for many."""
    if p.literal or p.segment_size < LEAST_BLOCK:
        return False
    if p.kind == "reduction" or p.whole_or_size is None:
        return True
    share = _share(p)
    tile = p.shape.k * max(p.shape.m, p.shape.n)
    block = share["warps"] * share["pieces"] * tile
    return p.segment_size <= MOST_COLUMNS * block or not _is_cut(p)


def _why_shared(p: Problem) -> str:
    warps, share = list(_share(p).values())[:2]
    each = share * p.shape.k * max(p.shape.m, p.shape.n)
    who = "the array is" if p.whole_or_size is None else "segments are"
    return (
        f"{who} shared by blocks of {warps} warps, {warps * each} elements to a block, which pass "
        f"sums on in one launch and in a fixed order"
    )


def _is_cut(p: Problem) -> bool:
    """Return whether segments are cut into chunks: whole ones, save in the array's last."""
    whole = p.segment_size % p.chunk == 0 or p.segment_size >= p.length
    return p.segment_size > p.chunk and whole


def _in_chunks(draft: Draft) -> None:
    """Add the launches for segments cut into chunks: one warp to a chunk."""
    p = draft.problem
    chunks = -(-p.segment_size // p.chunk)
    sums = draft.add(p.build("reduction_tn", p.chunk, p.acc), {"in": "in"}, "sums")
    if p.kind == "reduction":
        _plain_total(draft, sums, chunks)
        return
    carries = _plain_scan(draft, sums, chunks)
    program = p.build("scan_tn", p.chunk, p.result, carry=True, **p.scan_options)
    draft.add(program, {"in": "in", "carry": carries}, "out")


def _plain_total(draft: Draft, values: str, count: int) -> None:
    """Add up every `count` values of the accumulator's type, in a tree of fixed shape."""
    p = draft.problem
    size = min(count, _group(draft.arrays[values].size, count))
    if size == count:
        draft.add(p.plain("reduction_plain", count, p.result), {"in": values}, "out")
        return
    sums = draft.add(p.plain("reduction_plain", size, p.acc), {"in": values}, "sums")
    _plain_total(draft, sums, -(-count // size))


def _plain_scan(draft: Draft, values: str, count: int) -> str:
    """Scan every `count` values of the accumulator's type, exclusive; return the result's name."""
    p = draft.problem
    options = {**p.scan_options, "exclusive": True}
    size = min(count, _group(draft.arrays[values].size, count))
    if size == count:
        program = p.plain("scan_plain", count, p.acc, **options)
        return draft.add(program, {"in": values}, "carries")
    sums = draft.add(p.plain("reduction_plain", size, p.acc), {"in": values}, "sums")
    carries = _plain_scan(draft, sums, -(-count // size))
    program = p.plain("scan_plain", size, p.acc, carry=True, **options)
    return draft.add(program, {"in": values, "carry": carries}, "carries")


def _group(size: int, count: int) -> int:
    """Return how many of `size` values one warp combines: groups do not reach across segments."""
    if count <= PLAIN:
        return count
    if count >= size:
        return PLAIN
    group = next(group for group in range(PLAIN, 0, -1) if count % group == 0)
    # A count with no good divisor is combined by one warp.
    return group if group > 1 else count


def _why_whole(p: Problem) -> str:
    text = f"one warp takes a segment of {p.segment_size} elements, tile by tile"
    if p.segment_size > p.chunk:
        text += f": chunks of {p.chunk} would reach across segments"
    return text


# The first row that holds decides. A new algorithm is a new row, before those that it outdoes.
_RULES: tuple[Rule, ...] = (
    Rule(
        lambda p: p.algorithm is not None,
        _as_named,
        lambda p: f"algorithm={p.algorithm!r} was asked for: one launch",
    ),
    # Several short segments share a tile, one to a row.
    Rule(
        lambda p: p.segment_size <= SHORT * p.shape.k,
        _one_launch("kn"),
        lambda p: (
            f"segments of up to {SHORT * p.shape.k} elements lie side by side in a tile, "
            f"{p.shape.k} to a row"
        ),
    ),
    # Blocks share a long segment, or the whole array.
    Rule(_shares_blocks, _in_one_launch, _why_shared),
    # Many warps share a long segment, and no chain of sums is long. The sums of chunks are combined
    # by rounded additions, and are the carries of a scan.
    Rule(
        _is_cut,
        _in_chunks,
        lambda p: (
            f"segments of more than {p.chunk} elements are cut into chunks of that size, a warp "
            f"to each; their sums are combined by rounded additions, {PLAIN} to a warp"
        ),
    ),
    Rule(lambda p: True, _one_launch("tn"), _why_whole),
)


# --- Results as NumPy arrays ------------------------------------------------------------------


def deliver(result: Values, out: Any, a: Any) -> Any:
    """Return the result, or put it into `out`, which may be `a` but not overlap it otherwise."""
    if out is None:
        return result[()]
    if not isinstance(out, np.ndarray) or out.shape != result.shape or out.dtype != result.dtype:
        if is_on_device(out):
            kind = f"{library_of(out)}, which is in GPU memory"
        elif isinstance(out, np.ndarray):
            kind = f"{out.dtype}, {out.shape}"
        else:
            kind = type(out).__name__
        raise InputError(
            f"out must be an array of {result.dtype}, shape {result.shape}; got {kind}"
        )
    if not out.flags.writeable:
        raise InputError("out is read-only. Give an array to write to.")
    if isinstance(a, np.ndarray) and not _same(a, out) and np.shares_memory(a, out):
        raise InputError(
            "out overlaps a in memory. Give a itself, to compute in place, or an array of its own."
        )
    out[...] = result
    return out


def _same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Return whether two arrays are views of the very same elements."""
    if one.dtype != other.dtype or one.ctypes.data != other.ctypes.data:
        return False
    if one.flags.c_contiguous and other.flags.c_contiguous:
        return one.size == other.size
    return one.shape == other.shape and one.strides == other.strides
