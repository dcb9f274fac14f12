"""Drawings of the planner: which strategy it takes for segments of which size."""

from __future__ import annotations

from typing import Final

from drawing import WIDEST, Drawing, figure, hue

import tcusim

_POWERS: Final = range(2, 27)
_OPERATIONS: Final = {"segmented_sum": "sums", "segmented_cumsum": "scans"}


def strategies() -> str:
    """Draw the planner's choices for an array of 2^26 numbers, by the size of its segments."""
    chosen = {
        operation: [
            tcusim.plan(
                operation, length=2**26, segments=2**power, options={"arch": "h200"}
            ).strategy
            for power in _POWERS
        ]
        for operation in _OPERATIONS
    }
    names = list(dict.fromkeys(name for row in chosen.values() for name in row))
    left, side = 46, 12
    drawn = Drawing(WIDEST, 112 + 20 * (len(names) > 3), "Strategies by the size of a segment")
    for number, (operation, row) in enumerate(chosen.items()):
        y = 4 + 34 * number
        drawn.text(0, y + 18, _OPERATIONS[operation])
        for place, name in enumerate(row):
            fill = hue(names.index(name), len(names))
            drawn.rect(left + place * side, y, side, 26, fill=fill, corner=0)
    for power in (4, 8, 12, 16, 20, 24):
        x = left + (power - _POWERS[0] + 0.5) * side
        drawn.text(
            x, 86, f"2{''.join('⁰¹²³⁴⁵⁶⁷⁸⁹'[int(d)] for d in str(power))}", "quiet", "middle"
        )
    for number, name in enumerate(names):
        x, y = left + number % 3 * 100, 98 + number // 3 * 20
        drawn.rect(x, y, 12, 12, fill=hue(number, len(names)), corner=1)
        drawn.text(x + 17, y + 11, name, "code")
    return figure(
        drawn.svg(),
        caption=(
            "What the planner takes on an H200 for 2^26 float16 numbers, by the elements of a "
            "segment. All that apply return the same bits; they differ in speed."
        ),
    )
