"""NVRTC 12 beside a newer one that cuda.bindings chose: it still compiles for the V100."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class Nvrtc12:
    """The calls of `cuda.bindings.nvrtc` that the compiler uses, on a library of one's choice.

    Each returns a status first, 0 if all is well, and then its values.
    """

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))

    def _numbers(
        self, function: str, *arguments: Any, count: int = 1, kind: Any = ctypes.c_int
    ) -> tuple[int, ...]:
        """Call a function that writes integers to addresses behind its other arguments."""
        found = [kind() for _ in range(count)]
        status = getattr(self._library, function)(*arguments, *map(ctypes.byref, found))
        return (int(status), *(number.value for number in found))

    def nvrtcVersion(self) -> tuple[int, ...]:  # noqa: D102, N802
        return self._numbers("nvrtcVersion", count=2)

    def nvrtcGetSupportedArchs(self) -> tuple[int, list[int]]:  # noqa: D102, N802
        status, count = self._numbers("nvrtcGetNumSupportedArchs")
        found = (ctypes.c_int * count)()
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

    def nvrtcGetProgramLogSize(self, program: Any) -> tuple[int, ...]:  # noqa: D102, N802
        return self._numbers("nvrtcGetProgramLogSize", program, kind=ctypes.c_size_t)

    def nvrtcGetProgramLog(self, program: Any, log: bytes) -> tuple[int]:  # noqa: D102, N802
        return (int(self._library.nvrtcGetProgramLog(program, log)),)

    def nvrtcGetCUBINSize(self, program: Any) -> tuple[int, ...]:  # noqa: D102, N802
        return self._numbers("nvrtcGetCUBINSize", program, kind=ctypes.c_size_t)

    def nvrtcGetCUBIN(self, program: Any, code: bytes) -> tuple[int]:  # noqa: D102, N802
        return (int(self._library.nvrtcGetCUBIN(program, code)),)
