"""`tcusim.layout`: its inputs, its refusals, and the forms of its output."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

import tcusim
from tcusim.errors import InputError, UnknownName, Unsupported
from tcusim.machine.layouts.fragment_layout import Held, layout


def test_defaults_are_the_first_types_and_the_order_of_mma_sync() -> None:
    for operand, dtype, order in (("a", "f16", "row"), ("b", "f16", "col"), ("c", "f16", "")):
        found = layout("16x8x16", operand)
        assert (found.dtype, found.order, found.family) == (dtype, order, "mma.sync")
    assert layout((16, 8, 16), "d", acc="f32").dtype == "f32"
    assert layout("m8n8k4", "a", family="mma.sync", ab="f16").order == "row"
    assert tcusim.layout is layout


def test_the_default_types_are_those_of_the_architecture() -> None:
    # Volta's own instruction: that of f64 came later.
    volta, hopper = (layout("m8n8k4", "a", arch=arch) for arch in ("volta", "hopper"))
    assert (volta.dtype, hopper.dtype) == ("f16", "f64")
    assert layout("m16n8k8", "a", arch="turing").dtype == "f16"


def test_there_and_back() -> None:
    cases: list[tuple[str, dict[str, str]]] = [
        ("m16n8k16", {}),
        ("m16n8k64", {}),
        ("m8n8k4", {"ab": "f16", "family": "mma.sync"}),
        ("16x16x16", {"arch": "volta"}),
    ]
    for shape, options in cases:
        for operand in "abc":
            found = layout(shape, operand, **options)
            for lane in (0, 5, 31):
                for held in found.lane(lane):
                    assert held in found.holders(held.row, held.col)


def test_who_holds_an_element() -> None:
    assert layout("m16n8k16", "a").holders(9, 3) == (Held(5, 3, 1, 16, 9, 3, 0),)
    lanes = [held.lane for held in layout("16x16x16", "a", arch="v100").holders(3, 4)]
    assert lanes == [3, 11]
    tiles = [held.tile for held in layout("8x8x4", "a", family="mma.sync", ab="f16").holders(1, 1)]
    assert tiles == [0, 1, 2, 3]


def test_forms() -> None:
    found = layout("m16n8k16", "b")
    assert repr(found) == "<Layout: mma.sync m16n8k16 b, f16 col, 4 in each lane>"
    content = json.loads(found.to_json())
    assert (content["shape"], content["size"], len(content["lanes"])) == ("m16n8k16", [16, 8], 32)
    assert content["lanes"][5][3] == asdict(Held(5, 3, 1, 16, 11, 1, 0))
    assert content["source"].startswith("[PTX sec. 9.7.14.5.8")
    assert str(found) == found.to_text()
    assert "b[2-3] (register 1)  rows 10-11, column 1" in found.to_text(5)
    assert found.to_html().startswith("<!DOCTYPE html>")
    assert found.to_svg() in found._repr_html_()


@pytest.mark.parametrize(
    ("shape", "options", "error", "text"),
    [
        ("16x8x16", {"operand": "e"}, UnknownName, "operand 'e'"),
        ("16x8x16", {"order": "rows"}, UnknownName, "order 'rows'"),
        ("16x8x16", {"family": "hmma"}, UnknownName, "family 'hmma'"),
        ("16x8x16", {"arch": "mi300x"}, Unsupported, "none of cdna3 .AMD CDNA 3.; take arch "),
        ("16x8x16", {"arch": "ieee"}, Unsupported, "maps of NVIDIA's GPUs alone, none of ieee"),
        (
            "16x8x16",
            {"arch": "volta"},
            Unsupported,
            "Volta has no mma.sync m16n8k16 with f16; sm_80",
        ),
        ("16x8x16", {"order": "col"}, Unsupported, "takes a by rows only"),
        ("16x8x16", {"family": "wgmma"}, Unsupported, "from shared or tensor memory"),
        ("16x8x16", {"ab": "s4"}, Unsupported, "16x8x16 has no s4; it has mma.sync f16→f16"),
        ("8x32x16", {"arch": "volta"}, Unsupported, "nobody told where WMMA keeps a of 8x32x16"),
        ("5x5x5", {}, Unsupported, "no GPU has the shape 5x5x5, so no lanes"),
    ],
)
def test_what_is_refused(
    shape: str, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        layout(shape, options.pop("operand", "a"), **options)


def test_a_shape_of_no_gpu_has_no_lanes() -> None:
    virtual = tcusim.MmaShape(4, 6, 2)
    with pytest.raises(Unsupported, match="no GPU has the shape 4x6x2"):
        layout(virtual, "a")


def test_places_outside_are_refused() -> None:
    found = layout("m16n8k16", "b")
    with pytest.raises(InputError, match=r"lane must be an integer within 0\.\.31, got 32"):
        found.lane(32)
    for place in ((16, 0), (0, 8)):
        with pytest.raises(InputError, match="must be an integer within"):
            found.holders(*place)
