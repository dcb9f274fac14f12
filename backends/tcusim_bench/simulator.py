"""How fast the simulator is on this machine: whole calls beside NumPy's own, and single tiles.

Times are of the processor, not of the clock on the wall, so that other work counts less. Ratios are
to NumPy's sums of the same float16 numbers in float32, measured in the same run.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

import tcusim
from tcusim.machine import mma_values, rule_for
from tcusim.machine.native import why_no_compiler

__all__ = ["ARCHES", "Report", "Row", "simulator"]

ARCHES: Final = ("hopper", "volta")
# Segment sizes; 0 is the whole array.
_SUMS: Final = (16, 256, 0)
_SCANS: Final = (16, 256, 0)
_TILES: Final = 2**12
_SIDE: Final = 512
_TURNS: Final = 3


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement: times NumPy's, microseconds a tile, or multiply-adds a second."""

    what: str
    arch: str
    core: str
    value: float
    unit: str


@dataclass(slots=True)
class Report:
    """The measurements, and the machine."""

    processor: str
    length: int
    versions: dict[str, str]
    rows: list[Row] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {"format": "tcusim simulator 1", **asdict(self)}

    def text(self) -> str:
        """Return a table to read."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        lines = [f"{self.processor}; {versions}; arrays of {self.length:,} float16 numbers", ""]
        width = max((len(row.what) for row in self.rows), default=0)
        lines += [
            f"{row.what:<{width}}  {row.arch:<7} {row.core:<9} {row.value:8.2f} {row.unit}"
            for row in self.rows
        ]
        return "\n".join(lines)


def simulator(log2_length: int = 24, archs: Sequence[str] = ARCHES) -> Report:
    """Time sums, scans, tiles and a product, with NumPy's steps and, if there are any, compiled."""
    length = 1 << log2_length
    report = Report(_processor(), length, {"tcusim": tcusim.__version__, "numpy": np.__version__})
    x = np.random.default_rng(0).standard_normal(length).astype(np.float16)
    cores = ("numpy",) if why_no_compiler() else ("numpy", "compiled")
    for arch in archs:
        for core in cores:
            with _choice(core):
                for what, value, unit in _measured(x, arch):
                    report.rows.append(Row(what, arch, core, value, unit))
    return report


def _measured(x: Any, arch: str) -> Iterator[tuple[str, float, str]]:
    options = tcusim.Options(arch=arch)
    for size in _SUMS:
        whole = size or x.size
        starts = np.arange(0, x.size, whole)
        usual = _seconds(np.add.reduceat, x, starts, dtype=np.float32)
        ours = _seconds(tcusim.segmented_sum, x, whole, dtype=np.float32, options=options)
        yield _name("sums", size), ours / usual, "times np.add.reduceat"
    usual = _seconds(np.cumsum, x, dtype=np.float32)
    for size in _SCANS:
        whole = size or x.size
        ours = _seconds(tcusim.segmented_cumsum, x, whole, options=options)
        yield _name("scans", size), ours / usual, "times np.cumsum"
    rule = rule_for(arch, "f16", "f32")
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((_TILES, 16, 16)).astype(np.float16) for _ in "ab")
    c = rng.standard_normal((_TILES, 16, 16)).astype(np.float32)
    upper = np.triu(np.ones((1, 16, 16), np.float16))
    for what, operands in (("A·B + C", (a, b, c)), ("A·U", (a, upper, None))):
        each = _seconds(mma_values, *operands, rule) / _TILES
        yield f"a tile, {what}", 1e6 * each, "us"
    left, right = (rng.standard_normal((_SIDE, _SIDE)).astype(np.float16) for _ in "ab")
    each = _seconds(tcusim.predict_matmul, left, right, arch=arch) / _SIDE**3
    yield f"predict_matmul, {_SIDE} x {_SIDE} x {_SIDE}", 1e-9 / each, "G multiply-adds a second"


def _name(kind: str, size: int) -> str:
    return f"{kind} of {size}" if size else f"{kind} of the array"


def _seconds(call: Callable[..., object], *given: Any, **more: Any) -> float:
    """Return the processor time of the fastest of some turns, after one."""
    call(*given, **more)
    found = []
    for _ in range(_TURNS):
        started = time.process_time()
        call(*given, **more)
        found.append(time.process_time() - started)
    return max(min(found), 1e-9)


@contextmanager
def _choice(core: str) -> Iterator[None]:
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
