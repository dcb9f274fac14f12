"""The subject of a verdict: a unit, its tiles under test, and a pair of types."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

from tcusim.errors import Given, InputError, UnknownName, Unsupported
from tcusim.judge.correctness.validation import require_types
from tcusim.machine import (
    Arch,
    Instruction,
    Rule,
    Unit,
    arch_of,
    format_of,
    register_unit,
    rule_of,
    unit_of,
)
from tcusim.machine.likeness import like
from tcusim.machine.registry import registered_units, usual_types
from tcusim.machine.shapes import MmaShape, shape_of

# Names of a unit: its name or file, itself, an architecture, or a tile alone.
Named: TypeAlias = str | Path | Unit | Arch | MmaShape | tuple[int, int, int]

# The tile that is told of where a unit has several, and that of a unit that names none.
USUAL_TILE: Final = "16x16x16"

# How the text of a tile begins, whether or not it is one; no unit is called so.
_SIZES: Final = re.compile(r"m?\d+[xn]\d", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Subject:
    """A unit to judge.

    Attributes
    ----------
    name : str
        Its name in the verdict.
    unit : Unit
        Its arithmetic and figures. A tile alone has none: it computes exactly.
    tiles : tuple of MmaShape
        The tiles to try; others are compared with the first.
    ab, acc : str
        Element types of the operands and of the accumulator.
    left_out : str
        Which of the unit's tiles are not tried, and why; empty if all are.
    """

    name: str
    unit: Unit
    tiles: tuple[MmaShape, ...]
    ab: str
    acc: str
    left_out: str = ""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """How the tiles compute, in their order."""
        return tuple(self.rule_of(tile) for tile in self.tiles)

    @property
    def arch(self) -> str:
        """The name of its arithmetic."""
        return self.unit.arch.name

    def rule_of(self, tile: MmaShape) -> Rule:
        """Return the arithmetic of a tile."""
        return rule_of(self.unit.arch, self.ab, self.acc, tile.family(self.ab, self.acc))

    def instruction(self, tile: MmaShape) -> Instruction | None:
        """Return the known times of a tile's mma."""
        family = tile.family(self.ab, self.acc)
        return self.unit.instruction(tile.name, self.ab, self.acc, family)


def judged_types(named: Named, ab: str | None, acc: str | None) -> tuple[str, str]:
    """Return the types to judge a unit by: those that are asked for, f16 in f32, or its first.

    A tile alone takes every type. Types that the unit lacks are refused later, with the reason.
    """
    found = _meant(named)
    return usual_types(found.arch if isinstance(found, Unit) else arch_of("exact"), ab, acc)


def subject_of(
    named: Named,
    *,
    ab: str = "f16",
    acc: str = "f32",
    tile: str | tuple[int, int, int] | MmaShape | None = None,
    arch: str = "exact",
) -> Subject:
    """Return the subject that is named.

    Parameters
    ----------
    named : str, Path, Unit, Arch, MmaShape or tuple
        A unit, as `unit_of` takes it; or a tile, which computes as `arch`. A unit that is
        not known yet is registered.
    ab, acc : str
        Element types.
    tile : str, tuple or MmaShape, optional
        The only tile to try, one of the unit's; by default all that take these types.
    arch : str
        The arithmetic of a tile alone.

    Raises
    ------
    UnknownName
        If there is no such unit, architecture, tile or type.
    Unsupported
        If the unit does not take these types.
    InputError
        If a file is wrong, or the unit has no such tile.
    """
    found = _meant(named)
    if isinstance(found, MmaShape):
        alone = found
        if tile is not None:
            raise InputError(
                f"{alone.name} is a tile already, so ",
                *(Given("tile", tile), " is one too many. Leave out one."),
            )
        known = arch_of(arch)
        unit = Unit(known.name, alone.name, known, (alone,))
        tiles, left_out = _tiles_of(unit, ab, acc)
        name = alone.name if arch == "exact" else f"{alone.name} {arch}"
        made = Subject(name, unit, tiles, ab, acc, left_out)
    else:
        unit = _registered(found)
        if not unit.shapes:
            unit = replace(unit, shapes=(shape_of(tile or USUAL_TILE).taking(ab, acc),))
        elif tile is not None:
            only = unit.tile(shape_of(tile).name)
            times = tuple(one for one in unit.instructions if one.tile == only.name)
            unit = replace(unit, shapes=(only,), instructions=times)
        tiles, left_out = _tiles_of(unit, ab, acc)
        made = Subject(unit.name, unit, tiles, ab, acc, left_out)
    # It raises the architecture's refusal of types.
    for one in made.tiles:
        made.rule_of(one)
    return made


def lender_of(named: Named, ab: str, acc: str) -> Subject:
    """Return the subject that lends its figures: unlike `subject_of`, a unit of any types."""
    unit = _meant(named)
    if isinstance(unit, MmaShape):
        return subject_of(unit, ab=ab, acc=acc)
    return Subject(unit.name, unit, unit.shapes, ab, acc)


def placed_in(subject: Subject, machine: Subject, *, known_too: bool = False) -> Subject | None:
    """Return a unit with the figures of a machine where it lacks its own; None if it lacks none.

    A tile alone is a part of the machine. So is a unit of a file, as far as it does not say
    otherwise; one that comes with tcusim only if `known_too`, since its figures are facts that
    nobody knows. None, too, if no time of its mma follows from the machine's.
    """
    unit = subject.unit
    known = unit.figures() or unit.instructions
    if known and not known_too and unit.name not in {one.name for one in registered_units()}:
        return None
    placed = like(unit, machine.unit)
    found = replace(subject, unit=placed)
    times = map(found.instruction, subject.tiles)
    if placed == unit or not any(one and one.latency and one.interval for one in times):
        return None
    return found


def names_tile(text: str) -> bool:
    """Return whether a text is meant as a tile, not as a unit."""
    return _SIZES.match(text) is not None


def _meant(named: Named) -> MmaShape | Unit:
    """Return the unit, or the tile alone, that is named."""
    if isinstance(named, Path | Unit | Arch):
        return unit_of(named)
    if isinstance(named, str) and not names_tile(named):
        return unit_of(named)
    return shape_of(named)


def _registered(unit: Unit) -> Unit:
    """Return a unit whose arithmetic goes by its name from now on."""
    try:
        known = arch_of(unit.arch.name) == unit.arch
    except UnknownName:
        known = False
    return unit if known else register_unit(unit)


def _tiles_of(unit: Unit, ab: str, acc: str) -> tuple[tuple[MmaShape, ...], str]:
    """Return the tiles that take these types, the usual one first, and which do not."""
    format_of(ab)
    format_of(acc)
    if len(unit.shapes) == 1:
        require_types(unit.shapes[0], ab, acc)
    taken = [tile for tile in unit.shapes if tile.supports(ab, acc)]
    others = [tile.name for tile in unit.shapes if tile not in taken]
    if not taken:
        pairs = [f"{left} to {right}" for left, right in unit.arch.pairs]
        tiles = ", ".join(others)
        raise Unsupported(
            f"{unit.name}: no tile takes {ab} to {acc}, of {tiles}. Its arithmetic knows "
            f"{', '.join(pairs) or 'no types'}. Choose ab and acc"
        )
    taken.sort(key=lambda tile: tile.name != USUAL_TILE)
    left_out = f"{', '.join(others)}: not for {ab} to {acc}" if others else ""
    return tuple(taken), left_out
