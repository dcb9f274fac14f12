"""Which programs may write their result over their input, and why the others may not."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tcusim.algorithms import algorithms, build, scan
from tcusim.errors import Unsupported
from tcusim.interpret import State, run_numpy
from tcusim.ir import (
    BLOCK,
    COL,
    ROW,
    WARP,
    Bound,
    Buffer,
    Copy,
    Extent,
    Index,
    Level,
    Loop,
    Program,
    Scalar,
    Step,
    Sync,
    View,
    When,
)
from tcusim.shapes import shape_of
from tcusim.verify import in_place, verify

LENGTH = Index.symbol("length")
SCANS = [row.name for row in algorithms() if row.kind == "scan" and row.level is Level.WARP]
SYNC = Sync(Level.WARP)


def scans(**more: Any) -> list[Program]:
    """Return every form of every scan, ragged and whole, in all four orders."""
    built = []
    variants = itertools.product(SCANS, "ab", ("mma", "add"), *[(False, True)] * 3)
    for name, side, combine, ragged, exclusive, reverse in variants:
        given: dict[str, Any] = {
            "side": side,
            "combine": combine,
            "ragged": ragged,
            "exclusive": exclusive,
            "reverse": reverse,
        }
        formed = name in ("scan_t", "scan_tn")
        for form in scan.FORMS if formed else (None,):
            if form is not None:
                given["form"] = form
            try:
                built.append(build(str(name), result="f16", **given, **more))
            except Unsupported as error:
                if not str(error).startswith("form '"):
                    raise
    return built


@pytest.mark.parametrize("shape", ["16x16x16", "32x8x16", "8x32x16"])
def test_every_scan_may_write_over_its_input(shape: str) -> None:
    programs = scans(shape=shape, warps=2)
    assert len(programs) >= 8 * 14
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


def test_a_scan_over_its_input_gives_the_same_bits() -> None:
    rng = np.random.default_rng()
    for program in scans(shape="8x32x16", warps=2):
        per_block = program.blocks.per
        ragged = program.scalars[0].multiple_of == 1
        length = 2 * per_block + (per_block // 2 + 7 if ragged else 0)
        inputs = {"in": rng.standard_normal(length).astype(np.float16)}
        apart = run_numpy(program, inputs)["out"]
        together = in_one_memory(program, inputs)
        np.testing.assert_array_equal(apart.view(np.uint16), together.view(np.uint16))


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
            "scan_plain",
            {"carry": True},
            ("carry",),
            "carry has ceil(length / 256) elements, but out has length",
        ),
    ],
)
def test_arrays_that_are_not_alike(
    name: str, options: dict[str, Any], names: Sequence[str], text: str
) -> None:
    options = {"result": "f16", **options} if name == "scan_plain" else options
    assert in_place(build(name, **options), *names) == text


# --- Programs written by hand ---------------------------------------------------------------------

IN = Buffer("in", "f32", Extent(LENGTH))
OUT = Buffer("out", "f32", Extent(LENGTH))
MINE = Buffer("mine", "f32", Extent.of(32), Level.WARP)
HERE = BLOCK * 32


def program(*steps: Step, warps: int = 1) -> Program:
    """Return a program for whole blocks of 32 elements a warp."""
    made = Program(
        name="by_hand",
        shape=shape_of("16x16x16"),
        ab="f16",
        acc="f32",
        scalars=(Scalar("length", 32 * warps),),
        inputs=(IN,),
        outputs=(OUT,),
        scratch=(MINE,),
        blocks=Extent(LENGTH, 32 * warps),
        warps=warps,
        steps=steps,
    )
    verify(made)
    return made


def line_of(buffer: Buffer, offset: Index | int = 0, *bounds: Bound) -> View:
    return View(buffer, Index.of(offset), 1, 32, 32, 1, bounds)


def test_one_copy_with_the_same_place_for_both() -> None:
    assert in_place(program(Copy(line_of(OUT, HERE), line_of(IN, HERE)))) is None


def test_a_copy_that_reverses_its_rectangle() -> None:
    # A 4x8 rectangle is written as the transpose of an 8x4 one.
    read = View(IN, HERE, 4, 8, 8, 1)
    written = View(OUT, HERE, 4, 8, 1, 4)
    assert in_place(program(Copy(written, read))) == (
        "step 1 reads in[1] for one element and writes out[1] for another, and the lanes run in "
        "no order (length = 32)"
    )


def test_lanes_that_meet_between() -> None:
    # The lane that writes an element is not the one that has read it.
    read = Copy(line_of(MINE), line_of(IN, HERE))
    write = Copy(View(OUT, HERE, 4, 8, 8, 1), View(MINE, Index(), 4, 8, 1, 4))
    assert in_place(program(read, SYNC, write)) is None


def test_lanes_that_do_not_meet() -> None:
    # What is written comes from another array, so that nothing else asks for a barrier.
    other = Buffer("other", "f32", Extent(LENGTH))
    read = Copy(line_of(MINE), line_of(IN, HERE))
    write = Copy(line_of(OUT, HERE), line_of(other, HERE))
    made = replace(program(read), inputs=(IN, other), steps=(read, write))
    verify(made)
    assert in_place(made) == (
        "step 1 reads in[0] and step 2 writes out[0], but no barrier is between (length = 32)"
    )
    assert in_place(replace(made, steps=(read, SYNC, write))) is None


def test_an_element_that_is_read_later() -> None:
    first = Copy(line_of(OUT, HERE), line_of(IN, HERE))
    again = Copy(line_of(MINE), line_of(IN, HERE))
    made = program(first, SYNC, again)
    assert in_place(made) == "step 3 reads in[0] after step 1 has written out[0] (length = 32)"
    # In a loop the first iteration writes what the second one reads.
    write = Copy(line_of(OUT, HERE), line_of(MINE))
    whole = Loop("i", Extent.of(2), (again, SYNC, write, SYNC))
    assert in_place(program(whole)) == (
        "step 1.1 reads in[0] after step 1.3 has written out[0] (length = 32)"
    )


def test_an_element_that_another_warp_reads() -> None:
    mine = line_of(OUT, BLOCK * 64 + WARP * 32)
    neighbour = line_of(IN, BLOCK * 64 - WARP * 32 + 32)
    made = program(Copy(mine, neighbour), warps=2)
    assert in_place(made) == "warp 1 reads in[0], but warp 0 writes out[0] (length = 64)"


def test_an_element_of_the_next_block() -> None:
    # With one block nothing is wrong.
    inside = Bound(HERE + COL + 32, LENGTH)
    made = program(
        Copy(line_of(MINE), line_of(IN, HERE + 32, inside)), SYNC,
        Copy(line_of(OUT, HERE), line_of(MINE)),
    )  # fmt: skip
    assert in_place(made) == "warp 0 reads in[32], but warp 1 writes out[32] (length = 96)"


def test_only_the_warps_of_a_branch_count() -> None:
    here = BLOCK * 64 + WARP * 32
    own = Copy(line_of(OUT, here), line_of(IN, here))
    the_first = Copy(line_of(MINE), line_of(IN, BLOCK * 64))
    first = (Bound(WARP, Index.of(1)),)
    the_second = Copy(line_of(MINE), line_of(IN, BLOCK * 64 + 32))
    good = program(When(first, (the_first, SYNC), (the_second, SYNC)), own, warps=2)
    assert in_place(good) is None
    bad = program(When(first, (SYNC,), (the_first, SYNC)), own, warps=2)
    assert in_place(bad) == "warp 1 reads in[0], but warp 0 writes out[0] (length = 64)"


def test_rows_and_columns_of_a_view_count() -> None:
    ragged = View(IN, HERE, 2, 16, 16, 1, (Bound(ROW * 16 + COL, Index.of(20)),))
    late = Copy(View(MINE, Index(), 2, 16, 16, 1), ragged)
    write = Copy(line_of(OUT, HERE + 0), line_of(IN, HERE))
    assert in_place(program(write, SYNC, late)) is not None
    beyond = Copy(line_of(OUT, HERE, Bound(Index.of(19), COL)), line_of(IN, HERE))
    assert in_place(program(beyond, SYNC, late)) is None
