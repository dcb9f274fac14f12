"""Tiles and fragments: roles, shapes, layouts and alignment."""

from __future__ import annotations

import re
from dataclasses import replace

from planted import (
    LENGTH,
    SHAPE,
    A,
    P,
    V,
    accumulator,
    at,
    block_reduction,
    changed,
    columns_of,
    planted,
    reduction,
    refused,
    rows_of,
    shared,
    with_buffers,
)
from tcusim.algorithms import build
from tcusim.machine.shapes import MmaShape, shape_of
from tcusim.program.checks.verifier import tile_is_aligned, verify
from tcusim.program.grammar import (
    BLOCK,
    COL,
    WARP,
    Add,
    Bound,
    BufferRole,
    Frag,
    Index,
    Pattern,
    PatternKind,
    Prefix,
    Role,
    Strided,
)


def test_operand_roles_refuses_swapped_operands() -> None:
    program = changed(reduction(), "6", a=A, b=P)
    error = refused(
        program, "operand_roles", "operand a must be matrix_a, got matrix_b 'A'. Load the values"
    )
    assert error.step == "V ← A·P + V"


def test_operand_roles_refuses_accumulator_as_operand() -> None:
    program = changed(reduction(), "6", b=V)
    error = refused(program, "operand_roles", "operand b must be matrix_b")
    assert str(error) == (
        "reduction_16, step 6: `V ← P·V + V` operand b must be matrix_b, got accumulator 'V'. "
        "Store it to shared memory and load it as matrix_b.  [check: operand_roles]"
    )


def test_operand_roles_refuses_operands_as_results() -> None:
    program = changed(reduction(), "6", d=P)
    refused(program, "operand_roles", "result d must be an accumulator, got matrix_a 'P'. Only acc")
    program = changed(reduction(), "7", src=P)
    refused(program, "operand_roles", "the source must be an accumulator, got matrix_a 'P'")
    program = planted(reduction(), "6", at(reduction(), "6"), Add(V, V, A))
    refused(program, "operand_roles", "operand b must be an accumulator, got matrix_b 'A'")


def test_fragment_shapes_refuses_another_shape() -> None:
    other = Frag("A", Role.B, shape_of("8x32x16"), "f16")
    program = changed(changed(reduction(), "5", dst=other), "6", b=other)
    refused(program, "fragment_shapes", "'A' has shape 8x32x16, the program 16x16x16. Build")


def test_fragment_shapes_refuses_small_tiles() -> None:
    load = at(reduction(), "5")
    program = changed(
        reduction(), "5", src=replace(load.src, row_axis=replace(load.src.row_axis, count=8))
    )
    refused(
        program, "fragment_shapes", "'A' of shape 16x16x16 is 16x16, the tile of 'tile' is 8x16"
    )


def test_equal_rectangles_refuses_other_sizes() -> None:
    copy = at(reduction(), "9")
    program = changed(
        reduction(), "9", src=replace(copy.src, col_axis=replace(copy.src.col_axis, count=8))
    )
    refused(program, "equal_rectangles", "'out' is 1x16, 'v' is 1x8. Use one size; a stride of 0")


def test_rows_of_sums_refuses_other_places_and_types() -> None:
    sums = build("scan_panel", ab="f32", segment_size=64)
    step = at(sums, "1")
    assert isinstance(step, Prefix)
    assert step.totals is not None
    narrow = replace(step.dst, col_axis=Strided(8, 1))
    text = "the prefix sums of 32x32 elements go to 'scanned', a rectangle of 32x8. Give each row"
    refused(changed(sums, "1", dst=narrow), "rows_of_sums", text)
    few = replace(step.totals, row_axis=Strided(4, 1))
    text = "the sums of 32x32 elements go to 'ends', a rectangle of 4x1"
    refused(changed(sums, "1", totals=few), "rows_of_sums", text)
    array = replace(sums.inputs[0], dtype="f16")
    program = changed(sums, "1", src=replace(step.src, buffer=array))
    halves = with_buffers(program, BufferRole.INPUT, array)
    text = "adds up rows of f32 in f32, and 'in' is f16. Use Copy to convert it"
    refused(halves, "rows_of_sums", text)


def test_rows_of_sums_are_written_once_and_where_they_are_read() -> None:
    sums = build("scan_panel", ab="f32", segment_size=64)
    step = at(sums, "1")
    assert isinstance(step, Prefix)
    twice = replace(step.dst, row_axis=Strided(32, 16))
    refused(changed(sums, "1", dst=twice), "copy_overlap", "writes elements of 'scanned' more than")
    beside = replace(step.dst, offset=step.dst.offset + 1)
    refused(changed(sums, "1", src=beside), "copy_overlap", "reads and writes overlapping parts")


def test_one_layout_refuses_two_layouts() -> None:
    load = at(reduction(), "5")
    program = planted(
        reduction(), "5", load, replace(load, src=rows_of(load.src.buffer)), at(reduction(), "6")
    )
    refused(
        program,
        "one_layout",
        "matrix_b 'A' is loaded row_major here and col_major before; the layout is part",
    )


def test_one_layout_refuses_two_meanings_of_a_name() -> None:
    program = changed(reduction(), "1", dst=accumulator("P"))
    refused(program, "one_layout", "'P' is matrix_a f16 of 16x16x16 here and accumulator f32 of")


def test_an_operand_may_be_one_column_again_and_again() -> None:
    load = at(reduction(), "5")
    same = replace(load.src, col_axis=replace(load.src.col_axis, stride=0))
    verify(changed(reduction(), "5", src=same))


def test_tile_layout_refuses_wrong_ldm() -> None:
    load = at(reduction(), "5")
    program = changed(
        reduction(), "5", src=replace(load.src, col_axis=replace(load.src.col_axis, stride=8))
    )
    refused(
        program, "tile_layout", "ldm must be at least 16 for a col_major tile of 16x16, got 8. To"
    )


def test_tile_layout_refuses_strided_elements() -> None:
    load = at(reduction(), "5")
    program = changed(
        reduction(), "5", src=replace(load.src, row_axis=replace(load.src.row_axis, stride=2))
    )
    refused(program, "tile_layout", "has strides 2 and 16; one of them must be 1. Copy the tile")


def test_tile_layout_refuses_bounds() -> None:
    program = changed(
        block_reduction(), "3", src=columns_of(block_reduction().inputs[0], 0, Bound(COL, LENGTH))
    )
    refused(program, "tile_layout", "has the bound col < length, but a tile is .* stored whole")


def test_alignment_refuses_misaligned_address() -> None:
    load = at(block_reduction(), "3")
    program = changed(
        block_reduction(), "3", src=replace(load.src, offset=BLOCK * 488 + WARP * 248)
    )
    refused(
        program,
        "alignment",
        re.escape(
            "the address in[488*block + 248*warp] must be a multiple of 32 bytes, but the term "
            "488*block makes it a multiple of 16 only (488 elements of 2 bytes). Pad the leading"
        ),
    )


def test_equal_lines_may_be_stored_to_one_place() -> None:
    """Every column of A.1 + C has the row sums of A, if all columns of C are equal as well."""
    store = at(reduction(), "7")
    one_line = replace(store.dst, row_axis=replace(store.dst.row_axis, stride=0))
    refused(
        changed(reduction(), "7", dst=one_line),
        "equal_lines",
        "an ldm of 0 stores all rows of 'V' to one place, and they are not all equal: it is not a",
    )
    ones = Pattern(PatternKind.ONES)
    verify(changed(changed(reduction(), "1", pattern=ones), "7", dst=one_line))


def test_alignment_refuses_misaligned_constant_and_ldm() -> None:
    load = at(block_reduction(), "3")
    program = changed(block_reduction(), "3", src=replace(load.src, offset=Index.of(1)))
    refused(program, "alignment", re.escape("the term 1 makes it a multiple of 2 only"))
    program = changed(
        block_reduction(),
        "3",
        src=replace(load.src, col_axis=replace(load.src.col_axis, stride=18)),
    )
    refused(program, "alignment", "ldm = 18 elements of 2 bytes is 36 bytes, but must be a mult")


def test_alignment_knows_multiples_of_scalars() -> None:
    load = at(block_reduction(), "3")
    view = replace(load.src, offset=LENGTH - 512 + WARP * 256)
    verify(changed(block_reduction(), "3", src=view))


def test_alignment_asks_nothing_of_other_families() -> None:
    tile = rows_of(shared("tile", "f16", 1000), 3)
    assert not tile_is_aligned(tile, SHAPE, "f16", "f32")
    assert tile_is_aligned(tile, MmaShape(16, 16, 16), "f16", "f32")
    assert tile_is_aligned(tile, shape_of("16x8x16"), "f16", "f32")
