"""What `validate` tries on an algorithm: sizes around the edges of a tile, and what must come out.

Inputs are integers so small that no sum on the way is rounded: the magnitudes of a segment add up
to no more than every type, and the unit's arithmetic, holds exactly. So what comes out must equal
integer sums, whatever the order of the additions.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.algorithms import Algorithm, Level, scan
from tcusim.machine import Fused, Rule, format_of
from tcusim.program.grammar import Program

__all__ = [
    "KINDS",
    "Case",
    "Kind",
    "Tile",
    "exact_up_to",
    "has_formula",
    "layouts",
    "variants",
]

Ints: TypeAlias = NDArray[np.int64]
Keywords: TypeAlias = dict[str, Any]

# Options that make another algorithm of one row, with their values; the registry's formula is for
# the first.
_VARIANTS: Final[dict[str, tuple[Any, ...]]] = {"form": scan.FORMS}
# Options that change what comes out, in a way that `_Segments.expected` knows.
_FLAGS: Final = ("carry", "exclusive", "reverse")

# Options that say how many tiles a warp takes, where blocks share a segment.
_SHARES: Final = ("per_warp", "pieces")

_LARGEST: Final = 3
# A tile of more multiply-adds than this takes so long that fewer cases must do, unless in full.
_LARGE_TILE: Final = 2**16


def variants(row: Algorithm) -> Iterator[Keywords]:
    """Yield the options that make another algorithm of a row; one empty set if it has none."""
    names = [name for name in row.options if name in _VARIANTS]
    for values in itertools.product(*(_VARIANTS[name] for name in names)):
        yield dict(zip(names, values, strict=True))


def has_formula(row: Algorithm, options: Keywords) -> bool:
    """Return whether the registry's formula is for these options."""
    return row.formula not in ("", "0") and all(
        _VARIANTS[name][0] == value for name, value in options.items()
    )


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile as an algorithm sees it: m rows of data, whichever operand holds them."""

    m: int
    n: int
    k: int


@dataclass(frozen=True, slots=True)
class Case:
    """One run: what `build` is given beside the shape and types, and the sizes of the input."""

    keywords: Keywords
    sizes: Keywords

    def __str__(self) -> str:
        """Print as `segment_size=17 ragged=1 length=300`."""
        given = {**self.keywords, **self.sizes}
        return " ".join(
            f"{name}={int(value) if isinstance(value, bool) else value}"
            for name, value in given.items()
        )

    @property
    def rng(self) -> np.random.Generator:
        """Random numbers that are this case's own, the same everywhere."""
        return np.random.default_rng(zlib.crc32(str(self).encode()))


def layouts(row: Algorithm, tile: Tile) -> list[tuple[int, int]]:
    """Return warps of a block and tiles of a warp: those that are measured, then others to try.

    A warp's work is measured for one warp alone, as is that of blocks which share a segment; that
    of a block for several, but not more than k, up to which the formulas hold.
    """
    if row.level is Level.WARP:
        return [(1, 1), (3, 2)]
    if row.level is Level.GRID:
        return [(1, 1), (3, 1)]
    return list(dict.fromkeys([(min(4, tile.k), 1), (1, 1), (2, 1), (4, 1), (3, 2)]))


class Kind(Protocol):
    """How algorithms of one kind are tried; `KINDS` has one for each kind."""

    def measured(self, row: Algorithm, tile: Tile, repeats: int) -> Case:
        """Return the case whose steps are counted: whole tiles, `repeats` of them a segment."""
        ...

    def programs(self, row: Algorithm, tile: Tile, full: bool) -> Iterator[tuple[Case, bool]]:
        """Yield a case for each program, and whether several lengths are worth a try."""
        ...

    def runs(self, program: Program, case: Case, many: bool) -> Iterator[Case]:
        """Yield the case for each length of input that the program is tried on."""
        ...

    def inputs(self, program: Program, case: Case, limit: int) -> dict[str, Ints]:
        """Return integers for each input of a program."""
        ...

    def expected(self, program: Program, case: Case, inputs: Mapping[str, Ints]) -> Ints:
        """Return what the program must give for these inputs."""
        ...

    def unknown(self, program: Program) -> str:
        """Return why nobody here knows what must come out, "" if `expected` does."""
        ...

    def useful(self, case: Case) -> int:
        """Return the additions that the case would need without a tensor core, about."""
        ...

    def formula(self, row: Algorithm, tile: Tile, case: Case, repeats: int) -> int:
        """Return the mma steps that the registry's formula has for a measured case."""
        ...


# --- Reductions and scans ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Segments:
    """Algorithms that sum or scan segments of the input `in`."""

    sums: bool

    def measured(self, row: Algorithm, tile: Tile, repeats: int) -> Case:
        """Return segments of `repeats` rows or tiles, and a block of them."""
        return Case({"segment_size": repeats * _unit(row, tile)}, {})

    def programs(self, row: Algorithm, tile: Tile, full: bool) -> Iterator[tuple[Case, bool]]:
        """Yield segment sizes around a row, a tile and the default, whole and ragged."""
        unit = _unit(row, tile)
        default = row.repeats * unit
        if row.level is Level.GRID:
            yield from _shared_segments(row, unit, full)
            return
        if tile.m * tile.n * tile.k > _LARGE_TILE and not full:
            yield _segments(max(1, unit - 1), ragged=True), False
            yield _segments(default, ragged=True), False
            yield _segments(unit, ragged=False), False
            return
        for size in _segment_sizes(tile, unit, default, full):
            yield _segments(size, ragged=True), full or size == default
            if full or size in (unit, default):
                yield _segments(size, ragged=False), full
        for warps, tiles in layouts(row, tile):
            for ragged in (True, False) if full else (True,):
                yield _segments(default, ragged=ragged, warps=warps, tiles=tiles), full
        flags = [name for name in row.options if name in _FLAGS]
        for chosen in _subsets(flags) if full else [flags] if flags else []:
            yield _segments(max(1, default - 1), ragged=True, **dict.fromkeys(chosen, True)), full

    def runs(self, program: Program, case: Case, many: bool) -> Iterator[Case]:
        """Yield lengths around a segment and a block; whole blocks if the program wants those."""
        block = _block(program)
        size = case.keywords["segment_size"] or block
        if not case.keywords.get("ragged"):
            lengths = [block, 3 * block] if many else [2 * block]
        elif many:
            edges = (size - 1, size, size + 1, block - 1, block, block + 1)
            # An empty array has no segment; one segment that is the whole array has a block.
            none = [0] if case.keywords["segment_size"] else []
            lengths = [*none, 1, *edges, 2 * block + size // 2 + 1]
        else:
            lengths = [max(1, size - 1), block + size // 2 + 1]
        for length in dict.fromkeys(lengths):
            yield Case(case.keywords, {"length": length})

    def inputs(self, program: Program, case: Case, limit: int) -> dict[str, Ints]:
        """Return segments whose magnitudes, with what is carried in, sum to `limit` at most."""
        rng = case.rng
        length, size = case.sizes["length"], _segment_size(case)
        count = -(-length // size)
        signed = format_of(program.ab).smallest < 0 or format_of(program.ab).is_float
        carried = any(buffer.name == "carry" for buffer in program.inputs)
        room = limit // 2 if carried else limit
        rows = _small_integers(rng, count, size, room, signed)
        inputs = {"in": rows.ravel()[:length]}
        if carried:
            inputs["carry"] = rng.integers(-room if signed else 0, room + 1, count)
        return inputs

    def expected(self, program: Program, case: Case, inputs: Mapping[str, Ints]) -> Ints:
        """Return integer sums, or prefix sums, of each segment."""
        x, size = inputs["in"], _segment_size(case)
        rows = np.concatenate([x, np.zeros(-x.size % size, np.int64)]).reshape(-1, size)
        if self.sums:
            totals: Ints = rows.sum(axis=1)
            return totals
        step = -1 if case.keywords.get("reverse") else 1
        prefixes: Ints = rows[:, ::step].cumsum(axis=1)[:, ::step]
        if case.keywords.get("exclusive"):
            prefixes = prefixes - rows
        if "carry" in inputs:
            prefixes = prefixes + inputs["carry"][:, None]
        return prefixes.ravel()[: x.size]

    def unknown(self, program: Program) -> str:
        """Refuse programs with other inputs than the data and what is carried in."""
        return _unknown_inputs(program, ("in", "carry"))

    def useful(self, case: Case) -> int:
        """Return the elements: each is added once."""
        return int(case.sizes["length"])

    def formula(self, row: Algorithm, tile: Tile, case: Case, repeats: int) -> int:
        """Return the mma steps of a piece of work; what a block does depends on its warps."""
        warps = case.keywords.get("warps", 1)
        return row.mma_steps(tile.m, tile.n, tile.k, N=repeats, W=warps)


def _segments(size: int | None, **keywords: Any) -> Case:
    return Case({"segment_size": size, **keywords}, {})


def _segment_size(case: Case) -> int:
    """Return the elements of a segment; None in a case stands for the whole array."""
    return int(case.keywords["segment_size"] or max(1, case.sizes["length"]))


def _shared_segments(row: Algorithm, unit: int, full: bool) -> Iterator[tuple[Case, bool]]:
    """Yield segments that several blocks share, and whole arrays: a warp takes one tile."""
    share = {name: 1 for name in row.options if name in _SHARES}
    group = {"columns": 3} if "columns" in row.options else {}
    flags = [name for name in row.options if name in _FLAGS]
    every = dict.fromkeys(flags, True)
    for size in (1, unit + 1, 3 * unit) if full else (1, 3 * unit):
        yield _segments(size, ragged=True, **share), full
    for warps in (1, 2) if full else (2,):
        yield _segments(3 * unit - 1, warps=warps, ragged=False, **share, **every), full
        yield _segments(None, warps=warps, ragged=True, **share, **group), True
        yield _segments(None, warps=warps, ragged=False, **share, **group, **every), full
    for chosen in _subsets(flags) if full else ():
        yield _segments(None, ragged=True, **share, **group, **dict.fromkeys(chosen, True)), False


def _unit(row: Algorithm, tile: Tile) -> int:
    return tile.m * tile.k if row.tiles else tile.k


def _block(program: Program) -> int:
    """Return the elements that the program takes at a time."""
    return max(program.blocks.per, *(scalar.multiple_of for scalar in program.scalars))


def _segment_sizes(tile: Tile, unit: int, default: int, full: bool) -> list[int]:
    """Return segment sizes to try, ascending; an algorithm may refuse the longer ones."""
    sizes = {1, unit - 1, unit, unit + 1, default, 2 * unit + unit // 2 + 1}
    if full:
        sizes |= {2, tile.k - 1, tile.k, tile.k + 1, unit // 2, 2 * unit - 1, 2 * unit, 3 * unit}
        sizes |= {tile.m, tile.n, tile.m * tile.k + 1, default - 1, default + 1}
    return sorted(size for size in sizes if size >= 1)


def _subsets(names: list[str]) -> Iterator[list[str]]:
    for count in range(1, len(names) + 1):
        yield from map(list, itertools.combinations(names, count))


def _small_integers(
    rng: np.random.Generator, rows: int, size: int, limit: int, signed: bool
) -> Ints:
    """Return (rows, size) integers whose magnitudes sum to at most `limit` in each row.

    The ends of a row are never 0, so that it shows if one is left out or is taken twice.
    """
    room = max(0, limit - 2)
    largest = min(_LARGEST, max(1, room))
    x: Ints = rng.integers(-largest if signed else 0, largest + 1, (rows, size))
    wanted = room / max(1.0, size * (largest + 1) / 2)
    x = x * (rng.random(x.shape) < wanted)
    x[:, :1] = x[:, size - 1 :] = 0
    x[np.abs(x).cumsum(axis=1) > room] = 0
    x[:, size - 1 :] = -1 if signed else 1
    x[:, :1] = 1
    return x


# --- Products ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Products:
    """Products of whole matrices: a (rows, inner) times b (inner, cols), plus c; all row-major.

    inner and cols are options of `build`, but a vector's product has no cols; the scalar `rows`
    is found from the size of `a`.
    """

    def measured(self, row: Algorithm, tile: Tile, repeats: int) -> Case:
        """Return the default product, of one block."""
        return Case({}, {})

    def programs(self, row: Algorithm, tile: Tile, full: bool) -> Iterator[tuple[Case, bool]]:
        """Yield columns and depths around a tile and several."""
        n, k = tile.n, tile.k
        pairs = [(1, 1), (n, k), (n + 1, k + 1), (3 * n, 2 * k)]
        if full:
            pairs += [(n - 1, k - 1), (2 * n + 1, 5 * k), (1, 3 * k + 1), (5 * n, 1)]
        for cols, inner in pairs:
            sizes = {"cols": cols, "inner": inner}
            if cols and inner:
                given = {name: size for name, size in sizes.items() if name in row.options}
                yield Case(given, {}), full or (cols, inner) == (n + 1, k + 1)
        for warps, tiles in layouts(row, tile):
            yield Case({"warps": warps, "tiles": tiles}, {}), full
        if "add_c" in row.options:
            yield Case({"add_c": True}, {}), full

    def runs(self, program: Program, case: Case, many: bool) -> Iterator[Case]:
        """Yield numbers of rows around a block's, which comes first."""
        block = program.blocks.per
        sizes = {buffer.name: buffer.size.evaluate({"rows": 1}) for buffer in program.inputs}
        inner = sizes["a"]
        for rows in dict.fromkeys((block, 1, block - 1, 2 * block + 1) if many else (block + 1,)):
            yield Case(case.keywords, {"rows": rows, "cols": sizes["b"] // inner, "inner": inner})

    def inputs(self, program: Program, case: Case, limit: int) -> dict[str, Ints]:
        """Return factors of -1, 0 and 1 whose products, with c, sum to `limit` at most."""
        rng = case.rng
        rows, cols, inner = (case.sizes[name] for name in ("rows", "cols", "inner"))
        low = -1 if format_of(program.ab).is_float or format_of(program.ab).smallest < 0 else 0
        left: Ints = rng.integers(low, 2, (rows, inner))
        left[np.abs(left).cumsum(axis=1) > limit - 1] = 0
        drawn = {
            "a": left,
            "b": rng.integers(low, 2, (inner, cols)),
            "c": rng.integers(low, 2, (rows, cols)),
        }
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
            return f"what must come out is not known here for the scalars {', '.join(scalars)}"
        return _unknown_inputs(program, ("a", "b", "c"))

    def useful(self, case: Case) -> int:
        """Return the multiply-adds of the product."""
        return int(case.sizes["rows"] * case.sizes["cols"] * case.sizes["inner"])

    def formula(self, row: Algorithm, tile: Tile, case: Case, repeats: int) -> int:
        """Return the mma steps of the whole product."""
        return row.mma_steps(tile.m, tile.n, tile.k, **case.sizes)


# --- Segments by offsets ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Algorithms that sum or scan segments of `in`, which the input `offsets` tells, in pieces.

    A piece has `segment_size` elements at most; `ir.Locate` says which number it has.
    """

    sums: bool

    def measured(self, row: Algorithm, tile: Tile, repeats: int) -> Case:
        """Return pieces of `repeats` rows."""
        return Case({"segment_size": repeats * tile.k}, {})

    def programs(self, row: Algorithm, tile: Tile, full: bool) -> Iterator[tuple[Case, bool]]:
        """Yield pieces around a row and the default, and segments that are one piece each."""
        k, default = tile.k, row.repeats * tile.k
        sizes = {1, k, k + 1, default} | ({2, k - 1, default - 1, default + 1} if full else set())
        for size in sorted(sizes - {0}):
            yield _segments(size), full or size == default
        for warps, tiles in layouts(row, tile)[1:]:
            yield _segments(k, warps=warps, tiles=tiles), full
        if "whole" in row.options:
            yield _segments(k + 1, whole=True), full
        flags = [name for name in row.options if name in _FLAGS]
        for chosen in _subsets(flags) if full else [flags] if flags else []:
            yield _segments(k + 1, **dict.fromkeys(chosen, True)), full

    def runs(self, program: Program, case: Case, many: bool) -> Iterator[Case]:
        """Yield one segment whose pieces fill a block; then fewer and more, in many segments."""
        size = case.keywords["segment_size"]
        if case.keywords.get("whole"):
            for segments in (1, program.blocks.per + 3):
                length = int(_whole_lengths(size, segments).sum())
                yield Case(case.keywords, {"length": length, "segments": segments})
            return
        lines = program.blocks.per // size
        sizes = [(lines * size - 1, 1), (2 * lines * size + 1, lines + 3)]
        if many:
            sizes += [(0, 2), (1, 1), (lines * size, 1), (size + 1, 3 * lines)]
        for length, segments in dict.fromkeys(sizes):
            yield Case(case.keywords, {"length": length, "segments": segments})

    def inputs(self, program: Program, case: Case, limit: int) -> dict[str, Ints]:
        """Return segments that end anywhere, empty ones among them; see `_Segments.inputs`."""
        rng, length, count = case.rng, case.sizes["length"], case.sizes["segments"]
        inner: Ints = np.sort(rng.integers(0, length + 1, count - 1))
        offsets: Ints = np.concatenate([[0], inner, [length]]).astype(np.int64)
        if case.keywords.get("whole"):
            lengths = _whole_lengths(case.keywords["segment_size"], count)
            offsets = np.concatenate([[0], lengths.cumsum()]).astype(np.int64)
        carried = any(buffer.name == "carry" for buffer in program.inputs)
        room = limit // 2 if carried else limit
        low = -1 if format_of(program.ab).is_float or format_of(program.ab).smallest < 0 else 0
        x: Ints = rng.integers(low, 2, (length,))
        before = np.concatenate([[0], np.abs(x).cumsum()])
        x[before[1:] - np.repeat(before[offsets[:-1]], np.diff(offsets)) > room] = 0
        inputs = {"in": x, "offsets": offsets}
        if carried:
            inputs["carry"] = rng.integers(low * room, room + 1, (self._numbers(case),))
        return inputs

    def expected(self, program: Program, case: Case, inputs: Mapping[str, Ints]) -> Ints:
        """Return integer sums, by number, or prefix sums, of each piece."""
        x, keywords = inputs["in"], case.keywords
        sums, prefixes = np.zeros(self._numbers(case), np.int64), np.zeros_like(x)
        for number, begin, end in self._pieces(case, inputs["offsets"]):
            sums[number] = x[begin:end].sum()
            step = -1 if keywords.get("reverse") else 1
            prefixes[begin:end] = x[begin:end][::step].cumsum()[::step]
            if keywords.get("exclusive"):
                prefixes[begin:end] -= x[begin:end]
            if "carry" in inputs:
                prefixes[begin:end] += inputs["carry"][number]
        return sums if self.sums else prefixes

    def _numbers(self, case: Case) -> int:
        """Return how many numbers pieces have."""
        if case.keywords.get("whole"):
            return int(case.sizes["segments"])
        return int(case.sizes["length"] // case.keywords["segment_size"] + case.sizes["segments"])

    def _pieces(self, case: Case, offsets: Ints) -> Iterator[tuple[int, int, int]]:
        """Yield each piece's number, beginning and end."""
        size, whole = case.keywords["segment_size"], case.keywords.get("whole")
        for segment, (begin, end) in enumerate(itertools.pairwise(offsets.tolist())):
            for turn, start in enumerate(range(begin, end, size)):
                number = segment if whole else begin // size + segment + turn
                yield number, start, min(start + size, end)

    def unknown(self, program: Program) -> str:
        """Refuse programs with other inputs than the data, offsets, and what is carried in."""
        return _unknown_inputs(program, ("in", "offsets", "carry"))

    def useful(self, case: Case) -> int:
        """Return the elements: each is added once."""
        return int(case.sizes["length"])

    def formula(self, row: Algorithm, tile: Tile, case: Case, repeats: int) -> int:
        """Return the mma steps of a warp."""
        return row.mma_steps(tile.m, tile.n, tile.k, N=repeats)


def _whole_lengths(size: int, segments: int) -> Ints:
    """Return lengths of up to `size` elements, the longest first and an empty one next."""
    lengths: Ints = (size - np.arange(segments) * size) % (size + 1)
    return lengths


def _unknown_inputs(program: Program, known: Iterable[str]) -> str:
    names = [buffer.name for buffer in program.inputs]
    strange = [name for name in names if name not in known]
    if strange:
        return f"what must come out is not known here for an input {strange[0]!r}"
    return ""


KINDS: Final[dict[str, Kind]] = {
    "reduction": _Segments(sums=True),
    "scan": _Segments(sums=False),
    "product": _Products(),
    "irregular_reduction": _Pieces(sums=True),
    "irregular_scan": _Pieces(sums=False),
}


# --- Exactness --------------------------------------------------------------------------------


def exact_up_to(ab: str, accumulate: str, rule: Rule) -> int:
    """Return a number up to which types and arithmetic hold every integer and sum of integers.

    Partial sums may become operands, so the operands' type counts, too. A fused step keeps F bits
    below the largest term; a result may have fewer bits than its type.
    """
    limits = [_integers_of(ab), _integers_of(accumulate)]
    if isinstance(rule.how, Fused):
        limits.append(2**rule.how.fraction_bits)
        if rule.how.output_fraction_bits is not None:
            limits.append(2**rule.how.output_fraction_bits)
    return min(limits)


def _integers_of(dtype: str) -> int:
    fmt = format_of(dtype)
    return int(2 ** (fmt.fraction_bits + 1)) if fmt.is_float else int(fmt.largest)
