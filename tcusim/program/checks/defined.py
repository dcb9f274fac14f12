"""Whether fragments and shared memory hold a value before a step reads it, on every path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tcusim.program.checks.regions import depends_on_warp, footprint, is_shared, may_run
from tcusim.program.checks.sites import Finding
from tcusim.program.grammar import Bound, Loop, Program, Space, When
from tcusim.program.walk import Guard, Mask, Site, top


@dataclass(slots=True)
class _Defined:
    """What has a value after a step.

    cells: elements of each shared buffer. frags: names of fragments and of ranges. branches: what
    the branches of earlier Whens defined, for later ones with the same condition.
    """

    cells: dict[str, Mask]
    frags: frozenset[str] = frozenset()
    branches: dict[tuple[tuple[Bound, ...], bool], _Defined] = field(default_factory=dict)

    def copy(self) -> _Defined:
        """Return a copy; masks are replaced, never changed, so they are shared."""
        return _Defined(dict(self.cells), self.frags, dict(self.branches))

    def add(self, other: _Defined) -> None:
        """Add all that another state defines."""
        self.frags |= other.frags
        self.cells = {name: mask | other.cells[name] for name, mask in self.cells.items()}

    def differs(self, other: _Defined) -> bool:
        """Whether another state defines more, or less."""
        return self.frags != other.frags or any(
            not np.array_equal(mask, other.cells[name]) for name, mask in self.cells.items()
        )


def defined_before_use(program: Program) -> Iterator[Finding]:
    """Require that fragments and shared memory are written before they are read, on every path.

    A loop whose count is known only at run time may run zero times; what it defines is not counted
    after it. What both branches of a When define counts, and what one branch defines counts in the
    same branch of a later When with the same condition, if not the data decide. One warp's write
    counts for its block.
    A read whose bounds depend on sizes is compared with the buffer as a whole, not by element.
    Source: fragments and shared memory begin with unspecified contents [CPG sec. 10.24.1, 7.2.2].
    """
    sizes = {buffer.name: buffer.size.constant for buffer in program.scratch}
    nothing = _Defined({name: np.zeros(size or 1, np.bool_) for name, size in sizes.items()})
    yield from _define_all(program, top(program), nothing)


def _define_all(program: Program, steps: tuple[Site, ...], state: _Defined) -> Iterator[Finding]:
    """Find what is read too early in these steps; `state` becomes what is defined after them."""
    for site in steps:
        match site.step:
            case Loop(count=count):
                inside = state.copy()
                yield from _define_all(program, site.body, inside)
                if count.constant:
                    state.add(inside)
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


def _define_when(
    program: Program, site: Site, bounds: tuple[Bound, ...], state: _Defined, *, on_data: bool
) -> Iterator[Finding]:
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
            # What never runs takes nothing away.
            if not may_run(program, site, Guard(site.path, bounds, taken=False)):
                otherwise = body
            elif not may_run(program, site, Guard(site.path, bounds, taken=True)):
                body = otherwise
    state.frags |= body.frags & otherwise.frags
    for buffer in program.scratch:
        one, two = body.cells[buffer.name], otherwise.cells[buffer.name]
        # Another warp of the block takes the other branch, and all see what it writes.
        by_any = buffer.space is Space.SHARED and depends_on_warp(bounds)
        state.cells[buffer.name] = one | two if by_any else one & two


def _undefined(program: Program, site: Site, state: _Defined) -> Iterator[Finding]:
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
                f"step writes on every path. Fill {name!r} with Copy or Store before.",
            )
