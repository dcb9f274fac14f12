"""The simulator as a backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tcusim import backends
from tcusim.algorithms import build
from tcusim.backends import get_backend, why_unavailable
from tcusim.errors import InputError
from tcusim.program.launches import LaunchPlan
from tcusim.simulate.backend import NUMPY
from tcusim.simulate.interpreter import run_numpy

PROGRAM = build("reduction_16")


PLAN = LaunchPlan.of_program(PROGRAM, {"in": 256})


def test_the_simulator_comes_first_and_is_available() -> None:
    assert backends.backends()[0] == "numpy"
    assert get_backend("numpy") is NUMPY
    assert why_unavailable("numpy") is None


def test_the_simulator_follows_the_arch_and_is_watched() -> None:
    x = np.ones(256, np.float16)
    seen: list[Any] = []
    x[1] = 2**-11
    for arch in (None, "volta", "exact"):
        expected = run_numpy(PROGRAM, {"in": x}, arch=arch or "hopper")["out"]
        result = NUMPY.run(PLAN, {"in": x}, arch=arch, watch=seen.append)["out"]
        assert result.tobytes() == expected.tobytes()
    assert {event.path for event in seen} == {str(1 + i) for i in range(len(PROGRAM.steps))}


def test_the_simulator_fills_out_and_tells_progress() -> None:
    x, out, seen = np.ones(256, np.float16), np.zeros(16, np.float32), []
    result = NUMPY.run(
        PLAN, {"in": x}, out={"out": out}, progress=lambda done, most: seen.append((done, most))
    )
    assert result["out"] is out
    assert out.tolist() == [16] * 16
    assert seen[-1][0] == seen[-1][1] > 0


def test_the_simulator_refuses_streams_and_unknown_options() -> None:
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({"stream": 1}, "the simulator has no streams; leave stream out"),
        ({"speed": 1}, "numpy has no option speed; it has watch, check, block_order, seed"),
    )
    for options, text in refused:
        with pytest.raises(InputError, match=text):
            backends.run(PROGRAM, {"in": np.ones(256)}, **options)
