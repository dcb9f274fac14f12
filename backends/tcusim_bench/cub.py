"""The peers CUB and Thrust: compiled by nvcc into shared libraries, and called through ctypes."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Final, TypeAlias

from tcusim.errors import BackendUnavailable
from tcusim_bench.device import Array
from tcusim_bench.problems import Contender, Problem
from tcusim_bench.record import Case
from tcusim_cuda.microbench.stopwatch import Run

__all__ = ["BLOCK_SOURCE", "CUB_SOURCE", "PARTS", "Cub", "dotted", "functions"]

# The names of the parts as peers, and in the record.
PARTS: Final = {
    "cub": "CUB",
    "cub.offsets": "CUB, offsets",
    "cub.block": "CUB, warp or block",
    "thrust": "Thrust",
}
CUB_SOURCE: Final = Path(__file__).with_name("cub.cu")
BLOCK_SOURCE: Final = Path(__file__).with_name("cub_block.cu")
_SECONDS: Final = 300

# The most elements of a segment that CUB's parts of a warp and of a block are compiled for, and the
# ways that each is: the elements that a thread takes, the authors' choice being the first.
_LONGEST_WARP: Final = 32
_LONGEST_BLOCK: Final = 2**13
_BLOCK_WAYS: Final = 3

# A function of the library: label, types of sums and of results, the function's name, and the
# number of the way, if it has several.
Function: TypeAlias = tuple[str, str, str, str, int]


def dotted(version: int) -> str:
    """Print CCCL's 3001002 as 3.1.2."""
    return f"{version // 1_000_000}.{version // 1000 % 1000}.{version % 1000}"


def functions(part: str, case: Case, version: int) -> Iterator[Function]:
    """Yield the functions of a part, out of `PARTS`, that solve a problem.

    version: of CCCL. Segments are keys in Thrust, and in CUB's scans. Products and graphs have no
    function: the functions run on the default stream, and no graph captures it.
    """
    whole, size = case.is_whole, case.segment_size
    if case.in_graph or case.is_product or case.dtype not in ("f16", "f32"):
        return
    if case.dtype == "f32":
        if part == "cub" and whole:
            yield from _of_f32(case.kind, version)
    elif part == "cub":
        yield from _device_wide(case, version)
    elif case.lengths:
        return
    elif part == "cub.offsets" and case.kind == "sum" and not whole:
        yield "DeviceSegmentedReduce, offsets", "f32", "f32", "offsets_sum_f32", 0
    elif part == "thrust":
        by_key = "" if whole else "_by_key"
        what, result = ("reduce", "f32") if case.kind == "sum" else ("inclusive_scan", "f16")
        yield f"{what}{by_key}", "f32", result, f"thrust_{case.kind}_{result}", 0
    elif part == "cub.block" and 16 <= size <= _LONGEST_BLOCK and not size & (size - 1):
        who = "Warp" if size <= _LONGEST_WARP else "Block"
        what, result = ("Reduce", "f32") if case.kind == "sum" else ("Scan", "f16")
        for way in range(_BLOCK_WAYS):
            yield f"{who}{what}, way {way}", "f32", result, f"block_{case.kind}_{result}", way


def _device_wide(case: Case, version: int) -> Iterator[Function]:
    if case.lengths and case.kind == "sum":
        yield "DeviceSegmentedReduce, offsets", "f32", "f32", "ragged_sum_f32", 0
    elif case.lengths:
        yield "InclusiveScanByKey, keys in memory", "f32", "f16", "ragged_scan_f16", 0
    elif case.kind == "sum":
        how = "fixed-size" if version >= 3_001_000 else "offsets"
        way = "DeviceReduce" if case.is_whole else f"DeviceSegmentedReduce, {how}"
        for dtype in ("f32", "f16"):
            yield f"{way}, {dtype} sums", dtype, dtype, f"sum_{dtype}", 0
    elif case.is_whole:
        yield "DeviceScan::InclusiveSum, f16 sums", "f16", "f16", "inclusive_sum_f16", 0
        yield "DeviceScan::InclusiveScan, f32 sums", "f32", "f16", "scan_f16", 0
        yield "DeviceScan::InclusiveScan, f32 sums", "f32", "f32", "scan_f32", 0
    else:
        for dtype in ("f16", "f32"):
            yield "InclusiveScanByKey", "f32", dtype, f"scan_{dtype}", 0


def _of_f32(kind: str, version: int) -> Iterator[Function]:
    """Yield the sum or the scans of a whole array of float32."""
    if kind == "sum":
        yield "DeviceReduce::Sum", "f32", "f32", "whole_sum_f32", 0
        return
    yield "DeviceScan::InclusiveSum", "f32", "f32", "whole_scan_f32", 0
    if version >= 3_004_000:
        yield "DeviceScan::InclusiveSum, run_to_run", "f32", "f32", "run_to_run_scan_f32", 0


class Cub:
    """CUB and Thrust, compiled by nvcc into a shared library while other things are measured.

    Raises BackendUnavailable if there is no nvcc.
    """

    def __init__(self, sm: int, source: Path = CUB_SOURCE) -> None:
        nvcc = shutil.which("nvcc")
        if nvcc is None:
            raise BackendUnavailable("nvcc, which compiles CUB, is not on the PATH")
        self.nvcc = _nvcc_version(nvcc)
        self.version, folders = newest_cccl(nvcc)
        self._folder = tempfile.TemporaryDirectory(prefix="tcusim-cub-")
        self._path = Path(self._folder.name) / "bench_cub.so"
        self._log = self._path.with_name("log")
        command = cub_command(nvcc, sm, folders, source, self._path)
        with self._log.open("w") as log:
            self._compiler = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def ways(self, part: str, problem: Problem) -> Iterator[Contender]:
        """Yield ways to solve a problem, by functions of a part."""
        for label, acc, result, name, way in functions(part, problem.case, self.version):
            prepare = partial(self._prepare, problem, name, way)
            yield Contender(PARTS[part], label, acc, result, prepare)

    def close(self) -> None:
        """Stop the compiler, if it still runs, and remove its output."""
        if self._compiler.poll() is None:
            self._compiler.terminate()
            self._compiler.wait()
        self._folder.cleanup()

    def _prepare(self, problem: Problem, name: str, way: int, out: Array) -> Run:
        function, cp = getattr(self._library, name), problem.device.cp
        size, is_block = ctypes.c_size_t(0), name.startswith("block")
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
            counts = map(ctypes.c_longlong, (*sizes, way) if is_block else sizes)
            at = ctypes.c_void_p(temporary)
            status = function(at, ctypes.byref(size), *pointers, *counts)
            if status:
                raise RuntimeError(f"CUB's {name} returned CUDA error {status}")

        call(None)
        room = cp.empty(max(1, size.value), "uint8")
        # The array is kept as long as the returned function.
        return lambda: call(room.data.ptr)

    @cached_property
    def _library(self) -> ctypes.CDLL:
        """The compiled library, once the compiler is done."""
        status = self._compiler.wait(_SECONDS)
        if status:
            said = self._log.read_text(errors="replace").strip()
            raise RuntimeError(f"nvcc failed with {status}: {said[-300:]}")
        return ctypes.CDLL(str(self._path))


def cub_command(
    nvcc: str, sm: int, folders: tuple[Path, ...], source: Path, made: Path
) -> list[str]:
    """Return the command that compiles CUB's part of the benchmark."""
    return [
        *(nvcc, "-std=c++17", "-O3", f"-arch=sm_{sm}", "-shared", "-Xcompiler", "-fPIC"),
        *(f"-I{folder}" for folder in folders),
        *("-o", str(made), str(source)),
    ]


def newest_cccl(nvcc: str) -> tuple[int, tuple[Path, ...]]:
    """Return the version and the folders of the newest CCCL here: nvcc's own, CuPy's, or pip's.

    CUB's segments of a fixed size came with 3.1, after CUDA 13.0, and its deterministic scans with
    3.4. pip's is the package nvidia-cuda-cccl. For nvcc's own there is no folder to name.
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
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or []) if spec is not None else []:
        for folder in Path(root).glob("*/include/cccl"):
            found[folder,] = _cccl_version((folder,))
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
