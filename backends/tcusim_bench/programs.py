"""The programs that the benchmark runs: for each problem, a short list to choose from.

A recipe is one way to compute a problem, as one launch or several. It knows nothing of a GPU: it
gives the programs of its launches for an array of any length, and can be run on the simulator.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from tcusim.algorithms import Level, algorithm_of, build
from tcusim.arrays.planner import choose
from tcusim.arrays.problem import Problem, ProductProblem, Types
from tcusim.arrays.tuning import DEFAULT
from tcusim.errors import InputError, TcusimError
from tcusim.machine import Values
from tcusim.machine.shapes import shape_of
from tcusim.program.launches import LaunchPlan
from tcusim.simulate.backend import NUMPY

__all__ = ["KINDS", "Recipe", "recipes"]

KINDS: Final = ("sum", "scan", "matvec")

# Above this many elements a scan is not offered with f16 accumulators: each product rounds to f16.
_LONGEST_F16: Final = 4096
# The most elements of a segment whose sums `reduction_packed` adds up in one chain of products.
_LONGEST_PACKED: Final = 1024
# The most elements of a segment that a warp is tried on alone, and the fewest that blocks are.
_LONGEST_ALONE: Final = 2**16
_SHORTEST_SHARED: Final = 2**13
# Tiles that accumulate in a product of a matrix and a vector before a rounded addition.
_LONG_CHAIN: Final = 64


@dataclass(frozen=True, slots=True)
class Recipe:
    """One way to sum or scan segments of f16 numbers, or to multiply a matrix by a vector.

    kind: "sum", "scan" or "matvec". segment_size: None if the whole array is one segment; of
    "matvec", the columns of the matrix. algorithm: a name for `tcusim.build`, or None for the
    launches that `tcusim.segmented_sum`, `segmented_cumsum` and `matvec` choose; they choose
    for an architecture, by name, or None for one with room for any block. options: of the
    algorithm alone. The others are `build`'s options.
    """

    kind: str
    segment_size: int | None
    algorithm: str | None
    shape: str = "16x16x16"
    acc: str = "f32"
    result: str = "f32"
    warps: int = 1
    items_per_warp: int = 1
    combine: str = "add"
    masked: bool = False
    options: tuple[tuple[str, Any], ...] = ()
    arch: str | None = None

    @property
    def label(self) -> str:
        """The recipe in a few words."""
        if self.algorithm is None:
            return "plan"
        parts = [self.algorithm, self.shape, f"warps={self.warps}"]
        if self.items_per_warp > 1:
            parts.append(f"items_per_warp={self.items_per_warp}")
        parts.extend(f"{name}={value}" for name, value in self.options)
        if self.kind != "matvec" and self.algorithm not in ("reduction_packed", "scan_k"):
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
        return f"plan: {', '.join(f'{one.name} warps={one.warps}' for one in programs)}"

    def plan(self, length: int) -> LaunchPlan:
        """Return the launches for an array of `length` elements.

        Raises InputError if that is not a whole number of what a block takes, Unsupported if the
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

    def simulate(
        self, data: Values, arch: str, *, length: int | None = None, vector: Values | None = None
    ) -> Values:
        """Run the recipe on the simulator, with the arithmetic of `arch`, and return the result.

        length: of the array for which launches are chosen, if `data` are only its beginning.
        vector: of "matvec".
        """
        plan = self.plan(length or data.size)
        given = (data,) if vector is None else (data, vector)
        made = NUMPY.run(plan, dict(zip(plan.inputs, given, strict=True)), arch=arch)
        result: Values = made[plan.outputs[0]]
        return result

    def problem(self, length: int) -> Problem | ProductProblem:
        """Return the problem as the functions on arrays have it."""
        types, tile = Types("f16", self.acc, "f16", self.result), shape_of(self.shape)
        inner = self.segment_size or length
        if self.kind == "matvec":
            rows = length // inner
            return ProductProblem(rows=rows, inner=inner, types=types, tile=tile, arch=self.arch)
        return Problem(
            kind="reduction" if self.kind == "sum" else "scan",
            length=length,
            segment_size=inner,
            tile=tile,
            types=types,
            arch=self.arch,
        )


@functools.lru_cache(maxsize=512)
def _plan_of(recipe: Recipe, length: int) -> LaunchPlan:
    """Return a recipe's launches, which are asked for several times."""
    inner, algorithm = recipe.segment_size or length, recipe.algorithm
    if recipe.kind == "matvec" and length % inner:
        raise InputError(f"{length} elements are no rows of {inner}")
    if algorithm is None:
        return choose(recipe.problem(length), recipe.label).plan
    options = dict(recipe.options)
    options |= {name: getattr(recipe, name) for name in ("acc", "result", "warps")}
    if recipe.kind == "matvec":
        options |= {"inner": inner, "source": "f16", "accumulation_length": _LONG_CHAIN}
        sizes = {"a": length, "b": inner}
    else:
        names = ("segment_size", "items_per_warp", "combine", "masked")
        options |= {name: getattr(recipe, name) for name in names}
        if recipe.kind == "sum":
            options["accumulation_length"] = DEFAULT.accumulation_length
        sizes = {"in": length}
    return LaunchPlan.of_program(build(algorithm, tile=recipe.shape, **options), sizes)


def recipes(
    kind: str, segment_size: int | None, *, quick: bool = False, arch: str | None = None
) -> tuple[Recipe, ...]:
    """Return what to try for f16 segments of one size; only the first of each type if `quick`.

    segment_size: None if the whole array is one segment; of "matvec", the columns of the matrix.
    arch: the GPU's, for which plans choose.
    """
    found = tuple(replace(one, arch=arch) for one in _ways(kind, segment_size))
    if not quick:
        return found
    first = {(recipe.acc, recipe.result): recipe for recipe in reversed(found)}
    return tuple(recipe for recipe in found if recipe in first.values())


def _ways(kind: str, size: int | None) -> Iterator[Recipe]:
    if kind == "matvec":
        return _products(size)
    if size is None:
        return _whole_sums() if kind == "sum" else _whole_scans()
    return _sums(size) if kind == "sum" else _scans(size)


def _whole_sums() -> Iterator[Recipe]:
    """Yield sums of the whole array in one launch."""
    for result in ("f32", "f16"):
        yield Recipe("sum", None, None, result=result)
    yield from _shared_sums(None)


def _shared_sums(size: int | None) -> Iterator[Recipe]:
    """Yield sums in which the blocks of one launch share segments, or the array."""
    start = Recipe("sum", size, "reduction_single_pass", masked=True)
    for warps, groups in ((8, 4), (16, 4), (16, 8)):
        # A group is 16 rows of two tiles.
        if size is None or size >= warps * groups * 512:
            yield replace(start, warps=warps, options=(("groups", groups), ("panels", 1)))


def _whole_scans() -> Iterator[Recipe]:
    """Yield scans of the whole array in one launch, which reads it once."""
    for result in ("f16", "f32"):
        yield Recipe("scan", None, None, result=result)
        yield from _shared_scans(None, result)


def _shared_scans(size: int | None, result: str) -> Iterator[Recipe]:
    """Yield scans in which the blocks of one launch share segments, or the array."""
    start = Recipe("scan", size, "scan_single_pass", result=result, masked=True)
    for warps, batches in ((8, 8), (8, 4), (4, 8)):
        # A batch is 16 rows of two tiles.
        if size is None or size >= warps * batches * 512:
            yield replace(start, warps=warps, options=(("batches", batches),))


def _sums(size: int) -> Iterator[Recipe]:
    if size % 16 == 0 and size <= _LONGEST_PACKED:
        for shape, warps in (("16x16x16", 1), ("16x16x16", 4), ("8x32x16", 1), ("32x8x16", 4)):
            yield Recipe("sum", size, "reduction_packed", shape, warps=warps)
    if 16 < size <= 256:
        yield Recipe("sum", size, "reduction_kn", warps=4)
    if size <= DEFAULT.reduction.longest_in_panels:
        for warps, tiles in ((8, 1), (4, 8)):
            yield Recipe("sum", size, "reduction_panel", warps=warps, items_per_warp=tiles)
    if 256 <= size <= _LONGEST_ALONE:
        for warps in (8, 4):
            yield Recipe("sum", size, "reduction_tn", warps=warps)
    if size >= _SHORTEST_SHARED:
        for warps in (4, 8, 16):
            yield Recipe("sum", size, "reduction_tn_block", warps=warps)
        yield from _shared_sums(size)
    yield Recipe("sum", size, None)


def _scans(size: int) -> Iterator[Recipe]:
    for acc, result in (("f16", "f16"), ("f32", "f16"), ("f32", "f32")):
        if acc == "f32" or size <= _LONGEST_F16:
            yield from _scans_of(size, acc, result)


def _scans_of(size: int, acc: str, result: str) -> Iterator[Recipe]:
    start = Recipe("scan", size, None, acc=acc, result=result)
    # With f16 accumulators partial sums are f16 in any case, and the paper's products lose nothing.
    combines = ("mma", "add") if acc == "f16" and size > 16 else ("add",)
    for combine in combines:
        for warps, tiles in ((4, 1), (8, 4)):
            one = replace(start, combine=combine, warps=warps, items_per_warp=tiles)
            if size <= 16:
                yield replace(one, algorithm="scan_k")
            elif size < 256:
                yield replace(one, algorithm="scan_kn")
            elif size <= _LONGEST_ALONE:
                yield replace(one, algorithm="scan_t" if size == 256 else "scan_tn")
    if size <= DEFAULT.scan.longest_in_panels:
        for tiles in (1, 8):
            yield replace(start, algorithm="scan_panel", warps=8, items_per_warp=tiles)
    if size >= _SHORTEST_SHARED:
        yield from _shared_scans(size, result)
    yield start


def _products(columns: int | None) -> Iterator[Recipe]:
    """Yield products of a matrix and a vector."""
    for warps, options in (
        (4, (("down", 2), ("width", 8))),
        (16, (("width", 4), ("share_rows", True))),
    ):
        yield Recipe("matvec", columns, "gemv_reduction", warps=warps, options=options)
    for result in ("f32", "f16"):
        yield Recipe("matvec", columns, None, result=result)
