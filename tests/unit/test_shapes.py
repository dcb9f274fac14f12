"""tcusim.machine.shapes: the tables, the lookup, and the errors of wrong rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tcusim
from tcusim.errors import InputError, Unsupported
from tcusim.machine import shapes
from tcusim.machine.shapes import MmaShape, register_shape, shape_of

WMMA = {"16x16x16", "32x8x16", "8x32x16", "16x16x8", "8x8x4", "8x8x32", "8x8x128"}


ENTRY = "[tcusim.shapes]\ntoy = toy_package:SHAPES\n"
IMPORT = "from tcusim import MmaShape\n"


def families(shape: MmaShape) -> set[str]:
    return {row.family for row in shape.operands}


@pytest.mark.parametrize(
    ("shape", "types", "family"),
    [
        ("16x16x16", ("f16", "f32"), "wmma"),
        ("16x8x16", ("f16", "f32"), "mma.sync"),
        ("16x16x16", ("f64", "f64"), ""),
    ],
)
def test_the_family_of_instructions(shape: str, types: tuple[str, str], family: str) -> None:
    assert shape_of(shape).family(*types) == family


def test_names() -> None:
    shape = MmaShape(32, 8, 16)
    assert (shape.name, shape.ptx, str(shape)) == ("32x8x16", "m32n8k16", "32x8x16")


def test_every_wmma_size_is_there() -> None:
    assert {s.name for s in shapes._built_in_shapes() if "wmma" in families(s)} == WMMA


@pytest.mark.parametrize("size", ["16x16x16", "32x8x16", "8x32x16"])
def test_16_bit_and_8_bit_wmma(size: str) -> None:
    pairs = {("f16", "f16"), ("f16", "f32"), ("bf16", "f32"), ("s8", "s32"), ("u8", "s32")}
    assert set(shape_of(size).pairs()) == pairs


@pytest.mark.parametrize(
    ("size", "ab", "acc", "family", "min_sm"),
    [
        ("16x16x16", "f16", "f32", "wmma", 70),
        ("8x32x16", "s8", "s32", "wmma", 72),
        ("32x8x16", "bf16", "f32", "wmma", 80),
        ("16x16x8", "tf32", "f32", "wmma", 80),
        ("8x8x32", "u4", "s32", "wmma", 75),
        ("8x8x128", "b1", "s32", "wmma", 75),
        ("8x8x4", "f16", "f32", "mma.sync", 70),
        ("16x8x8", "f16", "f16", "mma.sync", 75),
        ("16x8x16", "f16", "f32", "mma.sync", 80),
        ("16x8x4", "tf32", "f32", "mma.sync", 80),
        ("16x8x16", "f64", "f64", "mma.sync", 90),
        ("16x8x32", "e4m3", "f32", "mma.sync", 89),
        ("16x8x64", "s4", "s32", "mma.sync", 80),
        ("16x8x256", "b1", "s32", "mma.sync", 80),
    ],
)
def test_rows(size: str, ab: str, acc: str, family: str, min_sm: int) -> None:
    row = shape_of(size).operands_for(ab, acc)
    assert row is not None
    assert (row.family, row.min_sm) == (family, min_sm)


def test_wmma_stands_before_mma_sync_at_the_same_size() -> None:
    shape = shape_of("8x8x4")
    row = shape.operands_for("f64", "f64")
    assert row is not None
    assert row.family == "wmma"
    assert shape.pairs().count(("f64", "f64")) == 1
    assert families(shape) == {"wmma", "mma.sync"}


def test_every_built_in_row_has_a_source_and_every_shape_a_title() -> None:
    for shape in shapes._built_in_shapes():
        assert shape.source.startswith("["), shape
        assert shape.title, shape
        assert all(row.source.startswith("[") for row in shape.operands), shape


def test_a_real_shape_takes_the_types_of_its_rows_only() -> None:
    assert shape_of("16x16x8").supports("tf32", "f32")
    assert not shape_of("16x16x8").supports("f16", "f32")
    assert shape_of("16x16x8").operands_for("f16", "f32") is None


def test_a_virtual_shape_takes_any_known_types() -> None:
    shape = MmaShape(5, 7, 3)
    assert shape.virtual
    assert shape.pairs() == ()
    assert shape.supports("e4m3", "f16")
    assert not shape.supports("e4m3", "e4m3")
    assert not shape.supports("int8", "s32")


@pytest.mark.parametrize("spelling", ["16x16x16", "m16n16k16", (16, 16, 16)])
def test_spellings(spelling: Any) -> None:
    assert shape_of(spelling).name == "16x16x16"


def test_a_shape_is_its_own_lookup_even_unregistered() -> None:
    shape = MmaShape(5, 7, 3)
    assert shape_of(shape) is shape


@pytest.mark.parametrize("spelling", ["5x7x3", "m5n7k3", (5, 7, 3)])
def test_sizes_that_nobody_registered_are_a_virtual_shape(spelling: Any) -> None:
    assert shape_of(spelling) == MmaShape(5, 7, 3)
    assert shape_of(spelling).virtual
    own = shapes.register_shape(MmaShape(5, 7, 3, title="my own"))
    assert shape_of(spelling) is own


@pytest.mark.parametrize("spelling", ["5x7x3", "m5n7k3", (5, 7, 3)])
def test_every_function_takes_a_tile_in_every_spelling(spelling: Any) -> None:
    x, square = np.ones(12, np.float16), np.ones((3, 3), np.float16)
    by_offsets = tcusim.segmented_cumsum(x, [0, 5, 12], options={"tile": spelling})
    made = (
        tcusim.build("reduction_t", tile=spelling),
        tcusim.sum(x, options={"tile": spelling}),
        tcusim.cumsum(x, options={"tile": spelling})[-1],
        tcusim.segmented_sum(x, 6, options={"tile": spelling}).sum(),
        by_offsets[4] + by_offsets[-1],
        tcusim.matmul(square, square, options={"tile": spelling}).sum() - 15,
        tcusim.matvec(square, square[0], options={"tile": spelling}).sum() + 3,
        tcusim.plan("sum", length=12, options={"tile": spelling})(x),
        tcusim.plan_product("matvec", rows=3, inner=3, options={"tile": spelling}).problem.tile,
        tcusim.trace(tcusim.build("reduction_t", tile=spelling), {"in": np.ones(84, np.float16)}),
        tcusim.cost(tcusim.plan("sum", length=12, options={"tile": spelling}), "h200").title,
        tcusim.validate_shape(spelling, algorithms=["reduction_k"]).shape,
    )
    assert made[0].shape == made[8] == shape_of(spelling)
    assert set(made[1:8]) == {12}
    assert made[11] == "5x7x3"
    with pytest.raises(Unsupported, match="no GPU has the shape 5x7x3"):
        tcusim.layout(spelling, "a")


@pytest.mark.parametrize(
    "spelling",
    [
        "16x16",
        "16x16x0",
        "16x16x16x16",
        "n16m16k16",
        "M16N16K16",
        (16, 16),
        (16, 16, 0),
        (16, 16, True),
        [16, 16, 16],
        None,
    ],
)
def test_malformed_spelling(spelling: Any) -> None:
    with pytest.raises(InputError) as caught:
        shape_of(spelling)
    assert str(caught.value) == (
        "a shape is written '16x16x16', 'm16n16k16' or (16, 16, 16), sizes in M, N, K order, "
        "each from 1 to 2**31 - 1; "
        f"got {spelling!r}."
    )


def test_a_registered_shape_is_found_and_listed() -> None:
    shape = register_shape(MmaShape(64, 8, 16, title="tall"))
    assert shape_of("m64n8k16") is shape
    assert shape in shapes.shapes()


def test_registering_an_equal_shape_again_is_fine() -> None:
    register_shape(MmaShape(64, 8, 16, title="tall"))
    register_shape(MmaShape(64, 8, 16, title="tall"))
    assert sum(shape.name == "64x8x16" for shape in shapes.shapes()) == 1


def test_another_shape_of_a_known_name_is_refused() -> None:
    with pytest.raises(
        InputError,
        match=r"register_shape: there is already a shape '16x16x16', from tcusim itself\. Give ",
    ):
        register_shape(MmaShape(16, 16, 16))


def test_only_shapes_can_be_registered() -> None:
    text: Any = "64x8x16"
    with pytest.raises(InputError, match="a shape must be an MmaShape, got '64x8x16'"):
        register_shape(text)


def test_a_package_may_offer_one_shape_without_a_list(declare: Callable[..., None]) -> None:
    declare(ENTRY, IMPORT + "SHAPES = MmaShape(64, 8, 16, title='a toy')")
    assert shape_of("64x8x16").title == "a toy"


def test_an_alignment_of_its_own() -> None:
    tile = MmaShape(5, 7, 3, tile_bytes=8)
    assert tile.alignment("f16", "f32") == (8, 1)
    assert shape_of("16x16x16").alignment("f16", "f32") == (32, 16)
    assert shape_of("16x8x16").alignment("f16", "f32") == (1, 1)
    with pytest.raises(
        InputError, match="row_bytes must be one of 1, 2, 4, 8, 16, or None; got 32"
    ):
        MmaShape(5, 7, 3, row_bytes=32)
