"""tcusim.machine.units: figures, instructions and units, and their refusals."""

from __future__ import annotations

import dataclasses
import pickle
from dataclasses import replace
from typing import Any

import pytest

from tcusim.errors import InputError
from tcusim.machine import FIGURES, Arch, Figure, Fused, Instruction, Rule, Unit, units
from tcusim.machine.shapes import MmaShape, shape_of
from tcusim.machine.units import CONFIDENCES

ROW = Rule("f16", "f32", Fused(2, 10), source="invented", evidence="invented")
ARCH = Arch("mychip", "an idea", (), (), (ROW,), source="invented")
TILE = shape_of("16x16x16")


def invented(value: float) -> Figure:
    return Figure(value, "invented", "assumed")


UNIT = Unit(
    "mychip",
    "an idea",
    ARCH,
    (TILE, MmaShape(5, 7, 3)),
    (
        Instruction("16x16x16", "f16", "f32", "wmma", invented(33), invented(16)),
        Instruction("16x16x16", "f16", "f32", "", invented(30)),
    ),
    clock=invented(2e9),
    cores=invented(100),
)


def test_every_figure_of_a_unit_is_in_the_table_and_the_other_way_round() -> None:
    typed = [one.name for one in dataclasses.fields(Unit) if one.type == "Figure | None"]
    assert typed == list(FIGURES)
    assert all(one in (Unit.__doc__ or "") for one in typed)


def test_known_and_unknown_figures() -> None:
    assert UNIT.figures() == {"clock": invented(2e9), "cores": invented(100)}
    assert set(UNIT.unknown()) == set(FIGURES) - {"clock", "cores"}


def test_the_time_of_an_instruction_is_that_of_its_family_or_of_none() -> None:
    wmma, general = UNIT.instructions
    assert UNIT.instruction("16x16x16", "f16", "f32", "wmma") is wmma
    assert UNIT.instruction("16x16x16", "f16", "f32", "mma.sync") is general
    assert UNIT.instruction("16x16x16", "f16", "f32") is wmma
    assert UNIT.instruction("5x7x3", "f16", "f32") is None
    only = replace(UNIT, instructions=(wmma,))
    assert only.instruction("16x16x16", "f16", "f32", "mma.sync") is None


def test_a_unit_goes_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(UNIT)) == UNIT
    assert hash(UNIT) == hash(replace(UNIT))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ((0, "a", "assumed"), "a figure must be a number above zero, got 0. Leave out what is"),
        ((float("nan"), "a", "assumed"), "must be a number above zero, got nan"),
        ((float("inf"), "a", "assumed"), "must be a number above zero, got inf"),
        ((True, "a", "assumed"), "must be a number above zero, got True"),
        (("1", "a", "assumed"), "must be a number above zero, got '1'"),
        ((1, " ", "assumed"), "the source of a figure must say who says so, got ' '"),
        ((1, None, "assumed"), "the source of a figure must say who says so, got None"),
        ((1, "a", "sure"), f"must be one of {', '.join(CONFIDENCES)}, got 'sure'"),
    ],
)
def test_figures_that_are_refused(fields: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Figure(*fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"family": "gmma"}, "family must be one of wmma, mma.sync, .* got 'gmma'"),
        ({"latency": 33}, "16x16x16 f16 -> f32: latency must be a Figure, or None .* got 33"),
        ({"interval": invented(40)}, "the interval, 40 cycles, is longer than the latency, 33"),
    ],
)
def test_instructions_that_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(UNIT.instructions[0], **fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "MyChip"}, "Unit 'MyChip': a name is lower-case letters"),
        ({"name": "a/b.toml"}, "a name is lower-case letters, digits, spaces"),
        ({"arch": "hopper"}, "Unit 'mychip': arch must be an Arch, got 'hopper'"),
        ({"shapes": "16x16x16"}, "shapes must be a tuple of MmaShape, got '16x16x16'"),
        ({"shapes": (TILE, TILE)}, "the tile 16x16x16 is given twice"),
        ({"instructions": [1]}, "instructions must be a tuple of Instruction"),
        ({"shapes": (MmaShape(8, 8, 4),)}, "has no such tile; its tiles: 8x8x4"),
        ({"instructions": UNIT.instructions[:1] * 2}, r"f16 -> f32 \(wmma\) is given twice"),
        ({"clock": 2e9}, "clock must be a Figure, or None where it is not known"),
        ({"cores": invented(1.5)}, "cores must be a whole number, got 1.5"),
        ({"clock": invented(1.98)}, "clock is in Hz, from 100000 to 1e\\+12; got 1.98"),
        (
            {"memory_bandwidth": invented(4800)},
            "memory_bandwidth is in bytes a second, from 1e\\+06",
        ),
        (
            {"l2_latency": invented(300), "memory_latency": invented(200)},
            "l2_latency, 300, is more than memory_latency, 200. Correct one of them",
        ),
    ],
)
def test_units_that_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(UNIT, **fields)


@pytest.mark.parametrize("unit", units(), ids=lambda unit: unit.name)
def test_a_unit_is_shown_in_a_line_and_as_a_table(unit: Unit) -> None:
    """A notebook shows a unit briefly: not every field of every rule."""
    assert len(repr(unit)) < 1000
    assert repr(unit).startswith(f"<Unit {unit.name}: ")
    page = unit._repr_html_()
    assert page.count("<tr>") >= len(unit.figures())
    assert len(page) < 20_000
    for name, figure in unit.figures().items():
        assert f"{name}" in page
        assert figure.confidence in page
