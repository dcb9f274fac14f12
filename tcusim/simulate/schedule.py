"""Which warps run which steps, and in which order: the same in every run on inputs of these sizes.

The data decide only the branches that ask for them; see `Fork`. Where the elements lie that a step
touches is the same in every run, too, but for rows that `Locate` finds: a `Leaf` has room for it.
So a second run has only values to compute.
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

__all__ = ["Fork", "Leaf", "Prepared", "Schedule", "prepared", "warps_of"]

# Of so many programs with sizes is kept what runs have in common, if it is no more than so many
# steps of batches, with so many bytes of addresses.
_PROGRAMS: Final = 32
_STEPS: Final = 4096
_BYTES: Final = 2**20
# Of a branch that the data decide, as many ways of the warps through it.
_WAYS: Final = 4


class Leaf:
    """A step without steps inside it, for the warps that run it together.

    Attributes
    ----------
    path : str
        The number of the step in the listing.
    step : Step
        The step.
    places : array (W,) of int
        Of its warps in the batch.
    whole : bool
        Whether these are all warps of the batch.
    warps : array (W,) of int
        Their numbers in the grid.
    loops : mapping of str to int
        The loop variables. Leaves in the same round of all loops have the same mapping.
    found : dict of int to Elements
        The elements of the step's views as far as they are known, by identity: to hash a view takes
        longer.
    is_found_once : bool
        Whether they are the same whenever the leaf runs.
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
        """`batch` has the numbers of all of its warps; `keep`: it serves several runs."""
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
    """A branch that the data decide, for the warps that come to it together.

    holds : array (W,) of bool
        Where the bounds hold, which the data do not decide.
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
        """Return what the warps at these places run, of those that come here, in one branch."""
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
        The numbers of the warps in the grid.
    symbols : mapping of str to int or array
        The values of scalars and of places in the grid.
    is_kept : bool
        Whether it serves several runs.
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
        """The leaves, if they are kept and the data decide nothing; else none."""
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
        """Return the places of the warps in this round of the loops."""
        return Placement(self.warps.size, {**self.symbols, **loops})

    def expand(
        self, steps: Iterable[Numbered], places: Ints, loops: Mapping[str, int]
    ) -> Iterator[Leaf | Fork]:
        """Yield leaves and forks of steps, in the warps at these places."""
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
        """Keep the elements of a leaf's view, for later runs if they are the same and not many."""
        if leaf.is_found_once and (not self.is_kept or self._owner.has_room(elements.nbytes)):
            leaf.found[id(view)] = elements


def _leaves(steps: tuple[Step, ...], scalars: Mapping[str, int]) -> int:
    """Return how many leaves there may be in a batch, each branch taken."""
    count = 0
    for step in steps:
        match step:
            case Loop(_, times, body):
                count += max(0, times.evaluate(scalars)) * _leaves(body, scalars)
            case When(_, body, otherwise):
                count += _leaves(body, scalars) + _leaves(otherwise, scalars)
            case _:
                count += 1
    return count


class Prepared:
    """A program for inputs of these sizes: what all of its runs have in common.

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
        self._steps = _leaves(program.steps, self.scalars)
        self._schedules: dict[tuple[int, int], Schedule] = {}
        self._bytes = 0
        # The state before the first batch: no warps, no steps.
        self.idle = Schedule(self, (), np.arange(0))

    def fits(self, warps_at_once: int) -> bool:
        """Whether the whole grid is one batch of so many warps; see `State.batches`."""
        blocks = max(1, warps_at_once // self.program.warps)
        return 0 < self.grid <= blocks and not self.program.status

    @cached_property
    def single_batch(self) -> Ints:
        """The warps of the grid in ascending order."""
        return warps_of(self.program, np.arange(self.grid, dtype=np.int64))

    def schedule(self, warps: Ints, batches: int) -> Schedule:
        """Return what a batch of warps runs, which follow one another, of so many batches."""
        batch = int(warps[0]), warps.size
        found = self._schedules.get(batch)
        if found is None:
            keep = max(batches, len(self._schedules) + 1) * self._steps <= _STEPS
            found = Schedule(self, self.program.steps, warps, keep=keep)
            if keep:
                self._schedules[batch] = found
        return found

    def schedule_of(self, steps: tuple[Step, ...], warps: Ints) -> Schedule:
        """Return what a batch of warps runs of some steps, in this run alone."""
        return Schedule(self, steps, warps)

    def has_room(self, size: int) -> bool:
        """Take so many bytes for addresses, if there are as many left."""
        if self._bytes + size > _BYTES:
            return False
        self._bytes += size
        return True


def warps_of(program: Program, blocks: Ints) -> Ints:
    """Return the numbers, in the grid, of the warps of these blocks."""
    count = program.warps
    return (blocks[:, None] * count + np.arange(count)).ravel()


@lru_cache(maxsize=_PROGRAMS)
def prepared(program: Program, sizes: tuple[tuple[str, int], ...]) -> Prepared:
    """Return what all runs of a program on inputs of these sizes have in common.

    Raises
    ------
    InputError
        If the program cannot take inputs of these sizes.
    """
    return Prepared(program, dict(sizes))
