"""Accounts as plain text, with colours for a terminal that has them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from tcusim.machine.accounts.account import Account
from tcusim.machine.accounts.layout import Entry, Panel, about, in_words, legend, panels, tables
from tcusim.table import aligned

_WIDTH: Final = 100

# Escape sequences of a terminal, by style: bold, red; and back.
_ESCAPES: Final = {"title": "\x1b[1m", "lost": "\x1b[31m"}
_BACK: Final = "\x1b[0m"


class Span(NamedTuple):
    """Part of a row; its style is "", "title" or "lost"."""

    text: str
    style: str = ""


Row: TypeAlias = tuple[Span, ...]


def text_of(accounts: Sequence[Account], *, color: bool = False) -> str:
    """Return a table of the results, then each step of each account."""

    def written(span: Span) -> str:
        escape = _ESCAPES.get(span.style) if color else None
        return f"{escape}{span.text}{_BACK}" if escape and span.text else span.text

    rows = ("".join(map(written, row)).rstrip() for row in rows_of(accounts))
    return "".join(f"{row}\n" for row in rows)


def rows_of(accounts: Sequence[Account]) -> Iterator[Row]:
    """Yield the rows of the text."""
    yield (Span(about(accounts), "title"),)
    for _, rows in tables(accounts):
        yield ()
        yield from ((Span(f"  {line}"),) for line in aligned(rows))
    for one in accounts:
        yield from ((), ())
        yield from _wrapped(in_words(one))
        for shown in panels(one):
            yield ()
            yield from _panel(shown) if shown.lines else [(Span(f"  ... {shown.title}"),)]
    yield ()
    yield from _wrapped(legend(accounts))


def _wrapped(text: str) -> Iterator[Row]:
    for line in textwrap.wrap(text, _WIDTH):
        yield (Span(line),)


def _panel(shown: Panel) -> Iterator[Row]:
    """Yield a step's title, a header, and its lines."""
    yield (Span("  "), Span(shown.title, "title"), Span(f". {shown.sentence}"))
    digits = " digits" if any(line.digits for line in shown.lines) else ""
    lines = (Entry("term", "numbers", "exp", digits), *shown.lines)
    marks = [f"[{line.lost}]" if line.lost else "" for line in lines]
    cells = [
        (line.name, line.factors, line.exponent, f"{line.digits}{mark}", line.remark)
        for line, mark in zip(lines, marks, strict=True)
    ]
    for line, mark, text in zip(lines, marks, aligned(cells, "llr"), strict=True):
        digits = text.removesuffix(line.remark).rstrip().removesuffix(mark)
        after = text[len(digits) + len(mark) :]
        yield (Span(f"    {digits}"), Span(mark, "lost"), Span(after))
