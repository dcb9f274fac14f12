"""Contradictory and useless parts of a unit: findings with names.

A figure alone that cannot be is refused when the unit is made. Here are those that are possible
each, but not together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from tcusim.judge.verdict.subjects import Subject
from tcusim.machine import Fused, format_of
from tcusim.machine.shapes import MmaShape

# The gravity of a finding: no machine can be so, one can but computes otherwise, or is useless, or
# a part of it is.
IMPOSSIBLE: Final = "impossible"
WRONG: Final = "wrong"
USELESS: Final = "useless"
WASTE: Final = "waste"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a unit that its designer should know.

    Attributes
    ----------
    name : str
        The check, such as ``"terms_beyond_tile"``. Of a claim that a model contradicts: ``"tile"``,
        ``"bits"``, or a parameter of the arithmetic, such as ``"fraction_bits"``.
    gravity : {"impossible", "wrong", "useless", "waste"}
        Whether no machine can be so, its model computes otherwise, none can use it, or some of it
        is of no use.
    text : str
        The finding, with its numbers, as a sentence.
    """

    name: str
    gravity: str
    text: str

    @property
    def grave(self) -> bool:
        """Whether it is more than waste."""
        return self.gravity != WASTE

    def __str__(self) -> str:
        """Return it in a line, in capitals if it is grave."""
        gravity = self.gravity.upper() if self.grave else self.gravity
        return f"{gravity}: {self.text} [{self.name}]"


# Returns the text of a finding on a tile of a unit; empty if there is none.
_Check: TypeAlias = Callable[[Subject, MmaShape], str]


def findings_of(subject: Subject) -> tuple[Finding, ...]:
    """Return the findings of the checks in order, each text once."""
    every = (
        Finding(name, gravity, check(subject, tile))
        for name, (gravity, check) in CHECKS.items()
        for tile in subject.tiles
    )
    return tuple(dict.fromkeys(one for one in every if one.text))


def _terms_beyond_tile(subject: Subject, tile: MmaShape) -> str:
    """Find steps of more products than a tile has k."""
    how = subject.rule_of(tile).how
    if not isinstance(how, Fused) or how.length <= tile.k:
        return ""
    return (
        f"a step sums up to {how.length} products, and the tile {tile.name} has k = {tile.k}: "
        f"{how.length - tile.k} of its inputs are never used"
    )


def _floor_above_one(subject: Subject, tile: MmaShape) -> str:
    """Find steps that are aligned so high that 1 is cut to 0."""
    how = subject.rule_of(tile).how
    if not isinstance(how, Fused) or (how.exponent_floor or 0) <= how.fraction_bits:
        return ""
    return (
        f"exponent_floor = {how.exponent_floor} with {how.fraction_bits} fraction bits cuts 1 to "
        f"0, so that no sum of numbers around 1 is right, by any algorithm"
    )


def _bits_never_set(subject: Subject, tile: MmaShape) -> str:
    """Find results of more bits than the sum behind them keeps."""
    how, acc = subject.rule_of(tile).how, format_of(subject.acc)
    if not isinstance(how, Fused) or not acc.is_float:
        return ""
    written = how.output_fraction_bits or acc.fraction_bits
    never = written - how.fraction_bits
    if never <= 0:
        return ""
    last = "the last one holds" if never == 1 else f"the last {never} hold"
    return (
        f"{subject.acc} has {written} fraction bits, and a sum keeps {how.fraction_bits} below its "
        f"largest term: {last} nothing where c is the largest"
    )


def _no_room_for_fragments(subject: Subject, tile: MmaShape) -> str:
    """Find tiles whose fragments do not fit the registers of a core."""
    registers = subject.unit.registers_per_core
    operands = (tile.m * tile.k + tile.k * tile.n) * format_of(subject.ab).itemsize
    needed = (operands + _result_bytes(subject, tile)) // 4
    if registers is None or needed <= registers.value:
        return ""
    return (
        f"a, b and c of one {tile.name} mma take {needed:,} registers, and a core has "
        f"{registers.value:,.0f}"
    )


def _no_room_for_tile(subject: Subject, tile: MmaShape) -> str:
    """Find tiles whose results have no room in the shared memory of a block."""
    shared, needed = subject.unit.shared_bytes_per_block, _result_bytes(subject, tile)
    if shared is None or needed <= shared.value:
        return ""
    return (
        f"the result of one {tile.name} mma is {needed:,} bytes, and a block has "
        f"{shared.value:,.0f} of shared memory: no sum or scan can hand it on there"
    )


def _result_bytes(subject: Subject, tile: MmaShape) -> int:
    return tile.m * tile.n * format_of(subject.acc).itemsize


def _slower_than_without(subject: Subject, tile: MmaShape) -> str:
    """Find matrix units that do no more multiply-adds than the ordinary ones of a core."""
    unit, time = subject.unit, subject.instruction(tile)
    if unit.fma_per_core is None or unit.units_per_core is None:
        return ""
    if time is None or time.interval is None:
        return ""
    rate = tile.m * tile.n * tile.k * unit.units_per_core.value / time.interval.value
    if rate > unit.fma_per_core.value:
        return ""
    return (
        f"the matrix units of a core do {rate:,.4g} multiply-adds a cycle on {tile.name} tiles, "
        f"and its ordinary units {unit.fma_per_core.value:,.4g}"
    )


def _latency_not_hidden(subject: Subject, tile: MmaShape) -> str:
    """Find cores with too few warps to keep their matrix units busy."""
    unit, time = subject.unit, subject.instruction(tile)
    if unit.warps_per_core is None or unit.units_per_core is None:
        return ""
    if time is None or time.latency is None or time.interval is None:
        return ""
    each = unit.warps_per_core.value / unit.units_per_core.value
    needed = time.latency.value / time.interval.value
    if needed <= each:
        return ""
    return (
        f"a {tile.name} mma takes {time.latency.value:g} cycles and another may begin every "
        f"{time.interval.value:g}, so a matrix unit needs {needed:.3g} at a time; a core holds "
        f"{each:.3g} warps for each"
    )


def _threads_beyond_warps(subject: Subject, tile: MmaShape) -> str:
    """Find cores whose threads are no whole number for each warp."""
    threads, warps = subject.unit.threads_per_core, subject.unit.warps_per_core
    if threads is None or warps is None:
        return ""
    lanes = threads.value / warps.value
    if lanes >= 1 and lanes == int(lanes):
        return ""
    return (
        f"{threads.value:,.0f} threads a core are no whole number for each of its "
        f"{warps.value:,.0f} warps"
    )


CHECKS: Final[dict[str, tuple[str, _Check]]] = {
    "no_room_for_fragments": (IMPOSSIBLE, _no_room_for_fragments),
    "floor_above_one": (USELESS, _floor_above_one),
    "threads_beyond_warps": (IMPOSSIBLE, _threads_beyond_warps),
    "slower_than_without": (WASTE, _slower_than_without),
    "latency_not_hidden": (WASTE, _latency_not_hidden),
    "no_room_for_tile": (WASTE, _no_room_for_tile),
    "terms_beyond_tile": (WASTE, _terms_beyond_tile),
    "bits_never_set": (WASTE, _bits_never_set),
}
