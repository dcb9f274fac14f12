"""What the benchmark compares with: CuPy, PyTorch, a Triton kernel written by hand, and CUB.

Every peer is optional. Each gets the same data and writes its result where it is told, and is
verified and timed as our own programs are.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from tcusim.errors import BackendUnavailable, unknown_name
from tcusim.machine import format_of
from tcusim_bench.device import Array, Device, Run
from tcusim_bench.problems import Problem
from tcusim_bench.programs import plans

__all__ = ["DEFAULT_PEERS", "PEERS", "PYTORCH", "Contender", "Peers", "first_line"]

# Products by torch of the same numbers as float32; Thrust; and CUB's parts of warps and blocks, a
# segment each.
PEERS: Final = (
    *("cupy", "torch", "torch.compile", "torch.float32"),
    *("triton", "cub", "thrust", "cub.block"),
)
# torch.compile takes seconds to compile each problem.
DEFAULT_PEERS: Final = ("cupy", "torch", "triton", "cub")

# The most elements of a segment that CUB's parts of a warp and of a block are compiled for.
_LONGEST_WARP: Final = 32
_LONGEST_BLOCK: Final = 2**13

# What to call of the library: label, types of sums and of results, and the function's name.
Function: TypeAlias = tuple[str, str, str, str]

# The name under which the report has torch.
PYTORCH: Final = "PyTorch"

CUB_SOURCE: Final = Path(__file__).with_name("cub.cu")
_CUB_SECONDS: Final = 300

# Elements of a Triton program's tile, and its warps.
TRITON_TILES: Final = (
    (1024, 1),
    (2048, 2),
    (2048, 4),
    (4096, 4),
    (8192, 4),
    (8192, 8),
    (16384, 8),
)


@dataclass(frozen=True, slots=True)
class Contender:
    """One way of a library to solve a problem.

    prepare: given the room for the result, does all that need not be timed and returns what is.
    """

    who: str
    label: str
    acc: str
    result: str
    prepare: Callable[[Array], Run]


class Peers:
    """The libraries to compare with; CUB starts to compile at once, beside what is measured first.

    Raises UnknownName if a name is none of `PEERS`.
    """

    def __init__(self, device: Device, names: tuple[str, ...]) -> None:
        for name in names:
            if name not in PEERS:
                raise unknown_name("peer", name, PEERS)
        self._device = device
        self.missing: dict[str, str] = {}
        self.versions: dict[str, str] = {}
        self.cub: Cub | None = None
        self.names = tuple(name for name in names if self._find(name))

    def _find(self, name: str) -> bool:
        """Return whether a peer is installed; if not, note why."""
        module = name.split(".")[0]
        try:
            if name in ("cub", "thrust", "cub.block"):
                self.cub = self.cub or Cub(self._device.sm)
                self.versions |= {"nvcc": self.cub.nvcc, "CCCL": _dotted(self.cub.version)}
            else:
                version = importlib.import_module(module).__version__
                importlib.import_module("torch")
                self.versions[module] = str(version)
        except Exception as error:
            self.missing[name] = first_line(error)
        return name not in self.missing

    def contenders(self, problem: Problem) -> Iterator[Contender]:
        """Yield every way of every peer to solve a problem."""
        ways: dict[str, Callable[[Problem], Iterator[Contender]]] = {
            "cupy": _cupy_ways,
            "torch": _torch_ways,
            "torch.compile": _torch_compile_ways,
            "torch.float32": _torch_float32_ways,
            "triton": _triton_ways,
        }
        if self.cub is not None:
            ways |= {
                "cub": partial(self.cub.ways, "CUB", Cub.device_wide),
                "thrust": partial(self.cub.ways, "Thrust", Cub.thrust),
                "cub.block": partial(self.cub.ways, "CUB, warp or block", Cub.blocks),
            }
        for name in self.names:
            try:
                found = list(ways[name](problem))
            except Exception as error:  # a peer may raise anything; it becomes a row
                found = [Contender(name, problem.kind, "f32", "f32", partial(_raise, error))]
            yield from found


def _raise(error: Exception, _out: Array) -> Run:
    raise error


def first_line(error: BaseException) -> str:
    """Return an error in one line of at most 300 letters."""
    text = str(error).strip().split("\n", 1)[0]
    return f"{type(error).__name__}: {text}"[:300]


def _dotted(version: int) -> str:
    """Print CCCL's 3001002 as 3.1.2."""
    return f"{version // 1_000_000}.{version // 1000 % 1000}.{version % 1000}"


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
    """Yield torch.segment_reduce, which makes a new tensor; torch has no scan of such segments."""
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
    """Yield the product of a matrix and a vector of float32, which are twice as many bytes."""
    if problem.kind != "matvec":
        return
    torch = importlib.import_module("torch")

    def prepare(out: Array) -> Run:
        left, right = _as_torch(problem.matrix).float(), _as_torch(problem.right).float()
        return partial(torch.mv, left, right, out=_as_torch(out))

    yield Contender("PyTorch, float32", "mv of float32", "f32", "f32", prepare)


# --- Triton -----------------------------------------------------------------------------------


def triton_tiles(segment_size: int) -> Iterator[tuple[int, int, int]]:
    """Yield the rows, the step and the warps of each Triton program to try."""
    for elements, warps in TRITON_TILES:
        step = min(segment_size, elements)
        yield elements // step, step, warps


def _triton_ways(problem: Problem) -> Iterator[Contender]:
    size, case = problem.segment_size, problem.case
    if size < 1 or size & (size - 1) or case.is_whole or case.is_product:
        # The sides of Triton's tiles are powers of two, and one program sums a whole segment.
        return
    if case.dtype not in ("f16", "bf16", "f32"):
        return
    kernels = importlib.import_module("tcusim_bench.triton_kernels")
    kernel = kernels.sum_rows if problem.kind == "sum" else kernels.scan_panel
    data = _as_torch(problem.data, case.dtype)
    result = "f32" if problem.kind == "sum" else case.dtype

    def prepare(rows: int, step: int, warps: int, out: Array) -> Run:
        launch = kernel[(problem.segments // rows,)]
        return partial(launch, data, _as_torch(out, result), size, rows, step, num_warps=warps)

    for rows, step, warps in triton_tiles(size):
        if problem.segments % rows == 0:
            label = f"{rows} x {step}, {warps} warps"
            yield Contender("Triton", label, "f32", result, partial(prepare, rows, step, warps))


# --- CUB --------------------------------------------------------------------------------------


class Cub:
    """CUB and Thrust, compiled by nvcc into a shared library while other things are measured.

    Raises BackendUnavailable if there is no nvcc.
    """

    def __init__(self, sm: int) -> None:
        nvcc = shutil.which("nvcc")
        if nvcc is None:
            raise BackendUnavailable("nvcc, which compiles CUB, is not on the PATH")
        self.nvcc = _nvcc_version(nvcc)
        self.version, folders = newest_cccl(nvcc)
        self._folder = tempfile.TemporaryDirectory(prefix="tcusim-cub-")
        self._path = Path(self._folder.name) / "bench_cub.so"
        self._log = self._path.with_name("log")
        command = cub_command(nvcc, sm, folders, self._path)
        with self._log.open("w") as log:
            self._compiler = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def ways(
        self, who: str, functions: Callable[[Cub, Problem], Iterator[Function]], problem: Problem
    ) -> Iterator[Contender]:
        """Yield ways to solve a problem, by functions of the library."""
        case = problem.case
        if case.dtype != "f16" or case.in_graph or case.is_product:
            return  # they take f16, and run on the default stream, which no graph captures
        for label, acc, result, name in functions(self, problem):
            yield Contender(who, label, acc, result, partial(self._prepare, problem, name))

    def blocks(self, problem: Problem) -> Iterator[Function]:
        """Yield a warp's or a block's collective: a segment each, of sizes that are compiled."""
        size, case = problem.segment_size, problem.case
        if case.lengths or not 16 <= size <= _LONGEST_BLOCK or size & (size - 1):
            return
        who = "Warp" if size <= _LONGEST_WARP else "Block"
        what, result = ("Reduce", "f32") if problem.kind == "sum" else ("Scan", "f16")
        yield f"{who}{what}", "f32", result, f"block_{problem.kind}_{result}"

    def thrust(self, problem: Problem) -> Iterator[Function]:
        """Yield Thrust's ways, which wait for the GPU; segments are keys."""
        if problem.case.lengths:
            return
        by_key = "" if problem.case.is_whole else "_by_key"
        if problem.kind == "sum":
            yield f"reduce{by_key}", "f32", "f32", "thrust_sum_f32"
        else:
            yield f"inclusive_scan{by_key}", "f32", "f16", "thrust_scan_f16"

    def device_wide(self, problem: Problem) -> Iterator[Function]:
        """Yield CUB's device-wide functions."""
        case = problem.case
        if case.lengths and problem.kind == "sum":
            yield "DeviceSegmentedReduce, offsets", "f32", "f32", "ragged_sum_f32"
        elif case.lengths:
            yield "InclusiveScanByKey, keys in memory", "f32", "f16", "ragged_scan_f16"
        elif problem.kind == "sum":
            how = "fixed-size" if self.version >= 3_001_000 else "offsets"
            way = "DeviceReduce" if case.is_whole else f"DeviceSegmentedReduce, {how}"
            for dtype in ("f32", "f16"):
                yield f"{way}, {dtype} sums", dtype, dtype, f"sum_{dtype}"
        elif case.is_whole:
            yield "DeviceScan::InclusiveSum, f16 sums", "f16", "f16", "inclusive_sum_f16"
            yield "DeviceScan::InclusiveScan, f32 sums", "f32", "f16", "scan_f16"
            yield "DeviceScan::InclusiveScan, f32 sums", "f32", "f32", "scan_f32"
        else:
            for dtype in ("f16", "f32"):
                yield "InclusiveScanByKey", "f32", dtype, f"scan_{dtype}"

    def close(self) -> None:
        """Stop the compiler, if it still runs, and remove what it made."""
        if self._compiler.poll() is None:
            self._compiler.terminate()
            self._compiler.wait()
        self._folder.cleanup()

    def _prepare(self, problem: Problem, name: str, out: Array) -> Run:
        function, cp = getattr(self._library, name), problem.device.cp
        size = ctypes.c_size_t(0)
        arrays, sizes = [problem.data, out], [problem.segments, problem.segment_size]
        if problem.case.lengths and problem.kind == "sum":
            arrays.append(problem.offsets_there)
            sizes = [problem.segments]
        elif problem.case.lengths:
            # The key of each element is its segment's number.
            starts = cp.zeros(problem.case.length, "int32")
            cp.add.at(starts, problem.offsets_there[1:-1], 1)
            arrays.append(cp.cumsum(starts, dtype="int32"))
            sizes = [problem.case.length]

        def call(temporary: int | None) -> None:
            pointers = (ctypes.c_void_p(array.data.ptr) for array in arrays)
            counts = map(ctypes.c_longlong, sizes)
            at = ctypes.c_void_p(temporary)
            status = function(at, ctypes.byref(size), *pointers, *counts)
            if status:
                raise RuntimeError(f"CUB's {name} returned CUDA error {status}")

        call(None)
        room = cp.empty(max(1, size.value), "uint8")
        # The array is kept as long as what is returned.
        return lambda: call(room.data.ptr)

    @cached_property
    def _library(self) -> ctypes.CDLL:
        """What the compiler made, once it has."""
        status = self._compiler.wait(_CUB_SECONDS)
        if status:
            said = self._log.read_text(errors="replace").strip()
            raise RuntimeError(f"nvcc failed with {status}: {said[-300:]}")
        return ctypes.CDLL(str(self._path))


def cub_command(nvcc: str, sm: int, folders: tuple[Path, ...], made: Path) -> list[str]:
    """Return the command that compiles CUB's part of the benchmark."""
    return [
        *(nvcc, "-std=c++17", "-O3", f"-arch=sm_{sm}", "-shared", "-Xcompiler", "-fPIC"),
        *(f"-I{folder}" for folder in folders),
        *("-o", str(made), str(CUB_SOURCE)),
    ]


def newest_cccl(nvcc: str) -> tuple[int, tuple[Path, ...]]:
    """Return the version and the folders of the newest CCCL here: nvcc's own, or CuPy's copy.

    CUB's segments of a fixed size came with 3.1, after CUDA 13.0. For nvcc's own there is no folder
    to name.
    """
    own = Path(nvcc).resolve().parents[1] / "include" / "cccl"
    if not own.is_dir():
        own = Path("/usr/local/cuda/include/cccl")
    found: dict[tuple[Path, ...], int] = {(): _cccl_version((own,))}
    spec = importlib.util.find_spec("cupy")
    for root in (spec.submodule_search_locations or []) if spec is not None else []:
        cccl = Path(root) / "_core" / "include" / "cupy" / "_cccl"
        folders = tuple(cccl / part for part in ("cub", "libcudacxx", "thrust"))
        found[folders] = _cccl_version(folders)
    newest = max(found, key=lambda folders: found[folders])
    return found[newest], newest


def _cccl_version(folders: tuple[Path, ...]) -> int:
    """Return CCCL_VERSION, such as 3001002, or 0 if CCCL is not there."""
    for folder in folders:
        header = folder / "cuda" / "std" / "__cccl" / "version.h"
        if header.is_file():
            match = re.search(r"#define\s+CCCL_VERSION\s+(\d+)", header.read_text())
            return int(match[1]) if match else 0
    return 0


def _nvcc_version(nvcc: str) -> str:
    done = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False)
    match = re.search(r"release [\d.]+, V([\d.]+)", done.stdout)
    return match[1] if match else "unknown"
