"""Narrow rows of shared memory get zeros behind them by words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tcusim.algorithms import build
from tcusim.backends import why_unavailable
from tcusim.judge.correctness.testing import assert_agree
from tcusim.program.grammar import (
    COL,
    Assign,
    Bound,
    Buffer,
    BufferRole,
    Extent,
    Index,
    Operation,
    Space,
    View,
    part_of,
    sum_of,
)
from tcusim.program.lanes import NarrowRows, narrow_rows
from tcusim.program.walk import sites
from tcusim_cuda.emit import emit


def shared(name: str, dtype: str = "f16") -> Buffer:
    return Buffer(name, dtype, Extent.of(4096), BufferRole.SCRATCH, Space.WARP)


INSIDE = (Bound(COL, Index.of(5)),)
TO = View.strided(shared("to"), Index(), 64, 8, 24, 1)
FROM = View.strided(shared("from"), Index(), 64, 8, 5, 1, INSIDE)
ROWS = Assign(TO, FROM)


def test_rows_that_follow_each_other_are_spread() -> None:
    assert narrow_rows(ROWS) == NarrowRows(inside=5, width=8, apart=24, count=64)
    down = replace(
        ROWS,
        dst=replace(TO, row_axis=TO.col_axis, col_axis=TO.row_axis),
        value=View.strided(
            FROM.buffer, Index(), 8, 64, 1, 5, (Bound(Index.symbol("row"), Index.of(5)),)
        ),
    )
    assert narrow_rows(down) == narrow_rows(ROWS)


@pytest.mark.parametrize(
    "other",
    [
        replace(ROWS, value=sum_of(FROM, FROM)),
        replace(ROWS, value=part_of(Operation.FINITE, FROM)),
        # Four bytes, another type, rows with gaps, an odd number of them, other vectors, no zeros.
        Assign(
            replace(TO, buffer=shared("to", "f32")), replace(FROM, buffer=shared("from", "f32"))
        ),
        Assign(replace(TO, buffer=shared("to", "f32")), FROM),
        Assign(TO, View.strided(FROM.buffer, Index(), 64, 8, 6, 1, INSIDE)),
        Assign(
            View.strided(TO.buffer, Index(), 63, 8, 24, 1),
            View.strided(FROM.buffer, Index(), 63, 8, 5, 1, INSIDE),
        ),
        Assign(View.strided(TO.buffer, Index(), 64, 8, 22, 1), FROM),
        Assign(TO, View.strided(FROM.buffer, Index(), 64, 8, 8, 1)),
        # A place that only the warp knows, and the grid's memory.
        Assign(replace(TO, offset=Index.symbol("warp")), FROM),
        Assign(TO, replace(FROM, buffer=replace(FROM.buffer, space=Space.GLOBAL))),
    ],
)
def test_others_are_not(other: Assign) -> None:
    assert narrow_rows(other) is None


@pytest.mark.parametrize(
    ("name", "size"), [("reduction_short", 3), ("scan_short", 7), ("scan_panel", 15)]
)
def test_the_emitted_text_spreads_them_right(name: str, size: int) -> None:
    reason = why_unavailable("host")
    if reason is not None:
        pytest.skip(reason)
    program = build(name, segment_size=size, masked=True, warps=2, items_per_warp=2)
    copies = [site.step for site in sites(program) if isinstance(site.step, Assign)]
    assert any(narrow_rows(step) for step in copies)
    assert "tcu::spread_rows<" in emit(program).text
    x = np.random.default_rng(size).standard_normal(20_011).astype(np.float16)
    x[[5, 700, 9000]] = np.inf
    assert_agree(program, {"in": x}, backends=("numpy", "host"))
