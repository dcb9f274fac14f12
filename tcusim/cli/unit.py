"""`tcusim unit` writes the file of a unit, to begin from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from tcusim import errors
from tcusim.cli import files
from tcusim.cli.output import examples
from tcusim.machine import Unit, fused_unit, unit_of, unit_toml
from tcusim.machine.registry import own_arithmetic
from tcusim.machine.shapes import shape_of

__all__ = ["unit_command"]


@click.command(
    "unit",
    no_args_is_help=True,
    epilog=examples(
        "tcusim unit -",
        "tcusim unit another.toml",
        "tcusim unit board.toml --like h200",
    ),
)
@click.argument("file", metavar="FILE")
@click.option("--like", metavar="NAME|FILE", help="A unit to copy, such as h200.")
def unit_command(file: str, like: str | None) -> None:
    """Write the FILE of a unit, in TOML, to edit; - prints it.

    Every figure that may be given is in it, as a comment where it is not known. --unit FILE then
    computes with the unit, and `tcusim list FILE` shows it.
    """
    path = Path(file)
    if file != "-" and path.suffix != ".toml":
        raise errors.InputError(f"{file}: the name of a unit's file ends in .toml")
    if file != "-" and path.exists():
        raise errors.InputError(f"{file} is there already; name a new file")
    unit = fused_unit(16, 24, tiles=(shape_of("16x16x16"),)) if like is None else unit_of(like)
    text = unit_toml(_renamed(unit, "mychip" if file == "-" else path.stem.lower()))
    if file == "-":
        click.echo(text, nl=False)
    else:
        files.write_text(file, text)


def _renamed(unit: Unit, name: str) -> Unit:
    """Return the unit under another name; arithmetic of its own bears it, too."""
    arch = replace(unit.arch, name=name) if own_arithmetic(unit) else unit.arch
    return replace(unit, name=name, arch=arch)
