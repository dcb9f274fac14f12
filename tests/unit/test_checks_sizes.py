"""The sizes that are tried where nothing is proved."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from tcusim.errors import VerifyError
from tcusim.machine.shapes import shape_of
from tcusim.program.checks.sizes import named_sizes, numbers_of, sizes_to_try
from tcusim.program.checks.verifier import verify
from tcusim.program.grammar import (
    BLOCK,
    Assign,
    Bound,
    Buffer,
    BufferRole,
    Extent,
    Index,
    Loop,
    Program,
    Scalar,
    View,
    When,
)

IN: Final = Buffer("in", "f32", Extent(Index.symbol("length")), BufferRole.INPUT)
OUT: Final = Buffer("out", "f32", Extent.of(1), BufferRole.OUTPUT)


def program(*scalars: Scalar, per: int = 8, last: int = 100) -> Program:
    """Return a program that changes something at a block's index."""
    one = View.strided(IN, Index.of(0), 1, 1, 1, 1)
    when = When(
        (Bound(BLOCK, Index.of(last)),), (Assign(View.strided(OUT, Index(), 1, 1, 1, 1), one),)
    )
    index = Index.symbol(scalars[0].name)
    return Program(
        name="sizes",
        shape=shape_of("16x16x16"),
        ab="f16",
        acc="f32",
        scalars=scalars,
        buffers=(IN, OUT),
        blocks=Extent(index, per),
        warps=1,
        steps=(when,),
    )


def test_grids_of_one_to_five_blocks_and_all_remainders() -> None:
    sizes = list(sizes_to_try(program(Scalar("length"))))
    grids = {-(-one["length"] // 8) for one in sizes}
    assert {1, 2, 3, 4, 5} <= grids
    assert {one["length"] % 8 for one in sizes} == set(range(8))
    assert sizes[:2] == [{"length": 7}, {"length": 17}]


def test_sizes_of_long_blocks_are_few_and_of_all_remainders_of_small_powers() -> None:
    """No list of all sizes is made: a block may take more elements than memory has room for."""
    sizes = [one["length"] for one in sizes_to_try(program(Scalar("length"), per=2**40))]
    assert len(sizes) < 10_000
    assert {size % 16 for size in sizes if size > 2**41} == set(range(16))


@pytest.mark.parametrize("last", [3, 5, 7])
def test_the_block_at_which_something_changes(last: int) -> None:
    sizes = sizes_to_try(program(Scalar("length"), last=last))
    assert {last * 8 + 1, last * 8 + 9} <= {one["length"] for one in sizes}
    assert last in numbers_of(program(Scalar("length"), last=last))


@pytest.mark.parametrize("per", [16, 32, 40, 48, 64, 65, 128])
def test_the_programs_own_numbers_come_before_remainders(per: int) -> None:
    length = Index.symbol("length")
    given, out = (
        Buffer(name, "f32", Extent(length), role)
        for name, role in (("in", BufferRole.INPUT), ("out", BufferRole.OUTPUT))
    )
    # As often as a scalar says, but never less than a block has elements: nothing proves it.
    count = Extent(length + per * per, per)
    at = BLOCK * per + Index.symbol("i")
    inside = Bound(at, length), Bound(Index.symbol("i"), Index.of(per))
    to, source = (View.strided(one, at, 1, 1, 1, 1, inside) for one in (out, given))
    for fault in (Bound(length, Index.of(777)), Bound(BLOCK, Index.of(6))):
        copy = (Assign(to, source),)
        made = replace(
            program(Scalar("length"), per=per),
            buffers=(given, out),
            steps=(Loop("i", count, (When((fault,), copy),)),),
        )
        sizes = [one["length"] for one in sizes_to_try(made)]
        assert {1, 2, 3, 4, 5} <= {-(-one // per) for one in sizes}
        with pytest.raises(VerifyError, match="outputs_written"):
            verify(made)
    fine = replace(made, steps=(Loop("i", count, copy),))
    assert "tried for" in verify(fine).unproven["outputs_written"]


def test_scalars_differ_and_keep_to_their_multiples() -> None:
    made = program(Scalar("length", 16), Scalar("other", 3))
    sizes = list(sizes_to_try(made))
    assert all(one["length"] % 16 == 0 and one["other"] % 3 == 0 for one in sizes)
    assert any(one["length"] < one["other"] for one in sizes)
    assert any(one["length"] > 2 * one["other"] for one in sizes)
    assert len({tuple(one.values()) for one in sizes}) == len(sizes)


def test_what_messages_call_them() -> None:
    assert named_sizes({"length": 3, "other": 5}) == "length = 3, other = 5"
