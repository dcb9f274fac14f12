"""Events of a recorded run on a backend, for the watchers of the interpreter.

Step results come from the record, and rectangle addresses from the program. The same code thus
makes the traces of a GPU and of the simulator, with the same frames in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import numpy as np

from tcusim.backends import Tapped, TappedStep
from tcusim.errors import AgreementError
from tcusim.machine import Values
from tcusim.program.grammar import Await, Locate, Program, Publish, Scope, Space, Sync, accesses
from tcusim.program.walk import Ints, Mask
from tcusim.simulate.interpreter import Event, State
from tcusim.simulate.schedule import Fork, Leaf


class Replay(State):
    """The state of recorded warps only, updated by steps from the records.

    Other warps' writes to shared memory are visible from the next barrier on, as recorded.
    """

    def __init__(
        self, program: Program, inputs: Mapping[str, Any], arch: str, tapped: Tapped, place: str
    ) -> None:
        """`place` names the runner in messages; the other parameters are as for `interpret`."""
        super().__init__(program, inputs, arch)
        self.records_writers = False
        self._where = place
        self._shared_buffers = [one for one in program.scratch if one.space is Space.SHARED]
        self._replays = False
        # The interpreter's batches determine its order of the steps of several warps.
        self._batches = self.batches()
        self._replays = True
        self._rest = {warp: iter(steps) for warp, steps in tapped.steps.items()}
        self._next = {warp: next(rest, None) for warp, rest in self._rest.items()}
        self._before = dict.fromkeys(self._next, "the start")
        # Warps with truncated records.
        self._cut = {
            warp: tapped.ran[warp] > sum(one.taken is None for one in steps)
            for warp, steps in tapped.steps.items()
        }
        self._now: dict[int, TappedStep] = {}

    def events(self) -> Iterator[Event]:
        """Yield the recorded steps, in the interpreter's order.

        Raises
        ------
        AgreementError
            If a warp ran other steps than the program's.
        """
        chosen = np.array(sorted(self._next), np.int64)
        for blocks in self._batches:
            here = chosen[np.isin(chosen // self.program.warps, blocks)]
            if here.size:
                self._begin(self._prepared.schedule_of(self.program.steps, here))
                yield from self._events()
        for warp, record in self._next.items():
            if record is not None:
                self._refuse_order(warp, f"went on with step {record.path}", "ends")

    def _events(self) -> Iterator[Event]:
        for leaf in self._leaves():
            path, step, loops = leaf.path, leaf.step, leaf.loops
            there = np.array([one for one in leaf.places if self._takes(path, loops, one)], int)
            if there.size:
                self._step(Leaf(path, step, there, self.warps, loops))
                yield Event(path, step, loops, self.warps[there], self)

    # --- Records -----------------------------------------------------------------------------

    def _takes(self, path: str, loops: Mapping[str, int], place: int) -> bool:
        """Take the record of a step, in the warp at a position; return whether it has one."""
        warp = int(self.warps[place])
        record = self._next[warp]
        if record is None and self._cut[warp]:
            return False
        if record is None or record.path != path:
            done = "ended" if record is None else f"went on with step {record.path}"
            where = "".join(f", {name} = {value}" for name, value in loops.items())
            self._refuse_order(warp, done, f"goes on with step {path}{where}")
        self._now[warp] = record
        self._next[warp] = next(self._rest[warp], None)
        self._before[warp] = f"step {path}"
        return True

    def _refuse_order(self, warp: int, done: str, expected: str) -> NoReturn:
        raise AgreementError(
            f"{self.program.name}: after {self._before[warp]}, warp {warp} {done} on "
            f"{self._where}, and the program {expected}; the kernel does not do what the program "
            f"says"
        )

    def _left(self, number: int, places: Ints) -> Values:
        """Return tile `number` of the step's results in the warps at these positions."""
        return np.stack([self._now[warp].tiles[number] for warp in self.warps[places].tolist()])

    # --- In place of the interpreter ---------------------------------------------------------

    def _places(self, warps: Ints | None) -> Ints:
        return np.arange(self.warps.size) if warps is None else np.searchsorted(self.warps, warps)

    def _place(self, warp: int) -> int:
        return int(np.searchsorted(self.warps, warp))

    def _taken(self, fork: Fork) -> Mask:
        if not self._replays:
            return super()._taken(fork)
        there = [self._takes(fork.path, {}, place) for place in fork.places]
        return np.array(
            [
                found and bool(self._now[int(self.warps[place])].taken)
                for place, found in zip(fork.places, there, strict=True)
            ]
        )

    def _step(self, leaf: Leaf) -> None:
        """Apply the recorded results of a step."""
        self._leaf, places = leaf, leaf.places
        match step := leaf.step:
            case Sync(scope):
                self._sync(scope)
            case Locate(ranges):
                found = self._left(0, places)
                self._put_ranges(ranges, (found[:, 0], found[:, 1]))
            case Publish(view):
                self._elements(view).put(self.memory[view.buffer.name], self._left(0, places))
            case _:
                touched = accesses(step)
                if isinstance(step, Await):
                    # The awaited values are the recorded ones.
                    awaited = self.memory[step.src.buffer.name]
                    self._elements(step.src).put(awaited, self._left(0, places))
                for number, frag in enumerate(touched.frags_written):
                    self._put(frag, self._left(number, places))
                for number, view in enumerate(touched.views_written):
                    self._scatter(view, self._left(number, places))

    def _sync(self, scope: Scope) -> None:
        super()._sync(Scope.WARP)
        self._unshared = []
        if scope is Scope.BLOCK:
            places = self._leaf.places
            for number, buffer in enumerate(self._shared_buffers):
                self._shared[buffer.name][places] = self._left(number, places)[:, 0]
