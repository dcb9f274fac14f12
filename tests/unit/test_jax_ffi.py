"""XLA's FFI: call frames as XLA makes them, each wrong in one place."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tcusim.errors import Unsupported

pytest.importorskip("jax", reason="jax is not installed")

from tcusim.jax import ffi


class Frame:
    """A call of one float32 array, with another for the result, as XLA makes it."""

    def __init__(self, text: bytes = b"{}") -> None:
        self.said: list[tuple[bytes, int]] = []
        self.keep: list[Any] = []
        self.buffer = self.sized(ffi._Buffer, dtype=11, data=4096, rank=2)
        self.buffer.dims = self.pointer((ctypes.c_int64 * 2)(3, 5))
        self.api = self.sized(ffi._Api)
        self.api.version.minor = 3
        self.api.error_create = self.function(self.create)
        self.api.stream_get = self.function(self.stream)
        self.error = 0
        self.frame = self.sized(ffi._Frame, stage=3, api=ctypes.pointer(self.api))
        for name in ("arguments", "results"):
            values = self.sized(ffi._Values, size=1, types=self.pointer((ctypes.c_int * 1)(1)))
            addresses = (ctypes.c_void_p * 1)(ctypes.addressof(self.buffer))
            values.values = self.pointer(addresses)
            setattr(self.frame, name, values)
        self.attributes = self.sized(ffi._Attributes, size=1)
        self.attributes.types = self.pointer((ctypes.c_int * 1)(4))
        names = (ctypes.POINTER(ffi._Span) * 1)(ctypes.pointer(self.span(b"call")))
        self.attributes.names = ctypes.cast(names, type(self.attributes.names))
        texts = (ctypes.c_void_p * 1)(ctypes.addressof(self.span(text)))
        self.attributes.values = self.pointer(texts)
        self.keep += [names]
        self.frame.attributes = self.attributes

    def sized(self, kind: Any, **fields: Any) -> Any:
        made = kind(ffi._size(kind), **fields)
        self.keep.append(made)
        return made

    def pointer(self, values: Any) -> Any:
        self.keep.append(values)
        return ctypes.cast(values, ctypes.POINTER(values._type_))

    def span(self, text: bytes) -> Any:
        room = ctypes.create_string_buffer(text)
        self.keep.append(room)
        made = ffi._Span(ctypes.addressof(room), len(text))
        self.keep.append(made)
        return made

    def function(self, call: Callable[[int], int | None]) -> int | None:
        made = ffi._Handler(call)
        self.keep.append(made)
        return ctypes.cast(made, ctypes.c_void_p).value

    def create(self, address: int) -> int:
        given = ffi._ErrorCreate.from_address(address)
        self.said.append((given.message, given.code))
        return 99

    def stream(self, address: int) -> int:
        ffi._StreamGet.from_address(address).stream = 42
        return self.error

    def call(self, compute: Any, **options: Any) -> int | None:
        handler = ffi.Handler(compute, **options)
        assert handler.address is not None
        found: int | None = ffi._Handler(handler.address)(ctypes.addressof(self.frame))
        return found


def test_a_frame_is_read() -> None:
    calls: list[Any] = []

    def compute(*arguments: Any) -> None:
        calls.append((*arguments, ffi.current_stream()))

    assert Frame(b'{"a": 1}').call(compute) is None
    x = ffi.XlaArray(4096, (3, 5), np.dtype(np.float32), 42)
    assert calls == [('{"a": 1}', [x], [x], 42)]
    assert ffi.current_stream() == 0
    assert x.__cuda_array_interface__["stream"] == 42


@pytest.mark.parametrize(
    ("part", "field", "value", "text"),
    [
        ("frame", "struct_size", 160, b"XLA's FFI has another layout: Frame of 160 bytes, not 168"),
        ("frame", "stage", 1, b"XLA's FFI asks for stage 1, which tcusim has not"),
        ("buffer", "struct_size", 40, b"layout: Buffer of 40 bytes, not 48"),
        ("buffer", "dtype", 15, b"gives a buffer of data type 15"),
        ("frame.arguments", "struct_size", 8, b"layout: Values of 8 bytes, not 40"),
        ("frame.results.types", 0, 2, b"gives an argument of kind 2, which is no buffer"),
        ("frame.attributes", "size", 0, b"gives no attribute of a call"),
        ("frame.attributes.types", 0, 3, b"gives no attribute of a call"),
        ("frame.attributes", "struct_size", 40, b"layout: Attributes of 40 bytes, not 48"),
    ],
)
def test_a_frame_that_is_not_known(part: str, field: Any, value: int, text: bytes) -> None:
    frame = Frame()
    where: Any = frame
    for name in part.split("."):
        where = getattr(where, name)
    if isinstance(field, int):
        where[field] = value
    else:
        setattr(where, field, value)
    assert frame.call(lambda *arguments: None) == 99
    ((said, code),) = frame.said
    assert said.startswith(b"tcusim.jax: ")
    assert text in said
    assert code == 12


def test_xla_has_no_stream() -> None:
    frame = Frame()
    frame.error = 77
    assert frame.call(lambda *arguments: None) == 77
    assert frame.call(lambda *arguments: None, on_stream=False) is None
    assert frame.said == []


def test_an_empty_result_needs_nothing() -> None:
    frame = Frame()
    frame.buffer.dims[1] = 0
    assert frame.call(None) is None


@pytest.mark.parametrize(("kind", "code"), [(KeyboardInterrupt, 13), (Unsupported, 12)])
def test_whatever_is_raised_is_an_error(kind: type[BaseException], code: int) -> None:
    def fail(*arguments: Any) -> None:
        raise kind("no")

    frame = Frame()
    assert frame.call(fail) == 99
    assert [number for _, number in frame.said] == [code]


@pytest.mark.parametrize(
    ("part", "field", "value", "expected"),
    [
        ("api.version", "minor", 4, (0, 4)),
        ("api.version", "major", 1, (0, 0)),
        ("api", "struct_size", 80, (0, 0)),
        ("frame", "struct_size", 160, (0, 0)),
        ("frame", "api", None, (0, 1)),
    ],
)
def test_the_version(part: str, field: str, value: Any, expected: tuple[int, int]) -> None:
    frame = Frame()
    where: Any = frame
    for name in part.split("."):
        where = getattr(where, name)
    setattr(where, field, value)
    metadata = ffi._Metadata(36, traits=123)
    question = ffi._Extension(32, 1, None, ctypes.pointer(metadata))
    other = ffi._Extension(24, 5, ctypes.addressof(question))
    frame.frame.extension = ctypes.addressof(other)
    assert frame.call(None) is None
    assert (metadata.version.major, metadata.version.minor) == expected
    assert metadata.traits == 0


def test_views() -> None:
    x = ffi.XlaArray(64, (7, 2), np.dtype(np.uint32))
    assert x.view("int64").reshape(-1) == ffi.XlaArray(64, (7,), np.dtype(np.int64))
    assert x.reshape(2, 7).shape == (2, 7)
