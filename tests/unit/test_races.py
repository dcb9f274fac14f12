"""Barriers: overlapping copies and shared memory, against a search through all that warps do."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import pytest

from planted import (
    ITERATION,
    LENGTH,
    SYNC,
    SYNC_BLOCK,
    at,
    block_reduction,
    changed,
    one_row,
    planted,
    reduction,
    refused,
    scan,
    shared,
    split_program,
)
from tcusim.program.checks.verifier import CHECKS, problems, verify
from tcusim.program.grammar import (
    BLOCK,
    WARP,
    Assign,
    Bound,
    Buffer,
    BufferRole,
    Extent,
    Index,
    Loop,
    Program,
    Scope,
    Space,
    Step,
    Strided,
    Sync,
    View,
    When,
    sum_of,
    views_of,
    walk,
)
from tcusim.program.printer import listing


def test_uniform_barrier_refuses_a_branch_on_the_warp() -> None:
    copy = at(block_reduction(), "9.1")
    program = planted(block_reduction(), "9.1", copy, SYNC_BLOCK)
    refused(
        program,
        "uniform_barrier",
        "step 9.2: `sync block` only some warps of the block reach this barrier: step 9 branches",
    )


def test_uniform_barrier_accepts_a_branch_on_the_block() -> None:
    step = When((Bound(BLOCK, Index.of(1)),), (SYNC_BLOCK,))
    verify(planted(block_reduction(), "8", SYNC_BLOCK, step))


def test_copy_overlap_refuses_shifted_copy() -> None:
    tile = reduction().scratch[0]
    shift = Assign(one_row(tile, 1), one_row(tile))
    program = planted(reduction(), "4", SYNC, shift, SYNC)
    refused(
        program,
        "copy_overlap",
        "reads and writes overlapping parts of 'tile', and the lanes run in no order. Use the same",
    )


def test_copy_overlap_accepts_in_place_and_disjoint() -> None:
    tile = reduction().scratch[0]
    in_place = Assign(one_row(tile), sum_of(one_row(tile), one_row(tile, 16)))
    interleaved = Assign(
        replace(one_row(tile), col_axis=Strided(16, 2)),
        replace(one_row(tile, 1), col_axis=Strided(16, 2)),
    )
    verify(planted(reduction(), "4", SYNC, in_place, SYNC, interleaved, SYNC))


def test_copy_overlap_refuses_repeated_destination() -> None:
    copy = at(reduction(), "9")
    program = changed(
        reduction(), "9", dst=replace(copy.dst, col_axis=replace(copy.dst.col_axis, stride=0))
    )
    refused(program, "copy_overlap", "writes elements of 'out' more than once: strides 0 and 0 for")


def test_copy_overlap_refuses_overlapping_parts() -> None:
    program = split_program("f32", "bf16")
    split = at(program, "1")
    program = changed(program, "1", parts=(split.dst, *split.dsts))
    refused(program, "copy_overlap", "two parts overlap in 'x0'. Give each part its own place")


def test_copy_overlap_compares_the_same_warp() -> None:
    partial = block_reduction().scratch[1]
    apart = Assign(
        View.strided(partial, WARP * 16, 1, 8, 0, 1),
        View.strided(partial, WARP * -16 + 24, 1, 8, 0, 1),
    )
    program = planted(block_reduction(), "8", SYNC_BLOCK, apart, SYNC_BLOCK)
    assert not [e for e in problems(program) if e.check == "copy_overlap"]
    close = replace(apart, value=View.strided(partial, WARP * 4 + 4, 1, 8, 0, 1))
    program = planted(block_reduction(), "8", SYNC_BLOCK, close, SYNC_BLOCK)
    refused(program, "copy_overlap", "overlapping parts of 'partial'")


@pytest.mark.parametrize(
    ("build", "path"),
    [
        (reduction, "4"),
        (reduction, "8"),
        (scan, "6.6"),
        (scan, "6.8"),
        (scan, "6.13"),
        (scan, "6.15"),
        (block_reduction, "6"),
        (block_reduction, "8"),
    ],
)
def test_synced_shared_refuses_every_dropped_sync(build: Callable[[], Program], path: str) -> None:
    refused(planted(build(), path), "synced_shared", "no barrier between. Put Sync")


def test_synced_shared_says_which_steps_and_which_barrier() -> None:
    error = refused(planted(reduction(), "4"), "synced_shared", "")
    assert str(error) == (
        "reduction_16, step 4: `A ← LoadTile(tile[0 … +256], colmajor, stride=16)` reads elements "
        "of 'tile' that step 3 writes, with no barrier between. Put Sync(Scope.WARP) between them."
        "  [check: synced_shared]"
    )
    refused(
        changed(block_reduction(), "8", scope=Scope.WARP),
        "synced_shared",
        r"'partial' that step 7 writes in another warp, .* Put Sync\(Scope.BLOCK\)",
    )


def test_synced_shared_sees_writes_after_reads_and_writes() -> None:
    clear = Assign(one_row(reduction().scratch[1]), one_row(reduction().scratch[1], 16))
    program = replace(reduction(), steps=(*reduction().steps, clear))
    refused(program, "synced_shared", "step 10: .* writes elements of 'v' that step 9 reads, with")
    store = at(reduction(), "7")
    program = planted(reduction(), "7", store, store)
    refused(program, "synced_shared", "step 8: .* writes elements of 'v' that step 7 writes, with")


def test_synced_shared_sees_the_next_iteration() -> None:
    steps = block_reduction().steps
    loop = Loop("i", Extent.of(2), steps[4:])
    program = replace(block_reduction(), steps=(*steps[:4], loop))
    error = refused(
        program,
        "synced_shared",
        "writes elements of 'partial' that step 5.5.1 reads in another warp in an earlier "
        "iteration, with no barrier between. Put .* at the end of the loop's body",
    )
    assert error.path == "5.3"
    once = replace(program, steps=(*steps[:4], replace(loop, count=Extent.of(1))))
    verify(once)
    ended = replace(program, steps=(*steps[:4], replace(loop, body=(*loop.body, SYNC_BLOCK))))
    verify(ended)


def test_synced_shared_needs_no_barrier_for_disjoint_parts() -> None:
    result = reduction().scratch[1]
    rows = [Assign(one_row(result, 32 + 16 * n), one_row(result)) for n in range(4)]
    verify(planted(reduction(), "8", SYNC, *rows, SYNC))
    loop = Loop("i", Extent.of(8), (Assign(one_row(result, ITERATION * 16 + 16), one_row(result)),))
    verify(planted(reduction(), "8", SYNC, loop, SYNC))
    close = Loop("i", Extent.of(8), (Assign(one_row(result, ITERATION * 8 + 16), one_row(result)),))
    refused(planted(reduction(), "8", SYNC, close, SYNC), "synced_shared", "in an earlier iterat")


def test_synced_shared_refuses_all_warps_writing_one_place() -> None:
    copy = at(block_reduction(), "7")
    program = changed(block_reduction(), "7", dst=one_row(copy.dst.buffer))
    refused(
        program,
        "synced_shared",
        "writes elements of 'partial' that the same step writes in another warp. Make the offset",
    )


def test_synced_shared_lets_a_warp_keep_its_part() -> None:
    program = block_reduction()
    partial = program.scratch[1]
    double = Assign(
        one_row(partial, WARP * 16),
        sum_of(one_row(partial, WARP * 16), one_row(partial, WARP * 16)),
    )
    verify(planted(program, "8", SYNC, double, SYNC_BLOCK))
    other = replace(double, value=one_row(partial, WARP * -16 + 16))
    refused(planted(program, "8", SYNC, other, SYNC_BLOCK), "synced_shared", "in another warp")


def test_synced_shared_knows_that_branches_of_one_when_are_other_warps() -> None:
    program = block_reduction()
    result, partial = program.scratch
    when = at(program, "9")
    clear = Assign(one_row(result), one_row(result, 16))
    verify(changed(program, "9", otherwise=(clear,)))
    shared_clear = Assign(one_row(partial), one_row(result, 16))
    refused(
        changed(program, "9", otherwise=(shared_clear,)),
        "synced_shared",
        "step 9.2: .* writes elements of 'partial' that step 9.1 reads in another warp",
    )
    uniform = replace(when, bounds=(Bound(BLOCK, Index.of(1)),), otherwise=(when.body[0],))
    verify(planted(program, "9", When((Bound(WARP, Index.of(1)),), (uniform,))))


def test_synced_shared_does_not_trust_a_barrier_that_may_not_run() -> None:
    program = planted(reduction(), "4", When((Bound(BLOCK, Index.of(1)),), (SYNC,)))
    refused(program, "synced_shared", "'tile' that step 3 writes")
    program = planted(reduction(), "4", Loop("i", Extent(LENGTH, 256), (SYNC,)))
    refused(program, "synced_shared", "'tile' that step 3 writes")
    verify(planted(reduction(), "4", Loop("i", Extent.of(2), (SYNC,))))


class Touch(NamedTuple):
    """One access of one warp: the element, whether it is written, and the barriers before it."""

    element: tuple[str, int]
    writes: bool
    block_barriers: int
    barriers: int
    step: int


def touches(program: Program, warp: int) -> list[Touch]:
    """Run the program for one warp, as far as shared memory goes."""
    found: list[Touch] = []
    counts = {"block": 0, "any": 0, "step": 0}

    def touch(view: View, env: dict[str, int], *, writes: bool) -> None:
        if view.buffer.space is Space.GLOBAL:
            return
        owner = (
            view.buffer.name if view.buffer.space is Space.SHARED else f"{view.buffer.name}{warp}"
        )
        for col in range(view.cols):
            place = view.address.evaluate({**env, "row": 0, "col": col})
            found.append(
                Touch((owner, place), writes, counts["block"], counts["any"], counts["step"])
            )

    def run(steps: tuple[Step, ...], env: dict[str, int]) -> None:
        for step in steps:
            counts["step"] += 1
            if isinstance(step, Sync):
                counts["any"] += 1
                counts["block"] += step.scope is Scope.BLOCK
            elif isinstance(step, Loop):
                for i in range(step.count.constant or 0):
                    run(step.body, {**env, step.var: i})
            elif isinstance(step, When):
                holds = all(b.lhs.evaluate(env) < b.rhs.evaluate(env) for b in step.bounds)
                run(step.body if holds else step.otherwise, env)
            elif isinstance(step, Assign):
                for view in views_of(step.value):
                    touch(view, env, writes=False)
                touch(step.dst, env, writes=True)

    run(program.steps, {"warp": warp, "block": 0})
    return found


def races(program: Program) -> bool:
    """Whether two accesses to an element, one of them writing, have no barrier between."""
    traces = [touches(program, warp) for warp in range(program.warps)]
    for (one, first), (two, second) in itertools.product(enumerate(traces), repeat=2):
        for x, y in itertools.product(first, second):
            if x.element != y.element or not (x.writes or y.writes):
                continue
            if one == two and x.step != y.step and x.barriers == y.barriers:
                return True
            if one != two and x.block_barriers == y.block_barriers:
                return True
    return False


class RandomSteps:
    """Makes up steps that read and write 1x4 rectangles of shared memory."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.far = Buffer("far", "f32", Extent(LENGTH), BufferRole.INPUT)
        self.near = (shared("own", "f32", 64), shared("all", "f32", 64, Space.SHARED))

    def program(self) -> Program:
        steps = self.steps(self.choose.randint(2, 6), loops=(), diverged=False)
        buffers = (self.far, *reduction().outputs, *self.near)
        return replace(reduction(), buffers=buffers, warps=2, steps=steps)

    def steps(self, count: int, loops: tuple[str, ...], *, diverged: bool) -> tuple[Step, ...]:
        return tuple(self.step(loops, diverged=diverged) for _ in range(count))

    def step(self, loops: tuple[str, ...], *, diverged: bool) -> Step:
        kind = self.choose.choice(("read", "write", "move", "sync", "sync", "loop", "when"))
        if kind == "sync":
            return Sync(Scope.WARP if diverged else self.choose.choice(tuple(Scope)))
        if kind == "loop" and len(loops) < 2:
            var = "ij"[len(loops)]
            body = self.steps(self.choose.randint(1, 3), (*loops, var), diverged=diverged)
            return Loop(var, Extent.of(self.choose.randint(1, 3)), body)
        if kind == "when" and not diverged:
            symbol = self.choose.choice(("warp", *loops))
            body = self.steps(2, loops, diverged=True)
            otherwise = self.steps(1, loops, diverged=True)
            return When((Bound(Index.symbol(symbol), Index.of(1)),), body, otherwise)
        far = View.strided(self.far, Index(), 1, 4, 0, 1)
        target = far if kind == "read" else self.view(loops)
        return Assign(target, far if kind == "write" else self.view(loops))

    def view(self, loops: tuple[str, ...]) -> View:
        offset = Index.of(self.choose.choice((0, 4, 8)))
        for name in ("warp", *loops):
            offset = offset + Index.symbol(name) * self.choose.choice((0, 2, 4, 8))
        return View.strided(self.choose.choice(self.near), offset, 1, 4, 0, 1)


def has_barrier_in_branch_or_loop(program: Program) -> bool:
    return any("." in path and isinstance(step, Sync) for path, step in walk(program.steps))


@pytest.mark.parametrize("first_seed", range(0, 1000, 100))
def test_synced_shared_finds_every_race_and_few_others(first_seed: int) -> None:
    outcomes = set()
    for seed in range(first_seed, first_seed + 100):
        program = RandomSteps(seed).program()
        found = bool(list(CHECKS["synced_shared"](program)))
        really = races(program)
        outcomes.add(really)
        assert found or not really, f"seed {seed}: missed a race\n{listing(program)}"
        if not has_barrier_in_branch_or_loop(program):
            assert found == really, f"seed {seed}: no race here\n{listing(program)}"
    assert outcomes == {True, False}
