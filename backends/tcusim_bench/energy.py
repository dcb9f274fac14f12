"""The energy of a kernel: the GPU's own counter, read while the kernel runs repeatedly.

The counter is NVML's, of the driver, in millijoules of the whole board; the board's idle power
is part of it. It moves on several times a second only. So a kernel is run for about a second, and
the power is taken from one step of the counter to another.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tcusim.errors import BackendUnavailable

_LIBRARY: Final = "libnvidia-ml.so.1"
# The counter's steps that are left out while the clocks settle, and the least that are used.
_SETTLING: Final = 0.2
_LEAST_STEPS: Final = 4
# A counter that does not move is given up after so many times the time.
_PATIENCE: Final = 3.0


class Drawn(NamedTuple):
    """Watts of the board, and milliseconds of one run, while it ran again and again."""

    watts: float
    ms: float


class Meter:
    """The energy counter of one GPU.

    pci_bus_id: of the GPU, as CUDA names it. Raises BackendUnavailable if NVML or the counter is
    missing, as on GPUs before Volta.
    """

    def __init__(self, pci_bus_id: str, library: Any = None) -> None:
        try:
            self._nvml = library or ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise BackendUnavailable(f"energy is read by NVML, of the driver: {error}") from error
        self._handle = ctypes.c_void_p()
        self._call("nvmlInit_v2")
        self._call(
            "nvmlDeviceGetHandleByPciBusId_v2",
            ctypes.c_char_p(pci_bus_id.encode()),
            ctypes.byref(self._handle),
        )
        self.joules()

    def joules(self) -> float:
        """Return the energy that the GPU has drawn since its driver was loaded."""
        millijoules = ctypes.c_ulonglong()
        self._call("nvmlDeviceGetTotalEnergyConsumption", self._handle, ctypes.byref(millijoules))
        return millijoules.value / 1e3

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._nvml, name)(*arguments)
        if status:
            raise BackendUnavailable(f"NVML's {name} returned {status}: no energy can be read")


def drawn(
    joules: Callable[[], float],
    push: Callable[[], int],
    finished: Callable[[], int],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> Drawn:
    """Measure the energy of runs in about `seconds`, and the time of each.

    joules: the counter. push: queues one batch of runs and returns how many runs are in it.
    finished: how many batches have ended. Two batches are queued at any time, so that the GPU does
    not wait. Raises BackendUnavailable if the counter stands still.
    """
    runs = 0
    ends: list[int] = []
    steps: list[tuple[float, float]] = []
    done: list[tuple[float, int]] = []
    began, last = clock(), joules()
    while True:
        # Short runs end as fast as they are queued; a loop until two are left would not end then.
        for _ in range(2 - (len(ends) - finished())):
            runs += push()
            ends.append(runs)
        now = clock()
        count = finished()
        if count and (not done or ends[count - 1] > done[-1][1]):
            done.append((now, ends[count - 1]))
        value = joules()
        if value != last:
            steps.append((clock(), value))
            last = value
        settled = [step for step in steps if step[0] - began > _SETTLING * seconds]
        if now - began > seconds and len(settled) >= _LEAST_STEPS and len(done) > 2:
            break
        if now - began > _PATIENCE * seconds:
            raise BackendUnavailable(
                f"the energy counter moved {len(steps)} times in {now - began:.1f} s, which is too "
                f"little to measure by"
            )
    (first_time, first), (last_time, final) = settled[0], settled[-1]
    inside = [one for one in done if one[0] - began > _SETTLING * seconds] or done
    (start, before), (stop, after) = inside[0], inside[-1]
    return Drawn(
        (final - first) / (last_time - first_time), 1e3 * (stop - start) / (after - before)
    )
