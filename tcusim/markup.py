"""The shared parts of all HTML of tcusim: self-contained pages and fragments, light and dark."""

from __future__ import annotations

import importlib
import os
from datetime import UTC, datetime
from html import escape
from typing import Final

from tcusim.errors import InputError

_PAGE: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>:root {{ color-scheme: light dark }} body {{ margin: 1.5em clamp(1em, 4vw, 4em);
  font-family: system-ui, sans-serif; background: Canvas; color: CanvasText }}
main .tcusim-shown .scroll {{ max-height: none }}
@page {{ margin: 14mm }}
@media print {{ body {{ margin: 0; font-size: 10pt }} h1 {{ font-size: 18pt }} }}</style>
</head>
<body><main>
<h1>{title}</h1>
{body}
</main></body>
</html>
"""

# Who shows a fragment says in a way of its own whether it is light or dark: JupyterLab, the theme
# of tcusim's site, VS Code.
_LIGHT: Final = (
    '[data-jp-theme-light="true"]',
    '[data-md-color-scheme="default"]',
    ".vscode-light",
)
_DARK: Final = ('[data-jp-theme-light="false"]', '[data-md-color-scheme="slate"]', ".vscode-dark")


def _shown_style() -> str:
    colours = themed(
        ".tcusim-shown",
        "--quiet: #595959; --edge: #c4c4c4; --wrong: #b3261e",
        "--quiet: #b3b3b3; --edge: #5a5a5a; --wrong: #ff8a80",
    )
    rules = """
.tcusim-shown { font: 14px/1.45 system-ui, sans-serif; text-align: left }
.tcusim-shown .scroll { overflow: auto; max-width: 100%; max-height: 36em }
.tcusim-shown pre { font: 12px/1.5 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  margin: .3em 0; background: none; color: inherit; white-space: pre }
.tcusim-shown table { border-collapse: collapse; margin: .3em 0; font-size: 13px }
.tcusim-shown :is(th, td) { padding: .1em .9em .1em 0; text-align: left; font-weight: normal;
  vertical-align: top; background: none; border: 0; white-space: nowrap }
.tcusim-shown td.long { white-space: normal; min-width: 14em }
.tcusim-shown :is(th, td).right { text-align: right; font-variant-numeric: tabular-nums }
.tcusim-shown thead th { border-bottom: 1px solid var(--edge); font-weight: 600;
  vertical-align: bottom }
.tcusim-shown .totals tr:first-child > * { border-top: 1px solid var(--edge) }
.tcusim-shown tbody th, .tcusim-shown .quiet { color: var(--quiet) }
.tcusim-shown .wrong > * { color: var(--wrong) }
.tcusim-shown .numbers :is(th, td) { font: 11px ui-monospace, Menlo, Consolas, monospace;
  text-align: right; padding: .1em .4em; white-space: nowrap }
.tcusim-shown .numbers td { border: 1px solid var(--edge) }
@media print {
  .tcusim-shown { font-size: 9pt }
  .tcusim-shown .scroll { overflow: visible; max-height: none }
  .tcusim-shown table { font-size: 7.5pt }
  .tcusim-shown table:not(.numbers) :is(th, td) { white-space: normal; padding-right: .6em }
  .tcusim-shown td.long { min-width: 0 }
  .tcusim-shown :is(tr, figure, li) { break-inside: avoid }
  .tcusim-shown :is(h2, h3, summary) { break-after: avoid }
  .tcusim-shown details::details-content { content-visibility: visible; height: auto }
}
"""
    return colours + rules


def shown(*parts: str) -> str:
    """Return the HTML of an object for a notebook, in the colours of its surroundings."""
    return "\n".join([f'<div class="tcusim-shown"><style>{_SHOWN}</style>', *parts, "</div>"])


def listing(title: str, text: str) -> str:
    """Return a listing: what a program works on, which unfolds, and then its steps."""
    head, _, body = text.partition("\n\n")
    return shown(
        f"<p><strong>{escape(title)}</strong></p>",
        f"<details><summary>What it works on</summary><pre>{escape(head)}</pre></details>",
        f"{scrolling('Listing')}<pre>{escape(body.rstrip())}</pre></div>",
    )


def page(title: str, body: str) -> str:
    """Return a whole page around a fragment."""
    return _PAGE.format(title=escape(title), body=body)


def provenance(command: str = "") -> dict[str, str]:
    """Return the origin of a page: the version of tcusim, the date and the command, if any.

    The date is in UTC. The environment's SOURCE_DATE_EPOCH sets it, so that a page can be made
    again to the byte.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if epoch is None:
        now = datetime.now(UTC)
    else:
        try:
            now = datetime.fromtimestamp(int(epoch), UTC)
        except (ValueError, OverflowError, OSError):
            raise InputError(
                f"SOURCE_DATE_EPOCH must be seconds since 1970, got {epoch!r}"
            ) from None
    version = str(importlib.import_module("tcusim").__version__)
    found = {"tcusim": version, "date": f"{now:%Y-%m-%d}", "command": command}
    return {name: text for name, text in found.items() if text}


def themed(selector: str, light: str, dark: str) -> str:
    """Return style that gives an element one set of variables or another.

    Where nobody says whether it is dark, the reader's preference decides.
    """
    lights, darks = (", ".join(f"{one} {selector}" for one in many) for many in (_LIGHT, _DARK))
    return (
        f"{selector} {{ {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ {selector} {{ {dark} }} }}\n"
        f"{lights} {{ {light} }}\n{darks} {{ {dark} }}\n"
    )


def scrolling(label: str) -> str:
    """Return the beginning of an element that can be scrolled, by keys too."""
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label)}">'


_SHOWN: Final = _shown_style()
