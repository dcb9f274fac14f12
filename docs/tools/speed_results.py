"""The table of how fast the simulator is, as it was recorded."""

from __future__ import annotations

from pathlib import Path

from tables import table

from tcusim_bench.host import PRODUCT_SIDE
from tcusim_bench.record import Report, Row

_FILE = Path(__file__).resolve().parents[1] / "data" / "simulator.json"


def speeds(file: Path = _FILE) -> str:
    """Return a row for each measurement, with a column for each architecture and path."""
    found = Report.read(file)
    columns = list(dict.fromkeys(row.who for row in found.rows))
    header = ["", "unit", *map(_title, columns)]
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for row in found.rows:
        value, unit = _value(row)
        cells.setdefault((row.case.kind, unit), {})[row.who] = f"{value:.1f}"
    rows = [[*what, *(values[who] for who in columns)] for what, values in cells.items()]
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    lead = (
        f"Arrays of {found.length:,} float16 numbers, by processor time of one core: "
        f"{found.device['processor']}; {versions}."
    )
    return f"{lead}\n\n{table(header, rows)}"


def _title(who: str) -> str:
    arch, core = who.split(", ")
    return f"{arch.title()}, {'C++' if core == 'compiled' else 'NumPy'}"


def _value(row: Row) -> tuple[float, str]:
    """Return a ratio, the microseconds of a tile, or the speed of a product, and its unit."""
    if row.ratio is not None:
        return row.ratio, f"times {row.against}"
    if row.case.kind.startswith("a tile"):
        return 1e3 * row.ms, "us"
    return PRODUCT_SIDE**3 / row.ms / 1e6, "G multiply-adds a second"
