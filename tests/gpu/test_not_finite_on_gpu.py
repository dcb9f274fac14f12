"""On a GPU: scans of infinities and NaN, and the prefixes before them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tcusim
from not_finite import CASES, INF, NAN, ORDERS, Case, disagreement, inputs_of
from tcusim.backends import run
from tcusim.judge.correctness.testing import assert_agree
from tcusim_cuda import CUDA, arch_name, device_sm

pytestmark = pytest.mark.gpu(min_sm=80)


@pytest.fixture(autouse=True)
def available() -> None:
    reason = CUDA.available()
    if reason is not None:
        pytest.skip(reason)


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_scans_are_numpys(case: Case, order: dict[str, bool]) -> None:
    assert disagreement(case, lambda *given: run(*given, backend=CUDA), **order) == ""
    program = case.program(**order)
    arch = arch_name(device_sm())
    if arch is not None:
        assert_agree(program, inputs_of(case, program)[0], ("numpy", CUDA), arch=arch)


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("size", [40, 64, 1000, 3000, 2**20])
def test_in_place(size: int, order: dict[str, Any]) -> None:
    """Elements that a warp reads again must not have been overwritten."""
    torch: Any = pytest.importorskip("torch")
    x = (np.arange(2**20) % 5 - 2).astype(np.float32)
    x[777::4999], x[5555::9001], x[123_456] = INF, -INF, NAN
    a = torch.from_numpy(x.copy()).cuda()
    expected = tcusim.segmented_cumsum(a, size, **order)
    assert tcusim.segmented_cumsum(a, size, out=a, **order) is a
    got = a.cpu().numpy()
    np.testing.assert_array_equal(got, expected.cpu().numpy())
    edges = [*range(0, x.size, size), x.size]
    for begin, end in itertools.pairwise(edges):
        part = x[begin:end][::-1] if order["reverse"] else x[begin:end]
        with np.errstate(invalid="ignore"):
            sums = np.cumsum(part)
        if order["exclusive"]:
            sums = np.concatenate([[0], sums[:-1]])
        found = got[begin:end][::-1] if order["reverse"] else got[begin:end]
        np.testing.assert_array_equal(found, sums)
