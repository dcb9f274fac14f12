"""The verdict on the public units that come with tcusim: a row for each, and one page.

Each unit is judged by its first types and on its first tile. Programs of all algorithms are
counted; the best for each task then has to be right.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from tcusim.backends import get_backend
from tcusim.judge.accuracy.measure import BLOCK
from tcusim.judge.accuracy.summary import PROMISED, accuracy_of
from tcusim.judge.run import Jobs, Progress, executor_of, run_cases
from tcusim.judge.verdict.consistency import findings_of
from tcusim.judge.verdict.found import Asked, UnitVerdict
from tcusim.judge.verdict.lines import failures_of
from tcusim.judge.verdict.report_page import page_of
from tcusim.judge.verdict.sections import cases_right, rule_in_words
from tcusim.judge.verdict.subjects import subject_of
from tcusim.judge.verdict.tasks import (
    TASKS,
    Candidate,
    best_of,
    compared,
    counted,
    seconds_of,
    tried,
)
from tcusim.judge.verdict.validate import Verdict
from tcusim.machine import Unit, unit_of
from tcusim.machine.registry import gallery
from tcusim.table import Table

_SECTIONS: Final = ("correctness", "precision", "counts")


@dataclass(frozen=True, slots=True)
class GalleryVerdict(Verdict):
    """The result of `validate_gallery`: a verdict on each unit, told in one table."""

    def tables(self) -> tuple[Table, ...]:
        """Return two tables with a row for each unit: of its rule, and of its best algorithms."""
        return self.table(), self.best_algorithms()

    def to_html(self, command: str = "") -> str:
        """Return a page with the tables, then everything about each unit; see `Verdict.to_html`."""
        return page_of(self.units, None, command, self.tables())

    def table(self) -> Table:
        """Return the rule and the precision of each unit, and what its file cannot say."""
        backends = list(dict.fromkeys(one.asked.backend for one in self.units))
        backends = [f"bits of {name}" for name in backends if name]
        header = (
            *("unit", "types", "tile", "arithmetic", "cases right", *backends),
            *("bits", "in blocks", "what its file cannot say"),
        )
        return Table(
            title=f"{len(self.units)} public units",
            texts=(
                f"The bits are those of sums of {PROMISED:,} terms, in one accumulator and in "
                f"blocks of {BLOCK} mma.",
            ),
            header=header,
            rows=[_row(one) for one in self.units],
            wrong=[number for number, one in enumerate(self.units) if not one.ok],
            notes=[text for one in self.units for text in failures_of(one)],
        )

    def best_algorithms(self) -> Table:
        """Return the best algorithm of each task, its cost and its waste, for each unit."""
        return Table(
            title="Best algorithms",
            texts=(
                "The best algorithm of a task takes the fewest mma: the elements, or "
                "multiply-adds, that one does, and the share of its own multiply-adds that are "
                "wasted.",
            ),
            header=("unit", *(task.name for task in TASKS)),
            rows=[(one.name, *(_task(one.best(task)) for task in TASKS)) for one in self.units],
        )


def validate_gallery(
    *, backend: str | None = None, jobs: Jobs = 1, progress: Progress | None = None
) -> GalleryVerdict:
    """Judge the public units that come with tcusim, which takes less than a minute on two cores.

    With a backend that compiles, such as host, it takes two minutes.

    Parameters
    ----------
    backend : str, optional
        A backend whose bits are compared with the simulator's: see `validate`.
    jobs : int or Executor, optional
        A number of processes, None for one a processor; or an executor.
    progress : callable, optional
        Called with the part that is done and the whole.

    Returns
    -------
    GalleryVerdict
        `print` tells its table; `to_json` and `to_html` give everything.

    Raises
    ------
    UnknownName, BackendUnavailable
        If there is no such backend, or it cannot run here.
    """
    if backend:
        get_backend(backend)
    start = time.monotonic()
    units = [unit_of(name) for name in gallery()]
    with executor_of(jobs) as executor:
        judge = partial(_judged, backend=backend or "")
        judged = run_cases(judge, units, executor, seconds=_seconds, progress=progress)
    return GalleryVerdict(tuple(judged), None, time.monotonic() - start)


def _seconds(unit: Unit) -> float:
    """Return an estimate of a unit's time: of its programs, and of the precision of floats."""
    ab, acc = unit.arch.pairs[0]
    return seconds_of(subject_of(unit, ab=ab, acc=acc)) / 10 + 6 * (acc != "s32")


def _judged(unit: Unit, *, backend: str = "") -> UnitVerdict:
    """Return the verdict on a unit's first types and first tile."""
    ab, acc = unit.arch.pairs[0]
    subject = subject_of(unit, ab=ab, acc=acc, tile=unit.shapes[0])
    best = map(partial(best_of, counted(subject)), TASKS)
    names = dict.fromkeys(one.algorithm for one in best if one is not None)
    reports, candidates = tried(subject, list(names))
    return UnitVerdict(
        subject.name,
        unit.title,
        subject.arch,
        tuple(tile.name for tile in subject.tiles),
        ", ".join(tile.name for tile in unit.shapes[1:]),
        Asked(ab, acc, tuple(names), sections=_SECTIONS, backend=backend),
        rules=subject.rules,
        findings=findings_of(subject),
        reports=reports,
        agreement=compared(subject, backend, list(names)) if backend else None,
        candidates=candidates,
        accuracy=accuracy_of(unit, ab=ab, acc=acc, k=subject.tiles[0].k),
        unit=replace(unit, shapes=subject.tiles),
    )


def _row(one: UnitVerdict) -> tuple[str, ...]:
    """Return the row of a unit."""
    accuracy, (rule, *_) = one.accuracy, one.rules
    backend = [] if one.agreement is None else [one.agreement.in_brief]
    bits = [
        "" if accuracy is None else f"{accuracy.bits(blocked=way):.1f}" for way in (None, BLOCK)
    ]
    if one.asked.acc == "s32":
        bits = ["exact", "exact"]
    types = f"{one.asked.ab} to {one.asked.acc}"
    said = "" if one.unit is None else one.unit.unsaid
    return (
        *(one.name, types, one.tiles[0], rule_in_words(rule), cases_right(one), *backend, *bits),
        said,
    )


def _task(one: Candidate | None) -> str:
    """Return the best algorithm of a task, its terms an mma, and its waste."""
    if one is None:
        return "none"
    return f"{one.name}: {1 / one.mma:,.0f}, {100 * (1 - one.useful):.0f}% wasted"
