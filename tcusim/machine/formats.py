"""Element types of tensor cores as data, and exact rounding into them.

Inside tcusim a tile is a plain NumPy array of *values*: every element is a number that the
element type can hold, kept in the smallest NumPy type that holds all of them (bf16, tf32 and
the 8-bit floats live in float32). Names are those of PTX.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import InputError, unknown_name

__all__ = [
    "FORMATS",
    "Float64",
    "Format",
    "Rounding",
    "Values",
    "canonical_nan",
    "format_of",
    "leading_power",
    "lowest_power",
    "round_to_grid",
    "round_values",
    "split_values",
]

Values: TypeAlias = NDArray[Any]
Float64: TypeAlias = NDArray[np.float64]
Rounding: TypeAlias = Literal["rne", "rz"]

# Fields of an IEEE binary64 number.
_EXPONENT_FIELD: Final = np.int64(0x7FF0_0000_0000_0000)
_FRACTION_FIELD: Final = np.int64(0x000F_FFFF_FFFF_FFFF)
_HIDDEN_BIT: Final = np.int64(0x0010_0000_0000_0000)


@dataclass(frozen=True, slots=True)
class Format:
    """Describe one element type.

    Attributes
    ----------
    name : str
        The PTX spelling, such as ``"bf16"``.
    kind : {"float", "int"}
        Whether an element is a floating-point number.
    itemsize : int
        Bytes of one element in GPU memory.
    dtype : numpy.dtype
        The NumPy type in which values are held.
    fraction_bits : int
        Bits after the binary point of a normal significand; 0 for integers.
    emin, emax : int
        Exponents of the smallest and of the largest normal number; 0 for integers.
    largest : float
        The largest finite value.
    smallest : float
        The smallest positive value (subnormal), or the most negative one of an integer type.
    has_inf : bool
        Whether the type has infinities (e4m3 has only NaN).
    nan_bits : int
        The NaN that a GPU's arithmetic writes for this type, as bits of `dtype`; 0 if it keeps
        the NaN that it is given, or none is known.
    array_type : str
        What a user's array of this type is made of, as Python text.
    """

    name: str
    kind: Literal["float", "int"]
    itemsize: int
    dtype: np.dtype[Any]
    fraction_bits: int
    emin: int
    emax: int
    largest: float
    smallest: float
    has_inf: bool
    nan_bits: int
    array_type: str

    @property
    def is_float(self) -> bool:
        """Whether an element is a floating-point number."""
        return self.kind == "float"


def _float(
    name: str,
    dtype: type[np.floating[Any]],
    bits: tuple[int, int],
    array_type: str,
    *,
    largest: float | None = None,
    has_inf: bool = True,
    nan_bits: int = 0,
    itemsize: int | None = None,
) -> Format:
    """Derive a float row from its (exponent, fraction) bits; exceptions to IEEE 754 are named."""
    exponent_bits, fraction_bits = bits
    bias = 2 ** (exponent_bits - 1) - 1
    emax = bias if has_inf else bias + 1
    top = math.ldexp(2.0 - math.ldexp(1.0, -fraction_bits), emax)
    return Format(
        name=name,
        kind="float",
        itemsize=itemsize or (1 + exponent_bits + fraction_bits) // 8,
        dtype=np.dtype(dtype),
        fraction_bits=fraction_bits,
        emin=1 - bias,
        emax=emax,
        largest=top if largest is None else largest,
        smallest=math.ldexp(1.0, 1 - bias - fraction_bits),
        has_inf=has_inf,
        nan_bits=nan_bits,
        array_type=array_type,
    )


def _integer(name: str, dtype: type[np.integer[Any]], array_type: str) -> Format:
    """Derive an integer row from its NumPy type."""
    limits = np.iinfo(dtype)
    size = np.dtype(dtype).itemsize
    low, high = float(limits.min), float(limits.max)
    return Format(name, "int", size, np.dtype(dtype), 0, 0, 0, high, low, False, 0, array_type)


_ROWS: Final = (
    # IEEE 754-2019 binary16, binary32, binary64; NaN bits as an H200 writes them.
    _float("f16", np.float16, (5, 10), "np.float16", nan_bits=0x7FFF),
    _float("f32", np.float32, (8, 23), "np.float32", nan_bits=0x7FFF_FFFF),
    _float("f64", np.float64, (11, 52), "np.float64", nan_bits=0xFFF8_0000_0000_0000),
    # PTX ISA, "Alternate Floating-Point Data Formats": a tf32 element fills 32 bits.
    _float("bf16", np.float32, (8, 7), "ml_dtypes.bfloat16", nan_bits=0x7FFF_0000),
    _float("tf32", np.float32, (8, 10), "np.float32", itemsize=4),
    # Micikevicius et al., "FP8 Formats for Deep Learning", arXiv 2209.05433, table 1.
    _float("e4m3", np.float32, (4, 3), "ml_dtypes.float8_e4m3fn", largest=448.0, has_inf=False),
    _float("e5m2", np.float32, (5, 2), "ml_dtypes.float8_e5m2"),
    _integer("s8", np.int8, "np.int8"),
    _integer("u8", np.uint8, "np.uint8"),
    _integer("s32", np.int32, "np.int32"),
    _integer("s64", np.int64, "np.int64"),
)

FORMATS: Final[dict[str, Format]] = {row.name: row for row in _ROWS}


def format_of(name: str | Format) -> Format:
    """Return the element type of this PTX name; a `Format` is returned as it is."""
    if isinstance(name, Format):
        return name
    if name in FORMATS:
        return FORMATS[name]
    raise unknown_name("type", name, FORMATS)


def canonical_nan(values: Values, fmt: str | Format) -> Values:
    """Replace every NaN in place by the one that a GPU's arithmetic writes for this type."""
    target = format_of(fmt)
    nan = np.isnan(values)
    if target.nan_bits and bool(nan.any()):
        bits = values.view(np.dtype(f"u{values.itemsize}"))
        bits[nan] = target.nan_bits
    return values


def leading_power(x: Float64) -> Float64:
    """Return 2**floor(log2(abs(x))): 0 for zero and for binary64 subnormals, inf for inf or NaN."""
    return (x.view(np.int64) & _EXPONENT_FIELD).view(np.float64)


def lowest_power(x: Float64) -> Float64:
    """Return the largest power of two that divides x: inf for zero, inf or NaN.

    No value that a tensor core takes is subnormal in binary64, save in f64 itself.
    """
    bits = x.view(np.int64)
    significand = (bits & _FRACTION_FIELD) | _HIDDEN_BIT
    lowest_bit = significand & -significand
    power = lowest_bit.astype(np.float64) * (leading_power(x) * 2.0**-52)
    power[x == 0.0] = np.inf
    return power


def round_to_grid(x: Float64, fraction_bits: int, emin: int, rounding: Rounding) -> Float64:
    """Round finite x to `fraction_bits` after the leading bit, or below 2**emin; exponents unbound.

    Above, the range has no end: a caller turns what is too large into what it wants.
    """
    quantum = np.maximum(leading_power(x), 2.0**emin) * 2.0**-fraction_bits
    steps = x / quantum
    # Ties go to the even multiple of the quantum, which is the even significand.
    whole = np.rint(steps) if rounding == "rne" else np.trunc(steps)
    return whole * quantum


def round_values(x: Values, fmt: str | Format, rounding: Rounding = "rne") -> Values:
    """Round each element of x once to the nearest (or next toward zero) value of a float type.

    Subnormals are rounded to the type's own grid. Overflow gives an infinity (NaN in e4m3, which
    has none) under ``"rne"`` and the largest finite value under ``"rz"``, as IEEE 754 says.

    Parameters
    ----------
    x : array of float16, float32 or float64, any shape
        Numbers to round.
    fmt : str or Format
        A float type, such as ``"bf16"``.
    rounding : {"rne", "rz"}
        To nearest with ties to even, or toward zero.

    Returns
    -------
    array of the type's value dtype, shape of x
    """
    target = format_of(fmt)
    if not target.is_float:
        raise InputError(f"round_values rounds to a float type, got {target.name!r}")
    if rounding not in ("rne", "rz"):
        raise InputError(f"rounding must be 'rne' or 'rz', got {rounding!r}")
    if not np.issubdtype(x.dtype, np.floating):
        raise InputError(f"round_values takes a float array, got {x.dtype}; cast it to np.float64")
    if x.dtype == target.dtype and target.name in ("f16", "f32", "f64"):
        return x
    wide = x.astype(np.float64)
    if target.name == "f64":
        return wide
    with np.errstate(all="ignore"):
        rounded = round_to_grid(wide, target.fraction_bits, target.emin, rounding)
        beyond = np.abs(rounded) > target.largest
        limit = _overflow_value(target, rounding)
        rounded = np.where(beyond, np.copysign(limit, wide), rounded)
        infinite = np.inf if target.has_inf else np.nan
        rounded = np.where(np.isinf(wide), np.copysign(infinite, wide), rounded)
        return rounded.astype(target.dtype)


def _overflow_value(fmt: Format, rounding: Rounding) -> float:
    """Return the magnitude that a too large number becomes."""
    if rounding == "rz":
        return fmt.largest
    return math.inf if fmt.has_inf else math.nan


def split_values(x: Values, fmt: str | Format, parts: int, scale: int = 0) -> tuple[Values, ...]:
    """Split x * 2**scale into a sum of values of a narrow float type, largest part first.

    Each part is the rest rounded to nearest, so that three bf16 parts hold a float32 exactly
    where its lowest bit is not below 2**-133, bf16's own smallest value.

    Parameters
    ----------
    x : array of float32 or float64, any shape
        Numbers to split; an infinity or NaN is the first part, the others are then zero.
    fmt : str or Format
        The narrow float type.
    parts : int
        How many parts, at least 1.
    scale : int
        Power of two by which x is multiplied first, to bring it into the type's range.

    Returns
    -------
    tuple of `parts` arrays of the type's value dtype, shape of x

    Raises
    ------
    InputError
        If a finite element overflows the type: choose a smaller scale.
    """
    target = format_of(fmt)
    if parts < 1:
        raise InputError(f"parts must be at least 1, got {parts}")
    if not np.issubdtype(x.dtype, np.floating):
        raise InputError(f"split_values takes a float array, got {x.dtype}; cast it to np.float64")
    with np.errstate(over="ignore", under="ignore"):
        rest = np.ldexp(x.astype(np.float64), scale)
    split: list[Values] = []
    for _ in range(parts):
        part = round_values(rest, target)
        if bool((np.isfinite(x) & ~np.isfinite(part)).any()):
            raise InputError(
                f"split_values: some |x| * 2**{scale} exceed {target.largest:g}, "
                f"the largest {target.name}; use a smaller scale"
            )
        split.append(part)
        with np.errstate(invalid="ignore"):
            rest = np.where(np.isfinite(rest), rest - part, 0.0)
    return tuple(split)
