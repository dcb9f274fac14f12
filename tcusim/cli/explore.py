"""`tcusim explore`: many units at once, as a table and as a page with plots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import click

from tcusim.cli import files
from tcusim.cli.options import JOBS, OneOf, OutputFile
from tcusim.cli.output import command_line, examples, json_text, progress, show
from tcusim.judge.accuracy import FAMILIES
from tcusim.judge.explore.axes import AXES, Grid
from tcusim.judge.explore.grid import explore
from tcusim.judge.explore.results import Exploration
from tcusim.judge.explore.row import METRICS

_INTERRUPTED: Final = 130
_OUTPUTS: Final = ("csv", "json", "html")


def _axes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for each axis of a grid."""
    for name, axis in reversed(list(AXES.items())):
        option = click.option(
            f"--{name.replace('_', '-')}",
            name,
            metavar=",".join(axis.words[:2]) + ",..." if axis.words else "A:B|N,N,...",
            help=f"{axis.meaning[0].upper()}{axis.meaning[1:]}. Default: {axis.default}.",
        )
        function = option(function)
    return function


@click.command(
    "explore",
    no_args_is_help=True,
    epilog=examples(
        "tcusim explore --fraction-bits 16:25 --fused-length 4,8,16 --html sweep.html",
        "tcusim explore --m 8:32 --n 8:32 --k 8:16 --sort area --file sweep.jsonl",
        "tcusim explore --tile 16x16x16,8x32x16 --unit h200 --unit mychip.toml --csv -",
    ),
)
@_axes
@click.option("--tile", metavar="MxNxK,...", help="Tiles, in place of --m, --n and --k.")
@click.option(
    *("--unit", "units"),
    multiple=True,
    metavar="NAME|FILE",
    help="A unit that exists, to compare with: a row for each of its tiles. Repeat for several.",
)
@click.option(
    "--like", metavar="NAME|FILE", help="The unit whose clock, memory and times all have."
)
@click.option(
    "--length",
    type=click.IntRange(1),
    default=2**12,
    show_default=True,
    help="Terms of the sum whose error is told.",
)
@click.option(
    "--family",
    type=OneOf("family", tuple(FAMILIES)),
    default="same_sign",
    show_default=True,
    help="What the terms are.",
)
@click.option("--measure", is_flag=True, help="Measure the error on the simulator, too.")
@click.option(
    *("--algorithm", "algorithms"),
    multiple=True,
    metavar="NAME",
    help="One to choose the best from. Repeat for several. Default: all that sum or scan segments.",
)
@click.option(
    "--sort",
    type=OneOf("metric", tuple(METRICS)),
    default="error",
    show_default=True,
    help="What the table is sorted by.",
)
@click.option("--rows", type=click.IntRange(1), default=40, show_default=True, help="Of the table.")
@click.option(
    "--file",
    metavar="FILE",
    help="Append each row to this file of JSON lines. The same command goes on from there.",
)
@JOBS
@click.option("--csv", type=OutputFile(), help="Write all rows as CSV; - prints them instead.")
@click.option("--json", type=OutputFile(), help="Write everything as JSON; - prints it instead.")
@click.option("--html", type=OutputFile(), help="Write a page with plots and the table.")
@click.pass_context
def explore_command(ctx: click.Context, /, **options: Any) -> None:
    """Evaluate every combination of tiles, fraction bits, fused lengths and roundings as a unit.

    A:B is a range with its end, in which sizes double and bits go up by one; A:B:C goes up by C.
    The table has each unit's error in sums, its area by a proxy, and the algorithms that sum and
    scan with the fewest products. Impossible units are listed with the reason. The exit code is 1
    if nothing could be evaluated.
    """
    outputs = {name: path for name in _OUTPUTS if (path := options.pop(name)) is not None}
    if sum(path == "-" for path in outputs.values()) > 1:
        raise click.UsageError("only one of --csv, --json and --html can be printed")
    sort, rows = options.pop("sort"), options.pop("rows")
    found = _explored(options)
    texts: dict[str, Callable[[], str]] = {
        "csv": found.to_csv,
        "json": lambda: json_text(found.as_json()) + "\n",
        "html": lambda: found.to_html(command_line(ctx)),
    }
    for name, path in outputs.items():
        if path == "-":
            click.echo(texts[name](), nl=False)
        else:
            write = files.write_page if name == "html" else files.write_text
            write(path, texts[name]())
    if "-" not in outputs.values():
        _print(found, sort, rows)
    ctx.exit(0 if found.evaluated else 1)


def _explored(options: dict[str, Any]) -> Exploration:
    """Return the exploration; Ctrl-C reports the finished part."""
    given = {name: options.pop(name) for name in (*AXES, "tile", "units", "like")}
    grid = Grid.of(**{name: one for name, one in given.items() if one is not None})
    algorithms = options.pop("algorithms") or None
    done = [0, len(grid)]
    with progress("exploring", of="units") as draw:

        def tell(now: int, whole: int) -> None:
            done[:] = [now, whole]
            if draw is not None:
                draw(now, whole)

        try:
            return explore(grid, algorithms=algorithms, progress=tell, **options)
        except KeyboardInterrupt:
            where = options["file"]
            if where is None:
                raise
    click.echo(
        f"interrupted; {where} has {done[0]:,} of {done[1]:,} units, and the same command goes on",
        err=True,
    )
    raise click.exceptions.Exit(_INTERRUPTED)


def _print(found: Exploration, sort: str, most: int) -> None:
    """Print the table, the impossible combinations, and the summary."""
    table = found.table(sort, most)
    left = len(found.evaluated) - len(table.rows)
    more = f"{left:,} more: --rows {len(found.evaluated)} shows all, --csv FILE has them"
    show(replace(table, notes=[*table.notes, *[more] * bool(left)]))
