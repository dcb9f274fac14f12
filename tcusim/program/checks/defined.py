"""Whether fragments and shared memory hold a value before a step reads it, on every path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tcusim.program.checks.regions import (
    Footprint,
    bound_symbols,
    depends_on_warp,
    footprint,
    is_shared,
    may_run,
)
from tcusim.program.checks.sites import Finding, Unproven
from tcusim.program.grammar import Bound, Loop, Program, Space, View, When
from tcusim.program.walk import WARP_PLACES, Guard, Mask, Placement, Site, top, warp_symbols


@dataclass(slots=True)
class _Defined:
    """The names and elements that have a value after a step.

    cells: elements of each shared buffer that have a value, as far as is known without the sizes.
    sure: elements that have a value for all sizes, blocks and iterations. later: elements written
    by the iterations of a loop, by its variable; sure after the loop. frags: names of fragments and
    of ranges. branches: definitions from the branches of earlier Whens, for later Whens with the
    same condition.
    """

    cells: dict[str, Mask]
    sure: dict[str, Mask]
    later: dict[tuple[str, str], Mask] = field(default_factory=dict)
    frags: frozenset[str] = frozenset()
    branches: dict[tuple[tuple[Bound, ...], bool], _Defined] = field(default_factory=dict)

    def copy(self) -> _Defined:
        """Return a copy; masks are replaced, never changed, so they are shared."""
        return _Defined(
            dict(self.cells), dict(self.sure), dict(self.later), self.frags, dict(self.branches)
        )

    def add(self, other: _Defined) -> None:
        """Add all definitions of another state."""
        self.frags |= other.frags
        self.cells = {name: mask | other.cells[name] for name, mask in self.cells.items()}
        self.sure = {name: mask | other.sure[name] for name, mask in self.sure.items()}

    def differs(self, other: _Defined) -> bool:
        """Whether another state has different definitions."""
        return self.frags != other.frags or any(
            not np.array_equal(mask, other.cells[name]) for name, mask in self.cells.items()
        )


def defined_before_use(program: Program) -> Iterator[Finding | Unproven]:
    """Require that fragments and shared memory are written before they are read, on every path.

    A loop with a run-time count may run zero times, so its definitions do not count after it.
    Definitions of both branches of a When count. Definitions of one branch count in the same branch
    of a later When with the same condition, unless the condition depends on data. One warp's write
    counts for its block.
    A read with bounds that depend on sizes is compared with the buffer as a whole, not by element;
    it is unproven unless every element in its reach is written for all sizes.
    Source: fragments and shared memory begin with unspecified contents [CPG sec. 10.24.1, 7.2.2].
    """
    sizes = {buffer.name: buffer.size.constant for buffer in program.scratch}
    empty = {name: np.zeros(size or 1, np.bool_) for name, size in sizes.items()}
    unproven = None
    for found in _define_all(program, top(program), _Defined(empty, dict(empty))):
        if isinstance(found, Unproven):
            unproven = unproven or found
        else:
            yield found
    if unproven:
        yield unproven


def _define_all(
    program: Program, steps: tuple[Site, ...], state: _Defined
) -> Iterator[Finding | Unproven]:
    """Yield reads of undefined values in these steps; update `state` to the values after them."""
    for site in steps:
        match site.step:
            case Loop(var=var, count=count):
                inside = state.copy()
                yield from _define_all(program, site.body, inside)
                if count.constant:
                    _end_loop(inside, var, site)
                    state.add(inside)
                    state.later |= inside.later
            case When(bounds=bounds) as step:
                on_data = bool(step.on_data)
                if on_data:
                    yield from _undefined(program, site, state)
                yield from _define_when(program, site, bounds, state, on_data=on_data)
            case _:
                yield from _undefined(program, site, state)
                touched = site.touched
                state.frags |= {frag.name for frag in touched.frags_written}
                state.frags |= {ranges.name for ranges in touched.ranges_written}
                for view in filter(is_shared, touched.views_written):
                    written = footprint(program, site, view)
                    if written.complete:
                        state.cells[view.buffer.name] = (
                            state.cells[view.buffer.name] | written.union
                        )
                        _add_sure(program, site, view, written, state)


def _add_sure(
    program: Program, site: Site, view: View, written: Footprint, state: _Defined
) -> None:
    """Add the elements that a step writes for all sizes: now, or at the end of its loops."""
    counted = {loop.var for loop in site.loops if loop.count.constant}
    mixed = view.buffer.space is Space.SHARED and any(
        depends_on_warp(guard.bounds) and not bound_symbols(guard.bounds) <= WARP_PLACES | counted
        for guard in site.guards
    )
    if not written.exact or mixed:
        # The set of writing warps depends on sizes, or on the block.
        return
    union: Mask = written.union
    if view.buffer.space is Space.WARP and "warp" in written.columns:
        # Each warp has its own memory, and reads only that.
        warps = np.zeros((program.warps, union.size), bool)
        warps[written.columns["warp"][written.places], written.elements] = True
        numbers = np.arange(program.warps)
        here = Placement(program.warps, warp_symbols(numbers, program.warp_columns))
        of_warps = [one for one in site.guards if bound_symbols(one.bounds) <= WARP_PLACES]
        union = np.all(warps[here.reached(tuple(of_warps))], axis=0)
    moving = [loop for loop in site.loops if loop.var in written.columns]
    if not moving:
        state.sure[view.buffer.name] = state.sure[view.buffer.name] | union
    elif all(loop.count.constant for loop in moving):
        key = moving[0].var, view.buffer.name
        state.later[key] = state.later[key] | union if key in state.later else union


def _end_loop(state: _Defined, var: str, site: Site) -> None:
    """Mark the elements written by all iterations of a loop as sure."""
    for key in [key for key in state.later if key[0] == var]:
        state.sure[key[1]] = state.sure[key[1]] | state.later.pop(key)


def _define_when(
    program: Program, site: Site, bounds: tuple[Bound, ...], state: _Defined, *, on_data: bool
) -> Iterator[Finding | Unproven]:
    ends: list[_Defined] = []
    for taken in (True, False):
        inside = state.copy()
        if (bounds, taken) in state.branches and not on_data:
            inside.add(state.branches[bounds, taken])
        yield from _define_all(program, site.branch(taken=taken), inside)
        ends.append(inside)
    body, otherwise = ends
    if not on_data:
        state.branches[bounds, True] = body
        state.branches[bounds, False] = otherwise
        if body.differs(otherwise):
            # A branch that never runs removes no definitions.
            if not may_run(program, site, Guard(site.path, bounds, taken=False)):
                otherwise = body
            elif not may_run(program, site, Guard(site.path, bounds, taken=True)):
                body = otherwise
    state.frags |= body.frags & otherwise.frags
    for buffer in program.scratch:
        one, two = body.cells[buffer.name], otherwise.cells[buffer.name]
        # Another warp of the block takes the other branch, and its writes are visible to all.
        by_any = buffer.space is Space.SHARED and depends_on_warp(bounds)
        state.cells[buffer.name] = one | two if by_any else one & two
        first, second = body.sure[buffer.name], otherwise.sure[buffer.name]
        by_all = by_any and bound_symbols(bounds) <= WARP_PLACES and not on_data
        state.sure[buffer.name] = first | second if by_all else first & second
    state.later = {
        key: body.later[key] & otherwise.later[key] for key in body.later.keys() & otherwise.later
    }


def _undefined(program: Program, site: Site, state: _Defined) -> Iterator[Finding | Unproven]:
    touched = site.touched
    for frag in dict.fromkeys(touched.frags_read):
        if frag.name not in state.frags:
            yield Finding(
                site,
                f"reads {frag.role} {frag.name!r}, which no earlier step sets on every path. Set "
                f"it with Const or Load before.",
            )
    for ranges in dict.fromkeys(touched.ranges_read):
        if ranges.name not in state.frags:
            yield Finding(
                site,
                f"uses ranges {ranges.name!r}, which no earlier step finds on every path. Find "
                f"them with Locate before.",
            )
    for view in filter(is_shared, touched.views_read):
        name = view.buffer.name
        written, touching = state.cells[name], footprint(program, site, view)
        missing = touching.union & ~written
        by_element = touching.exact or not touching.complete or not written.any()
        if by_element and missing.any():
            elements = np.flatnonzero(missing)
            yield Finding(
                site,
                f"reads {name}[{elements[0]}] ({elements.size} such elements), which no earlier "
                f"step writes on every path. Fill {name!r} with Assign or Store before.",
            )
        elif (touching.union & ~state.sure[name]).any():
            yield Unproven(
                f"tried for no size: step {site.path} reads elements of {name!r}, and whether all "
                f"of them are written depends on sizes, the block or the iteration"
            )
