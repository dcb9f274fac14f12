"""Branches that depend on data: the steps allowed in them, and steps that exclude others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planted import ITERATION, LENGTH, SYNC, SYNC_BLOCK, at, one_row, planted, reduction, refused
from tcusim.program.checks.verifier import verify
from tcusim.program.grammar import (
    BLOCK,
    COL,
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
    Operation,
    Program,
    Ranges,
    Scalar,
    Segments,
    Space,
    Step,
    Strided,
    View,
    When,
    part_of,
    sum_of,
)


def on_data(*body: Step, **fields: Any) -> Program:
    """Return the reduction with a branch that its results decide on."""
    result = one_row(at(reduction(), "7").dst.buffer)
    return planted(reduction(), "8", SYNC, When((), body, **{"not_finite": result, **fields}), SYNC)


def test_private_branch_accepts_what_a_warp_does_for_itself() -> None:
    result = one_row(at(reduction(), "7").dst.buffer)
    verify(on_data(SYNC, Assign(result, part_of(Operation.FINITE, result))))


def test_private_branch_refuses_what_concerns_other_warps() -> None:
    program = reduction()
    refused(on_data(at(program, "9")), "private_branch", "step 9.1: .* writes 'out' only in warps")
    refused(
        replace(on_data(SYNC_BLOCK), warps=2),
        "private_branch",
        "step 9.1: `sync block` only warps whose data are not finite reach this barrier",
    )


def test_private_branch_refuses_global_memory() -> None:
    whole = replace(at(reduction(), "3").src, bounds=())
    refused(on_data(not_finite=whole), "private_branch", "step 9: .* 'in' is in global memory")


def both_ways(body: Step, otherwise: Step, *behind: Step) -> Program:
    """Return a program that writes its output in one of two branches, as the data decide."""
    source = Buffer("in", "f32", Extent(LENGTH), BufferRole.INPUT)
    steps = (
        Assign(MINE, replace(MINE, buffer=source, offset=HERE)),
        SYNC,
        When((), (body,), (otherwise,), not_finite=MINE),
        *behind,
    )
    return replace(
        reduction(),
        buffers=(source, OUT.buffer, MINE.buffer),
        scalars=(Scalar("length", 64),),
        blocks=Extent(LENGTH, 64),
        warps=2,
        steps=steps,
    )


HERE = BLOCK * 64 + WARP * 32
MINE = View.strided(
    Buffer("mine", "f32", Extent.of(32), BufferRole.SCRATCH, Space.WARP), Index(), 1, 32, 32, 1
)
OUT = replace(MINE, buffer=Buffer("out", "f32", Extent(LENGTH), BufferRole.OUTPUT), offset=HERE)
ALL = Assign(OUT, MINE)
# Two halves, one after the other.
HALVES = Loop(
    "i",
    Extent.of(2),
    (
        Assign(
            View.strided(OUT.buffer, HERE + ITERATION * 16, 4, 4, 4, 1),
            View.strided(MINE.buffer, ITERATION * 16, 4, 4, 4, 1),
        ),
    ),
)


def test_private_branch_accepts_outputs_that_both_branches_write() -> None:
    verify(both_ways(ALL, HALVES))
    verify(both_ways(HALVES, ALL))
    inside = (Bound(HERE + COL, LENGTH),)
    verify(both_ways(replace(ALL, dst=replace(OUT, bounds=inside)), bounded(HALVES)))
    # No other step depends on the branch.
    nested = When((), (ALL,), (HALVES,), not_finite=MINE)
    verify(both_ways(nested, ALL))


def bounded(loop: Loop) -> Loop:
    (copy,) = loop.body
    assert isinstance(copy, Assign)
    bound = Bound(copy.dst.address, LENGTH)
    return replace(loop, body=(replace(copy, dst=replace(copy.dst, bounds=(bound,))),))


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (SYNC, "writes 'out' only in warps whose data are {}"),
        (replace(HALVES, count=Extent.of(1)), r"writes out\[.* \+ 16\] only in warps .* are {}\."),
        (bounded(HALVES), r"writes out\[64\*block \+ 32\*warp\] only in warps whose data are {}"),
        (
            When((Bound(BLOCK, Index.of(1)),), (ALL,)),
            "writes out.* only in warps whose data are {}",
        ),
        (Loop("i", Extent(LENGTH, 32), (ALL,)), "'out' of which it cannot be told whether"),
    ],
)
def test_private_branch_refuses_elements_that_one_branch_leaves(step: Step, text: str) -> None:
    refused(both_ways(ALL, step), "private_branch", text.format("not finite"))
    refused(both_ways(step, ALL), "private_branch", text.format("finite"))


RANGES = Ranges("piece", 4)
OFFSETS = Buffer("offsets", "s64", Extent.of(9), BufferRole.INPUT)


def by_length(body: tuple[Step, ...], otherwise: tuple[Step, ...]) -> Program:
    """Return a program with branches on the lengths of the ranges that a warp has found."""
    found = Locate(RANGES, Segments(OFFSETS, limit=LENGTH), BLOCK * 8 + WARP * 4)
    program = both_ways(SYNC, SYNC)
    source, out, mine = program.buffers
    when = When((), body, otherwise, longer=RANGES)
    steps = (found, *program.steps[:-1], when)
    return replace(program, buffers=(source, OFFSETS, out, mine), steps=steps)


def gathered(cols: int, start: int = 0, ranges: Ranges = RANGES) -> View:
    return View(OUT.buffer, Index.of(start), Gathered(ranges), Strided(cols, 1))


def some(cols: int) -> View:
    return View.strided(MINE.buffer, Index(), 4, cols, 8, 1)


def test_private_branch_accepts_ranges_of_one_element_and_of_several() -> None:
    verify(by_length((Assign(gathered(8), some(8)),), (Assign(gathered(1), some(1)),)))
    program = both_ways(ALL, ALL)
    own = by_length((SYNC, Assign(some(8), some(8)), SYNC), ())
    verify(replace(own, steps=(*own.steps, SYNC, program.steps[-1])))


@pytest.mark.parametrize(
    ("bodies", "text"),
    [
        (
            ((Assign(gathered(8), some(8)),), ()),
            "writes 'out' only in warps whose data are in long ranges",
        ),
        (
            ((), (Assign(gathered(1), some(1)),)),
            "writes 'out' only in warps whose data are in ranges of one element",
        ),
        (
            ((Assign(gathered(8), some(8)),), (Assign(gathered(1, 1), some(1)),)),
            "writes elements of 'out' of which it cannot be told whether the other branch",
        ),
    ],
)
def test_private_branch_refuses_ranges_that_one_branch_leaves(
    bodies: tuple[tuple[Step, ...], tuple[Step, ...]], text: str
) -> None:
    refused(by_length(*bodies), "private_branch", text)


@pytest.mark.parametrize(
    "also", [{"bounds": (Bound(BLOCK, Index.of(1)),)}, {"not_finite": MINE}], ids=["bounds", "data"]
)
def test_private_branch_refuses_first_elements_where_more_than_lengths_decides(
    also: dict[str, Any],
) -> None:
    """Ranges of several elements come into the other branch, too."""
    program = by_length((Assign(gathered(8), some(8)),), (Assign(gathered(1), some(1)),))
    *before, when = program.steps
    assert isinstance(when, When)
    steps = (*before, SYNC, replace(when, **also))
    refused(replace(program, steps=steps), "private_branch", "'out' of which it cannot be told")


def test_a_branch_asks_ranges_that_were_found() -> None:
    program = by_length((SYNC, Assign(some(8), some(8)), SYNC), ())
    refused(replace(program, steps=program.steps[1:]), "defined_before_use", "piece")


def test_private_branch_refuses_what_is_written_behind_it_too() -> None:
    """Elements that only one branch writes are refused wherever else they are written."""
    refused(
        both_ways(SYNC, ALL, SYNC, ALL), "private_branch", "only in warps whose data are finite"
    )


def test_branches_on_data_exclude_each_other() -> None:
    """One may read the other's writes without a barrier; later steps may not."""
    doubled = Assign(MINE, sum_of(MINE, MINE))
    turned = View.strided(MINE.buffer, Index(), 4, 8, 1, 4)
    program = both_ways(ALL, ALL)
    *before, when = program.steps
    assert isinstance(when, When)
    write = Assign(View.strided(OUT.buffer, HERE, 4, 8, 8, 1), turned)
    either = replace(when, body=(SYNC, doubled, SYNC, ALL), otherwise=(write,))
    verify(replace(program, steps=(*before, either)))
    some = When((), (SYNC, doubled), not_finite=MINE)
    late = replace(program, steps=(*before, some, write))
    refused(late, "synced_shared", "reads elements of 'mine' that step 3.2 writes")


def test_a_branch_on_data_waits_for_them() -> None:
    program = on_data()
    refused(planted(program, "8"), "synced_shared", r"step 8: `if any of v\[col\] is not finite")


@pytest.mark.parametrize("space", [Space.SHARED, Space.WARP])
def test_private_branch_guards_both_branches(space: Space) -> None:
    """Writes that other warps read, or wait for, are refused in the other branch too."""
    seen = replace(MINE, buffer=replace(MINE.buffer, name="seen", space=space))
    program = both_ways(ALL, ALL)
    *before, when = program.steps
    assert isinstance(when, When)
    made = replace(program, buffers=(*program.buffers, seen.buffer))
    writing = replace(made, steps=(*before, replace(when, otherwise=(Assign(seen, MINE), ALL))))
    waiting = replace(made, steps=(*before, replace(when, otherwise=(SYNC_BLOCK, ALL))))
    text = "step 3.2: `sync block` only warps whose data are finite reach this barrier"
    refused(waiting, "private_branch", text)
    if space is Space.WARP:
        verify(writing)
    else:
        refused(writing, "private_branch", "writes 'seen' only in warps whose data are finite")


def test_private_branch_lets_one_branch_write_more_of_a_partial_output() -> None:
    program = both_ways(ALL, SYNC)
    part = replace(OUT.buffer, partial=True)
    *before, when = program.steps
    assert isinstance(when, When)
    when = replace(when, body=(Assign(replace(OUT, buffer=part), MINE),))
    source, _, mine = program.buffers
    verify(replace(program, buffers=(source, part, mine), steps=(*before, when)))


def test_the_other_branch_on_data_is_looked_into() -> None:
    """Nothing is known of when it is taken, and so all that it does may happen."""
    turned = View.strided(MINE.buffer, Index(), 4, 8, 1, 4)
    doubled = Assign(MINE, sum_of(MINE, MINE))
    program = both_ways(ALL, ALL)
    *before, when = program.steps
    assert isinstance(when, When)
    racing = (SYNC, doubled, Assign(View.strided(OUT.buffer, HERE, 4, 8, 8, 1), turned))
    made = replace(program, steps=(*before, replace(when, otherwise=racing)))
    refused(made, "synced_shared", "step 3.4: .* reads elements of 'mine' that step 3.3 writes")
    # Both warps of a block.
    first = Assign(replace(OUT, offset=BLOCK * 64), MINE)
    refused(both_ways(first, first), "one_writer", r"step 3.\d: .* writes out\[0\] in warp 1")
    never = replace(when, bounds=(Bound(Index.of(0), Index.of(0)),), body=(first,))
    made = replace(program, steps=(*before, replace(never, otherwise=(first,))))
    refused(made, "one_writer", r"step 3.2: .* writes out\[0\] in warp 1")
