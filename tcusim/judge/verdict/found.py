"""The data of a verdict on a unit, without their presentation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tcusim.judge.accuracy.summary import Accuracy
from tcusim.judge.correctness.agreement import Agreement
from tcusim.judge.correctness.shape_report import ShapeReport
from tcusim.judge.cost.roofline import Roofline
from tcusim.judge.verdict.consistency import USELESS, Finding
from tcusim.judge.verdict.on_arrays import OnArrays
from tcusim.judge.verdict.tasks import Candidate, Task, best_of
from tcusim.machine import Rule, Unit

# The parts of a verdict that can be asked for, in their order.
SECTIONS: Final = ("correctness", "precision", "counts", "time")


@dataclass(frozen=True, slots=True)
class Asked:
    """The scope of a verdict.

    Attributes
    ----------
    ab, acc : str
        Element types.
    algorithms : tuple of str or None
        The only ones to try; None for all.
    full : bool
        Whether to try many more cases, and longer sums.
    sections : tuple of str
        Of `SECTIONS`.
    backend : str
        The backend that is compared with the simulator; empty for none.
    """

    ab: str = "f16"
    acc: str = "f32"
    algorithms: tuple[str, ...] | None = None
    full: bool = False
    sections: tuple[str, ...] = SECTIONS
    backend: str = ""


@dataclass(frozen=True, slots=True)
class Reference:
    """The reference of a comparison: the usual tile of a known unit.

    Attributes
    ----------
    name, tile : str
        The unit and its tile.
    candidates : tuple of Candidate
        Its possible algorithms, for each task.
    """

    name: str
    tile: str
    candidates: tuple[Candidate, ...]

    def __str__(self) -> str:
        """Return its name: a tile on a unit."""
        return f"{self.tile} on {self.name}"


@dataclass(frozen=True, slots=True)
class UnitVerdict:
    """The verdict on one unit; `lines_of` returns its five lines.

    Attributes
    ----------
    name, title, arch : str
        The unit, and whose arithmetic it has.
    tiles : tuple of str
        The tiles that were tried, the one that is compared first.
    left_out : str
        The other tiles, and why they were not tried.
    asked : Asked
        The question.
    rules : tuple of Rule
        How the tiles compute, in their order.
    refused : str
        Why the unit does not take the types; then there is nothing else.
    findings : tuple of Finding
        Contradictions, and parts of no use.
    claims : tuple of Finding or None
        Claims of the unit that its model contradicts; None without a model.
    reports : tuple of ShapeReport
        Correctness and counts, one for each tile.
    agreement : Agreement or None
        The bits of programs on a backend against the simulator's; None if no backend was named.
    on_arrays : tuple of OnArrays
        Results of the functions on arrays, one for each tile; none if algorithms were named.
    candidates : tuple of Candidate
        Right algorithms, for each task that it can do.
    accuracy : Accuracy or None
        The precision of sums; None if that was not asked for, or the arithmetic is unknown.
    roofline : Roofline or None
        The best of each task on the unit's roofs; None where no time is known.
    machine : str
        The unit whose figures stand for those that this one lacks; empty if none do.
    borrowed : tuple of str
        The names of these figures; empty if all are.
    unit : Unit or None
        Its tiles, times and figures, the borrowed ones among them; None if it was refused.
    """

    name: str
    title: str
    arch: str
    tiles: tuple[str, ...]
    left_out: str
    asked: Asked
    rules: tuple[Rule, ...] = ()
    refused: str = ""
    findings: tuple[Finding, ...] = ()
    claims: tuple[Finding, ...] | None = None
    reports: tuple[ShapeReport, ...] = ()
    agreement: Agreement | None = None
    on_arrays: tuple[OnArrays, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    accuracy: Accuracy | None = None
    roofline: Roofline | None = None
    machine: str = ""
    borrowed: tuple[str, ...] = ()
    unit: Unit | None = None

    @property
    def ok(self) -> bool:
        """Whether all that ran was right, and nothing that was claimed was found otherwise."""
        return (
            not self.refused
            and all(report.ok for report in self.reports)
            and (self.agreement is None or self.agreement.ok)
            and not any(one.failed for one in self.on_arrays)
            and not self.claims
            and not any(one.grave for one in self.findings)
        )

    @property
    def useless(self) -> str:
        """Why no sum is right, if so: then neither algorithms nor precision are tried."""
        return next((one.text for one in self.findings if one.gravity == USELESS), "")

    @property
    def where(self) -> str:
        """Where times are predicted, if that is not the unit itself, to begin a sentence with."""
        if not self.machine:
            return ""
        if not self.borrowed:
            return f"in the machine of {self.machine}, at as many multiply-adds a second: "
        return f"with {len(self.borrowed)} figures of {self.machine}, named below: "

    def best(self, task: Task) -> Candidate | None:
        """Return the best for a task; None if it can do none, or none was right."""
        return best_of(self.candidates, task)

    def unknown(self) -> str:
        """Return the figures without which some candidate has no time; nothing if all have one."""
        return ", ".join(dict.fromkeys(name for one in self.candidates for name in one.unknown))


def bests_of(
    units: Sequence[UnitVerdict], reference: Reference | None, task: Task
) -> tuple[list[Candidate | None], Candidate | None]:
    """Return the best of each unit for a task, and that of the reference, all by one rule.

    The rule is the time if the best of every unit has one, else the number of mma.
    """
    by_time = all(one.timed for unit in units if (one := unit.best(task)) is not None)
    found = [best_of(unit.candidates, task, by_time=by_time) for unit in units]
    if reference is None:
        return found, None
    return found, best_of(reference.candidates, task, by_time=by_time)
