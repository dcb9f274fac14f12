"""`tcusim bench`: how fast tcusim is on this machine's GPU, beside the libraries installed here."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tcusim.cli import files
from tcusim.cli.options import JSON, OutputFile
from tcusim.cli.output import examples, json_text, print_json

if TYPE_CHECKING:
    from tcusim_bench import latency, throughput

__all__ = ["bench_command"]

_OUTPUT = click.option("-o", "--output", type=OutputFile(), help="Write JSON to a file.")


@click.group("bench")
def bench_command() -> None:
    """Measure what a user waits for on this machine's GPU, beside other libraries."""


@bench_command.command(
    "throughput",
    epilog=examples(
        "tcusim bench throughput --quick",
        "tcusim bench throughput --segment 16 --segment 256 --json -o bench.json",
        "tcusim bench throughput --kind scan --segment 0",
    ),
)
@click.option(
    "--log2-length",
    type=click.IntRange(20, 34),
    default=30,
    show_default=True,
    metavar="N",
    help="Elements: 2 to the power N.",
)
@click.option(
    *("--segment", "segments"),
    type=int,
    multiple=True,
    help="Elements of a segment, 0 for the whole array; repeatable.",
)
@click.option("--kind", "kinds", multiple=True, help="sum, scan or matvec; repeatable.")
@click.option("--peer", "peers", multiple=True, help="Library to compare with; repeatable.")
@click.option("--backend", default="cupy", show_default=True, help="Who runs the kernels.")
@click.option("--quick", is_flag=True, help="Fewer sizes and repetitions.")
@click.option("--seconds", type=float, help="Begin no further problem after this time.")
@JSON
@_OUTPUT
def throughput_command(as_json: bool, output: str | None, **given: Any) -> None:
    """Compare the kernels with the memory's speed, and with other libraries, on long arrays."""
    from tcusim_bench.throughput import Settings, bench

    settings = Settings(**{name: value for name, value in given.items() if value not in (None, ())})
    report = bench(settings, say=None if as_json else partial(click.echo, err=True))
    _deliver(report, as_json, output)
    if report.wrong:
        for attempt in report.wrong:
            click.echo(f"{attempt.who}, {attempt.label}: {attempt.status}", err=True)
        raise click.exceptions.Exit(1)


@bench_command.command(
    "latency",
    epilog=examples("tcusim bench latency", "tcusim bench latency --size 4096 --json -o warm.json"),
)
@click.option(
    *("--size", "sizes"),
    type=click.IntRange(64),
    multiple=True,
    help="Elements of the array; repeatable.",
)
@click.option("--first/--no-first", default=True, help="Time first calls too, in new processes.")
@JSON
@_OUTPUT
def latency_command(as_json: bool, output: str | None, sizes: tuple[int, ...], first: bool) -> None:
    """Time what one call costs on short arrays: the host's share, warm, and the first call."""
    from tcusim_bench.latency import SIZES, latency

    _deliver(latency(sizes or SIZES, first_calls=first), as_json, output)


def _deliver(report: throughput.Report | latency.Report, as_json: bool, output: str | None) -> None:
    if output is not None:
        files.write_text(output, json_text(report.as_json()) + "\n")
    if as_json:
        print_json(report.as_json())
    else:
        click.echo(report.text())
