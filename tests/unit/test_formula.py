"""Formulas of the registry: arithmetic only, and their values."""

from __future__ import annotations

import itertools
from math import ceil

import pytest

from tcusim.algorithms import algorithm_of
from tcusim.algorithms.formula import evaluate
from tcusim.algorithms.rows import SUMMED, scan_share, share_of
from tcusim.errors import InputError


def test_formulas_of_rows_of_tiles_follow_their_options() -> None:
    for m, n, k, count in itertools.product((3, 8, 16), (4, 16), (4, 16), (1, 5, 100)):
        for groups in (None, 12):
            sizes = {} if groups is None else {"groups": groups}
            size = count * m * k
            total = share_of(m, k, size, SUMMED, groups)
            a_pass = 2 ** ((total.groups * m).bit_length() - 1)
            passes = 1 if total.lines else ceil(total.rows / a_pass)
            row = algorithm_of("reduction_panel")
            assert row.mma_steps(m, n, k, N=count, **sizes) == passes * total.tiles
            scan = scan_share(m, k, size, groups)
            passes = 1 if scan.lines else ceil(scan.rows / 32)
            products = scan.tiles * (ceil(k / n) + 1) - scan.groups
            row = algorithm_of("scan_panel")
            assert row.mma_steps(m, n, k, N=count, **sizes) == passes * products


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
