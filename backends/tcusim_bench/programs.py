"""The programs that the benchmark runs: for each problem, a short list to choose from.

A recipe is one way to compute a problem, as one launch or several. It knows nothing of a GPU: it
gives the programs of its launches for an array of any length, and can be run on the simulator.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from tcusim.algorithms import Algorithm, Level, algorithm_of, algorithms, build
from tcusim.algorithms.rows import ACCUMULATION_LENGTH
from tcusim.arrays.dtypes import types_on_device
from tcusim.arrays.planner import choose
from tcusim.arrays.problem import AnyProblem, Problem, ProductProblem, rounded_longest, tile_for
from tcusim.arrays.sizes import longest_scanned
from tcusim.arrays.spec import Spec
from tcusim.call_options import Bits
from tcusim.errors import InputError, TcusimError
from tcusim.machine import Values, format_of
from tcusim.program.launches import LaunchPlan, Memory, PlanBuilder
from tcusim.simulate.backend import NUMPY
from tcusim_bench.propagated import propagated
from tcusim_bench.record import Case

# The most elements of a segment that a warp is tried on alone, and the fewest that blocks are.
_LONGEST_ALONE: Final = 2**16
_SHORTEST_SHARED: Final = 2**13
# Algorithms of a kind, and the warps of a block.
_ALGORITHMS: Final = {"sum": "reduction", "scan": "scan"}
_WARPS: Final = (1, 4, 8, 16)
# The values of each number of a paper's program, which its authors tuned by size: warps of a block
# and segments of a warp; and powers of two between the usual part of an array and others.
_TUNED: Final = (1, 2, 4, 8, 16)
_PARTS: Final = (-2, -1, 1, 2)
# The types of results that are measured, the usual one first, and the accumulators' type.
_PRODUCTS: Final = {"matvec": ("f16", "f32"), "matmul": ("f16", "f32")}
_RESULTS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "f16": {"sum": ("f32", "f16"), "scan": ("f16", "f32"), **_PRODUCTS},
    "bf16": {"sum": ("f32", "bf16"), "scan": ("bf16", "f32")},
    "f32": {"sum": ("f32",), "scan": ("f32",)},
    "f64": {"sum": ("f64",), "scan": ("f64",)},
    "s8": {"sum": ("s32",), "scan": ("s32",)},
}
_ACCUMULATORS: Final = {"f64": "f64", "s8": "s32"}


@dataclass(frozen=True, slots=True)
class Recipe:
    """One way to sum or scan segments, or to multiply a matrix by a vector or a square matrix.

    kind: "sum", "scan", "matvec" or "matmul". segment_size: None if the whole array is one segment;
    of products, the columns of the left matrix. algorithm: a name for `tcusim.build`, or None for
    the launches that the functions on arrays choose; they choose for an architecture, by name, or
    None for one with room for any block. options: of the algorithm alone, and "parts": a whole
    array is summed in segments of so many elements first. dtype: of the data. segments: how many
    there are by offsets, and longest: the most elements of one, if that is told. bits: "exact" for
    sums that are rounded once. The others are `build`'s options.
    """

    kind: str
    segment_size: int | None
    algorithm: str | None
    shape: str | None = None
    acc: str = "f32"
    result: str = "f32"
    warps: int = 1
    items_per_warp: int = 1
    combine: str = "add"
    masked: bool = False
    options: tuple[tuple[str, Any], ...] = ()
    arch: str | None = None
    dtype: str = "f16"
    segments: int | None = None
    longest: int | None = None
    bits: Bits = "segment"

    @property
    def is_printed(self) -> bool:
        """Whether it rounds partial sums to operands, as the paper prints it."""
        return self.algorithm is not None and self.combine == "mma"

    @property
    def label(self) -> str:
        """The recipe in a few words."""
        if self.algorithm is None:
            exact = "exact " if self.bits == "exact" else ""
            return f"{exact}plan" if self.longest is None else f"plan, longest={self.longest}"
        parts = [self.algorithm, self.shape or "16x16x16", f"warps={self.warps}"]
        if self.items_per_warp > 1:
            parts.append(f"items_per_warp={self.items_per_warp}")
        parts.extend(f"{name}={value}" for name, value in self.options)
        if self.combine == "mma":
            parts.append(self.combine)
        return " ".join(parts)

    def label_at(self, length: int) -> str:
        """Return the label and, of a plan, the programs that it launches for this length."""
        if self.algorithm is not None:
            return self.label
        try:
            programs = [launch.program for launch in self.plan(length).launches]
        except TcusimError:
            return self.label  # the reason will be the status of the recipe's row
        return f"{self.label}: {', '.join(f'{one.name} warps={one.warps}' for one in programs)}"

    def plan(self, length: int) -> LaunchPlan:
        """Return the launches for an array of `length` elements.

        Raises InputError if that is not a multiple of a block's elements, Unsupported if the
        options do not go together.
        """
        return _plan_of(self, length)

    def alone(self) -> Recipe:
        """Return the recipe with one warp a block and one piece a warp, if that has the same bits.

        It has where each warp works alone, not where the warps of a block share a segment.
        """
        if self.algorithm is None or self.kind == "matvec":
            return self
        if algorithm_of(self.algorithm).level is not Level.WARP:
            return self
        return replace(self, warps=1, items_per_warp=1)

    def of_segments(self, segments: int) -> Recipe:
        """Return the recipe for as many segments by offsets."""
        return replace(self, segments=segments)

    def simulate(
        self, data: Values, arch: str, *, length: int | None = None, second: Values | None = None
    ) -> Values:
        """Run the recipe on the simulator, with the arithmetic of `arch`, and return the result.

        length: of the array for which launches are chosen, if `data` are only its beginning.
        second: offsets, or the right factor of a product.
        """
        plan = self.plan(length or data.size)
        given = (data,) if second is None else (data, second)
        made = NUMPY.run(plan, dict(zip(plan.inputs, given, strict=True)), arch=arch)
        result: Values = made[plan.outputs[0]]
        return result

    def problem(self, length: int) -> AnyProblem:
        """Return the problem as the functions on arrays have it, for arrays in GPU memory."""
        given, wanted = format_of(self.dtype).array_name, format_of(self.result).array_name
        spec = Spec(
            self.kind if self.kind in ("matvec", "matmul") else "sum",
            dtype=wanted,
            acc="f16" if self.acc == "f16" else "f32",
            algorithm=self.algorithm,
            bits=self.bits,
        )
        types = types_on_device(spec, given, self.arch or "hopper").types
        common: dict[str, Any] = {"types": types, "tile": tile_for(types, self.shape)}
        common["arch"] = self.arch
        inner = self.segment_size or length
        if spec.is_product:
            cols = inner if self.kind == "matmul" else None
            common["algorithm"] = self.algorithm
            return ProductProblem(rows=length // inner, inner=inner, cols=cols, **common)
        common |= {"kind": "reduction" if self.kind == "sum" else "scan", "length": length}
        segments, longest = self.segments, self.longest
        if segments is None and self.kind == "scan":
            most = longest_scanned(common["tile"])
            if most is not None and inner > most:
                # Segments that are too long for blocks to share lie by offsets.
                segments, longest = -(-length // inner), inner
        if segments is not None:
            longest = rounded_longest(longest, length, common["tile"].k)
            return Problem(by_offsets=segments, longest=longest, **common)
        return Problem(segment_size=inner, **common)


@functools.lru_cache(maxsize=2048)
def _plan_of(recipe: Recipe, length: int) -> LaunchPlan:
    """Return a recipe's launches, cached."""
    inner, algorithm = recipe.segment_size or length, recipe.algorithm
    is_product = recipe.kind in ("matvec", "matmul")
    if is_product and length % inner:
        raise InputError(f"{length} elements are no rows of {inner}")
    if algorithm is None or is_product:
        return choose(recipe.problem(length), recipe.label).plan
    options = dict(recipe.options)
    parts = options.pop("parts", None)
    names = ("acc", "result", "warps", "segment_size", "items_per_warp", "combine", "masked")
    options |= {name: getattr(recipe, name) for name in names}
    if recipe.kind == "sum":
        options["accumulation_length"] = None if recipe.is_printed else ACCUMULATION_LENGTH
    tile = recipe.shape or "16x16x16"
    if parts is None:
        program = build(algorithm, tile=tile, **options)
        return LaunchPlan.of_program(program, {"in": length})
    if recipe.kind == "scan":
        scan = propagated if options.pop("propagate", False) else _three_launches
        return scan(algorithm, parts, length, tile, options).finish(recipe.label)
    draft, name = PlanBuilder(Memory("in", "f16", length)), "in"
    for size, to in ((parts, "sums"), (length // parts, "out")):
        options["segment_size"] = size
        name = draft.add(build(algorithm, tile=tile, **options), {"in": name}, to)
    return draft.finish(recipe.label)


def _three_launches(
    algorithm: str, parts: int, length: int, tile: str, options: dict[str, Any]
) -> PlanBuilder:
    """Return a scan of an array: the sums of its parts, their scan, and scans that go on there."""
    draft = PlanBuilder(Memory("in", "f16", length))
    first = options | {"segment_size": parts, "result": "f32"}
    first["accumulation_length"] = ACCUMULATION_LENGTH
    sums = draft.add(build("reduction_256n", tile=tile, **first), {"in": "in"}, "sums")
    middle: dict[str, Any] = {"ab": "f32", "exclusive": True, "masked": True}
    middle["segment_size"] = length // parts
    before = draft.add(build("scan_panel", tile=tile, **middle), {"in": sums}, "carries")
    given: dict[str, Any] = {**options, "segment_size": parts}
    last = build(algorithm, tile=tile, carry=True, **given)
    draft.add(last, {"in": "in", "carry": before}, "out")
    return draft


def plans(
    case: Case, arch: str | None = None, *, segments: int | None = None, longest: int | None = None
) -> Iterator[Recipe]:
    """Yield the default launches of the functions on arrays, for each type of results.

    segments, longest: of a ragged case; the functions know the longest where they check offsets.
    """
    size = None if case.is_whole or segments is not None else case.segment_size
    for result in _RESULTS[case.dtype][case.kind]:
        acc = _ACCUMULATORS.get(case.dtype, "f32")
        one = Recipe(case.kind, size, None, acc=acc, result=result, arch=arch, dtype=case.dtype)
        yield replace(one, segments=segments, longest=longest)
        if longest is not None:
            yield replace(one, segments=segments)


def recipes(kind: str, segment_size: int | None, *, arch: str | None = None) -> Iterator[Recipe]:
    """Yield programs of every registered algorithm with products, of few warps and of many.

    segment_size: of f16 segments; None if the whole array is one. arch: the GPU's. Programs with
    options that do not go together raise when they are planned.
    """
    results = ("f32",) if kind == "sum" else ("f16", "f32")
    for algorithm in algorithms():
        multiplies = algorithm.kind == _ALGORITHMS.get(kind) and algorithm.formula != "0"
        if not multiplies or not _is_worthwhile(algorithm, segment_size):
            continue
        masked = algorithm.level is Level.GRID
        one = Recipe(kind, segment_size, algorithm.name, masked=masked, arch=arch)
        for result, warps in itertools.product(results, _WARPS):
            yield replace(one, result=result, warps=warps)


def variants(recipe: Recipe) -> dict[str, list[Recipe]]:
    """Return recipes that differ from a program in one number, by that number's name.

    A variant that cannot be built raises when it is planned.
    """
    found = {"warps": [replace(recipe, warps=number) for number in _TUNED]}
    options = dict(recipe.options)
    if "parts" in options:
        parts = [
            options["parts"] << step if step > 0 else options["parts"] >> -step for step in _PARTS
        ]
        found["parts"] = [
            replace(recipe, options=tuple((options | {"parts": size}).items())) for size in parts
        ]
    else:
        found["items_per_warp"] = [replace(recipe, items_per_warp=number) for number in _TUNED]
    return {name: [one for one in some if one != recipe] for name, some in found.items()}


def _is_worthwhile(algorithm: Algorithm, segment_size: int | None) -> bool:
    """Return whether it is a warp, a block, or the grid that should take a segment of a size."""
    if algorithm.level is Level.WARP:
        return segment_size is not None and segment_size <= _LONGEST_ALONE
    shared = segment_size is None or segment_size >= _SHORTEST_SHARED
    return shared and (segment_size is not None or algorithm.level is Level.GRID)
