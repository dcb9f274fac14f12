"""Stages around launches, which make NumPy arrays fit a tensor core's types, and results exact.

A stage is a generator: it yields works made of the one that it is given, is sent the flat result of
each, and returns the flat result of its own. `through` makes one stage of several; the works that
it yields are launched by `Planned.compute`. So there is never more than one work of each stage in
memory. Most stages look at the data, so arrays in GPU memory have none.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.algorithms.builder import adds_rows
from tcusim.arrays.dtypes import TypeRule, numpy_type
from tcusim.arrays.fixed_point import FixedPoint, Integers, Numeral, Place, few_sums, nan_of
from tcusim.arrays.libraries import Array, Ints
from tcusim.arrays.problem import (
    MOST_INNER,
    AnyProblem,
    Problem,
    ProductProblem,
    even_edges,
    rounded_longest,
)
from tcusim.arrays.segments import edges_of_rows
from tcusim.machine import format_of, split_values

Bools: TypeAlias = NDArray[np.bool_]

# Digits of one launch, for all elements of a piece: the memory between launches does not grow with
# the array. A piece has at least _LEAST_PIECE elements.
_PIECE: Final = {"reduction": 2**19, "scan": 2**18}
_LEAST_PIECE: Final = 2**12
# Elements of a part of a piece that is one segment.
_PART: Final = 2**12
# A power of two that brings the last bit of the smallest float32 to that of the smallest bf16; the
# least magnitude without room for it; and the magnitude below which a float32 has bits that bf16
# lacks.
_FINER: Final = 16
_COARSE: Final = 2.0 ** (127 - _FINER)
_MAY_BE_FINE: Final = 2.0**-109
# Elements whose exact sum takes Python less time than a launch.
_FEW: Final = 2**10
# Empty segments that are worth another plan.
_MANY_EMPTY: Final = 2**12


class Work(NamedTuple):
    """A problem, and flat arrays by the names of its inputs."""

    problem: AnyProblem
    arrays: Mapping[str, Array]

    def on(self, **arrays: Array) -> Work:
        """Return the same problem with other arrays."""
        flat = {name: array.reshape(-1) for name, array in arrays.items()}
        return Work(self.problem, {**self.arrays, **flat})

    def matrices(self) -> tuple[Array, Array, Array | None]:
        """Return the factors of a product as matrices, and the addend."""
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


# A stage at work: it yields works, is sent their results, and returns its own.
Steps: TypeAlias = Generator[Work, Array, Array]
Stage: TypeAlias = Callable[[Work], Steps]


def through(work: Work, stages: Sequence[Stage]) -> Steps:
    """Split a work by all stages: the works that one of them yields are the next one's."""
    if not stages:
        return (yield work)
    first, *later = stages
    steps = first(work)
    try:
        one = next(steps)
        while True:
            one = steps.send((yield from through(one, later)))
    except StopIteration as end:
        result: Array = end.value
        return result


def few_summed(work: Work, result: np.dtype[Any]) -> Array | None:
    """Return exact sums of a few elements, for which no launch is worth its time; else None."""
    p = work.problem
    if not isinstance(p, Problem) or p.kind != "reduction" or p.algorithm:
        return None
    return few_sums(work.arrays["in"], _edges(work), result) if p.length <= _FEW else None


def stages_of(rule: TypeRule, problem: AnyProblem) -> tuple[Stage, ...]:
    """Return the stages by which NumPy arrays are computed under a rule of types."""
    if not isinstance(problem, Problem):
        return _stages_of_product(rule)
    first = () if problem.by_offsets is None else (_present,)
    result = numpy_type(rule.result)
    match rule.method:
        case "digits":
            return *first, partial(_digits, numeral=Integers(result))
        case "bf16 parts":
            return *first, _specials, _scaled
        case "f16 parts":
            return *first, _specials, partial(_parts, result=result)
        case "fixed point":
            return *first, partial(_digits, numeral=FixedPoint(result))
        case "as it is":
            # Additions spread infinities and NaN to their own results only, as on a GPU.
            adds = adds_rows(rule.types.ab, rule.types.acc)
            return first if adds else (*first, _specials)


def _stages_of_product(rule: TypeRule) -> tuple[Stage, ...]:
    result = numpy_type(rule.result)
    match rule.method:
        case "digits":
            return (partial(_product_digits, result=result),)
        case "bf16 parts":
            return _product_specials, _product_range
        case "f16 parts":
            return _product_specials, partial(_product_parts, result=result)
        case _:
            return ()


# --- Sums and scans -------------------------------------------------------------------------------


def _present(work: Work) -> Steps:
    """Leave out empty segments, if they are many: their sums are zero, and their scans nothing."""
    p = _segments_of(work)
    lengths = np.diff(_edges(work))
    present = np.flatnonzero(lengths)
    if p.segments - present.size < _MANY_EMPTY:
        return (yield work)
    arrays = dict(work.arrays, offsets=np.append(0, np.cumsum(lengths[present])))
    if "carry" in arrays:
        arrays["carry"] = arrays["carry"][present]
    sums = yield Work(replace(p, by_offsets=present.size), arrays)
    if p.kind == "scan":
        return sums
    result = np.zeros(p.segments, sums.dtype)
    result[present] = sums
    return result


def _specials(work: Work) -> Steps:
    """Keep infinities and NaN to the results that they are part of.

    They never enter a tensor core, where 0*Inf = NaN would spread them over their tile.
    """
    x = work.arrays["in"]
    finite = np.isfinite(x)
    if finite.all():
        return (yield work)
    result = yield work.on(**{"in": np.where(finite, x, x.dtype.type(0))})
    # How many infinities of each sign, and NaN, are among the terms of each result.
    above, below, neither = _counted(work, x == np.inf, x == -np.inf, np.isnan(x))
    special = np.where(above > 0, np.inf, -np.inf)
    special[((above > 0) & (below > 0)) | (neither > 0)] = np.nan
    if "carry" in work.arrays:
        special += _repeated(work, work.arrays["carry"])
    values = np.where(above + below + neither == 0, result, special.astype(result.dtype))
    return np.where(np.isnan(values), nan_of(values.dtype), values)


def _is_huge(x: Array) -> Bools:
    """Mark the elements that bf16, the type of the largest part, rounds to infinity."""
    huge: Bools = np.abs(x) > format_of("bf16").largest
    return huge


def _is_fine(x: Array) -> Bools:
    """Mark the elements that have bits below the smallest bf16, of which no part is made."""
    fine: Bools = (np.abs(x) < _MAY_BE_FINE) & (x != 0)
    if fine.any():
        steps = np.ldexp(x[fine].astype(np.float64), 133)
        fine[fine] = steps != np.rint(steps)
    return fine


def _scaled(work: Work) -> Steps:
    """Compute with float32 values that three bf16 parts do not represent.

    Results with a huge term are computed from halves, and results with a term of too fine bits from
    2**16 times the terms; the others as if there were no such terms.
    """
    x = work.arrays["in"]
    huge, fine = _is_huge(x), _is_fine(x)
    result = yield work.on(**{"in": np.where(huge, np.float32(0), x)}) if huge.any() else work
    wide = replace(work.problem, types=replace(work.problem.types, result="f32"))
    # Terms that are too large to scale keep their results.
    coarse = ~(np.abs(x) < _COARSE)
    for shift, mark, other in ((_FINER, fine, coarse), (-1, huge, np.zeros_like(huge))):
        if not mark.any():
            continue
        terms = {"in": np.where(other, np.float32(0), x)}
        terms |= {name: work.arrays[name] for name in ("carry",) if name in work.arrays}
        larger = {name: np.ldexp(array, shift) for name, array in terms.items()}
        scaled = yield work._replace(problem=wide).on(**larger)
        marked, others = _counted(work, mark, other)
        value = np.ldexp(scaled, -shift).astype(result.dtype)
        result = np.where((marked > 0) & (others == 0), value, result)
    return result


def _parts(work: Work, result: np.dtype[Any]) -> Steps:
    """Compute float32 as three float16 parts, each segment scaled so that its largest element fits.

    Bits below 2**-39 times the largest element are lost.
    """
    x, edges = work.arrays["in"].astype(np.float64), _edges(work)
    # None is empty: those by offsets are added up, and have no parts.
    scales = 15 - np.frexp(np.maximum.reduceat(np.abs(x), edges[:-1]))[1]
    each = np.repeat(scales, np.diff(edges))
    sums = []
    for part in split_values(np.ldexp(x, each), "f16", 3):
        sums.append((yield work.on(**{"in": part.astype(np.float16)})))
    first, second, third = sums
    back = -(scales if _segments_of(work).kind == "reduction" else each)
    total: Array = np.ldexp(first + (second + third), back)
    return total.astype(result)


class _Piece(NamedTuple):
    """Elements [begin, end) of a work, of the segments [first, last).

    starts, ends: whether the first segment begins and the last one ends in it. All have both, but
    parts of a segment that is longer than pieces are; those of a reverse scan start with the last.
    """

    begin: int
    end: int
    first: int
    last: int
    starts: bool = True
    ends: bool = True


def _digits(work: Work, numeral: Numeral) -> Steps:
    """Sum numbers exactly, digit by digit, in pieces.

    A segment of several pieces goes on with the sums of its digits that it had.
    """
    p, x = _segments_of(work), work.arrays["in"]
    initial = work.arrays.get("carry")
    is_scan = p.kind == "scan"
    found: Array = np.zeros(p.length if is_scan else p.segments, numeral.result)
    before: dict[Place, Array] = {}
    for piece in _pieces(p, work, numeral.width(x)):
        if piece.starts:
            own = None if initial is None else initial[piece.first : piece.last]
            before = {} if own is None else numeral.of_initial(own)
        digits = numeral.digits(x[piece.begin : piece.end])
        sums = yield from _sums_of(digits, work, piece)
        if not is_scan:
            before = _added(sums, before)
            if piece.ends:
                found[piece.first : piece.last] = numeral.total(before)
            continue
        if before:
            lengths = np.diff(_edges_of(work, piece))
            before = {place: np.repeat(one, lengths) for place, one in before.items()}
        sums = _added(sums, before)
        found[piece.begin : piece.end] = numeral.total(sums)
        # The sums of all elements so far, which an exclusive scan lacks the last one of.
        at = slice(0, 1) if p.order.reverse else slice(-1, None)
        before = {place: one[at] for place, one in sums.items()}
        if p.order.exclusive:
            before = _added(before, {place: one[at] for place, one in digits.items()})
    return found


def _added(one: Mapping[Place, Array], other: Mapping[Place, Array]) -> dict[Place, Array]:
    """Return the sums, place by place."""
    added = dict(one)
    for place, values in other.items():
        added[place] = added[place] + values if place in added else values
    return added


def _sums_of(
    digits: Mapping[Place, Array], work: Work, piece: _Piece
) -> Generator[Work, Array, dict[Place, Ints]]:
    """Sum the digits of a piece, all in one work; or one by one, if that is as the user named it.

    Those of each place are a row, and rows lie end to end.
    """
    p = _segments_of(work)
    sums: dict[Place, Ints] = {}
    size, dtype = piece.end - piece.begin, numpy_type(p.types.dtype)
    named = p.algorithm is not None or p.strategy is not None
    for places in [[place] for place in digits] if named else [list(digits)]:
        problem, offsets = _problem_of(work, piece, len(places))
        rows = np.zeros((len(places), problem.length // len(places)), dtype)
        for row, place in zip(rows, places, strict=True):
            row[:size] = digits[place]
        made = yield Work(problem, {"in": rows.reshape(-1), **offsets})
        each = made.astype(np.int64).reshape(len(places), -1)
        is_cut = problem.by_offsets is None and piece.last - piece.first == 1
        if is_cut and problem.segments > 1:
            each = _joined(each, rows, problem)
        sums |= dict(zip(places, each[:, : size if p.kind == "scan" else None], strict=True))
    return sums


def _joined(sums: Ints, rows: Array, p: Problem) -> Ints:
    """Return the sums of rows, or their scans, of those of parts of them."""
    if p.kind == "reduction":
        total: Ints = sums.sum(1, keepdims=True)
        return total
    scans = sums.reshape(len(rows), -1, p.segment_size)
    at = 0 if p.order.reverse else -1
    totals = scans[:, :, at].copy()
    if p.order.exclusive:
        totals += rows.reshape(scans.shape)[:, :, at].astype(np.int64)
    turned = totals[:, ::-1] if p.order.reverse else totals
    before = np.cumsum(turned, axis=1) - turned
    scans += (before[:, ::-1] if p.order.reverse else before)[:, :, None]
    return scans.reshape(len(rows), -1)


def _problem_of(work: Work, piece: _Piece, rows: int) -> tuple[Problem, dict[str, Array]]:
    """Return the problem of so many rows of a piece, and offsets if it has some."""
    p, size = _segments_of(work), piece.end - piece.begin
    if rows == 1 and size == p.length:
        others = {name: array for name, array in work.arrays.items() if name == "offsets"}
        return p, others
    segments = piece.last - piece.first
    if p.by_offsets is not None and segments > 1:
        edges = _edges_of(work, piece)
        longest = rounded_longest(int(np.diff(edges).max()), rows * size, p.tile.k)
        problem = replace(p, length=rows * size, by_offsets=rows * segments, longest=longest)
        return problem, {"offsets": edges_of_rows(edges, rows)}
    # A single segment is split into parts, which are quicker to simulate.
    segment = p.segment_size if segments > 1 else min(size, _PART)
    common = {name: getattr(p, name) for name in ("kind", "order", "types", "tile", "arch")}
    common |= {"algorithm": p.algorithm, "strategy": p.strategy}
    # The last segment of each row is filled up with zeros.
    whole = -(-size // segment) * segment
    return Problem(length=rows * whole, segment_size=segment, **common), {}


def _pieces(p: Problem, work: Work, width: int) -> Iterator[_Piece]:
    """Yield pieces of a work whose elements have about so many digits, in the order of the scan.

    Each has whole segments, or is a part of one that is longer.
    """
    most = 1 << (max(_LEAST_PIECE, _PIECE[p.kind] // width).bit_length() - 1)
    most = min(most, p.types.most_digits or most)
    if p.length <= most:
        yield _Piece(0, p.length, 0, p.segments)
    elif p.by_offsets is None and p.segment_size <= most:
        step = most // p.segment_size
        for first in range(0, p.segments, step):
            last = min(first + step, p.segments)
            yield _Piece(first * p.segment_size, min(last * p.segment_size, p.length), first, last)
    else:
        edges, segment = _edges(work), 0
        while segment < p.segments:
            begin = int(edges[segment])
            last = int(np.searchsorted(edges, begin + most, side="right")) - 1
            if last > segment:
                if edges[last] > begin:
                    yield _Piece(begin, int(edges[last]), segment, last)
            else:
                last = segment + 1
                cuts = range(begin, int(edges[last]), most)
                ends = (*cuts[1:], int(edges[last]))
                parts = list(zip(cuts, ends, strict=True))
                for turn, part in enumerate(parts[::-1] if p.order.reverse else parts):
                    yield _Piece(*part, segment, last, not turn, turn == len(parts) - 1)
            segment = last


def _edges_of(work: Work, piece: _Piece) -> Ints:
    """Return the segment bounds of a piece."""
    p = _segments_of(work)
    if not (piece.starts and piece.ends):
        return np.array([0, piece.end - piece.begin])
    if p.by_offsets is not None:
        edges: Ints = work.arrays["offsets"][piece.first : piece.last + 1]
        return edges - piece.begin
    return even_edges(piece.last - piece.first, p.segment_size, piece.end - piece.begin)


def _repeated(work: Work, values: Array) -> Array:
    """Return for each element the value of its segment."""
    return np.repeat(values, np.diff(_edges(work)))


def _counted(work: Work, *marks: Bools) -> list[Ints]:
    """Return the number of marks of each kind among the terms of each result."""
    begin, end = _terms(work)
    sums = (np.concatenate([[0], np.cumsum(mark)]) for mark in marks)
    return [before[end] - before[begin] for before in sums]


def _segments_of(work: Work) -> Problem:
    assert isinstance(work.problem, Problem)
    return work.problem


def _edges(work: Work) -> Ints:
    """Return the segment bounds."""
    p = _segments_of(work)
    if p.by_offsets is not None:
        edges: Ints = work.arrays["offsets"]
        return edges
    return even_edges(p.segments, p.segment_size, p.length)


def _terms(work: Work) -> tuple[Ints, Ints]:
    """Return the bounds of the terms of each result."""
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


def batch(work: Work, starts: Sequence[Mapping[str, int]], inner: int) -> Steps:
    """Multiply several matrices one by one.

    starts: where each product's factors, addend and result begin, in elements. inner: of them all.
    """
    p = _product_of(work)
    columns = p.cols or 1
    sizes = {"in": inner * p.rows, p.second: inner * columns, "c": p.rows * columns}
    results = []
    for start in starts:
        one = {name: x[start[name] :][: sizes[name]] for name, x in work.arrays.items()}
        results.append((yield work.on(**one)))
    return np.concatenate(results)


def _product_specials(work: Work) -> Steps:
    """Take infinities and NaN of float32, which have no parts.

    Every result of a row of `a`, or column of `b`, that holds one is infinite or NaN itself; which
    of them, the signs of the other factors decide.
    """
    a, b, c = work.matrices()
    finite_a, finite_b = np.isfinite(a), np.isfinite(b)
    if finite_a.all() and finite_b.all():
        return (yield work)
    zero = a.dtype.type(0)
    result = yield work.factors(np.where(finite_a, a, zero), np.where(finite_b, b, zero))
    # Sums of infinities, NaN, and of the other factors the signs alone.
    special = np.where(finite_a, np.sign(a), a) @ np.where(finite_b, np.sign(b), b)
    if c is not None:
        special = special + c
    special = special.reshape(-1)
    return np.where(np.isfinite(special), result, special.astype(result.dtype))


def _product_range(work: Work) -> Steps:
    """Take products of float32 of which bf16 parts are not all, or whose sums are beyond its range.

    Where a part or a sum is infinite a result would be NaN, as the next has the other sign, and
    bits below the smallest bf16 would be lost. Such results are computed again of factors that are
    scaled by powers of two, row by row and column by column, as far as the largest element allows.
    Results that are then too large are infinite.
    """
    a, b, c = work.matrices()
    huge_a, huge_b = _is_huge(a), _is_huge(b)
    fine = _is_fine(a).any(1, keepdims=True), _is_fine(b).any(0, keepdims=True)
    rows, columns = (
        huge.any(axis, keepdims=True) | some
        for huge, axis, some in zip((huge_a, huge_b), (1, 0), fine, strict=True)
    )
    # Exponents of the largest element of each row and column; that of any sum is below.
    tops = [np.frexp(np.abs(x).max(axis, keepdims=True))[1] for x, axis in ((a, 1), (b, 0))]
    carry = a.shape[1].bit_length()
    top = max(
        int(tops[0].max()) + int(tops[1].max()) + carry,
        0 if c is None else int(np.frexp(np.abs(c.astype(np.float64)).max())[1]),
    )
    shifts = []
    if rows.any() or columns.any():
        down, right = (
            np.where(some, np.minimum(_FINER * each, 127 - one), 0)
            for some, each, one in zip((rows, columns), fine, tops, strict=True)
        )
        shifts.append((down, right))
        top += int(max(down.max(), 0) + max(right.max(), 0))
    if top > 126:
        shifts.append((np.minimum(0, 62 - tops[0]), np.minimum(0, 62 - carry - tops[1])))
    if not shifts:
        return (yield work)
    zero = np.float32(0)
    usual = yield work.factors(np.where(huge_a, zero, a), np.where(huge_b, zero, b))
    types = replace(work.problem.types, result="f32")
    # Each result is taken from the first work in which it is finite.
    result = usual.reshape(a.shape[0], -1)
    bad = rows | columns | ~np.isfinite(result)
    for down, right in shifts:
        again = yield work.product(np.ldexp(a, down), np.ldexp(b, right), types=types)
        scaled = again.reshape(result.shape)
        value = np.ldexp(scaled.astype(np.float64), -down - right)
        if c is not None:
            value = value + c.astype(np.float64)
        result = np.where(bad, value.astype(np.float32).astype(result.dtype), result)
        bad = bad & ~np.isfinite(scaled)
    return result.reshape(-1)


def _product_parts(work: Work, result: np.dtype[Any]) -> Steps:
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

    # The products and the addend are added in order, by rounded additions in float32.
    shifts = -scales[0] - scales[1]
    total = np.zeros(shifts.shape, np.float32)
    for p, q in pairs:
        one = yield work.product(lefts[p], rights[q])
        total = total + one.reshape(total.shape)
    # Beyond float32's range only for as long as nothing is added: the sum is rounded to it.
    whole: Array = np.ldexp(total.astype(np.float64), shifts)
    if c is not None:
        whole = whole + c.astype(np.float64)
    return whole.astype(np.float32).astype(result).reshape(-1)


def _product_digits(work: Work, result: np.dtype[Any]) -> Steps:
    """Multiply integers exactly, modulo 2**64, by signed digits of 8 bits, in exact slices."""
    a, b, c = work.matrices()
    dtype, numeral = numpy_type(work.problem.types.dtype), Integers(result)
    limit = work.problem.types.most or MOST_INNER[work.problem.types.ab]
    shape = a.shape[0] * b.shape[1]
    sums: dict[Place, Array] = {0: np.zeros(shape, np.int64) if c is None else c.reshape(-1)}
    sums[0] = sums[0].astype(np.int64)
    digits = itertools.product(numeral.digits(a).items(), numeral.digits(b).items())
    for ((p, left), (q, right)), first in itertools.product(digits, range(0, a.shape[1], limit)):
        assert isinstance(p, int)
        assert isinstance(q, int)
        if p + q < 8:
            one = left[:, first : first + limit].astype(dtype)
            two = right[first : first + limit].astype(dtype)
            made = yield work.product(one, two, inner=one.shape[1])
            sums = _added(sums, {p + q: made.astype(np.int64)})
    return numeral.total(sums)
