"""The peer cuBLAS: its arguments multiply row-major matrices."""

from __future__ import annotations

import ctypes
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tcusim_bench.contenders import cublas_ways
from tcusim_bench.record import Case

ROWS, INNER = 6, 4
TYPES: dict[int, Any] = {2: np.float16, 0: np.float32}


def there(array: Any) -> Any:
    """Return an array as the stand-in for CuPy has it: with the address of its data."""
    return array.view(OnGpu)


class OnGpu(np.ndarray):
    """A NumPy array with CuPy's name for its address."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)


def by_columns(address: int, kind: int, rows: int, columns: int, leading: int) -> Any:
    """Return a matrix that lies by columns, as cuBLAS takes it."""
    dtype = np.dtype(TYPES[kind])
    room: Any = (ctypes.c_char * (dtype.itemsize * leading * columns)).from_address(address)
    return np.frombuffer(room, dtype).reshape(columns, leading).T[:rows]


def gemm(*given: Any) -> None:
    """Compute as cublasGemmEx documents, on the host's memory."""
    (_, _, _, m, n, k, alpha, a, ta, lda, b, tb, ldb, beta, c, tc, ldc, computation, _) = given
    factors = [by_columns(at, tc, 1, 1, 1)[0, 0] for at in (alpha, beta)]
    assert factors == [1, 0]
    assert computation in {2: (64, 65), 0: (68, 69)}[tc]
    left, right = by_columns(a, ta, m, k, lda), by_columns(b, tb, k, n, ldb)
    by_columns(c, tc, m, n, ldc)[...] = left.astype(float) @ right.astype(float)


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("cublas")
    module.gemmEx = gemm
    for name in ("cupy_backends", "cupy_backends.cuda", "cupy_backends.cuda.libs"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.libs.cublas", module)


def problem_of(kind: str) -> Any:
    rng = np.random.default_rng(0)
    inner = ROWS if kind == "matmul" else INNER
    data = rng.integers(-3, 4, ROWS * inner).astype(np.float16)
    right = rng.integers(-3, 4, inner * (ROWS if kind == "matmul" else 1)).astype(np.float16)
    device = SimpleNamespace(get_cublas_handle=lambda: 0)
    cp = SimpleNamespace(
        cuda=SimpleNamespace(device=device),
        zeros=lambda *given: there(np.zeros(*given)),
        empty=lambda *given: there(np.empty(*given)),
    )
    return SimpleNamespace(
        case=Case("x", kind, inner, data.size), kind=kind, segments=ROWS, segment_size=inner,
        data=there(data), right=there(right), device=SimpleNamespace(cp=cp),
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["matmul", "matvec"])
def test_products(kind: str) -> None:
    problem = problem_of(kind)
    left = problem.data.reshape(ROWS, -1).astype(float)
    expected = left @ problem.right.reshape(left.shape[1], -1).astype(float)
    found = list(cublas_ways(problem))
    assert [one.result for one in found] == ["f16", "f32", "f16", "f32"]
    assert len({(one.who, one.label) for one in found}) == 4
    for one in found:
        out = there(np.full(expected.size, np.nan, {"f16": "f2", "f32": "f4"}[one.result]))
        one.prepare(out)()
        np.testing.assert_array_equal(out, expected.ravel())


def test_it_only_multiplies() -> None:
    problem: Any = SimpleNamespace(case=Case("x", "sum", 16, 64))
    assert list(cublas_ways(problem)) == []
