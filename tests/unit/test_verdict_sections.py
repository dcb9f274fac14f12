"""The sections after the five lines: of one unit, and of several beside each other."""

from __future__ import annotations

from judged import chip, figure, judge
from tcusim.judge.verdict.sections import comparison_of, sections_of
from tcusim.machine import Fused


def test_one_unit_has_the_sections_that_were_asked_for() -> None:
    unit = chip("partly", shared_bytes_per_block=figure(8))
    titles = {
        asked: [one.title for one in sections_of(judge(unit, sections=[asked]).units[0])]
        for asked in ("correctness", "counts")
    }
    waste = "What contradicts itself, or is of no use"
    assert titles["correctness"] == [waste, "Correctness on exact integers"]
    assert titles["counts"] == [waste, "Counts on 4x4x4, against the closed formulas"]


def test_correctness_says_what_it_does_not_test() -> None:
    (section,) = sections_of(judge(chip("plain"), sections=["correctness"]).units[0])
    assert "this tests the algorithms on the tile, and not the arithmetic" in section.texts[0]
    assert "all right, where nothing is rounded" in section.texts[1]
    assert section.texts[2].endswith(" programs verified for all sizes")


def test_counts_of_other_tiles_are_where_there_is_room() -> None:
    unit = judge("volta", algorithms=["reduction_k"]).units[0]
    assert "32x8x16" in sections_of(unit)[-1].texts[0]
    every = [one.title for one in sections_of(unit, every_tile=True)]
    assert [title for title in every if title.startswith("Counts on 32x8x16")]
    assert sum(title.startswith("Counts on ") for title in every) == len(unit.tiles)


def test_the_best_of_a_row_is_marked_and_equals_are_not() -> None:
    verdict = judge(
        "4x4x4", chip("tall", how=Fused(4, 9), tile="16x4x4"), "mi100", reference="16x16x16"
    )
    table = comparison_of(verdict.units, verdict.reference)
    assert table.header == ("", "4x4x4", "tall", "mi100", "16x16x16 on 16x16x16")
    rows: dict[str, list[str]] = {}
    for name, *cells in table.rows:
        rows.setdefault(name, cells)
    assert rows["arithmetic"] == ["exact, one rounding", "4 terms, 9 bits, rz", "refused", ""]
    assert rows["short sums: best"] == ["reduction_kn", "reduction_kn", "none", "reduction_kn"]
    # The reference is no competitor.
    assert rows["  elements an mma"] == ["16", "64 *", "", "256"]
    assert rows["  useful"] == ["25%", "25%", "", "6.25%"]
    assert rows["cases right"][2] == "refused"
