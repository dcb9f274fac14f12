"""What all HTML of tcusim shares: pages and fragments that ask for nothing, light and dark."""

from __future__ import annotations

from html import escape
from typing import Final

__all__ = ["page", "scrolling", "themed"]

_PAGE: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>:root {{ color-scheme: light dark }} body {{ margin: 1.5em clamp(1em, 4vw, 4em);
  font-family: system-ui, sans-serif; background: Canvas; color: CanvasText }}</style>
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


def page(title: str, body: str) -> str:
    """Return a whole page around a fragment."""
    return _PAGE.format(title=escape(title), body=body)


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
