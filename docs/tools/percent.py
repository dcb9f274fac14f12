"""Run a tutorial, cell by cell, and write it as a page with what every cell printed.

A tutorial is a plain Python file. A line ``# %%`` begins a cell of code and ``# %% [markdown]`` a
cell of prose, whose lines are comments; Jupyter, VS Code and PyCharm read the same marks.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Cell", "cells", "page", "title"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: whether it is prose, its text, and the line of the file that it begins on."""

    prose: bool
    text: str
    line: int


def cells(source: str) -> list[Cell]:
    """Return the cells of a file in the py:percent format; what precedes the first is none."""
    found: list[Cell] = []
    lines: list[str] = []
    prose, first = True, 1
    for number, line in enumerate([*source.splitlines(), "# %%"], start=1):
        if not line.startswith("# %%"):
            lines.append(line)
            continue
        text = "\n".join(map(_uncommented, lines) if prose else lines).strip("\n")
        if text and first > 1:
            blank = next(count for count, one in enumerate(lines) if one.strip("# "))
            found.append(Cell(prose, text, first + (0 if prose else blank)))
        prose, first, lines = "[markdown]" in line, number + 1, []
    return found


def _uncommented(line: str) -> str:
    return line.removeprefix("#").removeprefix(" ")


def title(source: str) -> str:
    """Return the first heading of a tutorial."""
    for cell in cells(source):
        for line in cell.text.splitlines():
            if cell.prose and line.startswith("# "):
                return line.removeprefix("# ")
    raise ValueError("the tutorial has no heading")


def page(path: Path) -> str:
    """Run a tutorial and return it as Markdown; an error or a warning in a cell is raised."""
    source = path.read_text(encoding="utf-8")
    return "\n\n".join(_parts(source, path)) + "\n"


def _parts(source: str, path: Path) -> Iterator[str]:
    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}
    for cell in cells(source):
        if cell.prose:
            yield cell.text
            continue
        yield _fence("python", cell.text)
        printed = _run(cell, path, names)
        if printed:
            yield _fence('{ .text .output title="output" }', printed)


def _run(cell: Cell, path: Path, names: dict[str, Any]) -> str:
    """Run a cell; errors have the file's own line numbers."""
    code = compile("\n" * (cell.line - 1) + cell.text, str(path), "exec")
    printed = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(printed):
        warnings.simplefilter("error")
        exec(code, names)
    return printed.getvalue().rstrip()


def _fence(kind: str, text: str) -> str:
    return f"```{kind}\n{text}\n```"
