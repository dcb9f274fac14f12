"""Scans of infinities and NaN: what precedes them keeps its bits, and the rest is NumPy's."""

from __future__ import annotations

import pytest

from not_finite import CASES, Case, disagreement
from tcusim.backends import run

ORDERS = [
    pytest.param({"exclusive": exclusive, "reverse": reverse}, id=f"{exclusive}-{reverse}")
    for exclusive in (False, True)
    for reverse in (False, True)
]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_scans_are_numpys(case: Case, order: dict[str, bool]) -> None:
    assert disagreement(case, run, **order) == ""
