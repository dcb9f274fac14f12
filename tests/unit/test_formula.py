"""Formulas of the registry: arithmetic only, and their values."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tcusim.algorithms import algorithm_of, build
from tcusim.algorithms.formula import evaluate
from tcusim.errors import InputError
from tcusim.machine.shapes import MmaShape
from tcusim.simulate.counts import counts_of_text


def test_formulas_of_rows_of_tiles_follow_their_options() -> None:
    every = itertools.product((3, 16), (4, 16), (4, 16), (1, 5, 100), (None, 12))
    names = ("reduction_panel", "scan_panel")
    for (m, n, k, count, groups), name in itertools.product(every, names):
        given: dict[str, Any] = {} if groups is None else {"groups": groups}
        size = count * m * k
        program = build(name, tile=MmaShape(m, n, k), side="a", segment_size=size, **given)
        steps = counts_of_text(program, {"length": program.blocks.per}).mma
        assert algorithm_of(name).mma_steps(m, n, k, N=count, **given) == steps, (m, n, k, count)


@pytest.mark.parametrize(
    ("formula", "error"),
    [
        ("N + x", "'x' in 'N [+] x' is not understood: .* ceil[(][)] and the names N, k"),
        ("N ** k", "is not understood"),
        ("N.real", "is not understood"),
        ("min(N, k)", "is not understood"),
        ("N / k", "N / k is 5/4, which is no number of steps"),
    ],
)
def test_formulas_are_arithmetic_alone(formula: str, error: str) -> None:
    with pytest.raises(InputError, match=error):
        evaluate(formula, {"N": 5, "k": 4})


def test_a_formula_computes() -> None:
    assert evaluate("2*N - ceil(N/k) + 6/3", {"N": 5, "k": 4}) == 10
