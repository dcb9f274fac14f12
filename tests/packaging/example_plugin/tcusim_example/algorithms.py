"""An algorithm that tcusim does not have: the last element of each segment."""

from __future__ import annotations

from tcusim.algorithms import algorithm
from tcusim.algorithms.builder import LENGTH, Builder
from tcusim.algorithms.rows import data
from tcusim.program.grammar import Extent


@algorithm("segment_ends", "reduction", "[EXAMPLE]", "0")
def segment_ends(b: Builder, segment_size: int, *, scale: int = 1) -> int:
    """Copy the last element of each segment.

    Parameters
    ----------
    scale : int
        How many times it is added up.
    """
    out = b.output("out", b.options.result, Extent(LENGTH, segment_size))
    first = b.item * b.m
    ends = b.rect(data(b), first * segment_size + (segment_size - 1), b.m, 1, segment_size)
    sums = b.rect(b.scratch("sums", b.options.source, b.m), 0, b.m, 1, 1)
    with b.items():
        b.copy(sums, ends)
        for _ in range(scale - 1):
            b.copy(sums, sums, ends)
        b.copy(b.rect(out, first, b.m, 1, 1), sums)
    return b.m * segment_size
