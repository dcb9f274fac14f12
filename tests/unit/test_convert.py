"""A user's arrays: into an element type and back."""

from __future__ import annotations

import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from narrow import NARROW, ml_dtypes
from numbers_of_types import half, single
from tcusim.errors import InputError
from tcusim.machine import FORMATS, as_values, from_values


@pytest.mark.parametrize("name", list(NARROW))
def test_every_element_there_and_back(name: str) -> None:
    dtype = NARROW[name]
    given_array = np.arange(2 ** FORMATS[name].bits, dtype=f"u{dtype.itemsize}").view(dtype)
    values = as_values(given_array, name)
    assert values.dtype == FORMATS[name].dtype
    back = from_values(values, name)
    assert back.dtype == dtype
    number = ~np.isnan(values)
    unsigned = f"u{dtype.itemsize}"
    assert np.array_equal(back.view(unsigned)[number], given_array.view(unsigned)[number])


def test_from_values_without_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    assert from_values(np.ones(2, np.float32), "bf16").dtype == np.float32


@pytest.mark.parametrize(
    ("array", "fmt", "dtype"),
    [
        (single([0.5, -0.0, np.nan]), "bf16", np.float32),
        (single([0.5, 65504.0]), "f16", np.float16),
        ([1, 2, 3], "f16", np.float16),
        ([Fraction(1, 4), 2], "e4m3", np.float32),
        ([2**70, 1], "f32", np.float32),
        (np.array([True, False]), "f16", np.float16),
        (np.arange(3), "s8", np.int8),
        (np.array([255], np.uint64), "u8", np.uint8),
        (half([1.5]), "f32", np.float32),
        (np.array([1.5], ml_dtypes.float8_e4m3fn), "bf16", np.float32),
        (single([1.5]), "f64", np.float64),
        (np.array([1.5], np.longdouble), "f64", np.float64),
        (np.array([2**53]), "f64", np.float64),
    ],
)
def test_what_is_held_exactly_is_taken(array: Any, fmt: str, dtype: type) -> None:
    values = as_values(array, fmt)
    assert values.dtype == dtype
    expected = np.asarray(array)
    assert np.array_equal(values.astype(float), expected.astype(float), equal_nan=True)


def test_no_copy_where_none_is_needed() -> None:
    x = np.ones(3, np.float32)
    assert as_values(x, "f32") is x


def test_tf32_is_cut_toward_zero() -> None:
    x = single([1 + 2**-10 + 2**-11, -1 - 2**-11, np.inf])
    assert as_values(x, "tf32").tolist() == [1 + 2**-10, -1.0, np.inf]
    quiet = np.array([0x7F800001], np.uint32).view(np.float32)
    assert np.isnan(as_values(quiet, "tf32")).all()


@pytest.mark.parametrize(
    ("array", "fmt", "message"),
    [
        (
            single([[1.0, 0.1]]),
            "f16",
            r"a is a float32 array, and f16 cannot hold its element \[0, 1\] = 0\.1\S* exactly; "
            r"cast with a\.astype\(np\.float16\) first",
        ),
        (single([0.1]), "bf16", r"cast with a\.astype\(ml_dtypes\.bfloat16\) first"),
        (half([0.1]), "e4m3", r"cast with a\.astype\(ml_dtypes\.float8_e4m3fn\) first"),
        (np.array([0.1]), "tf32", r"f32 cannot hold .* a\.astype\(np\.float32\) first"),
        (np.longdouble(1) / 3 * np.ones(1), "f64", "f64 cannot hold"),
        (np.array([128]), "s8", r"\[0\] = 128 exactly; it holds whole numbers from -128 to 127"),
        (np.array([-1]), "u8", r"u8 cannot hold its element \[0\] = -1 exactly; it holds whole nu"),
        (
            np.array([449.0, 0.1]),
            "e4m3",
            "449.0 exactly; its largest number is 448, and it has no i",
        ),
        (np.array([0.1, np.nan]), "e2m1", r"\[0\] = 0.1 exactly; it has no NaN"),
        (None, "f16", "a must hold real numbers, got None$"),
        (np.array([2**53 + 1]), "f64", "f64 cannot hold"),
        (np.array([2**64 - 1], np.uint64), "f64", "f64 cannot hold"),
        (np.array([1j]), "f16", r"a must hold real numbers, got dtype complex128; cast it"),
        (np.array(["x"]), "f16", "a must hold real numbers, got dtype <U1"),
        (np.array([1], object), "f16", "a must hold real numbers, got dtype object"),
        ([Fraction(1, 3)], "f32", r"a holds 1/3 at \[0\], which no float64 equals"),
        ([10**400], "f64", "which no float64 equals"),
        ([2**70, 1.5, None], "f32", r"a must hold real numbers, got None at \[2\]"),
        ([[1], [1, 2]], "f16", "a is not an array of numbers"),
    ],
)
def test_what_is_refused(array: Any, fmt: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        as_values(array, fmt, name="a")
