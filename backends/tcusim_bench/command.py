"""`tcusim bench` and `tcusim tune`: the speed of tcusim on this machine, beside other libraries."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from tcusim.cli import files
from tcusim.cli.options import JSON, OutputFile
from tcusim.cli.output import examples, print_json

_BACKEND: Final = click.option(
    "--backend", default="cupy", show_default=True, help="Who runs the kernels."
)


@click.group("bench")
def bench_command() -> None:
    """Measure what a user waits for on this machine, beside other libraries."""


@bench_command.command(
    "run",
    epilog=examples(
        "tcusim bench run sums scans products --quick",
        "tcusim bench run sums --segment 16 --peer torch.compile",
        "tcusim bench run figure-10 figure-12 -o recorded",
        "tcusim bench run paper --tune -o recorded",
        "tcusim bench run -o recorded --seconds 400 --commit $(git rev-parse --short HEAD)",
    ),
)
@click.argument("parts", nargs=-1)
@click.option(
    *("-o", "--output"),
    type=click.Path(file_okay=False),
    help="Folder for a JSON file of each part; problems that are there are not measured again.",
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
    help="Elements of a segment, 0 for the whole array; repeatable. By default the part's sizes.",
)
@click.option("--peer", "peers", multiple=True, help="Library to compare with; repeatable.")
@_BACKEND
@click.option("--programs", is_flag=True, help="Try programs beside those of the plan.")
@click.option("--tune", is_flag=True, help="Tune the paper's programs at each size of a figure.")
@click.option("--quick", is_flag=True, help="Fewer sizes and elements.")
@click.option("--seconds", type=float, help="Time for all problems, which have equal shares of it.")
@click.option("--commit", help="Commit of tcusim's source, for the record.")
@JSON
def run_command(parts: tuple[str, ...], output: str | None, as_json: bool, **given: Any) -> None:
    """Measure PARTS, all by default: sections, figures of the paper, and measurements by the clock.

    Sections: sums, scans, products, types, sizes, small, ragged, graphs, graph-segments, exact,
    energy. Figures: figure-2, 3, 10, 11, 12, 13, 14 and figure-power; paper is all of them. By the
    clock: latency (of public calls), operators (of tcusim.torch), simulator (on the processor). A
    run that is stopped goes on with the same folder.
    """
    from tcusim_bench.run import Settings, run

    settings = Settings(**{name: value for name, value in given.items() if value not in (None, ())})
    say = None if as_json else partial(click.echo, err=True)
    found = run(parts, settings, None if output is None else Path(output), say)
    if as_json:
        print_json({name: report.as_json() for name, report in found.items()})
    else:
        click.echo("\n\n".join(f"{name}\n{one.text()}" for name, one in found.items()))
    wrong = [row for report in found.values() for row in report.wrong]
    for row in wrong:
        click.echo(f"{row.case}: {row.who}, {row.label}: {row.status}", err=True)
    if wrong:
        raise click.exceptions.Exit(1)


@bench_command.command("profile", epilog=examples("tcusim bench profile -o recorded/profile.json"))
@click.option("-o", "--output", type=OutputFile(), required=True, help="JSON file for the counts.")
@click.option(
    "--log2-length", type=click.IntRange(20, 30), default=26, show_default=True, metavar="N",
    help="Elements: 2 to the power N.",
)  # fmt: skip
@click.option("--commit", default="", help="Commit of tcusim's source, for the record.")
def profile_command(output: str, log2_length: int, commit: str) -> None:
    """Count the instructions of the paper's programs and of CUB by kind, with Nsight Compute.

    It needs `ncu` on the PATH, and the permission to read the GPU's counters.
    """
    from tcusim_bench.profile import profile

    found = profile(log2_length, commit, partial(click.echo, err=True))
    files.write_text(output, found.written())
    click.echo(found.text())


@bench_command.command(
    "chart", epilog=examples("tcusim bench chart recorded/sums.json -o sums.html")
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("-o", "--output", type=OutputFile(), required=True, help="HTML file for the charts.")
def chart_command(file: str, output: str) -> None:
    """Draw charts of FILE, which `tcusim bench run` recorded, as a page that asks for nothing."""
    from tcusim_bench.charts import page
    from tcusim_bench.record import Report

    files.write_text(output, page(Report.read(Path(file))))


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
    from tcusim_bench.parts import POWERS
    from tcusim_bench.record import Case
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
