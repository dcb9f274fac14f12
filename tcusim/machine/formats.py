"""Element types of tensor cores as data, and exact rounding into them.

Inside tcusim a tile is a plain NumPy array of *values*: every element is a number that the
element type can hold, kept in the smallest NumPy type that holds all of them (bf16, tf32 and
the 8-bit floats live in float32). Names are those of PTX; `FORMATS` is the one table of types.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import InputError, require_choice, told, unknown_name

__all__ = [
    "BY_ARRAY_NAME",
    "FORMATS",
    "ROUNDED",
    "Float64",
    "Format",
    "Rounding",
    "Values",
    "array_name_of",
    "canonical_nan",
    "flushed",
    "format_of",
    "format_of_dtype",
    "from_memory",
    "leading_power",
    "lowest_power",
    "round_to_grid",
    "round_values",
    "split_values",
    "to_memory",
    "unwritten_values",
]

Values: TypeAlias = NDArray[Any]
Float64: TypeAlias = NDArray[np.float64]
# To nearest with ties to even, or away from zero; toward zero; down; to odd, which sets the last
# bit kept if any bit is lost.
Rounding: TypeAlias = Literal["rne", "rna", "rz", "rd", "odd"]


def _nearest_away(x: Float64, out: Float64 | None = None) -> Float64:
    whole = np.trunc(x)
    # Not |x| + 1/2, which may be rounded.
    whole += np.copysign(np.abs(x - whole) >= 0.5, x)
    return _into(out, whole)


def _odd(x: Float64, out: Float64 | None = None) -> Float64:
    whole = np.trunc(x)
    half = whole * 0.5
    whole += np.copysign((whole != x) & (half == np.trunc(half)), x)
    return _into(out, whole)


def _into(out: Float64 | None, values: Float64) -> Float64:
    if out is None:
        return values
    out[...] = values
    return out


# Each rounding to integers; `out` as of NumPy's functions.
ROUNDED: Final[Mapping[Rounding, Callable[..., Float64]]] = {
    "rne": np.rint,
    "rna": _nearest_away,
    "rz": np.trunc,
    "rd": np.floor,
    "odd": _odd,
}

# Fields of an IEEE binary64 number.
_EXPONENT_FIELD: Final = np.int64(0x7FF0_0000_0000_0000)
_FRACTION_FIELD: Final = np.int64(0x000F_FFFF_FFFF_FFFF)
_HIDDEN_BIT: Final = np.int64(0x0010_0000_0000_0000)

# Halfway from the largest float16 to the power of two above it: from here on it is infinite.
_OVERFLOWS_F16: Final = 65520.0


@dataclass(frozen=True, slots=True)
class Format:
    """Describe one element type.

    Attributes
    ----------
    name : str
        The PTX spelling, such as ``"bf16"``.
    itemsize : int
        Bytes of one element in GPU memory.
    dtype : numpy.dtype
        The NumPy type in which values are held.
    fraction_bits : int
        Bits after the binary point of a normal significand; 0 for integers.
    emin, emax : int
        Exponents of the smallest and of the largest normal number; 0 for integers.
    largest, smallest : float
        The largest finite value, and the smallest positive one (subnormal); of an integer type,
        the most negative.
    has_inf : bool
        Whether the type has infinities (e4m3 has only NaN).
    has_nan : bool
        Whether the type has NaN (types of 4 and 6 bits have none).
    has_negative_zero : bool
        Whether the type has -0; if it has none, its bits are the one NaN.
    bits : int
        Bits of an element. Those of 4 and 6 bits fill a byte of an array.
    nan_bits : int
        The NaN that a GPU's arithmetic writes for this type, as bits of `dtype`; 0 if it keeps
        the NaN that it is given, or none is known.
    array_name : str
        Name of the type in NumPy (or ml_dtypes) and torch, such as ``"bfloat16"``.
    bit_names : tuple of str
        Array types that count as this one, because they carry its bits: some libraries have no
        bf16.
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
    array_name: str
    bit_names: tuple[str, ...] = ()
    has_nan: bool = True
    has_negative_zero: bool = True
    bits: int = 0

    @property
    def is_float(self) -> bool:
        """Whether an element is a floating-point number."""
        return self.kind == "float"

    def holds(self, other: Format) -> bool:
        """Return whether every finite number of another type is one of this type."""
        if not other.is_float:
            most = 2.0 ** (self.fraction_bits + 1) if self.is_float else self.largest
            return other.largest <= most and (self.is_float or self.smallest <= other.smallest)
        finest = self.emin - self.fraction_bits <= other.emin - other.fraction_bits
        return finest and self.fraction_bits >= other.fraction_bits and self.emax >= other.emax

    @property
    def in_ml_dtypes(self) -> bool:
        """Whether the array type comes from the package ml_dtypes, since NumPy has none."""
        return self.is_float and self.dtype.itemsize != self.itemsize

    @property
    def array_type(self) -> str:
        """The array type as Python text, such as ``"np.float16"``."""
        return f"{'ml_dtypes' if self.in_ml_dtypes else 'np'}.{self.array_name}"

    @property
    def memory_dtype(self) -> np.dtype[Any]:
        """The NumPy type in which elements travel to GPU memory: narrow floats as their bits."""
        if self.dtype.itemsize == self.itemsize:
            return self.dtype
        return np.dtype(f"u{self.itemsize}")

    @property
    def unwritten(self) -> float | int:
        """Fill value of unwritten memory: NaN; for integers, each byte is 0x80.

        It is the same on every engine: a large negative number, or 128 for u8.
        """
        if self.is_float:
            return math.nan
        return int(np.frombuffer(b"\x80" * self.dtype.itemsize, self.dtype)[0])

    @property
    def unwritten_bits(self) -> int:
        """The bits of `unwritten` in GPU memory, as an unsigned integer of `itemsize` bytes."""
        memory = to_memory(unwritten_values((1,), self), self)
        return int(memory.view(f"u{self.itemsize}")[0])


def _float(
    name: str,
    dtype: type[np.floating[Any]],
    fields: tuple[int, int],
    array_name: str,
    **exceptions: Any,
) -> Format:
    """Derive a float row from its (exponent, fraction) bits; exceptions to IEEE 754 are named."""
    exponent_bits, fraction_bits = fields
    bias = 2 ** (exponent_bits - 1) - 1
    bias = exceptions.pop("bias", bias)
    emax = exceptions.pop("emax", 2**exponent_bits - 2 - bias)
    row = Format(
        name=name,
        kind="float",
        itemsize=(1 + exponent_bits + fraction_bits) // 8,
        dtype=np.dtype(dtype),
        fraction_bits=fraction_bits,
        emin=1 - bias,
        emax=emax,
        largest=math.ldexp(2.0 - math.ldexp(1.0, -fraction_bits), emax),
        smallest=math.ldexp(1.0, 1 - bias - fraction_bits),
        has_inf=True,
        nan_bits=0,
        array_name=array_name,
        bits=1 + exponent_bits + fraction_bits,
    )
    return replace(row, **exceptions)


def _integer(name: str, dtype: type[np.integer[Any]]) -> Format:
    """Derive an integer row from its NumPy type."""
    limits, kind = np.iinfo(dtype), np.dtype(dtype)
    low, high = float(limits.min), float(limits.max)
    row = Format(name, "int", kind.itemsize, kind, 0, 0, 0, high, low, False, 0, kind.name)
    return replace(row, has_nan=False, has_negative_zero=False, bits=8 * kind.itemsize)


_FNUZ: Final[dict[str, Any]] = {"has_inf": False, "has_negative_zero": False}
_MX: Final[dict[str, Any]] = {"has_inf": False, "has_nan": False, "itemsize": 1}

_ROWS: Final = (
    # IEEE 754-2019 binary16, binary32, binary64; NaN bits as an H200 writes them.
    _float("f16", np.float16, (5, 10), "float16", nan_bits=0x7FFF),
    _float("f32", np.float32, (8, 23), "float32", nan_bits=0x7FFF_FFFF),
    _float("f64", np.float64, (11, 52), "float64", nan_bits=0xFFF8_0000_0000_0000),
    # PTX ISA, "Alternate Floating-Point Data Formats": a tf32 element fills 32 bits.
    _float(
        "bf16",
        np.float32,
        (8, 7),
        "bfloat16",
        nan_bits=0x7FFF_0000,
        bit_names=("uint16", "void16"),
    ),
    _float("tf32", np.float32, (8, 10), "float32", itemsize=4, bits=32),
    # Micikevicius et al., "FP8 Formats for Deep Learning", arXiv 2209.05433, table 1: e4m3 has no
    # infinities, so its top exponent holds numbers.
    _float("e4m3", np.float32, (4, 3), "float8_e4m3fn", emax=8, largest=448.0, has_inf=False),
    _float("e5m2", np.float32, (5, 2), "float8_e5m2"),
    # The same, sec. 5, and "8-bit Numerical Formats for Deep Neural Networks", arXiv 2206.02915:
    # one more in the bias, no infinity, no negative zero, whose bits are the one NaN.
    _float("e4m3fnuz", np.float32, (4, 3), "float8_e4m3fnuz", bias=8, emax=7, **_FNUZ),
    _float("e5m2fnuz", np.float32, (5, 2), "float8_e5m2fnuz", bias=16, emax=15, **_FNUZ),
    # Open Compute Project, "Microscaling Formats (MX)", v1.0, sec. 5.3: no infinity and no NaN.
    _float("e2m3", np.float32, (2, 3), "float6_e2m3fn", emax=2, **_MX),
    _float("e3m2", np.float32, (3, 2), "float6_e3m2fn", emax=4, **_MX),
    _float("e2m1", np.float32, (2, 1), "float4_e2m1fn", emax=2, **_MX),
    _integer("s8", np.int8),
    _integer("u8", np.uint8),
    _integer("s32", np.int32),
    _integer("s64", np.int64),
)

FORMATS: Final[dict[str, Format]] = {row.name: row for row in _ROWS}

# A float32 array is of type f32: the tensor core converts it to tf32.
BY_ARRAY_NAME: Final[dict[str, Format]] = {
    row.array_name: row for row in _ROWS if row.name != "tf32"
}


def format_of(name: str | Format) -> Format:
    """Return the element type of this PTX name; a `Format` is returned as it is."""
    if isinstance(name, Format):
        return name
    if isinstance(name, str) and name in FORMATS:
        return FORMATS[name]
    raise unknown_name("type", name, FORMATS)


@lru_cache(maxsize=256)
def format_of_dtype(dtype: np.dtype[Any]) -> Format | None:
    """Return the element type of arrays of this type, None if there is none.

    NumPy puts the name of a type together whenever it is asked, which takes longer than a sum.
    """
    return BY_ARRAY_NAME.get(dtype.name)


def array_name_of(dtype: Any) -> str:
    """Return NumPy's name of an array type: one of NumPy, ml_dtypes or torch, or just its name.

    Types of elements have the names that tables have, too: "f16" is float16.

    Examples
    --------
    >>> array_name_of(np.float16), array_name_of("bf16"), array_name_of("torch.float32")
    ('float16', 'bfloat16', 'float32')
    """
    if isinstance(dtype, int | tuple):
        raise InputError(f"dtype must be a type or its name, got {told(dtype)}")
    name = str(dtype).removeprefix("torch.")
    if name in BY_ARRAY_NAME:
        return name
    own = FORMATS.get(name) if isinstance(dtype, str) else None
    if own is not None and BY_ARRAY_NAME.get(own.array_name) is own:
        return own.array_name
    try:
        # A type of torch is one of NumPy by its name alone.
        return str(np.dtype(name if type(dtype).__module__ == "torch" else dtype).name)
    except TypeError as error:
        raise InputError(f"dtype: {error}") from error


def unwritten_values(shape: int | tuple[int, ...], fmt: str | Format) -> Values:
    """Return an array of values as memory holds them before anything is written to it."""
    target = format_of(fmt)
    return np.full(shape, target.unwritten, target.dtype)


def to_memory(values: Values, fmt: str | Format) -> Values:
    """Return values as stored in GPU memory: narrow floats as their bits, others unchanged.

    A type of at most 8 bits has one NaN here, the first of its patterns.
    """
    target = format_of(fmt)
    if target.memory_dtype == values.dtype:
        return np.ascontiguousarray(values)
    if target.name in _VALUES_OF_8_BITS:
        ascending, patterns, nan = _PATTERNS_OF_8_BITS[target.name]
        places = np.searchsorted(ascending, _ranks(values, target)).clip(0, len(ascending) - 1)
        return np.where(np.isnan(values), nan, patterns[places]).astype(np.uint8)
    wide = np.ascontiguousarray(values, np.float32)
    bits = (wide.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    # The upper half is all of a bf16, but a NaN may have its only fraction bits in the lower one.
    bits[np.isnan(wide) & ((bits & np.uint16(0x007F)) == 0)] |= np.uint16(0x0040)
    return bits


def from_memory(memory: Values, fmt: str | Format) -> Values:
    """Return elements of GPU memory (of the type's `memory_dtype`) as values."""
    target = format_of(fmt)
    if target.name in _VALUES_OF_8_BITS:
        return np.asarray(_VALUES_OF_8_BITS[target.name][memory])
    if target.name != "bf16":
        return memory
    return (memory.astype(np.uint32) << np.uint32(16)).view(np.float32)


# --- Types of at most 8 bits: all of their patterns -----------------------------------------------


def _values_of_8_bits(fmt: Format) -> Values:
    """Return the values of all patterns of a type of at most 8 bits."""
    return np.array([_value_of_fields(bits, fmt) for bits in range(2**fmt.bits)], fmt.dtype)


def _value_of_fields(bits: int, fmt: Format) -> float:
    sign = 1 << (fmt.bits - 1)
    if bits == sign and not fmt.has_negative_zero:
        return math.nan
    fraction = bits & (2**fmt.fraction_bits - 1)
    field = (bits & ~sign) >> fmt.fraction_bits
    # A subnormal has the exponent of the smallest normal number, and no leading 1.
    significand = fraction + (2**fmt.fraction_bits if field else 0)
    size = math.ldexp(significand, max(field - 1, 0) + fmt.emin - fmt.fraction_bits)
    if size > fmt.largest:
        size = math.inf if fmt.has_inf and not fraction else math.nan
    return -size if bits & sign else size


_VALUES_OF_8_BITS: Final = {
    fmt.name: _values_of_8_bits(fmt)
    for fmt in FORMATS.values()
    if fmt.is_float and fmt.itemsize == 1
}


def _ranks(values: Values, fmt: Format) -> Float64:
    """Return values as numbers in ascending order; -0, of a type that has it, is below +0."""
    ranks = np.asarray(values, np.float64)
    if not fmt.has_negative_zero:
        return ranks + 0.0
    least = float(fmt.smallest) / 2
    return np.where(ranks == 0.0, np.where(np.signbit(ranks), -least, 0.0), ranks)


def _patterns_of_8_bits(fmt: Format) -> tuple[NDArray[Any], NDArray[Any], int]:
    """Return the ranks of a type's numbers, ascending, their patterns, and the pattern of NaN."""
    known = _VALUES_OF_8_BITS[fmt.name]
    numbers = np.flatnonzero(~np.isnan(known))
    nan = np.flatnonzero(np.isnan(known))
    order = numbers[np.argsort(_ranks(known[numbers], fmt))]
    return _ranks(known[order], fmt), order, int(nan[0]) if nan.size else 0


_PATTERNS_OF_8_BITS: Final = {
    name: _patterns_of_8_bits(FORMATS[name]) for name in _VALUES_OF_8_BITS
}


def canonical_nan(values: Values, fmt: str | Format) -> Values:
    """Replace every NaN in place by the one that a GPU's arithmetic writes for this type."""
    target = format_of(fmt)
    nan = np.isnan(values)
    if target.nan_bits and bool(nan.any()):
        bits = values.view(np.dtype(f"u{values.itemsize}"))
        bits[nan] = target.nan_bits
    return values


def flushed(x: Float64, fmt: Format) -> Float64:
    """Return zeros of the same sign in place of the subnormal values of a type."""
    return np.where(np.abs(x) < 2.0**fmt.emin, np.copysign(0.0, x), x)


def leading_power(x: Float64) -> Float64:
    """Return 2**floor(log2(abs(x))): 0 for zero and for binary64 subnormals, inf for inf or NaN."""
    return (x.view(np.int64) & _EXPONENT_FIELD).view(np.float64)


def lowest_power(x: Float64) -> Float64:
    """Return the largest power of two that divides x: inf for zero, inf or NaN.

    No value that a tensor core takes is subnormal in binary64, save in f64 itself.
    """
    significand = x.view(np.int64) & _FRACTION_FIELD
    significand |= _HIDDEN_BIT
    significand &= -significand
    power = significand.astype(np.float64)
    power *= leading_power(x) * 2.0**-52
    np.copyto(power, np.inf, where=x == 0.0)
    return power


def round_to_grid(x: Float64, fraction_bits: int, emin: int, rounding: Rounding) -> Float64:
    """Round finite x to `fraction_bits` after the leading bit, or below 2**emin; exponents unbound.

    The range has no upper end: the caller handles overflow.
    """
    quantum = np.maximum(leading_power(x), 2.0**emin) * 2.0**-fraction_bits
    steps = x / quantum
    # Ties go to the even multiple of the quantum, which is the even significand.
    return ROUNDED[rounding](steps) * quantum


def round_values(x: Values, fmt: str | Format, rounding: Rounding = "rne") -> Values:
    """Round each element of x once to the nearest (or next toward zero) value of a float type.

    Subnormals are rounded to the type's own grid. Overflow gives an infinity (NaN in e4m3, which
    has none) under ``"rne"`` and ``"rna"``, under ``"rd"`` if x is negative, else the largest
    finite value, as IEEE 754 says.

    Parameters
    ----------
    x : array of float16, float32 or float64, any shape
        Numbers to round.
    fmt : str or Format
        A float type, such as ``"bf16"``.
    rounding : {"rne", "rna", "rz", "rd", "odd"}
        To nearest with ties to even or away from zero, toward zero, down, or to odd.

    Returns
    -------
    array of the type's value dtype, shape of x
    """
    target = format_of(fmt)
    if not target.is_float:
        raise InputError(f"round_values rounds to a float type, got {told(target.name)}")
    require_choice("rounding", rounding, tuple(ROUNDED))
    _require_floats("round_values", x)
    if x.dtype == target.dtype and target.name in ("f16", "f32", "f64"):
        return x
    if target.name == "f64" or (rounding == "rne" and target.name in ("f16", "f32")):
        # NumPy's own types: its conversion rounds once, to nearest even.
        with np.errstate(all="ignore"):
            if target.name == "f16":
                # It tells of each overflow on its own, which takes several times as long.
                beyond = ~(np.abs(x) < _OVERFLOWS_F16)
                if beyond.any():
                    x = np.where(beyond, x * x.dtype.type(np.inf), x)
            return x.astype(target.dtype)
    wide = x.astype(np.float64)
    infinite = math.inf if target.has_inf else math.nan if target.has_nan else target.largest
    overflow: float | Float64 = infinite if rounding in ("rne", "rna") else target.largest
    if rounding == "rd":
        overflow = np.where(wide < 0.0, infinite, target.largest)
    with np.errstate(all="ignore"):
        rounded = round_to_grid(wide, target.fraction_bits, target.emin, rounding)
        beyond = np.abs(rounded) > target.largest
        rounded = np.where(beyond, np.copysign(overflow, wide), rounded)
        rounded = np.where(np.isinf(wide), np.copysign(infinite, wide), rounded)
        return rounded.astype(target.dtype)


def _require_floats(function: str, x: Values) -> None:
    if not np.issubdtype(x.dtype, np.floating):
        raise InputError(f"{function} takes a float array, got {x.dtype}; cast it to np.float64")


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
        Brings x into the type's range.

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
    _require_floats("split_values", x)
    with np.errstate(over="ignore", under="ignore"):
        rest = np.ldexp(x.astype(np.float64), scale)
    split: list[Values] = []
    for _ in range(parts):
        part = canonical_nan(round_values(rest, target), target)
        if bool((np.isfinite(x) & ~np.isfinite(part)).any()):
            raise InputError(
                f"split_values: some |x| * 2**{scale} exceed {target.largest:g}, "
                f"the largest {target.name}; use a smaller scale"
            )
        split.append(part)
        with np.errstate(invalid="ignore"):
            rest = np.where(np.isfinite(rest), rest - part, 0.0)
    return tuple(split)
