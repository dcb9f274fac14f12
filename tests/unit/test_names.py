"""Names, counts, symbols and the roles of buffers: each check refuses the bug it is named for."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from planted import (
    ITERATION,
    LENGTH,
    SCRATCH,
    SHAPE,
    SYNC,
    accumulator,
    at,
    block_reduction,
    changed,
    columns_of,
    matrix_a,
    one_row,
    planted,
    reduction,
    refused,
    scan,
    shared,
    with_buffers,
)
from tcusim.program.checks.verifier import problems
from tcusim.program.grammar import (
    BLOCK,
    BLOCK_ROW,
    WARP_COL,
    WARP_ROW,
    Bound,
    Buffer,
    BufferRole,
    Const,
    Extent,
    Formula,
    Frag,
    Index,
    Loop,
    Map,
    Operation,
    Pattern,
    PatternKind,
    Role,
    Scalar,
    Split,
    View,
)


def test_positive_counts_refuses_warps() -> None:
    refused(
        replace(reduction(), warps=33), "positive_counts", "a block has 1 to 32 warps, got 33. Use"
    )


def test_positive_counts_refuses_rows_of_warps_that_are_not_full() -> None:
    program = replace(reduction(), warps=6, warp_columns=4)
    refused(
        program, "positive_counts", "6 warps do not stand in rows of 4. Let warp_columns divide"
    )


def test_places_of_warps_are_there_where_they_stand_in_rows() -> None:
    load = at(reduction(), "5")
    moved = replace(load.src, offset=load.src.offset + 256 * WARP_ROW + 256 * WARP_COL)
    program = changed(reduction(), "5", src=moved)
    error = refused(program, "symbols_in_scope", "names 'warp_col', which has no value here")
    assert error.path == "5"
    found = {problem.check for problem in problems(replace(program, warps=4, warp_columns=2))}
    assert "symbols_in_scope" not in found


def test_rows_of_blocks_have_numbers_where_there_are_several() -> None:
    load = at(reduction(), "5")
    program = changed(reduction(), "5", src=replace(load.src, offset=load.src.offset + BLOCK_ROW))
    error = refused(program, "symbols_in_scope", "names 'block_row', which has no value here")
    assert error.path == "5"
    found = {problem.check for problem in problems(replace(program, rows=2))}
    assert "symbols_in_scope" not in found
    refused(replace(reduction(), rows=0), "positive_counts", "rows must be at least 1, got 0")


def test_positive_counts_refuses_division_by_zero() -> None:
    program = replace(reduction(), blocks=Extent(LENGTH, 0))
    refused(program, "positive_counts", "blocks is divided by 0. Divide by at least 1")


def test_positive_counts_refuses_empty_buffer() -> None:
    program = with_buffers(reduction(), SCRATCH, shared("tile", "f16", 0), shared("v", "f32", 256))
    refused(program, "positive_counts", "the size of 'tile' must be at least 1, got 0")


def test_positive_counts_refuses_multiple_of_zero() -> None:
    program = replace(reduction(), scalars=(Scalar("length", 0),))
    refused(program, "positive_counts", "'length' must be a multiple of at least 1, got 0. Use 1")


def test_positive_counts_refuses_negative_loop() -> None:
    program = changed(scan(), "6", count=Extent.of(-1))
    refused(program, "positive_counts", "step 6: `for i .*` the loop's count must be at least 0")


def test_positive_counts_refuses_empty_split() -> None:
    program = planted(reduction(), "3", Split((), at(reduction(), "3").src))
    refused(program, "positive_counts", "Split needs at least one destination")


@pytest.mark.parametrize(
    ("formula", "reason"),
    [
        (lambda view: Formula(Operation.ROOT, (view, view)), "√ takes 1 term, got 2"),
        (lambda view: Formula(Operation.OVER, (view,)), "/ takes 2 terms, got 1"),
        (lambda view: Formula(Operation.TIMES, (view, 0.1)), r"float32 has no 0\.1"),
        (lambda view: Formula(Operation.PLUS, (1.0, 2.0)), "names no rectangle"),
    ],
)
def test_positive_counts_refuses_wrong_formula(
    formula: Callable[[View], Formula], reason: str
) -> None:
    copy = at(reduction(), "9")
    program = planted(reduction(), "9", Map(copy.dst, formula(copy.src)))
    refused(program, "positive_counts", reason)


def test_positive_counts_refuses_empty_rectangle() -> None:
    copy = at(reduction(), "9")
    program = changed(
        reduction(), "9", src=replace(copy.src, row_axis=replace(copy.src.row_axis, count=0))
    )
    refused(program, "positive_counts", "the rectangle of 'v' is 0x16; it needs at least one row")


def test_positive_counts_refuses_negative_stride() -> None:
    copy = at(reduction(), "9")
    program = changed(
        reduction(),
        "9",
        src=replace(copy.src, offset=Index.of(15), col_axis=replace(copy.src.col_axis, stride=-1)),
    )
    refused(program, "positive_counts", "strides of 'v' are 0 and -1; .* must not be negative")


def test_distinct_names_refuses_fragment_named_as_buffer() -> None:
    tile = Frag("tile", Role.B, SHAPE, "f16")
    program = changed(changed(reduction(), "5", dst=tile), "6", b=tile)
    refused(program, "distinct_names", "fragment 'tile' has the name of a buffer. Choose another")


def test_distinct_names_refuses_two_buffers_of_one_name() -> None:
    program = reduction()
    program = replace(program, buffers=(*program.buffers, shared("in", "f32", 16)))
    refused(program, "distinct_names", "buffer 'in' has the name of a buffer")


def test_distinct_names_refuses_what_is_no_identifier() -> None:
    program = replace(reduction(), scalars=(Scalar("length"), Scalar("a b")))
    refused(program, "distinct_names", "scalar 'a b' must be an identifier")
    program = changed(reduction(), "1", dst=matrix_a("P^T"))
    refused(program, "distinct_names", re.escape("fragment 'P^T' must be an identifier"))


def test_symbols_in_scope_refuses_undefined_loop_variable() -> None:
    load = at(scan(), "6.1")
    place = load.src.offset + Index.symbol("j") * 256
    program = changed(scan(), "6.1", src=replace(load.src, offset=place))
    error = refused(
        program,
        "symbols_in_scope",
        "the offset into 'in' names 'j', which has no value here. "
        "In scope: block, block_col, i, length, warp",
    )
    assert (error.check, error.program, error.path) == ("symbols_in_scope", "scan_256n", "6.1")
    assert error.step.startswith("A ← LoadTile(in[1024*block + 256*i + 256*j … +256]")


def test_symbols_in_scope_refuses_loop_variable_after_its_loop() -> None:
    program = scan()
    late = Const(accumulator("S"), Pattern(PatternKind.ROW, ITERATION))
    program = replace(program, steps=(*program.steps, late))
    refused(program, "symbols_in_scope", "step 7: .* the pattern's offset names 'i'")


def test_symbols_in_scope_refuses_shadowing() -> None:
    inner = Loop("i", Extent.of(2), (SYNC,))
    program = planted(scan(), "6.6", inner)
    refused(program, "symbols_in_scope", "loop variable 'i' already has a value here. Choose")


@pytest.mark.parametrize("name", ["row", "col"])
def test_symbols_in_scope_refuses_elements_in_a_condition(name: str) -> None:
    program = changed(block_reduction(), "9", bounds=(Bound(Index.symbol(name), Index.of(1)),))
    refused(program, "symbols_in_scope", f"the condition names '{name}', which has no value")


def test_symbols_in_scope_refuses_sizes_that_are_not_scalars() -> None:
    program = replace(reduction(), blocks=Extent(BLOCK))
    refused(program, "symbols_in_scope", "blocks names 'block', which .* In scope: length")
    program = changed(scan(), "6", count=Extent(Index.symbol("n")))
    refused(program, "symbols_in_scope", "the loop's count names 'n'")


def test_buffer_roles_refuses_reading_an_output() -> None:
    program = block_reduction()
    output = program.outputs[0]
    program = changed(program, "9.1", src=one_row(output, BLOCK * 16))
    refused(program, "buffer_roles", "reads output 'out', which is visible only after the launch")


def test_buffer_roles_refuses_writing_an_input() -> None:
    program = reduction()
    program = changed(program, "3", dst=columns_of(program.inputs[0]))
    refused(program, "buffer_roles", "writes input 'in'. Inputs are read only; write an output")


def test_buffer_roles_refuses_undeclared_buffers() -> None:
    program = with_buffers(reduction(), SCRATCH, reduction().scratch[0])
    refused(program, "buffer_roles", "buffer 'v' is not declared. Declared: in, out, tile")
    program = with_buffers(reduction(), SCRATCH, reduction().scratch[0], shared("v", "f32", 512))
    refused(
        program,
        "buffer_roles",
        r"'v' is declared as scratch f32\[512\] .* used as scratch f32\[256\]",
    )


def test_buffer_roles_refuses_wrong_spaces() -> None:
    program = reduction()
    scratch = Buffer("far", "f32", Extent(LENGTH), SCRATCH)
    refused(
        replace(program, buffers=(*program.buffers, scratch)),
        "buffer_roles",
        "scratch 'far' must be shared memory .* got space global, size length",
    )
    near = replace(shared("near", "f16", 16), role=BufferRole.INPUT)
    refused(
        replace(program, buffers=(*program.buffers, near)),
        "buffer_roles",
        "'near' has the role input and must be in global memory, got the space warp. Declare it",
    )
