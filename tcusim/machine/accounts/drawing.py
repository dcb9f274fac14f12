"""Accounts as an SVG drawing: the rows of the text, aligned by digit in any font."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from tcusim.machine.accounts.account import Account
from tcusim.machine.accounts.text import rows_of

_COLUMN, _ROW, _MARGIN = 7.25, 17, 12

_STYLE: Final = """
.back { fill: #ffffff }
text { font: 12px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #1f1f1f;
  white-space: pre }
.title { font-weight: bold }
.lost { fill: #b3261e }
@media (prefers-color-scheme: dark) { .back { fill: #1e1e1e } text { fill: #e6e6e6 }
  .lost { fill: #ff8a80 } }
"""


def drawing_of(accounts: Sequence[Account]) -> str:
    """Return an SVG document."""
    parts: list[str] = []
    widest = height = 0
    for height, row in enumerate(rows_of(accounts), start=1):
        column = 0
        for span in row:
            text = span.text.strip(" ")
            if text:
                start = column + len(span.text) - len(span.text.lstrip(" "))
                parts.append(_text(text, start, height, span.style))
                widest = max(widest, start + len(text))
            column += len(span.text)
    size = f"{2 * _MARGIN + widest * _COLUMN:g}", f"{2 * _MARGIN + height * _ROW:g}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" '
            f'width="{size[0]}" height="{size[1]}" role="img">',
            "<title>How tensor cores sum one output</title>",
            f"<style>{_STYLE}</style>",
            f'<rect class="back" width="{size[0]}" height="{size[1]}"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _text(text: str, column: int, row: int, style: str) -> str:
    """Return text that is as wide as its columns."""
    name = f' class="{style}"' if style else ""
    return (
        f'<text{name} x="{_MARGIN + column * _COLUMN:g}" y="{_MARGIN + row * _ROW - 5:g}" '
        f'textLength="{len(text) * _COLUMN:g}" xml:space="preserve">{escape(text)}</text>'
    )
