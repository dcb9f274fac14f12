"""tcusim_bench.latency: its timed calls, with NumPy arrays in the place of CuPy's and torch's."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from command_line import runner
from tcusim.errors import BackendUnavailable
from tcusim_bench import latency as module
from tcusim_bench.latency import latency


def stand_in(name: str) -> Any:
    """Return NumPy as `name` would be: the calls that the benchmark makes."""
    device = SimpleNamespace(synchronize=lambda: None, id=0)
    runtime = SimpleNamespace(
        getDeviceCount=lambda: 1, getDeviceProperties=lambda _: {"name": b"No GPU"}
    )
    return SimpleNamespace(
        __version__="0",
        cuda=SimpleNamespace(Device=lambda: device, runtime=runtime),
        asarray=np.asarray,
        as_tensor=lambda a, device: a,
        empty=lambda shape, dtype, device=None: np.empty(shape, dtype),
        float16=np.float16,
        sum=np.sum,
        cumsum=np.cumsum,
    )


@pytest.fixture
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "imported", stand_in)
    monkeypatch.setattr(module, "_CALLS", 1)
    monkeypatch.setattr(module, "_BATCHES", 2)


@pytest.mark.usefixtures("_no_gpu")
def test_every_call_is_timed_beside_the_peer() -> None:
    report = latency((256,), first_calls=False)
    calls = [row.call for row in report.rows]
    for library in ("cupy", "torch"):
        assert f"plan of segmented_sum, {library}, out=y" in calls
        assert f"tcusim.cumsum, {library}" in calls
    (peer,) = (row for row in report.rows if row.call == "cupy.sum(x)")
    assert peer.ratio == 1
    assert all(row.us >= row.least_us > 0 for row in report.rows)
    assert all(row.ratio == pytest.approx(row.us / peer.us) for row in report.rows)


@pytest.mark.usefixtures("_no_gpu")
def test_the_command(tmp_path: Path) -> None:

    from tcusim.cli.main import main

    path = tmp_path / "warm.json"
    arguments = ["bench", "latency", "--size", "128", "--no-first", "-o", str(path)]
    done = runner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert "No GPU; tcusim" in done.output
    assert "tcusim.segmented_sum, torch" in done.output
    assert {row["size"] for row in json.loads(path.read_text())["rows"]} == {128}


def test_no_gpu_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "imported", lambda _: None)
    with pytest.raises(BackendUnavailable, match=r"Install tcusim\[cupy\]"):
        latency()
