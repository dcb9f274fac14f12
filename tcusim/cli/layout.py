"""`tcusim layout` shows the lane and register of each element of an operand."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

import tcusim
from tcusim import errors
from tcusim.cli import files
from tcusim.cli.options import JSON, OneOf, OutputFile, in_words_of_the_command
from tcusim.cli.output import examples, print_json
from tcusim.machine.layouts.fragment_layout import Held, Layout


@click.command(
    "layout",
    no_args_is_help=True,
    epilog=examples(
        "tcusim layout m16n8k16 --operand a",
        "tcusim layout m16n8k16 --operand b --lane 5",
        "tcusim layout 16x16x16 --operand a --order col --element 3,7 --arch volta",
        "tcusim layout m16n8k32 --operand c --html layout.html",
    ),
)
@click.argument("shape")
@click.option(
    "--operand",
    type=OneOf("operand", ("a", "b", "c", "d")),
    default="a",
    show_default=True,
    help="Of d = a·b + c.",
)
@click.option("--lane", type=click.IntRange(0, 31), help="What this lane holds.")
@click.option("--element", metavar="ROW,COLUMN", help="Which lanes hold this element.")
@click.option("--ab", default="", help="Type of a and b. Default: the first that --arch has.")
@click.option("--acc", default="", help="Type of c and d.")
@click.option("--family", default="", help="Instruction: wmma or mma.sync.")
@click.option("--order", default="", help="How a or b is taken: row or col.")
@click.option("--arch", default="hopper", show_default=True, help="Whose registers.")
@JSON
@click.option(
    "--html", type=OutputFile(), help="Write a page that needs no other file; - prints it."
)
@click.option("--svg", type=OutputFile(), help="Write the picture; - prints it.")
def layout_command(
    lane: int | None,
    element: str | None,
    as_json: bool,
    html: str | None,
    svg: str | None,
    **options: Any,
) -> None:
    """Tell which lane of a warp holds which element of an operand, in which register.

    SHAPE is such as m16n8k16 or 16x8x16. In the grid, T5:0-1 stands for elements 0 and 1 of lane 5:
    a[0] and a[1] of PTX, fragment.x[0] and x[1] of WMMA.
    """
    if lane is not None and element is not None:
        raise click.UsageError("--lane and --element exclude each other")
    if (lane is not None or element is not None) and (html or svg) and not as_json:
        named = "lane" if lane is not None else "element"
        raise click.UsageError(f"--{named} is for text and --json; a picture has every lane")
    with in_words_of_the_command():
        found = tcusim.layout(**options)
    for path, write in ((html, found.to_html), (svg, found.to_svg)):
        if path == "-":
            click.echo(write(), nl=False)
        elif path is not None:
            files.write_page(path, write())
    held = None
    if element is not None:
        held = found.holders(*_place(element))
    elif lane is not None:
        held = found.lane(lane)
    if as_json:
        click.echo(found.to_json()) if held is None else print_json([asdict(one) for one in held])
    elif html is None and svg is None:
        click.echo(_told(found, lane, held))


def _told(found: Layout, lane: int | None, held: tuple[Held, ...] | None) -> str:
    """Return the text: the whole map, a lane, or who holds an element."""
    if lane is not None or held is None:
        return found.to_text(lane)
    where = f"row {held[0].row}, column {held[0].col}"
    lines = []
    for one in held:
        tile = f"tile {one.tile}: " if found.tiles.any() else ""
        last = one.bit + found.element_bits - 1
        bits = f", bits {one.bit}-{last}" if found.element_bits < found.register_bits else ""
        lines.append(
            f"{where}: {tile}lane {one.lane}, {found.letter}[{one.element}], "
            f"register {one.register}{bits}"
        )
    return "\n".join(lines)


def _place(text: str) -> tuple[int, int]:
    try:
        row, column = map(int, text.split(","))
    except ValueError:
        raise errors.InputError(
            f"--element must be a row and a column, such as 3,7; got {text!r}"
        ) from None
    return row, column
