"""The registries of architectures and units; their names share one namespace.

An architecture is found by its name, by a compute capability, or by the name of a GPU. The name of
a unit stands for its architecture. Installed packages can add both.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from tcusim.errors import (
    Given,
    InputError,
    UnknownName,
    Unsupported,
    require_names,
    unknown_name,
)
from tcusim.machine.arches import BUILT_IN
from tcusim.machine.formats import format_of
from tcusim.machine.rules import FAMILIES, Arch, Numerics, Rule
from tcusim.machine.units import Unit
from tcusim.plugins import OWN, Broken, Registry, items_of

__all__ = [
    "UNITS",
    "arch_of",
    "arches",
    "gallery",
    "library_rules",
    "own_arithmetic",
    "own_unit",
    "own_units",
    "read_own_with",
    "register_arch",
    "register_unit",
    "registered_units",
    "rule_for",
    "rule_of",
    "scaled_rule",
    "scaled_rule_of",
    "spelled",
    "usual_types",
]


def register_arch(arch: Arch) -> Arch:
    """Add an architecture, so that its names can be given as `arch`.

    Parameters
    ----------
    arch : Arch
        Its names, and the arithmetic of each pair of types.

    Returns
    -------
    Arch
        The same.

    Raises
    ------
    InputError
        If one of its names is taken.

    Examples
    --------
    >>> from tcusim.machine import Arch, Fused, Rule
    >>> how = Fused(length=2, fraction_bits=24, output="rne")
    >>> rule = Rule("f16", "f32", how, source="a data sheet", evidence="none")
    >>> pair = Arch("pair", "products in pairs", (), (), (rule,), source="a data sheet")
    >>> pair.rows[0].how.length
    2
    """
    (checked,) = _members((arch,))
    return _ARCHES.add(checked, "register_arch")


def register_unit(unit: Unit) -> Unit:
    """Add a unit, so that its name can be given as a unit and as `arch`.

    It takes the place of one that was registered under its name before: a unit may be changed, or
    its file edited and read again.

    Parameters
    ----------
    unit : Unit
        Made by hand, or by `read_unit`.

    Returns
    -------
    Unit
        The same.

    Raises
    ------
    InputError
        If a unit of tcusim or of a package has the name, or an architecture of other arithmetic.

    Examples
    --------
    >>> import tcusim
    >>> from tcusim.machine import Arch, Fused, Rule, Unit
    >>> how = Fused(length=2, fraction_bits=10)
    >>> rule = Rule("f16", "f32", how, source="invented", evidence="invented")
    >>> pairs = Arch("pairs", "products in pairs", (), (), (rule,), source="invented")
    >>> unit = register_unit(Unit("pairs", "an idea", pairs, (tcusim.shape_of("16x16x16"),)))
    >>> ones = [[1, 2**-11]]
    >>> float(tcusim.mma(ones, [[1], [1]], arch="pairs")[0, 0])
    1.0
    """
    (checked,) = _units((unit,))
    return UNITS.replace(checked, "register_unit")


def arch_of(name: str) -> Arch:
    """Return the architecture of this name: ``"hopper"``, ``"sm_90"`` or ``"h200"``, in any case.

    The name of a registered unit stands for the unit's arithmetic.

    Raises
    ------
    UnknownName
        If there is no such architecture; the message has the nearest name and the valid names.
    """
    known = _ARCHES.known(name)
    if known is not None:
        return known
    found = _ARCHES.find(name)
    if found is None:
        unit = own_unit(name) or UNITS.find(name)
        if isinstance(unit, Unit):
            return unit.arch
        found = unit
    if isinstance(found, Arch):
        return found
    if isinstance(found, Broken):
        raise InputError(found.reason)
    raise _unknown(name)


def _unknown(name: object) -> UnknownName:
    """Return the error for an unknown name; a unit's file is read with another call."""
    hint = ""
    if isinstance(name, str) and name.endswith(".toml"):
        hint = (
            f" For the unit of a file: tcusim.register_unit(tcusim.read_unit({name!r})), then "
            f"its name; of the command: --unit {name}."
        )
    elif names := UNITS.names():
        hint = f" Of units: {', '.join(names)}."
    return _ARCHES.unknown(name, hint)


def arches() -> tuple[Arch, ...]:
    """Return every architecture: the registered ones and, of registered units, their own."""
    found = [*_ARCHES.all()]
    for unit in UNITS.all():
        # Compared, not hashed: the hash of an architecture is that of all its rules.
        if unit.arch not in found:
            found.append(unit.arch)
    return tuple(found)


def registered_units() -> tuple[Unit, ...]:
    """Return the units that were registered in this process; other processes must be told of them.

    The units of tcusim are not among them.
    """
    return UNITS.all()


def own_arithmetic(unit: Unit) -> bool:
    """Return whether a unit computes as no architecture of tcusim does."""
    return unit.arch not in BUILT_IN


def rule_for(arch_name: str, ab: str, acc: str, family: str = "") -> Rule:
    """Return the rule by which an architecture multiplies `ab` tiles and accumulates in `acc`.

    Of types that have rules with block scales only, it is the first of these, with scales of 1.

    `family` names the instructions ("wmma", "mma.sync", "wgmma", "tcgen05") where an
    architecture's instructions differ; the default is the first family that takes these types. Two
    8-bit floats are written as in PTX, ``"e5m2.e4m3"``.

    Raises
    ------
    UnknownName
        If the architecture or a type is not known.
    Unsupported
        If the architecture does not support this pair, or its arithmetic is unknown.
    """
    return rule_of(arch_of(arch_name), ab, acc, family)


def rule_of(arch: Arch, ab: str, acc: str, family: str = "") -> Rule:
    """Return the rule of an architecture that need not be registered; as `rule_for` otherwise."""
    require_names(family=family)
    if family and family not in FAMILIES:
        raise unknown_name("family", family, FAMILIES)
    left, _, right = ab.partition(".") if isinstance(ab, str) else (ab, "", "")
    if right and right != left:
        return _mixed(arch, left, right, acc, family)
    ab = left
    fmt = format_of(ab)
    format_of(acc)
    rows = [row for row in arch.rows if row.ab == ab and row.acc == acc]
    rows = rows or [row for row in arch.scaled if row.ab == ab and row.acc == acc]
    if not rows and arch.any_float and fmt.is_float and format_of("f32").holds(fmt):
        rows = [replace(row, ab=ab) for row in arch.rows if (row.ab, row.acc) == ("f16", acc)]
    own = [row for row in rows if row.family == family]
    others = [row for row in rows if not row.family or not family]
    if own or others:
        return (own + others)[0]
    why = _why(arch, ab, acc, family)
    named = f"{arch.name} ({arch.title}), ", Given("ab", ab), ", ", Given("acc", acc), ": "
    raise Unsupported(*named, *why)


def scaled_rule(arch_name: str, ab: str, acc: str, block: int, scale: str, kind: str = "") -> Rule:
    """Return the rule of products with block scales; `ab` as for `rule_for`.

    block: products that share a scale. scale: its type, ``"ue8m0"`` or ``"ue4m3"``. kind: the
    kind of instruction, where several take these: ``"mxf4nvf4"`` or ``"mxf8f6f4"``.

    Raises
    ------
    UnknownName
        If the architecture or a type is not known.
    Unsupported
        If the architecture has no such instruction, or its arithmetic is unknown.
    """
    named = ".".join(filter(None, (kind, f"block{block}.{scale}")))
    return scaled_rule_of(arch_of(arch_name), ab, acc, named)


def scaled_rule_of(arch: Arch, ab: str, acc: str, named: str) -> Rule:
    """Return the rule with block scales of an architecture that need not be registered.

    named: the scales, as of `Rule.scale`, with the kind of instruction or without it.
    """
    left, _, right = ab.partition(".")
    for row in arch.scaled:
        if (row.ab, row.acc) == (left, acc) and f".{row.scale}".endswith(f".{named}"):
            if not right or right == left:
                return row
            alike = (one.ab for one in arch.scaled if (one.how, one.scale) == (row.how, row.scale))
            if right in alike:
                return replace(row, b=right)
    has = dict.fromkeys(f"{row.ab} -> {row.acc} with {row.scale}" for row in arch.scaled)
    raise Unsupported(
        f"{arch.name} ({arch.title}) has no products of {ab} -> {acc} with {named}; it has "
        f"{', '.join(has) or 'none with block scales'}"
    )


def usual_types(arch: Arch, ab: str | None = None, acc: str | None = None) -> tuple[str, str]:
    """Return default types for missing ones: f16 in f32, or an arch's first.

    Unsupported types, and types with their own refusal, pass through to be rejected later.

    Examples
    --------
    >>> usual_types(arch_of("hopper")), usual_types(arch_of("hopper"), "s8")
    (('f16', 'f32'), ('s8', 's32'))
    """
    require_names(ab=ab, acc=acc)
    usual = ab or "f16", acc or _WIDE.get(ab or "", "f32")
    refused = any(one.ab in ("", usual[0]) and one.acc in ("", usual[1]) for one in arch.refusals)
    fitting = [one for one in arch.pairs if ab in (None, one[0]) and acc in (None, one[1])]
    return usual if usual in arch.pairs or refused or not fitting else fitting[0]


# Accumulator types other than f32, by operand type.
_WIDE: Final = {"f64": "f64", "s8": "s32", "u8": "s32"}


def _mixed(arch: Arch, ab: str, b: str, acc: str, family: str) -> Rule:
    """Return the rule of operands of two types; each of the types must have the same rule."""
    left, right = (rule_of(arch, one, acc, family) for one in (ab, b))
    if format_of(ab).itemsize != 1 or format_of(b).itemsize != 1 or left.how != right.how:
        raise Unsupported(
            *(f"{arch.name} ({arch.title}), ", Given("ab", f"{ab}.{b}"), ": tensor cores take "),
            "operands of one type, or 8-bit floats of both, such as 'e5m2.e4m3'",
        )
    return replace(left, b=b)


def library_rules(arch: Arch, ab: str, acc: str) -> tuple[Rule, ...]:
    """Return the rules of libraries' kernels for these types, the rule of large products first.

    Families that compute alike are represented by the first of them.
    """
    families = (arch.library, "", *FAMILIES)
    first: dict[Numerics, Rule] = {}
    for family in families:
        try:
            rule = rule_of(arch, ab, acc, family)
        except Unsupported:
            if family:
                continue
            raise
        first.setdefault(rule.how, rule)
    return tuple(first.values())


def _why(arch: Arch, ab: str, acc: str, family: str) -> tuple[str | Given, ...]:
    """Return why an architecture has no rule for a pair, and its pairs."""
    for refusal in arch.refusals:
        if refusal.ab in ("", ab) and refusal.acc in ("", acc):
            remedy = ("; use ", Given("arch", refusal.instead)) if refusal.instead else ()
            return refusal.why, *remedy
    accumulators = dict.fromkeys(other for one, other in arch.pairs if one == ab)
    if acc in accumulators:
        families = dict.fromkeys(row.family for row in arch.rows if (row.ab, row.acc) == (ab, acc))
        return (f"{family} does not take {ab}; {' and '.join(families)} do",)
    if accumulators:
        return (f"{ab} accumulates in {' or '.join(accumulators)} here",)
    inputs = dict.fromkeys(one for one, _ in arch.pairs)
    return (f"no rule for {ab} operands; this architecture takes {', '.join(inputs)}",)


def _members(value: object) -> tuple[Arch, ...]:
    return items_of(value, Arch, "an architecture must be an Arch")


def _units(value: object) -> tuple[Unit, ...]:
    several = items_of(value, Unit, "a unit must be a Unit")
    for unit in several:
        _refuse_another_arithmetic(unit)
    return several


@functools.cache
def own_units() -> dict[str, Path]:
    """Return the files of the units that come with tcusim, by name as it is spelled in a lookup."""
    folders = (Path(__file__).parent / folder for folder in ("figures", "gallery"))
    files = (path for folder in folders for path in sorted(folder.glob("*.toml")))
    return {spelled(path.stem): path for path in files}


def gallery() -> tuple[str, ...]:
    """Return the names of the public units that come with tcusim, with arithmetic of their own."""
    return tuple(path.stem for path in own_units().values() if path.parent.name == "gallery")


# Reads the file of a unit that comes with tcusim: `known_units` sets it.
_READERS: Final[list[Callable[[str], Unit]]] = []


def read_own_with(reader: Callable[[str], Unit]) -> None:
    """Set the function that returns a unit of `own_units` by its key."""
    _READERS[:] = [reader]


def own_unit(name: object) -> Unit | None:
    """Return the unit of this name that comes with tcusim, if it has arithmetic of its own."""
    key = spelled(name) if isinstance(name, str) else ""
    if not _READERS or own_units().get(key, Path()).parent.name != "gallery":
        return None
    return _READERS[0](key)


def _refuse_another_arithmetic(unit: Unit) -> None:
    """Refuse a unit if its name, or its architecture's name, already has another meaning."""
    if spelled(unit.name) in own_units():
        raise InputError(f"there is already a unit {unit.name!r}, from {OWN}. Choose another name.")
    for name in dict.fromkeys((unit.name, unit.arch.name)):
        known = _ARCHES.find(name)
        if isinstance(known, Arch) and known != unit.arch:
            raise InputError(
                f"the unit {unit.name!r}: {name!r} names the architecture {known.title}, which "
                f"computes otherwise. Give the unit another name."
            )
    if unit.arch.name != unit.name and _ARCHES.find(unit.arch.name) is None:
        raise InputError(
            f"the unit {unit.name!r} has an architecture of its own, {unit.arch.name!r}. Call "
            f"both by one name, or register the architecture first."
        )


def spelled(name: str) -> str:
    """Return a name as lookups count it.

    That is without common additions: "NVIDIA GeForce RTX 4090", "H100 PCIe".
    """
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]
    key = "".join([word for word in words if not _ADDED.fullmatch(word)] or words)
    return f"rtx{key}" if re.fullmatch(r"\d{4}", key) else key


_ADDED: Final = re.compile(
    r"nvidia|geforce|tesla|quadro|generation|laptop|gpu|ti|super|pcie|sxm\d?|nvl|hbm\de?|\d+gb"
)
_ARCHES: Final = Registry(
    "architecture", "tcusim.arches", lambda arch: arch.names, _members, spelled=spelled
)
UNITS: Final = Registry("unit", "tcusim.units", lambda unit: (unit.name,), _units, spelled=spelled)
for _arch in BUILT_IN:
    _ARCHES.add(_arch, OWN)
