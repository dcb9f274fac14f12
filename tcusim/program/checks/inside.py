"""Whether every element that a step touches is in its buffer, whatever the sizes are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from tcusim.program.checks.affine import regions
from tcusim.program.checks.regions import MOST_ELEMENTS
from tcusim.program.checks.sites import Finding
from tcusim.program.grammar import Program, View, accesses
from tcusim.program.walk import Ints, Placement, Site, sites, span

# Sizes with which an access out of bounds is looked for: none, one, and around the paper's tile.
_USUAL: Final = (0, 1, 17, 255, 256, 257, 1000)
# The most combinations of scalars that one check tries.
_MOST_SAMPLES: Final = 64


def inside_buffer(program: Program) -> Iterator[Finding]:
    """Require that every element that a step touches, where its bounds hold, is in its buffer.

    For all sizes at once: addresses and bounds are affine. Of gathered views, this holds for the
    place in the range, which must not be before its beginning; where the range lies, only the data
    know. An access that is not proved to be inside is refused, with sizes for which it is not.
    Source: the grammar; on a GPU such an access is undefined.
    """
    for site in sites(program):
        for view in dict.fromkeys(accesses(site.step).views):
            if _proved(program, site, view):
                continue
            if view.ranges is not None:
                yield Finding(
                    site,
                    f"touches {view.buffer.name!r} before a range begins: the offset "
                    f"{view.offset} may be negative. Start at the beginning of the range.",
                )
                continue
            yield Finding(site, _first_stray(program, site, view) or _undecided(view))


def _proved(program: Program, site: Site, view: View) -> bool:
    """Return whether no element in bounds is outside the buffer, for any sizes."""
    size = view.buffer.size
    if view.ranges is None and size.constant is not None and _without_bounds(program, site, view):
        return True
    for region in regions(program, site, view):
        if region.empty:
            continue
        if not region.never_exceeds(-view.address):
            return False
        if view.ranges is not None:
            continue
        # address < ceil(index / per), which is per * address < index
        if not region.never_exceeds(view.address * size.per - size.index + 1):
            return False
    return True


def _without_bounds(program: Program, site: Site, view: View) -> bool:
    """Return whether all elements are inside even if none were bounded, as most tiles are."""
    counts = {loop.var: loop.count.constant for loop in site.loops}
    counts |= {"row": view.rows, "col": view.cols, "warp": program.warps}
    box = {name: (0, count - 1) for name, count in counts.items() if count}
    if not view.address.symbols <= box.keys():
        return False
    low, high = span(view.address, box)
    return low >= 0 and high < (view.buffer.size.constant or 0)


def _undecided(view: View) -> str:
    name = view.buffer.name
    return (
        f"may touch elements outside {name!r}: that {name}[{view.address}] is inside does not "
        f"follow from its bounds. Add a bound, such as {view.address} < {view.buffer.size}."
    )


# --- An example, for the message ----------------------------------------------------------------


def _first_stray(program: Program, site: Site, view: View) -> str | None:
    """Return the message for the first element outside the buffer, or None."""
    for scalars in _samples(program, site, view):
        ranges = _ranges(program, site, view, scalars)
        if min(ranges.values()) <= 0:
            continue
        size = view.buffer.size.evaluate(scalars)
        stray = _stray(site, view, ranges, scalars)
        if stray:
            return _stray_message(site, view, size, stray, scalars)
    return None


def _samples(program: Program, site: Site, view: View) -> list[dict[str, int]]:
    """Return values of the scalars to try: all combinations, or a spread of them if many."""
    names = [scalar.name for scalar in program.scalars]
    limits = _limits(program, site, view)
    choices = [_values_to_try(limits, scalar.multiple_of) for scalar in program.scalars]
    if math.prod(len(values) for values in choices) <= _MOST_SAMPLES:
        combinations = list(itertools.product(*choices))
    else:
        longest = max(len(values) for values in choices)
        combinations = [
            tuple(values[(n + shift * place) % len(values)] for place, values in enumerate(choices))
            for n in range(longest)
            for shift in range(max(1, _MOST_SAMPLES // longest))
        ]
    return [dict(zip(names, values, strict=True)) for values in combinations]


def _limits(program: Program, site: Site, view: View) -> set[int]:
    """Return the numbers of a view and what is around it: something may change at each."""
    bounds = [*view.bounds, *(bound for guard in site.guards for bound in guard.bounds)]
    indices = [view.address, *(bound.lhs - bound.rhs for bound in bounds)]
    extents = [program.blocks, view.buffer.size, *(loop.count for loop in site.loops)]
    indices += [extent.index for extent in extents]
    found = {extent.per for extent in extents}
    for index in indices:
        found |= {abs(index.const), *(abs(factor) for _, factor in index.terms)}
    return found


def _values_to_try(limits: set[int], multiple_of: int) -> tuple[int, ...]:
    """Return sizes around the limits, and around whole blocks."""
    if multiple_of > 1:
        return tuple(
            sorted(
                {
                    *(n * multiple_of for n in (1, 2, 3)),
                    *(-(-limit // multiple_of) * multiple_of + multiple_of for limit in limits),
                }
            )
        )
    near = {limit + step for limit in limits for step in (-1, 0, 1)}
    return tuple(sorted({*_USUAL, *near, 2 * max(limits) + 17} - {-1}))


def _ranges(program: Program, site: Site, view: View, scalars: Mapping[str, int]) -> dict[str, int]:
    """Return how many values each symbol takes, from 0 on."""
    ranges = {
        "block": program.blocks.evaluate(scalars),
        "block_col": program.columns,
        "warp": program.warps,
    }
    for loop in site.loops:
        ranges[loop.var] = loop.count.evaluate(scalars)
    return {**ranges, "row": view.rows, "col": view.cols}


def _stray(
    site: Site, view: View, ranges: Mapping[str, int], scalars: Mapping[str, int]
) -> tuple[int, dict[str, int]] | None:
    """Return an address outside the buffer and the symbols that give it, or None."""
    size = view.buffer.size.evaluate(scalars)
    box = {name: (0, count - 1) for name, count in ranges.items()}
    box |= {name: (value, value) for name, value in scalars.items()}
    low, high = span(view.address, box)
    if low >= 0 and high < size:
        return None
    axes = _axes(site, view, ranges)
    placement = Placement.over(axes, scalars)
    address = placement.value(view.address).ravel()
    used = placement.holds(view.bounds) & placement.reached(site.guards)
    strays = used & ((address < 0) | (address >= size))
    if not strays.any():
        return None
    farthest = int(np.argmax(np.where(strays, abs(address), -1)))
    example = {name: int(placement.symbols[name][farthest]) for name in axes}
    return int(address[farthest % address.size]), example


def _axes(site: Site, view: View, ranges: Mapping[str, int]) -> dict[str, Ints]:
    """Return the values to try of each symbol that matters.

    A symbol in no condition matters only at its ends, because addresses are affine. If there are
    too many combinations, the middle of the long ranges is left out.
    """
    bounds = [*view.bounds, *(bound for guard in site.guards for bound in guard.bounds)]
    conditions = {name for bound in bounds for name in (bound.lhs - bound.rhs).symbols}
    used = [name for name in ranges if name in conditions | view.address.symbols]
    axes = {
        name: np.arange(ranges[name]) if name in conditions else _ends(ranges[name], 1)
        for name in used
    }
    for keep in (64, 16, 4, 2):
        if math.prod(len(values) for values in axes.values()) <= MOST_ELEMENTS:
            break
        axes = {
            name: values
            if name in ("row", "col") or len(values) <= 2 * keep
            else _ends(len(values), keep)
            for name, values in axes.items()
        }
    return axes


def _ends(count: int, keep: int) -> Ints:
    """Return the first and the last `keep` of 0 .. count-1."""
    return np.unique(np.concatenate([np.arange(count)[:keep], np.arange(count)[-keep:]]))


def _stray_message(
    site: Site,
    view: View,
    size: int,
    stray: tuple[int, dict[str, int]],
    scalars: Mapping[str, int],
) -> str:
    address, example = stray
    verb = "writes" if view in accesses(site.step).views_written else "reads"
    where = ", ".join(f"{name} {value}" for name, value in example.items())
    sizes = ", ".join(f"{name} = {value}" for name, value in scalars.items())
    example_text = "; ".join(part for part in (where, sizes) if part)
    elements = "element" if size == 1 else "elements"
    return (
        f"{verb} {view.buffer.name}[{address}], but {view.buffer.name!r} has {size} {elements}"
        f"{f' ({example_text})' if example_text else ''}. Correct the offset, or add a bound: on a "
        f"Copy, or with When around a Load or Store."
    )
