"""Where a warp's writes to shared memory meet its reads: what the builder puts barriers for."""

from __future__ import annotations

__all__ = ["Hazards"]


class Hazards:
    """Which shared buffers were touched since the last barrier, within one list of steps.

    first_read, first_written: those that were touched before the first barrier of the list, which
    what comes before the list may clash with.
    """

    def __init__(self) -> None:
        self.written: set[str] = set()
        self.read: set[str] = set()
        self.first_written: set[str] = set()
        self.first_read: set[str] = set()
        self.synced = False

    def clash(self, reads: set[str], writes: set[str]) -> bool:
        """Whether these accesses must wait for earlier ones."""
        return bool(reads & self.written or writes & self.read)

    def record(self, reads: set[str], writes: set[str]) -> None:
        """Remember what a step touches."""
        if not self.synced:
            self.first_read |= reads
            self.first_written |= writes
        self.read |= reads
        self.written |= writes

    def sync(self) -> None:
        """Forget what a barrier settles."""
        self.read = set()
        self.written = set()
        self.synced = True

    def fork(self) -> Hazards:
        """Return a copy, for a branch."""
        copy = Hazards()
        copy.written, copy.read = set(self.written), set(self.read)
        copy.first_written, copy.first_read = set(self.first_written), set(self.first_read)
        copy.synced = self.synced
        return copy

    def join(self, other: Hazards) -> Hazards:
        """Return what may be pending after either of two branches."""
        joined = Hazards()
        joined.written, joined.read = self.written | other.written, self.read | other.read
        joined.first_written = self.first_written | other.first_written
        joined.first_read = self.first_read | other.first_read
        joined.synced = self.synced and other.synced
        return joined
