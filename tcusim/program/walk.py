"""Traversal of a program: its numbered steps, and the addresses in its warps.

`sites` gives every step with its enclosing loops and branches. A `Placement` is a set of executions
of a step, such as the warps of a grid; it evaluates expressions, conditions and the addresses of
views for each. The interpreter and the checks share this traversal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import InputError, require_names, told
from tcusim.program.grammar import (
    Accesses,
    Bound,
    Gathered,
    Index,
    Loop,
    Program,
    Step,
    View,
    When,
    accesses,
    branch_of,
    numbered,
)

Ints: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]
# Symbols of a warp's position in its block.
WARP_PLACES: Final = frozenset({"warp", "warp_row", "warp_col"})
_Limit = TypeVar("_Limit", int, float)  # a float where there may be no limit


# --- Steps, and the loops and branches around them --------------------------------------------


@dataclass(frozen=True, slots=True)
class Guard:
    """The enclosing branch of a When: all bounds hold (taken), or not all.

    on_data: the kind of data that the branch also depends on, or ""; see `When`. The other branch
    then implies nothing about the bounds.
    """

    path: str
    bounds: tuple[Bound, ...]
    taken: bool
    on_data: str = ""

    @property
    def tells(self) -> bool:
        """Whether the branch determines if the bounds hold."""
        return self.taken or not self.on_data


@dataclass(frozen=True)
class Site:
    """A step with its path, and the loops and branches around it, outermost first.

    The sites of one branch have the same `loops` and `guards`, as objects.
    """

    path: str
    step: Step
    loops: tuple[Loop, ...] = ()
    guards: tuple[Guard, ...] = ()

    # Every check asks for the next three.

    @cached_property
    def touched(self) -> Accesses:
        """The reads and writes of the step itself."""
        return accesses(self.step)

    @cached_property
    def body(self) -> tuple[Site, ...]:
        """The steps directly inside a loop, or inside the taken branch of a When."""
        return tuple(self._branch(taken=True))

    @cached_property
    def otherwise(self) -> tuple[Site, ...]:
        """The steps directly inside the other branch of a When."""
        return tuple(self._branch(taken=False))

    def branch(self, *, taken: bool) -> tuple[Site, ...]:
        """Return the steps directly inside one branch; a loop's body is the taken branch."""
        return self.body if taken else self.otherwise

    def _branch(self, *, taken: bool) -> Iterator[Site]:
        loops, guards = self.loops, self.guards
        match self.step:
            case Loop() if taken:
                loops = (*loops, self.step)
            case When(bounds) as when:
                guards = (*guards, Guard(self.path, bounds, taken, when.on_data))
            case _:
                return
        for path, step in branch_of(self.path, self.step, taken=taken):
            yield Site(path, step, loops, guards)


# Cache of the latest program: its top-level steps and all of its steps, for the checks that ask in
# turn.
_latest: tuple[Program | None, tuple[Site, ...], tuple[Site, ...]] = (None, (), ())


def top(program: Program) -> tuple[Site, ...]:
    """Return the top-level steps."""
    return _sites(program)[0]


def sites(program: Program) -> tuple[Site, ...]:
    """Return every step, parents before children, with the paths of `walk`."""
    return _sites(program)[1]


def _sites(program: Program) -> tuple[tuple[Site, ...], tuple[Site, ...]]:
    global _latest
    owner, outer, every = _latest
    if owner is not program:
        outer = tuple(Site(path, step) for path, step in numbered(program.steps))
        every = tuple(_with_inner(outer))
        _latest = program, outer, every
    return outer, every


def _with_inner(steps: tuple[Site, ...]) -> Iterator[Site]:
    for site in steps:
        yield site
        if isinstance(site.step, Loop | When):
            yield from _with_inner(site.body)
            yield from _with_inner(site.otherwise)


# --- Values -----------------------------------------------------------------------------------


def span(index: Index, box: Mapping[str, tuple[_Limit, _Limit]]) -> tuple[_Limit, _Limit]:
    """Return the minimum and maximum of an index, with each symbol in its interval."""
    low: _Limit = index.const  # pyright: ignore[reportAssignmentType]
    high: _Limit = index.const  # pyright: ignore[reportAssignmentType]
    for name, factor in index.terms:
        first, last = box[name]
        low += min(factor * first, factor * last)
        high += max(factor * first, factor * last)
    return low, high


class Placement:
    """Executions of a step, each with the values of its symbols.

    Attributes
    ----------
    count : int
        Number of executions, W.
    symbols : dict of str to int or array (W,)
        Values of scalars, loops and grid indices; an integer applies to all executions.
    ranges : dict of str to (array (W, count), array (W, count))
        Bounds of gathered rows or columns, as found by `Locate`.
    """

    def __init__(self, count: int, symbols: Mapping[str, int | Ints]) -> None:
        self.count = count
        # An element's row and column are added to the symbols that its rectangle shares.
        self.symbols: dict[str, Any] = {"row": 0, "col": 0, **symbols}
        self.ranges: dict[str, tuple[Ints, Ints]] = {}

    @staticmethod
    def of_warps(program: Program, scalars: Mapping[str, int], warps: Ints) -> Placement:
        """Return a placement of these warps, by their indices in the grid."""
        return Placement(warps.size, {**scalars, **grid_symbols(program, warps)})

    @staticmethod
    def over(axes: Mapping[str, Ints], scalars: Mapping[str, int]) -> Placement:
        """Return a placement with one entry for each combination of the symbols' values."""
        if len(axes) < 2:
            count = next((values.size for values in axes.values()), 1)
            return Placement(count, {**scalars, **axes})
        grids = np.meshgrid(*axes.values(), indexing="ij")
        flat = {name: grid.ravel() for name, grid in zip(axes, grids, strict=True)}
        return Placement(grids[0].size, {**scalars, **flat})

    def value(self, index: Index, at: Ints | None = None) -> Ints:
        """Return an index for some entries, default all: (W, 1, 1), or (1, 1, 1) if uniform."""
        value = index.evaluate(self.symbols)
        if not isinstance(value, np.ndarray):
            return np.full((1, 1, 1), value, np.int64)
        values: Ints = value if at is None else value[at]
        return values[:, None, None]

    def holds(self, bounds: tuple[Bound, ...], at: Ints | None = None) -> Mask:
        """Return a mask of conditions that name no row and column: (W,)."""
        result: Mask = np.full(self.count if at is None else at.size, True)
        for bound in bounds:
            result &= self.value(bound.excess, at).ravel() < 0
        return result

    def reached(self, guards: tuple[Guard, ...]) -> Mask:
        """Return a mask of the entries that take these branches, for some data: (W,)."""
        result: Mask = np.full(self.count, True)
        for guard in guards:
            if guard.tells:
                result &= self.holds(guard.bounds) == guard.taken
        return result

    def addresses(self, view: View, at: Ints | None = None) -> Ints:
        """Return each element's index in its buffer, in bounds or not: (W or 1, rows, cols)."""
        address = self.value(view.offset, at) + from_first(view)
        if view.ranges is not None:
            address = address + self._range_ends(view, at)[0]
        return address

    def inside(self, view: View, at: Ints | None = None) -> Mask:
        """Return the mask of a view's bounds: (W or 1, rows, cols)."""
        result: Mask = np.ones((1, view.rows, view.cols), bool)
        for bound in view.bounds:
            excess = bound.excess
            down, across = excess.coefficient("row"), excess.coefficient("col")
            over = _over(view.rows, view.cols, down, across)
            result = result & (self.value(excess, at) + over < 0)
        if view.ranges is not None:
            result = result & (self.addresses(view, at) < self._range_ends(view, at)[1])
        return result

    def _range_ends(self, view: View, at: Ints | None) -> tuple[Ints, Ints]:
        """Return the bounds of a view's ranges: (W, rows, 1), or (W, 1, cols)."""
        assert view.ranges is not None
        axis = 2 if isinstance(view.row_axis, Gathered) else 1
        begin, end = self.ranges[view.ranges.name]
        if at is not None:
            begin, end = begin[at], end[at]
        return np.expand_dims(begin, axis), np.expand_dims(end, axis)


def from_first(view: View) -> Ints:
    """Return the offset of each element from the first: (1, rows, cols)."""
    return _over(view.rows, view.cols, view.row_stride, view.col_stride)


@lru_cache(maxsize=256)
def _over(rows: int, cols: int, down: int, across: int) -> Ints:
    """Return `down` times the row plus `across` times the column: (1, rows, cols)."""
    sums: Ints = np.arange(rows)[None, :, None] * down + np.arange(cols)[None, None, :] * across
    sums.flags.writeable = False
    return sums


_ORDERS: Final = ("ascending", "descending", "shuffled")


def require_order(block_order: str, seed: int) -> None:
    """Raise InputError unless this is an order of blocks, and a seed of one."""
    require_names(block_order=block_order)
    if block_order not in _ORDERS:
        raise InputError(
            f"block_order must be 'ascending', 'descending' or 'shuffled', got {told(block_order)}"
        )
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed must be an integer of at least 0, got {told(seed)}")


def order_of_blocks(blocks: int, block_order: str, seed: int) -> Ints:
    """Return the block indices in the order of execution by a simulator."""
    require_order(block_order, seed)
    ascending = np.arange(blocks, dtype=np.int64)
    if block_order == "shuffled":
        return np.random.default_rng(seed).permutation(ascending)
    return ascending if block_order == "ascending" else ascending[::-1].copy()


def grid_symbols(program: Program, warps: Ints) -> dict[str, Ints]:
    """Return the block and warp indices of these warps of the grid."""
    number = warps // program.warps
    return {
        "block": number // (program.rows * program.columns),
        "block_row": number // program.columns % program.rows,
        "block_col": number % program.columns,
        **warp_symbols(warps % program.warps, program.warp_columns),
    }


def warp_symbols(numbers: Ints, across: int) -> dict[str, Ints]:
    """Return the indices of these warps of a block, in a grid of `across` columns."""
    return {"warp": numbers, "warp_row": numbers // across, "warp_col": numbers % across}
