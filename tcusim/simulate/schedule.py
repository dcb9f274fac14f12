"""The execution order of steps and their warps, equal in every run on inputs of these sizes.

Only branches on data depend on the values; see `Fork`. The addresses that a step touches are also
equal in every run, except for rows that `Locate` finds; a `Leaf` caches them. A second run computes
only values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Final

import numpy as np

from tcusim.program.bind import bind_scalars
from tcusim.program.grammar import (
    Loop,
    Numbered,
    Program,
    Scope,
    Step,
    Sync,
    View,
    When,
    accesses,
    branch_of,
    numbered,
)
from tcusim.program.walk import Ints, Placement
from tcusim.simulate.windows import Elements

# Limits of the cache of prepared programs: programs with sizes, steps of batches, and bytes of
# addresses.
_PROGRAMS: Final = 32
_STEPS: Final = 4096
_BYTES: Final = 2**20
# Maximum number of cached paths of the warps through a branch on data.
_WAYS: Final = 4


class Leaf:
    """A step without nested steps, for the warps that run it together.

    Attributes
    ----------
    path : str
        The path of the step in the listing.
    step : Step
        The step.
    places : array (W,) of int
        Positions of its warps in the batch.
    whole : bool
        Whether these are all warps of the batch.
    warps : array (W,) of int
        Their indices in the grid.
    loops : mapping of str to int
        The loop variables. Leaves in the same iteration of all loops share the mapping.
    found : dict of int to Elements
        Known elements of the step's views, keyed by identity, which is faster than hashing a view.
    is_found_once : bool
        Whether they are equal in all runs of the leaf.
    """

    __slots__ = ("found", "is_found_once", "loops", "path", "places", "step", "warps", "whole")

    def __init__(
        self,
        path: str,
        step: Step,
        places: Ints,
        batch: Ints,
        loops: Mapping[str, int],
        *,
        keep: bool = False,
    ) -> None:
        """`batch` has the indices of all of its warps; `keep`: several runs use the leaf."""
        self.path = path
        self.step = step
        self.places = places
        self.whole = places.size == batch.size
        self.warps = batch if self.whole else batch[places]
        self.loops = loops
        # A leaf of one run runs once.
        gathered = keep and any(view.ranges is not None for view in accesses(step).views)
        self.is_found_once = not gathered
        self.found: dict[int, Elements] = {}


class Fork(Leaf):
    """A branch on data, for the warps that reach it together.

    holds : array (W,) of bool
        Mask of the bounds, which do not depend on data.
    """

    __slots__ = ("_schedule", "_ways", "holds")

    def __init__(
        self,
        path: str,
        step: When,
        places: Ints,
        schedule: Schedule,
        loops: Mapping[str, int],
    ) -> None:
        super().__init__(path, step, places, schedule.warps, loops, keep=schedule.is_kept)
        self.holds = schedule.placement(loops).holds(step.bounds, places)
        self._schedule = schedule
        self._ways: dict[tuple[bool, bytes], list[Leaf | Fork]] = {}

    def branch(self, places: Ints, *, taken: bool) -> Iterable[Leaf | Fork]:
        """Return the leaves of the warps at these positions in one branch."""
        assert isinstance(self.step, When)
        inside = branch_of(self.path, self.step, taken=taken)
        nodes = self._schedule.expand(inside, places, self.loops)
        if not self._schedule.is_kept:
            return nodes
        way = taken, places.tobytes()
        known = self._ways.get(way)
        if known is None:
            known = list(nodes)
            if len(self._ways) >= _WAYS:
                self._ways.clear()
            self._ways[way] = known
        return known


class Schedule:
    """The leaves of some steps in a batch of warps.

    Attributes
    ----------
    warps : array of int
        The indices of the warps in the grid.
    symbols : mapping of str to int or array
        The values of scalars and of grid indices.
    is_kept : bool
        Whether several runs use it.
    """

    def __init__(
        self, owner: Prepared, steps: tuple[Step, ...], warps: Ints, *, keep: bool = False
    ) -> None:
        self.warps = warps
        self.symbols = Placement.of_warps(owner.program, owner.scalars, warps).symbols
        self.is_kept = keep
        self._owner = owner
        self._steps = steps
        # Before the first step: nothing runs.
        self.start = Leaf("", Sync(Scope.WARP), np.arange(warps.size), warps, {})

    @cached_property
    def leaves(self) -> list[Leaf]:
        """The leaves, if they are cached and independent of data; else empty."""
        leaves = self._kept if self.is_kept else []
        return [] if any(isinstance(node, Fork) for node in leaves) else list(leaves)

    def nodes(self) -> Iterable[Leaf | Fork]:
        """Return the leaves and forks of all steps, in order."""
        return self._kept if self.is_kept else self._expanded()

    @cached_property
    def _kept(self) -> list[Leaf | Fork]:
        return list(self._expanded())

    def _expanded(self) -> Iterator[Leaf | Fork]:
        return self.expand(numbered(self._steps), np.arange(self.warps.size), {})

    def placement(self, loops: Mapping[str, int]) -> Placement:
        """Return the placement of the warps in this iteration of the loops."""
        return Placement(self.warps.size, {**self.symbols, **loops})

    def expand(
        self, steps: Iterable[Numbered], places: Ints, loops: Mapping[str, int]
    ) -> Iterator[Leaf | Fork]:
        """Yield leaves and forks of steps, in the warps at these positions."""
        for path, step in steps:
            match step:
                case Loop(var, count):
                    for value in range(count.evaluate(self._owner.scalars)):
                        inner = {**loops, var: value}
                        yield from self.expand(branch_of(path, step), places, inner)
                case When() if step.on_data:
                    yield Fork(path, step, places, self, loops)
                case When():
                    holds = self.placement(loops).holds(step.bounds, places)
                    for taken, there in ((True, places[holds]), (False, places[~holds])):
                        if there.size:
                            inside = branch_of(path, step, taken=taken)
                            yield from self.expand(inside, there, loops)
                case _:
                    yield Leaf(path, step, places, self.warps, loops, keep=self.is_kept)

    def keep(self, leaf: Leaf, view: View, elements: Elements) -> None:
        """Cache the elements of a leaf's view, for later runs if they are equal and few."""
        if leaf.is_found_once and (not self.is_kept or self._owner.has_room(elements.nbytes)):
            leaf.found[id(view)] = elements


def steps_to_run(steps: tuple[Step, ...], scalars: Mapping[str, int]) -> int:
    """Return the maximum number of leaves in a batch, with all branches taken."""
    count = 0
    for step in steps:
        match step:
            case Loop(_, times, body):
                count += max(0, times.evaluate(scalars)) * steps_to_run(body, scalars)
            case When(_, body, otherwise):
                count += steps_to_run(body, scalars) + steps_to_run(otherwise, scalars)
            case _:
                count += 1
    return count


class Prepared:
    """A program for inputs of these sizes: the data common to all of its runs.

    Attributes
    ----------
    program : Program
        The program.
    scalars : mapping of str to int
        Its scalars.
    grid : int
        The number of blocks.
    sizes : mapping of str to int
        The elements of each buffer.
    """

    def __init__(self, program: Program, sizes: Mapping[str, int]) -> None:
        self.program = program
        self.scalars = bind_scalars(program, sizes)
        self.grid = program.grid(self.scalars)
        self.sizes = {one.name: one.size.evaluate(self.scalars) for one in program.buffers}
        self._steps = steps_to_run(program.steps, self.scalars)
        self._schedules: dict[tuple[int, int], Schedule] = {}
        self._bytes = 0
        # The state before the first batch: no warps, no steps.
        self.idle = Schedule(self, (), np.arange(0))

    def blocks_at_once(self, warps_at_once: int) -> int:
        """Return the blocks of a batch of about this many warps."""
        return max(1, warps_at_once // self.program.warps)

    def fits(self, warps_at_once: int) -> bool:
        """Whether the whole grid is one batch of so many warps; see `State.batches`."""
        in_one = 0 < self.grid <= self.blocks_at_once(warps_at_once)
        return in_one and not self.program.status

    @cached_property
    def single_batch(self) -> Ints:
        """The warps of the grid in ascending order."""
        return warps_of(self.program, np.arange(self.grid, dtype=np.int64))

    def schedule(self, warps: Ints, batches: int) -> Schedule:
        """Return the schedule of a batch of consecutive warps; `batches` is their number."""
        batch = int(warps[0]), warps.size
        found = self._schedules.get(batch)
        if found is None:
            keep = max(batches, len(self._schedules) + 1) * self._steps <= _STEPS
            found = Schedule(self, self.program.steps, warps, keep=keep)
            if keep:
                self._schedules[batch] = found
        return found

    def schedule_of(self, steps: tuple[Step, ...], warps: Ints) -> Schedule:
        """Return the schedule of some steps for a batch of warps, for this run only."""
        return Schedule(self, steps, warps)

    def has_room(self, size: int) -> bool:
        """Reserve `size` bytes for addresses, if available."""
        if self._bytes + size > _BYTES:
            return False
        self._bytes += size
        return True


def warps_of(program: Program, blocks: Ints) -> Ints:
    """Return the indices in the grid of the warps of these blocks."""
    count = program.warps
    return (blocks[:, None] * count + np.arange(count)).ravel()


@lru_cache(maxsize=_PROGRAMS)
def prepared(program: Program, sizes: tuple[tuple[str, int], ...]) -> Prepared:
    """Return the data common to all runs of a program on inputs of these sizes.

    Raises
    ------
    InputError
        If the program cannot take inputs of these sizes.
    """
    return Prepared(program, dict(sizes))
