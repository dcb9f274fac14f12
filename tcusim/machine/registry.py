"""The registry of architectures: by name, by compute capability, by a GPU, or from a package."""

from __future__ import annotations

import re
from typing import Any, Final

from tcusim.errors import InputError, Unsupported
from tcusim.machine.arches import BUILT_IN
from tcusim.machine.formats import format_of
from tcusim.machine.rules import Arch, Rule
from tcusim.plugins import OWN, Registry

__all__ = ["arch_of", "arches", "register_arch", "rule_for"]


def register_arch(arch: Arch) -> Arch:
    """Add an architecture, so that its names can be given as `arch`; return it.

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
    (checked,) = _members(arch)
    return _ARCHES.add(checked, "register_arch")


def arch_of(name: str) -> Arch:
    """Return the architecture of this name: ``"hopper"``, ``"sm_90"`` or ``"h200"``, in any case.

    Raises
    ------
    UnknownName
        If there is none, with the nearest name and the valid ones.
    """
    return _ARCHES.get(name)


def arches() -> tuple[Arch, ...]:
    """Return every registered architecture, those of installed packages included."""
    return _ARCHES.all()


def rule_for(arch_name: str, ab: str, acc: str, family: str = "") -> Rule:
    """Return the rule by which an architecture multiplies `ab` tiles and accumulates in `acc`.

    `family` names the instructions ("wmma", "mma.sync", "wgmma", "tcgen05") where those of one
    architecture differ; without it, it is the first of them that takes these types.

    Raises
    ------
    UnknownName
        If the architecture or a type is not known.
    Unsupported
        If the architecture does not do this pair, or nobody knows how it does.
    """
    arch = arch_of(arch_name)
    format_of(ab)
    format_of(acc)
    rows = [row for row in arch.rows if row.ab == ab and row.acc == acc]
    own = [row for row in rows if row.family == family]
    others = [row for row in rows if not row.family or not family]
    if own or others:
        return (own + others)[0]
    why = _why(arch, ab, acc, family)
    raise Unsupported(f"{arch.name} ({arch.title}), ab={ab!r}, acc={acc!r}: {why}")


def _why(arch: Arch, ab: str, acc: str, family: str) -> str:
    """Say why an architecture has no rule for a pair, and what it has instead."""
    for refusal in arch.refusals:
        if refusal.ab == ab and refusal.acc in ("", acc):
            return refusal.why
    accumulators = dict.fromkeys(row.acc for row in arch.rows if row.ab == ab)
    if acc in accumulators:
        families = dict.fromkeys(row.family for row in arch.rows if (row.ab, row.acc) == (ab, acc))
        return f"{family} does not take {ab}; {' and '.join(families)} do"
    if accumulators:
        return f"{ab} accumulates in {' or '.join(accumulators)} here"
    inputs = dict.fromkeys(row.ab for row in arch.rows)
    return f"no rule for {ab} operands; this architecture takes {', '.join(inputs)}"


def _members(value: Any) -> tuple[Arch, ...]:
    """Return what an entry point names, if it is an `Arch`."""
    if not isinstance(value, Arch):
        raise InputError(f"an architecture must be an Arch, got {value!r}")
    return (value,)


def _spelled(name: str) -> str:
    """Return a name without what drivers and people add: "NVIDIA GeForce RTX 4090", "H100 PCIe"."""
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]
    key = "".join([word for word in words if not _ADDED.fullmatch(word)] or words)
    return f"rtx{key}" if re.fullmatch(r"\d{4}", key) else key


_ADDED: Final = re.compile(
    r"nvidia|geforce|tesla|quadro|generation|laptop|gpu|ti|super|pcie|sxm\d?|nvl|hbm\de?|\d+gb"
)
_ARCHES: Final = Registry(
    "architecture", "tcusim.arches", lambda arch: arch.names, _members, spelled=_spelled
)
for _arch in BUILT_IN:
    _ARCHES.add(_arch, OWN)
