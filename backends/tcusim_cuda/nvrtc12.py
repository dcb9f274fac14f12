"""NVRTC 12 beside a newer one that cuda.bindings chose: it still compiles for the V100."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

# Numbers that a call writes, to addresses behind its other arguments.
_WRITTEN: Final[dict[str, tuple[Any, ...]]] = {
    "nvrtcVersion": (ctypes.c_int, ctypes.c_int),
    "nvrtcGetProgramLogSize": (ctypes.c_size_t,),
    "nvrtcGetCUBINSize": (ctypes.c_size_t,),
}


class Nvrtc12:
    """The calls of `cuda.bindings.nvrtc` that the compiler uses, on a library of one's choice.

    Each returns a status first, 0 if all is well, and then its values.
    """

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))

    def __getattr__(self, name: str) -> Callable[..., tuple[int, ...]]:
        function = getattr(self._library, name)

        def call(*given: Any) -> tuple[int, ...]:
            written = [kind() for kind in _WRITTEN.get(name, ())]
            status = function(*given, *map(ctypes.byref, written))
            return (int(status), *(number.value for number in written))

        return call

    def nvrtcGetSupportedArchs(self) -> tuple[int, list[int]]:  # noqa: D102, N802
        count = ctypes.c_int()
        status = int(self._library.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
        found = (ctypes.c_int * count.value)()
        return status or int(self._library.nvrtcGetSupportedArchs(found)), list(found)

    def nvrtcCreateProgram(  # noqa: D102, N802
        self, text: bytes, name: bytes, count: int, headers: Sequence[bytes], names: Sequence[bytes]
    ) -> tuple[int, Any]:
        program = ctypes.c_void_p()
        create = self._library.nvrtcCreateProgram
        return int(create(ctypes.byref(program), text, name, count, None, None)), program

    def nvrtcCompileProgram(  # noqa: D102, N802
        self, program: Any, count: int, options: Sequence[bytes]
    ) -> tuple[int]:
        given = (ctypes.c_char_p * count)(*options)
        return (int(self._library.nvrtcCompileProgram(program, count, given)),)

    def nvrtcDestroyProgram(self, program: Any) -> tuple[int]:  # noqa: D102, N802
        return (int(self._library.nvrtcDestroyProgram(ctypes.byref(program))),)
