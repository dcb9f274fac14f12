"""The drawings of the site, as SVG that takes its colours from the page (assets/tcusim.css)."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["grid", "pipeline", "reduction", "scan"]

SIDE = 16
CELL = 9
TILE = SIDE * CELL

Colour = Callable[[int, int], str | None]


def pipeline() -> str:
    """Draw what a step program comes from and what consumes it."""
    consumers = (
        ("interpret", "NumPy values, the bits of each GPU", ""),
        ("watch", "stepper: every step, every tile", ""),
        ("count", "mma steps, additions, bytes", ""),
        ("listing", "text in the paper&rsquo;s notation", ""),
        ("emit", "CUDA C++ for a GPU: the same bits", ""),
    )
    parts = [
        _box(8, 92, 150, 56, "box"),
        _text(83, 114, "algorithms", "middle"),
        _text(83, 134, "reduction, scan", "middle", "quiet"),
        _arrow(158, 120, 228, 120),
        _text(193, 112, "build", "middle", "quiet"),
        _box(230, 84, 140, 72, "core"),
        _text(300, 112, "Program", "middle"),
        _text(300, 132, "steps, as data", "middle", "quiet"),
        _arrow(300, 40, 300, 82),
        _text(300, 18, "a tile shape, m x n x k,", "middle", "quiet"),
        _text(300, 33, "and a segment size", "middle", "quiet"),
    ]
    for number, (name, what, kind) in enumerate(consumers):
        y = 22 + 50 * number
        parts.append(_arrow(370, 120, 448, y + 16, kind))
        parts.append(_box(450, y, 326, 34, f"box{kind}"))
        parts.append(_text(462, y + 21, name, "start", "code"))
        parts.append(_text(540, y + 21, what, "start", "quiet"))
    title = "An algorithm builds a program from a tile shape; five consumers read the program."
    return _figure(780, 262, title, parts)


def reduction() -> str:
    """Draw V = P.A, which sums sixteen segments."""
    parts = [
        *_tile(0, "P", "ones in row 0", lambda row, col: "one" if row == 0 else None),
        _operator(TILE, "·"),
        *_tile(TILE + 36, "A", "a segment is a column", lambda row, col: _hue(col)),
        _operator(2 * TILE + 36, "="),
        *_tile(2 * TILE + 72, "V", "row 0 has the sums", lambda r, c: _hue(c) if r == 0 else None),
    ]
    return _figure(3 * TILE + 72, TILE + 52, "P times A is V: row 0 of V has 16 sums.", parts)


def scan() -> str:
    """Draw A.U + (L.A).1, which scans a tile."""
    step = TILE + 36
    parts = [
        *_tile(0, "A", "rows follow each other", lambda row, col: _hue(row)),
        _operator(TILE, "·"),
        *_tile(step, "U", "1 where row ≤ col", lambda r, c: "one" if r <= c else None),
        _operator(step + TILE, "+"),
        *_tile(2 * step, "L", "1 where row > col", lambda r, c: "one" if r > c else None),
        _operator(2 * step + TILE, "·"),
        *_tile(3 * step, "A", "", lambda row, col: _hue(row)),
        _operator(3 * step + TILE, "·"),
        *_tile(4 * step, "1", "all ones", lambda row, col: "one"),
    ]
    title = "A times U, plus L times A times a matrix of ones, is the scan of the tile."
    return _figure(4 * step + TILE, TILE + 52, title, parts)


def grid() -> str:
    """Draw a segment from its groups down to the tiles of a row."""
    levels = (
        ("segment", "groups", 4, "added one after the other"),
        ("group", "512 chunks", 16, "the earlier ones in pairs"),
        ("chunk", "8 panels", 8, "one after the other"),
        ("panel", "32 rows", 16, "by distances 1, 2, 4, 8, 16"),
        ("row", "2 tiles", 2, "a chain of two products"),
    )
    left, width, height, apart = 64, 470, 24, 58
    parts = []
    for number, (name, parts_of, count, how) in enumerate(levels):
        y = 8 + number * apart
        parts.append(_text(left - 10, y + 17, name, "end"))
        cell = width / count
        for i in range(count):
            kind = "core" if i == 1 and number + 1 < len(levels) else "box"
            x = left + i * cell
            parts.append(
                f'<rect class="{kind}" x="{x:.1f}" y="{y}" width="{cell - 2:.1f}" '
                f'height="{height}" rx="2"/>'
            )
        if number + 1 < len(levels):
            below = y + apart - 2
            for x1, x2 in ((left + cell, left), (left + 2 * cell - 2, left + width - 2)):
                parts.append(
                    f'<line class="line later" x1="{x1:.1f}" y1="{y + height + 2}" x2="{x2}" '
                    f'y2="{below}"/>'
                )
        parts.append(_text(left + width + 12, y + 10, parts_of, "start"))
        parts.append(_text(left + width + 12, y + 25, how, "start", "quiet"))
    title = "A segment has groups of 512 chunks of 8 panels of 32 rows of 2 tiles."
    return _figure(740, 8 + 4 * apart + height + 4, title, parts)


# --- Pieces -------------------------------------------------------------------------------------


def _figure(width: int, height: int, title: str, parts: list[str]) -> str:
    """Return a figure; it has no blank line, at which Markdown would end it."""
    svg = [
        f'<figure class="diagram"><svg viewBox="-2 -2 {width + 4} {height + 4}" role="img" '
        f'aria-label="{title}"><title>{title}</title>',
        *parts,
        "</svg></figure>",
    ]
    return "\n".join(svg)


def _hue(number: int) -> str:
    """Return one of sixteen colours that neighbours do not share."""
    return f"hsl({number * 360 // SIDE * 5 % 360} 62% 58%)"


def _tile(x: int, name: str, note: str, colour: Colour) -> list[str]:
    """Return a 16 x 16 tile with its coloured cells, its name above and a note below."""
    middle = x + TILE // 2
    parts = [_text(middle, 14, name, "middle")]
    top = 22
    parts.append(f'<rect class="cell" x="{x}" y="{top}" width="{TILE}" height="{TILE}"/>')
    for row in range(SIDE):
        for col in range(SIDE):
            fill = colour(row, col)
            if fill is None:
                continue
            look = 'class="one"' if fill == "one" else f'fill="{fill}"'
            place = f'x="{x + col * CELL}" y="{top + row * CELL}"'
            parts.append(f'<rect {look} {place} width="{CELL - 1}" height="{CELL - 1}"/>')
    parts.append(_text(middle, top + TILE + 20, note, "middle", "quiet"))
    return parts


def _operator(x: int, sign: str) -> str:
    return _text(x + 18, 22 + TILE // 2 + 5, sign, "middle")


def _box(x: int, y: int, width: int, height: int, kind: str) -> str:
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'


def _text(x: int, y: int, text: str, anchor: str, kind: str = "") -> str:
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>'


def _arrow(x1: int, y1: int, x2: int, y2: int, kind: str = "") -> str:
    """Return a line with a tip that points along it."""
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    back_x, back_y = x2 - 8 * dx, y2 - 8 * dy
    points = " ".join(
        f"{x:.1f},{y:.1f}"
        for x, y in (
            (x2, y2),
            (back_x - 4 * dy, back_y + 4 * dx),
            (back_x + 4 * dy, back_y - 4 * dx),
        )
    )
    line = f'<line class="line{kind}" x1="{x1}" y1="{y1}" x2="{back_x:.1f}" y2="{back_y:.1f}"/>'
    return f'{line}<polygon class="tip" points="{points}"/>'
