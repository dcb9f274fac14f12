"""Turn the interpreter's events into frames: one step of one warp, with the tiles it touches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, assert_never

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import InputError
from tcusim.machine import Values, as_values, format_of, from_values
from tcusim.machine.formats import unwritten_values
from tcusim.program.bind import bind_scalars, offsets_of
from tcusim.program.grammar import (
    Add,
    Await,
    Buffer,
    Const,
    Copy,
    Frag,
    Index,
    Load,
    Locate,
    Loop,
    Mma,
    Program,
    Publish,
    Space,
    Split,
    Step,
    Store,
    Sync,
    View,
    When,
    accesses,
)
from tcusim.program.printer import line
from tcusim.simulate.interpreter import Event, State, interpret

__all__ = ["Frame", "Tile", "default_inputs", "frames"]

Ints: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]

# float16 holds every whole number up to this one.
_EXACT_IN_F16 = 2048

IN_FLIGHT = "written, seen after the next sync"


@dataclass(frozen=True, slots=True)
class Tile:
    """A fragment or a rectangle of memory, as one warp sees it at one step.

    Attributes
    ----------
    label : str
        The fragment's name, or the place in memory, such as ``in[512 … +256]``: 256 elements.
    part : str
        What it is to the step: a, b, c, d, src, dst or plus.
    dtype : str
        Element type, such as ``"f16"``.
    where : str
        The fragment's role, or the space of the memory: warp, shared or global.
    values : array (rows, cols)
        What it holds: before the step if it is read, after the step if it is written.
    before : array (rows, cols), optional
        What a written tile held before; NaN (or the lowest integer) where nothing was written.
    places : array (rows, cols) of int, optional
        The elements' numbers in their buffer; None for a fragment.
    inside : array (rows, cols) of bool
        Where the bounds hold; elsewhere elements are read as 0 and not written.
    note : str
        What else there is to say, such as that a write is in flight.
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
        old, new = self.before, self.values
        same = old == new
        if format_of(self.dtype).is_float:
            same |= np.isnan(old) & np.isnan(new)
        return np.asarray(self.inside & ~same)


@dataclass(frozen=True, slots=True)
class Frame:
    """One step of one warp.

    Attributes
    ----------
    number : int
        Counts the steps that the warp has run, from 1.
    path : str
        Where the step stands in the program, such as ``"7.2"``.
    step : Step
        The step.
    line : str
        Its line in the listing.
    loops : mapping of str to int
        The loop variables.
    warp : int
        The warp's number in the grid.
    reads, writes : tuple of Tile
        What the step touches, in the order of the grammar.
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
    """Run a program and yield each step of one warp.

    Parameters
    ----------
    program : Program
        The program.
    inputs : mapping of str to array
        One flat array for each of the program's inputs, as for `tcusim.interpret`.
    arch : str
        Whose arithmetic.
    warp : int
        The warp to watch, counted over the whole grid.

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
    watcher = _Watcher(warp)
    for event in interpret(program, inputs, arch=arch):
        if event.state.warps[0] > warp:
            return
        if warp in event.warps:
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

    def __init__(self, warp: int) -> None:
        self.warp = warp
        self.number = 0
        self.frags: dict[str, Values] = {}
        self.memory: dict[str, Values] = {}
        self.in_flight: list[tuple[View, Ints, Mask]] = []

    def frame(self, event: Event) -> Frame:
        """Return the frame of a step that has just run, and remember its effects."""
        if not self.memory:
            program = event.state.program
            for buffer in (*program.outputs, *program.scratch, *program.status):
                size = buffer.size.evaluate(event.state.scalars)
                self.memory[buffer.name] = unwritten_values((size,), buffer.dtype)
        self.number += 1
        return Frame(
            number=self.number,
            path=event.path,
            step=event.step,
            line=line(event.step),
            loops=dict(event.loops),
            warp=self.warp,
            reads=tuple(self._reads(event)),
            writes=tuple(self._writes(event)),
        )

    def _reads(self, event: Event) -> Iterator[Tile]:
        touched = accesses(event.step)
        names = iter(_parts(event.step)[0])
        for frag in touched.frags_read:
            yield _frag_tile(frag, next(names), self.frags[frag.name], None)
        views = touched.views_read
        if isinstance(event.step, Locate):
            offsets = event.step.segments.offsets
            size = offsets.size.evaluate(event.state.scalars)
            views = (View.strided(offsets, Index(), 1, size, size, 1),)
        for view in views:
            values = event.state.read(view, np.array([self.warp]))[0]
            places, inside = self._places(event, view)
            yield _view_tile(view, next(names), values, None, places, inside)

    def _writes(self, event: Event) -> Iterator[Tile]:
        if isinstance(event.step, Sync):
            yield from self._arrivals(event)
            return
        if isinstance(event.step, Locate):
            ranges = event.step.dst
            values = event.state.ranges(ranges, np.array([self.warp]))[0]
            dtype = event.step.segments.offsets.dtype
            inside = np.ones(values.shape, bool)
            yield Tile(ranges.name, "dst", dtype, "begin, end", values, None, None, inside)
            return
        touched = accesses(event.step)
        names = iter(_parts(event.step)[1])
        for frag in touched.frags_written:
            values = event.state.fragment(frag, np.array([self.warp]))[0].copy()
            before = self.frags.get(frag.name, unwritten_values(values.shape, frag.dtype))
            self.frags[frag.name] = values
            yield _frag_tile(frag, next(names), values, before)
        for view in touched.views_written:
            yield self._written(event, view, next(names))

    def _written(self, event: Event, view: View, part: str) -> Tile:
        """Return a rectangle that the step wrote; in shared memory nobody sees it yet."""
        places, inside = self._places(event, view)
        before = self._held(view, places, inside)
        if view.buffer.space is not Space.GLOBAL:
            self.in_flight.append((view, places, inside))
            return _view_tile(view, part, before, before, places, inside, IN_FLIGHT)
        values = event.state.read(view, np.array([self.warp]))[0]
        self.memory[view.buffer.name][places[inside]] = values[inside]
        return _view_tile(view, part, values, before, places, inside)

    def _arrivals(self, event: Event) -> Iterator[Tile]:
        """Yield what a barrier lets the warp see: its own writes, then those of other warps."""
        old = dict(self.memory)
        for buffer in event.state.program.scratch:
            self.memory[buffer.name] = _seen(event.state, buffer, self.warp)
        explained = {name: np.zeros(array.shape, bool) for name, array in old.items()}
        waiting, self.in_flight = self.in_flight, []
        for view, places, inside in waiting:
            name = view.buffer.name
            if bool(explained[name][places[inside]].all()):
                continue
            explained[name][places[inside]] = True
            before = np.where(inside, old[name][np.where(inside, places, 0)], 0)
            values = self._held(view, places, inside)
            yield _view_tile(view, "dst", values, before, places, inside)
        for buffer in event.state.program.scratch:
            tile = _whole_tile(buffer, self.memory[buffer.name], old[buffer.name])
            if bool((tile.changed & ~explained[buffer.name]).any()):
                yield tile

    def _places(self, event: Event, view: View) -> tuple[Ints, Mask]:
        """Return the elements' numbers in the buffer, and where the bounds hold."""
        own = np.array([self.warp])
        return event.state.places(view, own)[0], event.state.valid(view, own)[0]

    def _held(self, view: View, places: Ints, inside: Mask) -> Values:
        """Return what the warp last saw at these places; zeros where out of bounds."""
        array = self.memory[view.buffer.name]
        held: Values = np.where(inside, array[np.where(inside, places, 0)], array.dtype.type(0))
        return held


def _parts(step: Step) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of what a step reads and writes, in the order of `accesses`."""
    match step:
        case Const():
            return (), ("dst",)
        case Load() | Store():
            return ("src",), ("dst",)
        case Mma():
            return ("a", "b", "c"), ("d",)
        case Add():
            return ("a", "b"), ("d",)
        case Copy():
            return ("src", "plus"), ("dst",)
        case Publish() | Await() | Locate():
            return ("src",), ("dst",)
        case Split(dsts):
            return ("src",), ("dst",) * len(dsts)
        case Sync() | Loop() | When():
            return (), ()
        case _:
            assert_never(step)


def _seen(state: State, buffer: Buffer, warp: int) -> Values:
    """Return a scratch buffer as a warp sees it."""
    size = buffer.size.evaluate(state.scalars)
    whole = View.strided(buffer, Index(), 1, size, size, 1)
    return np.array(state.read(whole, np.array([warp]))[0, 0])


def _frag_tile(frag: Frag, part: str, values: Values, before: Values | None) -> Tile:
    inside = np.ones(values.shape, bool)
    return Tile(frag.name, part, frag.dtype, frag.role, values, before, None, inside)


def _view_tile(
    view: View,
    part: str,
    values: Values,
    before: Values | None,
    places: Ints,
    inside: Mask,
    note: str = "",
) -> Tile:
    buffer = view.buffer
    return Tile(
        label=f"{buffer.name}[{_range(places[inside])}]",
        part=part,
        dtype=buffer.dtype,
        where=buffer.space,
        values=values.copy(),
        before=before,
        places=places,
        inside=inside,
        note=note,
    )


def _range(places: Ints) -> str:
    """Return the range from the first to the last of some elements, as the listing writes it."""
    if not places.size:
        return "nothing"
    if places.min() == places.max():
        return str(places.min())
    return f"{places.min()} … +{places.max() - places.min() + 1}"


def _whole_tile(buffer: Buffer, values: Values, before: Values) -> Tile:
    """Return a whole buffer as one row."""
    view = View.strided(buffer, Index(), 1, values.size, values.size, 1)
    places = np.arange(values.size)[None, :]
    inside = np.ones(places.shape, bool)
    return _view_tile(view, "dst", values[None, :], before[None, :], places, inside)
