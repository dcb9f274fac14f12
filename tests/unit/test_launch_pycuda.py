"""The backend "pycuda": its active context, its streams, and the call of a kernel."""

from __future__ import annotations

import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gpu_standin import StandInDriver
from tcusim.errors import InputError
from tcusim_cuda.driver import Driver
from tcusim_cuda.launch_pycuda import PycudaLauncher
from tcusim_cuda.runtime import Place


class Context:
    """A context of PyCUDA's; those that were pushed are a stack."""

    stack: list[Context] = []  # noqa: RUF012

    def __init__(self, handle: int) -> None:
        self.handle = handle

    @staticmethod
    def get_current() -> Context | None:
        return Context.stack[-1] if Context.stack else None

    @staticmethod
    def pop() -> None:
        Context.stack.pop()

    def push(self) -> None:
        Context.stack.append(self)


PRIMARY = Context(7)


class Pycuda(ModuleType):
    """As much of pycuda.driver as contexts, streams and launches take."""

    Context = Context
    Error = ZeroDivisionError

    def init(self) -> None:
        pass

    def Device(self, number: int) -> Any:  # noqa: N802
        return SimpleNamespace(retain_primary_context=lambda: PRIMARY)


class Contexts(StandInDriver):
    """A driver that notes the context that was made current."""

    def set_context(self, context: int) -> None:
        self.notes.append(f"context {context}")


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> list[Context]:
    """Return the stack of contexts, of a stand-in for PyCUDA."""
    driver = Contexts()
    monkeypatch.setattr(Driver, "open", lambda: driver)
    monkeypatch.setitem(sys.modules, "pycuda.driver", Pycuda("pycuda.driver"))
    # A launcher that lives on would let go of its contexts when the tests end.
    monkeypatch.setattr("atexit.register", lambda function: None)
    monkeypatch.setattr(Context, "stack", [])
    return Context.stack


def test_without_a_context_the_primary_one_is_pushed_for_a_call(stack: list[Context]) -> None:
    launcher = PycudaLauncher()
    for place in (Place(0), Place(0, PRIMARY.handle)):
        with launcher.active(place):
            assert stack == [PRIMARY]
        assert stack == []
    with pytest.raises(InputError, match="a CUDA context that is not this thread's current one"):
        launcher.active(Place(0, 99)).__enter__()


@pytest.mark.parametrize("of_arrays", [0, 8])
def test_the_current_context_is_used_if_the_arrays_can_be_of_it(
    stack: list[Context], of_arrays: int
) -> None:
    own = Context(8)
    own.push()
    with PycudaLauncher().active(Place(0, of_arrays)):
        assert stack == [own]
    assert stack == [own]
    with PycudaLauncher().active(Place(0, PRIMARY.handle)):
        assert stack == [own, PRIMARY]
    assert stack == [own]


@pytest.mark.usefixtures("stack")
def test_contexts_are_let_go_before_pycuda_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: list[Any] = []
    monkeypatch.setattr("atexit.register", handlers.append)
    launcher = PycudaLauncher()

    def call() -> None:
        with launcher.active(Place(0)):
            pass

    # PyCUDA frees no object of another thread: those go with that thread.
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert not handlers
    for _ in range(2):
        call()
    (handler,) = handlers
    assert vars(launcher._retained) == {"0": PRIMARY}
    handler()
    assert not vars(launcher._retained)
    assert launcher.errors() == (ZeroDivisionError,)
