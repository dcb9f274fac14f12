"""`tcusim bench`: how fast the kernels are on this machine's GPU."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import click

from tcusim.cli.parts import check_folder, examples, options_of, print_json

__all__ = ["bench_command"]


@click.command(
    "bench",
    epilog=examples(
        "tcusim bench --quick",
        "tcusim bench --log2-length 30 --segment 16 --segment 256 --json -o bench.json",
        "tcusim bench --kind scan --segment 0",
    ),
)
@options_of(
    click.option(
        "--log2-length",
        type=click.IntRange(10, 34),
        default=30,
        show_default=True,
        metavar="N",
        help="Elements: 2 to the power N.",
    ),
    click.option(
        *("--segment", "segments"),
        type=int,
        multiple=True,
        help="Elements of a segment, 0 for the whole array; repeatable.",
    ),
    click.option("--kind", "kinds", multiple=True, help="sum, scan or matvec; repeatable."),
    click.option("--peer", "peers", multiple=True, help="Library to compare with; repeatable."),
    click.option("--backend", default="cupy", show_default=True, help="Who runs the kernels."),
    click.option("--quick", is_flag=True, help="Fewer sizes and repetitions."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead."),
    click.option("-o", "--output", type=click.Path(), metavar="FILE", help="Write JSON to a file."),
)
def bench_command(
    log2_length: int,
    segments: tuple[int, ...],
    kinds: tuple[str, ...],
    peers: tuple[str, ...],
    backend: str,
    quick: bool,
    as_json: bool,
    output: str | None,
) -> None:
    """Measure the kernels on this machine's GPU, beside the libraries that are installed."""
    from tcusim_bench.throughput import bench

    if output is not None:
        check_folder(output)
    chosen = {"segments": segments, "kinds": kinds}
    given: dict[str, Any] = {name: value for name, value in chosen.items() if value}
    report = bench(
        log2_length=log2_length,
        peers=peers or None,
        backend=backend,
        quick=quick,
        say=None if as_json else partial(click.echo, err=True),
        **given,
    )
    if output is not None:
        text = json.dumps(report.as_json(), ensure_ascii=False, indent=2)
        Path(output).write_text(text + "\n", encoding="utf-8")
    if as_json:
        print_json(report.as_json())
    else:
        click.echo(report.text())
