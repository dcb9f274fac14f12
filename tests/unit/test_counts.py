"""The mma steps of a warp: counted while it runs, counted in the text, and by formula.

Sizes are those that the algorithm sees: m rows of data and n result columns (exchanged where the
data are the operand b), tiles of m*k elements.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import ceil
from typing import Any

import numpy as np
import pytest

from some import Some
from tcusim.algorithms import Level, build, segmented_algorithms
from tcusim.errors import Unsupported
from tcusim.machine.shapes import MmaShape
from tcusim.program.grammar import Program
from tcusim.simulate.counts import Counts, counts_of_text
from tcusim.simulate.interpreter import interpret, run_numpy
from tcusim.simulate.schedule import steps_to_run

SHAPES = (
    (16, 16, 16),
    (32, 8, 16),
    (8, 32, 16),
    (4, 4, 4),
    (5, 7, 3),
    (16, 8, 8),
    (16, 8, 16),
    (64, 8, 16),
)


# The forms of a scan, of `count` tiles; the registry's formula is that of the first one.
FORMS: dict[str, Callable[[int, int, int, int], int]] = {
    "(LA)1": lambda m, n, k, count: count * ceil(k / n) * (2 + ceil(m / k)),
    "L(A1)": lambda m, n, k, count: count * (ceil(k / n) * (1 + ceil(m / k)) + 1),
    # Only where n > k.
    "[U|1]": lambda m, n, k, count: count * (ceil((k + 1) / n) + ceil(k / n) * ceil(m / k)),
}

# Tiles (rows of k) of a segment, and the warps that share it.
SHARES = {
    Level.WARP: ((1, 1), (2, 1), (5, 1)),
    Level.BLOCK: tuple(itertools.product((1, 2, 8), (1, 3, 4, 17))),
    Level.GRID: ((1, 4), (16, 4), (600, 4), (500, 16)),
}


def seen_sizes(sizes: tuple[int, int, int], side: str) -> tuple[int, int, int]:
    """Return m, n, k as the algorithm sees them: m rows of data, in either operand."""
    m, n, k = sizes
    return (n, m, k) if side == "b" else (m, n, k)


def counted(program: Program, blocks: int = 1) -> Counts:
    """Run a program on ones and count."""
    counts = Counts()
    inputs = {"in": np.ones(blocks * program.blocks.per, np.float16)}
    for event in interpret(program, inputs):
        counts(event)
    return counts


@pytest.mark.parametrize("sizes", SHAPES, ids=lambda sizes: "x".join(map(str, sizes)))
@pytest.mark.parametrize("side", ["a", "b"])
def test_mma_steps_are_those_of_the_formula(
    sizes: tuple[int, int, int], side: str, some: Some
) -> None:
    m, n, k = seen_sizes(sizes, side)
    options: dict[str, Any] = {"tile": MmaShape(*sizes), "side": side}
    for row in segmented_algorithms():
        shares = SHARES[row.level] if row.repeats > 1 else ((1, 1),)
        for count, warps in some(shares, 5, SHAPES.index(sizes) + (side == "b")):
            given = {**options, "segment_size": count * (m * k if row.tiles else k), "warps": warps}
            if row.name == "scan_single_pass" and m & (m - 1):
                with pytest.raises(Unsupported, match="needs a power of 2 of data rows"):
                    build(row.name, **given)
                continue
            program = build(row.name, **given)
            length = given["segment_size"] if row.level is Level.GRID else program.blocks.per
            steps = counts_of_text(program, {"length": length}).mma
            assert counted(program).mma == steps, (row.name, count, warps)
            if row.formula and warps <= k:
                assert row.mma_steps(m, n, k, N=count, W=warps) == steps, (row.name, count, warps)


@pytest.mark.parametrize("sizes", SHAPES, ids=lambda sizes: "x".join(map(str, sizes)))
@pytest.mark.parametrize("side", ["a", "b"])
def test_mma_steps_of_each_form_of_a_scan(sizes: tuple[int, int, int], side: str) -> None:
    m, n, k = seen_sizes(sizes, side)
    for form, formula in FORMS.items():
        if form == "[U|1]" and n <= k:
            continue
        for count in (1, 3):
            program = build(
                "scan_tn", tile=MmaShape(*sizes), side=side, form=form, segment_size=count * m * k
            )
            assert counted(program).mma == formula(m, n, k, count), (form, count)


@pytest.mark.parametrize(
    ("name", "options", "elements", "mma"),
    [
        ("reduction_256", {"tile": "16x16x16"}, 256, 2),
        ("scan_256", {"tile": "16x16x16"}, 256, 3),
        ("reduction_t", {"tile": "32x8x16"}, 512, 3),
        ("scan_t", {"tile": "32x8x16"}, 512, 8),
        ("scan_t", {"tile": "32x8x16", "form": "L(A1)"}, 512, 7),
        ("reduction_t", {"tile": "8x32x16"}, 512, 3),
        ("scan_t", {"tile": "8x32x16", "side": "a"}, 128, 3),
        ("scan_t", {"tile": "8x32x16", "side": "a", "form": "[U|1]"}, 128, 2),
        # The paper's shape needs n products and one.
        ("reduction_256n", {"segment_size": 256 * 16}, 256 * 16, 17),
        ("scan_256n", {"segment_size": 256 * 16}, 256 * 16, 48),
        # 4 tiles for 16 segments, two to a row: 4 products with U, 2 with ones.
        ("scan_panel", {"segment_size": 64}, 1024, 6),
        ("scan_panel", {"segment_size": 1024}, 1024, 6),
        ("scan_panel", {"segment_size": 4096}, 4096, 24),
        # 3 rows a segment: 32 rows have 10 of them.
        ("scan_panel", {"segment_size": 80}, 800, 6),
        ("scan_panel", {"segment_size": 1000}, 1000, 6),
        ("scan_panel", {"segment_size": 1024, "exclusive": True}, 1024, 8),
        ("scan_panel", {"segment_size": 1024, "groups": 4}, 2048, 12),
        ("reduction_panel", {"segment_size": 64}, 2048, 8),
        ("reduction_panel", {"segment_size": 4096}, 4096, 16),
        ("reduction_panel", {"segment_size": 100}, 1600, 8),
    ],
)
def test_products_of_one_block(name: str, options: dict[str, Any], elements: int, mma: int) -> None:
    program = build(name, **options)
    assert program.blocks.per == elements
    assert counted(program).mma == mma


def test_every_warp_counts() -> None:
    assert counted(build("scan_t", warps=4), blocks=3).mma == 3 * 4 * 3


def test_branches_count_the_warps_that_take_them() -> None:
    program = build("reduction_t", masked=True)
    whole, cut = Counts(), Counts()
    for counts, length in ((whole, 1024), (cut, 1000)):
        for event in interpret(program, {"in": np.ones(length, np.float16)}):
            counts(event)
    assert whole.mma == cut.mma == 8
    assert whole.bytes_read == 2 * 1024
    assert cut.bytes_read == 2 * 1000
    assert whole.bytes_written == cut.bytes_written == 4 * 4


def test_bytes_are_those_of_global_memory_alone() -> None:
    counts = counted(build("scan_tn", segment_size=1024, form="L(A1)"))
    assert (counts.bytes_read, counts.bytes_written) == (2 * 1024, 4 * 1024)
    # (L.A).1 + A.U reads the data as both operands.
    twice = counted(build("scan_tn", segment_size=1024))
    assert (twice.bytes_read, twice.bytes_written) == (4 * 1024, 4 * 1024)


def test_additions_are_those_that_were_asked_for() -> None:
    assert counted(build("reduction_tn", segment_size=2048)).additions == 0
    chained = build("reduction_tn", segment_size=2048, combine="add", accumulation_length=2)
    assert counted(chained).additions == 4
    uneven = build("reduction_tn", segment_size=2048 + 256, combine="add", accumulation_length=2)
    assert counted(uneven).additions == 5


def test_steps_to_run_are_the_leaf_steps_of_both_branches() -> None:
    program = build("reduction_tn", segment_size=1024)
    events = list(interpret(program, {"in": np.ones(1024, np.float16)}))
    assert steps_to_run(program.steps, {"length": 1024}) == len(events)
    masked = build("scan_tn", segment_size=1024, masked=True)
    # One warp takes the body of each When, the other its otherwise.
    events = list(interpret(masked, {"in": np.ones(1030, np.float16)}))
    assert steps_to_run(masked.steps, {"length": 1030}) >= len(events)
    # The warps of a block part where the first one works for all.
    block = build("scan_tn_block", segment_size=1024, warps=2)
    events = list(interpret(block, {"in": np.ones(1024, np.float16)}))
    assert steps_to_run(block.steps, {"length": 1024}) == len(events)


@pytest.mark.parametrize("name", [row.name for row in segmented_algorithms()])
def test_counts_of_the_text_are_those_of_the_events(name: str) -> None:
    program = build(name, masked=True, warps=2)
    x = np.ones(3000, np.float16)
    seen = Counts()
    run_numpy(program, {"in": x}, watch=seen)
    counted = counts_of_text(program, {"length": x.size})
    assert (counted.mma, counted.additions) == (seen.mma, seen.additions)
    assert counted.bytes_written == seen.bytes_written
