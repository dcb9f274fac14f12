"""No address is outside its buffer."""

from __future__ import annotations

from dataclasses import replace

from planted import (
    LENGTH,
    SYNC,
    A,
    at,
    block_reduction,
    changed,
    columns_of,
    one_row,
    planted,
    reduction,
    refused,
)
from tcusim.program.checks.verifier import verify
from tcusim.program.grammar import (
    BLOCK,
    COL,
    ROW,
    Assign,
    Bound,
    Index,
    Load,
    Scalar,
    When,
    views_of,
)


def test_inside_buffer_refuses_offset_past_the_end() -> None:
    load = at(block_reduction(), "3")
    program = changed(block_reduction(), "3", src=replace(load.src, offset=load.src.offset + 16))
    refused(
        program,
        "inside_buffer",
        r"reads in\[527\], but 'in' has 512 elements \(block 0, warp 1, row 15, col 15; "
        r"length = 512\). Correct the offset, or add a bound",
    )


def test_inside_buffer_refuses_shared_memory_too() -> None:
    store = at(reduction(), "7")
    program = changed(
        reduction(), "7", dst=replace(store.dst, row_axis=replace(store.dst.row_axis, stride=24))
    )
    refused(program, "inside_buffer", r"writes v\[375\], but 'v' has 256 elements \(row 15, col 15")


def test_inside_buffer_refuses_negative_addresses() -> None:
    load = at(block_reduction(), "3")
    program = changed(block_reduction(), "3", src=replace(load.src, offset=load.src.offset - 16))
    refused(program, "inside_buffer", r"reads in\[-16\], but 'in' has 512 elements")


def test_inside_buffer_refuses_missing_and_wrong_bounds() -> None:
    copy = at(reduction(), "3")
    program = changed(reduction(), "3", src=replace(copy.src, bounds=()))
    refused(
        program, "inside_buffer", r"reads in\[255\], but 'in' has 255 elements \(.*length = 255\)"
    )
    late = Bound(BLOCK * 256 + ROW + COL * 16, LENGTH + 1)
    program = changed(reduction(), "3", src=replace(copy.src, bounds=(late,)))
    refused(program, "inside_buffer", r"reads in\[255\], but 'in' has 255 elements")


def test_inside_buffer_knows_the_branch() -> None:
    program = reduction()
    load = Load(A, columns_of(program.inputs[0], BLOCK * 256))
    whole = Bound(BLOCK * 256 + 255, LENGTH)
    staged = tuple(at(program, path) for path in ("3", "4", "5"))
    steps = (*program.steps[:2], When((whole,), (load,), staged), *program.steps[5:])
    verify(replace(program, steps=steps))
    wrong = When((Bound(BLOCK * 256 + 254, LENGTH),), (load,), staged)
    steps = (*program.steps[:2], wrong, *program.steps[5:])
    refused(replace(program, steps=steps), "inside_buffer", r"step 3.1: .* reads in\[255\]")
    swapped = When((whole,), staged, (load,))
    steps = (*program.steps[:2], swapped, *program.steps[5:])
    refused(replace(program, steps=steps), "inside_buffer", r"step 3.4: .* reads in\[")


def test_inside_buffer_knows_nothing_of_the_other_branch_on_data() -> None:
    """That the data are finite, and not the bound, may be why it is taken."""
    program = reduction()
    load, shared = program.steps[2], one_row(program.scratch[0])
    assert isinstance(load, Assign)
    (src,) = views_of(load.value)
    bounded, unbounded = load, replace(load, value=replace(src, bounds=()))
    never = (Bound(Index.of(0), Index.of(0)),)
    for bounds in ((), never):
        for body, refuse in ((bounded, False), (unbounded, True)):
            when = When(bounds, (), (SYNC, body), not_finite=shared)
            made = planted(program, "4", SYNC, when, SYNC)
            if refuse:
                refused(made, "inside_buffer", "Correct the offset, or add a bound")
            else:
                verify(made)


def test_inside_buffer_tries_many_scalars_within_reason() -> None:
    program = reduction()
    more = tuple(Scalar(name) for name in ("p", "q", "r"))
    verify(replace(program, scalars=(*program.scalars, *more)))
