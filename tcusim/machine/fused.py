"""The fused step of a tensor core, vectorised over all tiles and exact to the bit: the definition.

`fused_narrow` returns the same bits of most tiles, several times as fast. Where it is known that no
term can lose a bit in the alignment, a step is a float64 matrix product and one rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tcusim.machine.formats import (
    FORMATS,
    ROUNDED,
    Float64,
    Format,
    Values,
    canonical_nan,
    flushed,
    leading_power,
    round_to_grid,
)
from tcusim.machine.rules import Fused, Late
from tcusim.machine.sequential import round_to_odd, two_sum
from tcusim.machine.watch import Watch
from tcusim.machine.whole import are_aligned_whole, multiply


def fused_values(
    a: Float64,
    b: Float64,
    c: Float64,
    types: tuple[Format, Format, Format],
    how: Fused,
    watch: Watch | None = None,
    largest: float = math.inf,
    powers: tuple[Float64, Float64] | None = None,
) -> Values:
    """Multiply-accumulate tiles in fused steps, k ascending; the last one may have fewer terms.

    a: (W, m, k), b: (W, k, n), c: (W, m, n) acc, all as float64 -> (W, m, n) acc; each W may be 1
    instead. types: of a, b and c. largest: the result of `whole.largest_sum`, if known. powers: the
    factors of each product's power in the alignment, in the shapes of a and b; by default the
    powers of the operands.
    """
    left, right, acc = types
    given_a, given_b = a, b
    if how.flush_inputs:
        a, b = flushed(a, left), flushed(b, right)
    # A subnormal of an 8-bit type is normal in fp16.
    if how.register_halves:
        left = right = FORMATS["f16"]
    aligned = watch is None and are_aligned_whole(how, acc, a.shape[2], largest)
    unit = _Unit(left, right, acc, how, watch, aligned)
    for instruction in _instructions(a.shape[2], how):
        d = zero = np.zeros((1, 1, 1))
        if how.c_joins != "after":
            d = c
        for terms in instruction:
            if watch is not None:
                addends = () if d is zero else (d,)
                watch.begin(_numbers(terms, a.shape[2]), given_a, given_b, *addends)
            factors = powers and (powers[0][:, :, terms], powers[1][:, terms, :])
            d = unit.step(a[:, :, terms], b[:, terms, :], d, factors)
            if watch is not None:
                watch.end(d)
        c = unit.add_after(d, c) if how.c_joins == "after" else d
    return canonical_nan(c.astype(acc.dtype), acc)


def _instructions(k: int, how: Fused) -> Iterator[list[slice | list[int]]]:
    """Yield the terms of each fused step, by instruction: c joins an instruction once."""
    if not how.register_halves:
        for start in range(0, k, how.length):
            yield [slice(start, start + how.length)]
        return
    for start in range(0, k, 2 * how.length):
        here = range(start, min(start + 2 * how.length, k))
        halves = [[i for i in here if (i - start) % 4 // 2 == half] for half in (0, 1)]
        yield [terms for terms in halves if terms]


def _numbers(terms: slice | list[int], k: int) -> Sequence[int]:
    """Return the indices of a step's products."""
    return range(k)[terms] if isinstance(terms, slice) else terms


class _Sum(NamedTuple):
    """A sum of terms: its whole number of units, a unit, and 2**E; each (m, n, W)."""

    whole: Float64
    unit: Float64
    top: Float64


class _Unit(NamedTuple):
    """A fused arithmetic, with the types of operands and accumulator as its steps see them.

    aligned: whether it is known that no bit is lost in the alignment.
    """

    left: Format
    right: Format
    acc: Format
    how: Fused
    watch: Watch | None = None
    aligned: bool = False

    def step(
        self, a: Float64, b: Float64, c: Float64, powers: tuple[Float64, Float64] | None = None
    ) -> Float64:
        """Do one fused step: (W, m, L) @ (W, L, n) + (W, m, n) -> (W, m, n), rounded to acc."""
        if self.how.flush_inputs:
            c = flushed(c, self.acc)
        if self.aligned:
            return round_sum(multiply(a, b) + c, self.acc, self.how)
        # Tiles go last, so that NumPy's inner loops run along them.
        rows, columns = _tiles_last(a, b)
        factors = self.powers_of_factors(rows, columns) if powers is None else _tiles_last(*powers)
        d = self.step_term_by_term(
            rows, columns, np.ascontiguousarray(c.transpose(1, 2, 0)), factors
        )
        return d.transpose(2, 0, 1)

    @property
    def floor(self) -> float:
        """Two to the power of the least E; 0 for no floor."""
        return 0.0 if self.how.exponent_floor is None else 2.0**self.how.exponent_floor

    def step_term_by_term(
        self, a: Float64, b: Float64, c: Float64, powers: tuple[Float64, Float64]
    ) -> Float64:
        """Do one fused step as the hardware does: a (L, m, 1, W), b (L, 1, n, W), c (m, n, W)."""
        how = self.how
        late = isinstance(how.c_joins, Late)
        addend = None if late else c
        parts = [
            self.aligned_sum(
                [x[i :: how.sums] for x in (a, b, *powers)], addend if i == 0 else None
            )
            for i in range(min(how.sums, len(a)))
        ]
        total = parts[0] if len(parts) == 1 else self.join_parts(parts)
        special = ~np.isfinite(total.top)
        if isinstance(how.c_joins, Late):
            total = self.join_late(total, c, how.c_joins)
            special |= ~np.isfinite(total.top)
        exact = total.whole * total.unit
        if self.watch is not None:
            self.watch.summed(exact)
        d = round_sum(exact, self.acc, how)
        if how.overflow == "product":
            self.set_overflown(d, a, b)
        if special.any():
            # Added as IEEE does, infinities and NaN decide; finite terms cannot overflow.
            np.copyto(d, sum((x * y for x, y in zip(a, b, strict=True)), c), where=special)
        return d

    def aligned_sum(self, factors: Sequence[Float64], c: Float64 | None) -> _Sum:
        """Return the exact sum of the truncated terms.

        factors: a, b, and the factors of their products' powers. c: None if it joins later.
        """
        how = self.how
        a, b, left, right = factors
        top = self.largest_power(left, right, c)
        # Powers of two: every product below is exact, and a cut term is a whole number of units.
        unit = _some_power(top) * 2.0**-how.fraction_bits
        per_unit = 1.0 / unit
        cut = ROUNDED["rz" if how.alignment == "sticky" else how.alignment]
        # Whether bits were lost, if the sum is told.
        lost = np.zeros(unit.shape, bool) if how.alignment == "sticky" else None
        whole = np.zeros(unit.shape) if c is None else c * per_unit
        total = np.broadcast_to(cut(whole), unit.shape).copy()
        if lost is not None:
            lost |= total != whole
        kept = [] if self.watch is None or c is None else [total.copy()]
        scratch = np.empty_like(unit)
        for first in range(0, len(a), how.presum):
            np.multiply(a[first], b[first], out=scratch)
            for i in range(first + 1, min(first + how.presum, len(a))):
                scratch += a[i] * b[i]
            np.multiply(scratch, per_unit, out=scratch)
            if lost is not None:
                lost |= scratch != np.trunc(scratch)
            cut(scratch, out=scratch)
            np.add(total, scratch, out=total)
            if self.watch is not None:
                kept.append(scratch.copy())
        if self.watch is not None:
            # The products of a sum of several have one power.
            powers = self.term_powers(left[:: how.presum], right[:: how.presum], c)
            self.watch.aligned(list(powers), top, kept, total)
        if lost is not None:
            bits = how.output_fraction_bits or self.acc.fraction_bits
            place = np.maximum(leading_power(total * unit), 2.0**self.acc.emin) * 2.0**-bits
            # A quarter of the last place of the result too, so that it decides ties and directions
            # only: after cancellation a unit is more than that place.
            sticky = np.minimum(1.0, place * per_unit) * 0.25
            total += np.where(lost & (total != 0.0), np.copysign(sticky, total), 0.0)
        return _Sum(total, unit, top)

    def join_parts(self, parts: list[_Sum]) -> _Sum:
        """Return the sum of partial sums, each truncated to F bits below the largest E."""
        joins = self.how.c_joins
        alignment = joins.alignment if isinstance(joins, Late) else self.how.alignment
        cut = ROUNDED["rz" if alignment == "sticky" else alignment]
        top = parts[0].top
        for one in parts[1:]:
            top = np.maximum(top, one.top)
        unit = _some_power(top) * 2.0**-self.how.fraction_bits
        total = sum((cut(one.whole * (one.unit / unit)) for one in parts), np.zeros_like(unit))
        return _Sum(np.asarray(total), unit, top)

    def join_late(self, products: _Sum, c: Float64, late: Late) -> _Sum:
        """Return the sum of products and c, each truncated below the larger exponent."""
        cut = ROUNDED[late.alignment]
        power = exponent_power(c, self.acc)
        top = np.maximum(products.top, power)
        if late.floor is not None:
            top = np.maximum(top, 2.0**late.floor)
        if late.reach is not None:
            c = np.where(power * 2.0**late.reach < products.top, 0.0, c)
        top = _some_power(top)
        bits = max(late.sum_bits, late.c_bits)
        unit = top * 2.0**-bits
        whole = cut(products.whole * (products.unit / (top * 2.0**-late.sum_bits)))
        whole = whole * 2.0 ** (bits - late.sum_bits)
        whole = whole + cut(c / (top * 2.0**-late.c_bits)) * 2.0 ** (bits - late.c_bits)
        return _Sum(whole, unit, top)

    def set_overflown(self, d: Float64, a: Float64, b: Float64) -> None:
        """Make d infinite where a product is beyond the accumulator's range, NaN where both are."""
        limit = 2.0 ** (self.acc.emax + 1)
        beyond = np.zeros_like(d)
        for x, y in zip(a, b, strict=True):
            product = x * y
            beyond += np.where(np.abs(product) >= limit, np.copysign(np.inf, product), 0.0)
        np.copyto(d, beyond, where=beyond != 0.0)

    def largest_power(self, left: Float64, right: Float64, c: Float64 | None) -> Float64:
        """Return 2**E for each output: 0 for zeros alone, inf or NaN if a term is not finite."""
        shape = np.broadcast_shapes(left.shape[1:], right.shape[1:], () if c is None else c.shape)
        top = np.full(shape, self.floor)
        for power in self.term_powers(left, right, c):
            np.maximum(top, power, out=top)
        return top

    def powers_of_factors(self, a: Float64, b: Float64) -> tuple[Float64, Float64]:
        """Return factors of the power of each product, as the alignment takes it; scales are 1."""
        if self.how.exponents == "products":
            # Of an infinity or a NaN too: the leading power of a product is its own.
            return a, np.abs(b)
        if self.how.exponents == "scales":
            return np.where(np.isfinite(a), 1.0, np.inf), np.where(np.isfinite(b), 1.0, np.inf)
        upper = 2.0 if self.how.exponents == "upper" else 1.0
        return exponent_power(a, self.left), exponent_power(b, self.right) * upper

    def term_powers(self, left: Float64, right: Float64, c: Float64 | None) -> Iterator[Float64]:
        """Yield 2**exponent of c, if it is a term, and of each product, 0 for a zero.

        left, right: factors of the powers of products.
        """
        if c is not None:
            yield exponent_power(c, self.acc)
        for one, other in zip(left, right, strict=True):
            power = one * other
            yield leading_power(power) if self.how.exponents == "products" else power

    def add_after(self, d: Float64, c: Float64) -> Float64:
        """Add c to a rounded sum in the accumulator's type."""
        if self.watch is not None:
            self.watch.begin((), None, None, d, c)
        if self.how.flush_inputs:
            # It counts as +0.
            c = flushed(c, self.acc) + 0.0
        if self.how.addition == "rne":
            in_acc: Values = d.astype(self.acc.dtype) + c.astype(self.acc.dtype)
            total: Float64 = in_acc.astype(np.float64)
        else:
            exact = round_to_odd(*two_sum(d, c))
            total = round_to_grid(exact, self.acc.fraction_bits, self.acc.emin, self.how.addition)
            beyond = np.abs(total) > self.acc.largest
            np.copyto(total, np.copysign(np.inf, total), where=beyond)
            np.copyto(total, exact, where=~np.isfinite(exact) | (exact == 0.0))
        if self.how.flush_outputs:
            total = flushed(total, self.acc) + 0.0
        if self.watch is not None:
            self.watch.end(total)
        return total


def round_sum(total: Float64, acc: Format, how: Fused) -> Float64:
    """Round a finite sum once to the accumulator's type; to infinity beyond its range."""
    fraction_bits = how.output_fraction_bits or acc.fraction_bits
    d = round_to_grid(total, fraction_bits, acc.emin, how.output)
    if how.flush_outputs:
        d = flushed(d, acc)
    beyond = np.abs(d) > acc.largest
    if beyond.any():
        d[beyond] = np.copysign(np.inf, d[beyond])
    # A sum that is zero, or becomes zero, is +0 whatever its sign was: so says an H200.
    d += 0.0
    if how.zeros == "signed":
        np.copyto(d, -0.0, where=(d == 0.0) & (total < 0.0))
    return d


def _tiles_last(rows: Float64, columns: Float64) -> tuple[Float64, Float64]:
    """Return (W, m, L) and (W, L, n) as (L, m, 1, W) and (L, 1, n, W)."""
    return (
        np.ascontiguousarray(rows.transpose(2, 1, 0))[:, :, None, :],
        np.ascontiguousarray(columns.transpose(1, 2, 0))[:, None, :, :],
    )


def _some_power(top: Float64) -> Float64:
    """Return 2**E with 1 for 0: with nothing but zeros any unit serves."""
    nothing = top == 0.0
    return np.where(nothing, 1.0, top) if nothing.any() else top


def exponent_power(x: Float64, fmt: Format) -> Float64:
    """Return 2**exponent of each value: subnormals have emin, zeros 0, inf and NaN inf."""
    power = np.maximum(leading_power(x), 2.0**fmt.emin)
    np.copyto(power, 0.0, where=x == 0.0)
    return power
