"""Read and run a lesson: a plain Python file of cells, which editors open as a notebook.

A line ``# %%`` begins a cell of code and ``# %% [markdown]`` a cell of prose, whose lines are
comments; Jupyter, VS Code and PyCharm read the same marks. ``# %% tags=["KIND"]`` begins a cell of
code of one of these kinds:

- picture: its last line is an expression, whose value shows itself as HTML or SVG. A script passes
  over it without a word.
- exercise: code for the reader to complete, a function that returns None so far.
- solution: the same function, completed; it follows the exercise.
- check: says whether the function is right.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

KINDS: Final = ("code", "picture", "exercise", "solution", "check")
_TAGS: Final = re.compile(r'tags=\["(\w+)"\]')


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: "prose" or one of `KINDS`, its text, and the line of the file that it begins on."""

    kind: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Done:
    """A cell that was run: its output, and its value if that is a picture."""

    cell: Cell
    printed: str = ""
    shown: Any = None


def cells(source: str) -> list[Cell]:
    """Return the cells of a file in the py:percent format; text before the first is none.

    Raises
    ------
    ValueError
        If a cell has a tag that is none of `KINDS`, or more than one.
    """
    found: list[Cell] = []
    lines: list[str] = []
    kind, first = "prose", 1
    for number, line in enumerate([*source.splitlines(), "# %%"], start=1):
        if not line.startswith("# %%"):
            lines.append(line)
            continue
        text = "\n".join(map(_uncommented, lines) if kind == "prose" else lines).strip("\n")
        if text and first > 1:
            blank = next(count for count, one in enumerate(lines) if one.strip("# "))
            found.append(Cell(kind, text, first + (0 if kind == "prose" else blank)))
        kind, first, lines = _kind(line), number + 1, []
    return found


def _kind(mark: str) -> str:
    if "[markdown]" in mark:
        return "prose"
    if mark.strip() == "# %%":
        return "code"
    tag = _TAGS.search(mark)
    if tag is None or tag[1] not in KINDS:
        raise ValueError(f'a cell begins with {mark!r}: expected one tag of {KINDS}, as tags=["…"]')
    return tag[1]


def _uncommented(line: str) -> str:
    return line.removeprefix("#").removeprefix(" ")


def title(source: str) -> str:
    """Return the first heading of a lesson."""
    for cell in cells(source):
        for line in cell.text.splitlines():
            if cell.kind == "prose" and line.startswith("# "):
                return line.removeprefix("# ")
    raise ValueError("the lesson has no heading")


def run(path: Path, names: dict[str, Any] | None = None) -> Iterator[Done]:
    """Run the cells of a lesson one after another, as its script does.

    An error or a warning in a cell is raised. `names` are the variables of the lesson, which a
    caller may look at between two cells.
    """
    names = {} if names is None else names
    names |= {"__name__": "__main__", "__file__": str(path)}
    for cell in cells(path.read_text(encoding="utf-8")):
        yield Done(cell) if cell.kind == "prose" else execute(cell, path, names)


def execute(cell: Cell, path: Path, names: dict[str, Any]) -> Done:
    """Run one cell; errors have the file's own line numbers.

    Raises
    ------
    ValueError
        If the cell is a picture and its last line is no expression, or one that shows nothing.
    """
    tree = ast.parse(cell.text)
    ast.increment_lineno(tree, cell.line - 1)
    last = tree.body.pop() if cell.kind == "picture" else None
    printed = io.StringIO()
    shown = None
    with warnings.catch_warnings(), contextlib.redirect_stdout(printed):
        warnings.simplefilter("error")
        exec(compile(tree, str(path), "exec"), names)
        if isinstance(last, ast.Expr):
            shown = eval(compile(ast.Expression(last.value), str(path), "eval"), names)
    if cell.kind == "picture" and not hasattr(shown, "_repr_html_"):
        raise ValueError(
            f"{path.name}, line {cell.line}: a picture ends in an expression that shows itself by "
            f"_repr_html_; got {type(shown).__name__}"
        )
    return Done(cell, printed.getvalue().rstrip(), shown)
