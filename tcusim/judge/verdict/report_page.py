"""A verdict as HTML: a page that stands alone, or a fragment for a notebook. No script."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from tcusim import line_charts
from tcusim.judge.accuracy.families import FAMILIES
from tcusim.judge.accuracy.measure import BLOCK
from tcusim.judge.accuracy.summary import Accuracy
from tcusim.judge.verdict.found import Reference, UnitVerdict, bests_of
from tcusim.judge.verdict.lines import five_of
from tcusim.judge.verdict.sections import comparison_of, sections_of
from tcusim.judge.verdict.tasks import TASKS
from tcusim.markup import page, shown

__all__ = ["fragment_of", "page_of"]

_STYLE: Final = """
.tcusim-verdict h2 { font-size: 1.25em; margin: 1.6em 0 .3em }
.tcusim-verdict h3 { font-size: 1.05em; margin: 1.3em 0 .3em }
.tcusim-verdict ul { margin: .3em 0; padding-left: 1.3em; max-width: 62em }
.tcusim-verdict .bars { display: grid; grid-template-columns: max-content 1fr; gap: .1em .7em;
  align-items: center; max-width: 40em; margin: .4em 0 1em }
.tcusim-verdict .bars i { display: block; flex: none; height: .7em; min-width: 1px;
  background: #5b6cd6 }
.tcusim-verdict .bars i.other { background: #8a8a8a }
.tcusim-verdict .bars span { white-space: nowrap }
.tcusim-verdict .bars div { display: flex; gap: .5em; align-items: center }
.tcusim-verdict .bars div span { white-space: normal; overflow-wrap: anywhere }
"""


def page_of(units: Sequence[UnitVerdict], reference: Reference | None) -> str:
    """Return a whole page."""
    names = ", ".join(unit.name for unit in units)
    return page(f"Is it any good? {names}", fragment_of(units, reference))


def fragment_of(units: Sequence[UnitVerdict], reference: Reference | None) -> str:
    """Return the HTML of a notebook's output, which a page holds too."""
    parts = [f"<style>{_STYLE}{line_charts.style()}</style>", '<div class="tcusim-verdict">']
    parts += [five_of(unit, reference).html(2) for unit in units]
    if len(units) > 1:
        parts.append(comparison_of(units, reference).html(3))
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
    return shown(*parts, "</div>")


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
