"""Plans of sums and scans: launches that are made once, kept, and called often.

A plan is data: launches of step programs on named arrays ("in", "out" and what lies between), and
the reasons for them. `print` shows all of it. Called with an array, it only launches.

Which launches those are, `tcusim.arrays.planner` decides.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcusim.algorithms.order import Order
from tcusim.arrays.arguments import deliver, edges_of, refuse_stream, require_longest
from tcusim.arrays.device_offsets import offsets_on_device
from tcusim.arrays.devices import chosen_backend, is_on_device
from tcusim.arrays.planned import Planned
from tcusim.arrays.planner import choose
from tcusim.arrays.problem import (
    Problem,
    RaggedProblem,
    Shape,
    rounded_longest,
    tile_for,
    types_of,
    unit_of_run,
)
from tcusim.arrays.tuning import Tuning
from tcusim.backends import get_backend
from tcusim.errors import InputError, unknown_name
from tcusim.machine.formats import array_name_of

__all__ = ["OPERATIONS", "Plan", "plan", "plan_for"]

# Whether an operation reduces or scans.
OPERATIONS: Mapping[str, str] = {
    "sum": "reduction",
    "cumsum": "scan",
    "segmented_sum": "reduction",
    "segmented_cumsum": "scan",
}


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Planned):
    """The launches of one sum or scan, ready to be called; `tcusim.plan` makes one.

    `plan(a)` computes. What it takes is prepared in the first call on a backend and kept: programs
    emitted, compiled and loaded, and memory for what lies between launches. Further calls launch.

    Attributes
    ----------
    operation : str
        "sum", "cumsum", "segmented_sum" or "segmented_cumsum".
    problem : Problem or RaggedProblem
        Lengths, types and tile; the latter if segments lie by offsets.
    arch, backend : str or None
        As given to `tcusim.plan`; None is settled when the plan is called.
    launch_plan : LaunchPlan
        What backends run: from "in", and "offsets" if segments lie by them, to "out".
    strategy : str
        The name of the strategy that chose the launches.
    rationale : tuple of str
        For each choice a line.
    """

    problem: Problem | RaggedProblem

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
        if isinstance(self.problem, RaggedProblem):
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
        assert isinstance(p, RaggedProblem)
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
        result = runner.run(self.launch_plan, inputs, arch=self.arch)["out"]
        return deliver(result.reshape(self.shape_of_result(a.shape)), out, a)

    # --- What it is --------------------------------------------------------------------------

    def shape_of_result(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the result for an array of this shape."""
        if self.problem.kind == "scan":
            return shape
        return () if self.operation == "sum" else (self.problem.segments,)


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
    strategy: str | None = None,
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
    strategy : str, optional
        How to compute, by name, where several ways are open: "panels", "row_per_segment",
        "single_pass", "chunks" or "warp_per_segment". By default the first that applies; the plan
        says which that is, and why.
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
    wanted = None if result is None else array_name_of(result)
    types = types_of(array_name_of(dtype), wanted, accumulate)
    shared: dict[str, Any] = {
        "kind": OPERATIONS[operation],
        "length": int(length),
        "types": types,
        "tile": tile_for(types, shape),
        "arch": unit_of_run(arch, backend),
        "algorithm": algorithm,
        "strategy": strategy,
        "order": Order(bool(exclusive), bool(reverse)),
    }
    if segments is None:
        size = min(int(segment_size or length), int(length))
        return plan_for(operation, Problem(**shared, segment_size=size), arch, backend)
    most = rounded_longest(longest, int(length), shared["tile"].k)
    problem = RaggedProblem(**shared, segments=int(segments), longest=most)
    return plan_for(operation, problem, arch, backend)


@functools.lru_cache(maxsize=256)
def plan_for(
    operation: str,
    problem: Problem | RaggedProblem,
    arch: str | None,
    backend: str | None,
    tuning: Tuning | None = None,
) -> Plan:
    """Return the plan for a problem; the latest are kept.

    tuning: the numbers to choose by; by default those of the problem's architecture.
    """
    choice = choose(problem, operation, tuning)
    return Plan(
        operation=operation,
        problem=problem,
        arch=arch,
        backend=backend,
        launch_plan=choice.plan,
        strategy=choice.strategy,
        rationale=choice.rationale,
    )


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


def _require_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise InputError(f"{name} must be an integer, got {value!r}")
    if value < 1:
        raise InputError(f"{name} must be at least 1, got {value}")
