"""`tcusim step`: a program step by step, on a screen, as plain text, as a page or a file."""

from __future__ import annotations

import os
import sys
from typing import Any, Final

import click
import numpy as np

import tcusim
from tcusim.cli import files
from tcusim.cli.options import MEMBER, OneOf, OutputFile, ProgramCommand, arithmetic, build
from tcusim.cli.output import examples
from tcusim.stepper.breakpoints import breakpoint_of, kinds
from tcusim.stepper.comparison import Comparison
from tcusim.stepper.frames import default_inputs
from tcusim.stepper.panes import LEGEND
from tcusim.stepper.plain import WIDTH, Plain
from tcusim.stepper.steps import Viewing, Warps
from tcusim.stepper.trace import Trace

_SIMULATOR: Final = "numpy"
# Options without a use when a file is written.
_FOR_VIEWING: Final = ("start", "only", "breaks", "cell", "hexadecimal", "width", "plain")
# Options that a saved trace has settled.
_OF_A_PROGRAM: Final = (
    *("algorithm", "input_file", "member", "archs", "units", "fraction_bits", "fused_length"),
    *("output_rounding", "backend", "save"),
)


class _Cell(click.ParamType):  # type: ignore[type-arg]
    """A row and a column."""

    name = "ROW,COLUMN"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Return the two numbers."""
        if isinstance(value, tuple):
            return value
        row, _, column = value.partition(",")
        if not (row.strip().isdecimal() and column.strip().isdecimal()):
            self.fail(f"{value!r} is not a row and a column from 0 on, such as 3,5", param, ctx)
        return int(row), int(column)


@click.command(
    "step",
    cls=ProgramCommand,
    no_args_is_help=True,
    epilog=examples(
        "tcusim step scan_256",
        "tcusim step scan_256n --from '5.2 i=3' --break nan",
        "tcusim step reduction_16 --only mma --arch volta --input data.npy --plain",
        "tcusim step reduction_16 --plain --break mma --cell 0,3 --hex",
        "tcusim step scan_256n --html scan.html --save scan.trace",
        "tcusim step scan_256n --arch volta --arch hopper --html both.html",
        "tcusim step --load scan.trace",
        "tcusim step scan_256n --backend host --only mma",
    ),
)
@click.argument("algorithm", required=False)
@click.option(
    *("--input", "input_file"),
    type=click.Path(),
    metavar="FILE",
    help="Input array, or its numbers: 1,2,3.",
)
@MEMBER
@click.option("--load", type=click.Path(), metavar="FILE", help="Show a trace that was saved.")
@arithmetic(
    "Arithmetic. Default: the GPU's, or hopper's.",
    several=True,
)
@click.option("--backend", metavar="NAME", default=_SIMULATOR, help="Runner. Default: numpy.")
@click.option("--warp", metavar="N", type=int, help="Warp, by its index in the grid. Default: 0.")
@click.option("--block", metavar="N", type=int, help="Block, with all of its warps, instead.")
@click.option(
    *("--from", "start"),
    metavar="PLACE",
    help="First step: 5.2, '5.2 i=3', or '#56', the 56th.",
)
@click.option(
    "--only",
    metavar="KIND",
    multiple=True,
    type=OneOf("kind of step", kinds()),
    help="Show this kind of step, such as mma; repeatable.",
)
@click.option(
    *("--break", "breaks"),
    metavar="PLACE",
    multiple=True,
    help="Where to stop: mma, '5.2 i=3', nan; repeatable.",
)
@click.option("--cell", type=_Cell(), help="Describe this element, and its sum.")
@click.option("--hex", "hexadecimal", is_flag=True, help="Show the bits of numbers.")
@click.option("--plain", is_flag=True, help="Print text, as in a pipe: no colours, no keys.")
@click.option(
    "--width", metavar="N", type=click.IntRange(min=40), help=f"Columns of text. Default: {WIDTH}."
)
@click.option("--html", type=OutputFile(), help="Write a page to step through; - prints it.")
@click.option("--save", type=OutputFile(), help="Write the trace, for --load and Trace.load.")
def step_command(**options: Any) -> None:
    """Show every step of ALGORITHM with the tiles that it reads and writes.

    On a terminal this is a screen to step through; ? shows its keys. Elsewhere, and with --plain,
    the steps are printed. Without --input the input repeats 1, 2, 3, ... docs/cli.md describes the
    keys, breakpoints, pages of two architectures, and a backend beside the simulator.
    """
    _check(options)
    if options["html"] is not None or options["save"] is not None:
        _write(options)
        return
    warps, other = _warps(options)
    chosen = _chosen(warps, options)
    first = warps.steps(chosen[0])
    viewing = Viewing(
        start=None if options["start"] is None else breakpoint_of(options["start"], first.names),
        only=options["only"],
        breakpoints=tuple(breakpoint_of(text, first.names) for text in options["breaks"]),
        cell=options["cell"],
        hexadecimal=options["hexadecimal"],
        beside=other,
    )
    if options["plain"] or options["width"] is not None or not _somebody_sits_here():
        _print(warps, chosen, Plain(click.echo, viewing, options["width"] or WIDTH))
    else:
        # A screen takes long to import.
        from tcusim.stepper.screen.app import StepApp

        StepApp(warps, first, viewing).run(mouse=False)
    if other is not None:
        click.echo(str(other))


def _check(options: dict[str, Any]) -> None:
    """Raise UsageError for options that do not go together."""
    ctx = click.get_current_context()

    def given(name: str) -> bool:
        source = ctx.get_parameter_source(name)
        return source not in (None, click.core.ParameterSource.DEFAULT)

    _check_archs(options)
    if options["load"] is None and options["algorithm"] is None:
        raise click.UsageError("name an ALGORITHM, or a trace with --load FILE")
    if options["warp"] is not None and options["block"] is not None:
        raise click.UsageError("--warp and --block exclude each other; a block has all its warps")
    if options["member"] is not None and options["input_file"] is None:
        raise click.UsageError("--member needs --input FILE")
    spellings = {parameter.name: parameter.opts[0] for parameter in ctx.command.get_params(ctx)}
    if options["load"] is not None:
        for name in ctx.params:
            if given(name) and (name in _OF_A_PROGRAM or name.startswith("build_")):
                what = "ALGORITHM" if name == "algorithm" else spellings[name]
                raise click.UsageError(f"{what} does not go with --load; the trace has settled it")
    if options["html"] is not None or options["save"] is not None:
        for name in filter(given, _FOR_VIEWING):
            raise click.UsageError(
                f"{spellings[name]} is for the screen and for text; a file has every step"
            )


def _check_archs(options: dict[str, Any]) -> None:
    """Raise UsageError for several architectures but on a page of two."""
    archs: tuple[str, ...] = options["archs"]
    if len(archs) < 2:
        return
    if len(archs) > 2 or options["html"] is None or options["save"] is not None:
        raise click.UsageError(
            "several --arch or --unit need --html without --save: a page shows two traces"
        )
    if options["backend"] != _SIMULATOR:
        raise click.UsageError("--backend has the simulator beside it, and takes one --arch")


def _somebody_sits_here() -> bool:
    """Return whether there are a screen to draw on and keys to read."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return is_terminal and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def _warps(options: dict[str, Any]) -> tuple[Warps, Comparison | None]:
    """Return the traced warps; if a backend ran them, with the simulator's steps."""
    if options["load"] is not None:
        return Warps.of_trace(_loaded(options)), None
    program = build(options["algorithm"], options)
    inputs = _inputs(program, options["input_file"], options["member"])
    if options["backend"] != _SIMULATOR:
        kept, simulated = _beside(program, inputs, options)
        return Warps.of_trace(kept), kept.compare(simulated)
    return Warps.of_program(program, inputs, _arch(options) or "hopper"), None


def _arch(options: dict[str, Any]) -> str | None:
    archs: tuple[str, ...] = options["archs"]
    return archs[0] if archs else None


def _beside(
    program: tcusim.Program, inputs: dict[str, Any], options: dict[str, Any]
) -> tuple[Trace, Trace]:
    """Return a backend's trace and the simulator's; report the steps that they leave out."""
    watched = _watched(options)
    kept = tcusim.trace(program, inputs, backend=options["backend"], arch=_arch(options), **watched)
    if kept.left_out:
        click.echo(kept.left_out, err=True)
    return kept, tcusim.trace(program, inputs, arch=kept.about.arch, **watched)


def _watched(options: dict[str, Any]) -> dict[str, Any]:
    """Return the warps to keep, as `tcusim.trace` takes them."""
    if options["block"] is not None:
        return {"blocks": options["block"]}
    return {"warps": options["warp"] or 0}


def _loaded(options: dict[str, Any]) -> Trace:
    kept = Trace.load(options["load"])
    if kept.left_out:
        click.echo(f"{options['load']}: {kept.left_out}", err=True)
    return kept


def _chosen(warps: Warps, options: dict[str, Any]) -> tuple[int, ...]:
    """Return the warps to show: one, or those of a block."""
    if options["block"] is not None:
        return warps.of_block(options["block"])
    default = warps.numbers[0] if warps.numbers else 0
    return (warps.require(default if options["warp"] is None else options["warp"]),)


def _print(warps: Warps, chosen: tuple[int, ...], plain: Plain) -> None:
    """Print the listing, and then the steps of each warp."""
    click.echo(warps.about.listing)
    click.echo("\n".join(LEGEND) + "\n")
    for warp in chosen:
        if len(chosen) > 1:
            click.echo(f"warp {warp}, of block {warp // warps.about.warps}\n")
        plain.run(warps.steps(warp))
    click.echo(f"end of {warps.about.name}")


# --- Files ------------------------------------------------------------------------------------


def _write(options: dict[str, Any]) -> None:
    """Write the files of --html and --save."""
    other: Trace | None = None
    if options["load"] is not None:
        kept = _loaded(options)
        if options["warp"] is not None or options["block"] is not None:
            raise click.UsageError("--html shows the whole of a trace; leave --warp or --block out")
    else:
        program = build(options["algorithm"], options)
        several = len(options["archs"]) > 1
        inputs = _inputs(program, options["input_file"], options["member"], rounded=several)
        if options["backend"] == _SIMULATOR:
            kept = tcusim.trace(program, inputs, arch=_arch(options), **_watched(options))
            if kept.left_out:
                click.echo(kept.left_out, err=True)
            for arch in options["archs"][1:]:
                other = tcusim.trace(program, inputs, arch=arch, **_watched(options))
        else:
            kept, other = _beside(program, inputs, options)
            click.echo(str(kept.compare(other)), err=True)
    if options["save"] is not None:
        files.write_bytes(options["save"], kept.to_bytes())
        files.say_written(options["save"])
    if options["html"] is not None:
        page = kept.to_html() if other is None else kept.compare(other).to_html()
        if options["html"] == "-":
            click.echo(page, nl=False)
        else:
            files.write_page(options["html"], page)


def _inputs(
    program: tcusim.Program, input_file: str | None, member: str | None, *, rounded: bool = False
) -> dict[str, np.ndarray[Any, Any]]:
    """Return inputs of the program's types, the first from the file if there is one.

    rounded: whether other inputs are floats whose sums are rounded.
    """
    if input_file is None:
        return default_inputs(program, rounded=rounded)
    array = files.read_array(input_file, member=member).ravel()
    first = program.inputs[0]
    cast = files.cast_array(array, first.dtype, name=input_file)
    if cast.changed:
        click.echo(f"{input_file}: {cast}", err=True)
    # The size of the first input gives the scalar: it is `length`, or that many times the `rows`.
    ((_, per_scalar),) = first.size.index.terms
    return default_inputs(program, array.size // per_scalar) | {first.name: cast.array}
