"""Fixtures of several modules' tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import device_standin
from gpu_standin import StandIn, StandInDriver, Torch
from launch_plans import forget_plans
from tcusim.simulate.backend import NUMPY
from tcusim_cuda.driver import Driver


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty working directory with an input in it."""
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", (np.arange(256) % 7).astype(np.float16))
    return tmp_path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have compiled kernels kept in a cache that is empty; return the folder of those for GPUs."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("TCUSIM_CACHE_DIR", str(folder))
    return folder / "cuda"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Return a launcher on a driver that records its calls; the simulator runs the kernels."""
    stand_in = StandInDriver()
    monkeypatch.setattr(Driver, "open", lambda: stand_in)
    return StandIn(stand_in)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    """Have a stand-in for torch imported; return it."""
    module = Torch("torch")
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


@pytest.fixture
def device(
    only_backends: Callable[..., None], request: pytest.FixtureRequest
) -> Iterator[device_standin.StandIn]:
    """Register a stand-in as the only backend beside the simulator, with no plans kept.

    A test may be parametrized with its class.
    """
    stand_in = getattr(request, "param", device_standin.StandIn)("cupy")
    only_backends(NUMPY, stand_in)
    forget_plans()
    yield stand_in
    forget_plans()


@pytest.fixture(scope="session")
def host_cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for the kernels that this session compiles for the CPU."""
    return tmp_path_factory.mktemp("host-cache")


@pytest.fixture
def host_cache(host_cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the kernels compiled for the CPU apart from the user's."""
    monkeypatch.setenv("TCUSIM_CACHE_DIR", str(host_cache_folder))
