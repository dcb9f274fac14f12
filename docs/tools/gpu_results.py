"""What was measured on a GPU, as tables: from docs/data/, or a sentence that nothing is recorded.

agreement_h200.json is what the command `agree` writes with `--json -o`, or an object with
several of these as "runs", and "gpu", "driver", "cuda" and "date" beside them. bench_h200.json is
what `tcusim bench throughput -o` writes, and latency_h200.json what `tcusim bench latency -o` does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tables import table

from tcusim_bench.report import Attempt, Report, Row

__all__ = ["agreement", "benchmark", "kernels", "latency", "sections"]

DATA = Path(__file__).resolve().parents[1] / "data"

_OURS = "tcusim"
_KINDS = {"sum": "reading", "scan": "copying", "matvec": "reading"}
_LIMITS = {"reading": "read", "copying": "copy"}
_NAMES = {
    "sum": "sums",
    "scan": "scans",
    "matvec": "products of a matrix and a vector",
}


def _record(name: str, folder: Path) -> dict[str, Any] | None:
    """Return a recorded file, or None if there is none."""
    path = folder / name
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _none(what: str) -> str:
    return f"*No run of {what} on a GPU is recorded in this copy of the source.*"


# --- Agreement ----------------------------------------------------------------------------------


def agreement(folder: Path = DATA) -> str:
    """Return what was compared on a GPU, and what differed."""
    record = _record("agreement_h200.json", folder)
    if record is None:
        return _none("`tcusim agree`")
    parts = []
    where = [str(record[name]) for name in ("gpu", "date") if record.get(name)]
    where += [f"{name} {record[name]}" for name in ("driver", "cuda") if record.get(name)]
    if where:
        parts.append(f"Recorded on: {', '.join(where)}.")
    parts.extend(_agreement_run(run) for run in record.get("runs", [record]))
    return "\n\n".join(parts)


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


# --- Benchmark ----------------------------------------------------------------------------------


def _report(folder: Path) -> Report | None:
    record = _record("bench_h200.json", folder)
    return None if record is None else Report.from_json(record)


def benchmark(kind: str, folder: Path = DATA, *, result: str | None = None) -> str:
    """Return the speeds of a kind: a line for each segment size, a column for each library.

    kind: "sum", "scan" or "matvec". result: the element type of the results that are shown; by
    default "f16" for scans, and otherwise any, so that a library's column has its best way. The
    notes below the table tell of what failed.
    """
    report = _report(folder)
    if report is None:
        return _none("the benchmark")
    if result is None and kind == "scan":
        result = "f16"
    shown = [row for row in _main(report) if row.kind == kind]
    rows = [row for row in shown if result is None or row.best.result == result]
    if not rows:
        return _none(f"the benchmark with {_NAMES[kind]}")
    names = list(dict.fromkeys(row.best.who for row in rows))
    names.sort(key=lambda name: name != _OURS)
    lines = []
    for size in dict.fromkeys(row.segment_size for row in rows):
        here = [row for row in rows if row.segment_size == size]
        best = {name: _best(here, name) for name in names}
        ours = best.get(_OURS)
        speeds = (_speed(best[name]) for name in names if name != _OURS)
        lines.append((_size(kind, size, report.length), *_our_cells(ours), *speeds))
    heads = ("matrix" if kind == "matvec" else "segment", _OURS, f"of {_KINDS[kind]}")
    others = [name for name in names if name != _OURS]
    parts = [_head(report, kind), table((*heads, "of the best other", *others), lines)]
    return "\n\n".join([*parts, *_wrong(rows, report.length)])


def _main(report: Report) -> list[Row]:
    """Return the rows of float16 segments of powers of two, of whole arrays and of products."""
    return [row for row in report.rows if row.section in ("", "sums", "scans", "products")]


def sections(folder: Path = DATA) -> str:
    """Return the speeds of all other sections that were recorded, a table for each."""
    report = _report(folder)
    main = [] if report is None else _main(report)
    others = [] if report is None else [row for row in report.rows if row not in main]
    if not others:
        return _none("the benchmark's other sections")
    parts = []
    for section in dict.fromkeys(row.section for row in others):
        shown = [row for row in others if row.section == section]
        peers = [name for name in dict.fromkeys(r.best.who for r in shown) if name != _OURS]
        lines = [
            (
                *(row.kind, row.case.size, f"{row.dtype} → {row.best.result}", *_our_cells(row)),
                *(_speed(_best([r for r in shown if _rivals(r, row)], name)) for name in peers),
            )
            for row in shown
            if row.best.who == _OURS
        ]
        heads = ("kind", "size", "types", _OURS, "of the limit", "of the best other", *peers)
        parts.append(f"**`{section}`**\n\n{table(heads, lines)}")
    return "\n\n".join(parts)


def _rivals(row: Row, ours: Row) -> bool:
    """Return whether a row is comparable: of the same problem, and in a scan of the same type."""
    same = ours.kind != "scan" or row.best.result == ours.best.result
    return same and row.case == ours.case


def _size(kind: str, size: int, length: int) -> str:
    """Return what a line is about: a segment size, the whole array, or a matrix."""
    if kind == "matvec":
        return f"{length // size:,} x {size:,}"
    return "whole array" if size == length else f"{size:,}"


def _best(rows: Iterable[Row], who: str) -> Row | None:
    """Return a library's fastest row, or any if none was timed."""
    found = [row for row in rows if row.best.who == who]
    return max(found, key=lambda row: row.elements_per_s or 0.0, default=None)


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


def _wrong(rows: Iterable[Row], length: int) -> list[str]:
    failed: list[tuple[Row, Attempt]] = [(row, row.best) for row in rows if not row.best.ok]
    lines = [
        f"- {one.who}, {_size(row.kind, row.segment_size, length)}: {one.status}"
        for row, one in failed
    ]
    return ["\n".join(lines)] if lines else []


def kernels(folder: Path = DATA) -> str:
    """Return which of tcusim's own programs was the best at each size, by types."""
    report = _report(folder)
    if report is None:
        return _none("the benchmark")
    rows = [
        (
            *(row.kind, _size(row.kind, row.segment_size, report.length)),
            f"{row.best.acc} → {row.best.result}",
            *(f"`{row.best.label}`", _speed(row), f"{row.of_limit or 0:.1%}"),
            f"{row.best.bits_compared:,}",
        )
        for row in _main(report)
        if row.is_ours
    ]
    heads = ("kind", "segment", "sums → result", "program", "10⁹/s", "of the limit")
    return table((*heads, "results compared with the simulator"), rows)


# --- Latency ------------------------------------------------------------------------------------


def latency(folder: Path = DATA) -> str:
    """Return what warm calls cost beside `cupy.sum`, a column a length, and what first calls do."""
    record = _record("latency_h200.json", folder)
    if record is None:
        return _none("`tcusim bench latency`")
    by_call: dict[str, dict[int, dict[str, Any]]] = {}
    for row in record["rows"]:
        by_call.setdefault(row["call"], {})[row["size"]] = row
    sizes = sorted({row["size"] for row in record["rows"]})
    rows = [
        (
            f"`{call}`",
            *(f"{found[size]['us']:.1f} µs, {found[size]['ratio']:.2f}" for size in sizes),
        )
        for call, found in by_call.items()
    ]
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    first = [(name, f"{ms:.0f} ms") for name, ms in record["first_ms"].items()]
    return "\n\n".join(
        (
            f"Recorded on: {record['gpu']}; {versions}; {record['packages']} packages installed.",
            table(("call", *(f"{size:,} elements" for size in sizes)), rows),
            table(("first call", "time"), first),
        )
    )
