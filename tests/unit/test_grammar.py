"""The grammar: arithmetic of expressions, views and fragments, and ways through a program."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest

from tcusim.algorithms import build
from tcusim.machine.shapes import MmaShape
from tcusim.program.grammar import (
    BLOCK,
    COL,
    ROW,
    Add,
    Assign,
    Bound,
    Buffer,
    BufferRole,
    Const,
    Extent,
    Frag,
    Index,
    Load,
    Loop,
    Mma,
    Pattern,
    PatternKind,
    Role,
    Scope,
    Step,
    Store,
    Sync,
    View,
    When,
    accesses,
    split,
    sum_of,
    walk,
)

LENGTH = Index.symbol("length")


SHAPE = MmaShape(3, 4, 5)


BUFFER = Buffer("in", "f16", Extent(LENGTH), BufferRole.INPUT)


# --- Expressions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extent", "length", "value", "text"),
    [
        (Extent(LENGTH), 7, 7, "length"),
        (Extent(LENGTH, 256), 0, 0, "ceil(length / 256)"),
        (Extent(LENGTH, 256), 1, 1, "ceil(length / 256)"),
        (Extent(LENGTH, 256), 256, 1, "ceil(length / 256)"),
        (Extent(LENGTH, 256), 257, 2, "ceil(length / 256)"),
        (Extent(LENGTH * 2 + 1, 3), 4, 3, "ceil((2*length + 1) / 3)"),
        (Extent.of(5), 1, 5, "5"),
        (Extent(Index.of(7), 2), 1, 4, "4"),
    ],
)
def test_extents(extent: Extent, length: int, value: int, text: str) -> None:
    assert extent.evaluate({"length": length}) == value
    assert str(extent) == text
    assert extent.constant == (None if extent.index.terms else value)
    assert Extent.of(extent) is extent


def test_bounds_as_text() -> None:
    assert str(Bound(ROW * 16 + COL, LENGTH)) == "col + 16*row < length"


# --- Views and fragments ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strides", "layout", "ldm"),
    [
        ((16, 1), "row_major", 16),
        ((1, 16), "col_major", 16),
        ((0, 1), "row_major", 0),
        ((0, 0), None, 0),
        ((32, 2), None, 2),
        ((1, 1), "row_major", 1),
    ],
)
def test_layouts(strides: tuple[int, int], layout: str | None, ldm: int) -> None:
    view = View.strided(BUFFER, BLOCK * 256, 16, 16, *strides)
    assert (view.layout, view.ldm) == (layout, ldm)
    assert view.address == BLOCK * 256 + ROW * strides[0] + COL * strides[1]


@pytest.mark.parametrize(
    ("role", "rows", "cols"), [(Role.A, 3, 5), (Role.B, 5, 4), (Role.ACC, 3, 4)]
)
def test_a_fragment_s_role_says_its_size(role: Role, rows: int, cols: int) -> None:
    frag = Frag("X", role, SHAPE, "f16")
    assert (frag.rows, frag.cols) == (rows, cols)


def test_only_constants_that_are_uniform_can_be_filled() -> None:
    uniform = [kind for kind in PatternKind if Pattern(kind).uniform]
    assert uniform == [PatternKind.ZEROS, PatternKind.ONES]


# --- Steps --------------------------------------------------------------------------------------


A = Frag("A", Role.A, SHAPE, "f16")


B = Frag("B", Role.B, SHAPE, "f16")


V = Frag("V", Role.ACC, SHAPE, "f32")


R = Frag("R", Role.ACC, SHAPE, "f32")


HERE = View.strided(BUFFER, Index(), 3, 5, 5, 1)


THERE = View.strided(Buffer("out", "f16", Extent(LENGTH), BufferRole.OUTPUT), Index(), 3, 5, 5, 1)


ELSEWHERE = dataclasses.replace(THERE, offset=Index.of(15))


SYNC = Sync(Scope.WARP)


@pytest.mark.parametrize(
    ("step", "frags_read", "frags_written", "views_read", "views_written"),
    [
        (Const(A, Pattern(PatternKind.ROW)), (), (A,), (), ()),
        (Load(A, HERE), (), (A,), (HERE,), ()),
        (Mma(V, A, B, R), (A, B, R), (V,), (), ()),
        (Add(V, V, R), (V, R), (V,), (), ()),
        (Store(THERE, V), (V,), (), (), (THERE,)),
        (Assign(THERE, HERE), (), (), (HERE,), (THERE,)),
        (Assign(THERE, sum_of(HERE, ELSEWHERE)), (), (), (HERE, ELSEWHERE), (THERE,)),
        (split((THERE, ELSEWHERE), HERE), (), (), (HERE,), (THERE, ELSEWHERE)),
        (SYNC, (), (), (), ()),
        (Loop("i", Extent.of(2), (SYNC,)), (), (), (), ()),
        (When((Bound(BLOCK, LENGTH),), (SYNC,)), (), (), (), ()),
    ],
)
def test_what_a_step_touches(
    step: Step, frags_read: Any, frags_written: Any, views_read: Any, views_written: Any
) -> None:
    touched = accesses(step)
    assert touched.frags_read == frags_read
    assert touched.frags_written == frags_written
    assert touched.views_read == views_read
    assert touched.views_written == views_written


def test_walk_numbers_steps_and_both_branches() -> None:
    load, store = Load(A, HERE), Store(THERE, V)
    inner = When((Bound(BLOCK, LENGTH),), (load, SYNC), (store,))
    loop = Loop("i", Extent.of(2), (inner, SYNC))
    assert list(walk((SYNC, loop, store))) == [
        ("1", SYNC),
        ("2", loop),
        ("2.1", inner),
        ("2.1.1", load),
        ("2.1.2", SYNC),
        ("2.1.3", store),
        ("2.2", SYNC),
        ("3", store),
    ]


def test_programs_are_data() -> None:
    one, two = build("scan_tn", masked=True), build("scan_tn", masked=True)
    assert one == two
    assert hash(one) == hash(two)
    assert one != build("scan_tn", masked=True, side="b")
    assert {"in", "out"} <= {buffer.name for buffer in one.buffers}
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.name = "other"  # type: ignore[misc]


def test_a_pickled_program_takes_no_hash_along() -> None:
    """Names hash to other numbers in another process."""
    program = build("reduction_k")
    known = {program: "known"}
    copy = pickle.loads(pickle.dumps(program))
    assert vars(copy).keys() == {field.name for field in dataclasses.fields(program)}
    assert known[copy] == "known"
