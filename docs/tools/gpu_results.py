"""Measurements on a GPU, as tables: from docs/data/, or a sentence that nothing is recorded.

agreement_h200.json is the output of the command `agree --json -o`, or an object with several of
these as "runs", and "gpu", "driver", "cuda" and "date" beside them. agreement_backends.json has the
totals of such runs for each GPU and backend. `records` reads the records of the benchmark.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import records
from records import DATA, none
from tables import table

from tcusim import line_charts
from tcusim.machine import format_of
from tcusim_bench import charts as bench_charts
from tcusim_bench.charts import best_of
from tcusim_bench.record import OURS, ROUNDED, Case, Report, Row

_KINDS = {"sum": "reading", "scan": "copying", "matvec": "reading"}
_LIMITS = {"reading": "read", "copying": "copy"}
_NAMES = {
    "sum": "sums",
    "scan": "scans",
    "matvec": "products of a matrix and a vector",
}
# Sections of the main tables, by kind, and the others that have no tables of their own.
_MAIN = {"sum": "sums", "scan": "scans", "matvec": "products"}
_OTHERS = ("sizes", "small", "types", "ragged", "graphs", "graph-segments")


# --- A library's products -----------------------------------------------------------------------


def orders(folder: Path = DATA) -> str:
    """Return the evidence for a library's products, by their operands."""
    record = records.read("h100/orders.json", folder)
    if record is None:
        return none("`tcusim orders`")
    found: dict[str, list[str]] = {}
    for row in record["rows"]:
        call = row["call"]
        operands = call["a"] if call["a"] == call["b"] else f"{call['a']} by {call['b']}"
        if call["b"].startswith("e"):
            operands += f", use_fast_accum={call['fast']}"
        found.setdefault(operands, []).append(_how_known(row))
    rows = [[operands, str(len(kinds)), *_counts(kinds)] for operands, kinds in found.items()]
    every = [kind for kinds in found.values() for kind in kinds]
    rows.append(["all", str(len(every)), *_counts(every)])
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    title = f"{record['gpu']}, {record['date']}, {versions}:"
    return f"{title}\n\n{table(('operands', 'products', *_HOW_KNOWN), rows)}"


def _how_known(row: dict[str, Any]) -> str:
    """Return the evidence for every byte of a product."""
    default, split, chain, plain, unknown = _HOW_KNOWN
    if row["how"] == "unknown":
        return unknown
    if row["how"] == "default":
        return default
    if row["arch"] == "ieee":
        return plain
    return chain if row["order"].startswith("one chain") else split


def _counts(kinds: list[str]) -> list[str]:
    return [str(kinds.count(kind)) for kind in _HOW_KNOWN]


_HOW_KNOWN = (
    "known by the default call",
    "found: split-K",
    "found: another chain",
    "found: no tensor core",
    "not known",
)


# --- Agreement ----------------------------------------------------------------------------------


def agreement(folder: Path = DATA) -> str:
    """Return the comparisons on a GPU, and their differences."""
    record = records.read("agreement_h200.json", folder)
    if record is None:
        return none("`tcusim agree`")
    parts = []
    where = [str(record[name]) for name in ("gpu", "date") if record.get(name)]
    where += [f"{name} {record[name]}" for name in ("driver", "cuda") if record.get(name)]
    if where:
        parts.append(f"Recorded on: {', '.join(where)}.")
    parts.extend(_agreement_run(run) for run in record.get("runs", [record]))
    return "\n\n".join(parts)


def agreement_by_backend(folder: Path = DATA) -> str:
    """Return the totals of the comparison for each GPU and backend."""
    record = records.read("agreement_backends.json", folder)
    if record is None:
        return none("`tcusim agree --backend` for each backend")
    rows = [
        (
            " ".join(filter(None, (run["gpu"], run["number"] and f"(GPU {run['number']})"))),
            f"`{run['backend']}`",
            *(f"{run[name]:,}" for name in ("cases", "outputs", "differ", "failed", "not_run")),
        )
        for run in record["runs"]
    ]
    heads = ("GPU", "backend", "cases", "outputs compared", "differ", "cases failed", "not run")
    how = f"driver {record['driver']}, CUDA {record['cuda']}"
    return f"Recorded on {record['date']}, {how}:\n\n{table(heads, rows)}"


def _agreement_run(run: dict[str, Any]) -> str:
    """Return a sentence and two tables of one comparison."""
    text = (
        f"**Backend `{run['backend']}`, arithmetic of `{run['arch']}`**: {run['cases']:,} cases, "
        f"{run['outputs']:,} outputs compared, **{run['differ']:,} differ**, "
        f"{run['failed']:,} cases failed."
    )
    if run.get("left"):
        text += f" The time did not suffice for {run['left']:,} programs."
    parts = [text]
    for key, head in (("column", "tile and types"), ("algorithm", "algorithm")):
        rows = _added(run["cells"], key)
        heads = (head, "cases", "outputs compared", "bits that differ", "cases failed")
        parts.append(table(heads, rows))
    if run["skipped"]:
        rows = [(f"{count:,}", reason) for reason, count in run["skipped"].items()]
        parts.append(table(("not run", "why"), rows))
    return "\n\n".join(parts)


def _added(cells: Iterable[dict[str, Any]], key: str) -> list[tuple[str, ...]]:
    """Add up the cells that have the same value of a key."""
    sums: dict[str, list[int]] = {}
    for cell in cells:
        row = sums.setdefault(cell[key], [0, 0, 0, 0])
        for place, name in enumerate(("cases", "outputs", "differ", "failed")):
            row[place] += cell[name]
    return [(f"`{name}`", *(f"{number:,}" for number in row)) for name, row in sums.items()]


# --- Operators of torch -------------------------------------------------------------------------

_LIBRARIES = ("tcusim.torch", "torch", "torch.compile")


def operators(folder: Path = DATA) -> str:
    """Return the speed of the operators of tcusim.torch, as shares of the memory's."""
    report = records.report("operators", folder)
    if report is None:
        return none("`tcusim bench run operators`")
    cells: dict[Case, dict[str, str]] = {}
    for row in report.best():
        text = f"{row.of_limit:.0%}, {row.host_us:.0f} µs" if row.ok else row.status
        cells.setdefault(row.case, {})[row.who] = text
    rows = [
        (
            *(f"`{case.kind}`", format_of(case.dtype).array_name, f"{case.segment_size:,}"),
            *(found.get(who, "") for who in _LIBRARIES),
        )
        for case, found in cells.items()
    ]
    heads = ("operator", "type", "columns", *(f"`{who}`" for who in _LIBRARIES))
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    text = f"Recorded on: {report.device['gpu']}; {versions}; {report.length:,} elements."
    return f"{text}\n\n{table(heads, rows)}"


# --- Benchmark ----------------------------------------------------------------------------------


def benchmark(kind: str, folder: Path = DATA, *, result: str | None = None) -> str:
    """Return the speeds of a kind: a line for each segment size, a column for each library.

    kind: "sum", "scan" or "matvec". result: the element type of the results that are shown; by
    default "f16" for scans, and otherwise any, so that a library's column has its best way. The
    notes below the table name the failures.
    """
    report = records.section(_MAIN[kind], folder)
    if report is None:
        return none(f"the benchmark with {_NAMES[kind]}")
    if result is None and kind == "scan":
        result = "f16"
    shown = [row for row in report.best() if row.case.kind == kind]
    rows = [row for row in shown if result is None or row.result == result]
    if not rows:
        return none(f"the benchmark with {_NAMES[kind]}")
    names = list(dict.fromkeys(row.who for row in rows))
    names.sort(key=lambda name: name != OURS)
    lines = []
    for size in dict.fromkeys(row.case.segment_size for row in rows):
        here = [row for row in rows if row.case.segment_size == size]
        best = {name: best_of(here, name) for name in names}
        ours = best.get(OURS)
        speeds = (_speed(best[name]) for name in names if name != OURS)
        lines.append((_size(here[0]), *_our_cells(ours), *speeds))
    heads = ("matrix" if kind == "matvec" else "segment", OURS, f"of {_KINDS[kind]}")
    others = [name for name in names if name != OURS]
    parts = [_head(report, kind), table((*heads, "of the best other", *others), lines)]
    return "\n\n".join([*parts, *_wrong(rows)])


def sections(folder: Path = DATA) -> str:
    """Return the speeds of all other sections that were recorded, a table for each."""
    parts = []
    for section in _OTHERS:
        report = records.section(section, folder)
        if report is None:
            continue
        shown = report.best()
        peers = [name for name in dict.fromkeys(r.who for r in shown) if name != OURS]
        lines = [
            (
                *(
                    row.case.kind,
                    row.case.size,
                    f"{row.case.dtype} → {row.result}",
                    *_our_cells(row),
                ),
                *(_speed(best_of([r for r in shown if _rivals(r, row)], name)) for name in peers),
            )
            for row in shown
            if row.who == OURS
        ]
        heads = ("kind", "size", "types", OURS, "of the limit", "of the best other", *peers)
        parts.append(f"**`{section}`**\n\n{table(heads, lines)}")
    return "\n\n".join(parts) or none("the benchmark's other sections")


def exact(folder: Path = DATA) -> str:
    """Return the speeds of exact sums and scans beside the usual ones."""
    report = records.section("exact", folder)
    if report is None:
        return none("the benchmark's section `exact`")
    lines = []
    for row in report.best():
        if row.who != OURS:
            continue
        (usual,) = (r for r in report.best() if r.who == ROUNDED and _same_types(r, row))
        ours, other = row.elements_per_s, usual.elements_per_s
        ratio = f"{ours / other:.0%}" if ours and other else "—"
        types = f"f16 → {row.result}"
        lines.append(
            (row.case.kind, row.case.size, types, f"**{_speed(row)}**", _speed(usual), ratio)
        )
    heads = ("kind", "segment", "types", "exact, 10⁹/s", "rounded, 10⁹/s", "of rounded")
    return f"Recorded on: {records.recorded(report)}.\n\n{table(heads, lines)}"


def _same_types(one: Row, other: Row) -> bool:
    return one.case == other.case and one.result == other.result


def energy(folder: Path = DATA) -> str:
    """Return the energy of an element, in picojoules, beside other libraries."""
    report = records.section("energy", folder)
    if report is None:
        return none("the benchmark's section `energy`")
    shown = [row for row in report.best() if row.joules_per_element]
    peers = [who for who in dict.fromkeys(row.who for row in shown) if who != OURS]
    lines = []
    for case in dict.fromkeys(row.case for row in shown):
        here = {row.who: row for row in shown if row.case == case}
        cells = [_picojoules(here.get(who)) for who in (OURS, *peers)]
        lines.append((case.kind, case.size, f"**{cells[0]}**", *cells[1:]))
    text = "Picojoules an element, and watts of the whole board. "
    text += f"Recorded on: {records.recorded(report)}."
    return f"{text}\n\n{table(('kind', 'segment', OURS, *peers), lines)}"


def _picojoules(row: Row | None) -> str:
    if row is None or row.joules_per_element is None:
        return "—"
    return f"{1e12 * row.joules_per_element:,.0f} ({row.watts:.0f} W)"


def _rivals(row: Row, ours: Row) -> bool:
    """Return whether a row is comparable: of the same problem, and in a scan of the same type."""
    same = ours.case.kind != "scan" or row.result == ours.result
    return same and row.case == ours.case


def _size(row: Row) -> str:
    """Return the subject of a line: a segment size, the whole array, or a matrix."""
    if row.case.is_product:
        return f"{row.case.length // row.case.segment_size:,} x {row.case.segment_size:,}"
    return "whole array" if row.case.is_whole else f"{row.case.segment_size:,}"


def _speed(row: Row | None) -> str:
    if row is None:
        return "—"
    return f"{row.elements_per_s / 1e9:,.0f}" if row.elements_per_s else "failed"


def _our_cells(row: Row | None) -> tuple[str, str, str]:
    of_limit = f"{row.of_limit:.1%}" if row and row.of_limit else "—"
    of_peer = f"{row.of_peer:.2f}" if row and row.of_peer else "—"
    return f"**{_speed(row)}**", of_limit, of_peer


def _head(report: Report, kind: str) -> str:
    device = report.device
    name = _LIMITS[_KINDS[kind]]
    return (
        f"{device['gpu']}, driver {device['driver']}, CUDA {device['cuda']}, {report.date}; "
        f"{report.length:,} float16 elements; limit of {_KINDS[kind]}: "
        f"{report.limits[name] / 1e12:.3f} TB/s. Numbers are 10⁹ elements in a second."
    )


def _wrong(rows: Iterable[Row]) -> list[str]:
    lines = [f"- {row.who}, {_size(row)}: {row.status}" for row in rows if not row.ok]
    return ["\n".join(lines)] if lines else []


def kernels(folder: Path = DATA) -> str:
    """Return tcusim's best program at each size, by types."""
    reports = [records.section(name, folder) for name in _MAIN.values()]
    found = [row for report in reports if report for row in report.best()]
    if not found:
        return none("the benchmark")
    rows = [
        (
            *(row.case.kind, _size(row)),
            f"{row.acc} → {row.result}",
            *(f"`{row.label}`", _speed(row), f"{row.of_limit or 0:.1%}"),
            f"{row.bits_compared:,}",
        )
        for row in found
        if row.is_ours
    ]
    heads = ("kind", "segment", "sums → result", "program", "10⁹/s", "of the limit")
    return table((*heads, "results compared with the simulator"), rows)


# --- Charts -------------------------------------------------------------------------------------


def charts(*names: str, folder: Path = DATA) -> str:
    """Return charts of sections: speed, share of the limit, speed-up, and energy if it is there."""
    plots: list[str] = []
    for name in names:
        report = records.section(name, folder)
        if report is None:
            plots.append(line_charts.missing(f"Section {name}", "This was not recorded."))
        else:
            suffix = "" if name in _MAIN.values() else f" ({name})"
            plots += bench_charts.plots(report.best(), suffix)
    return line_charts.charts(plots)


# --- Latency ------------------------------------------------------------------------------------


def latency(folder: Path = DATA) -> str:
    """Return the time of warm calls beside `cupy.sum`, a column a length, and of first calls."""
    report = records.report("latency", folder)
    if report is None:
        return none("`tcusim bench run latency`")
    by_call: dict[str, dict[int, Row]] = {}
    for row in report.rows:
        if row.case.kind == "call":
            by_call.setdefault(row.who, {})[row.case.length] = row
    sizes = sorted({size for found in by_call.values() for size in found})
    rows = [
        (
            f"`{call}`",
            *(f"{1e3 * found[size].ms:.1f} µs, {found[size].ratio:.2f}" for size in sizes),
        )
        for call, found in by_call.items()
    ]
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    first = [(r.who, f"{r.ms:.0f} ms") for r in report.rows if r.case.kind == "first call"]
    device = report.device
    return "\n\n".join(
        (
            f"Recorded on: {device['gpu']}; {versions}; {device['packages']} packages installed.",
            table(("call", *(f"{size:,} elements" for size in sizes)), rows),
            table(("first call", "time"), first),
        )
    )
