"""Products of blocks with scales of their own: the microscaling formats, and nvfp4.

Source: Open Compute Project, "Microscaling Formats (MX)" v1.0, for the formats; [MMASIM25] for the
arithmetic of mxf8f6f4 and mxf4nvf4.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tcusim.errors import InputError, require_choice
from tcusim.machine.convert import as_array, as_values
from tcusim.machine.formats import Float64, Format, Values, format_of, from_memory, leading_power
from tcusim.machine.fused import exponent_power, fused_values
from tcusim.machine.rules import SCALES, Fused, Rule
from tcusim.machine.values import with_nan
from tcusim.machine.watch import Watch

# Outputs handled at a time.
_BATCH: Final = 2**14


def as_scales(array: ArrayLike, kind: str, name: str) -> Float64:
    """Return scales as float64.

    Parameters
    ----------
    array : array_like
        Elements of ``float8_e8m0fnu`` or ``float8_e4m3fn``, or numbers of these types.
    kind : {"ue8m0", "ue4m3"}
        Powers of two from 2**-127 to 2**127; or numbers of e4m3, without their signs.
    name : str
        Name of the argument, for errors.

    Raises
    ------
    InputError
        If a number is not in the type.
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


def scales_of_bits(bits: NDArray[Any], kind: str) -> Float64:
    """Return the numbers of scales, which are bytes; kind: one of `SCALES`."""
    if kind == "ue4m3":
        return np.abs(from_memory(np.asarray(bits, np.uint8), "e4m3").astype(np.float64))
    return np.where(bits == 255, np.nan, np.exp2(np.asarray(bits, np.float64) - 127.0))


def scaled_mma(
    a: Values,
    b: Values,
    c: Values | None,
    scales: tuple[Float64, Float64],
    rule: Rule,
    watch: Watch | None = None,
) -> Values:
    """Return the bits of (a * scales) @ (b * scales) + c by a rule with block scales.

    a: (..., m, k), b: (..., k, n), c: (..., m, n); scales: (..., m, k / block) of a's rows and
    (..., k / block, n) of b's columns. Leading dimensions broadcast. watch: as of `mma_values`, of
    one batch.

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
            d[first : first + size] = _values(part, rule, watch)
    return with_nan(d, rule).reshape(*lead, m, n)


def _values(operands: list[Float64], rule: Rule, watch: Watch | None) -> Values:
    """Multiply-accumulate some tiles: a fused step of scaled operands is one of their products."""
    a, b, c, *scales = operands
    how = rule.how
    assert isinstance(how, Fused)
    left, right, acc = (format_of(name) for name in (rule.ab, rule.right, rule.acc))
    left_scale, right_scale = (
        np.repeat(one, rule.block, axis) for one, axis in zip(scales, (2, 1), strict=True)
    )
    powers = _powers(a, left_scale, left, rule), _powers(b, right_scale, right, rule)
    # Exact, as is every product of these.
    rows, columns = a * left_scale, b * right_scale
    return fused_values(rows, columns, c, (left, right, acc), how, watch, powers=powers)


def _powers(x: Float64, scale: Float64, fmt: Format, rule: Rule) -> Float64:
    """Return the power of each element in the alignment; infinity if it is not finite."""
    # Subnormals of e4m3 have its least exponent.
    is_float = rule.scale_type == "ue4m3"
    power = exponent_power(scale, format_of("e4m3")) if is_float else leading_power(scale)
    if isinstance(rule.how, Fused) and rule.how.exponents == "operands":
        power = power * exponent_power(x, fmt)
    return np.where(np.isfinite(x), power, np.inf)
