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
from tcusim_cuda.moves import assigned, c_test, taking

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


def test_reads_come_before_writes_on_the_fast_path() -> None:
    text = "\n".join(assigned(COPY, how_of(COPY)).lines())
    fast, slow = text.split("else {")
    assert fast.startswith("if (tcu::is_multiple(in, 16) && 1024*block + 1023 < length) {")
    assert fast.index("held[nth] = tcu::load<4, tcu::Aligned>(") < fast.index("tcu::store<")
    assert "[&](int at) { return 1024*block + 32*row + at + col < length; }" in slow.replace(
        "col + at", "at + col"
    )


def test_a_tested_step_has_one_path() -> None:
    lines = assigned(COPY, how_of(COPY)).tested()
    assert lines[0] == "#pragma unroll 1"
    assert "is_multiple" not in "\n".join(lines)


def test_an_array_holds_what_loops_read() -> None:
    move = assigned(COPY, how_of(COPY))
    assert move.declared("held0", (3,)) == "tcu::Vector<float, 4> held0[3][8];"
    assert any(line.strip().startswith("held0[j][nth] = ") for line in move.reads("held0[j]"))
    assert any("held0[j][nth]" in line for line in move.writes("held0[j]"))
    single = Assign(rectangle(TILE, 1), rectangle(IN, 1))
    one = assigned(single, how_of(single))
    assert one.declared("held1", ()) == "float held1[1];"
    assert any(line.strip() == "held1[0] = in[1024*block + 32*row];" for line in one.reads("held1"))


def test_parts_are_taken_one_after_the_other_and_the_first_may_be_infinite() -> None:
    text = "\n".join(assigned(SPLIT, how_of(SPLIT)).tested())
    takes = [f"tcu::take_part<__nv_bfloat16, {first}>(" for first in ("true", "false", "false")]
    places = [text.index(f"&p{number}[") for number in range(3)]
    assert places == sorted(places)
    assert text.count(takes[0]) == 1
    assert text.count(takes[1]) == 2


def test_what_is_taken_and_tested() -> None:
    assert taking(Operation.NOT_FINITE) == "tcu::only_not_finite"
    assert c_test(Alignment(IN, Index(), 16)) == "tcu::is_multiple(in, 16)"
    assert c_test(Bound(BLOCK, LENGTH)) == "block < length"
