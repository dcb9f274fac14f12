"""`tcusim list`: algorithms, shapes, architectures, units and backends, in short or in full."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from textwrap import shorten
from typing import Any, Final, TypeAlias, TypeVar

import click

from tcusim import backends, errors, plugins
from tcusim import machine as numerics
from tcusim.algorithms import algorithms, build, options_of
from tcusim.backends import find_emitter
from tcusim.cli.options import JSON, described
from tcusim.cli.output import columns, examples, print_json, show
from tcusim.machine import FIGURES, Figure, shapes, unit_of, units
from tcusim.machine.registry import own_arithmetic
from tcusim.machine.unit_file import described_types, rule_keys
from tcusim.table import Table

Row: TypeAlias = dict[str, Any]
Key = TypeVar("Key")


@click.command(
    "list",
    epilog=examples(
        "tcusim list",
        "tcusim list algorithms",
        "tcusim list scan_tn hopper 16x16x16",
        "tcusim list shapes --json",
        "tcusim list units h200 mychip.toml",
    ),
)
@click.argument("names", nargs=-1, metavar="[TABLE|NAME]...")
@click.option("--all", "full", is_flag=True, help="Everything that is known of each row.")
@JSON
def list_command(names: tuple[str, ...], full: bool, as_json: bool) -> None:
    """List the known algorithms, shapes, architectures, units, backends (default: all).

    A NAME is a row of one of these tables, which is then told in full; of a TOML file, the unit.
    """
    names = tuple(unit_of(name).name if name.endswith(".toml") else name for name in names)
    tables = [name.lower() for name in names if name.lower() in _TABLES]
    wanted = [name.lower() for name in names if name.lower() not in _TABLES]
    found = {name: _TABLES[name][0]() for name in (tables or _TABLES)}
    if wanted:
        found = _named(found, wanted)
    for one in plugins.broken():
        click.echo(f"warning: {one}", err=True)
    if as_json:
        print_json(found)
        return
    for number, (name, rows) in enumerate(found.items()):
        shown = _in_full(name, rows) if full or wanted else [_TABLES[name][1](rows)]
        click.echo("\n" * bool(number), nl=False)
        show(*(replace(one, title=one.title or name) for one in shown))


def _named(found: dict[str, list[Row]], wanted: Sequence[str]) -> dict[str, list[Row]]:
    """Return the rows of these names, by table; the paper's and other names count, too."""
    chosen: dict[str, list[Row]] = {}
    known: dict[str, str] = {}
    for table, rows in found.items():
        for row in rows:
            names = [row["name"], *row.get("paper", "").split(), *row.get("also", "").split(", ")]
            own = {name.lower(): name for name in names if name}
            known |= own
            if own.keys() & set(wanted):
                chosen.setdefault(table, []).append(row)
    missing = [name for name in wanted if name not in known]
    if missing and len(found) < len(_TABLES):
        raise click.UsageError(f"there is no {missing[0]!r} in {', '.join(found)}")
    if missing:
        near = errors.unknown_name("table or name", missing[0], [*_TABLES, *known.values()])
        # The list of all names would be some screens long.
        text = str(near).partition(" Valid: ")[0]
        raise click.UsageError(f"{text} The tables are {', '.join(_TABLES)}.")
    return chosen


# --- The tables -------------------------------------------------------------------------------


def _algorithm_rows() -> list[Row]:
    return [
        {
            "name": row.name,
            "paper": row.alias,
            "kind": row.kind,
            "level": str(row.level),
            "mma steps": row.formula,
            "options": described(row.options),
            "source": row.source,
            "title": row.title,
            "text": _body(row.function),
        }
        for row in algorithms()
    ]


def _body(function: Callable[..., Any]) -> str:
    """Return the part of a docstring between its first sentence and its sections."""
    text = (inspect.getdoc(function) or "").partition("\n")[2]
    return " ".join(re.split(r"\n\w+\n-+\n", text)[0].split())


def _joined(pairs: Iterable[tuple[Key, str]]) -> dict[Key, str]:
    """Return the texts of each key, with commas between them."""
    found: dict[Key, list[str]] = {}
    for key, text in pairs:
        found.setdefault(key, []).append(text)
    return {key: ", ".join(texts) for key, texts in found.items()}


def _shape_rows() -> list[Row]:
    """Return one row for each shape, instruction and GPU generation."""
    rows = []
    for shape in shapes.shapes():
        found: dict[tuple[str, int | None, str], str] = _joined(
            ((row.family, row.min_sm, row.source), f"{row.ab}→{row.acc}") for row in shape.operands
        )
        if shape.virtual:
            found = {(_made_of(shape), None, shape.source): "any"}
        for (family, min_sm, source), types in found.items():
            rows.append(
                {
                    "name": shape.name,
                    "instruction": family,
                    "types": types,
                    "min sm": min_sm,
                    "source": source,
                }
            )
    return rows


def _made_of(shape: shapes.MmaShape) -> str:
    """Return the instruction that kernels use for a virtual shape, of float16, if any."""
    emitter = find_emitter()
    if emitter is None:
        return "none: simulated only"
    instruction = emitter.instruction(build("reduction_k", tile=shape))
    by_lanes = instruction == "lanes"
    return "none: the lanes multiply, by any rule" if by_lanes else f"none: made of {instruction}"


def _architecture_rows() -> list[Row]:
    """Return one row for each architecture and kind of evidence."""
    return [
        {
            "name": arch.name,
            "title": arch.title,
            "also": ", ".join(name for name in arch.names if name != arch.name),
            "recorded on": ", ".join(arch.recorded),
            "types": types,
            "evidence": evidence,
            "source": source,
        }
        for arch in numerics.arches()
        for (evidence, source), types in _joined(
            ((rule.evidence, rule.source), _types_of(rule)) for rule in (*arch.rows, *arch.scaled)
        ).items()
    ]


def _types_of(rule: numerics.Rule) -> str:
    """Return the types of a rule, with the block scales and the instructions that it is for."""
    scale = f" with {rule.scale}" if rule.scale else ""
    family = f" ({rule.family})" if rule.family else ""
    return f"{rule.ab}→{rule.acc}{scale}{family}"


def _backend_rows() -> list[Row]:
    """Return one row for each backend; one that cannot be loaded says why in its place."""
    rows = []
    for name in backends.backends():
        title = ""
        try:
            reason = backends.why_unavailable(name)
            if reason is None:
                title = backends.get_backend(name).title
        except errors.TcusimError as error:
            reason = str(error)
        available = "yes" if reason is None else reason.removeprefix(f"{name}: ")
        rows.append({"name": name, "title": title, "available": available})
    return rows


def _unit_rows() -> list[Row]:
    """Return one row for each unit: every figure with its source, and the unknown ones."""
    return [
        {
            "name": unit.name,
            "title": unit.title,
            "arithmetic": unit.arch.name,
            "rules": {
                _types_of(rule): f"{_parameters(rule)} ({rule.evidence}: {rule.source})"
                for rule in (*unit.arch.rows, *unit.arch.scaled)
                if own_arithmetic(unit)
            },
            "refuses": {
                "→".join(filter(None, (one.ab, one.acc))) or "other types": one.why
                for one in unit.arch.refusals
                if own_arithmetic(unit)
            },
            "types": described_types((*unit.arch.rows, *unit.arch.scaled)),
            "note": unit.note,
            "not said": unit.unsaid,
            "tiles": ", ".join(shape.name for shape in unit.shapes),
            "figures": {
                name: f"{figure.number} {FIGURES[name].quantity} ({_said(figure)})"
                for name, figure in unit.figures().items()
            },
            "instructions": {
                " ".join(filter(None, (one.family, one.tile, f"{one.ab}→{one.acc}"))): "; ".join(
                    f"{name} {figure.number} cycles ({_said(figure)})"
                    for name, figure in (("latency", one.latency), ("interval", one.interval))
                    if figure is not None
                )
                for one in unit.instructions
            },
            "not known": ", ".join(unit.unknown()),
        }
        for unit in units()
    ]


def _parameters(rule: numerics.Rule) -> str:
    """Return the kind of a rule, and its parameters but for those that are off."""
    kind, *others = rule_keys(rule).items()
    shown = (f"{key} = {value}" for key, value in others if value != "false")
    return ", ".join([kind[1].strip('"'), *shown])


def _said(figure: Figure) -> str:
    return f"{figure.confidence}: {figure.source}"


# --- In short ---------------------------------------------------------------------------------

# The minimum width of a terminal, in columns, to show the paper's names.
_WIDE: Final = 110


def _short_algorithms(rows: list[Row]) -> Table:
    """Return names by kind and level, with the paper's names."""
    kinds, levels = ([*dict.fromkeys(row[column] for row in rows)] for column in ("kind", "level"))
    rows = sorted(rows, key=lambda row: (kinds.index(row["kind"]), levels.index(row["level"])))
    # Beside the paper's names a narrow terminal would show no more than two words of the titles.
    names = ("name", "paper", "level") if columns() >= _WIDE else ("name", "level")
    header = [{"name": "algorithm"}.get(name, name) for name in names]
    cells = [[row[name] for name in names] for row in rows]
    widths = (max(map(len, column)) for column in zip(header, *cells, strict=True))
    space = columns() - 2 - sum(width + 2 for width in widths)
    titles = (shorten(row["title"], max(20, space), placeholder="…") for row in rows)
    return Table(
        [*header, "what it does"],
        [[*some, title] for some, title in zip(cells, titles, strict=True)],
        notes=["`tcusim list NAME` tells all of one, --all of every one."],
        whole=len(names),
    )


def _short_shapes(rows: list[Row]) -> Table:
    """Return each shape with the types of its instructions."""
    names = [row["name"] for row in rows]
    cells = [
        (
            "" if name == above else name,
            row["instruction"],
            f"sm_{row['min sm']}" if row["min sm"] else "",
            row["types"],
        )
        for row, name, above in zip(rows, names, ["", *names[:-1]], strict=True)
    ]
    return Table(("shape", "instruction", "from", "types"), cells, whole=3)


def _short_architectures(rows: list[Row]) -> Table:
    """Return each architecture with its other names and, by evidence, the types."""
    cells = []
    for (name, title, also, recorded), members in groupby(
        rows, lambda row: (row["name"], row["title"], row["also"], row["recorded on"])
    ):
        text = f"{title}; also {also}; recorded on {recorded or 'none of these'}" if also else title
        cells.append((name, text))
        for evidence, types in _joined((row["evidence"], row["types"]) for row in members).items():
            cells.append(("", f"{evidence}: {types}"))
    return Table(("architecture", "what it is, and the evidence for its types"), cells)


def _short_units(rows: list[Row]) -> Table:
    """Return each unit with its arithmetic, and the number of its known figures."""
    cells = []
    for row in rows:
        known = f"{len(row['figures'])} of {len(FIGURES)} figures"
        if row["instructions"]:
            known += f", times of {len(row['instructions'])} instructions"
        cells.append((row["name"], row["arithmetic"], f"{row['title']}: {known}"))
    notes = ["`tcusim list NAME` tells every figure with its source, and which nobody knows."]
    return Table(("unit", "arithmetic", "what is known of it"), cells, notes=notes, whole=2)


def _short_backends(rows: list[Row]) -> Table:
    cells = [
        (
            row["name"],
            row["title"] if row["available"] == "yes" else f"not here: {row['available']}",
        )
        for row in rows
    ]
    return Table(("backend", "what it is"), cells)


# The rows of each table, and their short form.
_TABLES: Final = {
    "algorithms": (_algorithm_rows, _short_algorithms),
    "shapes": (_shape_rows, _short_shapes),
    "architectures": (_architecture_rows, _short_architectures),
    "units": (_unit_rows, _short_units),
    "backends": (_backend_rows, _short_backends),
}


# --- In full ----------------------------------------------------------------------------------


def _in_full(table: str, rows: list[Row]) -> Iterator[Table]:
    """Yield a table of the facts of each name; several rows of a name repeat no fact."""
    for name, members in groupby(rows, lambda row: row["name"]):
        above: Row = {"name": name}
        cells: list[tuple[str, str]] = []
        for row in members:
            for column, value in row.items():
                if not value or above.get(column) == value:
                    continue
                if isinstance(value, dict):
                    cells.append((column, ""))
                    cells += [(f"  {key}", text) for key, text in value.items()]
                else:
                    cells.append((column, str(value)))
            above = row
        yield Table(rows=cells, title=f"{table}: {name}")
    if table == "algorithms":
        yield Table(
            rows=list(described(options_of(build)).items()), title="options of all algorithms"
        )
