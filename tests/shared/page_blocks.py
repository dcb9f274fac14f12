"""The fenced blocks of code on pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

FENCE = re.compile(r"^(?P<indent> *)```+(?P<info>[^`\n]*)$")


LIBRARY = re.compile(r"needs (torch|dask|jax)\b")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the line of the page above its text, and the text.

    library: one that its title says it needs, of those that the tests do without.
    """

    language: str
    line: int
    text: str
    needs_gpu: bool = False
    library: str = ""


def blocks(text: str, where: str) -> Iterator[Block]:
    """Yield the fenced blocks of a text; `where` it stands is for messages."""
    language, start, indent, title = "", 0, "", ""
    lines: list[str] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        fence = FENCE.match(line)
        if lines is None and fence:
            info = fence["info"].split()
            language, start, indent = (info[0] if info else ""), number, fence["indent"]
            title = fence["info"]
            lines = []
        elif lines is not None and fence and not fence["info"].strip():
            text = "\n".join(lines) + "\n"
            library = LIBRARY.search(title)
            named = library[1] if library else ""
            yield Block(language, start, text, "needs a GPU" in title, named)
            lines = None
        elif lines is not None:
            lines.append(line.removeprefix(indent))
    assert lines is None, f"{where}, line {start}: the block is never closed"
