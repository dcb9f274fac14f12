"""Sizes to test unproven properties with: around a program's own numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Final

from tcusim.program.grammar import Extent, Index, Locate, Program
from tcusim.program.index import with_derived
from tcusim.program.walk import sites

# Numbers of full blocks to try, each with an element more and an element less.
_BLOCKS: Final = (1, 3, 2, 4, 5)
# Minimum number of remainders to try, for grids of one to three full blocks.
_LEAST_REMAINDERS: Final = 8
# Maximum number of sizes.
_MOST_SIZES: Final = 120


def sizes_to_try(program: Program) -> Iterator[dict[str, int]]:
    """Yield values of the scalars, the most revealing first.

    First a partial block, then two full blocks and an element. Then grids of up to five blocks, and
    the neighbours of each number in a condition, an address, a size or a loop, as a size and as a
    block index. Last the remainders of blocks, evenly spaced, up to the maximum. Several scalars
    get different values.
    """
    bases = [one for one in program.scalars if one.of is None]
    segments = _segments(program)
    shifts = max(1, 2 * len(bases) - 1)
    choices = [
        _values(program, one.name, one.multiple_of, segments.get(one.name), _MOST_SIZES // shifts)
        for one in bases
    ]
    longest, tried = max(map(len, choices), default=1), set()
    for shift, number in itertools.product(range(shifts), range(longest)):
        sizes = {
            one.name: values[(number + shift * place) % len(values)]
            for place, (one, values) in enumerate(zip(bases, choices, strict=True))
        }
        key = tuple(sizes.values())
        if key not in tried:
            tried.add(key)
            yield with_derived(program.scalars, sizes)
        if len(tried) >= _MOST_SIZES:
            return


def _segments(program: Program) -> dict[str, int]:
    """Return the scalars that count segments, each with its chunk length."""
    return {
        name: site.step.segments.chunk or 1
        for site in sites(program)
        if isinstance(site.step, Locate)
        for name in site.step.segments.offsets.size.index.symbols
    }


def _values(program: Program, name: str, unit: int, chunk: int | None, most: int) -> list[int]:
    """Return the values of one scalar to try, in order; at most `most`."""
    factor = abs(program.blocks.index.coefficient(name)) or 1
    per = max(1, program.blocks.per // factor)
    if chunk is not None:
        per = max(1, program.blocks.per // chunk)
    found = [per - 1, 2 * per + 1]
    if unit > 1:
        found = [unit, 3 * unit]
    found += [blocks * per + more for blocks in _BLOCKS for more in (0, 1, -1)]
    numbers = numbers_of(program)
    found += [number + more for number in numbers for more in (0, 1, -1)]
    found += [number * per + more for number in numbers for more in (1, per + 1) if number < per]
    rounded = dict.fromkeys(max(unit, -(-value // unit) * unit) for value in found)
    others = range(-(-per // unit) * unit, 3 * per, unit)
    room = max(_LEAST_REMAINDERS, most - len(rounded))
    # An odd distance reaches every remainder of a power of two.
    some = others[:: -(-len(others) // room) | 1]
    return [*rounded, *(value for value in some if value not in rounded)]


def numbers_of(program: Program) -> list[int]:
    """Return the critical numbers in conditions, addresses, sizes and loops."""
    extents: list[Extent] = [program.blocks, *(buffer.size for buffer in program.buffers)]
    indices: list[Index] = []
    for site in sites(program):
        for view in site.touched.views:
            indices += [view.address, *(bound.excess for bound in view.bounds)]
        indices += [bound.excess for guard in site.guards for bound in guard.bounds]
        extents += [loop.count for loop in site.loops]
    numbers = {extent.per for extent in extents}
    for index in (*indices, *(extent.index for extent in extents)):
        numbers |= {abs(index.const), *(abs(factor) for _, factor in index.terms)}
        for _, factor in index.terms:
            numbers.add(abs(index.const) // abs(factor))
    return sorted(number for number in numbers if 0 < number < math.inf)


def named_sizes(scalars: Mapping[str, int]) -> str:
    """Return a description of the sizes tried, for messages."""
    return ", ".join(f"{name} = {value}" for name, value in scalars.items())
