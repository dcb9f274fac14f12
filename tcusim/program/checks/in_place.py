"""Whether a program may run in place: `out` and `in` in the same memory.

This is not a check of `verify`, since most correct programs may not; a launcher asks first.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from tcusim.program.checks.sizes import named_sizes, sizes_to_try
from tcusim.program.checks.writes import (
    chunk_ranges,
    element_name,
    same_warp_touches,
    segments_of,
)
from tcusim.program.grammar import Locate, Loop, Mma, Program, Sync, View, When
from tcusim.program.walk import Ints, Mask, Placement, Site, sites, top

__all__ = ["in_place"]

# The number of sizes tried regardless of cost, and the maximum elements of all others together.
_SIZES: Final = 2
_MORE_ELEMENTS: Final = 1 << 13


@lru_cache(maxsize=256)
def in_place(program: Program, source: str = "in", target: str = "out") -> str | None:
    """Return why an output must not be the memory of an input, or None if it may be.

    It may be if both have the same type and size, and each overwritten element is read only by the
    warp that writes it, and only before the write. The lanes of the warp must converge between the
    read and the write, at a product or a barrier, unless one lane of a Copy does both.

    Exclusive access by one warp is proved for all sizes; without a proof the answer is no. The
    order within a warp is tested: elements are traced through the program for a partial block, for
    several blocks, and for the other inexpensive sizes of `sizes_to_try`.

    Elements of ragged segments (see `Locate`) are identified by a chunk's index and a position in
    the chunk: different chunks share no element as long as the offsets ascend, and elements past a
    chunk's end are never touched. The pointer qualifiers of the emitted text are not examined.

    Parameters
    ----------
    program : Program
        A program that has passed `verify`.
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
    left = _MORE_ELEMENTS
    for number, scalars in enumerate(sizes_to_try(program)):
        size = read.size.evaluate(scalars)
        if number >= _SIZES and size > left:
            continue
        left -= size if number >= _SIZES else 0
        reason = _Trace(program, scalars, source, target).reason()
        if reason:
            return f"{reason} ({named_sizes(scalars)})"
    if not same_warp_touches(program, read, written):
        return (
            f"it is not proven that each element of {target} is written by the warp that reads the "
            f"one of {source}; it was tried for few sizes"
        )
    return None


class _Touched(NamedTuple):
    """Accesses to the elements of an array in execution order, one entry each.

    place: the element's index in the rectangle; accesses of one index are by one lane. moment:
    index of the step. phase: number of convergence points of the warp so far, for all data. run:
    index of the branch on data, 0 outside; `body` is even and its `otherwise` is one more. meeting:
    number of convergence points inside such branches.
    """

    address: Ints
    warp: Ints
    place: Ints
    moment: Ints
    phase: Ints
    run: Ints
    meeting: Ints

    def where(self, mask: Mask | Ints) -> _Touched:
        """Return the selected entries."""
        return _Touched(*(column[mask] for column in self))


class _Trace:
    """Two walks through the steps, all warps together: first the writers, then the readers.

    Each read is compared with the first write at once, since a program may read all data often.
    """

    def __init__(
        self, program: Program, scalars: Mapping[str, int], source: str, target: str
    ) -> None:
        self.program, self.scalars, self.source, self.target = program, scalars, source, target
        self.warps: Ints = np.arange(program.grid(scalars) * program.warps)
        self.gathered = False
        self.paths: list[str] = []
        self.written: list[_Touched] = []
        # Results of the first walk: the writes, and the first write to each element, by its address
        # or by the rank of its address.
        self.writes: _Touched | None = None
        self.addresses = np.zeros(0, np.int64)
        self.firsts = np.zeros(0, np.int64)
        # The same without the writes of bodies on data, for readers in the other branch.
        self.others = np.zeros(0, np.int64)
        # By the number of the violated rule: the lowest address, and the reason.
        self.found: dict[int, tuple[int, str]] = {}

    def reason(self) -> str:
        """Walk through the program; return the reason against sharing memory, or an empty text."""
        rules = set()
        for site in sites(self.program):
            reads, writes = self.views(site)
            rules |= {segments_of(self.program, view) for view in (*reads, *writes)}
        if len(rules) > 1:
            return (
                f"elements of {self.source} and {self.target} are not all found as chunks of one "
                "length, so that it cannot be told which are the same"
            )
        self.gathered = rules != {None}
        self.begin()
        if not self.written:
            return ""
        every = _Touched(*map(np.concatenate, zip(*self.written, strict=True)))
        written = self.program.buffer(self.target)
        if self.gathered:
            self.addresses, at = np.unique(every.address, return_inverse=True)
            size = self.addresses.size
        else:
            size, at = written.size.evaluate(self.scalars), every.address
        number = np.arange(at.size)
        self.firsts = _firsts(size, at, number)
        # One branch may write more elements of a partial output than the other.
        usual = (every.run == 0) | (every.run % 2 == 1) | written.partial
        self.others = _firsts(size, at[usual], number[usual])
        self.writes = every
        self.begin()
        return self.found[min(self.found)][1] if self.found else ""

    def begin(self) -> None:
        """Walk through all steps."""
        self.placement = Placement.of_warps(self.program, self.scalars, self.warps)
        self.phase, self.meeting = np.zeros((2, self.warps.size), np.int64)
        self.moment = self.run_now = self.runs = 0
        self.run(top(self.program), self.warps)

    def views(self, site: Site) -> tuple[list[View], list[View]]:
        """Return the rectangles of the input that a step reads, and of the output it writes."""
        touched = site.touched
        reads = [view for view in touched.views_read if view.buffer.name == self.source]
        return reads, [view for view in touched.views_written if view.buffer.name == self.target]

    def run(self, steps: tuple[Site, ...], warps: Ints) -> None:
        """Walk through steps in these warps."""
        for site in steps:
            match site.step:
                case Loop(var, count):
                    for value in range(count.evaluate(self.scalars)):
                        self.placement.symbols[var] = value
                        self.run(site.body, warps)
                case When(bounds) as step if step.on_data:
                    holds = self.placement.holds(bounds, warps)
                    self.alternatives(site, warps[holds], warps)
                case When(bounds):
                    holds = self.placement.holds(bounds, warps)
                    self.run(site.branch(taken=True), warps[holds])
                    self.run(site.branch(taken=False), warps[~holds])
                case _:
                    self.step(site, warps)

    def alternatives(self, site: Site, some: Ints, others: Ints) -> None:
        """Walk through both branches of a When on data. Branches inside are followed as steps."""
        outermost = self.run_now == 0
        if outermost:
            self.runs += 1
        for taken, warps in ((True, some), (False, others)):
            if outermost:
                self.run_now = 2 * self.runs + (not taken)
            self.run(site.branch(taken=taken), warps)
        if outermost:
            self.run_now = 0

    def step(self, site: Site, warps: Ints) -> None:
        """Record the accesses of one leaf step."""
        if isinstance(site.step, Mma | Sync):
            # Convergence inside a branch on data is not certain, and counts only within the branch.
            on_data = sum(bool(guard.on_data) for guard in site.guards)
            if on_data == 0:
                self.phase[warps] += 1
            elif on_data == 1:
                self.meeting[warps] += 1
        if isinstance(site.step, Locate):
            found = chunk_ranges(site.step, self.placement)
            # Other warps keep their ranges.
            held = self.placement.ranges.setdefault(site.step.dst.name, found)
            for old, new in zip(held, found, strict=True):
                old[warps] = new[warps]
        reads, writes = self.views(site)
        if self.writes is None:
            self.paths.append(site.path)
            self.written += [self.elements(view, warps) for view in writes]
        else:
            for view in reads:
                self.compare(self.elements(view, warps), self.writes)
        self.moment += 1

    def elements(self, view: View, warps: Ints) -> _Touched:
        """Return the in-bounds elements of a view."""
        shape = (warps.size, view.rows, view.cols)
        who = warps[:, None, None]
        place = np.arange(view.rows * view.cols).reshape(shape[1:])
        address, moment = self.placement.addresses(view, warps), np.array(self.moment)
        run = np.array(self.run_now)
        columns = (address, who, place, moment, self.phase[who], run, self.meeting[who])
        used = np.broadcast_to(self.placement.inside(view, warps), shape)
        every = used.all()
        return _Touched(
            *(
                full.reshape(-1) if every else full[used]
                for full in (np.broadcast_to(column, shape) for column in columns)
            )
        )

    def first_writes(self, reads: _Touched, writes: _Touched) -> Ints:
        """Return the index of the first write to each element; -1 if there is none.

        A write in the opposite branch counts as one in the reader's branch: both write the same
        elements.
        """
        at = reads.address
        there: Mask = np.full(at.shape, True)
        if self.gathered:
            if not self.addresses.size:
                return np.full(at.shape, -1)
            at = np.minimum(np.searchsorted(self.addresses, at), self.addresses.size - 1)
            there = self.addresses[at] == reads.address
        found: Ints = np.where(there, self.firsts[at], -1)
        other = (found >= 0) & (reads.run % 2 == 1) & (writes.run[found] == reads.run - 1)
        return np.where(other, self.others[at], found)

    def compare(self, reads: _Touched, writes: _Touched) -> None:
        """Record reasons against sharing the elements that a step reads."""
        firsts = self.first_writes(reads, writes)
        shared = firsts >= 0
        read, write = reads.where(shared), writes.where(firsts[shared])
        met = (read.phase != write.phase) | (
            (read.run == write.run) & (read.run > 0) & (read.meeting != write.meeting)
        )
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
                (read.moment < write.moment) & ~met,
                "step {read} reads {source} and step {written} writes {target}, but no barrier is "
                "between",
            ),
        )
        for number, (unfit, text) in enumerate(objections):
            if not unfit.any():
                continue
            found = np.flatnonzero(unfit)
            one = found[np.argmin(read.address[found])]
            address = int(read.address[one])
            if number in self.found and self.found[number][0] <= address:
                continue
            element = element_name(address, gathered=self.gathered)
            self.found[number] = (
                address,
                text.format(
                    source=f"{self.source}[{element}]",
                    target=f"{self.target}[{element}]",
                    read=self.paths[read.moment[one]],
                    written=self.paths[write.moment[one]],
                    reader=read.warp[one],
                    writer=write.warp[one],
                ),
            )


def _firsts(size: int, addresses: Ints, numbers: Ints) -> Ints:
    """Return the index of the first write to each element; -1 without a write."""
    firsts = np.full(size, -1)
    # The last assignment to an element remains.
    firsts[addresses[::-1]] = numbers[::-1]
    return firsts
