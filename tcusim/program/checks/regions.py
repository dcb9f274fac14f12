"""Which elements of memory a view touches: an address, and the conditions under which it is used.

A `Place` gives both for chosen values of the symbols; a `Footprint` is the set of elements of a
shared buffer, for each warp and iteration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.program.checks.sites import Guard, Site
from tcusim.program.grammar import Bound, Index, Program, Space, View

Addresses: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]

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


def _evaluate(index: Index, env: Mapping[str, Addresses]) -> Addresses:
    return np.asarray(index.evaluate(env), dtype=np.int64)


def _holds(bounds: tuple[Bound, ...], env: Mapping[str, Addresses]) -> Mask:
    """Return where all bounds hold."""
    result: Mask = np.asarray(True)
    for bound in bounds:
        result = np.logical_and(result, _evaluate(bound.lhs - bound.rhs, env) < 0)
    return result


# --- An address and its conditions ------------------------------------------------------------


class Place(NamedTuple):
    """An address and what must hold for it to be used: bounds, and the branches around it."""

    address: Index
    bounds: tuple[Bound, ...]
    guards: tuple[Guard, ...] = ()

    @property
    def conditions(self) -> frozenset[str]:
        """Symbols that decide whether the address is used."""
        return bound_symbols(self.bounds).union(*(bound_symbols(g.bounds) for g in self.guards))

    def over(
        self, axes: Mapping[str, Addresses], scalars: Mapping[str, int]
    ) -> tuple[Addresses, Mask]:
        """Return the address for each combination of the axes, and whether it is used.

        Scalars have one value each, and are no axes.
        """
        shape = tuple(len(values) for values in axes.values())
        grids = np.meshgrid(*axes.values(), indexing="ij", sparse=True)
        env = {name: np.asarray(value) for name, value in scalars.items()}
        env.update(zip(axes, grids, strict=True))
        used = _holds(self.bounds, env)
        for guard in self.guards:
            used = used & (_holds(guard.bounds, env) == guard.taken)
        address = _evaluate(self.address, env)
        return np.broadcast_to(address, shape), np.broadcast_to(used, shape)


def relative_addresses(view: View) -> Addresses:
    """Return the addresses from the offset on, less those that a bound on row and col excludes."""
    axes = {"row": np.arange(view.rows), "col": np.arange(view.cols)}
    place = Place(view.address - view.offset, bounds_on(view.bounds, frozenset(axes)))
    address, used = place.over(axes, {})
    return address[used]


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

    columns: dict[str, Addresses]
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
    place = Place(view.address, bounds, guards)
    used = place.address.symbols | place.conditions
    axes = {name: np.arange(count) for name, count in ranges.items() if name in used}
    count = math.prod(len(values) for values in axes.values())
    too_many = count * view.rows * view.cols > MOST_ELEMENTS or count * size > _MOST_CELLS
    if too_many or not place.address.symbols <= known:
        return Footprint({}, np.ones((1, size), dtype=np.bool_), exact=False)
    cells = _cells(place, axes, (view.rows, view.cols), size)
    grids = np.meshgrid(*axes.values(), indexing="ij")
    columns = {name: grid.ravel() for name, grid in zip(axes, grids, strict=True)}
    return Footprint(columns, cells, exact=bounds == view.bounds)


def _known_part(guard: Guard, known: frozenset[str]) -> Guard | None:
    """Return what of a branch's condition depends on these symbols alone, if it says anything."""
    if guard.taken:
        return Guard(guard.path, bounds_on(guard.bounds, known), taken=True)
    # That not all bounds hold says nothing of each.
    return guard if bound_symbols(guard.bounds) <= known else None


def _cells(place: Place, axes: dict[str, Addresses], tile: tuple[int, int], size: int) -> Mask:
    """Return which of `size` elements each combination of the axes touches."""
    rows, cols = tile
    address, used = place.over({**axes, "row": np.arange(rows), "col": np.arange(cols)}, {})
    used = used & (address >= 0) & (address < size)
    address, used = address.reshape(-1, rows * cols), used.reshape(-1, rows * cols)
    cells = np.zeros((len(used), size), dtype=np.bool_)
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
