"""The predictions of a rule are within a factor of two of the measurements."""

from __future__ import annotations

import itertools
import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from some import marked
from tcusim.errors import InputError, UnknownName, Unsupported
from tcusim.judge.accuracy.families import FAMILIES
from tcusim.judge.accuracy.measure import errors_of_sums, measured_errors
from tcusim.judge.accuracy.prediction import predicted_error, step_of
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
# The promised factor, and the error of a mean of few sums.
NEAR = 2.0 * 1.25
# Of a root mean square that fewer sums have most of, a sample tells little: so many sums are taken
# then, of lengths that allow it.
FEW = 8
MANY, MANY_TERMS = 12_800, 512


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


def invented_rules(count: int) -> list[tuple[Rule, int]]:
    """Return rules of every kind, with the k of a tile: a sample of all combinations."""
    choices: dict[str, tuple[Any, ...]] = {
        "ab": ("f16", "bf16", "tf32", "f32", "e4m3", "e5m2"),
        "acc": ("f32", "f32", "f16"),
        "fraction_bits": (8, 10, 12, 14, 16, 18, 20, 22, 23, 24, 25, 26, 30, 32, 35, 36, 38, 40),
        "length": (1, 2, 4, 8, 16, 32),
        "output": ("rz", "rne"),
        "alignment": ("rz", "rne"),
        "c_joins": ("sum", "after"),
        "k": (8, 16, 32),
    }
    draw = random.Random(5)
    found = []
    for _ in range(count):
        one = {name: draw.choice(values) for name, values in choices.items()}
        ab, acc, k = one.pop("ab"), one.pop("acc"), one.pop("k")
        found.append((Rule(ab, acc, Fused(**one), "invented", "assumed"), k))
    return found


# Units with predictions once far off where a sum first loses a bit.
_NARROW: tuple[tuple[str, tuple[int, int], Any, int], ...] = (
    ("e4m3", (8, 13), "rz", 12),
    ("e5m2", (2, 13), "rz", 2),
    ("e5m2", (4, 16), "rz", 4),
    ("e5m2", (1, 20), "rne", 8),
)
ONSETS = [
    (Rule(ab, "f32", Fused(*how, alignment=alignment), "invented", "assumed"), k)
    for ab, how, alignment, k in _NARROW
]


@pytest.mark.parametrize(
    ("one", "k"),
    marked([*invented_rules(500), *ONSETS], 200, start=9),
    ids=lambda it: f"{it.ab} {it.acc} {it.how}" if isinstance(it, Rule) else str(it),
)
def test_predictions_for_invented_units(one: Rule, k: int) -> None:
    """Within a factor of two, for every family; at most an octave early or late."""
    lengths = [max(k, 2**j) // k * k for j in range(5, 13)]
    floor = 2.0 ** -(format_of(one.acc).fraction_bits + 2)
    for family, few in errors_of_sums(one, lengths, k=k, rows=40).items():
        predicted = [predicted_error(one, family, length, k=k) for length in lengths]
        if _near(predicted, few, lengths, floor, least=0):
            continue
        (many,) = errors_of_sums(one, lengths, k=k, rows=640, families=[family]).values()
        short = [length for length, errors in zip(lengths, many, strict=True) if _few(errors)]
        short = [length for length in short if length <= MANY_TERMS]
        if short:
            (more,) = errors_of_sums(one, short, k=k, rows=MANY, families=[family]).values()
            known = dict(zip(short, more, strict=True))
            many = [known.get(length, errors) for length, errors in zip(lengths, many, strict=True)]
        assert _near(predicted, many, lengths, floor, least=FEW), (
            family,
            predicted,
            list(map(_root, many)),
        )


def _near(
    predicted: list[float], measured: list[Any], lengths: list[int], floor: float, *, least: int
) -> bool:
    """Return whether predictions are near the measured values, there or at a neighbour's length.

    least: how many sums have to have most of an error for it to be known from them.
    """
    bounds = [_bounds(errors, least) for errors in measured]
    one = _least_error(measured, lengths) if least else 0.0
    for place, (value, length) in enumerate(zip(predicted, lengths, strict=True)):
        beside = bounds[max(0, place - 1) : place + 2]
        lower = max(floor, min(low for low, _ in beside))
        # No sum of these erred, but three of as many others may.
        unseen = one / length * math.sqrt(3 / len(measured[place]))
        upper = max(floor, unseen, *(high for _, high in beside))
        finite = all(map(math.isfinite, (value, upper)))
        if finite and not lower / 2.0 <= max(floor, value) <= upper * 2.0:
            return False
    return True


def _root(errors: Any) -> float:
    return math.sqrt(float(np.mean(errors**2)))


def _weight(errors: Any) -> float:
    """Return the number of equal errors that would have the errors' mean square."""
    squares = np.square(errors.astype(np.float64))
    return float(squares.sum()) ** 2 / float(np.square(squares).sum()) if squares.any() else 0.0


def _few(errors: Any) -> bool:
    return bool(np.isfinite(errors).all()) and _weight(errors) < FEW


def _bounds(errors: Any, least: int) -> tuple[float, float]:
    """Return the bounds of the root mean square of errors, by those of some sums.

    It is theirs, unless few sums have most of it: of as many others, sqrt(N) sums that err are
    within 1.5, three standard deviations of the square root of a Poisson variable.
    """
    if not np.isfinite(errors).all():
        return math.inf, math.inf
    squares = np.sort(np.square(errors.astype(np.float64)))
    root, total = math.sqrt(squares.mean()), squares.sum()
    weight = _weight(errors)
    if not total or weight >= least:
        return root, root
    lower = root * max(0.0, 1.0 - 1.5 / math.sqrt(weight))
    return lower, math.sqrt((total + least / 2 * squares[-1]) / squares.size)


def _least_error(measured: list[Any], lengths: list[int]) -> float:
    """Return the least error of a sum of any length, as a share of one term."""
    seen = [
        length * float(np.abs(errors[errors != 0.0]).min())
        for errors, length in zip(measured, lengths, strict=True)
        if np.isfinite(errors).all() and errors.any()
    ]
    return min(seen, default=0.0)


@pytest.mark.parametrize(
    ("arch", "blocked"), marked([("ieee", None), ("ieee", 16), ("exact", None), ("exact", 16)], 4)
)
def test_predictions_of_float64_sums(arch: str, blocked: int | None) -> None:
    one = rule_for(arch, "f64", "f64")
    lengths = [2**j for j in range(4, 12)]
    for family, errors in measured_errors(one, lengths, k=4, rows=64, blocked=blocked).items():
        for length, error in zip(lengths, errors, strict=True):
            predicted = predicted_error(one, family, length, k=4, blocked=blocked)
            assert error / NEAR <= predicted <= NEAR * error, (family, length, error)


@pytest.mark.parametrize("ab", marked(["f16", "bf16"], 2))
@pytest.mark.parametrize("family", FAMILIES)
def test_more_fraction_bits_never_cost_precision(family: str, ab: str) -> None:
    rules = [Rule(ab, "f32", Fused(2, bits), "x", "x") for bits in (24, 30, 36, 40)]
    for length in (2**10, 2**16, 2**20):
        errors = [predicted_error(one, family, length) for one in rules]
        for coarse, fine in itertools.pairwise(errors):
            assert fine <= 2.0 * coarse + 2.0**-25, errors


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


@pytest.mark.parametrize(
    ("ab", "how", "k", "family", "lengths"),
    [
        ("e5m2", Fused(16, 10, output="rne", c_joins="after"), 8, "cancelling", (32, 64)),
        pytest.param(
            *("e4m3", Fused(2, 14, output="rne", c_joins="after"), 8, "heavy_tailed"),
            (256, 512, 1024, 2048),
            marks=pytest.mark.full,
        ),
    ],
    ids=str,
)
def test_errors_that_few_sums_have_are_predicted(
    ab: str, how: Fused, k: int, family: str, lengths: tuple[int, ...]
) -> None:
    """One sum in hundreds errs: the prediction is the mean over all, and no matter of chance."""
    one = Rule(ab, "f32", how, "invented", "assumed")
    (errors,) = errors_of_sums(one, lengths, k=k, rows=MANY, families=[family]).values()
    for length, found in zip(lengths, errors, strict=True):
        assert 0.5 <= predicted_error(one, family, length, k=k) / _root(found) <= 2.0, length


SHORT = (
    Fused(16, 24, output="rne", output_fraction_bits=7),
    Fused(16, 12, output_fraction_bits=3),
    Fused(8, 24, output_fraction_bits=5, c_joins="after"),
    Fused(16, 12, output="rne", output_fraction_bits=8, c_joins="after"),
    Fused(16, 20, exponent_floor=4),
    Fused(16, 12, exponent_floor=6),
)


@pytest.mark.parametrize(
    ("how", "blocked"),
    [
        pytest.param(how, blocked, marks=() if (i + j) % 2 == 0 else pytest.mark.full)
        for i, how in enumerate(SHORT)
        for j, blocked in enumerate((None, 16))
    ],
    ids=str,
)
def test_short_results_and_high_floors_are_predicted(how: Fused, blocked: int | None) -> None:
    """Sums of blocks, and a c that joins after a step, are added in the accumulator's type."""
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


@pytest.mark.parametrize(
    "how",
    [
        Fused(1, 10, output="rne", alignment="rne", c_joins="after"),
        Fused(1, 8, c_joins="after"),
        Fused(1, 24, output_fraction_bits=9, c_joins="after"),
    ],
    ids=str,
)
def test_a_term_and_its_negative_are_cut_alike_before_c_joins(how: Fused) -> None:
    """The losses of steps of one term cancel, but at other lengths than those that return to 0."""
    one = Rule("f32", "f32", how, "invented", "assumed")
    lengths = [96, 128, 1024]
    ((_, errors),) = measured_errors(one, lengths, k=8, rows=64, families=["cancelling"]).items()
    between, *returned = (predicted_error(one, "cancelling", length, k=8) for length in lengths)
    assert errors[0] / NEAR <= between <= errors[0] * NEAR
    assert max(*returned, *errors[1:]) < 2.0**-25


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
    # A stagnated sum is all error.
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
        ("normal", 4, {"blocked": 0}, InputError, "blocked must be an integer of at least 1"),
    ],
)
def test_what_is_refused(
    family: str, length: int, more: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as raised:
        predicted_error(rule(20), family, length, **more)
    assert text in str(raised.value)
    assert set(FAMILIES) == {"uniform", "normal", "same_sign", "heavy_tailed", "cancelling"}
