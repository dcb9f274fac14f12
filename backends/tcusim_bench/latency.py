"""The cost of one call on a short array: the host's time, warm; and the first call.

Every figure is of a public call in a loop, as a user writes it. Calls queue work on the GPU and
return; a batch of them is timed, and the GPU is waited for between batches, outside the clock. The
peers are timed in the same process, and every ratio is to `cupy.sum` of the same array.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from types import ModuleType
from typing import Any, Final

import numpy as np

import tcusim
from tcusim.errors import BackendUnavailable

__all__ = ["SIZES", "Report", "Row", "latency"]

SIZES: Final = (2**12, 2**16, 2**20)
SEGMENT: Final = 64
# Few enough calls a batch that the GPU's queue, of 1024 launches, never fills up.
_CALLS: Final = 200
_BATCHES: Final = 15
_PEER: Final = "cupy.sum(x)"

Call = Callable[[], object]

# Each process times its first call, which also loads tcusim's backend and NVRTC, and then the first
# call of another kernel. CuPy has worked before, as it has in a program that holds data on the GPU.
_FIRST: Final = """
import json, sys, time
import cupy, numpy
import tcusim
x = cupy.ones({size}, cupy.float16)
y = x + x
cupy.cuda.Device().synchronize()
found = []
for dtype in ("float32", "float16"):
    plan = tcusim.plan({operation!r}, length={size}{segment}, dtype=dtype)
    x = cupy.ones({size}, dtype)
    cupy.cuda.Device().synchronize()
    started = time.perf_counter()
    plan(x)
    cupy.cuda.Device().synchronize()
    found.append(1e3 * (time.perf_counter() - started))
print(json.dumps([*found, len(plan.launches)]))
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One call: `us`, the median over batches of microseconds a call, and its ratio to the peer."""

    call: str
    size: int
    us: float
    least_us: float
    ratio: float


@dataclass(slots=True)
class Report:
    """The measurements: warm calls, and milliseconds of first calls by name."""

    gpu: str
    packages: int
    versions: dict[str, str]
    rows: list[Row] = field(default_factory=list)
    first_ms: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {"format": "tcusim latency 1", **asdict(self)}

    def text(self) -> str:
        """Return tables to read."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        lines = [f"{self.gpu}; {versions}; {self.packages} packages installed", ""]
        width = max((len(row.call) for row in self.rows), default=0)
        lines.append(f"{'call':<{width}}  {'elements':>9}  {'us':>8}  {'least':>8}  to {_PEER}")
        lines += [
            f"{row.call:<{width}}  {row.size:>9}  {row.us:>8.2f}  {row.least_us:>8.2f}  "
            f"{row.ratio:.2f}"
            for row in self.rows
        ]
        if self.first_ms:
            lines += ["", "first calls, ms"]
            lines += [f"{name:<{width}}  {value:>9.1f}" for name, value in self.first_ms.items()]
        return "\n".join([*lines, *self.notes])


def latency(sizes: Sequence[int] = SIZES, *, first_calls: bool = True) -> Report:
    """Time public calls on short float16 arrays of these sizes on this machine's GPU.

    first_calls: also the first call of a process, with the kernel compiled and from the disk cache.
    Raises BackendUnavailable if CuPy or a GPU is missing.
    """
    cupy = imported("cupy")
    if cupy is None or cupy.cuda.runtime.getDeviceCount() == 0:
        raise BackendUnavailable("this benchmark compares with CuPy on a GPU. Install tcusim[cupy]")
    torch = imported("torch")
    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    versions = {"tcusim": tcusim.__version__, "cupy": cupy.__version__}
    if torch is not None:
        versions["torch"] = torch.__version__
    report = Report(properties["name"].decode(), len(list(metadata.distributions())), versions)
    report.rows += [row for size in sizes for row in _rows(size, cupy, torch)]
    if torch is None:
        report.notes.append("torch is not installed: its arrays were left out")
    if first_calls:
        for operation, segment in (("segmented_sum", SEGMENT), ("cumsum", None)):
            report.first_ms.update(_first(operation, segment, 2**20))
    return report


def imported(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _rows(size: int, cupy: ModuleType, torch: ModuleType | None) -> Iterator[Row]:
    wait = cupy.cuda.Device().synchronize
    calls = dict(_calls(size, cupy, torch))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(20):
            call()
    # In turn, so that a machine that grows slower does so for all of them.
    for _ in range(_BATCHES):
        for name, call in calls.items():
            wait()
            started = time.perf_counter()
            for _ in range(_CALLS):
                call()
            times[name].append(1e6 * (time.perf_counter() - started) / _CALLS)
    wait()
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, us in medians.items():
        yield Row(name, size, us, min(times[name]), us / medians[_PEER])


def _calls(size: int, cupy: ModuleType, torch: ModuleType | None) -> Iterator[tuple[str, Call]]:
    x = cupy.asarray(np.random.default_rng(size).random(size), cupy.float16)
    yield _PEER, lambda: cupy.sum(x)
    total = cupy.empty((), cupy.float16)
    yield "cupy.sum(x, out=y)", lambda: cupy.sum(x, out=total)
    yield "cupy.cumsum(x)", lambda: cupy.cumsum(x)
    yield from _ours("cupy", x, cupy.empty, size)
    if torch is None:
        return
    t = torch.as_tensor(x, device="cuda")
    yield "torch.sum(x)", lambda: torch.sum(t)
    yield "torch.cumsum(x, 0)", lambda: torch.cumsum(t, 0)

    def empty(shape: tuple[int, ...], dtype: Any) -> Any:
        return torch.empty(shape, dtype=getattr(torch, np.dtype(dtype).name), device="cuda")

    yield from _ours("torch", t, empty, size)


def _ours(
    library: str, x: Any, empty: Callable[[tuple[int, ...], Any], Any], size: int
) -> Iterator[tuple[str, Call]]:
    """Yield tcusim's calls on an array of one library."""
    y = empty((size // SEGMENT,), np.float16)
    plan = tcusim.plan("segmented_sum", length=size, segment_size=SEGMENT)
    yield f"plan of segmented_sum, {library}, out=y", lambda: plan(x, out=y)
    whole = tcusim.plan("sum", length=size)
    total = empty((), np.float16)
    yield f"plan of sum, {library}, out=y", lambda: whole(x, out=total)
    scan = tcusim.plan("cumsum", length=size)
    z = empty((size,), np.float16)
    yield f"plan of cumsum, {library}, out=y", lambda: scan(x, out=z)
    yield f"tcusim.segmented_sum, {library}", lambda: tcusim.segmented_sum(x, SEGMENT)
    yield f"tcusim.sum, {library}", lambda: tcusim.sum(x)
    yield f"tcusim.cumsum, {library}", lambda: tcusim.cumsum(x)


def _first(operation: str, segment: int | None, size: int) -> dict[str, float]:
    """Time first calls in new processes: compiled, then from the disk cache."""
    extra = "" if segment is None else f", segment_size={segment}"
    code = _FIRST.format(operation=operation, size=size, segment=extra)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for how in ("compiled", "from the disk cache"):
            done = subprocess.run(
                [sys.executable, "-c", code],
                env={**os.environ, "TCUSIM_CACHE_DIR": folder},
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise BackendUnavailable(f"a new process failed: {done.stderr.strip()[-400:]}")
            process, kernel, launches = json.loads(done.stdout.splitlines()[-1])
            found[f"{operation} of a process, {how}"] = float(process)
            found[f"{operation}, {how}, {launches} launches"] = float(kernel)
    return found
