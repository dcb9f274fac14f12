"""Checks of data-dependent branches: other warps cannot know the branch that a warp takes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from tcusim.program.checks.regions import MOST_ELEMENTS
from tcusim.program.checks.sites import Finding
from tcusim.program.grammar import Bound, BufferRole, Index, Program, Scope, Space, Sync, View, When
from tcusim.program.walk import Ints, Placement, Site, sites

# The outer symbols of an address and of the excess of each bound: (address, bounds).
_Form: TypeAlias = tuple[Index, tuple[Index, ...]]
# Written elements by form: for each place, the numbers that its form lacks.
_Elements: TypeAlias = dict[_Form, set[tuple[int, ...]]]
# A write in a branch, and its elements; None if unknown.
_Write: TypeAlias = tuple[Site, View, _Elements | None]


def private_branch(program: Program) -> Iterator[Finding]:
    """Require that the steps of a data-dependent branch affect only their own warp.

    The condition reads shared memory. Neither branch waits for other warps or writes memory that
    they read, and both write the same elements of an output, unless it is partial. Elements are the
    same if they have the same address and bounds for all sizes, or belong to the ranges that the
    condition tests.
    Source: the warps that take it are unknown, so no other warp can wait for them or rely on it.
    """
    for site in sites(program):
        step = site.step
        if isinstance(step, When) and step.on_data:
            if step.not_finite is not None and step.not_finite.buffer.space is Space.GLOBAL:
                yield Finding(
                    site,
                    f"the data decide, but {step.not_finite.buffer.name!r} is in global memory. "
                    f"Copy the values to shared memory first.",
                )
            yield from _unlike(program, site)
        if any(guard.on_data for guard in site.guards):
            yield from (Finding(site, message) for message in _public(program, site))


def _public(program: Program, site: Site) -> Iterator[str]:
    """Yield the effects on other warps of a step in a branch on data."""
    step, kind = site.step, _kind(site)
    if isinstance(step, Sync) and step.scope is Scope.BLOCK and program.warps > 1:
        yield f"only warps whose data are {kind} reach this barrier. Move it out of the branch."
    for view in site.touched.views_written:
        if view.buffer.space is not Space.WARP and view.buffer.role is not BufferRole.OUTPUT:
            yield (
                f"writes {view.buffer.name!r} only in warps whose data are {kind}. Write shared "
                f"memory of the warp there, and copy it behind the branch."
            )


def _kind(site: Site) -> str:
    """Return the kind of data that a step's branch depends on."""
    guard = [guard for guard in site.guards if guard.on_data][-1]
    if guard.on_data == "longer":
        return "in long ranges" if guard.taken else "in ranges of one element"
    return "not finite" if guard.taken else "finite"


# --- Elements of outputs ------------------------------------------------------------------------


def _unlike(program: Program, when: Site) -> Iterator[Finding]:
    """Yield the writes of one branch to elements that the other does not write."""
    branches: tuple[list[_Write], list[_Write]] = ([], [])
    for site in sites(program):
        if not site.path.startswith(f"{when.path}."):
            continue
        taken = site.guards[len(when.guards)].taken
        for view in site.touched.views_written:
            if view.buffer.role is BufferRole.OUTPUT and not view.buffer.partial:
                branches[taken].append((site, view, _elements(when, site, view)))
    for here, there in (branches, branches[::-1]):
        for site, view, written in here:
            name, kind = view.buffer.name, _kind(site)
            others = [found for _, other, found in there if other.buffer == view.buffer]
            if not others:
                yield Finding(
                    site,
                    f"writes {name!r} only in warps whose data are {kind}. Write the same elements "
                    f"in the other branch, or behind both.",
                )
            elif written is None or None in others:
                yield Finding(
                    site,
                    f"writes elements of {name!r} of which it cannot be told whether the other "
                    f"branch writes them too. Write {name!r} behind both branches.",
                )
            else:
                missing = _missing(written, [found for found in others if found is not None])
                if missing is not None:
                    yield Finding(
                        site,
                        f"writes {name}[{missing}] only in warps whose data are {kind}. Write it "
                        f"in the other branch too, with the same bounds, or behind both.",
                    )


def _elements(when: Site, site: Site, view: View) -> _Elements | None:
    """Return the elements written by a step in a branch, in terms of the outer symbols.

    None if unknown: the elements are gathered, too many, or in a loop or branch with a count or
    condition that prevents a listing. For ranges that the condition tests, only the first element
    of each: in the `otherwise` branch no range is longer.
    """
    if view.ranges is not None:
        return _first_elements(when, site, view)
    counts = {"row": view.rows, "col": view.cols}
    for loop in site.loops[len(when.loops) :]:
        if loop.count.constant is None:
            return None
        counts[loop.var] = loop.count.constant
    bounds = list(view.bounds)
    for guard in site.guards[len(when.guards) + 1 :]:
        if guard.on_data:
            # The nested When must itself write the same elements in both branches.
            continue
        if guard.taken:
            bounds += guard.bounds
        elif len(guard.bounds) == 1:
            (bound,) = guard.bounds
            bounds.append(Bound(bound.rhs, bound.lhs + 1))
        else:
            return None
    if math.prod(counts.values()) > MOST_ELEMENTS:
        return None
    inner = Placement.over({name: np.arange(count) for name, count in counts.items()}, {})
    form, place = _split(inner, view.address)
    used = np.full(inner.count, True)
    # The strictest of several bounds that differ by a constant counts.
    excesses: dict[Index, Ints] = {}
    for bound in bounds:
        outer, excess = _split(inner, bound.excess)
        if not outer.terms:
            used &= excess < 0
        else:
            excesses[outer] = np.maximum(excess, excesses.get(outer, excess))
    forms = sorted(excesses, key=str)
    columns = (column[used].tolist() for column in (place, *(excesses[one] for one in forms)))
    return {(form, tuple(forms)): set(zip(*columns, strict=True))}


def _first_elements(when: Site, site: Site, view: View) -> _Elements | None:
    """Return the first elements, written by a branch, of the ranges that its condition tests."""
    step, ranges = when.step, view.ranges
    assert isinstance(step, When)
    assert ranges is not None
    inside = len(site.loops) > len(when.loops) or len(site.guards) > len(when.guards) + 1
    # With another condition besides, the other branch may have long ranges.
    alone = not step.bounds and step.not_finite is None
    if ranges != step.longer or not alone or view.offset != Index() or view.bounds or inside:
        return None
    form = Index(((ranges.name, 1),)), ()
    return {form: {(number,) for number in range(ranges.count)}}


def _split(inner: Placement, index: Index) -> tuple[Index, Ints]:
    """Return the part of an index in outer symbols, and the values of its inner part."""
    outer = Index(tuple(term for term in index.terms if term[0] not in inner.symbols))
    return outer, np.broadcast_to(inner.value(index - outer).ravel(), (inner.count,))


def _missing(written: _Elements, others: list[_Elements]) -> Index | None:
    """Return the address of an element that no other write covers, or None."""
    for form, elements in written.items():
        rest = elements.difference(*(other.get(form, set()) for other in others))
        if rest:
            return form[0] + min(rest)[0]
    return None
