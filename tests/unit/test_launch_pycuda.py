"""The backend "pycuda": whose context is active, on which streams, and how a kernel is called."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gpu_standin import PROGRAM, StandInDriver
from tcusim.errors import InputError
from tcusim_cuda.driver import Driver
from tcusim_cuda.emit import emit
from tcusim_cuda.launch_pycuda import PycudaLauncher
from tcusim_cuda.runtime import Place, Stream


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
    function_attribute = SimpleNamespace(MAX_DYNAMIC_SHARED_SIZE_BYTES="most")
    made = 0

    class Stream:
        def __init__(self) -> None:
            Pycuda.made += 1
            self.handle = 100 + Pycuda.made

    def init(self) -> None:
        pass

    def Device(self, number: int) -> Any:  # noqa: N802
        return SimpleNamespace(retain_primary_context=lambda: PRIMARY)


class Contexts(StandInDriver):
    """A driver that notes which context was made current."""

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


def test_one_stream_stands_in_for_those_of_other_libraries(stack: list[Context]) -> None:
    PRIMARY.push()
    launcher = PycudaLauncher()
    assert launcher.open_stream(0, None, Place(0)) == Stream(0)
    given = Pycuda.Stream()
    assert launcher.open_stream(given.handle, given, Place(0)).owner is given
    first = launcher.open_stream(5, None, Place(0))
    assert first.handle not in (5, given.handle)
    assert launcher.open_stream(6, SimpleNamespace(), Place(0)) == first
    assert stack == [PRIMARY]


def test_every_argument_is_a_word(stack: list[Context], monkeypatch: pytest.MonkeyPatch) -> None:
    PRIMARY.push()
    notes: list[Any] = []

    class Function:
        def set_attribute(self, name: str, value: int) -> None:
            notes.append((name, value))

        def prepare(self, words: str) -> Function:
            notes.append(words)
            return self

        def prepared_async_call(self, *given: Any, shared_size: int) -> None:
            notes.append((*given, shared_size))

    module = SimpleNamespace(get_function=lambda name: Function())
    monkeypatch.setattr(
        sys.modules["pycuda.driver"], "module_from_buffer", lambda cubin: module, raising=False
    )
    launcher, kernel = PycudaLauncher(), emit(PROGRAM)
    function = launcher.load(b"cubin", kernel)
    assert notes == ["qqq"]
    call: Any = SimpleNamespace(
        function=function, sizes=(2, 32, 64), words=[10, 11, 12, 13], places=(3, 0, 1)
    )
    launcher.launch(call, Stream(9, "stream"))
    assert notes[-1] == ((2, 1), (32, 1, 1), "stream", 13, 10, 11, 64)
    assert launcher.errors() == (ZeroDivisionError,)
