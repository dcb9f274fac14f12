"""Whether a program may run in place: `out` and `in` in the same memory.

This is not a check of `verify`, since most correct programs may not; a launcher asks first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from tcusim.program.checks.regions import (
    CHUNK,
    Access,
    accesses_to,
    bound_symbols,
    element_name,
    over_grid,
    segments_of,
    trace,
)
from tcusim.program.checks.sizes import named_sizes, sizes_to_try
from tcusim.program.checks.writes import same_warp_touches
from tcusim.program.grammar import Buffer, Index, Loop, Mma, Program, Sync
from tcusim.program.walk import Ints, Mask, Site, sites, top

# The number of sizes tried regardless of cost, and the maximum elements of all others together.
_SIZES: Final = 2
_MORE_ELEMENTS: Final = 1 << 13


@lru_cache(maxsize=256)
def in_place(program: Program, source: str = "in", target: str = "out") -> str | None:
    """Return why an output must not be the memory of an input, or None if it may be.

    It may be if both have the same type and size, and each overwritten element is read only by the
    warp that writes it, and only before the write. The lanes of the warp must converge between the
    read and the write, at a product or a barrier, unless one lane of an Assign does both.

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
        reason = _Order(program, scalars).reason(read, written)
        if reason:
            return f"{reason} ({named_sizes(scalars)})"
    if not same_warp_touches(program, read, written):
        return (
            f"it is not proven that each element of {target} is written by the warp that reads the "
            f"one of {source}; it was tried for few sizes"
        )
    return None


class _Touched(NamedTuple):
    """Accesses to the elements of an array, one entry each.

    place: the element's index in the rectangle; accesses of one index are by one lane. step: the
    index of the access. moment: the index of the step's execution. branch: the number of the branch
    on data, 0 outside; that of an `otherwise` is odd, and one more than that of the `body`. phase,
    meeting: the convergence points of the warp so far, for all data, and inside one branch on data.
    """

    address: Ints
    place: Ints
    step: Ints
    warp: Ints
    moment: Ints
    branch: Ints
    phase: Ints
    meeting: Ints

    def where(self, chosen: Mask | Ints) -> _Touched:
        """Return the selected entries."""
        return _Touched(*(column[chosen] for column in self))


class _Order:
    """The order in which each warp touches elements, for given sizes.

    moments: the index of each step's execution, in terms of its loops. converging: the executions
    of products and barriers outside and inside a branch on data, as `_key` gives them, ascending.
    """

    def __init__(self, program: Program, scalars: Mapping[str, int]) -> None:
        self.program, self.scalars = program, scalars
        moments, self.end = _moments(top(program), scalars)
        self.moments = {site.path: moment for site, moment in moments}
        self.converging = self._converging()

    def _key(self, warps: Ints, moments: Ints) -> Ints:
        """Return integers that ascend with the moments of each warp."""
        return warps * self.end + moments

    def _converging(self) -> list[Ints]:
        """Return the keys of products and barriers outside and inside a branch on data."""
        found: list[list[Ints]] = [[], []]
        for site in sites(self.program):
            on_data = sum(bool(guard.on_data) for guard in site.guards)
            if isinstance(site.step, Mma | Sync) and on_data < len(found):
                moment = self.moments[site.path]
                named = moment.symbols.union(*(bound_symbols(one.bounds) for one in site.guards))
                placement, warps = over_grid(self.program, site, named, self.scalars)
                keys = self._key(warps, placement.value(moment).ravel())
                found[on_data].append(keys[placement.reached(site.guards)])
        return [np.sort(np.concatenate([np.zeros(0, np.int64), *keys])) for keys in found]

    def touched(self, number: int, access: Access) -> _Touched | None:
        """Return the elements that the access of this index touches; None if unknown."""
        moment, guards = self.moments[access[0].path], access[0].guards
        found = trace(self.program, access, self.scalars, moment.symbols)
        if found is None:
            return None
        outermost = next((one for one in guards if one.on_data), None)
        branch = Index()
        if outermost is not None:
            branch = (self.moments[outermost.path] + 1) * 2 + (not outermost.taken)
        moments, branches = (found.placement.value(one).ravel() for one in (moment, branch))
        keys = self._key(found.warps, moments)
        phases = (np.searchsorted(points, keys) for points in self.converging)
        columns = (np.array([number]), found.warps, moments, branches, *phases)
        return _Touched(
            found.elements,
            found.places,
            *(np.broadcast_to(one, keys.shape)[found.entries] for one in columns),
        )

    def reason(self, source: Buffer, target: Buffer) -> str:
        """Return the reason against sharing memory, or an empty text."""
        reads = accesses_to(self.program, source, written=False)
        writes = accesses_to(self.program, target, written=True)
        rules = segments_of(self.program, [*reads, *writes])
        unknown = (
            f"elements of {source.name} and {target.name} are not all found as chunks of one "
            "length, so that it cannot be told which are the same"
        )
        written_parts = [self.touched(*one) for one in enumerate(writes)]
        if len(rules) > 1 or None in written_parts:
            return unknown
        if not writes:
            return ""
        (written, *more) = filter(None, written_parts)
        if more:
            written = _Touched(*map(np.concatenate, zip(written, *more, strict=True)))
        firsts = _Firsts(written, partial=target.partial)
        # The index of the rule, the lowest address, its first read, and the reason.
        found: list[tuple[int, int, int, str]] = []
        # One access after the other, since a program may read all data often.
        for read in (self.touched(*one) for one in enumerate(reads)):
            if read is None:
                return unknown
            at = firsts.of(read)
            shared = at >= 0
            mine, at = (read, at) if shared.all() else (read.where(shared), at[shared])
            other = written.where(at)
            for number, (unfit, text) in enumerate(_objections(mine, other)):
                if not unfit.any():
                    continue
                every = np.flatnonzero(unfit)
                one = every[np.lexsort((mine.moment[every], mine.address[every]))[0]]
                element = element_name(mine.address[one], gathered=rules != {None})
                words = text.format(
                    source=f"{source.name}[{element}]",
                    target=f"{target.name}[{element}]",
                    read=reads[mine.step[one]][0].path,
                    written=writes[other.step[one]][0].path,
                    reader=mine.warp[one],
                    writer=other.warp[one],
                )
                found.append((number, int(mine.address[one]), int(mine.moment[one]), words))
        return min(found)[-1] if found else ""


def _objections(read: _Touched, write: _Touched) -> Iterator[tuple[Mask, str]]:
    """Yield masks of the reads that must not share memory with a write, and the reasons."""
    yield (
        (read.moment == write.moment) & (read.place != write.place),
        "step {read} reads {source} for one element and writes {target} for another, and the lanes "
        "run in no order",
    )
    yield (
        read.warp != write.warp,
        "warp {reader} reads {source}, but warp {writer} writes {target}",
    )
    yield (
        read.moment > write.moment,
        "step {read} reads {source} after step {written} has written {target}",
    )
    # Convergence inside a branch on data is not certain, and counts only within the branch.
    inside = (read.branch == write.branch) & (read.branch > 0) & (read.meeting != write.meeting)
    yield (
        (read.moment < write.moment) & (read.phase == write.phase) & ~inside,
        "step {read} reads {source} and step {written} writes {target}, but no barrier is between",
    )


def _moments(
    steps: tuple[Site, ...], scalars: Mapping[str, int]
) -> tuple[list[tuple[Site, Index]], int]:
    """Return the number of each step's execution, in terms of loops, and the number of all."""
    found: list[tuple[Site, Index]] = []
    end = 0
    for site in steps:
        found.append((site, Index.of(end)))
        end += 1
        for branch in (site.body, site.otherwise):
            inner, length = _moments(branch, scalars)
            turn, count = Index(), 1
            if isinstance(site.step, Loop):
                turn, count = Index.symbol(site.step.var), site.step.count.evaluate(scalars)
            found += [(one, moment + turn * length + end) for one, moment in inner]
            end += length * count
    return found, end


class _Firsts:
    """The first write to each element, by its address or by the rank of its address."""

    def __init__(self, writes: _Touched, *, partial: bool) -> None:
        self.writes, addresses = writes, writes.address
        self.known: Ints | None = None
        if addresses.max(initial=0) >= CHUNK:
            self.known, addresses = np.unique(addresses, return_inverse=True)
        # The last assignment to an element remains.
        order = np.argsort(writes.moment, kind="stable")[::-1]
        # One branch may write more elements of a partial output than the other.
        usual = (writes.branch == 0) | (writes.branch % 2 == 1) | partial
        self.every, self.others = np.full((2, addresses.max(initial=0) + 2), -1)
        self.every[addresses[order]] = order
        order = order[usual[order]]
        self.others[addresses[order]] = order

    def of(self, reads: _Touched) -> Ints:
        """Return the index of the first write to each element that is read; -1 without a write.

        A write in the opposite branch on data counts as one in the reader's branch: both write the
        same elements.
        """
        at = reads.address
        if self.known is not None:
            found = np.minimum(np.searchsorted(self.known, at), self.known.size - 1)
            at = np.where(self.known[found] == at, found, self.every.size)
        # No element is written at the end of the table.
        at = np.minimum(at, self.every.size - 1)
        first: Ints = self.every[at]
        if not reads.branch.any() or not self.writes.branch.size:
            return first
        opposite = (reads.branch % 2 == 1) & (self.writes.branch[first] == reads.branch - 1)
        return np.where((first >= 0) & opposite, self.others[at], first)
