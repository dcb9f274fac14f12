"""What makes NumPy arrays fit a tensor core's types, and results exact: stages around launches.

A stage splits the work of a plan into works for its launches, and says how to merge their results.
Works are split by all stages in order, launched, and merged in the reverse order, by
`Planned.compute`. Most stages look at the data, so arrays in GPU memory have none.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.algorithms.builder import adds_rows
from tcusim.arrays.dtypes import TypeRule, numpy_type
from tcusim.arrays.fixed_point import FixedPoint
from tcusim.arrays.libraries import Array
from tcusim.arrays.problem import (
    AnyProblem,
    Problem,
    ProductProblem,
    RaggedProblem,
    pieces_of,
)
from tcusim.machine import canonical_nan, format_of, from_values, split_values
from tcusim.machine.formats import BY_ARRAY_NAME, array_name_of

__all__ = ["Split", "Stage", "Work", "batch", "stages_of"]

Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]


class Work(NamedTuple):
    """A problem, and flat arrays by the names of its inputs."""

    problem: AnyProblem
    arrays: Mapping[str, Array]

    def on(self, **arrays: Array) -> Work:
        """Return the same problem with other arrays."""
        flat = {name: array.reshape(-1) for name, array in arrays.items()}
        return Work(self.problem, {**self.arrays, **flat})

    def matrices(self) -> tuple[Array, Array, Array | None]:
        """Return the factors of a product as matrices, and what is added."""
        p = _product_of(self)
        columns = p.cols or 1
        c = self.arrays.get("c")
        # Integers may have longer rows than one launch takes.
        return (
            self.arrays["in"].reshape(p.rows, -1),
            self.arrays[p.second].reshape(-1, columns),
            None if c is None else c.reshape(p.rows, columns),
        )

    def factors(self, a: Array, b: Array) -> Work:
        """Return the same product of other factors."""
        return self.on(**{"in": a, _product_of(self).second: b})

    def product(self, a: Array, b: Array, **changes: Any) -> Work:
        """Return a product of other factors, to which nothing is added."""
        problem = replace(_product_of(self), add_c=False, **changes)
        return Work(problem, {}).factors(a, b)


class Split(NamedTuple):
    """Works made of one, and what makes its flat result of theirs, in order."""

    works: Sequence[Work]
    merge: Callable[[Sequence[Array]], Array]


Stage: TypeAlias = Callable[[Work], Split]


def stages_of(rule: TypeRule, *, product: bool) -> tuple[Stage, ...]:
    """Return the stages by which NumPy arrays are computed under a rule of types."""
    result = numpy_type(rule.result)
    match rule.method:
        case "digits":
            if product:
                return (partial(_product_digits, result=result),)
            return partial(_digits, result=result), _pieces
        case "bf16 parts":
            return (_product_specials, _product_range) if product else (_specials, _halves)
        case "f16 parts":
            parts = partial(_product_parts if product else _parts, result=result)
            return (_product_specials if product else _specials, parts)
        case "fixed point":
            return _specials, partial(_fixed, result=result), _pieces
        case "as it is":
            # Additions keep what is not finite to its own results, as on a GPU.
            return () if product or adds_rows(rule.types.ab, rule.types.acc) else (_specials,)


def _unsplit(work: Work) -> Split:
    return Split((work,), itemgetter(0))


# --- Sums and scans -------------------------------------------------------------------------------


def _specials(work: Work) -> Split:
    """Keep infinities and NaN to the results that they are part of.

    They never enter a tensor core, where 0*Inf = NaN would spread them over their tile.
    """
    x = work.arrays["in"]
    finite = np.isfinite(x)
    if finite.all():
        return _unsplit(work)

    def merge(results: Sequence[Array]) -> Array:
        (result,) = results
        # How many infinities of each sign, and NaN, are among the terms of each result.
        above, below, neither = _counted(work, x == np.inf, x == -np.inf, np.isnan(x))
        special = np.where(above > 0, np.inf, -np.inf)
        special[((above > 0) & (below > 0)) | (neither > 0)] = np.nan
        if "carry" in work.arrays:
            special += _repeated(work, work.arrays["carry"])
        values = np.where(above + below + neither == 0, result, special.astype(result.dtype))
        return np.where(np.isnan(values), _nan_of(values), values)

    return Split((work.on(**{"in": np.where(finite, x, x.dtype.type(0))}),), merge)


def _nan_of(values: Array) -> Array:
    """Return the NaN that a GPU's arithmetic writes, in the type of these values."""
    kind = BY_ARRAY_NAME[array_name_of(values.dtype)]
    return from_values(canonical_nan(np.full(1, np.nan, kind.dtype), kind), kind.name)


def _halves(work: Work) -> Split:
    """Take the few float32 values that bf16, the type of the largest part, rounds to infinity.

    Results of which one is a term are computed of halves; the others as if there were none.
    """
    x = work.arrays["in"]
    huge = np.abs(x) > format_of("bf16").largest
    if not huge.any():
        return _unsplit(work)

    def merge(results: Sequence[Array]) -> Array:
        usual, halved = results
        (number,) = _counted(work, huge)
        return np.where(number > 0, np.ldexp(halved, 1).astype(usual.dtype), usual)

    wide = replace(work.problem, types=replace(work.problem.types, result="f32"))
    halved = {
        name: np.ldexp(work.arrays[name], -1) for name in ("in", "carry") if name in work.arrays
    }
    halves = work._replace(problem=wide).on(**halved)
    return Split((work.on(**{"in": np.where(huge, np.float32(0), x)}), halves), merge)


def _parts(work: Work, result: np.dtype[Any]) -> Split:
    """Compute float32 as three float16 parts, each segment scaled so that its largest element fits.

    What lies 2**39 below that is lost.
    """
    x, edges = work.arrays["in"].astype(np.float64), _edges(work)
    lengths = np.diff(edges)
    scales = np.zeros(lengths.size, np.int64)
    tops = np.maximum.reduceat(np.abs(x), edges[:-1][lengths > 0])
    scales[lengths > 0] = 15 - np.frexp(tops)[1]
    each = np.repeat(scales, lengths)
    parts = split_values(np.ldexp(x, each), "f16", 3)
    back = -(scales if _segments_of(work).kind == "reduction" else each)

    def merge(results: Sequence[Array]) -> Array:
        first, second, third = results
        total: Array = np.ldexp(first + (second + third), back)
        return total.astype(result)

    return Split([work.on(**{"in": part.astype(np.float16)}) for part in parts], merge)


def _digits(work: Work, result: np.dtype[Any]) -> Split:
    """Sum integers exactly, digit by digit of 8 bits: modulo 2**64, as NumPy does."""
    dtype = numpy_type(work.problem.types.dtype)
    rest, initial = _apart(work)
    addend = _repeated(work, initial) if initial.size else 0
    works = [rest.on(**{"in": digit.astype(dtype)}) for digit in digits_of(work.arrays["in"])]

    def merge(results: Sequence[Array]) -> Array:
        if result.kind in "iu":
            return _weighed(results, itertools.count(), result, np.asarray(addend, np.int64))
        total, *rest = (np.ldexp(one.astype(np.float64), 8 * i) for i, one in enumerate(results))
        for term in rest:
            total = total + term
        return (total + addend).astype(result)

    return Split(works, merge)


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


def _weighed(
    results: Sequence[Array], places: Iterable[int], result: np.dtype[Any], addend: Any = 0
) -> Array:
    """Return the sum of an addend and of sums of digits of these places, modulo 2**64."""
    total: Ints = np.zeros(results[0].shape, np.int64) + addend
    for one, place in zip(results, places, strict=False):
        if place < 8:
            total += one.astype(np.int64) << (8 * place)
    whole: Array = total.view(np.uint64) if result.kind == "u" else total
    return whole.astype(result)


def _fixed(work: Work, result: np.dtype[Any]) -> Split:
    """Sum numbers of any real type as digits of their fixed point, and round each sum once.

    Digits that are zero throughout take no launch. Those of initial values join the sums.
    """
    x, dtype = work.arrays["in"], numpy_type(work.problem.types.dtype)
    rest, initial = _apart(work)
    finite = np.isfinite(initial)
    number = FixedPoint([x, np.where(finite, initial, 0)])
    digits = {place: np.split(digit, [x.size]) for place, digit in number.digits()}
    launched = [place for place in digits if digits[place][0].any() or not place]

    def merge(results: Sequence[Array]) -> Array:
        sums = {place: one.astype(np.int64) for place, one in zip(launched, results, strict=True)}
        if initial.size:
            for place, (_, digit) in digits.items():
                sums[place] = sums.get(place, 0) + _repeated(work, digit)
        total = number.rounded_once(sums, result)
        if finite.all():
            return total
        special = _repeated(work, np.where(finite, 0, initial)).astype(result)
        return np.where(np.isfinite(special), total, special)

    return Split([rest.on(**{"in": digits[place][0].astype(dtype)}) for place in launched], merge)


def _apart(work: Work) -> tuple[Work, Array]:
    """Return the work without initial values, and these; none if there are none."""
    others = {name: array for name, array in work.arrays.items() if name != "carry"}
    return work._replace(arrays=others), work.arrays.get("carry", np.zeros(0))


def _repeated(work: Work, values: Array) -> Array:
    """Return for each element the value of its segment."""
    return np.repeat(values, np.diff(work.arrays["offsets"]))


def _pieces(work: Work) -> Split:
    """Cut segments that have too many digits for an exact sum; add up those of pieces in int64."""
    p = _segments_of(work)
    pieces = pieces_of(p)
    if pieces is None:
        return _unsplit(work)
    x, edges, most = work.arrays["in"], _edges(work), pieces.most
    counts = -(-np.diff(edges) // most)
    # The segment of each piece, the number of the segment's first one, and where the piece begins.
    first = np.append(0, np.cumsum(counts))
    segment = np.repeat(np.arange(counts.size), counts)
    number = np.arange(segment.size)
    cuts = np.append(edges[segment] + most * (number - first[segment]), p.length)

    def merge(results: Sequence[Array]) -> Array:
        sums: Ints = results[0].astype(np.int64)
        totals = sums
        if p.kind == "scan":
            last = cuts[:-1] if p.order.reverse else cuts[1:] - 1
            totals = sums[last] + (x[last].astype(np.int64) if p.order.exclusive else 0)
        upto = np.append(0, np.cumsum(totals))
        if p.kind == "reduction":
            whole: Ints = upto[first[1:]] - upto[first[:-1]]
            return whole
        later = upto[first[segment + 1]] - upto[number + 1]
        before = later if p.order.reverse else upto[number] - upto[first[segment]]
        sums += np.repeat(before, np.diff(cuts))
        return sums

    offsets = np.append(cuts, np.full(pieces.segments - segment.size, p.length))
    return Split((Work(pieces, {"in": x, "offsets": offsets}),), merge)


def _counted(work: Work, *marks: Bools) -> list[Ints]:
    """Return how many marks of each kind are among the terms of each result."""
    begin, end = _terms(work)
    sums = (np.concatenate([[0], np.cumsum(mark)]) for mark in marks)
    return [before[end] - before[begin] for before in sums]


def _segments_of(work: Work) -> Problem | RaggedProblem:
    assert isinstance(work.problem, (Problem, RaggedProblem))
    return work.problem


def _edges(work: Work) -> Ints:
    """Return where segments begin, and where the last one ends."""
    p = _segments_of(work)
    if isinstance(p, RaggedProblem):
        edges: Ints = work.arrays["offsets"]
        return edges
    assert isinstance(p, Problem)
    return np.minimum(np.arange(p.segments + 1) * p.segment_size, p.length)


def _terms(work: Work) -> tuple[Ints, Ints]:
    """Return where the elements begin and end of which each result is the sum."""
    p, edges = _segments_of(work), _edges(work)
    if p.kind == "reduction":
        return edges[:-1], edges[1:]
    first, last = (np.repeat(ends, np.diff(edges)) for ends in (edges[:-1], edges[1:]))
    own = np.arange(p.length)
    if p.order.reverse:
        return own + p.order.exclusive, last
    return first, own + (not p.order.exclusive)


# --- Products -------------------------------------------------------------------------------------


def _product_of(work: Work) -> ProductProblem:
    assert isinstance(work.problem, ProductProblem)
    return work.problem


def batch(work: Work, starts: Sequence[Mapping[str, int]], inner: int) -> Split:
    """Multiply several matrices one by one.

    starts: where each product's factors, addend and result begin, in elements. inner: of them all.
    """
    p = _product_of(work)
    columns = p.cols or 1
    sizes = {"in": inner * p.rows, p.second: inner * columns, "c": p.rows * columns}
    works = [
        work.on(**{name: x[start[name] :][: sizes[name]] for name, x in work.arrays.items()})
        for start in starts
    ]
    return Split(works, np.concatenate)


def _product_specials(work: Work) -> Split:
    """Take infinities and NaN of float32, which have no parts.

    Every result of a row of `a`, or column of `b`, that holds one is infinite or NaN itself; which
    of them, the signs of the other factors decide.
    """
    a, b, c = work.matrices()
    finite_a, finite_b = np.isfinite(a), np.isfinite(b)
    if finite_a.all() and finite_b.all():
        return _unsplit(work)
    # Sums of infinities, NaN, and of the other factors the signs alone.
    special = np.where(finite_a, np.sign(a), a) @ np.where(finite_b, np.sign(b), b)
    if c is not None:
        special = special + c
    special = special.reshape(-1)

    def merge(results: Sequence[Array]) -> Array:
        (result,) = results
        return np.where(np.isfinite(special), result, special.astype(result.dtype))

    zero = a.dtype.type(0)
    return Split((work.factors(np.where(finite_a, a, zero), np.where(finite_b, b, zero)),), merge)


def _product_range(work: Work) -> Split:
    """Take products of float32 whose parts, or partial sums, are beyond the range of float32.

    Such a result would be NaN: a part is infinite, and the next has the other sign. It is computed
    again of factors that are scaled by powers of two, row by row and column by column, and only
    what is then too large is infinite.
    """
    a, b, c = work.matrices()
    largest = format_of("bf16").largest
    huge_a: Bools = np.abs(a) > largest
    huge_b: Bools = np.abs(b) > largest
    rows, columns = huge_a.any(1, keepdims=True), huge_b.any(0, keepdims=True)
    # Exponents of the largest element of each row and column; that of any sum is below.
    tops = [np.frexp(np.abs(x).max(axis, keepdims=True))[1] for x, axis in ((a, 1), (b, 0))]
    carry = a.shape[1].bit_length()
    top = max(
        int(tops[0].max()) + int(tops[1].max()) + carry,
        0 if c is None else int(np.frexp(np.abs(c.astype(np.float64)).max())[1]),
    )
    shifts = []
    if rows.any() or columns.any():
        shifts.append((-rows.astype(int), -columns.astype(int)))
    if top > 126:
        shifts.append((np.minimum(0, 62 - tops[0]), np.minimum(0, 62 - carry - tops[1])))
    if not shifts:
        return _unsplit(work)

    def merge(results: Sequence[Array]) -> Array:
        """Take each result from the first work in which it is finite."""
        first, *others = (one.reshape(a.shape[0], -1) for one in results)
        result, bad = first, rows | columns | ~np.isfinite(first)
        for scaled, (down, right) in zip(others, shifts, strict=True):
            value = np.ldexp(scaled.astype(np.float64), -down - right)
            if c is not None:
                value = value + c.astype(np.float64)
            result = np.where(bad, value.astype(np.float32).astype(result.dtype), result)
            bad = bad & ~np.isfinite(scaled)
        return result.reshape(-1)

    zero = np.float32(0)
    usual = work.factors(np.where(huge_a, zero, a), np.where(huge_b, zero, b))
    types = replace(work.problem.types, result="f32")
    again = (
        work.product(np.ldexp(a, down), np.ldexp(b, right), types=types) for down, right in shifts
    )
    return Split((usual, *again), merge)


def _product_parts(work: Work, result: np.dtype[Any]) -> Split:
    """Multiply float32 as three float16 parts, each row and column scaled to fit.

    Of the nine products of parts those count that are within 2**-33 of the largest; the smallest
    come first.
    """
    a, b, c = work.matrices()
    scales = [15 - np.frexp(np.abs(x).max(axis, keepdims=True))[1] for x, axis in ((a, 1), (b, 0))]
    lefts, rights = (
        [part.astype(np.float16) for part in split_values(np.ldexp(x, scale), "f16", 3)]
        for x, scale in zip((a, b), scales, strict=True)
    )
    pairs = ((2, 0), (1, 1), (0, 2), (1, 0), (0, 1), (0, 0))

    def merge(results: Sequence[Array]) -> Array:
        """Add the products in order, and what is to be added, by rounded additions in float32."""
        shifts = -scales[0] - scales[1]
        total = np.zeros(shifts.shape, np.float32)
        for one in results:
            total = total + one.reshape(total.shape)
        # Beyond float32's range only for as long as nothing is added: the sum is rounded to it.
        whole: Array = np.ldexp(total.astype(np.float64), shifts)
        if c is not None:
            whole = whole + c.astype(np.float64)
        return whole.astype(np.float32).astype(result).reshape(-1)

    return Split([work.product(lefts[p], rights[q]) for p, q in pairs], merge)


def _product_digits(work: Work, result: np.dtype[Any]) -> Split:
    """Multiply integers exactly, modulo 2**64, by signed digits of 8 bits, in exact slices."""
    a, b, c = work.matrices()
    dtype = numpy_type(work.problem.types.dtype)
    # A product of digits is at most 2**14: s32 holds sums of that many, f32's 24 bits fewer.
    limit = 2**16 if dtype == np.int8 else 2**10
    works, places = [], []
    digits = itertools.product(enumerate(digits_of(a)), enumerate(list(digits_of(b))))
    for ((p, left), (q, right)), first in itertools.product(digits, range(0, a.shape[1], limit)):
        if p + q < 8:
            one = left[:, first : first + limit].astype(dtype)
            two = right[first : first + limit].astype(dtype)
            works.append(work.product(one, two, inner=one.shape[1]))
            places.append(p + q)
    addend = 0 if c is None else c.reshape(-1).astype(np.int64)
    return Split(works, lambda results: _weighed(results, places, result, addend))
