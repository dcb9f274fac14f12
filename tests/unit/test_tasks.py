"""The cost of each task on a tile, and its best algorithm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from judged import chip, figure
from tcusim.judge.verdict.subjects import subject_of
from tcusim.judge.verdict.tasks import TASKS, Candidate, best_of, counted, program_of, tried
from tcusim.machine.shapes import shape_of
from tcusim.simulate.counts import counts_of_text

SHORT_SUM, LONG_SUM, SHORT_SCAN, LONG_SCAN, PRODUCT = TASKS


@pytest.fixture(scope="module")
def found() -> tuple[Candidate, ...]:
    names = ["reduction_k", "reduction_kn", "scan_tn", "gemm_naive", "gemv"]
    return tried(subject_of("8x4x4"), names)[1]


def test_candidates_are_those_that_can_do_the_task(found: tuple[Candidate, ...]) -> None:
    able = {task.name: {one.name for one in found if one.task == task.name} for task in TASKS}
    # Segments of 16 are longer than k = 4.
    assert able["short sums"] == able["long sums"] == {"reduction_kn"}
    assert able["matrix products"] == {"gemm_naive"}
    assert "scan_tn L(A1)" in able["long scans"]


def test_counts_are_those_of_the_tile(found: tuple[Candidate, ...]) -> None:
    for side, rows in (("a", 8), ("b", 4)):
        one = next(c for c in found if (c.task, c.side) == ("short sums", side))
        # An mma takes rows of k elements; each is one useful multiply-add of m*n*k.
        assert one.mma == 1 / (rows * 4)
        assert one.useful == rows * 4 / 128
    product = next(c for c in found if c.task == "matrix products")
    assert (product.mma, product.useful) == (1 / 128, 1.0)
    # Each element of a is read for every tile of columns, and of b for every tile of rows.
    assert product.reads == pytest.approx((128 / 4 + 128 / 8) / 2)


def test_the_program_of_a_candidate_is_the_one_that_was_counted(
    found: tuple[Candidate, ...],
) -> None:
    for one in found:
        task = next(task for task in TASKS if task.name == one.task)
        program, sizes = program_of(one, task, subject_of("8x4x4"))
        (amount,) = sizes.values()
        elements = amount * task.size**2 if task.kind == "product" else amount
        assert counts_of_text(program, sizes).mma / elements == one.mma
        assert elements >= 2**24


def test_the_best_is_the_fastest_or_takes_the_fewest_mma(found: tuple[Candidate, ...]) -> None:
    best = best_of(found, SHORT_SUM)
    assert best is not None
    assert (best.name, best.side) == ("reduction_kn", "a")
    assert best_of(found, LONG_SCAN) is not None
    assert best_of([one for one in found if not one.uses_mma], SHORT_SCAN) is None
    slow = replace(best, seconds=2.0)
    fast = replace(best, algorithm="other", mma=2 * best.mma, seconds=1.0)
    assert best_of([slow, fast], SHORT_SUM) is fast
    # A unit without a time may be faster.
    untimed = replace(slow, seconds=None)
    assert best_of([untimed, fast], SHORT_SUM) is fast
    assert best_of([untimed, fast], SHORT_SUM, by_time=False) is untimed
    assert best_of([untimed, replace(fast, seconds=None)], SHORT_SUM) is untimed


def test_no_algorithm_is_named_beside_a_faster_one() -> None:
    """One tile without a time does not take away those of the others."""
    subject = subject_of("h200")
    names = ["reduction_kn", "reduction_tn"]
    subject = replace(subject, tiles=tuple(map(shape_of, ("8x8x4", "32x8x16"))))
    _, every = tried(subject, names, machine=subject)
    best = best_of(every, LONG_SUM)
    assert best is not None
    assert best.name == "reduction_tn"
    own = [one for one in every if one.task == LONG_SUM.name]
    assert {one.timed for one in own} == {False, True}
    assert best.seconds == min(one.seconds for one in own if one.seconds is not None)


def test_what_needs_more_shared_memory_than_there_is_does_not_fit() -> None:
    names = {}
    for size in (64, 65536):
        unit = chip(f"of {size}", shared_bytes_per_block=figure(size))
        found = tried(subject_of(unit), ["scan_kn"])[1]
        names[size] = {one.task for one in found if one.fits}
        assert size > 64 or all(best_of(found, task) is None for task in TASKS)
    assert names == {64: set(), 65536: {"short scans", "long scans"}}


def test_counted_compares_without_trying() -> None:
    subject = subject_of("8x4x4")
    for task in TASKS:
        one = best_of(counted(subject, ["reduction_kn", "scan_kn", "gemm_naive"]), task)
        assert one is not None
        assert one.tile == "8x4x4"
    assert str(SHORT_SUM) == "short sums, segments of 16"
    assert str(PRODUCT) == "matrix products, 1024 x 1024 x 1024"
