"""What blocks and warps do to global memory: who writes each element, and who publishes it.

Nothing orders the warps of a grid, so that of an output each element must be of one warp. Status
words are the exception, which `Publish` and `Await` make.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from tcusim.program.checks.affine import Region, regions
from tcusim.program.checks.sites import Finding
from tcusim.program.grammar import (
    Await,
    BufferRole,
    Gathered,
    Index,
    Locate,
    Program,
    Publish,
    Segments,
    View,
    accesses,
    walk,
)
from tcusim.program.walk import Ints, Placement, Site, grid_symbols, sites

__all__ = [
    "awaits_published",
    "has_one_writer",
    "locates",
    "one_writer",
    "outputs_written",
    "published_once",
    "sizes_to_try",
]

_IDENTITY: Final = ("block", "block_col", "warp")
# The addresses that a chunk takes in a trace: more than any chunk has elements.
_CHUNK: Final = 1 << 32
# Elements of one view that are followed to find an example, and to see that all are written.
_MOST_ELEMENTS: Final = 1 << 21
_MOST_COVERED: Final = 1 << 16


class _Access(NamedTuple):
    """A step that reads or writes an array of global memory, and the rectangle."""

    site: Site
    view: View


def sizes_to_try(program: Program) -> Iterator[dict[str, int]]:
    """Yield scalars to try: some whole blocks, or a partial one, alone and behind whole ones.

    Segments are so many that their chunks take a few blocks as well, not very many.
    """
    per = program.blocks.per
    for whole, partial in ((1, per - 1), (3, 2 * per + 1)):
        sizes = {
            scalar.name: whole * scalar.multiple_of if scalar.multiple_of > 1 else max(1, partial)
            for scalar in program.scalars
        }
        for step in locates(program).values():
            for name in step.segments.offsets.size.index.symbols:
                sizes[name] = max(1, partial // (step.segments.chunk or 1))
        yield sizes


def locates(program: Program) -> dict[str, Locate]:
    """Return the steps that find ranges, by the ranges' names."""
    return {step.dst.name: step for _, step in walk(program.steps) if isinstance(step, Locate)}


# --- Outputs ----------------------------------------------------------------------------------


def one_writer(program: Program) -> Iterator[Finding]:
    """Require that no two warps of the grid write one element of an output.

    That they do not is proved for all sizes, from how far apart blocks and warps are; where that is
    not enough, an example is looked for with a few sizes. An access that is neither proved nor
    refuted is accepted: the simulator then says so when two warps meet. Chunks of segments have no
    element in common, as long as the offsets ascend.
    Source: writes of two threads to one element are in no order [CPG sec. 7.5].
    """
    unproved = [] if has_one_writer(program) else _writes(program, BufferRole.OUTPUT).values()
    for writes in unproved:
        for scalars in sizes_to_try(program):
            finding = _two_writers(program, writes, scalars)
            if finding is not None:
                yield finding
                break


@lru_cache(maxsize=256)
def has_one_writer(program: Program) -> bool:
    """Return whether it is proved that no two warps write one element of an output."""
    for writes in _writes(program, BufferRole.OUTPUT).values():
        reaches = [_Reach.of(program, access) for access in writes]
        pairs = itertools.combinations_with_replacement(reaches, 2)
        if not all(one.is_apart(two) for one, two in pairs):
            return False
    return True


def outputs_written(program: Program) -> Iterator[Finding]:
    """Require that some step writes an output, and all of it unless it is declared as partial.

    That all is written is tried for a few sizes, where blocks are small enough to follow. Where the
    data decide what is written, as in ranges that Locate finds, all may be.
    Source: the grammar; on a GPU such an element holds what was in the memory before.
    """
    writes = _writes(program, BufferRole.OUTPUT)
    for buffer in program.outputs:
        if buffer.partial:
            continue
        if not writes.get(buffer.name):
            yield Finding(
                None, f"nothing writes the output {buffer.name!r}. Write it, or leave it out."
            )
            continue
        for scalars in sizes_to_try(program):
            missing = _unwritten(program, writes[buffer.name], scalars)
            if missing.size:
                yield Finding(
                    None,
                    f"nothing writes {buffer.name}[{missing[0]}] ({missing.size} such elements; "
                    f"{_named(scalars)}). Correct the offsets and bounds of what writes "
                    f"{buffer.name!r}, or its size, or declare it as partial.",
                )
                break


def _writes(program: Program, role: BufferRole) -> dict[str, list[_Access]]:
    """Return what writes each buffer of a role."""
    found: dict[str, list[_Access]] = {}
    for site in sites(program):
        for view in accesses(site.step).views_written:
            if view.buffer.role is role:
                found.setdefault(view.buffer.name, []).append(_Access(site, view))
    return found


def _two_writers(
    program: Program, writes: list[_Access], scalars: Mapping[str, int]
) -> Finding | None:
    """Return a finding for an element that two warps write, for these sizes."""
    name = writes[0].view.buffer.name
    rules = {place and place[1] for place in (_place(program, access) for access in writes)}
    traces = [_trace(program, access, scalars, _MOST_ELEMENTS) for access in writes]
    known = [trace for trace in traces if trace is not None]
    if len(rules) > 1 or len(known) < len(traces):
        return None
    index, warps = (np.concatenate(parts) for parts in zip(*known, strict=True))
    owners = np.repeat(np.arange(len(known)), [trace[0].size for trace in known])
    order = np.argsort(index, kind="stable")
    index, warps, owners = index[order], warps[order], owners[order]
    clash = np.flatnonzero((index[1:] == index[:-1]) & (warps[1:] != warps[:-1]))
    if not clash.size:
        return None
    at = int(clash[0])
    access = writes[owners[at + 1]]
    number, place = divmod(int(index[at]), _CHUNK)
    element = f"{place} of chunk {number}" if access.view.ranges else str(index[at])
    return Finding(
        access.site,
        f"writes {name}[{element}] in warp {warps[at + 1]} of the grid, and warp {warps[at]} "
        f"writes it too ({_named(scalars)}). Which one is last is not known: bound the view, or "
        f"let one warp write it, with When.",
    )


def _unwritten(program: Program, writes: list[_Access], scalars: Mapping[str, int]) -> Ints:
    """Return the elements that nothing writes, for these sizes; none if nobody knows."""
    written = np.zeros(writes[0].view.buffer.size.evaluate(scalars), bool)
    for access in writes:
        traced = None
        if access.view.ranges is None:
            traced = _trace(program, access, scalars, _MOST_COVERED)
        if traced is None:
            return np.arange(0)
        index, _ = traced
        written[index[index < written.size]] = True
    return np.flatnonzero(~written)


def _trace(
    program: Program, access: _Access, scalars: Mapping[str, int], most: int
) -> tuple[Ints, Ints] | None:
    """Return the elements that a step touches and the warps that do; None if they are too many.

    Chunk number n of ragged segments has the addresses from n * `_CHUNK` on.
    """
    site, view = access
    locate = None if view.ranges is None else locates(program)[view.ranges.name]
    named = {*view.offset.symbols, *(s for b in view.bounds for s in (b.lhs - b.rhs).symbols)}
    named |= {s for g in site.guards for b in g.bounds for s in (b.lhs - b.rhs).symbols}
    if locate is not None:
        named |= locate.first.symbols
    axes: dict[str, Ints] = {"warp": np.arange(program.grid(scalars) * program.warps)}
    for loop in site.loops:
        turns = loop.count.evaluate(scalars)
        if turns < 1:
            axes["warp"] = np.arange(0)
        elif loop.var in named:
            axes[loop.var] = np.arange(turns)
    count = math.prod(values.size for values in axes.values())
    if count * view.rows * view.cols > most:
        return None
    placement = Placement.over(axes, scalars)
    warps = placement.symbols["warp"]
    placement = Placement(warps.size, {**placement.symbols, **grid_symbols(program, warps)})
    if locate is not None:
        number = placement.value(locate.first)[:, :, 0] + np.arange(locate.dst.count)
        begin = np.broadcast_to(number, (warps.size, locate.dst.count)) * _CHUNK
        placement.ranges[locate.dst.name] = begin, begin + _CHUNK
    shape = (warps.size, view.rows, view.cols)
    used = placement.inside(view) & placement.reached(site.guards)[:, None, None]
    used = np.broadcast_to(used, shape)
    index = np.broadcast_to(placement.addresses(view), shape)
    return index[used], np.broadcast_to(warps[:, None, None], shape)[used]


def _named(scalars: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in scalars.items())


# --- That elements of two warps are apart, for all sizes ---------------------------------------


class _Reach(NamedTuple):
    """Where an access may be: what tells its elements apart, and for which values of symbols.

    rule: how segments are cut, if the elements are told by the numbers of chunks.
    """

    regions: tuple[Region, ...]
    place: Index | None
    rule: Segments | None

    @staticmethod
    def of(program: Program, access: _Access) -> _Reach:
        """Return the reach of an access."""
        place, rule = _place(program, access) or (None, None)
        found = regions(program, access.site, access.view)
        return _Reach(tuple(region for region in found if not region.empty), place, rule)

    def is_apart(self, other: _Reach) -> bool:
        """Return whether it is proved that no two warps touch one element by these accesses."""
        if self.place is None or other.place is None or self.rule != other.rule:
            return False
        pairs = itertools.product(self.regions, other.regions)
        return all(_same_warp(one, self.place, two, other.place) for one, two in pairs)


def _place(program: Program, access: _Access) -> tuple[Index, Segments | None] | None:
    """Return what tells elements apart: an address, or the number of a chunk of some segments."""
    view = access.view
    if view.ranges is None:
        return view.address, None
    step = locates(program).get(view.ranges.name)
    if step is None:
        return None
    side = "row" if isinstance(view.row_axis, Gathered) else "col"
    return step.first + Index.symbol(side), step.segments


def _same_warp(first: Region, one: Index, second: Region, two: Index) -> bool:
    """Return whether equal addresses are proved to be of the same warp.

    If all other symbols together move the address by less than one symbol's factor, that symbol has
    one value where two addresses are equal. It can then be left out, and the next one looked for.
    """
    one, two = one.substitute(first.factors), two.substitute(second.factors)
    for name in {*one.symbols, *two.symbols} - first.factors.keys():
        if first.low.get(name) == first.high.get(name) == second.low.get(name):
            one, two = (index.substitute({name: first.low[name]}) for index in (one, two))
    unknown = {name for name in _IDENTITY if not _is_fixed(name, first, second)}
    while unknown:
        for name, factor in sorted(one.terms, key=lambda term: -abs(term[1])):
            rest = Index.symbol(name) * factor
            left, right = one - rest, two - rest
            if (
                two.coefficient(name) == factor
                and name not in first.factors
                and _within(first, left, second, right, abs(factor))
                and _within(second, right, first, left, abs(factor))
            ):
                one, two = left, right
                unknown.discard(name)
                break
        else:
            return False
    return True


def _is_fixed(name: str, first: Region, second: Region) -> bool:
    """Return whether a symbol has one value alone, the same in both regions, for given sizes."""
    low = first.low[name]
    if low == first.high[name] == second.low[name] == second.high[name]:
        return True
    return _tied(name, first, second) and _tied(name, second, first)


def _tied(name: str, first: Region, second: Region) -> bool:
    """Return whether a symbol is no greater in the first region, as sizes alone limit it there.

    So it is in the last block: its number is at least, and at most, what the length says.
    """
    # Rows and loops are not the same in both: only scalars may cancel.
    known = {name, *first.factors}
    for upper, lower in itertools.product(first.conditions, second.conditions):
        if not upper.symbols | lower.symbols <= known:
            continue
        factor = upper.coefficient(name)
        rest = upper + lower
        # factor * (one - other) <= -rest, where all else has cancelled
        cancels = factor > 0 and lower.coefficient(name) == -factor and not rest.terms
        if cancels and -rest.const < factor:
            return True
    return False


def _within(first: Region, one: Index, second: Region, two: Index, distance: int) -> bool:
    """Return whether `one` is provably always less than `two` + distance."""
    scalars = first.factors.keys()
    shared = Index(tuple(term for term in one.terms if term in two.terms and term[0] in scalars))
    least = second.least(two - shared)
    return math.isfinite(least) and first.never_exceeds(one - shared, int(least) + distance - 1)


# --- Status words -----------------------------------------------------------------------------


def published_once(program: Program) -> Iterator[Finding]:
    """Require that each status word is published once, tried for a few sizes.

    Source: the grammar; a block that awaits it would get the one value or the other.
    """
    for scalars in sizes_to_try(program) if program.status else ():
        for name, writes in _writes(program, BufferRole.STATUS).items():
            size = writes[0].view.buffer.size.evaluate(scalars)
            times = np.zeros(size, np.int64)
            for access in writes:
                traced = _trace(program, access, scalars, _MOST_ELEMENTS)
                if traced is None:
                    return
                times += np.bincount(traced[0][traced[0] < size], minlength=size)
                if (times > 1).any():
                    yield Finding(
                        access.site,
                        f"publishes {name}[{np.argmax(times > 1)}] more than once "
                        f"({_named(scalars)}). Give each block its own, and let one warp publish "
                        f"it.",
                    )
                    return


def awaits_published(program: Program) -> Iterator[Finding]:
    """Require that an earlier block publishes what a block awaits, tried for a few sizes.

    Source: the grammar; on a GPU the launch would never end.
    """
    for scalars in sizes_to_try(program) if program.status else ():
        publishers: dict[str, Ints] = {}
        for buffer in program.status:
            publishers[buffer.name] = np.full(buffer.size.evaluate(scalars), np.iinfo(np.int64).max)
        for site in sites(program):
            if not isinstance(site.step, Publish):
                continue
            traced = _trace(program, _Access(site, site.step.dst), scalars, _MOST_ELEMENTS)
            if traced is None:
                return
            np.minimum.at(
                publishers[site.step.dst.buffer.name], traced[0], traced[1] // program.warps
            )
        for site in sites(program):
            if not isinstance(site.step, Await):
                continue
            traced = _trace(program, _Access(site, site.step.src), scalars, _MOST_ELEMENTS)
            if traced is None:
                return
            name = site.step.src.buffer.name
            missing = publishers[name][traced[0]] >= traced[1] // program.warps
            if missing.any():
                at = int(np.flatnonzero(missing)[0])
                yield Finding(
                    site,
                    f"waits for {name}[{traced[0][at]}] in block {traced[1][at] // program.warps}, "
                    f"which no earlier block publishes ({_named(scalars)}). Publish it there, "
                    f"before the block itself waits, or bound the view.",
                )
                return
