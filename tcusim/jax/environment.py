"""The arithmetic of the threads in which XLA calls Python: its CPU's take subnormals for zero.

The simulator's bits are those of the processor's usual arithmetic.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from tcusim.errors import Unsupported

# More bytes than any fenv_t has.
_ROOM: Final = 256
_SMALLEST: Final = np.finfo(np.float32).smallest_subnormal


def _library() -> Any:
    """Return C's library of mathematics; None if it is not found."""
    name = "ucrtbase" if sys.platform == "win32" else ctypes.util.find_library("m")
    try:
        library = ctypes.CDLL(name)
        return library if library.fegetenv and library.fesetenv else None
    except (OSError, AttributeError, TypeError):
        return None


def _environment(library: Any) -> Any:
    """Return this thread's floating-point environment."""
    room = ctypes.create_string_buffer(_ROOM)
    library.fegetenv(room)
    return room


def _keeps_subnormals() -> bool:
    return bool(_SMALLEST * np.float32(1))


_LIBRARY: Final = _library()
# Of the thread that imports this module: Python's.
_USUAL: Final = None if _LIBRARY is None else _environment(_LIBRARY)


@contextmanager
def usual_arithmetic() -> Iterator[None]:
    """Compute with subnormals in this context; Unsupported where that cannot be had."""
    if _keeps_subnormals():
        yield
        return
    if _LIBRARY is None:
        raise Unsupported(
            "XLA calls this in a thread without subnormals, and C's fesetenv is not found. Call "
            "tcusim.sum and its kin outside of JAX's functions"
        )
    own = _environment(_LIBRARY)
    _LIBRARY.fesetenv(_USUAL)
    try:
        if not _keeps_subnormals():
            raise Unsupported("XLA calls this in a thread without subnormals, which stay away")
        yield
    finally:
        _LIBRARY.fesetenv(own)
