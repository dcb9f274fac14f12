"""An oracle that runs a program to find its faults: it records accesses, and proves nothing.

The simulator runs it unverified, with unwritten elements poisoned. The elements that each step
touches are compared with those that the same and other warps touched before.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from tcusim.errors import VerifyError
from tcusim.machine import format_of
from tcusim.program.bind import bind_scalars
from tcusim.program.grammar import (
    Index,
    Program,
    Scope,
    Space,
    Store,
    Sync,
    View,
    When,
    accesses,
    walk,
)
from tcusim.simulate.interpreter import Event, State

# Elements of inputs, and of shared memory in all warps, that a run may have.
MOST_ELEMENTS = 1 << 16
MOST_SHARED = 1 << 23
NEVER = -1


class Broken(Exception):
    """A run broke a rule of programs."""


class Recorder:
    """A watcher that raises Broken: two writers, races, reads of unwritten elements."""

    def __init__(self, state: State) -> None:
        self.program = state.program
        self.warps = self.program.grid(state.scalars) * self.program.warps
        self.defined: dict[str, Any] = {}
        self.writer = {
            one.name: np.full(one.size.evaluate(state.scalars), NEVER)
            for one in self.program.outputs
        }
        # Barriers that each warp has passed: of any kind, and of its block.
        self.any, self.block = np.zeros((2, self.warps), int)
        # By warp and element: the two counts at the last read, and at the last write.
        self.last: dict[str, Any] = {}
        self.written: dict[str, Any] = {}
        for one in self.program.scratch:
            size = one.size.evaluate({})
            if self.warps * size > MOST_SHARED:
                raise MemoryError
            self.last[one.name] = np.full((2, 2, self.warps, size), NEVER)
            of_block = one.space is Space.SHARED
            owners = self.warps // self.program.warps if of_block else self.warps
            self.written[one.name] = np.zeros((owners, size), bool)

    def __call__(self, event: Event) -> None:
        """Compare the elements that a step touched."""
        if isinstance(event.step, Sync):
            self.sync(event)
            return
        touched = accesses(event.step)
        names = [one.name for one in touched.frags_read]
        names += [one.name for one in touched.ranges_read]
        for name in names:
            if name not in self.defined or not self.defined[name][event.warps].all():
                raise Broken(f"{event.path}: {name} is not set")
        given = [one.name for one in touched.frags_written]
        given += [one.name for one in touched.ranges_written]
        for name in given:
            self.defined.setdefault(name, np.zeros(self.warps, bool))[event.warps] = True
        reads = [self.elements(event, view) for view in touched.views_read]
        writes = [self.elements(event, view) for view in touched.views_written]
        for name in {view.buffer.name for view in touched.views} & self.last.keys():
            self.shared(
                event.path,
                name,
                not isinstance(event.step, Store),
                *(
                    tuple(map(np.concatenate, zip(*found, strict=True)))
                    if (found := [e[1:] for e in every if e[0] == name])
                    else (np.zeros(0, int),) * 3
                    for every in (reads, writes)
                ),
            )
        for name, warp, element, _ in writes:
            if name in self.writer:
                self.output(event.path, name, warp, element)

    def elements(self, event: Event, view: View) -> tuple[str, Any, Any, Any]:
        """Return the buffer, and each element's warp, address and place in the view."""
        there = event.state.valid(view, event.warps)
        index = event.state.places(view, event.warps)[there]
        warp, row, col = np.nonzero(there)
        return view.buffer.name, event.warps[warp], index, row * view.cols + col

    def sync(self, event: Event) -> None:
        """Count a barrier; the whole block has to reach a barrier of the block."""
        assert isinstance(event.step, Sync)
        self.any[event.warps] += 1
        if event.step.scope is Scope.BLOCK:
            if any(
                n != self.program.warps
                for n in Counter((event.warps // self.program.warps).tolist()).values()
            ):
                raise Broken(f"{event.path}: some warps alone reach a barrier")
            self.block[event.warps] += 1

    def output(self, path: str, name: str, warp: Any, element: Any) -> None:
        """Note who writes; a second one is refused."""
        before = self.writer[name][element]
        self.writer[name][element] = warp
        if ((before != NEVER) & (before != warp)).any() or (
            self.writer[name][element] != warp
        ).any():
            raise Broken(f"{path}: two warps write {name}")

    def shared(self, path: str, name: str, by_lanes: bool, reads: Any, writes: Any) -> None:
        """Raise an error for races and unwritten reads in shared memory; each is (E,) x 3."""
        buffer = self.program.buffer(name)
        count = self.program.warps if buffer.space is Space.SHARED else 1
        owner = [warp // count for warp, _, _ in (reads, writes)]
        if not self.written[name][owner[0], reads[1]].all():
            raise Broken(f"{path}: reads {name} before it is written")
        last = self.last[name]
        for kinds, (warp, element, _) in (((1,), reads), ((0, 1), writes)):
            for kind in kinds:
                if (last[kind, 0, warp, element] == self.any[warp]).any():
                    raise Broken(f"{path}: no barrier of the warp on {name}")
                for turn in range(1, count):
                    other = warp - warp % count + (warp % count + turn) % count
                    if (last[kind, 1, other, element] == self.block[warp]).any():
                        raise Broken(f"{path}: no barrier of the block on {name}")
        # Within the step: by element, the warp and lane that write it are one, and they read it.
        size = self.written[name].shape[1]
        keys = owner[1] * size + writes[1]
        # The lanes of a Store may write one element, if it is the same in all.
        twice = keys if by_lanes else np.unique(np.stack((keys, writes[0])), axis=1)[0]
        if np.unique(twice).size < twice.size:
            raise Broken(f"{path}: writes {name} twice")
        if keys.size and reads[0].size:
            order = np.argsort(keys)
            read = owner[0] * size + reads[1]
            at = np.minimum(np.searchsorted(keys, read, sorter=order), keys.size - 1)
            same = order[at]
            hit = keys[same] == read
            unlike = (writes[0][same] != reads[0]) | (writes[2][same] != reads[2])
            if (hit & unlike).any():
                raise Broken(f"{path}: reads {name} for another element than it writes")
        for kind, (warp, element, _) in enumerate((reads, writes)):
            last[kind, 0, warp, element] = self.any[warp]
            last[kind, 1, warp, element] = self.block[warp]
        self.written[name][owner[1], writes[1]] = True

    def require_all(self) -> None:
        """Refuse elements of outputs that nobody wrote, if there is no other way not to."""
        for buffer in self.program.outputs if self.warps else ():
            gathered = any(
                view.ranges is not None and view.buffer.name == buffer.name
                for _, step in walk(self.program.steps)
                for view in accesses(step).views_written
            )
            if buffer.partial or (gathered and buffer.size.per > 1):
                continue
            if (self.writer[buffer.name] == NEVER).any():
                raise Broken(f"nobody writes all of {buffer.name}")


# --- Sizes and inputs ---------------------------------------------------------------------------


def numbers_in(program: Program) -> set[int]:
    """Return all constants of a program: of conditions, addresses, counts and sizes."""
    indices: list[Index] = [program.blocks.index]
    numbers = {program.blocks.per}
    for _, step in walk(program.steps):
        bounds = step.bounds if isinstance(step, When) else ()
        for view in accesses(step).views:
            indices.append(view.address)
            bounds += view.bounds
        for bound in bounds:
            indices += [bound.lhs, bound.rhs, bound.excess]
        for name in ("first", "count"):
            value = getattr(step, name, None)
            if value is not None:
                indices.append(getattr(value, "index", value))
    for index in indices:
        numbers |= {abs(index.const), *(abs(factor) for _, factor in index.terms)}
    return numbers


def sizes_for(
    program: Program, original: Program, rng: np.random.Generator, most: int
) -> Iterator[int]:
    """Yield lengths: of few blocks, and about each constant that the original program lacks."""
    per = original.blocks.per
    new = sorted(numbers_in(program) - numbers_in(original))
    some = [1, per, 3 * per + 5, 2 * per - 1, 5 * per - per // 2]
    around = [n + more for n in new for more in (0, 1, -1)]
    around += [n * per + more for n in new if n < 64 for more in (1, per + 1, 0)]
    around += [int(n) for n in rng.integers(1, 4 * per + 2, 4)]
    rng.shuffle(around)
    yield from itertools.islice(dict.fromkeys([*some[:3], *around, *some[3:]]), most)


def inputs_for(program: Program, length: int, rng: np.random.Generator) -> dict[str, Any]:
    """Return inputs of 1, and offsets of segments; some are empty."""
    made: dict[str, Any] = {}
    length = max(1, length)
    for scalar in program.scalars:
        length += -length % scalar.multiple_of
    segments = max(1, int(rng.integers(1, 2 + length // int(rng.integers(1, 30)))))
    for buffer in program.inputs:
        if buffer.dtype == "s64":
            cuts = np.sort(rng.integers(0, length + 1, segments - 1))
            made[buffer.name] = np.concatenate(([0], cuts, [length])).astype(np.int64)
        else:
            size = buffer.size.evaluate({"length": length, "segments": segments})
            made[buffer.name] = np.ones(size, format_of(buffer.dtype).dtype)
    bind_scalars(program, {name: array.size for name, array in made.items()})
    return made


def fault_of(
    program: Program, original: Program, rng: np.random.Generator, most: int = 9
) -> str | None:
    """Return the fault of a run, or None if no run of some sizes has one.

    Inputs are 1, so that NaN comes of unwritten memory alone; in one run some of them are infinite,
    so that branches on data are taken.
    """
    for number, length in enumerate(sizes_for(program, original, rng, most)):
        inputs = inputs_for(original, length, rng)
        if sum(array.size for array in inputs.values()) > MOST_ELEMENTS:
            continue
        infinite = number % 3 == 2
        for array in inputs.values() if infinite else ():
            if array.dtype.kind == "f":
                array[rng.random(array.size) < 0.01] = np.inf
        state = State(program, inputs, "hopper", check=False)
        try:
            recorder = Recorder(state)
            for event in state.run(1024):
                recorder(event)
            recorder.require_all()
        except (Broken, VerifyError, KeyError, IndexError) as error:
            return f"length {length}: {type(error).__name__}: {error}"
        except MemoryError:
            continue
        for buffer in program.outputs if not infinite else ():
            values = np.asarray(state.outputs()[buffer.name], np.float64)
            if not buffer.partial and np.isnan(values).any():
                return f"length {length}: NaN in {buffer.name}"
    return None
