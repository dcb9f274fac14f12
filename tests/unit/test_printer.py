"""`listing` prints the paper's notation, and tells different programs apart."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tcusim.machine.shapes import shape_of
from tcusim.program.grammar import (
    BLOCK,
    COL,
    ROW,
    WARP,
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
    Load,
    Loop,
    Mma,
    Operation,
    Pattern,
    PatternKind,
    Prefix,
    Program,
    Ranges,
    Role,
    Scalar,
    Scope,
    Space,
    Store,
    Strided,
    Sync,
    View,
    When,
    part_of,
    split,
    sum_of,
    walk,
)
from tcusim.program.printer import line, listing

if TYPE_CHECKING:
    from tcusim.program.grammar import Step

SHAPE = shape_of("16x16x16")
LENGTH = Index.symbol("length")
IN = Buffer("in", "f16", Extent(LENGTH), BufferRole.INPUT)
OUT = Buffer("out", "f32", Extent(LENGTH, 16), BufferRole.OUTPUT)
TILE = Buffer("tile", "f16", Extent.of(256), BufferRole.SCRATCH, Space.WARP)
RESULT = Buffer("v", "f32", Extent.of(256), BufferRole.SCRATCH, Space.SHARED)
P = Frag("P", Role.A, SHAPE, "f16")
A = Frag("A", Role.B, SHAPE, "f16")
V = Frag("V", Role.ACC, SHAPE, "f32")


def tile(buffer: Buffer, offset: Index | int = 0, *bounds: Bound) -> View:
    return View.strided(buffer, Index.of(offset), 16, 16, 1, 16, bounds)


def program() -> Program:
    """Return Reduction_16 over every second tile, with a ragged end."""
    i = Index.symbol("i")
    place = BLOCK * 512 + i * 256
    inside = Bound(place + ROW + COL * 16, LENGTH)
    row = View.strided(RESULT, Index(), 1, 16, 0, 1)
    return Program(
        name="reduction_16",
        shape=SHAPE,
        ab="f16",
        acc="f32",
        scalars=(Scalar("length", 16),),
        buffers=(IN, OUT, TILE, RESULT),
        blocks=Extent(LENGTH, 512),
        warps=1,
        steps=(
            Const(P, Pattern(PatternKind.ROW), "Alg. 1 line 1"),
            Loop(
                "i",
                Extent.of(2),
                (
                    Const(V, Pattern(PatternKind.ZEROS)),
                    When(
                        (Bound(place + 255, LENGTH),),
                        (Load(A, tile(IN, place), "Alg. 1 line 3"),),
                        (
                            Assign(tile(TILE), tile(IN, place, inside)),
                            Sync(Scope.WARP),
                            Load(A, tile(TILE)),
                        ),
                    ),
                    Mma(V, P, A, V, "Alg. 1 line 4"),
                    Store(View.strided(RESULT, Index(), 16, 16, 16, 1), V),
                    Sync(Scope.BLOCK),
                    Assign(
                        View.strided(
                            OUT, BLOCK * 32 + i * 16, 1, 16, 0, 1, (Bound(COL * 16, LENGTH),)
                        ),
                        row,
                        "Alg. 1 line 5",
                    ),
                    Sync(Scope.BLOCK),
                ),
            ),
        ),
        source="[DAKKAK19] section 4.1",
    )


GOLDEN = """\
program reduction_16
  source       [DAKKAK19] section 4.1
  tile         16x16x16, f16 to f32
  grid         ceil(length / 512) blocks of 1 warp
  scalar       length, a multiple of 16
  input        in: f16[length]
  output       out: f32[ceil(length / 16)]
  scratch      tile: f16[256] of each warp
  scratch      v: f32[256] of the block
  matrix_a     P: f16
  matrix_b     A: f16
  accumulator  V: f32

1      P ← ones in row 0                                                          Alg. 1 line 1
2      for i ← 0; i < 2; i ← i + 1
2.1      V ← 0
2.2      if 512*block + 256*i + 255 < length
2.2.1      A ← LoadTile(in[512*block + 256*i … +256], colmajor, stride=16)        Alg. 1 line 3
         else
2.2.2      tile[row + 16*col] ← in[512*block + 256*i + row + 16*col < length]  16x16
2.2.3      sync warp
2.2.4      A ← LoadTile(tile[0 … +256], colmajor, stride=16)
2.3      V ← P·A + V                                                              Alg. 1 line 4
2.4      StoreTile(v[0 … +256], rowmajor, stride=16) ← V
2.5      sync block
2.6      out[32*block + 16*i + col where 16*col < length] ← v[col]  1x16          Alg. 1 line 5
2.7      sync block
"""


def test_listing_is_this_text() -> None:
    assert listing(program()) == GOLDEN


def test_equal_programs_list_equally() -> None:
    assert listing(program()) == listing(program())


def test_every_step_is_listed_under_its_path() -> None:
    text = listing(program())
    for path, step in walk(program().steps):
        (found,) = [row for row in text.splitlines() if row.split(" ")[0] == path]
        assert line(step) in found


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "reduction"},
        {"source": ""},
        {"shape": shape_of("32x8x16")},
        {"ab": "bf16"},
        {"acc": "f16"},
        {"scalars": (Scalar("length"),)},
        {"buffers": (replace(IN, dtype="bf16"), OUT, TILE, RESULT)},
        {"buffers": (IN, replace(OUT, size=Extent(LENGTH, 32)), TILE, RESULT)},
        {"buffers": (IN, OUT, replace(TILE, space=Space.SHARED), RESULT)},
        {"buffers": (IN, OUT, RESULT, TILE)},
        {"blocks": Extent(LENGTH, 256)},
        {"warps": 2},
        {"steps": program().steps[:1]},
    ],
)
def test_programs_that_differ_list_differently(fields: dict[str, object]) -> None:
    assert listing(replace(program(), **fields)) != GOLDEN  # type: ignore[arg-type]


def test_print_shows_the_listing() -> None:
    assert str(program()) == GOLDEN
    assert f"{program()}" == GOLDEN


VIEW = View.strided(RESULT, Index.of(16), 2, 16, 16, 1)
COLUMN = View.strided(RESULT, Index(), 2, 1, 1, 1)


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (Const(V, Pattern(PatternKind.ONES)), "V ← 1"),
        (Const(V, Pattern(PatternKind.ZEROS, Index.of(2))), "V ← 0 (offset 2)"),
        (Const(A, Pattern(PatternKind.COL, Index.symbol("i") + 1)), "A ← ones in column i + 1"),
        (Const(A, Pattern(PatternKind.UPPER)), "A ← 1 where row <= col"),
        (Const(A, Pattern(PatternKind.UPPER, Index.of(16))), "A ← 1 where row <= col + 16"),
        (Const(P, Pattern(PatternKind.LOWER, Index.of(-1))), "P ← 1 where col <= row - 1"),
        (
            Load(A, View.strided(IN, WARP * 8, 16, 16, 2, 32)),
            "A ← LoadTile(in[8*warp + 2*row + 32*col], 16x16)",
        ),
        (
            Load(A, replace(tile(IN), row_axis=Strided(8, tile(IN).row_axis.stride))),
            "A ← LoadTile(in[0 … +248], colmajor, stride=16, 8x16)",
        ),
        (
            Load(A, tile(IN, 0, Bound(ROW, LENGTH))),
            "A ← LoadTile(in[0 … +256 where row < length], colmajor, stride=16)",
        ),
        (Add(V, V, replace(V, name="T")), "V ← V + T  (rounded)"),
        (
            Assign(VIEW, sum_of(VIEW, VIEW)),
            "v[16 + 16*row + col] ← v[16 + 16*row + col] + v[16 + 16*row + col]  2x16",
        ),
        (
            Assign(
                View.strided(OUT, BLOCK, 1, 1, 1, 1), View.strided(RESULT, Index(), 1, 1, 16, 1)
            ),
            "out[block] ← v[0]  1x1",
        ),
        (
            Assign(VIEW, replace(VIEW, row_axis=Strided(1, VIEW.row_axis.stride))),
            "v[16 + 16*row + col] ← v[16 + col]  2x16, 1x16",
        ),
        (
            split((VIEW, replace(VIEW, offset=Index.of(64))), replace(VIEW, buffer=IN)),
            "v[16 + 16*row + col], v[64 + 16*row + col] ← split(in[16 + 16*row + col])  2x16",
        ),
        (
            Assign(
                VIEW,
                Formula(
                    Operation.TIMES,
                    (Formula(Operation.PLUS, (VIEW, 0.1)), Formula(Operation.ROOT, (VIEW,))),
                ),
            ),
            "v[16 + 16*row + col] ← (v[16 + 16*row + col] + 0.1) · √v[16 + 16*row + col]  2x16",
        ),
        (
            Prefix(VIEW, replace(VIEW, buffer=IN), COLUMN, exclusive=True),
            "v[16 + 16*row + col], v[row] ← exclusive prefix sums and sums of rows of "
            "in[16 + 16*row + col]  2x16, 2x1, 2x16",
        ),
        (
            Prefix(VIEW, replace(VIEW, buffer=IN), reverse=True),
            "v[16 + 16*row + col] ← suffix sums of rows of in[16 + 16*row + col]  2x16",
        ),
        (
            Prefix(COLUMN, Formula(Operation.TIMES, (VIEW, VIEW))),
            "v[row] ← sums of rows of v[16 + 16*row + col]²  2x1, 2x16",
        ),
        (
            Prefix(COLUMN, replace(VIEW, buffer=IN)),
            "v[row] ← sums of rows of in[16 + 16*row + col]  2x1, 2x16",
        ),
        (
            Assign(
                VIEW,
                replace(
                    VIEW,
                    bounds=(Bound(VIEW.address, LENGTH), Bound(COL, Index.of(9)), Bound(ROW, COL)),
                ),
            ),
            "v[16 + 16*row + col] ← "
            "v[16 + 16*row + col < length where col < 9 and row < col]  2x16",
        ),
        (Sync(Scope.BLOCK), "sync block"),
        (Loop("i", Extent(LENGTH, 256), ()), "for i ← 0; i < ceil(length / 256); i ← i + 1"),
        (
            When((Bound(WARP, Index.of(1)), Bound(BLOCK, LENGTH)), ()),
            "if warp < 1 and block < length",
        ),
        (When((), ()), "if true"),
        (
            When((Bound(WARP, Index.of(1)),), (), not_finite=VIEW),
            "if warp < 1 and any of v[16 + 16*row + col] is not finite  2x16",
        ),
        (When((), (), longer=Ranges("r", 4)), "if any of r has more than 1 element"),
        (
            When((), (), not_finite=VIEW, longer=Ranges("r", 4)),
            "if any of r has more than 1 element and any of v[16 + 16*row + col] is not finite  "
            "2x16",
        ),
        (
            When((Bound(WARP, Index.of(1)),), (), longer=Ranges("r", 4)),
            "if warp < 1 and any of r has more than 1 element",
        ),
        (
            Assign(VIEW, part_of(Operation.NOT_FINITE, VIEW)),
            "v[16 + 16*row + col] ← not_finite(v[16 + 16*row + col])  2x16",
        ),
        (
            Assign(VIEW, sum_of(part_of(Operation.FRACTION, VIEW), VIEW, to_odd=True)),
            "v[16 + 16*row + col] ← "
            "odd(fraction(v[16 + 16*row + col]) + v[16 + 16*row + col])  2x16",
        ),
    ],
)
def test_line_is_this_text(step: Step, text: str) -> None:
    assert line(step) == text


def test_fragments_of_another_shape_are_marked() -> None:
    other = replace(A, shape=shape_of("8x32x16"))
    odd = replace(program(), steps=(Load(other, tile(IN)),))
    assert "  matrix_b     A: f16 of 8x32x16\n" in listing(odd)


def test_a_program_without_steps_has_a_listing() -> None:
    assert listing(replace(program(), steps=())).startswith("program reduction_16\n")


def test_a_prompt_names_a_program_in_a_line() -> None:
    assert repr(program()) == "Program('reduction_16', 16x16x16, f16 to f32, 13 steps)"
