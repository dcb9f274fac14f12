"""`tcusim agree` finds out whether a backend returns the bits of the simulator."""

from __future__ import annotations

from typing import Any

import click

from tcusim.cli import files
from tcusim.cli.options import JOBS, JSON, OutputFile, arithmetic
from tcusim.cli.output import examples, json_text, print_json, progress, show
from tcusim.judge.correctness import agreement
from tcusim.judge.correctness.cases import COLUMNS, Case, CaseGrid, columns_of
from tcusim.judge.correctness.testing import assert_agree
from tcusim.machine import arch_of


@click.command(
    "agree",
    epilog=examples(
        "tcusim agree --backend host",
        "tcusim agree scan_t scan_tn --backend host --arch volta --tile 32x8x16",
        "tcusim agree --backend cupy --full --seconds 600 --jobs 8 --json -o agree.json",
        "tcusim agree --backend host --case 'scan_t side=a masked=1 length=300 input=special'",
    ),
)
@click.argument("algorithms", nargs=-1)
@click.option("--backend", default="host", show_default=True, help="Compared with numpy.")
@arithmetic("Whose arithmetic. Default: the backend's device, or hopper.")
@click.option("--tile", "shapes", multiple=True, metavar="MxNxK", help="May be repeated.")
@click.option(
    "--quick/--full",
    default=True,
    show_default=True,
    help="One program for each algorithm, tile and types; or every option, in rounds of such "
    "programs, in random order.",
)
@click.option(
    "--seconds", type=click.FloatRange(min=0), metavar="N", help="Begin no program after N seconds."
)
@JOBS
@click.option("--case", metavar="CASE", help="Run one case, and say where the two part.")
@JSON
@click.option("-o", "--output", type=OutputFile(), help="Write it to a file.")
@click.pass_context
def agree_command(ctx: click.Context, /, algorithms: tuple[str, ...], **options: Any) -> None:
    """Compare a backend with the simulator, bit for bit, on ALGORITHMS (default: all).

    Each case is a program with random input. The exit code is 1 if a bit differs, if a case cannot
    run, or if nothing was compared.
    """
    output, as_json = options["output"], options["as_json"]
    if options["case"] is not None:
        _one_case(options["case"], options["backend"], options["arch"])
        return
    arch = None if options["arch"] is None else arch_of(options["arch"])
    columns = [column for shape in options["shapes"] for column in columns_of(shape, arch)]
    with progress("comparing", of="programs") as draw:
        report = agreement.agree(
            CaseGrid(algorithms, columns or COLUMNS, full=not options["quick"]),
            backend=options["backend"],
            arch=options["arch"],
            seconds=options["seconds"],
            jobs=options["jobs"],
            progress=draw,
        )
    _print(report, as_json, output)
    ctx.exit(0 if report.ok else 1)


def _one_case(text: str, backend: str, arch: str | None) -> None:
    """Run one case; AgreementError says where the two part."""
    case = Case.parse(text)
    program = case.recipe.build()
    outputs = assert_agree(program, case.inputs(), ("numpy", backend), arch=arch)
    size = sum(int(array.size) for array in outputs.values())
    click.echo(f"{case}\n{backend} and the simulator agree in all {size} outputs")


def _print(report: agreement.Agreement, as_json: bool, output: str | None) -> None:
    """Print the report, or write it to a file and print the summary."""
    if output is not None:
        text = json_text(report.as_json()) if as_json else report.text()
        files.write_text(output, text + "\n")
    if as_json and output is None:
        print_json(report.as_json())
    elif output is None:
        show(report.table())
    else:
        click.echo(report.summary())
