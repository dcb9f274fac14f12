"""Infinities and NaN in scans: the emitted text, run on the CPU, gives the simulator's bits."""

from __future__ import annotations

import pytest

from not_finite import FEW, ORDERS, Case, disagreement, inputs_of
from tcusim.backends import Backend, run
from tcusim.judge.correctness.testing import assert_agree
from tcusim_host import compile_programs

# Every order in one of them.
GIVEN = [(case, ORDERS[number % len(ORDERS)]) for number, case in enumerate(FEW)]


@pytest.fixture(scope="module", autouse=True)
def compiled(host: Backend) -> None:
    compile_programs(case.program(**order) for case, order in GIVEN)


@pytest.mark.parametrize(("case", "order"), GIVEN, ids=[case.id for case, _ in GIVEN])
def test_the_emitted_text_gives_the_same_bits(case: Case, order: dict[str, bool]) -> None:
    assert disagreement(case, lambda *given: run(*given, backend="host"), **order) == ""
    program = case.program(**order)
    assert_agree(program, inputs_of(case, program)[0])
