"""Charts and table of the page on accuracy: errors of long sums, measured and predicted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from thinned import some

from tcusim.judge.accuracy import predicted_error
from tcusim.line_charts import Line, Plot, charts, draw
from tcusim.machine import Fused, Rule, format_of
from tcusim.table import Table

_DATA: Final = Path(__file__).parents[1] / "data" / "long_sums.json"
_BITS: Final = (25, 20, 12, 8, 3)
# Existing units, by the kind of their step.
_KNOWN: Final = {(16, 25): "Hopper", (8, 24): "Ampere", (4, 23): "Volta"}
# Their alignment, their accumulators and the rounding into these.
_REAL: Final = (("rz", "f32", "rz"), ("rz", "f16", "rne"))


def error_by_length() -> str:
    """Return charts of errors in one accumulator, of coarse and fine units, by kind of data."""
    found = json.loads(_DATA.read_text("utf-8"))
    return charts(
        draw(
            Plot(
                f"One accumulator, {family.replace('_', ' ')} terms",
                tuple(_lines(found, family)),
                "terms",
                "error, L = 16",
                log=True,
            )
        )
        for family in ("same_sign", "normal")
    )


def _lines(found: Any, family: str) -> Iterator[Line]:
    rows = {
        row["fraction_bits"]: row
        for row in found["rows"]
        if (row["family"], row["length"], row["acc"]) == (family, 16, "f32")
    }
    for name in ("measured", "predicted"):
        for bits in _BITS:
            points = [(n, error[name == "predicted"]) for n, *error in _errors(found, rows[bits])]
            shown = tuple((float(n), y) for n, y in points if y > 1e-10)
            yield Line(f"F = {bits}, {name}", shown)


def _errors(found: Any, row: Any) -> Iterator[tuple[int, float, float]]:
    """Yield the length, the measured and the predicted error of sums that do not overflow."""
    how = Fused(
        row["length"], row["fraction_bits"], output=row["output"], alignment=row["alignment"]
    )
    rule = Rule("f16", row["acc"], how, "", "")
    for power, error in enumerate(row["errors"], found["first_power"]):
        if error is not None:
            yield 2**power, error, predicted_error(rule, row["family"], 2**power)


def factor_table() -> str:
    """Return by how much predictions are off at most, by unit, of the five kinds of data."""
    found = json.loads(_DATA.read_text("utf-8"))
    worst: dict[tuple[Any, ...], list[float]] = {}
    for row in some(found["rows"]):
        unit = tuple(row[key] for key in ("fraction_bits", "length", "output", "alignment", "acc"))
        floor = 2.0 ** -(format_of(row["acc"]).fraction_bits + 2)
        for _, *pair in _errors(found, row):
            measured, predicted = (max(floor, one) for one in pair)
            worst.setdefault(unit, []).append(predicted / measured)
    head = ("unit", "F", "L", "rounding of the sum, of terms", "accumulator")
    rows = []
    for (bits, length, output, alignment, acc), ratios in worst.items():
        name = _KNOWN.get((length, bits), "") if (alignment, acc, output) in _REAL else ""
        between = f"{min(ratios):.2f} to {max(ratios):.2f}"
        rows.append((name, str(bits), str(length), f"{output}, {alignment}", acc, between))
    return Table((*head, "predicted / measured"), rows).to_markdown()
