"""The five lines of a verdict."""

from __future__ import annotations

from typing import Any

from faulty import plant
from judged import FEW, chip, figure, judge
from tcusim.judge.verdict.lines import LINES, five_of, lines_of
from tcusim.judge.verdict.tasks import TASKS, best_of
from tcusim.judge.verdict.validate import validate
from tcusim.machine import Fused, mma_values


def texts(*named: Any, **more: Any) -> dict[str, str]:
    verdict = judge(*named, **more)
    return {line.name: line.text for line in lines_of(verdict.units[0], verdict.reference)}


def test_five_lines_in_their_order() -> None:
    found = texts("4x4x4")
    assert tuple(found) == LINES
    assert found["best"].startswith("short sums reduction_kn, long sums reduction_kn, short scans")
    assert found["best"].endswith(
        "matrix products gemm_naive (tile 4x4x4), by the fewest mma, as no time is known"
    )
    assert "short sums 16 (25%)" in found["cost"]
    assert "other algorithms than those named" in found["not tested"]


def test_costs_are_beside_the_reference() -> None:
    cost = texts("32x8x16", reference="h200")["cost"]
    assert "mma beside 16x16x16 on h200" in cost
    assert "short sums 0.5x (12.5%, there 6.25%)" in cost
    # With the data in a, U has eight columns of result for sixteen rows: no gain for scans.
    assert "short scans 1x (6.25%)" in cost


def test_programs_that_do_not_fit_are_not_timed() -> None:
    """A block of the scan takes 384 bytes of shared memory, of the others 256."""
    some, none = (
        judge(
            chip(f"of {size} bytes", shared_bytes_per_block=figure(size)),
            sections=["time"],
            like="h200",
        )
        for size in (300, 200)
    )
    text = str(some)
    assert "than the 300 bytes that the unit has for it: scan_kn (384)." in text
    assert "scan" not in lines_of(some.units[0], None)[0].text
    assert {one.fits for one in some.units[0].candidates if one.timed} == {True}
    assert "none fits: a block needs at least 256 bytes of shared memory, and has 200" in str(none)
    assert "reduction_kn (256), scan_kn (384), gemm_naive (256)" in str(none)


def test_what_was_not_said_is_not_known() -> None:
    whole = validate("4x4x4", algorithms=FEW, sections=["precision"], reference=None)
    lines = {line.name: line.text for line in whole.lines()[0]}
    assert lines["precision"].startswith("not known: nobody said how this unit computes")
    assert lines["best"] == "not asked for"
    assert lines["not tested"].endswith("correctness, counts, time (not asked for)")


def test_what_is_wrong_comes_first_and_is_named() -> None:
    plant()
    first = judge("4x4x4", algorithms=["planted", "scan_kn"]).lines()[0][0]
    assert not first.good
    assert first.text.startswith("WRONG: planted: ")
    assert "elements are wrong; " in first.text
    assert "long scans scan_kn (tile 4x4x4)" in first.text
    impossible = texts(chip("small", registers_per_core=figure(8)))["best"]
    assert impossible.startswith("IMPOSSIBLE: a, b and c of one 4x4x4 mma take 32 registers")


def test_what_a_model_computes_otherwise_is_named() -> None:
    claimed = chip("claimed", how=Fused(4, 24))
    rule = chip("built", how=Fused(4, 20)).arch.rows[0]
    verdict = judge(claimed, model=lambda a, b, c: mma_values(a, b, c, rule))
    precision = verdict.lines()[0][2]
    assert (precision.name, precision.good) == ("precision", False)
    assert precision.text.startswith("WRONG: the unit claims fraction_bits = 24, and its model")
    assert "have other bits than the unit's rule gives" in precision.text
    assert not verdict.ok
    assert "hardware" not in verdict.lines()[0][4].text


def test_a_refused_unit_says_why() -> None:
    verdict = judge("mi100", "4x4x4")
    first, *others = verdict.lines()[0]
    assert "two published models contradict" in first.text
    assert {line.text for line in others} == {"nothing was tried", "all of it"}
    assert five_of(verdict.units[0], None).title == "mi100: f16 to f32"
    assert five_of(judge(chip("headed")).units[0], None).title == "headed, a chip: f16 to f32"


def test_a_tile_alone_is_bounded_in_the_machine_of_the_reference() -> None:
    found = texts("32x8x16", reference="h200", sections=["counts", "time"])
    assert found["bound"].startswith("in the machine of h200, at as many multiply-adds a second: ")
    assert "memory: " in found["bound"]
    assert "predicted time: in the machine of h200" in found["cost"]
    assert texts("32x8x16", sections=["counts", "time"])["bound"].startswith("not known without ")


def test_a_unit_and_its_reference_are_compared_by_one_rule() -> None:
    """Without a time, both by the fewest mma: h200's fastest scan is another than that."""
    untimed = judge(
        "l4",
        tile="16x16x16",
        reference="h200",
        algorithms=("scan_kn", "scan_tn"),
        sections=["counts", "time"],
    )
    (unit,), reference = untimed.units, untimed.reference
    assert reference is not None
    for task in TASKS[2:4]:
        one = unit.best(task)
        assert one is not None
        assert not one.timed
        other = best_of(reference.candidates, task, by_time=False)
        assert other is not None
        assert (one.name, one.mma) == (other.name, other.mma)
    lines = {line.name: line.text for line in untimed.lines()[0]}
    assert "long scans 1x" in lines["cost"]
    assert lines["best"].endswith("by the fewest mma, as no time is known")


def test_one_figure_more_takes_no_time_away() -> None:
    """A designer who begins to fill in a file is told no less than before."""
    for more in ({}, {"clock": figure(1e9)}, {"clock": figure(1e9), "l2_latency": figure(900)}):
        unit = chip(f"filled {len(more)}", tile="16x16x16", how=Fused(16, 24), **more)
        found = texts(
            unit, reference="h200", algorithms=("reduction_kn",), sections=["counts", "time"]
        )
        assert "predicted time: " in found["cost"]
        assert "not known" not in found["bound"]
        assert ("figures of h200, named below" in found["bound"]) == bool(more)
