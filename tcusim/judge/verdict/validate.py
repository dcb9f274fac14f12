"""Is a matrix unit any good? `validate` tries all that is known to judge it, and says so."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from tcusim.algorithms import algorithm_of
from tcusim.backends import get_backend
from tcusim.errors import Given, InputError, Unsupported, require_flags, unknown_name
from tcusim.judge.accuracy.summary import accuracy_of
from tcusim.judge.correctness.shape_report import ShapeReport
from tcusim.judge.cost.roofline import Roofline, roofline
from tcusim.judge.run import WHOLE, Jobs, Progress, executor_of, part_of
from tcusim.judge.verdict.claims import Model, claims_of
from tcusim.judge.verdict.consistency import IMPOSSIBLE, USELESS, WASTE, Finding, findings_of
from tcusim.judge.verdict.found import SECTIONS, Asked, Reference, UnitVerdict
from tcusim.judge.verdict.lines import Statement, five_of, lines_of
from tcusim.judge.verdict.on_arrays import on_arrays
from tcusim.judge.verdict.report_page import fragment_of, page_of
from tcusim.judge.verdict.sections import comparison_of, sections_of
from tcusim.judge.verdict.subjects import (
    Named,
    Subject,
    judged_types,
    lender_of,
    placed_in,
    subject_of,
)
from tcusim.judge.verdict.tasks import TASKS, Candidate, best_of, compared, cost_of, counted, tried
from tcusim.machine import Figure, Instruction
from tcusim.machine.likeness import borrowed
from tcusim.machine.shapes import MmaShape
from tcusim.markup import provenance
from tcusim.table import Table, Tabular

# The sections for which algorithms are tried; those on a unit are left out where some are named.
_OF_ALGORITHMS: Final = ("correctness", "counts", "time")
_USUAL_REFERENCE: Final = "h200"
# The share of the time in which precision is measured, before algorithms are tried.
_PRECISE: Final = 0.1
# The share at which a backend's turn comes.
_TRIED: Final = 0.5


@dataclass(frozen=True, slots=True)
class Verdict(Tabular):
    """The result of `validate`: five lines for each unit, and the data behind them.

    Attributes
    ----------
    units : tuple of UnitVerdict
        In the order in which they were named.
    reference : Reference or None
        The unit whose costs theirs are compared with; None if it does not take the types.
    seconds : float
        Duration of the run.
    """

    units: tuple[UnitVerdict, ...]
    reference: Reference | None
    seconds: float = field(default=0.0, compare=False)

    @property
    def ok(self) -> bool:
        """Whether all that ran was right for every unit: see `UnitVerdict.ok`."""
        return all(unit.ok for unit in self.units)

    def lines(self) -> tuple[tuple[Statement, ...], ...]:
        """Return the five lines of each unit, in their order."""
        return tuple(lines_of(unit, self.reference) for unit in self.units)

    def sections(self) -> tuple[Table, ...]:
        """Return the sections after the lines: those of one unit, or a comparison of several."""
        if len(self.units) == 1:
            return sections_of(self.units[0])
        return (comparison_of(self.units, self.reference),)

    def as_json(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return {
            **provenance(),
            "ok": self.ok,
            "units": [self._unit_as_json(unit) for unit in self.units],
            "reference": None if self.reference is None else asdict(self.reference),
            "tasks": [asdict(task) for task in TASKS],
            "seconds": round(self.seconds, 3),
        }

    def _unit_as_json(self, unit: UnitVerdict) -> dict[str, Any]:
        shown = ("name", "title", "arch", "tiles", "left_out", "refused", "ok")
        best = {task.name: unit.best(task) for task in TASKS}
        return {
            **{name: getattr(unit, name) for name in shown},
            **asdict(unit.asked),
            "verdict": {line.name: line.text for line in lines_of(unit, self.reference)},
            "rules": [asdict(rule) for rule in unit.rules],
            "figures": {} if unit.unit is None else _plain(unit.unit.figures()),
            "findings": [asdict(one) for one in unit.findings],
            "claims": None if unit.claims is None else [asdict(one) for one in unit.claims],
            "correctness": [report.as_json() for report in unit.reports],
            "agreement": None if unit.agreement is None else unit.agreement.as_json(),
            "array_functions": [asdict(one) for one in unit.on_arrays],
            "precision": None if unit.accuracy is None else unit.accuracy.as_json(),
            "best": {name: one and asdict(one) for name, one in best.items()},
            "candidates": [asdict(one) for one in unit.candidates],
        }

    def to_json(self) -> str:
        """Return everything as JSON text; `ShapeReport.from_json` reads its parts `correctness`."""
        return json.dumps(self.as_json(), ensure_ascii=False, indent=2)

    def to_html(self, command: str = "") -> str:
        """Return a page with everything, which asks for nothing else.

        Parameters
        ----------
        command : str
            The command line that made it, for the head of the page.
        """
        return page_of(self.units, self.reference, command)

    def tables(self) -> tuple[Table, ...]:
        """Return a table of the five lines of each unit, then the sections."""
        five = (five_of(unit, self.reference) for unit in self.units)
        return (*five, *self.sections())

    def _repr_html_(self) -> str:
        return fragment_of(self.units, self.reference)


def _plain(figures: Mapping[str, Figure]) -> dict[str, dict[str, Any]]:
    return {name: asdict(one) for name, one in figures.items()}


def validate(
    *named: Named,
    tile: str | tuple[int, int, int] | MmaShape | None = None,
    ab: str | None = None,
    acc: str | None = None,
    arch: str = "exact",
    algorithms: Sequence[str] | None = None,
    full: bool = False,
    sections: Sequence[str] | None = None,
    reference: Named | None = _USUAL_REFERENCE,
    like: Named | None = None,
    model: Model | None = None,
    backend: str | None = None,
    jobs: Jobs = 1,
    progress: Progress | None = None,
) -> Verdict:
    """Judge matrix units: the correctness of algorithms, the precision of sums, and their cost.

    Parameters
    ----------
    *named : str, Path, Unit, Arch, MmaShape or tuple
        Units by name, by file or as they are; or tiles such as ``"64x8x16"``. Several are compared.
    tile : str, tuple or MmaShape, optional
        The only one of the units' tiles to try.
    ab, acc : str, optional
        Element types of the operands and of the accumulator. Default: f16 in f32, or the first that
        the first unit has.
    arch : str
        The arithmetic of a tile alone; ``"exact"`` looks at the algorithms.
    algorithms : sequence of str, optional
        The only algorithms to try. Parts about the unit alone are then left out.
    full : bool
        Try many more cases and longer sums, which takes some ten times as long.
    sections : sequence of str, optional
        Of ``"correctness"``, ``"precision"``, ``"counts"`` and ``"time"``; by default all.
    reference : str, Path, Unit, Arch, MmaShape, tuple or None
        The unit whose costs are compared: its tile 16x16x16, else its first; None for none. The
        usual one is left out where it does not take the types, and a finding says so.
    like : str, Path, Unit, Arch, MmaShape, tuple or None
        The unit whose figures stand for those that a unit lacks, so that times are predicted. By
        default the reference, for tiles alone and units of files.
    model : callable, optional
        The unit itself, if there is more than its rule: a GPU or a simulated circuit.
        It is called with a (m x k), b (k x n) and c (m x n) and returns d (m x n); if its bits
        differ, the unit's claim is wrong. For one unit.
    backend : str, optional
        A backend to run programs of the algorithms on, such as ``"host"`` or ``"cuda"``: the
        section on correctness then compares its bits with the simulator's.
    jobs : int or Executor, optional
        A number of processes that try algorithms, None for one a processor; or an executor.
    progress : callable, optional
        Called with the part that is done and the whole, which is 1000.

    Returns
    -------
    Verdict
        `print` tells it; `to_json` and `to_html` give everything.

    Raises
    ------
    UnknownName
        For a unit, type, architecture, algorithm, section or backend that is not known.
    BackendUnavailable
        If the backend cannot run here.
    Unsupported
        If the only unit, or a reference that is not the usual one, does not take the types. One
        unit of several is told of in the verdict.
    InputError
        If a file contradicts itself, or a unit has no such tile.

    Examples
    --------
    >>> verdict = validate((5, 7, 3), algorithms=["reduction_t", "scan_k"])
    >>> verdict.ok
    True
    """
    if not named:
        raise InputError("there is no unit to judge; name one, such as validate('64x8x16')")
    require_flags(full=full)
    first = named[0]
    if model is not None and len(named) > 1:
        raise InputError(f"a model is of one unit, and {len(named)} are named")
    names = None if algorithms is None else tuple(algorithm_of(one).name for one in algorithms)
    if names == ():
        raise InputError("algorithms names none to try; leave it out to try all")
    ab, acc = judged_types(first, ab, acc)
    asked = Asked(ab, acc, names, full, _sections(sections, names), backend or "")
    _require_backend(asked)
    if reference not in (None, _USUAL_REFERENCE) and not {"counts", "time"} & set(asked.sections):
        raise InputError(
            Given("reference"),
            f" is for comparing costs, and without the sections counts and time there are none; "
            f"add one to {', '.join(asked.sections)}, or leave it out",
        )
    start = time.monotonic()
    machine = None if reference is None else _machine(reference, asked)
    lender = machine if like is None else lender_of(like, ab, acc)
    judged = []
    with executor_of(jobs) as executor:
        for number, one in enumerate(named):
            try:
                subject = subject_of(one, ab=ab, acc=acc, tile=tile, arch=arch)
            except Unsupported as error:
                if len(named) == 1:
                    raise
                judged.append(_refused(one, asked, str(error)))
                continue
            part = part_of(progress, number / len(named), (number + 1) / len(named))
            known_too = like is not None
            judged.append(_judged(subject, asked, lender, known_too, model, executor, part))
    if progress is not None:
        progress(WHOLE, WHOLE)
    if reference is not None and machine is None:
        text = f"costs are compared with no other unit: {reference} has no {ab} -> {acc}"
        alone = Finding("reference", WASTE, text)
        judged = [replace(one, findings=(*one.findings, alone)) for one in judged]
    found = None if machine is None else _reference(machine, asked)
    return Verdict(tuple(judged), found, time.monotonic() - start)


def _require_backend(asked: Asked) -> None:
    """Refuse a backend that cannot run here, or that the sections asked for do not run."""
    if not asked.backend:
        return
    get_backend(asked.backend)
    if "correctness" not in asked.sections:
        raise InputError(
            Given("backend"),
            f" is compared in the section correctness; add it to {', '.join(asked.sections)}, or "
            f"leave the backend out",
        )


def _sections(sections: Sequence[str] | None, algorithms: Sequence[str] | None) -> tuple[str, ...]:
    """Return the sections to make, in their order."""
    if sections is None:
        return SECTIONS if algorithms is None else _OF_ALGORITHMS
    for one in sections:
        if one not in SECTIONS:
            raise unknown_name("section", one, SECTIONS)
    return tuple(one for one in SECTIONS if one in sections)


def _refused(named: Named, asked: Asked, reason: str) -> UnitVerdict:
    """Return the verdict on a unit that does not take the types."""
    name = getattr(named, "name", None) or str(named)
    return UnitVerdict(name, name, "", (), "", asked, refused=reason)


def _placed(
    subject: Subject, lender: Subject | None, *, known_too: bool
) -> tuple[Subject, str, tuple[Finding, ...]]:
    """Return a subject with figures of a lender in place of those that it lacks.

    Second is the name of the unit that lends figures, empty if none does; then the findings on the
    subject and on the lender.
    """
    findings = findings_of(subject)
    placed = None if lender is None else placed_in(subject, lender, known_too=known_too)
    if lender is None or (placed is None and not known_too):
        return subject, "", findings
    if placed is None:
        text = (
            f"nothing is taken from {lender.name}: it has no latency and interval of "
            f"{subject.ab} -> {subject.acc} mma, or no figure that the unit lacks"
        )
        return subject, "", (*findings, Finding("like", WASTE, text))
    # The times of a machine without space for the tile say nothing.
    unfit = [one for one in findings_of(placed) if one.gravity == IMPOSSIBLE]
    if not unfit:
        return placed, lender.name, findings
    more = (
        Finding(one.name, WASTE, f"no time is predicted in {lender.name}: {one.text}")
        for one in unfit
        if one not in findings
    )
    return subject, "", (*findings, *more)


def _judged(
    subject: Subject,
    asked: Asked,
    lender: Subject | None,
    known_too: bool,
    model: Model | None,
    executor: Executor | None,
    progress: Progress | None,
) -> UnitVerdict:
    """Return the verdict on one unit. lender, known_too: see `_placed`."""
    placed, machine, findings = _placed(subject, lender, known_too=known_too)
    gravities = {one.gravity for one in findings}
    # The results of a useless unit say nothing of the algorithms.
    wanted = set[str]() if USELESS in gravities else {*asked.sections}
    trials = not wanted.isdisjoint(_OF_ALGORITHMS)
    reports: tuple[ShapeReport, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    accuracy = agreement = None
    first = 0.0
    if "precision" in wanted and subject.arch != "exact":
        first = _PRECISE if trials else 1.0
        accuracy = accuracy_of(
            subject.unit,
            ab=asked.ab,
            acc=asked.acc,
            k=subject.tiles[0].k,
            full=asked.full,
            progress=part_of(progress, 0.0, first),
        )
    if trials:
        timed = "time" in wanted and IMPOSSIBLE not in gravities
        last = _TRIED if asked.backend else 1.0
        reports, candidates = tried(
            subject,
            asked.algorithms,
            full=asked.full,
            machine=placed if timed else None,
            executor=executor,
            progress=part_of(progress, first, last),
        )
        if asked.backend:
            agreement = compared(
                subject,
                asked.backend,
                asked.algorithms,
                full=asked.full,
                executor=executor,
                progress=part_of(progress, last, 1.0),
            )
    arrays = "correctness" in wanted and asked.algorithms is None
    own = subject.unit.figures() or subject.unit.instructions
    return UnitVerdict(
        name=subject.name,
        title=subject.unit.title,
        arch=subject.arch,
        tiles=tuple(tile.name for tile in subject.tiles),
        left_out=subject.left_out,
        asked=asked,
        rules=subject.rules,
        findings=findings,
        claims=None if model is None else claims_of(subject, model),
        reports=reports,
        agreement=agreement,
        on_arrays=on_arrays(subject, executor) if arrays else (),
        candidates=candidates,
        accuracy=accuracy,
        roofline=_roofline(placed, candidates),
        machine=machine,
        borrowed=borrowed(placed.unit) if own else (),
        unit=replace(placed.unit, shapes=subject.tiles, instructions=_times(placed)),
    )


def _times(subject: Subject) -> tuple[Instruction, ...]:
    """Return the times of the tiles that are tried, for the types that are."""
    found = map(subject.instruction, subject.tiles)
    return tuple(one for one in found if one is not None)


def _roofline(subject: Subject, candidates: Sequence[Candidate]) -> Roofline | None:
    """Return the best of each task on the unit's roofs; None where no time is known."""
    best = {task: one for task in TASKS if (one := best_of(candidates, task)) is not None}
    costs = {task.name: cost_of(one, task, subject) for task, one in best.items() if one.seconds}
    if not costs:
        return None
    return roofline(costs, subject.unit, (subject.tiles[0].name, subject.ab, subject.acc))


def _machine(named: Named, asked: Asked) -> Subject | None:
    """Return the subject to compare costs with; None if the usual one does not take the types."""
    try:
        return subject_of(named, ab=asked.ab, acc=asked.acc)
    except Unsupported as error:
        if named == _USUAL_REFERENCE:
            return None
        raise Unsupported(
            "no comparison with the reference is possible: ", *error.pieces
        ) from error


def _reference(subject: Subject, asked: Asked) -> Reference:
    """Return the counts of the reference's algorithms."""
    machine = subject if "time" in asked.sections else None
    candidates = counted(subject, asked.algorithms, machine=machine)
    return Reference(subject.name, subject.tiles[0].name, candidates)
