"""Checks of writes to global memory: one writer for each element, and published status words.

The warps of a grid are unordered, so only one warp may write each element of an output. `Publish`
and `Await` order accesses to status words, the exception.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from tcusim.program.checks.affine import Region, Regions
from tcusim.program.checks.coverage import all_published, all_written
from tcusim.program.checks.regions import (
    CHUNK,
    Access,
    accesses_to,
    chunk_index,
    current_locate,
    element_name,
    executions,
    segments_of,
    symbols_of_elements,
    trace,
)
from tcusim.program.checks.sites import Finding, Unproven
from tcusim.program.checks.sizes import named_sizes, sizes_to_try
from tcusim.program.grammar import Buffer, Extent, Index, Program, Segments, View
from tcusim.program.walk import Ints, Site, span

_IDENTITY: Final = ("block", "block_row", "block_col", "warp", "warp_row", "warp_col")
# Maximum number of elements that one check traces, for all the sizes that it tries.
_MOST_ELEMENTS: Final = 1 << 22
# Maximum number of sizes named in a message.
_MOST_NAMED: Final = 12


# --- Outputs ----------------------------------------------------------------------------------


def one_writer(program: Program) -> Iterator[Finding | Unproven]:
    """Require that no two warps of the grid write one element of an output.

    Proved for all sizes, from the strides of blocks and warps. Failing that, the check searches
    some sizes for an example; the simulator also reports two warps that write one element. Chunks
    of segments have no element in common, as long as the offsets ascend.
    Source: writes of two threads to one element are in no order [CPG sec. 7.5].
    """
    for buffer in () if has_one_writer(program) else program.outputs:
        writes = accesses_to(program, buffer, written=True)
        rules = segments_of(program, writes)
        tried = _Tried()
        for scalars in sizes_to_try(program) if len(rules) == 1 else ():
            traced = tried.traced(program, writes, scalars)
            pair = traced and traced.pair(of_two_warps=True)
            if traced and pair:
                earlier, later = pair
                element = element_name(traced.element[later], gathered=rules != {None})
                yield Finding(
                    writes[traced.access[later]][0],
                    f"writes {buffer.name}[{element}] in warp {traced.warp[later]} of the grid, "
                    f"and warp {traced.warp[earlier]} writes it too ({named_sizes(scalars)}). "
                    f"Which one is last is not known: bound the view, or let one warp write it, "
                    f"with When.",
                )
                break
        else:
            yield Unproven(tried.text)


@lru_cache(maxsize=256)
def has_one_writer(program: Program) -> bool:
    """Return whether provably no two warps write one element of an output."""
    regions = Regions(program)
    for buffer in program.outputs:
        writes = accesses_to(program, buffer, written=True)
        reaches = _reaches(program, regions, writes)
        pairs = itertools.combinations_with_replacement(reaches or (), 2)
        if reaches is None or not all(_same_warp(*one, *two) for one, two in pairs):
            return False
    return True


def same_warp_touches(program: Program, read: Buffer, written: Buffer) -> bool:
    """Return whether provably only the warp that writes an element reads its counterpart.

    Counterparts have the same index in both buffers.
    """
    reads = accesses_to(program, read, written=False)
    writes = accesses_to(program, written, written=True)
    if len(segments_of(program, [*reads, *writes])) > 1:
        return False
    regions = Regions(program)
    one, two = _reaches(program, regions, reads), _reaches(program, regions, writes)
    if one is None or two is None:
        return False
    return all(_same_warp(*each, *other) for each, other in itertools.product(one, two))


def _reaches(
    program: Program, regions: Regions, touching: list[Access]
) -> list[tuple[Region, Index]] | None:
    """Return the regions of accesses and the keys of their elements; None without a key."""
    if len(segments_of(program, touching)) > 1:
        return None
    reaches: list[tuple[Region, Index]] = []
    for site, view in touching:
        place = _place(program, site, view)
        if place is None:
            return None
        for region in regions.around(site, view):
            # Both branches of a When may touch the same elements, in the same warps.
            if not region.empty and (region, place) not in reaches:
                reaches.append((region, place))
    return reaches


def outputs_written(program: Program) -> Iterator[Finding | Unproven]:
    """Require that some step writes an output, and all of it unless it is declared as partial.

    Complete coverage is proved for all sizes for which the grid has a block, or tried for some. In
    ranges that Locate finds, it covers all elements of segments. For chunks that are whole segments
    the proof is limited to a segment length, since programs do not state a maximum.
    Source: the grammar; on a GPU an unwritten element keeps stale memory contents.
    """
    for buffer in program.outputs:
        writes = accesses_to(program, buffer, written=True)
        if buffer.partial:
            continue
        if not writes:
            yield Finding(
                None, f"nothing writes the output {buffer.name!r}. Write it, or leave it out."
            )
            continue
        if all_written(program, buffer, writes):
            continue
        rules = segments_of(program, writes)
        (rule,) = rules if len(rules) == 1 else (None,)
        if rule is not None and rule.chunk is None:
            yield _of_whole_segments(program, buffer, writes)
            continue
        tried = _Tried()
        for scalars in sizes_to_try(program) if len(rules) == 1 else ():
            traced = tried.traced(program, writes, scalars)
            if traced is None:
                continue
            missing = traced.missing(buffer, rule, scalars)
            if missing.size:
                element = element_name(missing[0], gathered=rule is not None)
                yield Finding(
                    None,
                    f"nothing writes {buffer.name}[{element}] ({missing.size} such elements; "
                    f"{named_sizes(scalars)}). Correct the offsets and bounds of what writes "
                    f"{buffer.name!r}, or its size, or declare it as partial.",
                )
                break
        else:
            yield Unproven(tried.text)


def _of_whole_segments(program: Program, buffer: Buffer, writes: list[Access]) -> Unproven:
    """Return the segment length up to which unlimited chunks are proved to be written."""
    longest = 0
    for site, view in writes:
        counts = {loop.var: loop.count.constant or 1 for loop in site.loops}
        counts |= {"row": view.rows, "col": view.cols}
        box = {name: (0, count - 1) for name, count in counts.items()}
        if view.address.symbols <= box.keys():
            longest = max(longest, span(view.address, box)[1] + 1)
    if longest and all_written(program, buffer, writes, longest):
        return Unproven("", f"proved of segments of at most {longest} elements")
    return Unproven("tried for no size: segments of any length are written as a whole")


# --- Status words -----------------------------------------------------------------------------


def published_once(program: Program) -> Iterator[Finding | Unproven]:
    """Require that each status word is published once.

    Proved for all sizes of a single step that publishes; else tried for some.
    Source: the grammar; a block that awaits it would get either value.
    """
    for buffer in program.status:
        writes = accesses_to(program, buffer, written=True)
        if len(writes) < 2 and all(_is_written_once(program, *one) for one in writes):
            continue
        tried = _Tried()
        for scalars in sizes_to_try(program):
            traced = tried.traced(program, writes, scalars)
            pair = traced and traced.pair(of_two_warps=False)
            if traced and pair:
                yield Finding(
                    writes[traced.access[pair[1]]][0],
                    f"publishes {buffer.name}[{traced.element[pair[1]]}] more than once "
                    f"({named_sizes(scalars)}). Give each block its own, and let one warp publish "
                    f"it.",
                )
                return
        yield Unproven(tried.text)


def awaits_published(program: Program) -> Iterator[Finding | Unproven]:
    """Require that an earlier block publishes each word that a block awaits.

    Proved for all sizes if the word's index determines the publishing block; else tried for some.
    Source: the grammar; on a GPU the launch would never end.
    """
    for buffer in program.status:
        awaits = accesses_to(program, buffer, written=False)
        publishes = accesses_to(program, buffer, written=True)
        if all_published(program, awaits, publishes):
            continue
        tried = _Tried()
        for scalars in sizes_to_try(program):
            published = tried.traced(program, publishes, scalars)
            awaited = tried.traced(program, awaits, scalars)
            if published is None or awaited is None:
                continue
            publisher = np.full(buffer.size.evaluate(scalars), np.iinfo(np.int64).max)
            np.minimum.at(publisher, published.element, published.warp // program.warps)
            blocks = awaited.warp // program.warps
            missing = np.flatnonzero(publisher[awaited.element] >= blocks)
            if missing.size:
                at = missing[0]
                yield Finding(
                    awaits[awaited.access[at]][0],
                    f"waits for {buffer.name}[{awaited.element[at]}] in block {blocks[at]}, which "
                    f"no earlier block publishes ({named_sizes(scalars)}). Publish it there, "
                    f"before the block itself waits, or bound the view.",
                )
                return
        yield Unproven(tried.text)


# --- Elements that are touched, for given sizes -------------------------------------------------


class _Traced(NamedTuple):
    """Accessed elements, one entry each, with the warp and the access."""

    element: Ints
    warp: Ints
    access: Ints

    def missing(self, buffer: Buffer, rule: Segments | None, scalars: Mapping[str, int]) -> Ints:
        """Return the missing elements of a buffer; for segments, of all chunks."""
        if rule is None:
            unwritten = np.ones(buffer.size.evaluate(scalars), bool)
            unwritten[self.element] = False
            return np.flatnonzero(unwritten)
        data = buffer.size if rule.limit is None else Extent(rule.limit)
        segments, chunk = rule.offsets.size.evaluate(scalars) - 1, rule.chunk or 1
        numbers = max(0, segments - 1 - (-data.evaluate(scalars) // chunk)) if segments else 0
        number, place = np.divmod(self.element, CHUNK)
        unwritten = np.ones((numbers, chunk), bool)
        known = number < numbers
        unwritten[number[known], place[known]] = False
        number, place = np.nonzero(unwritten)
        return number * CHUNK + place

    def pair(self, *, of_two_warps: bool) -> tuple[int, int] | None:
        """Return two entries for one element, or None."""
        order = np.argsort(self.element, kind="stable")
        one, two = order[:-1], order[1:]
        unlike = self.warp[one] != self.warp[two] if of_two_warps else True
        found = np.flatnonzero((self.element[one] == self.element[two]) & unlike)
        return (int(one[found[0]]), int(two[found[0]])) if found.size else None


class _Tried:
    """The sizes tried, and the remaining budget of elements to trace."""

    def __init__(self) -> None:
        self.left = _MOST_ELEMENTS
        self.sizes: list[Mapping[str, int]] = []

    def traced(
        self, program: Program, touching: list[Access], scalars: Mapping[str, int]
    ) -> _Traced | None:
        """Return the elements that steps touch; None if unknown or too many."""
        count = 0
        for site, view in touching:
            counts = executions(program, site, symbols_of_elements(program, site, view), scalars)
            count += math.prod(counts.values()) * view.rows * view.cols
        parts = [(np.arange(0),) * 3]
        for number, access in enumerate(touching):
            found = trace(program, access, scalars) if count <= self.left else None
            if found is None:
                return None
            parts.append(
                (found.elements, found.warps[found.entries], np.full(found.entries.size, number))
            )
        self.left -= count
        if scalars not in self.sizes:
            self.sizes.append(scalars)
        return _Traced(*map(np.concatenate, zip(*parts, strict=True)))

    @property
    def text(self) -> str:
        """The sizes, as text for messages."""
        if not self.sizes:
            return "tried for no size: there are too many elements, or data decide on them"
        some = "; ".join(named_sizes(scalars) for scalars in self.sizes[:_MOST_NAMED])
        more = len(self.sizes) - _MOST_NAMED
        sizes = f"{len(self.sizes)} size{'s' * (len(self.sizes) > 1)}"
        return f"tried for {sizes}: {some}{'; ...' if more > 0 else ''}"


def _is_written_once(program: Program, site: Site, view: View) -> bool:
    """Return whether a step provably writes each element once, in one warp."""
    regions = [one for one in Regions(program).around(site, view) if not one.empty]
    places = _IDENTITY + tuple(loop.var for loop in site.loops) + ("row", "col")
    pairs = itertools.combinations_with_replacement(regions, 2)
    return view.ranges is None and all(
        _same_warp(one, view.address, two, view.address, places) for one, two in pairs
    )


# --- That elements of two warps are apart, for all sizes ---------------------------------------


def _place(program: Program, site: Site, view: View) -> Index | None:
    """Return the key of an element: an address, or the index of a chunk of segments."""
    if view.ranges is None:
        return view.address
    step = current_locate(program, site, view)
    if step is None:
        return None
    return chunk_index(step, view)


def _same_warp(
    first: Region, one: Index, second: Region, two: Index, places: tuple[str, ...] = _IDENTITY
) -> bool:
    """Return whether equal addresses provably belong to the same warp, or differ in place.

    If all other symbols together move the address by less than one symbol's factor, that symbol has
    the same value in equal addresses. It is then removed, and the search continues with the next.
    """
    one, two = one.substitute(first.factors), two.substitute(second.factors)
    for name in {*one.symbols, *two.symbols} - first.scalars:
        if _is_point(name, first, second):
            one, two = (index.substitute({name: first.box[name][0]}) for index in (one, two))
        else:
            # A symbol of one value in a region moves both addresses alike.
            one = _moved_alike(one, name, two.coefficient(name), first)
            two = _moved_alike(two, name, one.coefficient(name), second)
    there = [name for name in places if name in first.box]
    unknown = {name for name in there if not _is_fixed(name, first, second)}
    while unknown:
        for name, factor in sorted(one.terms, key=lambda term: -abs(term[1])):
            rest = Index.symbol(name) * factor
            left, right = one - rest, two - rest
            if (
                two.coefficient(name) == factor
                and name not in first.scalars
                and _within(first, left, second, right, abs(factor))
                and _within(second, right, first, left, abs(factor))
            ):
                one, two = left, right
                unknown.discard(name)
                break
        else:
            # The regions may be disjoint.
            return _within(first, one, second, two, 0) or _within(second, two, first, one, 0)
    return True


def _moved_alike(index: Index, name: str, factor: int, region: Region) -> Index:
    """Return an equal index in the region with this factor for a symbol of one value."""
    low, high = region.box.get(name, (0, math.inf))
    if low != high:
        return index
    return index + (Index.symbol(name) - low) * (factor - index.coefficient(name))


def _is_fixed(name: str, first: Region, second: Region) -> bool:
    """Return whether a symbol has a single value, equal in both regions, for given sizes."""
    return _is_point(name, first, second) or (
        _tied(name, first, second) and _tied(name, second, first)
    )


def _is_point(name: str, first: Region, second: Region) -> bool:
    """Return whether a symbol has a single value, equal in both regions, for all sizes."""
    low, high = first.box.get(name, (0, math.inf))
    return low == high and second.box.get(name) == (low, high)


def _tied(name: str, first: Region, second: Region) -> bool:
    """Return whether a symbol is no greater in the first region, as sizes alone limit it there.

    This holds for the last block: the length bounds its index from both sides.
    """
    # Rows and loops are not the same in both: only scalars may cancel.
    known = {name, *first.scalars}
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
    scalars = first.scalars
    shared = Index(tuple(term for term in one.terms if term in two.terms and term[0] in scalars))
    least, _ = span(two - shared, second.box)
    return math.isfinite(least) and first.never_exceeds(one - shared, int(least) + distance - 1)
