"""The five lines with which a verdict begins.

Lines report runs with right results; the last line names everything that did not run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tcusim.judge.correctness.shape_report import ShapeRow
from tcusim.judge.cost.predicted import time_text
from tcusim.judge.verdict.consistency import IMPOSSIBLE
from tcusim.judge.verdict.found import SECTIONS, Reference, UnitVerdict, bests_of
from tcusim.judge.verdict.tasks import TASKS, Candidate, Task
from tcusim.table import Table

# The names of the lines, in their order.
LINES: Final = ("best", "cost", "precision", "bound", "not tested")


@dataclass(frozen=True, slots=True)
class Statement:
    """One of the five lines.

    Attributes
    ----------
    name : str
        Of `LINES`.
    text : str
        The line, without its name.
    good : bool
        Whether nothing in it is wrong.
    """

    name: str
    text: str
    good: bool = True


def five_of(found: UnitVerdict, reference: Reference | None) -> Table:
    """Return the five lines of a unit, with its title and its types as the heading."""
    title = "" if found.title == found.name else f", {found.title}"
    lines = lines_of(found, reference)
    return Table(
        title=f"{found.name}{title}: {found.asked.ab} to {found.asked.acc}",
        rows=[(line.name, line.text) for line in lines],
        wrong=[number for number, line in enumerate(lines) if not line.good],
    )


def lines_of(found: UnitVerdict, reference: Reference | None) -> tuple[Statement, ...]:
    """Return the five lines of a unit."""
    if found.refused:
        none = "nothing was tried"
        texts = (f"nothing: {found.refused}", none, none, none, "all of it")
        return tuple(Statement(name, text, False) for name, text in zip(LINES, texts, strict=True))
    wrong = list(_wrong(found))
    return (
        Statement(LINES[0], "; ".join([*wrong, _best(found)]), not wrong),
        Statement(LINES[1], _cost(found, reference)),
        _precision(found),
        Statement(LINES[3], _bound(found)),
        Statement(LINES[4], "; ".join(_untested(found))),
    )


def failures_of(found: UnitVerdict) -> tuple[str, ...]:
    """Return the reasons why a unit fails; none if `UnitVerdict.ok`."""
    if found.refused:
        return (found.refused,)
    return (*_wrong(found), *map(str, found.claims or ()))


# --- The best -------------------------------------------------------------------------------------


def _wrong(found: UnitVerdict) -> Iterator[str]:
    """Yield the failures of algorithms, and the impossible figures of the unit."""
    yield from (str(one) for one in found.findings if one.grave)
    rows = [row for report in found.reports for row in report.rows if not row.ok]
    for name in dict.fromkeys(row.name for row in rows):
        first = next(row for row in rows if row.name == name)
        yield f"WRONG: {name}: {_what_is_wrong(first)}"
    bits = found.agreement
    if bits is not None and not bits.ok:
        case = next((f", first {one.case}: {one.text}" for one in bits.problems), "")
        yield f"WRONG: {bits.backend} beside the simulator: {bits.compared_in_words}{case}"
    for one in found.on_arrays:
        if one.failed:
            yield f"WRONG: {one}, first {one.failed[0]}"


def _what_is_wrong(row: ShapeRow) -> str:
    if row.first_wrong:
        wrong = row.cases - row.right
        return f"the bits of {wrong} of {row.cases} cases differ, first {row.first_wrong}"
    count = next(count for count in row.counts if not count.ok)
    return f"{count.counted} mma steps where its formula has {count.formula} (N = {count.repeats})"


def _best(found: UnitVerdict) -> str:
    if any(finding.gravity == IMPOSSIBLE for finding in found.findings):
        return "nothing, since no machine can be so"
    if found.useless:
        return "nothing, since no sum is right"
    if not found.reports:
        return "not asked for"
    best = {task: found.best(task) for task in TASKS}
    if not any(best.values()):
        if unfit := [one for one in found.candidates if not one.fits]:
            least = min(one.shared_bytes for one in unfit)
            return (
                f"none fits: a block needs at least {least:,} bytes of shared memory, and has "
                f"{unfit[0].most_bytes:,}"
            )
        tried = found.asked.algorithms
        if not tried:
            return "no algorithm does anything here"
        return f"none: no task of the table is done by {', '.join(tried)}"
    text = ", ".join(
        f"{task.name} {'none' if one is None else one.name}"
        for task, one in best.items()
        if one is not None or found.asked.algorithms is None
    )
    tiles = dict.fromkeys(one.tile for one in best.values() if one is not None)
    where = f"tile {next(iter(tiles))}"
    if len(tiles) > 1:
        several = (f"{task.name} {one.tile}" for task, one in best.items() if one is not None)
        where = f"tiles: {', '.join(several)}"
    return f"{text} ({where}){_chosen(best)}"


def _chosen(best: Mapping[Task, Candidate | None]) -> str:
    """Return the criterion of the best, where it is not the time."""
    untimed = [task.name for task, one in best.items() if one is not None and not one.timed]
    if not untimed:
        return ""
    of = "" if len(untimed) == sum(map(bool, best.values())) else f" of {', '.join(untimed)}"
    return f", by the fewest mma, as no time{of} is known"


# --- Its cost -------------------------------------------------------------------------------------


def _cost(found: UnitVerdict, reference: Reference | None) -> str:
    beside = {task: bests_of([found], reference, task) for task in TASKS}
    rows = [(task, one, other) for task, ((one,), other) in beside.items() if one is not None]
    if not rows:
        return "nothing to count"
    texts = ", ".join(_cost_of(*row) for row in rows)
    times = ", ".join(_time_of(*row) for row in rows if row[1].seconds)
    times = f"; predicted time: {found.where}{times}" if times else ""
    if reference is None:
        return f"elements an mma, and the useful share of its multiply-adds: {texts}{times}"
    return f"mma beside {reference}, and the useful share of their multiply-adds: {texts}{times}"


def _cost_of(task: Task, one: Candidate, other: Candidate | None) -> str:
    """Return the cost of a task: its mma beside the reference's, and their useful share."""
    useful = f"{100 * one.useful:.3g}%"
    if other is None:
        return f"{task.name} {1 / one.mma:,.4g} ({useful})"
    if other.useful != one.useful:
        useful += f", there {100 * other.useful:.3g}%"
    return f"{task.name} {one.mma / other.mma:.3g}x ({useful})"


def _time_of(task: Task, one: Candidate, other: Candidate | None) -> str:
    """Return the predicted time of a task, and how many times that of the reference it is."""
    beside = ""
    if one.seconds and other is not None and other.seconds:
        beside = f" ({one.seconds / other.seconds:.3g}x)"
    return f"{task.name} {time_text(one.seconds)}{beside}"


# --- Promises -------------------------------------------------------------------------------------


def _precision(found: UnitVerdict) -> Statement:
    """Return the line on precision."""
    wrong = [str(one) for one in found.claims or ()]
    accuracy = found.accuracy
    if accuracy is not None:
        text = ". ".join(filter(None, (accuracy.caution(), accuracy.promise())))
        ones = next((one for one in accuracy.stagnation if one.terms == "ones"), None)
        if ones is not None and math.isfinite(ones.computed):
            text += f"; a sum of ones stops growing at {ones.computed:,.0f}"
    elif found.useless and "precision" in found.asked.sections:
        wrong.append(f"USELESS for sums: {found.useless}")
        text = "no error is predicted or measured"
    elif "precision" not in found.asked.sections:
        text = "not tested: it was not asked for"
    else:
        text = (
            "not known: nobody said how this unit computes, so it computed exactly. Say it by "
            "--unit FILE, --arch NAME or --fraction-bits F"
        )
    return Statement(LINES[2], "; ".join([*wrong, text]), not wrong)


# --- Its bounds -----------------------------------------------------------------------------------


def _bound(found: UnitVerdict) -> str:
    bounds: dict[str, list[str]] = {}
    for task in TASKS:
        one = found.best(task)
        if one is not None and one.bound:
            bounds.setdefault(one.bound, []).append(task.name)
    each = "; ".join(f"{bound}: {', '.join(tasks)}" for bound, tasks in bounds.items())
    unknown = found.unknown()
    if not bounds:
        return f"not known without {unknown}" if unknown else "not known: no time was predicted"
    return f"{found.where}{each}" + (f". No time of others without {unknown}" if unknown else "")


# --- Untested parts -------------------------------------------------------------------------------


def _untested(found: UnitVerdict) -> Iterator[str]:
    """Yield the tests that did not run, and the unknown figures."""
    if found.claims is None and (found.agreement is None or not found.agreement.native):
        yield "hardware: its rule was computed, not compared with a model of it"
    if found.accuracy is not None:
        measured = [one.length for one in found.accuracy.errors if one.measured is not None]
        if measured:  # integers are exact, and nothing is measured
            alone = " (predicted alone)" if found.accuracy.holds else ""
            yield f"sums of more than {max(measured):,} terms{alone}"
    if found.left_out:
        yield f"tiles {found.left_out}"
    if found.agreement is not None:
        for reason, count in found.agreement.skipped.most_common():
            yield f"{count} programs on {found.agreement.backend}: {reason}"
    too_large = sum(row.left_out for report in found.reports for row in report.rows)
    if too_large:
        yield f"{too_large} programs that did not fit in memory"
    if found.asked.algorithms is not None:
        yield "other algorithms than those named"
    if found.useless:
        yield "algorithms and precision: with this rule no result would tell anything of them"
    if found.reports and not found.asked.full:
        others = f", most of all on {', '.join(found.tiles[1:])}" if found.tiles[1:] else ""
        yield f"more sizes (--full){others}"
    missing = [one for one in SECTIONS if one not in found.asked.sections]
    if missing:
        yield f"{', '.join(missing)} (not asked for)"
