"""The registry of units: by name, by compute capability, by a GPU's name, or from a package."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Final

from tcusim.errors import InputError, Unsupported, unknown_name
from tcusim.machine.arches import BUILT_IN
from tcusim.machine.formats import format_of
from tcusim.machine.rules import Rule, Unit

__all__ = ["ENTRY_POINT_GROUP", "register_unit", "rule_for", "unit_of", "units"]

ENTRY_POINT_GROUP: Final = "tcusim.units"

_units: dict[str, Unit] = {}
_names: dict[str, Unit] = {}
_entry_points_read: set[str] = set()


def register_unit(unit: Unit) -> Unit:
    """Add a unit, so that its names can be given as `arch`; return it.

    Raises
    ------
    InputError
        If one of its names is taken.

    Examples
    --------
    >>> from tcusim.machine import Fused, Rule, Unit
    >>> how = Fused(length=2, fraction_bits=24, output="rne")
    >>> rule = Rule("f16", "f32", how, source="a data sheet", evidence="none")
    >>> pair = Unit("pair", "A unit of pairs", (), (), (rule,), source="a data sheet")
    >>> pair.rows[0].how.length
    2
    """
    for name in unit.names:
        if name in _names:
            raise InputError(
                f"unit {unit.name!r}: the name {name!r} is already that of "
                f"{_names[name].name!r}; choose another name"
            )
    _units[unit.name] = unit
    _names.update(dict.fromkeys(unit.names, unit))
    return unit


def unit_of(name: str) -> Unit:
    """Return the unit of this name: ``"hopper"``, ``"sm_90"`` or ``"h200"``, in any case.

    Raises
    ------
    UnknownName
        If there is none, with the nearest name and the valid ones.
    """
    key = str(name).lower()
    if key not in _names:
        _read_entry_points()
    if key not in _names:
        raise unknown_name("architecture", name, _names)
    return _names[key]


def units() -> tuple[Unit, ...]:
    """Return every registered unit, those of installed packages included."""
    _read_entry_points()
    return tuple(_units.values())


def rule_for(unit_name: str, ab: str, acc: str, family: str = "") -> Rule:
    """Return the rule by which a unit multiplies `ab` tiles and accumulates in `acc`.

    `family` names the instructions ("wmma", "mma.sync") where those of one unit differ.

    Raises
    ------
    UnknownName
        If the unit or a type is not known.
    Unsupported
        If the unit does not do this pair, or nobody knows how it does.
    """
    unit = unit_of(unit_name)
    format_of(ab)
    format_of(acc)
    for wanted in (family, ""):
        for row in unit.rows:
            if (row.ab, row.acc, row.family) == (ab, acc, wanted):
                return row
    raise Unsupported(f"{unit.name} ({unit.title}), ab={ab!r}, acc={acc!r}: {_why(unit, ab, acc)}")


def _why(unit: Unit, ab: str, acc: str) -> str:
    """Say why a unit has no rule for a pair, and what it has instead."""
    for refusal in unit.refusals:
        if refusal.ab == ab and refusal.acc in ("", acc):
            return refusal.why
    accumulators = [row.acc for row in unit.rows if row.ab == ab]
    if accumulators:
        return f"{ab} accumulates in {' or '.join(accumulators)} here"
    inputs = dict.fromkeys(row.ab for row in unit.rows)
    return f"no rule for {ab} operands; this unit takes {', '.join(inputs)}"


def _read_entry_points() -> None:
    """Register the units that installed packages declare; each is loaded once."""
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        if entry.value in _entry_points_read:
            continue
        try:
            unit = entry.load()
        except (ImportError, AttributeError) as error:
            raise InputError(
                f"entry point {entry.name!r} of {ENTRY_POINT_GROUP} cannot be loaded from "
                f"{entry.value!r}: {error}; reinstall or remove the package that declares it"
            ) from error
        if not isinstance(unit, Unit):
            raise InputError(
                f"entry point {entry.name!r} of {ENTRY_POINT_GROUP} must name a Unit, "
                f"{entry.value!r} is a {type(unit).__name__}"
            )
        # A package may have registered its unit while it was imported.
        if _units.get(unit.name) is not unit:
            register_unit(unit)
        _entry_points_read.add(entry.value)


def _register_built_in() -> None:
    """Register the units that come with tcusim."""
    for unit in BUILT_IN:
        register_unit(unit)


_register_built_in()
