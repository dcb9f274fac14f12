"""Proofs about addresses and conditions for all sizes, blocks, warps and iterations at once.

Expressions are affine, and so are conditions, the size of the grid and the counts of loops. A
`Region` is all values that the symbols of a step can have together: an interval for each, and
conditions between them. It proves inequalities by interval arithmetic, after it has cancelled
symbols against conditions that share them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tcusim.program.grammar import WARP_COL, WARP_ROW, Extent, Index, Program, View
from tcusim.program.walk import Site, span

# Conditions that one proof may use, one after the other.
_MOST_CONDITIONS: Final = 4


@dataclass(frozen=True, slots=True)
class Region:
    """The possible values of symbols: within the intervals of `box`, with all conditions at most 0.

    factors: the unit of each scalar that is a multiple of a number; a warp grid is indexed by row
    and column. scalars: the names of all scalars.
    """

    box: dict[str, tuple[int, float]]
    conditions: tuple[Index, ...]
    factors: dict[str, Index]
    scalars: frozenset[str] = frozenset()

    @property
    def empty(self) -> bool:
        """Whether no values are possible; False if unknown."""
        for low, high in self.box.values():
            if high < low:
                return True
        return any(span(condition, self.box)[0] > 0 for condition in self.conditions)

    def never_exceeds(self, index: Index, limit: int = 0) -> bool:
        """Return whether the index is provably at most `limit`."""
        index = index.substitute(self.factors)
        if span(index, self.box)[1] <= limit:
            return True
        return self._proves(_reduced(index - limit), _MOST_CONDITIONS)

    def _proves(self, index: Index, conditions: int) -> bool:
        """Return whether `index <= 0` follows from the intervals and `conditions` conditions."""
        if span(index, self.box)[1] <= 0:
            return True
        if not conditions:
            return False
        # An unbounded symbol must be cancelled by a condition; without one, try any symbol.
        endless = [n for n, factor in index.terms if factor > 0 and self.box[n][1] == math.inf]
        names = endless[:1] or [name for name, _ in index.terms]
        tried = set()
        for name, condition in itertools.product(names, self.conditions):
            mine, other = index.coefficient(name), condition.coefficient(name)
            if mine * other <= 0:
                continue
            # The condition is at most 0, so this is no less than |other| * index.
            rest = _reduced(index * abs(other) - condition * abs(mine))
            if rest not in tried and self._proves(rest, conditions - 1):
                return True
            tried.add(rest)
        return False


def symbol_counts(program: Program, site: Site, view: View | None = None) -> dict[str, Extent]:
    """Return the number of values of each symbol at a step, counted from 0."""
    counts = {"block": program.blocks, "block_col": Extent.of(program.columns)}
    if program.rows > 1:
        counts["block_row"] = Extent.of(program.rows)
    counts["warp"] = Extent.of(program.warps)
    across = program.warp_columns
    if across > 1:
        counts |= {"warp_row": Extent.of(program.warps // across), "warp_col": Extent.of(across)}
    counts |= {loop.var: loop.count for loop in site.loops}
    if view is not None:
        counts |= {"row": Extent.of(view.rows), "col": Extent.of(view.cols)}
    return counts


class Regions:
    """The regions in which the steps of a program run, computed once for each branch."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.scalars = frozenset(scalar.name for scalar in program.scalars)
        self.factors = {
            scalar.name: Index.symbol(scalar.name) * scalar.multiple_of
            for scalar in program.scalars
            if scalar.multiple_of != 1
        }
        if program.warp_columns > 1:
            self.factors["warp"] = WARP_ROW * program.warp_columns + WARP_COL
        # Keyed by the ids of a branch's loops and guards. The site keeps both alive, so ids are
        # unique.
        self._branches: dict[tuple[int, int], tuple[Site, list[Region]]] = {}

    def around(self, site: Site, view: View | None = None) -> Iterator[Region]:
        """Yield regions that together cover the step, for the in-bounds elements of a view.

        A step in the `otherwise` branch of a When with several bounds has several regions.
        """
        branch = id(site.loops), id(site.guards)
        if branch not in self._branches:
            self._branches[branch] = site, list(self._of_branch(site))
        for region in self._branches[branch][1]:
            if view is None:
                yield region
                continue
            box = region.box | {"row": (0, view.rows - 1), "col": (0, view.cols - 1)}
            yield self._region(box, region.conditions, [one.excess + 1 for one in view.bounds])

    def _of_branch(self, site: Site) -> Iterator[Region]:
        """Yield the regions in which the steps of a branch run."""
        box: dict[str, tuple[int, float]] = dict.fromkeys(self.scalars, (0, math.inf))
        conditions = [
            bound.excess + 1 for guard in site.guards if guard.taken for bound in guard.bounds
        ]
        for name, count in symbol_counts(self.program, site).items():
            if name in self.factors:
                continue
            most = count.constant
            box[name] = 0, math.inf if most is None else most - 1
            if most is None:
                # name < ceil(index / per), or per * name < index
                conditions.append(Index.symbol(name) * count.per - count.index + 1)
        others = [guard.bounds for guard in site.guards if guard.tells and not guard.taken]
        for failing in itertools.product(*others):
            yield self._region(box, (), [*conditions, *(-bound.excess for bound in failing)])

    def _region(
        self, box: dict[str, tuple[int, float]], known: tuple[Index, ...], more: list[Index]
    ) -> Region:
        """Return a region with intervals narrowed by the conditions on single symbols."""
        box, between = dict(box), list(known)
        for condition in (_reduced(one.substitute(self.factors)) for one in more):
            if len(condition.terms) != 1:
                between.append(condition)
                continue
            # As it is reduced, its only factor is 1 or -1.
            ((name, factor),) = condition.terms
            low, high = box[name]
            if factor < 0:
                box[name] = max(low, condition.const), high
            else:
                box[name] = low, min(high, -condition.const)
        return Region(box, tuple(between), self.factors, self.scalars)


def _reduced(index: Index) -> Index:
    """Return an index of the smallest factors that is at most 0 for the same integers."""
    divisor = math.gcd(*[factor for _, factor in index.terms])
    if divisor <= 1:
        return index
    terms = tuple((name, factor // divisor) for name, factor in index.terms)
    return Index(terms, -(-index.const // divisor))
