"""What the commands of `tcusim` have in common: options, how a program is named, and output."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

import tcusim
from tcusim import errors

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = [
    "bar",
    "build",
    "build_options",
    "check_folder",
    "examples",
    "make_console",
    "options_of",
    "print_json",
    "progress",
    "show",
    "word",
]

Command = TypeVar("Command", bound=Callable[..., Any])

# Lines of a file or a pipe are as long as they must be, within reason.
_PIPE_WIDTH: Final = 240


# --- Options ----------------------------------------------------------------------------------


def word(kind: str, words: tuple[str, ...]) -> Callable[..., Any]:
    """Return a check that an option's value, or each of several, is one of a few words."""

    def check(word: str) -> str:
        if word.lower() not in words:
            raise click.BadParameter(str(errors.unknown_name(kind, word, words)))
        return word.lower()

    def callback(_ctx: click.Context, _parameter: click.Parameter, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(check, value))
        return None if value is None else check(value)

    return callback


def bar(words: tuple[str, ...]) -> str:
    """Return the words as a help text shows them."""
    return f"[{'|'.join(words)}]"


def examples(*lines: str) -> str:
    """Return the end of a help text."""
    # To click, a backspace says that the lines below stay as they are.
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def options_of(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return one decorator for several options, which keep their order in the help."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


build_options = options_of(
    click.option("--shape", default="16x16x16", show_default=True, metavar="MxNxK", help="Tile."),
    click.option("--segment-size", type=int, metavar="N", help="Default: a row or a tile, or 4."),
    click.option("--ab", default="f16", show_default=True, help="Type of the operands."),
    click.option("--accumulate", default="f32", show_default=True, help="Type they add up in."),
    click.option("--source", metavar="TYPE", help="Type of the input, if wider than --ab."),
    click.option("--result", metavar="TYPE", help="Type of the output."),
    click.option(
        "--side",
        callback=word("side", ("a", "b")),
        metavar="[a|b]",
        help="Operand that holds the data.",
    ),
    click.option("--warps", type=int, default=1, show_default=True, help="Warps of a block."),
    click.option("--ragged", is_flag=True, help="Take any length, masked in the program."),
    click.option(
        "--combine",
        callback=word("way to combine", ("mma", "add")),
        metavar="[mma|add]",
        default="mma",
        show_default=True,
        help="Combine partial sums by products or by rounded additions.",
    ),
    click.option("--chain", type=int, metavar="N", help="Products between rounded additions."),
    click.option("--form", help="Form of a tile's scan: (LA)1, L(A1) or [U|1]."),
    click.option("--exclusive", is_flag=True, default=None, help="Sum without the element itself."),
    click.option("--reverse", is_flag=True, default=None, help="Sum from the element to the end."),
    click.option("--carry", is_flag=True, default=None, help="Add an input of carries (scans)."),
    click.option("--cols", type=int, metavar="N", help="Columns of a product of matrices."),
    click.option("--inner", type=int, metavar="K", help="Inner size of a product."),
    click.option("--add-c", is_flag=True, default=None, help="Add products to an input c."),
)


def build(algorithm: str, options: dict[str, Any]) -> tcusim.Program:
    """Build the program that `build_options` describe."""
    given = {name: value for name, value in options.items() if value is not None}
    return tcusim.build(algorithm, **given)


# --- Output -----------------------------------------------------------------------------------


def make_console() -> Console:
    """Return a console on stdout: as wide as a terminal is, wide enough for all in a pipe."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(width=width, highlight=False, markup=False)


def show(table: Table) -> None:
    """Print a table, without the blanks at the ends of its lines."""
    console = make_console()
    with console.capture() as capture:
        console.print(table)
    for text in capture.get().splitlines():
        click.echo(text.rstrip())


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    click.echo(json.dumps(_plain(value), ensure_ascii=False, indent=2))


def _plain(value: Any) -> Any:
    """Replace what JSON has no number for: NaN and the infinities become texts."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def check_folder(path: str) -> None:
    """Refuse to write to a path, before anything is computed, if its folder does not exist."""
    folder = Path(path).parent
    if not folder.is_dir():
        raise errors.InputError(f"{path} cannot be written: there is no folder {folder}")
    if Path(path).is_dir():
        raise errors.InputError(f"{path} cannot be written: it is a folder")


@contextmanager
def progress(text: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None] | None]:
    """Give what draws a bar on a terminal's stderr, from (done, total); None elsewhere."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as drawn:
        task = drawn.add_task(text)

        def show_progress(done: int, total: int) -> None:
            drawn.update(task, completed=done, total=total)

        yield show_progress
