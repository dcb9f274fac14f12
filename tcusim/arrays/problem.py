"""Problems: sums and scans of segments, and products, as data.

A problem is a computation; `tcusim.arrays.planner` chooses its launches. Equal problems
have equal launches, so that plans can be kept and found again by their problems.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.algorithms import algorithm_of
from tcusim.algorithms.builder import adds_rows, sums_of
from tcusim.algorithms.order import FORWARD, Order
from tcusim.errors import Given, Unsupported
from tcusim.machine import arch_of, format_of, rule_for
from tcusim.machine.shapes import MmaShape, shape_of
from tcusim.program.launches import Memory

# The most integers of 8 bits, by their type, whose sum is exact: int32 holds it, and float32 in
# 24 bits.
MOST_DIGITS: Final = {"s8": 2**23, "u8": 2**23, "f16": 2**16}
# The longest segment of float16 whose sum float64 holds: its 40 bits, and 13 more, are 53.
MOST_FLOAT16 = 2**13
# By parts: of a fraction there are 23 bits besides the sign, which makes 30 more.
MOST_BY_PARTS = 2**30
# Products of integers whose sum int32 holds, or float32: each is at most 2**14 of int8, and 255**2
# of uint8.
MOST_INNER: Final = {"s8": 2**16, "u8": 2**15, "f16": 2**10}

Shape: TypeAlias = str | tuple[int, int, int] | MmaShape


@dataclass(frozen=True, slots=True)
class Types:
    """The element types of a problem.

    ab, acc: of operands and accumulators. source, result: of the array "in" (and of a product's
    other factor), and of "out". part: the part of each element, "whole" or "fraction"; None is all
    of it. most: the most digits, or products of digits, whose sum the arithmetic keeps, if fewer
    than usual.
    """

    ab: str
    acc: str
    source: str
    result: str
    part: str | None = None
    most: int | None = None

    def require_on(self, arch: str) -> None:
        """Refuse an architecture that does not multiply these types, unless they are only added."""
        if not self.adds:
            rule_for(arch, self.ab, self.acc)

    @property
    def adds(self) -> bool:
        """Whether the array is added up without products."""
        return adds_rows(self.ab, self.acc)

    @property
    def most_digits(self) -> int | None:
        """The most elements, if they are digits, whose sum is exact; None if they are none."""
        return None if self.adds else self.most or MOST_DIGITS.get(self.ab)

    @property
    def sums(self) -> str:
        """The type of parts' sums; see `sums_of`."""
        return sums_of(self.acc, self.result)

    @property
    def dtype(self) -> str:
        """NumPy's name of the type of "in"."""
        return format_of(self.source).array_name

    @property
    def result_dtype(self) -> str:
        """NumPy's name of the type of "out"."""
        return format_of(self.result).array_name


@dataclass(frozen=True, slots=True, kw_only=True)
class _Problem:
    """The part that sums, scans and products have in common.

    tile: the sizes of one product. arch: whose tensor cores and shared memory there are; None has
    every type, and room for any block. algorithm: the one to launch; None is the planner's choice.
    strategy: the one to follow, by name; None is the first that applies.
    """

    types: Types
    tile: MmaShape
    arch: str | None = None
    algorithm: str | None = None
    strategy: str | None = None

    def __post_init__(self) -> None:
        """Refuse types that the architecture does not multiply; call it by its own name."""
        if self.arch is not None:
            self.types.require_on(self.arch)
            object.__setattr__(self, "arch", arch_of(self.arch).name)

    @property
    def as_printed(self) -> bool:
        """Whether to compute as the paper prints it.

        Partial sums are then rounded to operands, and products accumulate without limit: it is so
        where an algorithm is named as in the paper, or named with float16 accumulators, or is the
        paper's alone.
        """
        if self.algorithm is None:
            return False
        row = algorithm_of(self.algorithm)
        is_paper_name = row.alias == self.algorithm.lower()
        return self.types.acc == "f16" or is_paper_name or row.combines == ("mma",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem(_Problem):
    """A "reduction" or a "scan" (its kind) of the segments of an array of a length.

    segment_size: of segments of one size, of which the last may be shorter. by_offsets: the number
    of segments of any lengths that lie by offsets; None for those of one size. longest: the most
    elements that one of them may have, where that is known; it may save launches. carry: whether a
    value is given for each segment that precedes its first element.
    """

    kind: str
    length: int
    segment_size: int = 0
    by_offsets: int | None = None
    longest: int | None = None
    order: Order = FORWARD
    carry: bool = False

    def __post_init__(self) -> None:
        """Refuse types that the architecture lacks, and an algorithm for segments by offsets."""
        _Problem.__post_init__(self)
        if self.by_offsets is not None:
            require_unnamed(self.algorithm)

    @property
    def segments(self) -> int:
        """Number of segments."""
        if self.by_offsets is not None:
            return self.by_offsets
        return -(-self.length // self.segment_size)

    @property
    def most(self) -> int:
        """The most elements that a segment can have."""
        if self.by_offsets is None:
            return self.segment_size
        return self.length if self.longest is None else min(self.longest, self.length)

    @property
    def whole_or_size(self) -> int | None:
        """The segment size; None if the whole array is one segment."""
        return None if self.segment_size >= self.length else self.segment_size

    @property
    def inputs(self) -> tuple[Memory, ...]:
        """The arrays of a call: data, offsets from 0 to their length, and initial values."""
        inputs = [Memory("in", self.types.source, self.length)]
        if self.by_offsets is not None:
            inputs.append(Memory("offsets", "s64", self.by_offsets + 1))
        if self.carry:
            inputs.append(Memory("carry", self.types.sums, self.segments))
        return tuple(inputs)

    @property
    def scan_options(self) -> dict[str, bool]:
        """The options of an algorithm for the order and initial values, if they are not usual."""
        given = {"exclusive": self.order.exclusive, "reverse": self.order.reverse}
        given["carry"] = self.carry
        return {name: value for name, value in given.items() if value}

    def __str__(self) -> str:
        """Return sizes, types and order in words."""
        return self.told(self.types.dtype, self.types.result_dtype)

    @property
    def sizes(self) -> str:
        """The length and the segments in words, without types."""
        return f"{self.length} elements{self._division}"

    @property
    def _division(self) -> str:
        size = self.whole_or_size
        if self.by_offsets is not None:
            longest = "" if self.longest is None else f", of up to {self.longest} elements"
            return f" in {segments_in_words(self.by_offsets)} by offsets{longest}"
        return "" if size is None else f" in segments of {size}"

    def told(self, dtype: str, result: str) -> str:
        """Return sizes, these types and order in words."""
        initial = ", with initial values" if self.carry else ""
        order = "".join(f", {name}" for name in self.scan_options if name != "carry")
        return f"{self.length} {dtype}{self._division}{initial} to {result}{order}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductProblem(_Problem):
    """A product: (rows, inner) times (inner, cols), or times a vector if there are no cols."""

    rows: int
    inner: int
    cols: int | None = None
    add_c: bool = False

    def __post_init__(self) -> None:
        """Refuse products that the architecture cannot do, or not exactly."""
        _Problem.__post_init__(self)
        most = MOST_INNER[self.types.ab] if self.types.acc == "s32" else self.inner
        if self.inner > most:
            raise Unsupported(
                f"sums of more than {most} products of {self.types.dtype} may not fit int32; cut "
                f"the matrices, or multiply NumPy arrays, whose integers are exact"
            )

    @property
    def inputs(self) -> tuple[Memory, ...]:
        """The factors, and the array that is added."""
        columns = self.cols or 1
        left = Memory("in", self.types.source, self.rows * self.inner)
        right = Memory(self.second, self.types.source, self.inner * columns)
        added = Memory("c", self.types.result, self.rows * columns)
        return (left, right, added) if self.add_c else (left, right)

    @property
    def second(self) -> str:
        """The name of the right factor: "x" if it is a vector."""
        return "x" if self.cols is None else "b"

    def __str__(self) -> str:
        """Return sizes and types in words."""
        return self.told(self.types.dtype, self.types.result_dtype)

    @property
    def sizes(self) -> str:
        """The shapes in words, without types."""
        right = f"({self.inner})" if self.cols is None else f"({self.inner}, {self.cols})"
        return f"({self.rows}, {self.inner}) by {right}{' + c' if self.add_c else ''}"

    def told(self, dtype: str, result: str) -> str:
        """Return sizes and these types in words."""
        return f"{self.sizes}, {dtype} to {result}"


AnyProblem: TypeAlias = Problem | ProductProblem


def segments_in_words(count: int) -> str:
    """Return "1 segment", or how many."""
    return f"{count} segment" if count == 1 else f"{count} segments"


def even_edges(segments: int, size: int, length: int) -> NDArray[np.int64]:
    """Return the offsets of segments of one size, of which the last may be shorter."""
    return np.minimum(np.arange(segments + 1) * size, length)


def pieces_of(problem: Problem) -> Problem:
    """Return the problem with segments that are short enough to sum digits exactly.

    Longer ones are cut into pieces, as segments of their own.
    """
    p, most = problem, problem.types.most_digits
    if most is None or p.most <= most:
        return p
    if p.by_offsets is None:
        return replace(p, segment_size=most)
    # There are no more of them than that, whatever the offsets are.
    return replace(p, by_offsets=p.by_offsets + p.length // most, longest=most)


# --- From a user's arguments ----------------------------------------------------------------------


def tile_for(types: Types, shape: Shape | None) -> MmaShape:
    """Return the tile that the user gave, or the one that is usual for the types."""
    return shape_of(("8x8x4" if types.ab == "f64" else "16x16x16") if shape is None else shape)


def rounded_longest(longest: int | None, length: int, k: int) -> int | None:
    """Return the longest segment's length, rounded up so that few problems serve all lengths.

    None is an unknown length; so is a rounded one that is not shorter than the array.
    """
    if longest is None:
        return None
    most = rounded_up(min(longest, length), k)
    return None if most >= length else most


def rounded_up(size: int, least: int) -> int:
    """Return the smallest least * 2**i that is at least `size`: few programs serve all sizes."""
    return least << max(0, -(-size // least) - 1).bit_length()


def require_unnamed(algorithm: str | None, given: str = "") -> None:
    """Refuse the name of an algorithm for segments by offsets, or with the parameter `given`."""
    if algorithm is not None:
        if given:
            raise Unsupported(
                *(Given(given), " has launches of its own, and ", Given("algorithm", algorithm)),
                *(" is another. Leave ", Given("algorithm"), " out"),
            )
        raise Unsupported(
            Given("algorithm", algorithm),
            " goes with segments of one size; those by offsets have launches of their own. Leave ",
            *(Given("algorithm"), " out"),
        )
