"""Turn the interpreter's events into frames: one step of one warp, with the tiles it touches."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import InputError
from tcusim.machine import Values, as_values, format_of, from_values
from tcusim.machine.formats import unwritten_values
from tcusim.program.bind import bind_scalars, offsets_of
from tcusim.program.grammar import (
    Accesses,
    Add,
    Await,
    Buffer,
    Copy,
    Frag,
    Index,
    Locate,
    Mma,
    Program,
    Ranges,
    Space,
    Split,
    Step,
    Store,
    Sync,
    View,
    accesses,
)
from tcusim.program.printer import line
from tcusim.program.walk import Ints, Mask
from tcusim.simulate.interpreter import Event, State, everywhere, interpret

__all__ = [
    "Frame",
    "Tile",
    "WarpWatcher",
    "chosen_warps",
    "default_inputs",
    "frames",
    "number_text",
    "unwritten_outputs",
]

# Elements' numbers in their buffer, and where the bounds of a view hold.
_Where: TypeAlias = tuple[Ints, Mask]

# float16 holds every whole number up to this one.
_EXACT_IN_F16 = 2048

# Significant digits of a number that is not whole.
_DIGITS: Final = 5

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
    def buffer(self) -> str:
        """The buffer's name; "" for a fragment."""
        return "" if self.places is None else self.label.partition("[")[0]

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """The half-open ranges of the buffer's elements that are touched; none of a fragment."""
        if self.places is None:
            return ()
        touched = np.unique(self.places[self.inside])
        if not touched.size:
            return ()
        ends = np.flatnonzero(np.diff(touched) != 1)
        begins = touched[np.concatenate(([0], ends + 1))]
        lasts = touched[np.concatenate((ends, [touched.size - 1]))]
        return tuple(zip(begins.tolist(), (lasts + 1).tolist(), strict=True))

    @property
    def changed(self) -> Mask:
        """Where the step changed a value; nowhere in a tile that is only read."""
        if self.before is None:
            return np.zeros(self.values.shape, bool)
        return np.asarray(self.inside & _differ(self.before, self.values))

    @property
    def unknown(self) -> Mask:
        """Where it holds NaN, or the integer that unwritten memory holds."""
        return self.inside & _unknown(self.values, self.dtype)

    @property
    def unknown_before(self) -> Mask:
        """Where it held such before the step; everywhere in a tile that is only read."""
        if self.before is None:
            return np.ones(self.values.shape, bool)
        return _unknown(self.before, self.dtype)


@dataclass(frozen=True, slots=True)
class Frame:
    """One step of one warp.

    number: counts the steps that the warp has run, from 1. path: where the step stands in the
    program, such as "7.2". kind: such as "mma". step: None in a trace that was read from a file.
    line: its line in the listing. loops: the loop variables. warp: the warp's number in the grid.
    reads, writes: what the step touches, in the order of the grammar.
    """

    number: int
    path: str
    kind: str
    step: Step | None
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
    chosen_warps(program, inputs, (warp,))
    watcher = None
    for event in interpret(program, inputs, arch=arch):
        if event.state.warps[0] > warp:
            return
        if warp in event.warps:
            watcher = watcher or WarpWatcher(event.state, warp)
            yield watcher.frame(event)


def chosen_warps(
    program: Program,
    inputs: Mapping[str, Any],
    warps: Iterable[int] = (),
    blocks: Iterable[int] = (),
) -> tuple[int, ...]:
    """Return these warps of the grid, and all of these blocks, in ascending order.

    Raises InputError if the grid has no such warp or block.
    """
    scalars = bind_scalars(program, {name: np.size(array) for name, array in inputs.items()})
    there = program.grid(scalars)
    found = set(_numbers(program, "warp", warps, there * program.warps))
    for block in _numbers(program, "block", blocks, there):
        found.update(range(block * program.warps, (block + 1) * program.warps))
    return tuple(sorted(found))


def _numbers(program: Program, what: str, numbers: Iterable[int], count: int) -> Iterator[int]:
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | np.integer):
            raise InputError(f"{what}s must be whole numbers, such as 0; got {number!r}")
        if not 0 <= number < count:
            there = f"{what}s 0 to {count - 1}" if count else f"no {what}s: the input is empty"
            raise InputError(f"{program.name}: there is no {what} {number}; the grid has {there}")
        yield int(number)


def number_text(number: float) -> str:
    """Return a number as the stepper and the page show it: whole, or five digits of it."""
    whole = number.is_integer() and abs(number) < 10**_DIGITS
    return f"{number:.0f}" if whole else f"{number:.{_DIGITS}g}"


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


class WarpWatcher:
    """Remembers what one warp held, so that a frame can tell before from after.

    frags, memory: what the warp saw after its last step; memory that nothing wrote is poisoned.
    in_flight: places in shared memory that the warp wrote since its last barrier.
    outputs: memory of the grid, which watchers of other warps may share.
    """

    def __init__(self, state: State, warp: int, outputs: dict[str, Values] | None = None) -> None:
        self.state = state
        self.warp = warp
        self.own = np.array([warp])
        self.number = 0
        self.frags: dict[str, Values] = {}
        self.memory = dict(unwritten_outputs(state) if outputs is None else outputs)
        for buffer in state.program.scratch:
            size = buffer.size.evaluate(state.scalars)
            self.memory[buffer.name] = unwritten_values((size,), buffer.dtype)
        self.in_flight: list[tuple[View, _Where]] = []
        # By path: the text and the accesses of a step, which take as long as running it.
        self.known: dict[str, tuple[str, Accesses]] = {}

    def skip(self, event: Event) -> None:
        """Count a step that needs no frame; before the next that does, `catch_up`."""
        self.number += 1
        if isinstance(event.step, Sync):
            self.in_flight = []
        elif isinstance(event.step, Store | Copy | Split | Await):
            views = self._known(event)[1].views_written
            shared = [view for view in views if view.buffer.space is not Space.GLOBAL]
            self.in_flight += [(view, self._where(view)) for view in shared]

    def catch_up(self) -> None:
        """Remember what the warp holds now."""
        frags, shared = self.state.held(self.warp)
        self.frags = {name: values.copy() for name, values in frags.items()}
        self.memory |= {name: values.copy() for name, values in shared.items()}
        program = self.state.program
        for buffer in (*program.outputs, *program.status):
            self.memory[buffer.name][...] = self.state.memory[buffer.name]

    def frame(self, event: Event) -> Frame:
        """Return the frame of a step that has just run, and remember its effects."""
        self.number += 1
        text, touched = self._known(event)
        names = _PARTS.get(type(event.step), (("src",), ("dst",)))
        match event.step:
            case Sync():
                writes = self._arrivals()
            case Locate(ranges, segments):
                writes = iter((self._located(ranges, segments.offsets.dtype),))
            case _:
                writes = self._writes(touched, itertools.cycle(names[1]))
        return Frame(
            number=self.number,
            path=event.path,
            kind=type(event.step).__name__.lower(),
            step=event.step,
            line=text,
            loops=dict(event.loops),
            warp=self.warp,
            reads=tuple(self._reads(event.step, touched, iter(names[0]))),
            writes=tuple(writes),
        )

    def _known(self, event: Event) -> tuple[str, Accesses]:
        found = self.known.get(event.path)
        if found is None:
            found = self.known[event.path] = line(event.step), accesses(event.step)
        return found

    def _reads(self, step: Step, touched: Accesses, names: Iterator[str]) -> Iterator[Tile]:
        for frag in touched.frags_read:
            yield _frag_tile(frag, next(names), self.frags[frag.name], None)
        views = touched.views_read
        if isinstance(step, Locate):
            views = (self._whole(step.segments.offsets),)
        for view in views:
            values, places, inside = self.state.look(view, self.own)
            yield _view_tile(view, next(names), (places, inside), values, None)

    def _writes(self, touched: Accesses, names: Iterator[str]) -> Iterator[Tile]:
        for frag in touched.frags_written:
            values = self.state.tile(frag, self.warp).copy()
            before = self.frags.get(frag.name, unwritten_values(values.shape, frag.dtype))
            self.frags[frag.name] = values
            yield _frag_tile(frag, next(names), values, before)
        for view in touched.views_written:
            values, places, inside = self.state.look(view, self.own)
            where = places, inside
            before = _held(self.memory, view, where)
            note = ""
            if view.buffer.space is Space.GLOBAL:
                self.memory[view.buffer.name][places[inside]] = values[inside]
            else:
                # Nobody sees it yet.
                values, note = before, IN_FLIGHT
                self.in_flight.append((view, where))
            yield _view_tile(view, next(names), where, values, before, note)

    def _located(self, ranges: Ranges, dtype: str) -> Tile:
        values = self.state.ranges(ranges, self.own)[0]
        inside = everywhere(values.shape)
        return Tile(ranges.name, "dst", dtype, "begin, end", values, None, None, inside)

    def _arrivals(self) -> Iterator[Tile]:
        """Yield what a barrier lets the warp see: its own writes, then those of other warps."""
        program = self.state.program
        waiting, self.in_flight = self.in_flight, []
        written = {view.buffer.name for view, _ in waiting}
        # What is neither the warp's own writing nor shared with another has not changed.
        several = program.warps > 1
        buffers = [
            buffer
            for buffer in program.scratch
            if buffer.name in written or (several and buffer.space is Space.SHARED)
        ]
        _, held = self.state.held(self.warp)
        seen = {buffer.name: held[buffer.name] for buffer in buffers}
        old = {name: self.memory[name] for name in seen}
        rest = {name: _differ(old[name], values) for name, values in seen.items()}
        self.memory |= {name: values.copy() for name, values in seen.items() if rest[name].any()}
        shown: dict[str, list[Ints]] = {}
        for view, where in waiting:
            name, own = view.buffer.name, where[0][where[1]]
            if own.size and not _covered(own, shown.setdefault(name, [])):
                shown[name].append(own)
                rest[name][own] = False
                before = _held(old, view, where)
                yield _view_tile(view, "dst", where, _held(self.memory, view, where), before)
        for buffer in buffers:
            name = buffer.name
            if rest[name].any():
                view = self._whole(buffer)
                where = np.arange(seen[name].size)[None], everywhere((1, seen[name].size))
                yield _view_tile(view, "dst", where, self.memory[name][None], old[name][None])

    def _whole(self, buffer: Buffer) -> View:
        """Return a buffer as one row."""
        size = buffer.size.evaluate(self.state.scalars)
        return View.strided(buffer, Index(), 1, size, size, 1)

    def _where(self, view: View) -> _Where:
        _, places, inside = self.state.look(view, self.own)
        return places, inside


def unwritten_outputs(state: State) -> dict[str, Values]:
    """Return the outputs and status words of a grid before it runs."""
    program = state.program
    return {
        buffer.name: unwritten_values((buffer.size.evaluate(state.scalars),), buffer.dtype)
        for buffer in (*program.outputs, *program.status)
    }


def _covered(places: Ints, shown: list[Ints]) -> bool:
    """Return whether all of these places are among those that were shown."""
    return bool(shown) and bool(np.isin(places, np.concatenate(shown, axis=None)).all())


def _differ(one: Values, two: Values) -> Mask:
    """Return where values differ; all NaN are the same."""
    differ: Mask = one != two
    if one.dtype.kind == "f":
        differ &= ~(np.isnan(one) & np.isnan(two))
    return differ


def _unknown(values: Values, dtype: str) -> Mask:
    """Return where values are NaN, or what unwritten memory holds."""
    if format_of(dtype).is_float:
        return np.asarray(np.isnan(values))
    if values.dtype.itemsize < 4:
        # A narrower integer may mean it.
        return np.zeros(values.shape, bool)
    return np.asarray(values == np.iinfo(values.dtype).min)


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
    if inside is everywhere(places.shape):
        return np.asarray(array[places])
    held: Values = np.where(inside, array[np.where(inside, places, 0)], array.dtype.type(0))
    return held


def _frag_tile(frag: Frag, part: str, values: Values, before: Values | None) -> Tile:
    inside = everywhere(values.shape)
    return Tile(frag.name, part, frag.dtype, frag.role, values, before, None, inside)


def _view_tile(
    view: View, part: str, where: _Where, values: Values, before: Values | None, note: str = ""
) -> Tile:
    (places, inside), buffer = where, view.buffer
    if view.ranges is None and inside is everywhere(places.shape):
        # The ends of a rectangle are among its corners.
        corners = [int(places[row, column]) for row in (0, -1) for column in (0, -1)]
        touched = _range(min(corners), max(corners))
    elif inside.any():
        chosen = places[inside]
        touched = _range(chosen.min(), chosen.max())
    else:
        touched = "nothing"
    label = f"{buffer.name}[{touched}]"
    held = values.copy()
    return Tile(label, part, buffer.dtype, buffer.space, held, before, places, inside, note)


def _range(first: int, last: int) -> str:
    """Return the range from the first to the last of some elements, as the listing writes it."""
    return str(first) if first == last else f"{first} … +{last - first + 1}"
