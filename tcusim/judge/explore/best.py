"""Which algorithm sums, and which scans, long segments best on a tile: as a verdict has it."""

from __future__ import annotations

import functools
from typing import Final

from tcusim.judge.explore.row import Done
from tcusim.judge.verdict.subjects import Subject
from tcusim.judge.verdict.tasks import TASKS, Candidate, best_of, counted
from tcusim.machine import Unit

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
    machine = subject if unit.instructions and unit.clock is not None else None
    candidates = counted(subject, algorithms, _LONG, machine=machine)
    sums, scans = (_done(best_of(candidates, task)) for task in _LONG)
    return sums, scans


def _done(best: Candidate | None) -> Done | None:
    if best is None:
        return None
    return Done(best.name, best.side, best.mma, 1 - best.useful, best.seconds)
