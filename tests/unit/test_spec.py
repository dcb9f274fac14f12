"""Refusals of the functions on arrays, and their words."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tcusim
from asked import asked
from tcusim.errors import BackendUnavailable, InputError, UnknownName, Unsupported

X = np.ones(1000, np.float16)
SINGLE = np.ones(1000, np.float32)


def refuses(error: type[Exception], text: str, name: str, *args: Any, **keywords: Any) -> None:
    """Assert that a function of tcusim raises this error with this text."""
    with pytest.raises(error, match=re.escape(text)):
        getattr(tcusim, name)(*args, **asked(**keywords))


ALL = ("sum", "cumsum", "segmented_sum", "segmented_cumsum")
SEGMENTED = ("segmented_sum", "segmented_cumsum")


def arguments(name: str, x: Any) -> tuple[Any, ...]:
    return (x, 10) if name in SEGMENTED else (x,)


# --- Names --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        ({"arch": "hoper"}, "unknown architecture 'hoper'. Did you mean 'hopper'? Valid: "),
        ({"arch": "kepler"}, "unknown architecture 'kepler'."),
        ({"acc": "f64"}, "unknown accumulator 'f64'. Did you mean 'f16'? Valid: f16, f32."),
        ({"acc": "f23"}, "unknown accumulator 'f23'. Did you mean 'f32'? Valid: f16, f32."),
        ({"algorithm": "scan_2056"}, "unknown algorithm 'scan_2056'. Did you mean 'scan_256"),
        ({"algorithm": "bitonic"}, "Valid: gemm, gemm_naive, gemv, gemv_reduction, "),
        ({"backend": "nunpy"}, "unknown backend 'nunpy'. Did you mean 'numpy'? Valid: "),
    ],
)
def test_unknown_names(name: str, keywords: dict[str, Any], text: str) -> None:
    refuses(UnknownName, text, name, *arguments(name, X), **keywords)


@pytest.mark.parametrize("name", ALL)
def test_a_shape_that_is_none(name: str) -> None:
    text = "a shape is written '16x16x16', 'm16n16k16' or (16, 16, 16), sizes in M, N, K order"
    refuses(InputError, text, name, *arguments(name, X), tile="16 by 16")


def test_errors_of_names_are_value_errors_too() -> None:
    with pytest.raises(ValueError, match="unknown architecture"):
        tcusim.sum(X, options={"arch": "hoper"})
    assert issubclass(BackendUnavailable, RuntimeError)


# --- Parts that do not go together --------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "args", "keywords", "text"),
    [
        (
            "segmented_sum",
            (X, 17),
            {"algorithm": "reduction_k"},
            "reduction_k sums segments of at most k = 16 elements",
        ),
        (
            "segmented_sum",
            (X, 300),
            {"algorithm": "reduction_t"},
            "reduction_t sums segments of at most a tile, 256 elements",
        ),
        (
            "sum",
            (X,),
            {"algorithm": "reduction_16"},
            "reduction_k sums segments of at most k = 16 elements",
        ),
        (
            "segmented_cumsum",
            (X, 17),
            {"algorithm": "scan_k"},
            "scan_k scans segments of at most k = 16 elements",
        ),
        (
            "cumsum",
            (X,),
            {"algorithm": "scan_t"},
            "scan_t scans segments of at most a tile, 256 elements",
        ),
        ("sum", (X,), {"algorithm": "scan_t"}, "'scan_t' is a scan, and this is a reduction"),
        (
            "segmented_sum",
            (X, 16),
            {"algorithm": "scan_16"},
            "'scan_16' is a scan, and this is a reduction",
        ),
        (
            "cumsum",
            (X,),
            {"algorithm": "reduction_t"},
            "'reduction_t' is a reduction, and this is a scan",
        ),
        (
            "sum",
            (X,),
            {"algorithm": "reduction_256n", "tile": "16x8x8"},
            "'reduction_256n' is the paper's name for k = 16, but 16x8x8 has k = 8; "
            "use 'reduction_tn'",
        ),
        (
            "sum",
            (SINGLE,),
            {"algorithm": "reduction_tn_inefficient"},
            "it combines by mma and takes one part; take 'reduction_tn'",
        ),
        (
            "sum",
            (X.astype(np.int8),),
            {"algorithm": "reduction_tn_inefficient"},
            "operands of s8 where the array is of int8. Leave algorithm out",
        ),
        (
            "cumsum",
            (SINGLE,),
            {"algorithm": "scan_256n"},
            "its partial sums cannot be operands of bf16 where the array is of float32. Take "
            "algorithm 'scan_tn'",
        ),
    ],
)
def test_algorithms_that_cannot_do_it(
    name: str, args: tuple[Any, ...], keywords: dict[str, Any], text: str
) -> None:
    refuses(Unsupported, text, name, *args, **keywords)


@pytest.mark.parametrize("arch", ["volta", "turing"])
def test_types_that_a_unit_lacks(arch: str) -> None:
    for name in ALL:
        text = "tensor cores have no bf16 (sm_80 is the first); use arch 'ampere'"
        x = X.astype(ml_dtypes.bfloat16)
        refuses(Unsupported, text, name, *arguments(name, x), arch=arch)
        text = f"{arch} multiplies no float64. Give dtype 'float32', or cast the array"
        named = {"algorithm": "scan_k" if "cum" in name else "reduction_k"}
        refuses(Unsupported, text, name, *arguments(name, np.ones(10)), arch=arch, **named)


@pytest.mark.parametrize("arch", ["volta", "turing", "cdna", "amx"])
def test_float64_is_added_where_it_is_not_multiplied(arch: str) -> None:
    x = np.random.default_rng(4).standard_normal(3000)
    plan = tcusim.plan("sum", length=x.size, dtype="float64", options={"arch": arch})
    assert "f64 to f64" in str(plan)
    assert " 0 mma" in str(plan)
    for name in ALL:
        given = arguments(name, x)
        # The same additions everywhere, each rounded to nearest.
        found = getattr(tcusim, name)(*given, options={"arch": arch})
        assert found.tobytes() == getattr(tcusim, name)(*given, options={"arch": "volta"}).tobytes()
        parts = x.reshape(-1, given[1] if len(given) > 1 else x.size)
        expected = parts.cumsum(axis=1).ravel() if "cum" in name else parts.sum(axis=1)
        np.testing.assert_allclose(np.ravel(found), expected, rtol=0, atol=1e-11)
    np.testing.assert_array_equal(
        tcusim.sum(x, options={"arch": arch, "tile": "8x8x4"}),
        tcusim.plan(
            "sum", length=x.size, dtype="float64", options={"arch": arch, "tile": "16x8x4"}
        )(x),
    )


@pytest.mark.parametrize("arch", ["volta", "turing"])
def test_products_of_float64_say_what_to_do(arch: str) -> None:
    square = np.eye(3)
    text = f"{arch} multiplies no float64. Give dtype 'float32', or cast the array"
    for name, right in (("matmul", square), ("matvec", square[0])):
        refuses(Unsupported, text, name, square, right, arch=arch)
    found = tcusim.matmul(square, square, options={"arch": arch}, dtype="float32")
    np.testing.assert_array_equal(found, square.astype(np.float32))


@pytest.mark.parametrize("name", ALL)
def test_a_float16_accumulator_is_for_float16(name: str) -> None:
    for dtype in ("float32", "float64", "bfloat16"):
        x = X.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
        text = f"acc 'f16' is for float16 input, not {dtype}"
        refuses(Unsupported, text, name, *arguments(name, x), acc="f16")
    text = "acc 'f16' is for float16 input; integers are summed exactly"
    refuses(Unsupported, text, name, *arguments(name, X.astype(np.int8)), acc="f16")


@pytest.mark.parametrize(("arch", "limit"), [("hopper", 2**23), ("volta", 2**16)])
def test_no_algorithm_is_named_for_long_segments_of_integers(arch: str, limit: int) -> None:
    text = (
        f"segments of more than {limit} elements are summed exactly in pieces, and "
        "'reduction_tn' is for whole ones; leave it out"
    )
    x = np.zeros(limit + 1, np.int8)
    refuses(Unsupported, text, "sum", x, arch=arch, algorithm="reduction_tn")


@pytest.mark.parametrize("length", [2**16, 2**16 + 1, 3 * 2**16 + 7])
def test_integer_segments_of_any_length_are_exact(length: int) -> None:
    x = np.full(length, -128, np.int8)
    x[::3] = 127
    wide = np.cumsum(x.astype(np.int64))
    assert tcusim.sum(x, options={"arch": "volta"}) == wide[-1]
    assert np.array_equal(tcusim.cumsum(x, options={"arch": "volta"}), wide)
    behind = tcusim.cumsum(x, options={"arch": "volta"}, reverse=True, exclusive=True)
    assert np.array_equal(behind, wide[-1] - wide)
    cut = length // 2 + 5
    scan = tcusim.segmented_cumsum(x, cut, options={"arch": "volta"}, exclusive=True)
    expected = wide - x
    expected[cut:] -= wide[cut - 1]
    assert np.array_equal(scan, expected)
    exact = tcusim.sum(
        x.astype(np.float16), dtype="float64", options={"bits": "exact", "arch": "volta"}
    )
    assert exact == wide[-1]


def test_more_bytes_than_int32_holds_sums_of() -> None:
    assert tcusim.sum(np.full(2**24 + 1, -128, np.int8)) == -128 * (2**24 + 1)


# --- Segments -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SEGMENTED)
@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, "give segments: the elements of each one, an array of their offsets, or "),
        (0, "segments must be at least 1, got 0"),
        (-1, "segments must be at least 1, got -1"),
        (
            1.5,
            "segments must be the elements of each one, an integer, an array of their offsets, ",
        ),
        (16.0, "tcusim.Segments; got 16.0"),
        (True, "tcusim.Segments; got True"),
        ("16", "tcusim.Segments; got '16'"),
        (1001, "segments=1001 is longer than the axis, which has 1000"),
    ],
)
def test_segment_sizes(name: str, size: Any, text: str) -> None:
    refuses(InputError, text, name, X, size)


@pytest.mark.parametrize("size", [np.int64(10), np.uint8(10)])
def test_numpy_integers_are_sizes(size: Any) -> None:
    assert tcusim.segmented_sum(X, size).tolist() == [10.0] * 100


@pytest.mark.parametrize("name", SEGMENTED)
@pytest.mark.parametrize(
    ("offsets", "text"),
    [
        (
            [0, 5, 3, 1000],
            "offsets must not decrease, but offsets[1] = 5 and offsets[2] = 3",
        ),
        (
            [1, 1000],
            "offsets must begin with 0 and end with the axis' length, 1000; got 1 and 1000",
        ),
        (
            [0, 999],
            "offsets must begin with 0 and end with the axis' length, 1000; got 0 and 999",
        ),
        (
            [0, 1001],
            "offsets must begin with 0 and end with the axis' length, 1000; got 0 and 1001",
        ),
        (
            [-1, 1000],
            "offsets must begin with 0 and end with the axis' length, 1000; got -1 and 1000",
        ),
        (
            [0.0, 1000.0],
            "offsets must be a flat array of segments + 1 integers, got shape (2,), dtype float64",
        ),
        (
            [[0, 1000]],
            "offsets must be a flat array of segments + 1 integers, got shape (1, 2), dtype int64",
        ),
        (
            [],
            "offsets must be a flat array of segments + 1 integers, got shape (0,), dtype float64",
        ),
        (
            np.array(7),
            "offsets must be a flat array of segments + 1 integers, got shape (), dtype int64",
        ),
        (
            [False, True],
            "offsets must be a flat array of segments + 1 integers, got shape (2,), dtype bool",
        ),
        (
            np.array([0, 2**63 + 5, 1000], np.uint64),
            f"offsets must not decrease, but offsets[1] = {2**63 + 5} and offsets[2] = 1000",
        ),
        (
            np.array([0, 2**63], np.uint64),
            f"offsets must begin with 0 and end with the axis' length, 1000; got 0 and {2**63}",
        ),
    ],
)
def test_offsets(name: str, offsets: Any, text: str) -> None:
    refuses(InputError, text, name, X, offsets)


# --- Arrays and types ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("x", "dtype", "remedy"),
    [
        (np.ones(20, np.complex64), "complex64", "pass a.real and a.imag, one after the other"),
        (np.array([None] * 20), "object", "pass numbers, or an array of them, such as np.array("),
        (np.array(["1"] * 20), "<U1", "pass numbers, or"),
        (np.zeros(20, "M8[s]"), "datetime64[s]", "pass numbers, or"),
        (np.ones(20, ml_dtypes.float8_e4m3fn), "float8_e4m3fn", "cast it first, for example a.as"),
        ([2**70] * 20, "object", "pass numbers, or"),
    ],
)
def test_arrays_of_what_is_no_real_number(name: str, x: Any, dtype: str, remedy: str) -> None:
    text = (
        "a must hold real numbers (float16, float32, float64, bfloat16, integers or bool), got "
        f"dtype {dtype}; {remedy}"
    )
    refuses(InputError, text, name, *arguments(name, x))


@pytest.mark.skipif(np.longdouble == np.float64, reason="long double is float64 here")
@pytest.mark.parametrize("name", ALL)
def test_long_double(name: str) -> None:
    long_double = np.dtype(np.longdouble)
    text = f"input of dtype {long_double} is not supported; cast it to float32 or float64"
    refuses(InputError, text, name, *arguments(name, X.astype(long_double)))
    text = f"dtype must be one of float16, float32, float64, bfloat16, got {long_double}"
    refuses(InputError, text, name, *arguments(name, X), dtype=long_double)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        (int, "dtype int64 would cut the fractions of float16 input; sum in a float type, then"),
        ("uint8", "dtype uint8 would cut the fractions of float16 input"),
        ("half a float", "dtype: data type 'half a float' not understood"),
        (complex, "dtype must be a real number type, got complex128"),
        (bool, "dtype must be a real number type, got bool"),
        ("U3", "dtype must be a real number type, got <U3"),
    ],
)
def test_types_of_results(name: str, dtype: Any, text: str) -> None:
    refuses(InputError, text, name, *arguments(name, X), dtype=dtype)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("value", "dtype"), [(1e39, "float32"), (-1e300, "float32"), (65520.0, "float16")]
)
def test_values_beyond_the_type_of_the_computation(name: str, value: float, dtype: str) -> None:
    x = np.ones(20)
    x[7] = value
    text = (
        f"the input holds values beyond the range of {dtype}, the type of the computation; "
        "leave dtype out, or scale the input"
    )
    refuses(InputError, text, name, *arguments(name, x), dtype=dtype)


def test_values_within_the_type_of_the_computation() -> None:
    x = np.full(4, 65519.0)
    with pytest.warns(RuntimeWarning, match="overflow"):
        result = tcusim.cumsum(x, dtype=np.float16)
    assert result.tolist() == [65504, np.inf, np.inf, np.inf]
    x[1] = np.inf
    assert tcusim.sum(x, dtype=np.float32) == np.inf


@pytest.mark.parametrize(
    ("name", "out", "text"),
    [
        (
            "cumsum",
            np.zeros(999, np.float16),
            "out must be an array of float16, shape (1000,); got float16, (999,)",
        ),
        (
            "cumsum",
            np.zeros(1000, np.float32),
            "out must be an array of float16, shape (1000,); got float32, (1000,)",
        ),
        (
            "segmented_cumsum",
            np.zeros((10, 100), np.float16),
            "out must be an array of float16, shape (1000,); got float16, (10, 100)",
        ),
        (
            "segmented_sum",
            np.zeros(1000, np.float16),
            "out must be an array of float16, shape (100,); got float16, (1000,)",
        ),
        ("sum", np.zeros(1, np.float16), "out must be an array of float16, shape (); got float16"),
        ("sum", [0.0], "out must be an array of float16, shape (); got list"),
    ],
)
def test_out(name: str, out: Any, text: str) -> None:
    refuses(InputError, text, name, *arguments(name, X), out=out)


@pytest.mark.parametrize(
    ("name", "axis", "text"),
    [
        ("sum", 2, "axis 2 is out of range for an array of 2 dimensions"),
        ("sum", -3, "axis -3 is out of range for an array of 2 dimensions"),
        ("sum", (0, 2), "axis 2 is out of range for an array of 2 dimensions"),
        ("sum", (0, 0), "axis (0, 0) names an axis twice"),
        ("sum", (1, -1), "axis (1, -1) names an axis twice"),
        ("sum", 1.0, "axis must be an integer, or several for a sum, got 1.0"),
        ("cumsum", 2, "axis 2 is out of range for an array of 2 dimensions"),
        ("segmented_sum", 5, "axis 5 is out of range for an array of 2 dimensions"),
        ("segmented_cumsum", -4, "axis -4 is out of range for an array of 2 dimensions"),
    ],
)
def test_axes(name: str, axis: Any, text: str) -> None:
    refuses(InputError, text, name, *arguments(name, X.reshape(10, 100)), axis=axis)


@pytest.mark.parametrize("name", SEGMENTED)
def test_a_scalar_has_no_axis_of_segments(name: str) -> None:
    refuses(
        InputError, "axis -1 is out of range for an array of 0 dimensions", name, np.float16(1), 1
    )


@pytest.mark.parametrize("axis", [(0, 1), (0,), ()])
@pytest.mark.parametrize("name", ["cumsum", *SEGMENTED])
def test_only_a_sum_takes_several_axes(name: str, axis: Any) -> None:
    x = X.reshape(10, 100)
    refuses(
        InputError, f"axis must be one integer, got {axis}", name, *arguments(name, x), axis=axis
    )


@pytest.mark.parametrize("name", SEGMENTED)
def test_segments_need_an_axis(name: str) -> None:
    refuses(InputError, "axis must be one integer, got None", name, X, 10, axis=None)
