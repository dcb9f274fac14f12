"""`tcusim explain` tells how tensor cores sum one output, bit by bit."""

from __future__ import annotations

import math
import os
import re
import sys
from pathlib import Path
from typing import Any, Final

import click
import numpy as np

import tcusim
from tcusim import errors
from tcusim.cli import files
from tcusim.cli.options import JSON, OutputFile, arithmetic, in_words_of_the_command
from tcusim.cli.output import examples
from tcusim.machine import Format, Values, arch_of, format_of, usual_types
from tcusim.machine.bits import from_bits
from tcusim.machine.convert import nearest_values

_FILES: Final = (".npy", ".csv", ".txt")

# A number, and how often it is meant.
_REPEATED: Final = re.compile(r"(?P<number>.+?)\*(?P<count>[1-9]\d{0,5})")


@click.command(
    "explain",
    no_args_is_help=True,
    epilog=examples(
        "tcusim explain --a 1,1 --b 0x0001,0x0001 --c 1 --arch volta --arch hopper",
        "tcusim explain --a '0x1200*4,0x0c00*4' --b '0x0800*8' --c 1 --arch ampere --html sum.html",
        "tcusim explain --a left.npy --b right.npy --cell 0,3 --ab bf16 --json",
    ),
)
@click.option("--a", "a", required=True, metavar="NUMBERS", help="Left factors, or a file of them.")
@click.option("--b", "b", required=True, metavar="NUMBERS", help="Right factors.")
@click.option("--c", "c", default="0", show_default=True, metavar="NUMBER", help="Addend.")
@arithmetic("Whose arithmetic; may be repeated, to compare.", default="hopper", several=True)
@click.option(
    "--ab",
    help="Type of the factors; of two 8-bit floats e5m2.e4m3. Default: f16, or the unit's first.",
)
@click.option("--acc", help="Type they add up in. Default: f32, or the unit's for --ab.")
@click.option("--family", default="", help="Instruction, where they differ: wmma, mma.sync, ...")
@click.option("--cell", metavar="ROW,COLUMN", help="Output to explain, of matrices in files.")
@click.option("--exact-inputs", is_flag=True, help="Refuse numbers that the type rounds.")
@JSON
@click.option(
    "--html", type=OutputFile(), help="Write a page that needs no other file; - prints it."
)
@click.option("--svg", type=OutputFile(), help="Write a drawing; - prints it.")
def explain_command(
    archs: tuple[str, ...],
    as_json: bool,
    html: str | None,
    svg: str | None,
    cell: str | None,
    exact_inputs: bool,
    **options: Any,
) -> None:
    """Show the sum of one output a·b + c: each term as aligned, cut, added and rounded.

    NUMBERS are decimals or, beginning with 0x, bits of the type, with commas between them;
    0x3c00*8 is eight times the same. Or they are a .npy, .csv or .txt file. Other numbers
    are rounded to the nearest of the type, and the account says so. With --ab tf32 they are
    float32, which the instruction cuts.
    """
    types = usual_types(arch_of(archs[0]), options["ab"], options["acc"])
    options["ab"], options["acc"] = types
    left, _, right = options["ab"].partition(".")
    each = {"a": left, "b": right or left, "c": options["acc"]}
    for name, one in each.items():
        options[name] = _numbers(options[name], format_of(one), f"--{name}")
    if options["c"].shape == (1,):
        options["c"] = options["c"][0]
    with in_words_of_the_command():
        place = None if cell is None else _cell(cell)
        told = tcusim.explain(**options, arch=archs, cell=place, exact_inputs=exact_inputs)
    for path, write in ((html, told.to_html), (svg, told.to_svg)):
        if path == "-":
            click.echo(write(), nl=False)
        elif path is not None:
            files.write_page(path, write())
    if as_json:
        click.echo(told.to_json())
    elif html is None and svg is None:
        colored = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        click.echo(told.to_text(color=colored), nl=False)


def _cell(text: str) -> tuple[int, int]:
    words = text.split(",")
    try:
        row, column = map(int, words)
    except ValueError:
        raise errors.InputError(
            f"--cell must be a row and a column, such as 0,3; got {text!r}"
        ) from None
    return row, column


def _numbers(text: str, fmt: Format, option: str) -> Values:
    """Return the numbers that an option names, as values of the type if it holds all of them."""
    if Path(text).suffix.lower() in _FILES:
        return files.read_array(text)
    values: list[Values] = []
    for word in text.split(","):
        match = _REPEATED.fullmatch(word.strip())
        number, count = (match["number"], int(match["count"])) if match else (word.strip(), 1)
        values += [_value(number, fmt, option)] * count
    own = all(value.dtype == fmt.dtype for value in values)
    return np.array(values, fmt.dtype if own else np.float64)


def _value(word: str, fmt: Format, option: str) -> Values:
    """Return a number: bits that begin with 0x, a decimal, or a float in hexadecimal (0x1.8p-3)."""
    if re.fullmatch(r"0[xX][0-9a-fA-F]+", word):
        try:
            return from_bits(int(word, 16), fmt)
        except errors.InputError as error:
            raise errors.InputError(f"{option}: ", *error.pieces) from error
    try:
        number = float.fromhex(word) if "0x" in word.lower() else float(word)
    except (ValueError, OverflowError):
        raise errors.InputError(
            f"{option}: {word!r} is no number; write decimals, or bits such as 0x3c00, with commas "
            f"between them, or name a file: {', '.join(_FILES)}"
        ) from None
    return _held(number, word, fmt, option)


def _held(number: float, word: str, fmt: Format, option: str) -> Values:
    """Return the number as a value of the type; as a float64 if `explain` will round it."""
    if not fmt.is_float:
        if fmt.smallest <= number <= fmt.largest and number == int(number):
            return np.asarray(int(number), fmt.dtype)
        low, high = int(fmt.smallest), int(fmt.largest)
        raise errors.InputError(
            f"{option}: {fmt.name} cannot hold {word}; it holds whole numbers from {low} to {high}"
        )
    if fmt.name == "tf32":
        # An operand is float32; the instruction ignores its low bits, and the account says so.
        fmt = format_of("f32")
    exact = np.asarray(number)
    near, _ = nearest_values(exact, fmt, name=option)
    return near if float(near) == number or math.isnan(number) else exact
