"""Runs: steps that read all they move before the first of them writes, after one test."""

from __future__ import annotations

import re

import pytest

from hand_built import hand_built
from tcusim.algorithms import build
from tcusim.algorithms.builder import LENGTH, Builder
from tcusim.algorithms.rows import data
from tcusim.program.grammar import (
    COL,
    ROW,
    Assign,
    Bound,
    Extent,
    Index,
    Loop,
    Numbered,
    Program,
    Sync,
    View,
    accesses,
    numbered,
    walk,
)
from tcusim.program.lanes import Alignment, Transfer, transfer_of
from tcusim_cuda.emit import emit
from tcusim_cuda.fusion import HELD_TOGETHER, MOST_STEPS, Run, runs_of


def runs(program: Program, steps: tuple[Numbered, ...] | None = None) -> list[Run]:
    """Return the runs of a list of steps, by default the program's outermost."""

    def how(path: str, step: Assign) -> Transfer:
        assert dict(walk(program.steps))[path] is step
        touched = accesses(step)
        return transfer_of(program, touched.views_written, touched.views_read)

    found = runs_of(numbered(program.steps) if steps is None else steps, how)
    return [one for one in found if isinstance(one, Run)]


def rows(b: Builder, start: int) -> View:
    """Return 32 rows of 64 elements of the program's input, those of which there are some."""
    first = b.item * (12 * 2048) + start
    inside = Bound(first + ROW * 64 + COL, LENGTH)
    return b.rect(data(b), first, 32, 64, 64, 1, [inside])


def of_sums(size: int) -> tuple[Program, Run]:
    """Return a sum of segments and its run: their whole rows, one after the other, and the rest."""
    program = build("reduction_panel", segment_size=size, masked=True, items_per_warp=1)
    (run,) = runs(program)
    return program, run


@pytest.mark.parametrize("size", [40, 100, 300])
def test_rows_and_their_rest_are_one_run(size: int) -> None:
    program, run = of_sums(size)
    assert [type(step) for _, step in run.steps].count(Loop) == (size >= 64)
    assert sum(member.registers for member in run.members) <= HELD_TOGETHER
    # One test of the bounds: of the last element that any of them takes.
    bounds = [test for test in run.guard if isinstance(test, Bound)]
    (bound,) = bounds
    taken = program.blocks.per // program.warps
    assert (bound.lhs - Index.symbol("warp") * taken).const == taken - 1
    text = emit(program).text
    (call,) = re.findall(r"tcu::move_together<.*?\);\n", text, re.DOTALL)
    assert call.count("tcu::Rectangle<") == len(run.members)
    assert call.count("auto& held)") == len(run.members)


def test_the_listing_stands_before_the_run() -> None:
    program, run = of_sums(100)
    text = emit(program).text
    for path, _ in run.listed:
        assert text.count(f"// {path}  ") == 1


def test_alignment_is_tested_once_where_steps_are_multiples() -> None:
    _, run = of_sums(100)
    aligned = [test for test in run.guard if isinstance(test, Alignment)]
    assert [(test.buffer.name, test.offset, test.nbytes) for test in aligned] == [
        ("in", Index(), 8)
    ]


def test_a_barrier_ends_a_run() -> None:
    program, run = of_sums(100)
    number = int(run.steps[-1][0])
    assert [int(path) for path, _ in run.steps] == list(range(int(run.steps[0][0]), number + 1))
    assert isinstance(program.steps[number], Sync)
    assert {type(step) for _, step in run.listed} <= {Assign, Loop}


def many_copies(b: Builder, segment_size: int | None) -> int:
    """Assign 32 rows of 64 elements twelve times."""
    for number in range(12):
        kept = b.rect(b.scratch(f"k{number}", "f16", 2048), 0, 32, 64, 64)
        b.copy(kept, rows(b, number * 2048))
    out = b.output("out", "f16", Extent(LENGTH, 12 * 2048))
    inside = [Bound(b.item * (12 * 2048), LENGTH)]
    b.copy(b.rect(out, b.item, 1, 1, 1, 1, inside), b.rect(kept.buffer, 0, 1, 1, 1))
    return 12 * 2048


def test_a_run_holds_no_more_than_registers_allow() -> None:
    program = hand_built(many_copies, source="f16", result="f16", masked=True)
    found = runs(program)
    assert len(found) > 1
    for run in found:
        assert len(run.members) <= MOST_STEPS
        assert sum(member.registers for member in run.members) <= HELD_TOGETHER


def test_what_is_never_whole_is_in_no_run() -> None:
    """The zeros past short rows: their source is always out of bounds."""
    program = build("reduction_panel", segment_size=100, masked=True)
    clears = [
        path for path, step in walk(program.steps) if "1 < 0" in str(getattr(step, "src", ""))
    ]
    members = {member.path for run in runs(program) for member in run.members}
    assert not members & set(clears)
