"""Which launches sums and scans of segments of one size take, by a table of rules.

The first row of `RULES` that holds for a problem adds its launches to a draft, and says why.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tcusim.algorithms import Level, algorithm_of
from tcusim.algorithms.rows import SCANNED, SUMMED, Share, share_of
from tcusim.arrays.launches import CHAIN, Launches, Memory
from tcusim.arrays.problem import Problem
from tcusim.errors import Unsupported
from tcusim.machine import format_of
from tcusim.program.grammar import Program
from tcusim.program.resources import fitting

__all__ = ["CHUNK", "LEAST_BLOCK", "RULES", "SHORT", "Draft", "Rule", "chunk_of", "drafted"]

# Segments of more rows than this are read tile by tile, if they do not fill rows of tiles. Those
# too few for a tile are so already from a few rows on; and those of wide elements, whose parts make
# chains of products longer, and sums less precise.
SHORT = {"reduction": 32, "scan": 16}
FEW_ROWS = 4
# Warps scan longer segments in rows of tiles too, if there are that many of them and results are
# no wider than elements: memory is slower where each of so many warps writes far from the others.
MANY_SEGMENTS = 2**13
# Elements that one warp takes of a longer segment.
CHUNK = 2**14
# Values that one warp combines by plain additions.
PLAIN = 1024
# How often a warp of a long array takes tiles anew, while others wait for memory.
TURNS = 4
# Elements from which on blocks have several warps: there are enough for all multiprocessors then.
MANY = 2**18
WARPS = 8
# Elements of a block of the algorithms that share segments among blocks: the least, the most, and
# how many blocks an array should give at least.
LEAST_BLOCK = 2**13
MOST_BLOCK = 2**16
ENOUGH_BLOCKS = 256
# The most elements of a segment that a warp takes in rows of tiles, some at a time.
IN_ROWS = {"reduction": 2**11, "scan": LEAST_BLOCK - 1}
# Bytes that a block holds of what it scans while it waits, and that each warp of it does.
BLOCK_HOLDS = 2**16
WARP_HOLDS = 2**13
# Blocks of a whole array that wait for each other's totals; groups wait for the group before.
GROUP = {"reduction": 64, "scan": 128}
# The most blocks of a segment whose totals each of them waits for.
MOST_COLUMNS = 128


class Draft(Launches):
    """The launches for a problem of segments of one size, in the making."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(Memory("in", problem.source, problem.length))
        self.problem = problem

    def built(
        self,
        name: str,
        segment_size: int | None,
        result: str,
        most_warps: int | None = None,
        **options: Any,
    ) -> Program:
        """Build a program with products; if the array is long, with blocks of several warps.

        Those are fewer on a unit that has too little shared memory for a block of so many.
        most_warps: of a block, if that is for the caller to say.
        """
        p = self.problem

        def build(few: dict[str, int]) -> Program:
            return p.build(name, segment_size, result, **{**few, **options})

        several = p.length >= MANY and algorithm_of(name).level is Level.WARP
        most = most_warps or (WARPS if several else 1)
        choices = [{"warps": most >> i} for i in range(most.bit_length())]
        _, program, why = fitting(build, choices, p.unit)
        if why is not None and why not in self.why:
            self.why.append(why)
        return program


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table by which launches are chosen.

    holds: whether the row is for a problem. launches: adds them to a draft. why: says so in words.
    """

    holds: Callable[[Problem], bool]
    launches: Callable[[Draft], None]
    why: Callable[[Problem], str]


def drafted(problem: Problem) -> Draft:
    """Return the launches for a problem, and why."""
    draft = Draft(problem)
    _choose(draft)
    return draft


def _choose(draft: Draft) -> None:
    """Add the launches of the first rule that holds, and the reason."""
    problem = draft.problem
    rule = next(rule for rule in RULES if rule.holds(problem))
    draft.why.append(rule.why(problem))
    rule.launches(draft)
    if problem.literal:
        draft.why.append("literal to the paper: partial sums are rounded, products not in chains")
    elif problem.kind == "reduction":
        draft.why.append(f"at most {CHAIN} products accumulate before a rounded addition")


def _one_launch(suffix: str) -> Callable[[Draft], None]:
    """Return what adds one launch of the algorithm of this kind, for example reduction_kn."""

    def add(draft: Draft) -> None:
        p = draft.problem
        name = f"{p.kind}_{suffix}"
        program = draft.built(name, p.segment_size, p.result, **p.scan_options)
        draft.add(program, {"in": "in"}, "out")

    return add


def _takes_rows(p: Problem) -> bool:
    """Return whether warps take rows of several tiles: see `algorithms.rows`.

    Wide elements need more registers and shared memory for that than it saves.
    """
    size = format_of(p.source).itemsize
    if p.literal or size > (4 if p.kind == "scan" else 2):
        return False
    share = _share_of(p)
    if size > 2:
        return share.per_segment is not None and share.pieces > 1
    longest = IN_ROWS[p.kind]
    if p.kind == "scan" and p.segments >= MANY_SEGMENTS and format_of(p.result).itemsize <= 2:
        longest = CHUNK
    return share.per_segment is not None or _short(p) < p.segment_size <= longest


def _short(p: Problem) -> int:
    """Return how long segments are that lie side by side in a tile, at most."""
    few = p.segments < max(p.shape.m, p.shape.n) or format_of(p.source).itemsize > 2
    return (FEW_ROWS if few else SHORT[p.kind]) * p.shape.k


def _share_of(p: Problem) -> Share:
    """Return how a warp's elements lie in rows of tiles: not in more than there are of."""
    elements = min(SCANNED if p.kind == "scan" else SUMMED, p.length)
    return share_of(max(p.shape.m, p.shape.n), p.shape.k, p.segment_size, elements)


def _in_rows(draft: Draft) -> None:
    """Add one launch in which warps take rows of several tiles.

    A long array has enough of them for blocks of several warps, and for several turns of a warp.
    """
    p = draft.problem
    share = _share_of(p)
    elements = share.tiles * _tile(p)
    most = WARPS if p.kind == "scan" else WARPS // 2
    while most > 1 and p.length < most * elements * ENOUGH_BLOCKS:
        most //= 2
    options: dict[str, Any] = {"pieces": share.pieces, "groups": share.groups, **p.scan_options}
    if share.per_segment and p.length >= TURNS * WARPS * elements * ENOUGH_BLOCKS:
        options["tiles"] = TURNS
    program = draft.built(f"{p.kind}_rows", p.segment_size, p.result, most, **options)
    draft.add(program, {"in": "in"}, "out")


def _why_rows(p: Problem) -> str:
    share = _share_of(p)
    tiles = f"{share.tiles} tiles, {share.pieces} to a row" if share.tiles > 1 else "one tile"
    if share.per_segment:
        count = share.tiles * _tile(p) // p.segment_size
        what = f"{count} segments" if count > 1 else "a segment"
        return f"a warp takes {what} of {p.segment_size} elements at once, in {tiles}"
    return f"a warp takes a segment of {p.segment_size} elements, {share.tiles} tiles at a time"


def _as_named(draft: Draft) -> None:
    """Add one launch of the algorithm that the user named."""
    p = draft.problem
    assert p.algorithm is not None
    row = algorithm_of(p.algorithm)
    if row.kind != p.kind:
        raise Unsupported(f"{p.algorithm!r} is a {row.kind}, and this is a {p.kind}")
    if not row.uses_mma and p.source != p.acc:
        raise Unsupported(
            f"{p.algorithm!r} adds values of the accumulator's type, {p.acc}; it combines the "
            f"partial sums of other algorithms, and does not take {p.source} arrays"
        )
    program = draft.built(p.algorithm, p.segment_size, p.result, **p.scan_options)
    draft.add(program, {"in": "in"}, "out")


def _in_one_launch(draft: Draft) -> None:
    """Add one launch in which blocks share segments, or the array if it is one segment."""
    blocks = _blocks(draft.problem)
    if blocks.why is not None:
        draft.why.append(blocks.why)
    draft.add(blocks.program, {"in": "in"}, "out")


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Blocks that share segments: their program, and why they are smaller than usual, if so."""

    program: Program
    elements: int
    why: str | None


@functools.lru_cache(maxsize=256)
def _blocks(p: Problem) -> _Blocks:
    """Return the largest blocks that the unit has shared memory for, up to the usual size."""

    def build(share: tuple[int, int]) -> Program:
        warps, each = share
        options: dict[str, Any] = {"per_warp": each}
        if p.kind == "scan":
            options = {**_batch(p), "batches": each}
        options |= _columns(p, warps * each * _part(p)) | p.scan_options
        return p.build(f"{p.kind}_grid", p.whole_or_size, p.result, warps=warps, **options)

    usual = _usual_elements(p)
    shares = dict.fromkeys(_share(p, usual >> i) for i in range(usual.bit_length()))
    (warps, each), program, why = fitting(build, shares, p.unit)
    return _Blocks(program, warps * each * _part(p), why)


def _usual_elements(p: Problem) -> int:
    """Return how many elements a block takes where blocks share segments: a power of two."""
    wanted = min(MOST_BLOCK, p.segment_size, max(LEAST_BLOCK, p.length // ENOUGH_BLOCKS))
    elements: int = 1 << max(0, wanted - 1).bit_length()
    if p.kind == "scan":
        elements = min(elements, BLOCK_HOLDS // _held_size(p))
    return elements


def _held_size(p: Problem) -> int:
    """Return the bytes of an element that is held; smaller ones count as if they had two."""
    return max(2, format_of(p.source).itemsize)


def _batch(p: Problem) -> dict[str, int]:
    """Return of which tiles a batch is: rows of 16 elements and more, 256 of them and more."""
    pieces = max(2, 16 // p.shape.k)
    rows = max(p.shape.m, p.shape.n)
    return {"pieces": pieces, "groups": max(1, 256 // (rows * pieces * p.shape.k))}


def _part(p: Problem) -> int:
    """Return the elements of which a warp takes several times as many: a tile, or a batch."""
    return _tile(p) * (math.prod(_batch(p).values()) if p.kind == "scan" else 1)


def _share(p: Problem, elements: int) -> tuple[int, int]:
    """Return the warps of a block of so many elements, and how many parts each of them takes."""
    most, each = 16, 2**11
    if p.kind == "scan":
        # With few blocks, more warps to each are sooner done.
        few = p.length < 2 * ENOUGH_BLOCKS * elements
        most, each = WARPS, 2**10 if few else WARP_HOLDS // _held_size(p)
    warps = min(most, max(1, elements // each))
    return warps, max(1, elements // (warps * _part(p)))


def _tile(p: Problem) -> int:
    """Return the elements of a tile, whichever operand holds the data."""
    return p.shape.k * max(p.shape.m, p.shape.n)


def _columns(p: Problem, block: int) -> dict[str, int]:
    """Return how many blocks of the whole array make a group: no more than there are, about."""
    if p.whole_or_size is not None:
        return {}
    blocks = -(-p.length // block)
    return {"columns": min(GROUP[p.kind], 1 << (blocks - 1).bit_length())}


def _shares_blocks(p: Problem) -> bool:
    """Return whether blocks share segments: long ones, and not so long that each waits for many."""
    if p.literal or p.segment_size < LEAST_BLOCK:
        return False
    if p.kind == "reduction" or p.whole_or_size is None:
        return True
    return p.segment_size <= MOST_COLUMNS * _blocks(p).elements or not _is_cut(p)


def _why_shared(p: Problem) -> str:
    blocks = _blocks(p)
    who = "the array is" if p.whole_or_size is None else "segments are"
    return (
        f"{who} shared by blocks of {blocks.program.warps} warps, {blocks.elements} elements to a "
        f"block, which pass sums on in one launch and in a fixed order"
    )


def chunk_of(p: Problem) -> int:
    """Return the elements of a chunk: whole tiles, whichever operand holds the data."""
    return _tile(p) * max(1, CHUNK // _tile(p))


def _is_cut(p: Problem) -> bool:
    """Return whether segments are cut into chunks: whole ones, save in the array's last."""
    whole = p.segment_size % chunk_of(p) == 0 or p.segment_size >= p.length
    return p.segment_size > chunk_of(p) and whole


def _why_cut(p: Problem) -> str:
    text = (
        f"segments of more than {chunk_of(p)} elements are cut into chunks of that size, a warp to "
        f"each; their sums are combined by rounded additions, {PLAIN} to a warp"
    )
    could = not p.literal and LEAST_BLOCK <= p.segment_size <= MOST_COLUMNS * _usual_elements(p)
    if could and _blocks(p).why is not None:
        text += (
            f"; with the shared memory of {p.unit}, blocks of {_blocks(p).elements} elements would "
            f"be too many to a segment"
        )
    return text


def _in_chunks(draft: Draft) -> None:
    """Add the launches for segments cut into chunks: one warp to a chunk."""
    p = draft.problem
    chunks = -(-p.segment_size // chunk_of(p))
    sums = draft.add(draft.built("reduction_tn", chunk_of(p), p.acc), {"in": "in"}, "sums")
    if p.kind == "reduction":
        _plain_total(draft, sums, chunks)
        return
    carries = _plain_scan(draft, sums, chunks)
    program = draft.built("scan_tn", chunk_of(p), p.result, carry=True, **p.scan_options)
    draft.add(program, {"in": "in", "carry": carries}, "out")


def _plain_total(draft: Draft, values: str, count: int) -> None:
    """Add up every `count` values of the accumulator's type, in a tree of fixed shape."""
    p = draft.problem
    size = min(count, _group(draft.arrays[values].size, count))
    if size == count:
        draft.add(p.plain("reduction_plain", count, p.result), {"in": values}, "out")
        return
    sums = draft.add(p.plain("reduction_plain", size, p.acc), {"in": values}, "sums")
    _plain_total(draft, sums, -(-count // size))


def _plain_scan(draft: Draft, values: str, count: int) -> str:
    """Scan every `count` values of the accumulator's type, exclusive; return the result's name."""
    p = draft.problem
    options = {**p.scan_options, "exclusive": True}
    size = min(count, _group(draft.arrays[values].size, count))
    if size == count:
        program = p.plain("scan_plain", count, p.acc, **options)
        return draft.add(program, {"in": values}, "carries")
    sums = draft.add(p.plain("reduction_plain", size, p.acc), {"in": values}, "sums")
    carries = _plain_scan(draft, sums, -(-count // size))
    program = p.plain("scan_plain", size, p.acc, carry=True, **options)
    return draft.add(program, {"in": values, "carry": carries}, "carries")


def _group(size: int, count: int) -> int:
    """Return how many of `size` values one warp combines: groups do not reach across segments."""
    if count <= PLAIN:
        return count
    if count >= size:
        return PLAIN
    group = next(group for group in range(PLAIN, 0, -1) if count % group == 0)
    # A count with no good divisor is combined by one warp.
    return group if group > 1 else count


def _why_whole(p: Problem) -> str:
    text = f"one warp takes a segment of {p.segment_size} elements, tile by tile"
    if p.segment_size > chunk_of(p):
        text += f": chunks of {chunk_of(p)} would reach across segments"
    return text


# The first row that holds decides. A new algorithm is a new row, before those that it outdoes.
RULES: tuple[Rule, ...] = (
    Rule(
        lambda p: p.algorithm is not None,
        _as_named,
        lambda p: f"algorithm={p.algorithm!r} was asked for: one launch",
    ),
    # Segments are rows of tiles, of which a warp takes several at once.
    Rule(_takes_rows, _in_rows, _why_rows),
    # Several short segments share a tile, one to a row.
    Rule(
        lambda p: p.segment_size <= _short(p),
        _one_launch("kn"),
        lambda p: (
            f"segments of up to {_short(p)} elements lie side by side in a tile, "
            f"{p.shape.k} to a row"
        ),
    ),
    # Blocks share a long segment, or the whole array.
    Rule(_shares_blocks, _in_one_launch, _why_shared),
    # Many warps share a long segment, and no chain of sums is long. The sums of chunks are combined
    # by rounded additions, and are the carries of a scan.
    Rule(
        _is_cut,
        _in_chunks,
        _why_cut,
    ),
    Rule(lambda p: True, _one_launch("tn"), _why_whole),
)
