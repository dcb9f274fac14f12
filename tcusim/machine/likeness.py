"""A unit in the machine of another: unknown figures are borrowed from the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tcusim.machine.shapes import MmaShape
from tcusim.machine.units import ORDERED, Figure, Instruction, Unit

# How the source of a figure begins that is another unit's.
_AS: Final = "as "
# The tile that speaks for a unit, if it has it.
_USUAL_TILE: Final = "16x16x16"


def like(unit: Unit, other: Unit) -> Unit:
    """Return a unit with the figures of another for those that it lacks; its own stay.

    The unit's mma has the other's rate of multiply-adds a second, but issues at most once a cycle.
    If its issue interval is longer than the other's, its latency is longer by the difference. A
    borrowed figure that contradicts one of the unit's own is changed as little as possible: a
    cache, for instance, is no slower than the unit's memory.
    """
    own = unit.figures()
    lent = {
        name: Figure(one.value, f"{_AS}{other.name}", "assumed")
        for name, one in other.figures().items()
        if name not in own
    }
    found: dict[str, Any] = {**lent, **own}
    for _ in ORDERED:
        for less, more in ORDERED:
            _order(found, lent, less, more)
    _whole_warps(found, lent, other)
    times = [_time(unit, other, tile, *pair) for tile in unit.shapes for pair in unit.arch.pairs]
    made = {one.key: one for one in (*unit.instructions, *times) if one is not None}
    return replace(unit, instructions=tuple(made.values()), **found)


def borrowed(unit: Unit) -> tuple[str, ...]:
    """Return the names of a unit's borrowed figures, figures of instructions last."""
    found = [name for name, one in unit.figures().items() if one.source.startswith(_AS)]
    for one in unit.instructions:
        found += [
            f"{name} of {one.tile}"
            for name in ("latency", "interval")
            if (figure := getattr(one, name)) is not None and figure.source.startswith(_AS)
        ]
    return tuple(dict.fromkeys(found))


def _order(found: dict[str, Any], lent: Mapping[str, Figure], less: str, more: str) -> None:
    """Move a borrowed figure to where it does not contradict another."""
    if less not in found or more not in found or found[less].value <= found[more].value:
        return
    moved, kept = (less, more) if less in lent else (more, less)
    if moved in lent:
        found[moved] = replace(found[moved], value=found[kept].value)


def _whole_warps(found: dict[str, Any], lent: Mapping[str, Figure], other: Unit) -> None:
    """Let warps have as many threads as the other's, where one of the two numbers is borrowed."""
    names = "threads_per_core", "warps_per_core"
    threads, warps = (getattr(other, name) for name in names)
    if threads is None or warps is None or len(set(names) & lent.keys()) != 1:
        return
    lanes = threads.value / warps.value
    if names[0] in lent:
        found[names[0]] = replace(found[names[0]], value=found[names[1]].value * lanes)
    elif found[names[0]].value % lanes == 0:
        found[names[1]] = replace(found[names[1]], value=found[names[0]].value / lanes)


def _time(unit: Unit, other: Unit, tile: MmaShape, ab: str, acc: str) -> Instruction | None:
    """Return the time of a tile, completed by the other's for these types; None if unknown."""
    family = tile.family(ab, acc)
    own = unit.instruction(tile.name, ab, acc, family)
    if own is not None and own.latency is not None and own.interval is not None:
        return own
    volumes = {one.name: one.m * one.n * one.k for one in other.shapes}
    known = [
        one
        for one in other.instructions
        if (one.ab, one.acc) == (ab, acc) and one.interval is not None
    ]
    # One that has both, and of those the usual tile, speaks for the machine.
    known.sort(key=lambda one: (one.latency is None, one.tile != _USUAL_TILE))
    if not known or known[0].interval is None:
        return own
    first, issue = known[0], known[0].interval.value
    source = f"{_AS}many multiply-adds a cycle as {first.tile} of {other.name}"
    interval = None if own is None else own.interval
    if interval is None:
        share = tile.m * tile.n * tile.k / volumes[first.tile]
        interval = Figure(max(1.0, issue * share), source, "assumed")
        if own is not None and own.latency is not None and own.latency.value < interval.value:
            interval = replace(interval, value=own.latency.value)
    latency = None if own is None else own.latency
    if latency is None and first.latency is not None:
        longest = first.latency.value + max(0.0, interval.value - issue)
        latency = Figure(longest, source, "assumed")
    return Instruction(tile.name, ab, acc, "" if own is None else own.family, latency, interval)
