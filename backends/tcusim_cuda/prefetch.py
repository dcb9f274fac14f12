"""Reads ahead of blocks that wait for others: prefetches of inputs into the L2 cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tcusim.machine import format_of
from tcusim.program.grammar import Await, Buffer, BufferRole, Index, Program, accesses
from tcusim.program.walk import WARP_PLACES, Guard, sites, span

# The part of an input that L2 reads ahead of the blocks that run: as much as they themselves read,
# or more. Measured on an H200: 2 to 8 MB are equally good, and 16 MB are bad for its L2 of 50 MB.
_FETCHED_BYTES: Final = 2**22


@dataclass(frozen=True, slots=True)
class Fetch:
    """Elements of an input that the block with a ticket `later` by so many reads.

    They are `count` from place `first` on, in terms of that block's place in the grid.
    """

    buffer: Buffer
    later: int
    first: Index
    count: int


def fetches(program: Program) -> list[Fetch]:
    """Return the contiguous inputs to prefetch, if all blocks wait for others.

    Blocks start in the order of their tickets, so their order is known.
    """
    waits = (site for site in sites(program) if isinstance(site.step, Await))
    if not any(_of_warp(site.guards) for site in waits):
        return []
    found: dict[tuple[Buffer, Index], tuple[int, int]] = {}
    for site in sites(program):
        for view in accesses(site.step).views_read:
            if view.buffer.role is not BufferRole.INPUT or view.ranges is not None:
                continue
            across = program.warp_columns
            sides = {"warp": program.warps, "warp_row": program.warps // across}
            sides |= {"warp_col": across, "row": view.rows, "col": view.cols}
            sides |= {loop.var: loop.count.constant or 1 for loop in site.loops}
            box = {name: (0, count - 1) for name, count in sides.items()}
            inner = Index(tuple(term for term in view.address.terms if term[0] in box))
            low, high = span(inner + view.address.const, box)
            key = view.buffer, view.address - inner - view.address.const
            least, most = found.get(key, (low, high))
            found[key] = min(least, low), max(most, high)
    result = []
    for (buffer, base), (low, high) in found.items():
        count = high + 1 - low
        later = max(1, _FETCHED_BYTES // (count * format_of(buffer.dtype).itemsize))
        result.append(Fetch(buffer, later, base + low, count))
    return result


def _of_warp(guards: tuple[Guard, ...]) -> bool:
    """Return whether a step is there in every block, in some warp."""
    bounds = (bound for guard in guards for bound in guard.bounds)
    return all(bound.excess.symbols <= WARP_PLACES for bound in bounds)
