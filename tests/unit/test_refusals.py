"""Names, counts, symbols, roles and tiles: each check refuses the bug that it is named for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planted import (
    ITERATION,
    LENGTH,
    SCRATCH,
    SHAPE,
    SYNC,
    A,
    P,
    V,
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
    rows_of,
    scan,
    shared,
    with_buffers,
)
from tcusim.algorithms import build
from tcusim.machine.shapes import MmaShape, shape_of
from tcusim.program.checks.tiles import tile_is_aligned
from tcusim.program.checks.verifier import problems, verify
from tcusim.program.grammar import (
    BLOCK,
    BLOCK_ROW,
    COL,
    WARP,
    WARP_COL,
    WARP_ROW,
    Add,
    Assign,
    Bound,
    Buffer,
    BufferRole,
    Const,
    Extent,
    Formula,
    Frag,
    Index,
    Loop,
    Operation,
    Pattern,
    PatternKind,
    Prefix,
    Program,
    Role,
    Scalar,
    Strided,
    sum_of,
)


def read_otherwise(
    program: Program, path: str, *, row: Any = (), col: Any = (), **fields: Any
) -> Program:
    """Return the program with another source of the step at a path; row, col: fields of an axis."""
    view = at(program, path).src
    row_axis, col_axis = replace(view.row_axis, **dict(row)), replace(view.col_axis, **dict(col))
    view = replace(view, row_axis=row_axis, col_axis=col_axis)
    return changed(program, path, src=replace(view, **fields))


def mapped(formula: Any) -> Program:
    """Return the program with a Map for its last copy; formula: of the view that is read."""
    copy = at(reduction(), "9")
    return planted(reduction(), "9", Assign(copy.dst, formula(copy.src)))


def with_declared(*buffers: Buffer) -> Program:
    program = reduction()
    return replace(program, buffers=(*program.buffers, *buffers))


TILE = reduction().scratch[0]
SMALL = Frag("A", Role.B, shape_of("8x32x16"), "f16")
NAMED_TILE = Frag("tile", Role.B, SHAPE, "f16")
ROWS = build("scan_panel", ab="f32", segment_size=64)
PREFIX: Any = at(ROWS, "1")
HALVES = replace(ROWS.inputs[0], dtype="f16")

# By check: the text of its message (a regular expression), and a program with the bug.
REFUSED: dict[str, tuple[tuple[str, Program], ...]] = {
    "positive_counts": (
        (
            "a Load takes a tile, or a part of each of its elements. Assign the value before",
            changed(reduction(), "5", value=sum_of(1.0, at(reduction(), "5").src)),
        ),
        (
            "a Load has a value of one rectangle, got 0. Assign the value before",
            changed(reduction(), "5", value=1.0),
        ),
        (
            "a Prefix has a value of one rectangle, got 2. Assign the value before",
            changed(ROWS, "1", value=sum_of(PREFIX.src, PREFIX.dst)),
        ),
        (
            "a Prefix does not take a split. Assign its parts before",
            changed(ROWS, "1", value=Formula(Operation.SPLIT, (PREFIX.src,), "bf16")),
        ),
        ("a block has 1 to 32 warps, got 33. Use", replace(reduction(), warps=33)),
        (
            "6 warps do not stand in rows of 4. Let warp_columns divide",
            replace(reduction(), warps=6, warp_columns=4),
        ),
        ("rows must be at least 1, got 0", replace(reduction(), rows=0)),
        (
            "blocks is divided by 0. Divide by at least 1",
            replace(reduction(), blocks=Extent(LENGTH, 0)),
        ),
        (
            "the size of 'tile' must be at least 1, got 0",
            with_buffers(reduction(), SCRATCH, shared("tile", "f16", 0), shared("v", "f32", 256)),
        ),
        (
            "'length' must be a multiple of at least 1, got 0. Use 1",
            replace(reduction(), scalars=(Scalar("length", 0),)),
        ),
        (
            "step 6: `for i .*` the loop's count must be at least 0",
            changed(scan(), "6", count=Extent.of(-1)),
        ),
        (
            "a split is no term. Assign its parts in a step before",
            mapped(lambda view: sum_of(Formula(Operation.SPLIT, (view,), "bf16"), view)),
        ),
        (
            "only a split has parts. Assign each rectangle in a step of its own",
            changed(reduction(), "3", parts=(one_row(TILE),)),
        ),
        (
            "√ takes 1 term, got 2",
            mapped(lambda view: Formula(Operation.ROOT, (view, view))),
        ),
        ("/ takes 2 terms, got 1", mapped(lambda view: Formula(Operation.OVER, (view,)))),
        (r"float32 has no 0\.1", mapped(lambda view: Formula(Operation.TIMES, (view, 0.1)))),
        (
            "a constant is a number, got NaN. Read NaN from a rectangle",
            mapped(lambda view: Formula(Operation.TIMES, (view, float("nan")))),
        ),
        ("names no rectangle", mapped(lambda view: Formula(Operation.PLUS, (1.0, 2.0)))),
        (
            "the rectangle of 'v' is 0x16; it needs at least one row",
            read_otherwise(reduction(), "9", row={"count": 0}),
        ),
        (
            "strides of 'v' are 0 and -1; .* must not be negative",
            read_otherwise(reduction(), "9", col={"stride": -1}, offset=Index.of(15)),
        ),
    ),
    "distinct_names": (
        (
            "fragment 'tile' has the name of a buffer. Choose another",
            changed(changed(reduction(), "5", dst=NAMED_TILE), "6", b=NAMED_TILE),
        ),
        ("buffer 'in' has the name of a buffer", with_declared(shared("in", "f32", 16))),
        (
            "scalar 'a b' must be an identifier",
            replace(reduction(), scalars=(Scalar("length"), Scalar("a b"))),
        ),
        (
            r"fragment 'P\^T' must be an identifier",
            changed(reduction(), "1", dst=matrix_a("P^T")),
        ),
    ),
    "symbols_in_scope": (
        (
            "step 7: .* the pattern's offset names 'i'",
            replace(
                scan(),
                steps=(
                    *scan().steps,
                    Const(accumulator("S"), Pattern(PatternKind.ROW, ITERATION)),
                ),
            ),
        ),
        (
            "loop variable 'i' already has a value here. Choose",
            planted(scan(), "6.6", Loop("i", Extent.of(2), (SYNC,))),
        ),
        *(
            (
                f"the condition names '{name}', which has no value",
                changed(block_reduction(), "9", bounds=(Bound(Index.symbol(name), Index.of(1)),)),
            )
            for name in ("row", "col")
        ),
        (
            "blocks names 'block', which .* In scope: length",
            replace(reduction(), blocks=Extent(BLOCK)),
        ),
        ("the loop's count names 'n'", changed(scan(), "6", count=Extent(Index.symbol("n")))),
    ),
    "buffer_roles": (
        (
            "reads output 'out', which is visible only after the launch",
            changed(
                block_reduction(), "9.1", src=one_row(block_reduction().outputs[0], BLOCK * 16)
            ),
        ),
        (
            "writes input 'in'. Inputs are read only; write an output",
            changed(reduction(), "3", dst=columns_of(reduction().inputs[0])),
        ),
        (
            "buffer 'v' is not declared. Declared: in, out, tile",
            with_buffers(reduction(), SCRATCH, TILE),
        ),
        (
            r"'v' is declared as scratch f32\[512\] .* used as scratch f32\[256\]",
            with_buffers(reduction(), SCRATCH, TILE, shared("v", "f32", 512)),
        ),
        (
            "scratch 'far' must be shared memory .* got space global, size length",
            with_declared(Buffer("far", "f32", Extent(LENGTH), SCRATCH)),
        ),
        (
            "'near' has the role input and must be in global memory, got the space warp. Declare",
            with_declared(replace(shared("near", "f16", 16), role=BufferRole.INPUT)),
        ),
    ),
    "operand_roles": (
        (
            "`V ← A·P [+] V` operand a must be matrix_a, got matrix_b 'A'. Load the values",
            changed(reduction(), "6", a=A, b=P),
        ),
        (
            "reduction_16, step 6: `V ← P·V [+] V` operand b must be matrix_b, got accumulator 'V'."
            " Store it to shared memory and load it as matrix_b.  ",
            changed(reduction(), "6", b=V),
        ),
        (
            "result d must be an accumulator, got matrix_a 'P'. Only acc",
            changed(reduction(), "6", d=P),
        ),
        (
            "the source must be an accumulator, got matrix_a 'P'",
            changed(reduction(), "7", src=P),
        ),
        (
            "operand b must be an accumulator, got matrix_b 'A'",
            planted(reduction(), "6", at(reduction(), "6"), Add(V, V, A)),
        ),
    ),
    "fragment_shapes": (
        (
            "'A' has shape 8x32x16, the program 16x16x16. Build",
            changed(changed(reduction(), "5", dst=SMALL), "6", b=SMALL),
        ),
        (
            "'A' of shape 16x16x16 is 16x16, the tile of 'tile' is 8x16",
            read_otherwise(reduction(), "5", row={"count": 8}),
        ),
    ),
    "equal_rectangles": (
        (
            "'out' is 1x16, 'v' is 1x8. Use one size; a stride of 0",
            read_otherwise(reduction(), "9", col={"count": 8}),
        ),
    ),
    "rows_of_sums": (
        (
            "the prefix sums of 32x32 elements go to 'scanned', a rectangle of 32x8. Give each row",
            changed(ROWS, "1", dst=replace(PREFIX.dst, col_axis=Strided(8, 1))),
        ),
        (
            "the sums of 32x32 elements go to 'ends', a rectangle of 4x1",
            changed(ROWS, "1", totals=replace(PREFIX.totals, row_axis=Strided(4, 1))),
        ),
        (
            "adds up rows of f32 in f32, and 'in' is f16. Use Assign to convert it",
            with_buffers(read_otherwise(ROWS, "1", buffer=HALVES), BufferRole.INPUT, HALVES),
        ),
    ),
    "copy_overlap": (
        (
            "writes elements of 'scanned' more than",
            changed(ROWS, "1", dst=replace(PREFIX.dst, row_axis=Strided(32, 16))),
        ),
        (
            "reads and writes overlapping parts",
            changed(ROWS, "1", src=replace(PREFIX.dst, offset=PREFIX.dst.offset + 1)),
        ),
    ),
    "one_layout": (
        (
            "matrix_b 'A' is loaded row_major here and col_major before; the layout is part",
            planted(
                reduction(),
                "5",
                at(reduction(), "5"),
                replace(at(reduction(), "5"), value=rows_of(TILE)),
                at(reduction(), "6"),
            ),
        ),
        (
            "'P' is matrix_a f16 of 16x16x16 here and accumulator f32 of",
            changed(reduction(), "1", dst=accumulator("P")),
        ),
    ),
    "tile_layout": (
        (
            "ldm must be at least 16 for a col_major tile of 16x16, got 8. To",
            read_otherwise(reduction(), "5", col={"stride": 8}),
        ),
        (
            "has strides 2 and 16; one of them must be 1. Copy the tile",
            read_otherwise(reduction(), "5", row={"stride": 2}),
        ),
        (
            "has the bound col < length, but a tile is .* stored whole",
            changed(
                block_reduction(),
                "3",
                src=columns_of(block_reduction().inputs[0], 0, Bound(COL, LENGTH)),
            ),
        ),
    ),
    "alignment": (
        (
            r"the address in\[488\*block \+ 248\*warp\] must be a multiple of 32 bytes, but the "
            r"term 488\*block makes it a multiple of 16 only \(488 elements of 2 bytes\). Pad the",
            read_otherwise(block_reduction(), "3", offset=BLOCK * 488 + WARP * 248),
        ),
        (
            "the term 1 makes it a multiple of 2 only",
            read_otherwise(block_reduction(), "3", offset=Index.of(1)),
        ),
        (
            "ldm = 18 elements of 2 bytes is 36 bytes, but must be a mult",
            read_otherwise(block_reduction(), "3", col={"stride": 18}),
        ),
    ),
}


@pytest.mark.parametrize(
    ("check", "text", "program"),
    [
        pytest.param(check, text, program, id=f"{check}: {text[:40]}")
        for check, cases in REFUSED.items()
        for text, program in cases
    ],
)
def test_each_check_refuses_its_bug(check: str, text: str, program: Program) -> None:
    refused(program, check, text)


def test_an_error_has_the_check_the_program_and_the_step() -> None:
    load = at(scan(), "6.1")
    place = load.src.offset + Index.symbol("j") * 256
    error = refused(
        read_otherwise(scan(), "6.1", offset=place),
        "symbols_in_scope",
        "the offset into 'in' names 'j', which has no value here. "
        "In scope: block, block_col, i, length, warp",
    )
    assert (error.check, error.program, error.path) == ("symbols_in_scope", "scan_256n", "6.1")
    assert error.step.startswith("A ← LoadTile(in[1024*block + 256*i + 256*j … +256]")


@pytest.mark.parametrize(
    ("place", "name", "fields"),
    [
        (256 * WARP_ROW + 256 * WARP_COL, "warp_col", {"warps": 4, "warp_columns": 2}),
        (BLOCK_ROW, "block_row", {"rows": 2}),
    ],
)
def test_a_row_has_an_index_where_there_are_several(
    place: Index, name: str, fields: dict[str, Any]
) -> None:
    load = at(reduction(), "5")
    program = read_otherwise(reduction(), "5", offset=load.src.offset + place)
    error = refused(program, "symbols_in_scope", f"names '{name}', which has no value here")
    assert error.path == "5"
    found = {problem.check for problem in problems(replace(program, **fields))}
    assert "symbols_in_scope" not in found


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


def test_what_is_no_bug_is_accepted() -> None:
    # An operand may be one column again and again; a scalar's multiple aligns an address.
    verify(read_otherwise(reduction(), "5", col={"stride": 0}))
    verify(read_otherwise(block_reduction(), "3", offset=LENGTH - 512 + WARP * 256))
    assert isinstance(PREFIX, Prefix)
    assert PREFIX.totals is not None


def test_alignment_asks_nothing_of_other_families() -> None:
    tile = rows_of(shared("tile", "f16", 1000), 3)
    assert not tile_is_aligned(tile, SHAPE, "f16", "f32")
    assert tile_is_aligned(tile, MmaShape(16, 16, 16), "f16", "f32")
    assert tile_is_aligned(tile, shape_of("16x8x16"), "f16", "f32")
