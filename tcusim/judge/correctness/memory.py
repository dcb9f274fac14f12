"""How much memory is free, to be asked before more is taken: Linux kills who takes too much."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from tcusim.errors import InputError

_MEMINFO: Final = Path("/proc/meminfo")
# The limit of a container, and its use; "max" where there is no limit.
_CGROUP: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current"))


def free_bytes() -> int | None:
    """Return the bytes that this process may still take; None where the system does not tell."""
    known = []
    with suppress(OSError):
        found = re.findall(r"^MemAvailable: +(\d+) kB$", _MEMINFO.read_text("ascii"), re.MULTILINE)
        known += [1024 * int(count) for count in found]
    with suppress(OSError, ValueError):
        most, taken = (int(path.read_text("ascii")) for path in _CGROUP)
        known.append(max(0, most - taken))
    return min(known, default=None)


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
