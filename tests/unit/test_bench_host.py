"""The benchmark's measurements by the clock: of calls, of operators, and of the simulator."""

from __future__ import annotations

import os
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tcusim.errors import BackendUnavailable
from tcusim.machine.native import why_no_compiler
from tcusim_bench import host
from tcusim_bench.host import call_rows, host_us, latency, operator_rows, operators, simulator
from tcusim_cuda.microbench.stopwatch import Run, Stopwatch

FEW = partial(host_us, batches=2, each=1)


def test_calls_take_turns_and_the_gpu_is_waited_for_outside_the_clock() -> None:
    seen: list[str] = []
    now = [0.0]

    def call(name: str, seconds: float) -> Run:
        def run() -> None:
            seen.append(name)
            now[0] += seconds

        return run

    def wait() -> None:
        seen.append("wait")
        now[0] += 5.0

    calls = {"a": call("a", 2e-6), "b": call("b", 4e-6)}
    found = host_us(calls, wait, batches=2, each=3, clock=lambda: now[0])
    assert found == {"a": pytest.approx([2.0, 2.0]), "b": pytest.approx([4.0, 4.0])}
    turn = ["wait", *"aaa", "wait", *"bbb"]
    assert seen == [*"aaabbb", *turn, *turn, "wait"]


def on_numpy() -> Any:
    """Return NumPy as CuPy and torch would be: the calls that the benchmark makes."""
    device = SimpleNamespace(synchronize=lambda: None, id=0)
    return SimpleNamespace(
        cuda=SimpleNamespace(Device=lambda: device),
        asarray=np.asarray,
        as_tensor=lambda a, device: a,
        empty=lambda shape, dtype, device=None: np.empty(shape, dtype),
        float16=np.float16,
        sum=np.sum,
        cumsum=np.cumsum,
    )


def test_every_call_is_timed_beside_the_peer() -> None:
    rows = list(call_rows(256, on_numpy(), on_numpy(), FEW))
    calls = [row.who for row in rows]
    for library in ("cupy", "torch"):
        for name in ("segmented_sum", "sum", "cumsum"):
            assert f"plan of {name}, {library}, out=y" in calls
            assert f"tcusim.{name}, {library}" in calls
    (peer,) = (row for row in rows if row.who == "cupy.sum(x)")
    assert (peer.ratio, peer.case.length) == (1, 256)
    assert all(row.ms and row.least_ms and row.ms >= row.least_ms > 0 for row in rows)
    assert all(row.ratio == pytest.approx((row.ms or 0) / (peer.ms or 1)) for row in rows)


class Once(Stopwatch):
    """A clock that runs each call, and says that the GPU takes a millisecond."""

    def once(self, run: Run, *, busy: bool = False) -> float:
        run()
        return 1.0

    def graph(self, run: Run, *, of_torch: bool = False) -> Run:
        return run


def test_each_operator_is_timed_by_each_library(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")

    def lacking(_: Any, x: Any) -> Any:
        raise NotImplementedError("no cumsum here\nand more")

    ours, _, passes = host.OPERATORS["cumsum"]
    monkeypatch.setitem(host.OPERATORS, "cumsum", (ours, lacking, passes))
    monkeypatch.setattr(torch, "compile", lambda call, dynamic: call)
    rows = list(operator_rows(torch, Once(), (8, 64), "f32", where="cpu", timer=FEW))
    libraries = ("tcusim.torch", "torch", "torch.compile")
    assert [(row.case.kind, row.who) for row in rows] == [
        (name, who) for name in host.OPERATORS for who in libraries
    ]
    by = {(row.case.kind, row.who): row for row in rows}
    # Arrays as large as the tensor were written as well.
    assert by["sum", "torch"].bytes == 4 * 512
    assert by["softmax", "torch"].bytes == 2 * 4 * 512
    assert by["sum", "tcusim.torch"].ms == 1.0
    assert by["cumsum", "tcusim.torch"].host_us
    lack = by["cumsum", "torch"]
    assert (lack.ms, lack.status) == (None, "failed: NotImplementedError: no cumsum here")


def test_the_simulator_is_timed_beside_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "PRODUCT_SIDE", 32)
    monkeypatch.setattr(host, "_TILES", 20)
    monkeypatch.setenv("TCUSIM_CORE", "auto")
    report = simulator(2**10, archs=("volta",))
    assert os.environ["TCUSIM_CORE"] == "auto"
    cores = ["numpy"] if why_no_compiler() else ["numpy", "compiled"]
    assert list(dict.fromkeys(row.who for row in report.rows)) == [f"volta, {one}" for one in cores]
    assert len(report.rows) == 9 * len(cores)
    assert all((row.ratio is None) == (row.against == "") and row.ms for row in report.rows)
    assert "sums of the array" in report.text()


@pytest.mark.parametrize(
    ("measure", "text"), [(latency, "Install tcusim"), (operators, "Install a torch that has CUDA")]
)
def test_no_gpu_is_a_sentence(measure: Any, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_imported", lambda _: None)
    with pytest.raises(BackendUnavailable, match=text):
        measure()
