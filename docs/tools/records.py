"""What was measured on a GPU, read from docs/data/.

h200/NAME.json is what `tcusim bench all -o docs/data/h200` writes: a file for each section, for
each figure of the paper, and of what calls cost. authors_v100.json has the series of the paper's
authors.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tcusim_bench.report import Report, Row
from tcusim_bench.sections import SECTIONS

__all__ = ["DATA", "authors", "figure", "latency", "none", "read", "recorded", "section"]

DATA = Path(__file__).resolve().parents[1] / "data"


def read(name: str, folder: Path = DATA) -> dict[str, Any] | None:
    """Return a recorded file, or None if there is none."""
    path = folder / name
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def none(what: str) -> str:
    """Return the sentence that stands where nothing is recorded."""
    return f"*No run of {what} on a GPU is recorded in this copy of the source.*"


def section(name: str, folder: Path = DATA) -> Report | None:
    """Return the report of a section, with its rows alone; None if it was not recorded."""
    record = read(f"h200/{name}.json", folder)
    if record is None:
        return None
    report = Report.from_json(record)
    rows = tuple(row for row in report.rows if row.section == name)
    return replace(report, rows=rows) if rows else None


def figure(name: str, folder: Path = DATA) -> Report | None:
    """Return the report of a figure of the paper; None if it was not recorded."""
    record = read(f"h200/figure-{name}.json", folder)
    report = None if record is None else Report.from_json(record)
    return report if report and report.rows else None


def latency(folder: Path = DATA) -> dict[str, Any] | None:
    """Return what calls cost."""
    return read("h200/latency.json", folder)


def authors(name: str, folder: Path = DATA) -> list[dict[str, Any]]:
    """Return a series of charts of the paper's authors: lists of label, x and y."""
    record = read("authors_v100.json", folder)
    return [] if record is None else record["figures"].get(name, [])


def recorded(report: Report) -> str:
    """Return when, where and of which source a report is."""
    device = report.device
    commit = f", tcusim at {report.commit}" if report.commit else ""
    return (
        f"{device['gpu']}, driver {device['driver']}, CUDA {device['cuda']}, {report.date}{commit}"
    )


def other_sections(main: Iterable[str], folder: Path = DATA) -> list[tuple[str, list[Row]]]:
    """Return the rows of each section that was recorded, but for the main ones."""
    found = []
    for name in SECTIONS:
        report = None if name in main else section(name, folder)
        if report is not None:
            found.append((name, list(report.rows)))
    return found
