"""tcusim.matmul and tcusim.matvec: NumPy's shapes and types, exact results, and refusals."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tcusim
from asked import asked
from tcusim.arrays.functions import Report
from tcusim.errors import InputError, UnknownName, Unsupported

BF16 = ml_dtypes.bfloat16
UNIT = {np.float16: 2.0**-10, BF16: 2.0**-7, np.float32: 2.0**-22, np.float64: 2.0**-50}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# --- Shapes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ((3, 4), (4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((2, 3, 4), (4, 5)),
        ((2, 3, 4), (4,)),
        ((4,), (2, 4, 5)),
        ((2, 1, 3, 4), (3, 4, 5)),
        ((3, 4), (2, 2, 4, 1)),
        ((0, 4), (4, 5)),
        ((3, 0), (0, 5)),
        ((3, 4), (4, 0)),
        ((0, 3, 4), (4, 5)),
        ((0,), (0,)),
    ],
)
def test_shapes_are_numpys(one: tuple[int, ...], two: tuple[int, ...]) -> None:
    a = rng(1).integers(-4, 5, one).astype(np.float16)
    b = rng(2).integers(-4, 5, two).astype(np.float16)
    expected = np.matmul(a, b)
    result = tcusim.matmul(a, b)
    assert type(result) is type(expected)
    assert (np.shape(result), result.dtype) == (expected.shape, expected.dtype)
    assert np.array_equal(result, expected)
    c = rng(3).integers(-4, 5, expected.shape).astype(np.float16)
    assert np.array_equal(tcusim.matmul(a, b, c), expected + c)
    out = np.empty(expected.shape, np.float16)
    assert tcusim.matmul(a, b, 1, out=out) is out
    assert np.array_equal(out, expected + 1)


@pytest.mark.parametrize(
    ("one", "two"),
    [((3, 4), (4,)), ((2, 3, 4), (4,)), ((2, 3, 4), (2, 4)), ((3, 4), (5, 4)), ((0, 4), (4,))],
)
def test_shapes_of_matvec(one: tuple[int, ...], two: tuple[int, ...]) -> None:
    a = rng(1).integers(-4, 5, one).astype(np.float16)
    x = rng(2).integers(-4, 5, two).astype(np.float16)
    expected = np.matmul(a, x[..., None])[..., 0]
    for algorithm in (None, "gemv", "gemv_reduction", "gemm"):
        result = tcusim.matvec(a, x, options={"algorithm": algorithm})
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
        assert np.array_equal(result, expected)
    assert np.array_equal(tcusim.matvec(a, x, [1.0] * one[-2]), expected + 1)


def test_one_right_matrix_is_one_launch() -> None:
    report = Report()
    a, b = np.ones((4, 3, 5), np.float16), np.ones((5, 2), np.float16)
    tcusim.matmul(a, b, options={"report": report})
    assert report.launches == 1
    tcusim.matmul(a, np.stack([b] * 4), options={"report": report})
    assert report.launches == 5
    assert (report.arch, report.mma) == ("hopper", 5 * 2)


def test_layouts_in_memory_do_not_matter() -> None:
    a = rng(1).integers(-4, 5, (20, 30)).astype(np.float16)
    b = np.asfortranarray(rng(2).integers(-4, 5, (60, 10)).astype(np.float16))[::2]
    assert np.array_equal(tcusim.matmul(a, b), a @ b)
    assert np.array_equal(tcusim.matmul(b.T, a.T), b.T @ a.T)


# --- Types ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", UNIT, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("algorithm", [None, "gemm_naive"])
def test_floats_are_near_float64(dtype: Any, algorithm: str | None) -> None:
    a, b, c = (rng(seed).standard_normal((90, 90)).astype(dtype) for seed in range(3))
    a, b, c = a[:70], b[:, :40], c[0, :40]
    wide = [x.astype(np.float64) for x in (a, b, c)]
    expected = wide[0] @ wide[1] + wide[2]
    magnitude = np.abs(wide[0]) @ np.abs(wide[1]) + np.abs(wide[2])
    result = tcusim.matmul(a, b, c, options={"algorithm": algorithm})
    assert result.dtype == dtype
    assert (np.abs(result.astype(np.float64) - expected) <= UNIT[dtype] * magnitude).all()
    result = tcusim.matmul(a, b, c, dtype=np.float64, options={"algorithm": algorithm})
    assert (np.abs(result - expected) <= UNIT[np.float64] * magnitude).all()


@pytest.mark.parametrize("arch", ["volta", "turing", "ampere", "hopper"])
def test_float32_is_as_good_as_numpys(arch: str) -> None:
    a, b = (
        rng(i).standard_normal(s).astype(np.float32) for i, s in enumerate(((20, 700), (700, 30)))
    )
    expected = a.astype(np.float64) @ b
    # The oldest unit truncates one bit earlier, four times in a tile of 16.
    limit = (4 if arch in ("volta", "turing") else 1.5) * np.abs(a @ b - expected).max()
    assert np.abs(tcusim.matmul(a, b, options={"arch": arch}) - expected).max() <= limit
    assert np.abs(tcusim.matvec(a, b[:, 0], options={"arch": arch}) - expected[:, 0]).max() <= limit


@pytest.mark.parametrize("arch", ["volta", "hopper"])
def test_float32_near_the_ends_of_its_range(arch: str) -> None:
    largest = np.finfo(np.float32).max
    a = np.array([[largest, 0], [1, -largest]], np.float32)
    b = np.array([[1, 2.0**-90], [0.25, 2.0**-100]], np.float32)
    expected = (a.astype(np.float64) @ b).astype(np.float32)
    result = tcusim.matmul(a, b, options={"arch": arch})
    np.testing.assert_allclose(result, expected, rtol=2**-22 if arch == "hopper" else 1e-6)
    # C is added where the scale of A is undone.
    with pytest.warns(RuntimeWarning, match="overflow"):
        result = tcusim.matmul(a, b, -float(largest), options={"arch": arch})
    np.testing.assert_array_equal(result[:, 0], [0, -np.inf])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_infinities_and_nan_go_where_they_belong(dtype: Any) -> None:
    a = rng(1).integers(-2, 3, (20, 30)).astype(dtype)
    b = rng(2).integers(-2, 3, (30, 20)).astype(dtype)
    c = rng(3).integers(-2, 3, (20, 20)).astype(dtype)
    a[3, 4], a[5, 6], a[5, 7], b[8, 9], c[3, 0], c[1, 1] = (
        np.inf,
        np.nan,
        1,
        -np.inf,
        -np.inf,
        np.inf,
    )
    with np.errstate(invalid="ignore"):
        expected = a @ b + c
    np.testing.assert_array_equal(tcusim.matmul(a, b, c), expected)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(tcusim.matvec(a, b[:, 9]), a @ b[:, 9])


@pytest.mark.parametrize("arch", ["volta", "hopper"])
@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u4", "i8", "u8", "?"])
def test_integers_are_exact(dtype: str, arch: str) -> None:
    given = np.dtype(dtype)
    low, high = (0, 1) if given.kind == "b" else (np.iinfo(given).min, np.iinfo(given).max)
    draw = "i1" if given.kind == "b" else given
    a, b = (
        rng(i).integers(low, high, size, draw, endpoint=True).astype(given)
        for i, size in enumerate(((19, 30), (30, 9)))
    )
    wide = np.uint64 if given.kind == "u" else np.int64
    expected = a.astype(wide) @ b.astype(wide)
    result = tcusim.matmul(a, b, options={"arch": arch})
    assert result.dtype == wide
    assert np.array_equal(result, expected)
    assert np.array_equal(tcusim.matvec(a, b[:, 0], options={"arch": arch}), expected[:, 0])
    narrow = tcusim.matmul(a, b, a[:, :9], dtype=np.int16, options={"arch": arch})
    assert narrow.dtype == np.int16
    assert np.array_equal(narrow, (expected + a[:, :9].astype(wide)).astype(np.int16))


def test_long_integer_sums_are_cut() -> None:
    a = np.full((1, 3000), -128, np.int8)
    assert tcusim.matmul(a, a.T, options={"arch": "volta"}).item() == 3000 * 2**14
    report = Report()
    long = np.full((1, 2**16 + 5), -128, np.int8)
    assert tcusim.matvec(long, long[0], options={"report": report}).item() == (2**16 + 5) * 2**14
    assert report.launches == 2


def test_types_that_meet() -> None:
    half, single = np.ones((2, 2), np.float16), np.ones((2, 2), np.float32)
    whole = np.ones((2, 2), np.int8)
    assert tcusim.matmul(half, single).dtype == np.float32
    assert tcusim.matmul(half, whole).dtype == np.float16
    assert tcusim.matmul(half, half, single).dtype == np.float32
    assert tcusim.matmul(half, half, 1.5).dtype == np.float16
    assert tcusim.matmul(whole, whole, 1.5).dtype == np.float64
    assert tcusim.matmul(half, half, dtype=np.float32).dtype == np.float32
    assert tcusim.matmul(whole, whole, dtype=np.float32).dtype == np.float32
    report = Report()
    tcusim.matmul(half, half, single, options={"report": report})
    ((program, _),) = report.programs
    # The float16 matrices are operands as they are; only C and the result are float32.
    assert (program.ab, program.acc) == ("f16", "f32")
    assert [b.dtype for b in (*program.inputs, *program.outputs)] == ["f16", "f16", "f32", "f32"]


def test_the_accumulator_of_half_precision() -> None:
    """4096 ones: a float16 accumulator stalls at 2048, on a unit that truncates, or rounds."""
    a, b = np.ones((1, 4096), np.float16), np.ones((4096, 1), np.float16)
    assert tcusim.matmul(a, b).item() == 4096
    stalled = tcusim.matmul(
        a / 16, b, a[:, :1] * 2048, options={"acc": "f16", "arch": "volta"}
    ).item()
    assert 2048 <= stalled < 2048 + 256
    report = Report()
    tcusim.matmul(a, b, options={"acc": "f16", "report": report, "algorithm": "gemm"})
    assert report.counts.additions == 0


def test_matrices_of_few_rows_are_shared() -> None:
    """The rule for a vector, by what is built; each way is right."""
    rng_ = rng(4)
    few, some, many = (40, 200, 1, 1, 4), (40, 600, 4, 1, 4), (2**14, 16, 4, 2, 8)
    for rows, inner, warps, down, width in (few, some, many):
        a = rng_.integers(-2, 3, (rows, inner)).astype(np.float16)
        x = rng_.integers(-2, 3, inner).astype(np.float16)
        report = Report()
        assert np.array_equal(
            tcusim.matvec(a, x, dtype=np.float32, options={"report": report}), a @ x
        )
        ((program, _),) = report.programs
        assert program.warps == warps
        shared = (warps, down) == (4, 1)
        assert ("sums" in {buffer.name for buffer in program.buffers}) == shared
        ours = tcusim.build(
            "gemv_reduction", inner=inner, warps=warps, down=down, width=width,
            share_rows=shared, accumulation_length=16, stages=8 if shared else 2,
        )  # fmt: skip
        assert program.steps == ours.steps


# --- Refusals -----------------------------------------------------------------------------------

X = np.ones((3, 4), np.float16)
Y = X.T.copy()
SINGLE, WIDE, WHOLE = X.astype(np.float32), X * np.float64(1e6), X.astype(np.int8)

# The error, its text, the arguments and the keywords.
REFUSED: tuple[tuple[type[Exception], str, tuple[Any, ...], dict[str, Any]], ...] = (
    (
        InputError,
        "a has 4 columns and b 3 rows, which must be equal; got shapes (3, 4)",
        (X, X),
        {},
    ),
    (InputError, "matmul takes arrays of one axis or more, got shapes () and (3, 4)", (2, X), {}),
    (
        InputError,
        "the axes before the matrices cannot be broadcast: (2,) and (3,)",
        (np.ones((2, 3, 4)), np.ones((3, 4, 5))),
        {},
    ),
    (
        InputError,
        "c must have the shape (3, 3), or be broadcast to it; got (4,)",
        (X, Y, np.ones(4)),
        {},
    ),
    (InputError, "a must hold real numbers", (X * 1j, Y), {}),
    (InputError, "b must hold real numbers", (X, Y.astype(str)), {}),
    (InputError, "c must hold real numbers", (X, Y, 1j), {}),
    (
        InputError,
        "out must be an array of float16, shape (3, 3); got float32, (3, 3)",
        (X, Y),
        {"out": np.empty((3, 3), np.float32)},
    ),
    (
        InputError,
        "dtype int32 would cut the fractions of float16 input; multiply in a float type",
        (X, Y),
        {"dtype": np.int32},
    ),
    (
        InputError,
        "dtype must be a real number type, got complex128",
        (X, Y),
        {"dtype": complex},
    ),
    (InputError, "dtype: data type 'f17' not understood", (X, Y), {"dtype": "f17"}),
    (
        InputError,
        "the input holds values beyond the range of float16, the type of the computation",
        (WIDE, Y),
        {"dtype": np.float16},
    ),
    (
        Unsupported,
        "acc 'f16' is for float16 input, not float32",
        (SINGLE, Y),
        {"acc": "f16"},
    ),
    (
        Unsupported,
        "acc 'f16' is for float16 input; integers are exact",
        (WHOLE, WHOLE.T),
        {"acc": "f16"},
    ),
    (Unsupported, "'scan_t' is a scan, and this is a product", (X, Y), {"algorithm": "scan_t"}),
    (
        Unsupported,
        "'gemv' multiplies a matrix by one vector, and b has 3 columns; use 'gemm'",
        (X, Y),
        {"algorithm": "gemv"},
    ),
    (UnknownName, "unknown algorithm 'gem'. Did you mean 'gem", (X, Y), {"algorithm": "gem"}),
    (UnknownName, "unknown accumulator 'f17'", (X, Y), {"acc": "f17"}),
)


@pytest.mark.parametrize(("error", "text", "arguments", "keywords"), REFUSED)
def test_matmul_refuses(
    error: type[Exception], text: str, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    with pytest.raises(error, match=re.escape(text)):
        tcusim.matmul(*arguments, **asked(**keywords))


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("a has 4 columns and x 3 elements, which must be equal", (X, X[:, 0])),
        ("matvec takes a matrix, of two axes or more, and a vector", (X[0], X[0])),
        ("x must hold real numbers", (X, X[0] * 1j)),
        (
            "the axes before the matrices cannot be broadcast: (3,) and (2,)",
            (np.ones((3, 2, 4)), np.ones((2, 4))),
        ),
    ],
)
def test_matvec_refuses(text: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(InputError, match=re.escape(text)):
        tcusim.matvec(*arguments)


@pytest.mark.parametrize(("tile", "dtype"), [((2, 2, 2), "f4"), ((1, 1, 1), "f2")])
def test_small_products_on_tiny_tiles_are_short_programs(tile: Any, dtype: str) -> None:
    a = np.arange(9).reshape(3, 3).astype(dtype)
    report = Report()
    result = tcusim.matmul(a, a, options={"tile": tcusim.MmaShape(*tile), "report": report})
    assert np.array_equal(result, a @ a)
    assert report.mma < 10_000
