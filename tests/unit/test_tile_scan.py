"""How a tile is scanned by products: its three forms, their costs and their refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hand_built import builder
from tcusim.algorithms import build
from tcusim.algorithms.order import Order
from tcusim.algorithms.tile_scan import FORMS, tile_scan
from tcusim.errors import Unsupported
from tcusim.machine.shapes import MmaShape
from tcusim.program.grammar import Mma, walk
from tcusim.simulate.interpreter import interpret, run_numpy

# n is less than k, k, and more.
SHAPES = (MmaShape(16, 8, 16), MmaShape(16, 16, 16), MmaShape(8, 32, 16), MmaShape(5, 7, 3))


def fits(form: str, shape: MmaShape) -> bool:
    return form != "[U|1]" or shape.n > shape.k


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("combine", ["mma", "add"])
def test_each_form_scans_a_tile(shape: MmaShape, form: str, combine: str) -> None:
    options: dict[str, Any] = {"tile": shape, "side": "a", "form": form, "combine": combine}
    if not fits(form, shape) or (form == "(LA)1" and combine == "add"):
        with pytest.raises(Unsupported, match=r"^form '"):
            build("scan_t", **options)
        return
    size = shape.m * shape.k
    x = np.random.default_rng(size).integers(-3, 4, size).astype(np.float16)
    program = build("scan_t", segment_size=size, **options)
    np.testing.assert_array_equal(run_numpy(program, {"in": x})["out"], x.cumsum(dtype=np.float32))
    products = sum(isinstance(event.step, Mma) for event in interpret(program, {"in": x}))
    blocks, rows = -(-shape.k // shape.n), -(-shape.m // shape.k)
    # The paper's: A.U, L.A and their product with ones, for each block of columns.
    if form == "(LA)1":
        assert products == blocks * (2 + rows)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_usual_form_needs_the_fewest_products(shape: MmaShape) -> None:
    """By additions; by products it is the paper's, with sums in the order of the elements."""

    def products(form: str | None) -> int:
        program = build("scan_t", tile=shape, side="a", combine="add", form=form)
        return sum(isinstance(step, Mma) for _, step in walk(program.steps))

    fewest = min(products(form) for form in FORMS[1:] if fits(form, shape))
    assert products(None) == fewest
    given: dict[str, Any] = {"tile": shape, "side": "a", "combine": "mma"}
    assert build("scan_t", **given) == build("scan_t", form=FORMS[0], **given)


def test_what_a_form_cannot_do() -> None:
    with pytest.raises(Unsupported, match="needs more result columns than k"):
        tile_scan(builder(combine="add"), "[U|1]", Order())
    with pytest.raises(Unsupported, match="rounds partial sums to the operand type"):
        tile_scan(builder(combine="add"), "(LA)1", Order())
    with pytest.raises(Unsupported, match="do not fit operands of type s8"):
        tile_scan(builder(ab="s8", acc="s32", source="s8"), None, Order())
    with pytest.raises(Unsupported, match="which combine 'mma' cannot scan"):
        tile_scan(builder(ab="bf16", source="f32"), None, Order())
