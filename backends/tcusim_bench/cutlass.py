"""The peer CUTLASS: products of matrices by its kernels for compute capability 9.0."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tcusim.errors import BackendUnavailable
from tcusim_bench.compiled import Compiled
from tcusim_bench.device import Array
from tcusim_bench.problems import Contender, Problem
from tcusim_cuda.microbench.stopwatch import Run

CUTLASS: Final = "CUTLASS"
CUTLASS_SOURCE: Final = Path(__file__).with_name("cutlass.cu")
_SM: Final = 90
# A row of the source: the type of sums and results, a tile's M, N and K, the blocks of a cluster,
# and the schedule.
_ROW: Final = re.compile(
    r"^    Product<(Half|float), (\d+), (\d+), (\d+), (\d), (\w+)>::run,$", re.M
)


class Cutlass(Compiled):
    """CUTLASS, of the headers here.

    Raises BackendUnavailable if there are none, or the GPU is of another compute capability.
    """

    def __init__(self, sm: int) -> None:
        folder = cutlass_folder()
        if sm != _SM:
            raise BackendUnavailable(f"cutlass.cu has kernels for sm_{_SM}, not for sm_{sm}")
        header = (folder / "cutlass" / "version.h").read_text(encoding="utf-8")
        numbers = re.findall(r"#define CUTLASS_(?:MAJOR|MINOR|PATCH) (\d+)", header)
        self.version = ".".join(numbers)
        super().__init__(CUTLASS_SOURCE, sm, "--expt-relaxed-constexpr", f"-I{folder}")

    def ways(self, problem: Problem) -> Iterator[Contender]:
        """Yield products of matrices."""
        if problem.kind == "matmul":
            for types, labels in cutlass_ways().items():
                for index, label in enumerate(labels):
                    prepare = functools.partial(self._prepare, problem, types, index)
                    yield Contender(CUTLASS, label, types, types, prepare)

    def _prepare(self, problem: Problem, types: str, index: int, out: Array) -> Run:
        function, size = getattr(self.library, f"product_{types}"), ctypes.c_size_t(0)
        numbers = tuple(map(ctypes.c_longlong, (problem.segment_size, index)))

        def call(temporary: int | None) -> None:
            arrays = (problem.data, problem.right, out)
            pointers = (ctypes.c_void_p(array.data.ptr) for array in arrays)
            at = ctypes.c_void_p(temporary)
            status = function(at, ctypes.byref(size), *pointers, *numbers)
            if status:
                raise RuntimeError(f"CUTLASS returned status {status}")

        call(None)
        memory = problem.device.cp.empty(size.value, "uint8")
        return lambda: call(memory.data.ptr)


@functools.cache
def cutlass_ways() -> dict[str, list[str]]:
    """Return the configurations in the source by the type of sums and results."""
    found: dict[str, list[str]] = {}
    for dtype, *tile, cluster, schedule in _ROW.findall(CUTLASS_SOURCE.read_text(encoding="utf-8")):
        label = f"{'x'.join(tile)}, clusters of {cluster}, {schedule.lower()}"
        found.setdefault("f16" if dtype == "Half" else "f32", []).append(label)
    return found


def cutlass_folder() -> Path:
    """Return the folder of CUTLASS's headers: below CUTLASS_PATH, or in pip's nvidia-cutlass."""
    roots = [Path(os.environ["CUTLASS_PATH"])] if os.environ.get("CUTLASS_PATH") else []
    spec = importlib.util.find_spec("cutlass_library")
    for found in (spec.submodule_search_locations or []) if spec is not None else []:
        roots.append(Path(found) / "source")
    for root in roots:
        if (root / "include" / "cutlass" / "version.h").is_file():
            return root / "include"
    raise BackendUnavailable(
        "CUTLASS's headers are not here. Install nvidia-cutlass, or set CUTLASS_PATH to a checkout"
    )
