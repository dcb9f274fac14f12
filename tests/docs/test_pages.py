"""The pages of the site are written by running their blocks, and none fails silently."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "docs" / "tools"
PAGE = Path("page.md")


@pytest.fixture(scope="module")
def pages() -> Any:
    """Load docs/tools/pages.py; it belongs to no package."""
    sys.path.insert(0, str(TOOLS))
    try:
        return importlib.import_module("pages")
    finally:
        sys.path.remove(str(TOOLS))


def test_blocks_are_replaced_by_what_they_print(pages: Any) -> None:
    text = 'Before.\n\n```python exec="on"\nprint("**six**")\n```\n\n```python\nprint(7)\n```\n'
    assert pages.ran(text, PAGE) == "Before.\n\n**six**\n\n```python\nprint(7)\n```\n"


def test_code_above_and_text_below(pages: Any) -> None:
    options = 'exec="on" source="above" result="text"'
    text = f"1. A list:\n\n    ```python {options}\n    print(2 * 3)\n    ```"
    assert pages.ran(text, PAGE) == (
        "1. A list:\n\n    ```python\n    print(2 * 3)\n    ```\n\n    ```text\n    6\n    ```"
    )


def test_a_block_that_fails_fails_the_build(pages: Any) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        pages.ran('\n\n```python exec="on"\nx = 1\nx / 0\n```', PAGE)
    assert (str(caught.traceback[-1].path), caught.traceback[-1].lineno) == ("page.md", 4)


@pytest.mark.parametrize("option", ['result="md"', 'session="a"'])
def test_an_unknown_option_is_refused(pages: Any, option: str) -> None:
    with pytest.raises(ValueError, match=r"page.md, line 2: .* is no option of a block"):
        pages.ran(f'\n```python exec="on" {option}\nprint()\n```', PAGE)


def test_every_block_has_options_that_there_are(pages: Any) -> None:
    found = [
        pages._options(match["options"], path.name)
        for path in sorted(pages.DOCS.rglob("*.md"))
        for match in pages._BLOCK.finditer(path.read_text(encoding="utf-8"))
    ]
    fences = sum(
        path.read_text(encoding="utf-8").count("```python exec")
        for path in pages.DOCS.rglob("*.md")
    )
    assert len(found) == fences > 50
