"""Products of matrices and vectors: the emitted text on the CPU gives the simulator's bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcusim
from tcusim.arrays.report import Report
from tcusim.backends import Backend
from tcusim.judge.correctness.testing import assert_agree, random_inputs
from tcusim_host import compile_programs

# Each with its own options.
PROGRAMS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("gemm_naive", {"cols": 33, "inner": 40, "warps": 2}),
    ("gemm", {"cols": 72, "inner": 80, "warps": 4, "accumulation_length": 3, "result": "f16"}),
    ("gemm", {"cols": 64, "inner": 160, "warps": 2, "acc": "f16"}),
    ("gemm", {"cols": 50, "inner": 64, "warps": 2, "tile": "32x8x16", "items_per_warp": 2}),
    ("gemm", {"cols": 72, "inner": 200, "warps": 4, "stages": 4, "accumulation_length": 4}),
    # Totals that are kept in memory.
    (
        "gemm",
        {"cols": 80, "inner": 176, "stages": 3, "down": 4, "across": 4, "accumulation_length": 4},
    ),
    ("gemm", {"cols": 50, "inner": 64, "warps": 4, "ab": "bf16", "source": "f32"}),
    ("gemm", {"cols": 50, "inner": 64, "warps": 2, "ab": "s8", "acc": "s32"}),
    ("gemm", {"cols": 50, "inner": 20, "ab": "f64", "acc": "f64", "tile": "8x8x4"}),
    ("gemv", {"inner": 50, "tile": "8x32x16"}),
    (
        "gemv_reduction",
        {"inner": 200, "tile": "8x32x16", "warps": 2, "down": 2, "accumulation_length": 4},
    ),
    (
        "gemv_reduction",
        {"inner": 256, "warps": 2, "accumulation_length": 4, "chunk": 128},
    ),
    (
        "gemv_reduction",
        {"inner": 500, "warps": 4, "share_rows": True, "accumulation_length": 2, "width": 2},
    ),
    (
        "gemv_reduction",
        {"inner": 520, "warps": 2, "share_rows": True, "stages": 4, "width": 1, "chunk": 128},
    ),
    ("gemv_reduction", {"inner": 100, "warps": 3, "ab": "bf16", "source": "f32", "chunk": 40}),
)


@pytest.fixture(scope="module")
def compiled(host: Backend) -> None:
    compile_programs(tcusim.build(name, add_c=True, **options) for name, options in PROGRAMS)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(("name", "options"), PROGRAMS, ids=str)
def test_products_agree(name: str, options: dict[str, Any]) -> None:
    program = tcusim.build(name, add_c=True, **options)
    archs = ["hopper", "ampere"]
    if program.ab == "f16":
        archs.append("volta")
    kinds = ["uniform", "integers"] if program.ab == "s8" else ["normal", "wide", "special"]
    for number, (arch, kind) in enumerate((arch, kind) for arch in archs for kind in kinds):
        inputs = random_inputs(
            program, kind, (70, 1, 131)[number % 3], np.random.default_rng(number)
        )
        # Lanes in another order: nothing may depend on it.
        assert_agree(program, inputs, arch=arch, options={"host": {"seed": number}})


def test_matmul_on_a_backend(host: Backend) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((40, 40)).astype(np.float32) for _ in range(2))
    report = Report()
    result = tcusim.matmul(a, b, options={"backend": "host", "arch": "ampere", "report": report})
    assert np.array_equal(result, tcusim.matmul(a, b, options={"arch": "ampere"}))
    assert report.mma == 9 * 16 * 4
    x = a[0]
    assert np.array_equal(
        tcusim.matvec(a, x, options={"backend": "host", "arch": "ampere"}),
        tcusim.matvec(a, x, options={"arch": "ampere"}),
    )
