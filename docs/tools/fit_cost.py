"""Fit the numbers of `tcusim.judge.cost.fitted` on recorded times: `python docs/tools/fit_cost.py`.

With `--record`, write instead the predicted time of each recorded row beside its time, for the page
on costs. Only rows of docs/data/h200/cost.json that say `fitted` are used. The loss is the mean
fourth power of the logarithm of predicted over measured time, so that no row is far off.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import tcusim
from tcusim.judge.cost.fitted import FITTED, Fitted
from tcusim.judge.cost.model import together
from tcusim.judge.cost.predicted import Cost, cost
from tcusim.machine import Unit, format_of, unit_of

DATA: Final = Path(__file__).parents[1] / "data" / "h200" / "cost.json"
# The fitted numbers; the cost of a write follows from the measured limits.
_FREE: Final = ("sharpness", "overhead", "unhidden", "pace", "queueing", "waiting", "start")
# Between these ends of each, a block's time alone is taken to be linear.
_ENDS: Final = {"overhead": (0.3, 2.0), "pace": (1.0, 8.0)}
# The range of each number. A warp's next instruction waits for the last one's result for 4 to 6
# cycles, and seldom for more. Where 2048 threads of each core have a load of 16 bytes under way,
# these take 1.0 us, which is 2.7 latencies of an idle memory (docs/data/h200/microbench.json).
_RANGES: Final = {
    "sharpness": (1.2, 12.0),
    "overhead": (0.2, 6.0),
    "unhidden": (0.05, 1.0),
    "pace": (4.0, 6.0),
    "queueing": (1.0, 2.7),
    "waiting": (0.0, 1.0),
    "start": (0.0, 1e-5),
}


def measured_rows() -> list[dict[str, Any]]:
    """Return the recorded times."""
    rows: list[dict[str, Any]] = json.loads(DATA.read_text())["rows"]
    return rows


def predicted(row: dict[str, Any], unit: str | Unit = "h200", fitted: Fitted = FITTED) -> Cost:
    """Return the model's prediction for a recorded row."""
    length, segment = row["length"], row["segment"]
    types: dict[str, Any] = {key: format_of(row[key]).array_name for key in ("dtype", "result")}
    if row["operation"] == "matmul":
        sizes = {"rows": segment, "inner": segment, "cols": segment}
        return cost(tcusim.plan_product("matmul", **sizes, **types), unit, fitted=fitted)
    operation = f"segmented_{row['operation']}" if segment else row["operation"]
    plan = tcusim.plan(operation, length=length, segments=segment or None, **types)
    return cost(plan, unit, fitted=fitted)


class _Features:
    """The terms of a row's time, so that the constants can vary without another walk."""

    def __init__(self, row: dict[str, Any], unit: Unit) -> None:
        self.measured = float(row["seconds"])
        corners = list(itertools.product(*_ENDS.values()))
        self.corners: list[tuple[float, ...]] = []
        for corner in corners:
            given = dict(zip(_ENDS, corner, strict=True))
            twice = replace(FITTED, unhidden=0.0, waiting=0.0, queueing=2.0, **given)
            bare = predicted(row, unit, twice)
            full = predicted(row, unit, replace(FITTED, unhidden=1.0, **given)).parts
            cores, turns = bare.parts["cores"], full["cores"]
            assert cores is not None
            assert turns is not None
            idle, queued = (sum(one.spans[at] for one in bare.launches) for at in (0, 1))
            self.corners.append((cores, idle, queued - idle, turns - cores))
        waits = predicted(row, unit, replace(twice, waiting=1.0))
        self.waits = sum(one.spans[0] for one in waits.launches) - idle
        parts = {name: value or 0.0 for name, value in bare.parts.items()}
        self.path = max(parts["memory"], parts["L2"])
        self.products, self.launch = parts["matrix units"], parts["launch"]
        # Each launch has a start.
        later = predicted(row, unit, replace(FITTED, start=FITTED.start + 1.0)).parts["launch"]
        self.starts = (later or 0.0) - self.launch

    def error(self, given: dict[str, float]) -> float:
        """Return the logarithm of predicted over measured time."""
        weights = [1.0]
        for name, (low, high) in _ENDS.items():
            at = (given[name] - low) / (high - low)
            weights = [weight * part for weight in weights for part in (1 - at, at)]
        cores, idle, more, turns = (
            float(one) for one in np.array(weights) @ np.array(self.corners)
        )
        idle += given["waiting"] * self.waits
        spans = (idle, idle + (given["queueing"] - 1.0) * more)
        others = (self.path, cores + given["unhidden"] * turns, self.products)
        seconds, _ = together(others, spans, given["sharpness"])
        seconds += self.launch + (given["start"] - FITTED.start) * self.starts
        return math.log(seconds / self.measured)


def fit(rows: Sequence[dict[str, Any]], unit: Unit) -> tuple[Fitted, NDArray[np.float64]]:
    """Return the constants that fit best, and the logarithms of the residuals."""
    several = [_Features(row, unit) for row in rows if row["fitted"]]

    def left(given: dict[str, float]) -> NDArray[np.float64]:
        return np.array([one.error(given) for one in several])

    def loss(given: dict[str, float]) -> float:
        errors = left(given)
        return float((errors**4).mean())

    given = {name: getattr(FITTED, name) for name in _FREE}
    best = _descend(loss, given)
    found = replace(FITTED, **{name: float(f"{value:.3g}") for name, value in best.items()})
    return found, left({name: getattr(found, name) for name in _FREE})


def _descend(
    loss: Callable[[dict[str, float]], float], given: dict[str, float]
) -> dict[str, float]:
    """Return the minimum of a loss, by shrinking steps in one or two directions."""
    best = loss(given)
    directions = [*((name, name) for name in _FREE), *itertools.combinations(_FREE, 2)]
    for step in (1.3, 1.1, 1.03, 1.01):
        before = math.inf
        while best < before:
            before = best
            for (one, two), up, also in itertools.product(directions, (step, 1 / step), (1, -1)):
                tried = dict(given)
                tried[one] *= up
                if one != two:
                    tried[two] *= up**also
                if all(low <= tried[name] <= high for name, (low, high) in _RANGES.items()):
                    now = loss(tried)
                    if now < best:
                        best, given = now, tried
    return given


def record() -> None:
    """Write the predicted time of each row, and its bound, into the record."""
    whole = json.loads(DATA.read_text())
    for row in whole["rows"]:
        found = predicted(row)
        seconds = found.seconds
        row["predicted"] = None if seconds is None else float(f"{seconds:.4g}")
        row["predicted_bound"] = found.bound
    rows = ",\n".join(json.dumps(row) for row in whole.pop("rows"))
    DATA.write_text(json.dumps(whole, indent=1)[:-2] + f',\n "rows": [\n{rows}\n]}}\n')


def main() -> None:
    """Print the constants and the quality of their fit; or record."""
    if "--record" in sys.argv[1:]:
        record()
        return
    found, errors = fit(measured_rows(), unit_of("h200"))
    print(found)
    print(f"root mean square of the errors: {math.expm1(math.sqrt((errors**2).mean())):.1%}")


if __name__ == "__main__":
    main()
