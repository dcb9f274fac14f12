"""What a warp does in a branch that its data decide on: nobody else knows which one it takes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from tcusim.program.checks.regions import MOST_ELEMENTS
from tcusim.program.checks.sites import Finding
from tcusim.program.grammar import (
    Bound,
    BufferRole,
    Index,
    Program,
    Scope,
    Space,
    Sync,
    View,
    When,
)
from tcusim.program.walk import Ints, Placement, Site, sites

# What symbols an address, and the excess of each bound, have outside the branch: (address, bounds).
_Form: TypeAlias = tuple[Index, tuple[Index, ...]]
# Elements that are written, by form: to each place the numbers that its form lacks.
_Elements: TypeAlias = dict[_Form, set[tuple[int, ...]]]
# A write in a branch, and its elements; None if they cannot be told.
_Write: TypeAlias = tuple[Site, View, _Elements | None]


def private_branch(program: Program) -> Iterator[Finding]:
    """Require that what a warp does where the data decide concerns that warp alone.

    It reads shared memory to decide. In neither branch does it wait for others, or write what
    others read; and of an output, unless that is partial, it writes the same elements in both. They
    are the same if they have the same address and bounds, for all sizes, or are those of the ranges
    whose lengths decide.
    Source: nobody knows which warps take it, so that no other can wait for them or rely on it.
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
    """Yield what of a step in a branch on data concerns other warps."""
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
    """Return what data are where a step is."""
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
    """Return the elements that a step in a branch writes, in terms of what is outside the branch.

    None if they cannot be told: they are gathered, or too many, or in a loop or a branch whose
    count or condition does not let them be listed. Of the ranges whose lengths decide it is the
    first element of each: more there is not where none is longer.
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
            # That its branches write the same elements is asked of it, too.
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
    # Of several bounds that differ by a number the strictest counts.
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
    """Return the first elements of ranges that a branch writes on whose lengths it depends."""
    step, ranges = when.step, view.ranges
    assert isinstance(step, When)
    assert ranges is not None
    inside = len(site.loops) > len(when.loops) or len(site.guards) > len(when.guards) + 1
    # If something else decides too, the other branch may have long ranges.
    alone = not step.bounds and step.not_finite is None
    if ranges != step.longer or not alone or view.offset != Index() or view.bounds or inside:
        return None
    form = Index(((ranges.name, 1),)), ()
    return {form: {(number,) for number in range(ranges.count)}}


def _split(inner: Placement, index: Index) -> tuple[Index, Ints]:
    """Return what an index has of symbols outside a branch, and the number that it has inside."""
    outer = Index(tuple(term for term in index.terms if term[0] not in inner.symbols))
    return outer, np.broadcast_to(inner.value(index - outer).ravel(), (inner.count,))


def _missing(written: _Elements, others: list[_Elements]) -> Index | None:
    """Return the place of an element that no other write has, if there is one."""
    for form, elements in written.items():
        rest = elements.difference(*(other.get(form, set()) for other in others))
        if rest:
            return form[0] + min(rest)[0]
    return None
