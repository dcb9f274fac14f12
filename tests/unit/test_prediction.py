"""What a rule predicts is within a factor of two of what is measured."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from some import marked
from tcusim.accuracy.families import FAMILIES
from tcusim.accuracy.measure import measured_errors
from tcusim.accuracy.prediction import predicted_error, step_of
from tcusim.errors import InputError, UnknownName, Unsupported
from tcusim.machine import Fused, Integer, Rule, format_of, rule_for


def rule(bits: int, length: int = 16, output: Any = "rz", acc: str = "f32") -> Rule:
    return Rule("f16", acc, Fused(length, bits, output=output), "invented", "assumed")


RULES = [
    (f"{one.how}", one)
    for one in (
        *(rule(bits) for bits in (25, 20, 12, 8, 5, 3)),
        *(rule_for(arch, "f16", acc) for arch in ("volta", "ampere") for acc in ("f32", "f16")),
        rule_for("hopper", "f16", "f16"),
        rule(24, 8, "rne"),
        rule(12, 4, "rne"),
        rule_for("ieee", "f16", "f32"),
    )
]
ROOT = Path(__file__).parents[2]
# The factor that is promised, and what a mean of few sums may be off.
NEAR = 2.0 * 1.25


@pytest.mark.parametrize("blocked", [None, 16])
@pytest.mark.parametrize(("name", "one"), marked(RULES, 4))
def test_predictions_are_near_what_is_measured(name: str, one: Rule, blocked: int | None) -> None:
    lengths = [2**j for j in range(4, 12)]
    measured = measured_errors(one, lengths, blocked=blocked, rows=64)
    floor = 2.0 ** -(format_of(one.acc).fraction_bits + 2)
    for family, errors in measured.items():
        for length, error in zip(lengths, errors, strict=True):
            predicted = predicted_error(one, family, length, blocked=blocked)
            pair = sorted((max(floor, error), max(floor, predicted)))
            assert pair[1] <= NEAR * pair[0], (name, family, length, error, predicted)


@pytest.mark.full
@pytest.mark.parametrize(("name", "one"), RULES)
def test_predictions_of_long_sums(name: str, one: Rule) -> None:
    lengths = [2**j for j in range(12, 17)]
    floor = 2.0 ** -(format_of(one.acc).fraction_bits + 2)
    for family, errors in measured_errors(one, lengths, rows=128).items():
        for length, error in zip(lengths, errors, strict=True):
            predicted = predicted_error(one, family, length)
            pair = sorted((max(floor, error), max(floor, predicted)))
            assert pair[1] <= NEAR * pair[0], (name, family, length, error, predicted)


LONG = json.loads((ROOT / "docs" / "data" / "long_sums.json").read_text("utf-8"))


@pytest.mark.parametrize(
    ("name", "row"),
    marked([(" ".join(map(str, list(row.values())[:-1])), row) for row in LONG["rows"]], 12),
)
def test_predictions_of_recorded_sums(name: str, row: Any) -> None:
    how = Fused(
        row["length"], row["fraction_bits"], output=row["output"], alignment=row["alignment"]
    )
    one = Rule("f16", row["acc"], how, "x", "x")
    floor = 2.0 ** -(format_of(row["acc"]).fraction_bits + 2)
    for power, error in enumerate(row["errors"], LONG["first_power"]):
        predicted = predicted_error(one, row["family"], 2**power)
        if error is not None and math.isfinite(predicted):
            pair = sorted((max(floor, error), max(floor, predicted)))
            assert pair[1] <= 2.0 * pair[0], (name, power, error, predicted)


@pytest.mark.parametrize("blocked", [None, 16])
@pytest.mark.parametrize(
    "how",
    [
        Fused(16, 24, output="rne", output_fraction_bits=7),
        Fused(16, 12, output_fraction_bits=3),
        Fused(16, 20, exponent_floor=4),
        Fused(16, 12, exponent_floor=6),
    ],
    ids=str,
)
def test_short_results_and_high_floors_are_predicted(how: Fused, blocked: int | None) -> None:
    """Sums of blocks are added in the accumulator's type, however short a step's results are."""
    one = Rule("f16", "f32", how, "invented", "assumed")
    lengths = [2**j for j in range(8, 14)]
    families = ("uniform", "normal", "same_sign", "heavy_tailed")
    for family, errors in measured_errors(
        one, lengths, blocked=blocked, rows=64, families=families
    ).items():
        for length, error in zip(lengths, errors, strict=True):
            predicted = predicted_error(one, family, length, blocked=blocked)
            pair = sorted((max(2.0**-25, error), max(2.0**-25, predicted)))
            assert pair[1] <= NEAR * pair[0], (family, length, error, predicted)


def test_a_floor_that_cuts_everything_off_is_refused() -> None:
    one = Rule("f16", "f32", Fused(16, 12, exponent_floor=13), "invented", "assumed")
    with pytest.raises(
        Unsupported, match=r"exponent_floor = 13 .* cuts off all that is below 2\^1"
    ):
        predicted_error(one, "normal", 2**8)


def test_errors_grow_as_theory_says() -> None:
    # Truncation biases a sum of one sign; rounding to nearest lets it walk.
    cut = rule(23, 4)
    nearest = replace(cut, how=Fused(4, 23, output="rne", alignment="rne"))
    assert predicted_error(cut, "same_sign", 2**20) > 20 * predicted_error(
        nearest, "same_sign", 2**20
    )
    # Each bit less is a factor of two where the alignment decides.
    coarse, fine = (predicted_error(rule(bits), "same_sign", 2**10) for bits in (14, 15))
    assert coarse / fine == pytest.approx(2.0, rel=0.25)
    # What has stagnated is all error.
    assert predicted_error(rule(3), "same_sign", 2**20) == pytest.approx(1.0, rel=1e-3)


def test_what_rounds_to_nearest_is_not_biased() -> None:
    # A bias adds up over millions of steps: one by chance, of samples, would decide.
    nearest = Rule("f16", "f32", Fused(8, 24, output="rne", alignment="rne"), "x", "x")
    for family in ("same_sign", "normal"):
        short, long = (predicted_error(nearest, family, 2**j) for j in (18, 24))
        assert long < 2 ** (24 - 18) / 2 * short
    assert predicted_error(nearest, "same_sign", 2**24) < 1e-4


def test_a_sum_that_has_stagnated_does_not_creep_on() -> None:
    volta = rule_for("volta", "f16", "f16")
    assert predicted_error(volta, "same_sign", 2**24) == pytest.approx(1.0, abs=2e-3)


def test_what_is_exact_has_no_error() -> None:
    assert predicted_error(Rule("s8", "s32", Integer(), "x", "x"), "normal", 2**20) == 0.0
    assert predicted_error(rule(25), "cancelling", 16) < 1e-9


def test_sums_that_overflow() -> None:
    exact = rule_for("exact", "f16", "f16")
    coarse = Rule("f16", "f16", Fused(16, 25, output="rne"), "x", "x")
    assert math.isinf(predicted_error(coarse, "same_sign", 2**24, blocked=2))
    assert math.isfinite(predicted_error(exact, "normal", 2**24))


def test_steps_of_tiles() -> None:
    assert step_of(rule(20), 4).length == 4
    assert step_of(rule(20, 8), 16).length == 8
    assert step_of(rule_for("ieee", "f16", "f32"), 16).length == 1
    assert step_of(rule_for("exact", "f16", "f32"), 16).fraction_bits is None


@pytest.mark.parametrize(
    ("family", "length", "more", "error", "text"),
    [
        ("norml", 4, {}, UnknownName, "Did you mean 'normal'"),
        ("normal", 0, {}, InputError, "length must be an integer within 1..16777216, got 0"),
        ("normal", 4, {"k": 0}, InputError, "k must be an integer within"),
        ("normal", 4, {"blocked": 0}, InputError, "blocked must be a number of mma from 1 on"),
    ],
)
def test_what_is_refused(
    family: str, length: int, more: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as raised:
        predicted_error(rule(20), family, length, **more)
    assert text in str(raised.value)
    assert set(FAMILIES) == {"uniform", "normal", "same_sign", "heavy_tailed", "cancelling"}
