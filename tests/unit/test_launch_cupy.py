"""The backend "cupy": memory of CuPy's pool, on CuPy's streams, where CuPy now works."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpu_standin import OnGpu, StandIn, X
from tcusim_cuda import CUPY
from tcusim_cuda.libraries import device_array
from tcusim_cuda.runtime import Place


class Cuda:
    """The part of cupy.cuda for memory and streams; it records CuPy's current device."""

    def __init__(self, *, newer: bool) -> None:
        self.now: list[Any] = []
        self.taken: list[tuple[Any, ...]] = []
        streams: dict[str, Any] = {"null": self.on("null")}
        if newer:
            streams["from_external"] = lambda given: self.on(given.__cuda_stream__())
        self.Stream = SimpleNamespace(**streams)
        self.driver = SimpleNamespace(CUDADriverError=ZeroDivisionError)
        self.runtime = SimpleNamespace(CUDARuntimeError=KeyError)

    @contextlib.contextmanager
    def on(self, what: Any) -> Iterator[None]:
        self.now.append(what)
        yield
        self.now.pop()

    def Device(self, number: int) -> Any:  # noqa: N802
        return self.on(f"device {number}")

    def ExternalStream(self, handle: int, device: int) -> Any:  # noqa: N802
        return self.on((handle, device))

    def get_current_stream(self, device: int) -> Any:
        return SimpleNamespace(ptr=30 + device)

    def alloc(self, nbytes: int) -> Any:
        self.taken.append((*self.now, nbytes))
        return SimpleNamespace(ptr=4096)


@pytest.fixture(params=[True, False], ids=["newer", "before 14"])
def cuda(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Cuda:
    cuda = Cuda(newer=request.param)

    def empty(shape: tuple[int, ...], dtype: Any) -> Any:
        cuda.taken.append((*cuda.now, shape, np.dtype(dtype).name))
        return OnGpu(np.zeros(shape, dtype))

    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda, empty=empty))
    return cuda


@pytest.mark.usefixtures("gpu")
def test_memory_is_the_pools_on_the_stream(cuda: Cuda) -> None:
    newer = hasattr(cuda.Stream, "from_external")
    owner, address = CUPY.memory(None, 100, 7)
    assert (owner.ptr, address) == (4096, 4096)
    CUPY.memory(None, 50, 0)
    # Version 0 of the protocol, and the handle; or the handle and the device.
    stream = (0, 7) if newer else (7, 0)
    assert cuda.taken == [("device 0", stream, 100), ("device 0", "null", 50)]
    assert cuda.now == []


def test_arrays_are_cupys_of_the_type_in_memory(gpu: StandIn, cuda: Cuda) -> None:
    like = device_array(OnGpu(X), "a")
    assert like is not None
    for dtype, name in (("f32", "float32"), ("bf16", "uint16")):
        CUPY.empty(like, (3, 4), dtype, 7)
        assert cuda.taken[-1][0] == "device 0"
        assert cuda.taken[-1][2:] == ((3, 4), name)


def test_the_default_stream_is_cupys_current_one(cuda: Cuda) -> None:
    assert CUPY.default_stream(Place(2)) == 32
    assert CUPY.errors() == (ZeroDivisionError, KeyError)
