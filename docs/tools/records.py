"""Measurements on a GPU, read from docs/data/.

h200/NAME.json is the output of `tcusim bench run -o docs/data/h200`: a file for each part, such as
a section or a figure of the paper. authors_v100.json has the series of the paper's authors.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tcusim_bench.record import Report

DATA = Path(__file__).resolve().parents[1] / "data"


def read(name: str, folder: Path = DATA) -> dict[str, Any] | None:
    """Return a recorded file, or None if there is none."""
    path = folder / name
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def none(what: str) -> str:
    """Return the sentence that stands where nothing is recorded."""
    return f"*No run of {what} on a GPU is recorded in this copy of the source.*"


def report(name: str, folder: Path = DATA) -> Report | None:
    """Return the report of a part of the benchmark; None if it was not recorded."""
    path = folder / "h200" / f"{name}.json"
    return Report.read(path) if path.is_file() else None


def section(name: str, folder: Path = DATA) -> Report | None:
    """Return the report of a section, with its rows alone; None if it was not recorded."""
    found = report(name, folder)
    rows = tuple(row for row in found.rows if row.case.section == name) if found else ()
    return replace(found, rows=rows) if found and rows else None


def figure(name: str, folder: Path = DATA) -> Report | None:
    """Return the report of a figure of the paper; None if it was not recorded."""
    found = report(f"figure-{name}", folder)
    return found if found and found.rows else None


def authors(name: str, folder: Path = DATA) -> list[dict[str, Any]]:
    """Return a series of charts of the paper's authors: lists of label, x and y."""
    record = read("authors_v100.json", folder)
    return [] if record is None else record["figures"].get(name, [])


def recorded(found: Report) -> str:
    """Return when, where and of which source a report is."""
    device = found.device
    commit = f", tcusim at {found.commit}" if found.commit else ""
    return (
        f"{device['gpu']}, driver {device['driver']}, CUDA {device['cuda']}, {found.date}{commit}"
    )
