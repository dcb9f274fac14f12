"""tcusim.machine: element types, and rounding into them."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrow import NARROW, ml_dtypes
from numbers_of_types import single
from tcusim.errors import InputError, UnknownName
from tcusim.machine import FORMATS, Format, format_of, round_values, split_values
from tcusim.machine.formats import (
    BY_ARRAY_NAME,
    array_name_of,
    from_memory,
    to_memory,
    unwritten_values,
)


def all_values(name: str) -> np.ndarray[Any, np.dtype[Any]]:
    """Return every finite number of a type of at most 16 bits, as float64, ascending."""
    dtype = NARROW[name]
    bits = np.arange(2 ** (8 * dtype.itemsize), dtype=f"u{dtype.itemsize}")
    with np.errstate(invalid="ignore"):
        numbers = bits.view(dtype).astype(np.float64)
    return np.unique(numbers[np.isfinite(numbers)])


def bits32(values: Any) -> Any:
    return np.asarray(values, np.float32).view(np.uint32)


@pytest.mark.parametrize("name", list(NARROW))
def test_limits_are_those_of_the_type(name: str) -> None:
    fmt = format_of(name)
    info = ml_dtypes.finfo(NARROW[name])
    assert fmt.largest == float(info.max)
    assert fmt.smallest == float(info.smallest_subnormal)
    assert 2.0**fmt.emin == float(info.smallest_normal)
    assert fmt.fraction_bits == info.nmant
    assert fmt.itemsize == NARROW[name].itemsize


def test_table() -> None:
    floats = ["f16", "f32", "f64", "bf16", "tf32", "e4m3", "e5m2"]
    floats += ["e4m3fnuz", "e5m2fnuz", "e2m3", "e3m2", "e2m1"]
    assert list(FORMATS) == [*floats, "s8", "u8", "s32", "s64"]
    assert FORMATS["f32"].largest == float(np.finfo(np.float32).max)
    assert FORMATS["f64"].largest == float(np.finfo(np.float64).max)
    assert FORMATS["tf32"].itemsize == 4
    assert (FORMATS["u8"].smallest, FORMATS["u8"].largest) == (0, 255)
    assert isinstance(format_of(FORMATS["bf16"]), Format)


@pytest.mark.parametrize("name", list(FORMATS))
def test_array_names_are_those_of_the_libraries(name: str) -> None:
    fmt = FORMATS[name]
    library = ml_dtypes if fmt.in_ml_dtypes else np
    dtype = np.dtype(getattr(library, fmt.array_name))
    assert (dtype.name, dtype.itemsize) == (fmt.array_name, fmt.itemsize)
    assert fmt.array_type == f"{library.__name__.replace('numpy', 'np')}.{fmt.array_name}"
    assert array_name_of(dtype) == array_name_of(f"torch.{fmt.array_name}") == fmt.array_name
    assert BY_ARRAY_NAME[fmt.array_name].name == ("f32" if name == "tf32" else name)


def test_array_name_of_other_types() -> None:
    assert array_name_of(np.int16) == array_name_of("int16") == "int16"
    with pytest.raises(InputError, match="dtype: data type 'wide' not understood"):
        array_name_of("wide")


@pytest.mark.parametrize(
    ("name", "value", "bits"),
    [
        ("f16", np.nan, 0x7E00),
        ("bf16", np.nan, 0x7FC0),
        ("f32", np.nan, 0x7FC0_0000),
        ("f64", np.nan, 0x7FF8_0000_0000_0000),
        ("s8", -128, 0x80),
        ("u8", 128, 0x80),
        ("s32", -0x7F7F_7F80, 0x8080_8080),
        ("s64", -0x7F7F_7F7F_7F7F_7F80, 0x8080_8080_8080_8080),
    ],
)
def test_what_unwritten_memory_holds(name: str, value: float, bits: int) -> None:
    fmt = FORMATS[name]
    values = unwritten_values((2, 3), name)
    assert (values.shape, values.dtype) == ((2, 3), fmt.dtype)
    np.testing.assert_array_equal(values, np.full((2, 3), value))
    assert fmt.unwritten_bits == bits


def test_bf16_in_memory_and_back() -> None:
    assert FORMATS["bf16"].memory_dtype == np.uint16
    bits = np.arange(2**16, dtype=np.uint16)
    values = from_memory(bits, "bf16")
    assert values.dtype == np.float32
    np.testing.assert_array_equal(to_memory(values, "bf16"), bits)
    # A NaN with a fraction in the lower half stays a NaN.
    nan = np.array([0x7F80_0001, 0xFF80_0001], np.uint32).view(np.float32)
    assert to_memory(nan, "bf16").tolist() == [0x7FC0, 0xFFC0]


def test_other_types_are_in_memory_what_they_are() -> None:
    values = single([1.5, -2.0])
    assert np.shares_memory(to_memory(values, "f32"), values)
    assert from_memory(values, "tf32") is values
    assert to_memory(values, "e4m3").tolist() == [0x3C, 0xC0]
    assert from_memory(np.array([0x3C, 0xC0], np.uint8), "e4m3").tolist() == values.tolist()


# Types by name, and their twins in ml_dtypes.
TWINS = {
    "e3m4": "float8_e3m4",
    "e4m3b7": "float8_e4m3",
    "e4m3fn": "float8_e4m3fn",
    "e4m3b11fnuz": "float8_e4m3b11fnuz",
    "e5m2fnuz": "float8_e5m2fnuz",
    "e2m3f": "float6_e2m3fn",
    "e8m7": "bfloat16",
}


@pytest.mark.parametrize("name", TWINS)
def test_a_type_by_its_name_is_that_of_ml_dtypes(name: str) -> None:
    fmt, twin = format_of(name), np.dtype(getattr(ml_dtypes, TWINS[name]))
    memory = np.arange(2**fmt.bits, dtype=fmt.memory_dtype)
    with np.errstate(invalid="ignore"):
        values = memory.view(twin).astype(np.float32)
    numbers = ~np.isnan(values)
    found = from_memory(memory, fmt)
    assert np.array_equal(bits32(found[numbers]), bits32(values[numbers]))
    assert np.isnan(found[~numbers]).all()
    assert np.array_equal(to_memory(found, fmt)[numbers], memory[numbers])
    rng = np.random.default_rng(0)
    many = np.ldexp(rng.standard_normal(20_000), rng.integers(-25, 20, 20_000)).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = many.astype(twin).astype(np.float32)
    assert np.array_equal(round_values(many, fmt), expected, equal_nan=True)


@pytest.mark.parametrize("rounding", ["rne", "rna", "rz", "rd", "odd"])
@pytest.mark.parametrize("name", ["e5m3", "e3m2_daz", "e1m4", "e3m4b5fnuz", "e2m2f"])
def test_a_type_by_its_name_rounds_to_its_numbers(name: str, rounding: Any) -> None:
    fmt = format_of(name)
    numbers = np.unique(from_memory(np.arange(2**fmt.bits, dtype=fmt.memory_dtype), fmt))
    numbers = numbers[np.isfinite(numbers)].astype(np.float64)
    assert (numbers.max(), numbers[numbers > 0].min()) == (fmt.largest, fmt.smallest)
    between = [numbers[:-1] + (numbers[1:] - numbers[:-1]) * part for part in (0.25, 0.5, 0.75)]
    for x in np.concatenate([numbers, *between]):
        low, high = numbers[numbers <= x].max(), numbers[numbers >= x].min()
        small, large = sorted((low, high), key=abs)
        is_even = small == 0.0 or to_memory(np.array([small], np.float32), fmt)[0] % 2 == 0
        even, odd = (small, large) if is_even else (large, small)
        near = low if abs(x - low) < abs(x - high) else high
        if abs(x - low) == abs(x - high):
            near = {"rne": even, "rna": large}.get(rounding, low)
        due = {"rz": small, "rd": low, "odd": odd if low != high else low}.get(rounding, near)
        assert round_values(np.array([x]), fmt, rounding)[0] == due, (x, low, high)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("e0m3", "at least one exponent bit, and at most 31 bits with the sign, got 4 with 0"),
        ("e8m23", "at most 31 bits with the sign, got 32 with 8 exponent bits"),
        ("e4m0", "no NaN beside its infinity; write e4m0f, e4m0fn or e4m0fnuz"),
        ("e1m1_daz", "no number but zero; give it an exponent bit more"),
        ("e9m3", r"from 2\*\*-257 to 2\*\*255, and float32, which holds them here, from 2\*\*-149"),
        ("e5m3fnu", "unknown type 'e5m3fnu'.* or a float such as e5m3"),
    ],
)
def test_a_name_that_describes_no_type(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        format_of(name)


def test_a_type_in_words() -> None:
    found = format_of("e5m3b20fn_daz").description
    due = "9 bits, 5 of exponent with bias 20, 3 of fraction; 1.90735e-06 to 3584; no infinities"
    assert found == f"{due}, no subnormal numbers"


def test_unknown_type() -> None:
    with pytest.raises(UnknownName, match=r"unknown type \['f16'\]\. "):
        format_of(["f16"])  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match=r"unknown type 'fp16'\. Did you mean 'f16'\? Valid: bf1"):
        format_of("fp16")


# --- rounding --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(NARROW))
def test_every_value_and_every_tie(name: str) -> None:
    values = all_values(name)
    assert np.array_equal(round_values(values, name), values.astype(FORMATS[name].dtype))
    middle = (values[1:] + values[:-1]) / 2
    # A tie fits in float32, and ml_dtypes rounds it once; beside a tie there is no choice.
    nearest = middle.astype(np.float32).astype(NARROW[name]).astype(np.float64)
    for x, expected in (
        (middle, nearest),
        (np.nextafter(middle, np.inf), values[1:]),
        (np.nextafter(middle, -np.inf), values[:-1]),
    ):
        rounded = round_values(x, name).astype(np.float64)
        assert np.array_equal(rounded, expected)
        has_sign = (rounded != 0.0) | FORMATS[name].has_negative_zero
        assert np.array_equal(np.signbit(rounded), np.signbit(x) & has_sign)


@pytest.mark.parametrize("name", list(NARROW))
def test_toward_zero_is_the_value_below(name: str) -> None:
    values = all_values(name)
    positive = values[values >= 0]
    inside = np.nextafter(positive[1:], 0.0)
    assert np.array_equal(round_values(inside, name, "rz"), positive[:-1])
    assert np.array_equal(round_values(-inside, name, "rz"), -positive[:-1])


@given(st.floats(allow_nan=False, width=64))
def test_f32_as_numpy(x: float) -> None:
    with np.errstate(over="ignore", under="ignore"):
        expected = np.float64(x).astype(np.float32)
    assert bits32(round_values(np.array([x]), "f32"))[0] == bits32(expected)


@given(st.floats(allow_nan=False, width=32))
def test_tf32_is_a_short_f32(x: float) -> None:
    array = np.array([x], np.float32)
    cut = (bits32(array) & 0xFFFFE000).view(np.float32)
    assert np.array_equal(round_values(array, "tf32", "rz"), cut)
    rounded = round_values(array, "tf32")
    assert not np.any(bits32(rounded) & 0x1FFF)
    if abs(x) < FORMATS["tf32"].largest:
        step = abs(Fraction(float(cut[0])) - Fraction(x))
        assert abs(Fraction(float(rounded[0])) - Fraction(x)) <= step


@pytest.mark.parametrize(
    ("name", "rounding", "expected"),
    [
        ("f16", "rne", np.inf),
        ("f16", "rz", 65504.0),
        ("bf16", "rz", float(np.float32(3.3895314e38))),
        ("e4m3", "rz", 448.0),
        ("e5m2", "rne", np.inf),
    ],
)
def test_overflow(name: str, rounding: Any, expected: float) -> None:
    x = np.array([1e300, -1e300])
    assert round_values(x, name, rounding).tolist() == [expected, -expected]


def test_what_is_not_finite_stays_where_the_type_has_it() -> None:
    x = np.array([np.inf, -np.inf, np.nan])
    for name in ("f16", "bf16", "tf32", "f32", "f64", "e5m2"):
        assert np.array_equal(round_values(x, name), x, equal_nan=True)
    assert np.isnan(round_values(np.array([1e9, *x]), "e4m3")).all()


# --- splitting -------------------------------------------------------------------------------


@given(st.floats(min_value=-(2.0**120), max_value=2.0**120, width=32))
def test_three_bf16_parts_hold_an_f32(x: float) -> None:
    exact = x == 0.0 or (Fraction(x) * 2**133).denominator == 1
    parts = split_values(np.array([x], np.float32), "bf16", 3)
    total = sum(Fraction(float(part[0])) for part in parts)
    assert (total == Fraction(x)) or not exact
    assert all(np.array_equal(part, round_values(part, "bf16")) for part in parts)


def test_split_with_a_scale() -> None:
    parts = split_values(np.array([1e-6], np.float32), "f16", 3, scale=20)
    assert sum(float(part[0]) for part in parts) == float(np.float32(1e-6)) * 2.0**20


def test_split_of_infinity() -> None:
    parts = split_values(np.array([np.inf, 1.0], np.float32), "bf16", 2)
    assert [part.tolist() for part in parts] == [[np.inf, 1.0], [0.0, 0.0]]


ONES, WHOLE = np.ones(2), np.ones(2, int)
UP: Any = "up"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: round_values(ONES, "s8"), "round_values rounds to a float type, got 's8'"),
        (
            lambda: round_values(ONES, "f16", UP),
            "rounding must be one of rne, rna, rz, rd, odd, got 'up'",
        ),
        (lambda: round_values(WHOLE, "f16"), "takes a float array, got int64; cast it to np.flo"),
        (lambda: split_values(WHOLE, "f16", 1), "takes a float array, got int64"),
        (lambda: split_values(ONES, "f16", 0), "parts must be at least 1, got 0"),
        (
            lambda: split_values(ONES * 1e6, "f16", 2),
            r"some \|x\| \* 2\*\*0 exceed 65504, the largest f16; use a smaller",
        ),
    ],
)
def test_what_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
