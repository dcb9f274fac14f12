"""Copies that are only started, and the waits of a warp for a number of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tcusim.algorithms import build
from tcusim.program.grammar import (
    Assign,
    Loop,
    Numbered,
    Program,
    Scope,
    Space,
    Sync,
    When,
    accesses,
    branch_of,
    numbered,
    walk,
)
from tcusim_cuda.async_copies import AsyncCopies
from tcusim_cuda.emit import emit


def gemm(stages: int) -> Program:
    return build("gemm", inner=16 * 2 * 12, cols=64, warps=4, stages=stages)


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_all_stages_but_the_one_that_comes_next_may_be_on_their_way(stages: int) -> None:
    """In the loop, two copies for each stage: one of A and one of B."""
    program = gemm(stages)
    pipeline = AsyncCopies(program)
    loops = [
        path
        for path, step in walk(program.steps)
        if isinstance(step, Sync) and step.scope is Scope.BLOCK and "." in path
    ]
    assert {pipeline.waits[path] for path in loops} == {2 * (stages - 2)}
    assert pipeline.is_counted == (stages > 2)
    copies = {path for path, step in walk(program.steps) if isinstance(step, Assign)}
    # With two stages there is nothing to do while the first one comes.
    first = {path for path in copies if "." not in path and int(path) < min(map(int, _tops(loops)))}
    assert pipeline.copies & copies >= copies - first - _stores(program)
    assert bool(pipeline.copies & first) == (stages > 2)
    assert pipeline.sources == {"a", "b"}


def _tops(paths: list[str]) -> set[str]:
    return {path.split(".", maxsplit=1)[0] for path in paths}


def _stores(program: Program) -> set[str]:
    """Return the copies to global memory."""
    return {
        path
        for path, step in walk(program.steps)
        if isinstance(step, Assign) and step.dst.buffer.space is Space.GLOBAL
    }


@pytest.mark.parametrize("stages", [2, 3, 5])
def test_every_copy_has_come_when_its_stage_is_read(stages: int) -> None:
    """Followed as a queue through a run of the program: every read follows a wait for its copy."""
    program = gemm(stages)
    pipeline = AsyncCopies(program)
    queue: list[str] = []
    arrived: set[str] = set()
    reads = 0
    for path, step in _run(numbered(program.steps)):
        for view in accesses(step).views_read:
            if view.buffer.name in {f"{side}{n}_s" for side in "ab" for n in range(stages)}:
                reads += 1
                assert view.buffer.name in arrived
        if path in pipeline.copies and isinstance(step, Assign):
            queue.append(step.dst.buffer.name)
            arrived.discard(step.dst.buffer.name)
        elif isinstance(step, Assign):
            arrived.add(step.dst.buffer.name)
        if isinstance(step, Sync) and path in pipeline.waits:
            done = len(queue) - pipeline.waits[path]
            arrived.update(queue[:done])
            queue = queue[max(done, 0) :]
    assert reads > 12


def _run(steps: Iterator[Numbered]) -> Iterator[Numbered]:
    """Yield leaf steps with their paths as one warp runs them, in first branches."""
    for path, step in steps:
        match step:
            case Loop(count=count):
                for _ in range(count.constant or 0):
                    yield from _run(branch_of(path, step))
            case When():
                yield from _run(branch_of(path, step))
            case _:
                yield path, step


def test_groups_end_where_some_are_waited_for_alone() -> None:
    two, four = (emit(gemm(stages)).text for stages in (2, 4))
    assert "commit_copies" not in two
    assert "tcu::wait_for_copies();" in two
    assert four.count("tcu::commit_copies();") == len(re.findall("copy_\\w*async", four)) > 0
    assert set(re.findall(r"wait_for_copies(<\d>)?\(", four)) == {"<4>", "<2>", ""}
