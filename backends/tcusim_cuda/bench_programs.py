"""The programs that the benchmark runs: for each sum or scan, a short list to choose from.

A recipe is one way to compute a problem, as one launch or several. It knows nothing of a GPU: it
gives the programs of its launches for an array of any length, and can be run on the simulator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tcusim import run
from tcusim.algorithms import build
from tcusim.ir import Program
from tcusim.numerics import Values
from tcusim.plan import CHAIN, CHUNK, Draft, Problem, drafted
from tcusim.shapes import shape_of

__all__ = ["KINDS", "Launches", "Recipe", "Stage", "recipes"]

KINDS: Final = ("sum", "scan")

# Above this many elements a scan is not offered with f16 accumulators: each product rounds to f16.
_LONGEST_F16: Final = 4096
# The most elements of a segment whose sums `reduction_packed` adds up in one chain of products.
_LONGEST_PACKED: Final = 1024


@dataclass(frozen=True, slots=True)
class Stage:
    """One launch.

    sources: for each of the program's inputs, the number of an array; 0 is the data. target: the
    number of the array that it makes. scalars: of the program, for these arrays.
    """

    program: Program
    sources: Mapping[str, int]
    target: int
    scalars: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Launches:
    """The launches of a recipe, in order; the last one makes the result.

    arrays: element type and size of every array, by number.
    """

    stages: tuple[Stage, ...]
    arrays: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Recipe:
    """One way to sum or scan segments of f16 numbers.

    kind: "sum" or "scan". algorithm: a name for `tcusim.build`, or None for the launches that
    `tcusim.segmented_sum` and `tcusim.segmented_cumsum` choose. The others are `build`'s options.
    """

    kind: str
    segment_size: int
    algorithm: str | None
    shape: str = "16x16x16"
    accumulate: str = "f32"
    result: str = "f32"
    warps: int = 1
    tiles: int = 1
    combine: str = "add"
    ragged: bool = False

    @property
    def label(self) -> str:
        """The recipe in a few words."""
        parts = [self.algorithm or "plan", self.shape, f"warps={self.warps}"]
        if self.tiles > 1:
            parts.append(f"tiles={self.tiles}")
        if self.algorithm and self.algorithm not in ("reduction_packed", "scan_k"):
            parts.append(self.combine)
        if self.ragged:
            parts.append("ragged")
        return " ".join(parts)

    def launches(self, length: int) -> Launches:
        """Return the launches for an array of `length` elements.

        Raises
        ------
        InputError
            If the length is not a whole number of what a block takes.
        Unsupported
            If the options do not go together.
        """
        problem = _Problem(
            kind="reduction" if self.kind == "sum" else "scan",
            length=length,
            segment_size=self.segment_size,
            shape=shape_of(self.shape),
            ab="f16",
            acc=self.accumulate,
            source="f16",
            result=self.result,
            ragged=self.ragged,
            warps=self.warps,
        )
        if self.algorithm is None:
            return _launches(drafted(problem))
        draft = Draft(problem)
        draft.add(self._program(self.algorithm), {"in": "in"}, "out")
        return _launches(draft)

    def alone(self) -> Recipe:
        """Return the recipe with one warp a block and one piece a warp, which has the same bits."""
        return replace(self, warps=1, tiles=1)

    def simulate(self, data: Values, arch: str) -> Values:
        """Run the recipe on the simulator, with the arithmetic of `arch`, and return the result."""
        launches = self.launches(data.size)
        arrays: dict[int, Values] = {0: data}
        for stage in launches.stages:
            inputs = {name: arrays[number] for name, number in stage.sources.items()}
            arrays[stage.target] = run(stage.program, inputs, arch=arch)["out"]
        result: Values = arrays[launches.stages[-1].target]
        return result

    def _program(self, algorithm: str) -> Program:
        return build(
            algorithm,
            shape=self.shape,
            segment_size=self.segment_size,
            accumulate=self.accumulate,
            result=self.result,
            warps=self.warps,
            tiles=self.tiles,
            combine=self.combine,
            chain=CHAIN if self.kind == "sum" else None,
            ragged=self.ragged,
        )


def recipes(kind: str, segment_size: int, *, quick: bool = False) -> tuple[Recipe, ...]:
    """Return what to try for f16 segments of one size; only the first of each type if `quick`."""
    found = tuple(_sums(segment_size) if kind == "sum" else _scans(segment_size))
    if not quick:
        return found
    first = {(recipe.accumulate, recipe.result): recipe for recipe in reversed(found)}
    return tuple(recipe for recipe in found if recipe in first.values())


def _sums(size: int) -> Iterator[Recipe]:
    if size % 16 == 0 and size <= _LONGEST_PACKED:
        for shape, warps in (("16x16x16", 1), ("16x16x16", 4), ("8x32x16", 1), ("32x8x16", 4)):
            yield Recipe("sum", size, "reduction_packed", shape, warps=warps)
    if 16 < size <= 256:
        yield Recipe("sum", size, "reduction_kn", warps=4)
    if 256 <= size <= CHUNK * 4:
        for warps in (8, 4):
            yield Recipe("sum", size, "reduction_tn", warps=warps)
    if size > CHUNK:
        for warps in (8, 4):
            yield Recipe("sum", size, None, warps=warps)
    yield Recipe("sum", size, None, ragged=True)


def _scans(size: int) -> Iterator[Recipe]:
    for accumulate, result in (("f16", "f16"), ("f32", "f16"), ("f32", "f32")):
        if accumulate == "f32" or size <= _LONGEST_F16:
            yield from _scans_of(size, accumulate, result)


def _scans_of(size: int, accumulate: str, result: str) -> Iterator[Recipe]:
    start = Recipe("scan", size, None, accumulate=accumulate, result=result)
    # With f16 accumulators partial sums are f16 in any case, and the paper's products lose nothing.
    combines = ("mma", "add") if accumulate == "f16" and size > 16 else ("add",)
    for combine in combines:
        for warps, tiles in ((4, 1), (8, 4)):
            one = replace(start, combine=combine, warps=warps, tiles=tiles)
            if size <= 16:
                yield replace(one, algorithm="scan_k")
            elif size < 256:
                yield replace(one, algorithm="scan_kn")
            elif size <= CHUNK * 4:
                yield replace(one, algorithm="scan_t" if size == 256 else "scan_tn")
    if size > CHUNK:
        yield replace(start, warps=4)
    yield replace(start, ragged=True)


# --- What a plan would launch -----------------------------------------------------------------


def _launches(draft: Draft) -> Launches:
    """Return the launches of a plan, with its arrays numbered in the order in which it has them."""
    numbers = {name: number for number, name in enumerate(draft.arrays)}
    stages = []
    for one in draft.launches:
        sources = {buffer: numbers[name] for buffer, name in one.inputs.items()}
        (target,) = (numbers[name] for name in one.outputs.values())
        stages.append(Stage(one.program, sources, target, draft.scalars(one)))
    arrays = tuple((array.dtype, array.size) for array in draft.arrays.values())
    return Launches(tuple(stages), arrays)


@dataclass(frozen=True, slots=True)
class _Problem(Problem):
    """A problem whose programs may be built for several warps, and for whole blocks only."""

    ragged: bool = True
    warps: int = 1

    def build(self, name: str, segment_size: int, result: str, **options: Any) -> Program:
        """Build a program with products."""
        return build(
            name,
            shape=self.shape,
            segment_size=segment_size,
            accumulate=self.acc,
            result=result,
            combine="add",
            chain=CHAIN,
            ragged=self.ragged,
            warps=self.warps,
            **options,
        )

    def plain(self, name: str, segment_size: int, result: str, **options: Any) -> Program:
        """Build a program of rounded additions alone."""
        return build(
            name,
            shape=self.shape,
            segment_size=segment_size,
            accumulate=self.acc,
            source=self.acc,
            result=result,
            # Few blocks have much to do in these: several warps would idle together.
            ragged=True,
            **options,
        )
