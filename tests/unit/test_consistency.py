"""Units with parts that are possible each, and not together: the reason, by name."""

from __future__ import annotations

from typing import Any

import pytest

from judged import chip, figure, timed
from tcusim.judge.verdict.consistency import CHECKS, Finding, findings_of
from tcusim.judge.verdict.subjects import subject_of
from tcusim.machine import Fused, Unit

SOUND: dict[str, Any] = {
    "fma_per_core": figure(8),
    "units_per_core": figure(1),
    "warps_per_core": figure(4),
    "threads_per_core": figure(128),
    "registers_per_core": figure(65536),
    "shared_bytes_per_block": figure(1024),
    "instructions": (timed(4, 8),),
}


def named(unit: Unit) -> dict[str, Finding]:
    return {one.name: one for one in findings_of(subject_of(unit))}


def test_a_sound_unit_has_none_and_so_have_those_that_nobody_told_of() -> None:
    assert named(chip("sound", **SOUND)) == {}
    assert named(chip("silent")) == {}


@pytest.mark.parametrize(
    ("name", "gravity", "changed", "text"),
    [
        (
            "no_room_for_fragments",
            "impossible",
            {"registers_per_core": figure(31)},
            "take 32 registers, and a core has 31",
        ),
        (
            "threads_beyond_warps",
            "impossible",
            {"threads_per_core": figure(130)},
            "130 threads a core are no whole number for each of its 4 warps",
        ),
        (
            "slower_than_without",
            "waste",
            {"fma_per_core": figure(16)},
            "do 16 multiply-adds a cycle on 4x4x4 tiles, and its ordinary units 16",
        ),
        (
            "latency_not_hidden",
            "waste",
            {"instructions": (timed(4, 20),)},
            "needs 5 at a time; a core holds 4 warps",
        ),
        (
            "no_room_for_tile",
            "waste",
            {"shared_bytes_per_block": figure(63)},
            "is 64 bytes, and a block has 63",
        ),
        (
            "terms_beyond_tile",
            "waste",
            {"how": Fused(8, 24)},
            "up to 8 products, and the tile 4x4x4 has k = 4: 4 of its inputs",
        ),
        (
            "floor_above_one",
            "useless",
            {"how": Fused(4, 24, exponent_floor=25)},
            "exponent_floor = 25 with 24 fraction bits cuts 1 to 0",
        ),
        (
            "bits_never_set",
            "waste",
            {"how": Fused(4, 20)},
            "f32 has 23 fraction bits, and a sum keeps 20 below its largest term: the last 3",
        ),
    ],
)
def test_each_check_finds_its_own(name: str, gravity: str, changed: Any, text: str) -> None:
    found = named(chip(name.replace("_", " "), **{**SOUND, **changed}))
    assert set(found) == {name}
    assert found[name].gravity == gravity
    assert text in found[name].text


def test_one_bit_that_is_never_set_is_told_of_as_one() -> None:
    found = named(chip("one", **{**SOUND, "how": Fused(4, 22)}))
    assert "the last one holds nothing" in found["bits_never_set"].text


def test_every_check_is_tried_above() -> None:
    marks = test_each_check_finds_its_own.pytestmark
    assert {case[0] for case in marks[0].args[1]} == set(CHECKS)
