"""`tcusim orders`: the order of additions in torch's products on this machine's GPU."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from tcusim.cli import files
from tcusim.cli.options import JOBS, JSON, OutputFile
from tcusim.cli.output import examples, json_text, print_json


@click.command(
    "orders",
    epilog=examples(
        "tcusim orders --calls 50",
        "tcusim orders --capture -o products.json",
        "tcusim orders --captured products.json --json -o orders.json",
    ),
)
@click.option(
    "--calls",
    "count",
    type=click.IntRange(1),
    default=200,
    show_default=True,
    help="Random products to ask for.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of sizes and numbers.")
@click.option("--capture", is_flag=True, help="Ask the GPU alone, and explain nothing.")
@click.option(
    "--captured",
    type=click.Path(exists=True, dir_okay=False),
    help="Explain what --capture wrote on a GPU; none is needed here.",
)
@JOBS
@click.option("--seconds", type=float, help="Time to explain all calls.")
@JSON
@click.option("-o", "--output", type=OutputFile(), help="Write JSON to a file.")
def orders_command(
    as_json: bool,
    output: str | None,
    count: int,
    seed: int,
    capture: bool,
    captured: str | None,
    **given: Any,
) -> None:
    """Find the order in which torch's products on this GPU are added, to the bit."""
    from tcusim.machine import library_products as orders

    if capture and captured:
        raise click.UsageError("--capture asks a GPU, and --captured does not; give one of them")
    say = None if as_json else partial(click.echo, err=True)
    if captured is None:
        found = orders.captured(count, seed, say=say)
    else:
        found = orders.Capture.read(Path(captured))
    report = found if capture else orders.judged(found, **given, say=say)
    if output is not None:
        files.write_text(output, json_text(report.as_json()) + "\n")
    if as_json:
        print_json(report.as_json())
    else:
        click.echo(report.text())
