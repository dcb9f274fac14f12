"""The contenders of the benchmark: CuPy, PyTorch, cuBLAS, CUTLASS, Triton kernels, CUB, Thrust.

Every library is optional. Each gets the same data and writes its result where it is told, and is
verified and timed as tcusim's programs are.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from tcusim.machine import format_of
from tcusim_bench import cub
from tcusim_bench.cub import BLOCK_SOURCE, CUB_SOURCE, Cub, dotted
from tcusim_bench.cutlass import CUTLASS, Cutlass
from tcusim_bench.device import Array, Device
from tcusim_bench.problems import Contender, Problem
from tcusim_bench.programs import plans
from tcusim_bench.record import first_line
from tcusim_cuda.microbench.stopwatch import Run

# The modules that a library needs, if they are not torch alone.
_MODULES: Final = {"cupy": ("cupy",), "cublas": ("cupy",), "triton": ("triton", "torch")}

# The report's names of torch, and of the launcher of Triton's kernels.
PYTORCH: Final = "PyTorch"
TRITON: Final = "Triton"
IN_TORCH: Final = (PYTORCH, TRITON)

# Elements of a Triton program's tile, and its warps; the best in most cases first.
TRITON_TILES: Final = {
    "sum": ((8192, 8), (4096, 4), (2048, 4), (16384, 8), (8192, 4), (2048, 2), (1024, 1)),
    "scan": ((2048, 4), (1024, 1), (4096, 4), (2048, 2), (16384, 8), (8192, 8), (8192, 4)),
}
# Longer segments are cut into pieces, too: their elements, and a program's warps.
_TRITON_WHOLE: Final = 2**16
TRITON_PIECES: Final = ((16384, 8), (4096, 4), (8192, 4), (1024, 2))


class Contenders:
    """The libraries to compare with; those that nvcc compiles start at once, during measurements.

    missing: the reasons why libraries were left out. versions: of the others.
    """

    def __init__(self, device: Device, names: tuple[str, ...]) -> None:
        self._sm = device.sm
        self._cubs: dict[Path, Cub] = {}
        self._cutlass: Cutlass | None = None
        self._ways: dict[str, Callable[[Problem], Iterator[Contender]]] = {}
        self.missing: dict[str, str] = {}
        self.versions: dict[str, str] = {}
        for name in names:
            try:
                self._ways[name] = self._found(name)
            except Exception as error:  # whatever an import raises
                self.missing[name] = first_line(error)

    def _found(self, name: str) -> Callable[[Problem], Iterator[Contender]]:
        """Return the ways of a library; any error if it is not installed."""
        if name in cub.PARTS:
            source = BLOCK_SOURCE if name == "cub.block" else CUB_SOURCE
            if source not in self._cubs:
                self._cubs[source] = Cub(self._sm, source)
            compiled = self._cubs[source]
            self.versions |= {"nvcc": compiled.nvcc, "CCCL": dotted(compiled.version)}
            return partial(compiled.ways, name)
        if name == "cutlass":
            cutlass = self._cutlass = Cutlass(self._sm)
            self.versions |= {"nvcc": cutlass.nvcc, CUTLASS: cutlass.version}
            return cutlass.ways
        for module in _MODULES.get(name, ("torch",)):
            self.versions[module] = str(importlib.import_module(module).__version__)
        return _WAYS[name]

    def ways(self, problem: Problem, names: tuple[str, ...]) -> Iterator[Contender]:
        """Yield every way of some libraries to solve a problem."""
        for name in (name for name in names if name in self._ways):
            try:
                found = list(self._ways[name](problem))
            except Exception as error:  # a peer may raise anything; it becomes a row
                found = [Contender(name, problem.kind, "f32", "f32", partial(_raise, error))]
            yield from found

    def close(self) -> None:
        """Stop the compilers that still run, and remove their output."""
        for one in (*self._cubs.values(), self._cutlass):
            if one is not None:
                one.close()


def _raise(error: Exception, _out: Array) -> Run:
    raise error


# --- CuPy and PyTorch -------------------------------------------------------------------------


def _results(problem: Problem) -> tuple[tuple[str, str], ...]:
    """Return the types of sums and results that tcusim's plans have for the same problem."""
    return tuple((one.acc, one.result) for one in plans(problem.case))


def _cupy_ways(problem: Problem) -> Iterator[Contender]:
    cp, case = problem.device.cp, problem.case
    if case.lengths or case.dtype == "bf16" or case.in_graph:
        # CuPy has no segments by offsets and no bfloat16 everywhere, and takes memory as it sums.
        return
    if case.is_product:
        left, right = problem.matrix, problem.right
        right = right if problem.kind == "matvec" else right.reshape(left.shape)
        yield Contender(
            *("CuPy", "matmul", "library's", "f16"),
            lambda out: partial(
                cp.matmul, left, right, out=out.reshape(left.shape[:1] + right.shape[1:])
            ),
        )
        return
    data = problem.data if case.is_whole else problem.matrix
    # Of an array of one axis, the sum has none.
    axis, call = (None, "") if case.is_whole else (1, "(axis=1)")
    acc, result = _results(problem)[0]
    dtype = format_of(result).array_name
    if problem.kind == "sum":
        total = partial(cp.sum, data, axis=axis, dtype=dtype)
        yield Contender(
            *("CuPy", f"sum{call}", acc, result),
            lambda out: partial(total, out=out.reshape(data.shape[: axis or 0])),
        )
    else:
        # Sums of a scan have the type of the results.
        scan = partial(cp.cumsum, data, axis=axis, dtype=dtype)
        yield Contender(
            *("CuPy", f"cumsum{call}", result, result),
            lambda out: partial(scan, out=out.reshape(data.shape)),
        )


def _as_torch(array: Array, dtype: str = "") -> Any:
    """Return a CuPy array as a tensor in the same memory; "bf16" is given as its bits."""
    torch = importlib.import_module("torch")
    if dtype == "bf16":
        return torch.from_dlpack(array.view("int16")).view(torch.bfloat16)
    return torch.from_dlpack(array)


def _torch_ways(problem: Problem) -> Iterator[Contender]:
    torch, case = importlib.import_module("torch"), problem.case
    if case.lengths:
        yield from _torch_ragged(problem)
        return
    if case.is_product:
        left, second = _as_torch(problem.matrix), _as_torch(problem.right)
        call = torch.mv if problem.kind == "matvec" else torch.matmul
        if problem.kind == "matmul":
            second = second.reshape(left.shape)
        yield Contender(
            *(PYTORCH, call.__name__, "library's", "f16"),
            lambda out: partial(
                call, left, second, out=_as_torch(out).reshape(left.shape[:1] + second.shape[1:])
            ),
        )
        return
    # A tensor of one axis has ways of its own, such as CUB's scan.
    dim = 0 if case.is_whole else 1
    data = _as_torch(problem.data if case.is_whole else problem.matrix, case.dtype)

    def prepare(result: str, out: Array) -> Run:
        to, dtype = _as_torch(out, result), getattr(torch, format_of(result).array_name)
        if problem.kind == "sum":
            # With one axis the sum has none.
            to = to.reshape(data.shape[:dim])
            return partial(torch.sum, data, dim=dim, dtype=dtype, out=to)
        return partial(torch.cumsum, data, dim=dim, dtype=dtype, out=to.reshape(data.shape))

    name = "sum" if problem.kind == "sum" else "cumsum"
    for acc, result in _results(problem):
        known = acc if problem.kind == "sum" or acc == result else "library's"
        label = f"{name}(dim={dim}, dtype={format_of(result).array_name})"
        yield Contender(PYTORCH, label, known, result, partial(prepare, result))


def _torch_ragged(problem: Problem) -> Iterator[Contender]:
    """Yield torch.segment_reduce; it makes a new tensor. torch has no scan of such segments."""
    if problem.kind != "sum":
        return
    torch = importlib.import_module("torch")
    data, offsets = _as_torch(problem.data), _as_torch(problem.offsets_there)
    sums = partial(torch.segment_reduce, data, "sum", offsets=offsets, unsafe=True)

    def prepare(out: Array) -> Run:
        to = _as_torch(out)
        return lambda: to.copy_(sums())

    yield Contender(PYTORCH, "segment_reduce, and a copy", "library's", "f16", prepare)


def _torch_compile_ways(problem: Problem) -> Iterator[Contender]:
    case = problem.case
    if case.is_product or case.lengths or case.in_graph or case.dtype != "f16":
        return
    torch = importlib.import_module("torch")
    matrix = _as_torch(problem.matrix)

    def sums(data: Any, out: Any) -> None:
        out.copy_(data.float().sum(dim=1))

    def scans(data: Any, out: Any) -> None:
        out.copy_(data.float().cumsum(dim=1))

    def prepare(out: Array) -> Run:
        torch._dynamo.reset()
        compiled = torch.compile(sums if problem.kind == "sum" else scans, dynamic=False)
        to = _as_torch(out if problem.kind == "sum" else out.reshape(matrix.shape))
        return partial(compiled, matrix, to)

    result = "f32" if problem.kind == "sum" else "f16"
    yield Contender("torch.compile", problem.kind, "f32", result, prepare)


def _torch_float32_ways(problem: Problem) -> Iterator[Contender]:
    """Yield the product of a matrix and a vector of float32, twice as many bytes."""
    if problem.kind != "matvec":
        return
    torch = importlib.import_module("torch")

    def prepare(out: Array) -> Run:
        left, right = _as_torch(problem.matrix).float(), _as_torch(problem.right).float()
        return partial(torch.mv, left, right, out=_as_torch(out))

    yield Contender("PyTorch, float32", "mv of float32", "f32", "f32", prepare)


# --- Triton -----------------------------------------------------------------------------------


def triton_tiles(kind: str, segment_size: int) -> Iterator[tuple[int, int, int]]:
    """Yield the rows, the step and the warps of each Triton program to try."""
    for elements, warps in TRITON_TILES[kind]:
        step = min(segment_size, elements)
        yield elements // step, step, warps


def _triton_ways(problem: Problem) -> Iterator[Contender]:
    size, case = problem.segment_size, problem.case
    if size < 1 or size & (size - 1) or case.is_product:
        return  # the sides of Triton's tiles are powers of two
    if case.dtype not in ("f16", "bf16", "f32"):
        return
    kernels = importlib.import_module("tcusim_bench.triton_kernels")
    kernel = kernels.sum_rows if problem.kind == "sum" else kernels.scan_panel
    data = _as_torch(problem.data, case.dtype)
    result = "f32" if problem.kind == "sum" else case.dtype

    def prepare(rows: int, step: int, warps: int, out: Array) -> Run:
        launch = kernel[(problem.segments // rows,)]
        return partial(launch, data, _as_torch(out, result), size, rows, step, num_warps=warps)

    def in_pieces(piece: int, warps: int, out: Array) -> Run:
        run = kernels.sum_pieces if problem.kind == "sum" else kernels.scan_pieces
        return partial(run, data, _as_torch(out, result), size, piece, warps)

    if size >= _TRITON_WHOLE:
        for piece, warps in TRITON_PIECES:
            label = f"pieces of {piece}, {warps} warps"
            yield Contender(TRITON, label, "f32", result, partial(in_pieces, piece, warps))
    if case.is_whole:
        return  # one program would do everything
    for rows, step, warps in triton_tiles(problem.kind, size):
        if problem.segments % rows == 0:
            label = f"{rows} x {step}, {warps} warps"
            yield Contender(TRITON, label, "f32", result, partial(prepare, rows, step, warps))


# --- cuBLAS -----------------------------------------------------------------------------------

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
        prepare = partial(_cublas, problem, computation, types)
        who = "cuBLAS without tensor cores" if "pedantic" in name else "cuBLAS"
        if problem.kind == "matvec":
            who, name = f"{who}, 16 columns", f"{name} of 16 columns, and a copy of one"
        yield Contender(who, name, types, types, prepare)


def _cublas(problem: Problem, computation: int, types: str, out: Array) -> Run:
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


# --- All of them ------------------------------------------------------------------------------

_WAYS: Final[dict[str, Callable[[Problem], Iterator[Contender]]]] = {
    "cupy": _cupy_ways,
    "torch": _torch_ways,
    "torch.compile": _torch_compile_ways,
    "torch.float32": _torch_float32_ways,
    "triton": _triton_ways,
    "cublas": cublas_ways,
}
# CUB is compared by offsets where segments are of one size, too, and by its parts of warps and
# blocks, a segment each.
PEERS: Final = (*_WAYS, "cutlass", *cub.PARTS)
