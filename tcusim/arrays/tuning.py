"""The numbers by which the planner chooses: a file in `tunings` for each architecture.

They decide how fast a plan is, never in which order it adds: a test changes them all, and finds the
same bits. Parts of the order stand with the algorithms, in `tcusim.algorithms.rows` and
`tcusim.algorithms.product`.

A file names the card, the date and the command of its measurements, with arrays of float16 unless a
line below says otherwise. For another GPU, measure, and add a file of the architecture's name. A
user's own measurements are in `tcusim.arrays.tuned`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from tcusim.records import of_plain


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTuning:
    """Sizes that differ between sums and scans."""

    # Elements of the panels that a warp takes at a time; a quarter in sums of rows of one tile,
    # which have as many totals then. In sums, no more than so many times a tile's rows, and fewer
    # elements of one byte.
    panel_elements: int
    panel_groups: int
    byte_elements: int
    # From so many rows of a segment on: the rows of a panel, where they are padded in shared
    # memory. Of longer segments it is the most if they fill such panels, else the least. A
    # filled panel lacks at most one element in so many.
    padded_rows: tuple[tuple[int, int], ...]
    spare_share: int
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
    moved_warps: int
    moved_turns: int
    # The longest segments that share a row of a tile; of these, the tiles that a warp takes at a
    # time, the warps of a block, and how often a warp of a long array takes them anew: where they
    # lie so, and where each gets a slot in shared memory.
    longest_short: int
    short_tiles: int
    short_warps: int
    short_turns: tuple[int, int]
    # The most elements of a segment that a warp takes alone, if segments are many.
    longest_in_panels: int
    # The most warps of a block that shares segments with others.
    block_warps: int
    # Blocks of a whole array that wait for each other's totals; a power of 2.
    columns: int


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
    panels_of_chunk: int
    panels_of_spared: int = 0
    # The share of its rows that such a warp has in fragments; others are in shared memory.
    in_fragments: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RaggedTuning:
    """Sizes for segments by offsets."""

    # Values of a chunk that are added up in shared memory: the fewest, and the most.
    least_cut: int
    simt_values: int
    # Values that take no longer to add up than another launch.
    few_values: int
    # Values that a warp has in an array in shared memory at once, and the most chunks: one a lane.
    held_values: int
    rows: int
    # Warps of a block, and how often each takes rows of the array, or chunks of sums, anew; the
    # latter only where that leaves as many warps as fill a GPU.
    warps: int
    items: int
    simt_items: int
    filling_warps: int

    def rows_of(self, line: int) -> int:
        """Return the number of chunks of `line` values that a warp takes at once."""
        return max(1, min(self.rows, self.held_values // line))

    def simt_items_of(self, chunks: int, rows: int) -> int:
        """Return the iterations of a warp that takes `rows` of so many chunks of sums each time."""
        items = self.simt_items
        while items > 1 and chunks < self.filling_warps * items * rows:
            items //= 2
        return items


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a product of matrices.

    warps, warps_down: all of its warps, and those that lie one below the other. height, width: of
    each one's result. stages: of the factors in shared memory.
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
    blocks: tuple[Block, ...]
    enough_blocks: int
    # Stages of blocks whose factors are split into narrow parts.
    split_stages: int
    # Those for rows or columns up to so many, and for others that are too few for the larger ones.
    few_lines: int
    for_few_lines: int
    for_few_results: int
    # Bytes of the accumulators of a warp, half of the registers of its threads: one of each result,
    # and another one where chains are shorter than so many k tiles: both are used all the time.
    sum_bytes: int
    short_chain: int
    # Tiles of a warp, one below the other and side by side. Those of GPUs are no more in any case;
    # with more of tiny ones, programs take minutes to build.
    most_tiles: int
    # Short rows of a matrix from which on the warps that multiply it by a vector have more of them:
    # so many tiles of rows.
    many_rows: int
    own_down: int
    # Warps of such a block, the usual number first.
    vector_warps: tuple[int, ...]
    # Stages of blocks whose warps share rows.
    vector_stages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """All numbers for one architecture."""

    # Segments from which on a warp takes longer ones alone.
    many_segments: int
    # Elements from which on blocks have several warps, and how many: all multiprocessors have some.
    many_elements: int
    warps: int
    # Lengths that are multiples of it may be whole blocks, which need no bounds.
    whole_blocks: int
    # Blocks of a whole array that are one group in any case: one wait less, a microsecond of five.
    one_group: int
    # Elements of two bytes of a block that sums a part of a segment, at most, and how many blocks
    # an array should give at least.
    most_block: int
    # The least that such blocks take so that a segment fills its last one.
    least_block: int
    enough_blocks: int
    # The most elements that each warp of such a block takes at a time: of one with a segment of its
    # own, of others, and of a small block.
    sum_warp_elements: int
    shared_warp_elements: int
    few_warp_elements: int
    # Bytes that a block keeps of its elements; 0 leaves them to the next table.
    block_bytes: int = 0
    # Blocks that scan together, by the bytes of an element.
    waiting: Mapping[int, WaitingTuning]
    reduction: SegmentTuning
    scan: SegmentTuning
    ragged: RaggedTuning
    product: ProductTuning

    def of(self, kind: str) -> SegmentTuning:
        """Return the sizes for a "reduction" or a "scan"."""
        return self.reduction if kind == "reduction" else self.scan


@cache
def tuning_of(arch: str | None) -> Tuning:
    """Return the numbers for an architecture: Hopper's, if nobody has measured it."""
    folder = resources.files("tcusim.arrays") / "tunings"
    measured = {file.name.removesuffix(".toml"): file for file in folder.iterdir()}
    return _read(measured.get(arch or "", measured["hopper"]).read_text(encoding="utf-8"))


def _read(text: str) -> Tuning:
    # Imported late: only plans need it.
    import tomllib

    table = tomllib.loads(text)
    del table["measured"]
    return of_plain(Tuning, {**table.pop("launches"), **table}, "a file of tunings")
