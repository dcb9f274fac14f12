"""`tcusim validate` finds out whether a tile shape is any good."""

from __future__ import annotations

import json
from typing import Any

import click

from tcusim.check.report import ShapeReport
from tcusim.check.validation import Validation
from tcusim.cli import files
from tcusim.cli.options import OneOf, OutputFile, arithmetic
from tcusim.cli.output import examples, print_json, progress, show

__all__ = ["validate_command"]

# What takes longer is said before it begins.
_PATIENCE_SECONDS = 60


@click.command(
    "validate",
    no_args_is_help=True,
    epilog=examples(
        "tcusim validate 64x8x16",
        "tcusim validate 5x7x3 scan_t scan_tn --full",
        "tcusim validate 16x16x16 --ab s8 --acc s32 --arch hopper --json -",
    ),
)
@click.argument("shape", metavar="MxNxK")
@click.argument("algorithms", nargs=-1)
@click.option("--ab", default="f16", show_default=True, help="Type of the operands.")
@click.option(
    "--acc",
    type=OneOf("accumulator", ("f32", "f16", "f64", "s32")),
    default="f32",
    show_default=True,
    help="Type they add up in.",
)
@arithmetic("Whose arithmetic.", default="exact")
@click.option(
    "--quick/--full",
    default=True,
    show_default=True,
    help="Some sizes around the edges of the tile, or many, and every layout.",
)
@click.option(
    *("--json", "output"),
    type=OutputFile(),
    help="Write everything as JSON; - prints it instead of the table.",
)
@click.pass_context
def validate_command(
    ctx: click.Context, /, shape: str, algorithms: tuple[str, ...], **options: Any
) -> None:
    """Try ALGORITHMS (default: all) on the tile MxNxK, which may be one that no GPU has.

    The table says which are possible, with the data in which operand, how many cases gave the
    exact sums, and what they cost. The exit code is 1 if anything that is possible is wrong, or
    takes other mma steps than its formula says, or if nothing is possible.
    """
    output, full = options.pop("output"), not options.pop("quick")
    validation = Validation.of(shape, algorithms or None, full=full, **options)
    if validation.seconds > _PATIENCE_SECONDS:
        click.echo(_warning(validation.seconds), err=True)
    with progress("validating") as draw:
        report = validation.run(draw)
    if output not in (None, "-"):
        files.write_text(output, report.to_json() + "\n")
    if output == "-":
        print_json(json.loads(report.to_json()))
    else:
        _print(report)
    ctx.exit(0 if report.ok else 1)


def _warning(seconds: float) -> str:
    """Return how long it takes, and how it takes less."""
    units = (("days", 86400), ("hours", 3600), ("minutes", 60))
    unit, size = next((one for one in units if seconds >= 2 * one[1]), units[-1])
    return (
        f"this takes roughly {seconds / size:.0f} {unit}; less for a smaller tile, or if you name "
        f"algorithms"
    )


def _print(report: ShapeReport) -> None:
    """Print the table, what is wrong or impossible, and the summary."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    cells = report.table()
    if cells:
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        for name in report.header:
            table.add_column(name, no_wrap=name == "algorithm", overflow="fold")
        for line in cells:
            table.add_row(*map(Text, line))
        show(table)
    for note in report.notes():
        click.echo(note)
    click.echo(report.summary())
