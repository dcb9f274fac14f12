"""Subjects of verdicts: units, tiles alone, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from judged import chip
from tcusim.errors import InputError, UnknownName, Unsupported
from tcusim.judge.verdict.subjects import judged_types, names_tile, placed_in, subject_of
from tcusim.machine import arch_of, unit_of
from tcusim.machine.shapes import MmaShape


def tiles(subject: Any) -> list[str]:
    return [tile.name for tile in subject.tiles]


def test_a_unit_has_the_tiles_that_take_the_types_the_usual_one_first() -> None:
    whole = subject_of("h200")
    assert tiles(whole)[:3] == ["16x16x16", "32x8x16", "8x32x16"]
    assert whole.left_out == "16x16x8, 16x8x4, 16x8x32, 8x8x16: not for f16 to f32"
    assert tiles(subject_of("h200", ab="tf32")) == ["16x16x8", "16x8x8", "16x8x4"]
    only = subject_of("h200", tile="32x8x16")
    assert (tiles(only), only.left_out) == (["32x8x16"], "")
    assert {one.tile for one in only.unit.instructions} == {"32x8x16"}
    turned = chip(tile="4x4x4")
    assert tiles(subject_of(turned)) == ["4x4x4"]


def test_a_tile_alone_computes_exactly_unless_its_arithmetic_is_said() -> None:
    for named in ("5x7x3", (5, 7, 3), MmaShape(5, 7, 3)):
        alone = subject_of(named)
        assert (alone.name, alone.arch, tiles(alone)) == ("5x7x3", "exact", ["5x7x3"])
        assert alone.unit.figures() == {}
    assert subject_of("5x7x3", arch="volta").name == "5x7x3 volta"
    assert subject_of("5x7x3", arch="volta").rules[0] == arch_of("volta").rows[0]


def test_a_tile_alone_is_timed_in_the_machine_of_another() -> None:
    machine = subject_of("h200")
    placed = placed_in(subject_of("32x32x16", arch="volta"), machine)
    assert placed is not None
    values = [
        {name: one.value for name, one in each.unit.figures().items()} for each in (placed, machine)
    ]
    assert values[0] == values[1]
    assert placed.unit.arch == arch_of("volta")
    own = placed.unit.instruction("32x32x16", "f16", "f32")
    usual: Any = machine.unit.instruction("16x16x16", "f16", "f32")
    times: Any = own
    # Four times the multiply-adds, at the same rate.
    assert times.interval.value == 4 * usual.interval.value
    longer = times.latency.value - usual.latency.value
    assert longer == pytest.approx(3 * usual.interval.value)
    assert times.interval.confidence == "assumed"
    # A unit with a machine is timed on it; the rate of this one is unknown.
    assert placed_in(subject_of("v100"), machine) is None
    assert placed_in(subject_of("32x32x16"), subject_of("8x8x8")) is None


def test_a_unit_without_tiles_has_the_usual_one(tmp_path: Path) -> None:
    invented = subject_of(unit_of("ieee"))
    assert tiles(invented) == ["16x16x16"]
    # Arithmetic has no instructions to limit the types of a tile.
    assert tiles(subject_of("ieee", ab="f32")) == ["16x16x16"]
    assert tiles(subject_of("exact", ab="e4m3", tile="8x8x4")) == ["8x8x4"]
    path = tmp_path / "short.toml"
    path.write_text('tiles = ["8x8x8", "16x16x16"]\nfraction_bits = 9\n')
    assert tiles(subject_of(path)) == ["16x16x16", "8x8x8"]


def test_a_unit_that_nobody_registered_goes_by_its_name_from_now_on() -> None:
    assert subject_of(chip("fresh")).arch == "fresh"
    assert unit_of("fresh").title == "a chip"


@pytest.mark.parametrize(
    ("named", "more", "error", "text"),
    [
        ("hoper", {}, UnknownName, "Did you mean 'hopper'"),
        ("16x16", {}, InputError, "a shape is written '16x16x16'"),
        ("16x16x8", {}, Unsupported, "it takes tf32 to f32. Choose ab and acc"),
        ("4x4x4", {"tile": "4x4x4"}, InputError, "4x4x4 is a tile already"),
        ("h200", {"tile": "4x4x4"}, InputError, "the unit h200 has no tile 4x4x4; its tiles"),
        ("h200", {"ab": "f8"}, UnknownName, "unknown type 'f8'"),
        ("mi100", {}, Unsupported, "contradict each other"),
    ],
)
def test_what_is_refused(named: Any, more: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as raised:
        subject_of(named, **more)
    assert text in str(raised.value)


def test_the_types_are_the_usual_ones_or_what_a_unit_has(tmp_path: Path) -> None:
    path = tmp_path / "brain.toml"
    path.write_text('name = "brain"\ntiles = ["16x16x16"]\nab = "bf16"\nfraction_bits = 24\n')
    for named, asked, expected in (
        ("h200", (None, None), ("f16", "f32")),
        ("h200", ("s8", None), ("s8", "s32")),
        ("h200", (None, "f16"), ("f16", "f16")),
        ("h200", ("bf16", "f16"), ("bf16", "f16")),  # refused later, by its reason
        (path, (None, None), ("bf16", "f32")),
        ("64x8x16", (None, None), ("f16", "f32")),
        ("16x16x16", ("s8", None), ("s8", "s32")),
        ("8x8x4", ("f64", None), ("f64", "f64")),
    ):
        assert judged_types(named, *asked) == expected


def test_what_is_meant_as_a_tile() -> None:
    assert all(map(names_tile, ("16x16x16", "m8n8k4", "M16N16K16", "3x3")))
    assert not any(map(names_tile, ("h200", "mi100", "rtx 4090", "x.toml", "mychip16x16")))
