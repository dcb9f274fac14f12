"""Where the tiles of an array lie: the views that all algorithms share."""

from __future__ import annotations

from tcusim.algorithms.builder import LENGTH, Builder, Spill
from tcusim.program.grammar import COL, ROW, Bound, Buffer, Extent, Index, View

__all__ = ["data", "pieces", "row_of", "rows_of", "tile_of"]


def data(b: Builder) -> Buffer:
    """Declare the array of `length` elements that every algorithm reads."""
    return b.input("in", b.options.source, Extent(LENGTH))


def pieces(
    b: Builder,
    buffer: Buffer,
    first: Index,
    segment_size: int,
    start: Index,
    *,
    beyond: bool = False,
) -> View:
    """Return an (m, k) tile: row r is elements `start` to start+k of segment first+r.

    beyond: whether `start` may be behind the end of a segment.
    """
    bounds = []
    if beyond or segment_size % b.k:
        bounds.append(Bound(start + COL, Index.of(segment_size)))
    if start.terms and segment_size < b.k:
        # Wherever the piece starts: a longer one would overlap the next segment's.
        bounds.append(Bound(COL, Index.of(segment_size)))
    offset = first * segment_size + start
    if b.options.ragged:
        bounds.append(Bound(offset + ROW * segment_size + COL, LENGTH))
    return b.rect(buffer, offset, b.m, b.k, segment_size, 1, bounds)


def tile_of(
    b: Builder,
    buffer: Buffer,
    segment: Index,
    segment_size: int,
    number: Index,
    *,
    beyond: bool = False,
) -> View:
    """Return tile `number` of a segment: m*k consecutive elements, k to a row.

    beyond: whether the tile may be behind the end of the segment.
    """
    start = number * (b.m * b.k)
    inside = ROW * b.k + COL
    bounds = []
    if beyond or segment_size % (b.m * b.k):
        bounds.append(Bound(start + inside, Index.of(segment_size)))
    offset = segment * segment_size + start
    if b.options.ragged:
        bounds.append(Bound(offset + inside, LENGTH))
    return b.rect(buffer, offset, b.m, b.k, b.k, 1, bounds)


def row_of(b: Builder, buffer: Buffer, segment: Index, segment_size: int) -> View:
    """Return a whole segment as one row."""
    offset = segment * segment_size
    bounds = [Bound(offset + COL, LENGTH)] if b.options.ragged else []
    return b.rect(buffer, offset, 1, segment_size, segment_size, 1, bounds)


def rows_of(b: Builder, spill: Spill, q: int) -> View:
    """Return rows q*k .. q*k+k of a spilled accumulator as a right operand, zeros below row m."""
    bounds = [Bound(ROW + q * b.k, Index.of(b.m))] if (q + 1) * b.k > b.m else []
    return b.part(spill, b.k, b.n, q * b.k, bounds=bounds)
