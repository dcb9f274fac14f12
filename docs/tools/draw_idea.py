"""Drawings of the idea: a sum and a scan as products, and the uses of a program."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from drawing import WIDEST, Drawing, figure, hue

import tcusim

_SIDE: Final = 4
_CELL: Final = 25.0
_GAP: Final = 20.0
_TILE: Final = _SIDE * _CELL

# The tile that both drawings work on; all numbers and sums are exact.
_A: Final = np.array([[3, 1, 4, 1], [5, 9, 2, 6], [5, 3, 5, 8], [9, 7, 9, 3]], np.float16)


def reduction() -> str:
    """Draw V = P.A, which sums a segment in each column."""
    ones_first = np.zeros_like(_A)
    ones_first[0] = 1
    sums = tcusim.mma(ones_first, _A)
    return figure(
        _equation(
            "P · A = V",
            (("P", ones_first, "ones"), ("·", None, ""), ("A", _A, "columns")),
            ("V", sums, "first"),
        ),
        caption=(
            "Each column of A is a segment. One product with P, whose first row is ones, leaves "
            "the sum of every segment in row 0 of V. Drawn with tiles of 4 x 4; those of the "
            "algorithm are 16 x 16."
        ),
    )


def scan() -> str:
    """Draw A.U + (L.A).1, which scans a tile, with everything in between."""
    rows, cols = np.indices(_A.shape)
    upper, lower = (rows <= cols).astype(np.float16), (rows > cols).astype(np.float16)
    ones = np.ones_like(_A)
    in_rows = tcusim.mma(_A, upper)
    above = tcusim.mma(lower, _A)
    result = tcusim.mma(above.astype(np.float16), ones, in_rows)
    assert np.array_equal(result.ravel(), np.cumsum(_A))
    return figure(
        _equation(
            "1. A·U scans each row",
            (("A", _A, "rows"), ("·", None, ""), ("U", upper, "ones")),
            ("AU", in_rows, "rows"),
        ),
        _equation(
            "2. L·A sums the rows above, by columns",
            (("L", lower, "ones"), ("·", None, ""), ("A", _A, "rows")),
            ("LA", above, "plain"),
        ),
        _equation(
            "3. LA·1 + AU is the scan",
            (("LA", above, "plain"), ("· 1 +", None, ""), ("AU", in_rows, "rows")),
            ("R", result, "sum"),
        ),
        caption=(
            "Three products scan the sixteen numbers of A, row after row: R ends in their total, "
            f"{int(result[-1, -1])}. LA·1, with 1 the matrix of ones, has in each row the sum of "
            "all rows above. Drawn with tiles of 4 x 4; those of the algorithm are 16 x 16."
        ),
    )


def _equation(title: str, left: tuple[Any, ...], right: tuple[str, Any, str]) -> str:
    """Draw tiles with operators between them: each is a name, its numbers, and how to colour it."""
    drawn = Drawing(3 * _TILE + 2 * _GAP + 10, 42 + _TILE, title)
    drawn.text(0, 12, title, "title")
    x = 0.0
    for name, values, look in (*left, ("=", None, ""), right):
        if values is None:
            _operator(drawn, x + _GAP / 2 + 2, name)
            x += _GAP + 5
            continue
        drawn.text(x + _TILE / 2, 32, name, "code", "middle")
        cells = [[f"{float(value):g}" for value in row] for row in values]
        drawn.tile(x, 40, cells, _CELL, _colours(values, look))
        x += _TILE
    return drawn.svg()


def _operator(drawn: Drawing, x: float, name: str) -> None:
    """Draw an operator, one sign below the other."""
    signs = name.split()
    for number, sign in enumerate(signs):
        y = 40 + _TILE / 2 + 5 + 18 * (number - (len(signs) - 1) / 2)
        drawn.text(x, y, sign, "title", "middle")


def _colours(values: Any, look: str) -> list[list[str]]:
    """Return the look of each cell."""
    looks = {
        "ones": lambda row, col: "one" if values[row, col] else "box",
        "columns": lambda row, col: hue(col, _SIDE),
        "rows": lambda row, col: hue(row, _SIDE),
        "first": lambda row, col: "sum" if row == 0 else "box",
        "sum": lambda row, col: "sum",
        "plain": lambda row, col: "box",
    }
    return [[looks[look](row, col) for col in range(_SIDE)] for row in range(_SIDE)]


def pipeline() -> str:
    """Draw the sources and the readers of a step program."""
    consumers = (
        ("interpret", "the values, with the bits of each GPU"),
        ("step", "every step with its tiles"),
        ("verify", "races, misaligned tiles, bounds"),
        ("count", "mma, additions, bytes"),
        ("listing", "text in the paper's notation"),
        ("emit", "CUDA C++ that returns the same bits"),
    )
    drawn = Drawing(WIDEST, 312, "An algorithm builds a program, and six consumers read it.")
    drawn.rect(0, 0, 150, 46, "box", corner=6)
    drawn.text(75, 19, "an algorithm", "", "middle")
    drawn.text(75, 36, "such as reduction_16", "quiet", "middle")
    drawn.rect(200, 0, 150, 46, "box", corner=6)
    drawn.text(275, 19, "a tile shape", "", "middle")
    drawn.text(275, 36, "16x16x16, or yours", "quiet", "middle")
    drawn.rect(100, 76, 150, 46, "core", corner=6)
    drawn.text(175, 95, "Program", "title", "middle")
    drawn.text(175, 112, "steps, as data", "quiet", "middle")
    drawn.arrow((75, 48), (130, 75))
    drawn.arrow((275, 48), (220, 75))
    drawn.text(175, 66, "build", "code", "middle")
    spine = 14
    drawn.line((175, 123), (175, 136), (spine, 136), (spine, 150 + 27 * 5 + 13))
    for number, (name, what) in enumerate(consumers):
        y = 150 + 27 * number
        drawn.arrow((spine, y + 13), (32, y + 13))
        drawn.rect(34, y, WIDEST - 34, 24, "box", corner=4)
        drawn.text(42, y + 17, name, "code")
        drawn.text(116, y + 17, what, "quiet")
    return figure(drawn.svg())


def grid() -> str:
    """Draw a segment from its groups down to the tiles of a row."""
    levels = (
        ("segment", "groups", 4, "added one after the other"),
        ("group", "512 chunks", 16, "the earlier ones in pairs"),
        ("chunk", "8 panels", 8, "one after the other"),
        ("panel", "32 rows", 16, "by distances 1, 2, 4, 8, 16"),
        ("row", "2 tiles", 2, "a chain of two products"),
    )
    bar, apart = 22, 62
    drawn = Drawing(WIDEST, 4 * apart + bar + 22, "A segment, its groups, chunks, panels and rows")
    for number, (name, parts, count, how) in enumerate(levels):
        y = 20 + number * apart
        drawn.text(0, y - 6, name, "title")
        drawn.text(WIDEST, y - 6, f"{parts}: {how}", "quiet", "end")
        cell = WIDEST / count
        last = number + 1 == len(levels)
        for i in range(count):
            drawn.rect(i * cell, y, cell - 2, bar, "core" if i == 1 and not last else "box")
        if not last:
            for x1, x2 in ((cell, 0), (2 * cell - 2, WIDEST - 2)):
                ends = (x1, y + bar + 1), (x2, y + bar + 14)
                drawn.line(*ends, kind="line dashed")
    return figure(drawn.svg())
