"""`tcusim.accuracy_of`: verdicts on precision differ, are right, and find a wrong unit."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import tcusim
from some import Some, marked
from tcusim.judge.accuracy import limits, measure, summary
from tcusim.judge.accuracy.measure import BLOCK
from tcusim.judge.accuracy.summary import Accuracy, accuracy_of
from tcusim.machine import Arch, Fused, Rule, Values, arches, fused_unit, mma_values, units

VERDICTS = {
    25: "good for float16 results",
    12: "too coarse for bfloat16 results, which have 8 bits",
    3: "USELESS for sums",
    20: "good for float16 results",
    8: "too coarse for bfloat16 results, which have 8 bits",
    5: "USELESS for sums",
}


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure shorter sums."""
    monkeypatch.setattr(summary, "_LAST", 9)


# Predictions for a rule are cached, so that other tests take one of these.
def of_bits(bits: int) -> Accuracy:
    return accuracy_of(fused_unit(16, bits))


def test_units_get_verdicts_that_differ_and_are_right(some: Some) -> None:
    # The first three in the default run.
    found = {bits: of_bits(bits) for bits in list(VERDICTS)[: 6 if some.full else 3]}
    assert {bits: one.use() for bits, one in found.items()} == {
        bits: VERDICTS[bits] for bits in found
    }
    precise = [found[bits].bits(blocked=BLOCK) for bits in sorted(found, reverse=True)]
    assert precise == sorted(precise, reverse=True)
    assert precise[0] == pytest.approx(21.2, abs=0.3)
    assert [one.caution() for one in found.values()] == [""] * len(found)
    assert "no bit in one accumulator (error 99.9%, same_sign)" in found[3].promise()


def every_rule() -> list[tuple[Arch, Rule]]:
    """Return the rules of all units and architectures, those that compute alike once."""
    known = [*arches(), *(unit.arch for unit in units())]
    found = {(str(row.how), row.ab, row.acc): (arch, row) for arch in known for row in arch.rows}
    return list(found.values())


EVERY = every_rule()


@pytest.mark.parametrize(("arch", "row"), marked(EVERY, len(EVERY) // 2, start=3))
def test_the_model_holds_for_every_unit_and_type(arch: Arch, row: Rule) -> None:
    """A unit is its rule: any difference from the prediction is a fault of the model."""
    found = accuracy_of(arch, ab=row.ab, acc=row.acc)
    assert found.caution() == ""
    # Of the few sums that are measured, some are as good as never in error.
    assert len(found.apart()) <= 3, found.apart()


@pytest.mark.parametrize(("claimed", "built"), marked([(25, 20), (20, 25), (25, 21), (12, 10)], 4))
def test_where_the_model_does_not_hold_measured_errors_are_promised(
    claimed: int, built: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums of another rule stand for a model that is off; no unit is wrong for that.

    Those of 25 and of 24 bits differ by less than one rounding of a float32, and are alike.
    """

    def other(a: Values, b: Values, c: Values | None, rule: Rule) -> Values:
        assert isinstance(rule.how, Fused)
        return mma_values(a, b, c, replace(rule, how=replace(rule.how, fraction_bits=built)))

    for module in (limits, measure):
        monkeypatch.setattr(module, "mma_values", other)
    found = of_bits(claimed)
    assert found.caution().startswith("the error model does not hold here: sums of ")
    worst = found.worst()
    assert worst.length == 2**9
    assert worst.measured == max(one.measured or 0.0 for one in found.errors if one.length == 2**9)
    assert "sums of 512 terms have " in found.promise()
    assert "WRONG" not in found.caution() + found.promise()


def test_everything_is_json() -> None:
    found = of_bits(12)
    value = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert value["bits"]["chain"] == found.bits()
    assert value["caution"] == ""
    assert isinstance(found, tcusim.Accuracy)
    assert tcusim.accuracy_of is accuracy_of


def test_sums_of_integers_never_round() -> None:
    whole = accuracy_of("h200", ab="s8", acc="s32")
    assert whole.promise().startswith("integers: every sum is exact")
    assert whole.caution() == ""


def test_the_share_that_is_done() -> None:
    seen: list[tuple[int, int]] = []
    accuracy_of(fused_unit(16, 12), progress=lambda *now: seen.append(now))
    assert seen == [(1, 2), (2, 2)]
