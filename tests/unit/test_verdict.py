"""`tcusim.validate`: units are judged, alone and beside each other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tcusim
from judged import FEW, chip, judge
from some import marked
from tcusim.errors import InputError, UnknownName, Unsupported
from tcusim.judge.correctness.shape_report import ShapeReport
from tcusim.judge.verdict.consistency import WASTE
from tcusim.judge.verdict.lines import lines_of
from tcusim.judge.verdict.on_arrays import on_arrays
from tcusim.judge.verdict.subjects import subject_of
from tcusim.judge.verdict.tasks import TASKS
from tcusim.judge.verdict.validate import Verdict, validate
from tcusim.machine import arches, units


def test_files_units_and_tiles_beside_each_other(tmp_path: Path) -> None:
    path = tmp_path / "mychip.toml"
    path.write_text('tiles = ["4x8x4", "8x4x4"]\nfraction_bits = 12\n')
    verdict = judge(str(path), "4x4x4", chip("own"))
    assert [unit.name for unit in verdict.units] == ["mychip", "4x4x4", "own"]
    assert verdict.units[0].tiles == ("4x8x4", "8x4x4")
    assert verdict.ok
    only = judge(path, tile="8x4x4")
    assert only.units[0].tiles == ("8x4x4",)
    text = str(verdict)
    assert text.count("not tested  ") == 3
    assert "Beside each other" in text
    assert isinstance(verdict, tcusim.Verdict)
    assert tcusim.validate is validate


def test_json_has_everything() -> None:
    verdict = judge("4x4x4", reference="16x16x16")
    value = json.loads(verdict.to_json())
    (unit,) = value["units"]
    assert value["ok"]
    assert list(unit["verdict"]) == ["best", "cost", "precision", "bound", "not tested"]
    assert unit["best"]["short sums"]["mma"] == 1 / 16
    assert value["reference"]["tile"] == "16x16x16"
    report = ShapeReport.from_json(json.dumps(unit["correctness"][0]))
    assert report == verdict.units[0].reports[0]


def test_a_notebook_shows_it() -> None:
    assert "tcusim-verdict" in judge("4x4x4")._repr_html_()


def test_named_algorithms_leave_out_what_is_about_a_unit_alone() -> None:
    assert "precision" not in judge("4x4x4").units[0].asked.sections
    named = judge("4x4x4", algorithms=["scan_16"], sections=["counts", "correctness"])
    assert named.units[0].asked.sections == ("correctness", "counts")
    # The paper's name is the registry's.
    assert named.units[0].asked.algorithms == ("scan_k",)


def test_progress_and_the_reference() -> None:
    seen: list[tuple[int, int]] = []
    verdict = judge("4x4x4", "2x2x2", progress=lambda *now: seen.append(now))
    assert seen == sorted(seen)
    assert seen[-1] == (1000, 1000)
    assert verdict.reference is None
    # It does not take these types.
    assert judge("4x4x4", ab="s8", acc="s32", reference="mi100").reference is not None


def test_a_reference_without_the_types_is_told_of() -> None:
    with pytest.raises(Unsupported, match=r"^no comparison with the reference is poss"):
        judge("4x4x4", reference="mi100")
    verdict = judge("4x4x4", ab="f32", acc="f32", arch="ieee", reference="h200")
    assert verdict.reference is None
    assert verdict.units[0].findings[-1].name == "reference"
    assert "compared with no other unit: h200 has no f32 -> f32 [reference]" in str(verdict)


def test_one_of_several_that_does_not_take_the_types_is_told_of() -> None:
    verdict = judge("4x4x4", "mi100")
    assert [bool(unit.refused) for unit in verdict.units] == [False, True]
    assert not verdict.ok


@pytest.mark.parametrize(
    ("named", "more", "error", "text"),
    [
        ((), {}, InputError, "there is no unit to judge"),
        (("4x4x4",), {"algorithms": ()}, InputError, "algorithms names none to try; leave it out"),
        (("4x4x4",), {"sections": ["cost"]}, UnknownName, "Did you mean 'counts'"),
        (("4x4x4",), {"algorithms": ["scan_kk"]}, UnknownName, "Did you mean 'scan_k'"),
        (
            ("4x4x4",),
            {"sections": ("precision",), "reference": "a100"},
            InputError,
            "without the sections counts and time there are none; add one to precision",
        ),
        (("4x4x4", "2x2x2"), {"model": max}, InputError, "a model is of one unit, and 2 are"),
        (("mi100",), {}, Unsupported, "contradict each other"),
        (("4x4x4", "h2000"), {}, UnknownName, "unknown unit or architecture 'h2000'"),
    ],
)
def test_what_is_refused(named: Any, more: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as raised:
        validate(*named, **{"algorithms": FEW, **more})
    assert text in str(raised.value)


def test_an_empty_verdict_is_of_nothing() -> None:
    assert Verdict((), None).lines() == ()


def test_integers_have_a_verdict() -> None:
    verdict = validate("16x16x16", ab="s8", acc="s32", arch="hopper", sections=("precision",))
    text = str(verdict)
    assert "integers: every sum is exact, and wraps beyond 2,147,483,647" in text
    assert "Error of sums" not in text


def test_a_tile_that_the_borrowed_machine_cannot_hold_has_no_time() -> None:
    verdict = validate("256x256x256", algorithms=("reduction_kn",))
    (found,) = verdict.units
    assert found.machine == ""
    assert all(one.seconds is None for one in found.candidates)
    assert any(
        one.text.startswith("no time is predicted in h200: a, b and c of one 256x256x256 mma take")
        for one in found.findings
    )


def test_a_floor_that_cuts_one_to_nothing_is_no_fault_of_algorithms(tmp_path: Path) -> None:
    path = tmp_path / "high.toml"
    text = 'tiles = "16x16x16"\nfraction_bits = 20\nexponent_floor = {}\n'
    path.write_text(text.format(21))
    for sections in (None, ["precision"]):
        (found,) = validate(path, sections=sections).units
        lines = {line.name: line for line in lines_of(found, None)}
        assert lines["best"].text.startswith("USELESS: exponent_floor = 21 with 20 fraction bits")
        assert lines["best"].text.endswith("nothing, since no sum is right")
        assert lines["precision"].text.startswith("USELESS for sums: exponent_floor = 21")
        assert not found.ok
        assert not any("WRONG" in line.text for line in lines.values())
    path.write_text(text.format(20))
    assert validate(path, algorithms=("reduction_kn",)).ok


def shipped() -> list[tuple[str, str, str]]:
    """Return every unit and architecture that comes with tcusim, with each pair of its types."""
    known = {one.name: one.arch for one in units()} | {one.name: one for one in arches()}
    return [
        (name, *pair)
        for name, arch in known.items()
        for pair in dict.fromkeys((rule.ab, rule.acc) for rule in arch.rows)
    ]


SHIPPED = shipped()


@pytest.mark.parametrize(("name", "ab", "acc"), marked(SHIPPED, len(SHIPPED), start=5))
def test_no_shipped_unit_is_wrong(name: str, ab: str, acc: str) -> None:
    """A unit is its rule, in each of its types; and the best is the fastest of those with a time.

    Tests of `accuracy_of` try their precision.
    """
    subject = subject_of(name, ab=ab, acc=acc)
    first, kept = subject.tiles[0].name, ("reduction_kn", "reduction_tn")
    verdict = validate(name, ab=ab, acc=acc, tile=first, algorithms=kept, reference=None)
    (found,) = verdict.units
    (lines,) = verdict.lines()
    assert verdict.ok, str(verdict)
    assert [one.text for one in lines if not one.good or "WRONG" in one.text] == []
    assert [one.text for one in found.findings if one.gravity != WASTE] == []
    assert "</html>" in verdict.to_html()
    assert json.loads(verdict.to_json())["ok"]
    for task in TASKS:
        times = [one.seconds for one in found.candidates if one.task == task.name and one.timed]
        best = found.best(task)
        assert best is None or not times or best.seconds == min(one or 0.0 for one in times)
    assert [one.failed for one in on_arrays(replace(subject, tiles=subject.tiles[:1]))] == [()]


def test_an_impossible_machine_is_good_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "tiny.toml"
    path.write_text('tiles = "16x16x16"\nfraction_bits = 24\n[figures]\nregisters_per_core = 1\n')
    (found,) = validate(path, algorithms=("reduction_k",)).units
    best = lines_of(found, None)[0]
    assert not best.good
    assert best.text.startswith("IMPOSSIBLE: a, b and c of one 16x16x16 mma take 512 registers")
    assert best.text.endswith("nothing, since no machine can be so")
