"""Formulas of the registry: arithmetic only, and their values."""

from __future__ import annotations

import pytest

from tcusim.algorithms import algorithm_of
from tcusim.algorithms.formula import evaluate
from tcusim.errors import InputError, Unsupported


def test_a_formula_follows_the_options_of_a_product() -> None:
    sizes = {"rows": 32, "cols": 48, "inner": 64}
    assert algorithm_of("gemm").mma_steps(16, 16, 16, **sizes) == 2 * 3 * 4
    with pytest.raises(Unsupported, match="scan_panel has no formula; count the mma steps of its"):
        algorithm_of("scan_panel").mma_steps(16, 16, 16, N=4)


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
