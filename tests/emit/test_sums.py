"""The text of sums of rows: the elements of each lane, and the tests of bounds."""

from __future__ import annotations

import re
from dataclasses import replace
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


def test_sums_of_rows_are_a_call_with_a_guard() -> None:
    step = sums(32, 32, INSIDE)
    head, get, total = prefix_lines(step, shared_out(step))
    guard = "tcu::is_multiple(in, 16) && 1023 < length"
    assert head == f"tcu::sum_rows<32, 32, 4, 4, 8, 8, 1>(lane, {guard},"
    assert "tcu::load<4>(fast, &in[32*row + col], [=](int at) {" in get
    assert total == "    [=](int row, auto sum) { kept[row] = sum; });"


def test_rows_that_are_always_in_bounds_have_one_path() -> None:
    step = sums(33, 24)
    rows = shared_out(step)
    how = replace(rows.how, guard=())
    assert prefix_lines(step, replace(rows, how=how, to=how))[0].endswith("(lane, tcu::Fast(),")


def test_prefix_sums_go_where_lanes_read() -> None:
    step = sums(32, 32, alone=False)
    head, _, put = prefix_lines(step, shared_out(step))
    assert head.startswith("tcu::scan_rows<32, 32, 4, 4, 8, 8, 4, false, false>(lane, ")
    assert "tcu::store<tcu::Aligned>(&kept[32*row + col], held);" in put


@pytest.mark.parametrize("name", ["reduction_panel", "scan_panel", "scan_single_pass"])
def test_programs_without_products_have_no_fragments(name: str) -> None:
    options: dict[str, Any] = {"batches": 4} if name == "scan_single_pass" else {}
    kernel = emit(build(name, ab="f32", warps=4, **options))
    assert not re.search("fragment<|mma_sync", kernel.text)
    assert kernel.products == 0
    assert kernel.min_sm == 70
