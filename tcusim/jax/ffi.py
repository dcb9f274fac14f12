"""XLA's FFI without a compiler: a handler in Python, which parses the call frame of the C API.

XLA calls the handler, in a thread of its own, when the stream has come to the operation; its
launches are queued on the stream. The structures are the beginnings of those that
``xla/ffi/api/c_api.h`` declares, of version 0.1 to 0.4: later versions append to them. Each has its
size, which is checked; an XLA of another kind is told version 0.0, and refuses the handler.

`jax.experimental.buffer_callback` passes such buffers to Python, too. But its callbacks belong to
one process: JAX neither stores their programs in its compilation cache nor exports them, and lowers
them for one platform at a time. Its errors are tracebacks.
"""

from __future__ import annotations

import ctypes
import importlib
import math
import threading
from collections.abc import Callable, Sequence
from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_void_p,
)
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.arrays.dtypes import numpy_type
from tcusim.errors import BackendUnavailable, InputError, TcusimError, Unsupported
from tcusim.jax.environment import usual_arithmetic


@dataclass(frozen=True, slots=True)
class XlaArray:
    """An array in XLA's memory, without gaps, for as long as its handler runs.

    ptr: the address of its first element. stream: on which XLA works on it.
    """

    ptr: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    stream: int = 0

    strides: ClassVar[None] = None

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Return the CUDA array interface, version 3."""
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.ptr, False),
            "strides": None,
            # The interface has no 0: 1 is the default stream.
            "stream": self.stream or 1,
            "version": 3,
        }

    def view(self, dtype: Any) -> XlaArray:
        """Return the same bytes as elements of another type, as NumPy does."""
        wanted = numpy_type(dtype)
        last = self.shape[-1] * self.dtype.itemsize // wanted.itemsize
        return replace(self, shape=(*self.shape[:-1], last), dtype=wanted)

    def reshape(self, *shape: int) -> XlaArray:
        """Return the same elements in another shape."""
        known = -math.prod(shape)
        whole = tuple(math.prod(self.shape) // known if one == -1 else one for one in shape)
        return replace(self, shape=whole)

    def on_host(self) -> NDArray[Any]:
        """Return NumPy's view of an array in the computer's memory."""
        nbytes = math.prod(self.shape) * self.dtype.itemsize
        memory: Any = (ctypes.c_char * nbytes).from_address(self.ptr)
        return np.frombuffer(memory, self.dtype).reshape(self.shape)


# Queues the operation that a text describes, from arrays into arrays for the results.
Compute: TypeAlias = Callable[[str, Sequence[XlaArray], Sequence[XlaArray]], None]

_NOW: Final = threading.local()


def current_stream() -> int:
    """Return the stream of the handler that this thread runs; 0, the default one, outside."""
    return getattr(_NOW, "stream", 0)


# --- The C API ------------------------------------------------------------------------------------

_METADATA: Final = 1  # XLA_FFI_Extension_Metadata
_EXECUTE: Final = 3  # XLA_FFI_ExecutionStage_EXECUTE
_BUFFER: Final = 1  # XLA_FFI_ArgType_BUFFER, XLA_FFI_RetType_BUFFER
_STRING: Final = 4  # XLA_FFI_AttrType_STRING
# XLA_FFI_DataType, of the types that are computed.
_DTYPES: Final = {
    1: "bool", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "uint8", 7: "uint16", 8: "uint32",
    9: "uint64", 10: "float16", 11: "float32", 12: "float64", 16: "bfloat16",
}  # fmt: skip
# XLA_FFI_Error_Code, of the first of these classes.
_CODES: Final = ((Unsupported, 12), (BackendUnavailable, 14), (InputError, 3))
_INTERNAL: Final = 13
# The attribute with the text of the call.
_CALL: Final = b"call"


def _structure(name: str, *, head: bool = True, **fields: Any) -> Any:
    """Return the class of a structure, which begins with its size and its extension."""
    first = {"struct_size": c_size_t, "extension": c_void_p} if head else {}
    members = {"_fields_": tuple({**first, **fields}.items()), "title": name}
    return type(f"_{name}", (Structure,), members)


_Version = _structure("Version", major=c_int, minor=c_int)
_Metadata = _structure(
    "Metadata", head=False, struct_size=c_size_t, version=_Version, traits=c_uint32
)
# The last field is that of a question for metadata.
_Extension = _structure(
    "Extension", head=False,
    struct_size=c_size_t, type=c_int, next=c_void_p, metadata=POINTER(_Metadata),
)  # fmt: skip
_Api = _structure(
    "Api", version=_Version, internal=c_void_p, error_create=c_void_p, error_message=c_void_p,
    error_destroy=c_void_p, handler_register=c_void_p, stream_get=c_void_p,
)  # fmt: skip
_Buffer = _structure("Buffer", dtype=c_int, data=c_void_p, rank=c_int64, dims=POINTER(c_int64))
_Span = _structure("Span", head=False, ptr=c_void_p, length=c_size_t)
_Values = _structure("Values", size=c_int64, types=POINTER(c_int), values=POINTER(c_void_p))
_Attributes = _structure(
    "Attributes", size=c_int64, types=POINTER(c_int), names=POINTER(POINTER(_Span)),
    values=POINTER(c_void_p),
)  # fmt: skip
_Frame = _structure(
    "Frame", api=POINTER(_Api), context=c_void_p, stage=c_int, arguments=_Values, results=_Values,
    attributes=_Attributes,
)  # fmt: skip
_ErrorCreate = _structure("ErrorCreate", message=c_char_p, code=c_int32)
_StreamGet = _structure("StreamGet", context=c_void_p, stream=c_void_p)

_Handler: Final = ctypes.CFUNCTYPE(c_void_p, c_void_p)


def _size(kind: Any) -> int:
    """Return a structure's size as the C API counts it: up to the end of its last field."""
    last = getattr(kind, kind._fields_[-1][0])
    return int(last.offset + last.size)


def _known(value: Any) -> Any:
    """Return a structure from XLA; refuse one that is shorter than it is known here."""
    given, least = value.struct_size, _size(type(value))
    if given < least:
        raise Unsupported(
            f"XLA's FFI has another layout: {value.title} of {given} bytes, not {least}"
        )
    return value


class _XlaError(Exception):
    """An error that XLA made; `args` has its address."""


# --- Handlers -------------------------------------------------------------------------------------


class Handler:
    """The function for XLA: an ``XLA_FFI_Handler``.

    on_stream: whether XLA has a stream; on the CPU it has none. The handler is not said to be fit
    for command buffers: a plan has memory of its own between its launches, and the first call makes
    it ready, which no capture may see.
    """

    def __init__(self, compute: Compute, *, on_stream: bool = True) -> None:
        self._compute = compute
        self._on_stream = on_stream
        self._function = _Handler(self._called)
        self.address = ctypes.cast(self._function, c_void_p).value

    def _called(self, address: int) -> int | None:
        frame = _Frame.from_address(address)
        extension = frame.extension
        while extension:
            found = _Extension.from_address(extension)
            if found.type == _METADATA:
                _tell_version(frame, found)
                return None
            extension = found.next
        try:
            with usual_arithmetic():
                self._run(_known(frame))
        # An exception of Python would leave XLA an uncomputed result.
        except BaseException as error:
            return _error(frame.api.contents, error)
        return None

    def _run(self, frame: Any) -> None:
        if frame.stage != _EXECUTE:
            raise Unsupported(f"XLA's FFI asks for stage {frame.stage}, which tcusim has not")
        stream = _stream(frame) if self._on_stream else 0
        arguments, results = (
            _arrays(values, stream) for values in (frame.arguments, frame.results)
        )
        if not any(math.prod(array.shape) for array in results):
            return
        before = current_stream()
        _NOW.stream = stream
        try:
            self._compute(_text(frame.attributes), arguments, results)
        finally:
            _NOW.stream = before


# XLA calls them as long as the process lives.
_REGISTERED: Final[list[Handler]] = []


def register(name: str, handler: Handler, platform: str) -> str | None:
    """Let XLA call a handler by a name on a platform; return why it does not, None if it does.

    The platform's backend must be there already: it would not start with a handler that it refuses.
    """
    try:
        ffi = importlib.import_module("jax.ffi")
        # Asks the handler for its version.
        ffi.register_ffi_target(name, ffi.pycapsule(handler.address), platform=platform)
    # jaxlib raises errors of several kinds, its own among them.
    except Exception as error:
        return f"XLA takes no handler from Python: {type(error).__name__}: {error}"
    _REGISTERED.append(handler)
    return None


def _tell_version(frame: Any, extension: Any) -> None:
    """Answer which version a handler has: that of XLA, if all that is used is as it is here."""
    metadata = extension.metadata.contents
    metadata.traits = 0
    version = metadata.version
    version.major = version.minor = 0
    try:
        # jaxlib 0.6 and older ask without the API, which is of version 0.1 there.
        own = _known(frame.api.contents).version if _known(frame).api else _Version(minor=1)
    except Unsupported:
        return
    if own.major == 0:
        version.minor = own.minor


def _error(api: Any, error: BaseException) -> int:
    """Return an error of XLA's with the message."""
    if isinstance(error, _XlaError):
        own: int = error.args[0]
        return own
    code = next((code for kind, code in _CODES if isinstance(error, kind)), _INTERNAL)
    said = str(error) if isinstance(error, TcusimError) else f"{type(error).__name__}: {error}"
    text = f"tcusim.jax: {said}".replace("\0", " ").encode()
    given = _ErrorCreate(_size(_ErrorCreate), None, text, code)
    made: int = _Handler(api.error_create)(ctypes.addressof(given))
    return made


def _stream(frame: Any) -> int:
    """Return the stream on which XLA executes."""
    api, given = frame.api.contents, _StreamGet(_size(_StreamGet), None, frame.context, None)
    error = _Handler(api.stream_get)(ctypes.addressof(given))
    if error:
        raise _XlaError(error)
    return given.stream or 0


def _arrays(values: Any, stream: int) -> list[XlaArray]:
    """Return the arrays of a call's arguments, or of its results."""
    _known(values)
    return [
        _array(values.types[place], values.values[place], stream) for place in range(values.size)
    ]


def _array(kind: int, address: int, stream: int) -> XlaArray:
    if kind != _BUFFER:
        raise Unsupported(f"XLA's FFI gives an argument of kind {kind}, which is no buffer")
    buffer = _known(_Buffer.from_address(address))
    if buffer.dtype not in _DTYPES:
        raise Unsupported(f"XLA's FFI gives a buffer of data type {buffer.dtype}")
    shape = tuple(buffer.dims[: buffer.rank])
    return XlaArray(buffer.data or 0, shape, numpy_type(_DTYPES[buffer.dtype]), stream)


def _bytes(span: Any) -> bytes:
    return ctypes.string_at(span.ptr, span.length) if span.length else b""


def _text(attributes: Any) -> str:
    """Return the text of a call."""
    _known(attributes)
    for place in range(attributes.size):
        is_call = _bytes(attributes.names[place].contents) == _CALL
        if is_call and attributes.types[place] == _STRING:
            return _bytes(_Span.from_address(attributes.values[place])).decode()
    raise Unsupported("XLA's FFI gives no attribute of a call")
