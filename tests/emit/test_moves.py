"""The text of steps that move rectangles: a lane's reads, registers and writes, by path."""

from __future__ import annotations

from dataclasses import replace

from tcusim.algorithms import build
from tcusim.program.grammar import (
    BLOCK,
    COL,
    ROW,
    Assign,
    Bound,
    Buffer,
    BufferRole,
    Extent,
    Index,
    Operation,
    Space,
    View,
    split,
)
from tcusim.program.lanes import Alignment, Transfer, moved_of, transfer_of
from tcusim_cuda.moves import assigned, c_guard, taking

LENGTH = Index.symbol("length")
IN = Buffer("in", "f32", Extent(LENGTH), BufferRole.INPUT)
TILE = Buffer("t", "f32", Extent.of(2048), BufferRole.SCRATCH, Space.WARP)
PARTS = tuple(replace(TILE, name=f"p{number}", dtype="bf16") for number in range(3))
INSIDE = Bound(BLOCK * 1024 + ROW * 32 + COL, LENGTH)


def rectangle(buffer: Buffer, cols: int = 32, *bounds: Bound) -> View:
    offset = BLOCK * 1024 if buffer is IN else Index()
    return View.strided(buffer, offset, 32, cols, 32, 1, bounds)


def how_of(step: Assign) -> Transfer:
    return transfer_of(build("reduction_k"), step.dsts, moved_of(step.value))


COPY = Assign(rectangle(TILE), rectangle(IN, 32, INSIDE))
SPLIT = split(tuple(map(rectangle, PARTS)), rectangle(IN))


def test_a_step_is_a_call_with_a_guard_a_read_and_a_write() -> None:
    head, get, put = assigned(COPY, how_of(COPY)).lines()
    guard = "tcu::is_multiple(in, 16) && 1024*block + 1023 < length"
    assert head == f"tcu::move<32, 32, 4, 8>(lane, {guard},"
    assert "return tcu::load<4>(fast, &in[1024*block + 32*row + col], [=](int at) {" in get
    assert get.endswith("32*row + col + at < length; }); },")
    write = "tcu::store<tcu::Aligned>(&t[32*row + col], held);"
    assert put == f"    [=](auto, int row, int col, auto& held) {{ {write} }});"


def test_elements_are_tested_unless_all_are_in_bounds() -> None:
    alone = assigned(COPY, replace(how_of(COPY), vector=1))
    assert "(fast || 1024*block + 32*row + col < length ? in[" in alone.value
    assert "fast" not in assigned(COPY, replace(how_of(COPY), vector=1, guard=())).value


def test_a_tested_step_has_one_path() -> None:
    head, *_ = assigned(COPY, how_of(COPY)).tested()
    assert head == "tcu::move_tested<32, 32, 4>(lane,"


def test_parts_are_taken_one_after_the_other_and_the_first_may_be_infinite() -> None:
    writes = assigned(SPLIT, how_of(SPLIT)).writes
    for number, first in enumerate(("true", "false", "false")):
        taken, written = writes[2 * number : 2 * number + 2]
        assert taken.endswith(f"tcu::take_part<__nv_bfloat16, {first}>(held);")
        assert f"&p{number}[" in written
        assert f"part_{number})" in written


def test_what_is_taken_and_tested() -> None:
    assert taking(Operation.NOT_FINITE) == "tcu::only_not_finite"
    tests: list[Alignment | Bound] = [Alignment(IN, Index(), 16), Bound(BLOCK, LENGTH)]
    assert c_guard(tests) == "tcu::is_multiple(in, 16) && block < length"
