"""Units by name, by a GPU, by an architecture, from a file, or invented for a question.

The units that come with tcusim are files like a user's, in the folders `figures` and `gallery`
beside this module.
"""

from __future__ import annotations

import functools
from pathlib import Path

from tcusim.errors import InputError, UnknownName, told
from tcusim.machine.formats import Rounding
from tcusim.machine.registry import UNITS, arch_of, own_units, read_own_with, register_unit, spelled
from tcusim.machine.rules import Arch, Fused, Integer, Rule
from tcusim.machine.shapes import MmaShape, tiles_of
from tcusim.machine.unit_file import read_unit
from tcusim.machine.units import Figure, Unit, limits_of
from tcusim.plugins import Broken


def unit_of(unit: str | Path | Unit | Arch) -> Unit:
    """Return the unit of a name, of a TOML file, or of an architecture.

    Parameters
    ----------
    unit : str, Path, Unit or Arch
        The name of a unit or of a GPU; the path of a file, which ends in ``.toml``; or an argument
        of `arch_of`, for a unit without figures. A Unit is returned as it is. The
        unit of a file is registered, so that its name can be given as `arch`; when the file is read
        again, it takes the place of the former.

    Returns
    -------
    Unit
        With its arithmetic, its tiles, and the figures that are known.

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
    text = str(unit) if isinstance(unit, str | Path) else told(unit)
    if isinstance(unit, Path) or text.lower().endswith(".toml"):
        return register_unit(read_unit(text))
    if (key := spelled(text)) in own_units():
        return _own(key)
    found = UNITS.find(unit)
    if isinstance(found, Unit):
        return found
    if isinstance(found, Broken):
        raise InputError(found.reason)
    try:
        arch = arch_of(text)
    except UnknownName as error:
        unknown = str(error).replace("architecture", "unit or architecture", 1)
        names = ", ".join(one.name for one in units())
        raise UnknownName(f"{unknown} Units: {names}.") from None
    return _without_figures(arch, text.lower())


def units() -> tuple[Unit, ...]:
    """Return every unit: tcusim's, then those of other packages, then the user's."""
    return (*(_own(key) for key in own_units()), *UNITS.all())


@functools.cache
def _own(key: str) -> Unit:
    """Return a unit that comes with tcusim; its file is read once."""
    return read_unit(own_units()[key])


read_own_with(_own)


def fused_unit(
    length: int,
    fraction_bits: int,
    output: Rounding = "rz",
    *,
    alignment: Rounding = "rz",
    tiles: tuple[MmaShape, ...] = (),
) -> Unit:
    """Return an invented unit of one fused step, for a quick question; it is not registered.

    Parameters
    ----------
    length, fraction_bits, output, alignment
        As in `Fused`: products in one step, bits kept below the largest exponent, rounding of the
        sum and of the terms.
    tiles : tuple of MmaShape
        The tiles that it takes.

    Returns
    -------
    Unit
        For f16, bf16, tf32 and 8-bit floats, each with every accumulator that they have, and
        integers.

    Examples
    --------
    >>> fused_unit(8, 20).name
    'fused-8-20-rz'
    """
    how = Fused(length, fraction_bits, output=output, alignment=alignment)
    name = f"fused-{length}-{fraction_bits}-{output}" + "-rne" * (alignment == "rne")
    pairs = [(ab, "f32") for ab in ("f16", "bf16", "tf32", "e4m3", "e5m2")]
    pairs += [(ab, "f16") for ab in ("f16", "e4m3", "e5m2")]
    rows = [Rule(ab, acc, how, "invented", "assumed") for ab, acc in pairs]
    rows += [Rule(ab, "s32", Integer(), "invented", "assumed") for ab in ("s8", "u8")]
    title = f"{length} products a step, {fraction_bits} fraction bits, {output}"
    title += ", terms rne" * (alignment == "rne")
    arch = Arch(name, title, (), (), tuple(rows), "invented", any_float=True)
    return Unit(name, title, arch, tiles)


def _without_figures(arch: Arch, name: str) -> Unit:
    """Return the unit of an architecture: its tiles, and the limits of its multiprocessors."""
    tiles = tiles_of(arch.sm, set(arch.pairs))
    limits = limits_of(arch, name)
    if not limits and arch.shared_kb is not None:
        shared = Figure(1024 * arch.shared_kb, arch.source, "documented")
        limits = {"shared_bytes_per_block": shared}
    return Unit(name, arch.title, arch, tiles, (), "", "", **limits)
