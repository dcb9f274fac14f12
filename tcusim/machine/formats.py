"""Element types of tensor cores as data, and exact rounding into them.

Inside tcusim a tile is a plain NumPy array of *values*: every element is a number that the
element type can hold, kept in the smallest NumPy type that holds all of them (bf16, tf32 and
the 8-bit floats live in float32). Names are those of PTX; `FORMATS` is the one table of types.
A float type outside the table is described by its name, such as ``"e5m3"``: see `format_of`.
"""

from __future__ import annotations

import math
import re
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
    "is_type",
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

# Characters of the longest name of a type.
_LONGEST_NAME: Final = 24

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
    has_subnormals : bool
        Whether the type has subnormal numbers. If it has none, their bits are zeros.
    bits : int
        Bits of an element. They are the lowest of `itemsize` bytes.
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
    has_subnormals: bool = True
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
        # NumPy takes microseconds to name a type: only types that are narrower ask for it.
        return self.itemsize != self.dtype.itemsize and self.array_name != self.dtype.name

    @property
    def description(self) -> str:
        """The fields, special values and range of a float type, as text."""
        lacks = {"infinities": self.has_inf, "NaN": self.has_nan, "-0": self.has_negative_zero}
        lacks["subnormal numbers"] = self.has_subnormals
        missing = [name for name, given in lacks.items() if not given]
        return (
            f"{self.bits} bits, {self.bits - 1 - self.fraction_bits} of exponent with bias "
            f"{1 - self.emin}, {self.fraction_bits} of fraction; {self.smallest:g} to "
            f"{self.largest:g}{'; no ' if missing else ''}{', no '.join(missing)}"
        )

    @property
    def array_type(self) -> str:
        """The array type as Python text, such as ``"np.float16"``."""
        return f"{'ml_dtypes' if self.in_ml_dtypes else 'np'}.{self.array_name}"

    @property
    def memory_dtype(self) -> np.dtype[Any]:
        """The NumPy type in which elements travel to GPU memory: narrow floats as their bits."""
        is_whole = self.bits == 8 * self.dtype.itemsize
        return self.dtype if is_whole else np.dtype(f"u{self.itemsize}")

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


# A float type by its name: exponent and fraction bits, a bias, the missing values.
_SPELLED: Final = re.compile(r"e(\d+)m(\d+)(?:b(\d+))?(fnuz|fn|f)?(_daz)?")
# The exponents of float32, which holds the values of such types, and their most bits.
_LEAST_POWER, _MOST_POWER, _MOST_BITS = -149, 127, 31


def format_of(name: str | Format) -> Format:
    """Return an element type; a `Format` is returned as it is.

    Parameters
    ----------
    name : str or Format
        A name of `FORMATS`; or a float type as ml_dtypes names them, ``e5m3``: 5 exponent bits, 3
        fraction bits and a sign. ``b11`` after these is the bias of the exponent, without it
        2**(exponent bits - 1) - 1. ``f`` is a type without infinities and NaN, ``fn`` one without
        infinities with a NaN of all bits, ``fnuz`` one in which the bits of -0 are the only NaN,
        with one more in the bias. Without these the largest exponent has infinities and NaN, as of
        IEEE 754. ``_daz`` at the end is a type without subnormal numbers. A name of the table is
        that row: ``e4m3`` is ``e4m3fn``, and ``e4m3b7`` has infinities.

    Raises
    ------
    InputError
        If there is no such type, or float32 does not hold its values.

    Examples
    --------
    >>> fmt = format_of("e5m3")
    >>> fmt.bits, fmt.largest, fmt.smallest
    (9, 61440.0, 7.62939453125e-06)
    >>> format_of("e3m2f") == FORMATS["e3m2"]
    False
    """
    if isinstance(name, Format):
        return name
    found = FORMATS.get(name) or _spelled(name) if isinstance(name, str) else None
    if found is None:
        raise unknown_name("type", name, FORMATS, [*FORMATS, "or a float such as e5m3, e3m4fn"])
    return found


def is_type(name: str) -> bool:
    """Return whether a name is that of an element type."""
    try:
        return name in FORMATS or _spelled(name) is not None
    except InputError:
        return False


@lru_cache(maxsize=256)
def _spelled(name: str) -> Format | None:
    """Return the float type that a name describes, None if it is no such name."""
    described = _SPELLED.fullmatch(name)
    if described is None or len(name) > _LONGEST_NAME:
        return None
    exponent_bits, fraction_bits = int(described[1]), int(described[2])
    bits, kind = 1 + exponent_bits + fraction_bits, described[4] or ""
    if exponent_bits == 0 or bits > _MOST_BITS:
        raise InputError(
            f"type {name}: it must have at least one exponent bit, and at most {_MOST_BITS} bits "
            f"with the sign, got {bits} with {exponent_bits} exponent bits"
        )
    if fraction_bits == 0 and not kind:
        raise InputError(
            f"type {name}: without a fraction bit it has no NaN beside its infinity; write "
            f"{name}f, {name}fn or {name}fnuz"
        )
    bias = int(described[3] or 2 ** (exponent_bits - 1) - (kind != "fnuz"))
    # Fields of all ones are infinities and NaN, or only the last number is a NaN.
    last = 2 ** (exponent_bits + fraction_bits) - 1
    largest = {"": last - 2**fraction_bits, "fn": last - 1}.get(kind, last)
    has_subnormals = not described[5]
    if largest >> fraction_bits == 0 and (not has_subnormals or largest == 0):
        raise InputError(f"type {name}: it has no number but zero; give it an exponent bit more")
    field = max(largest >> fraction_bits, 1)
    emin, emax = 1 - bias, field - bias
    least = emin - fraction_bits * has_subnormals
    if emin - fraction_bits < _LEAST_POWER or emax > _MOST_POWER:
        raise InputError(
            f"type {name}: its numbers go from 2**{emin - fraction_bits} to 2**{emax}, and "
            f"float32, which holds them here, from 2**{_LEAST_POWER} to 2**{_MOST_POWER}; give "
            "fewer exponent bits or another bias"
        )
    significand = largest & (2**fraction_bits - 1)
    significand += 2**fraction_bits * (largest >> fraction_bits > 0)
    return _float(
        name,
        np.float32,
        (exponent_bits, fraction_bits),
        "float32",
        bias=bias,
        emax=emax,
        itemsize=next(size for size in (1, 2, 4) if bits <= 8 * size),
        largest=math.ldexp(significand, emax - fraction_bits),
        smallest=math.ldexp(1.0, least),
        has_inf=not kind,
        has_nan=kind != "f",
        has_negative_zero=kind != "fnuz",
        has_subnormals=has_subnormals,
    )


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
        raise InputError(f"dtype: {error}; give a type such as 'float32'") from error


def unwritten_values(shape: int | tuple[int, ...], fmt: str | Format) -> Values:
    """Return an array of the values that stand for unwritten memory."""
    target = format_of(fmt)
    return np.full(shape, target.unwritten, target.dtype)


def to_memory(values: Values, fmt: str | Format) -> Values:
    """Return values as stored in GPU memory: narrow floats as their bits, others unchanged.

    A type that NumPy has not has one NaN here, the first of its patterns; bf16 keeps its own.
    """
    target = format_of(fmt)
    if target.memory_dtype == values.dtype:
        return np.ascontiguousarray(values)
    if target.name != "bf16":
        return _encoded(values, target)
    wide = np.ascontiguousarray(values, np.float32)
    bits = (wide.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    # The upper half is all of a bf16, but a NaN may have its only fraction bits in the lower one.
    bits[np.isnan(wide) & ((bits & np.uint16(0x007F)) == 0)] |= np.uint16(0x0040)
    return bits


def from_memory(memory: Values, fmt: str | Format) -> Values:
    """Return elements of GPU memory (of the type's `memory_dtype`) as values."""
    target = format_of(fmt)
    if target.memory_dtype == target.dtype:
        return memory
    if target.name == "bf16":
        return (memory.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if target.bits <= _TABLED_BITS:
        return np.asarray(_table(target)[memory & np.uint32(2**target.bits - 1)])
    return _decoded(memory, target)


# --- Floats that NumPy has not, as their bits -----------------------------------------------------

# Types of so many bits have a table of all of their values.
_TABLED_BITS: Final = 12


@lru_cache(maxsize=32)
def _table(fmt: Format) -> Values:
    return _decoded(np.arange(2**fmt.bits), fmt)


def _decoded(memory: Values, fmt: Format) -> Values:
    """Return the values of the lowest bits of unsigned integers."""
    bits = memory.astype(np.int64) & (2**fmt.bits - 1)
    sign = 1 << (fmt.bits - 1)
    fraction, field = bits & (2**fmt.fraction_bits - 1), (bits & ~sign) >> fmt.fraction_bits
    # A subnormal has the exponent of the smallest normal number, and no leading 1.
    subnormal = fraction * fmt.has_subnormals
    significand = np.where(field > 0, fraction + 2**fmt.fraction_bits, subnormal)
    size = np.ldexp(significand.astype(np.float64), np.maximum(field, 1) - 1 + _last_power(fmt))
    beyond = np.where((fraction == 0) & fmt.has_inf, np.inf, np.nan)
    size = np.where(size > fmt.largest, beyond, size)
    values = np.where(bits & sign, -size, size)
    if not fmt.has_negative_zero:
        values[bits == sign] = np.nan
    return values.astype(fmt.dtype)


def _encoded(values: Values, fmt: Format) -> Values:
    """Return values of a type as unsigned integers; a NaN is the first of its patterns."""
    wide = np.asarray(values, np.float64)
    sign = 1 << (fmt.bits - 1)
    last = _magnitude(np.array(fmt.largest), fmt)
    bits = np.where(np.isinf(wide), last + 1, _magnitude(np.abs(wide), fmt))
    negative = np.signbit(wide) if fmt.has_negative_zero else wide < 0.0
    bits |= np.where(negative, sign, 0)
    nan = (last + 1 + fmt.has_inf) * fmt.has_nan if fmt.has_negative_zero else sign
    return np.where(np.isnan(wide), nan, bits).astype(fmt.memory_dtype)


def _magnitude(size: Float64, fmt: Format) -> NDArray[np.int64]:
    """Return the bits of numbers of at least 0, without the sign; anything of others."""
    numbers = np.where(np.isfinite(size), size, 0.0)
    # Places above those of the smallest normal number; of zeros too, which have none.
    above = np.where(numbers == 0.0, 0, np.maximum(np.frexp(numbers)[1] - fmt.emin - 1, 0))
    significand = np.ldexp(numbers, -(above + _last_power(fmt))).astype(np.int64)
    # The leading 1 of a normal number counts as one of the field.
    return np.asarray(significand + (above.astype(np.int64) << fmt.fraction_bits))


def _last_power(fmt: Format) -> int:
    """Return the exponent of the last bit of the smallest normal number."""
    return fmt.emin - fmt.fraction_bits


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
        if not target.has_subnormals:
            least = 2.0**target.emin
            few = ROUNDED[rounding](wide / least) * least
            rounded = np.where(np.abs(wide) < least, few, rounded)
        beyond = np.abs(rounded) > target.largest
        rounded = np.where(beyond, np.copysign(overflow, wide), rounded)
        rounded = np.where(np.isinf(wide), np.copysign(infinite, wide), rounded)
        if not target.has_negative_zero:
            rounded += 0.0
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
