"""`tcusim vectors` writes golden vectors of a unit: operands and outputs for a test bench."""

from __future__ import annotations

from typing import Any

import click

from tcusim.cli import files
from tcusim.cli.options import Integer, OneOf, OutputFile, Tile, in_words_of_the_command
from tcusim.cli.output import examples, show
from tcusim.judge.correctness.golden import OPERATIONS, GoldenVectors, golden_header, golden_vectors
from tcusim.judge.correctness.vector_files import FORMS, hex_words


@click.command(
    "vectors",
    no_args_is_help=True,
    epilog=examples(
        "tcusim vectors mychip.toml",
        "tcusim vectors h100 --tile 1x1x16 --count 500 -o dots",
        "tcusim vectors mychip.toml --op scan --count 20 --format csv",
        "tcusim vectors mychip.toml --tile 1x1x16 -o - | ./my_model",
        "tcusim vectors mychip.toml --header tcusim_golden.h",
    ),
)
@click.argument("unit", metavar="UNIT")
@click.option(
    "--op",
    type=OneOf("operation", tuple(OPERATIONS)),
    default="mma",
    show_default=True,
    help="One mma, or one warp's share of a sum or scan of segments.",
)
@click.option("--count", type=Integer(1), default=1000, show_default=True, help="Cases.")
@click.option(
    "--format",
    "form",
    type=OneOf("format", FORMS),
    default="hex",
    show_default=True,
    help="A file for $readmemh for each port, a .npy file for each, one table, or C arrays.",
)
@click.option("--seed", type=Integer(0), default=0, show_default=True, help="Of drawn operands.")
@click.option(
    "--tile", type=Tile(), help="Default: the unit's first. 1x1xK is single dot products."
)
@click.option("--ab", help="Type of the operands. Default: f16, or the unit's first.")
@click.option("--acc", help="Type they add up in. Default: f32, or the unit's for --ab.")
@click.option("--family", default="", help="Instruction, where they differ: wmma, mma.sync, ...")
@click.option(
    "--scale", default="", help="Block scales, such as block32.ue8m0 or mxf4nvf4.block16.ue4m3."
)
@click.option(
    "--algorithm", default="", help="Of --op reduction or scan. Default: reduction_t, scan_t."
)
@click.option(
    *("-o", "--output"),
    metavar="DIR",
    help="Folder of the files; - prints a line for each case. Default: UNIT_OP.",
)
@click.option(
    "--header",
    type=OutputFile(),
    help="Write no vectors, but the unit's mma as a C99 header, for models and DPI-C.",
)
@click.pass_context
def vectors_command(
    ctx: click.Context, /, unit: str, form: str, output: str | None, **options: Any
) -> None:
    """Write golden vectors of a UNIT: inputs and the outputs that are due.

    UNIT is a name or a TOML file. Corner cases come first: zeros, subnormals, largest numbers,
    infinities, NaN, ties, cancellations. Random cases are next, then cases that are drawn for the
    unit's very rule. A table shows which roundings, cuts, carries and specials they hit, as the
    rule's own evaluation counted them, and which wrong rules they tell from this one.

    A case of --op mma is d = a·b + c for a whole tile. manifest.json has the rule, the seed, the
    coverage, and the SHA-256 of each file. A case is a line of hexadecimal digits with its first
    element in the lowest bits, rows first.
    """
    if (header := options.pop("header")) is not None:
        _write_header(ctx, unit, header, options)
        return
    if output == "-" and _is_given(ctx, "form"):
        raise click.UsageError("-o - prints words in hexadecimal; leave out --format")
    with in_words_of_the_command():
        vectors = golden_vectors(unit, **options)
        if output == "-":
            _print(vectors)
            return
        folder = output or f"{vectors.unit.replace(' ', '_')}_{vectors.op}"
        vectors.write(folder, form)
    files.say_written(folder)
    show(*vectors.tables())


def _is_given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def _write_header(ctx: click.Context, unit: str, path: str, options: dict[str, Any]) -> None:
    """Write the header of a unit's mma, or print it."""
    for name in ("op", "count", "form", "seed", "algorithm", "output"):
        if _is_given(ctx, name):
            flag = next(one.opts[-1] for one in ctx.command.params if one.name == name)
            raise click.UsageError(f"{flag} is of vectors, and --header writes none; leave one out")
    known = {name: options[name] for name in ("tile", "ab", "acc", "family", "scale")}
    with in_words_of_the_command():
        text = golden_header(unit, **known)
    if path == "-":
        click.echo(text, nl=False)
    else:
        files.write_page(path, text)


def _print(vectors: GoldenVectors) -> None:
    """Print the words of each case on one line, the output last."""
    columns = [hex_words(port.flat, port.width) for port in vectors.ports]
    for words in zip(*columns, strict=True):
        click.echo(" ".join(words))
