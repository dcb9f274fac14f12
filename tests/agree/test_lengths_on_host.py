"""The functions on the host backend: the bits of the simulator, in some of the cases of a GPU.

`tests/gpu/test_every_length.py` names the cases. Each run takes others of them; all take minutes.
"""

from __future__ import annotations

import importlib.util
import random
import sys
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tcusim
from asked import asked
from tcusim.backends import why_unavailable

# Cases of a run, and the longest array of them.
CASES = 20
LONGEST = 2**17


def _module() -> ModuleType:
    """Return the tests for a GPU, as a module."""
    path = Path(__file__).parents[1] / "gpu" / "test_every_length.py"
    spec = importlib.util.spec_from_file_location("cases_of_every_length", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


every = _module()


def test_some_lengths_and_segments() -> None:
    reason = why_unavailable("host")
    if reason is not None:
        pytest.skip(reason)
    cases = [one for one in (*every.whole_arrays(), *every.segments()) if one.length <= LONGEST]
    assert len(cases) > 10 * CASES
    for case in random.sample(cases, CASES):
        rng = np.random.default_rng(zlib.crc32(repr(case).encode()))
        x = every.array(case.dtype, case.length, rng)
        sizes = () if case.size is None else (case.size,)
        results: list[Any] = [
            np.asarray(
                getattr(tcusim, case.function)(
                    x, *sizes, **asked(arch="hopper", backend=backend, **dict(case.keywords))
                )
            )
            for backend in ("numpy", "host")
        ]
        simulated, hosted = results
        assert (hosted.dtype, hosted.shape) == (simulated.dtype, simulated.shape), case
        assert hosted.tobytes() == simulated.tobytes(), case
