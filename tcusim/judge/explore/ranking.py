"""Rows by a metric, and those that no other beats in two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tcusim.judge.explore.row import Row

__all__ = ["PAIRS", "ordered", "pairs_of", "pareto"]

# What makes a unit one of the best: no other is better in one of two and as good in the other.
PAIRS: Final = (
    ("error", "area_each"),
    ("sums_mma", "area"),
    ("scans_mma", "area"),
    ("sums_waste", "scans_waste"),
    ("error", "sums_seconds"),
    ("error", "scans_seconds"),
)


def pareto(rows: Sequence[Row], one: str, other: str) -> tuple[Row, ...]:
    """Return the rows that no other beats in two of `METRICS`, by the first of them.

    A row is beaten by one that is less in one metric and no more in the other. Rows that lack
    either are left out, and of equal ones all are kept. Errors are compared by two digits, of which
    a prediction knows the first: what is better in the third is not.
    """
    known = [
        (x, y, number)
        for number, row in enumerate(rows)
        if (x := _told(row, one)) is not None and (y := _told(row, other)) is not None
    ]
    best: list[tuple[float, float, int]] = []
    for x, y, number in sorted(known):
        if not best or y < best[-1][1] or (x, y) == best[-1][:2]:
            best.append((x, y, number))
    return tuple(rows[number] for _, _, number in best)


def pairs_of(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Return the pairs of metrics in both of which rows differ, of the rows that have both."""
    found = []
    for pair in PAIRS:
        values = [(row.value(pair[0]), row.value(pair[1])) for row in rows]
        known = [both for both in values if None not in both]
        if known and all(len(set(one)) > 1 for one in zip(*known, strict=True)):
            found.append(pair)
    return found


def ordered(rows: Sequence[Row], by: str) -> tuple[Row, ...]:
    """Return the rows by one of `METRICS`, the least first; those without it come last."""

    def key(row: Row) -> tuple[bool, float]:
        value = row.value(by)
        return value is None, value or 0.0

    return tuple(sorted(rows, key=key))


def _told(row: Row, metric: str) -> float | None:
    """Return a metric as it is compared."""
    value = row.value(metric)
    return float(f"{value:.2g}") if metric == "error" and value is not None else value
