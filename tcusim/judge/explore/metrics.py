"""Evaluate one unit of a grid: its error, its area, and the best algorithms for its tile."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from tcusim.algorithms import algorithm_of, segmented_algorithms
from tcusim.errors import Given, InputError, TcusimError, require_flags, require_int, unknown_name
from tcusim.judge.accuracy import FAMILIES, measured_errors, predicted_error
from tcusim.judge.accuracy.prediction import LONGEST
from tcusim.judge.explore.area import area_proxy
from tcusim.judge.explore.axes import Grid, Point
from tcusim.judge.explore.row import Row
from tcusim.judge.verdict.consistency import findings_of
from tcusim.judge.verdict.subjects import Subject
from tcusim.judge.verdict.tasks import TASKS, best_of, counted
from tcusim.machine import Unit, arch_of, fused_unit, rule_of
from tcusim.machine.likeness import like
from tcusim.machine.shapes import MmaShape

# Sums that are measured take time in proportion to their length, on every unit.
_LONGEST_MEASURED: Final = 2**16
# In place of a unit's own arithmetic where that is not looked at.
_ANY: Final = arch_of("exact")
# The tasks of a row, by the beginnings of their columns.
_LONG: Final = {
    column: task for column in ("sums", "scans") for task in TASKS if task.name == f"long {column}"
}


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings for the evaluation of each unit.

    Attributes
    ----------
    length : int
        Terms of the sum whose error is told.
    family : str
        The kind of terms, one of `FAMILIES`.
    measure : bool
        Whether errors are measured on the simulator, too.
    algorithms : tuple of str
        Names of those to choose the best from.
    """

    length: int
    family: str
    measure: bool
    algorithms: tuple[str, ...]

    def __post_init__(self) -> None:
        require_flags(measure=self.measure)
        require_int(Given("length"), self.length, 1, LONGEST)
        if self.measure and self.length > _LONGEST_MEASURED:
            raise InputError(
                f"measure takes sums of up to {_LONGEST_MEASURED:,} terms, as each unit is "
                f"simulated; got length={self.length:,}"
            )
        if self.family not in FAMILIES:
            raise unknown_name("family", self.family, FAMILIES)

    @classmethod
    def of(
        cls, length: int, family: str, *, measure: bool, algorithms: Sequence[str] | None
    ) -> Settings:
        """Return the settings of `explore`; the algorithms are by default all for segments."""
        if algorithms is None:
            rows = tuple(row for row in segmented_algorithms() if row.uses_mma)
        else:
            rows = tuple(map(algorithm_of, algorithms))
            for row in rows:
                if row.kind not in ("reduction", "scan"):
                    raise InputError(
                        f"algorithms must sum or scan segments of one size; {row.name} is of the "
                        f"kind {row.kind}"
                    )
        return cls(length, family, measure, tuple(dict.fromkeys(row.name for row in rows)))


def unit_at(grid: Grid, point: Point) -> Unit:
    """Return the unit of a point, of one tile: a named one, or an invented one like another.

    An invented unit that is like another has its figures, and does as many multiply-adds a cycle.

    Raises
    ------
    InputError
        If there can be no such unit.
    """
    if point.unit:
        unit = grid.unit_of(point)
        times = tuple(one for one in unit.instructions if one.tile == point.tile)
        return replace(unit, shapes=(unit.tile(point.tile),), instructions=times)
    length, bits = point.fused_length, point.fraction_bits
    assert length is not None, "an invented unit has every number"
    assert bits is not None, "an invented unit has every number"
    tile = MmaShape(point.m, point.n, point.k, title="a point of a grid")
    unit = fused_unit(
        length,
        bits,
        "rne" if point.output_rounding == "rne" else "rz",
        alignment="rne" if point.alignment == "rne" else "rz",
        tiles=(tile,),
    )
    return unit if grid.like is None else like(unit, grid.like)


def evaluate(grid: Grid, settings: Settings, point: Point) -> Row:
    """Return the row of a point; an impossible unit has a row with its reason.

    Raises
    ------
    UnknownName
        If this process does not know an algorithm of the settings.
    """
    for name in settings.algorithms:
        algorithm_of(name)
    row = Row(**asdict(point))
    try:
        unit = unit_at(grid, point)
        rule = rule_of(unit.arch, point.ab, point.acc)
        errors: dict[str, Any] = {
            "error": predicted_error(rule, settings.family, settings.length, k=point.k)
        }
        if settings.measure:
            family = settings.family
            found = measured_errors(rule, [settings.length], k=point.k, families=[family])
            errors["measured"] = found[family][0]
        findings = findings_of(Subject(unit.name, unit, unit.shapes, point.ab, point.acc))
        for one in findings:
            if one.grave:
                raise InputError(one.text)
        # Names and notes are no figures: units of one tile share the result.
        timed = replace(unit, name="timed", title="timed", note="", arch=_ANY)
        best = best_for_tile(timed, point.ab, point.acc, settings.algorithms)
    except TcusimError as error:
        return replace(row, reason=str(error))
    except MemoryError as error:
        return replace(row, reason=f"too large to evaluate here: {str(error) or 'no memory'}")
    notes = [f"{one.name}: {one.text}" for one in findings]
    if not math.isfinite(errors["error"]):
        notes.append(f"overflow: a sum is beyond what {rule.acc} holds")
    # An invented unit that is like another has other adders.
    given = unit.multiply_add_energy if point.unit else None
    return replace(
        row,
        **{name: value for name, value in errors.items() if math.isfinite(value)},
        given_energy=None if given is None else 1e12 * given.value,
        area=area_proxy(point.m, point.n, point.k, rule),
        **best,
        notes=tuple(notes),
    )


@functools.lru_cache(maxsize=256)
def best_for_tile(unit: Unit, ab: str, acc: str, algorithms: tuple[str, ...]) -> dict[str, Any]:
    """Return the columns of the best for long sums and long scans; none where none can be built.

    unit: of one tile. Units that differ only in arithmetic share the result of one without.
    """
    subject = Subject(unit.name, unit, unit.shapes, ab, acc)
    machine = subject if unit.instructions and unit.clock is not None else None
    candidates = counted(subject, algorithms, _LONG.values(), machine=machine)
    found: dict[str, Any] = {}
    for column, task in _LONG.items():
        if (best := best_of(candidates, task)) is not None:
            values = (best.name, best.side, best.mma, 1 - best.useful, best.seconds)
            names = ("algorithm", "side", "mma", "waste", "seconds")
            found |= {f"{column}_{name}": one for name, one in zip(names, values, strict=True)}
    return found
