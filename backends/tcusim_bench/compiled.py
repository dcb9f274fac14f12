"""Peers in C++: sources compiled by nvcc into shared libraries, and called through ctypes."""

from __future__ import annotations

import ctypes
import functools
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tcusim.errors import BackendUnavailable

_SECONDS: Final = 300


class Compiled:
    """A shared library that nvcc compiles while other things are measured.

    Raises BackendUnavailable if there is no nvcc.
    """

    def __init__(self, source: Path, sm: int, *options: str) -> None:
        nvcc = nvcc_path()
        self.nvcc = _version(nvcc)
        self._folder = tempfile.TemporaryDirectory(prefix="tcusim-bench-")
        self._path = Path(self._folder.name) / f"{source.stem}.so"
        self._log = self._path.with_name("log")
        line = command(nvcc, sm, source, self._path, *options)
        with self._log.open("w") as log:
            self._compiler = subprocess.Popen(line, stdout=log, stderr=subprocess.STDOUT)

    def close(self) -> None:
        """Stop the compiler, if it still runs, and remove its output."""
        if self._compiler.poll() is None:
            self._compiler.terminate()
            self._compiler.wait()
        self._folder.cleanup()

    @functools.cached_property
    def library(self) -> ctypes.CDLL:
        """The compiled library, once the compiler is done."""
        status = self._compiler.wait(_SECONDS)
        if status:
            said = self._log.read_text(errors="replace").strip()
            raise RuntimeError(f"nvcc failed with {status}: {said[-300:]}")
        return ctypes.CDLL(str(self._path))


def nvcc_path() -> str:
    """Return the path of nvcc; BackendUnavailable if it is not on the PATH."""
    found = shutil.which("nvcc")
    if found is None:
        raise BackendUnavailable("nvcc, which compiles CUB and CUTLASS, is not on the PATH")
    return found


def command(nvcc: str, sm: int, source: Path, made: Path, *options: str) -> list[str]:
    """Return the command that compiles a source; at 9.0, with what only that capability has."""
    arch = f"sm_{sm}a" if sm == 90 else f"sm_{sm}"
    return [
        *(nvcc, "-std=c++17", "-O3", f"-arch={arch}", "-shared", "-Xcompiler", "-fPIC"),
        *(*options, "-o", str(made), str(source)),
    ]


def _version(nvcc: str) -> str:
    done = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False)
    match = re.search(r"release [\d.]+, V([\d.]+)", done.stdout)
    return match[1] if match else "unknown"
