"""The peer cuBLAS: products by each of its computations, in float16, in float32, and pedantic.

The pedantic ones take no tensor core. CuPy's handle is used.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import numpy as np

from tcusim_bench.contender import Contender
from tcusim_bench.device import Array, Run
from tcusim_bench.problems import Problem

__all__ = ["cublas_ways"]

# cublasComputeType_t, the type of the factors alpha and beta, and ours of sums and results. As the
# paper has them, HGEMM is float16 throughout, and the results of MGEMM are float32.
_COMPUTATIONS: Final = (
    ("HGEMM", 64, "f16"),
    ("MGEMM", 68, "f32"),
    ("HGEMM, pedantic", 65, "f16"),
    ("MGEMM, pedantic", 69, "f32"),
)
_NUMPY: Final = {"f16": np.float16, "f32": np.float32}
# cudaDataType_t, and cublasGemmAlgo_t's default.
_CUDA: Final = {"f16": 2, "f32": 0}
_DEFAULT: Final = -1
# Columns of a matrix; a vector is its first column.
_COLUMNS: Final = 16


def cublas_ways(problem: Problem) -> Iterator[Contender]:
    """Yield products of matrices; of a vector, as a matrix of 16 columns, too."""
    if not problem.case.is_product:
        return
    for name, computation, types in _COMPUTATIONS:
        prepare = partial(_prepare, problem, computation, types)
        who = "cuBLAS without tensor cores" if "pedantic" in name else "cuBLAS"
        if problem.kind == "matvec":
            who, name = f"{who}, 16 columns", f"{name} of 16 columns, and a copy of one"
        yield Contender(who, name, types, types, prepare)


def _prepare(problem: Problem, computation: int, types: str, out: Array) -> Run:
    cp, rows, inner = problem.device.cp, problem.segments, problem.segment_size
    if problem.kind == "matmul":
        columns, right, to = inner, problem.right, out
    else:
        columns = _COLUMNS
        right = cp.zeros((inner, columns), np.float16)
        right[:, 0] = problem.right
        to = cp.empty(rows * columns, _NUMPY[types])
    product = _gemm(cp, (rows, columns, inner), (problem.data, right, to), computation, types)
    if problem.kind == "matmul":
        return product
    first = to.reshape(rows, columns)[:, 0]

    def run() -> None:
        product()
        out[:] = first

    return run


def _gemm(
    cp: Any, sizes: tuple[int, int, int], arrays: tuple[Array, ...], computation: int, types: str
) -> Run:
    """Return the product of matrices that lie by rows: that of the transposed ones, by columns."""
    cublas = importlib.import_module("cupy_backends.cuda.libs.cublas")
    rows, columns, inner = sizes
    left, right, to = arrays
    factors = np.array([1, 0], _NUMPY[types])
    one, zero = factors.ctypes.data, factors.ctypes.data + factors.itemsize

    def run() -> None:
        cublas.gemmEx(
            *(cp.cuda.device.get_cublas_handle(), 0, 0, columns, rows, inner, one),
            *(right.data.ptr, _CUDA["f16"], columns, left.data.ptr, _CUDA["f16"], inner, zero),
            *(to.data.ptr, _CUDA[types], columns, computation, _DEFAULT),
        )
        _ = factors  # which the pointers lead to

    return run
