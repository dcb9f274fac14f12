"""Each check of `tcusim.verify` accepts correct programs and refuses the bug it is named for."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tcusim.errors import VerifyError
from tcusim.machine.shapes import MmaShape, shape_of
from tcusim.program.checks.verifier import CHECKS, _verify_once, problems, tile_is_aligned, verify
from tcusim.program.grammar import (
    BLOCK,
    COL,
    ROW,
    WARP,
    Add,
    Bound,
    Buffer,
    BufferRole,
    Const,
    Copy,
    Extent,
    Frag,
    Index,
    Load,
    Loop,
    Mma,
    Pattern,
    PatternKind,
    Program,
    Role,
    Scalar,
    Scope,
    Space,
    Split,
    Step,
    Store,
    Strided,
    Sync,
    View,
    When,
    walk,
)
from tcusim.program.printer import listing

SHAPE = shape_of("16x16x16")
LENGTH = Index.symbol("length")
ITERATION = Index.symbol("i")
SCRATCH = BufferRole.SCRATCH
SYNC = Sync(Scope.WARP)
SYNC_BLOCK = Sync(Scope.BLOCK)


def shared(name: str, dtype: str, size: int, space: Space = Space.WARP) -> Buffer:
    return Buffer(name, dtype, Extent.of(size), BufferRole.SCRATCH, space)


def with_buffers(program: Program, role: BufferRole, *buffers: Buffer) -> Program:
    """Return the program with these buffers in place of those of a role."""
    others = tuple(buffer for buffer in program.buffers if buffer.role is not role)
    return replace(program, buffers=(*others, *buffers))


def rows_of(buffer: Buffer, offset: Index | int = 0, *bounds: Bound) -> View:
    """Return a 16x16 tile, row after row."""
    return View.strided(buffer, Index.of(offset), 16, 16, 16, 1, bounds)


def columns_of(buffer: Buffer, offset: Index | int = 0, *bounds: Bound) -> View:
    """Return a 16x16 tile, column after column."""
    return View.strided(buffer, Index.of(offset), 16, 16, 1, 16, bounds)


def one_row(buffer: Buffer, offset: Index | int = 0, *bounds: Bound) -> View:
    return View.strided(buffer, Index.of(offset), 1, 16, 0, 1, bounds)


def matrix_a(name: str) -> Frag:
    return Frag(name, Role.A, SHAPE, "f16")


def matrix_b(name: str) -> Frag:
    return Frag(name, Role.B, SHAPE, "f16")


def accumulator(name: str) -> Frag:
    return Frag(name, Role.ACC, SHAPE, "f32")


P, A, V = matrix_a("P"), matrix_b("A"), accumulator("V")
ZERO = Pattern(PatternKind.ZEROS)
FIRST_ROW = Pattern(PatternKind.ROW)


# --- Three correct programs -------------------------------------------------------------------


def reduction() -> Program:
    """Return Reduction_16 for any length: ragged tiles are padded in shared memory."""
    values = Buffer("in", "f16", Extent(LENGTH), BufferRole.INPUT)
    sums = Buffer("out", "f32", Extent(LENGTH, 16), BufferRole.OUTPUT)
    tile, result = shared("tile", "f16", 256), shared("v", "f32", 256)
    in_input = Bound(BLOCK * 256 + ROW + COL * 16, LENGTH)
    in_output = Bound(BLOCK * 256 + COL * 16, LENGTH)
    return Program(
        name="reduction_16",
        shape=SHAPE,
        ab="f16",
        acc="f32",
        scalars=(Scalar("length"),),
        buffers=(values, sums, tile, result),
        blocks=Extent(LENGTH, 256),
        warps=1,
        steps=(
            Const(P, FIRST_ROW, "Alg. 1 line 1"),
            Const(V, ZERO),
            Copy(columns_of(tile), columns_of(values, BLOCK * 256, in_input)),
            SYNC,
            Load(A, columns_of(tile), "Alg. 1 line 3"),
            Mma(V, P, A, V, "Alg. 1 line 4"),
            Store(rows_of(result), V),
            SYNC,
            Copy(one_row(sums, BLOCK * 16, in_output), one_row(result), None, "Alg. 1 line 5"),
        ),
        source="DAKKAK19 sec. 4.1",
    )


def scan() -> Program:
    """Return Scan_256N for segments of 1024: a loop that carries the last sum."""
    values = Buffer("in", "f16", Extent(LENGTH), BufferRole.INPUT)
    sums = Buffer("out", "f32", Extent(LENGTH), BufferRole.OUTPUT)
    wide, narrow = shared("wide", "f32", 256), shared("narrow", "f16", 256)
    carry = shared("carry", "f32", 256)
    u, ones, lower = matrix_b("U"), matrix_b("O"), matrix_a("L")
    left, right, la = matrix_a("A"), matrix_b("B"), matrix_a("LA")
    s, zero, au, acc = (accumulator(name) for name in ("S", "Z", "AU", "R"))
    place = BLOCK * 1024 + ITERATION * 256
    return Program(
        name="scan_256n",
        shape=SHAPE,
        ab="f16",
        acc="f32",
        scalars=(Scalar("length", 1024),),
        buffers=(values, sums, wide, narrow, carry),
        blocks=Extent(LENGTH, 1024),
        warps=1,
        steps=(
            Const(u, Pattern(PatternKind.UPPER)),
            Const(lower, Pattern(PatternKind.LOWER, Index.of(-1))),
            Const(ones, Pattern(PatternKind.ONES)),
            Const(s, ZERO),
            Const(zero, ZERO),
            Loop(
                "i",
                Extent.of(4),
                (
                    Load(left, rows_of(values, place)),
                    Load(right, rows_of(values, place)),
                    Mma(au, left, u, s),
                    Mma(acc, lower, right, zero),
                    Store(rows_of(wide), acc),
                    SYNC,
                    Copy(rows_of(narrow), rows_of(wide)),
                    SYNC,
                    Load(la, rows_of(narrow)),
                    Mma(acc, la, ones, au),
                    Store(rows_of(sums, place), acc),
                    Store(rows_of(wide), acc),
                    SYNC,
                    Copy(rows_of(carry), View.strided(wide, Index.of(255), 16, 16, 0, 0)),
                    SYNC,
                    Load(s, rows_of(carry)),
                ),
            ),
        ),
    )


def block_reduction() -> Program:
    """Return a reduction by two warps, whose partial sums meet in the block's shared memory."""
    values = Buffer("in", "f16", Extent(LENGTH), BufferRole.INPUT)
    sums = Buffer("out", "f32", Extent(LENGTH, 32), BufferRole.OUTPUT)
    result = shared("v", "f32", 256)
    partial = shared("partial", "f32", 32, Space.SHARED)
    return Program(
        name="block_reduction",
        shape=SHAPE,
        ab="f16",
        acc="f32",
        scalars=(Scalar("length", 512),),
        buffers=(values, sums, result, partial),
        blocks=Extent(LENGTH, 512),
        warps=2,
        steps=(
            Const(P, FIRST_ROW),
            Const(V, ZERO),
            Load(A, columns_of(values, BLOCK * 512 + WARP * 256)),
            Mma(V, P, A, V),
            Store(rows_of(result), V),
            SYNC,
            Copy(one_row(partial, WARP * 16), one_row(result)),
            SYNC_BLOCK,
            When(
                (Bound(WARP, Index.of(1)),),
                (Copy(one_row(sums, BLOCK * 16), one_row(partial), one_row(partial, 16)),),
            ),
        ),
    )


CORRECT = (reduction, scan, block_reduction)


@pytest.mark.parametrize("build", CORRECT)
def test_correct_programs_pass(build: Callable[[], Program]) -> None:
    verify(build())
    assert problems(build()) == []


# --- Planting bugs ----------------------------------------------------------------------------


def edit(steps: tuple[Step, ...], path: list[int], new: tuple[Step, ...]) -> tuple[Step, ...]:
    """Replace the step at a path by other steps."""
    at = path[0] - 1
    step = steps[at]
    if len(path) > 1 and isinstance(step, Loop):
        new = (replace(step, body=edit(step.body, path[1:], new)),)
    elif len(path) > 1 and isinstance(step, When):
        inside = edit(step.body + step.otherwise, path[1:], new)
        new = (replace(step, body=inside, otherwise=()),)
    return (*steps[:at], *new, *steps[at + 1 :])


def at(program: Program, path: str) -> Any:
    """Return the step at a path; its fields are looked at freely."""
    return dict(walk(program.steps))[path]


def planted(program: Program, path: str, *new: Step) -> Program:
    """Return the program with other steps in place of the one at `path`."""
    return replace(program, steps=edit(program.steps, [int(n) for n in path.split(".")], new))


def changed(program: Program, path: str, **fields: Any) -> Program:
    """Return the program with fields of the step at `path` replaced."""
    return planted(program, path, replace(at(program, path), **fields))


def with_input_type(program: Program, dtype: str) -> Program:
    """Return the program with another type of input, in the declaration and in every view."""
    old = program.inputs[0]
    new = replace(old, dtype=dtype)
    return replace(
        with_buffers(program, BufferRole.INPUT, new),
        steps=tuple(_swap(s, old, new) for s in program.steps),
    )


def _swap(step: Step, old: Buffer, new: Buffer) -> Step:
    if isinstance(step, Load | Copy) and step.src.buffer == old:
        return replace(step, src=replace(step.src, buffer=new))
    return step


def refused(program: Program, check: str, text: str) -> VerifyError:
    """Assert that `verify` raises, that the named check fires, and that its text is this."""
    with pytest.raises(VerifyError):
        verify(program)
    errors = [error for error in problems(program) if error.check == check]
    fired = sorted({error.check for error in problems(program)})
    assert errors, f"{check} did not fire, but {fired} did"
    assert any(re.search(text, str(error)) for error in errors), [str(error) for error in errors]
    assert str(errors[0]).endswith(f"[check: {check}]")
    return errors[0]


# --- Well-formed ------------------------------------------------------------------------------


def test_positive_counts_refuses_warps() -> None:
    refused(
        replace(reduction(), warps=33), "positive_counts", "a block has 1 to 32 warps, got 33. Use"
    )


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


# --- Fragments and tiles ----------------------------------------------------------------------


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
    program = changed(reduction(), "9", plus=one_row(reduction().scratch[0]))
    refused(program, "element_types", "adds f16 to f32. Copy one of them to the other type first")


def test_element_types_refuses_unknown_types() -> None:
    refused(with_input_type(reduction(), "f12"), "element_types", "unknown element type 'f12'. Kno")


def split_program(source: str, *parts: str) -> Program:
    """Return a program that only splits 16 elements of shared memory."""
    program = reduction()
    wide = Buffer("in", source, Extent(LENGTH), BufferRole.INPUT)
    buffers = tuple(shared(f"x{n}", dtype, 16) for n, dtype in enumerate(parts))
    split = Split(
        tuple(one_row(buffer) for buffer in buffers), one_row(wide, 0, Bound(COL, LENGTH))
    )
    return replace(program, buffers=(wide, *buffers), steps=(split,))


def test_split_into_three_bf16_passes() -> None:
    verify(split_program("f32", "bf16", "bf16", "bf16"))
    verify(split_program("f64", "f32", "f32"))


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (split_program("f32", "bf16", "f16"), "the parts are bf16 and f16. Use one type"),
        (split_program("f16", "bf16"), "the source must be f32 or f64, got f16. Use Copy"),
        (split_program("f32", "f32"), "f32 is not a float narrower than f32. Use f16, bf16 or"),
        (split_program("f32", "s8"), "s8 is not a float narrower than f32"),
    ],
)
def test_element_types_refuses_splits(program: Program, text: str) -> None:
    refused(program, "element_types", text)


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


# --- Barriers and initial values --------------------------------------------------------------


def test_uniform_barrier_refuses_a_branch_on_the_warp() -> None:
    copy = at(block_reduction(), "9.1")
    program = planted(block_reduction(), "9.1", copy, SYNC_BLOCK)
    refused(
        program,
        "uniform_barrier",
        "step 9.2: `sync block` only some warps of the block reach this barrier: step 9 branches",
    )


def test_uniform_barrier_accepts_a_branch_on_the_block() -> None:
    step = When((Bound(BLOCK, Index.of(1)),), (SYNC_BLOCK,))
    verify(planted(block_reduction(), "8", SYNC_BLOCK, step))


def test_defined_before_use_refuses_missing_initialisation() -> None:
    program = planted(reduction(), "2")
    refused(
        program,
        "defined_before_use",
        "step 5: .* reads accumulator 'V', which no earlier step sets on every path. Set it with",
    )


def test_defined_before_use_refuses_unwritten_shared_memory() -> None:
    refused(
        planted(reduction(), "7"),
        "defined_before_use",
        r"reads v\[0\] \(16 such elements\), which no earlier step writes on every path. Fill 'v'",
    )
    copy = at(block_reduction(), "7")
    program = changed(block_reduction(), "7", dst=one_row(copy.dst.buffer))
    refused(program, "defined_before_use", r"reads partial\[16\] \(16 such elements\)")


def test_defined_before_use_counts_a_loop_only_if_it_runs() -> None:
    first, second = at(reduction(), "1"), at(reduction(), "2")
    once = Loop("i", Extent.of(1), (first,))
    verify(planted(reduction(), "1", once))
    perhaps = Loop("i", Extent(LENGTH, 256), (second,))
    refused(planted(reduction(), "2", perhaps), "defined_before_use", "reads accumulator 'V'")


def test_defined_before_use_counts_a_when_if_both_branches_define() -> None:
    step = at(reduction(), "2")
    bounds = (Bound(BLOCK, Index.of(1)),)
    verify(planted(reduction(), "2", When(bounds, (step,), (step,))))
    refused(
        planted(reduction(), "2", When(bounds, (step,))), "defined_before_use", "accumulator 'V'"
    )


def test_defined_before_use_remembers_a_branch_of_the_same_condition() -> None:
    program = block_reduction()
    when = at(program, "9")
    first = replace(when, body=(Const(accumulator("T"), ZERO),))
    second = replace(when, body=(*when.body, Add(V, V, accumulator("T"))))
    verify(planted(program, "9", first, second))
    other = replace(second, bounds=(Bound(BLOCK, Index.of(1)),))
    refused(planted(program, "9", first, other), "defined_before_use", "accumulator 'T'")


# --- Addresses --------------------------------------------------------------------------------


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
    refused(program, "inside_buffer", r"reads in\[255\], but 'in' has 1 element \(.*length = 1\)")
    late = Bound(BLOCK * 256 + ROW + COL * 16, LENGTH + 1)
    program = changed(reduction(), "3", src=replace(copy.src, bounds=(late,)))
    refused(program, "inside_buffer", r"reads in\[1\], but 'in' has 1 element")


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


def test_inside_buffer_tries_many_scalars_within_reason() -> None:
    program = reduction()
    more = tuple(Scalar(name) for name in ("p", "q", "r"))
    verify(replace(program, scalars=(*program.scalars, *more)))


# --- Races ------------------------------------------------------------------------------------


def test_copy_overlap_refuses_shifted_copy() -> None:
    tile = reduction().scratch[0]
    shift = Copy(one_row(tile, 1), one_row(tile))
    program = planted(reduction(), "4", SYNC, shift, SYNC)
    refused(
        program,
        "copy_overlap",
        "reads and writes overlapping parts of 'tile', and the lanes run in no order. Use the same",
    )


def test_copy_overlap_accepts_in_place_and_disjoint() -> None:
    tile = reduction().scratch[0]
    in_place = Copy(one_row(tile), one_row(tile), one_row(tile, 16))
    interleaved = Copy(
        replace(one_row(tile), col_axis=Strided(16, 2)),
        replace(one_row(tile, 1), col_axis=Strided(16, 2)),
    )
    verify(planted(reduction(), "4", SYNC, in_place, SYNC, interleaved, SYNC))


def test_copy_overlap_refuses_repeated_destination() -> None:
    copy = at(reduction(), "9")
    program = changed(
        reduction(), "9", dst=replace(copy.dst, col_axis=replace(copy.dst.col_axis, stride=0))
    )
    refused(program, "copy_overlap", "writes elements of 'out' more than once: strides 0 and 0 for")


def test_copy_overlap_refuses_overlapping_parts() -> None:
    program = split_program("f32", "bf16")
    split = at(program, "1")
    program = changed(program, "1", dsts=(*split.dsts, *split.dsts))
    refused(program, "copy_overlap", "two parts overlap in 'x0'. Give each part its own place")


def test_copy_overlap_compares_the_same_warp() -> None:
    partial = block_reduction().scratch[1]
    apart = Copy(
        View.strided(partial, WARP * 16, 1, 8, 0, 1),
        View.strided(partial, WARP * -16 + 24, 1, 8, 0, 1),
    )
    program = planted(block_reduction(), "8", SYNC_BLOCK, apart, SYNC_BLOCK)
    assert not [e for e in problems(program) if e.check == "copy_overlap"]
    close = replace(apart, src=View.strided(partial, WARP * 4 + 4, 1, 8, 0, 1))
    program = planted(block_reduction(), "8", SYNC_BLOCK, close, SYNC_BLOCK)
    refused(program, "copy_overlap", "overlapping parts of 'partial'")


@pytest.mark.parametrize(
    ("build", "path"),
    [
        (reduction, "4"),
        (reduction, "8"),
        (scan, "6.6"),
        (scan, "6.8"),
        (scan, "6.13"),
        (scan, "6.15"),
        (block_reduction, "6"),
        (block_reduction, "8"),
    ],
)
def test_synced_shared_refuses_every_dropped_sync(build: Callable[[], Program], path: str) -> None:
    refused(planted(build(), path), "synced_shared", "no barrier between. Put Sync")


def test_synced_shared_says_which_steps_and_which_barrier() -> None:
    error = refused(planted(reduction(), "4"), "synced_shared", "")
    assert str(error) == (
        "reduction_16, step 4: `A ← LoadTile(tile[0 … +256], colmajor, stride=16)` reads elements "
        "of 'tile' that step 3 writes, with no barrier between. Put Sync(Scope.WARP) between them."
        "  [check: synced_shared]"
    )
    refused(
        changed(block_reduction(), "8", scope=Scope.WARP),
        "synced_shared",
        r"'partial' that step 7 writes in another warp, .* Put Sync\(Scope.BLOCK\)",
    )


def test_synced_shared_sees_writes_after_reads_and_writes() -> None:
    clear = Copy(one_row(reduction().scratch[1]), one_row(reduction().scratch[1], 16))
    program = replace(reduction(), steps=(*reduction().steps, clear))
    refused(program, "synced_shared", "step 10: .* writes elements of 'v' that step 9 reads, with")
    store = at(reduction(), "7")
    program = planted(reduction(), "7", store, store)
    refused(program, "synced_shared", "step 8: .* writes elements of 'v' that step 7 writes, with")


def test_synced_shared_sees_the_next_iteration() -> None:
    steps = block_reduction().steps
    loop = Loop("i", Extent.of(2), steps[4:])
    program = replace(block_reduction(), steps=(*steps[:4], loop))
    error = refused(
        program,
        "synced_shared",
        "writes elements of 'partial' that step 5.5.1 reads in another warp in an earlier "
        "iteration, with no barrier between. Put .* at the end of the loop's body",
    )
    assert error.path == "5.3"
    once = replace(program, steps=(*steps[:4], replace(loop, count=Extent.of(1))))
    verify(once)
    ended = replace(program, steps=(*steps[:4], replace(loop, body=(*loop.body, SYNC_BLOCK))))
    verify(ended)


def test_synced_shared_needs_no_barrier_for_disjoint_parts() -> None:
    result = reduction().scratch[1]
    rows = [Copy(one_row(result, 32 + 16 * n), one_row(result)) for n in range(4)]
    verify(planted(reduction(), "8", SYNC, *rows, SYNC))
    loop = Loop("i", Extent.of(8), (Copy(one_row(result, ITERATION * 16 + 16), one_row(result)),))
    verify(planted(reduction(), "8", SYNC, loop, SYNC))
    close = Loop("i", Extent.of(8), (Copy(one_row(result, ITERATION * 8 + 16), one_row(result)),))
    refused(planted(reduction(), "8", SYNC, close, SYNC), "synced_shared", "in an earlier iterat")


def test_synced_shared_refuses_all_warps_writing_one_place() -> None:
    copy = at(block_reduction(), "7")
    program = changed(block_reduction(), "7", dst=one_row(copy.dst.buffer))
    refused(
        program,
        "synced_shared",
        "writes elements of 'partial' that the same step writes in another warp. Make the offset",
    )


def test_synced_shared_lets_a_warp_keep_its_part() -> None:
    program = block_reduction()
    partial = program.scratch[1]
    double = Copy(
        one_row(partial, WARP * 16), one_row(partial, WARP * 16), one_row(partial, WARP * 16)
    )
    verify(planted(program, "8", SYNC, double, SYNC_BLOCK))
    other = replace(double, src=one_row(partial, WARP * -16 + 16))
    refused(planted(program, "8", SYNC, other, SYNC_BLOCK), "synced_shared", "in another warp")


def test_synced_shared_knows_that_branches_of_one_when_are_other_warps() -> None:
    program = block_reduction()
    result, partial = program.scratch
    when = at(program, "9")
    clear = Copy(one_row(result), one_row(result, 16))
    verify(changed(program, "9", otherwise=(clear,)))
    shared_clear = Copy(one_row(partial), one_row(result, 16))
    refused(
        changed(program, "9", otherwise=(shared_clear,)),
        "synced_shared",
        "step 9.2: .* writes elements of 'partial' that step 9.1 reads in another warp",
    )
    uniform = replace(when, bounds=(Bound(BLOCK, Index.of(1)),), otherwise=(when.body[0],))
    verify(planted(program, "9", When((Bound(WARP, Index.of(1)),), (uniform,))))


def test_synced_shared_does_not_trust_a_barrier_that_may_not_run() -> None:
    program = planted(reduction(), "4", When((Bound(BLOCK, Index.of(1)),), (SYNC,)))
    refused(program, "synced_shared", "'tile' that step 3 writes")
    program = planted(reduction(), "4", Loop("i", Extent(LENGTH, 256), (SYNC,)))
    refused(program, "synced_shared", "'tile' that step 3 writes")
    verify(planted(reduction(), "4", Loop("i", Extent.of(2), (SYNC,))))


# --- Races, against a search through everything that the warps do ------------------------------


class Touch(NamedTuple):
    """One access of one warp: the element, whether it is written, and the barriers before it."""

    element: tuple[str, int]
    writes: bool
    block_barriers: int
    barriers: int
    step: int


def touches(program: Program, warp: int) -> list[Touch]:
    """Run the program for one warp, as far as shared memory goes."""
    found: list[Touch] = []
    counts = {"block": 0, "any": 0, "step": 0}

    def touch(view: View, env: dict[str, int], *, writes: bool) -> None:
        if view.buffer.space is Space.GLOBAL:
            return
        owner = (
            view.buffer.name if view.buffer.space is Space.SHARED else f"{view.buffer.name}{warp}"
        )
        for col in range(view.cols):
            place = view.address.evaluate({**env, "row": 0, "col": col})
            found.append(
                Touch((owner, place), writes, counts["block"], counts["any"], counts["step"])
            )

    def run(steps: tuple[Step, ...], env: dict[str, int]) -> None:
        for step in steps:
            counts["step"] += 1
            if isinstance(step, Sync):
                counts["any"] += 1
                counts["block"] += step.scope is Scope.BLOCK
            elif isinstance(step, Loop):
                for i in range(step.count.constant or 0):
                    run(step.body, {**env, step.var: i})
            elif isinstance(step, When):
                holds = all(b.lhs.evaluate(env) < b.rhs.evaluate(env) for b in step.bounds)
                run(step.body if holds else step.otherwise, env)
            elif isinstance(step, Copy):
                touch(step.src, env, writes=False)
                touch(step.dst, env, writes=True)

    run(program.steps, {"warp": warp, "block": 0})
    return found


def races(program: Program) -> bool:
    """Whether two accesses to an element, one of them writing, have no barrier between."""
    traces = [touches(program, warp) for warp in range(program.warps)]
    for (one, first), (two, second) in itertools.product(enumerate(traces), repeat=2):
        for x, y in itertools.product(first, second):
            if x.element != y.element or not (x.writes or y.writes):
                continue
            if one == two and x.step != y.step and x.barriers == y.barriers:
                return True
            if one != two and x.block_barriers == y.block_barriers:
                return True
    return False


class RandomSteps:
    """Makes up steps that read and write 1x4 rectangles of shared memory."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.far = Buffer("far", "f32", Extent(LENGTH), BufferRole.INPUT)
        self.near = (shared("own", "f32", 64), shared("all", "f32", 64, Space.SHARED))

    def program(self) -> Program:
        steps = self.steps(self.choose.randint(2, 6), loops=(), diverged=False)
        buffers = (self.far, *reduction().outputs, *self.near)
        return replace(reduction(), buffers=buffers, warps=2, steps=steps)

    def steps(self, count: int, loops: tuple[str, ...], *, diverged: bool) -> tuple[Step, ...]:
        return tuple(self.step(loops, diverged=diverged) for _ in range(count))

    def step(self, loops: tuple[str, ...], *, diverged: bool) -> Step:
        kind = self.choose.choice(("read", "write", "move", "sync", "sync", "loop", "when"))
        if kind == "sync":
            return Sync(Scope.WARP if diverged else self.choose.choice(tuple(Scope)))
        if kind == "loop" and len(loops) < 2:
            var = "ij"[len(loops)]
            body = self.steps(self.choose.randint(1, 3), (*loops, var), diverged=diverged)
            return Loop(var, Extent.of(self.choose.randint(1, 3)), body)
        if kind == "when" and not diverged:
            symbol = self.choose.choice(("warp", *loops))
            body = self.steps(2, loops, diverged=True)
            otherwise = self.steps(1, loops, diverged=True)
            return When((Bound(Index.symbol(symbol), Index.of(1)),), body, otherwise)
        far = View.strided(self.far, Index(), 1, 4, 0, 1)
        target = far if kind == "read" else self.view(loops)
        return Copy(target, far if kind == "write" else self.view(loops))

    def view(self, loops: tuple[str, ...]) -> View:
        offset = Index.of(self.choose.choice((0, 4, 8)))
        for name in ("warp", *loops):
            offset = offset + Index.symbol(name) * self.choose.choice((0, 2, 4, 8))
        return View.strided(self.choose.choice(self.near), offset, 1, 4, 0, 1)


def has_barrier_in_branch_or_loop(program: Program) -> bool:
    return any("." in path and isinstance(step, Sync) for path, step in walk(program.steps))


@pytest.mark.parametrize("first_seed", range(0, 1000, 100))
def test_synced_shared_finds_every_race_and_few_others(first_seed: int) -> None:
    outcomes = set()
    for seed in range(first_seed, first_seed + 100):
        program = RandomSteps(seed).program()
        found = bool(list(CHECKS["synced_shared"](program)))
        really = races(program)
        outcomes.add(really)
        assert found or not really, f"seed {seed}: missed a race\n{listing(program)}"
        if not has_barrier_in_branch_or_loop(program):
            assert found == really, f"seed {seed}: no race here\n{listing(program)}"
    assert outcomes == {True, False}


# --- The whole --------------------------------------------------------------------------------


def test_every_check_has_a_docstring_and_a_test_of_its_text() -> None:
    files = (Path(__file__), Path(__file__).with_name("test_writes.py"))
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    for name, check in CHECKS.items():
        assert check.__doc__
        assert f'"{name}"' in text


def test_verify_is_remembered() -> None:
    _verify_once.cache_clear()
    verify(scan())
    verify(scan())
    assert _verify_once.cache_info().hits == 1
