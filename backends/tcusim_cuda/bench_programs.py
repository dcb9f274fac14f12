"""The programs that the benchmark runs: for each sum or scan, a short list to choose from.

A recipe is one way to compute a problem, as one launch or several. It knows nothing of a GPU: it
gives the programs of its launches for an array of any length, and can be run on the simulator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tcusim import plan, run
from tcusim.algorithms import build
from tcusim.binding import bind_scalars
from tcusim.ir import Program
from tcusim.numerics import Values
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
        recorder = _Recorder(length)
        if self.algorithm is not None:
            recorder.launch(self._program(self.algorithm), {"in": recorder.data})
            return recorder.launches()
        job = _Job(
            shape=shape_of(self.shape),
            ab="f16",
            acc=self.accumulate,
            source="f16",
            result=self.result,
            literal=False,
            algorithm=None,
            launch=recorder.launch,
            ragged=self.ragged,
            warps=self.warps,
        )
        choose = plan.total if self.kind == "sum" else plan.scan
        choose(job, recorder.data, self.segment_size)
        return recorder.launches()

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
            chain=plan.CHAIN if self.kind == "sum" else None,
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
    if 256 <= size <= plan.CHUNK * 4:
        for warps in (8, 4):
            yield Recipe("sum", size, "reduction_tn", warps=warps)
    if size > plan.CHUNK:
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
            elif size <= plan.CHUNK * 4:
                yield replace(one, algorithm="scan_t" if size == 256 else "scan_tn")
    if size > plan.CHUNK:
        yield replace(start, warps=4)
    yield replace(start, ragged=True)


# --- Recording what a plan would launch -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Array:
    """Stands for an array: `tcusim.plan` asks for nothing but its size."""

    number: int
    size: int


class _Recorder:
    """Takes the launches of a plan instead of running them."""

    def __init__(self, length: int) -> None:
        self.data: Any = _Array(0, length)
        self.stages: list[Stage] = []
        self.arrays: list[tuple[str, int]] = [("f16", length)]

    def launch(self, program: Program, inputs: Mapping[str, Any]) -> Any:
        """Note a launch and return what stands for its output."""
        scalars = bind_scalars(program, {name: array.size for name, array in inputs.items()})
        (output,) = program.outputs
        size = output.size.evaluate(scalars)
        target = len(self.arrays)
        sources = {name: array.number for name, array in inputs.items()}
        self.stages.append(Stage(program, sources, target, scalars))
        self.arrays.append((output.dtype, size))
        return _Array(target, size)

    def launches(self) -> Launches:
        return Launches(tuple(self.stages), tuple(self.arrays))


@dataclass(frozen=True, slots=True)
class _Job(plan.Job):
    """A plan's job whose programs may be built for several warps, and for whole blocks only."""

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
            chain=plan.CHAIN,
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
