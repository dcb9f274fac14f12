"""The roofline of a unit, with programs as points, and the sizes from which memory bounds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tcusim.judge.cost.predicted import Cost
from tcusim.line_charts import Line, Plot
from tcusim.machine import Unit, unit_of

# How far left and right of the points the roofs are drawn, as a factor.
_MARGIN: Final = 2.0


@dataclass(frozen=True, slots=True)
class Roofline:
    """The limits of a unit, and the rates of programs on it.

    Attributes
    ----------
    unit : str
        Its name.
    peak : float or None
        Multiply-adds a second of all matrix units, of the instruction that `roofline` was given;
        None if a figure is unknown.
    roofs : dict of str to float
        Bytes a second of memory, and of the second-level cache, as far as they are known.
    points : dict of str to (float, float)
        By what each is called: multiply-adds for each byte of its arrays, and multiply-adds a
        second. Products with constant matrices count, as they take as long as any.
    """

    unit: str
    peak: float | None
    roofs: Mapping[str, float]
    points: Mapping[str, tuple[float, float]]

    def plot(self) -> Plot:
        """Return the chart: multiply-adds a second against multiply-adds a byte."""
        at = [x for x, _ in self.points.values()] or [1.0]
        low, high = min(at) / _MARGIN, max(at) * _MARGIN
        lines = [Line(name, (point,), joined=False) for name, point in self.points.items()]
        for name, rate in self.roofs.items():
            ends = [low, high] if self.peak is None else [low, min(high, self.peak / rate), high]
            lines.append(Line(name, tuple((x, self._roof(rate, x)) for x in ends)))
        level = None if self.peak is None else ("all matrix units", self.peak)
        return Plot(
            f"Roofline of {self.unit}",
            tuple(lines),
            "multiply-adds for each byte of the arrays",
            "multiply-adds a second",
            log=True,
            level=level,
        )

    def _roof(self, rate: float, x: float) -> float:
        return rate * x if self.peak is None else min(rate * x, self.peak)


def roofline(
    costs: Mapping[str, Cost],
    unit: str | Unit = "h200",
    instruction: tuple[str, str, str] = ("16x16x16", "f16", "f32"),
) -> Roofline:
    """Return the roofline of a unit with the programs of some costs on it.

    Parameters
    ----------
    costs : mapping of str to Cost
        By what each is called. One whose time is unknown has no point.
    instruction : tuple of str
        Tile and types of the products that bound the peak.

    Examples
    --------
    >>> import tcusim
    >>> plan = tcusim.plan("segmented_sum", length=2**24, segments=256)
    >>> roofs = roofline({"sums of 256": tcusim.cost(plan, cached=False)})
    >>> intensity, rate = roofs.points["sums of 256"]
    >>> rate < roofs.peak and rate <= intensity * roofs.roofs["memory"]
    True
    """
    where = unit_of(unit)
    m, n, k = (int(size) for size in instruction[0].split("x"))
    found = where.instruction(*instruction)
    known = (where.cores, where.units_per_core, where.clock, found.interval if found else None)
    peak = None
    if all(known):
        cores, units, clock, interval = (one.value for one in known if one)
        peak = cores * units * clock * m * n * k / interval
    roofs = {
        name: figure.value
        for name, figure in (("memory", where.memory_bandwidth), ("L2", where.l2_bandwidth))
        if figure is not None
    }
    points = {}
    for name, cost in costs.items():
        adds = sum(launch.multiply_adds for launch in cost.launches)
        if cost.seconds and adds:
            points[name] = adds / cost.bytes, adds / cost.seconds
    return Roofline(where.name, peak, roofs, points)


def memory_bound_sizes(
    sizes: Iterable[int], cost_of: Callable[[int], Cost]
) -> tuple[tuple[int, int] | None, Sequence[tuple[int, Cost]]]:
    """Return from which size to which memory bounds a family of programs, and the cost of each.

    Parameters
    ----------
    sizes : iterable of int
        Of segments, or of whatever `cost_of` takes; they are tried in ascending order.
    cost_of : callable
        Returns the cost of a size.

    Returns
    -------
    tuple
        The least and the largest size of the longest run of sizes that memory bounds, None if it
        bounds none; and pairs of size and cost.
    """
    found = [(size, cost_of(size)) for size in sorted(sizes)]
    runs: list[list[int]] = [[]]
    for size, cost in found:
        if cost.bound == "memory":
            runs[-1].append(size)
        else:
            runs.append([])
    longest = max(runs, key=len)
    return ((longest[0], longest[-1]) if longest else None), found
