"""Async-copy pipelining: the copies that a warp only starts, and the barriers where it waits.

Every step sees the writes of an Assign to shared memory only after a Sync: that is the grammar, and
`verify` refuses a read, or another write, of the same elements before one (`synced_shared`). So a
lane may wait for its copies as late as at the last Sync before a step that touches their buffer; no
step between can tell. That is a software pipeline, as deep as there are buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from tcusim.machine import format_of
from tcusim.program.grammar import (
    Assign,
    BufferRole,
    Loop,
    Mma,
    Numbered,
    Program,
    Scope,
    Space,
    Step,
    Sync,
    When,
    accesses,
    branch_of,
    numbered,
    walk,
)
from tcusim.program.lanes import Where, transfer_of

# The sizes that cp.async copies. Source: PTX ISA, "cp.async".
ASYNC_BYTES = (4, 8, 16)
# Stands for all buffers: a copy may read the elements that a step writes to global memory.
_EVERY = "*"

_Names = frozenset[str]
_Pending = TypeVar("_Pending", bool, int)


class AsyncCopies:
    """Paths of the asynchronous copies, and of the barriers before which they finish.

    It pays where the warp multiplies in between, or waits for less than all. Otherwise ordinary
    loads are better, since the compiler may issue them early.

    copies: paths of the asynchronous copies. waits: by path of a Sync, the number of the latest
    started copies that may be unfinished there.
    """

    def __init__(self, program: Program) -> None:
        self.copies: set[str] = set()
        self.waits: dict[str, int] = {}
        able = {
            path: step
            for path, step in walk(program.steps)
            if isinstance(step, Assign) and _copies_later(program, step)
        }
        self._able = able
        if not able:
            return
        buffers = {path: step.dst.buffer for path, step in able.items()}
        due = _LastSyncs(program).due

        def finishing(path: str, pending: dict[str, _Pending]) -> list[str]:
            of_warp, of_block = due[path]
            return [
                copy
                for copy in pending
                if {buffers[copy].name, _EVERY}
                & (of_block if buffers[copy].space is Space.SHARED else of_warp)
            ]

        def choose(path: str, step: Step, pending: dict[str, bool]) -> dict[str, bool]:
            """Follow pending copies, each with whether an Mma came since it was started."""
            match step:
                case Assign() if path in buffers:
                    return {**pending, path: False}
                case Mma():
                    return dict.fromkeys(pending, True)
                case Sync():
                    done = finishing(path, pending)
                    rest = {copy: pending[copy] for copy in pending if copy not in done}
                    self.copies.update(copy for copy in done if pending[copy] or rest)
                    return rest
            return pending

        def count(path: str, step: Step, pending: dict[str, int]) -> dict[str, int]:
            """Follow pending copies, each with how many were started after it, at least."""
            match step:
                case Assign() if path in self.copies:
                    return {**{copy: after + 1 for copy, after in pending.items()}, path: 0}
                case Sync() if done := finishing(path, pending):
                    latest = min(pending[copy] for copy in done)
                    self.waits[path] = min(latest, self.waits.get(path, latest))
                    return {copy: pending[copy] for copy in pending if copy not in done}
            return pending

        _follow(numbered(program.steps), {}, choose, lambda one, two: one or two)
        _follow(numbered(program.steps), {}, count, min)

    @property
    def sources(self) -> frozenset[str]:
        """Inputs whose vectors are copied without a test of their alignment."""
        return frozenset(
            view.buffer.name
            for path in self.copies
            for view in accesses(self._able[path]).views_read
        )

    @property
    def is_counted(self) -> bool:
        """Whether a barrier waits for some copies while later ones stay in flight."""
        return any(self.waits.values())


def _copies_later(program: Program, step: Assign) -> bool:
    """Return whether an Assign can be started and finished later: an input to shared memory, as is.

    An output may be written meanwhile, so it is copied at once.
    """
    dst, src = step.dst, step.src
    if src is None or src.ranges:
        return False
    if dst.bounds or dst.buffer.space is Space.GLOBAL:
        return False
    if src.buffer.role is not BufferRole.INPUT or src.buffer.dtype != dst.buffer.dtype:
        return False
    transfer = transfer_of(program, (dst,), (src,))
    size = transfer.vector * format_of(dst.buffer.dtype).itemsize
    to, source = transfer.where
    whole = source not in (Where.REPEATED, Where.SHIFTED)
    return size in ASYNC_BYTES and to is Where.ALIGNED and whole


# --- Ways through a program, forward and backward -------------------------------------------------


def _follow(
    steps: Iterator[Numbered],
    pending: dict[str, _Pending],
    one_step: Callable[[str, Step, dict[str, _Pending]], dict[str, _Pending]],
    either: Callable[[_Pending, _Pending], _Pending],
) -> dict[str, _Pending]:
    """Return the copies pending after these steps; `either` joins the states of two paths."""

    def join(one: dict[str, _Pending], two: dict[str, _Pending]) -> dict[str, _Pending]:
        both = {copy: either(one[copy], two[copy]) for copy in one.keys() & two.keys()}
        return {**one, **two, **both}

    for path, step in steps:
        match step:
            case Loop():
                # An iteration may find pending copies of earlier ones; the loop may also not run.
                after = None
                while after != pending:
                    after = pending
                    pending = join(
                        pending, _follow(branch_of(path, step), pending, one_step, either)
                    )
            case When():
                taken = _follow(branch_of(path, step), pending, one_step, either)
                rest = branch_of(path, step, taken=False)
                pending = join(taken, _follow(rest, pending, one_step, either))
            case _:
                pending = one_step(path, step, pending)
    return pending


@dataclass(frozen=True, slots=True)
class _Live:
    """Buffers that are touched before the next barrier, of any scope and of the block."""

    warp: _Names = frozenset()
    block: _Names = frozenset()

    def __or__(self, other: _Live) -> _Live:
        return _Live(self.warp | other.warp, self.block | other.block)


class _LastSyncs:
    """Liveness: for each Sync, the buffers with copies that must finish there.

    due: by path, the buffers of a warp, and those of a block. Other warps' copies are visible only
    after a barrier of the block, so the wait is there.
    """

    def __init__(self, program: Program) -> None:
        self.due: dict[str, tuple[_Names, _Names]] = {}
        self._before(tuple(numbered(program.steps)), _Live())

    def _before(self, steps: tuple[Numbered, ...], live: _Live) -> _Live:
        """Return the live-in buffers of these steps, given their live-out buffers."""
        for path, step in reversed(steps):
            match step:
                case Sync(scope):
                    of_block = live.block if scope is Scope.BLOCK else live.warp
                    warp, block = self.due.get(path, (frozenset(), frozenset()))
                    self.due[path] = warp | live.warp, block | of_block
                    live = _Live(frozenset(), frozenset() if scope is Scope.BLOCK else live.block)
                case Loop(count=count):
                    body, before = tuple(branch_of(path, step)), None
                    inside = live
                    while inside != before:
                        before = inside
                        inside = inside | self._before(body, inside)
                    live = self._before(body, inside) if count.constant else inside
                case When():
                    taken = self._before(tuple(branch_of(path, step)), live)
                    rest = tuple(branch_of(path, step, taken=False))
                    live = taken | self._before(rest, live)
                    live = _touched(step, live)
                case _:
                    live = _touched(step, live)
        return live


def _touched(step: Step, live: _Live) -> _Live:
    """Return the live-in buffers of a leaf step."""
    touched = accesses(step)
    names = {view.buffer.name for view in touched.views if view.buffer.space is not Space.GLOBAL}
    if any(view.buffer.space is Space.GLOBAL for view in touched.views_written):
        names.add(_EVERY)
    return _Live(live.warp | names, live.block | names)
