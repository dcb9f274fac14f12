"""Whether a program may write its result over its input: `out` and `in` in one memory.

No check of `verify`, for most programs may not, and are right: a launcher asks before it does so.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from tcusim.program.checks.writes import locates, sizes_to_try
from tcusim.program.grammar import (
    Index,
    Locate,
    Loop,
    Mma,
    Numbered,
    Program,
    Step,
    Sync,
    View,
    When,
    accesses,
    branch_of,
    numbered,
    walk,
)
from tcusim.program.walk import Ints, Mask, Placement, span

__all__ = ["in_place"]

_NEVER: Final = -1


@lru_cache(maxsize=256)
def in_place(program: Program, source: str = "in", target: str = "out") -> str | None:
    """Return why an output must not be the memory of an input, or None if it may be.

    It may be if both are alike in type and size, and each element that is written over is read by
    no other warp than the one that writes it, and not after that. Between reading and writing the
    lanes of the warp have to meet, in a product or a barrier, unless one lane of a Copy does both.

    Ints are followed through the program for two sizes, of a ragged block and of several
    blocks. Those in chunks of ragged segments (see `Locate`) are a chunk's number and a place in
    it: chunks of two numbers have no element in common, as long as the offsets ascend, and what a
    view names beyond a chunk's end is never touched. What the emitted text promises the compiler
    about its pointers is not looked at.

    Parameters
    ----------
    program : Program
        It has passed `verify`.
    source, target : str
        Names of an input and of an output.
    """
    inputs = {buffer.name: buffer for buffer in program.inputs}
    outputs = {buffer.name: buffer for buffer in program.outputs}
    for kind, name, given in (("input", source, inputs), ("output", target, outputs)):
        if name not in given:
            return f"{program.name} has no {kind} {name!r}"
    read, written = inputs[source], outputs[target]
    if read.dtype != written.dtype:
        return f"{source} is of type {read.dtype}, but {target} of type {written.dtype}"
    if read.size != written.size:
        return f"{source} has {read.size} elements, but {target} has {written.size}"
    for scalars in sizes_to_try(program):
        reason = _Trace(program, scalars, source, target).reason()
        if reason:
            return reason
    return None


class _Elements(NamedTuple):
    """What one step reads or writes of an array, one entry for each element and warp.

    places: the element's number in the rectangle; what has one number is done by one lane.
    """

    address: Ints
    warps: Ints
    places: Ints


@dataclass(frozen=True, slots=True)
class _History:
    """Who touched each element of an array, and when: arrays of its size, -1 for nobody.

    lowest, highest: of the warps. moment: number of the step in the order of the run. phase: how
    often the lanes of the warp had met by then.
    """

    lowest: Ints
    highest: Ints
    moment: Ints
    phase: Ints

    @staticmethod
    def of(size: int) -> _History:
        """Return a history in which nobody has touched anything."""
        return _History(*(np.full(size, _NEVER) for _ in range(4)))

    @property
    def warps(self) -> tuple[Ints, Ints]:
        """The lowest and the highest warp."""
        return self.lowest, self.highest

    def record(self, elements: _Elements, moment: int, phase: Ints) -> None:
        """Note that elements are touched at this moment; `phase` is that of each warp."""
        address, warps, _ = elements
        self.lowest[address] = np.where(
            self.highest[address] == _NEVER, warps, self.lowest[address]
        )
        np.minimum.at(self.lowest, address, warps)
        np.maximum.at(self.highest, address, warps)
        self.moment[address] = moment
        self.phase[address] = phase[warps]


class _Trace:
    """One walk through the steps, all warps together, that records who touches which element.

    span: 0 if elements lie at addresses of their own; else what one chunk of ragged segments
    takes of the addresses, which then are number * span + place in the chunk.
    """

    def __init__(
        self, program: Program, scalars: Mapping[str, int], source: str, target: str
    ) -> None:
        self.program = program
        self.scalars = scalars
        self.source = source
        self.target = target
        self.warps: Ints = np.arange(program.grid(scalars) * program.warps)
        self.placement = Placement.of_warps(program, scalars, self.warps)
        self.phase = np.zeros(self.warps.size, np.int64)
        self.paths: list[str] = []
        self.crossed = ""
        self.numbers: dict[str, Ints] = {}
        self.locates = list(locates(program).values())
        self.span = self.longest_range()
        size = next(b for b in program.inputs if b.name == source).size.evaluate(scalars)
        if self.span:
            size = self.span * max(self.most(step.first) + step.dst.count for step in self.locates)
        self.reads, self.writes = _History.of(size), _History.of(size)

    def reason(self) -> str:
        """Walk through the program; return what speaks against sharing memory, or nothing."""
        found = self.in_two_ways()
        if not found:
            self.run(numbered(self.program.steps), self.warps)
            found = self.crossed
        found = found or self.other_warp() or self.too_late() or self.no_barrier()
        sizes = ", ".join(f"{name} = {value}" for name, value in self.scalars.items())
        return f"{found} ({sizes})" if found else ""

    # --- Chunks of ragged segments ------------------------------------------------------------

    def views(self) -> list[View]:
        """Return the views of the two arrays in the text."""
        found = []
        for _, step in walk(self.program.steps):
            touched = accesses(step)
            found += [v for v in touched.views_read if v.buffer.name == self.source]
            found += [v for v in touched.views_written if v.buffer.name == self.target]
        return found

    def longest_range(self) -> int:
        """Return how far views of the two arrays reach in a range; 0 if none is gathered."""
        corners = [
            view.address.substitute({"row": view.rows - 1, "col": view.cols - 1})
            for view in self.views()
            if view.ranges is not None
        ]
        return max((max(1, 1 + self.most(corner)) for corner in corners), default=0)

    def most(self, index: Index) -> int:
        """Return the greatest value of an index, in any warp and any turn of its loops."""
        most = {name: int(np.max(value)) for name, value in self.placement.symbols.items()}
        for _, step in walk(self.program.steps):
            if isinstance(step, Loop):
                last = step.count.evaluate(self.scalars) - 1
                most[step.var] = max(most.get(step.var, 0), last)
        return span(index, {name: (0, value) for name, value in most.items()})[1]

    def in_two_ways(self) -> str:
        """Object to addresses by which one element would have two."""
        if not self.span:
            return ""
        found = {None if view.ranges is None else view.ranges.name for view in self.views()}
        rules = {s.segments for s in self.locates if s.dst.name in found}
        if len(rules) == 1 and None not in found:
            return ""
        return (
            f"elements of {self.source} and {self.target} are not all found as chunks of one "
            "length, so that it cannot be told which are the same"
        )

    def locate(self, step: Locate, warps: Ints) -> None:
        """Note where these warps find their chunks: each has a stretch of addresses of its own."""
        shape = (self.warps.size, step.dst.count)
        held = self.placement.ranges.setdefault(
            step.dst.name, (np.zeros(shape, np.int64), np.zeros(shape, np.int64))
        )
        number = self.placement.value(step.first, warps)[:, :, 0] + np.arange(step.dst.count)
        length = self.span if step.segments.chunk is None else step.segments.chunk
        held[0][warps] = number * self.span
        held[1][warps] = number * self.span + length

    # --- The walk ----------------------------------------------------------------------------

    def run(self, steps: Iterator[Numbered], warps: Ints) -> None:
        """Walk through steps in these warps."""
        for path, step in steps:
            match step:
                case Loop(var, count):
                    for value in range(count.evaluate(self.scalars)):
                        self.placement.symbols[var] = value
                        self.run(branch_of(path, step), warps)
                case When(bounds):
                    holds = self.placement.holds(bounds, warps)
                    self.run(branch_of(path, step), warps[holds])
                    self.run(branch_of(path, step, taken=False), warps[~holds])
                case _:
                    self.step(step, path, warps)

    def step(self, step: Step, path: str, warps: Ints) -> None:
        """Record what one leaf step touches."""
        if isinstance(step, Mma | Sync):
            self.phase[warps] += 1
        if isinstance(step, Locate):
            self.locate(step, warps)
        moment = len(self.paths)
        self.paths.append(path)
        touched = accesses(step)
        read = [self.elements(v, warps) for v in touched.views_read if v.buffer.name == self.source]
        written = [
            self.elements(v, warps) for v in touched.views_written if v.buffer.name == self.target
        ]
        for elements in read:
            self.reads.record(elements, moment, self.phase)
        for elements in written:
            fresh = self.writes.moment[elements.address] == _NEVER
            self.writes.record(_Elements(*(part[fresh] for part in elements)), moment, self.phase)
        for one, two in itertools.product(read, written):
            self.cross(one, two, path)

    def cross(self, read: _Elements, written: _Elements, path: str) -> None:
        """Object to a step in which the lane that reads an element is not the one that writes."""
        place = np.full(self.reads.moment.size, _NEVER)
        place[written.address] = written.places
        there = place[read.address]
        unlike = np.flatnonzero((there != _NEVER) & (there != read.places))
        if unlike.size:
            at = int(read.address[unlike[0]])
            self.crossed = (
                f"step {path} reads {self.called(self.source, at)} for one element and writes "
                f"{self.called(self.target, at)} for another, and the lanes run in no order"
            )

    def elements(self, view: View, warps: Ints) -> _Elements:
        """Return the elements of a view where its bounds hold."""
        shape = (warps.size, view.rows, view.cols)
        address = np.broadcast_to(self.placement.addresses(view, warps), shape)
        used = np.broadcast_to(self.placement.inside(view, warps), shape)
        who = np.broadcast_to(warps[:, None, None], shape)
        places = np.broadcast_to(np.arange(view.rows * view.cols).reshape(shape[1:]), shape)
        return _Elements(address[used], who[used], places[used])

    # --- The verdict -------------------------------------------------------------------------

    def first(self, unfit: Mask) -> int | None:
        """Return the first element that is read, written and unfit."""
        both = (self.reads.moment != _NEVER) & (self.writes.moment != _NEVER)
        found = np.flatnonzero(both & unfit)
        return int(found[0]) if found.size else None

    def other_warp(self) -> str:
        """Object to an element that one warp reads and another writes."""
        reads, writes = self.reads, self.writes
        at = self.first((reads.lowest != writes.highest) | (reads.highest != writes.lowest))
        if at is None:
            return ""
        reader, writer = next(
            (int(one[at]), int(two[at]))
            for two, one in itertools.product(writes.warps, reads.warps)
            if one[at] != two[at]
        )
        return (
            f"warp {reader} reads {self.called(self.source, at)}, but warp {writer} writes "
            f"{self.called(self.target, at)}"
        )

    def too_late(self) -> str:
        """Object to an element that is read after it was written."""
        at = self.first(self.reads.moment > self.writes.moment)
        if at is None:
            return ""
        return f"{self.both(at, 'after')} has written {self.called(self.target, at)}"

    def no_barrier(self) -> str:
        """Object to an element that lanes read and write in two steps, but do not meet between."""
        reads, writes = self.reads, self.writes
        at = self.first((reads.moment < writes.moment) & (reads.phase == writes.phase))
        if at is None:
            return ""
        return (
            f"{self.both(at, 'and')} writes {self.called(self.target, at)}, but no barrier is "
            "between"
        )

    def both(self, at: int, how: str) -> str:
        read, written = (self.paths[history.moment[at]] for history in (self.reads, self.writes))
        return f"step {read} reads {self.called(self.source, at)} {how} step {written}"

    def called(self, name: str, at: int) -> str:
        """Return what messages call an element."""
        if not self.span:
            return f"{name}[{at}]"
        number, place = divmod(at, self.span)
        return f"{name}[{place} of chunk {number}]"
