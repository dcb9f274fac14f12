"""Element types: loads, stores, splits and sums take types that go together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planted import (
    SCRATCH,
    SHAPE,
    at,
    block_reduction,
    changed,
    columns_of,
    one_row,
    reduction,
    refused,
    shared,
    split_program,
    with_buffers,
    with_input_type,
)
from tcusim.program.checks.verifier import problems, verify
from tcusim.program.grammar import (
    Assign,
    BufferRole,
    Frag,
    Operation,
    Program,
    Role,
    When,
    part_of,
    sum_of,
)


def test_element_types_refuses_types_that_the_shape_lacks() -> None:
    program = replace(reduction(), ab="f64", acc="f32")
    refused(program, "element_types", "shape 16x16x16 does not take f64 to f32. It takes: f16 to f")


def test_element_types_refuses_fragments_of_other_types() -> None:
    wrong = Frag("V", Role.ACC, SHAPE, "f16")
    program = changed(reduction(), "2", dst=wrong)
    refused(program, "element_types", "accumulator 'V' must be f32 as in the program, got f16")


def test_element_types_refuses_conversion_on_load_and_store() -> None:
    program = block_reduction()
    refused(
        with_input_type(program, "f32"),
        "element_types",
        "fragment 'A' is f16, buffer 'in' is f32; tiles are not converted on the way. Convert in",
    )


def test_element_types_lets_a_tf32_fragment_load_f32() -> None:
    program = reduction()
    tile = shared("tile", "f32", 256)
    program = with_buffers(replace(program, ab="tf32"), SCRATCH, tile, program.scratch[1])
    program = replace(program, shape=replace(SHAPE, operands=()))
    narrow = Frag("A", Role.B, program.shape, "tf32")
    program = changed(program, "5", dst=narrow, src=columns_of(tile))
    messages = [str(e) for e in problems(program) if e.check == "element_types"]
    assert not [text for text in messages if "buffer 'tile'" in text]


def test_element_types_refuses_float_to_integer() -> None:
    program = reduction()
    sums = replace(program.outputs[0], dtype="s32")
    copy = at(program, "9")
    program = with_buffers(program, BufferRole.OUTPUT, sums)
    program = changed(program, "9", dst=replace(copy.dst, buffer=sums))
    refused(program, "element_types", "converts f32 to s32; a float is never made an integer")


def test_element_types_refuses_sums_of_two_types() -> None:
    program = changed(
        reduction(), "9", src=sum_of(at(reduction(), "9").src, one_row(reduction().scratch[0]))
    )
    refused(program, "element_types", "is computed in f16, which does not take f32. Assign it")


def test_element_types_refuses_to_look_for_infinities_among_integers() -> None:
    counts = one_row(shared("counts", "s32", 16))
    program = with_buffers(reduction(), SCRATCH, *reduction().scratch, counts.buffer)
    copy = Assign(counts, part_of(Operation.NOT_FINITE, counts))
    text = "takes s32 only where it is not finite; integers are finite. Take all"
    refused(replace(program, steps=(*program.steps, copy)), "element_types", text)
    branch = When((), (), not_finite=counts)
    text = "asks if s32 is finite; integers are. Leave the branch out"
    refused(replace(program, steps=(*program.steps, branch)), "element_types", text)


def test_element_types_refuses_unknown_types() -> None:
    refused(with_input_type(reduction(), "f12"), "element_types", "unknown element type 'f12'. Kno")


def test_split_into_three_bf16_passes() -> None:
    verify(split_program("f32", "bf16", "bf16", "bf16"))
    verify(split_program("f64", "f32", "f32"))


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (split_program("f32", "bf16", "f16"), "the parts are bf16 and f16. Use one type"),
        (split_program("f16", "bf16"), "the source must be f32 or f64, got f16. Use Assign"),
        (split_program("f32", "f32"), "f32 is not a float narrower than f32. Use f16, bf16 or"),
        (split_program("f32", "s8"), "s8 is not a float narrower than f32"),
    ],
)
def test_element_types_refuses_splits(program: Program, text: str) -> None:
    refused(program, "element_types", text)
