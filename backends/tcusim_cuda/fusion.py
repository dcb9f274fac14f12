"""Step fusion: runs of moves with all reads before the first write, after one test.

The reads of several steps are then in flight together, and a warp waits for them once. That is
legal: steps see others' writes to shared memory only after a Sync, and no step reads elements
that an earlier step of the same run wrote. `verify` enforces both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tcusim.machine import format_of
from tcusim.program.grammar import (
    Assign,
    Bound,
    Loop,
    Numbered,
    Space,
    Step,
    View,
    accesses,
    branch_of,
    views_of,
    walk,
    whole,
)
from tcusim.program.lanes import Alignment, Transfer

# Registers of a lane for the elements that a run has read. With as many for addresses, 16 warps
# still share a multiprocessor of 2**16 registers.
HELD_TOGETHER = 64
# Steps of a run: each has a variable of its own.
MOST_STEPS = 8
REGISTER_BYTES = 4


Moving: TypeAlias = Callable[[str, Assign], Transfer | None]


@dataclass(frozen=True, slots=True)
class Member:
    """A step of a run, with the loop of the run around it, if there is one.

    how: how its lanes move it if the run's test holds, so that every element is in bounds.
    """

    path: str
    step: Assign
    loop: Loop | None
    how: Transfer

    @property
    def times(self) -> int:
        """The number of iterations."""
        return 1 if self.loop is None else self.loop.count.constant or 0

    @property
    def registers(self) -> int:
        """Registers of a lane that hold all that it reads."""
        nbytes = self.how.vector * format_of(views_of(self.step.value)[0].buffer.dtype).itemsize
        return self.times * self.how.iterations * max(1, nbytes // REGISTER_BYTES)

    @property
    def guard(self) -> tuple[Bound | Alignment, ...]:
        """The condition for all its vectors to be in bounds and aligned, in every iteration."""
        last = {} if self.loop is None else {self.loop.var: max(self.times, 1) - 1}
        return tuple(
            test.hardest(last) if isinstance(test, Bound) else test
            for test in self.how.guard
            if isinstance(test, Bound | Alignment)
        )


@dataclass(frozen=True, slots=True)
class Run:
    """Steps that follow each other, and move their rectangles at once."""

    steps: tuple[Numbered, ...]
    members: tuple[Member, ...]

    @property
    def listed(self) -> Iterator[Numbered]:
        """All its steps, and those inside them, in text order."""
        for path, step in self.steps:
            yield path, step
            if isinstance(step, Loop):
                yield from walk(step.body, f"{path}.")

    @property
    def guard(self) -> tuple[Bound | Alignment, ...]:
        """The tests of all members: of those that differ in one number alone, the hardest."""
        bounds: dict[tuple[object, object], Bound] = {}
        places: dict[tuple[object, object], Alignment] = {}
        for test in (test for member in self.members for test in member.guard):
            if isinstance(test, Alignment):
                where = test.buffer, test.offset
                if where not in places or places[where].nbytes < test.nbytes:
                    places[where] = test
                continue
            key = test.lhs.terms, test.rhs.terms
            if key not in bounds or bounds[key].excess.const < test.excess.const:
                bounds[key] = test
        return (*places.values(), *bounds.values())


def runs_of(steps: Iterable[Numbered], transfer: Moving) -> Iterator[Numbered | Run]:
    """Yield the steps of one list, those that are worth it in runs.

    transfer: how the step at a path moves, or None if it cannot be one of several.
    """
    held: list[tuple[Numbered, list[Member]]] = []
    for path, step in steps:
        members = _members(path, step, None, transfer)
        if held and (members is None or not _fits([*held, ((path, step), members)])):
            yield from _closed(held)
            held = []
        if members is None or not _fits([((path, step), members)]):
            yield path, step
        else:
            held.append(((path, step), members))
    yield from _closed(held)


def _closed(held: Sequence[tuple[Numbered, list[Member]]]) -> Iterator[Numbered | Run]:
    """Yield the pending steps: fused, if they read or write the grid's memory several times."""
    members = tuple(member for _, found in held for member in found)
    steps = tuple(step for step, _ in held)
    views = (view for member in members for view in _views(member.step))
    if any(view.buffer.space is Space.GLOBAL for view in views) and (
        len(members) > 1 or any(member.times > 1 for member in members)
    ):
        yield Run(steps, members)
    else:
        yield from steps


def _fits(held: Sequence[tuple[Numbered, list[Member]]]) -> bool:
    members = [member for _, found in held for member in found]
    registers = sum(member.registers for member in members)
    return len(members) <= MOST_STEPS and registers <= HELD_TOGETHER


def _members(
    path: str,
    step: Step,
    loop: Loop | None,
    transfer: Moving,
) -> list[Member] | None:
    """Return the moves of a step, or None if it has other parts, or loops of loops."""
    match step:
        case Assign():
            how = transfer(path, step)
            member = None if how is None else _untested(Member(path, step, loop, how))
            return None if member is None else [member]
        case Loop() if step.count.constant and loop is None:
            found: list[Member] = []
            for inner, one in branch_of(path, step):
                members = _members(inner, one, step, transfer)
                if members is None:
                    return None
                found += members
            return found
        case _:
            return None


def _untested(member: Member) -> Member | None:
    """Return a step without tests of its vectors, or None if some vector always needs one."""
    how, views = member.how, _views(member.step)
    if any(view.ranges is not None for view in views):
        return None
    if how.vector == 1:
        how = replace(how, guard=tuple(dict.fromkeys(b for view in views for b in whole(view))))
    member = replace(member, how=how)
    for test in member.guard:
        if isinstance(test, Bound):
            known = test.excess
            if not known.terms and known.const >= 0:
                return None
        elif member.loop is not None and member.loop.var in test.offset.symbols:
            return None
    return member


def _views(step: Assign) -> tuple[View, ...]:
    touched = accesses(step)
    return (*touched.views_written, *touched.views_read)
