"""A real GPU gives the bits of the simulator, through each library that launches kernels."""

from __future__ import annotations

import os

import numpy as np
import pytest

import tcusim
from tcusim.algorithms import segmented_algorithms
from tcusim.backends import why_unavailable
from tcusim.judge.correctness.agreement import agree
from tcusim.judge.correctness.cases import CaseGrid
from tcusim.judge.correctness.testing import assert_agree, random_inputs

ALGORITHMS = [row.name for row in segmented_algorithms()]

pytestmark = [
    pytest.mark.gpu(min_sm=70),
    pytest.mark.parametrize("backend", ["cuda", "pycuda", "cupy"]),
]


def require(backend: str) -> None:
    reason = why_unavailable(backend)
    if reason is not None:
        pytest.skip(reason)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_grid(algorithm: str, backend: str) -> None:
    require(backend)
    report = agree(CaseGrid([algorithm]), backend=backend, options={"poison": True})
    assert report.ok, report.summary()


@pytest.mark.slow
def test_full_grid(backend: str) -> None:
    require(backend)
    report = agree(CaseGrid(full=True), backend=backend, jobs=os.cpu_count() or 1, seconds=120)
    assert report.ok, report.summary()
    assert report.total.cases > 500


def test_an_assertion_that_names_backends(backend: str) -> None:
    require(backend)
    program = tcusim.build("scan_256n", masked=True, warps=2)
    inputs = random_inputs(program, "normal", 5000, np.random.default_rng(1))
    assert_agree(program, inputs, ("numpy", backend))
