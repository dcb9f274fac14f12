"""Lists of steps: a warp's barrier comes between a write to shared memory and a dependent step."""

from __future__ import annotations

from planted import SHAPE, columns_of, shared
from tcusim.algorithms.hazards import StepList
from tcusim.program.grammar import Assign, Buffer, BufferRole, Extent, Frag, Index, Load, Role, Sync

FAR = Buffer("in", "f16", Extent(Index.symbol("length")), BufferRole.INPUT)
NEAR, OTHER = shared("near", "f16", 256), shared("other", "f16", 256)
WRITE = Assign(columns_of(NEAR), columns_of(FAR))
READ = Load(Frag("A", Role.B, SHAPE, "f16"), columns_of(NEAR))


def kinds(*steps: Assign | Load) -> list[type]:
    listed = StepList()
    for step in steps:
        listed.add(step)
    return [type(step) for step in listed.steps]


def test_a_read_waits_for_the_write() -> None:
    assert kinds(WRITE, READ) == [Assign, Sync, Load]


def test_a_write_waits_for_the_read_before() -> None:
    assert kinds(READ, WRITE) == [Load, Sync, Assign]


def test_what_does_not_meet_waits_for_nothing() -> None:
    assert kinds(READ, READ) == [Load, Load]
    assert kinds(WRITE, Assign(columns_of(OTHER), columns_of(FAR))) == [Assign, Assign]


def test_a_barrier_settles_what_is_pending_and_is_not_repeated() -> None:
    listed = StepList()
    listed.settle()
    assert listed.steps == []
    listed.add(WRITE)
    listed.settle()
    listed.settle()
    assert [type(step) for step in listed.steps] == [Assign, Sync]


def test_a_loop_that_ends_as_it_begins_has_a_barrier_at_its_end() -> None:
    body = StepList()
    body.add(WRITE)
    body.add(READ)
    body.close()
    assert [type(step) for step in body.steps] == [Assign, Sync, Load, Sync]
