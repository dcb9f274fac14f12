"""What the commands print: tables, JSON and progress bars. rich is imported when it is needed."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["examples", "json_text", "make_console", "print_json", "progress", "show"]

# Called with what is done, and of how much.
Progress: TypeAlias = Callable[[int, int], None]

# Lines of a file or a pipe are as long as they must be, within reason.
_PIPE_WIDTH: Final = 240


def examples(*lines: str) -> str:
    """Return the end of a help text."""
    # To click, a backspace says that the lines below stay as they are.
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


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
    click.echo(json_text(value))


def json_text(value: Any) -> str:
    """Return a value as JSON."""
    return json.dumps(_plain(value), ensure_ascii=False, indent=2)


def _plain(value: Any) -> Any:
    """Replace what JSON has no number for: NaN and the infinities become texts."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


@contextmanager
def progress(
    text: Callable[[], str] | str, *, quiet: bool = False, after: float = 0.0
) -> Iterator[Progress | None]:
    """Give what draws a bar, and a text before it, on a terminal's stderr; None elsewhere.

    after: seconds for which nothing is drawn, as the work may be done by then.
    """
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    bar = Bar(console=Console(stderr=True), transient=True)
    task = bar.add_task("")
    start = time.monotonic()

    def draw(done: int, total: int) -> None:
        if time.monotonic() - start >= after:
            bar.start()
            said = text if isinstance(text, str) else text()
            bar.update(task, completed=done, total=total, description=said)

    try:
        yield draw
    finally:
        bar.stop()
