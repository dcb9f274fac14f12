"""Measurements by the clock: calls on short arrays, operators of torch, and the simulator."""

from __future__ import annotations

import importlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np

import tcusim
from tcusim.errors import BackendUnavailable
from tcusim.machine import format_of, mma_values, rule_for
from tcusim.machine.native import why_no_compiler
from tcusim_bench.device import Device, read_limits
from tcusim_bench.record import Case, Report, Row, first_line, now
from tcusim_cuda.microbench.stopwatch import IN_GRAPH, Run, Stopwatch, Times

# Few enough calls a batch that the GPU's queue, of 1024 launches, never fills up.
_CALLS: Final = 200
_BATCHES: Final = 15


def host_us(
    calls: Mapping[str, Run],
    wait: Run,
    *,
    batches: int = _BATCHES,
    each: int = _CALLS,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Return microseconds of the host for calls, one number a batch of `each` calls.

    Calls queue work on the GPU and return. `wait` waits for the GPU, outside the clock. The calls
    take turns, so that a machine that grows slower does so for all of them.
    """
    for call in calls.values():
        for _ in range(min(20, each)):
            call()
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(batches):
        for name, call in calls.items():
            wait()
            started = clock()
            for _ in range(each):
                call()
            found[name].append(1e6 * (clock() - started) / each)
    wait()
    return found


# Takes calls by name, and a wait for the GPU, as `host_us` does.
Timer = Callable[[Mapping[str, Run], Run], dict[str, list[float]]]


def _imported(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _versions(*modules: ModuleType | None) -> dict[str, str]:
    found = {one.__name__: str(one.__version__) for one in modules if one is not None}
    return {"tcusim": tcusim.__version__, **found}


# --- Calls on short arrays ----------------------------------------------------------------------

_SIZES: Final = (2**12, 2**16, 2**20)
_SEGMENT: Final = 64
_PEER: Final = "cupy.sum(x)"

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


def latency(length: int = _SIZES[-1], *, quick: bool = False) -> Report:
    """Time public calls on short float16 arrays, and the first call of a process.

    quick: no first calls, which take processes of their own. Raises BackendUnavailable if CuPy or a
    GPU is missing.
    """
    cupy, torch = _imported("cupy"), _imported("torch")
    if cupy is None or cupy.cuda.runtime.getDeviceCount() == 0:
        raise BackendUnavailable("this benchmark compares with CuPy on a GPU. Install tcusim[cupy]")
    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    device = {"gpu": properties["name"].decode(), "packages": len(list(metadata.distributions()))}
    rows = [row for size in _SIZES for row in call_rows(size, cupy, torch)]
    notes = [] if torch else ["torch is not installed: its arrays were left out"]
    for operation, segment in (("segmented_sum", _SEGMENT), ("cumsum", None)) if not quick else ():
        for what, ms in _first(operation, segment, _SIZES[-1]).items():
            rows.append(Row(Case("latency", "first call", 0, _SIZES[-1]), what, ms=ms))
    return Report(device, _versions(cupy, torch), {}, _SIZES[-1], now(), tuple(rows), notes)


def call_rows(size: int, cupy: Any, torch: Any, timer: Timer = host_us) -> Iterator[Row]:
    """Yield the times of public calls on arrays of CuPy and torch."""
    times = timer(dict(_calls(size, cupy, torch)), cupy.cuda.Device().synchronize)
    peer = statistics.median(times[_PEER])
    for name, found in times.items():
        us, case = statistics.median(found), Case("latency", "call", 0, size)
        one = Row(case, name, ratio=us / peer, against=_PEER)
        yield one.timed(Times(us / 1e3, min(found) / 1e3, max(found) / 1e3))


def _calls(size: int, cupy: ModuleType, torch: ModuleType | None) -> Iterator[tuple[str, Run]]:
    x = cupy.asarray(np.random.default_rng(size).random(size), cupy.float16)
    yield _PEER, lambda: cupy.sum(x)
    total = cupy.empty((), cupy.float16)
    yield "cupy.sum(x, out=y)", lambda: cupy.sum(x, out=total)
    yield "cupy.cumsum(x)", lambda: cupy.cumsum(x)
    yield from _our_calls("cupy", x, cupy.empty, size)
    if torch is None:
        return
    t = torch.as_tensor(x, device="cuda")
    yield "torch.sum(x)", lambda: torch.sum(t)
    yield "torch.cumsum(x, 0)", lambda: torch.cumsum(t, 0)

    def empty(shape: tuple[int, ...], dtype: Any) -> Any:
        return torch.empty(shape, dtype=getattr(torch, np.dtype(dtype).name), device="cuda")

    yield from _our_calls("torch", t, empty, size)


def _our_calls(
    library: str, x: Any, empty: Callable[[tuple[int, ...], Any], Any], size: int
) -> Iterator[tuple[str, Run]]:
    """Yield tcusim's calls on an array of one library."""
    for name, shape, segment in (
        ("segmented_sum", (size // _SEGMENT,), _SEGMENT),
        ("sum", (), None),
        ("cumsum", (size,), None),
    ):
        plan = tcusim.plan(name, length=size, segments=segment)
        out = empty(shape, np.float16)
        yield f"plan of {name}, {library}, out=y", partial(plan, x, out=out)
    yield f"tcusim.segmented_sum, {library}", lambda: tcusim.segmented_sum(x, _SEGMENT)
    yield f"tcusim.sum, {library}", lambda: tcusim.sum(x)
    yield f"tcusim.cumsum, {library}", lambda: tcusim.cumsum(x)


def _first(operation: str, segment: int | None, size: int) -> dict[str, float]:
    """Time first calls in new processes: compiled, then from the disk cache."""
    extra = "" if segment is None else f", segments={segment}"
    code = _FIRST.format(operation=operation, size=size, segment=extra)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for how in ("compiled", "from the disk cache"):
            done = subprocess.run(
                [sys.executable, "-c", code],
                env={**os.environ, "TCUSIM_CACHE_DIR": folder},
                # In the folder of a checkout, Python would take its tcusim for the installed one.
                cwd=folder,
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


# --- Operators of torch -------------------------------------------------------------------------

_COLUMNS: Final = (1024, 4096, 16384)
_TORCH_TYPES: Final = ("f16", "bf16", "f32")
# Rows of the tensor on which the host's time is taken: the GPU is done before the next call.
_SHORT_ROWS: Final = 16
_REPEATS: Final = 15

# Operators: of tcusim.torch and of torch, on a tensor, and the passes over the tensor: 1 where rows
# are read, 2 where as much is written.
Operator = Callable[[Any, Any], object]
OPERATORS: Final[dict[str, tuple[Operator, Operator, int]]] = {
    "sum": (lambda tct, x: tct.sum(x, 1), lambda torch, x: torch.sum(x, 1), 1),
    "mean": (lambda tct, x: tct.mean(x, 1), lambda torch, x: torch.mean(x, 1), 1),
    "cumsum": (lambda tct, x: tct.cumsum(x, 1), lambda torch, x: torch.cumsum(x, 1), 2),
    "rms_norm": (
        lambda tct, x: tct.rms_norm(x, x.shape[1:]),
        lambda torch, x: torch.nn.functional.rms_norm(x, x.shape[1:]),
        2,
    ),
    "softmax": (lambda tct, x: tct.softmax(x, 1), lambda torch, x: torch.softmax(x, 1), 2),
}


def operators(length: int = 2**28, *, quick: bool = False) -> Report:
    """Time the operators of tcusim.torch on rows of tensors, beside torch's, plain and compiled.

    quick: bfloat16 and rows of 4,096 only. Raises BackendUnavailable without a GPU, torch or CuPy,
    which measures the limits.
    """
    torch = _imported("torch")
    if torch is None or not torch.cuda.is_available():
        raise BackendUnavailable("the operators are torch's. Install a torch that has CUDA")
    device = Device(length, "cuda")
    limits = read_limits(device, _REPEATS)
    columns, dtypes = ((4096,), ("bf16",)) if quick else (_COLUMNS, _TORCH_TYPES)
    rows = tuple(
        row
        for dtype in dtypes
        for each in columns
        for row in operator_rows(torch, device, (length // each, each), dtype)
    )
    return Report(device.info, _versions(torch), limits, length, now(), rows)


def operator_rows(
    torch: Any,
    watch: Stopwatch,
    shape: tuple[int, int],
    dtype: str,
    *,
    where: str = "cuda",
    timer: Timer = host_us,
) -> Iterator[Row]:
    """Yield the times of each operator by each library, on a tensor of this shape and type.

    where: the device. timer: of the host's time.
    """
    ours, kind = (
        importlib.import_module("tcusim.torch"),
        getattr(torch, format_of(dtype).array_name),
    )
    heights, columns = (shape[0], _SHORT_ROWS), shape[1]
    x, short = (torch.randn((each, columns), dtype=kind, device=where) for each in heights)
    wait = torch.cuda.synchronize if where == "cuda" else lambda: None
    for name, (own, others, passes) in OPERATORS.items():
        case = Case("operators", name, columns, x.numel(), dtype)
        for who, made in (
            ("tcusim.torch", lambda own=own: partial(own, ours)),
            ("torch", lambda others=others: partial(others, torch)),
            ("torch.compile", lambda others=others: _compiled(torch, others)),
        ):
            row = Row(case, who, bytes=passes * x.numel() * x.element_size())
            try:
                call = made()
                call(short)
                times = watch.times(partial(call, x), _REPEATS)
                us = statistics.median(timer({who: partial(call, short)}, wait)[who])
            except Exception as error:  # a failure of one library leaves the others
                yield replace(row, status=f"failed: {first_line(error)}")
            else:
                yield replace(row.timed(times), host_us=us)


def _compiled(torch: Any, operator: Operator) -> Callable[[Any], object]:
    """Return an operator, compiled by torch for this type and shape only.

    Otherwise it gives up compiling after some operators, and runs the plain ones.
    """
    torch.compiler.reset()
    compiled: Callable[[Any], object] = torch.compile(partial(operator, torch), dynamic=False)
    return compiled


# --- The simulator ------------------------------------------------------------------------------

_ARCHES: Final = ("hopper", "volta")
# Segment sizes; 0 is the whole array.
_SEGMENTS: Final = (16, 256, 0)
_TILES: Final = 2**12
PRODUCT_SIDE: Final = 512
_LONGEST: Final = 2**24


class _Processor(Stopwatch):
    """Times of the processor, not of the clock on the wall, so that other work counts less."""

    def once(self, run: Run, *, busy: bool = False) -> float:
        started = time.process_time()
        run()
        return 1e3 * (time.process_time() - started)

    def graph(self, run: Run, *, of_torch: bool = False) -> Run:
        return lambda: [run() for _ in range(IN_GRAPH)]


def simulator(
    length: int = _LONGEST, *, quick: bool = False, archs: Sequence[str] = _ARCHES
) -> Report:
    """Time the simulator on this machine's processor, with NumPy's steps and with compiled ones.

    Ratios are to NumPy's sums and scans of the same float16 numbers in float32, in the same run.
    length: of the arrays, at most 2**24; `quick`: 2**18.
    """
    length = min(length, 2**18 if quick else _LONGEST)
    x = np.random.default_rng(0).standard_normal(length).astype(np.float16)
    cores = ("numpy",) if why_no_compiler() else ("numpy", "compiled")
    rows: list[Row] = []
    for arch in archs:
        for core in cores:
            with _core(core):
                rows += _simulator_rows(x, arch, f"{arch}, {core}")
    device = {"processor": _processor()}
    return Report(device, _versions(np), {}, length, now(), tuple(rows))


def _simulator_rows(x: Any, arch: str, who: str) -> Iterator[Row]:
    options = tcusim.Options(arch=arch)

    def row(what: str, run: Run, over: Run | None = None, against: str = "", count: int = 1) -> Row:
        ms = _least(run) / count
        ratio = None if over is None else ms / _least(over)
        return Row(Case("simulator", what, 0, x.size), who, ms=ms, ratio=ratio, against=against)

    for size in _SEGMENTS:
        whole = size or x.size
        starts = np.arange(0, x.size, whole)
        ours = partial(tcusim.segmented_sum, x, whole, dtype=np.float32, options=options)
        usual = partial(np.add.reduceat, x, starts, dtype=np.float32)
        yield row(f"sums of {size or 'the array'}", ours, usual, "np.add.reduceat")
    for size in _SEGMENTS:
        ours = partial(tcusim.segmented_cumsum, x, size or x.size, options=options)
        usual = partial(np.cumsum, x, dtype=np.float32)
        yield row(f"scans of {size or 'the array'}", ours, usual, "np.cumsum")
    rule, rng = rule_for(arch, "f16", "f32"), np.random.default_rng(1)
    a, b = (rng.standard_normal((_TILES, 16, 16)).astype(np.float16) for _ in "ab")
    c = rng.standard_normal((_TILES, 16, 16)).astype(np.float32)
    upper = np.triu(np.ones((1, 16, 16), np.float16))
    yield row("a tile, A·B + C", partial(mma_values, a, b, c, rule), count=_TILES)
    yield row("a tile, A·U", partial(mma_values, a, upper, None, rule), count=_TILES)
    side = PRODUCT_SIDE
    left, right = (rng.standard_normal((side, side)).astype(np.float16) for _ in "ab")
    product = partial(tcusim.predict_matmul, left, right, arch=arch)
    yield row(f"predict_matmul, {side} x {side} x {side}", product)


def _least(run: Run) -> float:
    return max(_Processor().times(run, 3).least, 1e-6)


@contextmanager
def _core(core: str) -> Iterator[None]:
    before = os.environ.get("TCUSIM_CORE")
    os.environ["TCUSIM_CORE"] = core
    try:
        yield
    finally:
        if before is None:
            del os.environ["TCUSIM_CORE"]
        else:
            os.environ["TCUSIM_CORE"] = before


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    name = next((line.partition(":")[2].strip() for line in lines if "model name" in line), "")
    return f"{name or platform.processor() or platform.machine()}, {os.cpu_count()} processors"


# Parts of the benchmark that give a report of their own, given the elements of the longest arrays.
PARTS: Final[dict[str, Callable[..., Report]]] = {
    "latency": latency,
    "operators": operators,
    "simulator": simulator,
}
