"""Choose the launches for sums and scans of irregular segments, and run them.

The rule: a piece is about as long as the average segment, `cut_of`. Pieces much longer than that
would mostly be empty lines, as each segment has a piece of its own; much shorter ones would be many
more than the segments. So a level's work is at most about twice its data's, however the elements
are spread over the segments, and the work of a warp is always the same.

How many levels there are follows from the length alone, not from the offsets: a segment of s
elements has results of at most ceil(s / cut) + 1 pieces. So the same launches serve all offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tcusim.ir import Program
from tcusim.launches import CHAIN, Launch, Launches, Memory
from tcusim.numerics import Values
from tcusim.problem import IrregularProblem, rounded_up
from tcusim.shapes import MmaShape, shape_of

__all__ = [
    "Launch",
    "cut_of",
    "draft_by_offsets",
    "irregular_launches",
    "run_launches",
    "scan_by_offsets",
    "sum_by_offsets",
]

# The longest piece, in rows of k elements: its sum is one of so many products.
MOST_ROWS = 64
# Pieces that keep the warps of a large GPU busy: long segments are cut shorter for their sake.
BUSY = 2048
# The shortest and the longest piece that is added up in shared memory.
PLAIN = (32, 128)

Runner: TypeAlias = Callable[[Program, Mapping[str, Values]], Values]


@dataclass(frozen=True, slots=True)
class _Level:
    """Values in irregular segments: the array's elements, or the results of pieces by number.

    name: of the array. size: values in it. longest: the most that a segment can have. cuts: those
    made before.
    """

    name: str
    size: int
    longest: int
    cuts: tuple[int, ...] = ()

    def cut(self, name: str, size: int, cut: int) -> _Level:
        """Return the results `name` of this level's pieces."""
        longest = -(-self.longest // cut) + 1
        return _Level(name, size, min(longest, max(1, size)), (*self.cuts, cut))


def irregular_launches(problem: IrregularProblem) -> tuple[Launch, ...]:
    """Return the launches for a problem, in order.

    They take the arrays "in" and "offsets" (segments + 1 int64 positions that ascend from 0 to
    length) and make "out"; other names are arrays between them.
    """
    return tuple(draft_by_offsets(problem).launches)


def draft_by_offsets(problem: IrregularProblem) -> Launches:
    """Return the launches for a problem, their arrays, and why."""
    return _Draft(problem)


def cut_of(size: int, segments: int, least: int, most: int) -> int:
    """Return the length of a piece: the average segment's, rounded up to least * 2**i <= most."""
    average = -(-size // max(1, segments))
    cut = least
    while cut < average and 2 * cut <= most:
        cut *= 2
    return cut


class _Draft(Launches):
    """The launches in the making, and the arrays that they make."""

    def __init__(self, problem: IrregularProblem) -> None:
        self.problem = p = problem
        super().__init__(Memory("in", p.source, p.length), Memory("offsets", "s64", p.segments + 1))
        longest = p.length if p.longest is None else min(p.longest, p.length)
        level = _Level("in", p.length, max(1, longest))
        k = p.shape.k
        # No more than the average, nor so long that few warps have work.
        cut = min(
            cut_of(p.length, p.segments, k, MOST_ROWS * k),
            cut_of(p.length, BUSY, k, MOST_ROWS * k),
        )
        if p.kind == "reduction":
            self._reduction(level, cut)
        else:
            self._scan(level, cut)
        self._explain(cut)

    def _explain(self, cut: int) -> None:
        """Say why these launches."""
        p = self.problem
        if len(self.launches) == 1:
            self.why.append(
                f"no segment has more than {2 * cut} elements: each is a line of a tile"
            )
        else:
            self.why.append(
                f"segments by offsets are cut into pieces of at most {cut} elements, a line of a "
                f"tile each, so that all warps have equal work"
            )
            self.why.append(
                f"a segment may have all {p.length} elements"
                if p.longest is None
                else f"a segment may have {p.longest} elements"
            )
            self.why[-1] += ": the pieces' sums are combined by rounded additions, level by level"
        if p.literal:
            self.why.append("literal to the paper: products accumulate without limit")
        else:
            self.why.append(f"at most {CHAIN} products accumulate before a rounded addition")

    def _reduction(self, level: _Level, cut: int) -> None:
        p = self.problem
        if level.longest <= 2 * cut:
            self._add(p.build(p.kind, self._line(level), p.result, whole=True), level, "out")
            return
        level = self._cut(p.build(p.kind, cut, p.acc), level, cut)
        while level.longest > self._most(level):
            cut = self._plain_cut(level)
            program = p.plain("reduction", cut, p.acc, levels=level.cuts)
            level = self._cut(program, level, cut)
        options = {"levels": level.cuts, "whole": True}
        self._add(p.plain("reduction", self._line(level), p.result, **options), level, "out")

    def _scan(self, level: _Level, cut: int) -> None:
        p = self.problem
        order = {"exclusive": p.exclusive, "reverse": p.reverse}
        if level.longest <= 2 * cut:
            program = p.build(p.kind, self._line(level), p.result, whole=True, **order)
            self._add(program, level, "out")
            return
        carries = self._carries(self._cut(p.build("reduction", cut, p.acc), level, cut))
        program = p.build(p.kind, cut, p.result, carry=True, **order)
        self._add(program, level, "out", carries)

    def _carries(self, level: _Level) -> str:
        """Scan what precedes each value of a level in its segment; return the results' name."""
        p = self.problem
        options = {"levels": level.cuts, "exclusive": True, "reverse": p.reverse}
        if level.longest <= self._most(level):
            program = p.plain("scan", self._line(level), p.acc, whole=True, **options)
            return self._add(program, level, "carries")
        cut = self._plain_cut(level)
        sums = self._cut(p.plain("reduction", cut, p.acc, levels=level.cuts), level, cut)
        carries = self._carries(sums)
        program = p.plain("scan", cut, p.acc, carry=True, **options)
        return self._add(program, level, "carries", carries)

    def _line(self, level: _Level) -> int:
        """Return the longest segment, rounded up so that few programs serve all lengths."""
        least = 1 if level.cuts else self.problem.shape.k
        return rounded_up(level.longest, least)

    def _plain_cut(self, level: _Level) -> int:
        return cut_of(level.size, self.problem.segments, *PLAIN)

    def _most(self, level: _Level) -> int:
        """Return the longest segment for which one line of shared memory is worth its room."""
        return min(2 * self._plain_cut(level), PLAIN[1])

    def _cut(self, program: Program, level: _Level, cut: int) -> _Level:
        """Add a launch that sums a level's pieces; return the level of these sums."""
        name = self._add(program, level, "sums")
        return level.cut(name, self.arrays[name].size, cut)

    def _add(self, program: Program, level: _Level, to: str, carries: str | None = None) -> str:
        """Add a launch on a level's values that makes a new array; return its name."""
        inputs = {"in": level.name, "offsets": "offsets"}
        if carries is not None:
            inputs["carry"] = carries
        return self.add(program, inputs, to)


# --- Running them -----------------------------------------------------------------------------


def run_launches(
    launches: Iterable[Launch], arrays: Mapping[str, Values], launch: Runner
) -> Values:
    """Run launches one after the other on arrays by name; return the array "out"."""
    held = dict(arrays)
    for one in launches:
        (name,) = one.outputs.values()
        held[name] = launch(one.program, {key: held[given] for key, given in one.inputs.items()})
    return held["out"]


def sum_by_offsets(
    launch: Runner,
    array: Values,
    offsets: Values,
    *,
    shape: str | tuple[int, int, int] | MmaShape = "16x16x16",
    ab: str = "f16",
    acc: str = "f32",
    source: str | None = None,
    result: str | None = None,
    longest: int | None = None,
) -> Values:
    """Sum each segment of a flat array: from offsets[i] up to offsets[i+1].

    launch: runs a program on named arrays and returns its output `out`. offsets: segments + 1 int64
    positions that ascend from 0 to the array's length; nothing here checks that. The other
    parameters are IrregularProblem's.
    """
    types = (ab, acc, source or ab, result or acc)
    sizes = (array.size, offsets.size - 1)
    problem = IrregularProblem("reduction", *sizes, shape_of(shape), *types, longest=longest)
    return run_launches(irregular_launches(problem), {"in": array, "offsets": offsets}, launch)


def scan_by_offsets(
    launch: Runner,
    array: Values,
    offsets: Values,
    *,
    shape: str | tuple[int, int, int] | MmaShape = "16x16x16",
    ab: str = "f16",
    acc: str = "f32",
    source: str | None = None,
    result: str | None = None,
    exclusive: bool = False,
    reverse: bool = False,
    longest: int | None = None,
) -> Values:
    """Scan each segment of a flat array; the parameters are those of sum_by_offsets."""
    problem = IrregularProblem(
        "scan",
        array.size,
        offsets.size - 1,
        shape_of(shape),
        ab,
        acc,
        source or ab,
        result or acc,
        exclusive=exclusive,
        reverse=reverse,
        longest=longest,
    )
    return run_launches(irregular_launches(problem), {"in": array, "offsets": offsets}, launch)
