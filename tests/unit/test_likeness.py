"""A unit with another's figures: one more of its own takes nothing away."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from judged import chip, figure, timed
from some import Some
from tcusim.errors import InputError
from tcusim.judge.verdict.consistency import IMPOSSIBLE, findings_of
from tcusim.judge.verdict.subjects import placed_in, subject_of
from tcusim.machine import FIGURES, read_unit, unit_of, unit_toml
from tcusim.machine.likeness import borrowed, like


@pytest.mark.parametrize("far", [0.01, 0.5, 2.0, 100.0])
def test_no_figure_of_its_own_takes_another_away(far: float, some: Some) -> None:
    """For any figures of a designer, far from the other's, the rest fits and times are known."""
    other = unit_of("h200")
    for name in some(other.figures(), 2, start=int(far) % 2):
        quantity, value = FIGURES[name], getattr(other, name).value * far
        value = max(1.0, round(value)) if quantity.whole else value
        if not quantity.least <= value <= quantity.most:
            continue
        given: Any = {name: figure(value)}
        unit = like(replace(chip("own", tile="16x16x16"), **given), other)
        assert set(unit.figures()) == set(other.figures())
        assert getattr(unit, name).value == value
        assert name not in borrowed(unit)
        time = unit.instruction("16x16x16", "f16", "f32")
        assert time is not None
        assert (time.latency, time.interval) != (None, None)


def test_own_times_stay_and_what_they_lack_is_borrowed() -> None:
    other = unit_of("h200")
    usual = other.instruction("16x16x16", "f16", "f32")
    assert usual is not None
    assert usual.interval is not None
    half = like(chip("half", tile="16x16x8"), other).instruction("16x16x8", "f16", "f32")
    assert half is not None
    assert half.interval is not None
    assert half.interval.value == usual.interval.value / 2
    own = chip("timed", tile="16x16x16", instructions=(timed(4.0, 50.0, "16x16x16"),))
    assert like(own, other).instructions == own.instructions
    assert "latency of 16x16x16" not in borrowed(like(own, other))


def test_a_file_says_whom_its_unit_is_like(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'tiles = "16x16x16"\nfraction_bits = 20\nlike = "h200"\n[figures]\nclock = 1e9\n'
    )
    unit = read_unit(path)
    assert unit.clock is not None
    assert unit.clock.value == 1e9
    assert unit.cores is not None
    assert (unit.cores.source, unit.cores.confidence) == ("as h200", "assumed")
    assert set(borrowed(unit)) > set(unit_of("h200").figures()) - {"clock"}
    again = tmp_path / "again.toml"
    again.write_text(unit_toml(unit))
    assert read_unit(again).figures() == unit.figures()
    assert read_unit(again).instructions == unit.instructions
    path.write_text('tiles = "4x4x4"\nfraction_bits = 20\nlike = "h20"\n')
    with pytest.raises(InputError, match=r"like: unknown unit 'h20'. Did you mean 'h200'"):
        read_unit(path)


def test_a_known_unit_borrows_only_when_asked() -> None:
    l4, machine = subject_of("l4"), subject_of("h200")
    assert placed_in(l4, machine) is None
    placed = placed_in(l4, machine, known_too=True)
    assert placed is not None
    assert placed.unit.clock == l4.unit.clock
    assert "memory_latency" in borrowed(placed.unit)
    assert not [one for one in findings_of(placed) if one.gravity == IMPOSSIBLE]
