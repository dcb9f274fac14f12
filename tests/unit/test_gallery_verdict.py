"""`validate --gallery`: a row for each public unit that comes with tcusim."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tcusim.cli.main import main
from tcusim.judge.verdict import gallery as subject
from tcusim.judge.verdict.tasks import tried
from tcusim.machine import unit_of
from tcusim.machine.registry import gallery


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "gallery", lambda: ("gemmini", "mxdotp"))


@pytest.mark.usefixtures("two")
def test_a_row_for_each_unit(tmp_path: Path) -> None:
    page, data = tmp_path / "g.html", tmp_path / "g.json"
    words = ["validate", "--gallery", "--jobs", "1", "--html", str(page), "--json", str(data)]
    words += ["--backend", "numpy"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    printed = " ".join(result.output.split())
    for text in (
        "bits of numpy",
        "8 ok, 14,970 outputs",
        "2 public units",
        "gemmini",
        "s8 to s32",
        "reduction_panel:",
    ):
        assert text in printed
    text = page.read_text()
    assert text.index("2 public units") < text.index("gemmini in full")
    assert "Beside each other" not in text
    assert "<title>Verdict on 2 public units</title>" in text
    assert text.count('<p class="outcome') == 1
    for cell in ("integers, 20 bits in a step of 16", "gemm: 4,096, 0% wasted"):
        assert cell in text
    assert unit_of("mxdotp").unsaid in text
    units = json.loads(data.read_text())["units"]
    assert [one["name"] for one in units] == ["gemmini", "mxdotp"]
    assert [(one["ab"], one["acc"]) for one in units] == [("s8", "s32"), ("e4m3", "f32")]
    assert all(one["correctness"] and one["ok"] for one in units)
    assert all(one["agreement"]["outputs"] > 1000 for one in units)


@pytest.mark.usefixtures("two")
def test_the_best_algorithm_has_to_be_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "gallery", lambda: ("gemmini",))

    def wrong(*given: object) -> object:
        reports, _ = tried(*given)  # type: ignore[arg-type]
        rows = [replace(row, right=row.cases - 1, first_wrong="n = 1") for row in reports[0].rows]
        return (replace(reports[0], rows=tuple(rows)),), ()

    monkeypatch.setattr(subject, "tried", wrong)
    found = subject.validate_gallery()
    assert not found.ok
    table = found.table()
    assert table.wrong == [0]
    assert "none" in found.best_algorithms().rows[0]
    assert any("WRONG" in note for note in table.notes)


def test_other_options_are_rejected() -> None:
    result = CliRunner().invoke(main, ["validate", "--gallery", "--ab", "f16"])
    assert result.exit_code == 2
    assert "--gallery judges its units as they are: leave out ab" in result.output


def test_every_unit_of_the_gallery_says_its_source() -> None:
    for name in gallery():
        unit = unit_of(name)
        assert unit.arch.source != f"{name}.toml", name
        assert all(rule.source and rule.evidence != "assumed" for rule in unit.arch.rows), name


@pytest.mark.full
def test_the_whole_gallery_takes_a_minute() -> None:
    found = subject.validate_gallery(jobs=None)
    assert found.ok, list(found.table().notes)
    assert len(found.units) == len(gallery())
    assert found.seconds < 60
