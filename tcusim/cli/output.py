"""Output of the commands: tables, JSON and progress bars. rich is imported when a bar is drawn."""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import click

from tcusim.table import Table, screen_width

# Key of the words of the command line in the `meta` of a click context.
WORDS: Final = "tcusim.words"

# Called with the amount that is done, and the total.
Progress: TypeAlias = Callable[[int, int], None]

# Lines of a file or a pipe are as long as they must be, within reason.
_PIPE_WIDTH: Final = 240

# Where no bar is drawn: seconds until a line tells how much there is to do, and between lines.
_SOON = 1.0
_PAUSE = 10.0


def examples(*lines: str) -> str:
    """Return the end of a help text."""
    # To click, a backspace says that the lines below stay as they are.
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def command_line(ctx: click.Context) -> str:
    """Return the running command as a line for a shell."""
    return shlex.join(["tcusim", *ctx.meta.get(WORDS, ())])


def show(*tables: Table) -> None:
    """Print tables with blank lines between them, folded to the terminal."""
    bright = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    click.echo("\n\n".join(table.text(columns(), color=bright) for table in tables))


def columns() -> int:
    """Return the columns of the terminal; those of a file or a pipe are many, within reason."""
    return screen_width() or _PIPE_WIDTH


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    click.echo(json_text(value))


def json_text(value: Any) -> str:
    """Return a value as JSON."""
    return json.dumps(_plain(value), ensure_ascii=False, indent=2)


def _plain(value: Any) -> Any:
    """Replace the numbers that JSON lacks: NaN and the infinities become texts."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


@contextmanager
def progress(
    text: Callable[[], str] | str,
    *,
    quiet: bool = False,
    after: float = 0.0,
    of: str | None = None,
    estimate: str = "",
) -> Iterator[Progress | None]:
    """Yield a function that draws a bar, and a text before it, on a terminal's stderr.

    Elsewhere, lines on stderr report the total and, now and then, the progress; without `of`
    nothing is printed, and None is yielded.

    after: seconds for which nothing is drawn, as the work may be done by then. of: the unit,
    in the plural; "" for percent. estimate: of the duration, for the first line.
    """
    if quiet or (of is None and not sys.stderr.isatty()):
        yield None
    elif sys.stderr.isatty():
        with _bar(text, after) as draw:
            yield draw
    else:
        with _lines(text if isinstance(text, str) else text(), of or "", estimate) as draw:
            yield draw


@contextmanager
def _bar(text: Callable[[], str] | str, after: float) -> Iterator[Progress]:
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


@contextmanager
def _lines(text: str, of: str, estimate: str) -> Iterator[Progress]:
    """Report progress by lines, in a thread: from one call to the next may take long."""
    start, over = time.monotonic(), threading.Event()
    now: list[tuple[int, int]] = []

    def draw(done: int, total: int) -> None:
        # Of work that goes on from a file, some is done before it begins.
        now[1:] = [(done, total)]

    def tell() -> None:
        first = True
        while not over.wait(_SOON if first else _PAUSE):
            done, total = now[-1] if now else (0, 0)
            parts = [f"{total:,} {of}" if of and total else "", estimate]
            if not first:
                parts = [
                    f"{done:,} of {total:,} {of}" if of else f"{100 * done / (total or 1):.0f}%"
                ]
                new = done - now[0][0] if now else 0
                spent = time.monotonic() - start
                parts += [f"roughly {duration(spent * (total - done) / new)} left"] if new else []
            click.echo(f"{text}: {', '.join(filter(None, parts)) or 'begun'}", err=True)
            first = False

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield draw
    finally:
        over.set()
        teller.join()


def duration(seconds: float) -> str:
    """Return a time that is known roughly, such as "40 seconds"."""
    parts = (("days", 86400), ("hours", 3600), ("minutes", 60), ("seconds", 1))
    part, size = next((one for one in parts if seconds >= 2 * one[1]), parts[-1])
    return f"{max(2.0, seconds / size):.0f} {part}"
