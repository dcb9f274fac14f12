"""Who writes each element of an output, who publishes it, and faults beyond the sizes tried.

Each program here is wrong. Most of them return the right values on a simulator that runs blocks one
after the other, or for the sizes of a test.
"""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

import tcusim
from tcusim.errors import VerifyError
from tcusim.machine.shapes import shape_of
from tcusim.program.checks.verifier import Verification, problems
from tcusim.program.grammar import (
    BLOCK,
    ROW,
    WARP,
    Assign,
    Await,
    Bound,
    Buffer,
    BufferRole,
    Extent,
    Gathered,
    Index,
    Locate,
    Loop,
    Program,
    Publish,
    Ranges,
    Scalar,
    Scope,
    Segments,
    Space,
    Step,
    Strided,
    Sync,
    View,
    When,
)
from tcusim.simulate.interpreter import interpret, run_numpy

LENGTH, TURN = Index.symbol("length"), Index.symbol("i")
IN = Buffer("in", "f32", Extent(LENGTH), BufferRole.INPUT)
OUT = Buffer("out", "f32", Extent.of(1), BufferRole.OUTPUT)
MANY = Buffer("out", "f32", Extent.of(600), BufferRole.OUTPUT, partial=True)
MINE = Buffer("t", "f32", Extent.of(1), BufferRole.SCRATCH, Space.WARP)
SHARED = Buffer("s", "f32", Extent.of(600), BufferRole.SCRATCH, Space.SHARED)
STATUS = Buffer("status", "f32", Extent(LENGTH, 256), BufferRole.STATUS)
FIRST = Bound(Index.of(0), LENGTH)
BLOCKS = Extent(LENGTH, 256)


def at(buffer: Buffer, place: Index | int, *bounds: Bound) -> View:
    """Return one element."""
    return View.strided(buffer, Index.of(place), 1, 1, 1, 1, bounds)


def program(
    *steps: Step,
    out: Buffer = OUT,
    scratch: tuple[Buffer, ...] = (),
    blocks: Extent = BLOCKS,
    warps: int = 1,
) -> Program:
    """Return a program with blocks of 256 elements each by default."""
    return Program(
        name="hand",
        shape=shape_of("16x16x16"),
        ab="f16",
        acc="f32",
        scalars=(Scalar("length"),),
        buffers=(IN, out, *scratch),
        blocks=blocks,
        warps=warps,
        steps=steps,
    )


def refused(made: Program, check: str, text: str) -> None:
    with pytest.raises(VerifyError):
        tcusim.verify(made)
    errors = [str(error) for error in problems(made)]
    named = [error for error in errors if f"[check: {check}]" in error]
    assert any(re.search(text, error) for error in named), errors


# --- Two writers ----------------------------------------------------------------------------------


def test_two_blocks_write_one_element() -> None:
    made = program(Assign(at(OUT, 0), at(IN, BLOCK * 256)))
    text = r"writes out\[0\] in warp 1 of the grid, and warp 0 writes it too \(length = 513\)"
    refused(made, "one_writer", text)


def test_two_warps_write_one_element() -> None:
    copy = Assign(at(OUT, 0), at(IN, WARP, Bound(WARP, LENGTH)))
    made = program(copy, warps=4, blocks=Extent.of(1))
    refused(made, "one_writer", "bound the view, or let one warp write it, with When")
    first = When((Bound(WARP, Index.of(1)),), (copy,))
    tcusim.verify(dataclasses.replace(made, steps=(first,)))


def test_a_scan_whose_store_lost_a_bound() -> None:
    """It is right if blocks run one by one, each repairing the output of the one before."""
    scan = tcusim.build(
        "scan_kn", masked=True, combine="add", exclusive=True, reverse=True, segment_size=40
    )
    broken = dataclasses.replace(scan, steps=without_first_bound(scan.steps))
    assert broken != scan
    refused(broken, "one_writer", r"writes out\[\d+\] in warp \d of the grid, and warp \d")
    x = (np.arange(1400) % 5).astype(np.float16)
    right = run_numpy(scan, {"in": x})["out"]
    assert np.array_equal(run_numpy(broken, {"in": x}, check=False)["out"], right)
    for order in ("descending", "shuffled"):
        assert np.array_equal(run_numpy(scan, {"in": x}, block_order=order, seed=1)["out"], right)
        wrong = run_numpy(broken, {"in": x}, check=False, block_order=order, seed=2)["out"]
        assert not np.array_equal(wrong, right)


def without_first_bound(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return steps with writes of the output past the end of the segment."""
    made: list[Step] = []
    for step in steps:
        if isinstance(step, Loop):
            step = dataclasses.replace(step, body=without_first_bound(step.body))
        elif isinstance(step, When):
            body, otherwise = map(without_first_bound, (step.body, step.otherwise))
            step = dataclasses.replace(step, body=body, otherwise=otherwise)
        elif isinstance(step, Assign) and step.dst.buffer.name == "out":
            dst = dataclasses.replace(step.dst, bounds=step.dst.bounds[1:])
            step = dataclasses.replace(step, dst=dst)
        made.append(step)
    return tuple(made)


@pytest.mark.parametrize("last", [1, 2, 3])
def test_the_last_blocks_write_one_element(last: int) -> None:
    """The last block writes no element of another, at any length."""
    inside = (Bound(LENGTH - 1, (BLOCK + last) * 256),)
    made = program(When(inside, (Assign(at(OUT, 0), at(IN, BLOCK * 256)),)))
    if last > 1:
        refused(made, "one_writer", r"writes out\[0\] in warp \d of the grid, and warp \d")
        return
    assert tcusim.verify(made).proven
    out = Buffer("out", "f32", Extent(LENGTH, 256), BufferRole.OUTPUT)
    each = Assign(at(out, BLOCK), at(IN, BLOCK * 256))
    for place in (Index.of(0), BLOCK):
        again = When(inside, (Assign(at(out, place), at(IN, BLOCK * 256)),))
        twice = program(each, again, out=out)
        if place == BLOCK:
            assert tcusim.verify(twice).proven
        else:
            refused(twice, "one_writer", r"writes out\[0\] in warp \d of the grid, and warp \d")


@pytest.mark.parametrize("apart", [100, 99, -99, -100])
def test_steps_whose_elements_are_apart(apart: int) -> None:
    """One step writes 100 elements, the other those above or below; if fewer, two blocks meet."""
    first, second = max(0, -apart), max(0, apart)
    few = (Bound(BLOCK, Index.of(100)),)
    copies = (Assign(at(MANY, BLOCK + place), at(IN, BLOCK)) for place in (first, second))
    made = program(When(few, tuple(copies)), out=MANY, blocks=Extent(LENGTH))
    if abs(apart) == 100:
        assert tcusim.verify(made).proven
    else:
        refused(made, "one_writer", r"writes out\[99\] in warp \d+ of the grid")


OFFSETS = Buffer("offsets", "s64", Extent(Index.symbol("segments") + 1), BufferRole.INPUT)


def test_gathered_rows_that_every_warp_writes() -> None:
    ranges = Ranges("rows", 16)
    out = Buffer("out", "f32", Extent(LENGTH), BufferRole.OUTPUT)
    locate = Locate(ranges, Segments(OFFSETS, limit=LENGTH), Index())
    rows = View(IN, Index(), Gathered(ranges), Strided(8, 1))
    copy = Assign(dataclasses.replace(rows, buffer=out), rows)
    made = Program(
        name="gathered",
        shape=shape_of("16x16x16"),
        ab="f16",
        acc="f32",
        scalars=(Scalar("length"), Scalar("segments")),
        buffers=(IN, OFFSETS, out),
        blocks=Extent(Index.symbol("segments"), 16),
        warps=2,
        steps=(locate, copy),
    )
    text = r"writes out\[0 of chunk 0\] in warp 1 of the grid, and warp 0 writes it too"
    refused(made, "one_writer", text)
    apart = dataclasses.replace(locate, first=(BLOCK * 2 + WARP) * 16)
    tcusim.verify(dataclasses.replace(made, steps=(apart, copy)))
    turns = dataclasses.replace(locate, first=TURN * 16)
    looped = dataclasses.replace(made, steps=(Loop("i", Extent.of(2), (turns, copy)),))
    refused(looped, "one_writer", text)
    either = When((Bound(BLOCK, Index.of(1)),), (locate,), (apart,))
    found = tcusim.verify(dataclasses.replace(made, steps=(either, copy)))
    assert "data decide on them" in found.unproven["one_writer"]


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_whole_segments_are_written_up_to_a_length(turns: int) -> None:
    """Each turn of a loop writes 8 elements more of each."""
    ranges = Ranges("rows", 16)
    out = Buffer("out", "f32", Extent(LENGTH), BufferRole.OUTPUT)
    rows = View(IN, TURN * 8, Gathered(ranges), Strided(8, 1))
    copy = Assign(dataclasses.replace(rows, buffer=out), rows)
    locate = Locate(ranges, Segments(OFFSETS, limit=LENGTH), BLOCK * 16)
    made = program(locate, Loop("i", Extent.of(turns), (copy,)), out=out)
    made = dataclasses.replace(
        made,
        scalars=(Scalar("length"), Scalar("segments")),
        buffers=(IN, OFFSETS, out),
        blocks=Extent(Index.symbol("segments"), 16),
    )
    text = f"proved of segments of at most {8 * turns} elements"
    assert tcusim.verify(made).unproven["outputs_written"] == text


def two_writers_from_block(many: int) -> Program:
    """Return a program: its blocks 0 and `many` write one element."""
    out = Buffer("out", "f32", Extent(LENGTH), BufferRole.OUTPUT, partial=True)
    near = When((Bound(BLOCK, Index.of(many)),), (Assign(at(out, BLOCK), at(IN, BLOCK)),))
    bound = Bound(Index.of(many - 1), BLOCK)
    far = When((bound,), (Assign(at(out, BLOCK - many), at(IN, BLOCK)),))
    return program(near, far, out=out, blocks=Extent(LENGTH))


def test_two_writers_from_some_block_on() -> None:
    made = two_writers_from_block(40)
    text = r"writes out\[0\] in warp 40 .*and warp 0 writes it too \(length = 41\)"
    refused(made, "one_writer", text)
    x = np.arange(41, dtype=np.float32)
    assert run_numpy(made, {"in": x}, check=False)["out"][0] == 40


def test_the_simulator_finds_two_writers_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """For sizes that no check tries."""
    made = two_writers_from_block(40)
    found = Verification("hand", 4, (), {"one_writer": "tried for no size"})
    monkeypatch.setattr("tcusim.simulate.interpreter.verify", lambda _: found)
    with pytest.raises(VerifyError, match=r"writes out\[0\] in warp 40 .*warp 0 writes it too"):
        run_numpy(made, {"in": np.arange(41, dtype=np.float32)})


def test_two_writers_that_no_check_decides() -> None:
    """There are more blocks than a check follows; the simulator says so when two warps meet."""
    many = 1 << 23
    made = two_writers_from_block(many)
    found = tcusim.verify(made)
    assert not found.proven
    assert found.unproven["one_writer"].startswith("tried for ")
    x = np.arange(40, dtype=np.float32)
    assert run_numpy(made, {"in": x})["out"].tolist() == list(range(40))


def test_the_simulator_knows_who_wrote_each_element() -> None:
    made = tcusim.build("scan_k", segment_size=16, masked=True)
    *_, last = interpret(made, {"in": np.ones(600, np.float16)}, block_order="descending")
    assert np.array_equal(last.state.writers["out"], np.arange(600) // 256)


# --- Outputs that nothing writes ------------------------------------------------------------------


def test_an_output_that_nothing_writes() -> None:
    made = program(Assign(at(MINE, 0), at(IN, 0, FIRST)), scratch=(MINE,))
    refused(made, "outputs_written", "nothing writes the output 'out'. Write it, or leave it out")


def test_a_part_of_an_output_that_nothing_writes() -> None:
    two = dataclasses.replace(OUT, size=Extent.of(2))
    made = program(Assign(at(two, 1), at(IN, 0, FIRST)), out=two, blocks=Extent.of(1))
    refused(made, "outputs_written", r"nothing writes out\[0\] \(1 such elements; length = 1\)")
    some = dataclasses.replace(two, partial=True)
    tcusim.verify(program(Assign(at(some, 1), at(IN, 0, FIRST)), out=some, blocks=Extent.of(1)))
    assert "output       out: f32[2], in part" in tcusim.listing(program(out=some))


def test_the_simulator_finds_what_nothing_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any type, at the end of a run: unwritten memory of integers looks like any other."""
    out = Buffer("out", "u8", Extent(LENGTH), BufferRole.OUTPUT)
    given = Buffer("in", "u8", Extent(LENGTH), BufferRole.INPUT)
    some = When((Bound(BLOCK, Index.of(40)),), (Assign(at(out, BLOCK), at(given, BLOCK)),))
    made = program(some, out=out, blocks=Extent(LENGTH))
    made = dataclasses.replace(made, buffers=(given, out))
    refused(made, "outputs_written", r"nothing writes out\[40\] \(1 such elements; length = 41\)")
    found = Verification("hand", 4, (), {"outputs_written": "tried for no size"})
    monkeypatch.setattr("tcusim.simulate.interpreter.verify", lambda _: found)
    x = np.arange(41, dtype=np.uint8)
    assert run_numpy(made, {"in": x[:40]})["out"].tolist() == x[:40].tolist()
    text = r"nothing has written out\[40\] \(1 such elements; scalars: {'length': 41}\)"
    with pytest.raises(VerifyError, match=text):
        run_numpy(made, {"in": x})


# --- Status words ---------------------------------------------------------------------------------

WARP_SYNC = Sync(Scope.WARP)
TAKE = Assign(at(MINE, 0), at(IN, BLOCK * 256))


def with_words(*steps: Step, warps: int = 1) -> Program:
    """Return a program that has status words, and writes any part of its output."""
    out = dataclasses.replace(OUT, partial=True)
    return program(*steps, out=out, scratch=(MINE, STATUS), warps=warps)


def test_status_words_that_nobody_publishes() -> None:
    made = with_words(Await(at(MINE, 0), at(STATUS, BLOCK)))
    text = r"waits for status\[0\] in block 0, which no earlier block publishes \(length = 255\)"
    refused(made, "awaits_published", text)


def test_status_words_of_the_block_itself() -> None:
    wait = Await(at(MINE, 0), at(STATUS, BLOCK))
    made = with_words(TAKE, WARP_SYNC, Publish(at(STATUS, BLOCK), at(MINE, 0)), wait)
    refused(made, "awaits_published", r"waits for status\[0\] in block 0, which no earlier block")


def test_status_words_that_a_loop_publishes() -> None:
    """How often it runs, the length decides: that blocks publish in time is tried, not proved."""
    give = Loop("i", Extent(LENGTH, 2**40), (Publish(at(STATUS, BLOCK), at(MINE, 0)),))
    for ago in (1, 0):
        wait = Await(at(MINE, 0), at(STATUS, BLOCK - ago, Bound(Index.of(ago - 1), BLOCK)))
        made = with_words(TAKE, WARP_SYNC, give, WARP_SYNC, wait)
        if ago:
            assert tcusim.verify(made).unproven["awaits_published"].startswith("tried for ")
        else:
            refused(made, "awaits_published", r"waits for status\[0\] in block 0, which no earlier")


def test_status_words_that_are_published_twice() -> None:
    give = Publish(at(STATUS, BLOCK), at(MINE, 0))
    made = with_words(TAKE, WARP_SYNC, give, warps=2)
    refused(made, "published_once", r"publishes status\[0\] more than once \(length = 255\)")
    refused(with_words(TAKE, WARP_SYNC, give, give), "published_once", "more than once")


# --- Beyond the sizes that a check tries ----------------------------------------------------------


def test_out_of_bounds_beyond_some_size() -> None:
    guard = (Bound(Index.of(5000), LENGTH),)
    made = program(When(guard, (Assign(at(OUT, 0), at(IN, LENGTH + 100)),)), blocks=Extent.of(1))
    text = r"reads in\[5101\], but 'in' has 5001 elements .*length = 5001\)"
    refused(made, "inside_buffer", text)
    far = program(When(guard, (Assign(at(OUT, 0), at(IN, LENGTH - 5001)),)), blocks=Extent.of(1))
    assert not [error for error in problems(far) if error.check == "inside_buffer"]


def test_a_bound_that_is_one_too_large() -> None:
    """Wrong for multiples of the segment alone, and 300 divides no usual size."""
    made = tcusim.build("reduction_tn", masked=True, combine="add", warps=2, segment_size=300)
    last = made.steps[-1]
    assert isinstance(last, Assign)
    (bound,) = last.dst.bounds
    dst = dataclasses.replace(last.dst, bounds=(Bound(bound.lhs, bound.rhs + 1),))
    steps = (*made.steps[:-1], dataclasses.replace(last, dst=dst))
    text = r"writes out\[\d+\], but 'out' has \d+ element"
    refused(dataclasses.replace(made, steps=steps), "inside_buffer", text)


def test_what_is_not_proved_to_be_inside_is_refused() -> None:
    """The rectangle is inside for no size, but for none that an example would show either."""
    odd = Bound(ROW * 2, LENGTH * 2 - 10**9)
    made = program(Assign(at(OUT, 0), at(IN, LENGTH - 10**9, odd)), blocks=Extent.of(1))
    refused(made, "inside_buffer", r"may touch elements outside 'in'|reads in\[")


def test_shared_memory_that_nobody_wrote_beyond_many_iterations() -> None:
    fill = Loop("i", Extent.of(256), (Assign(at(SHARED, TURN), at(IN, TURN, Bound(TURN, LENGTH))),))
    later = Index.symbol("j")
    empty = Loop("j", Extent.of(300), (Assign(at(MANY, later), at(SHARED, later)),))
    made = program(fill, Sync(Scope.BLOCK), empty, out=MANY, scratch=(SHARED,), blocks=Extent.of(1))
    refused(made, "defined_before_use", r"reads s\[256\] \(44 such elements\), which no earlier")


def test_shared_memory_without_a_barrier_after_many_iterations() -> None:
    inside = (Bound(TURN, Index.of(600)), Bound(Index.of(100), TURN))
    steps = (Assign(at(SHARED, TURN), at(IN, TURN)), Assign(at(MANY, TURN), at(SHARED, TURN)))
    loop = Loop("i", Extent(LENGTH), (When(inside, steps),))
    made = program(loop, out=MANY, scratch=(SHARED,), blocks=Extent.of(1))
    refused(made, "synced_shared", "of 's' that step 1.1.1 writes, with no barrier between")


def test_a_race_of_iterations_far_apart() -> None:
    """Warp 0 writes s[i]; from iteration 256 on, another warp writes s[i] as well."""
    own = When(
        (Bound(WARP, Index.of(1)),),
        (Assign(at(SHARED, TURN), at(IN, TURN, Bound(TURN, LENGTH))),),
        (
            When(
                (Bound(Index.of(255), TURN),),
                (Assign(at(SHARED, TURN), at(IN, TURN + 1, Bound(TURN + 1, LENGTH))),),
            ),
        ),
    )
    made = program(
        Loop("i", Extent.of(300), (own,)),
        out=MANY,
        scratch=(SHARED,),
        blocks=Extent.of(1),
        warps=2,
    )
    refused(made, "synced_shared", "writes elements of 's' that step 1.1.1 writes in another warp")
