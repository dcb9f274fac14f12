"""Choose the launches for a problem: one table of strategies for each kind of problem.

The first strategy that applies wins, unless the problem names one. Whether a strategy applies
depends only on the problem and the `Tuning`. Only the chosen strategy builds programs, once, and
gives the reasons for them. Algorithms state the tiles that they take: if one refuses a tile, the
next strategy that applies is chosen, and the plan gives the reason. A new strategy is a new row of
a table, before those that it beats. For sums and scans it must have the bits of the others: they
depend only on the segment (docs/bits.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Final, Generic, TypeVar

from tcusim.algorithms import Level, algorithm_of, build
from tcusim.algorithms.builder import Options, parts_of
from tcusim.algorithms.grid import BLOCK_CHUNKS, fills_chunks
from tcusim.algorithms.order import FORWARD
from tcusim.algorithms.parts import find_rounds, join_parts
from tcusim.algorithms.product import NARROW_CHAIN
from tcusim.algorithms.rows import (
    ACCUMULATION_LENGTH,
    CHUNK_PANELS,
    GROUP_CHUNKS,
    PANEL_ROWS,
    Chunks,
    fits_fused_steps,
)
from tcusim.arrays.problem import (
    MOST_FLOAT16,
    AnyProblem,
    Problem,
    ProductProblem,
    Types,
    rounded_up,
)
from tcusim.arrays.sizes import (
    Grid,
    block_sizes,
    data_rows,
    has_pairs,
    panel_options,
    product_blocks,
    slot_of,
    vector_readings,
)
from tcusim.arrays.tuned import tuned
from tcusim.arrays.tuning import Tuning, tuning_of
from tcusim.errors import Given, InputError, Unsupported, VerifyError, unknown_name
from tcusim.machine import arch_of, rule_for
from tcusim.machine.multiprocessors import MULTIPROCESSORS
from tcusim.program.grammar import Program
from tcusim.program.launches import LaunchPlan, PlanBuilder
from tcusim.program.resources import SharedMemory

P = TypeVar("P", bound=AnyProblem)
_MOST_SHARED_KB: Final = max(row.block_bytes for row in MULTIPROCESSORS.values()) // 1024
Choices = TypeVar("Choices")


def built(name: str, **options: Any) -> Program:
    """Build a program, or find it: one program serves all lengths that ask for the same options."""
    return _built(algorithm_of(name).function, name, tuple(sorted(options.items())))


@lru_cache(maxsize=512)
def _built(
    function: Callable[..., Any], name: str, options: tuple[tuple[str, Any], ...]
) -> Program:
    # The function tells an algorithm from another of the same name that was registered before.
    return build(name, **dict(options))


@lru_cache(maxsize=512)
def _shared_bytes(program: Program, lanes: bool) -> int:
    """Return the shared memory that a block of a program needs, in bytes; see `SharedMemory`."""
    return SharedMemory(program, lanes=lanes).needed


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


class Draft(PlanBuilder, Generic[P]):
    """The launches for a problem in the making, and the reasons for them.

    reasons: a line for each choice. notes: the effects of architectures and accumulators.
    """

    def __init__(self, problem: P, tuning: Tuning) -> None:
        super().__init__(*problem.inputs)
        self.problem = problem
        self.tuning = tuning
        self.reasons: list[str] = []
        self.notes: list[str] = []

    def first_that_fits(
        self, build: Callable[[Choices], Program], choices: Iterable[Choices]
    ) -> tuple[Choices, Program]:
        """Return the first choice whose program has blocks that there is room for, else the last.

        Those after the one that is taken are not built. Where nothing is known of an architecture's
        shared memory, it is that of the GPU that has most, whose lanes follow its rule.
        """
        limit, whose = self.shared_kb, f"{self.problem.arch} has"
        if limit is None and self.problem.arch is not None:
            limit, whose = _MOST_SHARED_KB, "no GPU has more than"
        note = f"blocks are smaller than usual: {whose} {limit} KB of shared memory for each"
        found: tuple[Choices, Program] | None = None
        for choice in choices:
            if found is not None and note not in self.notes:
                self.notes.append(note)
            found = choice, build(choice)
            if limit is None or self.needed(found[1]) <= 1024 * limit:
                break
        assert found is not None
        return found

    @property
    def shared_kb(self) -> int | None:
        """The shared memory that a block can have, if it is known."""
        arch = self.problem.arch
        return None if arch is None else arch_of(arch).shared_kb

    def needed(self, program: Program) -> int:
        """Return the shared memory that a block needs on a GPU, in bytes.

        Where the architecture is no GPU's, or has no instruction for such tiles, lanes multiply.
        """
        arch, row = self.problem.arch, program.shape.operands_for(program.ab, program.acc)
        own = arch is None or (row and any(row.min_sm <= sm for sm in arch_of(arch).sm))
        return _shared_bytes(program, program.uses_mma and not own)

    def require_space(self, plan: LaunchPlan) -> None:
        """Raise an error if a block of a launch needs more shared memory than there is."""
        limit = self.shared_kb
        for launch in plan.launches:
            program, needed = launch.program, self.needed(launch.program)
            if limit is not None and needed > 1024 * limit:
                raise Unsupported(
                    f"{program.name} with {program.shape.name} tiles needs {needed:,} bytes of "
                    f"shared memory for a block, and {self.problem.arch} has {1024 * limit:,}; "
                    f"choose a smaller tile"
                )

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
            "part": t.part,
            "masked": True,
            "combine": "mma" if p.as_printed else "add",
            "accumulation_length": None if p.as_printed else ACCUMULATION_LENGTH,
        }
        return built(name, **usual | options)


def choose(problem: AnyProblem, title: str, tuning: Tuning | None = None) -> Choice:
    """Return the launches for a problem, by default by the numbers for its architecture.

    Those that `tcusim tune` measured for such problems take their place.

    title: the plan's name in messages. A strategy that is unknown or does not apply is refused. If
    no strategy builds programs for the tile, raises the error of the first one.
    """
    tuning = tuning or tuned(tuning_of(problem.arch), problem)
    if isinstance(problem, Problem) and _is_by_parts(problem):
        return _by_parts(problem, title, tuning)
    refused: dict[str, Unsupported | VerifyError] = {}
    for strategy in _strategies_for(problem, tuning):
        draft = Draft(problem, tuning)
        try:
            strategy.launch(draft)
            plan = draft.finish(title)
            draft.require_space(plan)
        except (Unsupported, VerifyError) as error:
            refused[strategy.name] = error
            continue
        why = [f"not {name!r}, which refuses this tile: {each}" for name, each in refused.items()]
        rationale = (*why, *draft.reasons, *draft.notes, *_precision(problem))
        return Choice(strategy.name, plan, rationale)
    raise next(iter(refused.values()))


def _is_by_parts(p: Problem) -> bool:
    """Return whether float16 is summed exactly, and one float64 does not hold all sums."""
    t = p.types
    return (t.source, t.acc, t.part) == ("f16", "f64", None) and p.most > MOST_FLOAT16


def _by_parts(problem: Problem, title: str, tuning: Tuning) -> Choice:
    """Return the launches that sum whole numbers and fractions separately, and round the total.

    Segments of one size are split into chunks with exact float64 sums if possible, and the chunk
    sums have the parts: the elements are read once for all sums, and once more for scans.
    """
    made = PlanBuilder(*problem.inputs)
    reason = f"sums of more than {MOST_FLOAT16} elements: of whole numbers, of fractions, of both"
    given = _given(problem)
    cut = _exact_cut(problem)
    if cut is None:
        sums, choice = _add_parts(made, problem, title, tuning, given)
    else:
        types = replace(problem.types, result="f64")
        of_chunks = replace(problem, kind="reduction", order=FORWARD, segment_size=cut, types=types)
        name, _ = _add_plan(made, of_chunks, title, tuning, given, "sums")
        of_values = replace(
            problem,
            length=made.memory[name].size,
            segment_size=-(-problem.segment_size // cut),
            types=replace(types, source="f64"),
            order=replace(problem.order, exclusive=True),
        )
        if problem.kind == "reduction":
            of_values = replace(of_values, order=FORWARD)
        sums, choice = _add_parts(made, of_values, title, tuning, {"in": name})
        reason = f"chunks of {cut} elements are summed, then {reason}"
    if problem.kind == "reduction" or cut is None:
        made.add(join_parts(problem.tile, problem.types.result), sums, "out")
    else:
        _add_exact_scan(made, replace(problem, segment_size=cut), tuning, sums)
    return Choice(choice.strategy, made.finish(title), (reason, *choice.rationale))


def _add_exact_scan(
    made: PlanBuilder, chunks: Problem, tuning: Tuning, sums: Mapping[str, str]
) -> None:
    """Add the scan of chunks behind these sums, of whole numbers and of fractions.

    Prefixes beyond float16 are infinite, and float64 represents the others exactly. A carry that it
    does not represent is larger than any chunk can compensate: one number is enough.
    """
    result, given = chunks.types.result, {"in": "in", **sums}
    precedes = "behind_parts"
    if result == "f16":
        precedes, carry = "carry", made.add(join_parts(chunks.tile, "f64"), sums, "carry")
        given = {"in": "in", "carry": carry}
    options, _ = panel_options(chunks, tuning)
    options |= {precedes: True, **chunks.scan_options}
    program = _program_of_length(
        Draft(chunks, tuning), "scan_panel", chunks.segment_size, result, **options
    )
    made.add(program, given, "out")


def _exact_cut(p: Problem) -> int | None:
    """Return the elements of chunks that float64 sums exactly; None if segments have no such cut.

    A scan's chunk is a panel of a warp, of several rows. The whole array may be cut anywhere.
    """
    if p.by_offsets is not None or p.algorithm is not None or p.strategy is not None:
        return None
    grid = Grid.of(p.tile)
    most, least = (MOST_FLOAT16, 2 * grid.row) if p.kind == "reduction" else (grid.panel, grid.row)
    if p.whole_or_size is None:
        return most
    return next((cut for cut in range(most, least, -1) if p.segment_size % cut == 0), None)


def _add_parts(
    made: PlanBuilder,
    problem: Problem,
    title: str,
    tuning: Tuning,
    given: Mapping[str, str],
) -> tuple[dict[str, str], Choice]:
    """Add the launches for the whole numbers and for the fractions; return the arrays' names."""
    sums = {}
    for part in ("whole", "fraction"):
        types = replace(problem.types, result="f64", part=part)
        sums[part], choice = _add_plan(
            made, replace(problem, types=types), title, tuning, given, part
        )
    return sums, choice


def _add_plan(
    made: PlanBuilder,
    problem: Problem,
    title: str,
    tuning: Tuning,
    given: Mapping[str, str],
    to: str,
) -> tuple[str, Choice]:
    """Add the launches for a problem on the arrays given; return their result's name.

    given: the arrays' names by those of the problem's inputs. to: the name of the result.
    """
    choice, names = choose(problem, title, tuning), dict(given)
    for launch in choice.plan.launches:
        inputs = {buffer: names[name] for buffer, name in launch.inputs.items()}
        wanted = {b: to if name == "out" else name for b, name in launch.outputs.items()}
        found = made.add_several(launch.program, inputs, wanted)
        names |= {name: found[b] for b, name in launch.outputs.items()}
    return names["out"], choice


def _strategies_for(problem: AnyProblem, tuning: Tuning) -> Sequence[Strategy[Any]]:
    """Return the strategies that apply, in order, or the one that the problem names."""
    kind = "products"
    if isinstance(problem, Problem):
        kind = "segments of one size" if problem.by_offsets is None else "segments by offsets"
    table = STRATEGIES[kind]
    if problem.strategy is None:
        found = [row for row in table if row.applies(problem, tuning)]
        if not found:
            raise InputError(
                f"no launch scans segments as long as those of {problem.sizes}; give offsets"
            )
        # An algorithm that was named is the one that is wanted.
        return found[:1] if problem.algorithm is not None else found
    named = {row.name: row for row in table}
    if problem.strategy not in named:
        raise unknown_name("strategy", problem.strategy, named)
    strategy = named[problem.strategy]
    if problem.algorithm is not None:
        raise InputError(
            *("give ", Given("algorithm"), " or ", Given("strategy")),
            ", not both: an algorithm is one launch",
        )
    if not strategy.applies(problem, tuning):
        raise InputError(
            Given("strategy", strategy.name),
            f" does not apply to {problem.sizes}: it is for {strategy.suits}",
        )
    return [strategy]


def _precision(problem: AnyProblem) -> Iterator[str]:
    """Yield the measure for precise sums of a named algorithm, unless it is a scan that adds."""
    if not isinstance(problem, Problem) or problem.algorithm is None:
        return
    if problem.as_printed:
        yield "as the paper prints it: partial sums are rounded, and chains have no limit"
    elif problem.kind == "reduction" and not problem.types.adds:
        yield f"at most {ACCUMULATION_LENGTH} products accumulate before a rounded addition"


# --- Sums and scans of segments of one size ---------------------------------------------------


def _program_of_length(
    draft: Draft[Problem], name: str, size: int | None, result: str, **options: Any
) -> Program:
    """Build a program for the array's length: if that is whole blocks, without bounds.

    Such a program takes fewer registers. Short arrays are not worth a kernel of their own.
    """
    length, tuning = draft.problem.length, draft.tuning
    if length >= tuning.many_elements and length % tuning.whole_blocks == 0:
        program = draft.program(name, size, result, masked=False, **options)
        if length % program.blocks.per == 0:
            return program
    return draft.program(name, size, result, **options)


def _is_always(problem: AnyProblem, tuning: Tuning) -> bool:
    return True


def _is_named(problem: AnyProblem, tuning: Tuning) -> bool:
    return problem.algorithm is not None


def _add_one(draft: Draft[Problem], name: str, reason: str, **options: Any) -> None:
    """Add one launch of an algorithm, and why; if the array is long, with blocks of several warps.

    Those are fewer on an architecture that has too little shared memory for them. warps: of a
    block, if that is for the caller to say.
    """
    draft.reasons.append(reason)
    p, tuning = draft.problem, draft.tuning
    several = p.length >= tuning.many_elements and algorithm_of(name).level is Level.WARP
    most = options.pop("warps", tuning.warps if several else 1)
    build_one = partial(_program_of_length, draft, name, p.segment_size, p.types.result)
    _add_fitting(draft, partial(build_one, **options, **p.scan_options), most, _given(p), "out")


def _add_fitting(
    draft: Draft[Any],
    build_with: Callable[..., Program],
    most: int,
    inputs: Mapping[str, str],
    to: str,
) -> str:
    """Add a launch with at most so many warps to a block, a power of 2; return the array's name."""
    choices = (most >> i for i in range(most.bit_length()))
    _, program = draft.first_that_fits(lambda warps: build_with(warps=warps), choices)
    return draft.add(program, inputs, to)


def _given(p: Problem) -> dict[str, str]:
    """Return the inputs of a launch that takes the inputs of the problem's calls."""
    return {memory.name: memory.name for memory in p.inputs}


def _launch_named(draft: Draft[Problem]) -> None:
    """Add one launch of the algorithm that the user named."""
    p = draft.problem
    assert p.algorithm is not None
    row = algorithm_of(p.algorithm)
    if row.kind != p.kind:
        raise Unsupported(f"{p.algorithm!r} is a {row.kind}, and this is a {p.kind}")
    if p.as_printed and "mma" not in row.combines:
        raise Unsupported(
            *(f"{p.algorithm!r} adds partial sums, and ", Given("acc", "f16"), " asks for the "),
            *("paper's, which are operands of further products. Leave ", Given("acc"), " or "),
            *(Given("algorithm"), " out"),
        )
    try:
        _add_one(draft, p.algorithm, f"{Given('algorithm', p.algorithm)} was asked for: one launch")
    except Unsupported as error:
        if not p.as_printed or Given("combine", "add") not in error.pieces:
            raise
        instead: tuple[Any, ...] = ("Take ", Given("algorithm", row.name), ", which adds them, or ")
        raise Unsupported(
            f"{p.algorithm!r} is run as the paper prints it, and its partial sums cannot be "
            f"operands of {p.types.ab} where the array is of {p.types.dtype}. ",
            *(instead if "add" in row.combines else ()),
            *("leave " if "add" in row.combines else "Leave ", Given("algorithm"), " out"),
        ) from error


def _short_name(p: Problem) -> str:
    return f"{p.kind}_short"


def _is_short(p: Problem, tuning: Tuning) -> bool:
    """Return whether segments share rows of tiles, and have the bits of rows of their own."""
    t, k, rows = p.types, p.tile.k, data_rows(p.tile)
    longest = algorithm_of(_short_name(p)).longest(rows, k) or p.segment_size
    if p.segment_size > min(tuning.of(p.kind).longest_short, longest) or t.part is not None:
        return False
    if p.carry:
        return False
    if parts_of(t.source, t.ab) > 1 or t.adds:
        return False
    slot = slot_of(p)
    if p.segment_size < slot == k or not has_pairs(p):
        return False
    if p.arch is None:
        return True
    rule = rule_for(p.arch, t.ab, t.acc, p.tile.family(t.ab, t.acc))
    return fits_fused_steps(rule.how, slot)


def _launch_short(draft: Draft[Problem]) -> None:
    """Add one launch in which segments of a few elements share rows of tiles."""
    p, sizes = draft.problem, draft.tuning.of(draft.problem.kind)
    rows, k = data_rows(p.tile), p.tile.k
    slot = slot_of(p)
    slots, turns = k // slot, sizes.short_turns[slot > p.segment_size]
    # A sum's tiles fill a tile of results together.
    side_by_side = 1 if p.kind == "scan" else max(1, min(p.tile.m, p.tile.n) // slots)
    elements = side_by_side * rows * slots * p.segment_size
    groups = max(1, min(sizes.short_tiles // side_by_side, -(-p.length // elements)))
    most = sizes.short_warps
    while most > 1 and p.length < most * groups * elements * draft.tuning.enough_blocks:
        most //= 2
    options: dict[str, Any] = {"groups": groups, "warps": most}
    warps = draft.tuning.warps * draft.tuning.enough_blocks
    if p.length >= turns * warps * groups * elements:
        options["items_per_warp"] = turns
    text = f"segments of {p.segment_size} elements share rows of {k}, {slots} each"
    _add_one(draft, _short_name(p), text, **options)


def _is_in_panels(p: Problem, tuning: Tuning) -> bool:
    """Return whether a warp takes whole segments: short ones, or longer ones if they are many.

    The order of additions is that of blocks that share a segment.
    """
    grid, sizes = Grid.of(p.tile), tuning.of(p.kind)
    if p.segment_size > max(BLOCK_CHUNKS) * grid.chunk:
        return False
    if not _is_shared(p, tuning):
        return True
    few = sizes.panel_elements if p.kind == "reduction" else grid.panel
    many = p.segments >= tuning.many_segments and p.segment_size <= sizes.longest_in_panels
    return p.segment_size <= few or many


def _launch_panels(draft: Draft[Problem]) -> None:
    """Add one launch in which warps take whole segments."""
    options, text = panel_options(draft.problem, draft.tuning)
    _add_one(draft, f"{draft.problem.kind}_panel", text, **options)


def _is_shared(p: Problem, tuning: Tuning) -> bool:
    """Return whether blocks may share segments: in a scan, if their warps' panels fill chunks."""
    return p.kind == "reduction" or fills_chunks(data_rows(p.tile))


def _launch_shared(draft: Draft[Problem]) -> None:
    """Add one launch in which blocks share segments, or the array if it is one segment."""
    p, tuning = draft.problem, draft.tuning

    def build_with(options: dict[str, Any]) -> Program:
        name, size = f"{p.kind}_single_pass", p.whole_or_size
        return _program_of_length(draft, name, size, p.types.result, **options, **p.scan_options)

    _, program = draft.first_that_fits(build_with, block_sizes(p, tuning))
    who = "the array is" if p.whole_or_size is None else "segments are"
    draft.reasons.append(
        f"{who} shared by blocks of {program.warps} warps, which pass sums on in one launch and in "
        f"a fixed order"
    )
    draft.add(program, _given(p), "out")


# --- Sums and scans of segments by offsets ----------------------------------------------------
#
# Segments are cut along the same grid as those of one size: into rows, whose totals lie in an array
# by number, and are segments again. So a launch's work is at most about twice its data's, however
# the elements are spread over the segments, and the work of a warp is always the same.
#
# How many levels of chunks there are follows from the length alone, not from the offsets: a segment
# of s elements has ceil(s / cut) chunks, and one number more at most. So the same launches serve
# all offsets, and a level that has one value a segment adds nothing to it.


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
    def of(p: Problem) -> _Level:
        """Return the array's elements."""
        return _Level("in", p.length, max(1, p.most))

    def cut(self, name: str, size: int, cut: int) -> _Level:
        """Return the results `name` of this level's chunks."""
        return _Level(name, size, -(-self.longest // cut), (*self.cuts, cut))

    def inputs(self, carries: str = "") -> dict[str, str]:
        """Return the inputs of a launch on the values."""
        inputs = {"in": self.name, "offsets": "offsets"}
        return inputs | {"carry": carries} if carries else inputs


# Values of a row of a tree: its later rounds are found apart, so that rows are not mostly zeros.
TREE_VALUES: Final = 32
# How the values of each level are scanned, and how many of them together: rows of a panel, panels
# of a chunk, chunks of a group, and groups.
_SCANS: Final = (
    (PANEL_ROWS, "doubling"),
    (CHUNK_PANELS, "turn"),
    (GROUP_CHUNKS, "tree"),
    (None, "turn"),
)


def _launch_by_offsets(
    draft: Draft[Problem],
    name: str,
    size: int,
    inputs: Mapping[str, str],
    to: str,
    **options: Any,
) -> str:
    """Add a launch of chunks; of a long array, with blocks of several warps that go on.

    A warp searches all offsets only for its first chunk. Algorithms without products add sums.
    """
    p, tuning = draft.problem, draft.tuning
    items, most = tuning.ragged.items, 1
    if not algorithm_of(name).uses_mma:
        options |= {"source": p.types.sums, "part": None}
        numbers = _numbers(draft, inputs["in"], None if options.get("whole") else size)
        items = tuning.ragged.simt_items_of(numbers, options["rows_per_warp"])
    if p.length >= tuning.many_elements:
        most, options["items_per_warp"] = tuning.ragged.warps, items
    # Arrays between "in" and "out" have the type of the sums.
    result = p.types.result if to == "out" else p.types.sums
    return _add_fitting(
        draft, partial(draft.program, name, size, result, **options), most, inputs, to
    )


def _numbers(draft: Draft[Problem], name: str, cut: int | None) -> int:
    """Return the most numbers that the chunks of an array have; see `RaggedRows.numbers`."""
    chunks = 0 if cut is None else draft.memory[name].size // cut
    return chunks + draft.problem.segments


def _is_row(p: Problem, tuning: Tuning) -> bool:
    return p.most <= Grid.of(p.tile).row


def _launch_rows(draft: Draft[Problem]) -> None:
    """Add one launch in which each segment is a row of tiles."""
    p = draft.problem
    draft.reasons.append(f"no segment has more than {p.most} elements: each is a row")
    line = rounded_up(max(1, p.most), p.tile.k)
    options = {"whole": True, **p.scan_options}
    _launch_by_offsets(draft, f"{p.kind}_ragged", line, _given(p), "out", **options)


def _launch_ragged_chunks(draft: Draft[Problem]) -> None:
    """Add the launches for segments cut into rows."""
    p, row = draft.problem, Grid.of(draft.problem.tile).row
    known = f"a segment may have {'all ' if p.longest is None else ''}{p.longest or p.length}"
    draft.reasons += [
        f"segments by offsets are cut into rows of {row} elements, so that all warps have equal "
        f"work",
        f"{known} elements: the rows' sums are combined by rounded additions, level by level",
    ]
    first = _Level.of(p)
    options: dict[str, Any] = {"reverse": True} if p.order.reverse else {}
    name = _launch_by_offsets(draft, "reduction_ragged", row, first.inputs(), "sums", **options)
    sums = first.cut(name, draft.memory[name].size, row)
    if p.kind == "scan":
        inputs = first.inputs(_add_ragged_carries(draft, sums, 0))
        options = {**p.scan_options, "carry": True}
        _launch_by_offsets(draft, "scan_ragged", row, inputs, "out", **options)
        return
    tuning = draft.tuning.ragged
    # All cuts give the same tree. Lines of about the average segment waste the least, and long ones
    # save launches, if few values are missing in them.
    usual = rounded_up(2 * -(-sums.size // max(1, p.segments)), 1)
    cut = tuning.simt_values
    if p.segments * cut > tuning.few_values:
        cut = max(tuning.least_cut, min(usual, cut))
    while sums.longest > cut:
        sums = _add_simt_sums(draft, sums, cut)
    line = rounded_up(sums.longest, 1)
    options = {"levels": sums.cuts, "whole": True, "rows_per_warp": tuning.rows_of(line)}
    _launch_by_offsets(draft, "reduction_ragged_simt", line, sums.inputs(), "out", **options)


def _add_ragged_carries(draft: Draft[Problem], level: _Level, number: int) -> str:
    """Scan the values of a level that precede each one in its segment; return the results' name."""
    count, by = _SCANS[number]
    options: dict[str, Any] = {"levels": level.cuts, "by": by, "exclusive": True}
    options["reverse"] = draft.problem.order.reverse
    rounds: dict[str, str] = {}
    if by == "tree" and _is_mostly_zeros(draft, level, count):
        rounds = _add_rounds(draft, level, number)
        carries, line = rounds.pop("carries", ""), TREE_VALUES
        options |= {"rounds": len(rounds), "carry": bool(carries)}
    elif count is None or level.longest <= count:
        carries, line = "carry" if draft.problem.carry else "", rounded_up(level.longest, 1)
        options |= {"whole": True, "carry": bool(carries)}
        if carries and count is None:
            options["by"] = "running"
    else:
        sums = _add_simt_sums(draft, level, count)
        carries, line = _add_ragged_carries(draft, sums, number + 1), count
        options["carry"] = True
    options["rows_per_warp"] = draft.tuning.ragged.rows_of(line)
    inputs = level.inputs(carries) | rounds
    return _launch_by_offsets(draft, "scan_ragged_simt", line, inputs, "carries", **options)


def _is_mostly_zeros(draft: Draft[Problem], level: _Level, count: int | None) -> bool:
    """Return whether trees with a row for all values of a segment, or group, are too many."""
    line = min(level.longest, count or level.longest)
    values = draft.problem.segments * rounded_up(line, 1)
    return line > TREE_VALUES and values > draft.tuning.ragged.few_values


def _add_rounds(draft: Draft[Problem], level: _Level, number: int) -> dict[str, str]:
    """Find the later rounds of the trees over a level's values; return the arrays' names.

    A tree of all values of a segment in one row would be mostly zeros, where most segments have
    few. So its first rounds are done in rows of a few, whose sums are the leaves of the others.
    They are "round0", ..., and "carries" has the prefix of each row's group, if there is any.
    """
    p, tuning = draft.problem, draft.tuning.ragged
    count, _ = _SCANS[number]
    assert count is not None
    sums = _add_simt_sums(draft, level, TREE_VALUES)
    whole = level.longest <= count
    line = rounded_up(sums.longest, 1) if whole else count // TREE_VALUES
    if whole:
        carries = "carry" if p.carry else ""
    else:
        groups = _add_simt_sums(draft, sums, line)
        carries = _add_ragged_carries(draft, groups, number + 1)
    rows = tuning.rows_of(line)
    chunks = Chunks(sums.cuts, whole=whole)
    numbers = _numbers(draft, sums.name, None if whole else line)
    is_long = p.length >= draft.tuning.many_elements
    common = Options(
        p.tile,
        *(p.types.ab, p.types.acc, p.types.sums, p.types.sums),
        items_per_warp=tuning.simt_items_of(numbers, rows) if is_long else 1,
        warps=tuning.warps if is_long else 1,
        masked=True,
    )
    program = find_rounds(common, line, rows, chunks, p.order, carry=bool(carries))
    names = {f"round{i}": f"round{i}" for i in range(line.bit_length() - 1)}
    return draft.add_several(program, sums.inputs(carries), names | {"carries": "carries"})


def _add_simt_sums(draft: Draft[Problem], level: _Level, cut: int) -> _Level:
    """Add up chunks of a level in shared memory; return the level of their sums."""
    options = {"levels": level.cuts, "rows_per_warp": draft.tuning.ragged.rows_of(cut)}
    name = _launch_by_offsets(
        draft, "reduction_ragged_simt", cut, level.inputs(), "sums", **options
    )
    return level.cut(name, draft.memory[name].size, cut)


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
    asked = f"{Given('algorithm', draft.problem.algorithm)} was asked for"
    draft.reasons.append(
        asked if draft.problem.algorithm else f"{name} suits a {factor} on the right"
    )
    p, tuning = draft.problem, draft.tuning.product
    usual: dict[str, Any] = {} if name.startswith("gemv") else {"cols": p.cols or 1}
    usual |= {"inner": p.inner, "add_c": p.add_c}
    usual |= {one: getattr(p.types, one) for one in ("ab", "acc", "source", "result")}
    usual["accumulation_length"] = _chain(p.types)
    choices: list[dict[str, Any]] = [{}]
    if name == "gemm":
        choices = product_blocks(p, tuning, usual["accumulation_length"])
    elif name == "gemv_reduction":
        choices = vector_readings(p, tuning)
    _, program = draft.first_that_fits(
        lambda options: built(name, tile=p.tile, **usual | options),
        choices,
    )
    left, right = program.inputs[0].name, program.inputs[1].name
    draft.add(program, {left: "in", right: p.second} | ({"c": "c"} if p.add_c else {}), "out")


_launch_gemv = partial(_add_product, name="gemv_reduction")
_launch_gemm = partial(_add_product, name="gemm")


def _chain(types: Types) -> int | None:
    """Return the most tiles of a chain: s32 and f64 do not drift, and f16 is the paper's."""
    if types.acc != "f32":
        return None
    return ACCUMULATION_LENGTH if types.result == "f32" else NARROW_CHAIN


# --- The tables -------------------------------------------------------------------------------

STRATEGIES: Final[Mapping[str, tuple[Strategy[Any], ...]]] = {
    "segments of one size": (
        Strategy("named", "a named algorithm", _is_named, _launch_named),
        Strategy("short", "segments of a few elements", _is_short, _launch_short),
        Strategy("panels", "segments that a warp takes alone", _is_in_panels, _launch_panels),
        Strategy("single_pass", "segments that blocks share", _is_shared, _launch_shared),
    ),
    "segments by offsets": (
        Strategy("row_per_segment", "segments of at most a row", _is_row, _launch_rows),
        Strategy("rows", "all segments by offsets", _is_always, _launch_ragged_chunks),
    ),
    "products": (
        Strategy("named", "a named algorithm", _is_named, _launch_named_product),
        Strategy("gemv", "a vector on the right", _is_by_a_vector, _launch_gemv),
        Strategy("gemm", "all products", _is_always, _launch_gemm),
    ),
}
