"""Products of blocks with scales of their own: the microscaling formats, and nvfp4.

Source: Open Compute Project, "Microscaling Formats (MX)" v1.0, for the formats; [MMASIM25] for the
arithmetic of mxf8f6f4 and mxf4nvf4.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from tcusim.errors import InputError, require_choice
from tcusim.machine.convert import as_array, as_values
from tcusim.machine.formats import (
    ROUNDED,
    Float64,
    Values,
    canonical_nan,
    format_of,
    leading_power,
)
from tcusim.machine.fused import exponent_power, round_sum
from tcusim.machine.rules import SCALES, Fused, Rule
from tcusim.machine.values import with_nan

__all__ = ["as_scales", "scaled_mma"]

# Outputs handled at a time.
_BATCH: Final = 2**14


def as_scales(array: ArrayLike, kind: str, name: str) -> Float64:
    """Return scales as float64.

    Parameters
    ----------
    array : array_like
        Elements of ``float8_e8m0fnu`` or ``float8_e4m3fn``, or numbers that these hold.
    kind : {"ue8m0", "ue4m3"}
        Powers of two from 2**-127 to 2**127; or numbers of e4m3, of which the sign is ignored.
    name : str
        Name of the argument, for errors.

    Raises
    ------
    InputError
        If a number is none of the type.
    """
    require_choice("scale", kind, SCALES)
    if kind == "ue4m3":
        return np.abs(as_values(array, "e4m3", name=name).astype(np.float64))
    given = as_array(array, name)
    if given.dtype.name == "float8_e8m0fnu":
        with np.errstate(invalid="ignore"):
            numbers = given.astype(np.float64)
    else:
        numbers = as_values(array, "f64", name=name)
    power = leading_power(numbers)
    fits = (numbers == power) & (power >= 2.0**-127) & (power <= 2.0**127)
    wrong = ~(fits | np.isnan(numbers))
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise InputError(
            f"{name} must hold powers of two from 2**-127 to 2**127, as ue8m0 does, got element "
            f"{list(at)} = {numbers[at]:g}"
        )
    return numbers


def scaled_mma(
    a: Values, b: Values, c: Values | None, scales: tuple[Float64, Float64], rule: Rule
) -> Values:
    """Return the bits of (a * scales) @ (b * scales) + c by a rule with block scales.

    a: (..., m, k), b: (..., k, n), c: (..., m, n); scales: (..., m, k / block) of a's rows and
    (..., k / block, n) of b's columns. Leading dimensions broadcast.

    Raises
    ------
    InputError
        If the shapes do not fit.
    """
    m, k, n = *a.shape[-2:], b.shape[-1]
    left, right = scales
    blocks = k // rule.block
    if b.shape[-2] != k or k % rule.block:
        raise InputError(
            f"a and b must agree in k, a multiple of {rule.block}, got {k} and {b.shape[-2]}"
        )
    for name, found, due in (("scale_a", left, (m, blocks)), ("scale_b", right, (blocks, n))):
        if found.shape[-2:] != due:
            raise InputError(f"{name} must be (..., {due[0]}, {due[1]}), got shape {found.shape}")
    acc = format_of(rule.acc)
    addend = np.zeros((m, n), acc.dtype) if c is None else c
    lead = np.broadcast_shapes(*(x.shape[:-2] for x in (a, b, addend, left, right)))
    whole = [
        np.broadcast_to(x, (*lead, *x.shape[-2:])).reshape(math.prod(lead), *x.shape[-2:])
        for x in (a, b, addend, left, right)
    ]
    d: Values = np.empty((math.prod(lead), m, n), acc.dtype)
    size = max(1, _BATCH // max(1, m * n))
    with np.errstate(all="ignore"):
        for first in range(0, len(d), size):
            part = [x[first : first + size].astype(np.float64) for x in whole]
            d[first : first + size] = _values(part, rule)
    return d.reshape(*lead, m, n)


def _values(operands: list[Float64], rule: Rule) -> Values:
    """Multiply-accumulate some tiles in steps, k ascending."""
    a, b, d, left, right = operands
    how, acc = rule.how, format_of(rule.acc)
    assert isinstance(how, Fused)
    for start in range(0, a.shape[2], how.length):
        terms = range(a.shape[2])[start : start + how.length]
        d = _step((a, b, d, left, right), terms, rule)
    return with_nan(canonical_nan(d.astype(acc.dtype), acc), rule)


def _step(operands: tuple[Float64, ...], products: range, rule: Rule) -> Float64:
    """Do one step: scale the sums of groups of products, align them and c, cut, add, round."""
    a, b, c, left, right = operands
    how, acc = rule.how, format_of(rule.acc)
    assert isinstance(how, Fused)
    terms, powers = [c], [exponent_power(c, acc)]
    for first in range(products[0], products[-1] + 1, how.presum):
        group, block = slice(first, first + how.presum), first // rule.block
        scales = left[:, :, block, None], right[:, block, None, :]
        terms.append(np.matmul(a[:, :, group], b[:, group]) * scales[0] * scales[1])
        power = _scale_power(scales[0], rule) * _scale_power(scales[1], rule)
        if how.exponents == "operands":
            factors = a[:, :, first, None], b[:, first, None, :]
            types = format_of(rule.ab), format_of(rule.right)
            for factor, fmt in zip(factors, types, strict=True):
                power = power * exponent_power(factor, fmt)
        powers.append(power)
    top = np.asarray(0.0 if how.exponent_floor is None else 2.0**how.exponent_floor)
    for one in powers:
        top = np.maximum(top, one)
    unit = np.where(top == 0.0, 1.0, top) * 2.0**-how.fraction_bits
    cut = ROUNDED["rz" if how.alignment == "sticky" else how.alignment]
    total, exact = np.zeros(unit.shape), np.zeros(unit.shape)
    for one in terms:
        total += cut(one / unit)
        exact += one
    d = round_sum(total * unit, acc, how)
    np.copyto(d, exact, where=~np.isfinite(exact))
    return d


def _scale_power(scale: Float64, rule: Rule) -> Float64:
    """Return 2**exponent of scales: subnormals of e4m3 have its least exponent."""
    if rule.scale_type == "ue4m3":
        return exponent_power(scale, format_of("e4m3"))
    return leading_power(scale)
