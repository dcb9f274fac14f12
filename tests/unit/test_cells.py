"""Panes of tiles, single elements in words, and how one was summed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcusim
from tcusim.errors import InputError
from tcusim.machine import format_of
from tcusim.stepper.frames import Tile, default_inputs
from tcusim.stepper.panes import LOOKS, Pane, cell_of, explanation_of, product_cell
from tcusim.stepper.trace import Trace, trace


def traced(name: str = "reduction_k", **options: Any) -> Trace:
    program = tcusim.build(name, **options)
    return trace(program, default_inputs(program), arch="hopper")


def tile(values: Any, dtype: str = "f32", **rest: Any) -> Tile:
    array = np.array(values, format_of(dtype).dtype)
    inside = np.ones(array.shape, bool)
    given: dict[str, Any] = {"before": None, "places": None, "inside": inside} | rest
    return Tile("V", "d", dtype, "accumulator", array, **given)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"ab": "bf16"},
        {"ab": "s8", "acc": "s32"},
        {"ab": "f64", "acc": "f64", "tile": "8x8x4"},
        {"ab": "tf32", "tile": "16x16x8"},
        {"ab": "e4m3", "tile": "16x8x32"},
    ],
)
def test_a_sum_is_explained_as_explain_does(options: dict[str, str]) -> None:
    kept = traced(**options)
    found = kept.find("mma")
    assert found is not None
    frame = kept[found]
    a, b, c = (one.values for one in frame.reads)
    told = explanation_of(kept.about, frame, 0, 1)
    types: Any = {"ab": kept.about.ab, "acc": kept.about.acc, "family": kept.about.family}
    assert str(told) == str(tcusim.explain(a, b, c, cell=(0, 1), arch="hopper", **types))
    # It ends with the bits that the step wrote.
    cell = cell_of(frame.writes[0], 0, 1)
    assert cell is not None
    assert told["hopper"].bits == cell.bits


def test_what_has_no_sum() -> None:
    kept = traced()
    product = kept[kept.find("mma") or 0]
    assert product_cell(product, 3, 5) == ""
    assert "V has 16 x 16 cells, and none is 3,16" in product_cell(product, 3, 16)
    assert "step 1, 1, is no product (const)" in product_cell(kept[0], 0, 0)
    with pytest.raises(InputError, match="is no product"):
        explanation_of(kept.about, kept[0], 0, 0)


def test_a_cell_in_words() -> None:
    before = np.array([[1, np.nan]], np.float32)
    one = tile([[1.5, np.nan]], before=before, places=np.array([[7, 8]]))
    assert str(cell_of(one, 0, 0)) == "d: V[7] = 1.5 (0x3fc00000), was 1.0, changed"
    assert str(cell_of(one, 0, 1)) == "d: V[8] = NaN (0x7fc00000), was NaN"
    assert cell_of(one, 1, 0) is None
    assert cell_of(one, 0, -1) is None
    outside = tile([[0, 1]], inside=np.array([[False, True]]))
    assert str(cell_of(outside, 0, 0)) == "d: V[0,0] = 0.0 (0x00000000), out of bounds"
    lowest = format_of("s32").unwritten
    never = tile([[lowest, 3]], "s32")
    assert str(cell_of(never, 0, 0)) == f"d: V[0,0] = {lowest} (0x80808080), never written"
    # As many digits as tell it from its neighbours.
    tenth = cell_of(tile([[0.1]]), 0, 0)
    assert tenth is not None
    assert tenth.value == "0.10000000149011612"


def texts_of(one: Tile, *, hexadecimal: bool = False) -> list[list[str]]:
    return [list(row) for row in Pane(one, "writes", hexadecimal=hexadecimal).texts]


def is_uniform(one: Tile) -> bool:
    return Pane(one, "writes").is_uniform


def test_texts() -> None:
    one = tile([[1, -0.0, np.nan, 123456, 0.1]], inside=np.array([[True] * 4 + [False]]))
    assert texts_of(one) == [["1", "-0", "?", "1.2346e+05", "."]]
    assert texts_of(one, hexadecimal=True) == [
        ["3f800000", "80000000", "7fc00000", "47f12000", "."]
    ]
    assert texts_of(tile([[2, 3]], "bf16"), hexadecimal=True) == [["4000", "4040"]]


def test_equal_texts_need_not_be_equal_numbers() -> None:
    near = np.nextafter(np.float32(0.1), np.float32(1))
    assert is_uniform(tile([[0.1] * 8]))
    assert not is_uniform(tile([[0.1] * 7 + [near]]))
    assert not is_uniform(tile([[0.0] * 7 + [-0.0]]))
    assert not is_uniform(tile([[0.1] * 7]))
    assert is_uniform(tile([[np.nan] * 8]))
    assert not is_uniform(tile([[1] * 8], inside=np.array([[True] * 7 + [False]])))
    assert is_uniform(tile([[0] * 8], inside=np.zeros((1, 8), bool)))


def test_an_element_has_one_look() -> None:
    before = np.array([[0, 2, np.nan, 0, 5]], np.float32)
    one = tile([[0, 3, 1, np.nan, 5]], before=before, inside=np.array([[True] * 4 + [False]]))
    pane = Pane(one, "writes", constant=True)
    assert [LOOKS[look] for look in pane.looks[0]] == ["zero", *["changed"] * 2, "nan", "outside"]
    assert (pane.name, pane.size, pane.place) == ("d: V", "1x5 f32", "accumulator, constant")
    assert pane.change == "3 changed"
    assert Pane(tile([[1]]), "reads").change == ""
    assert Pane(tile([[1]], before=before[:, :1]), "writes").change == "all changed"
