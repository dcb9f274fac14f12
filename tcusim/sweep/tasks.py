"""Which algorithm sums, and which scans, long segments best on a tile: as a verdict has it."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Final

from tcusim.machine import Unit
from tcusim.sweep.row import Done
from tcusim.timing.cost import cost
from tcusim.verdict.subjects import Subject
from tcusim.verdict.tasks import TASKS, Candidate, Task, best_of, counted, program_of

__all__ = ["best_for_tile"]

# The tasks of a verdict that a row tells of, sums first.
_LONG: Final = tuple(task for task in TASKS if task.name in ("long sums", "long scans"))


@functools.lru_cache(maxsize=256)
def best_for_tile(
    unit: Unit, ab: str, acc: str, algorithms: tuple[str, ...]
) -> tuple[Done | None, Done | None]:
    """Return the best for long sums, and for long scans; None where no algorithm can be built.

    unit: of one tile; only its figures count, so units that differ in arithmetic share one, and
    what was found for it.
    """
    subject = Subject(unit.name, unit, unit.shapes, ab, acc)
    found = []
    for task in _LONG:
        candidates = [one for one in counted(subject, algorithms, (task,)) if one.uses_mma]
        if unit.instructions and unit.clock is not None:
            candidates = [_timed(one, task, subject) for one in candidates]
        found.append(_done(best_of(candidates, task)))
    sums, scans = found
    return sums, scans


def _timed(one: Candidate, task: Task, subject: Subject) -> Candidate:
    """Return a candidate with its predicted time, as far as the unit's figures tell it."""
    program, sizes = program_of(one, task, subject)
    (length,) = sizes.values()
    found = cost(program, subject.unit, length)
    return replace(one, seconds=found.seconds, bound=found.bound, unknown=found.unknown)


def _done(best: Candidate | None) -> Done | None:
    if best is None:
        return None
    return Done(best.name, best.side, best.mma, 1 - best.useful, best.seconds)
