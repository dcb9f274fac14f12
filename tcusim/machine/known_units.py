"""Units by name, by a GPU, by an architecture, or of a file."""

from __future__ import annotations

from pathlib import Path

from tcusim.errors import InputError, UnknownName
from tcusim.machine.registry import UNITS, arch_of
from tcusim.machine.rules import Arch
from tcusim.machine.shapes import shapes
from tcusim.machine.units import Figure, Unit
from tcusim.plugins import Broken

__all__ = ["unit_of", "units"]


def unit_of(unit: str | Path | Unit | Arch) -> Unit:
    """Return the unit of a name, of a TOML file, or of an architecture.

    Parameters
    ----------
    unit : str, Path, Unit or Arch
        The name of a unit or of a GPU; the path of a file, which ends in ``.toml``; or what
        `arch_of` takes, which is then a unit without figures. A Unit is returned as it is.

    Raises
    ------
    UnknownName
        If there is no such unit and no such architecture.
    InputError
        If the file cannot be read, or says something impossible.

    Examples
    --------
    >>> unit_of("hopper").arch.name, unit_of("hopper").clock
    ('hopper', None)
    """
    if isinstance(unit, Unit):
        return unit
    if isinstance(unit, Arch):
        return _without_figures(unit, unit.name)
    found = UNITS.find(unit)
    if isinstance(found, Unit):
        return found
    if isinstance(found, Broken):
        raise InputError(found.reason)
    try:
        arch = arch_of(str(unit))
    except UnknownName as error:
        raise UnknownName(str(error).replace("architecture", "unit or architecture", 1)) from None
    return _without_figures(arch, str(unit).lower())


def units() -> tuple[Unit, ...]:
    """Return every unit: those of tcusim, then other packages' and the user's own."""
    return UNITS.all()


def _without_figures(arch: Arch, name: str) -> Unit:
    """Return the unit of an architecture: its tiles, and what a block has of shared memory."""
    pairs = {(rule.ab, rule.acc) for rule in arch.rows}
    least = min(arch.sm, default=0)
    tiles = tuple(
        shape
        for shape in shapes()
        if any(row.min_sm <= least and (row.ab, row.acc) in pairs for row in shape.operands)
    )
    shared = None
    if arch.shared_kb is not None:
        shared = Figure(1024 * arch.shared_kb, arch.source, "documented")
    return Unit(name, arch.title, arch, tiles, shared_bytes_per_block=shared)
