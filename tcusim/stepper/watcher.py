"""Watch one warp of the interpreter: the reads and writes of each step, and the previous values."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from tcusim.machine import Values
from tcusim.machine.formats import unwritten_values
from tcusim.program.grammar import (
    Accesses,
    Add,
    Assign,
    Buffer,
    Frag,
    Index,
    Locate,
    Mma,
    Prefix,
    Ranges,
    Scope,
    Space,
    Step,
    Sync,
    View,
    accesses,
)
from tcusim.program.printer import line
from tcusim.program.walk import Ints, Mask
from tcusim.simulate.interpreter import Event, State, everywhere
from tcusim.stepper.frames import IN_FLIGHT
from tcusim.stepper.store import FrameStore

# Elements' indices in their buffer, and the mask of a view's bounds.
_Where: TypeAlias = tuple[Ints, Mask]

# Operand names in the order of `accesses`, for steps with operands other than src and dst.
_PARTS: Final[dict[type, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    Mma: (("a", "b", "c"), ("d",)),
    Add: (("a", "b"), ("d",)),
    Prefix: (("src",), ("dst", "totals")),
}
_OTHERS: Final = ("src",), ("dst",)


def _numbered(name: str, count: int) -> tuple[str, ...]:
    return (name, *(f"{name} {number}" for number in range(2, count + 1)))


def _parts_of(step: Step) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the operands that a step reads and writes."""
    if isinstance(step, Assign):
        touched = accesses(step)
        reads, writes = len(touched.views_read), len(touched.views_written)
        return _numbered("src", reads), _numbered("dst", writes)
    return _PARTS.get(type(step), _OTHERS)


class WarpWatcher:
    """Tracks the state of one warp, so that a frame can show values before and after.

    store: receives the tiles of each step.

    frags, memory: the state visible to the warp after its last step; unwritten memory is poisoned.
    in_flight: addresses in shared memory written by the warp since its last barrier, and their
    previous values, if requested. outputs: memory of the grid, possibly shared with watchers of
    other warps.
    """

    def __init__(
        self,
        state: State,
        warp: int,
        store: FrameStore,
        outputs: dict[str, Values],
    ) -> None:
        self.state = state
        self.warp = warp
        self.store = store
        self.own = np.array([warp])
        self.number = 0
        self.frags: dict[str, Values] = {}
        self.memory = dict(outputs)
        for buffer in state.program.scratch:
            size = buffer.size.evaluate(state.scalars)
            self.memory[buffer.name] = unwritten_values((size,), buffer.dtype)
        self.in_flight: list[tuple[View, _Where, Values | None]] = []
        # By path: the text, the accesses and the parts of a step, cached since they cost as much as
        # a run.
        self._steps: dict[str, _Known] = {}

    def skip(self, event: Event) -> None:
        """Count a step that needs no frame; before the next that does, `catch_up`."""
        self.number += 1
        if isinstance(event.step, Sync):
            self.in_flight = []
        else:
            views = self.known(event).touched.views_written
            shared = [view for view in views if view.buffer.space is not Space.GLOBAL]
            self.in_flight += [(view, self.state.where(view, self.own), None) for view in shared]

    def catch_up(self) -> None:
        """Record the current state of the warp."""
        frags, shared = self.state.held(self.warp)
        self.frags = {name: self.store.keep(values) for name, values in frags.items()}
        self.memory |= {name: values.copy() for name, values in shared.items()}
        program = self.state.program
        for buffer in (*program.outputs, *program.status):
            self.memory[buffer.name][...] = self.state.memory[buffer.name]

    def tiles(self, event: Event) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the reads and writes of the step that has just run, and record its effects."""
        self.number += 1
        known = self.known(event)
        # The reads show the previous values.
        reads = tuple(self._reads(event.step, known))
        match event.step:
            case Sync(scope=scope):
                writes = self._arrivals(scope)
            case Locate(ranges, segments):
                writes = iter((self._located(ranges, segments.offsets.dtype),))
            case _:
                writes = self._writes(known)
        return reads, tuple(writes)

    def known(self, event: Event) -> _Known:
        """Return the parts of a step that are equal in all of its runs."""
        found = self._steps.get(event.path)
        if found is None:
            step = event.step
            parts = _parts_of(step)
            kind = type(step).__name__.lower()
            found = _Known(line(step), kind, accesses(step), *parts)
            self._steps[event.path] = found
        return found

    def _reads(self, step: Step, known: _Known) -> Iterator[int]:
        names = iter(known.reads)
        for frag in known.touched.frags_read:
            yield self._fragment(frag, next(names), self.frags[frag.name], None)
        views = known.touched.views_read
        if isinstance(step, Locate):
            views = (self._whole(step.segments.offsets),)
        for view in views:
            values, places, inside = self.state.look(view, self.own)
            yield self.store.memory(view, next(names), (places, inside), values, None)

    def _writes(self, known: _Known) -> Iterator[int]:
        names = itertools.cycle(known.writes)
        for frag in known.touched.frags_written:
            values = self.store.keep(self.state.tile(frag, self.warp))
            before = self.frags.get(frag.name)
            if before is None:
                before = unwritten_values(values.shape, frag.dtype)
            self.frags[frag.name] = values
            yield self._fragment(frag, next(names), values, before)
        for view in known.touched.views_written:
            if view.buffer.space is Space.GLOBAL:
                values, places, inside = self.state.look(view, self.own)
                where = places, inside
                before = _held(self.memory, view, where)
                _put(self.memory, view, where, values)
                yield self.store.memory(view, next(names), where, values, before)
            else:
                # It is not visible yet.
                where = self.state.where(view, self.own)
                before = self.store.keep(_held(self.memory, view, where))
                self.in_flight.append((view, where, before))
                yield self.store.memory(view, next(names), where, before, before, IN_FLIGHT)

    def _located(self, ranges: Ranges, dtype: str) -> int:
        values = self.state.ranges(ranges, self.own)[0]
        return self.store.fragment(ranges.name, "dst", dtype, "begin, end", values, None)

    def _arrivals(self, scope: Scope) -> Iterator[int]:
        """Yield the writes that a barrier makes visible: the warp's own, then other warps'."""
        waiting, self.in_flight = self.in_flight, []
        # Only a block barrier makes other warps' writes visible.
        others = self.state.program.warps > 1 and scope is Scope.BLOCK
        if not waiting and not others:
            return
        now = self.state.shared(self.warp)
        shown: dict[str, list[Ints]] = {}
        written = []
        for view, where, before in waiting:
            name, own = view.buffer.name, where[0][where[1]]
            if own.size and not _covered(own, shown.setdefault(name, [])):
                shown[name].append(own)
                old = _held(self.memory, view, where) if before is None else before
                written.append((view, where, _held(now, view, where), old))
        for view, where, values, before in written:
            yield self.store.memory(view, "dst", where, values, before)
        shared = self._shared() if others else {}
        if others:
            self.memory |= {name: values.copy() for name, values in shared.items()}
        for view, where, values, _ in written:
            _put(self.memory, view, where, values)
        for buffer in self.state.program.scratch:
            name = buffer.name
            if name in shared and self.memory[name].tobytes() != now[name].tobytes():
                self.memory[name] = now[name].copy()
                places = np.arange(now[name].size)[None]
                where = places, everywhere(places.shape)
                values, before = self.memory[name][None], shared[name][None]
                yield self.store.memory(self._whole(buffer), "dst", where, values, before)

    def _shared(self) -> dict[str, Values]:
        """Return the warp's last view of its block's shared memory."""
        buffers = self.state.program.scratch
        return {one.name: self.memory[one.name] for one in buffers if one.space is Space.SHARED}

    def _fragment(self, frag: Frag, part: str, values: Values, before: Values | None) -> int:
        return self.store.fragment(frag.name, part, frag.dtype, frag.role, values, before)

    def _whole(self, buffer: Buffer) -> View:
        """Return a buffer as one row."""
        size = buffer.size.evaluate(self.state.scalars)
        return View.strided(buffer, Index(), 1, size, size, 1)


@dataclass(frozen=True, slots=True)
class _Known:
    """A step's text and kind, its accesses, and their operand names."""

    text: str
    kind: str
    touched: Accesses
    reads: tuple[str, ...]
    writes: tuple[str, ...]


def unwritten_outputs(state: State) -> dict[str, Values]:
    """Return the outputs and status words of a grid before it runs."""
    program = state.program
    return {
        buffer.name: unwritten_values((buffer.size.evaluate(state.scalars),), buffer.dtype)
        for buffer in (*program.outputs, *program.status)
    }


def _covered(places: Ints, shown: Iterable[Ints]) -> bool:
    """Return whether all of these places have been shown."""
    found = list(shown)
    return bool(found) and bool(np.isin(places, np.concatenate(found, axis=None)).all())


def _held(memory: Mapping[str, Values], view: View, where: _Where) -> Values:
    """Return the previous values at these places; zeros if out of bounds."""
    places, inside = where
    array = memory[view.buffer.name]
    if inside is everywhere(places.shape):
        return np.asarray(array[places])
    held: Values = np.where(inside, array[np.where(inside, places, 0)], array.dtype.type(0))
    return held


def _put(memory: Mapping[str, Values], view: View, where: _Where, values: Values) -> None:
    """Write values to the in-bounds places."""
    places, inside = where
    if inside is everywhere(places.shape):
        memory[view.buffer.name][places] = values
    else:
        memory[view.buffer.name][places[inside]] = values[inside]
