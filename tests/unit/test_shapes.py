"""tcusim.machine.shapes: the tables, the lookup, and what a wrong row is told."""

from __future__ import annotations

import importlib.metadata
import sys
from types import ModuleType
from typing import Any

import pytest

from tcusim.errors import InputError, UnknownName
from tcusim.machine import shapes
from tcusim.machine.shapes import MmaShape, Operands, register_shape, shape_of

WMMA = {"16x16x16", "32x8x16", "8x32x16", "16x16x8", "8x8x4", "8x8x32", "8x8x128"}


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test register shapes in a registry of its own."""
    monkeypatch.setattr(shapes, "_shapes", dict(shapes._shapes))
    monkeypatch.setattr(shapes, "_owners", dict(shapes._owners))
    monkeypatch.setattr(shapes, "_read_plugins", set())


def provide(monkeypatch: pytest.MonkeyPatch, value: object) -> None:
    """Let a package that is not installed declare toy = "toy_shapes:SHAPES" with this value."""
    toy = importlib.metadata.EntryPoint("toy", "toy_shapes:SHAPES", "tcusim.machine.shapes")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda *, group: (toy,))
    module = ModuleType("toy_shapes")
    monkeypatch.setattr(module, "SHAPES", value, raising=False)
    monkeypatch.setitem(sys.modules, "toy_shapes", module)


def families(shape: MmaShape) -> set[str]:
    return {row.family for row in shape.operands}


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


def test_unknown_size_says_how_to_register_it() -> None:
    with pytest.raises(UnknownName) as caught:
        shape_of("m64n8k16")
    text = str(caught.value)
    assert text.startswith("unknown shape '64x8x16'. Did you mean '")
    assert "Valid: 16x16x16, 16x16x8, " in text
    assert text.endswith(
        " Register a new one with tcusim.register_shape(tcusim.MmaShape(64, 8, 16))."
    )


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
        "a shape is written '16x16x16', 'm16n16k16' or (16, 16, 16), sizes in M, N, K order; "
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
        match=r"shape 16x16x16 of register_shape clashes with the shape 16x16x16 of tcusim: they "
        r"differ\. Use the one there is, or choose other sizes\.",
    ):
        register_shape(MmaShape(16, 16, 16))


def test_only_shapes_can_be_registered() -> None:
    text: Any = "64x8x16"
    with pytest.raises(InputError, match=r"register_shape takes an MmaShape, got '64x8x16'\."):
        register_shape(text)


def test_a_package_may_offer_one_shape_without_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = MmaShape(64, 8, 16)
    provide(monkeypatch, shape)
    assert shape_of("64x8x16") is shape


def test_a_package_that_offers_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    provide(monkeypatch, [(64, 8, 16)])
    with pytest.raises(
        InputError,
        match=r"^entry point 'toy' = 'toy_shapes:SHAPES' \(tcusim\.shapes\) of an unknown package "
        r"must be an MmaShape or several, got \(64, 8, 16\)\.$",
    ):
        shape_of("64x8x16")


def test_a_package_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    provide(monkeypatch, MmaShape(64, 8, 16))
    monkeypatch.setitem(sys.modules, "toy_shapes", None)
    with pytest.raises(
        InputError, match=r"^entry point 'toy' .* cannot be loaded: import of toy_shapes halted"
    ):
        shape_of("64x8x16")


def test_a_package_that_redefines_a_built_in_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    provide(monkeypatch, MmaShape(16, 16, 16))
    with pytest.raises(
        InputError,
        match=r"^shape 16x16x16 of an unknown package clashes with the shape 16x16x16 of tcusim: ",
    ):
        shapes.shapes()
    assert shape_of("16x16x16").supports("f16", "f32")


@pytest.mark.parametrize("size", [0, -16, 1.5, "16", True, None])
def test_a_size_must_be_a_positive_integer(size: Any) -> None:
    with pytest.raises(InputError, match=r"MmaShape .*: n must be an integer of at least 1, got "):
        MmaShape(16, size, 16)


def test_rows_must_be_a_tuple() -> None:
    rows: Any = [Operands("f16", "f32", 70, "wmma")]
    with pytest.raises(
        InputError, match=r"MmaShape 8x8x8: operands must be a tuple of Operands rows, got list\."
    ):
        MmaShape(8, 8, 8, rows)


def test_every_row_must_be_operands() -> None:
    rows: Any = (("f16", "f32"),)
    with pytest.raises(InputError, match=r"MmaShape 8x8x8: every row must be Operands\(\.\.\.\)"):
        MmaShape(8, 8, 8, rows)


def test_a_row_may_stand_once() -> None:
    rows = (Operands("f16", "f32", 80, "wmma"), Operands("f16", "f32", 70, "wmma"))
    with pytest.raises(
        InputError,
        match=r"MmaShape 8x8x8: the row Operands f16 -> f32 \(wmma\) appears twice\. "
        r"Keep the lower min_sm\.",
    ):
        MmaShape(8, 8, 8, rows)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            ("half", "f32", 70, "wmma"),
            "Operands half -> f32 (wmma): ab must be one of f16, bf16, tf32, f32, f64, e4m3, e5m2, "
            "s8, u8, s4, u4, b1, s32, got 'half'.",
        ),
        (
            ("f16", "bf16", 70, "wmma"),
            "Operands f16 -> bf16 (wmma): acc must be one of f16, f32, f64, s32, got 'bf16'.",
        ),
        (
            ("f16", "f32", 70, "hmma"),
            "Operands f16 -> f32 (hmma): family must be one of wmma, mma.sync, wgmma, tcgen05, "
            "got 'hmma'.",
        ),
        (
            ("s8", "f32", 72, "wmma"),
            "Operands s8 -> f32 (wmma): integers accumulate in s32 and nothing else does, "
            "got ab='s8' with acc='f32'.",
        ),
        (
            ("f16", "s32", 72, "wmma"),
            "Operands f16 -> s32 (wmma): integers accumulate in s32 and nothing else does, "
            "got ab='f16' with acc='s32'.",
        ),
        (
            ("f16", "f32", 7.0, "wmma"),
            "Operands f16 -> f32 (wmma): min_sm must be a compute capability without its point, "
            "such as 70 or 90, got 7.0.",
        ),
        (
            ("f16", "f32", 750, "wmma"),
            "Operands f16 -> f32 (wmma): min_sm must be a compute capability without its point, "
            "such as 70 or 90, got 750.",
        ),
    ],
)
def test_a_wrong_row_names_itself_the_rule_and_the_offender(row: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        Operands(*row)
    assert str(caught.value) == message
