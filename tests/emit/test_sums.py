"""The text of sums of rows: the elements of each lane, and the tests of bounds."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tcusim.algorithms import build
from tcusim.program.grammar import (
    COL,
    ROW,
    Bound,
    Buffer,
    BufferRole,
    Extent,
    Index,
    Prefix,
    Space,
    View,
)
from tcusim.program.lanes import Rows, rows_of
from tcusim_cuda.emit import emit
from tcusim_cuda.sums import prefix_lines

LENGTH = Index.symbol("length")
IN = Buffer("in", "f32", Extent(LENGTH), BufferRole.INPUT)
INSIDE = Bound(ROW * 32 + COL, LENGTH)


def rectangle(buffer: Buffer, rows: int, cols: int, *bounds: Bound) -> View:
    return View.strided(buffer, Index(), rows, cols, cols, 1, bounds)


def sums(rows: int, cols: int, *bounds: Bound, alone: bool = True) -> Prefix:
    kept = Buffer("kept", "f32", Extent.of(rows * cols), BufferRole.SCRATCH, Space.WARP)
    target = rectangle(kept, rows, 1 if alone else cols)
    return Prefix(target, rectangle(IN, rows, cols, *bounds))


def shared_out(step: Prefix) -> Rows:
    return rows_of(build("reduction_k"), step, frozenset(), None)


@pytest.mark.parametrize(
    ("rows", "cols", "vector", "each", "lanes", "turns", "held"),
    [
        (32, 32, 4, 4, 8, 8, 8),
        (64, 32, 4, 4, 8, 16, 8),
        (512, 2, 2, 2, 1, 16, 16),
        (32, 31, 1, 4, 8, 8, 8),
        (8, 100, 4, 4, 32, 8, 8),
        (2, 1000, 4, 4, 32, 2, 1),
        (3, 129, 1, 4, 32, 3, 3),
        (5, 1, 1, 1, 1, 1, 1),
    ],
)
def test_lanes_share_out_rows(
    rows: int, cols: int, vector: int, each: int, lanes: int, turns: int, held: int
) -> None:
    found = shared_out(sums(rows, cols))
    assert (found.how.vector, found.each, found.lanes) == (vector, each, lanes)
    assert (found.turns, found.held) == (turns, held)
    assert found.size >= cols


def test_whole_rows_are_read_without_a_test() -> None:
    step = sums(32, 32, INSIDE)
    text = "\n".join(prefix_lines(step, shared_out(step)))
    fast, slow = text.split("} else {")
    assert fast.startswith("if (tcu::is_multiple(in, 16) && 1023 < length) {")
    assert "tcu::load<4, tcu::Aligned>(&in[32*row + col])" in fast
    assert "const bool here = true;" in fast
    assert "= 0.0f" not in fast
    assert "at < length; })" in slow
    # All rows are on their way before the first one is added up.
    assert fast.index("tcu::load") < fast.index("tcu::sum_of_row<4, 8>(held[nth])")


def test_what_lanes_lack_is_zero() -> None:
    step = sums(33, 24)
    text = "\n".join(prefix_lines(step, shared_out(step)))
    assert "held[nth][e] = 0.0f;" in text
    assert "const bool here = row < 33;" in text
    assert "if (here && col < 24) {" in text


def test_prefix_sums_go_where_lanes_read() -> None:
    step = sums(32, 32, alone=False)
    text = "\n".join(prefix_lines(step, shared_out(step)))
    assert "tcu::prefix_sums<4, 8, false, false>(held[nth]);" in text
    assert "tcu::store<tcu::Aligned>(&kept[32*row + col], tcu::take<4>(held[nth] + e));" in text


@pytest.mark.parametrize("name", ["reduction_panel", "scan_panel", "scan_single_pass"])
def test_programs_without_products_have_no_fragments(name: str) -> None:
    options: dict[str, Any] = {"batches": 4} if name == "scan_single_pass" else {}
    kernel = emit(build(name, ab="f32", warps=4, **options))
    assert not re.search("fragment<|mma_sync", kernel.text)
    assert kernel.products == 0
    assert kernel.min_sm == 70
