"""Drawings for lessons: sums in a block, other tiles, products, and a kernel beside its program."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, Final

import numpy as np
import percent
from drawing import WIDEST, Drawing, figure, hue
from numpy.typing import NDArray

import tcusim
from tcusim.program.grammar import Add, Assign, Const, Index, Load, Mma, Store, Sync, View, numbered
from tcusim.simulate.counts import Counts
from tcusim_cuda import emit

_LESSONS: Final = Path(__file__).resolve().parents[2] / "tutorials"
_NUMBERS: Final = (3, 1, 4, 1, 5, 9, 2, 6)


# --- Sums in a block ------------------------------------------------------------------------------


def tree() -> str:
    """Draw how the threads of a block add up numbers in shared memory, in rounds."""
    values = np.array(_NUMBERS)
    side, left, apart = 30.0, 92.0, 62.0
    rounds = int(math.log2(values.size))
    drawn = Drawing(WIDEST, 20 + rounds * apart + 26, "A sum in rounds, with a barrier before each")
    drawn.text(0, 12, "shared memory", "title")
    half = values.size
    for number in range(rounds + 1):
        y = 20 + number * apart
        for i, value in enumerate(values):
            look = "wait" if i >= half else ("sum" if number == rounds else "")
            fill = "" if look else hue(i)
            drawn.rect(left + i * side, y, side - 3, 24, look or "box", fill=fill)
            kind = "quiet" if i >= half else "cell"
            drawn.text(left + i * side + 13, y + 16, str(value), kind, "middle")
        half //= 2
        if number == rounds:
            break
        drawn.line(
            (left - 4, y + 34), (left + values.size * side - 3, y + 34), kind="accent-line dashed"
        )
        drawn.text(0, y + 38, "barrier", "accent")
        who = f"threads 0-{half - 1}" if half > 1 else "thread 0"
        drawn.text(0, y + 54, f"{who} add", "quiet")
        for i in range(half):
            start = (left + (i + half) * side + 12, y + 26)
            drawn.arrow(start, (left + i * side + 12 + 4, y + apart - 2))
        values[:half] += values[half : 2 * half]
    return figure(
        drawn.svg(),
        caption=(
            f"{len(_NUMBERS)} numbers in shared memory, and {rounds} rounds. In each round half of "
            "the threads add the other half's numbers to theirs; grey numbers are no longer used. "
            "Before each round all threads wait, or one would read what is not yet written."
        ),
    )


def block_sum() -> str:
    """Draw how four warps of a block sum one segment, with the partial sums of a real run."""
    warps, segment = 4, 4096
    program = tcusim.build("reduction_256n_block", warps=warps, segment_size=segment)
    data = np.random.default_rng(5).integers(0, 4, segment).astype(np.float16)
    row = View.strided(program.buffer("prtls"), Index(), 1, warps, warps, 1)
    for event in tcusim.interpret(program, {"in": data}):
        if event.path == "15":
            partial = event.state.read(row)[0, 0].astype(int)
        state = event.state
    total = int(state.outputs()["out"][0])
    tiles = segment // 256
    drawn = Drawing(WIDEST, 262, "Four warps sum one segment")
    drawn.text(0, 12, f"one segment, {tiles} tiles of 256", "title")
    cell, part = WIDEST / tiles, WIDEST / warps
    for tile in range(tiles):
        fill = hue(tile * warps // tiles, warps)
        drawn.rect(tile * cell, 22, cell - 2, 24, fill=fill)
    for warp in range(warps):
        middle = (warp + 0.5) * part
        drawn.arrow((middle, 50), (middle, 68))
        drawn.rect(warp * part + 4, 70, part - 10, 40, fill=hue(warp, warps))
        drawn.text(middle - 1, 87, f"warp {warp}", "", "middle")
        drawn.text(middle - 1, 103, f"{tiles // warps} + 1 mma", "quiet", "middle")
        drawn.arrow((middle, 112), (middle, 130))
        drawn.rect(middle - 26, 132, 52, 24, fill=hue(warp, warps))
        drawn.text(middle, 148, str(partial[warp]), "cell", "middle")
        drawn.line((middle, 158), (part / 2, 206))
    drawn.text(WIDEST, 210, "prtls, in shared memory", "quiet", "end")
    _barrier(drawn, 194, part, WIDEST)
    drawn.rect(4, 206, part - 10, 40, fill=hue(0, warps))
    drawn.text(part / 2 - 1, 223, "warp 0", "", "middle")
    drawn.text(part / 2 - 1, 239, "1 mma", "quiet", "middle")
    drawn.arrow((part, 226), (part + 28, 226))
    drawn.rect(part + 30, 214, 60, 24, "sum")
    drawn.text(part + 60, 230, str(total), "cell", "middle")
    drawn.text(part + 100, 230, "the sum", "quiet")
    return figure(
        drawn.svg(),
        caption=(
            f"reduction_256n_block with {warps} warps. Each warp sums {tiles // warps} tiles and "
            "writes its partial sum to memory that all of them see. After the barrier warp 0 adds "
            "the partial sums, with one more product."
        ),
    )


def _barrier(drawn: Drawing, y: float, left: float, right: float) -> None:
    drawn.line((left, y), (right, y), kind="accent-line dashed")
    drawn.text(right, y - 4, "barrier", "accent", "end")


# --- The grid -------------------------------------------------------------------------------------


def status_words() -> str:
    """Draw which sums a block of a scan in one launch waits for."""
    columns, groups, shown = 4, 3, 10
    cell, y, top = WIDEST / (columns * groups), 96.0, 40.0
    drawn = Drawing(WIDEST, 176, f"What block {shown} waits for")
    drawn.text(0, 12, "sums_of_groups", "title")
    group, place = divmod(shown, columns)
    for number in range(groups):
        left = number * columns * cell
        drawn.rect(left, y - 8, columns * cell - 4, 50, "box")
        drawn.text(left + (22 if number else 0), y - 14, f"group {number}", "quiet")
        if number:
            look = "one" if number == group else "wait"
            drawn.rect(left - 22, top - 18, 40, 22, look)
            drawn.text(left - 2, top - 3, f"0-{number * columns - 1}", "cell", "middle")
            drawn.arrow((left - cell / 2 - 2, y + 2), (left - 6, top + 6))
    for block in range(columns * groups):
        near = group * columns <= block < shown
        look = "core" if block == shown else ("sum" if near else "")
        fill = "" if look else hue(block // columns, 4)
        drawn.rect(block * cell + 3, y + 4, cell - 9, 26, look or "box", fill=fill)
        drawn.text((block + 0.5) * cell - 2, y + 21, str(block), "cell", "middle")
    mine = (shown + 0.5) * cell - 2
    drawn.arrow((group * columns * cell + 18, top - 8), (mine, top - 8), (mine, y + 1))
    for number, block in enumerate(range(group * columns, shown)):
        x, low = (block + 0.5) * cell - 2, y + 54 + 10 * number
        drawn.arrow(
            (x, y + 33), (x, low), (mine - 5 + 8 * number, low), (mine - 5 + 8 * number, y + 33)
        )
    drawn.text(0, y + 64, "sums_of_blocks", "title")
    return figure(
        drawn.svg(),
        caption=(
            f"Groups of {columns} blocks. Block {shown} awaits the sums of the {place} blocks "
            "before it in its group, and the one status word that has the sum of everything before "
            "the group. The last block of a group publishes that word for the next one."
        ),
    )


# --- Other tiles ----------------------------------------------------------------------------------


def wmma_shapes() -> str:
    """Draw the elements that one mma sums with each of WMMA's float16 shapes, to scale."""
    return figure(
        *(_shape(name) for name in ("16x16x16", "32x8x16", "8x32x16")),
        caption=(
            "One sum with each WMMA shape, to scale. The coloured operand holds the data; a stripe "
            "is four segments, which are rows of A or columns of B. The other operand has ones in "
            "a row or a column (yellow), which leaves the sums (red)."
        ),
    )


def _shape(name: str) -> str:
    m, n, k = map(int, name.split("x"))
    program = tcusim.build("reduction_k", tile=name)
    product = next(step for _, step in numbered(program.steps) if isinstance(step, Mma))
    data_left = product.a.name == "A"
    scale, top, gap = 3.6, 44.0, 26.0
    a, b, d = (m, k), (k, n), (m, n)
    width = scale * (k + n + n) + 2 * gap
    drawn = Drawing(
        min(max(width + 24, 170), WIDEST), top + scale * max(m, k) + 6, f"A sum with {name}"
    )
    drawn.text(0, 12, f"{name}: sums {program.scalars[0].multiple_of}", "title")
    x = 0.0
    for place, (rows, cols) in enumerate((a, b, d)):
        label = (f"A {rows}x{cols}", f"B {rows}x{cols}", f"D {rows}x{cols}")[place]
        drawn.text(x, top - 8, label, "quiet")
        drawn.rect(x, top, cols * scale, rows * scale, "box", corner=0)
        data = place == (0 if data_left else 1)
        for i in range(0, rows if data_left else cols, 4):
            if data:
                fill = hue(i // 4)
                box = (x, top + i * scale, cols * scale, 4 * scale) if data_left else (
                    x + i * scale, top, 4 * scale, rows * scale
                )  # fmt: skip
                drawn.rect(*box, fill=fill, corner=0)
        if not data:
            look = "sum" if place == 2 else "one"
            thin = (cols * scale, scale) if not data_left else (scale, rows * scale)
            drawn.rect(x, top, *thin, look, corner=0)
        x += cols * scale + gap
        if place < 2:
            drawn.text(x - gap / 2, top + scale * 8, "·="[place], "", "middle")
    return drawn.svg()


# --- An image -------------------------------------------------------------------------------------


def equalised() -> str:
    """Draw the image of the lesson on using it, before and after, with its histogram and scan."""
    names: dict[str, Any] = {}
    for _ in percent.run(_LESSONS / "12_using_it.py", names):
        if "equalised" in names:
            break
    return figure(
        *(_levels(name, names[of]) for name, of in (("before", "image"), ("after", "equalised"))),
        caption=(
            "An image before and after histogram equalisation. Bars: how many pixels have a grey "
            "level. Line: the scan of the bars, which is what the new levels are read from; after "
            "it is nearly straight."
        ),
    )


def _levels(name: str, image: NDArray[np.uint8]) -> str:
    side, high = 168.0, 60.0
    drawn = Drawing(side, side + high + 34, f"The image {name}, its histogram and scan")
    drawn.text(0, 12, name, "title")
    drawn.image(0, 20, side, image)
    counts = np.bincount(image.ravel(), minlength=256).reshape(-1, 4).sum(axis=1)
    shares = tcusim.cumsum(counts) / image.size
    bottom, wide = side + high + 30, side / counts.size
    for level, count in enumerate(counts / counts.max()):
        if count:
            drawn.rect(level * wide, bottom - high * count, wide, high * count, "bar", corner=0)
    points = [(level * wide, bottom - high * share) for level, share in enumerate(shares)]
    drawn.line(*points, kind="accent-line")
    return drawn.svg()


# --- Products -------------------------------------------------------------------------------------


def roofline() -> str:
    """Draw the limits of an H200 with WMMA, and the programs for products below them."""
    unit = tcusim.unit_of("h200")
    known = {name: one.value for name, one in unit.figures().items()}
    timed = unit.instruction("16x16x16", "f16", "f32", "wmma")
    assert timed is not None
    assert timed.interval is not None
    per_mma = 2 * 16**3
    cores = known["cores"] * known["units_per_core"]
    peak = cores * known["clock"] / timed.interval.value * per_mma
    bandwidth = known["memory_bandwidth"]
    ridge = peak / bandwidth
    left, top, width, height = 44.0, 30.0, WIDEST - 56.0, 196.0
    low, high = -1, 10  # powers of two of operations a byte

    def x_of(intensity: float) -> float:
        return left + (math.log2(intensity) - low) / (high - low) * width

    def y_of(speed: float) -> float:
        return top + height - (math.log10(speed) - 12) / 3 * height

    drawn = Drawing(WIDEST, top + height + 42, "The roofline of an H200")
    drawn.text(0, 12, "operations a second", "title")
    for power, text in ((12, "10¹²"), (13, "10¹³"), (14, "10¹⁴"), (15, "10¹⁵")):
        drawn.line((left, y_of(10**power)), (left + width, y_of(10**power)), kind="line dashed")
        drawn.text(left - 5, y_of(10**power) + 4, text, "quiet", "end")
    for power in range(0, high + 1, 2):
        drawn.text(x_of(2**power), top + height + 16, str(2**power), "quiet", "middle")
    drawn.text(left + width, top + height + 34, "operations for each byte read", "quiet", "end")
    ends = 2.0**low, 2.0**high
    drawn.line(
        (x_of(ends[0]), y_of(bandwidth * ends[0])), (x_of(ridge), y_of(peak)),
        (x_of(ends[1]), y_of(peak)), kind="accent-line",
    )  # fmt: skip
    drawn.text(left + width, y_of(peak) + 16, f"{peak / 1e12:.0f}·10¹²", "accent", "end")
    drawn.text(x_of(1.1), y_of(bandwidth * 4) - 8, f"{bandwidth / 1e12:.1f} TB/s", "accent", "end")
    for name, intensity in _intensities().items():
        x, y = x_of(intensity), y_of(min(peak, bandwidth * intensity))
        drawn.rect(x - 4, y - 4, 8, 8, "sum", corner=4)
        drawn.text(x + 8, y + 12, name)
    return figure(
        drawn.svg(),
        caption=(
            f"Left of {ridge:.0f} operations a byte the memory limits, right of it the tensor "
            "cores do. Each dot is the most that a program can reach without help from caches, by "
            "the bytes that it was counted to read."
        ),
    )


def _intensities() -> dict[str, float]:
    """Return the operations for each byte read, of programs that are run and counted."""
    side, tall = 128, (256, 512)
    square = np.zeros(side * side, np.float16)
    matrix, vector = np.zeros(math.prod(tall), np.float16), np.zeros(tall[1], np.float16)
    found = {}
    for name, algorithm, options in (
        ("naive", "gemm_naive", {}),
        ("32 x 32", "gemm", {"warps": 4, "down": 1, "across": 1}),
        ("128 x 128", "gemm", {"warps": 16, "down": 2, "across": 2}),
    ):
        program = tcusim.build(algorithm, cols=side, inner=side, **options)
        counts = Counts()
        tcusim.run(program, {"a": square, "b": square}, watch=counts)
        found[name] = 2 * side**3 / counts.bytes_read
    program = tcusim.build("gemv_reduction", inner=tall[1], warps=8, tile="8x32x16")
    counts = Counts()
    names = [buffer.name for buffer in program.inputs]
    tcusim.run(program, dict(zip(names, (matrix, vector), strict=True)), watch=counts)
    found["matrix times vector"] = 2 * math.prod(tall) / counts.bytes_read
    return found


def stages() -> str:
    """Draw a block with two stages over time: it copies one and multiplies the other."""
    steps, left, top, row = 5, 62.0, 30.0, 38.0
    width = (WIDEST - left) / steps
    drawn = Drawing(WIDEST, top + 2 * row + 44, "Two stages: one is copied, one is multiplied")
    drawn.text(0, 12, "time: one step of the inner axis a column", "title")
    for y, name in ((top, "copy"), (top + row, "multiply")):
        drawn.text(0, y + 20, name, "quiet")
    for step in range(steps):
        x = left + step * width
        if step < steps - 1:
            drawn.rect(x, top, width - 8, row - 8, fill=hue(step % 2, 3))
            drawn.text(x + width / 2 - 4, top + 19, f"k = {step}", "cell", "middle")
        if step:
            drawn.rect(x, top + row, width - 8, row - 8, fill=hue((step - 1) % 2, 3))
            drawn.text(x + width / 2 - 4, top + row + 19, f"k = {step - 1}", "cell", "middle")
            drawn.line((x - 4, top - 6), (x - 4, top + 2 * row), kind="accent-line")
    y = top + 2 * row + 14
    for stage in range(2):
        drawn.rect(left + stage * 86, y - 10, 12, 12, fill=hue(stage, 3))
        drawn.text(left + 18 + stage * 86, y, f"stage {stage}", "quiet")
    drawn.line((left + 178, y - 12), (left + 178, y + 4), kind="accent-line")
    drawn.text(left + 186, y, "barrier", "accent")
    return figure(
        drawn.svg(),
        caption=(
            "While the tiles of one step are multiplied, those of the next one are copied to the "
            "other stage. One barrier a step is enough: it says both that the copies are there "
            "and that nobody still reads the stage that is filled next."
        ),
    )


# --- A kernel beside its program ------------------------------------------------------------------

_DONE_BY: Final = {
    Const: ("registers", 0),
    Load: ("memory to registers", 1),
    Mma: ("tensor core", 3),
    Add: ("registers", 0),
    Store: ("registers to memory", 1),
    Sync: ("barrier", 4),
    Assign: ("lane by lane", 2),
}
# Parts that a short line omits: addresses, layouts and sizes.
_DETAILS: Final = re.compile(r"\[[^\]]*\]|, \w+major, stride=\d+|  \d+x\d+$")


def step_to_cuda() -> str:
    """Draw the steps of a program, each above the statement of the kernel that it becomes."""
    program = tcusim.build("reduction_16")
    kernel = emit(program)
    lines = kernel.text.splitlines()
    steps = [(path, step) for path, step in numbered(program.steps)]
    apart = 42.0
    drawn = Drawing(WIDEST, 22 + apart * len(steps), "Steps of a program, and their CUDA")
    drawn.text(0, 12, f"{program.name}: each step, and its statement", "title")
    for number, (path, step) in enumerate(steps):
        own = [text.strip() for text, of in zip(lines, kernel.paths, strict=True) if of == path]
        comment, *statements = [text for text in own if text not in ("", "}")]
        y = 22 + number * apart
        by, colour = _DONE_BY[type(step)]
        if isinstance(step, Const) and not step.pattern.uniform:
            by, colour = _DONE_BY[Load]
        drawn.rect(0, y, WIDEST, apart - 5, fill=hue(colour))
        drawn.text(6, y + 14, _DETAILS.sub("", comment.removeprefix("// ")), "code")
        drawn.text(WIDEST - 6, y + 14, by, "quiet", "end")
        drawn.text(6, y + 30, statements[-1].replace("wmma::", ""), "cell")
    return figure(
        drawn.svg(),
        caption=(
            "Above, the step, without its addresses; below, the statement that does it, without "
            "the prefix wmma::. The colour says who does it."
        ),
    )
