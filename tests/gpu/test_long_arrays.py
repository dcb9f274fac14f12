"""Sums and scans of 2**30 and 2**31 + 1 elements: the simulator's bits, and near the exact sums.

The simulator takes too long for a test: `tests/recorded/record_long_arrays.py` ran it, and kept a
checksum of all bits, of those in `long_arrays.json`; the others are compared with exact sums alone.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tcusim
from tcusim.backends import why_unavailable
from tcusim_cuda.driver import arch_name, device_sm


def _module() -> ModuleType:
    """Return the script that records, as a module."""
    path = Path(__file__).parents[1] / "recorded" / "record_long_arrays.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


recorded = _module()

pytestmark = [pytest.mark.gpu(min_sm=80), pytest.mark.slow]

NAMES = [
    f"{operation} of {length}" for operation in ("sum", "cumsum") for length in ("2**30", "2**31+1")
]


@pytest.fixture
def cupy() -> Any:
    reason = why_unavailable("cupy")
    if reason is not None:
        pytest.skip(reason)
    return importlib.import_module("cupy")


@pytest.mark.parametrize("name", NAMES)
def test_long_arrays(cupy: Any, name: str) -> None:
    program, length = recorded.programs()[name]
    if cupy.cuda.runtime.memGetInfo()[0] < 9 * length:
        pytest.skip(f"needs {9 * length} bytes of GPU memory")
    x = recorded.long_input(length, cupy)
    result = tcusim.run(program, {"in": x}, backend="cupy", poison=True)["out"]
    known = json.loads(recorded.FILE.read_text()).get(name)
    if known is not None and arch_name(device_sm()) == known["arch"]:
        assert recorded.checksum(result, cupy) == known["checksum"]
    assert _worst_error(cupy, result, length) < (1e-6 if name.startswith("sum") else 1e-5)


def _worst_error(cupy: Any, result: Any, length: int) -> float:
    """Return the largest relative error against sums of integers, each 2**-11."""
    worst, before = 0.0, 0
    for start in range(0, length, recorded.PIECE):
        part = cupy.arange(start, min(start + recorded.PIECE, length))
        sums = cupy.cumsum(recorded.halves(part, cupy).astype(cupy.int64)) + before
        before = int(sums[-1])
        if result.size == length:
            exact = sums.astype(cupy.float64) * 2.0**-11
            error = cupy.abs(result[start : start + part.size] - exact) / cupy.maximum(
                exact, 2.0**-11
            )
            worst = max(worst, float(error.max()))
    if result.size == 1:
        return abs(float(result[0]) / (before * 2.0**-11) - 1)
    return worst
