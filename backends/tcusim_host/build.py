"""Compile emitted kernels for the CPU, several in one shared library, kept on disk.

A kernel's file is named by a hash of all its inputs: the text, our headers, the compiler and
its flags. So it is never stale, and several processes may build the same one at the same time.
Kernels that were compiled together share one library, which has a name for each of them.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import re
import subprocess
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tcusim.errors import BackendUnavailable, TcusimError
from tcusim.machine import native
from tcusim.machine.disk_cache import find_code, keep_code, locked, part_of_cache, workshop
from tcusim.machine.native import compiler_command, compiler_version
from tcusim.machine.rule_row import HEADER
from tcusim_cuda import kernel as cuda_kernel
from tcusim_cuda.kernel import SHARED_POOL, Kernel

_HERE: Final = Path(__file__).parent
# The folders of tcusim.cuh, which the kernels include, and of tcusim_rule.h.
_INCLUDES: Final = (
    _HERE / "include",
    Path(cuda_kernel.__file__).parent / "include",
    HEADER.parent,
)
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
# The compiler takes most of the time of a kernel that runs once: a third less than with -Og, and
# a run takes a tenth to a half more: products and barriers are in the runtime.
_KERNEL_FLAGS: Final = ("-O0",)
_RUNTIME_FLAGS: Final = ("-O3",)
# The kernels and the runtime want nothing of libstdc++: to link to it takes longer than to compile
# a small kernel.
_LIBRARIES: Final = ("-nodefaultlibs", "-lm", "-lc", "-lgcc")
_DEBUG_FLAGS: Final = ("-O0", "-g")
# Each access calls a function of the runtime, to record the writer of each element; exceptions,
# never thrown here, would want libstdc++.
_WATCH_FLAGS: Final = ("-fsanitize=thread", "-fno-exceptions")

_SHOWN_ERRORS: Final = 5
# Kernels of one library: they share most of the cost of their compilation. Before each block
# the runtime fills the shared memory of all of them.
_BATCH: Final = 16


class BuildError(TcusimError, RuntimeError):
    """A kernel's text does not compile on the host."""


@dataclass(frozen=True, slots=True)
class Library:
    """A compiled kernel, loaded into this process.

    path: the shared library; others may be links to it. functions: the library's functions. entry:
    the caller of the kernel, in the lane that runs. lock: held while a kernel of the library runs,
    since its memory is static.
    """

    path: Path
    functions: ctypes.CDLL
    entry: ctypes.c_void_p
    lock: threading.Lock


def build(kernel: Kernel, *, debug: bool = False) -> Library:
    """Compile a kernel from `tcusim_cuda.emit.emit`, unless that was done before, and load it.

    debug: compile without optimisation, with debug information, and so that a launch knows who
    writes each element of an output; see `source_folder`.

    Raises
    ------
    BackendUnavailable
        If there is no C++ compiler, or no folder for its output.
    BuildError
        If the text does not compile.
    """
    _require_compiler()
    path = _library_path(kernel, debug)
    with _loading:
        if path in _loaded:
            return _loaded[path]
    if find_code(path) is None:
        _compile([kernel], debug)
    return _load(kernel, path)


def build_many(kernels: Iterable[Kernel]) -> tuple[Library, ...]:
    """Compile several kernels, many in one run of the compiler, and load them.

    Processes that build the same kernels at the same time share the work. The errors are `build`'s.
    """
    _require_compiler()
    unique = list({_library_path(kernel, debug=False): kernel for kernel in kernels}.items())
    processors = os.cpu_count() or 1
    size = max(1, min(_BATCH, -(-len(unique) // processors)))
    batches = [unique[start : start + size] for start in range(0, len(unique), size)]
    with ThreadPoolExecutor(max_workers=processors) as pool:
        # Batches that another process is compiling come last.
        done = list(pool.map(functools.partial(_finish, wait=False), batches))
        left = [batch for batch, ours in zip(batches, done, strict=True) if not ours]
        list(pool.map(functools.partial(_finish, wait=True), left))
    return tuple(build(kernel) for _, kernel in unique)


def source_folder(kernel: Kernel) -> Path:
    """Return the folder that holds the sources of a kernel that was built with `debug=True`.

    There, `kernel.cu` is the emitted text. In gdb, `break kernel.cu:12` stops each lane there.
    """
    return _library_path(kernel, debug=True).parent


def why_no_compiler() -> str | None:
    """Return None if kernels can be compiled here, else the reason and a remedy."""
    reason = native.why_no_compiler()
    return None if reason is None else f"{reason}; or use backend 'numpy'"


# --- The compiler -----------------------------------------------------------------------------


def _require_compiler() -> None:
    reason = why_no_compiler()
    if reason is not None:
        raise BackendUnavailable(f"host: {reason}")


def _run_compiler(arguments: list[str], folder: Path) -> str | None:
    """Run the compiler in a folder; return None, or its messages if it failed."""
    includes = [f"-I{path}" for path in _INCLUDES]
    done = subprocess.run(
        [*compiler_command(), *includes, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    return None if done.returncode == 0 else done.stderr


# --- The cache --------------------------------------------------------------------------------


def _cache() -> Path:
    return part_of_cache("host")


def _library_path(kernel: Kernel, debug: bool) -> Path:
    """Return the path of a kernel's library, which may not exist yet."""
    flags = (*_DEBUG_FLAGS, *_WATCH_FLAGS) if debug else _KERNEL_FLAGS
    key = _key(kernel.text, _entry_text(kernel, "kernel.cu"), *flags)
    if debug:
        return _cache() / f"debug-{key}" / f"{kernel.name}.so"
    return _cache() / f"{kernel.name[:80]}-{key}.so"


def _key(*parts: str) -> str:
    """Return a name for these parts, compiled with these headers by this compiler."""
    command = compiler_command()
    common = (_sources_digest(), *command, compiler_version(command), platform.machine(), *_FLAGS)
    text = "\0".join((*common, *_RUNTIME_FLAGS, *parts))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


@functools.cache
def _sources_digest() -> str:
    """Return a digest of our headers and of the runtime."""
    files = [_HERE / name for name in _RUNTIME]
    for folder in _INCLUDES:
        files += sorted(path for path in folder.iterdir() if path.is_file())
    parts = (part for path in files for part in (path.name.encode(), path.read_bytes()))
    return hashlib.sha256(b"".join(parts)).hexdigest()


_loaded: dict[Path, Library] = {}
# A library that is loaded through several names is one library, with one lock.
_locks: dict[int, threading.Lock] = {}
_loading: Final = threading.Lock()


def _load(kernel: Kernel, path: Path) -> Library:
    with _loading:
        if path not in _loaded:
            functions = ctypes.CDLL(str(path))
            lock = _locks.setdefault(functions._handle, threading.Lock())
            entry = ctypes.cast(functions[_entry_name(kernel)], ctypes.c_void_p)
            _loaded[path] = Library(path, functions, entry, lock)
        return _loaded[path]


# --- Compiling --------------------------------------------------------------------------------


def _entry_name(kernel: Kernel) -> str:
    """Return the name of the function that calls a kernel, unlike every other kernel's."""
    parts = (kernel.name, kernel.text, str(kernel.dynamic_shared_bytes), *kernel.arguments)
    return f"tcusim_{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:24]}"


def _entry_text(kernel: Kernel, source: str) -> str:
    """Return the C++ that includes a kernel's text, with names of its own, and calls it."""
    entry = _entry_name(kernel)
    own = {name: f"{name}_of_{entry}" for name in (kernel.name, SHARED_POOL)}
    lines = [f"#define {name} {unlike}" for name, unlike in own.items()]
    lines.append(f'#include "{source}"')
    if kernel.dynamic_shared_bytes:
        size = kernel.dynamic_shared_bytes
        lines.append(f"thread_local __align__(128) unsigned char {SHARED_POOL}[{size}];")
    lines += [
        f"TCUSIM_ENTRY void {entry}(void** arguments) {{",
        f"    tcusim::call<{len(kernel.arguments)}>(&{kernel.name}, arguments);",
        "}",
    ]
    return "\n".join([*lines, *(f"#undef {name}" for name in own)]) + "\n"


def _finish(batch: Sequence[tuple[Path, Kernel]], *, wait: bool) -> bool:
    """Compile a batch's missing kernels; if not `wait`, leave a batch that another compiles."""
    names = "".join(path.name for path, _ in batch)
    together = _cache() / hashlib.sha256(names.encode()).hexdigest()[:24]
    with locked(together, wait=wait) as ours:
        if not ours:
            return False
        missing = [kernel for path, kernel in batch if find_code(path) is None]
        try:
            if missing:
                _compile(missing, debug=False)
        except BuildError:
            # An error names one kernel.
            for kernel in missing:
                _compile([kernel], debug=False)
    return True


def _compile(kernels: Sequence[Kernel], debug: bool) -> None:
    """Compile kernels into one shared library, with a name for each of them."""
    paths = [_library_path(kernel, debug) for kernel in kernels]
    with workshop(paths[0].parent) as temporary:
        # Debug information names the sources where they stay.
        folder = paths[0].parent if debug else temporary
        sources = ["kernel.cu"] if len(kernels) == 1 else [f"{path.stem}.cu" for path in paths]
        entries = ['#include "host_entry.h"\n', '#include "host_language.h"\n']
        for kernel, source in zip(kernels, sources, strict=True):
            _write(folder / source, kernel.text, temporary)
            entries.append(_entry_text(kernel, source))
        _write(folder / "entry.cpp", "".join(entries), temporary)
        library = temporary / "library.so"
        complaint = _compile_library(library, folder / "entry.cpp", debug)
        if complaint is not None:
            raise BuildError(_explain(kernels[0], complaint))
        keep_code(library, paths)


def _compile_library(library: Path, entry: Path, debug: bool) -> str | None:
    """Compile the kernels' caller and link it to the runtime; return the compiler's messages."""
    flags = (*_FLAGS, *(_DEBUG_FLAGS if debug else _KERNEL_FLAGS), "-w")
    runtime = [_object(name, _DEBUG_FLAGS if debug else _RUNTIME_FLAGS) for name in _RUNTIME]
    part = entry
    if debug:
        # By itself: a library that is linked with these flags wants other functions, of libtsan.
        part = library.with_name("entry.o")
        watched = [*flags, *_WATCH_FLAGS, "-c", "-o", str(part), str(entry)]
        complaint = _run_compiler(watched, entry.parent)
        if complaint is not None:
            return complaint
    files = [*map(str, (library, part, *runtime)), *_libraries()]
    return _run_compiler([*flags, "-shared", "-o", *files], entry.parent)


def _libraries() -> tuple[str, ...]:
    """Return the linker's arguments."""
    # Arguments of the user's may need more, such as -fsanitize=undefined does.
    return _LIBRARIES if len(compiler_command()) == 1 else ()


def _write(path: Path, text: str, temporary: Path) -> None:
    """Write a file atomically: readers see all of it or none."""
    (temporary / "text").write_text(text)
    os.replace(temporary / "text", path)


def _object(name: str, flags: tuple[str, ...]) -> Path:
    """Return an object file of the runtime, compiled when it is first asked for."""
    path = _cache() / f"{name}-{_key(*flags)}.o"
    if find_code(path) is None:
        with workshop(path.parent) as made:
            result = made / "object.o"
            arguments = [*_FLAGS, *flags, "-c", "-o", str(result), str(_HERE / name)]
            complaint = _run_compiler(arguments, made)
            if complaint is not None:
                raise BuildError(
                    f"{' '.join(compiler_command())} cannot compile {name}:\n{complaint}"
                )
            keep_code(result, [path])
    return path


# --- Errors -----------------------------------------------------------------------------------


def _explain(kernel: Kernel, complaint: str) -> str:
    """Return the compiler's errors, each with the line of the text and the program's step."""
    found = re.findall(r"kernel\.cu:(\d+):\d+: (?:fatal )?error: (.*)", complaint)
    if not found:
        return f"{kernel.name}: its text does not compile on the host:\n{complaint.strip()}"
    lines = [f"{kernel.name}: its text does not compile on the host:"]
    for digits, text in found[:_SHOWN_ERRORS]:
        number = int(digits)
        lines.append(f"  {place_of(kernel, number)}: {text}\n    {line_of(kernel, number)}")
    if len(found) > _SHOWN_ERRORS:
        lines.append(f"  and {len(found) - _SHOWN_ERRORS} more")
    return "\n".join(lines)


def line_of(kernel: Kernel, number: int) -> str:
    """Return a line of a kernel's text, from 1 on; empty if there is none."""
    lines = kernel.text.splitlines()
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""


def place_of(kernel: Kernel, number: int) -> str:
    """Return the place of a line: its number and, if it came from one, the program's step."""
    path = kernel.paths[number - 1] if 0 < number <= len(kernel.paths) else ""
    return f"line {number}, step {path}" if path else f"line {number}"
