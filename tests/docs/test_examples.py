"""Every block of code in README.md and on the pages runs, and prints the page's output.

- `pycon` blocks are doctests; `python` blocks run as they are. The blocks of a page share names.
- `console` blocks run each `$ tcusim ...` line and compare its output; a line `...` stands for
  anything. They run in an empty folder that all blocks of a page share.
- Blocks with a title that says that they need torch, dask or jax run where that is.
- No other kind of block may hold a command line of tcusim or Python's prompt, unless its title says
  that it needs a GPU.
"""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import runner
from page_blocks import Block, blocks
from some import Some
from tcusim.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


# Of the rows of a long table whose numbers a page computes, every so many-th is tried.
PART = 12


@pytest.fixture
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, some: Some) -> Path:
    """Run in a folder of its own, with 80 columns, and find the imports of the pages' blocks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "path", [str(ROOT / "docs" / "tools"), *sys.path])
    monkeypatch.setattr(importlib.import_module("thinned"), "STEP", 1 if some.full else PART)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=name)
@pytest.mark.usefixtures("in_empty_folder")
def test_blocks_of_a_page(page: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page.read_text(encoding="utf-8"), page.name):
        if block.library and importlib.util.find_spec(block.library) is None:
            continue
        if block.language == "pycon":
            run_doctest(block, page, names)
        elif block.language == "python":
            code = compile("\n" * block.line + block.text, str(page), "exec")
            exec(code, names)
        elif block.language == "console":
            run_commands(block, page)
        else:
            check_that_nothing_runs(block, page)


def run_doctest(block: Block, page: Path, names: dict[str, Any]) -> None:
    test = doctest.DocTestParser().get_doctest(block.text, names, name(page), str(page), block.line)
    assert test.examples, f"{name(page)}, line {block.line}: a pycon block without >>>"
    report: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False).run(
        test, out=report.append, clear_globs=False
    )
    names.update(test.globs)
    assert not report, "".join(report)


def run_commands(block: Block, page: Path) -> None:
    """Run `$ tcusim ...` lines; `$ python -c` is not allowed: the page would not show its text."""
    for command, expected in commands(block):
        where = f"{name(page)}, line {block.line}: $ {command}"
        words = shlex.split(command, comments=True)
        assert words[0] == "tcusim", f"{where}: only tcusim is run here; use an sh block"
        result = runner().invoke(main, words[1:])
        printed = result.output
        if expected:
            assert same(expected, printed), f"{where}\nexpected:\n{expected}\ngot:\n{printed}"
        fails = expected.lower().startswith(("error", "usage"))
        assert (result.exit_code != 0) == fails, f"{where}: exit {result.exit_code}\n{printed}"


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """Yield each command with the output that the page shows for it."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        yield command, expected


def same(expected: str, printed: str) -> bool:
    """Compare line by line, without trailing blanks; a line `...` stands for any lines.

    A line that ends in `...` has to match up to there.
    """
    wanted = [line.rstrip() for line in expected.strip("\n").splitlines()]
    got = [line.rstrip() for line in printed.strip("\n").splitlines()]
    # The line numbers of `wanted` that may come next, as in a small automaton.
    places = {0}
    for line in [*got, None]:
        places = _past_dots(places, wanted)
        if line is None:
            return len(wanted) in places
        places = {
            place if wanted[place] == "..." else place + 1
            for place in places
            if place < len(wanted) and _fits(wanted[place], line)
        }
    raise AssertionError("the loop returns")


def _past_dots(places: set[int], wanted: list[str]) -> set[int]:
    reached = set(places)
    for place in range(len(wanted)):
        if place in reached and wanted[place] == "...":
            reached.add(place + 1)
    return reached


def _fits(wanted: str, line: str) -> bool:
    if wanted.endswith("..."):
        return line.startswith(wanted.removesuffix("..."))
    return line == wanted


def check_that_nothing_runs(block: Block, page: Path) -> None:
    where = f"{name(page)}, line {block.line}"
    assert block.needs_gpu or not re.search(r"^\s*(\$ )?tcusim ", block.text, re.MULTILINE), (
        f"{where}: put commands of tcusim into a console block, with $"
    )
    assert ">>>" not in block.text, f"{where}: put a session into a pycon block"
    assert block.language, f"{where}: the block has no language; use text if it is none"


def test_blocks_are_found() -> None:
    kinds = [
        block.language
        for page in PAGES
        for block in blocks(page.read_text(encoding="utf-8"), page.name)
    ]
    for kind in ("pycon", "python", "console"):
        assert kinds.count(kind) >= 3, kind


@pytest.mark.parametrize(
    ("expected", "printed", "equal"),
    [
        ("a\n...\nd", "a\nb\nc\nd\n", True),
        ("a\n...", "a  \nb", True),
        ("a\n...\nd", "a\nd", True),
        ("a\nb", "a\nb\nc", False),
        ("a.c", "abc", False),
        ("a\nb...", "a\nbcd", True),
        ("a...\nb", "abc\nc", False),
    ],
)
def test_comparison_of_output(expected: str, printed: str, equal: bool) -> None:
    assert same(expected, printed) is equal
