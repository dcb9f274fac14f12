"""The peers CUB and Thrust, as libraries that nvcc compiles."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

from tcusim_bench.compiled import Compiled, nvcc_path
from tcusim_bench.device import Array
from tcusim_bench.problems import Contender, Problem
from tcusim_bench.record import Case
from tcusim_cuda.microbench.stopwatch import Run

# The names of the parts as peers, and in the record.
PARTS: Final = {
    "cub": "CUB",
    "cub.offsets": "CUB, offsets",
    "cub.block": "CUB, warp or block",
    "thrust": "Thrust",
}
CUB_SOURCE: Final = Path(__file__).with_name("cub.cu")
BLOCK_SOURCE: Final = Path(__file__).with_name("cub_block.cu")

# A row of `BLOCK_SOURCE`: a configuration of CUB's parts of a warp or a block.
_ROW: Final = re.compile(r"\{(\d+ \* \d+), (warp|block)_(sum|scan)s<(\d+), (\d+), (.*)>\},")

# A function of the library: label, types of sums and of results, the function's name, and the
# index of its configuration, if it has several.
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
    elif part == "cub.offsets" and case.kind == "sum":
        yield "DeviceSegmentedReduce, offsets", "f32", "f32", "offsets_sum_f32", 0
    elif part == "thrust":
        by_key = "" if whole else "_by_key"
        what, result = ("reduce", "f32") if case.kind == "sum" else ("inclusive_scan", "f16")
        yield f"{what}{by_key}", "f32", result, f"thrust_{case.kind}_{result}", 0
    elif part == "cub.block":
        result = "f32" if case.kind == "sum" else "f16"
        for index, label in enumerate(block_ways().get((case.kind, size), ())):
            yield label, "f32", result, f"block_{case.kind}_{result}", index


@functools.cache
def block_ways() -> dict[tuple[str, int], list[str]]:
    """Return the configurations of CUB's parts of a warp or a block, by operation and size."""
    found: dict[tuple[str, int], list[str]] = {}
    for row in _ROW.finditer(BLOCK_SOURCE.read_text(encoding="utf-8")):
        _, level, kind, threads, items, others = row.groups()
        name = f"{level.title()}{'Reduce' if kind == 'sum' else 'Scan'}"
        how = others.lower().replace("scan_", "") if level == "block" else f"blocks of {others}"
        label = f"{name}, {threads} x {items}, {how}"
        found.setdefault((kind, int(threads) * int(items)), []).append(label)
    return found


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


class Cub(Compiled):
    """CUB and Thrust, of the newest CCCL here."""

    def __init__(self, sm: int, source: Path = CUB_SOURCE) -> None:
        self.version, folders = newest_cccl(nvcc_path())
        super().__init__(source, sm, *(f"-I{folder}" for folder in folders))

    def ways(self, part: str, problem: Problem) -> Iterator[Contender]:
        """Yield ways to solve a problem, by functions of a part."""
        for label, acc, result, name, way in functions(part, problem.case, self.version):
            prepare = functools.partial(self._prepare, problem, name, way)
            yield Contender(PARTS[part], label, acc, result, prepare)

    def _prepare(self, problem: Problem, name: str, way: int, out: Array) -> Run:
        function, cp = getattr(self.library, name), problem.device.cp
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
