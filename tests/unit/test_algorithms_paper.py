"""The paper's baselines: the inefficient and the coalesced reduction, and naive products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tcusim.algorithms import build
from tcusim.algorithms.paper import gemm_naive, gemv, reduction_kn_coalesced
from tcusim.errors import Unsupported
from tcusim.machine import mma
from tcusim.program.grammar import Mma
from tcusim.simulate.interpreter import interpret, run_numpy

M = K = 16


def sums(name: str, x: Any, size: int, **options: Any) -> Any:
    return run_numpy(build(name, segment_size=size, **options), {"in": x})["out"]


def test_the_inefficient_one_finishes_each_tile() -> None:
    """1 + ceil(m/k) products a tile, where Figure 7 has one."""
    x = np.ones(4 * M * K, np.float16)
    for name, each in (("reduction_tn_inefficient", 2), ("reduction_tn", 1)):
        program = build(name, segment_size=x.size, tile="16x16x16")
        products = sum(isinstance(event.step, Mma) for event in interpret(program, {"in": x}))
        assert products == each * 4 + (each == 1)
    with pytest.raises(Unsupported, match="the work-inefficient reduction is the paper's"):
        build("reduction_tn_inefficient", combine="mma", ab="bf16", source="f32")


@pytest.mark.parametrize("combine", ["mma", "add"])
def test_each_coalesced_segment_has_a_sum_of_its_own(combine: str) -> None:
    """As printed, one V would serve all of them (erratum E7)."""
    assert "erratum E7" in str(reduction_kn_coalesced.__doc__)
    x = np.random.default_rng(0).integers(-3, 4, (M, 64)).astype(np.float16)
    expected = x.sum(1, dtype=np.float32)
    found = sums("reduction_kn_coalesced", x.ravel(), 64, combine=combine, tile="16x16x16")
    np.testing.assert_array_equal(found, expected)
    x[5, 3] = np.inf
    found = sums("reduction_kn_coalesced", x.ravel(), 64, combine="add", tile="16x16x16")
    assert found[5] == np.inf
    np.testing.assert_array_equal(np.delete(found, 5), np.delete(expected, 5))


def test_a_naive_product_is_a_chain_of_mma() -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((16, 48), (48, 16)))
    program = build("gemm_naive", cols=16, inner=48, tile="16x16x16")
    c = np.zeros((16, 16), np.float32)
    for k in range(0, 48, 16):
        c = np.asarray(mma(a[:, k : k + 16], b[k : k + 16], c, arch="hopper"))
    found = run_numpy(program, {"a": a.ravel(), "b": b.ravel()})["out"]
    np.testing.assert_array_equal(found, c.ravel())


def test_a_vector_is_a_matrix_of_one_column() -> None:
    assert gemv.__doc__ is not None
    assert gemm_naive.__name__ in gemv.__doc__
    rng = np.random.default_rng(4)
    a, x = (rng.standard_normal(size).astype(np.float16) for size in (50 * 30, 30))
    by_vector = run_numpy(build("gemv", inner=30), {"a": a, "b": x})["out"]
    by_matrix = run_numpy(build("gemm_naive", cols=1, inner=30), {"a": a, "b": x})["out"]
    np.testing.assert_array_equal(by_vector, by_matrix)
