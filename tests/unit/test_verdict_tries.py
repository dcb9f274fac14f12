"""Reports of several tiles, in one process and in several."""

from __future__ import annotations

from dataclasses import replace

import pytest

from faulty import plant
from judged import chip
from tcusim.judge import run
from tcusim.judge.correctness.validation import validate_shape
from tcusim.judge.run import WHOLE, executor_of
from tcusim.judge.verdict.subjects import subject_of
from tcusim.judge.verdict.tasks import seconds_of, tried
from tcusim.machine import register_unit
from tcusim.machine.shapes import shape_of


def test_each_tile_has_a_report_and_the_share_grows_to_one() -> None:
    subject = subject_of("volta")
    names = ["reduction_k"]
    shares: list[int] = []
    reports, candidates = tried(subject, names, progress=lambda done, whole: shares.append(done))
    assert [report.shape for report in reports] == [tile.name for tile in subject.tiles]
    assert all(report.ok and report.arch == "volta" for report in reports)
    assert {one.tile for one in candidates} == {tile.name for tile in subject.tiles if tile.k == 16}
    assert not any(one.timed for one in candidates)
    assert shares == sorted(shares)
    assert shares[-1] == WHOLE
    assert seconds_of(subject, names) < seconds_of(subject, names, full=True)


def test_several_processes_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_WORTH_SECONDS", 0.0)
    subject = subject_of(register_unit(chip("coarse")))
    # Another process does not know it; its report stands in its place all the same.
    plant()
    names = ["scan_k", "planted", "reduction_kn"]
    one = tried(subject, names, machine=subject)
    with executor_of(2) as executor:
        several = tried(subject, names, machine=subject, executor=executor)
    assert several == one
    reports, candidates = one
    assert not reports[0].ok
    assert {candidate.algorithm for candidate in candidates} == {"reduction_kn"}


def test_further_tiles_have_some_of_the_cases_and_each_algorithm() -> None:
    """All cases of six tiles took minutes; --full has them."""
    two = chip("two", tile="4x4x4")
    two = replace(two, shapes=(shape_of("4x4x4"), shape_of("4x4x2")))
    subject = subject_of(two)
    (first, second), _ = tried(subject, ["reduction_kn", "scan_kn"])
    whole = validate_shape("4x4x2", algorithms=["reduction_kn", "scan_kn"])
    assert [row.name for row in second.rows] == [row.name for row in whole.rows]
    for row, every in zip(second.rows, whole.rows, strict=True):
        assert 0 < row.cases < every.cases
        assert row.ok
    assert sum(row.cases for row in first.rows) > sum(row.cases for row in second.rows)
