"""`tcusim unit` writes the file of a unit, to begin from."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from tcusim import errors
from tcusim.cli import files
from tcusim.cli.options import Tile
from tcusim.cli.output import examples
from tcusim.judge.correctness.one_command import one_command
from tcusim.judge.correctness.one_mma import one_mma
from tcusim.machine import Unit, fused_unit, unit_of, unit_toml
from tcusim.machine.probing import probe_unit
from tcusim.machine.registry import own_arithmetic
from tcusim.machine.shapes import MmaShape, shape_of

_SAID: Final = click.core.ParameterSource.COMMANDLINE


@click.command(
    "unit",
    no_args_is_help=True,
    epilog=examples(
        "tcusim unit -",
        "tcusim unit another.toml",
        "tcusim unit board.toml --like h200",
        "tcusim unit mygpu.toml --record cuda --ab f16,bf16",
        "tcusim unit mine.toml --probe ./dot4_pipe --tile 1x1x4",
    ),
)
@click.argument("file", metavar="FILE")
@click.option("--like", metavar="NAME|FILE", help="A unit to copy, such as h200.")
@click.option(
    "--record",
    metavar="BACKEND",
    help="Probe one mma of this backend, such as cuda, and write the rule that has its bits.",
)
@click.option(
    "--probe",
    metavar="CMD",
    help="Probe a simulator: a command that answers lines of words, and write its rule.",
)
@click.option(
    "--tile", type=Tile(), default="16x16x16", show_default=True, help="What is probed: its tile."
)
@click.option(
    "--ab", default="f16", show_default=True, help="Its types; of --record also f16,bf16."
)
@click.option("--acc", default="f32", show_default=True, help="To --record one or more, f32,f16.")
@click.option("--source", help="Which hardware this is. Default: the backend, or the command.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds for one run of the command that is probed.",
)
@click.option("--arch", help="To --record of a backend that simulates: whose arithmetic.")
@click.pass_context
def unit_command(
    ctx: click.Context,
    /,
    file: str,
    like: str | None,
    record: str | None,
    probe: str | None,
    **options: Any,
) -> None:
    """Write the FILE of a unit, in TOML, to edit; - prints it.

    Every figure that may be given is in it, as a comment where it is not known. --unit FILE then
    computes with the unit, and `tcusim list FILE` shows it. --record finds out by probing how the
    unit of a machine sums: how many products a step fuses, which bits it keeps, how it rounds.
    --probe does so with a simulator: CMD reads a line of hexadecimal words a, b and c for each
    case, and prints d; {a}, {b}, {c} and {d} in it are files of words, {count} is their number.
    """
    said = [name for name in options if ctx.get_parameter_source(name) is _SAID]
    if record is not None and probe is not None:
        raise click.UsageError("--record and --probe are two ways to find a rule; give one")
    if said and record is None and probe is None:
        raise click.UsageError(
            f"--{said[0]} is of a unit that is probed; it needs --record or --probe"
        )
    for name, other, given in (("timeout", "probe", probe), ("arch", "record", record)):
        if name in said and given is None:
            raise click.UsageError(f"--{name} is to --{other}; leave it out")
    path = Path(file)
    if file != "-" and path.suffix != ".toml":
        raise errors.InputError(f"{file}: the name of a unit's file ends in .toml")
    if file != "-" and path.exists():
        raise errors.InputError(f"{file} is there already; name a new file")
    if record is not None or probe is not None:
        unit = _found(record, probe, **options)
        if like is not None:
            # The figures of the other, with the arithmetic and the tile that were probed.
            known = unit_of(like)
            unit = replace(known, arch=unit.arch, shapes=unit.shapes, instructions=())
    elif like is None:
        unit = fused_unit(16, 24, tiles=(shape_of("16x16x16"),))
    else:
        unit = unit_of(like)
    text = unit_toml(_renamed(unit, "mychip" if file == "-" else path.stem.lower()))
    if file == "-":
        click.echo(text, nl=False)
    else:
        files.write_text(file, text)


def _found(
    record: str | None, probe: str | None, *, arch: str | None, timeout: float, **options: Any
) -> Unit:
    """Return the unit of a backend, or of a command."""
    if record is not None:
        return _recorded(record, arch=arch, **options)
    return _probed(str(probe), timeout=timeout, **options)


def _recorded(
    backend: str, tile: MmaShape, ab: str, acc: str, source: str | None, arch: str | None
) -> Unit:
    """Return the unit that a backend computes with, found by probing every pair of the types."""
    pairs = list(itertools.product(ab.split(","), acc.split(",")))
    boxes = {pair: one_mma(backend, tile, *pair, arch=arch) for pair in pairs}
    return probe_unit(boxes, tile=tile, source=source or f"tcusim unit --record {backend}")


def _probed(
    command: str, tile: MmaShape, ab: str, acc: str, source: str | None, timeout: float
) -> Unit:
    """Return the unit that a command simulates, found by probing."""
    for name, types in (("ab", ab), ("acc", acc)):
        if "," in types:
            raise click.UsageError(f"--{name} is one type to --probe: the command has its own")
    mma = one_command(command, tile, ab, acc, timeout=timeout)
    said = source or f"tcusim unit --probe {command!r}"
    return probe_unit(mma, tile=tile, ab=ab, acc=acc, source=said, batched=True)


def _renamed(unit: Unit, name: str) -> Unit:
    """Return the unit under another name; arithmetic of its own bears it, too."""
    arch = replace(unit.arch, name=name) if own_arithmetic(unit) else unit.arch
    return replace(unit, name=name, arch=arch)
