"""Compile emitted kernels for the CPU: one shared library each, kept on disk.

A library is named for everything that went into it: the text, our headers, the compiler and its
flags. So it is never stale, and several processes may build the same one at the same time.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tcusim.errors import BackendUnavailable, TcusimError
from tcusim_cuda import kernel as cuda_kernel
from tcusim_cuda.kernel import Kernel

__all__ = ["BuildError", "Library", "build", "build_many", "source_folder", "why_no_compiler"]

_HERE: Final = Path(__file__).parent
# The folder of tcusim.cuh, which the kernels include.
_INCLUDES: Final = (_HERE / "include", Path(cuda_kernel.__file__).parent / "include")
_RUNTIME: Final = ("runtime.cpp", "numerics.cpp")

# No contraction: a*b + c must round twice unless the text says otherwise. No unique symbols, and
# hidden ones: libraries of several kernels must not share variables.
_FLAGS: Final = (
    "-std=c++20",
    "-fPIC",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-fvisibility=hidden",
    "-DTCUSIM_HOST",
)
_KERNEL_FLAGS: Final = ("-O1",)
_RUNTIME_FLAGS: Final = ("-O3",)
_DEBUG_FLAGS: Final = ("-O0", "-g")

_SHOWN_ERRORS: Final = 5
_POOL: Final = re.compile(r"\bextern\s+__shared__\s+([^;]*?)(\w+)\s*\[\s*\]\s*;")


class BuildError(TcusimError, RuntimeError):
    """A kernel's text does not compile on the host."""


@dataclass(frozen=True, slots=True)
class Library:
    """A compiled kernel, loaded into this process.

    path: the shared library. lock: held while the kernel runs, since its memory is static.
    """

    path: Path
    functions: ctypes.CDLL
    lock: threading.Lock


def build(kernel: Kernel, *, debug: bool = False) -> Library:
    """Compile a kernel, unless that was done before, and load it.

    Parameters
    ----------
    kernel : Kernel
        From `tcusim_cuda.emit.emit`.
    debug : bool
        Compile without optimisation and with debug information; see `source_folder`.

    Raises
    ------
    BackendUnavailable
        If there is no C++ compiler.
    BuildError
        If the text does not compile.
    """
    _require_compiler()
    path = _library_path(kernel, debug)
    if not path.exists():
        _compile(kernel, path, debug)
    return _load(path)


def build_many(kernels: Iterable[Kernel]) -> tuple[Library, ...]:
    """Compile several kernels, as many at a time as there are processors, and load them."""
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        return tuple(pool.map(build, kernels))


def source_folder(kernel: Kernel) -> Path:
    """Return the folder that holds the sources of a kernel that was built with `debug=True`.

    There, `kernel.cu` is the emitted text. In gdb, `break kernel.cu:12` stops each lane there.
    """
    return _library_path(kernel, debug=True).parent


def why_no_compiler() -> str | None:
    """Return None if kernels can be compiled here, else the reason and what to do about it."""
    if sys.platform != "linux":
        return f"it needs Linux, this is {sys.platform}; use backend='numpy'"
    command = _command()
    if shutil.which(command[0]) is None:
        return (
            f"no C++ compiler: {command[0]!r} is not on the PATH. Install one, such as with "
            f"`apt-get install g++`, or name it: CXX=/path/to/g++"
        )
    return None


# --- The compiler -----------------------------------------------------------------------------


def _command() -> tuple[str, ...]:
    """Return the compiler and its arguments, from the environment variable CXX."""
    return tuple(shlex.split(os.environ.get("CXX", ""))) or ("g++",)


@functools.cache
def _version(command: tuple[str, ...]) -> str:
    """Return what the compiler says about itself."""
    told = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    return told.stdout + told.stderr


def _require_compiler() -> None:
    reason = why_no_compiler()
    if reason is not None:
        raise BackendUnavailable(f"host: {reason}")


def _run_compiler(arguments: list[str], folder: Path) -> str | None:
    """Run the compiler in a folder; return None, or what it said when it failed."""
    includes = [f"-I{path}" for path in _INCLUDES]
    done = subprocess.run(
        [*_command(), *includes, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    return None if done.returncode == 0 else done.stderr


# --- The cache --------------------------------------------------------------------------------


def _cache() -> Path:
    """Return the folder of compiled kernels."""
    chosen = os.environ.get("TCUSIM_CACHE_DIR")
    if chosen:
        return Path(chosen) / "host"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tcusim" / "host"


def _library_path(kernel: Kernel, debug: bool) -> Path:
    """Return where a kernel's library is, or will be."""
    flags = _DEBUG_FLAGS if debug else _KERNEL_FLAGS
    key = _key(kernel.text, _entry_text(kernel), *flags)
    if debug:
        return _cache() / f"debug-{key}" / f"{kernel.name}.so"
    return _cache() / f"{kernel.name[:80]}-{key}.so"


def _key(*parts: str) -> str:
    """Return a name for these parts, compiled with these headers by this compiler."""
    command = _command()
    common = (_sources_digest(), *command, _version(command), platform.machine(), *_FLAGS)
    text = "\0".join((*common, *_RUNTIME_FLAGS, *parts))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


@functools.cache
def _sources_digest() -> str:
    """Return a digest of our headers and of the runtime."""
    digest = hashlib.sha256()
    files = [_HERE / name for name in _RUNTIME]
    for folder in _INCLUDES:
        files += sorted(path for path in folder.iterdir() if path.is_file())
    for path in files:
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _put(path: Path, made: Path) -> None:
    """Move a finished file to its place at once, so that nobody sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.replace(made, path)


_loaded: dict[Path, Library] = {}
_loading: Final = threading.Lock()


def _load(path: Path) -> Library:
    with _loading:
        if path not in _loaded:
            _loaded[path] = Library(path, ctypes.CDLL(str(path)), threading.Lock())
        return _loaded[path]


# --- Compiling --------------------------------------------------------------------------------


def _entry_text(kernel: Kernel) -> str:
    """Return the C++ that includes the kernel's text and calls it."""
    pool = _POOL.search(kernel.text)
    lines = ['#include "host_entry.h"', '#include "kernel.cu"']
    if pool is not None:
        element = pool[1].strip()
        size = max(1, kernel.dynamic_shared_bytes)
        lines += [
            f"static_assert(sizeof({_without_alignment(element)}) == 1);",
            f"thread_local {element} {pool[2]}[{size}];",
        ]
    count = len(kernel.arguments)
    lines += [
        'extern "C" void tcusim_kernel(void** arguments) {',
        f"    tcusim::call<{count}>(&{kernel.name}, arguments);",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _without_alignment(declared: str) -> str:
    return re.sub(r"__align__\(\s*\d+\s*\)", "", declared).strip()


def _compile(kernel: Kernel, path: Path, debug: bool) -> None:
    """Compile a kernel into a shared library at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as made:
        temporary = Path(made)
        # Debug information names the sources where they stay.
        folder = path.parent if debug else temporary
        for name, text in (("kernel.cu", kernel.text), ("entry.cpp", _entry_text(kernel))):
            (temporary / "text").write_text(text)
            _put(folder / name, temporary / "text")
        library = temporary / "library.so"
        flags = _DEBUG_FLAGS if debug else _KERNEL_FLAGS
        complaint = _run_compiler(
            [
                *(*_FLAGS, *flags, "-w", "-shared", "-o", str(library)),
                *(str(folder / "entry.cpp"), *map(str, _runtime(debug))),
            ],
            folder,
        )
        if complaint is not None:
            raise BuildError(_explain(kernel, complaint))
        _put(path, library)


def _runtime(debug: bool) -> tuple[Path, ...]:
    """Return the runtime's object files, compiled when they are first asked for."""
    flags = _DEBUG_FLAGS if debug else _RUNTIME_FLAGS
    return tuple(_object(name, flags) for name in _RUNTIME)


def _object(name: str, flags: tuple[str, ...]) -> Path:
    path = _cache() / f"{name}-{_key(*flags)}.o"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as made:
        result = Path(made) / "object.o"
        arguments = [*_FLAGS, *flags, "-c", "-o", str(result), str(_HERE / name)]
        complaint = _run_compiler(arguments, Path(made))
        if complaint is not None:
            raise BuildError(f"{' '.join(_command())} cannot compile {name}:\n{complaint}")
        _put(path, result)
    return path


# --- Errors -----------------------------------------------------------------------------------


def _explain(kernel: Kernel, complaint: str) -> str:
    """Return the compiler's errors, each with the line of the text and the program's step."""
    found = re.findall(r"kernel\.cu:(\d+):\d+: (?:fatal )?error: (.*)", complaint)
    if not found:
        return f"{kernel.name}: its text does not compile on the host:\n{complaint.strip()}"
    shown = [_explain_one(kernel, int(number), text) for number, text in found[:_SHOWN_ERRORS]]
    more = len(found) - len(shown)
    rest = [f"  and {more} more"] if more else []
    head = f"{kernel.name}: its text does not compile on the host:"
    return "\n".join([head, *shown, *rest])


def _explain_one(kernel: Kernel, number: int, text: str) -> str:
    return f"  {place_of(kernel, number)}: {text}\n    {line_of(kernel, number)}"


def line_of(kernel: Kernel, number: int) -> str:
    """Return a line of a kernel's text, from 1 on; empty if there is none."""
    lines = kernel.text.splitlines()
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""


def place_of(kernel: Kernel, number: int) -> str:
    """Return where a line is: its number and, if it came from one, the program's step."""
    path = kernel.paths[number - 1] if 0 < number <= len(kernel.paths) else ""
    return f"line {number}, step {path}" if path else f"line {number}"
