"""The result of an exploration for each unit: one flat row, and the rows that no other beats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from tcusim.errors import InputError, unknown_name
from tcusim.judge.explore.area import PICOJOULES
from tcusim.judge.explore.axes import Point
from tcusim.records import of_plain


@dataclass(frozen=True, slots=True)
class Row(Point):
    """One unit of a grid, evaluated: a `Point` and its figures. CSV and JSON have these names.

    Attributes
    ----------
    error : float or None
        Predicted error of a sum, by the exploration's `length` and `family`: the root mean square
        of |sum - exact| / sum of |terms|. None if it overflows.
    measured : float or None
        The same error, measured on the simulator, if the caller asked for it.
    area : float or None
        See `area_proxy`, in full adders; None where the arithmetic is no fused step.
    given_energy : float or None
        Picojoules of a multiply-add, as the file of a named unit states them; None if it does not.
    sums_algorithm, scans_algorithm : str or None
        The best algorithm for long segments, with its options; None if the tile has none.
    sums_side, scans_side : {"a", "b"} or None
        The operand that holds the data.
    sums_mma, scans_mma : float or None
        Multiply-accumulates of a tile for each element of the input.
    sums_waste, scans_waste : float or None
        The share of their multiply-adds that is not useful: 1 - 1/(m*n*k*mma), as each element is
        one addition.
    sums_seconds, scans_seconds : float or None
        Predicted time; None where a figure is not known.
    reason : str
        The reason why the unit cannot be, or cannot be evaluated; empty if it was.
    notes : tuple of str
        Further notes for its designer, each with a name and a colon before it.
    """

    error: float | None = None
    measured: float | None = None
    area: float | None = None
    given_energy: float | None = None
    sums_algorithm: str | None = None
    sums_side: str | None = None
    sums_mma: float | None = None
    sums_waste: float | None = None
    sums_seconds: float | None = None
    scans_algorithm: str | None = None
    scans_side: str | None = None
    scans_mma: float | None = None
    scans_waste: float | None = None
    scans_seconds: float | None = None
    reason: str = ""
    notes: tuple[str, ...] = ()

    @property
    def point(self) -> Point:
        """The unit without its figures."""
        return Point(*(getattr(self, one.name) for one in fields(Point)))

    @property
    def name(self) -> str:
        """The unit in a few words."""
        if self.unit:
            return f"{self.unit} {self.tile}"
        how = f"F={self.fraction_bits} L={self.fused_length} {self.output_rounding}"
        return f"{self.tile} {self.ab}→{self.acc} {how}"

    @property
    def area_each(self) -> float | None:
        """The area for each multiply-add of the tile."""
        return None if self.area is None else self.area / (self.m * self.n * self.k)

    @property
    def energy(self) -> float | None:
        """The energy of a multiply-add in pJ: the given one, else by the same proxy in 45 nm."""
        if self.given_energy is not None:
            return self.given_energy
        return None if self.area_each is None else PICOJOULES * self.area_each

    @property
    def sums_energy(self) -> float | None:
        """The energy of all multiply-adds for an element of a long sum, in pJ."""
        return self._energy(self.sums_mma)

    @property
    def scans_energy(self) -> float | None:
        """The energy of all multiply-adds for an element of a long scan, in pJ."""
        return self._energy(self.scans_mma)

    def _energy(self, mma: float | None) -> float | None:
        if self.energy is None or mma is None:
            return None
        return self.energy * self.m * self.n * self.k * mma

    def value(self, metric: str) -> float | None:
        """Return a metric of `METRICS`; UnknownName for any other."""
        if metric not in METRICS:
            raise unknown_name("metric", metric, METRICS)
        value: float | None = getattr(self, metric)
        return value

    def as_json(self) -> dict[str, Any]:
        """Return everything in one flat table, by `COLUMNS`."""
        return {name: getattr(self, name) for name in COLUMNS} | {"notes": list(self.notes)}


def _columns() -> tuple[str, ...]:
    names = [one.name for one in fields(Row) if one.name != "unit"]
    for before, name in (
        ("area", "area_each"),
        ("area_each", "energy"),
        ("sums_waste", "sums_energy"),
        ("scans_waste", "scans_energy"),
    ):
        names.insert(names.index(before) + 1, name)
    return ("unit", "tile", *names)


# The names of a flat row, in order.
COLUMNS: Final = _columns()
# Columns that CSV and JSON have besides: a unit's number in the exploration, by which drawings call
# it, and the pairs of metrics in which no other unit beats it.
EXTRA: Final = ("number", "best_in")
# The columns that compare units, less being better, and their meanings.
METRICS: Final[Mapping[str, str]] = {
    "error": "error of a sum",
    "area": "area proxy, full adders",
    "area_each": "area of a multiply-add, full adders",
    "energy": "energy of a multiply-add, pJ: given, or in 45 nm",
    "sums_mma": "mma an element of a long sum",
    "scans_mma": "mma an element of a long scan",
    "sums_waste": "wasted share of a long sum",
    "scans_waste": "wasted share of a long scan",
    "sums_energy": "energy an element of a long sum, pJ: given, or in 45 nm",
    "scans_energy": "energy an element of a long scan, pJ: given, or in 45 nm",
    "sums_seconds": "seconds of a long sum",
    "scans_seconds": "seconds of a long scan",
}
# The pairs of metrics whose best units are marked and drawn.
_PAIRS: Final = (
    ("error", "area_each"),
    ("error", "sums_energy"),
    ("sums_mma", "area"),
    ("scans_mma", "area"),
    ("sums_waste", "scans_waste"),
    ("error", "sums_seconds"),
    ("error", "scans_seconds"),
)


def row_of_json(given: Mapping[str, Any]) -> Row:
    """Return the row that `as_json` wrote; InputError if the mapping is no row."""
    for name in COLUMNS:
        if name not in given:
            raise InputError(f"its values: {name!r} is needed")
    return of_plain(Row, {name: given[name] for name in given if name not in EXTRA}, "its values")


def pareto(rows: Sequence[Row], one: str, other: str) -> tuple[Row, ...]:
    """Return the rows that no other beats in two of `METRICS`, by the first of them.

    A row is beaten by one that is less in one metric and no more in the other. Rows that lack
    either are left out, and of equal ones all are kept. Errors are compared by two digits, of which
    a prediction knows the first; a third makes no unit better.
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
    for pair in _PAIRS:
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
