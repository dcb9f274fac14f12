"""The elements that steps touch: of shared memory for all sizes, of arrays for given sizes.

Every check that lists elements asks here: a `Footprint` gives the elements of shared memory that a
view touches in each warp of a block and each iteration, and `trace` those of an array, in each warp
of the grid. Elements of ragged segments are named by a chunk and a position in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Final, NamedTuple, SupportsInt, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.program.grammar import (
    COL,
    ROW,
    Bound,
    Buffer,
    Gathered,
    Index,
    Locate,
    Program,
    Segments,
    Space,
    View,
)
from tcusim.program.walk import (
    WARP_PLACES,
    Guard,
    Ints,
    Mask,
    Placement,
    Site,
    grid_symbols,
    sites,
    span,
    warp_symbols,
)

# Maximum number of elements traced for one view, over all warps and iterations.
MOST_ELEMENTS: Final = 1 << 24


# --- Conditions -------------------------------------------------------------------------------


def bound_symbols(bounds: tuple[Bound, ...]) -> frozenset[str]:
    """Return the symbols that any of these bounds depends on."""
    return frozenset[str]().union(*(bound.excess.symbols for bound in bounds))


def bounds_on(bounds: tuple[Bound, ...], known: frozenset[str]) -> tuple[Bound, ...]:
    """Return the bounds that depend only on these symbols."""
    return tuple(bound for bound in bounds if bound_symbols((bound,)) <= known)


def depends_on_warp(bounds: tuple[Bound, ...]) -> bool:
    """Whether the bounds may hold for some warps of a block and fail for others."""
    return not bound_symbols(bounds).isdisjoint(WARP_PLACES)


def relative_addresses(view: View) -> Ints:
    """Return the addresses relative to the offset, within any bounds on row and col."""
    bounds = bounds_on(view.bounds, frozenset(("row", "col")))
    placement = Placement.over({}, {})
    rest = replace(view, offset=Index(), bounds=bounds)
    return placement.addresses(rest)[placement.inside(rest)]


# --- Elements of shared memory ----------------------------------------------------------------


def is_shared(view: View) -> bool:
    """Whether the view is of shared memory, of a warp or of a block."""
    return view.buffer.space is not Space.GLOBAL


@dataclass(frozen=True, eq=False)
class Footprint:
    """Elements of one shared buffer that a view touches, for each warp and iteration.

    columns: for the warp and each loop variable that the view depends on, its value at each of
    `count` places; a symbol without a column does not matter. places, elements: pairs of a place
    and an element that it touches. union: a mask of the elements touched at any place, (size,).
    exact: whether they are touched for all sizes. complete: whether all places were traced; else a
    single place touches all elements.
    """

    columns: dict[str, Ints]
    count: int
    places: Ints
    elements: Ints
    union: Mask
    exact: bool
    complete: bool = True

    @cached_property
    def owners(self) -> Ints | None:
        """The place that touches each element, or -1; None if several places touch an element."""
        if not self.complete:
            return None
        owners = np.full(self.union.size, -1)
        owners[self.elements] = self.places
        return owners if (owners[self.elements] == self.places).all() else None


def footprint(program: Program, site: Site, view: View) -> Footprint:
    """Return the elements that may be touched; `exact` if they are touched for all sizes."""
    loops = ((loop.var, loop.count.constant) for loop in site.loops)
    return _footprint_of(view, site.guards, program.warp_columns, (("warp", program.warps), *loops))


def may_run(program: Program, site: Site, guard: Guard) -> bool:
    """Whether some warp and iteration that reaches a When may take this branch.

    Loops with run-time counts, and conditions on them, are taken as possible.
    """
    counts = {"warp": program.warps}
    counts |= {loop.var: loop.count.constant for loop in site.loops if loop.count.constant}
    known = frozenset((*WARP_PLACES, *counts))
    parts = (_known_part(one, known) for one in (*site.guards, guard) if one.tells)
    guards = tuple(part for part in parts if part)
    used = frozenset[str]().union(*(bound_symbols(one.bounds) for one in guards))
    if used & WARP_PLACES:
        used |= {"warp"}
    axes = {name: np.arange(count) for name, count in counts.items() if name in used}
    if math.prod(map(len, axes.values())) > MOST_ELEMENTS:
        return True
    placement = Placement.over(axes, {})
    if "warp" in axes:
        placement.symbols |= warp_symbols(placement.symbols["warp"], program.warp_columns)
    return bool(placement.reached(guards).any())


def _iterations(view: View, guards: tuple[Guard, ...], name: str, fixed: Mapping[str, int]) -> int:
    """Return the number of iterations of a run-time loop to trace.

    After these, conditions on its variable and on symbols of known count no longer change, and an
    address that moves with it has left the buffer.
    """
    box = {other: (0, max(0, count - 1)) for other, count in fixed.items()}
    box |= {"row": (0, view.rows - 1), "col": (0, view.cols - 1)}
    box |= dict.fromkeys(WARP_PLACES, box["warp"])
    bounds = [*view.bounds, *(bound for guard in guards for bound in guard.bounds)]
    most = 1
    for index in (view.address, *(bound.excess for bound in bounds)):
        factor = index.coefficient(name)
        if factor:
            rest = index.substitute(dict.fromkeys(index.symbols - box.keys(), 0))
            reach = max(map(abs, span(rest, box))) + (view.buffer.size.constant or 0)
            most = max(most, 2 + reach // abs(factor))
    return most


@lru_cache(maxsize=256)
def _footprint_of(
    view: View, every: tuple[Guard, ...], across: int, counts: tuple[tuple[str, int | None], ...]
) -> Footprint:
    """Return a footprint; `counts` gives warps and iterations, None if known only at run time.

    across: the number of warp columns.
    """
    known = frozenset(("row", "col", *WARP_PLACES, *(name for name, _ in counts)))
    guards = tuple(part for guard in every if (part := _known_part(guard, known)))
    fixed = {name: count for name, count in counts if count is not None}
    ranges = {
        name: _iterations(view, guards, name, fixed) if count is None else count
        for name, count in counts
    }
    size = view.buffer.size.constant or 1
    bounds = bounds_on(view.bounds, known)
    used = view.offset.symbols | bound_symbols(bounds)
    used = used.union(*(bound_symbols(guard.bounds) for guard in guards))
    if used & WARP_PLACES:
        used |= {"warp"}
    axes = {name: np.arange(count) for name, count in ranges.items() if name in used}
    count = math.prod(len(values) for values in axes.values())
    unknown = view.ranges is not None or not view.offset.symbols <= known
    if unknown or count * view.rows * view.cols > MOST_ELEMENTS:
        elements = np.arange(size)
        places, union = np.zeros_like(elements), np.ones(size, dtype=np.bool_)
        return Footprint({}, 1, places, elements, union, exact=False, complete=False)
    placement = Placement.over(axes, {})
    if "warp" in axes:
        placement.symbols |= warp_symbols(placement.symbols["warp"], across)
    known_view = view if bounds == view.bounds else replace(view, bounds=bounds)
    places, _, elements = touched(placement, known_view, guards)
    valid = (elements >= 0) & (elements < size)
    places, elements = places[valid], elements[valid]
    columns = {name: placement.symbols[name] for name in axes}
    union = np.zeros(size, dtype=np.bool_)
    union[elements] = True
    exact = known_view is view
    return Footprint(columns, placement.count, places, elements, union, exact)


def _known_part(guard: Guard, known: frozenset[str]) -> Guard | None:
    """Return the part of a branch's condition that depends only on these symbols, or None."""
    if guard.taken:
        return Guard(guard.path, bounds_on(guard.bounds, known), taken=True)
    # A failed conjunction says nothing about a single bound.
    return guard if guard.tells and bound_symbols(guard.bounds) <= known else None


def touched(placement: Placement, view: View, guards: tuple[Guard, ...]) -> tuple[Ints, Ints, Ints]:
    """Return the execution, the index in the rectangle and the address of each touched element.

    Only in-bounds elements of executions that take the branches have an entry. Addresses may be
    outside the buffer.
    """
    shape = (placement.count, view.rows, view.cols)
    used = placement.inside(view)
    if guards:
        used = used & placement.reached(guards)[:, None, None]
    used = np.broadcast_to(used, shape)
    entries, places = np.divmod(np.flatnonzero(used), view.rows * view.cols)
    return entries, places, np.broadcast_to(placement.addresses(view), shape)[used]


def meets(one: Footprint, two: Footprint, relations: Mapping[str, np.ufunc]) -> bool:
    """Whether a place of `one` and a place of `two` with these relations share an element."""
    common = one.union & two.union
    if not common.any():
        return False
    related = relations.keys() & one.columns.keys() & two.columns.keys()
    if not related:
        return True
    if one.owners is not None and two.owners is not None:
        # At most two places for each element: no matrix is needed.
        here, there = one.owners[common], two.owners[common]
        both = np.full(here.size, True)
        for name in related:
            both &= relations[name](one.columns[name][here], two.columns[name][there])
        return bool(both.any())
    left, right = (_dense(each, common) for each in (one, two))
    shared = left @ right.T > 0
    for name in related:
        shared &= relations[name](one.columns[name][:, None], two.columns[name][None, :])
    return bool(shared.any())


def _dense(touched: Footprint, common: Mask) -> NDArray[np.float32]:
    """Return a matrix with 1 for a place that touches an element of `common`: (count, elements)."""
    number = np.cumsum(common) - 1
    inside = common[touched.elements]
    matrix = np.zeros((touched.count, int(common.sum())), np.float32)
    matrix[touched.places[inside], number[touched.elements[inside]]] = 1
    return matrix


# --- Elements of arrays, at given sizes ---------------------------------------------------------


# A step that reads or writes an array of global memory, and the rectangle.
Access: TypeAlias = tuple[Site, View]
# Addresses reserved for a chunk of segments: more than the elements of any chunk.
CHUNK: Final = 1 << 32


def accesses_to(program: Program, buffer: Buffer, *, written: bool) -> list[Access]:
    """Return the writes, or the reads, of a buffer."""
    found: list[Access] = []
    for site in sites(program):
        views = site.touched.views_written if written else site.touched.views_read
        found += [(site, view) for view in views if view.buffer.name == buffer.name]
    return found


def segments_of(program: Program, touching: list[Access]) -> set[Segments | None]:
    """Return the chunkings of segments whose chunk indices identify the elements of views."""
    found = dict[str, Segments]()
    for site in sites(program):
        if isinstance(site.step, Locate):
            found[site.step.dst.name] = site.step.segments
    return {found.get(view.ranges.name) if view.ranges else None for _, view in touching}


def current_locate(program: Program, site: Site, view: View) -> Locate | None:
    """Return the Locate of a view's ranges, if it is the only one and has just run.

    It precedes the view's step, in the same or in enclosing iterations and branches.
    """
    if view.ranges is None:
        return None
    found = [
        (number, other)
        for number, other in enumerate(sites(program))
        if isinstance(other.step, Locate) and other.step.dst.name == view.ranges.name
    ]
    if len(found) != 1:
        return None
    number, other = found[0]
    before = number < sites(program).index(site)
    around = (
        site.loops[: len(other.loops)] == other.loops
        and site.guards[: len(other.guards)] == other.guards
    )
    assert isinstance(other.step, Locate)
    return other.step if before and around else None


def chunk_index(locate: Locate, view: View) -> Index:
    """Return the index of the chunk that contains an element of a gathered view."""
    return locate.first + (ROW if isinstance(view.row_axis, Gathered) else COL)


def element_name(index: SupportsInt, *, gathered: bool) -> str:
    """Return the name of an element for messages."""
    number, place = divmod(int(index), CHUNK)
    return f"{place} of chunk {number}" if gathered else str(index)


def executions(
    program: Program, site: Site, named: frozenset[str], scalars: Mapping[str, int]
) -> dict[str, int]:
    """Return the number of warps of the grid, and of iterations of named loops around a step."""
    counts = {"warp": program.grid(scalars) * program.warps}
    for loop in site.loops:
        turns = loop.count.evaluate(scalars)
        if turns < 1:
            counts["warp"] = 0
        if loop.var in named:
            counts[loop.var] = max(1, turns)
    return counts


def symbols_of_elements(program: Program, site: Site, view: View) -> frozenset[str]:
    """Return the symbols that determine the elements that a step touches."""
    locate = current_locate(program, site, view)
    bounds = (*view.bounds, *(bound for guard in site.guards for bound in guard.bounds))
    named = view.offset.symbols | bound_symbols(bounds)
    return named if locate is None else named | locate.first.symbols


class Traced(NamedTuple):
    """Elements of an array that a step touches, one entry each.

    placement, warps: the executions, and their warps by index in the grid. entries: each element's
    execution. places: its index in the rectangle.
    """

    placement: Placement
    warps: Ints
    entries: Ints
    places: Ints
    elements: Ints


def over_grid(
    program: Program, site: Site, named: frozenset[str], scalars: Mapping[str, int]
) -> tuple[Placement, Ints]:
    """Return the executions of a step, in iterations of named loops, and their warps by index."""
    counts = executions(program, site, named, scalars)
    placement = Placement.over({name: np.arange(count) for name, count in counts.items()}, scalars)
    warps: Ints = placement.symbols["warp"]
    placement.symbols |= grid_symbols(program, warps)
    return placement, warps


def trace(
    program: Program,
    access: Access,
    scalars: Mapping[str, int],
    named: frozenset[str] = frozenset(),
) -> Traced | None:
    """Return the elements of an array that a step touches, at given sizes; None if unknown.

    named: loops to distinguish, besides those that determine the elements. Chunk n of segments has
    addresses from n * `CHUNK` on.
    """
    site, view = access
    locate = current_locate(program, site, view)
    named = named | symbols_of_elements(program, site, view)
    placement, warps = over_grid(program, site, named, scalars)
    if view.ranges is not None:
        if locate is None or not locate.first.symbols <= placement.symbols.keys():
            return None
        shape = (placement.count, locate.dst.count)
        number = placement.value(locate.first)[:, :, 0] + np.arange(locate.dst.count)
        begin = np.broadcast_to(number, shape) * CHUNK
        placement.ranges[locate.dst.name] = begin, begin + (locate.segments.chunk or CHUNK)
    entries, places, elements = touched(placement, view, site.guards)
    if locate is None:
        valid = (elements >= 0) & (elements < view.buffer.size.evaluate(scalars))
        if not valid.all():
            entries, places, elements = entries[valid], places[valid], elements[valid]
    return Traced(placement, warps, entries, places, elements)
