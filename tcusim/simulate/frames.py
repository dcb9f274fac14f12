"""Turn the interpreter's events into frames: one step of one warp, with the tiles it touches."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import InputError
from tcusim.machine import Values, as_values, format_of, from_values
from tcusim.machine.formats import unwritten_values
from tcusim.program.bind import bind_scalars, offsets_of
from tcusim.program.grammar import (
    Add,
    Buffer,
    Copy,
    Frag,
    Index,
    Locate,
    Mma,
    Program,
    Ranges,
    Space,
    Step,
    Sync,
    View,
    accesses,
)
from tcusim.program.printer import line
from tcusim.program.walk import Ints, Mask
from tcusim.simulate.interpreter import Event, State, interpret

__all__ = ["Frame", "Tile", "default_inputs", "frames"]

# Elements' numbers in their buffer, and where the bounds of a view hold.
_Where: TypeAlias = tuple[Ints, Mask]

# float16 holds every whole number up to this one.
_EXACT_IN_F16 = 2048

IN_FLIGHT = "written, seen after the next sync"


@dataclass(frozen=True, slots=True)
class Tile:
    """A fragment or a rectangle of memory, as one warp sees it at one step.

    label: the fragment's name, or the place in memory, such as ``in[512 … +256]``: 256 elements.
    part: what it is to the step: a, b, c, d, src, dst or plus. dtype: element type, such as "f16".
    where: the fragment's role, or the space of the memory: warp, shared or global.
    values: (rows, cols), before the step if it is read, after the step if it is written.
    before: what a written tile held before; NaN (or the lowest integer) where nothing was written.
    places: the elements' numbers in their buffer; None for a fragment.
    inside: where the bounds hold; elsewhere elements are read as 0 and not written.
    note: what else there is to say, such as that a write is in flight.
    """

    label: str
    part: str
    dtype: str
    where: str
    values: Values
    before: Values | None
    places: Ints | None
    inside: Mask
    note: str = ""

    @property
    def changed(self) -> Mask:
        """Where the step changed a value; nowhere in a tile that is only read."""
        if self.before is None:
            return np.zeros(self.values.shape, bool)
        same = self.before == self.values
        if format_of(self.dtype).is_float:
            same |= np.isnan(self.before) & np.isnan(self.values)
        return np.asarray(self.inside & ~same)


@dataclass(frozen=True, slots=True)
class Frame:
    """One step of one warp.

    number: counts the steps that the warp has run, from 1. path: where the step stands in the
    program, such as "7.2". line: its line in the listing. loops: the loop variables. warp: the
    warp's number in the grid. reads, writes: what the step touches, in the order of the grammar.
    """

    number: int
    path: str
    step: Step
    line: str
    loops: Mapping[str, int]
    warp: int
    reads: tuple[Tile, ...]
    writes: tuple[Tile, ...]


def frames(
    program: Program, inputs: Mapping[str, Any], arch: str = "hopper", warp: int = 0
) -> Iterator[Frame]:
    """Run a program as `tcusim.interpret` does; yield each step of one warp of the grid.

    Raises
    ------
    InputError
        If the inputs do not fit the program, or the grid has no such warp.

    Examples
    --------
    >>> import tcusim
    >>> program = tcusim.build("reduction_16")
    >>> for frame in frames(program, default_inputs(program)):
    ...     if frame.path == "4":
    ...         print(frame.line, "gives", frame.writes[0].values[0, :4])
    V ← P·A + V gives [73. 77. 81. 85.]
    """
    scalars = bind_scalars(program, {name: np.size(array) for name, array in inputs.items()})
    warps = program.grid(scalars) * program.warps
    if not 0 <= warp < warps:
        there = f"warps 0 to {warps - 1}" if warps else "no warps: the input is empty"
        raise InputError(f"{program.name}: there is no warp {warp}; the grid has {there}")
    watcher = None
    for event in interpret(program, inputs, arch=arch):
        if event.state.warps[0] > warp:
            return
        if warp in event.warps:
            watcher = watcher or _Watcher(event.state, warp)
            yield watcher.frame(event)


def default_inputs(program: Program, length: int | None = None) -> dict[str, NDArray[Any]]:
    """Return inputs that are easy to read, 1, 2, 3, ... again and again; by default for one block.

    They are so small, and where there are many so many of them 0, that float16 holds their sum
    exactly, and so every sum on the way. Segments by offsets are as many as half the ranges of a
    warp, each longer than the one before.
    """
    offsets = offsets_of(program)
    length = length or max(1, program.blocks.per // (2 if offsets else 1))
    scalars = {scalar.name: length for scalar in program.scalars}
    inputs = {}
    for name, step in offsets.items():
        segments = max(1, min(step.dst.count // 2, length))
        scalars.update(dict.fromkeys(step.segments.offsets.size.index.symbols, segments))
        squares = np.arange(segments + 1) ** 2
        inputs[name] = step.segments.last_offset(segments, length) * squares // segments**2
    for buffer in program.inputs:
        if buffer.name in offsets:
            continue
        size = buffer.size.evaluate(scalars)
        top = 9 if size * 5 <= _EXACT_IN_F16 else 3
        times = _EXACT_IN_F16 // (top * (top + 1) // 2)
        period = max(top, -(-size // times))
        numbers = np.arange(size) % period + 1
        numbers[numbers > top] = 0
        inputs[buffer.name] = from_values(as_values(numbers, buffer.dtype), buffer.dtype)
    return {buffer.name: inputs[buffer.name] for buffer in program.inputs}


class _Watcher:
    """Remembers what one warp held, so that a frame can tell before from after.

    frags, memory: what the warp saw after its last step; memory that nothing wrote is poisoned.
    in_flight: places in shared memory that the warp wrote since its last barrier.
    """

    def __init__(self, state: State, warp: int) -> None:
        self.state = state
        self.own = np.array([warp])
        self.number = 0
        self.frags: dict[str, Values] = {}
        program = state.program
        self.memory = {
            buffer.name: unwritten_values((buffer.size.evaluate(state.scalars),), buffer.dtype)
            for buffer in (*program.outputs, *program.scratch, *program.status)
        }
        self.in_flight: list[tuple[View, _Where]] = []

    def frame(self, event: Event) -> Frame:
        """Return the frame of a step that has just run, and remember its effects."""
        self.number += 1
        names = _PARTS.get(type(event.step), (("src",), ("dst",)))
        match event.step:
            case Sync():
                writes = self._arrivals()
            case Locate(ranges, segments):
                writes = iter((self._located(ranges, segments.offsets.dtype),))
            case _:
                writes = self._writes(event.step, itertools.cycle(names[1]))
        return Frame(
            number=self.number,
            path=event.path,
            step=event.step,
            line=line(event.step),
            loops=dict(event.loops),
            warp=int(self.own[0]),
            reads=tuple(self._reads(event.step, iter(names[0]))),
            writes=tuple(writes),
        )

    def _reads(self, step: Step, names: Iterator[str]) -> Iterator[Tile]:
        touched = accesses(step)
        for frag in touched.frags_read:
            yield _frag_tile(frag, next(names), self.frags[frag.name], None)
        views = touched.views_read
        if isinstance(step, Locate):
            views = (self._whole(step.segments.offsets),)
        for view in views:
            yield _view_tile(view, next(names), self._where(view), self._seen(view), None)

    def _writes(self, step: Step, names: Iterator[str]) -> Iterator[Tile]:
        touched = accesses(step)
        for frag in touched.frags_written:
            values = self.state.fragment(frag, self.own)[0].copy()
            before = self.frags.get(frag.name, unwritten_values(values.shape, frag.dtype))
            self.frags[frag.name] = values
            yield _frag_tile(frag, next(names), values, before)
        for view in touched.views_written:
            places, inside = where = self._where(view)
            before = values = _held(self.memory, view, where)
            note = ""
            if view.buffer.space is Space.GLOBAL:
                values = self._seen(view)
                self.memory[view.buffer.name][places[inside]] = values[inside]
            else:
                # Nobody sees it yet.
                note = IN_FLIGHT
                self.in_flight.append((view, where))
            yield _view_tile(view, next(names), where, values, before, note)

    def _located(self, ranges: Ranges, dtype: str) -> Tile:
        values = self.state.ranges(ranges, self.own)[0]
        inside = np.ones(values.shape, bool)
        return Tile(ranges.name, "dst", dtype, "begin, end", values, None, None, inside)

    def _arrivals(self) -> Iterator[Tile]:
        """Yield what a barrier lets the warp see: its own writes, then those of other warps."""
        old = dict(self.memory)
        whole = [self._whole(buffer) for buffer in self.state.program.scratch]
        for view in whole:
            self.memory[view.buffer.name] = self._seen(view)[0].copy()
        explained = {name: np.zeros(array.shape, bool) for name, array in old.items()}
        waiting, self.in_flight = self.in_flight, []
        for view, where in waiting:
            own = where[0][where[1]]
            if not explained[view.buffer.name][own].all():
                explained[view.buffer.name][own] = True
                before = _held(old, view, where)
                yield _view_tile(view, "dst", where, _held(self.memory, view, where), before)
        for view in whole:
            where, name = self._where(view), view.buffer.name
            tile = _view_tile(view, "dst", where, self.memory[name][None], old[name][None])
            if (tile.changed & ~explained[name]).any():
                yield tile

    def _whole(self, buffer: Buffer) -> View:
        """Return a buffer as one row."""
        size = buffer.size.evaluate(self.state.scalars)
        return View.strided(buffer, Index(), 1, size, size, 1)

    def _seen(self, view: View) -> Values:
        return np.asarray(self.state.read(view, self.own)[0])

    def _where(self, view: View) -> _Where:
        return self.state.places(view, self.own)[0], self.state.valid(view, self.own)[0]


# What a step reads and writes, in the order of `accesses`, where that is not called src and dst.
_PARTS: Final[dict[type, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    Mma: (("a", "b", "c"), ("d",)),
    Add: (("a", "b"), ("d",)),
    Copy: (("src", "plus"), ("dst",)),
}


def _held(memory: Mapping[str, Values], view: View, where: _Where) -> Values:
    """Return what memory held at these places; zeros where out of bounds."""
    places, inside = where
    array = memory[view.buffer.name]
    held: Values = np.where(inside, array[np.where(inside, places, 0)], array.dtype.type(0))
    return held


def _frag_tile(frag: Frag, part: str, values: Values, before: Values | None) -> Tile:
    inside = np.ones(values.shape, bool)
    return Tile(frag.name, part, frag.dtype, frag.role, values, before, None, inside)


def _view_tile(
    view: View, part: str, where: _Where, values: Values, before: Values | None, note: str = ""
) -> Tile:
    (places, inside), buffer = where, view.buffer
    label = f"{buffer.name}[{_range(places[inside])}]"
    held = values.copy()
    return Tile(label, part, buffer.dtype, buffer.space, held, before, places, inside, note)


def _range(places: Ints) -> str:
    """Return the range from the first to the last of some elements, as the listing writes it."""
    if not places.size:
        return "nothing"
    first, last = places.min(), places.max()
    return str(first) if first == last else f"{first} … +{last - first + 1}"
