"""The numbers by which the planner chooses: one row for each architecture.

They decide how fast a plan is, and in which order it adds, never whether it is right. The values
here were measured on an H200 in 2026, with arrays of float16, unless a line says otherwise. For
another GPU, measure, and add to `TUNINGS` a row with what differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["DEFAULT", "TUNINGS", "ProductTuning", "RaggedTuning", "SegmentTuning", "Tuning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTuning:
    """Sizes that differ between sums and scans."""

    # Segments of more rows of a tile than this are read tile by tile, if they fill no panels.
    short_rows: int
    # Elements of the panels that a warp takes at a time.
    panel_elements: int
    # The most elements of a segment that a warp takes in panels, some at a time.
    longest_in_panels: int
    # Bytes of the widest elements that are taken in panels at all.
    widest_in_panels: int
    # The most warps of a block that takes panels, and of one that shares segments with others.
    panel_warps: int
    block_warps: int
    # Blocks of a whole array that wait for each other's totals; groups of that many wait for the
    # group before.
    columns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RaggedTuning:
    """Sizes for segments by offsets."""

    # The longest chunk, in rows of a tile: its sum is one of that many products.
    most_rows: int = 64
    # Chunks that keep the warps of a large GPU busy: long segments are cut shorter to have them.
    busy_chunks: int = 2048
    # The shortest and the longest chunk that is added up in shared memory.
    simt_chunk: tuple[int, int] = (32, 128)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductTuning:
    """Sizes for products."""

    # Tiles that accumulate before a rounded addition if the result has half precision. Arithmetic,
    # not speed: Volta truncates four times in a tile of 16, at 2**-23 of the sum, so that after 256
    # of them the drift is an eighth of float16's last bit.
    narrow_chain: int = 256
    # Results from which on the largest blocks are enough for every multiprocessor, and the fewest
    # rows and columns.
    many_results: int = 2**21
    many_lines: int = 128
    # Blocks of a product of matrices, the largest first: their warps, those that lie one below the
    # other, and the height and width of what each warp makes.
    blocks: tuple[tuple[int, int, int, int], ...] = (
        (8, 2, 64, 32),
        (4, 2, 32, 32),
        (1, 1, 32, 32),
        (1, 1, 16, 16),
    )
    # Rows or columns up to which blocks have one warp.
    few_lines: int = 32
    # Bytes of each row of a factor that a block takes at a time: two sectors of memory.
    row_bytes: int = 64
    # Tiles of a warp, one below the other, side by side, and in k. Those of GPUs are no more in any
    # case; with more of tiny ones, programs take minutes to build.
    most_tiles: int = 8
    # Rows of a matrix from which on the warps that multiply it by a vector have rows of their own.
    many_rows: int = 2**14
    # Bytes that such a warp takes of each row, of that many tiles of rows, and the elements of the
    # vector that it keeps.
    own_row_bytes: int = 256
    own_down: int = 2
    own_chunk: int = 2**11
    # Bytes that warps take in turn of rows that they share.
    shared_row_bytes: int = 128
    # Warps of a block, the usual number first.
    vector_warps: tuple[int, ...] = (4, 2, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """All numbers for one architecture."""

    # Products that accumulate before a rounded addition. Arithmetic, not speed: each truncates, so
    # that sums drift with the length of the chain.
    accumulation_length: int = 16
    # Takes the place of `short_rows` for segments too few to fill a tile, or of wide elements.
    few_rows: int = 4
    # Segments from which on warps scan longer ones in panels too, up to a chunk.
    many_segments: int = 2**13
    # Elements that one warp takes of a longer segment.
    chunk: int = 2**14
    # Values that one warp combines by plain additions.
    simt_values: int = 1024
    # How often a warp of a long array takes panels anew, while others wait for memory.
    panel_iterations: int = 4
    # Elements from which on blocks have several warps, and how many: all multiprocessors have some.
    many_elements: int = 2**18
    warps: int = 8
    # Elements of a block that shares segments with others, and how many blocks an array should give
    # at least.
    least_block: int = 2**13
    most_block: int = 2**16
    enough_blocks: int = 256
    # Elements of each warp of such a block: if it sums, and if it scans and blocks are few.
    sum_warp_elements: int = 2**11
    scan_warp_elements: int = 2**10
    # Elements that a warp scans at a time, and those of a row of them, at least.
    batch_elements: int = 256
    batch_row: int = 16
    # Bytes that a block keeps in shared memory of what it scans, and each warp of it.
    block_bytes: int = 2**16
    warp_bytes: int = 2**13
    # The most blocks of a segment, each of which waits for the totals of all before it.
    most_columns: int = 128
    reduction: SegmentTuning = SegmentTuning(
        short_rows=32,
        panel_elements=2048,
        longest_in_panels=2**11,
        widest_in_panels=2,
        panel_warps=4,
        block_warps=16,
        columns=64,
    )
    scan: SegmentTuning = SegmentTuning(
        short_rows=16,
        # In panels of two f16 tiles these give each lane one total to scan.
        panel_elements=1024,
        longest_in_panels=2**13 - 1,
        widest_in_panels=4,
        panel_warps=8,
        block_warps=8,
        columns=128,
    )
    ragged: RaggedTuning = RaggedTuning()
    product: ProductTuning = ProductTuning()

    def of(self, kind: str) -> SegmentTuning:
        """Return the sizes for a "reduction" or a "scan"."""
        return self.reduction if kind == "reduction" else self.scan


# For architectures without a row: nobody has measured there.
DEFAULT: Final = Tuning()

TUNINGS: Final[Mapping[str, Tuning]] = {"hopper": DEFAULT}
