"""C++ on this machine: the compiler, and libraries."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from tcusim.errors import TcusimError
from tcusim.machine.disk_cache import find_code, keep_code, part_of_cache, usable_part, workshop


class CompileError(TcusimError, RuntimeError):
    """A source does not compile here."""


def compiler_command() -> tuple[str, ...]:
    """Return the compiler and its arguments, from the environment variable CXX."""
    return tuple(shlex.split(os.environ.get("CXX", ""))) or ("g++",)


@functools.cache
def compiler_version(command: tuple[str, ...]) -> str:
    """Return the compiler's version text."""
    told = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    return told.stdout + told.stderr


def why_no_compiler() -> str | None:
    """Return None if C++ can be compiled here, else the reason and the remedy."""
    if sys.platform != "linux":
        return f"it needs Linux, this is {sys.platform}"
    command = compiler_command()
    if shutil.which(command[0]) is None:
        return (
            f"no C++ compiler: {command[0]!r} is not on the PATH. Install one, such as with "
            f"`apt-get install g++`, or name it: CXX=/path/to/g++"
        )
    return None


def shared_library(source: Path, flags: tuple[str, ...]) -> Path:
    """Return the path of a source's shared library, which is compiled unless it is there.

    It is named for everything that it was made of, this machine's processor included, so it is
    never stale, and several processes may make it at once. Raises CompileError, and
    BackendUnavailable where no file can be written.
    """
    path = library_path(source, flags)
    if find_code(path) is not None:
        return path
    with workshop(path.parent) as folder:
        made = folder / path.name
        done = subprocess.run(
            [*compiler_command(), *flags, "-shared", "-fPIC", "-o", str(made), str(source)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
        if done.returncode:
            raise CompileError(
                f"{' '.join(compiler_command())} cannot compile {source.name}:\n{done.stderr}"
            )
        keep_code(made, [path])
    return path


def library_path(source: Path, flags: tuple[str, ...]) -> Path:
    """Return the path of a source's shared library, built or not."""
    return part_of_cache("native") / _library_name(source, flags)


def kept_library(source: Path, flags: tuple[str, ...]) -> Path | None:
    """Return a source's shared library if it is there already. It makes nothing, and runs nothing.

    To be asked by every process, it takes no more than a few milliseconds.
    """
    folder = usable_part("native")
    return None if folder is None else find_code(folder / _library_name(source, flags))


def _library_name(source: Path, flags: tuple[str, ...]) -> str:
    command = compiler_command()
    texts = [one.read_text() for one in (source, *sorted(source.parent.glob("include/*.h")))]
    parts = (texts, flags, command, _programs(command), _processor())
    return f"{source.stem}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:32]}.so"


def _programs(command: tuple[str, ...]) -> list[tuple[str, int, int]]:
    """Return a fingerprint of the programs of a command, without running them."""
    found = [Path(path).resolve() for path in map(shutil.which, command) if path is not None]
    facts = [(path, path.stat()) for path in found]
    return [(str(path), fact.st_size, fact.st_mtime_ns) for path, fact in facts]


@functools.cache
def _processor() -> str:
    """Return a fingerprint of this machine's instruction set, for shared folders."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    told = [line for line in lines if line.startswith(("flags", "Features", "model name"))]
    return f"{platform.machine()} {sorted(set(told))}"
