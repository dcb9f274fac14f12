"""tcusim.machine.known_units: units by name, by a GPU, by an architecture, or from a package."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

import tcusim
from tcusim.errors import InputError, UnknownName
from tcusim.machine import Arch, Fused, Rule, Unit, arch_of, arches, register_unit
from tcusim.machine.known_units import unit_of, units
from tcusim.machine.shapes import shape_of

ROW = Rule("f16", "f32", Fused(2, 10), source="invented", evidence="invented")
ARCH = Arch("mychip", "an idea", (), (), (ROW,), source="invented")
UNIT = Unit("mychip", "an idea", ARCH, (shape_of("16x16x16"),))
# The module of a package that declares a unit, and its entry point.
TOY = """
import tcusim
from tcusim.machine import Arch, Fused, Rule, Unit
ROW = Rule("f16", "f32", Fused(2, 10), source="invented", evidence="invented")
ARCH = Arch("toy", "a toy", (), (), (ROW,), source="invented")
UNIT = Unit("toy", "a toy", ARCH, (tcusim.MmaShape(5, 7, 3),))
"""
ENTRY = "[tcusim.units]\ntoy = toy_package:UNIT\n"


def test_a_registered_unit_is_an_architecture_too() -> None:
    assert register_unit(UNIT) is UNIT
    again = register_unit(replace(UNIT, title="changed"))
    assert unit_of("mychip") is again
    register_unit(UNIT)
    assert unit_of("MyChip") is UNIT
    assert unit_of(UNIT) is UNIT
    assert UNIT in units()
    assert arch_of("mychip") is arch_of("MYCHIP") is ARCH
    assert arches().count(ARCH) == 1
    fine = [[1, 2**-11]]
    assert tcusim.mma(fine, [[1], [1]], arch="mychip")[0, 0] == 1
    assert tcusim.mma(fine, [[1], [1]], arch="hopper")[0, 0] > 1


def test_a_unit_of_a_known_architecture_is_another_name_for_it() -> None:
    register_unit(Unit("board", "a board", arch_of("volta"), (shape_of("16x16x16"),)))
    assert arch_of("board") is arch_of("volta")
    assert [arch.name for arch in arches()].count("volta") == 1


def test_an_architecture_is_a_unit_without_figures() -> None:
    unit = unit_of("turing")
    assert unit.arch is arch_of("turing")
    assert list(unit.figures()) == ["shared_bytes_per_block"]
    assert [shape.name for shape in unit.shapes][:3] == ["16x16x16", "32x8x16", "8x32x16"]
    assert "16x16x8" not in [shape.name for shape in unit.shapes], "tf32 came with sm_80"
    assert unit_of(arch_of("turing")) == unit
    assert unit_of("exact").shapes == ()


def test_an_entry_point(declare: Callable[..., None]) -> None:
    declare(ENTRY, TOY)
    assert arch_of("volta").name == "volta"
    assert "toy_package" not in sys.modules
    assert arch_of("toy").title == "a toy"
    assert unit_of("toy").shapes[0].name == "5x7x3"
    assert [unit.name for unit in units()].count("toy") == 1
    assert "toy" in [arch.name for arch in arches()]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import no_such_package", "cannot be loaded: No module named 'no_such_package'. Install"),
        ("UNIT = 3.14", "cannot be used: a unit must be a Unit, got 3.14"),
        (TOY.replace('"toy"', '"hopper"'), "'hopper' names the architecture NVIDIA Hopper, which"),
    ],
)
def test_a_broken_entry_point_takes_no_other_name_down(
    declare: Callable[..., None], code: str, reason: str
) -> None:
    declare(ENTRY, code)
    assert unit_of("hopper").arch is arch_of("hopper")
    for look in (unit_of, arch_of):
        with pytest.raises(InputError) as caught:
            look("toy")
        assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("unit", "message"),
    [
        (replace(UNIT, name="hopper"), "'hopper' names the architecture NVIDIA Hopper"),
        (replace(UNIT, name="h100"), "'h100' names the architecture NVIDIA Hopper, which computes"),
        (replace(UNIT, name="other"), "has an architecture of its own, 'mychip'. Call both by one"),
        (replace(UNIT, arch=replace(ARCH, name="ada")), "'ada' names the architecture NVIDIA Ada"),
        ("hopper", "a unit must be a Unit, got 'hopper'"),
    ],
)
def test_units_that_are_not_registered(unit: Unit, message: str) -> None:
    with pytest.raises(InputError, match=message):
        register_unit(unit)


def test_unknown_names() -> None:
    with pytest.raises(
        UnknownName, match=r"unknown unit or architecture 'hoper'. Did you mean 'hopper'\?"
    ):
        unit_of("hoper")
    with pytest.raises(UnknownName, match=r"unknown architecture 'a.toml'.* --unit a.toml"):
        arch_of("a.toml")
