"""The sections after the five lines, as texts and tables for terminals, pages and notebooks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from tcusim.judge.accuracy.families import FAMILIES
from tcusim.judge.accuracy.measure import BLOCK
from tcusim.judge.accuracy.summary import PROMISED, Accuracy, Error
from tcusim.judge.correctness.agreement import Agreement
from tcusim.judge.correctness.shape_report import ShapeReport
from tcusim.judge.cost.predicted import time_text
from tcusim.judge.verdict.found import Reference, UnitVerdict, bests_of
from tcusim.judge.verdict.tasks import TASKS, Candidate, Task
from tcusim.machine import FIGURES, Exact, Integer, Late, Rule, Sequential, Unit
from tcusim.machine.unit_file import described_types, rule_keys
from tcusim.table import Table

# The orders of a sequential rule, in words.
_ORDERS: Final = {"chain": "chain", "apart": "chain from zero", "tree": "tree"}

# The mark of the best of a row, and of a tie.
BEST: Final = " *"

# A number to compare, and whether more of it is better.
_Number: TypeAlias = float | None


def sections_of(found: UnitVerdict, *, every_tile: bool = False) -> tuple[Table, ...]:
    """Return the sections of one unit.

    every_tile: counts of all tiles rather than those of the first.
    """
    asked = found.asked.sections
    made: list[Table] = []
    if found.findings:
        texts = tuple(map(str, found.findings))
        made.append(Table(title="What contradicts itself, or is of no use", texts=texts))
    if found.claims is not None:
        made.append(_claims(found))
    if found.reports and "correctness" in asked:
        made.append(_correctness(found))
    if found.agreement is not None:
        made.append(_on_backend(found.agreement, every_tile=every_tile))
    if found.accuracy is not None:
        made += _precision(found.accuracy)
    if found.reports and "counts" in asked:
        made += _counts(found.reports if every_tile else found.reports[:1])
        others = ", ".join(found.tiles[1:])
        if others and not every_tile:
            more = f"Those of {others} are in the page (--html) and the JSON (--json)."
            made.append(Table(title="Counts of the other tiles", texts=(more,)))
    if "time" in asked and found.candidates:
        made.append(_time(found))
    return tuple(made)


def parameters_of(unit: Unit, rules: Sequence[Rule]) -> Table:
    """Return the parameters of a unit, each with its confidence and its source.

    rules: those of its tiles, in their order.
    """
    rows = [("tile", tile.name, "", tile.source) for tile in unit.shapes]
    of: dict[Rule, list[str]] = {}
    for tile, rule in zip(unit.shapes, rules, strict=True):
        of.setdefault(rule, []).append(tile.name)
    for rule, tiles in of.items():
        where = f" of {', '.join(tiles)}" if len(of) > 1 else ""
        keys = {"ab": rule.ab, "acc": rule.acc, **rule_keys(rule)}
        keys |= described_types([rule])
        rows += [
            (f"{key}{where}", value.strip('"'), rule.evidence, rule.source)
            for key, value in keys.items()
        ]
    figures = [
        (f"{name} of {one.tile}", figure, "cycles")
        for one in unit.instructions
        for name, figure in (("latency", one.latency), ("interval", one.interval))
        if figure is not None
    ]
    figures += [(name, one, FIGURES[name].quantity) for name, one in unit.figures().items()]
    rows += [
        (name, f"{one.number} {quantity}", one.confidence, one.source)
        for name, one, quantity in figures
    ]
    unknown = ", ".join(unit.unknown())
    return Table(
        ("parameter", "value", "confidence", "source"),
        rows,
        title=f"Parameters of {unit.name}",
        notes=[f"Not known: {unknown}."] if unknown else [],
    )


def _time(found: UnitVerdict) -> Table:
    """Tell the predicted time of the three fastest of each task, or the missing figures."""
    unknown = found.unknown()
    known = [one for one in found.candidates if one.timed]
    unfit = tuple(_unfit(found.candidates))
    if not known:
        texts = (f"Not known without {unknown}.",) if unknown else ("Nothing is timed.",)
        return Table(title="Time", texts=(*texts, *unfit))
    rows = []
    for task in TASKS:
        own = [one for one in known if one.task == task.name]
        own.sort(key=lambda one: one.seconds or 0.0)
        fastest: dict[tuple[str, str], Candidate] = {}
        for one in own:
            fastest.setdefault((one.name, one.tile), one)
        rows += [
            (str(task), one.name, one.tile, time_text(one.seconds), one.bound)
            for one in list(fastest.values())[:3]
        ]
    whose = "the unit"
    if found.machine:
        whose = f"{found.machine}, whose machine the tile is taken to be a part of"
        if found.borrowed:
            whose = f"the unit, and of {found.machine} for {', '.join(found.borrowed)}"
    return Table(
        title="Time",
        texts=(
            f"Predicted from the figures of {whose}, of 2^26 elements, or of a product. They "
            "are of the default programs, most with one warp a block; more may be faster. "
            "Algorithms without mma are among them: where one is fastest, the matrix unit is of no "
            "use.",
            *([f"No time of others is known without {unknown}."] if unknown else ()),
            *unfit,
        ),
        header=("task", "algorithm", "tile", "time", "bound"),
        rows=rows,
        align="lllr",
        whole=2,
    )


def _unfit(candidates: Sequence[Candidate]) -> Iterator[str]:
    """Yield a sentence for each tile on programs that need more shared memory than the unit has."""
    tiles: dict[tuple[str, int], dict[str, int]] = {}
    for one in candidates:
        if not one.fits and one.most_bytes is not None:
            needs = tiles.setdefault((one.tile, one.most_bytes), {})
            needs[one.name] = max(one.shared_bytes, needs.get(one.name, 0))
    for (tile, most), needs in tiles.items():
        several = ", ".join(f"{name} ({needed:,})" for name, needed in needs.items())
        yield (
            f"Do not fit: on {tile}, a block of these programs takes more shared memory than the "
            f"{most:,} bytes that the unit has for it: {several}."
        )


def _claims(found: UnitVerdict) -> Table:
    texts = tuple(map(str, found.claims or ()))
    tiles = ", ".join(found.tiles)
    right = (f"Every bit of {tiles} is as the unit's rule gives it, on random tiles.",)
    return Table(title="The model against the unit's rule", texts=texts or right)


def _correctness(found: UnitVerdict) -> Table:
    """List the algorithms with exact sums of integers; that says nothing of rounding."""
    texts = [
        "Every algorithm, on integers so small that nothing is rounded: this tests the "
        "algorithms on the tile, and not the arithmetic."
    ]
    for report in found.reports:
        texts += [report.summary(), f"  {report.verified()}"]
        texts += [f"  {note}" for note in report.notes()]
    for one in found.on_arrays:
        texts += [str(one), *(f"  WRONG: {text}" for text in one.failed)]
    return Table(title="Correctness on exact integers", texts=texts)


def _on_backend(agreement: Agreement, *, every_tile: bool) -> Table:
    """Tell the bits of a backend; with every tile, those of each algorithm."""
    title = f"Bits of {agreement.backend}, against the simulator's"
    texts = (
        "A program of each algorithm, on two kinds of random numbers: rounding, infinities and "
        "subnormals among them.",
        f"{agreement.compared_in_words}.",
        *agreement.notes(),
    )
    if not every_tile:
        return Table(title=title, texts=texts)
    return replace(agreement.table(), title=title, texts=texts, summary="")


def _precision(accuracy: Accuracy) -> Iterator[Table]:
    """Tell the errors of sums by kind of data and length, then their limits."""
    for how, blocked in (("one accumulator", None), (f"blocks of {BLOCK} mma", BLOCK)):
        errors = [one for one in accuracy.errors if one.blocked == blocked]
        if all(one.measured is None for one in errors):
            continue  # integers: every sum is exact
        lengths = [one.length for one in errors]
        some = sorted(set(lengths))
        some = [length for length in some if length in (some[0], 2**8, 2**12, 2**16, 2**20, 2**24)]
        rows = []
        for name, family in FAMILIES.items():
            cells = [_error(accuracy.at(name, length, blocked)) for length in some]
            rows.append((f"{name}: {family.title}", *cells))
        yield Table(
            title=f"Error of sums in {how}",
            texts=(
                "Root mean square of |computed - exact| / (sum of |terms|): measured, and = what "
                "the rule predicts. Longer sums are predicted alone.",
            ),
            header=("terms", *(f"{length:,}" for length in some)),
            rows=rows,
            align="l" + "r" * len(some),
        )
    yield Table(title="What limits sums", texts=tuple(_limits(accuracy)))


def _error(error: Error) -> str:
    predicted = "overflow" if math.isinf(error.predicted) else f"{error.predicted:.1e}"
    if error.measured is None:
        return f"= {predicted}"
    measured = "overflow" if math.isinf(error.measured) else f"{error.measured:.1e}"
    return f"{measured} = {predicted}"


def _limits(accuracy: Accuracy) -> Iterator[str]:
    for one in accuracy.stagnation:
        yield (
            f"Stagnation: a sum of {one.terms} stops growing at {_number(one.computed)} "
            f"(predicted: {_number(one.predicted)})."
        )
    for bias in accuracy.bias:
        yield (
            f"Bias near 2^{bias.exponent}: {bias.computed:+.3f} units in the last place a step "
            f"(predicted: {bias.predicted:+.3f}), of terms between 0 and 1."
        )
    if accuracy.splitting:
        whole, *split = accuracy.splitting
        told = ", ".join(f"{one.error:.1e} in {one.parts} parts" for one in split)
        yield (
            f"Splitting: sums of 4,096 float32 numbers, in blocks of {BLOCK} mma, have an error of "
            f"{whole.error:.1e} if each number is rounded to {accuracy.ab}, and {told}."
        )
    yield f"Integers: every sum up to {accuracy.exact_integers:,} is exact."
    overflow = accuracy.overflows_from()
    if overflow is not None:
        yield f"Overflow: sums of terms between 0 and 1 are infinite from about {overflow:,} on."
    order = accuracy.order
    yield (
        f"Order: another order of the terms of an mma gives other bits for "
        f"{100 * order.share:.3g}% of random rows, by up to {order.units:g} units in the last "
        f"place."
    )
    fall = accuracy.fall
    if fall is None:
        yield "Monotonicity: no sum was found that falls where a part of it is raised."
    else:
        part, before = "c", fall.c
        if fall.place is not None:
            part, before = f"term {fall.place}", fall.terms[fall.place]
        yield (
            f"Monotonicity: a sum may fall where a part of it is raised. With {part} raised from "
            f"{before!r} to {fall.raised!r} it falls from {fall.sum!r} to {fall.fallen!r}."
        )


def _number(value: float) -> str:
    return "no number that it can reach" if math.isinf(value) else f"{value:,.0f}"


def _counts(reports: Sequence[ShapeReport]) -> Iterator[Table]:
    for report in reports:
        title = f"Counts on {report.shape}, against the closed formulas"
        yield replace(report.table(), title=title, notes=(), summary="")


# --- Beside each other ----------------------------------------------------------------------------


def comparison_of(units: Sequence[UnitVerdict], reference: Reference | None) -> Table:
    """Return a table with a column for each unit, the best of each row marked."""
    others = () if reference is None else (str(reference),)
    rows: list[tuple[str, ...]] = [
        ("arithmetic", *map(_arithmetic, units), *("" for _ in others)),
        ("tiles", *(", ".join(unit.tiles) or "none" for unit in units), *("" for _ in others)),
        ("cases right", *map(cases_right, units), *("" for _ in others)),
    ]
    if any(unit.agreement is not None for unit in units):
        found = [unit.agreement for unit in units]
        bits = ("" if one is None else one.in_brief for one in found)
        rows.append((f"bits of {units[0].asked.backend}", *bits, *("" for _ in others)))
    rows += [(name, *cells, *("" for _ in others)) for name, *cells in _precision_rows(units)]
    for task in TASKS:
        rows.extend(_task_rows(units, reference, task))
    texts = [f"The best of a row has{BEST}."] if len(units) > 1 else []
    texts.append(
        "An mma is one multiply-accumulate of a tile. The best of a task is the fastest, or takes "
        "the fewest mma where a unit's time is not known."
    )
    texts += [
        f"Times of {unit.name} are those {unit.where.removesuffix(': ').split(', named')[0]}."
        for unit in units
        if unit.machine
    ]
    return Table(
        title="Beside each other" if len(units) > 1 else f"Beside {reference}",
        texts=texts,
        header=("", *(unit.name for unit in units), *others),
        rows=rows,
    )


def _arithmetic(unit: UnitVerdict) -> str:
    """Return the arithmetic of the first tile."""
    if unit.refused:
        return "refused"
    return rule_in_words(unit.rules[0])


def rule_in_words(rule: Rule) -> str:
    """Return a rule in a few words."""
    how = rule.how
    match how:
        case Integer():
            narrow = f", {how.sum_bits} bits in a step of {how.length}" if how.sum_bits < 32 else ""
            return f"integers{narrow}" + (f", {how.overflow}" if how.overflow != "wrap" else "")
        case Sequential():
            length = f" of {how.length}" if how.length else ""
            parts = f", {how.sums} sums" if how.sums > 1 else ""
            return f"{_ORDERS[how.order]}{length}{parts}, {how.rounding}"
        case Exact():
            length = f" of {how.length}" if how.length else ""
            return f"exact{length}, one rounding" + (", c after" * (how.c_joins == "after"))
    late = ", c late" if isinstance(how.c_joins, Late) else ""
    return f"{how.length} terms, {how.fraction_bits} bits, {how.output}{late}"


def cases_right(unit: UnitVerdict) -> str:
    """Return the number of right cases and of all, as text."""
    rows = [row for report in unit.reports for row in report.rows if row.possible]
    if not rows:
        return "refused" if unit.refused else "not tried"
    right, cases = (sum(getattr(row, name) for row in rows) for name in ("right", "cases"))
    return f"{right:,} of {cases:,}"


def _precision_rows(units: Sequence[UnitVerdict]) -> Iterator[tuple[str, ...]]:
    """Yield the bits that may be promised, and where ones stop growing."""
    found = [unit.accuracy for unit in units]
    if not any(found):
        return
    for how, blocked in (("one accumulator", None), (f"blocks of {BLOCK}", BLOCK)):
        bits = [None if one is None else one.bits(blocked=blocked) for one in found]
        yield (f"bits of {PROMISED:,} terms, {how}", *_marked(bits, "{:.1f}", len(bits)))
    stops = [
        None if one is None else next((stop.computed for stop in one.stagnation), None)
        for one in found
    ]
    yield ("ones stop growing at", *_marked(stops, "{:,.0f}", len(stops)))


def _task_rows(
    units: Sequence[UnitVerdict], reference: Reference | None, task: Task
) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a task: its algorithms, elements an mma, and useful shares."""
    found, other = bests_of(units, reference, task)
    if not any(found):
        return
    every = found if reference is None else [*found, other]
    yield (f"{task.name}: best", *("none" if one is None else one.name for one in every))
    each = [None if one is None else 1 / one.mma for one in every]
    yield (f"  {task.terms} an mma", *_marked(each, "{:,.4g}", len(found)))
    useful = [None if one is None else 100 * one.useful for one in every]
    yield ("  useful", *_marked(useful, "{:.3g}%", len(found)))
    times = [None if one is None or one.seconds is None else 1e6 * one.seconds for one in every]
    if any(time is not None for time in times[: len(found)]):
        yield ("  predicted time, us", *_marked(times, "{:,.4g}", len(found), min))


def _marked(
    numbers: Sequence[_Number],
    form: str,
    compared: int,
    best: Callable[[Sequence[float]], float] = max,
) -> Iterator[str]:
    """Yield numbers as text; the best of the first ones is marked, unless they are all equal."""
    known = [one for one in numbers[:compared] if one is not None]
    top = best(known) if len(set(known)) > 1 else None
    for place, one in enumerate(numbers):
        text = "" if one is None else form.format(one)
        yield text + (BEST if place < compared and one is not None and one == top else "")
