"""Where the tests on a GPU have their arrays: `--gpu 1` for GPU 1, while another one is current."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import on_gpu
from tcusim_cuda.driver import Driver
from tcusim_cuda.launch import Launcher
from tcusim_cuda.session import DeviceSession

# By the engine's entry points.
ENTRIES = {
    DeviceSession: ("run", "compute"),
    Launcher: (
        "native_arch", "describe", "arranged", "restored", "zeros", "to_host", "to_device",
        "facts_of_integers", "offsets_of_ids", "offsets_of_rows", "settled",
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def placed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the libraries make arrays on the GPU of `--gpu`, and another current in the engine."""
    number = request.config.getoption("--gpu")
    if number is None:
        yield
        return
    driver, other = Driver.open(), 0 if number else 1
    monkeypatch.setattr(on_gpu, "GPU", number)
    monkeypatch.setenv("CUDA_DEVICE", str(number))  # PyCUDA's

    def elsewhere(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def called(*given: Any, **named: Any) -> Any:
            with driver.in_primary_context(other):
                return method(*given, **named)

        return called

    for kind, names in ENTRIES.items():
        for name in names:
            monkeypatch.setattr(kind, name, elsewhere(getattr(kind, name)))
    prepare = DeviceSession.prepared_launch

    def prepared_launch(*given: Any) -> Any:
        made = prepare(*given)
        return None if made is None else elsewhere(made)

    monkeypatch.setattr(DeviceSession, "prepared_launch", prepared_launch)
    with driver.in_primary_context(number):
        use(number)
        yield
        use(0)


def use(number: int) -> None:
    """Have the libraries that are here make new arrays on a GPU."""
    if importlib.util.find_spec("torch"):
        torch: Any = importlib.import_module("torch")
        if torch.cuda.is_available():
            torch.cuda.set_device(number)
    if importlib.util.find_spec("cupy"):
        importlib.import_module("cupy").cuda.Device(number).use()
