"""Programs that may write their result over their input, and why the others may not."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from some import Some, marked
from tcusim.algorithms import Level, algorithm_of, algorithms, build
from tcusim.algorithms.tile_scan import FORMS
from tcusim.errors import Unsupported, VerifyError
from tcusim.machine.shapes import shape_of
from tcusim.program.checks.in_place import in_place
from tcusim.program.checks.verifier import verify
from tcusim.program.checks.writes import same_warp_touches
from tcusim.program.grammar import (
    BLOCK,
    COL,
    ROW,
    WARP,
    Assign,
    Bound,
    Buffer,
    BufferRole,
    Extent,
    Gathered,
    Index,
    Locate,
    Loop,
    Program,
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
from tcusim.simulate.interpreter import State, run_numpy

LENGTH = Index.symbol("length")
SCANS = [row.name for row in algorithms() if row.kind == "scan" and row.level is Level.WARP]
SYNC = Sync(Scope.WARP)


def scans(some: Some, start: int = 0, **more: Any) -> list[Program]:
    """Return some or all forms of every scan, ragged and whole, in all four orders."""
    built = []
    variants = itertools.product(SCANS, "ab", ("mma", "add"), *[(False, True)] * 3)
    for name, side, combine, masked, exclusive, reverse in some(variants, 6, start):
        if combine not in algorithm_of(str(name)).combines:
            continue
        given: dict[str, Any] = {
            "side": side,
            "combine": combine,
            "masked": masked,
            "exclusive": exclusive,
            "reverse": reverse,
        }
        formed = name in ("scan_t", "scan_tn")
        for form in FORMS if formed else (None,):
            if form is not None:
                given["form"] = form
            try:
                built.append(build(str(name), result="f16", **given, **more))
            except Unsupported as error:
                if not str(error).startswith("form '"):
                    raise
    return built


@pytest.mark.parametrize(
    ("start", "shape"), marked([(0, "16x16x16"), (1, "32x8x16"), (2, "8x32x16")], 3)
)
def test_every_scan_may_write_over_its_input(start: int, shape: str, some: Some) -> None:
    programs = scans(some, start, tile=shape, warps=2)
    assert len(programs) >= (8 * 14 if some.full else 14)
    for program in programs:
        assert in_place(program) is None, (program.name, program.steps)


def in_one_memory(program: Program, inputs: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Run a program with `out` in the memory of `in`, block by block."""
    state = State(program, inputs, "hopper")
    state.memory["in"] = state.memory["in"].copy()
    state.memory["out"] = state.memory["in"]
    for _ in state.run(warps_at_once=1):
        pass
    return state.outputs()["out"]


def test_a_scan_over_its_input_gives_the_same_bits(some: Some) -> None:
    rng = np.random.default_rng(1)
    for program in scans(some, tile="8x32x16", warps=2):
        per_block = program.blocks.per
        masked = program.scalars[0].multiple_of == 1
        length = 2 * per_block + (per_block // 2 + 7 if masked else 0)
        inputs = {"in": rng.standard_normal(length).astype(np.float16)}
        # From there on some warps read their rows once more.
        inputs["in"][length // 2] = np.inf
        apart = run_numpy(program, inputs)["out"]
        together = in_one_memory(program, inputs)
        np.testing.assert_array_equal(apart.view(np.uint16), together.view(np.uint16))


def scans_by_offsets(some: Some, start: int = 0, **more: Any) -> list[Program]:
    """Return some or all scans of pieces of irregular segments, in all four orders."""
    made = []
    cuts = (("scan_ragged", 16), ("scan_ragged", 80), ("scan_ragged_simt", 11))
    every = itertools.product(cuts, itertools.product((False, True), repeat=4))
    for (name, cut), flags in some(every, 11, start):
        whole, carry, exclusive, reverse = flags
        kind = "f16" if name == "scan_ragged" else "f32"
        options: dict[str, Any] = {
            "whole": whole,
            "carry": carry,
            "exclusive": exclusive,
            "reverse": reverse,
            "source": kind,
            "result": kind,
            **more,
        }
        made.append(build(name, segment_size=cut, masked=True, **options))
    return made


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (0, {}),
        (1, {"warps": 2, "items_per_warp": 2}),
        (2, {"tile": "32x8x16"}),
        (3, {"tile": "8x32x16", "warps": 2}),
    ],
)
def test_every_scan_by_offsets_may_write_over_its_input(
    start: int, more: dict[str, Any], some: Some
) -> None:
    programs = scans_by_offsets(some, start, **more)
    assert len(programs) >= (3 * 16 if some.full else 4)
    for program in programs:
        assert in_place(program) is None, (program.name, program.steps)


def test_a_scan_by_offsets_over_its_input_gives_the_same_bits(some: Some) -> None:
    rng = np.random.default_rng(2)
    for program in scans_by_offsets(some, tile="8x32x16", warps=2):
        (locate,) = (step for step in program.steps if isinstance(step, Locate))
        longest = 11 if program.name == "scan_ragged_simt" else 16
        chunk = locate.segments.chunk
        longest = longest if chunk is None else 20 * chunk
        edges = np.cumsum([0, *rng.permutation([0, longest, *rng.integers(0, longest, 40)])])
        read = {buffer.name: buffer for buffer in program.inputs}
        x = rng.standard_normal(edges[-1]).astype(read["in"].dtype.replace("f", "float"))
        x[x.size // 2] = np.inf
        inputs = {"in": x, "offsets": edges}
        if "carry" in read:
            count = read["carry"].size.evaluate({"length": x.size, "segments": edges.size - 1})
            inputs["carry"] = rng.standard_normal(count).astype(np.float32)
        apart = run_numpy(program, inputs)["out"]
        assert apart.tobytes() == in_one_memory(program, inputs).tobytes()
        assert not np.array_equal(apart, x)


@pytest.mark.parametrize(
    ("name", "options", "names", "text"),
    [
        ("scan_t", {}, (), "in is of type f16, but out of type f32"),
        (
            "reduction_t",
            {"result": "f16"},
            (),
            "in has length elements, but out has ceil(length / 256)",
        ),
        ("scan_t", {}, ("x",), "scan_t has no input 'x'"),
        ("scan_t", {}, ("in", "sums"), "scan_t has no output 'sums'"),
        (
            "scan_tn",
            {"carry": True},
            ("carry",),
            "carry has ceil(length / 1024) elements, but out has length",
        ),
    ],
)
def test_arrays_that_are_not_alike(
    name: str, options: dict[str, Any], names: Sequence[str], text: str
) -> None:
    assert in_place(build(name, **options), *names) == text


# --- Programs written by hand ---------------------------------------------------------------------

IN = Buffer("in", "f32", Extent(LENGTH), BufferRole.INPUT)
OUT = Buffer("out", "f32", Extent(LENGTH), BufferRole.OUTPUT)
MINE = Buffer("mine", "f32", Extent.of(32), BufferRole.SCRATCH, Space.WARP)
HERE = BLOCK * 32


def program(*steps: Step, warps: int = 1, out: Buffer = OUT) -> Program:
    """Return a program for whole blocks of 32 elements a warp."""
    made = Program(
        name="by_hand",
        shape=shape_of("16x16x16"),
        ab="f16",
        acc="f32",
        scalars=(Scalar("length", 32 * warps),),
        buffers=(IN, out, MINE),
        blocks=Extent(LENGTH, 32 * warps),
        warps=warps,
        steps=steps,
    )
    verify(made)
    return made


def line_of(buffer: Buffer, offset: Index | int = 0, *bounds: Bound) -> View:
    return View.strided(buffer, Index.of(offset), 1, 32, 32, 1, bounds)


def test_one_copy_with_the_same_place_for_both() -> None:
    assert in_place(program(Assign(line_of(OUT, HERE), line_of(IN, HERE)))) is None


def test_a_copy_that_reverses_its_rectangle() -> None:
    # A 4x8 rectangle is written as the transpose of an 8x4 one.
    read = View.strided(IN, HERE, 4, 8, 8, 1)
    written = View.strided(OUT, HERE, 4, 8, 1, 4)
    assert in_place(program(Assign(written, read))) == (
        "step 1 reads in[1] for one element and writes out[1] for another, and the lanes run in "
        "no order (length = 32)"
    )


def test_lanes_that_meet_between() -> None:
    # The lane that writes an element is not the one that has read it.
    read = Assign(line_of(MINE), line_of(IN, HERE))
    write = Assign(View.strided(OUT, HERE, 4, 8, 8, 1), View.strided(MINE, Index(), 4, 8, 1, 4))
    assert in_place(program(read, SYNC, write)) is None


def test_lanes_that_do_not_meet() -> None:
    # The written elements come from another array, so that nothing else needs a barrier.
    other = Buffer("other", "f32", Extent(LENGTH), BufferRole.INPUT)
    read = Assign(line_of(MINE), line_of(IN, HERE))
    write = Assign(line_of(OUT, HERE), line_of(other, HERE))
    both = program(read, Assign(line_of(OUT, HERE), line_of(IN, HERE)))
    made = replace(both, buffers=(IN, OUT, MINE, other), steps=(read, write))
    verify(made)
    assert in_place(made) == (
        "step 1 reads in[0] and step 2 writes out[0], but no barrier is between (length = 32)"
    )
    assert in_place(replace(made, steps=(read, SYNC, write))) is None


def test_lanes_that_meet_only_if_the_data_say_so() -> None:
    other = Buffer("other", "f32", Extent(LENGTH), BufferRole.INPUT)
    own = replace(MINE, name="own")
    steps = (
        Assign(line_of(own), line_of(other, HERE)),
        SYNC,
        Assign(line_of(MINE), line_of(IN, HERE)),
        When((), (SYNC,), not_finite=line_of(own)),
        Assign(line_of(OUT, HERE), line_of(other, HERE)),
    )
    both = program(Assign(line_of(OUT, HERE), line_of(IN, HERE)))
    made = replace(both, buffers=(IN, OUT, MINE, other, own), steps=steps)
    verify(made)
    assert in_place(made) == (
        "step 3 reads in[0] and step 5 writes out[0], but no barrier is between (length = 32)"
    )


def either(body: Sequence[Step], otherwise: Sequence[Step]) -> Program:
    """Return a program that reads its data and, as they decide, does one thing or another."""
    when = When((), tuple(body), tuple(otherwise), not_finite=line_of(MINE))
    return program(Assign(line_of(MINE), line_of(IN, HERE)), SYNC, when)


# The lane that writes an element is not the one that reads it.
TURNED = Assign(View.strided(OUT, HERE, 4, 8, 8, 1), View.strided(MINE, Index(), 4, 8, 1, 4))
AGAIN = Assign(line_of(MINE), line_of(IN, HERE))


def test_lanes_that_meet_in_one_run_of_a_branch() -> None:
    read_again = (SYNC, AGAIN, SYNC, TURNED)
    assert in_place(either(read_again, [TURNED])) is None
    assert in_place(either([TURNED], read_again)) is None
    other = Buffer("other", "f32", Extent(LENGTH), BufferRole.INPUT)
    write = Assign(line_of(OUT, HERE), line_of(other, HERE))
    for late in (False, True):
        made = either([TURNED], [TURNED])
        one, other_one = (SYNC, AGAIN, write), (SYNC, TURNED)
        body, otherwise = (other_one, one) if late else (one, other_one)
        when = When((), body, otherwise=otherwise, not_finite=line_of(MINE))
        made = replace(made, buffers=(IN, OUT, MINE, other), steps=(*made.steps[:-1], when))
        verify(made)
        path = f"3.{4 if late else 2}"
        assert in_place(made) == (
            f"step {path} reads in[0] and step 3.{5 if late else 3} writes out[0], but no barrier "
            "is between (length = 32)"
        )


def test_a_branch_that_reads_what_an_earlier_run_has_written() -> None:
    when = either([SYNC, AGAIN, SYNC, TURNED], [TURNED]).steps[-1]
    both = program(Assign(line_of(OUT, HERE), line_of(IN, HERE)))
    twice = Loop("i", Extent.of(2), (SYNC, when, SYNC))
    made = replace(both, steps=(Assign(line_of(MINE), line_of(IN, HERE)), twice))
    verify(made)
    assert in_place(made) == (
        "step 2.2.2 reads in[0] after step 2.2.4 has written out[0] (length = 32)"
    )
    assert isinstance(when, When)
    # Nor in the other branch, after the first one.
    swapped = replace(when, body=(TURNED,), otherwise=when.body)
    made = replace(made, steps=(made.steps[0], replace(twice, body=(SYNC, swapped, SYNC))))
    verify(made)
    assert in_place(made) == (
        "step 2.2.3 reads in[0] after step 2.2.1 has written out[0] (length = 32)"
    )


def test_an_element_that_is_read_later() -> None:
    first = Assign(line_of(OUT, HERE), line_of(IN, HERE))
    again = Assign(line_of(MINE), line_of(IN, HERE))
    made = program(first, SYNC, again)
    assert in_place(made) == "step 3 reads in[0] after step 1 has written out[0] (length = 32)"
    # In a loop the first iteration writes elements that the second one reads.
    write = Assign(line_of(OUT, HERE), line_of(MINE))
    whole = Loop("i", Extent.of(2), (again, SYNC, write, SYNC))
    assert in_place(program(whole)) == (
        "step 1.1 reads in[0] after step 1.3 has written out[0] (length = 32)"
    )


def test_an_element_that_another_warp_reads() -> None:
    mine = line_of(OUT, BLOCK * 64 + WARP * 32)
    neighbour = line_of(IN, BLOCK * 64 - WARP * 32 + 32)
    made = program(Assign(mine, neighbour), warps=2)
    assert in_place(made) == "warp 1 reads in[0], but warp 0 writes out[0] (length = 64)"


def test_an_element_of_the_next_block() -> None:
    # With one block nothing is wrong.
    inside = Bound(HERE + COL + 32, LENGTH)
    made = program(
        Assign(line_of(MINE), line_of(IN, HERE + 32, inside)), SYNC,
        Assign(line_of(OUT, HERE), line_of(MINE)),
    )  # fmt: skip
    assert in_place(made) == "warp 0 reads in[32], but warp 1 writes out[32] (length = 96)"


@pytest.mark.parametrize("border", [5, 40, 1000])
def test_an_element_that_another_warp_reads_from_some_block_on(border: int) -> None:
    """No size that is tried has so many blocks; that no warp does it would have to be proved."""
    own = Assign(line_of(MINE), line_of(IN, HERE))
    last = Assign(line_of(MINE), line_of(IN, HERE - 32))
    late = (Bound(Index.of(border), BLOCK),)
    made = program(When(late, (last,), (own,)), SYNC, Assign(line_of(OUT, HERE), line_of(MINE)))
    reason = in_place(made)
    assert reason is not None
    assert "warp" in reason
    assert in_place(program(own, SYNC, Assign(line_of(OUT, HERE), line_of(MINE)))) is None


def test_an_element_that_is_read_later_from_some_block_on() -> None:
    """The order of a warp is tried around the numbers of the program, too."""
    own, out = Assign(line_of(MINE), line_of(IN, HERE)), Assign(line_of(OUT, HERE), line_of(MINE))
    for bound in (Bound(Index.of(4), BLOCK), Bound(Index.of(400), LENGTH)):
        made = program(own, SYNC, out, SYNC, When((bound,), (own,)))
        assert "after step 3 has written" in str(in_place(made))


def test_only_the_warps_of_a_branch_count() -> None:
    here = BLOCK * 64 + WARP * 32
    own = Assign(line_of(OUT, here), line_of(IN, here))
    the_first = Assign(line_of(MINE), line_of(IN, BLOCK * 64))
    first = (Bound(WARP, Index.of(1)),)
    the_second = Assign(line_of(MINE), line_of(IN, BLOCK * 64 + 32))
    good = program(When(first, (the_first, SYNC), (the_second, SYNC)), own, warps=2)
    assert in_place(good) is None
    bad = program(When(first, (SYNC,), (the_first, SYNC)), own, warps=2)
    assert in_place(bad) == "warp 1 reads in[0], but warp 0 writes out[0] (length = 64)"


def test_rows_and_columns_of_a_view_count() -> None:
    masked = View.strided(IN, HERE, 2, 16, 16, 1, (Bound(ROW * 16 + COL, Index.of(20)),))
    late = Assign(View.strided(MINE, Index(), 2, 16, 16, 1), masked)
    write = Assign(line_of(OUT, HERE + 0), line_of(IN, HERE))
    assert in_place(program(write, SYNC, late)) is not None
    some = replace(OUT, partial=True)
    beyond = Assign(line_of(some, HERE, Bound(Index.of(19), COL)), line_of(IN, HERE))
    assert in_place(program(beyond, SYNC, late, out=some)) is None


# --- By offsets -----------------------------------------------------------------------------------

SEGMENTS = Index.symbol("segments")
OFFSETS = Buffer("offsets", "s64", Extent(SEGMENTS + 1), BufferRole.INPUT)
PIECE = Ranges("piece", 4)
# Four pieces of up to 16 elements a warp, in two turns of 8 elements each.
WIDE = Buffer("mine", "f32", Extent.of(32), BufferRole.SCRATCH, Space.WARP)
TURN = Index.symbol("i") * 8


def by_offsets(*steps: Step, lines: Sequence[Step] = (), warps: int = 1) -> Program:
    """Return a program on four pieces a warp; it finds them first."""
    found = (Locate(PIECE, Segments(OFFSETS, 16), (BLOCK * warps + WARP) * 4), *lines)
    made = Program(
        name="by_hand",
        shape=shape_of("16x16x16"),
        ab="f16",
        acc="f32",
        scalars=(Scalar("length"), Scalar("segments")),
        buffers=(IN, OFFSETS, OUT, WIDE),
        blocks=Extent(Index.symbol("length") + SEGMENTS * 16 - 15, 64 * warps),
        warps=warps,
        steps=(*found, *steps),
    )
    verify(made)
    return made


def in_lines(buffer: Buffer, offset: Index | int, *bounds: Bound, ranges: Ranges = PIECE) -> View:
    return View(buffer, Index.of(offset), Gathered(ranges), Strided(8, 1), bounds)


def turns(*steps: Step) -> Loop:
    return Loop("i", Extent.of(2), steps)


HELD = View.strided(WIDE, Index(), 4, 8, 8, 1)
READ = Assign(HELD, in_lines(IN, TURN))
WRITE = Assign(in_lines(OUT, TURN), HELD)


def test_a_piece_is_read_before_it_is_written() -> None:
    assert in_place(by_offsets(turns(READ, SYNC, WRITE, SYNC))) is None
    assert in_place(by_offsets(turns(READ, SYNC, WRITE, SYNC), warps=3)) is None
    # One past: in the output of the next iteration, or past the piece.
    ahead = Assign(HELD, in_lines(IN, TURN + 1))
    assert in_place(by_offsets(turns(ahead, SYNC, WRITE, SYNC))) is None
    # Columns may be the lines.
    read = Assign(
        View.strided(WIDE, Index(), 8, 4, 1, 8), View(IN, TURN, Strided(8, 1), Gathered(PIECE))
    )
    assert in_place(by_offsets(turns(read, SYNC, WRITE, SYNC))) is None


def test_a_piece_that_is_read_too_late() -> None:
    behind = Assign(HELD, in_lines(IN, TURN - 1, Bound(Index.of(0), TURN + COL)))
    assert in_place(by_offsets(turns(behind, SYNC, WRITE, SYNC))) == (
        "step 2.1 reads in[7 of chunk 0] after step 2.3 has written out[7 of chunk 0] "
        "(length = 63, segments = 3)"
    )
    late = by_offsets(turns(READ, SYNC, WRITE, SYNC), turns(READ, SYNC))
    reason = in_place(late)
    assert reason is not None
    assert reason.startswith("step 3.1 reads in[0 of chunk 0] after step 2.3 has written out[0 of")


def test_a_piece_that_another_warp_writes() -> None:
    other = Ranges("other", 4)
    late = Assign(in_lines(OUT, TURN, ranges=other), HELD)
    find = Locate(other, Segments(OFFSETS, 16), (BLOCK * 2 + WARP) * 4 - 1)
    reason = in_place(by_offsets(turns(READ, SYNC, late, SYNC), lines=[find], warps=2))
    assert reason is not None
    assert reason.startswith("warp 0 reads in[0 of chunk 3], but warp 1 writes out[0 of"), reason


def test_lines_that_are_written_one_late() -> None:
    # The line before: this warp has read it before as well, but for its first line.
    late = Ranges("late", 4)
    find = Locate(late, Segments(OFFSETS, 16), BLOCK * 4 - 1)
    steps = (READ, SYNC, Assign(in_lines(OUT, TURN, ranges=late), HELD), SYNC)
    reason = in_place(by_offsets(turns(*steps), lines=[find]))
    assert reason is not None
    assert reason.startswith("warp 0 reads in[0 of chunk 3], but warp 1 writes out[0 of chunk 3]")


def test_lanes_of_a_piece_that_do_not_meet() -> None:
    shifted = Assign(in_lines(OUT, TURN), in_lines(IN, TURN + 1))
    assert in_place(by_offsets(turns(shifted))) == (
        "step 2.1 reads in[1 of chunk 0] for one element and writes out[1 of chunk 0] for another, "
        "and the lanes run in no order (length = 63, segments = 3)"
    )
    other = Buffer("other", "f32", Extent(LENGTH), BufferRole.INPUT)
    write = Assign(in_lines(OUT, TURN), in_lines(other, TURN))
    good = by_offsets(turns(READ, SYNC, WRITE, SYNC))
    bad = replace(
        good, buffers=(*good.buffers, other), steps=(good.steps[0], turns(READ, write, SYNC))
    )
    verify(bad)
    assert in_place(bad) == (
        "step 2.1 reads in[0 of chunk 0] and step 2.2 writes out[0 of chunk 0], but no barrier is "
        "between (length = 63, segments = 3)"
    )


def test_elements_that_are_not_all_in_pieces_of_one_cut() -> None:
    text = (
        "elements of in and out are not all found as chunks of one length, so that it cannot be "
        "told which are the same"
    )
    plain = View.strided(IN, BLOCK * 32, 4, 8, 8, 1, (Bound(BLOCK * 32 + ROW * 8 + COL, LENGTH),))
    mixed = in_place(by_offsets(turns(Assign(HELD, plain), SYNC, WRITE, SYNC)))
    assert mixed == f"{text} (length = 63, segments = 3)"
    short = Ranges("short", 4)
    find = Locate(short, Segments(OFFSETS, 8), BLOCK * 4)
    read = Assign(HELD, in_lines(IN, TURN, ranges=short))
    made = by_offsets(turns(read, SYNC, WRITE, SYNC), lines=[find])
    assert in_place(made) == f"{text} (length = 63, segments = 7)"
    # Nor is it proved, though chunks have the same numbers.
    assert not same_warp_touches(made, IN, OUT)


def test_what_lies_before_a_piece() -> None:
    behind = Assign(HELD, in_lines(IN, TURN - 1))
    with pytest.raises(VerifyError, match="touches 'in' before a range begins: the offset"):
        by_offsets(turns(behind, SYNC, WRITE, SYNC))
