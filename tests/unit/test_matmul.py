"""tcusim.matmul and tcusim.matvec: NumPy's shapes and types, exact results, and refusals."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tcusim
from asked import asked
from tcusim.arrays.report import Report
from tcusim.errors import InputError, UnknownName, Unsupported


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# --- Shapes -----------------------------------------------------------------------------------


def test_one_right_matrix_is_one_launch() -> None:
    report = Report()
    a, b = np.ones((4, 3, 5), np.float16), np.ones((5, 2), np.float16)
    tcusim.matmul(a, b, options={"report": report})
    assert report.launches == 1
    tcusim.matmul(a, np.stack([b] * 4), options={"report": report})
    assert report.launches == 5
    assert (report.arch, report.mma) == ("hopper", 5 * 2)


# --- Types ------------------------------------------------------------------------------------


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
    """The rule for a vector, by the program built; each way is right."""
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
