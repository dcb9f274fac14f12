"""The numbers by which the planner chooses: one row for each architecture.

They decide how fast a plan is, never in which order it adds: a test changes them all, and finds the
same bits. What is part of the order stands with the algorithms, in `tcusim.algorithms.rows` and
`tcusim.algorithms.product`.

The values here were measured on an H200 in 2026, with arrays of float16, unless a line says
otherwise. For another GPU, measure, and add to `TUNINGS` a row with what differs; what a user
measured is in `tcusim.arrays.tuned`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = [
    "DEFAULT",
    "TUNINGS",
    "Block",
    "ProductTuning",
    "RaggedTuning",
    "SegmentTuning",
    "Tuning",
    "WaitingTuning",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTuning:
    """Sizes that differ between sums and scans."""

    # Elements of the panels that a warp takes at a time; a quarter in sums of rows of one tile,
    # which have as many totals then. In sums, no more than so many times a tile's rows, and fewer
    # elements of one byte.
    panel_elements: int
    panel_groups: int = 8
    byte_elements: int = 2**10
    # From so many rows of a segment on: the rows of a panel, where they are padded in shared
    # memory. Of longer segments it is the most if they fill such panels, else the least. What is
    # filled lacks at most one element in so many.
    padded_rows: tuple[tuple[int, int], ...] = (
        *((1, 32), (5, 64), (7, 32), (10, 64), (16, 32), (17, 64), (22, 32), (33, 64)),
    )
    spare_share: int = 12
    # From so many rows of a segment on: the most warps of a block that takes panels, and how often
    # a warp of a long array takes them anew, while others wait for memory.
    panel_turns: tuple[tuple[int, int, int], ...]
    # The same for rows that are padded in shared memory.
    staged_turns: tuple[tuple[int, int, int], ...]
    # Of float32, which is added up without products: the elements that a warp takes at a time, and
    # the same two tables.
    added_elements: int
    added_turns: tuple[tuple[int, int, int], ...]
    added_staged_turns: tuple[tuple[int, int, int], ...]
    # The same for float16 that is added in float64.
    exact_turns: tuple[tuple[int, int, int], ...]
    # Both for segments of any rows; 0 leaves them to these tables.
    panel_warps: int = 0
    panel_iterations: int = 0
    # Of segments of one row that are moved in one piece first: the rows that a warp takes at once,
    # of one tile and of two side by side, and how often a warp of a long array takes them anew.
    moved_rows: tuple[int, int]
    moved_warps: int = 4
    moved_turns: int = 8
    # The longest segments that share a row of a tile; of these, the tiles that a warp takes at a
    # time, the warps of a block, and how often a warp of a long array takes them anew: where they
    # lie so, and where each gets a slot in shared memory.
    longest_short: int
    short_tiles: int
    short_warps: int = 4
    short_turns: tuple[int, int] = (1, 8)
    # The most elements of a segment that a warp takes alone, if segments are many.
    longest_in_panels: int
    # The most warps of a block that shares segments with others.
    block_warps: int
    # Blocks of a whole array that wait for each other's totals; a power of 2.
    columns: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingTuning:
    """Sizes of blocks that scan, and wait for the totals of others meanwhile."""

    # Bytes that a block keeps of a segment, and of a whole array or a segment of several groups if
    # it is another number.
    block_bytes: int
    whole_bytes: int = 0
    # Panels of a warp of a block of several chunks, of one, and of one that is so small only
    # because larger ones would leave out too much of a segment.
    panels: int
    panels_of_chunk: int = 1
    panels_of_spared: int = 0
    # The share of its rows that such a warp has in fragments; others are in shared memory.
    in_fragments: float = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RaggedTuning:
    """Sizes for segments by offsets."""

    # Values of a chunk that are added up in shared memory: the fewest, and the most.
    least_cut: int = 16
    simt_values: int = 128
    # Values that take no longer to add up than another launch.
    few_values: int = 2**20
    # Values that a warp has in an array in shared memory at once, and the most chunks: one a lane.
    held_values: int = 1024
    rows: int = 32
    # Warps of a block, and how often each takes rows of the array, or chunks of sums, anew; the
    # latter only where that leaves as many warps as fill a GPU.
    warps: int = 4
    items: int = 8
    simt_items: int = 4
    filling_warps: int = 2**13

    def rows_of(self, line: int) -> int:
        """Return how many chunks of `line` values a warp takes at once."""
        return max(1, min(self.rows, self.held_values // line))

    def simt_items_of(self, chunks: int, rows: int) -> int:
        """Return how often a warp takes `rows` of so many chunks of sums anew."""
        items = self.simt_items
        while items > 1 and chunks < self.filling_warps * items * rows:
            items //= 2
        return items


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a product of matrices.

    warps, warps_down: all of its warps, and those that lie one below the other. height, width: of
    what each of them makes. stages: of the factors in shared memory.
    """

    warps: int
    warps_down: int
    height: int
    width: int
    stages: int

    @property
    def rows(self) -> int:
        """Rows of the results that the block makes."""
        return self.warps_down * self.height

    @property
    def cols(self) -> int:
        """Columns of the results that the block makes."""
        return self.warps // self.warps_down * self.width


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductTuning:
    """Sizes for products."""

    # Blocks of a product of matrices, the largest first. A larger one reads less, but has to be one
    # of so many: about one for each multiprocessor.
    blocks: tuple[Block, ...] = (
        Block(8, 2, 64, 64, 4),
        Block(8, 2, 64, 32, 4),
        Block(4, 2, 64, 32, 4),
        Block(4, 2, 32, 32, 4),
        Block(1, 1, 32, 32, 2),
        Block(1, 1, 16, 16, 2),
    )
    enough_blocks: int = 120
    # Stages of blocks whose factors are split into narrow parts.
    split_stages: int = 2
    # Those for rows or columns up to so many, and for others that are too few for the larger ones.
    few_lines: int = 32
    for_few_lines: int = 4
    for_few_results: int = 3
    # Bytes of the accumulators of a warp, half of the registers of its threads: one of each result,
    # and another one where chains are shorter than so many k tiles: both are used all the time.
    sum_bytes: int = 2**14
    short_chain: int = 64
    # Tiles of a warp, one below the other and side by side. Those of GPUs are no more in any case;
    # with more of tiny ones, programs take minutes to build.
    most_tiles: int = 8
    # Short rows of a matrix from which on the warps that multiply it by a vector have more of them:
    # so many tiles of rows.
    many_rows: int = 2**14
    own_down: int = 2
    # Warps of such a block, the usual number first.
    vector_warps: tuple[int, ...] = (4, 2, 1)
    # Stages of blocks whose warps share rows.
    vector_stages: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """All numbers for one architecture."""

    # Segments from which on a warp takes longer ones alone.
    many_segments: int = 2**13
    # Elements from which on blocks have several warps, and how many: all multiprocessors have some.
    many_elements: int = 2**18
    warps: int = 8
    # Lengths that are multiples of it may be whole blocks, which need no bounds.
    whole_blocks: int = 2**12
    # Blocks of a whole array that are one group in any case: one wait less, a microsecond of five.
    one_group: int = 256
    # Elements of two bytes of a block that sums a part of a segment, at most, and how many blocks
    # an array should give at least.
    most_block: int = 2**17
    # The least that such blocks take so that a segment fills its last one.
    least_block: int = 2**12
    enough_blocks: int = 256
    # The most elements that each warp of such a block takes at a time: of one with a segment of its
    # own, of others, and of a small block.
    sum_warp_elements: int = 2**12
    shared_warp_elements: int = 2**11
    few_warp_elements: int = 2**11
    # Bytes that a block keeps of what it scans; 0 leaves them to the next table.
    block_bytes: int = 0
    # Blocks that scan together, by the bytes of an element.
    waiting: Mapping[int, WaitingTuning] = field(
        default_factory=lambda: {
            2: WaitingTuning(block_bytes=2**16, panels=4, panels_of_spared=2, in_fragments=0.75),
            4: WaitingTuning(block_bytes=2**15, panels=2, panels_of_chunk=2),
            8: WaitingTuning(block_bytes=2**14, whole_bytes=2**15, panels=2),
        }
    )
    reduction: SegmentTuning = SegmentTuning(
        panel_elements=4096,
        panel_turns=((1, 4, 1),),
        staged_turns=((1, 8, 4), (33, 4, 4), (65, 4, 1), (128, 4, 2), (256, 4, 1)),
        added_elements=1024,
        added_turns=((1, 4, 1),),
        added_staged_turns=((1, 4, 4), (32, 4, 1)),
        exact_turns=((1, 4, 1),),
        moved_rows=(64, 64),
        longest_short=8,
        short_tiles=8,
        longest_in_panels=2**15,
        block_warps=8,
    )
    scan: SegmentTuning = SegmentTuning(
        panel_elements=1024,
        panel_turns=((1, 8, 4), (2, 8, 2), (32, 8, 4), (64, 8, 2), (512, 8, 1)),
        staged_turns=(
            *((1, 2, 4), (10, 8, 4), (13, 2, 4), (19, 2, 8), (32, 8, 4), (33, 2, 8)),
            *((128, 8, 1), (256, 2, 2), (512, 8, 1)),
        ),
        added_elements=512,
        added_turns=(
            *((1, 4, 1), (2, 4, 8), (32, 8, 4), (64, 4, 2)),
            *((128, 4, 1), (512, 8, 2), (1024, 4, 2)),
        ),
        added_staged_turns=((1, 4, 1), (2, 8, 4), (3, 4, 1), (8, 8, 4), (64, 4, 1)),
        exact_turns=((1, 4, 1), (64, 8, 4)),
        moved_rows=(64, 32),
        longest_short=16,
        short_tiles=4,
        longest_in_panels=2**15,
        block_warps=8,
    )
    ragged: RaggedTuning = RaggedTuning()
    product: ProductTuning = ProductTuning()

    def of(self, kind: str) -> SegmentTuning:
        """Return the sizes for a "reduction" or a "scan"."""
        return self.reduction if kind == "reduction" else self.scan


# For architectures without a row: nobody has measured there.
DEFAULT: Final = Tuning()

TUNINGS: Final[Mapping[str, Tuning]] = {"hopper": DEFAULT}
