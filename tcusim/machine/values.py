"""Multiply-accumulate tiles of values by a rule: the one entry for every kind of arithmetic."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Final, assert_never

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import InputError
from tcusim.machine.core import rule_core
from tcusim.machine.exact import exact_values
from tcusim.machine.formats import Float64, Format, Values, canonical_nan, format_of, leading_power
from tcusim.machine.fused import fused_values
from tcusim.machine.fused_narrow import NarrowUnit, first_difference, has_pattern
from tcusim.machine.rules import Exact, Fused, Integer, Passes, Rule, Sequential
from tcusim.machine.sequential import sequential_values
from tcusim.machine.watch import Watch
from tcusim.machine.whole import largest_sum, whole_values

# Outputs handled at a time, so that the float64 temporaries stay in a core's cache.
_BATCH_OUTPUTS: Final = 2**14
# Products up to which the rule in C, one output after another, is faster than NumPy's operations on
# all of them: of fused steps, of sequential sums, and of those in f64.
_FEW_FUSED: Final = 2**15
_FEW_SEQUENTIAL: Final = 2**13
_FEW_DOUBLES: Final = 2**62
# An exact sum that float64 does not hold takes NumPy so many times as long as another.
_EXACT_WORK: Final = 2**10


def mma_values(
    a: Values, b: Values, c: Values | None, rule: Rule, watch: Watch | None = None
) -> Values:
    """Return the bits of a @ b + c that an architecture with this rule returns.

    The arrays hold values of the rule's types and are not checked for that; see `as_values`.
    An operand without leading dimensions, or with leading dimensions of 1, is used for every tile
    and never copied.

    Parameters
    ----------
    a : array (..., m, k), rule.ab
        Left operand; leading dimensions broadcast.
    b : array (..., k, n), rule.right
        Right operand.
    c : array (..., m, n), rule.acc, or None
        Addend; None means zeros.
    rule : Rule
        From `rule_for`.
    watch : Watch, optional
        Receives every sum, batch by batch. It costs time and changes no bit.

    Returns
    -------
    array (..., m, n) of the value dtype of rule.acc

    Raises
    ------
    InputError
        If the shapes do not fit.
    """
    multiplier = multiplier_of(rule)
    lead, a, b, c = _to_tiles(a, b, c, multiplier.dtype)
    tiles, m, n = math.prod(lead), *c.shape[1:]
    if a.shape[2] == 0 or tiles * m * n == 0:
        d: Values = np.empty((tiles, m, n), multiplier.dtype)
        d[:] = c
        return d.reshape(*lead, m, n)
    # Invalid and overflowing operations are part of the model: they make NaN and infinity.
    with np.errstate(all="ignore"):
        return multiplier.tiles(a, b, c, watch).reshape(*lead, m, n)


class Multiplier:
    """Multiplies tiles by a rule.

    Attributes
    ----------
    rule : Rule
        The rule.
    dtype : dtype
        Of the values of its accumulator.
    """

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        acc = format_of(rule.acc)
        self.dtype: np.dtype[Any] = acc.dtype
        # Steps on numbers of 4 bytes, if they fit.
        self._narrow: NarrowUnit | None = None
        if isinstance(rule.how, Fused) and not rule.b and rule.passes is None:
            self._narrow = NarrowUnit.of(format_of(rule.ab), acc, rule.how)
        # Products that C does faster.
        self._few = 0
        if isinstance(rule.how, Fused) and self._narrow is None:
            self._few = _FEW_FUSED
        elif isinstance(rule.how, Sequential) and rule.ab == "f64":
            self._few = _FEW_DOUBLES
        elif isinstance(rule.how, Sequential) and acc.name != "f64":
            self._few = _FEW_SEQUENTIAL

    def tiles(self, a: Values, b: Values, c: Values, watch: Watch | None = None) -> Values:
        """Return a @ b + c of tiles that fit and are not empty; NumPy may warn of its operations.

        a: (W, m, k), b: (W, k, n), c: (W, m, n) -> (W, m, n); each W may be 1 instead. `watch`: as
        in `mma_values`.
        """
        narrow = None if watch is not None else self._narrow
        found = None
        if narrow is not None:
            found = narrow.compiled(a, b, c)
            if found is None and not _may_be_whole(a, b, c):
                found = narrow.values(a, b, c)
        if found is None and watch is None and self._few:
            few = self._in_c(a, b, c)
            if few is not None:
                return few
        if found is None:
            shape = max(len(a), len(b), len(c)), a.shape[1], b.shape[2]
            d: Values = np.empty(shape, self.dtype)
            _fill(d, slice(None), self.rule, (a, b, c), watch)
            return d
        d, odd = found
        if odd is not None and odd.any():
            d = np.array(d)
            _fill(d, np.flatnonzero(odd), self.rule, (a, b, c), None)
        return d

    def _in_c(self, a: Values, b: Values, c: Values) -> Values | None:
        """Return `tiles` of few products by the rule in C; None if NumPy is to do them."""
        work = max(len(a), len(b), len(c)) * a.shape[1] * a.shape[2] * b.shape[2]
        if work > self._few or _may_be_whole(a, b, c):
            return None
        compiled = rule_core(self.rule, work, first_difference)
        return None if compiled is None else compiled.multiply(a, b, c)


@lru_cache(maxsize=256)
def multiplier_of(rule: Rule) -> Multiplier:
    """Return the multiplier of a rule."""
    return Multiplier(rule)


def _may_be_whole(a: Values, b: Values, c: Values) -> bool:
    """Whether tiles may be integers, for which one float64 product is enough.

    If one operand is a constant of zeros and ones, this pays only for few tiles.
    """
    if not (_is_whole(a.item(0)) and _is_whole(b.item(0)) and _is_whole(c.item(0))):
        return False
    few = max(len(a), len(b), len(c)) * c.shape[1] * c.shape[2] <= _BATCH_OUTPUTS
    return few or not (has_pattern(a, b) or has_pattern(b, a))


_is_whole: Final = float.is_integer


def _fill(
    d: Values,
    tiles: slice | NDArray[np.intp],
    rule: Rule,
    operands: tuple[Values, Values, Values],
    watch: Watch | None,
) -> None:
    """Compute these tiles of d, by the definition, so many at a time."""
    numbers = np.arange(len(d))[tiles]
    batch = max(1, _BATCH_OUTPUTS // max(1, d.shape[1] * d.shape[2]))
    for first in range(0, numbers.size, batch):
        part = numbers[first : first + batch]
        left, right, addend = ((x if len(x) == 1 else x[part]).astype(np.float64) for x in operands)
        d[part] = _batch(rule, left, right, addend, watch)
        if rule.nan:
            d[part] = with_nan(d[part], rule)


def with_nan(values: Values, rule: Rule) -> Values:
    """Replace the NaN of the arithmetic by the NaN that the unit writes by its rule."""
    if rule.nan == "ones":
        canonical_nan(values, rule.acc)
    elif rule.nan:
        values[np.isnan(values)] = np.nan
    return values


def _batch(rule: Rule, a: Float64, b: Float64, c: Float64, watch: Watch | None = None) -> Values:
    """Multiply-accumulate some tiles: (W, m, k) @ (W, k, n) + (W, m, n); each W may be 1."""
    if rule.passes is not None:
        return _in_passes(rule, rule.passes, (a, b, c), watch)
    types = format_of(rule.ab), format_of(rule.right), format_of(rule.acc)
    ab, _, acc = types
    largest = math.inf
    # Where 1 is a subnormal number, integers are not aligned by exponents of their own.
    usual = max(one.emin for one in types) <= 0
    if watch is None and usual and not isinstance(rule.how, Integer):
        largest = largest_sum(a, b, c)
        whole = whole_values(a, b, c, acc, rule.how, largest)
        if whole is not None:
            return whole
    match rule.how:
        case Fused():
            return fused_values(a, b, c, types, rule.how, watch, largest)
        case Sequential():
            return sequential_values(a, b, c, types, rule.how, watch)
        case Exact():
            outputs = partial(_exact_outputs, replace(rule, how=Exact()))
            return exact_values(a, b, c, (ab, acc), rule.how, watch, outputs)
        case Integer():
            return _integer_values(a, b, c, rule.how, watch)
        case _:
            assert_never(rule.how)


def _exact_outputs(rule: Rule, rows: Float64, columns: Float64, addends: Float64) -> Values | None:
    """Return exact sums by the rule in C: of rows (N, k), columns (N, k), addends (N,)."""
    compiled = rule_core(rule, rows.size * _EXACT_WORK, first_difference)
    if compiled is None:
        return None
    return compiled.multiply(rows[:, None], columns[:, :, None], addends[:, None, None])[:, 0, 0]


def _in_passes(
    rule: Rule, passes: Passes, operands: tuple[Float64, Float64, Float64], watch: Watch | None
) -> Values:
    """Multiply-accumulate some tiles in passes over the bits of a and b."""
    a, b, c = operands
    whole = replace(rule, passes=None)
    left = _parts(a, format_of(rule.ab), passes.left)
    right = _parts(b, format_of(rule.right), passes.right)
    k = a.shape[2]
    length = getattr(rule.how, "length", None) or k
    d = c
    for start in range(0, k, length):
        group = slice(start, start + length)
        rows, columns = a[:, :, group], b[:, group]
        finite = np.isfinite(rows).all(axis=2, keepdims=True)
        finite = finite & np.isfinite(columns).all(axis=1, keepdims=True)
        before, alone = d, None if finite.any() else watch
        for i, j in passes.pairs if finite.any() else ():
            if watch is not None:
                watch.passing(start, i, j)
            d = _batch(whole, left[i][:, :, group], right[j][:, group], d, watch).astype(np.float64)
        if not finite.all():
            d = np.where(finite, d, _batch(whole, rows, columns, before, alone).astype(np.float64))
    return d.astype(format_of(rule.acc).dtype)


def _parts(x: Float64, fmt: Format, bits: tuple[int, ...]) -> list[Float64]:
    """Return the parts of numbers by the bits of their significands, the highest first."""
    known = np.where(np.isfinite(x), x, 0.0)
    quantum = 1.0 if not fmt.is_float else np.maximum(leading_power(known), 2.0**fmt.emin)
    # Of bits from the leading one on, which of an integer is that of the largest magnitude.
    parts, last, seen = [], np.zeros_like(known), -1 if fmt.is_float else -fmt.bits
    for one in bits:
        seen += one
        # Not in units of twice the quantum, which float64 may not hold.
        kept = np.trunc(known / quantum * 2.0**seen) * 2.0**-seen * quantum
        parts.append(np.copysign(kept - last, x))
        last = kept
    return parts


def _integer_values(
    a: Float64, b: Float64, c: Float64, how: Integer, watch: Watch | None
) -> Values:
    """Return the integers a @ b + c, within 32 bits."""
    k = a.shape[2]
    length = how.length or k
    if how.is_basic:
        length = k
    for start in range(0, k, length):
        group = slice(start, start + length)
        if watch is not None:
            watch.begin(range(k)[group], a, b, c)
        # A product is at most 2**16, so float64 sums are exact for every k that fits in memory.
        sums = _wrapped(np.asarray(np.matmul(a[:, :, group], b[:, group])), how.sum_bits)
        if how.overflow == "wrap":
            c = _wrapped(sums + c, 32)
        else:
            least = -(2.0**31) + (how.overflow == "symmetric")
            c = np.clip(sums + c, least, 2.0**31 - 1)
        if watch is not None:
            watch.end(c)
    return c.astype(np.int32)


def _wrapped(whole: Float64, bits: int) -> Float64:
    """Return integers modulo 2**bits, in two's complement."""
    if bits == 32:
        return whole.astype(np.int64).astype(np.int32).astype(np.float64)
    half = 2.0 ** (bits - 1)
    return np.asarray(np.mod(whole + half, 2.0 * half) - half)


def _to_tiles(
    a: Values, b: Values, c: Values | None, acc_dtype: np.dtype[np.generic]
) -> tuple[tuple[int, ...], Values, Values, Values]:
    """Flatten the leading dimensions to one, of length W or (for an operand that serves all) 1."""
    for name, operand in (("a", a), ("b", b), ("c", c)):
        if operand is not None and operand.ndim < 2:
            raise InputError(
                f"{name} must have at least 2 dimensions (a matrix, or a stack of them), "
                f"got shape {operand.shape}"
            )
    m, k = a.shape[-2:]
    n = b.shape[-1]
    if b.shape[-2] != k:
        raise InputError(
            f"a and b must agree in k: a (..., m, k) has shape {a.shape}, "
            f"b (..., k, n) has shape {b.shape}, so k is {k} and {b.shape[-2]}"
        )
    if c is None:
        c = np.zeros((m, n), acc_dtype)
    if c.shape[-2:] != (m, n):
        raise InputError(
            f"c must be (..., m, n) = (..., {m}, {n}) for a of shape {a.shape} and "
            f"b of shape {b.shape}, got shape {c.shape}"
        )
    leads = [operand.shape[:-2] for operand in (a, b, c)]
    try:
        lead = np.broadcast_shapes(*leads)
    except ValueError:
        raise InputError(
            f"the leading dimensions of a, b and c must broadcast, got {leads[0]}, {leads[1]} "
            f"and {leads[2]}"
        ) from None
    return lead, _flat(a, lead), _flat(b, lead), _flat(c, lead)


def _flat(operand: Values, lead: tuple[int, ...]) -> Values:
    """Return the operand as (W, rows, columns), or (1, rows, columns) if one tile serves all."""
    tile = operand.shape[-2:]
    if math.prod(operand.shape[:-2]) == 1 and math.prod(lead) != 0:
        return operand.reshape(1, *tile)
    return np.broadcast_to(operand, lead + tile).reshape(math.prod(lead), *tile)
