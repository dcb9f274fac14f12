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
    Float64,
    Format,
    Values,
    canonical_nan,
    leading_power,
    round_to_grid,
)
from tcusim.machine.rules import Fused
from tcusim.machine.watch import Watch
from tcusim.machine.whole import are_aligned_whole, multiply

__all__ = ["fused_values"]


def fused_values(
    a: Float64,
    b: Float64,
    c: Float64,
    types: tuple[Format, Format, Format],
    how: Fused,
    watch: Watch | None = None,
    largest: float = math.inf,
) -> Values:
    """Multiply-accumulate tiles in fused steps, k ascending; the last one may have fewer terms.

    a: (W, m, k), b: (W, k, n), c: (W, m, n) acc, all as float64 -> (W, m, n) acc; each W may be 1
    instead. types: of a, b and c. largest: as of `whole.largest_sum`, if that is known.
    """
    left, right, acc = types
    given_a, given_b = a, b
    if how.flush_inputs:
        a, b = _flush(a, left), _flush(b, right)
    # A subnormal of an 8-bit type is normal in fp16.
    if how.register_halves:
        left = right = FORMATS["f16"]
    aligned = watch is None and are_aligned_whole(how, acc, a.shape[2], largest)
    unit = _Unit(left, right, acc, how, watch, aligned)
    for instruction in _instructions(a.shape[2], how):
        d = zero = np.zeros((1, 1, 1))
        if how.c_joins == "sum":
            d = c
        for terms in instruction:
            if watch is not None:
                addends = () if d is zero else (d,)
                watch.begin(_numbers(terms, a.shape[2]), given_a, given_b, *addends)
            d = unit.step(a[:, :, terms], b[:, terms, :], d)
            if watch is not None:
                watch.end(d)
        c = d if how.c_joins == "sum" else unit.add_after(d, c)
    return canonical_nan(c.astype(acc.dtype), acc)


def _flush(values: Float64, fmt: Format) -> Float64:
    """Return zeros in place of subnormals."""
    return np.where(np.abs(values) < 2.0**fmt.emin, 0.0, values)


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

    def step(self, a: Float64, b: Float64, c: Float64) -> Float64:
        """Do one fused step: (W, m, L) @ (W, L, n) + (W, m, n) -> (W, m, n), rounded to acc."""
        if self.how.flush_inputs:
            c = _flush(c, self.acc)
        if self.aligned:
            return self.round_sum(multiply(a, b) + c)
        return self.step_term_by_term(a, b, c)

    @property
    def floor(self) -> float:
        """Two to the power of the least E; 0 for no floor."""
        return 0.0 if self.how.exponent_floor is None else 2.0**self.how.exponent_floor

    def step_term_by_term(self, a: Float64, b: Float64, c: Float64) -> Float64:
        """Do one fused step as the hardware does; shapes as in `step`.

        Tiles go last, so that NumPy's inner loops run along them: a (L, m, 1, W), b (L, 1, n, W).
        """
        a = np.ascontiguousarray(a.transpose(2, 1, 0))[:, :, None, :]
        b = np.ascontiguousarray(b.transpose(1, 2, 0))[:, None, :, :]
        c = np.ascontiguousarray(c.transpose(1, 2, 0))
        top = self.largest_exponent_power(a, b, c)
        # Powers of two: every product below is exact, and a cut term is a whole number of units.
        unit = top * 2.0**-self.how.fraction_bits
        per_unit = 1.0 / unit
        cut = np.trunc if self.how.alignment == "rz" else np.rint
        total = np.broadcast_to(cut(c * per_unit), unit.shape).copy()
        kept = [] if self.watch is None else [total.copy()]
        scratch = np.empty_like(unit)
        for a_term, b_term in zip(a, b, strict=True):
            np.multiply(a_term, b_term, out=scratch)
            np.multiply(scratch, per_unit, out=scratch)
            cut(scratch, out=scratch)
            np.add(total, scratch, out=total)
            if self.watch is not None:
                kept.append(scratch.copy())
        if self.watch is not None:
            self.watch.aligned(self.term_powers(a, b, c), top, kept, total)
        d = self.round_sum(total * unit)
        special = ~np.isfinite(top)
        if special.any():
            # Added as IEEE does, infinities and NaN decide; finite terms cannot overflow.
            np.copyto(d, sum((x * y for x, y in zip(a, b, strict=True)), c), where=special)
        return d.transpose(2, 0, 1)

    def largest_exponent_power(self, a: Float64, b: Float64, c: Float64) -> Float64:
        """Return 2**E for each output; inf or NaN where an operand is not finite.

        A zero has the power 0, so that zero products and a zero c never decide E.
        """
        shape = np.broadcast_shapes(a.shape[1:], b.shape[1:], c.shape)
        top = np.broadcast_to(np.maximum(_exponent_power(c, self.acc), self.floor), shape).copy()
        scratch = np.empty_like(top)
        powers = _exponent_power(a, self.left), _exponent_power(b, self.right)
        for a_term, b_term in zip(*powers, strict=True):
            np.multiply(a_term, b_term, out=scratch)
            np.maximum(top, scratch, out=top)
        # With nothing but zeros any unit serves.
        top[top == 0.0] = 1.0
        return top

    def term_powers(self, a: Float64, b: Float64, c: Float64) -> list[Float64]:
        """Return 2**exponent of c and of each product, 0 for a zero."""
        powers = _exponent_power(a, self.left), _exponent_power(b, self.right)
        return [_exponent_power(c, self.acc), *(x * y for x, y in zip(*powers, strict=True))]

    def round_sum(self, total: Float64) -> Float64:
        """Round a finite sum once to the accumulator's type; to infinity beyond its range."""
        acc, how = self.acc, self.how
        fraction_bits = how.output_fraction_bits or acc.fraction_bits
        d = round_to_grid(total, fraction_bits, acc.emin, how.output)
        if how.flush_outputs:
            d = _flush(d, acc)
        beyond = np.abs(d) > acc.largest
        if beyond.any():
            d[beyond] = np.copysign(np.inf, d[beyond])
        # A sum that is zero, or becomes zero, is +0 whatever its sign was: so says an H200.
        d += 0.0
        return d

    def add_after(self, d: Float64, c: Float64) -> Float64:
        """Add c to a rounded sum in the accumulator's type, to nearest even."""
        if self.watch is not None:
            self.watch.begin((), None, None, d, c)
        if self.how.flush_inputs:
            c = _flush(c, self.acc)
        in_acc: Values = d.astype(self.acc.dtype) + c.astype(self.acc.dtype)
        total: Float64 = in_acc.astype(np.float64)
        if self.how.flush_outputs:
            total = _flush(total, self.acc)
        if self.watch is not None:
            self.watch.end(total)
        return total


def _exponent_power(x: Float64, fmt: Format) -> Float64:
    """Return 2**exponent of each value: subnormals have emin, zeros 0, inf and NaN inf."""
    power = np.maximum(leading_power(x), 2.0**fmt.emin)
    np.copyto(power, 0.0, where=x == 0.0)
    return power
