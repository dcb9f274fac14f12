"""The CUDA driver: its features, and the messages without it."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from bindings_standin import Bindings
from tcusim import backends
from tcusim.algorithms import build
from tcusim.errors import BackendUnavailable
from tcusim.machine import format_of
from tcusim.machine.formats import to_memory, unwritten_values
from tcusim_cuda import CUDA, CUPY, PYCUDA, driver
from tcusim_cuda.driver import Driver, DriverError, arch_name, device_sm

PROGRAM = build("reduction_k")


X = np.arange(512).astype(np.float16)


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("most", [2**31 - 1, 10])
def test_the_driver_copies_and_clears_rows(
    monkeypatch: pytest.MonkeyPatch, rows: int, most: int
) -> None:
    monkeypatch.setattr(driver, "_MOST_PITCH", most)
    library = Bindings()
    source = np.arange(1, 1 + 11 * rows, dtype=np.uint8).reshape(rows, 11)
    target = np.full((rows, 13), 255, np.uint8)
    start = target.ctypes.data
    Driver(library).copy_rows(source.ctypes.data, start + 1, rows, 11, 13, 0)
    Driver(library).clear_rows(start, rows, 1, 13, 0)
    expected = np.pad(source, ((0, 0), (1, 1)), constant_values=((0, 0), (0, 255)))
    np.testing.assert_array_equal(target, expected)
    one_by_one = rows == 1 or most == 10
    names = ("cuMemcpyDtoDAsync", "cuMemsetD8Async") if one_by_one else (
        "cuMemcpy2DAsync", "cuMemsetD2D8Async",
    )  # fmt: skip
    assert library.calls == [name for name in names for _ in range(rows if one_by_one else 1)]


@pytest.mark.parametrize(
    ("status", "how", "found"), [(0, 0, False), (0, 1, True), (906, None, True)]
)
def test_whether_a_stream_is_captured(status: int, how: int | None, found: bool) -> None:
    class Capturing(Bindings):
        def cuStreamIsCapturing(self, stream: int) -> tuple[int, int | None]:  # noqa: N802
            return status, how

    assert Driver(Capturing()).is_capturing(4) is found


def test_an_earlier_failure_is_no_capture() -> None:
    class Failed(Bindings):
        def cuStreamIsCapturing(self, stream: int) -> tuple[int, None]:  # noqa: N802
            return 700, None

    with pytest.raises(DriverError, match=r"cuStreamIsCapturing: unknown error \(CUDA error 700\)"):
        Driver(Failed()).is_capturing(4)


class NoDriver:
    """The bindings where there is no driver, for any call."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("libcuda.so.1 was not found")


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib, "import_module", lambda name: NoDriver())
    Driver.open.cache_clear()


@pytest.mark.usefixtures("no_driver")
def test_no_driver() -> None:
    said = (
        "there is no NVIDIA driver here (libcuda.so.1). The simulator needs none: backend 'numpy'"
    )
    for launcher in (CUDA, CUPY, PYCUDA):
        assert launcher.available() == said
    with pytest.raises(BackendUnavailable) as caught:
        backends.run(PROGRAM, {"in": X}, backend=CUPY)
    assert str(caught.value) == f"cupy: {said}"
    with pytest.raises(BackendUnavailable, match="there is no NVIDIA driver here"):
        device_sm()


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (100, "no NVIDIA GPU here, or CUDA_VISIBLE_DEVICES hid"),
        (803, r"does not start: unknown error \(CUDA error 803"),
    ],
)
def test_a_driver_that_does_not_start(status: int, text: str) -> None:
    with pytest.raises(BackendUnavailable, match=text):
        Driver(Bindings(status))


def test_units_of_gpus() -> None:
    assert [arch_name(sm) for sm in (70, 75, 80, 86, 89, 90, 100, 103, 120)] == [
        "volta", "turing", "ampere", "ampere", "ada", "hopper", "blackwell", "blackwell",
        "blackwell_rtx",
    ]  # fmt: skip
    assert arch_name(999) is None


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64", "s8", "s32", "s64"])
@pytest.mark.parametrize("size", [1, 7])
def test_poison_is_what_the_simulator_has(dtype: str, size: int) -> None:
    form = format_of(dtype)
    target = np.ones(size + 1, form.memory_dtype)
    Driver(Bindings()).poison(target.ctypes.data, size, form, 0)
    expected = to_memory(unwritten_values(size + 1, form), form)
    expected[-1] = 1
    assert target.tobytes() == expected.tobytes()


def test_no_bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", absent)
    Driver.open.cache_clear()
    with pytest.raises(BackendUnavailable) as caught:
        Driver.open()
    assert str(caught.value) == (
        "GPUs are used through NVIDIA's package cuda-bindings, which cannot be imported (No module "
        "named 'cuda.bindings.driver'). Install it with: pip install 'tcusim[cuda]'"
    )
