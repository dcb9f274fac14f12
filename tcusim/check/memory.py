"""How much memory is free, to be asked before more is taken: Linux kills who takes too much."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tcusim.errors import InputError

__all__ = ["free_bytes", "require_bytes", "size_text"]

_MEMINFO: Final = Path("/proc/meminfo")
# What a container may take, and what it has taken; "max" where there is no limit.
_CGROUP: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current"))


def free_bytes() -> int | None:
    """Return the bytes that this process may still take; None where the system does not tell."""
    known = [count for count in (_of_system(), _of_container()) if count is not None]
    return min(known, default=None)


def _of_system() -> int | None:
    try:
        for line in _MEMINFO.read_text(encoding="ascii").splitlines():
            name, _, rest = line.partition(":")
            if name == "MemAvailable":
                return 1024 * int(rest.split()[0])
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None


def _of_container() -> int | None:
    try:
        most, taken = (int(path.read_text(encoding="ascii")) for path in _CGROUP)
    except (OSError, ValueError):
        return None
    return max(0, most - taken)


def require_bytes(needed: int, what: str) -> None:
    """Raise InputError if something needs more memory than there is."""
    free = free_bytes()
    if free is not None and needed > free:
        raise InputError(
            f"{what} needs about {size_text(needed)} of memory, and {size_text(free)} are free"
        )


def size_text(count: float) -> str:
    """Return a number of bytes as people write it."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:,.4g} TiB"
