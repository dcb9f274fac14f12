"""A verdict as HTML: a page that stands alone, or a fragment for a notebook. No script."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from html import escape
from typing import Final

from tcusim import line_charts
from tcusim.judge.accuracy.families import FAMILIES
from tcusim.judge.accuracy.measure import BLOCK
from tcusim.judge.accuracy.summary import Accuracy
from tcusim.judge.cost.model import RESOURCES
from tcusim.judge.verdict.found import Reference, UnitVerdict, bests_of
from tcusim.judge.verdict.lines import failures_of, five_of
from tcusim.judge.verdict.sections import cases_right, comparison_of, parameters_of, sections_of
from tcusim.judge.verdict.tasks import TASKS
from tcusim.markup import page, provenance, shown, themed
from tcusim.table import Table

# Reasons of a failure at the head of a page.
_MOST_REASONS: Final = 3
# The terms of a page: the section that needs each (empty for any), and its meaning.
_TERMS: Final = (
    (
        "",
        "PASS",
        "All that ran is right: the bits of sums and scans of small integers, the counts of mma "
        "against their formulas, and the claims against a model, if one was given. The line "
        "“not tested” names the rest.",
    ),
    (
        "",
        "FAIL",
        "WRONG: some of that is not right. IMPOSSIBLE: two figures of the unit contradict each "
        "other. USELESS: by its rule no sum of numbers around 1 is right.",
    ),
    ("", "waste", "A part of the unit that no program can use. It is no failure."),
    (
        "",
        "confidence",
        "How a parameter is known: recorded bits or measured (on hardware), documented (by the "
        "vendor), published (by others), derived (from other figures) or assumed. The source "
        "“as UNIT” is a figure borrowed from UNIT.",
    ),
    ("", "mma", "One multiply-accumulate of a tile, d = a·b + c, with m·n·k multiply-adds."),
    ("", "short, long", "Sums and scans of segments of 16 and of 65,536 elements, 2^26 in all."),
    ("counts", "elements an mma", "Elements of the input for each mma: more is better."),
    (
        "counts",
        "useful",
        "The share of multiply-adds that the result needs. A sum or scan needs one for each "
        "element, so that P·A of m·k elements has 1/n.",
    ),
    ("counts", "tile used", "The share of multiply-adds with two factors other than zero."),
    ("counts", "reads", "Loads of each element of the input from global memory."),
    ("counts", "registers", "Of 32 bits, for the fragments of a warp, in each lane."),
    (
        "precision",
        "error",
        "The root mean square of |computed - exact| / (sum of |terms|), over many random sums.",
    ),
    (
        "precision",
        "bits",
        "Correct leading bits of such a sum, by twice the largest error over the kinds of terms.",
    ),
    (
        "precision",
        "blocks",
        f"{BLOCK} mma share an accumulator; their sums are added by rounded additions.",
    ),
    ("time", "time", "Predicted from the unit's parameters, not measured."),
)
_STYLE: Final = (
    f"""
{themed(".tcusim-verdict", "--pass: #1b6e20", "--pass: #81c784")}"""
    + """
.tcusim-verdict .outcome { border-left: .4em solid var(--pass); margin: .5em 0;
  padding: .2em .8em; font-size: 1.15em }
.tcusim-verdict .outcome strong { color: var(--pass) }
.tcusim-verdict .outcome.fail { border-color: var(--wrong) }
.tcusim-verdict .outcome.fail strong { color: var(--wrong) }
.tcusim-verdict h2 { font-size: 1.25em; margin: 1.6em 0 .3em }
.tcusim-verdict h3 { font-size: 1.05em; margin: 1.3em 0 .3em }
.tcusim-verdict ul { margin: .3em 0; padding-left: 1.3em; max-width: 62em }
.tcusim-verdict .bars { display: grid; grid-template-columns: max-content 1fr; gap: .1em .7em;
  align-items: center; max-width: 54em; margin: .4em 0 1em }
.tcusim-verdict .bars i { display: block; flex: none; height: .7em; min-width: 1px;
  background: #5b6cd6 }
.tcusim-verdict .bars i.other { background: #8a8a8a }
.tcusim-verdict .bars span { white-space: nowrap }
.tcusim-verdict .bars div { display: flex; gap: .5em; align-items: center }
.tcusim-verdict .bars div span { white-space: normal; overflow-wrap: anywhere }
"""
)


def page_of(
    units: Sequence[UnitVerdict],
    reference: Reference | None,
    command: str,
    beside: Sequence[Table] = (),
) -> str:
    """Return a whole page: the outcome, its origin, then the verdict with its parameters.

    beside: tables that compare many units, by default that of `comparison_of`. The first one's
    title is in the page's, and units that pass are told in one line.
    """
    made = provenance(command or "none: tcusim.validate was called in Python")
    head = [_outcome(unit) for unit in units if not (beside and unit.ok)]
    if beside and len(head) < len(units):
        head.append(_passed([unit for unit in units if unit.ok]))
    head.append(Table(rows=list(made.items())).html())
    body = fragment_of(units, reference, *head, full=True, beside=beside)
    subject = beside[0].title if beside else ", ".join(unit.name for unit in units)
    return page(f"Verdict on {subject}", body)


def fragment_of(
    units: Sequence[UnitVerdict],
    reference: Reference | None,
    *head: str,
    full: bool = False,
    beside: Sequence[Table] = (),
) -> str:
    """Return the HTML of a notebook's output.

    head: parts that precede it. full: whether it has the parameters and the legend of a page.
    beside: as of `page_of`; they precede the units.
    """
    parts = [f"<style>{_STYLE}{line_charts.style()}</style>", '<div class="tcusim-verdict">', *head]
    parts += [table.html(2) for table in beside]
    parts += [five_of(unit, reference).html(2) for unit in units]
    if full:
        known = ((unit.unit, unit.rules) for unit in units)
        parts += [parameters_of(unit, rules).html(2) for unit, rules in known if unit is not None]
    if not beside and (len(units) > 1 or (full and reference is not None)):
        parts.append(comparison_of(units, reference).html(2))
    plots = list(_plots(units))
    if plots:
        parts += ["<h2>Error against length</h2>", line_charts.charts(plots)]
    roofs = [line_charts.draw(one.roofline.plot()) for one in units if one.roofline is not None]
    if roofs:
        parts += ["<h2>Rooflines</h2>", line_charts.charts(roofs)]
    parts += ["<h2>Elements an mma</h2>", *_bars(units, reference)]
    for unit in units:
        if len(units) > 1:
            parts.append(f"<h2>{escape(unit.name)} in full</h2>")
        parts += [one.html(3) for one in sections_of(unit, every_tile=True)]
    if full:
        asked = {section for unit in units for section in unit.asked.sections}
        parts.append(_legend(asked).html(2))
    return shown(*parts, "</div>")


def _outcome(unit: UnitVerdict) -> str:
    """Return whether a unit passes, with its first reasons."""
    reasons = failures_of(unit)
    text, look = f"{cases_right(unit)} cases right, and no contradiction found", "pass"
    if unit.agreement is not None:
        outputs = unit.agreement.total.outputs
        text += f"; {outputs:,} outputs of {unit.agreement.backend} have the simulator's bits"
    if reasons:
        look = "fail"
        text = "; ".join(reasons[:_MOST_REASONS])
        text += f"; {len(reasons) - _MOST_REASONS} more" if len(reasons) > _MOST_REASONS else ""
    elif not any(row.possible for report in unit.reports for row in report.rows):
        text = "no contradiction found; no algorithm was tried"
    return (
        f'<p class="outcome {look}"><strong>{look.upper()}</strong> {escape(unit.name)}, '
        f"{escape(f'{unit.asked.ab} to {unit.asked.acc}: {text}')}.</p>"
    )


def _passed(units: Sequence[UnitVerdict]) -> str:
    """Return one line for all units that pass."""
    rows = [row for unit in units for report in unit.reports for row in report.rows]
    cases = sum(row.cases for row in rows if row.possible)
    return (
        f'<p class="outcome pass"><strong>PASS</strong> {len(units)} units: {cases:,} of '
        f"{cases:,} cases right, and no contradiction found.</p>"
    )


def _legend(sections: Collection[str]) -> Table:
    """Return the terms of the page with their meanings, as far as it has their sections."""
    terms = [(term, text) for section, term, text in _TERMS if section in ("", *sections)]
    if "time" in sections:
        terms += [(f"bound: {name}", text) for name, text in RESOURCES.items()]
    return Table(rows=terms, title="Legend")


def _plots(units: Sequence[UnitVerdict]) -> Iterator[str]:
    """Yield charts of errors by length: as measured, and as predicted beyond."""
    known = [(unit.name, unit.accuracy) for unit in units if unit.accuracy is not None]
    for how, blocked in (("one accumulator", None), (f"blocks of {BLOCK} mma", BLOCK)):
        if len(known) == 1:
            name, accuracy = known[0]
            lines = [_line(accuracy, family, blocked, family) for family in FAMILIES]
            yield line_charts.draw(_plot(f"{name}: {how}", lines))
        elif known:
            lines = [_line(one, "same_sign", blocked, name) for name, one in known]
            yield line_charts.draw(_plot(f"Terms between 0 and 1, {how}", lines))


def _plot(title: str, lines: Sequence[line_charts.Line]) -> line_charts.Plot:
    return line_charts.Plot(title, tuple(lines), "terms", "error, in shares of sum |x|", log=True)


def _line(accuracy: Accuracy, family: str, blocked: int | None, name: str) -> line_charts.Line:
    points = [
        (float(one.length), value)
        for one in accuracy.errors
        if (one.family, one.blocked) == (family, blocked)
        and 0 < (value := one.predicted if one.measured is None else one.measured) < math.inf
    ]
    return line_charts.Line(name, tuple(points))


def _bars(units: Sequence[UnitVerdict], reference: Reference | None) -> Iterator[str]:
    """Yield for each task how much one mma does, as bars of equal scale."""
    for task in TASKS:
        found, other = bests_of(units, reference, task)
        several = zip(units, found, strict=True)
        rows = [(unit.name, one, "") for unit, one in several if one is not None]
        if not rows:
            continue
        if other is not None:
            rows.append((str(reference), other, "other"))
        most = max(1 / one.mma for _, one, _ in rows)
        items = "".join(
            f'<span>{escape(name)}</span><div><i class="{look}" '
            f'style="width: {60 / one.mma / most:.1f}%"></i>'
            f"<span>{1 / one.mma:,.4g} ({escape(one.name)})</span></div>"
            for name, one, look in rows
        )
        title = escape(f"{task}: {task.terms} that one mma takes")
        yield f'<h3>{title}</h3><div class="bars">{items}</div>'
