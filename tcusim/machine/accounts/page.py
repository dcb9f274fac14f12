"""Accounts as HTML, for a notebook or as a page that stands alone: no script, no request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from tcusim.machine.accounts.account import Account
from tcusim.machine.accounts.layout import Entry, Panel, about, in_words, legend, panels, tables
from tcusim.markup import page, scrolling, themed

# Text has the colour of its surroundings.
_STYLE: Final = (
    themed(
        ".tcusim-explain",
        "--lost: #b3261e; --lost-back: #b3261e1f; --result: #1a5fb4",
        "--lost: #ff8a80; --lost-back: #ff8a8029; --result: #8ab4f8",
    )
    + """
.tcusim-explain { --line: #80808059; font: 14px/1.45 system-ui, sans-serif; text-align: left }
.tcusim-explain .scroll { overflow-x: auto; max-width: 100% }
.tcusim-explain .archs { display: flex; flex-wrap: wrap; gap: 0 3em; align-items: flex-start }
.tcusim-explain section { max-width: 100%; min-width: 0 }
.tcusim-explain section > p { max-width: 40em }
.tcusim-explain table { border-collapse: collapse; margin: .2em 0 1.2em; font-size: 13px }
.tcusim-explain .caption { margin: 0 }
.tcusim-explain th, .tcusim-explain td { padding: .1em .7em .1em 0; text-align: left;
  white-space: nowrap; font-weight: normal; background: none; border: 0 }
.tcusim-explain thead > tr > * { border-bottom: 1px solid var(--line); font-weight: 600 }
.tcusim-explain .number { text-align: right }
.tcusim-explain :not(pre) > code { white-space: pre; background: none; color: inherit; padding: 0;
  font: 12px/1.5 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace }
.tcusim-explain .sum > * { border-top: 1px solid var(--line) }
.tcusim-explain .result > * { color: var(--result); font-weight: 600 }
.tcusim-explain .result code { font-weight: 600 }
.tcusim-explain del { color: var(--lost); background: var(--lost-back); text-decoration: none }
.tcusim-explain .gone { color: var(--lost) }
"""
)

_TITLE: Final = "How tensor cores sum one output"


def page_of(accounts: Sequence[Account]) -> str:
    """Return a whole page."""
    return page(_TITLE, fragment_of(accounts, level=2))


def fragment_of(accounts: Sequence[Account], *, level: int = 4) -> str:
    """Return an element with a style of its own; its headings are of this level."""
    parts = [
        f'<div class="tcusim-explain"><style>{_STYLE}</style>',
        f"<p>{escape(about(accounts))}</p>",
        *(line for caption, rows in tables(accounts) for line in _table(caption, rows)),
        '<div class="archs">',
    ]
    for one in accounts:
        parts.append(f"<section><h{level}>{escape(one.arch)}: {escape(one.bits)}</h{level}>")
        parts.append(f"<p>{escape(in_words(one))}.</p>")
        for shown in panels(one):
            parts += _panel(shown) if shown.lines else [f"<p>{shown.title}</p>"]
        parts.append("</section>")
    parts.append(f"</div><p>{escape(legend(accounts))}</p></div>")
    return "\n".join(parts)


def _table(caption: str, rows: Sequence[Sequence[str]]) -> Iterator[str]:
    header, *body = rows
    yield f'<p class="caption"><strong>{escape(caption)}</strong></p>'
    yield f"{scrolling(caption)}<table><thead><tr>"
    yield "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
    yield "</tr></thead><tbody>"
    for first, *others in body:
        cells = "".join(_cell(cell) for cell in others)
        yield f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>'
    yield "</tbody></table></div>"


def _cell(text: str) -> str:
    kind = ' class="gone"' if text in ("part", "nothing") else ""
    return f"<td{kind}>{escape(text)}</td>"


def _panel(shown: Panel) -> Iterator[str]:
    """Yield the table of a step."""
    yield f'<p class="caption"><strong>{escape(shown.title)}.</strong> {escape(shown.sentence)}</p>'
    yield f"{scrolling(shown.title)}<table><thead><tr>"
    # On a phone the columns that matter most are seen first.
    for name in ("term", "digits", "", "exponent", "numbers"):
        yield f'<th scope="col">{name}</th>' if name else "<td></td>"
    yield "</tr></thead><tbody>"
    yield from map(_line, shown.lines)
    yield "</tbody></table></div>"


def _line(line: Entry) -> str:
    lost = f"<del>[{escape(line.lost)}]</del>" if line.lost else ""
    start = (
        f'<tr class="{line.kind}"><th scope="row"><code>{escape(line.name)}</code></th>'
        f"<td><code>{escape(line.digits)}{lost}</code></td>"
    )
    if line.kind != "term":
        return f'{start}<td colspan="3">{escape(line.remark)}</td></tr>'
    return (
        f'{start}<td class="gone">{escape(line.remark)}</td>'
        f'<td class="number">{escape(line.exponent)}</td><td>{escape(line.factors)}</td></tr>'
    )
