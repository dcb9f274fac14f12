"""How energy is measured: from one step of the counter to another, while the GPU is never idle."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from tcusim.errors import BackendUnavailable
from tcusim_bench.energy import Meter, drawn


class Gpu:
    """A GPU that draws 500 watts; its counter moves ten times a second; a batch takes 30 ms."""

    def __init__(self, step: float = 0.1) -> None:
        self.now = 0.0
        self.step = step
        self.pushed = 0
        self.idle = 0

    def clock(self) -> float:
        self.now += 0.001
        return self.now

    def joules(self) -> float:
        self.now += 0.004
        return 500.0 * (self.now // self.step * self.step)

    def push(self) -> int:
        self.pushed += 1
        return 60

    def finished(self) -> int:
        done = min(self.pushed, int(self.now / 0.03))
        self.idle += done == self.pushed and self.pushed > 0
        return done


def test_power_and_time() -> None:
    gpu = Gpu()
    found = drawn(gpu.joules, gpu.push, gpu.finished, 1.0, gpu.clock)
    assert found.watts == pytest.approx(500, rel=0.05)
    assert found.ms == pytest.approx(0.5, rel=0.05)
    assert gpu.now < 1.2


def test_two_batches_are_queued() -> None:
    gpu = Gpu()
    drawn(gpu.joules, gpu.push, gpu.finished, 1.0, gpu.clock)
    assert gpu.pushed == pytest.approx(1.0 / 0.03 + 2, abs=2)
    assert gpu.idle == 0


def test_runs_that_end_as_fast_as_they_are_queued() -> None:
    class Short(Gpu):
        def push(self) -> int:
            self.now += 0.03
            assert self.pushed < 100, "batches are queued without end"
            return super().push()

        def finished(self) -> int:
            return self.pushed

    gpu = Short()
    found = drawn(gpu.joules, gpu.push, gpu.finished, 1.0, gpu.clock)
    assert found.watts == pytest.approx(500, rel=0.1)


def test_a_counter_that_stands_still() -> None:
    gpu = Gpu(step=100.0)
    with pytest.raises(BackendUnavailable, match=r"moved 0 times in 3\.0 s, which is too little"):
        drawn(gpu.joules, gpu.push, gpu.finished, 1.0, gpu.clock)


class Nvml:
    """As much of NVML as is called."""

    status = 0

    def nvmlInit_v2(self) -> int:  # noqa: N802
        return 0

    def nvmlDeviceGetHandleByPciBusId_v2(self, bus: Any, handle: Any) -> int:  # noqa: N802
        assert bus.value == b"0000:01:00.0"
        return 0

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any, energy: Any) -> int:  # noqa: N802
        ctypes.cast(energy, ctypes.POINTER(ctypes.c_ulonglong))[0] = 12_345
        return self.status


def test_the_counter_of_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml()
    assert Meter("0000:01:00.0", nvml).joules() == 12.345
    nvml.status = 3
    with pytest.raises(BackendUnavailable, match="TotalEnergyConsumption returned 3"):
        Meter("0000:01:00.0", nvml)

    def missing(name: str) -> Any:
        raise OSError(f"{name}: cannot open")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(BackendUnavailable, match=r"libnvidia-ml\.so\.1: cannot open"):
        Meter("0000:01:00.0")
