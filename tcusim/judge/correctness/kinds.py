"""The kinds of algorithms, as `validate` tries them: the sizes, and the right results.

Inputs are integers so small that no sum on the way is rounded: the magnitudes of a segment add up
to no more than every type, and the arithmetic, holds exactly. So results must equal integer sums,
for any order of the additions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.algorithms import Algorithm, Level
from tcusim.algorithms.rows import CHUNK_PANELS, PANEL_ROWS, ROW_TILES
from tcusim.judge.correctness.cases import Case, Recipe
from tcusim.machine import Fused, Integer, Rule, format_of
from tcusim.program.grammar import Program

Ints: TypeAlias = NDArray[np.int64]
Keywords: TypeAlias = dict[str, Any]
# A program to try, and whether several lengths of input are worth it.
Trial: TypeAlias = tuple[Recipe, bool]

# Options that change the result, in a way that `_Segments.expected` knows.
_FLAGS: Final = ("carry", "exclusive", "reverse")

# Options that say how many rows a warp takes, where blocks share a segment: few of them, save
# where a block takes whole chunks.
_SHARES: Final = ("groups", "panels")

_UNKNOWN: Final = "what must come out is not known here for"
_LARGEST: Final = 3
# A tile of more multiply-adds than this takes so long that fewer cases must do, unless in full.
_LARGE_TILE: Final = 2**16


class Tile(NamedTuple):
    """A tile as an algorithm sees it: m rows of data, whichever operand holds them."""

    m: int
    n: int
    k: int


def layouts(row: Algorithm, tile: Tile) -> list[tuple[int, int]]:
    """Return warps of a block and tiles of a warp: those that are measured, then others to try.

    A warp's work is measured for one warp alone; that of a block for several, but not more than k,
    up to which the formulas hold. Of blocks that share a segment, the warps share a chunk of rows.
    """
    if row.level is Level.WARP:
        return [(1, 1), (3, 2)]
    if row.level is Level.GRID:
        return [(_warps_of_chunk(tile), 1)]
    return list(dict.fromkeys([(min(4, tile.k), 1), (1, 1), (2, 1), (4, 1), (3, 2)]))


class _Chunks(NamedTuple):
    """The bounds of the summed or scanned chunks, their numbers, and their count."""

    begins: Ints
    ends: Ints
    numbers: Ints
    numbered: int


@dataclass(frozen=True, slots=True)
class _Segments:
    """Algorithms that sum or scan segments of the input `in`: all of one size."""

    known: ClassVar[tuple[str, ...]] = ("in", "carry")
    sums: bool

    def measured(self, row: Algorithm, tile: Tile, repeats: int) -> Recipe:
        """Return the recipe whose steps are counted: whole tiles, `repeats` of them a segment."""
        return Recipe.of(row.name, segment_size=repeats * _unit(row, tile))

    def formula(self, row: Algorithm, tile: Tile, case: Case, repeats: int) -> int:
        """Return the mma steps that the registry's formula has for a measured case."""
        return row.mma_steps(*tile, N=repeats, W=case.recipe.get("warps"))

    def useful(self, case: Case) -> int:
        """Return the additions that the case would need without a tensor core, about."""
        return case.sizes["length"]

    def tiles(self, row: Algorithm, tile: Tile, recipe: Recipe) -> int:
        """Return the tiles of data that an item of a warp takes, about."""
        unit = _unit(row, tile)
        return -(-(recipe.get("segment_size") or unit) // unit)

    def unknown(self, program: Program) -> str:
        """Return the reason why no result is known; "" if `expected` knows it."""
        return _strange_inputs(program, self.known)

    def programs(self, row: Algorithm, tile: Tile, full: bool) -> Iterator[Trial]:
        """Yield segment sizes around a row, a tile and the default, whole and masked."""
        unit = _unit(row, tile)
        default = row.repeats * unit
        if row.level is Level.GRID:
            yield from _shared_segments(row, tile, full)
            return

        def segments(size: int, *, masked: bool = True, **options: Any) -> Recipe:
            return Recipe.of(row.name, segment_size=size, masked=masked, **options)

        if math.prod(tile) > _LARGE_TILE and not full:
            yield segments(max(1, unit - 1)), False
            yield segments(default), False
            yield segments(unit, masked=False), False
            return
        for size in _segment_sizes(tile, unit, default, full):
            yield segments(size), full or size == default
            if full or size in (unit, default):
                yield segments(size, masked=False), full
        for warps, items in layouts(row, tile):
            for masked in (True, False) if full else (True,):
                yield segments(default, masked=masked, warps=warps, items_per_warp=items), full
        for flags in _flags(row, full):
            yield segments(max(1, default - 1), **flags), full

    def runs(self, program: Program, recipe: Recipe, many: bool) -> Iterator[Case]:
        """Yield lengths around a segment and a block; whole blocks if the program wants those."""
        block = max(program.blocks.per, *(scalar.multiple_of for scalar in program.scalars))
        segment_size = recipe.get("segment_size")
        size = segment_size or block
        if not recipe.get("masked"):
            lengths = [block, 3 * block] if many else [2 * block]
        elif many:
            edges = (size - 1, size, size + 1, block - 1, block, block + 1)
            # An empty array has no segment; one segment that is the whole array has a block.
            none = [0] if segment_size else []
            lengths = [*none, 1, *edges, 2 * block + size // 2 + 1]
        else:
            lengths = [max(1, size - 1), block + size // 2 + 1]
        for length in dict.fromkeys(lengths):
            yield Case(recipe, {"length": length})

    def offsets(self, case: Case, rng: np.random.Generator) -> dict[str, Ints]:
        """Return the input that tells where segments end, if there is one."""
        return {}

    def chunks(self, case: Case, inputs: Mapping[str, Ints]) -> _Chunks:
        """Return the segments of a recipe; one without a size takes the whole array."""
        length = case.sizes["length"]
        size = case.recipe.get("segment_size") or max(1, length)
        begins = np.arange(0, length, size)
        ends = np.minimum(begins + size, length)
        return _Chunks(begins, ends, np.arange(begins.size), begins.size)

    def inputs(self, program: Program, case: Case, limit: int) -> dict[str, Ints]:
        """Return chunks whose magnitudes, with the carry, sum to `limit` at most.

        The ends of a chunk are never 0, so that it shows if one is left out or is taken twice.
        """
        rng, sign = case.rng, _sign(program)
        inputs = self.offsets(case, rng)
        begins, ends, _, count = self.chunks(case, inputs)
        if any(buffer.name == "carry" for buffer in program.inputs):
            limit //= 2
            inputs["carry"] = rng.integers(sign * limit, limit + 1, count)
        length, room = case.sizes["length"], max(0, limit - 2)
        largest = min(_LARGEST, max(1, room))
        x: Ints = rng.integers(sign * largest, largest + 1, length)
        likely = room / np.maximum(1, (ends - begins) * (largest + 1) / 2)
        x[rng.random(length) >= np.repeat(likely, ends - begins)] = 0
        x[begins] = x[ends - 1] = 0
        total = np.append(0, np.abs(x).cumsum())
        x[total[1:] - np.repeat(total[begins], ends - begins) > room] = 0
        x[ends - 1] = sign or 1
        x[begins] = 1
        return {"in": x} | inputs

    def expected(self, program: Program, case: Case, inputs: Mapping[str, Ints]) -> Ints:
        """Return integer sums, by number, or prefix sums, of each chunk."""
        x, recipe = inputs["in"], case.recipe
        begins, ends, numbers, count = self.chunks(case, inputs)
        total: Ints = np.append(0, x.cumsum())
        if self.sums:
            sums = np.zeros(count, np.int64)
            sums[numbers] = total[ends] - total[begins]
            return sums
        prefixes: Ints
        if recipe.get("reverse"):
            prefixes = np.repeat(total[ends], ends - begins) - total[:-1]
        else:
            prefixes = total[1:] - np.repeat(total[begins], ends - begins)
        if recipe.get("exclusive"):
            prefixes -= x
        if "carry" in inputs:
            prefixes += np.repeat(inputs["carry"][numbers], ends - begins)
        return prefixes


def _sign(program: Program) -> int:
    """Return the smallest of the signs that inputs may have: -1 or, without signs, 0."""
    return -1 if format_of(program.ab).smallest < 0 or format_of(program.ab).is_float else 0


def _flags(row: Algorithm, full: bool) -> Iterator[dict[str, bool]]:
    """Yield the flags that change the result: all at once, or in full every set of them."""
    names = [name for name in row.options if name in _FLAGS]
    for count in range(1 if full else max(1, len(names)), len(names) + 1):
        for chosen in itertools.combinations(names, count):
            yield dict.fromkeys(chosen, True)


def _warps_of_chunk(tile: Tile) -> int:
    """Return the warps that share a chunk; one, if the rows of several do not fill it."""
    rows = PANEL_ROWS * CHUNK_PANELS
    return 1 if rows % tile.m else min(CHUNK_PANELS, rows // tile.m)


def _shared_segments(row: Algorithm, tile: Tile, full: bool) -> Iterator[Trial]:
    """Yield segments that several blocks share, and whole arrays."""

    def segments(size: int | None, **options: Any) -> Recipe:
        # Of a whole array alone, blocks form groups of a size that can be chosen.
        group = {"columns": 4} if size is None and "columns" in row.options else {}
        share = {name: 1 for name in row.options if name in _SHARES}
        return Recipe.of(row.name, segment_size=size, **share, **group, **options)

    every = {name: True for name in row.options if name in _FLAGS}
    chunk = ROW_TILES * tile.k * PANEL_ROWS * CHUNK_PANELS
    warps = _warps_of_chunk(tile)
    for size in (1, tile.k + 1, 3 * tile.m * tile.k) if full else (1, 3 * tile.m * tile.k):
        yield segments(size, warps=warps, masked=True), full
    for several in (1, warps) if full else (warps,):
        yield segments(2 * chunk + 1, warps=several, **every), full
        yield segments(None, warps=several, masked=True), full
        yield segments(None, warps=several, **every), full
    if row.kind == "scan" and "columns" in row.options:
        # The groups of a segment then follow each other.
        yield segments(3 * chunk + 1, warps=warps, columns=2, **every), full
    for flags in _flags(row, full) if full else ():
        yield segments(None, warps=warps, masked=True, **flags), False


def _strange_inputs(program: Program, known: tuple[str, ...]) -> str:
    strange = [buffer.name for buffer in program.inputs if buffer.name not in known]
    return f"{_UNKNOWN} an input {strange[0]!r}" if strange else ""


def _unit(row: Algorithm, tile: Tile) -> int:
    return tile.m * tile.k if row.tiles else tile.k


def _segment_sizes(tile: Tile, unit: int, default: int, full: bool) -> list[int]:
    """Return segment sizes to try, ascending; an algorithm may refuse the longer ones."""
    sizes = {1, unit - 1, unit, unit + 1, default, 2 * unit + unit // 2 + 1}
    if full:
        sizes |= {2, tile.k - 1, tile.k, tile.k + 1, unit // 2, 2 * unit - 1, 2 * unit, 3 * unit}
        sizes |= {tile.m, tile.n, tile.m * tile.k + 1, default - 1, default + 1}
    return sorted(size for size in sizes if size >= 1)


@dataclass(frozen=True, slots=True)
class _Products:
    """Products of whole matrices: a (rows, inner) times b (inner, cols), plus c; all row-major.

    inner and cols are options of `build`, but a vector's product has no cols; the scalar `rows`
    is found from the size of `a`.
    """

    def measured(self, row: Algorithm, tile: Tile, repeats: int) -> Recipe:
        """Return the default product, of one block."""
        return Recipe.of(row.name)

    def programs(self, row: Algorithm, tile: Tile, full: bool) -> Iterator[Trial]:
        """Yield columns and depths around a tile and several."""
        n, k = tile.n, tile.k
        pairs = [(1, 1), (n, k), (n + 1, k + 1), (3 * n, 2 * k)]
        if full:
            pairs += [(n - 1, k - 1), (2 * n + 1, 5 * k), (1, 3 * k + 1), (5 * n, 1)]
        for cols, inner in pairs:
            if cols and inner:
                sizes = {"cols": cols} if "cols" in row.options else {}
                recipe = Recipe.of(row.name, inner=inner, **sizes)
                yield recipe, full or (cols, inner) == (n + 1, k + 1)
        for warps, items in layouts(row, tile):
            yield Recipe.of(row.name, warps=warps, items_per_warp=items), full
        if "add_c" in row.options:
            yield Recipe.of(row.name, add_c=True), full

    def runs(self, program: Program, recipe: Recipe, many: bool) -> Iterator[Case]:
        """Yield numbers of rows around a block's, which comes first."""
        block = program.blocks.per
        sizes = {buffer.name: buffer.size.evaluate({"rows": 1}) for buffer in program.inputs}
        inner = sizes["a"]
        for rows in dict.fromkeys((block, 1, block - 1, 2 * block + 1) if many else (block + 1,)):
            yield Case(recipe, {"rows": rows, "cols": sizes["b"] // inner, "inner": inner})

    def inputs(self, program: Program, case: Case, limit: int) -> dict[str, Ints]:
        """Return factors of -1, 0 and 1 whose products, with c, sum to `limit` at most."""
        rng, sign = case.rng, _sign(program)
        rows, cols, inner = (case.sizes[name] for name in ("rows", "cols", "inner"))
        shapes = {"a": (rows, inner), "b": (inner, cols), "c": (rows, cols)}
        drawn: dict[str, Ints] = {
            name: rng.integers(sign, 2, shape) for name, shape in shapes.items()
        }
        drawn["a"][np.abs(drawn["a"]).cumsum(axis=1) > limit - 1] = 0
        return {buffer.name: drawn[buffer.name].ravel() for buffer in program.inputs}

    def expected(self, program: Program, case: Case, inputs: Mapping[str, Ints]) -> Ints:
        """Return the integer product."""
        rows, cols, inner = (case.sizes[name] for name in ("rows", "cols", "inner"))
        product = inputs["a"].reshape(rows, inner) @ inputs["b"].reshape(inner, cols)
        flat: Ints = product.ravel()
        return flat + inputs["c"] if "c" in inputs else flat

    def unknown(self, program: Program) -> str:
        """Refuse programs of other arrays or scalars."""
        scalars = [scalar.name for scalar in program.scalars]
        if scalars != ["rows"]:
            return f"{_UNKNOWN} the scalars {', '.join(scalars)}"
        return _strange_inputs(program, ("a", "b", "c"))

    def useful(self, case: Case) -> int:
        """Return the multiply-adds of the product."""
        return math.prod(case.sizes.values())

    def tiles(self, row: Algorithm, tile: Tile, recipe: Recipe) -> int:
        """Return the tiles of both matrices that an item takes, about."""
        cols, inner = recipe.get("cols") or 1, recipe.get("inner") or 1
        return -(-cols // tile.n) * -(-inner // tile.k)

    def formula(self, row: Algorithm, tile: Tile, case: Case, repeats: int) -> int:
        """Return the mma steps of the whole product."""
        return row.mma_steps(*tile, **case.sizes)


@dataclass(frozen=True, slots=True)
class _Irregular(_Segments):
    """Algorithms that sum or scan segments of `in`, which the input `offsets` tells, in chunks.

    A chunk has `segment_size` elements at most; the step `Locate` says which number it has.
    """

    known = ("in", "offsets", "carry")

    def programs(self, row: Algorithm, tile: Tile, full: bool) -> Iterator[Trial]:
        """Yield chunks around a row and the default, and segments that are one chunk each."""
        k, default = tile.k, row.repeats * tile.k
        sizes = {1, k, k + 1, default} | ({2, k - 1, default - 1, default + 1} if full else set())
        for size in sorted(sizes - {0}):
            yield Recipe.of(row.name, segment_size=size), full or size == default
        for warps, items in layouts(row, tile)[1:]:
            yield Recipe.of(row.name, segment_size=k, warps=warps, items_per_warp=items), full
        if "whole" in row.options:
            yield Recipe.of(row.name, segment_size=k + 1, whole=True), full
        for flags in _flags(row, full):
            yield Recipe.of(row.name, segment_size=k + 1, **flags), full

    def runs(self, program: Program, recipe: Recipe, many: bool) -> Iterator[Case]:
        """Yield one segment whose chunks fill a block; then fewer and more, in many segments."""
        size = recipe.get("segment_size")
        if recipe.get("whole"):
            for segments in (1, program.blocks.per + 3):
                length = int(_whole_lengths(size, segments).sum())
                yield Case(recipe, {"length": length, "segments": segments})
            return
        lines = program.blocks.per // size
        sizes = [(lines * size - 1, 1), (2 * lines * size + 1, lines + 3)]
        if many:
            sizes += [(0, 2), (1, 1), (lines * size, 1), (size + 1, 3 * lines)]
        for length, segments in dict.fromkeys(sizes):
            yield Case(recipe, {"length": length, "segments": segments})

    def offsets(self, case: Case, rng: np.random.Generator) -> dict[str, Ints]:
        """Return segments that end anywhere, empty ones among them."""
        length, segments = case.sizes["length"], case.sizes["segments"]
        if case.recipe.get("whole"):
            ends = _whole_lengths(case.recipe.get("segment_size"), segments).cumsum()
        else:
            ends = np.append(np.sort(rng.integers(0, length + 1, segments - 1)), length)
        return {"offsets": np.append(0, ends).astype(np.int64)}

    def chunks(self, case: Case, inputs: Mapping[str, Ints]) -> _Chunks:
        """Return the chunks of each segment, which has one alone if it is `whole`."""
        size, whole = case.recipe.get("segment_size"), case.recipe.get("whole")
        length, segments = case.sizes["length"], case.sizes["segments"]
        found = [
            (start, min(start + size, end), segment if whole else begin // size + segment + turn)
            for segment, (begin, end) in enumerate(itertools.pairwise(inputs["offsets"].tolist()))
            for turn, start in enumerate(range(begin, end, size))
        ]
        begins, ends, numbers = np.array(found, np.int64).reshape(-1, 3).T
        return _Chunks(begins, ends, numbers, segments if whole else length // size + segments)


def _whole_lengths(size: int, segments: int) -> Ints:
    """Return lengths of up to `size` elements, the longest first and an empty one next."""
    return np.asarray((size - np.arange(segments) * size) % (size + 1))


# How algorithms of each kind are tried.
Kind: TypeAlias = _Segments | _Products
KINDS: Final[dict[str, Kind]] = {
    "reduction": _Segments(sums=True),
    "scan": _Segments(sums=False),
    "product": _Products(),
    "irregular_reduction": _Irregular(sums=True),
    "irregular_scan": _Irregular(sums=False),
}


def exact_up_to(ab: str, acc: str, rule: Rule) -> int:
    """Return a number up to which types and arithmetic hold every integer and sum of integers.

    Partial sums may become operands, so the operands' type counts, too. A fused step keeps F bits
    below the largest term; a result may have fewer bits than its type.
    """
    limits = [
        2 ** (fmt.fraction_bits + 1) if fmt.is_float else int(fmt.largest)
        for fmt in (format_of(ab), format_of(acc))
    ]
    if isinstance(rule.how, Fused):
        bits = (rule.how.fraction_bits, rule.how.output_fraction_bits)
        limits += [2**count for count in bits if count is not None]
    if isinstance(rule.how, Integer):
        limits.append(2 ** (rule.how.sum_bits - 1) - 1)
    return min(limits)
