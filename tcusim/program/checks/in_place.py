"""Whether a program may write its result over its input: `out` and `in` in one memory.

No check of `verify`, for most programs may not, and are right: a launcher asks before it does so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tcusim.program.checks.writes import (
    chunk_ranges,
    element_name,
    named_sizes,
    segments_of,
    sizes_to_try,
)
from tcusim.program.grammar import Locate, Loop, Mma, Program, Sync, View, When, accesses
from tcusim.program.walk import Ints, Mask, Placement, Site, sites, top

__all__ = ["in_place"]


@lru_cache(maxsize=256)
def in_place(program: Program, source: str = "in", target: str = "out") -> str | None:
    """Return why an output must not be the memory of an input, or None if it may be.

    It may be if both are alike in type and size, and each element that is written over is read by
    no other warp than the one that writes it, and not after that. Between reading and writing the
    lanes of the warp have to meet, in a product or a barrier, unless one lane of a Copy does both.

    Elements are followed through the program for two sizes, of a ragged block and of several
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
            return f"{reason} ({named_sizes(scalars)})"
    return None


class _Touched(NamedTuple):
    """Elements of an array that steps touch, in the order of the run: one entry for each.

    place: the element's number in the rectangle; what has one number is done by one lane. moment:
    number of the step. phase: how often the lanes of the warp had met by then.
    """

    address: Ints
    warp: Ints
    place: Ints
    moment: Ints
    phase: Ints

    def where(self, mask: Mask) -> _Touched:
        """Return some of the entries."""
        return _Touched(*(column[mask] for column in self))


class _Trace:
    """One walk through the steps, all warps together, that records who touches which element."""

    def __init__(
        self, program: Program, scalars: Mapping[str, int], source: str, target: str
    ) -> None:
        self.program, self.scalars, self.source, self.target = program, scalars, source, target
        self.warps: Ints = np.arange(program.grid(scalars) * program.warps)
        self.placement = Placement.of_warps(program, scalars, self.warps)
        self.phase = np.zeros(self.warps.size, np.int64)
        self.paths: list[str] = []
        self.read: list[_Touched] = []
        self.written: list[_Touched] = []

    def reason(self) -> str:
        """Walk through the program; return what speaks against sharing memory, or nothing."""
        rules = set()
        for site in sites(self.program):
            reads, writes = self.views(site)
            rules |= {segments_of(self.program, view) for view in (*reads, *writes)}
        if len(rules) > 1:
            return (
                f"elements of {self.source} and {self.target} are not all found as chunks of one "
                "length, so that it cannot be told which are the same"
            )
        self.run(top(self.program), self.warps)
        if not (self.read and self.written):
            return ""
        return self.verdict(gathered=rules != {None})

    def views(self, site: Site) -> tuple[list[View], list[View]]:
        """Return the rectangles of the input that a step reads, and of the output it writes."""
        touched = accesses(site.step)
        reads = [view for view in touched.views_read if view.buffer.name == self.source]
        return reads, [view for view in touched.views_written if view.buffer.name == self.target]

    def run(self, steps: Iterator[Site], warps: Ints) -> None:
        """Walk through steps in these warps."""
        for site in steps:
            match site.step:
                case Loop(var, count):
                    for value in range(count.evaluate(self.scalars)):
                        self.placement.symbols[var] = value
                        self.run(site.inner(), warps)
                case When(bounds):
                    holds = self.placement.holds(bounds, warps)
                    self.run(site.branch(taken=True), warps[holds])
                    self.run(site.branch(taken=False), warps[~holds])
                case _:
                    self.step(site, warps)

    def step(self, site: Site, warps: Ints) -> None:
        """Record what one leaf step touches."""
        if isinstance(site.step, Mma | Sync):
            self.phase[warps] += 1
        if isinstance(site.step, Locate):
            found = chunk_ranges(site.step, self.placement)
            # Other warps keep what they have found.
            held = self.placement.ranges.setdefault(site.step.dst.name, found)
            for old, new in zip(held, found, strict=True):
                old[warps] = new[warps]
        reads, writes = self.views(site)
        self.read += [self.elements(view, warps) for view in reads]
        self.written += [self.elements(view, warps) for view in writes]
        self.paths.append(site.path)

    def elements(self, view: View, warps: Ints) -> _Touched:
        """Return the elements of a view where its bounds hold."""
        shape = (warps.size, view.rows, view.cols)
        who = warps[:, None, None]
        place = np.arange(view.rows * view.cols).reshape(shape[1:])
        address, moment = self.placement.addresses(view, warps), np.array(len(self.paths))
        columns = (address, who, place, moment, self.phase[who])
        used = np.broadcast_to(self.placement.inside(view, warps), shape)
        return _Touched(*(np.broadcast_to(column, shape)[used] for column in columns))

    def verdict(self, *, gathered: bool) -> str:
        """Return what speaks against sharing the elements that are both read and written."""
        reads, writes = (
            _Touched(*map(np.concatenate, zip(*touched, strict=True)))
            for touched in (self.read, self.written)
        )
        addresses, firsts = np.unique(writes.address, return_index=True)
        if not firsts.size:
            return ""
        at = np.minimum(np.searchsorted(addresses, reads.address), addresses.size - 1)
        shared = addresses[at] == reads.address
        # For each read of an element, the first write of the same element.
        read, write = reads.where(shared), writes.where(firsts[at[shared]])
        objections = (
            (
                (read.moment == write.moment) & (read.place != write.place),
                "step {read} reads {source} for one element and writes {target} for another, and "
                "the lanes run in no order",
            ),
            (
                read.warp != write.warp,
                "warp {reader} reads {source}, but warp {writer} writes {target}",
            ),
            (
                read.moment > write.moment,
                "step {read} reads {source} after step {written} has written {target}",
            ),
            (
                (read.moment < write.moment) & (read.phase == write.phase),
                "step {read} reads {source} and step {written} writes {target}, but no barrier is "
                "between",
            ),
        )
        for unfit, text in objections:
            if unfit.any():
                found = np.flatnonzero(unfit)
                one = found[np.argmin(read.address[found])]
                element = element_name(int(read.address[one]), gathered=gathered)
                return text.format(
                    source=f"{self.source}[{element}]",
                    target=f"{self.target}[{element}]",
                    read=self.paths[read.moment[one]],
                    written=self.paths[write.moment[one]],
                    reader=read.warp[one],
                    writer=write.warp[one],
                )
        return ""
