"""`tcusim bench`: how fast tcusim is on this machine's GPU, beside the libraries installed here."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tcusim.cli import files
from tcusim.cli.options import JSON, OutputFile
from tcusim.cli.output import examples, json_text, print_json

if TYPE_CHECKING:
    from tcusim.machine.library_products import Capture
    from tcusim.machine.library_products import Report as Orders
    from tcusim_bench.latency import Report as Calls
    from tcusim_bench.operators import Report as Operators
    from tcusim_bench.report import Report
    from tcusim_bench.simulator import Report as Speeds

__all__ = ["bench_command", "tune_command"]

_OUTPUT = click.option("-o", "--output", type=OutputFile(), help="Write JSON to a file.")
_LOG2_LENGTH = click.option(
    "--log2-length",
    type=click.IntRange(20, 34),
    default=30,
    show_default=True,
    metavar="N",
    help="Elements: 2 to the power N.",
)
_BACKEND = click.option(
    "--backend", default="cupy", show_default=True, help="Who runs the kernels."
)
_SECONDS = click.option(
    "--seconds", type=float, help="Time for all problems, which have equal shares of it."
)
_AUTHORS = click.option(
    "--authors",
    type=click.Path(exists=True, dir_okay=False),
    help="JSON of what the paper's authors measured, to record beside it.",
)
_COMMIT = click.option("--commit", help="Commit of tcusim's source, for the record.")


@click.group("bench")
def bench_command() -> None:
    """Measure what a user waits for on this machine's GPU, beside other libraries."""


@bench_command.command(
    "throughput",
    epilog=examples(
        "tcusim bench throughput --quick",
        "tcusim bench throughput --section ragged --section small --json -o bench.json",
        "tcusim bench throughput --section scans --segment 0",
    ),
)
@_LOG2_LENGTH
@click.option(
    *("--section", "sections"),
    multiple=True,
    help="sums, scans and products by default; or sizes, small, types, ragged, graphs, "
    "graph-segments, exact, energy; repeatable.",
)
@click.option(
    *("--segment", "segments"),
    type=int,
    multiple=True,
    help="Elements of a segment, 0 for the whole array; repeatable.",
)
@click.option("--peer", "peers", multiple=True, help="Library to compare with; repeatable.")
@_BACKEND
@click.option("--plans-only", is_flag=True, help="Try no programs beside those of the plan.")
@click.option("--quick", is_flag=True, help="Fewer sizes and elements, and plans only.")
@_SECONDS
@_COMMIT
@JSON
@_OUTPUT
def throughput_command(as_json: bool, output: str | None, plans_only: bool, **given: Any) -> None:
    """Compare the kernels with the memory's speed, and with other libraries, on long arrays."""
    from tcusim_bench.throughput import Settings, bench

    chosen = {name: value for name, value in given.items() if value not in (None, ())}
    settings = Settings(**chosen, programs=not plans_only)
    _measured(
        bench(settings, say=None if as_json else partial(click.echo, err=True)), as_json, output
    )


def _measured(report: Report, as_json: bool, output: str | None) -> None:
    """Deliver a report; fail if any result of tcusim's own was wrong."""
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


@bench_command.command(
    "orders",
    epilog=examples(
        "tcusim bench orders --calls 50",
        "tcusim bench orders --capture -o products.json",
        "tcusim bench orders --captured products.json --json -o orders.json",
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
@click.option("--jobs", type=click.IntRange(1), help="Processes; default: one a processor.")
@click.option("--seconds", type=float, help="Time to explain all calls.")
@JSON
@_OUTPUT
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
    _deliver(found if capture else orders.judged(found, **given, say=say), as_json, output)


@bench_command.command(
    "operators",
    epilog=examples(
        "tcusim bench operators --quick",
        "tcusim bench operators --seconds 120 --json -o operators.json",
    ),
)
@_LOG2_LENGTH
@click.option("--quick", is_flag=True, help="bfloat16 and rows of 4,096 alone.")
@click.option("--seconds", type=float, help="Time for all operators.")
@JSON
@_OUTPUT
def operators_command(
    log2_length: int, quick: bool, seconds: float | None, as_json: bool, output: str | None
) -> None:
    """Time the operators of tcusim.torch on this machine's GPU, beside torch's own."""
    from tcusim_bench.operators import COLUMNS, DTYPES, operators

    columns, dtypes = ((4096,), ("bfloat16",)) if quick else (COLUMNS, DTYPES)
    _deliver(operators(log2_length, columns, dtypes, seconds=seconds), as_json, output)


@bench_command.command(
    "simulator",
    epilog=examples(
        "tcusim bench simulator",
        "tcusim bench simulator --log2-length 22 --json -o speed.json",
    ),
)
@click.option(
    "--log2-length",
    type=click.IntRange(8, 28),
    default=24,
    show_default=True,
    metavar="N",
    help="Elements: 2 to the power N.",
)
@JSON
@_OUTPUT
def simulator_command(log2_length: int, as_json: bool, output: str | None) -> None:
    """Time the simulator on this machine's processor, beside NumPy's own sums and scans."""
    from tcusim_bench.simulator import simulator

    _deliver(simulator(log2_length), as_json, output)


@bench_command.command(
    "paper",
    epilog=examples(
        "tcusim bench paper 10 --quick",
        "tcusim bench paper 12 --authors v100.json --json -o figure_12.json",
    ),
)
@click.argument("figure")
@_LOG2_LENGTH
@click.option(
    *("--segment", "segments"),
    type=click.IntRange(1),
    multiple=True,
    help="Size to take instead of the figure's; repeatable.",
)
@_BACKEND
@click.option("--quick", is_flag=True, help="Every third size, and fewer elements.")
@_SECONDS
@_COMMIT
@_AUTHORS
@JSON
@_OUTPUT
def paper_command(
    figure: str, as_json: bool, output: str | None, authors: str | None, **given: Any
) -> None:
    """Measure FIGURE of the paper's evaluation: 2, 3, 10, 11, 12, 13, 14 or power."""
    from tcusim_bench.paper import measure_figure, read_authors
    from tcusim_bench.throughput import Settings

    settings = Settings(**{name: value for name, value in given.items() if value not in (None, ())})
    series = None if authors is None else read_authors(Path(authors))
    say = None if as_json else partial(click.echo, err=True)
    _measured(measure_figure(figure, settings, series, say), as_json, output)


@bench_command.command(
    "all",
    epilog=examples(
        "tcusim bench all -o recorded --seconds 400 --commit $(git rev-parse --short HEAD)",
        "tcusim bench all -o recorded --part figure-10 --part energy",
    ),
)
@click.option(
    *("-o", "--output"),
    type=click.Path(file_okay=False),
    required=True,
    help="Folder for a JSON file of each part; problems that are there are not measured again.",
)
@click.option(
    *("--part", "parts"),
    multiple=True,
    help="A section, figure-NAME or latency; repeatable. All by default.",
)
@_LOG2_LENGTH
@_BACKEND
@click.option("--quick", is_flag=True, help="Fewer sizes and elements.")
@_SECONDS
@_COMMIT
@_AUTHORS
def all_command(output: str, parts: tuple[str, ...], authors: str | None, **given: Any) -> None:
    """Record every section and every figure of the paper, in parts; go on where a run was cut."""
    from tcusim_bench.everything import record_all
    from tcusim_bench.paper import read_authors
    from tcusim_bench.throughput import Settings

    settings = Settings(**{name: value for name, value in given.items() if value not in (None, ())})
    series = None if authors is None else read_authors(Path(authors))
    say = partial(click.echo, err=True)
    recorded = record_all(Path(output), settings, parts, series, say)
    for one in recorded:
        click.echo(one)
    if any(one.wrong for one in recorded):
        raise click.exceptions.Exit(1)


@bench_command.command("chart", epilog=examples("tcusim bench chart bench.json -o charts"))
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option(
    *("-o", "--output"),
    type=click.Path(file_okay=False),
    default=".",
    show_default=True,
    help="Folder for the charts.",
)
def chart_command(file: str, output: str) -> None:
    """Draw charts of what `throughput` recorded in FILE, as PNG and SVG; needs matplotlib."""
    from tcusim_bench.charts import draw

    for path in draw(Path(file), Path(output)):
        click.echo(path)


def _deliver(
    report: Report | Calls | Capture | Operators | Orders | Speeds,
    as_json: bool,
    output: str | None,
) -> None:
    if output is not None:
        files.write_text(output, json_text(report.as_json()) + "\n")
    if as_json:
        print_json(report.as_json())
    else:
        click.echo(report.text())


@click.command(
    "tune",
    epilog=examples(
        "tcusim tune -o tuning.json",
        "tcusim tune --kind scan --segment 4096 --seconds 20 -o tuning.json",
    ),
)
@click.option("--kind", "kinds", multiple=True, type=click.Choice(["sum", "scan"]), help="Both.")
@click.option(
    *("--segment", "segments"),
    type=click.IntRange(0),
    multiple=True,
    help="Elements of a segment, 0 for the whole array; repeatable. Powers of two by default.",
)
@click.option(
    "--dtype", type=click.Choice(["f16", "bf16", "f32", "f64", "s8"]), default="f16",
    show_default=True, help="Element type of the array.",
)  # fmt: skip
@click.option(
    "--log2-length",
    type=click.IntRange(10, 34),
    default=28,
    show_default=True,
    metavar="N",
    help="Elements: 2 to the power N.",
)
@_BACKEND
@click.option("--seconds", type=float, default=60.0, show_default=True, help="Time for all sizes.")
@click.option(
    *("-o", "--output"),
    type=OutputFile(),
    required=True,
    help="JSON for the numbers; rows for other problems that it has are kept.",
)
def tune_command(
    kinds: tuple[str, ...], segments: tuple[int, ...], dtype: str, log2_length: int, **given: Any
) -> None:
    """Measure by which numbers plans are fastest on this machine's GPU, and write them to a file.

    Plans use them where the environment variable TCUSIM_TUNING names the file. Results have the
    same bits with them as without.
    """
    from tcusim.arrays.tuned import read_rows, write_rows
    from tcusim_bench.sections import POWERS, Case
    from tcusim_bench.tune import tune

    length, path = 1 << log2_length, Path(given["output"])
    # Rows that cannot be read are found before anything is measured.
    rows = read_rows(path) if path.exists() else ()
    cases = [
        Case("tune", kind, size or length, length // (size or length) * (size or length), dtype)
        for size in segments or [size for size in POWERS if size <= 2**20]
        for kind in kinds or ("sum", "scan")
        if size <= length
    ]
    found = tune(tuple(cases), given["backend"], given["seconds"], partial(click.echo, err=True))
    files.write_text(str(path), write_rows((*rows, *(one.row for one in found if one.row.numbers))))
