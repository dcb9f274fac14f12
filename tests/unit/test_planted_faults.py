"""Faults planted in correct programs: none of those that a run shows is called proven.

Whether a planted program is wrong is decided by running it, not by the checks: on the simulator,
unverified, with the writers of each element recorded and unwritten memory poisoned.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import numpy as np

import tcusim
from tcusim.errors import TcusimError, VerifyError
from tcusim.machine import format_of
from tcusim.program.bind import bind_scalars
from tcusim.program.checks.verifier import verify
from tcusim.program.grammar import (
    BLOCK,
    COL,
    ROW,
    WARP,
    Await,
    Bound,
    BufferRole,
    Copy,
    Extent,
    Index,
    Locate,
    Loop,
    Program,
    Publish,
    Step,
    Store,
    Sync,
    View,
    When,
    walk,
)
from tcusim.simulate.interpreter import State

# How many are planted; 10000 take some ten minutes.
COUNT: Final = int(os.environ.get("TCUSIM_PLANTED", "100"))
Change: TypeAlias = Callable[[Step], tuple[Step, ...]]
Rng: TypeAlias = np.random.Generator

RECIPES: Final[tuple[dict[str, Any], ...]] = (
    {"algorithm": "scan_k", "segment_size": 16, "masked": True},
    {"algorithm": "scan_tn", "segment_size": 48, "masked": True},
    {"algorithm": "reduction_kn", "segment_size": 48, "masked": True},
    {"algorithm": "reduction_tn_block", "segment_size": 512, "warps": 2, "masked": True},
    {"algorithm": "scan_tn_block", "segment_size": 512, "warps": 2, "masked": True},
    {"algorithm": "reduction_t", "segment_size": 256},
    {"algorithm": "scan_panel", "segment_size": 32, "masked": True},
    {"algorithm": "scan_ragged", "segment_size": 16, "masked": True},
    {"algorithm": "reduction_ragged", "segment_size": 16, "masked": True},
)


@functools.cache
def correct(number: int) -> Program:
    """Return one of the programs in which faults are planted."""
    if number < len(RECIPES):
        return tcusim.build(**RECIPES[number])
    return tcusim.build("scan_single_pass", segment_size=100_000, masked=True)


# --- Faults -------------------------------------------------------------------------------------


def bounded(view: View, bound: Bound) -> View:
    return dataclasses.replace(view, bounds=(*view.bounds, bound))


def some_bound(rng: Rng, program: Program, *, lanes: bool) -> Bound:
    """Return a condition that holds up to some block, warp, lane or size, or from it on."""
    symbols = [BLOCK, Index.symbol(program.scalars[0].name)]
    if program.warps > 1:
        symbols.append(WARP)
    if lanes:
        symbols += [ROW, COL]
    symbol = symbols[rng.integers(len(symbols))]
    per = program.blocks.per
    border = int(rng.integers(1, 6)) if symbol != symbols[1] else int(rng.integers(1, 4 * per))
    up_to = Bound(symbol, Index.of(border))
    return up_to if rng.random() < 0.6 else Bound(Index.of(border - 1), symbol)


def without(step: Step, rng: Rng, program: Program) -> tuple[Step, ...]:
    """Leave a step out, from somewhere on or everywhere."""
    if rng.random() < 0.3:
        return ()
    return (When((some_bound(rng, program, lanes=False),), (step,)),)


def shifted(step: Step, rng: Rng, program: Program) -> tuple[Step, ...]:
    """Move what a step writes by a few elements, from somewhere on or everywhere."""
    moved = dataclasses.replace(step)
    match step:
        case Copy(dst=view) | Publish(dst=view) | Store(dst=view):
            by = int(rng.integers(-2, 3)) or 1
            more = BLOCK * by if rng.random() < 0.4 else Index.of(by)
            moved = dataclasses.replace(
                step, dst=dataclasses.replace(view, offset=view.offset + more)
            )
        case Await(src=view):
            moved = dataclasses.replace(step, src=dataclasses.replace(view, offset=view.offset + 1))
        case Locate(first=first):
            moved = dataclasses.replace(step, first=first + int(rng.integers(1, 9)))
    if rng.random() < 0.4:
        return (moved,)
    return (When((some_bound(rng, program, lanes=False),), (step,), (moved,)),)


def narrowed(step: Step, rng: Rng, program: Program) -> tuple[Step, ...]:
    """Bound what a step writes, or take a bound away."""
    if isinstance(step, Copy):
        if step.dst.bounds and rng.random() < 0.3:
            loose = dataclasses.replace(step.dst, bounds=step.dst.bounds[1:])
            return (dataclasses.replace(step, dst=loose),)
        bound = some_bound(rng, program, lanes=True)
        return (dataclasses.replace(step, dst=bounded(step.dst, bound)),)
    return without(step, rng, program)


def twice(step: Step, rng: Rng, program: Program) -> tuple[Step, ...]:
    """Do a step once more, from somewhere on, a block later, or one turn less of a loop."""
    if isinstance(step, Loop) and (step.count.constant or 0) > 1:
        return (dataclasses.replace(step, count=Extent.of((step.count.constant or 0) - 1)),)
    if isinstance(step, Copy):
        late = dataclasses.replace(step.dst, offset=step.dst.offset + int(rng.integers(1, 300)))
        again: Step = dataclasses.replace(step, dst=late)
    else:
        again = step
    return (step, When((some_bound(rng, program, lanes=False),), (again,)))


FAULTS: Final = {"without": without, "shifted": shifted, "narrowed": narrowed, "twice": twice}


def replaced(
    steps: tuple[Step, ...], path: str, change: Change, prefix: str = ""
) -> tuple[Step, ...]:
    """Return steps of which the one at a path is changed."""
    result: list[Step] = []
    for number, step in enumerate(steps, start=1):
        here = f"{prefix}{number}"
        if here == path:
            result += change(step)
        elif isinstance(step, Loop) and path.startswith(f"{here}."):
            result.append(
                dataclasses.replace(step, body=replaced(step.body, path, change, f"{here}."))
            )
        elif isinstance(step, When) and path.startswith(f"{here}."):
            body = replaced(step.body, path, change, f"{here}.")
            result.append(dataclasses.replace(step, body=body))
        else:
            result.append(step)
    return tuple(result)


def with_smaller_grid(program: Program, rng: Rng) -> Program:
    """Return a program whose blocks are too few for some remainders, or of another scalar."""
    blocks = program.blocks
    index = blocks.index * 2 if rng.random() < 0.5 else blocks.index - 1
    per = blocks.per * 2 + 1 if index.terms != blocks.index.terms else blocks.per
    return dataclasses.replace(program, blocks=Extent(index, per))


def planted(rng: Rng) -> tuple[str, Program]:
    """Return a program with a fault, or what is meant to be one, and its kind."""
    program = correct(int(rng.integers(len(RECIPES) + 1)))
    if rng.random() < 0.07:
        return "grid", with_smaller_grid(program, rng)
    kinds = (Copy, Store, Sync, Publish, Await, Locate, Loop)
    paths = [path for path, step in walk(program.steps) if isinstance(step, kinds)]
    # What comes last writes the outputs.
    path = (
        paths[-1 - int(rng.integers(min(6, len(paths))))]
        if rng.random() < 0.5
        else (paths[rng.integers(len(paths))])
    )
    name = list(FAULTS)[rng.integers(len(FAULTS))]
    change = lambda step: FAULTS[name](step, rng, program)  # noqa: E731
    return name, dataclasses.replace(program, steps=replaced(program.steps, path, change))


# --- Whether a program is wrong, by running it --------------------------------------------------


def inputs_of(program: Program, blocks: int, less: int, rng: Rng) -> dict[str, Any]:
    """Return inputs of about so many blocks."""
    length = max(1, blocks * program.blocks.per - less)
    made: dict[str, Any] = {}
    for scalar in program.scalars:
        length += -length % scalar.multiple_of
    segments = max(1, length // 9)
    for buffer in program.inputs:
        if buffer.dtype == "s64":
            cuts = np.sort(rng.integers(0, length + 1, segments - 1))
            made[buffer.name] = np.concatenate(([0], cuts, [length])).astype(np.int64)
        else:
            size = buffer.size.evaluate({"length": length, "segments": segments})
            made[buffer.name] = np.ones(size, format_of(buffer.dtype).dtype)
    bind_scalars(program, {name: array.size for name, array in made.items()})
    return made


def is_wrong(program: Program, original: Program, rng: Rng) -> bool:
    """Return whether a run breaks a rule, or leaves elements unwritten that should not be so.

    All inputs are 1, so that a NaN comes of unwritten memory alone.
    """
    for blocks, less in ((1, 1), (2, 0), (3, 5), (5, program.blocks.per // 2), (7, 1)):
        inputs = inputs_of(original, blocks, less, rng)
        if sum(array.size for array in inputs.values()) > 1 << 18:
            return False
        # Writers are recorded, and what two warps write is refused.
        state = State(program, inputs, "hopper", check=False)
        state.check = state.records_writers = True
        try:
            for _ in state.run(1024):
                pass
        except (VerifyError, KeyError, IndexError):
            return True
        for buffer in program.outputs:
            if buffer.role is BufferRole.OUTPUT and not buffer.partial:
                values = np.asarray(state.outputs()[buffer.name], np.float64)
                if np.isnan(values).any():
                    return True
    return False


def found(count: int, seed: int) -> Iterator[tuple[str, str, Program]]:
    """Yield what became of planted programs: refused, not proven, proven, or proven yet wrong."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        kind, program = planted(rng)
        try:
            result = verify(program)
        except TcusimError:
            yield kind, "refused", program
            continue
        if not result.proven:
            yield kind, "not proven", program
            continue
        original = next(
            one for one in map(correct, range(len(RECIPES) + 1)) if one.name == program.name
        )
        wrong = is_wrong(program, original, rng)
        yield kind, "proven yet wrong" if wrong else "proven", program


def test_no_planted_fault_is_called_proven() -> None:
    counts: Counter[tuple[str, str]] = Counter()
    for kind, verdict, program in found(COUNT, 7):
        counts[kind, verdict] += 1
        assert verdict != "proven yet wrong", f"{kind}\n{program}\n{verify(program)}"
    if os.environ.get("TCUSIM_PLANTED"):
        print(*(f"{key}: {number}" for key, number in sorted(counts.items())), sep="\n")
    assert (
        sum(number for (_, verdict), number in counts.items() if verdict == "refused") > COUNT / 4
    )
    assert {kind for kind, _ in counts} == {*FAULTS, "grid"}


def test_the_programs_without_a_fault_are_proven_and_right() -> None:
    rng = np.random.default_rng(3)
    for number in range(len(RECIPES)):
        program = correct(number)
        assert verify(program).proven
        assert not is_wrong(program, program, rng), program.name
