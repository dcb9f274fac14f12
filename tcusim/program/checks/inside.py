"""Whether every element that a step touches is in its buffer, whatever the sizes are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from tcusim.program.checks.regions import MOST_ELEMENTS, Addresses, Place
from tcusim.program.checks.sites import Finding, Site, sites, views
from tcusim.program.grammar import Index, Program, View, accesses

# Sizes that a program for any size is tried with: none, one, and around the paper's tile of 256.
_RAGGED: Final = (0, 1, 17, 255, 256, 257, 1000)
# The most combinations of scalars that one check tries.
_MOST_SAMPLES: Final = 64


def inside_buffer(program: Program) -> Iterator[Finding]:
    """Require that every element that a step touches, where its bounds hold, is in its buffer.

    Tried for several sizes: multiples where a scalar has to be one, else ragged ones. Views with
    lines are left to the interpreter: where these lie, only the data know.
    Source: the grammar; on a GPU such an access is undefined.
    """
    samples = _samples(program)
    for site in sites(program):
        for view in views(site.step):
            if view.ranges is not None:
                continue
            message = _first_stray(program, site, view, samples)
            if message:
                yield Finding(site, message)


def _samples(program: Program) -> list[dict[str, int]]:
    """Return values of the scalars to try: all combinations, or a spread of them if many."""
    names = [scalar.name for scalar in program.scalars]
    choices = [_values_to_try(program, scalar.multiple_of) for scalar in program.scalars]
    if math.prod(len(values) for values in choices) <= _MOST_SAMPLES:
        combinations = list(itertools.product(*choices))
    else:
        longest = max(len(values) for values in choices)
        combinations = [
            tuple(values[(n + shift * place) % len(values)] for place, values in enumerate(choices))
            for n in range(longest)
            for shift in range(_MOST_SAMPLES // longest)
        ]
    return [dict(zip(names, values, strict=True)) for values in combinations]


def _values_to_try(program: Program, multiple_of: int) -> tuple[int, ...]:
    if multiple_of > 1:
        return (multiple_of, 2 * multiple_of, 3 * multiple_of)
    # Also just below, at and beyond whole blocks of this program.
    per = program.blocks.per
    return tuple(sorted({*_RAGGED, per - 1, per, per + 1, 2 * per + 17}))


def _first_stray(
    program: Program, site: Site, view: View, samples: list[dict[str, int]]
) -> str | None:
    """Return the message for the first element outside the buffer, or None."""
    place = Place(view.address, view.bounds, site.guards)
    for scalars in samples:
        ranges = _ranges(program, site, view, scalars)
        if min(ranges.values()) <= 0:
            continue
        size = view.buffer.size.evaluate(scalars)
        stray = _stray(place, ranges, scalars, size)
        if stray:
            return _stray_message(site, view, size, stray, scalars)
    return None


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
    place: Place, ranges: Mapping[str, int], scalars: Mapping[str, int], size: int
) -> tuple[int, dict[str, int]] | None:
    """Return an address outside [0, size) and the symbols that give it, or None."""
    low, high = _span(place.address, ranges, scalars)
    if low >= 0 and high < size:
        return None
    axes = _axes(place, ranges)
    address, used = place.over(axes, scalars)
    strays = used & ((address < 0) | (address >= size))
    if not strays.any():
        return None
    farthest = np.unravel_index(int(np.argmax(np.where(strays, abs(address), -1))), strays.shape)
    example = {
        name: int(values[at]) for (name, values), at in zip(axes.items(), farthest, strict=True)
    }
    return int(address[farthest]), example


def _span(index: Index, ranges: Mapping[str, int], scalars: Mapping[str, int]) -> tuple[int, int]:
    """Return the least and the largest value over the corners of the ranges."""
    low = high = index.const
    for name, factor in index.terms:
        first, last = (0, ranges[name] - 1) if name in ranges else (scalars[name], scalars[name])
        low += min(factor * first, factor * last)
        high += max(factor * first, factor * last)
    return low, high


def _axes(place: Place, ranges: Mapping[str, int]) -> dict[str, Addresses]:
    """Return the values to try of each symbol that matters.

    A symbol in no condition matters only at its ends, because addresses are affine. If there are
    too many combinations, the middle of the long ranges is left out.
    """
    conditions = place.conditions
    used = [name for name in ranges if name in conditions | place.address.symbols]
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


def _ends(count: int, keep: int) -> Addresses:
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
