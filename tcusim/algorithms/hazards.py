"""Lists of steps in which a warp's writes to shared memory and its reads do not meet."""

from __future__ import annotations

from tcusim.program.grammar import BufferRole, Scope, Step, Sync, View, accesses

_NONE: frozenset[str] = frozenset()


class StepList:
    """Steps in order, with the warp's barriers that they need.

    read, written: shared buffers that were touched since the last barrier. first_read,
    first_written: those before the first barrier, with possible hazards against earlier steps.
    """

    def __init__(self, before: StepList | None = None) -> None:
        """Begin empty; in a branch, accesses `before` it are still pending."""
        self.steps: list[Step] = []
        self.read: frozenset[str] = before.read if before else _NONE
        self.written: frozenset[str] = before.written if before else _NONE
        self.first_read: frozenset[str] = before.first_read if before else _NONE
        self.first_written: frozenset[str] = before.first_written if before else _NONE
        self.synced: bool = before.synced if before else False

    def add(self, step: Step) -> None:
        """Add a step that is not a block of steps, after a barrier if it has to wait."""
        touched = accesses(step)
        reads, writes = (
            frozenset(v.buffer.name for v in views if v.buffer.role is BufferRole.SCRATCH)
            for views in (touched.views_read, touched.views_written)
        )
        self._wait(reads, writes)
        self._record(reads, writes)
        self.steps.append(step)

    def look(self, view: View) -> None:
        """Add a barrier if a branch that depends on these values has to wait for them."""
        read = frozenset([view.buffer.name])
        self._wait(read, _NONE)
        self._record(read, _NONE)

    def sync(self, barrier: Sync | None = None) -> None:
        """Add a barrier, by default of the warp, that settles the pending accesses."""
        self.steps.append(barrier or Sync(Scope.WARP))
        self.read = self.written = _NONE
        self.synced = True

    def settle(self) -> None:
        """Add a barrier if anything is pending."""
        if self.read or self.written:
            self.sync()

    def close(self) -> None:
        """Add the barrier that the end of a loop's body needs before its beginning."""
        self._wait(self.first_read, self.first_written)

    def follow(self, body: StepList) -> None:
        """Take over the accesses of a loop's body."""
        self._record(body.first_read, body.first_written)
        self.read |= body.read
        self.written |= body.written
        self.synced |= body.synced

    def join(self, one: StepList, two: StepList) -> None:
        """Take over the accesses that may be pending after either of two branches."""
        self.read, self.written = one.read | two.read, one.written | two.written
        self.first_read = one.first_read | two.first_read
        self.first_written = one.first_written | two.first_written
        self.synced = one.synced and two.synced

    def _wait(self, reads: frozenset[str], writes: frozenset[str]) -> None:
        if reads & self.written or writes & self.read:
            self.sync()

    def _record(self, reads: frozenset[str], writes: frozenset[str]) -> None:
        if not self.synced:
            self.first_read |= reads
            self.first_written |= writes
        self.read |= reads
        self.written |= writes
