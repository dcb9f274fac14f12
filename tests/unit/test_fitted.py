"""tcusim.judge.cost.fitted: six numbers, each explained, and fitted on half of the measurements."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from pathlib import Path

import pytest

from tcusim.judge.cost.fitted import FITTED, MEANINGS
from tcusim.machine import unit_of

ROOT = Path(__file__).resolve().parents[2]
RECORDED = json.loads((ROOT / "docs" / "data" / "h200" / "cost.json").read_text())["rows"]


def test_each_number_says_what_it_is() -> None:
    names = [one.name for one in dataclasses.fields(FITTED)]
    assert list(MEANINGS) == names
    assert len(names) == 8


def test_half_of_the_sizes_were_used_to_fit_nothing() -> None:
    rows = [row for row in RECORDED if row["bound"] == "memory"]
    fitted = [row for row in rows if row["fitted"]]
    assert len(fitted) > 20
    assert 2 * len(fitted) <= len(rows)
    others = [row["fitted"] for row in RECORDED if row["bound"] != "memory"]
    assert 2 * sum(others) <= len(others)


@pytest.mark.full
def test_they_are_what_the_recorded_times_give() -> None:
    sys.path.insert(0, str(ROOT / "docs" / "tools"))
    try:
        fit_cost = importlib.import_module("fit_cost")
    finally:
        del sys.path[0]
    found, errors = fit_cost.fit(RECORDED, unit_of("h200"))
    # From where they are there is nothing better nearby.
    assert dataclasses.astuple(found) == pytest.approx(dataclasses.astuple(FITTED), rel=0.05)
    assert (errors**2).mean() ** 0.5 < 0.1
