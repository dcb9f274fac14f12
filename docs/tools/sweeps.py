"""Plots of the page on sweeps, and its table of axes."""

from __future__ import annotations

from tcusim import explore
from tcusim.judge.explore.axes import AXES
from tcusim.judge.explore.page import errors_of, fronts_of
from tcusim.line_charts import charts
from tcusim.table import Table


def error_charts() -> str:
    """Return the plots of the sweep on the page: of errors, and of error and area."""
    found = explore(
        {"fraction_bits": "16:25", "fused_length": (4, 8, 16)},
        algorithms=["reduction_kn", "scan_kn"],
        jobs=1,
    )
    return charts([next(errors_of(found.rows)), next(fronts_of(found.rows))])


def axis_table() -> str:
    """Return the axes of a grid, as a table."""
    rows = []
    for name, axis in AXES.items():
        kind = "doubled in a range" if axis.doubles else "one by one in a range"
        values = ", ".join(axis.words) if axis.words else f"numbers, {kind}"
        rows.append((f"`--{name.replace('_', '-')}`", axis.meaning, values, str(axis.default)))
    return Table(("option", "meaning", "values", "where nothing is said"), rows).to_markdown()
