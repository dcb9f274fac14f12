"""The table of how fast the simulator is, as it was recorded."""

from __future__ import annotations

import json
from pathlib import Path

from tables import table

__all__ = ["speeds"]

_FILE = Path(__file__).resolve().parents[1] / "data" / "simulator.json"


def speeds(file: Path = _FILE) -> str:
    """Return a row for each measurement, with a column for each architecture and path."""
    found = json.loads(file.read_text(encoding="utf-8"))
    columns = list(dict.fromkeys((row["arch"], row["core"]) for row in found["rows"]))
    names = {"numpy": "NumPy", "compiled": "C++"}
    header = ["", "unit", *(f"{arch.title()}, {names[core]}" for arch, core in columns)]
    values = {(row["what"], row["arch"], row["core"]): row for row in found["rows"]}
    rows = []
    for what, unit in dict.fromkeys((row["what"], row["unit"]) for row in found["rows"]):
        cells = [f"{values[what, *column]['value']:.1f}" for column in columns]
        rows.append([what, unit, *cells])
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    lead = (
        f"Arrays of {found['length']:,} float16 numbers, by processor time of one core: "
        f"{found['processor']}; {versions}."
    )
    return f"{lead}\n\n{table(header, rows)}"
