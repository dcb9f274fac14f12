"""Elements of the site's drawings: SVG with its own colours, light and dark.

A figure has panels, beside each other where there is room, else below each other. No panel is
wider than a phone, so that text is never scaled down: 12 units of a drawing are 12 pixels.
"""

from __future__ import annotations

import base64
import struct
import zlib
from html import escape
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tcusim.markup import themed

# The text column of a phone that is 390 pixels wide.
WIDEST: Final = 350
_MARGIN: Final = 2

_LIGHT: Final = (
    "--ink: #1b2230; --quiet: #525a68; --edge: #b4bbc7; --paper: #f3f5f8; --fill-s: 62%; "
    "--fill-l: 86%; --one: #ffd27a; --sum: #f7bfc8; --core: #cdeaec; --lost: #b3261e; "
    "--lost-fill: #f9d7d4; --accent: #006e78; --wait: #e4e7ec"
)
_DARK: Final = (
    "--ink: #e7eaf0; --quiet: #a9b1bf; --edge: #525b6a; --paper: #1d2430; --fill-s: 38%; "
    "--fill-l: 30%; --one: #7a5410; --sum: #7b3442; --core: #14545c; --lost: #ff9d94; "
    "--lost-fill: #5a2320; --accent: #5fd0d8; --wait: #29313d"
)
_RULES: Final = """
figure.tcusim-figure { display: block; margin: 1.5em auto; width: 100%; max-width: 100% }
.tcusim-figure .panels { display: flex; flex-wrap: wrap; gap: 1em 1.6em;
  justify-content: center; align-items: flex-start }
.tcusim-figure svg { display: block; max-width: 100%; height: auto; flex: none }
.tcusim-figure figcaption { font: 13px/1.5 system-ui, sans-serif; color: var(--quiet);
  max-width: 46em; margin: .7em auto 0; text-align: center; font-style: normal }
.tcusim-figure text { font: 12.5px system-ui, sans-serif; fill: var(--ink) }
.tcusim-figure text.title { font-weight: 600; font-size: 13.5px }
.tcusim-figure text.quiet { fill: var(--quiet); font-size: 12px }
.tcusim-figure text.code, .tcusim-figure text.cell {
  font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace }
.tcusim-figure text.code { font-size: 12px }
.tcusim-figure text.cell { font-size: 11px }
.tcusim-figure text.lost { fill: var(--lost) }
.tcusim-figure text.accent { fill: var(--accent) }
.tcusim-figure .box { fill: var(--paper); stroke: var(--edge) }
.tcusim-figure .core { fill: var(--core); stroke: var(--accent) }
.tcusim-figure .one { fill: var(--one); stroke: var(--edge) }
.tcusim-figure .sum { fill: var(--sum); stroke: var(--edge) }
.tcusim-figure .lost-fill { fill: var(--lost-fill) }
.tcusim-figure .wait { fill: var(--wait) }
.tcusim-figure .bar { fill: var(--quiet) }
.tcusim-figure .hue { stroke: var(--edge) }
.tcusim-figure .mark { fill: none; stroke: var(--ink); stroke-width: 2.2 }
.tcusim-figure .line { fill: none; stroke: var(--quiet); stroke-width: 1.3 }
.tcusim-figure .dashed { stroke-dasharray: 4 3 }
.tcusim-figure .accent-line { fill: none; stroke: var(--accent); stroke-width: 1.8 }
.tcusim-figure .lost-line { fill: none; stroke: var(--lost); stroke-width: 1.6 }
.tcusim-figure .tip { fill: var(--quiet) }
"""


def style() -> str:
    """Return the style of all figures, which are of class `tcusim-figure`."""
    return themed(".tcusim-figure", _LIGHT, _DARK).rstrip() + _RULES.rstrip()


def figure(*panels: str, caption: str = "") -> str:
    """Return panels as one figure. It has no blank line, at which Markdown would end it."""
    lines = [
        f'<figure class="tcusim-figure"><style>{style()}</style>',
        f'<div class="panels">{"".join(panels)}</div>',
    ]
    if caption:
        lines.append(f"<figcaption>{escape(caption)}</figcaption>")
    return "\n".join([*lines, "</figure>"])


def hue(number: int, of: int = 8) -> str:
    """Return the fill of one of several colours, such that neighbours differ."""
    step = 3 if of % 3 else 5
    return f"hsl({number * step % of * 360 // of + 190} var(--fill-s) var(--fill-l))"


class Drawing:
    """A panel under construction: parts are added, and `svg` returns it."""

    def __init__(self, width: float, height: float, title: str) -> None:
        if width > WIDEST:
            raise ValueError(f"a panel is at most {WIDEST} wide, for phones; got {width}: {title}")
        self.width, self.height, self.title = width, height, title
        self._parts: list[str] = []

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        kind: str = "box",
        *,
        fill: str = "",
        corner: float = 2,
    ) -> None:
        """Add a rectangle, of a class, or with a fill of its own."""
        own = f' style="fill:{fill}"' if fill else ""
        look = "hue" if fill and kind == "box" else kind
        self._parts.append(
            f'<rect class="{look}"{own} x="{x:g}" y="{y:g}" width="{width:g}" '
            f'height="{height:g}" rx="{corner:g}"/>'
        )

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> None:
        """Add a line of text on a base line; anchor: which part of it is at x."""
        look = f' class="{kind}"' if kind else ""
        self._parts.append(
            f'<text{look} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'
        )

    def image(self, x: float, y: float, side: float, grey: NDArray[np.uint8]) -> None:
        """Add a square picture of grey levels, as a PNG file inside the drawing."""

        def part(kind: bytes, data: bytes) -> bytes:
            check = zlib.crc32(kind + data)
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

        size = struct.pack(">IIBBBBB", grey.shape[1], grey.shape[0], 8, 0, 0, 0, 0)
        # A byte before each row says how it is filtered: 0 is not at all.
        rows = zlib.compress(np.pad(grey, ((0, 0), (1, 0))).tobytes())
        parts = part(b"IHDR", size) + part(b"IDAT", rows) + part(b"IEND", b"")
        text = base64.b64encode(b"\x89PNG\r\n\x1a\n" + parts).decode()
        self._parts.append(
            f'<image x="{x:g}" y="{y:g}" width="{side:g}" height="{side:g}" '
            f'href="data:image/png;base64,{text}"/>'
        )

    def line(self, *points: tuple[float, float], kind: str = "line") -> None:
        """Add straight lines through points."""
        path = "L".join(f"{x:g} {y:g}" for x, y in points)
        self._parts.append(f'<path class="{kind}" d="M{path}"/>')

    def arrow(self, *points: tuple[float, float], kind: str = "line") -> None:
        """Add straight lines through points, with a tip at the last."""
        (x1, y1), (x2, y2) = points[-2:]
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
        dx, dy = (x2 - x1) / length, (y2 - y1) / length
        back = x2 - 7 * dx, y2 - 7 * dy
        self.line(*points[:-1], back, kind=kind)
        corners = (
            (x2, y2),
            (back[0] - 3.6 * dy, back[1] + 3.6 * dx),
            (back[0] + 3.6 * dy, back[1] - 3.6 * dx),
        )
        shape = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        self._parts.append(f'<polygon class="tip" points="{shape}"/>')

    def tile(
        self,
        x: float,
        y: float,
        cells: list[list[str]],
        side: float,
        fill: list[list[str]],
    ) -> None:
        """Add a matrix: the text of each cell, and its class, or its fill if that has a bracket."""
        for row, texts in enumerate(cells):
            for col, text in enumerate(texts):
                look = fill[row][col]
                left, top = x + col * side, y + row * side
                own = look if "(" in look else ""
                self.rect(left, top, side, side, "box" if own else look, fill=own, corner=0)
                self.text(left + side / 2, top + side / 2 + 4, text, "cell", "middle")

    def svg(self) -> str:
        """Return the panel."""
        width, height = self.width + 2 * _MARGIN, self.height + 2 * _MARGIN
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:g}" '
                f'height="{height:g}" viewBox="-{_MARGIN} -{_MARGIN} {width:g} {height:g}" '
                f'aria-label="{escape(self.title)}"><title>{escape(self.title)}</title>',
                *self._parts,
                "</svg>",
            ]
        )
