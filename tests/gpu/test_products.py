"""On a GPU: products give the simulator's bits, and large ones are right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcusim
from on_gpu import arch
from tcusim.judge.correctness.testing import assert_agree, random_inputs
from tcusim_cuda import CUPY, device_sm, emit

pytestmark = pytest.mark.gpu(min_sm=70)

PROGRAMS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("gemm_naive", {"cols": 33, "inner": 40, "warps": 2}),
    ("gemm_naive", {"cols": 64, "inner": 64, "acc": "f16"}),
    ("gemm", {"cols": 72, "inner": 80, "warps": 4, "accumulation_length": 3, "result": "f16"}),
    (
        "gemm",
        {
            "cols": 256,
            "inner": 256,
            "warps": 8,
            "warps_down": 2,
            "down": 4,
            "accumulation_length": 16,
        },
    ),
    ("gemm", {"cols": 50, "inner": 64, "warps": 2, "tile": "32x8x16", "items_per_warp": 2}),
    ("gemm", {"cols": 50, "inner": 64, "warps": 4, "ab": "bf16", "source": "f32"}),
    ("gemm", {"cols": 50, "inner": 64, "warps": 2, "ab": "s8", "acc": "s32"}),
    ("gemm", {"cols": 50, "inner": 20, "ab": "f64", "acc": "f64", "tile": "8x8x4"}),
    ("gemv", {"inner": 50, "tile": "8x32x16"}),
    (
        "gemv_reduction",
        {"inner": 5000, "tile": "8x32x16", "warps": 4, "width": 8, "accumulation_length": 16},
    ),
    (
        "gemv_reduction",
        {"inner": 256, "warps": 2, "accumulation_length": 4, "chunk": 128},
    ),
    (
        "gemv_reduction",
        {"inner": 500, "warps": 4, "share_rows": True, "accumulation_length": 2, "width": 2},
    ),
)


@pytest.fixture(autouse=True)
def _library() -> None:
    reason = CUPY.available()
    if reason is not None:
        pytest.skip(f"{CUPY.name}: {reason}")


@pytest.mark.parametrize("kind", ["normal", "wide", "special", "integers"])
@pytest.mark.parametrize(("name", "options"), PROGRAMS, ids=str)
def test_products_give_the_simulators_bits(name: str, options: dict[str, Any], kind: str) -> None:
    program = tcusim.build(name, add_c=True, **options)
    if device_sm() < emit(program).min_sm:
        pytest.skip(f"sm_{device_sm()} lacks the instruction")
    if program.ab == "s8" and kind != "integers":
        pytest.skip("integers have no such kind")
    for rows in (1, 131, 300):
        inputs = random_inputs(program, kind, rows, np.random.default_rng(rows))
        assert_agree(program, inputs, backends=("numpy", "cupy"), arch=arch())


@pytest.mark.parametrize("size", [(2048, 2048, 2048), (1000, 3000, 500), (4096, 1, 4096)])
def test_large_products_equal_integers(size: tuple[int, int, int]) -> None:
    """Sums of products of -1, 0 and 1 stay far within float32's whole numbers."""
    rows, cols, inner = size
    rng = np.random.default_rng(0)
    a = rng.integers(-1, 2, (rows, inner)).astype(np.float16)
    b = rng.integers(-1, 2, (inner, cols)).astype(np.float16)
    expected = a.astype(np.float32) @ b.astype(np.float32)
    result = tcusim.matmul(a, b, dtype=np.float32, options={"backend": "cupy"})
    assert np.array_equal(result, expected)
