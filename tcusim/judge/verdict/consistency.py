"""Contradictory and useless parts of a unit: findings with names.

A figure alone that cannot be is refused when the unit is made. Here are those that are possible
each, but not together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from tcusim.judge.verdict.subjects import Subject
from tcusim.machine import Fused, format_of
from tcusim.machine.shapes import MmaShape

__all__ = ["CHECKS", "IMPOSSIBLE", "USELESS", "WASTE", "WRONG", "Finding", "findings_of"]

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
        What it is, with its numbers, as a sentence.
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


_Check: TypeAlias = Callable[[Subject], Iterator[tuple[str, str]]]


def findings_of(subject: Subject) -> tuple[Finding, ...]:
    """Return the findings of the checks in order, each text once."""
    return tuple(
        dict.fromkeys(
            Finding(name, gravity, text)
            for name, check in CHECKS.items()
            for gravity, text in check(subject)
        )
    )


def _terms_beyond_tile(subject: Subject) -> Iterator[tuple[str, str]]:
    """Find steps of more products than a tile has k."""
    for tile, rule in zip(subject.tiles, subject.rules, strict=True):
        how = rule.how
        if isinstance(how, Fused) and how.length > tile.k:
            yield (
                WASTE,
                f"a step sums up to {how.length} products, and the tile {tile.name} has k = "
                f"{tile.k}: {how.length - tile.k} of its inputs are never used",
            )


def _floor_above_one(subject: Subject) -> Iterator[tuple[str, str]]:
    """Find steps that are aligned so high that 1 is cut to 0."""
    for rule in subject.rules:
        how = rule.how
        if isinstance(how, Fused) and (how.exponent_floor or 0) > how.fraction_bits:
            yield (
                USELESS,
                f"exponent_floor = {how.exponent_floor} with {how.fraction_bits} fraction bits "
                f"cuts 1 to 0, so that no sum of numbers around 1 is right, by any algorithm",
            )


def _bits_never_set(subject: Subject) -> Iterator[tuple[str, str]]:
    """Find results of more bits than the sum behind them keeps."""
    for rule in subject.rules:
        how = rule.how
        if not isinstance(how, Fused) or not format_of(subject.acc).is_float:
            continue
        written = how.output_fraction_bits or format_of(subject.acc).fraction_bits
        if how.fraction_bits < written:
            yield (
                WASTE,
                f"{subject.acc} has {written} fraction bits, and a sum keeps "
                f"{how.fraction_bits} below its largest term: {_last(written - how.fraction_bits)} "
                f"nothing where c is the largest",
            )


def _no_room_for_fragments(subject: Subject) -> Iterator[tuple[str, str]]:
    """Find tiles whose fragments do not fit the registers of a core."""
    registers = subject.unit.registers_per_core
    if registers is None:
        return
    for tile in subject.tiles:
        needed = _fragment_bytes(subject, tile) // 4
        if needed > registers.value:
            yield (
                IMPOSSIBLE,
                f"a, b and c of one {tile.name} mma take {needed:,} registers, and a core has "
                f"{registers.value:,.0f}",
            )


def _no_room_for_tile(subject: Subject) -> Iterator[tuple[str, str]]:
    """Find tiles whose results have no room in the shared memory of a block."""
    shared = subject.unit.shared_bytes_per_block
    if shared is None:
        return
    itemsize = format_of(subject.acc).itemsize
    for tile in subject.tiles:
        needed = tile.m * tile.n * itemsize
        if needed > shared.value:
            yield (
                WASTE,
                f"the result of one {tile.name} mma is {needed:,} bytes, and a block has "
                f"{shared.value:,.0f} of shared memory: no sum or scan can hand it on there",
            )


def _slower_than_without(subject: Subject) -> Iterator[tuple[str, str]]:
    """Find matrix units that do no more multiply-adds than the ordinary ones of a core."""
    unit = subject.unit
    if unit.fma_per_core is None or unit.units_per_core is None:
        return
    for tile in subject.tiles:
        interval = _interval(subject, tile)
        if interval is None:
            continue
        rate = tile.m * tile.n * tile.k * unit.units_per_core.value / interval
        if rate <= unit.fma_per_core.value:
            yield (
                WASTE,
                f"the matrix units of a core do {rate:,.4g} multiply-adds a cycle on {tile.name} "
                f"tiles, and its ordinary units {unit.fma_per_core.value:,.4g}",
            )


def _latency_not_hidden(subject: Subject) -> Iterator[tuple[str, str]]:
    """Find cores with too few warps to keep their matrix units busy."""
    unit = subject.unit
    if unit.warps_per_core is None or unit.units_per_core is None:
        return
    each = unit.warps_per_core.value / unit.units_per_core.value
    for tile in subject.tiles:
        time = subject.instruction(tile)
        if time is None or time.latency is None or time.interval is None:
            continue
        needed = time.latency.value / time.interval.value
        if needed > each:
            yield (
                WASTE,
                f"a {tile.name} mma takes {time.latency.value:g} cycles and another may begin "
                f"every {time.interval.value:g}, so a matrix unit needs {needed:.3g} at a time; a "
                f"core holds {each:.3g} warps for each",
            )


def _threads_beyond_warps(subject: Subject) -> Iterator[tuple[str, str]]:
    """Find cores whose threads are no whole number for each warp."""
    unit = subject.unit
    if unit.threads_per_core is None or unit.warps_per_core is None:
        return
    lanes = unit.threads_per_core.value / unit.warps_per_core.value
    if lanes < 1 or lanes != int(lanes):
        yield (
            IMPOSSIBLE,
            f"{unit.threads_per_core.value:,.0f} threads a core are no whole number for each of "
            f"its {unit.warps_per_core.value:,.0f} warps",
        )


def _last(bits: int) -> str:
    return "the last one holds" if bits == 1 else f"the last {bits} hold"


def _fragment_bytes(subject: Subject, tile: MmaShape) -> int:
    operands = tile.m * tile.k + tile.k * tile.n
    return operands * format_of(subject.ab).itemsize + (
        tile.m * tile.n * format_of(subject.acc).itemsize
    )


def _interval(subject: Subject, tile: MmaShape) -> float | None:
    time = subject.instruction(tile)
    return None if time is None or time.interval is None else time.interval.value


CHECKS: Final[dict[str, _Check]] = {
    "no_room_for_fragments": _no_room_for_fragments,
    "floor_above_one": _floor_above_one,
    "threads_beyond_warps": _threads_beyond_warps,
    "slower_than_without": _slower_than_without,
    "latency_not_hidden": _latency_not_hidden,
    "no_room_for_tile": _no_room_for_tile,
    "terms_beyond_tile": _terms_beyond_tile,
    "bits_never_set": _bits_never_set,
}
