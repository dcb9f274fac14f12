"""Choose the launches for sums and scans of irregular segments.

The rule: a piece is about as long as the average segment, `cut_of`. Pieces much longer than that
would mostly be empty lines, as each segment has a piece of its own; much shorter ones would be many
more than the segments. So a level's work is at most about twice its data's, however the elements
are spread over the segments, and the work of a warp is always the same.

How many levels there are follows from the length alone, not from the offsets: a segment of s
elements has results of at most ceil(s / cut) + 1 pieces. So the same launches serve all offsets.
"""

from __future__ import annotations

from dataclasses import dataclass

from tcusim.arrays.launches import CHAIN, Launches, Memory
from tcusim.arrays.problem import IrregularProblem, rounded_up
from tcusim.program.grammar import Program

__all__ = ["cut_of", "draft_by_offsets"]

# The longest piece, in rows of k elements: its sum is one of so many products.
MOST_ROWS = 64
# Pieces that keep the warps of a large GPU busy: long segments are cut shorter for their sake.
BUSY = 2048
# The shortest and the longest piece that is added up in shared memory.
PLAIN = (32, 128)


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


def draft_by_offsets(problem: IrregularProblem) -> Launches:
    """Return the launches for a problem, their arrays, and why.

    They take the arrays "in" and "offsets" (segments + 1 int64 positions that ascend from 0 to
    length) and make "out"; other names are arrays between them.
    """
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
            self._add(
                p.build("reduction_pieces", self._line(level), p.result, whole=True), level, "out"
            )
            return
        level = self._cut(p.build("reduction_pieces", cut, p.acc), level, cut)
        while level.longest > self._most(level):
            cut = self._plain_cut(level)
            program = p.plain("reduction_pieces_plain", cut, p.acc, levels=level.cuts)
            level = self._cut(program, level, cut)
        options = {"levels": level.cuts, "whole": True}
        self._add(
            p.plain("reduction_pieces_plain", self._line(level), p.result, **options), level, "out"
        )

    def _scan(self, level: _Level, cut: int) -> None:
        p = self.problem
        if level.longest <= 2 * cut:
            program = p.build(
                "scan_pieces", self._line(level), p.result, whole=True, **p.scan_options
            )
            self._add(program, level, "out")
            return
        carries = self._carries(self._cut(p.build("reduction_pieces", cut, p.acc), level, cut))
        program = p.build("scan_pieces", cut, p.result, carry=True, **p.scan_options)
        self._add(program, level, "out", carries)

    def _carries(self, level: _Level) -> str:
        """Scan what precedes each value of a level in its segment; return the results' name."""
        p = self.problem
        options = {"levels": level.cuts, "exclusive": True, "reverse": p.order.reverse}
        if level.longest <= self._most(level):
            program = p.plain("scan_pieces_plain", self._line(level), p.acc, whole=True, **options)
            return self._add(program, level, "carries")
        cut = self._plain_cut(level)
        sums = self._cut(
            p.plain("reduction_pieces_plain", cut, p.acc, levels=level.cuts), level, cut
        )
        carries = self._carries(sums)
        program = p.plain("scan_pieces_plain", cut, p.acc, carry=True, **options)
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
