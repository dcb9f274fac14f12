"""Choose the launches for a problem: one table of strategies for each kind of problem.

The first strategy that applies wins, unless the problem names one. Whether a strategy applies
follows from the problem and the `Tuning` alone; only the strategy that is taken builds programs,
once, and says why they are as they are. A new way to compute is a new row of a table, before those
that it outdoes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import Any, Final, Generic, TypeVar

from tcusim.algorithms import Level, algorithm_of, build
from tcusim.algorithms.rows import Share, share_of
from tcusim.arrays.problem import (
    AnyProblem,
    Problem,
    ProductProblem,
    RaggedProblem,
    SegmentProblem,
    Types,
    rounded_up,
)
from tcusim.arrays.tuning import DEFAULT, TUNINGS, ProductTuning, Tuning
from tcusim.errors import InputError, Unsupported, unknown_name
from tcusim.machine import arch_of, format_of
from tcusim.machine.shapes import MmaShape
from tcusim.program.grammar import Program
from tcusim.program.launches import LaunchPlan, PlanBuilder
from tcusim.program.resources import SharedMemory

__all__ = ["STRATEGIES", "Choice", "Draft", "Strategy", "choose", "chunk_of", "tuning_of"]

P = TypeVar("P", bound=AnyProblem)
Options = TypeVar("Options")


@dataclass(frozen=True, slots=True)
class Choice:
    """The launches for a problem, the name of the strategy that made them, and why: some lines."""

    strategy: str
    plan: LaunchPlan
    rationale: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Strategy(Generic[P]):
    """One way to compute problems of a kind.

    suits: the problems for which it is, in words. applies: whether it is for a problem; it builds
    no program. launch: builds the programs, adds their launches to a draft, and says why.
    """

    name: str
    suits: str
    applies: Callable[[P, Tuning], bool]
    launch: Callable[[Draft[P]], None]


class _NoRoom(Exception):
    """Blocks that the architecture has shared memory for are too small for a strategy."""


class Draft(PlanBuilder, Generic[P]):
    """The launches for a problem in the making, and the reasons for them.

    reasons: a line for each choice. notes: what architectures and accumulators made of them.
    """

    def __init__(self, problem: P, tuning: Tuning) -> None:
        super().__init__(*problem.inputs)
        self.problem = problem
        self.tuning = tuning
        self.reasons: list[str] = []
        self.notes: list[str] = []

    def first_that_fits(
        self, build: Callable[[Options], Program], choices: Iterable[Options]
    ) -> tuple[Options, Program]:
        """Return the first choice whose program has blocks that there is room for, else the last.

        Those after the one that is taken are not built. An architecture of whose shared memory
        nothing is known has room for all.
        """
        arch = self.problem.arch
        limit = None if arch is None else arch_of(arch).shared_kb
        note = f"blocks are smaller than usual: {arch} has {limit} KB of shared memory for each"
        for number, choice in enumerate(choices):
            program = build(choice)
            if number == 1 and note not in self.notes:
                self.notes.append(note)
            if limit is None or SharedMemory(program).needed <= 1024 * limit:
                break
        return choice, program

    def program(self, name: str, size: int | None, result: str, **options: Any) -> Program:
        """Build a program for any length, with the problem's types and precision."""
        p, t = self.problem, self.problem.types
        usual: dict[str, Any] = {
            "tile": p.tile,
            "segment_size": size,
            "ab": t.ab,
            "acc": t.acc,
            "source": t.source,
            "result": result,
            "masked": True,
            "combine": "mma" if p.as_printed else "add",
            "accumulation_length": None if p.as_printed else self.tuning.accumulation_length,
        }
        return build(name, **usual | options)

    def launch(
        self, name: str, size: int | None, inputs: Mapping[str, str], to: str, **options: Any
    ) -> str:
        """Add a launch of an algorithm that makes a new array; return the array's name.

        What lies between "in" and "out" is of the accumulator's type.
        """
        types = self.problem.types
        result = types.result if to == "out" else types.acc
        return self.add(self.program(name, size, result, **options), inputs, to)

    def launch_simt(
        self, name: str, size: int, inputs: Mapping[str, str], to: str, **options: Any
    ) -> str:
        """Add a launch of rounded additions alone, on values of the accumulator's type."""
        options["source"] = self.problem.types.acc
        return self.launch(name, size, inputs, to, **options)


def choose(problem: AnyProblem, title: str, tuning: Tuning | None = None) -> Choice:
    """Return the launches for a problem, by default by the numbers for its architecture.

    title: what messages call the plan. A strategy that there is not, or that does not apply, is
    refused.
    """
    tuning = tuning or tuning_of(problem.arch)
    refused = ""
    for strategy in _candidates(problem, tuning):
        draft = Draft(problem, tuning)
        try:
            strategy.launch(draft)
        except _NoRoom as reason:
            refused = str(reason)
            continue
        notes = filter(None, (*draft.notes, refused, *_precision(problem, tuning)))
        return Choice(strategy.name, draft.finish(title), (*draft.reasons, *notes))
    raise InputError(f"strategy={problem.strategy!r} does not apply to {problem}: {refused}")


def tuning_of(arch: str | None) -> Tuning:
    """Return the numbers to choose by for an architecture."""
    return TUNINGS.get(arch or "", DEFAULT)


def _candidates(problem: AnyProblem, tuning: Tuning) -> Iterator[Strategy[Any]]:
    """Yield the strategies that apply, or the one that the problem names."""
    table = STRATEGIES[type(problem)]
    if problem.strategy is None:
        yield from (row for row in table if row.applies(problem, tuning))
        return
    named = {row.name: row for row in table}
    if problem.strategy not in named:
        raise unknown_name("strategy", problem.strategy, named)
    strategy = named[problem.strategy]
    if problem.algorithm is not None:
        raise InputError("give algorithm= or strategy=, not both: an algorithm is one launch")
    if not strategy.applies(problem, tuning):
        raise InputError(
            f"strategy={strategy.name!r} does not apply to {problem}: it is for {strategy.suits}"
        )
    yield strategy


def _precision(problem: AnyProblem, tuning: Tuning) -> Iterator[str]:
    """Yield how sums are kept precise, if there is more to say than that a scan adds."""
    if not isinstance(problem, SegmentProblem):
        return
    if problem.as_printed:
        yield "as the paper prints it: partial sums are rounded, and chains have no limit"
    elif isinstance(problem, RaggedProblem) or problem.kind == "reduction":
        yield f"at most {tuning.accumulation_length} products accumulate before a rounded addition"


# --- Sums and scans of segments of one size ---------------------------------------------------


def _launch_wide(
    draft: Draft[Problem], name: str, size: int, inputs: Mapping[str, str], to: str, **options: Any
) -> str:
    """Add a launch with products; if the array is long, with blocks of several warps.

    Those are fewer on an architecture that has too little shared memory for them. warps: of a
    block, if that is for the caller to say.
    """
    p, tuning = draft.problem, draft.tuning
    result = p.types.result if to == "out" else p.types.acc
    several = p.length >= tuning.many_elements and algorithm_of(name).level is Level.WARP
    most = options.pop("warps", tuning.warps if several else 1)
    _, program = draft.first_that_fits(
        lambda warps: draft.program(name, size, result, warps=warps, **options),
        (most >> i for i in range(most.bit_length())),
    )
    return draft.add(program, inputs, to)


def _tile_size(p: Problem) -> int:
    """Return the elements of a tile, whichever operand holds the data."""
    return p.tile.k * max(p.tile.m, p.tile.n)


def _is_always(problem: AnyProblem, tuning: Tuning) -> bool:
    return True


def _is_named(problem: AnyProblem, tuning: Tuning) -> bool:
    return problem.algorithm is not None


def _add_one(draft: Draft[Problem], name: str, reason: str, **options: Any) -> None:
    """Add one launch of an algorithm, and why."""
    draft.reasons.append(reason)
    options |= draft.problem.scan_options
    _launch_wide(draft, name, draft.problem.segment_size, {"in": "in"}, "out", **options)


def _launch_named(draft: Draft[Problem]) -> None:
    """Add one launch of the algorithm that the user named."""
    p = draft.problem
    assert p.algorithm is not None
    row = algorithm_of(p.algorithm)
    if row.kind != p.kind:
        raise Unsupported(f"{p.algorithm!r} is a {row.kind}, and this is a {p.kind}")
    if not row.uses_mma and p.types.source != p.types.acc:
        raise Unsupported(
            f"{p.algorithm!r} adds values of the accumulator's type, {p.types.acc}; it combines "
            f"the partial sums of other algorithms, and does not take {p.types.source} arrays"
        )
    _add_one(draft, p.algorithm, f"algorithm={p.algorithm!r} was asked for: one launch")


def _has_panels(p: Problem, tuning: Tuning) -> bool:
    """Return whether warps take panels of several tiles: see `tcusim.algorithms.rows`.

    Wide elements need more registers and shared memory for that than it saves.
    """
    sizes = tuning.of(p.kind)
    itemsize = format_of(p.types.source).itemsize
    if p.as_printed or itemsize > sizes.widest_in_panels:
        return False
    share = _panels(p, tuning)
    if itemsize > 2:
        return share.per_segment is not None and share.tiles_per_row > 1
    longest = sizes.longest_in_panels
    many = p.kind == "scan" and p.segments >= tuning.many_segments
    # Memory is slower where each of that many warps writes far from the others.
    if many and format_of(p.types.result).itemsize <= 2:
        longest = tuning.chunk
    return share.per_segment is not None or _short(p, tuning) < p.segment_size <= longest


def _panels(p: Problem, tuning: Tuning) -> Share:
    """Return how a warp's elements lie in panels: not in more than there are of."""
    elements = min(tuning.of(p.kind).panel_elements, p.length)
    return share_of(max(p.tile.m, p.tile.n), p.tile.k, p.segment_size, elements)


def _launch_panels(draft: Draft[Problem]) -> None:
    """Add one launch in which warps take panels.

    A long array has enough of them for blocks of several warps, and for a warp to take some anew
    while others wait for memory.
    """
    p, tuning = draft.problem, draft.tuning
    share = _panels(p, tuning)
    elements = share.tiles * _tile_size(p)
    most = tuning.of(p.kind).panel_warps
    while most > 1 and p.length < most * elements * tuning.enough_blocks:
        most //= 2
    options: dict[str, Any] = {"tiles_per_row": share.tiles_per_row, "groups": share.groups}
    long = tuning.panel_iterations * tuning.warps * elements * tuning.enough_blocks
    if share.per_segment and p.length >= long:
        options["items_per_warp"] = tuning.panel_iterations
    count = elements // p.segment_size
    tiles, what = "one tile", f"{count} segments" if count > 1 else "a segment"
    if share.tiles > 1:
        tiles = f"{share.tiles} tiles, {share.tiles_per_row} to a row"
    if share.per_segment is None:
        text = f"a segment of {p.segment_size} elements, {share.tiles} tiles at a time"
    else:
        text = f"{what} of {p.segment_size} elements at once, in {tiles}"
    _add_one(draft, f"{p.kind}_panel", f"a warp takes {text}", warps=most, **options)


def _short(p: Problem, tuning: Tuning) -> int:
    """Return how long segments are that lie side by side in a tile, at most.

    If they are too few for a tile, or of wide elements, whose parts make chains of products longer,
    and sums less precise, they are read tile by tile from a few rows on.
    """
    few = p.segments < max(p.tile.m, p.tile.n) or format_of(p.types.source).itemsize > 2
    return (tuning.few_rows if few else tuning.of(p.kind).short_rows) * p.tile.k


def _is_short(p: Problem, tuning: Tuning) -> bool:
    return p.segment_size <= _short(p, tuning)


def _launch_short(draft: Draft[Problem]) -> None:
    """Add one launch in which segments share a tile, one to a row."""
    p = draft.problem
    reason = (
        f"segments of up to {_short(p, draft.tuning)} elements lie side by side in a tile, "
        f"{p.tile.k} to a row"
    )
    _add_one(draft, f"{p.kind}_kn", reason)


def _is_shared(p: Problem, tuning: Tuning) -> bool:
    """Return whether blocks share segments: long ones, and not so long that each waits for many."""
    if p.as_printed or p.segment_size < tuning.least_block:
        return False
    return _waits_for_few(p, tuning, next(_Blocks.choices(p, tuning)))


def _waits_for_few(p: Problem, tuning: Tuning, blocks: _Blocks) -> bool:
    """Return whether no block waits for too many others: chunks are better then, if they fit."""
    if p.kind == "reduction" or p.whole_or_size is None or not _is_cut(p, tuning):
        return True
    return p.segment_size <= tuning.most_columns * blocks.elements


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Blocks that share segments: their warps, and how many parts each of these takes.

    A part is a tile; of a scan, a batch of tiles.
    """

    warps: int
    each: int
    part: int

    @property
    def elements(self) -> int:
        """Elements of a block."""
        return self.warps * self.each * self.part

    @staticmethod
    def choices(p: Problem, tuning: Tuning) -> Iterator[_Blocks]:
        """Yield blocks, the usual ones first, each half as large as those before."""
        enough = max(tuning.least_block, p.length // tuning.enough_blocks)
        wanted = min(tuning.most_block, p.segment_size, enough)
        elements: int = 1 << max(0, wanted - 1).bit_length()
        if p.kind == "scan":
            elements = min(elements, tuning.block_bytes // _kept_size(p))
        sizes = (elements >> i for i in range(elements.bit_length()))
        yield from dict.fromkeys(_Blocks.of(p, tuning, size) for size in sizes)

    @staticmethod
    def of(p: Problem, tuning: Tuning, elements: int) -> _Blocks:
        """Return blocks of about that many elements."""
        sizes, part = tuning.of(p.kind), _tile_size(p)
        each = tuning.sum_warp_elements
        if p.kind == "scan":
            part *= math.prod(_batch(p, tuning).values())
            # With few blocks, more warps to each are sooner done.
            few = p.length < 2 * tuning.enough_blocks * elements
            each = tuning.scan_warp_elements if few else tuning.warp_bytes // _kept_size(p)
        warps = min(sizes.block_warps, max(1, elements // each))
        return _Blocks(warps, max(1, elements // (warps * part)), part)


def _kept_size(p: Problem) -> int:
    """Return the bytes of an element that a block keeps; smaller ones count as if they had two."""
    return max(2, format_of(p.types.source).itemsize)


def _batch(p: Problem, tuning: Tuning) -> dict[str, int]:
    """Return the tiles of a batch, which a warp scans at a time."""
    tiles_per_row = max(2, tuning.batch_row // p.tile.k)
    rows = max(p.tile.m, p.tile.n)
    return {
        "tiles_per_row": tiles_per_row,
        "groups": max(1, tuning.batch_elements // (rows * tiles_per_row * p.tile.k)),
    }


def _launch_shared(draft: Draft[Problem]) -> None:
    """Add one launch in which blocks share segments, or the array if it is one segment."""
    p, tuning = draft.problem, draft.tuning

    def build_with(blocks: _Blocks) -> Program:
        options: dict[str, Any] = {"per_warp": blocks.each}
        if p.kind == "scan":
            options = {**_batch(p, tuning), "batches": blocks.each}
        if p.whole_or_size is None:
            # A group has no more blocks than there are, about.
            needed = -(-p.length // blocks.elements)
            most = 1 << (needed - 1).bit_length()
            options["columns"] = min(tuning.of(p.kind).columns, most)
        name, size = f"{p.kind}_single_pass", p.whole_or_size
        options |= {"warps": blocks.warps, **p.scan_options}
        return draft.program(name, size, p.types.result, **options)

    blocks, program = draft.first_that_fits(build_with, _Blocks.choices(p, tuning))
    who = "the array is" if p.whole_or_size is None else "segments are"
    if not _waits_for_few(p, tuning, blocks):
        raise _NoRoom(
            f"with the shared memory of {p.arch}, blocks of {blocks.elements} elements would be "
            f"too many to a segment"
        )
    draft.reasons.append(
        f"{who} shared by blocks of {program.warps} warps, {blocks.elements} elements to a block, "
        f"which pass sums on in one launch and in a fixed order"
    )
    draft.add(program, {"in": "in"}, "out")


def chunk_of(p: Problem, tuning: Tuning) -> int:
    """Return the elements of a chunk: whole tiles, whichever operand holds the data."""
    return _tile_size(p) * max(1, tuning.chunk // _tile_size(p))


def _is_cut(p: Problem, tuning: Tuning) -> bool:
    """Return whether segments are cut into chunks: whole ones, save in the array's last."""
    chunk = chunk_of(p, tuning)
    whole = p.segment_size % chunk == 0 or p.segment_size >= p.length
    return p.segment_size > chunk and whole


def _launch_chunks(draft: Draft[Problem]) -> None:
    """Add the launches for segments cut into chunks: one warp to a chunk.

    So many warps share a long segment, and no chain of sums is long. The sums of chunks are
    combined by rounded additions, and are the carries of a scan.
    """
    p, chunk = draft.problem, chunk_of(draft.problem, draft.tuning)
    draft.reasons.append(
        f"segments of more than {chunk} elements are cut into chunks of that size, a warp to each; "
        f"their sums are combined by rounded additions, {draft.tuning.simt_values} to a warp"
    )
    chunks = -(-p.segment_size // chunk)
    sums = _launch_wide(draft, "reduction_tn", chunk, {"in": "in"}, "sums")
    if p.kind == "reduction":
        _add_total(draft, sums, chunks)
        return
    inputs = {"in": "in", "carry": _add_carries(draft, sums, chunks)}
    _launch_wide(draft, "scan_tn", chunk, inputs, "out", carry=True, **p.scan_options)


def _add_total(draft: Draft[Problem], values: str, count: int) -> None:
    """Add up every `count` values of the accumulator's type, in a tree of fixed shape."""
    size = _values_of_a_warp(draft, values, count)
    to = "out" if size == count else "sums"
    sums = draft.launch_simt("reduction_simt", size, {"in": values}, to)
    if size < count:
        _add_total(draft, sums, -(-count // size))


def _add_carries(draft: Draft[Problem], values: str, count: int) -> str:
    """Scan every `count` values of the accumulator's type, exclusive; return the result's name."""
    options, inputs = {**draft.problem.scan_options, "exclusive": True}, {"in": values}
    size = _values_of_a_warp(draft, values, count)
    if size < count:
        sums = draft.launch_simt("reduction_simt", size, inputs, "sums")
        inputs = {"in": values, "carry": _add_carries(draft, sums, -(-count // size))}
        options["carry"] = True
    return draft.launch_simt("scan_simt", size, inputs, "carries", **options)


def _values_of_a_warp(draft: Draft[Problem], values: str, count: int) -> int:
    """Return how many values one warp combines: not of two segments of `count` of them."""
    size, most = draft.memory[values].size, draft.tuning.simt_values
    if count <= most:
        return count
    if count >= size:
        return min(most, count)
    group = next(group for group in range(most, 0, -1) if count % group == 0)
    # A count with no good divisor is combined by one warp.
    return group if group > 1 else count


def _launch_whole(draft: Draft[Problem]) -> None:
    """Add one launch in which a warp takes a segment, tile by tile."""
    p, chunk = draft.problem, chunk_of(draft.problem, draft.tuning)
    reason = f"one warp takes a segment of {p.segment_size} elements, tile by tile"
    if p.segment_size > chunk:
        reason += f": chunks of {chunk} would reach across segments"
    _add_one(draft, f"{p.kind}_tn", reason)


# --- Sums and scans of segments by offsets ----------------------------------------------------
#
# Chunks are about as long as the average segment. Much longer ones would mostly be empty rows of
# tiles, as each segment has chunks of its own; much shorter ones would be many more than the
# segments. So a launch's work is at most about twice its data's, however the elements are spread
# over the segments, and the work of a warp is always the same.
#
# How many levels of chunks there are follows from the length alone, not from the offsets: a segment
# of s elements has at most ceil(s / cut) + 1 chunks. So the same launches serve all offsets.


@dataclass(frozen=True, slots=True)
class _Level:
    """Values in segments by offsets: the array's elements, or the results of chunks by number.

    name: of the array. size: values in it. longest: the most that a segment can have. cuts: those
    made before.
    """

    name: str
    size: int
    longest: int
    cuts: tuple[int, ...] = ()

    @staticmethod
    def of(p: RaggedProblem) -> _Level:
        """Return the array's elements."""
        return _Level("in", p.length, max(1, p.most))

    def cut(self, name: str, size: int, cut: int) -> _Level:
        """Return the results `name` of this level's chunks."""
        longest = -(-self.longest // cut) + 1
        return _Level(name, size, min(longest, max(1, size)), (*self.cuts, cut))

    def inputs(self, carries: str = "") -> dict[str, str]:
        """Return the inputs of a launch on the values."""
        inputs = {"in": self.name, "offsets": "offsets"}
        return inputs | {"carry": carries} if carries else inputs


def _cut(p: RaggedProblem, tuning: Tuning) -> int:
    """Return the length of a chunk: not so long that few warps have work."""
    least, most = p.tile.k, tuning.ragged.most_rows * p.tile.k
    average = cut_of(p.length, p.segments, least, most)
    return min(average, cut_of(p.length, tuning.ragged.busy_chunks, least, most))


def cut_of(size: int, segments: int, least: int, most: int) -> int:
    """Return the average length of a segment, rounded up to least * 2**i <= most."""
    average = -(-size // max(1, segments))
    cut = least
    while cut < average and 2 * cut <= most:
        cut *= 2
    return cut


def _is_row(p: RaggedProblem, tuning: Tuning) -> bool:
    return _Level.of(p).longest <= 2 * _cut(p, tuning)


def _launch_rows(draft: Draft[RaggedProblem]) -> None:
    """Add one launch in which each segment is a row of a tile."""
    p = draft.problem
    draft.reasons.append(f"no segment has more than {p.most} elements: each is a row of a tile")
    level = _Level.of(p)
    options = {"whole": True, **p.scan_options}
    draft.launch(f"{p.kind}_ragged", _line(p, level), level.inputs(), "out", **options)


def _launch_ragged_chunks(draft: Draft[RaggedProblem]) -> None:
    """Add the launches for segments cut into chunks, each a row of a tile."""
    p, cut = draft.problem, _cut(draft.problem, draft.tuning)
    known = f"a segment may have {'all ' if p.longest is None else ''}{p.longest or p.length}"
    draft.reasons += [
        f"segments by offsets are cut into chunks of at most {cut} elements, a row of a tile each, "
        f"so that all warps have equal work",
        f"{known} elements: the chunks' sums are combined by rounded additions, level by level",
    ]
    first = _Level.of(p)
    name = draft.launch("reduction_ragged", cut, first.inputs(), "sums")
    sums = first.cut(name, draft.memory[name].size, cut)
    if p.kind == "scan":
        inputs = first.inputs(_add_ragged_carries(draft, sums))
        draft.launch("scan_ragged", cut, inputs, "out", carry=True, **p.scan_options)
        return
    while sums.longest > _longest_row(draft, sums):
        sums = _add_simt_sums(draft, sums)
    options = {"levels": sums.cuts, "whole": True}
    draft.launch_simt("reduction_ragged_simt", _line(p, sums), sums.inputs(), "out", **options)


def _add_ragged_carries(draft: Draft[RaggedProblem], level: _Level) -> str:
    """Scan what precedes each value of a level in its segment; return the results' name."""
    options = {"levels": level.cuts, "exclusive": True, "reverse": draft.problem.order.reverse}
    if level.longest <= _longest_row(draft, level):
        size, inputs = _line(draft.problem, level), level.inputs()
        options["whole"] = True
    else:
        carries = _add_ragged_carries(draft, _add_simt_sums(draft, level))
        size, inputs = _simt_cut(draft, level), level.inputs(carries)
        options["carry"] = True
    return draft.launch_simt("scan_ragged_simt", size, inputs, "carries", **options)


def _add_simt_sums(draft: Draft[RaggedProblem], level: _Level) -> _Level:
    """Add up chunks of a level in shared memory; return the level of their sums."""
    cut, inputs = _simt_cut(draft, level), level.inputs()
    name = draft.launch_simt("reduction_ragged_simt", cut, inputs, "sums", levels=level.cuts)
    return level.cut(name, draft.memory[name].size, cut)


def _line(p: RaggedProblem, level: _Level) -> int:
    """Return the longest segment, rounded up so that few programs serve all lengths."""
    return rounded_up(level.longest, 1 if level.cuts else p.tile.k)


def _simt_cut(draft: Draft[RaggedProblem], level: _Level) -> int:
    return cut_of(level.size, draft.problem.segments, *draft.tuning.ragged.simt_chunk)


def _longest_row(draft: Draft[RaggedProblem], level: _Level) -> int:
    """Return the longest segment for which one row of shared memory is worth its room."""
    return min(2 * _simt_cut(draft, level), draft.tuning.ragged.simt_chunk[1])


# --- Products ---------------------------------------------------------------------------------


def _launch_named_product(draft: Draft[ProductProblem]) -> None:
    p = draft.problem
    assert p.algorithm is not None
    row = algorithm_of(p.algorithm)
    if row.kind != "product":
        raise Unsupported(f"{p.algorithm!r} is a {row.kind}, and this is a product")
    if row.name.startswith("gemv") and (p.cols or 1) != 1:
        raise Unsupported(
            f"{p.algorithm!r} multiplies a matrix by one vector, and b has {p.cols} columns; use "
            "'gemm'"
        )
    _add_product(draft, row.name)


def _is_by_a_vector(p: ProductProblem, tuning: Tuning) -> bool:
    return (p.cols or 1) == 1


def _add_product(draft: Draft[ProductProblem], name: str) -> None:
    """Add one launch of an algorithm, with blocks for which there is room, and why."""
    factor = "vector" if name.startswith("gemv") else "matrix"
    asked = f"algorithm={draft.problem.algorithm!r} was asked for"
    draft.reasons.append(
        asked if draft.problem.algorithm else f"{name} suits a {factor} on the right"
    )
    p, tuning = draft.problem, draft.tuning.product
    usual: dict[str, Any] = {} if name.startswith("gemv") else {"cols": p.cols or 1}
    usual |= {"inner": p.inner, "add_c": p.add_c}
    usual["accumulation_length"] = _chain(p.types, draft.tuning)
    options_of = {"gemm": _blockings, "gemv_reduction": _readings}.get(name)
    choices = [{}] if options_of is None else options_of(p, tuning)
    _, program = draft.first_that_fits(
        lambda options: _product_program(name, p.tile, p.types, (*usual.items(), *options.items())),
        choices,
    )
    left, right = program.inputs[0].name, program.inputs[1].name
    draft.add(program, {left: "in", right: p.second} | ({"c": "c"} if p.add_c else {}), "out")


_launch_gemv = partial(_add_product, name="gemv_reduction")
_launch_gemm = partial(_add_product, name="gemm")


def _chain(types: Types, tuning: Tuning) -> int | None:
    """Return how many tiles may accumulate: s32 and f64 do not drift, and f16 is the paper's."""
    if types.acc != "f32":
        return None
    return tuning.accumulation_length if types.result == "f32" else tuning.product.narrow_chain


def _blockings(p: ProductProblem, tuning: ProductTuning) -> list[dict[str, Any]]:
    """Return options of "gemm": how large a block's tile is, and how many warps share it.

    The first are those that suit; the others are of smaller blocks.
    """
    rows, cols, sizes = p.rows, p.cols or 1, tuning.blocks
    split = p.types.source != p.types.ab
    if rows * cols < tuning.many_results or min(rows, cols) < tuning.many_lines or split:
        sizes = sizes[1:] if min(rows, cols) > tuning.few_lines else sizes[2:]
    itemsize = format_of(p.types.ab).itemsize
    # Not more tiles than the result has; few programs serve all small results.
    down, across = rounded_up(rows, p.tile.m) // p.tile.m, rounded_up(cols, p.tile.n) // p.tile.n
    return [
        {
            "warps": warps,
            "warps_down": warps_down,
            "down": min(max(1, height // p.tile.m), tuning.most_tiles, down),
            "across": min(max(1, width // p.tile.n), tuning.most_tiles, across),
            "depth": min(max(1, tuning.row_bytes // (p.tile.k * itemsize)), tuning.most_tiles),
        }
        for warps, warps_down, height, width in sizes
    ]


def _readings(p: ProductProblem, tuning: ProductTuning) -> list[dict[str, Any]]:
    """Return options of "gemv_reduction": enough bytes on their way, in little shared memory.

    Memory is kept busy by some megabytes at a time. Of many rows, each warp has its own; few rows
    are shared by the warps of a block. The first options are those that suit; then come fewer
    warps.
    """
    itemsize = format_of(p.types.source).itemsize
    if p.rows >= tuning.many_rows:
        width = max(1, tuning.own_row_bytes // (p.tile.k * itemsize))
        options = {"down": tuning.own_down, "width": width, "chunk": tuning.own_chunk}
    else:
        width = max(1, tuning.shared_row_bytes // (p.tile.k * itemsize))
        if p.inner < tuning.vector_warps[0] * width * p.tile.k:
            return [{"width": width}]
        options = {"width": width, "share_rows": True}
    return [{"warps": warps, **options} for warps in tuning.vector_warps]


@lru_cache(maxsize=64)
def _product_program(
    name: str, tile: MmaShape, types: Types, options: tuple[tuple[str, Any], ...]
) -> Program:
    """Build a program, or find it: one program serves matrices of all numbers of rows."""
    return build(name, tile=tile, **asdict(types), **dict(options))


# --- The tables -------------------------------------------------------------------------------

STRATEGIES: Final[Mapping[type[AnyProblem], tuple[Strategy[Any], ...]]] = {
    Problem: (
        Strategy("named", "a named algorithm", _is_named, _launch_named),
        Strategy("panels", "segments that fill panels", _has_panels, _launch_panels),
        Strategy("row_per_segment", "segments of a few rows of a tile", _is_short, _launch_short),
        Strategy(
            "single_pass",
            "segments for several blocks, though not for more than wait for each other",
            _is_shared,
            _launch_shared,
        ),
        Strategy("chunks", "segments of several whole chunks", _is_cut, _launch_chunks),
        Strategy("warp_per_segment", "all segments", _is_always, _launch_whole),
    ),
    RaggedProblem: (
        Strategy(
            "row_per_segment",
            "segments of which none is known to be much longer than the average",
            _is_row,
            _launch_rows,
        ),
        Strategy("chunks", "all segments by offsets", _is_always, _launch_ragged_chunks),
    ),
    ProductProblem: (
        Strategy("named", "a named algorithm", _is_named, _launch_named_product),
        Strategy("gemv", "a vector on the right", _is_by_a_vector, _launch_gemv),
        Strategy("gemm", "all products", _is_always, _launch_gemm),
    ),
}
