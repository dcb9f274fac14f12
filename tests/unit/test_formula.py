"""Formulas of the registry: arithmetic alone, and what they compute."""

from __future__ import annotations

import itertools
from math import ceil

import pytest

from tcusim.algorithms import algorithm_of
from tcusim.algorithms.formula import evaluate
from tcusim.algorithms.rows import SCANNED, SUMMED, share_of
from tcusim.errors import InputError

# Those that take several tiles at a time for about so many elements.
ROWS = {"reduction_panel": SUMMED, "scan_panel": SCANNED}


def test_formulas_of_rows_of_tiles_follow_their_options() -> None:
    for name, elements in ROWS.items():
        row = algorithm_of(name)
        for m, n, k, count in itertools.product((3, 8, 16), (4, 16), (4, 16), (1, 5)):
            for pieces, groups in ((None, None), (3, 2)):
                share = share_of(m, k, count * m * k, elements, pieces, groups)
                passes = 1 if share.per_segment else ceil(count / share.tiles)
                products = share.tiles
                if name == "scan_panel":
                    products = share.tiles * (ceil(k / n) + 1) - share.groups
                sizes: dict[str, int] = {}
                if pieces is not None and groups is not None:
                    sizes = {"tiles_per_row": pieces, "groups": groups}
                assert row.mma_steps(m, n, k, N=count, **sizes) == passes * products, name


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
