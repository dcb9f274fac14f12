"""The libraries that the benchmark compares with: which are there, and that CUB's part compiles."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tcusim.errors import UnknownName
from tcusim_bench import peers as bench_peers
from tcusim_bench.peers import Cub
from tcusim_bench.sections import POWERS, Case


def test_peers_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    device: Any = SimpleNamespace(sm=90)
    peers = bench_peers.Peers(device, ("triton", "cub"))
    assert peers.names == ()
    assert peers.missing["cub"].endswith("nvcc, which compiles CUB, is not on the PATH")
    assert "triton" in peers.missing["triton"]
    with pytest.raises(UnknownName, match="unknown peer 'cubb'"):
        bench_peers.Peers(device, ("cubb",))


def test_a_peer_that_raises_is_a_contender_that_fails() -> None:
    device: Any = SimpleNamespace(sm=90)
    peers = bench_peers.Peers(device, ())
    peers.names = ("torch.compile",)
    problem: Any = SimpleNamespace(kind="sum", case=Case("x", "sum", 16, 64))
    (contender,) = peers.contenders(problem)
    assert (contender.who, contender.label) == ("torch.compile", "sum")
    with pytest.raises((ImportError, AttributeError)):
        contender.prepare(None)


@pytest.mark.parametrize("size", [size for size in POWERS if size])
def test_triton_tiles_cover_whole_segments(size: int) -> None:
    for rows, step, warps in bench_peers.triton_tiles(size):
        assert size % step == 0
        assert rows == 1 or step == size
        assert rows * step in (1024, 2048, 4096, 8192, 16384)
        assert warps in (1, 2, 4, 8)


def test_what_is_called_of_cub_is_in_its_source() -> None:
    """By every case: segments of one size, ragged ones and whole arrays."""
    source = bench_peers.CUB_SOURCE.read_text(encoding="utf-8")
    cub: Any = SimpleNamespace(version=3_001_000)
    called = set()
    for kind in ("sum", "scan"):
        for size, lengths in ((16, ""), (2**13, ""), (2**20, ""), (0, "one giant")):
            problem: Any = SimpleNamespace(
                kind=kind, segment_size=size, case=Case("x", kind, size, 2**20, lengths=lengths)
            )
            for functions in (Cub.device_wide, Cub.thrust, Cub.blocks):
                called |= {name for *_, name in functions(cub, problem)}
    assert len(called) == 11
    assert [name for name in called if f'extern "C" int {name}(' not in source] == []


@pytest.mark.full
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH")
def test_cub_compiles(tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc") or ""
    version, folders = bench_peers.newest_cccl(nvcc)
    if version < 3_000_000:
        pytest.skip("CCCL 3 is not there")
    command = bench_peers.cub_command(nvcc, 90, folders, tmp_path / "cub.so")
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
