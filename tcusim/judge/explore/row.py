"""The result of an exploration for each unit: one flat row, for JSON, CSV and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from tcusim.errors import unknown_name
from tcusim.judge.explore.axes import Point
from tcusim.records import of_plain

__all__ = ["COLUMNS", "METRICS", "Done", "Row", "row_of_json"]


@dataclass(frozen=True, slots=True)
class Done:
    """How a unit does one task best.

    Attributes
    ----------
    algorithm : str
        The algorithm that takes the fewest mma, with its options.
    side : {"a", "b"}
        The operand that holds the data.
    mma : float
        Multiply-accumulates of a tile for each element of the input.
    waste : float
        The share of their multiply-adds that is not useful: 1 - 1/(m*n*k*mma), as each element is
        one addition.
    seconds : float or None
        Predicted time; None where a figure is not known.
    """

    algorithm: str
    side: str
    mma: float
    waste: float
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One unit of a grid, evaluated.

    Attributes
    ----------
    point : Point
        Which unit.
    reason : str
        Why it cannot be, or cannot be evaluated; empty if it was.
    error : float or None
        Predicted error of a sum, as the exploration's `length` and `family` say: the root mean
        square of |sum - exact| / sum of |terms|. None if it overflows.
    measured : float or None
        The same, measured on the simulator, where that was asked for.
    area : float or None
        See `area_proxy`, in full adders; None where the arithmetic is no fused step.
    sums, scans : Done or None
        The best algorithm for long segments; None if there is none for the tile.
    notes : tuple of str
        What else its designer should know, each with a name and a colon before it.
    """

    point: Point
    reason: str = ""
    error: float | None = None
    measured: float | None = None
    area: float | None = None
    sums: Done | None = None
    scans: Done | None = None
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The unit in a few words."""
        point = self.point
        if point.unit:
            return f"{point.unit} {point.tile}"
        return f"{point.tile} F={point.fraction_bits} L={point.fused_length}"

    def value(self, metric: str) -> float | None:
        """Return a metric of `METRICS`; UnknownName for any other."""
        if metric not in METRICS:
            raise unknown_name("metric", metric, METRICS)
        value: float | None = self.as_json()[metric]
        return value

    def as_json(self) -> dict[str, Any]:
        """Return everything in one flat table, by `COLUMNS`."""
        found: dict[str, Any] = {name: getattr(self.point, name) for name in _OF_POINT}
        found["tile"] = self.point.tile
        found |= {name: getattr(self, name) for name in ("error", "measured", "area")}
        found["area_each"] = None
        if self.area is not None:
            found["area_each"] = self.area / (self.point.m * self.point.n * self.point.k)
        for task in _TASKS:
            done = getattr(self, task)
            found |= {f"{task}_{name}": getattr(done, name, None) for name in _OF_DONE}
        found |= {"reason": self.reason, "notes": list(self.notes)}
        return {name: found[name] for name in COLUMNS}


_OF_POINT: Final = tuple(one.name for one in fields(Point))
_OF_DONE: Final = tuple(one.name for one in fields(Done))
_TASKS: Final = ("sums", "scans")
# The names of a flat row, in order.
COLUMNS: Final = (
    *("unit", "tile", *(name for name in _OF_POINT if name != "unit"), "error", "measured"),
    *(
        "area",
        "area_each",
        *(f"{task}_{name}" for task in _TASKS for name in _OF_DONE),
        "reason",
        "notes",
    ),
)
# What units are compared by, less being better: the column, and what it is.
METRICS: Final[Mapping[str, str]] = {
    "error": "error of a sum",
    "area": "area proxy, full adders",
    "area_each": "area of a multiply-add, full adders",
    "sums_mma": "mma an element of a long sum",
    "scans_mma": "mma an element of a long scan",
    "sums_waste": "wasted share of a long sum",
    "scans_waste": "wasted share of a long scan",
    "sums_seconds": "seconds of a long sum",
    "scans_seconds": "seconds of a long scan",
}


def row_of_json(given: Mapping[str, Any]) -> Row:
    """Return the row that `as_json` wrote; KeyError or InputError if it is none."""
    plain = {name: given[name] for name in ("reason", "error", "measured", "area", "notes")}
    plain["point"] = {name: given[name] for name in _OF_POINT}
    for task in _TASKS:
        if given[f"{task}_algorithm"] is not None:
            plain[task] = {name: given[f"{task}_{name}"] for name in _OF_DONE}
    return of_plain(Row, plain, "its values")
