"""A grid of units: for each quantity its values, and every combination of them."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, TypeAlias

from tcusim import errors
from tcusim.errors import InputError
from tcusim.machine import FORMATS, Fused, Unit, format_of, rule_of, unit_of, unit_toml, usual_types
from tcusim.machine.formats import is_type
from tcusim.machine.shapes import shape_of

# Arguments of an axis: one value, several, or a text such as "4:64" or "rz,rne".
Given: TypeAlias = str | int | Sequence[str | int]

# More units than this are no grid that anybody means, and their rows would fill the memory.
_MOST_POINTS: Final = 10**6

_RANGE: Final = re.compile(r"(\d+):(\d+)(?::(\d+))?")


@dataclass(frozen=True, slots=True)
class Axis:
    """A quantity of a grid.

    Attributes
    ----------
    default : int or str
        Its only value where nothing is said.
    meaning : str
        Its meaning.
    words : tuple of str
        The values that there are; empty for numbers.
    doubles : bool
        Whether a range ``a:b`` doubles from a value to the next, as suits sizes, or adds one.
    """

    default: int | str
    meaning: str
    words: tuple[str, ...] = ()
    doubles: bool = False

    def values(self, name: str, given: Given) -> tuple[int | str, ...]:
        """Return the values that are given, in their order, each once."""
        several = given if isinstance(given, list | tuple | range) else (given,)
        found = [value for one in several for value in self._of(name, one)]
        if not found:
            raise InputError(f"{name} has no values; leave it out for {self.default}")
        return tuple(dict.fromkeys(found))

    def _of(self, name: str, one: object) -> Iterator[int | str]:
        """Yield the values of one number, or of a text with commas between them."""
        if not self.words and isinstance(one, int) and not isinstance(one, bool):
            yield from self._between(name, one, one)
            return
        if not isinstance(one, str):
            raise InputError(f"{name} must be {self._wanted()}, got {errors.told(one)}")
        for word in one.split(","):
            text = word.strip()
            if self.words:
                # Floats have more names than the table of types.
                if text not in self.words and not (name == "ab" and is_type(text)):
                    raise errors.unknown_name(name, text, self.words)
                yield text
            elif match := _RANGE.fullmatch(text):
                step = None if match[3] is None else int(match[3])
                yield from self._between(name, int(match[1]), int(match[2]), step)
            elif text.isdecimal():
                yield from self._between(name, int(text), int(text))
            else:
                raise InputError(f"{name} must be {self._wanted()}, got {errors.told(text)}")

    def _between(
        self, name: str, first: int, last: int, step: int | None = None
    ) -> Iterator[int | str]:
        """Yield the numbers of a range, its end included."""
        if first < 1 or last < first or step == 0:
            text = f"{first}:{last}" + ("" if step is None else f":{step}")
            raise InputError(
                f"{name}: {text if last != first else first} is no range of numbers from 1 on; "
                f"the least comes first, and a step is at least 1"
            )
        if step is not None or not self.doubles:
            yield from range(first, last + 1, step or 1)
            return
        while first <= last:
            yield first
            first *= 2

    def _wanted(self) -> str:
        if self.words:
            return f"of {', '.join(self.words)}"
        by = "doubled from one to the next" if self.doubles else "one by one"
        return f"whole numbers such as 4,8,16; a range 4:64, {by}; or a range with a step, 4:64:12"


_ROUNDINGS: Final = ("rz", "rne")
# The axes of a grid, in the order of its combinations: the first changes least often.
AXES: Final[Mapping[str, Axis]] = {
    "m": Axis(16, "rows of a tile of a, and of the result", doubles=True),
    "n": Axis(16, "columns of a tile of b, and of the result", doubles=True),
    "k": Axis(16, "products of one result in one mma", doubles=True),
    "ab": Axis("f16", "type of the operands", tuple(FORMATS)),
    "acc": Axis("f32", "type of the accumulator", ("f32", "f16")),
    "fused_length": Axis(16, "products in one fused step, L", doubles=True),
    "fraction_bits": Axis(24, "bits kept below the largest exponent, F"),
    "output_rounding": Axis("rz", "rounding of a step's sum", _ROUNDINGS),
    "alignment": Axis("rz", "how a term is cut to the fraction bits", _ROUNDINGS),
}
_SIZES: Final = ("m", "n", "k")


@dataclass(frozen=True, slots=True)
class Point:
    """One combination: a unit of one tile, one pair of types and one kind of fused step.

    Attributes
    ----------
    m, n, k : int
        The tile, in elements.
    ab, acc : str
        Element types.
    fused_length, fraction_bits : int or None
        L and F; None for a unit that is named and has no fused steps of these types.
    output_rounding, alignment : str
        Roundings, ``"rz"`` or ``"rne"``; empty where L and F are None.
    unit : str
        The name of a unit that exists; empty for an invented one.
    """

    m: int
    n: int
    k: int
    ab: str
    acc: str
    fused_length: int | None = None
    fraction_bits: int | None = None
    output_rounding: str = ""
    alignment: str = ""
    unit: str = ""

    @property
    def tile(self) -> str:
        """The tile, such as ``"16x16x16"``."""
        return f"{self.m}x{self.n}x{self.k}"


@dataclass(frozen=True, slots=True)
class Grid:
    """Which units to evaluate: every combination of the values, then those that are named.

    Attributes
    ----------
    tiles : tuple of (int, int, int)
        Sizes m, n, k.
    ab, acc, fused_length, fraction_bits, output_rounding, alignment : tuple
        The values of each axis, see `AXES`.
    units : tuple of Unit
        Units that exist, beside the invented ones: each with all its tiles that take the types.
    like : Unit or None
        A unit whose figures (clock, memory, time of an instruction) the invented ones have.

    Examples
    --------
    >>> grid = Grid.of(fraction_bits="16:18", fused_length="4:16")
    >>> len(grid), grid.fused_length
    (9, (4, 8, 16))
    """

    tiles: tuple[tuple[int, int, int], ...]
    ab: tuple[str, ...]
    acc: tuple[str, ...]
    fused_length: tuple[int, ...]
    fraction_bits: tuple[int, ...]
    output_rounding: tuple[str, ...]
    alignment: tuple[str, ...]
    units: tuple[Unit, ...] = ()
    like: Unit | None = None

    @classmethod
    def of(
        cls,
        *,
        tile: Given | None = None,
        units: Sequence[str | Path | Unit] = (),
        like: str | Path | Unit | None = None,
        **axes: Given,
    ) -> Grid:
        """Return the grid of the given axes; each other has one value, see `AXES`.

        Parameters
        ----------
        tile : str or sequence of str, optional
            Tiles such as ``"16x16x16,8x32x16"``, in place of m, n and k.
        units : sequence of str, Path or Unit
            Existing units to compare with, as `unit_of` takes them.
        like : str, Path or Unit, optional
            The unit whose figures the invented ones have.
        **axes
            Values of `AXES`: a number, several, or a text. In a text, values have commas between
            them; ``"4:64"`` is a range with its end, in which sizes (m, n, k, fused_length) double
            and bits go up by one; ``"4:64:12"`` goes up by 12.

        Raises
        ------
        InputError
            If a value cannot be, or there are more than a million combinations.
        """
        for name in axes:
            if name not in AXES:
                raise errors.unknown_name("axis", name, [*AXES, "tile", "units", "like"])
        values: dict[str, Any] = {
            name: axis.values(name, axes.get(name, axis.default)) for name, axis in AXES.items()
        }
        whose = units[0] if units else like
        if whose is not None and not axes.keys() & {"ab", "acc"}:
            ab, acc = usual_types(unit_of(whose).arch)
            # Invented units have fused steps, and so not all types of one that they are like.
            if units or (format_of(ab).is_float and acc in AXES["acc"].words):
                values |= {"ab": (ab,), "acc": (acc,)}
        sizes = tuple(itertools.product(*(values.pop(name) for name in _SIZES)))
        if tile is not None:
            doubled = [name for name in _SIZES if name in axes]
            if doubled:
                raise InputError(f"tile and {doubled[0]} are two ways to say one thing; use one")
            sizes = _tiles(tile)
        named = tuple(unit_of(one) for one in units)
        if named and tile is None and axes.keys() <= {"ab", "acc"}:
            # Units that exist are asked for, and nothing is said of others.
            sizes = ()
        grid = cls(sizes, **values, units=named, like=None if like is None else unit_of(like))
        if len(grid) > _MOST_POINTS:
            raise InputError(
                f"the grid has {len(grid):,} units, and {_MOST_POINTS:,} are the most; take fewer "
                f"values of an axis"
            )
        return grid

    def _axes(self, k: int) -> tuple[tuple[Any, ...], ...]:
        """Return the values of each axis but the tile's: no step sums more products than k."""
        lengths = tuple(dict.fromkeys(min(k, length) for length in self.fused_length))
        names = list(AXES)[len(_SIZES) :]
        return tuple(lengths if name == "fused_length" else getattr(self, name) for name in names)

    def __len__(self) -> int:
        """Return the number of distinct units."""
        tiles = Counter(k for _, _, k in self.tiles)
        invented = sum(count * math.prod(map(len, self._axes(k))) for k, count in tiles.items())
        return invented + len(self._named())

    def points(self) -> Iterator[Point]:
        """Yield every combination, the last axis fastest; then the units that are named.

        Of steps that are longer than a tile's k, one stands for all: that of k products.
        """
        for m, n, k in self.tiles:
            for ab, acc, length, bits, output, alignment in itertools.product(*self._axes(k)):
                yield Point(m, n, k, ab, acc, length, bits, output, alignment)
        yield from self._named()

    def _named(self) -> list[Point]:
        """Return the points of units that exist; one for each tile that takes the types."""
        found = []
        for unit, ab, acc in itertools.product(self.units, self.ab, self.acc):
            # A unit without tiles of these types has a point, too: its row says why it is empty.
            taken = [one for one in unit.shapes if one.supports(ab, acc)] or unit.shapes[:1]
            for one in taken:
                how = _how(unit, ab, acc)
                found.append(Point(one.m, one.n, one.k, ab, acc, *how, unit=unit.name))
        return found

    def unit_of(self, point: Point) -> Unit:
        """Return the unit of this grid that a point names."""
        return next(unit for unit in self.units if unit.name == point.unit)

    def as_json(self) -> dict[str, Any]:
        """Return the grid as a mapping for JSON: equal for equal grids alone."""
        found: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(self)}
        found["tiles"] = [f"{m}x{n}x{k}" for m, n, k in self.tiles]
        found["units"] = [unit_toml(unit) for unit in self.units]
        found["like"] = None if self.like is None else unit_toml(self.like)
        return {name: list(one) if isinstance(one, tuple) else one for name, one in found.items()}


def _how(unit: Unit, ab: str, acc: str) -> tuple[int | None, int | None, str, str]:
    """Return L, F and the roundings of a unit that exists, if it has fused steps of these types."""
    try:
        how = rule_of(unit.arch, ab, acc).how
    except errors.Unsupported:
        return None, None, "", ""
    if not isinstance(how, Fused):
        return None, None, "", ""
    return how.length, how.fraction_bits, how.output, how.alignment


def _tiles(given: Given) -> tuple[tuple[int, int, int], ...]:
    """Return the sizes of tiles that are listed."""
    texts = given.split(",") if isinstance(given, str) else given
    if not isinstance(texts, list | tuple) or not texts:
        raise InputError(f"tile must be tiles such as '16x16x16,8x32x16', got {errors.told(given)}")
    names: list[Any] = [one.strip() if isinstance(one, str) else one for one in texts]
    shapes = [shape_of(name) for name in names]
    return tuple(dict.fromkeys((shape.m, shape.n, shape.k) for shape in shapes))
