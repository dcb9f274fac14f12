"""Drawings of a GPU at work: lanes, the hierarchy of a launch, barriers, launches and tiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from drawing import WIDEST, Drawing, figure, hue

import tcusim
from tcusim.arrays.tuning import tuning_of
from tcusim.machine.layouts.maps import LANES
from tcusim.program.grammar import Const, Scope, Step, Sync
from tcusim.stepper.frames import default_inputs

# --- Lanes ----------------------------------------------------------------------------------------

_LANE: Final = 5


def lanes() -> str:
    """Draw which lane holds which element of the three operands of an mma.sync."""
    return figure(
        *(_lanes_of(operand) for operand in ("a", "b", "c")),
        caption=(
            "mma.sync m16n8k16 with float16 operands: each cell has the number of the lane that "
            f"holds it. The outlined cells are those of lane {_LANE}. A register of A or B holds "
            "two neighbours, of a row or of a column."
        ),
    )


def _lanes_of(operand: str) -> str:
    held = tcusim.layout("m16n8k16", operand, ab="f16", acc="f32")
    rows, cols = held.size
    side, left, top = 20.0, 22.0, 42.0
    shape = f"{operand.upper()}, {rows} x {cols}, {held.dtype}"
    drawn = Drawing(max(left + cols * side, 190), top + rows * side, f"The lanes of {shape}")
    drawn.text(0, 12, shape, "title")
    for col in range(cols):
        drawn.text(left + (col + 0.5) * side, top - 6, str(col), "quiet", "middle")
    owners = np.zeros((rows, cols), int)
    owners[held.rows, held.cols] = np.arange(LANES)[:, None]
    for row in range(rows):
        drawn.text(left - 5, top + (row + 0.5) * side + 4, str(row), "quiet", "end")
    drawn.tile(
        left,
        top,
        [[str(lane) for lane in row] for row in owners],
        side,
        [[hue(lane // 4) for lane in row] for row in owners],
    )
    for one in held.lane(_LANE):
        drawn.rect(left + one.col * side, top + one.row * side, side, side, "mark", corner=0)
    return drawn.svg()


# --- Grid, block, warp, lane ----------------------------------------------------------------------


def hierarchy() -> str:
    """Draw a real launch from its grid down to a lane."""
    length = 2**20
    plan = tcusim.plan("cumsum", length=length, options={"arch": "h200"})
    (launch,) = plan.launch_plan.launches
    program = launch.program
    blocks = program.grid(plan.launch_plan.scalars(launch))
    held = tcusim.layout(program.shape, "c", ab=program.ab, acc=program.acc, family="wmma")
    levels = (
        ("grid", f"{blocks} blocks", 16),
        ("block", f"{program.warps} warps", program.warps),
        ("warp", f"{LANES} lanes", LANES),
        ("lane", f"{held.count} elements", held.count),
    )
    left, bar, apart = 92, 34, 74
    width = WIDEST - left
    drawn = Drawing(WIDEST, (len(levels) - 1) * apart + bar + 2, "Grid, block, warp and lane")
    for number, (name, parts, count) in enumerate(levels):
        y = number * apart
        drawn.text(0, y + 14, name, "title")
        drawn.text(0, y + 31, parts, "quiet")
        last = number + 1 == len(levels)
        cell = width / count
        for i in range(count):
            kind = "core" if i == 2 and not last else "box"
            drawn.rect(left + i * cell, y, cell - 1.5, bar, kind)
        if not last:
            for x1, x2 in ((2 * cell, 0), (3 * cell - 1.5, width - 1.5)):
                top, bottom = (left + x1, y + bar + 2), (left + x2, y + apart - 2)
                drawn.line(top, bottom, kind="line dashed")
    rows, cols = held.size
    return figure(
        drawn.svg(),
        caption=(
            f"One launch of tcusim.cumsum on 2^20 float16 numbers on an H200. Its grid has "
            f"{blocks} blocks (16 are drawn), which run in any order and share no barrier. A "
            f"block has {program.warps} warps on one multiprocessor, with shared memory and "
            f"barriers. The {LANES} lanes of a warp execute an mma together; each holds "
            f"{held.count} elements of a {rows} x {cols} accumulator in its registers."
        ),
    )


# --- Barriers -------------------------------------------------------------------------------------

_KINDS: Final = {
    "Load": ("load", 0),
    "Mma": ("mma", 3),
    "Store": ("store", 1),
    "Assign": ("copy", 2),
    "Sync": ("warp barrier", 4),
}
_WARPS: Final = 4


def barriers() -> str:
    """Draw the work of each warp of a block, and the barriers between them."""
    program = tcusim.build("scan_256n_block", warps=_WARPS)
    seen: list[tuple[str, Step, Sequence[int]]] = [
        (event.path, event.step, event.warps.tolist())
        for event in tcusim.interpret(program, default_inputs(program))
        if not isinstance(event.step, Const)
    ]
    left, top, row, gap = 46.0, 40.0, 28.0, 6.0
    whole = [isinstance(step, Sync) and step.scope is Scope.BLOCK for _, step, _ in seen]
    column = (WIDEST - left - sum(whole) * 2 * gap) / len(seen)
    height = top + _WARPS * row + 74
    drawn = Drawing(WIDEST, height, "The warps of a block, step by step, with two barriers")
    for warp in range(_WARPS):
        drawn.text(0, top + warp * row + 18, f"warp {warp}", "quiet")
    drawn.text(0, 12, "scan_256n_block", "title")
    x, bars = left, []
    for (path, step, warps), barrier in zip(seen, whole, strict=True):
        if barrier:
            middle = x + gap + column / 2
            bars.append(path)
            drawn.line((middle, top - 8), (middle, top + _WARPS * row + 4), kind="accent-line")
            drawn.text(middle, top - 13, f"step {path}", "accent", "middle")
            x += column + 2 * gap
            continue
        for warp in range(_WARPS):
            y = top + warp * row
            if warp in warps:
                fill = hue(_KINDS[type(step).__name__][1])
                drawn.rect(x, y + 3, column - 1, row - 6, fill=fill, corner=1)
            else:
                drawn.rect(x, y + 11, column, 6, "wait", corner=0)
        x += column
    y = top + _WARPS * row + 24
    for number, (name, colour) in enumerate(_KINDS.values()):
        place = left + number % 3 * 100
        drawn.rect(place, y - 10 + number // 3 * 20, 12, 12, fill=hue(colour), corner=1)
        drawn.text(place + 18, y + number // 3 * 20, name, "quiet")
    drawn.rect(left + 200, y + 14, 12, 6, "wait")
    drawn.text(left + 218, y + 20, "waits", "quiet")
    drawn.text(left, y + 42, "time: one step a column", "quiet")
    return figure(
        drawn.svg(),
        caption=(
            f"Four warps scan 256 numbers each, then warp 0 scans their totals while the others "
            f"wait, and then each adds what precedes it. Without the barrier at step {bars[0]} "
            f"warp 0 reads totals that nobody has written; without that at step {bars[1]} the "
            "others add a carry that is not there yet."
        ),
    )


# --- Launches -------------------------------------------------------------------------------------

_DATA: Final = (3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8)
_CHUNKS: Final = 4


def launches() -> str:
    """Draw a scan of a whole array in three launches, and in one."""
    return figure(
        _three(),
        _one_pass(),
        caption=(
            "The same twelve numbers, in four chunks. Left: three launches, which read the array "
            "twice. Right: one launch; each block keeps its chunk, publishes its total, and waits "
            "for the totals before it. tcusim adds these in a fixed order, so that the bits do not "
            "depend on which block was first."
        ),
    )


def _chunks() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the array by chunks, the chunks' totals, and the sum before each chunk."""
    array = np.array(_DATA).reshape(_CHUNKS, -1)
    totals = array.sum(axis=1)
    return array, totals, np.cumsum(totals) - totals


def _row(drawn: Drawing, y: float, values: np.ndarray, kind: str = "") -> None:
    """Draw numbers of an array, chunk by chunk."""
    each = values.shape[1]
    width = WIDEST / _CHUNKS - 8
    side = width / each
    for chunk, numbers in enumerate(values):
        x = 4 + chunk * (width + 8)
        for i, number in enumerate(numbers):
            look = kind or hue(chunk, _CHUNKS)
            own = look if "(" in look else ""
            drawn.rect(x + i * side, y, side, 22, "box" if own else look, fill=own, corner=0)
            drawn.text(x + (i + 0.5) * side, y + 15, str(number), "cell", "middle")


def _middle(chunk: int) -> float:
    return WIDEST / _CHUNKS * (chunk + 0.5)


# The rows of both drawings: the array, the totals, the sums before them, the result.
_Y: Final = (22, 92, 182, 252)


def _three() -> str:
    drawn = _launches_of(
        "Three launches",
        ("1. reduce each chunk", "2. scan the totals, exclusively", "3. scan from each carry"),
        "reads the array twice, writes it once",
    )
    return drawn.svg()


def _one_pass() -> str:
    drawn = _launches_of(
        "One launch",
        (
            "each block sums its chunk, publishes",
            "and awaits the totals before it",
            "and scans from it",
        ),
        "reads the array once, writes it once",
    )
    return drawn.svg()


def _launches_of(title: str, steps: Sequence[str], cost: str) -> Drawing:
    """Draw the common parts: the numbers, and the operation between one row and the next."""
    array, totals, before = _chunks()
    drawn = Drawing(WIDEST, _Y[3] + 44, title)
    drawn.text(0, 12, title, "title")
    _row(drawn, _Y[0], array)
    _totals(drawn, _Y[1], totals, "sum")
    _totals(drawn, _Y[2], before, "one")
    _row(drawn, _Y[3], np.cumsum(array, axis=1) + before[:, None])
    for y, text in zip(_Y, steps, strict=False):
        drawn.text(4, y + 38, text, "quiet")
    for y in (_Y[0], _Y[2]):
        for chunk in range(_CHUNKS):
            drawn.arrow((_middle(chunk), y + 45), (_middle(chunk), y + 69))
    for later in range(1, _CHUNKS):
        for chunk in range(later):
            # Tips side by side, in the order in which the totals are added.
            x = _middle(later) + 12 * (chunk - (later - 1) / 2)
            drawn.arrow((_middle(chunk), _Y[1] + 45), (x, _Y[2] - 1))
    drawn.text(4, _Y[3] + 40, cost, "quiet")
    return drawn


def _totals(drawn: Drawing, y: float, values: np.ndarray, kind: str) -> None:
    for chunk, value in enumerate(values):
        drawn.rect(_middle(chunk) - 17, y, 34, 22, kind)
        drawn.text(_middle(chunk), y + 15, str(value), "cell", "middle")


# --- Tiles of a product ---------------------------------------------------------------------------


def tiling() -> str:
    """Draw the reads of a block of a matrix product, and the division of its result among warps."""
    block = tuning_of("hopper").product.blocks[0]
    size = 4 * max(block.rows, block.cols)
    return figure(
        _matrices(block.rows, block.cols, size),
        _block(block.rows, block.cols, block.height, block.width, block.warps),
        caption=(
            f"A block of {block.warps} warps makes {block.rows} x {block.cols} results. For each "
            "step along the inner axis it copies a slice of A and a slice of B to shared memory "
            f"once; each warp then makes {block.height} x {block.width} results of it, in "
            f"{block.height * block.width // 256} accumulator tiles of 16 x 16."
        ),
    )


def _matrices(rows: int, cols: int, size: int) -> str:
    scale = 160 / size
    left, top, gap = 8.0, 40.0, 18.0
    side, deep = size * scale, 150.0
    drawn = Drawing(WIDEST, top + deep + gap + side + 8, f"C = A.B, a block of {rows} x {cols}")
    drawn.text(0, 12, "C = A·B", "title")
    c_x, c_y = left + deep + gap, top + deep + gap
    drawn.rect(left, c_y, deep, side, "box")
    drawn.rect(c_x, top, side, deep, "box")
    drawn.rect(c_x, c_y, side, side, "box")
    i, j = 1, 2
    high, wide = rows * scale, cols * scale
    step = deep / 6
    drawn.rect(left, c_y + i * high, deep, high, "core")
    drawn.rect(c_x + j * wide, top, wide, deep, "core")
    drawn.rect(left + 2 * step, c_y + i * high, step, high, "one")
    drawn.rect(c_x + j * wide, top + 2 * step, wide, step, "one")
    drawn.rect(c_x + j * wide, c_y + i * high, wide, high, "sum")
    drawn.text(left + 4, c_y + side - 8, "A")
    drawn.text(c_x + 6, top + 16, "B")
    drawn.text(c_x + 6, c_y + side - 8, "C")
    drawn.text(left, top + 24, f"one block: {rows} x {cols}", "quiet")
    drawn.text(left, top + 42, "one slice of A and of B", "quiet")
    drawn.text(left, top + 60, "in shared memory", "quiet")
    drawn.arrow(
        (left + 2 * step + 6, c_y + (i + 0.5) * high), (left + 5 * step, c_y + (i + 0.5) * high)
    )
    drawn.arrow(
        (c_x + (j + 0.5) * wide, top + 2 * step + 6), (c_x + (j + 0.5) * wide, top + 5 * step)
    )
    return drawn.svg()


def _block(rows: int, cols: int, height: int, width: int, warps: int) -> str:
    scale = 300 / cols
    top, left = 40.0, 40.0
    drawn = Drawing(WIDEST, top + rows * scale + 10, "The warps and tiles of a block")
    drawn.text(0, 12, f"The block's results: {rows} x {cols}", "title")
    across = cols // width
    for warp in range(warps):
        x, y = left + warp % across * width * scale, top + warp // across * height * scale
        for row in range(height // 16):
            for col in range(width // 16):
                drawn.rect(
                    x + col * 16 * scale, y + row * 16 * scale, 16 * scale, 16 * scale,
                    fill=hue(warp, warps), corner=0,
                )  # fmt: skip
        drawn.rect(x, y, width * scale, height * scale, "mark", corner=0)
        drawn.text(x + width * scale / 2, y + height * scale / 2 + 4, f"warp {warp}", "", "middle")
    drawn.text(left + width * scale / 2, top - 8, f"{width}", "quiet", "middle")
    return drawn.svg()
