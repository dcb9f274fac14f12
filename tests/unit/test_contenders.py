"""The libraries that the benchmark compares with: those found, and that CUB's part compiles."""

from __future__ import annotations

import shutil
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tcusim_bench.contenders import Contenders, triton_tiles
from tcusim_bench.parts import POWERS
from tcusim_bench.record import Case


def test_peers_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.setitem(sys.modules, "cutlass_library", None)
    monkeypatch.delenv("CUTLASS_PATH", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    device: Any = SimpleNamespace(sm=90)
    peers = Contenders(device, ("triton", "cub", "cutlass"))
    assert "Install nvidia-cutlass" in peers.missing["cutlass"]
    assert peers.missing["cub"].endswith("nvcc, which compiles CUB and CUTLASS, is not on the PATH")
    assert "triton" in peers.missing["triton"]
    assert list(peers.ways(SimpleNamespace(), ("triton", "cub"))) == []  # type: ignore[arg-type]


def test_a_peer_that_raises_is_a_contender_that_fails() -> None:
    device: Any = SimpleNamespace(sm=90)
    peers = Contenders(device, ())
    peers._ways["cupy"] = lambda problem: iter([problem.device.cp])
    problem: Any = SimpleNamespace(kind="sum", case=Case("x", "sum", 16, 64))
    (contender,) = peers.ways(problem, ("cupy",))
    assert (contender.who, contender.label) == ("cupy", "sum")
    with pytest.raises(AttributeError):
        contender.prepare(None)


def test_cupy_needs_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(__version__="14"))
    device: Any = SimpleNamespace(sm=90)
    peers = Contenders(device, ("cupy", "torch"))
    assert (peers.versions, list(peers.missing)) == ({"cupy": "14"}, ["torch"])


@pytest.mark.parametrize("kind", ["sum", "scan"])
@pytest.mark.parametrize("size", [size for size in POWERS if size])
def test_triton_tiles_cover_whole_segments(kind: str, size: int) -> None:
    for rows, step, warps in triton_tiles(kind, size):
        assert size % step == 0
        assert rows == 1 or step == size
        assert rows * step in (1024, 2048, 4096, 8192, 16384)
        assert warps in (1, 2, 4, 8)
