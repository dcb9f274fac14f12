"""Cases: a program, the sizes of its input, and how that is drawn; and the grid of them.

A `Recipe` says how to build one program, a `Case` is a recipe with sizes and a kind of input. Both
print as one line of text, which `tcusim agree --case` takes, and that text seeds the inputs: a case
is the same everywhere. NumPy alone is needed here, so that a machine with a GPU needs no more.
"""

from __future__ import annotations

import itertools
import random
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import numpy as np

from tcusim.algorithms import (
    Algorithm,
    Level,
    Option,
    algorithm_of,
    algorithms,
    build,
    options_of,
    segmented_algorithms,
)
from tcusim.algorithms.builder import adds_rows
from tcusim.errors import InputError, Unsupported, told
from tcusim.judge.correctness.memory import require_bytes
from tcusim.judge.correctness.testing import input_kinds, random_inputs
from tcusim.machine import Arch
from tcusim.machine.arches import BUILT_IN
from tcusim.machine.shapes import shape_of
from tcusim.program.grammar import Program


@dataclass(frozen=True, slots=True)
class Column:
    """A tile with its types. source: the type of the input where it is wider than `ab`."""

    shape: str
    ab: str
    acc: str
    source: str = ""

    @property
    def options(self) -> dict[str, str]:
        """Return the arguments of `build`."""
        return {"tile": self.shape, "ab": self.ab, "acc": self.acc, "source": self.source}

    def __str__(self) -> str:
        parts = f"{self.source}={self.ab}" if self.source else self.ab
        return f"{self.shape} {parts}→{self.acc}"


# In this order options are printed, any others after them. The text seeds the inputs of recorded
# cases, so the order stays.
_ORDER: Final = (
    *("tile", "ab", "acc", "source", "result", "side", "combine", "form", "segment_size"),
    *("warps", "items_per_warp", "masked", "batches", "columns", "cols", "inner"),
    "add_c",
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """The arguments of `tcusim.build` for one program; `of` makes it.

    options: those that differ from the default, in the order of printing.
    """

    algorithm: str
    options: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, algorithm: str, **options: Any) -> Recipe:
        """Return a recipe. Options that are None, "" or the default of `build` are left out."""
        known = _parameters(algorithm)
        given = {
            name: value
            for name, value in options.items()
            if value is not None and value != "" and value != _default(known.get(name))
        }
        names = dict.fromkeys([name for name in _ORDER if name in given] + list(given))
        return cls(algorithm, tuple((name, given[name]) for name in names))

    def get(self, name: str) -> Any:
        """Return an option, or its default."""
        default = _default(_parameters(self.algorithm).get(name))
        return dict(self.options).get(name, default)

    def but(self, **options: Any) -> Recipe:
        """Return the recipe with other options."""
        return Recipe.of(self.algorithm, **{**dict(self.options), **options})

    @property
    def column(self) -> Column:
        """The column of the grid that it belongs to."""
        return Column(*(self.get(name) or "" for name in ("tile", "ab", "acc", "source")))

    def build(self) -> Program:
        """Build the program; Unsupported if its parts do not go together."""
        return _built(self)

    @property
    def text(self) -> str:
        """The options as `tile=8x32x16 ab=f16 ...`."""
        return " ".join(f"{name}={_written(value)}" for name, value in self.options)

    def __str__(self) -> str:
        return f"{self.algorithm} {self.text}".rstrip()


@lru_cache(maxsize=64)
def _built(recipe: Recipe) -> Program:
    options = dict(recipe.options)
    # A unit's tile may have the sizes of an instruction that takes other types.
    options["tile"] = shape_of(recipe.get("tile")).taking(recipe.get("ab"), recipe.get("acc"))
    if not algorithm_of(recipe.algorithm).uses_mma:
        options.setdefault("source", recipe.get("acc"))
    return build(recipe.algorithm, **options)


@lru_cache(maxsize=256)
def _parameters(algorithm: str) -> dict[str, Option]:
    """Return the keywords of `build` to try for an algorithm."""
    return {**options_of(build), **algorithm_of(algorithm).options}


def _default(option: Option | None) -> Any:
    if option is None:
        return None
    # The paper's way to combine goes without saying; the algorithms that have another say it.
    return "mma" if option.name == "combine" else option.default


def _written(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(int(value) if isinstance(value, bool) else value)


def _read(option: Option, value: str) -> Any:
    """Return the value that a text says, by the option's type."""
    if option.type is bool:
        return bool(_integer(option.name, value))
    if option.type is tuple:
        return tuple(_integer(option.name, word) for word in value.split(","))
    return _integer(option.name, value) if option.type is int else value


# Of each element of an input, the simulator holds about this many bytes: the array in its own type
# and in float64, addresses, and the tiles of all warps.
_BYTES_PER_ELEMENT: Final = 64


@dataclass(frozen=True, slots=True)
class Case:
    """A program with an input.

    sizes: of the input, such as its length. kind: one of `testing.INPUT_KINDS`, "" where the input
    is made in another way.
    """

    recipe: Recipe
    sizes: Mapping[str, int] = field(default_factory=dict)
    kind: str = ""

    @property
    def length(self) -> int:
        """The elements of the input; of a product, its rows."""
        return self.sizes["length"]

    @property
    def rng(self) -> np.random.Generator:
        """Random numbers that are this case's own, the same everywhere."""
        return np.random.default_rng(zlib.crc32(str(self).encode()))

    def inputs(self) -> dict[str, Any]:
        """Return the inputs, drawn from the case's text as the seed.

        Raises
        ------
        InputError
            If they do not fit in memory.
        """
        require_bytes(_BYTES_PER_ELEMENT * self.length, f"a length of {self.length:,}")
        return random_inputs(self.recipe.build(), self.kind, self.length, self.rng)

    @property
    def text(self) -> str:
        """Options and sizes as `segment_size=17 masked=1 length=300`."""
        sizes = (f"{name}={size}" for name, size in self.sizes.items())
        return " ".join(filter(None, [self.recipe.text, *sizes]))

    def __str__(self) -> str:
        kind = f"input={self.kind}" if self.kind else ""
        return " ".join(filter(None, [self.recipe.algorithm, self.text, kind]))

    @staticmethod
    def parse(text: str) -> Case:
        """Return the case that a text such as `scan_t side=a length=17 input=normal` says.

        Raises
        ------
        InputError
            If a word is not NAME=VALUE, or no case has such a name.
        """
        algorithm, *words = text.split() or [""]
        given = {}
        for word in words:
            name, equals, given[name] = word.partition("=")
            if not equals:
                raise InputError(f"a case is ALGORITHM NAME=VALUE ..., got {told(word)}")
        length = _integer("length", given.pop("length", "1000"))
        kind = given.pop("input", "normal")
        name = algorithm_of(algorithm).name
        known = _parameters(name)
        for option in given:
            if option not in known:
                valid = ", ".join((*known, "length", "input"))
                raise InputError(f"a case of {name} has no {option!r}; it has {valid}")
        options = {option: _read(known[option], value) for option, value in given.items()}
        return Case(Recipe.of(name, **options), {"length": length}, kind)


# Those of the largest integer of 64 bits.
_MOST_DIGITS: Final = 19


def _integer(name: str, value: str) -> int:
    if not value.isdecimal():
        raise InputError(f"{name} must be a whole number, got {told(value)}")
    if len(value) > _MOST_DIGITS:
        raise InputError(f"{name} must have at most {_MOST_DIGITS} digits, got {len(value)}")
    return int(value)


# The tiles of WMMA and of mma.sync that kernels can be emitted for, float32 input in three bf16
# parts, two tiles that are made of several WMMA tiles, and sums without products: float32
# unchanged, and float16 in float64.
_WMMA: Final = ("16x16x16", "32x8x16", "8x32x16")
_HALVES: Final = (("f16", "f32"), ("f16", "f16"), ("bf16", "f32"))
COLUMNS: Final = (
    *(Column(shape, "f16", acc) for shape in _WMMA for acc in ("f32", "f16")),
    *(Column(shape, "bf16", "f32") for shape in _WMMA),
    Column("16x16x16", "bf16", "f32", "f32"),
    Column("16x16x8", "tf32", "f32"),
    Column("8x8x4", "f64", "f64"),
    *(Column(shape, "s8", "s32") for shape in _WMMA),
    *(Column(shape, *types) for shape in ("16x8x16", "16x8x8") for types in _HALVES),
    Column("16x8x8", "tf32", "f32"),
    Column("32x32x32", "f16", "f32"),
    Column("64x8x16", "f16", "f32"),
    Column("16x16x16", "f32", "f32"),
    Column("16x16x16", "f16", "f64"),
)
_SHAPES: Final = {column.shape for column in COLUMNS}
# An algorithm without products runs in the type of its accumulator, and has no tile.
_COLUMNS_WITHOUT_TILE: Final = (
    Column("16x16x16", "f16", "f32"),
    Column("16x16x16", "f16", "f16"),
    Column("16x16x16", "s8", "s32"),
    Column("8x8x4", "f64", "f64"),
)
# Masked, segment size (None: the default, of a grid the whole array), warps of a block, items of a
# warp, and whether the result is of another type than the accumulator.
_LAYOUTS: Final = (
    (True, 100, 2, 2, False),
    (True, 1000, 4, 1, True),
    (True, 7, 4, 1, True),
    (False, None, 1, 1, False),
    (True, 3, 1, 2, False),
)
# The same, but with blocks of a group in place of items. Warps are so many that a chunk of rows,
# which a block of a scan has, is few tiles for each; arrays are so long that blocks share them.
_GRID_LAYOUTS: Final = (
    (True, None, 8, 4, True),
    (True, 10000, 8, None, False),
    (True, None, 4, 1, False),
    (False, None, 8, 2, False),
    (True, 3000, 8, None, False),
)
_GRID_LENGTHS: Final = (17011, 257, 33013, 17, 1, 0)
# Options of a sum's blocks, so that these take few rows too.
_SHARES: Final = ("groups", "panels")
_LENGTHS: Final = (1237, 257, 5003, 17, 1, 0)
# Rows of a product, and its columns at most.
_ROWS: Final = (70, 1, 131)
_COLS: Final = 50


def columns_of(shape: str, arch: Arch | None = None) -> tuple[Column, ...]:
    """Return the columns of one shape: those of the grid, else of its instructions.

    Of an architecture, those of its types alone, and of every type that it has for the shape: of a
    user's own, of all its types.
    """
    tile = shape_of(shape)
    own = tuple(column for column in COLUMNS if column.shape == tile.name)
    users = arch is not None and arch not in BUILT_IN
    if tile.operands and not tile.pairs() and not users:
        taken = ", ".join(dict.fromkeys(row.ab for row in tile.operands))
        raise Unsupported(
            f"shape {tile.name} takes {taken}, which tcusim lays out but does not sum"
        )
    if arch is None:
        return own or tuple(Column(tile.name, *pair) for pair in tile.pairs() or (("f16", "f32"),))
    pairs = arch.pairs
    kept = [one for one in own if (one.ab, one.acc) in pairs or adds_rows(one.ab, one.acc)]
    known = {(one.ab, one.acc) for one in kept}
    others = [
        Column(tile.name, *pair)
        for pair in pairs
        if pair not in known and (users or tile.supports(*pair))
    ]
    if not kept and not others:
        has = ", ".join(f"{ab} to {acc}" for ab, acc in tile.pairs())
        raise Unsupported(f"{arch.name} has no types of the shape {tile.name}, which takes {has}")
    return (*kept, *others)


@dataclass(frozen=True, slots=True)
class CaseGrid:
    """Programs of every kind, always the same ones in the same order.

    names: of algorithms; none for all. columns: tiles and types. full: every side, form, way to
    combine and layout, in rounds of one program for each algorithm and column, in random order, so
    that a part is a fair sample; if not, one such round, and which options it has goes round.
    """

    names: Sequence[str] = ()
    columns: Sequence[Column] = COLUMNS
    full: bool = False

    def recipes(self) -> Iterator[Recipe]:
        """Yield the programs; in full, some may not go together."""
        for recipe, _ in self._built():
            yield recipe

    def _built(self) -> Iterator[tuple[Recipe, Program | None]]:
        """Yield the programs as recipes, and as programs where one had to be built to choose it."""
        rows = [algorithm_of(name) for name in self.names]
        groups = [rows] if rows else [segmented_algorithms(), _other_algorithms()]
        # Where a cell stands decides which options are drawn: sums without products come last.
        cells = [
            list(_recipes(row, column))
            for group in groups
            for added in (False, True)
            for row in group
            for column in self.columns
            if adds_rows(column.ab, column.acc) == added and _has_cell(row, column)
        ]
        if self.full:
            drawn = random.Random(0)
            shuffled = (drawn.sample(choices, len(choices)) for choices in cells)
            for row in itertools.zip_longest(*shuffled):
                whole = [recipe for recipe in row if recipe is not None]
                yield from ((recipe, None) for recipe in drawn.sample(whole, len(whole)))
            return
        for number, choices in enumerate(cells):
            # A step of 7 visits all choices, and changes several options at once.
            turned = (choices[(7 * number + turn) % len(choices)] for turn in range(len(choices)))
            built = ((recipe, _program(recipe)) for recipe in turned)
            yield from itertools.islice((one for one in built if one[1] is not None), 1)

    def cases(self) -> Iterator[Case]:
        """Yield each program that can be built, with two kinds of input; in full, with all."""
        for number, (recipe, program) in enumerate(self._built()):
            yield from cases_of(recipe, number, full=self.full, program=program)


def _other_algorithms() -> list[Algorithm]:
    """Return the algorithms of segments by offsets, and products."""
    segmented = segmented_algorithms()
    return [row for row in algorithms() if row not in segmented]


def _has_cell(row: Algorithm, column: Column) -> bool:
    """Return whether an algorithm has programs of these types."""
    if adds_rows(column.ab, column.acc):
        return row.adds_rows
    if row.uses_mma or column in _COLUMNS_WITHOUT_TILE:
        return True
    # Of a tile that the grid does not have, too: it may be the only one.
    types = {(one.ab, one.acc) for one in _COLUMNS_WITHOUT_TILE}
    return (column.ab, column.acc) in types and column.shape not in _SHAPES


def _recipes(row: Algorithm, column: Column) -> Iterator[Recipe]:
    """Yield every recipe of one cell; some may not go together."""
    grid = row.level is Level.GRID
    layouts, last = (_GRID_LAYOUTS, "columns") if grid else (_LAYOUTS, "items_per_warp")
    shares = {name: 1 for name in _SHARES if grid and name in row.options}
    sides = ("a", "b") if row.uses_mma else ("",)
    # Parts of a split input are combined by additions: products would round them.
    combines = ("add",) if column.source or not row.uses_mma else tuple(sorted(row.combines))
    forms = row.options["form"].choices if "form" in row.options else ("",)
    other = "bf16" if column.ab == "bf16" else {"f32": "f16", "f16": "f32"}.get(column.acc)
    for layout, side, combine, form in itertools.product(layouts, sides, combines, forms):
        masked, size, warps, items, other_result = layout
        sizes: dict[str, Any] = {"segment_size": size, "masked": masked}
        if row.kind == "product":
            sizes = {"inner": size, "add_c": masked}
            sizes |= {"cols": size and min(size, _COLS)} if "cols" in row.options else {}
        yield Recipe.of(
            row.name,
            **column.options,
            result=other if other_result and side != "a" else None,
            side=side,
            combine=combine,
            form=form,
            warps=warps,
            **sizes,
            **{last: items},
            **shares,
        )


def _program(recipe: Recipe) -> Program | None:
    """Return a recipe's program, None if its parts do not go together."""
    try:
        return recipe.build()
    except Unsupported:
        return None


def cases_of(
    recipe: Recipe, number: int, *, full: bool, program: Program | None = None
) -> Iterator[Case]:
    """Yield the cases of one recipe, the grid's `number`-th; none if it cannot be built.

    program: the recipe's, if somebody has built it.
    """
    program = program or _program(recipe)
    if program is None:
        return
    kinds = input_kinds(program.inputs[0].dtype)
    if not full:
        kinds = tuple(kinds[(2 * number + turn) % len(kinds)] for turn in range(2))
    row = algorithm_of(recipe.algorithm)
    product = row.kind == "product"
    lengths = _ROWS if product else _GRID_LENGTHS if row.level is Level.GRID else _LENGTHS
    multiple, any_length = program.scalars[0].multiple_of, product or recipe.get("masked")
    for turn, kind in enumerate(kinds):
        length = lengths[(number + turn) % len(lengths)] if any_length else 3 * multiple
        yield Case(recipe, {"length": length}, kind)
