"""The page on costs: predicted beside measured times, the model's constants, and charts."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import records
from authors_cost import (
    ALL_SIZES,
    PRODUCTS,
    PROGRAMS,
    SIZES,
    Point,
    on_h200,
    points,
    products,
    within,
)
from fit_cost import measured_rows, predicted
from tables import table

import tcusim
from tcusim import line_charts
from tcusim.judge.cost.fitted import FITTED, MEANINGS
from tcusim.judge.cost.model import RESOURCES
from tcusim.judge.cost.roofline import roofline
from tcusim.line_charts import Line, Plot
from tcusim.machine import Figure, Instruction, format_of, unit_of

# The allowed error of a prediction, by the bound of the measured program.
ALLOWED: Final = {"memory": 0.15, "cache": 0.40, "products": 0.40}
_KINDS: Final = {
    "memory": "bound by memory",
    "cache": "in the second-level cache, in a CUDA graph",
    "products": "bound by the matrix units",
}
_NAMES: Final = {"sum": "sum", "cumsum": "scan", "matmul": "product"}
# Sizes of segments that the roofline shows.
_SHOWN: Final = (3, 16, 1024)


def _off(row: dict[str, Any]) -> float | None:
    return None if row["predicted"] is None else row["predicted"] / row["seconds"] - 1


def _misses(row: dict[str, Any]) -> bool:
    off = _off(row)
    return off is None or abs(off) > ALLOWED[row["bound"]]


def _is_usual(row: dict[str, Any]) -> bool:
    """Return whether a row is one of those of 2**30 float16 numbers."""
    types = row["dtype"] == row["result"] == "f16"
    return types and row["length"] > 2**29 and row["operation"] != "matmul"


def resources() -> str:
    """Return the bound of each program, as a table."""
    return table(("resource", "what takes time"), list(RESOURCES.items()))


def constants() -> str:
    """Return the numbers of the model that no unit tells."""
    rows = [(name, f"{getattr(FITTED, name):g}", text) for name, text in MEANINGS.items()]
    return table(("name", "value", "what it is"), rows)


def summary() -> str:
    """Return the number of predictions within the allowed error."""
    rows = []
    for kind, name in _KINDS.items():
        for fitted in (True, False):
            rows_of = [
                row for row in measured_rows() if (row["bound"], row["fitted"]) == (kind, fitted)
            ]
            if not rows_of:
                continue
            near = sum(not _misses(row) for row in rows_of)
            offs = sorted(abs(off) for off in map(_off, rows_of) if off is not None)
            median = f"{offs[len(offs) // 2]:.0%}" if offs else ""
            used = "yes" if fitted else "no"
            allowed, within = f"{ALLOWED[kind]:.0%}", f"{near} of {len(rows_of)}"
            rows.append((name, used, allowed, within, median))
    return table(("programs", "fitted on", "allowed", "within", "median error"), rows)


def times(kind: str) -> str:
    """Return the predicted and the measured time of each recorded program of a kind."""
    rows = [_line(row) for row in measured_rows() if row["bound"] == kind]
    heads = ("program", "elements", "segment", "types", "measured", "predicted", "off", "bound by")
    return table((*heads, "fitted on"), rows)


def _line(row: dict[str, Any]) -> Sequence[str]:
    off = _off(row)
    said = "unknown" if off is None else f"{off:+.0%}"
    if _misses(row):
        said = f"**{said}**"
    whole = row["operation"] == "matmul"
    return (
        _NAMES[row["operation"]],
        f"{row['length']:,}",
        "" if whole else (f"{row['segment']:,}" if row["segment"] else "all"),
        f"{row['dtype']} to {row['result']}",
        _time(row["seconds"]),
        _time(row["predicted"]),
        said,
        row["predicted_bound"],
        "yes" if row["fitted"] else "",
    )


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    return f"{seconds * 1e3:.3f} ms" if seconds >= 1e-4 else f"{seconds * 1e6:.1f} µs"


def charts() -> str:
    """Return charts of predicted and measured speeds, and the roofline."""
    plots = [_speeds("sum", "Sums of 2³⁰ float16"), _speeds("cumsum", "Scans of 2³⁰ float16")]
    costs = {
        f"{_NAMES[row['operation']]}s of {row['segment']}": predicted(row)
        for row in measured_rows()
        if _is_usual(row) and row["segment"] in _SHOWN
    }
    plan = tcusim.plan_product("matmul", rows=4096, inner=4096, cols=4096)
    costs["product of 4096²"] = tcusim.cost(plan)
    plots.append(line_charts.draw(roofline(costs).plot()))
    return line_charts.charts(plots)


def _speeds(operation: str, title: str) -> str:
    points: dict[str, list[tuple[float, float]]] = {"predicted": [], "measured": []}
    for row in measured_rows():
        if row["operation"] != operation or not _is_usual(row) or not row["segment"]:
            continue
        results = row["length"] // (row["segment"] if operation == "sum" else 1)
        size = 2 * (row["length"] + results)
        for name, seconds in (("predicted", row["predicted"]), ("measured", row["seconds"])):
            points[name].append((row["segment"], size / seconds / 1e12))
    lines = tuple(
        Line(name, tuple(sorted(several)), joined=name == "predicted")
        for name, several in points.items()
    )
    plot = Plot(title, lines, "elements of a segment", "TB/s of the arrays, H200")
    return line_charts.draw(plot)


# --- The V100 of the paper's authors -------------------------------------------------------------

# The allowed factor of a prediction, of sums and scans, and of products.
_FACTOR: Final = 1.25
_PRODUCT_FACTOR: Final = 1.5


@functools.cache
def _v100() -> tuple[Point, ...]:
    return (*points(ALL_SIZES), *products())


def _factor(point: Point) -> float:
    return _PRODUCT_FACTOR if point.program in PRODUCTS else _FACTOR


def v100_summary() -> str:
    """Return the number of predicted speeds on a V100 within the allowed factor, by program."""
    some, several = tuple(points(SIZES)), tuple(products())
    return (
        f"{_summary_of(_v100())}\n\nOf the {len(some)} sizes of sums and scans that are 16 or "
        f"powers of four from 256 on, {within(some, _FACTOR)} are within {_FACTOR:g}x; of "
        f"{len(several)} products, {within(several, _PRODUCT_FACTOR)} are within "
        f"{_PRODUCT_FACTOR:g}x."
    )


def h200_summary() -> str:
    """Return the number of predicted speeds of the paper's programs on an H200, by program."""
    return _summary_of(tuple(on_h200()))


def _summary_of(found: Sequence[Point]) -> str:
    rows = []
    for program in dict.fromkeys(one.program for one in found):
        several = [one for one in found if one.program == program]
        ratios = sorted(one.ratio for one in several)
        factor = _factor(several[0])
        near = f"{within(several, factor)} of {len(several)}"
        rows.append((f"`{program}`", f"{ratios[len(ratios) // 2]:.2f}", f"{factor:g}x", near))
    return table(("program", "median of predicted/measured", "allowed", "within"), rows)


def v100_speeds() -> str:
    """Return the predicted and the measured speed of each size on a V100."""
    rows = []
    for one in _v100():
        ratio = f"{one.ratio:.2f}"
        ratio = ratio if within([one], _factor(one)) else f"**{ratio}**"
        speeds = f"{one.measured:.4g}", f"{one.predicted:.4g}"
        rows.append((f"`{one.program}`", f"{one.segment:,}", *speeds, ratio, one.bound))
    heads = ("program", "segment or rows", "measured", "predicted", "ratio", "bound by")
    return table(heads, rows)


def v100_charts() -> str:
    """Return charts of predicted and measured speeds on a V100, one for each program."""
    return line_charts.charts([_v100_chart(name) for name in (*PROGRAMS, *PRODUCTS)])


def _v100_chart(program: str) -> str:
    several = [one for one in _v100() if one.program == program]
    lines = tuple(
        Line(
            name,
            tuple((float(one.segment), float(getattr(one, name))) for one in several),
            joined=name == "predicted",
        )
        for name in ("predicted", "measured")
    )
    if program in PRODUCTS:
        x, y = "rows of the matrices", "10¹² operations a second, V100"
    else:
        x, y = "elements of a segment", "10⁹ elements a second, V100"
    return line_charts.draw(Plot(program, lines, x, y, log=True))


@dataclass(frozen=True, slots=True)
class Timed:
    """A measured time, and the predicted one."""

    operation: str
    length: int
    dtype: str
    measured: float
    seconds: float


def h100_rows(operations: Sequence[str] = tuple(_NAMES)) -> list[Timed]:
    """Return the measured and the predicted times of plans of these operations on an H100."""
    record = records.read("h100/times.json")
    assert record is not None
    return [_timed(**row) for row in record["rows"] if row["operation"] in operations]


def _timed(operation: str, length: int, dtype: str, seconds: float) -> Timed:
    name = format_of(dtype).array_name
    if operation == "matmul":
        plan: Any = tcusim.plan_product(
            operation, rows=length, inner=length, cols=length, dtype=name
        )
    else:
        plan = tcusim.plan(operation, length=length, dtype=name)
    found = tcusim.cost(plan, "h100")
    assert found.seconds is not None
    return Timed(operation, length, dtype, seconds, found.seconds)


def h100_times() -> str:
    """Return the predicted and the measured times on an H100."""
    rows = [
        (
            _NAMES[one.operation],
            f"{one.length:,}" if one.operation != "matmul" else f"{one.length:,}²",
            one.dtype,
            _time(one.measured),
            _time(one.seconds),
            f"{one.seconds / one.measured - 1:+.0%}",
        )
        for one in h100_rows()
    ]
    return table(("program", "elements", "type", "measured", "predicted", "off"), rows)


def comparison() -> str:
    """Return the paper's cycles to sum 256 numbers in a warp, and the corrected ones."""
    units = [unit_of(name) for name in ("v100", "h200")]
    tiles = [unit.instruction("16x16x16", "f16", "f16", "wmma") for unit in units]
    shuffles = [unit.shuffle_interval for unit in units]
    waits = [unit.shuffle_latency for unit in units]
    rows: list[tuple[str, ...]] = [
        ("printed: two products", "64", ""),
        ("printed: shuffles", "256", ""),
    ]
    for name, figures, factor, more in (
        ("two products, as often as a matrix unit takes them", _each(tiles, "interval"), 2, 0),
        ("two products, one waiting for the other", _each(tiles, "latency"), 2, 0),
        # An addition takes 4 cycles, as in the paper: of 32 lanes on 8 units.
        ("eight rounds of five shuffles and additions", shuffles, 8 * 5, 8 * 5 * 4),
        ("seven additions in each lane, and one round", shuffles, 5, 7 * 4 + 5 * 4),
        ("the same, each waiting for the one before", waits, 5, 7 * 4 + 5 * 4),
    ):
        cells = ["unknown" if one is None else f"{one.value * factor + more:g}" for one in figures]
        rows.append((name, *cells))
    return table(("cycles to sum 256 numbers", *(unit.name for unit in units)), rows)


def _each(tiles: Sequence[Instruction | None], name: str) -> list[Figure | None]:
    return [None if tile is None else getattr(tile, name) for tile in tiles]
