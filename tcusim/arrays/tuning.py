"""How the planner chooses sizes on each architecture: one row of numbers, each with its source.

A number here decides how fast a plan is, and in which order it adds, never whether it is right. To
tune for another GPU, measure (`benchmarks/`), and add a row to `TUNINGS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["DEFAULT", "TUNINGS", "ProductTuning", "RaggedTuning", "SegmentTuning", "Tuning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTuning:
    """Sizes for sums, or for scans, of segments of one size.

    Attributes
    ----------
    short_rows : int
        Segments of more rows of a tile than this are read tile by tile, if they fill no panels.
    panel_elements : int
        Elements of the panels that a warp takes at a time.
    longest_in_panels : int
        The most elements of a segment that a warp takes in panels, some at a time.
    widest_in_panels : int
        Bytes of the widest elements that are taken in panels at all.
    panel_warps : int
        The most warps of a block that takes panels.
    block_warps : int
        The most warps of a block that shares segments with others.
    columns : int
        Blocks of a whole array that wait for each other's totals; groups of this size wait for the
        group before.
    """

    short_rows: int
    panel_elements: int
    longest_in_panels: int
    widest_in_panels: int
    panel_warps: int
    block_warps: int
    columns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RaggedTuning:
    """Sizes for segments by offsets.

    Attributes
    ----------
    most_rows : int
        The longest chunk, in rows of a tile: its sum is one of that many products.
    busy_chunks : int
        Chunks that keep the warps of a large GPU busy: long segments are cut shorter to have them.
    simt_chunk : tuple of int
        The shortest and the longest chunk that is added up in shared memory.
    """

    most_rows: int
    busy_chunks: int
    simt_chunk: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductTuning:
    """Sizes for products.

    Attributes
    ----------
    narrow_chain : int
        Tiles that accumulate before a rounded addition if the result has half precision.
    many_results : int
        Results from which on the largest blocks are enough for every multiprocessor.
    blocks : tuple of (warps, warps_down, height, width)
        Blocks of a product of matrices, the largest first: their warps, those that lie one below
        the other, and the height and width of what each warp makes.
    row_bytes : int
        Bytes of each row of a factor that a block takes at a time.
    many_rows : int
        Rows of a matrix from which on warps have rows of their own.
    own_row_bytes, own_down, own_chunk : int
        Bytes that such a warp takes of each row, of that many tiles of rows, and the elements of
        the vector that it keeps.
    shared_row_bytes : int
        Bytes that warps take in turn of rows that they share.
    vector_warps : tuple of int
        Warps of a block, the usual number first.
    """

    narrow_chain: int
    many_results: int
    blocks: tuple[tuple[int, int, int, int], ...]
    row_bytes: int
    many_rows: int
    own_row_bytes: int
    own_down: int
    own_chunk: int
    shared_row_bytes: int
    vector_warps: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """The numbers by which plans are made for one architecture.

    Attributes
    ----------
    chain : int
        Products that accumulate before a rounded addition.
    few_rows : int
        Takes the place of `short_rows` for segments too few to fill a tile, or of wide elements.
    many_segments : int
        Segments from which on warps scan longer ones in panels too, up to a chunk.
    chunk : int
        Elements that one warp takes of a longer segment.
    simt_values : int
        Values that one warp combines by plain additions.
    panel_iterations : int
        How often a warp of a long array takes panels anew.
    many_elements, warps : int
        Elements from which on blocks have several warps, and how many.
    least_block, most_block : int
        Elements of a block that shares segments with others.
    enough_blocks : int
        How many blocks an array should give at least.
    sum_warp_elements : int
        Elements for each warp of such a block that sums, if there are enough for all.
    scan_warp_elements : int
        Elements for each warp of one that scans, if there are few blocks.
    batch_elements, batch_row : int
        Elements that a warp scans at a time, and those of a row of them, at least.
    block_bytes, warp_bytes : int
        What a block may keep in shared memory of what it scans, and each warp of it.
    most_columns : int
        The most blocks of a segment, each of which waits for the totals of all before it.
    reduction, scan : SegmentTuning
        The sizes that differ between sums and scans.
    ragged : RaggedTuning
        Sizes for segments by offsets.
    product : ProductTuning
        Sizes for products.
    """

    chain: int
    few_rows: int
    many_segments: int
    chunk: int
    simt_values: int
    panel_iterations: int
    many_elements: int
    warps: int
    least_block: int
    most_block: int
    enough_blocks: int
    sum_warp_elements: int
    scan_warp_elements: int
    batch_elements: int
    batch_row: int
    block_bytes: int
    warp_bytes: int
    most_columns: int
    reduction: SegmentTuning
    scan: SegmentTuning
    ragged: RaggedTuning
    product: ProductTuning

    def of(self, kind: str) -> SegmentTuning:
        """Return the sizes for a "reduction" or a "scan"."""
        return self.reduction if kind == "reduction" else self.scan


# Measured on an H200 in 2026, with arrays of float16, unless a line says otherwise.
_H200: Final = Tuning(
    # Numerics: a tensor core truncates each sum, and the drift of 16 stays below half a last bit.
    chain=16,
    few_rows=4,
    many_segments=2**13,
    chunk=2**14,
    simt_values=1024,
    panel_iterations=4,
    many_elements=2**18,
    warps=8,
    least_block=2**13,
    most_block=2**16,
    enough_blocks=256,
    sum_warp_elements=2**11,
    scan_warp_elements=2**10,
    batch_elements=256,
    batch_row=16,
    # Two blocks to a multiprocessor, of 227 KB of shared memory.
    block_bytes=2**16,
    warp_bytes=2**13,
    most_columns=128,
    reduction=SegmentTuning(
        short_rows=32,
        panel_elements=2048,
        longest_in_panels=2**11,
        widest_in_panels=2,
        panel_warps=4,
        block_warps=16,
        columns=64,
    ),
    scan=SegmentTuning(
        short_rows=16,
        # In panels of two f16 tiles these give each lane one total to scan.
        panel_elements=1024,
        longest_in_panels=2**13 - 1,
        widest_in_panels=4,
        panel_warps=8,
        block_warps=8,
        columns=128,
    ),
    ragged=RaggedTuning(
        most_rows=64,
        busy_chunks=2048,
        simt_chunk=(32, 128),
    ),
    product=ProductTuning(
        # Numerics: Volta truncates four times in a tile of 16, at 2**-23 of the sum; after 256
        # tiles that is an eighth of float16's last bit.
        narrow_chain=256,
        many_results=2**21,
        blocks=((8, 2, 64, 32), (4, 2, 32, 32), (1, 1, 32, 32), (1, 1, 16, 16)),
        # Two sectors of memory.
        row_bytes=64,
        many_rows=2**14,
        own_row_bytes=256,
        own_down=2,
        own_chunk=2**11,
        shared_row_bytes=128,
        vector_warps=(4, 2, 1),
    ),
)

# For architectures without a row: nobody has measured there, and the bits are those of Hopper.
DEFAULT: Final = _H200

TUNINGS: Final[Mapping[str, Tuning]] = {"hopper": _H200}
