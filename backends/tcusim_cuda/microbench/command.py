"""The command `tcusim microbench`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tcusim.cli import files
from tcusim.cli.output import examples, json_text

if TYPE_CHECKING:
    from tcusim_cuda.microbench.report import Report as Measured


@click.command(
    "microbench",
    epilog=examples(
        "tcusim microbench -o measured",
        "tcusim microbench -o measured --seconds 15",
    ),
)
@click.option(
    *("-o", "--output"),
    type=click.Path(file_okay=False),
    required=True,
    help="Folder for microbench.json and the unit's TOML file.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    default=40.0,
    show_default=True,
    help="After which no further probe begins.",
)
def microbench_command(output: str, seconds: float) -> None:
    """Measure this machine's GPU as a unit: latencies, intervals and bandwidths.

    The folder gets every number in microbench.json, and the unit's file with measured figures in
    place of others. A probe that fails is named, and the others stay. JSON is written after each
    probe, so that a stopped run keeps its numbers.
    """
    from tcusim.machine import unit_toml
    from tcusim_cuda.microbench.report import microbench

    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    record = str(folder / "microbench.json")
    files.check_file_writable(record)

    def keep(report: Measured) -> None:
        files.write_text(record, json_text(report.as_json()) + "\n")

    report, unit = microbench(seconds, say=partial(click.echo, err=True), keep=keep)
    keep(report)
    files.write_text(str(folder / f"{unit.name}.toml"), unit_toml(unit))
    click.echo(report.text())
    if report.failed:
        raise click.exceptions.Exit(1)
