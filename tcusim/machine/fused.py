"""The fused step of a tensor core, vectorised over all tiles and exact to the bit.

Two ways lead to the same bits. Where no term can lose a bit in the alignment, a step is a
float64 matrix product, which is then exact, and one rounding. Only tiles for which that is not
certain take the general way, term by term.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from tcusim.machine.formats import (
    FORMATS,
    Float64,
    Format,
    Values,
    canonical_nan,
    leading_power,
    lowest_power,
    round_to_grid,
)
from tcusim.machine.rules import Fused

__all__ = ["fused_values"]

# Outputs handled at a time, so that the float64 temporaries stay in a core's cache.
_BATCH_OUTPUTS: Final = 2**14


def fused_values(
    a: Values, b: Values, c: Values, ab: Format, acc: Format, how: Fused, *, careful: bool = False
) -> Values:
    """Multiply-accumulate tiles in fused steps, k ascending.

    a: (W, m, k) ab, b: (W, k, n) ab, c: (W, m, n) acc -> (W, m, n) acc; each W may be 1 instead.
    `careful` sends every tile the general way (for tests and measurements).
    """
    tiles = max(len(a), len(b), len(c)) if len(a) and len(b) and len(c) else 0
    m, n = a.shape[1], b.shape[2]
    result = np.empty((tiles, m, n), acc.dtype)
    batch = max(1, _BATCH_OUTPUTS // max(1, m * n))
    # Invalid and overflowing operations are part of the model: they make NaN and infinity.
    with np.errstate(all="ignore"):
        for first in range(0, tiles, batch):
            part = slice(first, min(first + batch, tiles))
            batch_a = _take(a, part).astype(np.float64)
            batch_b = _take(b, part).astype(np.float64)
            batch_c = _take(c, part).astype(np.float64)
            result[part] = _chain(batch_a, batch_b, batch_c, ab, acc, how, careful)
    return canonical_nan(result, acc)


def _take(operand: Values, part: slice | Values) -> Values:
    """Select tiles of an operand; a single tile serves all."""
    return operand if len(operand) == 1 else operand[part]


def _flush(values: Float64, fmt: Format, how: Fused) -> Float64:
    """Return the operand of a step: subnormals are zeros if the hardware flushes them."""
    if not how.flush_inputs:
        return values
    return np.where(np.abs(values) < 2.0**fmt.emin, 0.0, values)


def _chain(
    a: Float64, b: Float64, c: Float64, ab: Format, acc: Format, how: Fused, careful: bool
) -> Float64:
    """Run the steps of one batch; the last one may have fewer terms."""
    a = _flush(a, ab, how)
    b = _flush(b, ab, how)
    if how.register_halves:
        # What is a subnormal of 8 bits is none in fp16.
        ab = FORMATS["f16"]
    for instruction in _instructions(a.shape[2], how):
        d = c if how.c_joins == "sum" else np.zeros((1, 1, 1))
        for terms in instruction:
            d = _flush(d, acc, how)
            d = _step(a[:, :, terms], b[:, terms, :], d, ab, acc, how, careful)
        c = d if how.c_joins == "sum" else _add_after(d, _flush(c, acc, how), acc, how)
    return c


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


def _step(
    a: Float64, b: Float64, c: Float64, ab: Format, acc: Format, how: Fused, careful: bool
) -> Float64:
    """Do one fused step: (W, m, L) @ (W, L, n) + (W, m, n) -> (W, m, n), rounded to acc."""
    if careful:
        return _step_term_by_term(a, b, c, ab, acc, how)
    lossless = _no_bit_is_lost(a, b, c, ab, acc, how).all(axis=(1, 2))
    if not bool(lossless.any()):
        return _step_term_by_term(a, b, c, ab, acc, how)
    d = _round_sum(_matmul(a, b) + c, acc, how)
    tiles = np.flatnonzero(~lossless)
    if len(tiles):
        chosen_a, chosen_b, chosen_c = _take(a, tiles), _take(b, tiles), _take(c, tiles)
        d[tiles] = _step_term_by_term(chosen_a, chosen_b, chosen_c, ab, acc, how)
    return d


def _no_bit_is_lost(
    a: Float64, b: Float64, c: Float64, ab: Format, acc: Format, how: Fused
) -> Values:
    """Say for each output whether all terms surely fit in the F bits below E; (W, m, n) bool.

    A row of a, a column of b and c bound E from above and every term's lowest bit from below.
    An infinity or a NaN makes the answer no.
    """
    row_top = _exponent_power(a, ab).max(axis=2)[:, :, None]
    column_top = _exponent_power(b, ab).max(axis=1)[:, None, :]
    row_low = lowest_power(a).min(axis=2)[:, :, None]
    column_low = lowest_power(b).min(axis=1)[:, None, :]
    top = np.maximum(row_top * column_top, _exponent_power(c, acc))
    low = np.minimum(row_low * column_low, lowest_power(c))
    if how.exponent_floor is not None:
        top = np.maximum(top, 2.0**how.exponent_floor)
    return np.asarray((top <= low * 2.0**how.fraction_bits) & np.isfinite(top))


def _matmul(a: Float64, b: Float64) -> Float64:
    """Multiply all tiles; one constant b makes it a single tall product."""
    if len(b) > 1 or len(a) == 1:
        return np.asarray(np.matmul(a, b))
    tiles, m, k = a.shape
    return np.asarray(a.reshape(tiles * m, k) @ b[0]).reshape(tiles, m, b.shape[2])


def _step_term_by_term(
    a: Float64, b: Float64, c: Float64, ab: Format, acc: Format, how: Fused
) -> Float64:
    """Do one fused step as the hardware does; shapes as in `_step`.

    Tiles go last, so that NumPy's inner loops run along them: a (L, m, 1, W), b (L, 1, n, W).
    """
    a = np.ascontiguousarray(a.transpose(2, 1, 0))[:, :, None, :]
    b = np.ascontiguousarray(b.transpose(1, 2, 0))[:, None, :, :]
    c = np.ascontiguousarray(c.transpose(1, 2, 0))
    top = _largest_exponent_power(a, b, c, ab, acc, how)
    # Powers of two: every product below is exact, and a cut term is a whole number of units.
    unit = top * 2.0**-how.fraction_bits
    per_unit = 1.0 / unit
    cut = np.trunc if how.alignment == "rz" else np.rint
    total = cut(c * per_unit)
    scratch = np.empty_like(total, shape=per_unit.shape)
    total = np.broadcast_to(total, per_unit.shape).copy()
    for a_term, b_term in zip(a, b, strict=True):
        np.multiply(a_term, b_term, out=scratch)
        np.multiply(scratch, per_unit, out=scratch)
        cut(scratch, out=scratch)
        np.add(total, scratch, out=total)
    d = _round_sum(total * unit, acc, how)
    special = ~np.isfinite(top)
    if bool(special.any()):
        np.copyto(d, _sum_of_specials(a, b, c), where=special)
    return d.transpose(2, 0, 1)


def _largest_exponent_power(
    a: Float64, b: Float64, c: Float64, ab: Format, acc: Format, how: Fused
) -> Float64:
    """Return 2**E for each output; inf or NaN where an operand is not finite.

    A zero has the power 0, so that zero products and a zero c never decide E.
    """
    a_power = _exponent_power(a, ab)
    b_power = _exponent_power(b, ab)
    shape = np.broadcast_shapes(a.shape[1:], b.shape[1:], c.shape)
    top = np.broadcast_to(_exponent_power(c, acc), shape).copy()
    scratch = np.empty_like(top)
    for a_term, b_term in zip(a_power, b_power, strict=True):
        np.multiply(a_term, b_term, out=scratch)
        np.maximum(top, scratch, out=top)
    if how.exponent_floor is not None:
        np.maximum(top, 2.0**how.exponent_floor, out=top)
    # With nothing but zeros any unit serves.
    top[top == 0.0] = 1.0
    return top


def _exponent_power(x: Float64, fmt: Format) -> Float64:
    """Return 2**exponent of each value: subnormals have emin, zeros 0, inf and NaN inf."""
    power = np.maximum(leading_power(x), 2.0**fmt.emin)
    power[x == 0.0] = 0.0
    return power


def _sum_of_specials(a: Float64, b: Float64, c: Float64) -> Float64:
    """Add the terms as IEEE does, where infinities and NaN decide; finite terms cannot overflow."""
    total = c
    for a_term, b_term in zip(a, b, strict=True):
        total = total + a_term * b_term
    return total


def _round_sum(total: Float64, acc: Format, how: Fused) -> Float64:
    """Round an exact finite sum once to the accumulator's type, beyond its range to infinity."""
    bits = acc.fraction_bits if how.output_fraction_bits is None else how.output_fraction_bits
    d = round_to_grid(total, bits, acc.emin, how.output)
    if how.flush_outputs:
        d[np.abs(d) < 2.0**acc.emin] = 0.0
    beyond = np.abs(d) > acc.largest
    if bool(beyond.any()):
        d[beyond] = np.copysign(np.inf, d[beyond])
    # A sum that is zero, or becomes zero, is +0 whatever its sign was: so says an H200.
    d += 0.0
    return d


def _add_after(d: Float64, c: Float64, acc: Format, how: Fused) -> Float64:
    """Add c to a rounded sum in the accumulator's type, to nearest even."""
    rounded: Values = d.astype(acc.dtype) + c.astype(acc.dtype)
    total = rounded.astype(np.float64)
    if how.flush_outputs:
        total[np.abs(total) < 2.0**acc.emin] = 0.0
    return total
