"""What makes NumPy arrays fit a tensor core's types, and results exact: stages around launches.

A stage splits the work of a plan into works for its launches, and merges their results. Works are
split by all stages in order, launched, and merged in the reverse order, by `compute`. Most stages
look at the data, so arrays in GPU memory have none.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.arrays.dtypes import TypeRule, numpy_type
from tcusim.arrays.libraries import Array
from tcusim.arrays.problem import AnyProblem, Problem, ProductProblem, RaggedProblem, SegmentProblem
from tcusim.machine import format_of, split_values

__all__ = ["Batch", "Split", "Stage", "Work", "stages_of"]

Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]


class Work(NamedTuple):
    """A problem, and flat arrays by the names of its inputs."""

    problem: AnyProblem
    arrays: Mapping[str, Array]

    def on(self, **arrays: Array) -> Work:
        """Return the same problem with other arrays."""
        return Work(self.problem, {**self.arrays, **arrays})

    def matrices(self) -> tuple[Array, Array, Array | None]:
        """Return the factors of a product as matrices, and what is added."""
        p = self.problem
        assert isinstance(p, ProductProblem)
        columns = p.cols or 1
        c = self.arrays.get("c")
        # Integers may have longer rows than one launch takes.
        return (
            self.arrays["in"].reshape(p.rows, -1),
            self.arrays[p.second].reshape(-1, columns),
            None if c is None else c.reshape(p.rows, columns),
        )

    def product(self, a: Array, b: Array, **changes: Any) -> Work:
        """Return a product of other factors, of which nothing is added to."""
        p = self.problem
        assert isinstance(p, ProductProblem)
        problem = replace(p, add_c=False, **changes)
        return Work(problem, {"in": a.reshape(-1), p.second: b.reshape(-1)})


class Split(Protocol):
    """Works that a stage made of one, and how their results, in order, become its result."""

    @property
    def works(self) -> Sequence[Work]: ...  # noqa: D102

    def merge(self, results: Sequence[Array]) -> Array:
        """Return the result of the work that was split; all results are flat."""
        ...


class Stage(Protocol):
    """One way to split works."""

    def split(self, work: Work) -> Split:
        """Return the works to do instead."""
        ...


@dataclass(frozen=True, slots=True)
class AsItIs:
    """A work with nothing to split."""

    works: tuple[Work]

    def merge(self, results: Sequence[Array]) -> Array:
        """Return the one result."""
        return results[0]


def stages_of(rule: TypeRule, *, product: bool) -> tuple[Stage, ...]:
    """Return the stages by which NumPy arrays are computed under a rule of types."""
    result = numpy_type(rule.result)
    if product:
        if rule.method == "digits":
            return (ProductDigits(result),)
        if rule.method == "bf16 parts":
            return (ProductSpecials(), ProductRange())
        return (ProductSpecials(), ProductParts(result)) if rule.method == "f16 parts" else ()
    if rule.method == "digits":
        return (Digits(result),)
    if rule.method == "bf16 parts":
        return (Specials(), Halves())
    return (Specials(), Parts(result)) if rule.method == "f16 parts" else (Specials(),)


# --- Sums and scans -------------------------------------------------------------------------------


class Specials:
    """Keeps infinities and NaN to the results that they are part of.

    They never enter a tensor core, where 0*Inf = NaN would spread them over their tile.
    """

    def split(self, work: Work) -> Split:
        """Set them to zero."""
        x = work.arrays["in"]
        finite = np.isfinite(x)
        if finite.all():
            return AsItIs((work,))
        return _Specials((work.on(**{"in": np.where(finite, x, x.dtype.type(0))}),), work)


@dataclass(frozen=True, slots=True)
class _Specials:
    works: tuple[Work]
    whole: Work

    def merge(self, results: Sequence[Array]) -> Array:
        """Put them into the results."""
        (result,) = results
        x = self.whole.arrays["in"]
        # How many infinities of each sign, and NaN, are among the terms of each result.
        above, below, neither = _counted(self.whole, x == np.inf, x == -np.inf, np.isnan(x))
        special = np.where(above > 0, np.inf, -np.inf)
        special[((above > 0) & (below > 0)) | (neither > 0)] = np.nan
        return np.where(above + below + neither == 0, result, special.astype(result.dtype))


class Halves:
    """Takes the few float32 values that bf16, the type of the largest part, rounds to infinity.

    Results of which one is a term are computed of halves; the others as if there were none.
    """

    def split(self, work: Work) -> Split:
        """Return the work without them, and that on halves."""
        x = work.arrays["in"]
        huge = np.abs(x) > format_of("bf16").largest
        if not huge.any():
            return AsItIs((work,))
        types = replace(work.problem.types, result="f32")
        halves = work.on(**{"in": np.ldexp(x, -1)})
        return _Halves(
            (
                work.on(**{"in": np.where(huge, np.float32(0), x)}),
                halves._replace(problem=replace(work.problem, types=types)),
            ),
            work,
            huge,
        )


@dataclass(frozen=True, slots=True)
class _Halves:
    works: tuple[Work, Work]
    whole: Work
    huge: Bools

    def merge(self, results: Sequence[Array]) -> Array:
        """Take each result from the work that holds its terms."""
        usual, halved = results
        (number,) = _counted(self.whole, self.huge)
        return np.where(number > 0, np.ldexp(halved, 1).astype(usual.dtype), usual)


@dataclass(frozen=True, slots=True)
class Parts:
    """Computes float32 as three float16 parts, scaled so that the largest element fits.

    What lies 2**39 below it is lost.
    """

    result: np.dtype[Any]

    def split(self, work: Work) -> Split:
        """Return a work for each part, the largest first."""
        x = work.arrays["in"]
        scale = 15 - int(np.frexp(float(np.abs(x).max(initial=0.0)))[1])
        parts = split_values(x, "f16", 3, scale)
        return _Parts(
            tuple(work.on(**{"in": part.astype(np.float16)}) for part in parts), scale, self.result
        )


@dataclass(frozen=True, slots=True)
class _Parts:
    works: tuple[Work, ...]
    scale: int
    result: np.dtype[Any]

    def merge(self, results: Sequence[Array]) -> Array:
        """Add the parts' results, the smallest first."""
        first, second, third = results
        total: Array = np.ldexp(first + (second + third), -self.scale)
        return total.astype(self.result)


@dataclass(frozen=True, slots=True)
class Digits:
    """Sums integers exactly, digit by digit of 8 bits: modulo 2**64, as NumPy does."""

    result: np.dtype[Any]

    def split(self, work: Work) -> Split:
        """Return a work for each digit, the lowest first."""
        dtype = numpy_type(work.problem.types.dtype)
        digits = digits_of(work.arrays["in"])
        return _Digits(
            tuple(work.on(**{"in": digit.astype(dtype)}) for digit in digits), self.result
        )


@dataclass(frozen=True, slots=True)
class _Digits:
    works: tuple[Work, ...]
    result: np.dtype[Any]

    def merge(self, results: Sequence[Array]) -> Array:
        """Add the digits' sums by their weights; for a float type in float64."""
        if self.result.kind not in "iu":
            terms = (np.ldexp(one.astype(np.float64), 8 * i) for i, one in enumerate(results))
            total = next(terms)
            for term in terms:
                total = total + term
            return total.astype(self.result)
        whole = np.zeros(results[0].shape, np.int64)
        for place, one in enumerate(results[:8]):
            whole += one.astype(np.int64) << (8 * place)
        return _wrapped(whole, self.result)


def digits_of(x: Array) -> Iterator[Ints]:
    """Yield signed digits of base 256, lowest first, until nothing is left."""
    rest: Array = x if x.dtype == np.uint64 else x.astype(np.int64)
    while True:
        low = (rest & rest.dtype.type(255)).astype(np.int64)
        digit = np.where(low < 128, low, low - 256)
        yield digit
        rest = (rest >> rest.dtype.type(8)).astype(np.int64) + (digit < 0)
        if not rest.any():
            return


def _wrapped(whole: Ints, result: np.dtype[Any]) -> Array:
    return (whole.view(np.uint64) if result.kind == "u" else whole).astype(result)


def _counted(work: Work, *marks: Bools) -> list[Ints]:
    """Return how many marks of each kind are among the terms of each result."""
    begin, end = _terms(work)
    sums = (np.concatenate([[0], np.cumsum(mark)]) for mark in marks)
    return [before[end] - before[begin] for before in sums]


def _terms(work: Work) -> tuple[Ints, Ints]:
    """Return where the elements begin and end of which each result is the sum."""
    p = work.problem
    assert isinstance(p, SegmentProblem)
    if isinstance(p, RaggedProblem):
        edges: Ints = work.arrays["offsets"]
    else:
        assert isinstance(p, Problem)
        edges = np.minimum(np.arange(p.segments + 1) * p.segment_size, p.length)
    if p.kind == "reduction":
        return edges[:-1], edges[1:]
    first, last = (np.repeat(ends, np.diff(edges)) for ends in (edges[:-1], edges[1:]))
    own = np.arange(p.length)
    if p.order.reverse:
        return own + p.order.exclusive, last
    return first, own + (not p.order.exclusive)


# --- Products -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Batch:
    """Multiplies several matrices one by one.

    starts: where each product's factors, addend and result begin, in elements. inner: of them all.
    """

    starts: Sequence[Mapping[str, int]]
    inner: int

    def split(self, work: Work) -> Split:
        """Return a work for each product."""
        p = work.problem
        assert isinstance(p, ProductProblem)
        columns = p.cols or 1
        sizes = {"in": self.inner * p.rows, p.second: self.inner * columns, "c": p.rows * columns}
        return _Batch(
            [
                work.on(**{n: x[start[n] :][: sizes[n]] for n, x in work.arrays.items()})
                for start in self.starts
            ]
        )


@dataclass(frozen=True, slots=True)
class _Batch:
    works: Sequence[Work]

    def merge(self, results: Sequence[Array]) -> Array:
        """Lay the results end to end."""
        return np.concatenate(results)


class ProductSpecials:
    """Takes infinities and NaN of float32, which have no parts.

    Every result of a row of `a`, or column of `b`, that holds one is infinite or NaN itself; which
    of them, the signs of the other factors decide.
    """

    def split(self, work: Work) -> Split:
        """Set them to zero."""
        a, b, c = work.matrices()
        finite_a, finite_b = np.isfinite(a), np.isfinite(b)
        if finite_a.all() and finite_b.all():
            return AsItIs((work,))
        # Sums of infinities, NaN, and of the other factors the signs alone.
        special = np.where(finite_a, np.sign(a), a) @ np.where(finite_b, np.sign(b), b)
        if c is not None:
            special = special + c
        factors = (np.where(mask, x, x.dtype.type(0)) for x, mask in ((a, finite_a), (b, finite_b)))
        names = ("in", _second(work))
        made = {name: x.reshape(-1) for name, x in zip(names, factors, strict=True)}
        return _ProductSpecials((work.on(**made),), special.reshape(-1))


@dataclass(frozen=True, slots=True)
class _ProductSpecials:
    works: tuple[Work]
    special: Array

    def merge(self, results: Sequence[Array]) -> Array:
        """Put them into the results."""
        (result,) = results
        return np.where(np.isfinite(self.special), result, self.special.astype(result.dtype))


class ProductRange:
    """Takes products of float32 whose parts, or partial sums, are beyond the range of float32.

    Such a result would be NaN: a part is infinite, and the next has the other sign. It is computed
    again of factors that are scaled by powers of two, row by row and column by column, and only
    what is then too large is infinite.
    """

    def split(self, work: Work) -> Split:
        """Return the work without elements too large for bf16, and scaled works if needed."""
        a, b, c = work.matrices()
        largest = format_of("bf16").largest
        too_large = np.abs(a).max(1) > largest, np.abs(b).max(0) > largest
        # Exponents of the largest element of each row and column; that of any sum is below.
        tops = [np.frexp(np.abs(x).max(axis))[1] for x, axis in ((a, 1), (b, 0))]
        carry = a.shape[1].bit_length()
        top = max(
            int(tops[0].max()) + int(tops[1].max()) + carry,
            0 if c is None else int(np.frexp(np.abs(c.astype(np.float64)).max())[1]),
        )
        shifts = []
        if any(rows.any() for rows in too_large):
            shifts.append((-too_large[0].astype(int), -too_large[1].astype(int)))
        if top > 126:
            shifts.append(
                (np.minimum(0, 62 - tops[0]), np.minimum(0, 62 - carry - tops[1])),
            )
        if not shifts:
            return AsItIs((work,))
        first = {
            "in": np.where(np.abs(a) > largest, np.float32(0), a).reshape(-1),
            _second(work): np.where(np.abs(b) > largest, np.float32(0), b).reshape(-1),
        }
        types = replace(work.problem.types, result="f32")
        again = (
            work.product(np.ldexp(a, down[:, None]), np.ldexp(b, right), types=types)
            for down, right in shifts
        )
        bad = too_large[0][:, None] | too_large[1]
        return _ProductRange((work.on(**first), *again), bad, shifts, c)


@dataclass(frozen=True, slots=True)
class _ProductRange:
    works: tuple[Work, ...]
    bad: Bools
    shifts: list[tuple[Ints, Ints]]
    addend: Array | None

    def merge(self, results: Sequence[Array]) -> Array:
        """Take each result from the first work in which it is finite."""
        result = results[0].reshape(self.bad.shape)
        bad = self.bad | ~np.isfinite(result)
        for again, (down, right) in zip(results[1:], self.shifts, strict=True):
            scaled = again.reshape(bad.shape)
            value = np.ldexp(scaled.astype(np.float64), -down[:, None] - right)
            if self.addend is not None:
                value = value + self.addend.astype(np.float64)
            result = np.where(bad, value.astype(np.float32).astype(result.dtype), result)
            bad = bad & ~np.isfinite(scaled)
        return result.reshape(-1)


@dataclass(frozen=True, slots=True)
class ProductParts:
    """Multiplies float32 as three float16 parts, each row and column scaled to fit.

    Of the nine products of parts those count that are within 2**-33 of the largest.
    """

    result: np.dtype[Any]

    def split(self, work: Work) -> Split:
        """Return the products of parts, the smallest first."""
        a, b, c = work.matrices()
        scales = [
            15 - np.frexp(np.abs(x).max(axis, keepdims=True))[1] for x, axis in ((a, 1), (b, 0))
        ]
        lefts, rights = (
            [part.astype(np.float16) for part in split_values(np.ldexp(x, scale), "f16", 3)]
            for x, scale in zip((a, b), scales, strict=True)
        )
        pairs = ((2, 0), (1, 1), (0, 2), (1, 0), (0, 1), (0, 0))
        works = tuple(work.product(lefts[p], rights[q]) for p, q in pairs)
        return _ProductParts(works, -scales[0] - scales[1], c, self.result)


@dataclass(frozen=True, slots=True)
class _ProductParts:
    works: tuple[Work, ...]
    shifts: Ints
    addend: Array | None
    result: np.dtype[Any]

    def merge(self, results: Sequence[Array]) -> Array:
        """Add the products in order, and what is to be added, by rounded additions in float32."""
        total = np.zeros(self.shifts.shape, np.float32)
        for one in results:
            total = total + one.reshape(total.shape)
        # Beyond float32's range only for as long as nothing is added: the sum is rounded to it.
        whole = np.ldexp(total.astype(np.float64), self.shifts)
        if self.addend is not None:
            whole = whole + self.addend.astype(np.float64)
        return whole.astype(np.float32).astype(self.result).reshape(-1)


@dataclass(frozen=True, slots=True)
class ProductDigits:
    """Multiplies integers exactly, modulo 2**64, by signed digits of 8 bits."""

    result: np.dtype[Any]

    def split(self, work: Work) -> Split:
        """Return the products of digits that count, of slices whose sums are exact."""
        a, b, c = work.matrices()
        dtype = numpy_type(work.problem.types.dtype)
        # A product of digits is at most 2**14: s32 holds sums of that many, f32's 24 bits fewer.
        limit = 2**16 if dtype == np.int8 else 2**10
        works, places = [], []
        lefts, rights = list(digits_of(a)), list(digits_of(b))
        for (p, left), (q, right) in itertools.product(enumerate(lefts), enumerate(rights)):
            if p + q >= 8:
                continue
            for first in range(0, a.shape[1], limit):
                one = left[:, first : first + limit].astype(dtype)
                two = right[first : first + limit].astype(dtype)
                works.append(work.product(one, two, inner=one.shape[1]))
                places.append(p + q)
        return _ProductDigits(works, places, c, self.result)


@dataclass(frozen=True, slots=True)
class _ProductDigits:
    works: Sequence[Work]
    places: Sequence[int]
    addend: Array | None
    result: np.dtype[Any]

    def merge(self, results: Sequence[Array]) -> Array:
        """Add the products by their weights."""
        total = np.zeros(results[0].shape, np.int64)
        for one, place in zip(results, self.places, strict=True):
            total += one.astype(np.int64) << (8 * place)
        if self.addend is not None:
            total += self.addend.reshape(-1).astype(np.int64)
        return _wrapped(total, self.result)


def _second(work: Work) -> str:
    assert isinstance(work.problem, ProductProblem)
    return work.problem.second
