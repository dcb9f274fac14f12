"""A disk cache of machine code: its folder, integrity, ownership, locks and size.

Damaged code gives wrong numbers, and code that another user can write is that user's program. So
each file ends in a seal (its names and a digest). A file counts as missing unless the seal is
right, the file belongs to this user or the administrator, and nobody else can write it.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib
import os
import shutil
import stat
import tempfile
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tcusim.errors import BackendUnavailable

_MAGIC: Final = b"tcusim code 1\n"
_DIGEST_BYTES: Final = hashlib.sha256().digest_size
_LENGTH_BYTES: Final = 4
_END_BYTES: Final = _LENGTH_BYTES + _DIGEST_BYTES + len(_MAGIC)

# With more than this in a folder, the files that were not used for longest are deleted.
_MOST_BYTES: Final = 256 * 2**20
# A file's time of change is that of its last use, to the hour: many systems do not keep that of
# reading. No run of a compiler takes as long: older workshops were left by killed ones.
_HOUR: Final = 3600.0
_MAKING: Final = "making-"
# How long a process waits for another one that makes the same file, before it does so itself.
_MOST_SECONDS_WAITED: Final = 120.0
# Not through links, and without waiting for the writer of a pipe.
_READING: Final = os.O_RDONLY | sum(
    getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
)
# Windows has permissions of another kind, and no such locks.
_POSIX: Final = hasattr(os, "geteuid")
_OTHERS_CAN_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH if _POSIX else 0


# --- Where --------------------------------------------------------------------------------------


def cache_folder() -> Path:
    """Return the folder of compiled code: TCUSIM_CACHE_DIR, or one in the user's cache folder.

    If it cannot be made, a warning says so, and the folder is a temporary one of this process.
    """
    folder, variable = _named_folder()
    return _usable(folder, variable, mode=0o777)


def part_of_cache(name: str) -> Path:
    """Return a folder in `cache_folder` that only this user can write.

    If that is impossible, warn, and return a temporary folder of this process.
    """
    _, variable = _named_folder()
    return _usable(cache_folder() / name, variable, mode=0o700)


def usable_part(name: str) -> Path | None:
    """Return `part_of_cache`, or None where it is to be made first, or cannot be used."""
    folder = _named_folder()[0] / name
    return folder if folder.is_dir() and _why_unusable(folder, 0o700) is None else None


def _named_folder() -> tuple[Path, str]:
    """Return the folder that the environment names, and the variable that does."""
    if os.environ.get("TCUSIM_CACHE_DIR"):
        # Compilers are started in folders of their own.
        return Path(os.environ["TCUSIM_CACHE_DIR"]).absolute(), "TCUSIM_CACHE_DIR"
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"]).absolute() / "tcusim", "XDG_CACHE_HOME"
    return Path.home() / ".cache" / "tcusim", "HOME"


# The usable folder for each folder, by process: a fork does not share a temporary folder.
_found: Final[dict[tuple[int, Path], Path]] = {}


def _usable(folder: Path, variable: str, mode: int) -> Path:
    """Return a folder that is there, or a temporary one where it cannot be."""
    key = (os.getpid(), folder)
    if key not in _found or not _found[key].is_dir():
        reason = _why_unusable(folder, mode)
        _found[key] = folder if reason is None else _temporary(folder, variable, reason)
    return _found[key]


def _why_unusable(folder: Path, mode: int) -> str | None:
    """Make a folder unless it is there; return None, or why it is of no use."""
    try:
        folder.mkdir(mode, parents=True, exist_ok=True)
        if mode & _OTHERS_CAN_WRITE:
            return None
        facts = folder.stat()
        if not _is_ours(facts.st_uid):
            return "it belongs to another user"
        if facts.st_mode & _OTHERS_CAN_WRITE:
            folder.chmod(mode)
    except OSError as error:
        return error.strerror or type(error).__name__
    return None if os.access(folder, os.W_OK | os.X_OK) else "it cannot be written"


def _temporary(folder: Path, variable: str, reason: str) -> Path:
    """Warn that nothing is kept, and return a folder that is removed when this process ends."""
    remedy = "Name a folder that can be made and written in the variable TCUSIM_CACHE_DIR"
    named = "" if variable == "HOME" else f", which {variable} names"
    told = f"compiled code cannot be kept in {folder}{named}: {reason}."
    try:
        made = Path(tempfile.mkdtemp(prefix="tcusim-"))
    except OSError as error:
        raise BackendUnavailable(f"{told} Nor is there a temporary folder. {remedy}") from error
    warnings.warn(f"{told} It is compiled anew in each process. {remedy}", RuntimeWarning, 2)
    atexit.register(_remove, made, os.getpid())
    return made


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _is_ours(owner: int) -> bool:
    """Return whether a file of this owner may be run: ours, or the administrator's."""
    return not _POSIX or owner in (os.geteuid(), 0)


# --- Code ---------------------------------------------------------------------------------------

# The names in the seals that were found right: a library of many kernels is read once.
_read: Final[dict[tuple[int, int, int, int], frozenset[str]]] = {}


def find_code(path: Path) -> Path | None:
    """Return a path that `keep_code` gave a file, or None unless that file is there, as it was."""
    with _opened(path) as descriptor:
        if descriptor is None:
            return None
        facts = os.fstat(descriptor)
        key = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)
        if key not in _read:
            _read[key] = _unsealed(descriptor)[1]
        return path if path.name in _read[key] else None


def read_code(path: Path) -> bytes | None:
    """Return the bytes that `keep_code` sealed at a path, or None unless they are there."""
    with _opened(path) as descriptor:
        if descriptor is None:
            return None
        code, names = _unsealed(descriptor)
        return code if path.name in names else None


def keep_code(made: Path, paths: Sequence[Path]) -> None:
    """Seal a file and move it to its places atomically, so that no reader sees half of it.

    The places are in one folder. If the folder is too large, the least recently used files are
    removed. `made` is in its `workshop`.
    """
    names = "\n".join(path.name for path in paths).encode()
    with made.open("ab") as file:
        file.write(names + len(names).to_bytes(_LENGTH_BYTES, "little"))
    digest = hashlib.sha256(made.read_bytes()).digest()
    with made.open("ab") as file:
        file.write(digest + _MAGIC)
    made.chmod(0o700)
    for number, path in enumerate(paths):
        os.replace(_another_name(made, made.with_name(f"{number}.kept")), path)
    _keep_small(paths[0].parent, paths[0].lstat().st_size)


@contextlib.contextmanager
def workshop(folder: Path) -> Iterator[Path]:
    """Create a temporary folder within a folder of the cache; remove it at the end.

    Raises BackendUnavailable where files cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=_MAKING) as made:
            yield Path(made)
    except OSError as error:
        raise BackendUnavailable(
            f"compiled code cannot be written to {error.filename2 or folder}: {error.strerror}. "
            f"Make room there, or name another folder in the variable TCUSIM_CACHE_DIR"
        ) from error


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    """Open a file for reading, and note that it is used; None if it is not there, or not ours."""
    try:
        descriptor = os.open(path, _READING)
    except OSError:
        yield None
        return
    try:
        facts = os.fstat(descriptor)
        ours = _is_ours(facts.st_uid) and not facts.st_mode & _OTHERS_CAN_WRITE
        if not (ours and stat.S_ISREG(facts.st_mode)):
            yield None
            return
        if time.time() - facts.st_mtime > _HOUR:
            with contextlib.suppress(OSError):
                os.utime(path)
        yield descriptor
    finally:
        os.close(descriptor)


def _unsealed(descriptor: int) -> tuple[bytes, frozenset[str]]:
    """Return the code in an open file and its names; none if its seal is missing or wrong."""
    try:
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read()
    except OSError:
        data = b""
    body, digest = data[: -_DIGEST_BYTES - len(_MAGIC)], data[-_DIGEST_BYTES - len(_MAGIC) :]
    if len(data) < _END_BYTES or digest != hashlib.sha256(body).digest() + _MAGIC:
        return b"", frozenset()
    end = len(body) - _LENGTH_BYTES
    start = end - int.from_bytes(body[end:], "little")
    return body[:start], frozenset(body[start:end].decode().split("\n"))


def _another_name(path: Path, name: Path) -> Path:
    """Give a file one more name; where the file system has no links, copy it."""
    try:
        os.link(path, name)
    except OSError:
        shutil.copy2(path, name)
    return name


# --- Who makes it -------------------------------------------------------------------------------


# Those of files that this process has made, or now makes.
_locks: Final[dict[Path, threading.Lock]] = {}


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Let one thread of one process at a time make the file of this path; tell whether it is ours.

    The system takes the lock from a process that ends, however it ends. Where there can be no lock
    between processes, and after a wait of two minutes, several do the same work.
    """
    seconds = _MOST_SECONDS_WAITED if wait else 0.0
    in_process = _locks.setdefault(path, threading.Lock())
    with contextlib.ExitStack() as held:
        ours = in_process.acquire(timeout=seconds)
        if ours:
            held.callback(in_process.release)
            ours = _take_lock(path.with_suffix(".lock"), seconds, held)
        yield ours or wait


def _take_lock(lock: Path, seconds: float, held: contextlib.ExitStack) -> bool:
    """Lock a file until `held` ends; False if another process has it, and keeps it for so long."""
    try:
        fcntl = importlib.import_module("fcntl")
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = held.enter_context(lock.open("ab"))
    except (ImportError, OSError):
        # Windows has none.
        return True
    end = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(0.02)
        except OSError:
            # Not on every file system.
            return True
        else:
            # A process that opened the lock before will lock a deleted file, while another opens a
            # new one: both find the finished file in the cache.
            held.callback(_delete, [lock])
            return True


# --- How much -----------------------------------------------------------------------------------

# Bytes that this process has written to each folder since it last looked at all files there.
_written: Final[dict[Path, int]] = {}


def _remove_leftovers(folder: Path) -> None:
    """Delete the workshops and the locks of processes that were killed."""
    for path in (*folder.glob(f"{_MAKING}*"), *folder.glob("*.lock")):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _HOUR:
                _delete([path])


def _keep_small(folder: Path, nbytes: int) -> None:
    """Delete leftovers, and the files that were not used for longest if all are too large.

    nbytes: written now. Scanning all files takes time: a process does so at first, and then after
    each sixteenth of the limit.
    """
    _written[folder] = _written.get(folder, _MOST_BYTES) + nbytes
    if _written[folder] < _MOST_BYTES // 16:
        return
    _written[folder] = 0
    _remove_leftovers(folder)
    # Several names of one file take its room once, and go together.
    entries: dict[int, list[Path]] = {}
    for path in folder.iterdir():
        if not path.name.startswith(_MAKING):
            with contextlib.suppress(OSError):
                entries.setdefault(path.lstat().st_ino, []).append(path)
    facts = [(*_age_and_bytes(paths[0]), paths) for paths in entries.values()]
    excess = sum(size for _, size, _ in facts) - _MOST_BYTES
    for _, size, paths in sorted(facts, key=lambda fact: fact[0]):
        if excess <= 0:
            return
        _delete(paths)
        excess -= size


def _age_and_bytes(path: Path) -> tuple[float, int]:
    """Return the time of last use of a file or folder, and its bytes."""
    try:
        facts = path.lstat()
        inside = path.rglob("*") if stat.S_ISDIR(facts.st_mode) else ()
        return facts.st_mtime, facts.st_size + sum(one.lstat().st_size for one in inside)
    except OSError:  # another process has deleted it
        return 0.0, 0


def _delete(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()
