"""`tcusim.accuracy_of`: verdicts on precision differ, are right, and find a wrong unit."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import tcusim
from some import Some, marked
from tcusim.accuracy import accuracy, limits, measure
from tcusim.accuracy.accuracy import Accuracy, accuracy_of
from tcusim.accuracy.measure import BLOCK
from tcusim.machine import Fused, Rule, Values, fused_unit, mma_values

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
    monkeypatch.setattr(accuracy, "_LAST", 9)


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
    assert [one.problems() for one in found.values()] == [()] * len(found)
    assert "no bit in one accumulator (error 99.9%, same_sign)" in found[3].promise()


@pytest.mark.parametrize(("claimed", "built"), marked([(24, 20), (20, 24), (25, 24), (12, 10)], 4))
def test_a_unit_that_computes_otherwise_than_its_rule_is_found(
    claimed: int, built: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(a: Values, b: Values, c: Values | None, rule: Rule) -> Values:
        assert isinstance(rule.how, Fused)
        return mma_values(a, b, c, replace(rule, how=replace(rule.how, fraction_bits=built)))

    for module in (limits, measure):
        monkeypatch.setattr(module, "mma_values", wrong)
    problems = of_bits(claimed).problems()
    assert problems
    assert f"with the {claimed} fraction bits of its rule" in problems[0]


def test_everything_is_json() -> None:
    found = accuracy_of("volta", acc="f16")
    value = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert value["bits"]["chain"] == found.bits()
    assert value["problems"] == []
    assert isinstance(found, tcusim.Accuracy)
    assert tcusim.accuracy_of is accuracy_of


def test_sums_of_integers_never_round() -> None:
    whole = accuracy_of("h200", ab="s8", acc="s32")
    assert whole.promise().startswith("integers: every sum is exact")
    assert whole.problems() == ()


def test_the_share_that_is_done() -> None:
    shares: list[float] = []
    accuracy_of(fused_unit(16, 20), share=shares.append)
    assert shares == [0.5, 1.0]
