"""Which elements of shared memory a view touches, in each warp and each iteration."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np

from tcusim.program.grammar import Bound, Index, Program, Space, View
from tcusim.program.walk import Guard, Ints, Mask, Placement, Site

# Bounds on the work for one view: elements, loop iterations, and elements times size of the buffer.
MOST_ELEMENTS: Final = 1 << 21
_MOST_ITERATIONS: Final = 64
_MOST_FIXED_ITERATIONS: Final = 256
_MOST_CELLS: Final = 1 << 22


# --- Conditions -------------------------------------------------------------------------------


def bound_symbols(bounds: tuple[Bound, ...]) -> frozenset[str]:
    """Return the symbols that any of these bounds depends on."""
    return frozenset[str]().union(*((bound.lhs - bound.rhs).symbols for bound in bounds))


def bounds_on(bounds: tuple[Bound, ...], known: frozenset[str]) -> tuple[Bound, ...]:
    """Return the bounds that depend on these symbols alone."""
    return tuple(bound for bound in bounds if bound_symbols((bound,)) <= known)


def depends_on_warp(bounds: tuple[Bound, ...]) -> bool:
    """Whether warps of one block may differ in whether the bounds hold."""
    return "warp" in bound_symbols(bounds)


def relative_addresses(view: View) -> Ints:
    """Return the addresses from the offset on, less those that a bound on row and col excludes."""
    bounds = bounds_on(view.bounds, frozenset(("row", "col")))
    placement = Placement.over({}, {})
    rest = replace(view, offset=Index(), bounds=bounds)
    return placement.addresses(rest)[placement.inside(rest)]


# --- Elements of shared memory ----------------------------------------------------------------


def is_shared(view: View) -> bool:
    """Whether the view is of shared memory, of a warp or of a block."""
    return view.buffer.space is not Space.GLOBAL


@dataclass(frozen=True, slots=True)
class Footprint:
    """Elements of one shared buffer that a view touches, row by row of `cells`.

    cells: (rows, size). columns: for the warp and each loop variable that the view depends on, its
    value in each row; a symbol without a column does not matter.
    """

    columns: dict[str, Ints]
    cells: Mask
    exact: bool

    @property
    def union(self) -> Mask:
        """The elements touched by any warp in any iteration: (size,)."""
        result: Mask = np.logical_or.reduce(self.cells, axis=0)
        return result


def footprint(program: Program, site: Site, view: View) -> Footprint:
    """Return the elements that may be touched; `exact` if they are, whatever the sizes are."""
    ranges = {"warp": program.warps}
    for loop in site.loops:
        count = loop.count.constant
        ranges[loop.var] = _MOST_ITERATIONS if count is None else min(count, _MOST_FIXED_ITERATIONS)
    return _footprint_of(view, site.guards, tuple(ranges.items()))


@lru_cache(maxsize=256)
def _footprint_of(
    view: View, guards: tuple[Guard, ...], items: tuple[tuple[str, int], ...]
) -> Footprint:
    ranges = dict(items)
    known = frozenset(("row", "col", *ranges))
    size = view.buffer.size.constant or 1
    bounds = bounds_on(view.bounds, known)
    guards = tuple(known_part for guard in guards if (known_part := _known_part(guard, known)))
    used = view.offset.symbols | bound_symbols(bounds)
    used = used.union(*(bound_symbols(guard.bounds) for guard in guards))
    axes = {name: np.arange(count) for name, count in ranges.items() if name in used}
    count = math.prod(len(values) for values in axes.values())
    too_many = count * view.rows * view.cols > MOST_ELEMENTS or count * size > _MOST_CELLS
    if too_many or not view.offset.symbols <= known:
        return Footprint({}, np.ones((1, size), dtype=np.bool_), exact=False)
    placement = Placement.over(axes, {})
    cells = _cells(placement, replace(view, bounds=bounds), guards, size)
    columns = {name: placement.symbols[name] for name in axes}
    return Footprint(columns, cells, exact=bounds == view.bounds)


def _known_part(guard: Guard, known: frozenset[str]) -> Guard | None:
    """Return what of a branch's condition depends on these symbols alone, if it says anything."""
    if guard.taken:
        return Guard(guard.path, bounds_on(guard.bounds, known), taken=True)
    # That not all bounds hold says nothing of each.
    return guard if bound_symbols(guard.bounds) <= known else None


def _cells(placement: Placement, view: View, guards: tuple[Guard, ...], size: int) -> Mask:
    """Return which of `size` elements are touched at each place: (W, size)."""
    shape = (placement.count, view.rows, view.cols)
    address = np.broadcast_to(placement.addresses(view), shape).reshape(placement.count, -1)
    used = np.broadcast_to(placement.inside(view), shape).reshape(placement.count, -1)
    used = used & placement.reached(guards)[:, None] & (address >= 0) & (address < size)
    cells = np.zeros((placement.count, size), dtype=np.bool_)
    row, element = np.nonzero(used)
    cells[row, address[row, element]] = True
    return cells


def meets(one: Footprint, two: Footprint, allowed: Mask) -> bool:
    """Whether a row of `one` and a row of `two` that are allowed together share an element."""
    common = one.union & two.union
    if not common.any():
        return False
    left = one.cells[:, common].astype(np.float32)
    right = two.cells[:, common].astype(np.float32)
    return bool(((left @ right.T > 0) & allowed).any())
