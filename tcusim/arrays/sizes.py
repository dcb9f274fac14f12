"""How much a warp and a block take at once: sizes of launches, by the problem and the `Tuning`.

`tcusim.arrays.planner` builds programs with these options. None of them changes a bit of a sum or a
scan: the grid, `Grid`, is a segment's own, and the sizes say only who takes which part of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tcusim.algorithms.builder import parts_of
from tcusim.algorithms.grid import BLOCK_CHUNKS, fills_chunks, whole_panels
from tcusim.algorithms.panel import together_aligned
from tcusim.algorithms.product import (
    FACTOR_ROW_BYTES,
    MOST_DEPTH,
    OWN_ROW_BYTES,
    SHARED_ROW_BYTES,
    SHARING_WARPS,
)
from tcusim.algorithms.rows import (
    CHUNK_PANELS,
    GROUP_CHUNKS,
    PANEL_ROWS,
    ROW_TILES,
    has_own_row,
    rows_of_a_pass,
)
from tcusim.algorithms.rows import slot_of as width_of_slot
from tcusim.arrays.problem import Problem, ProductProblem, rounded_up
from tcusim.arrays.tuning import Block, ProductTuning, SegmentTuning, Tuning
from tcusim.machine import format_of
from tcusim.machine.shapes import MmaShape


@dataclass(frozen=True, slots=True)
class Grid:
    """The grid of a problem's segments in elements: see `tcusim.algorithms.rows`."""

    row: int
    panel: int
    chunk: int
    group: int

    @staticmethod
    def of(tile: MmaShape) -> Grid:
        """Return the grid of segments in those tiles."""
        row = ROW_TILES * tile.k
        panel = PANEL_ROWS * row
        chunk = CHUNK_PANELS * panel
        return Grid(row, panel, chunk, GROUP_CHUNKS * chunk)


def longest_scanned(tile: MmaShape) -> int | None:
    """Return the longest segments that one launch scans, None for any length.

    Blocks share segments. Where a warp's panels fill no chunks, it takes segments alone.
    """
    return None if fills_chunks(data_rows(tile)) else max(BLOCK_CHUNKS) * Grid.of(tile).chunk


def data_rows(tile: MmaShape) -> int:
    """Return the rows of data of a tile, whichever operand holds them."""
    return max(tile.m, tile.n)


def slot_of(p: Problem) -> int:
    """Return the elements of a row that a short segment has to itself, on either side."""
    return width_of_slot(p.kind, min(p.tile.m, p.tile.n), p.tile.k, p.segment_size)


def panel_options(p: Problem, tuning: Tuning) -> tuple[dict[str, Any], str]:
    """Return the options of warps that take whole segments, and these in words.

    A long array has enough of them for blocks of several warps, and for a warp to take some anew
    while others wait for memory.
    """
    sizes, k = tuning.of(p.kind), p.tile.k
    width = 1 if p.segment_size <= k else ROW_TILES
    row = width * k
    adds = p.types.adds
    own = adds and has_own_row(k, p.kind, p.segment_size)
    if own:
        row = p.segment_size
    per_group = data_rows(p.tile) * row
    rows = -(-p.segment_size // row)
    elements = sizes.added_elements if adds else sizes.panel_elements
    padded = bool(p.segment_size % row)
    if p.kind == "reduction" and not adds:
        elements = min(elements // (ROW_TILES // width) ** 2, sizes.panel_groups * per_group)
        if format_of(p.types.source).itemsize == 1:
            elements = min(elements, sizes.byte_elements)
        if padded:
            # Rows that are padded in shared memory need room there.
            elements = min(elements, _padded_rows(rows, sizes) * row)
    elif p.kind == "scan" and not adds:
        # One total a lane.
        elements = min(elements, PANEL_ROWS * row)
    groups = max(1, min(elements, rounded_up(p.length, per_group)) // per_group)
    if p.kind == "scan" and not own:
        groups = max(groups, -(-PANEL_ROWS // data_rows(p.tile)))
    table = sizes.staged_turns if padded else sizes.panel_turns
    if adds:
        table = sizes.added_staged_turns if padded else sizes.added_turns
        if p.types.acc == "f64":
            table = sizes.exact_turns
    most, turns = next(each[1:] for each in reversed(table) if rows >= each[0])
    if rows == 1 and padded and has_pairs(p) and together_aligned(_nbytes(p)) > 2:
        groups = min(sizes.moved_rows[width - 1] // data_rows(p.tile), -(-p.length // per_group))
        groups, most, turns = max(1, groups), sizes.moved_warps, sizes.moved_turns
    taken = groups * per_group
    most, turns = sizes.panel_warps or most, sizes.panel_iterations or turns
    while most > 1 and p.length < most * taken * tuning.enough_blocks:
        most //= 2
    options: dict[str, Any] = {"groups": groups, "warps": most}
    long = turns * tuning.warps * max(taken, p.segment_size) * tuning.enough_blocks
    if p.length >= long:
        options["items_per_warp"] = turns
    count = max(1, groups * data_rows(p.tile) // rows)
    what = f"{count} segments" if count > 1 else "a segment"
    return options, f"a warp takes {what} of {p.segment_size} elements, in rows of {row}"


def has_pairs(p: Problem) -> bool:
    """Return whether elements are operands, two to a word."""
    return format_of(p.types.source).itemsize == 2 and parts_of(p.types.source, p.types.ab) == 1


def _nbytes(p: Problem) -> int:
    """Return the bytes of a segment."""
    return format_of(p.types.source).itemsize * p.segment_size


def _padded_rows(rows: int, sizes: SegmentTuning) -> int:
    """Return the rows that a warp takes at once of segments of so many."""
    least, most = (f(count for _, count in sizes.padded_rows) for f in (min, max))
    if rows > most:
        return most if -rows % most * sizes.spare_share <= rows else least
    return next(count for first, count in reversed(sizes.padded_rows) if rows >= first)


def block_sizes(p: Problem, tuning: Tuning) -> Iterator[dict[str, Any]]:
    """Yield options of blocks that share segments, the usual ones first, then smaller ones.

    Few elements are shared by smaller blocks, so that every multiprocessor has some.
    """
    of_kind = _blocks_of_sums if p.kind == "reduction" else _blocks_of_scans
    return of_kind(p, tuning, max(Grid.of(p.tile).chunk, p.length // tuning.enough_blocks))


def _is_spared(size: int | None, block: int, share: int) -> bool:
    """Return whether the last block of each segment leaves out too much: that is time lost."""
    return size is not None and -size % block * share > size


def _blocks_of_sums(p: Problem, tuning: Tuning, enough: int) -> Iterator[dict[str, Any]]:
    """Yield options of blocks that share a sum; enough: elements of a block of so many blocks."""
    sizes, size = tuning.reduction, p.whole_or_size
    grid, rows = Grid.of(p.tile), data_rows(p.tile)
    most = 2 * tuning.most_block // _kept_size(p)
    wanted = min(most, rounded_up(p.segment_size, grid.row), enough)
    elements: int = 1 << max(0, wanted - 1).bit_length()
    while elements > tuning.least_block:
        # The smallest blocks are slow: those before them may leave out more.
        share = sizes.spare_share // (2 if elements == 2 * tuning.least_block else 1)
        if not _is_spared(size, elements, share):
            break
        elements //= 2
    each = max(tuning.few_warp_elements, elements // sizes.block_warps)
    each = min(each, _most_summed(p, tuning, alone=size is not None and elements >= size))
    groups = max(1, min(sizes.panel_groups, each // (rows * grid.row)))
    share = rows_of_a_pass(rows * groups) * grid.row
    warps = 1 << (max(1, min(sizes.block_warps, elements // share)).bit_length() - 1)
    panels = 1 << (max(1, elements // (warps * share)).bit_length() - 1)
    while warps:
        block = warps * share * panels
        options = {"warps": warps, "groups": groups, "panels": panels}
        if size is None:
            columns = rounded_up(-(-p.length // block), 1)
            if columns > tuning.one_group:
                columns = sizes.columns
            in_all = -(-p.length // (block * columns))
            options |= {"columns": columns, "groups_at_once": min(1024, rounded_up(in_all, 1))}
        yield options
        warps //= 2


def _blocks_of_scans(p: Problem, tuning: Tuning, enough: int) -> Iterator[dict[str, Any]]:
    """Yield options of blocks that share a scan; enough: elements of a block of so many blocks."""
    grid, size = Grid.of(p.tile), p.whole_or_size
    panels = -(-p.segment_size // grid.panel)
    batches, fewest = whole_panels(data_rows(p.tile))
    if panels <= CHUNK_PANELS and size is not None:
        options = {"warps": -(-panels // fewest), "batches": batches}
        yield options
        if p.types.adds:
            yield options | {"twice": True}
        return
    sizes = tuning.waiting[_kept_size(p)]
    has_groups = size is None or size > grid.group
    usual = (sizes.whole_bytes if has_groups else 0) or sizes.block_bytes
    kept = tuning.block_bytes or usual
    most = max(1, min(max(BLOCK_CHUNKS), kept // (grid.chunk * _kept_size(p))))
    chunks = max(1, min(most, enough // grid.chunk, -(-p.segment_size // grid.chunk)))
    chunks, of_chunk = 1 << (chunks.bit_length() - 1), sizes.panels_of_chunk
    while chunks > 1 and _is_spared(size, chunks * grid.chunk, tuning.scan.spare_share):
        chunks, of_chunk = chunks // 2, sizes.panels_of_spared or of_chunk
    chunks = max(chunks, fewest // CHUNK_PANELS)
    without_rows: list[dict[str, Any]] = []
    while chunks * CHUNK_PANELS >= fewest:
        # Of one chunk, the more panels a warp has, the fewer warps need room beside the data.
        fewer = (1, 2, 4, 8)[(1, 2, 4, 8).index(of_chunk) :]
        for panels in fewer if chunks == 1 else (sizes.panels,):
            each = max(panels, fewest)
            all_of_warp = each // fewest * batches
            options = {"warps": CHUNK_PANELS * chunks // each, "batches": all_of_warp}
            if chunks > 1 and sizes.in_fragments < 1:
                options["in_fragments"] = max(1, int(sizes.in_fragments * all_of_warp))
            if size is None:
                needed = rounded_up(-(-p.length // (chunks * grid.chunk)), 1)
                options["columns"] = min(GROUP_CHUNKS // chunks, needed)
            yield options
            if p.types.adds and chunks == 1:
                without_rows.append(options | {"twice": True})
        chunks //= 2
    # A chunk may be more than there is space for; its rows are then read again, by many warps.
    yield from without_rows


def _most_summed(p: Problem, tuning: Tuning, *, alone: bool) -> int:
    """Return the most elements that a warp sums at a time; alone: if its block has a segment."""
    if format_of(p.types.source).itemsize == 1:
        return tuning.reduction.byte_elements
    if p.types.adds and p.types.acc == "f64":
        return tuning.reduction.added_elements
    return tuning.sum_warp_elements if alone else tuning.shared_warp_elements


def _kept_size(p: Problem) -> int:
    """Return the bytes of an element that a block keeps; smaller ones count as if they had two.

    Elements that a scan adds without products are kept in the sums' type.
    """
    kept = p.types.acc if p.types.adds and p.kind == "scan" else p.types.source
    return max(2, format_of(kept).itemsize)


# --- Products ---------------------------------------------------------------------------------


def product_blocks(
    p: ProductProblem, tuning: ProductTuning, chain: int | None
) -> list[dict[str, Any]]:
    """Return options of "gemm": how large a block's tile is, and how many warps share it.

    The first are those that suit; the others are of smaller blocks. chain: k tiles that accumulate
    at most.
    """
    rows, cols = p.rows, p.cols or 1
    itemsize = format_of(p.types.ab).itemsize
    # Not more tiles than the result has; few programs serve all small results.
    down, across = rounded_up(rows, p.tile.m) // p.tile.m, rounded_up(cols, p.tile.n) // p.tile.n
    return [
        {
            "warps": block.warps,
            "warps_down": block.warps_down,
            "down": min(max(1, block.height // p.tile.m), tuning.most_tiles, down),
            "across": min(max(1, block.width // p.tile.n), tuning.most_tiles, across),
            "depth": min(max(1, FACTOR_ROW_BYTES // (p.tile.k * itemsize)), MOST_DEPTH),
            # Parts are not copied while others are multiplied, but made when they are there.
            "stages": block.stages if p.types.source == p.types.ab else tuning.split_stages,
        }
        for block in _blocks(p, tuning, chain)
    ]


def _blocks(p: ProductProblem, tuning: ProductTuning, chain: int | None) -> Sequence[Block]:
    """Return the largest block that suits a product, and the smaller ones after it."""
    rows, cols = p.rows, p.cols or 1
    if min(rows, cols) <= tuning.few_lines:
        return tuning.blocks[tuning.for_few_lines :]
    tiles = -(-p.inner // p.tile.k)
    is_cut = chain is not None and chain < min(tiles, tuning.short_chain)
    result_bytes = (1 + is_cut) * format_of(p.types.acc).itemsize
    first = tuning.for_few_results
    for number, block in enumerate(tuning.blocks[:first]):
        enough = (rows // block.rows) * (cols // block.cols) >= tuning.enough_blocks
        held = block.height * block.width * result_bytes <= tuning.sum_bytes
        if enough and held and p.types.source == p.types.ab:
            first = number
            break
    return tuning.blocks[first:]


def vector_readings(p: ProductProblem, tuning: ProductTuning) -> list[dict[str, Any]]:
    """Return options of "gemv_reduction": enough bytes on their way, in little shared memory.

    Memory is kept busy by some megabytes at a time. Warps share the rows of a block, in an order
    that follows from the rows' length alone. Short rows have one warp, and if they are many, of
    elements that are operands, it may take more of them at once: each is one chain either way. The
    first options are those that suit; then come fewer warps.
    """
    itemsize = format_of(p.types.source).itemsize
    width = max(1, SHARED_ROW_BYTES // (p.tile.k * itemsize))
    if p.inner >= SHARING_WARPS[0] * width * p.tile.k:
        stages = tuning.vector_stages if p.types.source == p.types.ab else tuning.split_stages
        return [
            {"warps": warps, "width": width, "share_rows": True, "stages": stages}
            for warps in SHARING_WARPS
        ]
    if p.rows < tuning.many_rows or p.types.source != p.types.ab:
        return [{"width": width}]
    width = max(1, OWN_ROW_BYTES // (p.tile.k * itemsize))
    return [
        {"warps": warps, "down": tuning.own_down, "width": width} for warps in tuning.vector_warps
    ]
