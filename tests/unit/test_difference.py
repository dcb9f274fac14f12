"""Differences between traces: the first one, to the bit, and in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcusim
from tcusim.errors import InputError
from tcusim.stepper.comparison import differing

PROGRAM = tcusim.build("scan_256n")


def inputs(length: int = 2048) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(length) * np.exp2(rng.integers(-8, 8, length))
    return {"in": x.astype(np.float16)}


@pytest.fixture(scope="module")
def hopper() -> tcusim.Trace:
    return tcusim.trace(PROGRAM, inputs(), warps=(0, 1))


def test_a_trace_is_its_own_equal(hopper: tcusim.Trace) -> None:
    assert hopper.first_difference(hopper) is None
    assert hopper.first_difference(tcusim.trace(PROGRAM, inputs(), warps=(0, 1))) is None


def test_two_units_differ_first_in_a_product(hopper: tcusim.Trace) -> None:
    volta = tcusim.trace(PROGRAM, inputs(), warps=1, arch="volta")
    found = volta.first_difference(hopper)
    assert found is not None
    assert (found.frame.kind, found.frame.warp, found.tile.part) == ("mma", 1, "d")
    one, two = (
        next(f for f in kept.of(1) if f.number == found.frame.number).writes[0]
        for kept in (volta, hopper)
    )
    where = differing(one, two)
    assert where.sum() == found.count
    assert (found.row, found.col) == tuple(np.argwhere(where)[0])
    at = found.row, found.col
    assert found.values == (one.values[at], two.values[at])
    assert found.bits == (one.values.view(np.uint32)[at], two.values.view(np.uint32)[at])
    said = str(found)
    assert said.startswith(f"warp 1, step {found.frame.number} ({found.frame.path}, i = ")
    assert f"(0x{found.bits[0]:08x}) by the simulator as volta and " in said
    assert said.endswith(f"; {found.count} of 256 elements differ")
    # Elements that differ once are read again.
    every = list(volta.compare(hopper).differences)
    assert str(every[0]) == said
    assert {"a", "c", "d", "src", "dst"} & {one.tile.part for one in every[1:]}


def test_shared_memory_differs_where_it_is_seen_and_tells_who_wrote_it() -> None:
    x = inputs(1024)
    y = {"in": x["in"].copy()}
    y["in"][17] += 1
    # A barrier shows the stores to shared memory.
    program = tcusim.build("reduction_16", masked=True)
    one, two = (tcusim.trace(program, given) for given in (x, y))
    every = list(one.compare(two).differences)
    assert every[0].tile.buffer == "in"
    assert every[0].origin is None
    shown = next(found for found in every if found.frame.kind == "sync")
    assert shown.origin is not None
    assert shown.origin.kind == "store"
    assert f", written by step {shown.origin.number} ({shown.origin.path}), is " in str(shown)


def test_traces_that_cannot_be_compared(hopper: tcusim.Trace) -> None:
    other = tcusim.trace(tcusim.build("reduction_k"), inputs())
    with pytest.raises(InputError, match="of different programs cannot be compared: scan_256n and"):
        hopper.first_difference(other)
    early = tcusim.trace(PROGRAM, inputs(), last=3)
    late = tcusim.trace(PROGRAM, inputs(), first=4)
    with pytest.raises(InputError, match="have no step in common; choose the same warps"):
        early.first_difference(late)


def test_nan_of_other_bits_differ(hopper: tcusim.Trace) -> None:
    tile = hopper[0].writes[0]
    bits = tile.values.copy().view(np.uint16)
    bits[0, 0] = 0x7E00
    bits[0, 1] = 0x7FFF
    one = replace(tile, values=bits.view(np.float16))
    bits = bits.copy()
    bits[0, 1] = 0x7E00
    two = replace(tile, values=bits.view(np.float16))
    assert np.argwhere(differing(one, two)).tolist() == [[0, 1]]
