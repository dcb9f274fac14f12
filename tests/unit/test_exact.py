"""Results that one product cannot hold: digits, parts, infinities, and addends of products."""

from __future__ import annotations

import itertools
import os
import tracemalloc
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tcusim
from asked import asked
from drawn_rules import drawn_part
from numbers_of_types import same_bits
from pieces import small_pieces
from tcusim.errors import InputError, Unsupported
from tcusim.machine import Arch, Exact, Fused, Integer, Rule, Sequential, register_arch
from tcusim.machine.rules import Numerics

LARGEST = float(np.finfo(np.float32).max)
# The module, for calls that a type checker would refuse.
UNTYPED: Any = tcusim


def singles(values: Any) -> NDArray[np.float32]:
    return np.array(values, np.float32)


def halves(*shape: int) -> NDArray[np.float16]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float16)


# --- Float32 beyond bf16 --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_a_huge_number_leaves_other_results_alone(dtype: str) -> None:
    wanted = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    x = np.zeros(48, np.float32)
    x[16:] = np.arange(32) * 2.0**-24
    y = x.copy()
    y[40] = 3.4e38
    with np.errstate(over="ignore"):
        for name, size in (("segmented_sum", 1), ("segmented_sum", 16), ("segmented_cumsum", 16)):
            function = getattr(tcusim, name)
            plain, huge = (function(a, size, dtype=wanted) for a in (x, y))
            assert np.sum(plain.view(np.uint8) != huge.view(np.uint8)) > 0
            changed = np.flatnonzero(plain != huge)
            first = 40 // (size if name == "segmented_sum" else 1)
            assert changed[0] == first
            assert (changed < (first + 1 if name == "segmented_sum" else 48)).all()


@pytest.mark.parametrize(
    ("algorithm", "arch"), [("reduction_kn", "hopper"), ("reduction_k", "volta")]
)
def test_a_huge_number_is_one_of_the_terms(algorithm: str, arch: str) -> None:
    # Of bf16 parts, each is a sum of halves, and taken twice.
    x = singles([[3.4e38, -3.4e38, 3.4e38, 1], [-3e38, 2.0**100, 1e38, 0], [3.39e38, 0, 0, 1e30]])
    sums = tcusim.sum(x, axis=1, options={"algorithm": algorithm, "arch": arch})
    np.testing.assert_allclose(sums, [3.4e38, -2e38, 3.39e38], rtol=1e-6)
    scans = tcusim.cumsum(
        x, axis=1, options={"algorithm": algorithm.replace("reduction", "scan"), "arch": arch}
    )
    np.testing.assert_allclose(scans[1], [-3e38, -3e38, -2e38, -2e38], rtol=1e-6)


def test_a_huge_number_leaves_other_rows_of_a_product_alone() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((40, 40)).astype(np.float32) for _ in range(2))
    plain = tcusim.matmul(a, b)
    a[3, 5], b[7, 9] = 3.4e38, -3.39e38
    with np.errstate(over="ignore"):
        result = tcusim.matmul(a, b)
    mixed = np.zeros((40, 40), bool)
    mixed[3] = mixed[:, 9] = True
    np.testing.assert_array_equal(result[~mixed], plain[~mixed])
    exact = a.astype(np.float64) @ b
    fits = np.abs(exact) < LARGEST
    np.testing.assert_allclose(result[fits & mixed], exact[fits & mixed], rtol=1e-5)
    assert np.isinf(result[~fits]).all()
    assert (np.signbit(result[~fits]) == (exact[~fits] < 0)).all()


# --- Products at the ends of the range ------------------------------------------------------------


@pytest.mark.parametrize("arch", ["hopper", "volta"])
def test_products_that_overflow_are_infinite(arch: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        a, b = (
            singles([[sign * rng.uniform(1, 2) * 2.0 ** rng.integers(64, 127)]])
            for sign in rng.choice([-1, 1], 2)
        )
        with pytest.warns(RuntimeWarning, match="overflow"):
            result = tcusim.matmul(a, b, options={"arch": arch})[0, 0]
        assert result == np.inf * np.sign(a[0, 0]) * np.sign(b[0, 0])


def test_a_number_too_fine_for_bf16_beside_a_large_one() -> None:
    """Both factors are enlarged for it, but for products that would not have room then."""
    a = singles([[2.0**power, 2.0**-140] for power in range(40, 62)])
    np.testing.assert_array_equal(tcusim.matmul(a, a.T), np.outer(a[:, 0], a[:, 0]))


@pytest.mark.parametrize("arch", ["hopper", "volta"])
def test_partial_sums_that_overflow_do_not_spoil_a_product(arch: str) -> None:
    a = singles([[1e38, 1e38, 1e38, -1e38, -1e38, 1e38]])
    b = singles([[2], [2], [2], [2], [2], [0.5]])
    np.testing.assert_allclose(tcusim.matmul(a, b, options={"arch": arch}), [[2.5e38]], rtol=1e-6)
    np.testing.assert_allclose(
        tcusim.matmul(a[:, :3], b[:3], singles([[-3.4e38]]), options={"arch": arch}),
        [[2.6e38]],
        rtol=1e-6,
    )
    np.testing.assert_allclose(
        tcusim.matmul(a[:, :1], b[:1], -LARGEST, options={"arch": arch}),
        [[2e38 - LARGEST]],
        rtol=1e-6,
    )


@pytest.mark.parametrize("arch", ["hopper", "volta"])
def test_what_is_not_finite_meets_an_addend(arch: str) -> None:
    pairs = singles([*itertools.product([1, np.inf, -np.inf, np.nan], repeat=2)])
    a, b, c = pairs[:, :1], singles([[1, -2]]), pairs[:, 1:]
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(tcusim.matmul(a, b, c, options={"arch": arch}), a @ b + c)


# --- Warnings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "overflows"),
    [
        (lambda: tcusim.sum(np.full(3, 60000, np.float16)), True),
        (lambda: tcusim.cumsum(np.full(3, 3e38, np.float32)), True),
        (lambda: tcusim.sum(np.full(3, 3e38, np.float32), options={"arch": "volta"}), True),
        (lambda: tcusim.sum(np.full(3, 1e308)), True),
        (lambda: tcusim.sum(np.full(100, 1000), dtype="float16"), True),
        (lambda: tcusim.matmul(np.full((1, 1), 300, "f2"), np.full((1, 1), 300, "f2")), True),
        (lambda: tcusim.plan("sum", length=3)(np.full(3, 60000, np.float16)), True),
        (lambda: tcusim.sum(np.array([1, np.inf], np.float16)), False),
        (lambda: tcusim.cumsum(singles([1, np.nan, -np.inf, np.inf])), False),
        (lambda: tcusim.matmul(singles([[np.inf, 0]]), singles([[0], [1]])), False),
        (lambda: tcusim.sum(singles([3.4e38, -3.39e38])), False),
        (lambda: tcusim.sum(np.array([100, 100], np.int8), dtype="int8"), False),
        (lambda: tcusim.matmul(singles([[1e-30]]), singles([[1e-30]])), False),
    ],
)
def test_an_overflow_warns_as_numpy_does_and_nothing_else_warns(call: Any, overflows: bool) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
        with np.errstate(all="ignore"):
            before = len(caught)
            call()
    assert [str(one.message).startswith("overflow encountered") for one in caught] == (
        [True] if overflows else []
    )
    assert len(caught) == before
    if overflows:
        with np.errstate(over="raise"), pytest.raises(FloatingPointError, match="overflow"):
            call()


@pytest.mark.parametrize(("arch", "inner"), [("volta", 2**10 + 5), ("hopper", 2**16 + 5)])
def test_integer_products_of_any_length(arch: str, inner: int) -> None:
    """Sums are exact in slices, of 2**10 digits in f32, and of 2**16 in s32."""
    a, b = np.random.default_rng(inner).integers(-9, 9, (2, inner))
    assert tcusim.matvec(a[None], b, options={"arch": arch}).tolist() == [a @ b]


# --- Addends of a product -------------------------------------------------------------------------

ROW, HALF = np.ones((1, 2), np.int8), np.ones((1, 2), np.float16)


@pytest.mark.parametrize(
    ("c", "dtype"),
    [(0.9, "int64"), (np.array([[0.9]]), "int64"), (np.nan, "int64"), (1.25, "int8"), (2.0, "i4"),
     (np.array([[np.inf]]), "uint64")],
)  # fmt: skip
def test_an_addend_with_fractions_is_not_cut(c: Any, dtype: str) -> None:
    text = (
        rf"c is of float\d+, but the result of {np.dtype(dtype)}, which takes integers only. Give"
    )
    for call in (
        lambda: tcusim.matmul(ROW, ROW.T, c, dtype=dtype),
        lambda: tcusim.matvec(ROW, ROW[0], np.ravel(c)[0], dtype=dtype),
    ):
        with pytest.raises(InputError, match=text):
            call()


@pytest.mark.parametrize(
    ("c", "dtype", "expected"),
    [(300, None, 302), (-1, None, 1), (2**62, None, 2**62 + 2), (2**63, None, 2 - 2**63),
     (300, "int8", 46), (np.uint64(2**64 - 1), "int64", 1), (0.9, None, 2.9), (True, None, 3),
     (300, "float16", 302)],
)  # fmt: skip
def test_addends_of_integer_products(c: Any, dtype: Any, expected: float) -> None:
    result = tcusim.matmul(ROW, ROW.T, c, dtype=dtype)
    assert result.tolist() == [[np.float16(expected) if dtype == "float16" else expected]]
    assert result.dtype == (dtype or (np.int64 if isinstance(expected, int) else np.float64))


def test_an_addend_has_the_precision_of_the_result() -> None:
    assert tcusim.matmul(HALF, HALF.T, 1e6, dtype="float32") == 1000002
    assert tcusim.matmul(HALF, HALF.T, 0.1, dtype="float64") == 2.1
    assert tcusim.matmul(HALF, HALF.T, singles([[0.1]])) == np.float32(2.1)
    unsigned = ROW.astype(np.uint8)
    assert tcusim.matvec(unsigned, unsigned[0], -1).tolist() == [1]
    with pytest.raises(InputError, match="c holds values beyond the range of float16"):
        tcusim.matmul(HALF, HALF.T, 1e6)
    with pytest.raises(InputError, match="c is beyond the range of float16"):
        tcusim.matmul(HALF, HALF.T, 10**400)


# --- A plan is the function -----------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["hopper", "volta"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "uint32", "bool"])
def test_a_plan_has_the_bits_of_the_function(dtype: str, arch: str) -> None:
    rng = np.random.default_rng(1)
    x = (100 * rng.standard_normal(300)).astype(dtype)
    if dtype == "float32":
        x[7], x[200] = np.nan, 3.3e38
    for result in (None, "float64" if arch == "hopper" else "float32"):
        for name, sizes in (("sum", {}), ("segmented_cumsum", {"segments": 50})):
            plan = UNTYPED.plan(
                name, length=300, dtype=dtype, result=result, options={"arch": arch}, **sizes
            )
            expected = getattr(tcusim, name)(x, **sizes, dtype=result, options={"arch": arch})
            assert plan.result == expected.dtype
            np.testing.assert_array_equal(plan(x), expected)
        plan = UNTYPED.plan_product(
            "matmul",
            rows=10,
            inner=30,
            cols=10,
            dtype=dtype,
            result=result,
            add_c=True,
            options={"arch": arch},
        )
        a, b = x.reshape(10, 30), x.reshape(30, 10)
        c = np.ones((10, 10), plan.result)
        with np.errstate(over="ignore"):
            expected = tcusim.matmul(a, b, c, dtype=result, options={"arch": arch})
            np.testing.assert_array_equal(plan(a, b, c), expected)


# --- Scalars, and arguments that are none ---------------------------------------------------------


@pytest.mark.parametrize("axis", [None, 0, -1, ()])
def test_a_scalar_has_one_axis_as_in_numpy(axis: Any) -> None:
    x = np.float32(3)
    for keepdims in (False, True):
        result, expected = (
            function(x, axis=axis, keepdims=keepdims) for function in (tcusim.sum, np.sum)
        )
        assert (np.shape(result), result) == (np.shape(expected), expected)
    if not isinstance(axis, tuple):
        np.testing.assert_array_equal(tcusim.cumsum(x, axis=axis), np.cumsum(x, axis=axis))


SQUARE = np.ones((2, 2), np.float16)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: UNTYPED.sum(SQUARE, options={"backend": ["numpy"]}),
            "backend must be a name, got ['numpy']",
        ),
        (lambda: UNTYPED.sum(SQUARE, options={"acc": [1]}), "acc must be a name, got [1]"),
        (lambda: UNTYPED.sum(SQUARE, options={"acc": ""}), "unknown accumulator ''"),
        (
            lambda: UNTYPED.sum(SQUARE, options={"algorithm": {}}),
            "algorithm must be a name, got {}",
        ),
        (lambda: UNTYPED.matmul(SQUARE, SQUARE, options={"arch": 7}), "arch must be a name, got 7"),
        (lambda: UNTYPED.plan(["sum"], length=5), "operation must be a name, got ['sum']"),
        (lambda: UNTYPED.plan_product(["matmul"], rows=1, inner=1), "unknown operation ['matmul']"),
        (
            lambda: UNTYPED.sum(SQUARE, options={"tile": "8x8x16"}),
            "tiles of 8x8x16 do not do: reduction_",
        ),
        (
            lambda: UNTYPED.matmul(SQUARE, SQUARE, options={"tile": "8x8x16"}),
            "tiles of 8x8x16 do not do: gemm",
        ),
        (
            lambda: UNTYPED.plan_product("matvec", rows=2, inner=2**70),
            "inner must be at most 2**48",
        ),
        (lambda: UNTYPED.plan("sum", length=2**70), "length must be at most 2**48, got 1180591620"),
        (lambda: UNTYPED.sum([[1, 2], [3]]), "a is no array: NumPy says: setting an array element"),
        (lambda: UNTYPED.cumsum(SQUARE, axis=[1]), "axis must be one integer, got [1]"),
        (lambda: UNTYPED.segmented_sum(SQUARE, {1}), "or tcusim.Segments; got {1}"),
        (lambda: UNTYPED.sum(SQUARE, dtype=[("x", int)]), "dtype must be a real number type, got"),
        *(
            (partial(call, exclusive=True, include_initial=True), "both begin with 0: leave one")
            for call in (
                partial(tcusim.cumsum, SQUARE[0]),
                partial(tcusim.segmented_cumsum, SQUARE[0], 2),
                partial(tcusim.plan, "cumsum", length=4),
            )
        ),
        (
            lambda: tcusim.plan("sum", length=4, include_initial=True),
            "include_initial is for scans, and 'sum' is none",
        ),
        *(
            (partial(tcusim.sum, np.float32(3), axis=axis), "out of range for an array of 0 dim")
            for axis in (1, -2, (0,))
        ),
        *(
            (
                partial(call, np.ones(256, np.float32), options={"algorithm": name, "arch": arch}),
                f"rounds partial sums to float16, and on {arch}, which has",
            )
            for call, name, arch in (
                (tcusim.sum, "reduction_256", "volta"),
                (tcusim.sum, "reduction_256n", "turing"),
                (tcusim.cumsum, "scan_256", "volta"),
            )
        ),
    ],
)
def test_whatever_cannot_be_used_is_an_input_error(call: Any, text: str) -> None:
    for _ in range(2):
        with pytest.raises(InputError) as caught:
            call()
        assert text in str(caught.value)


# --- Exact sums in pieces -------------------------------------------------------------------------

CASES = int(os.environ.get("TCUSIM_BITS_CASES", "0"))
examples = settings(max_examples=CASES or 12, deadline=None, derandomize=not CASES, database=None)
INTEGERS = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
LENGTHS = st.integers(1, 700) | st.sampled_from([64, 127, 128, 129, 511, 512])


def scanned(x: NDArray[Any], initial: Any, wanted: Any, order: dict[str, bool]) -> NDArray[Any]:
    """Return NumPy's scan of a row in this order, behind an initial value."""
    turned = x[::-1] if order.get("reverse") else x
    first = np.array([initial % 2**64], np.uint64).astype(wanted)
    whole = np.cumsum(np.concatenate([first, turned.astype(wanted)]), dtype=wanted)
    part = whole[:-1] if order.get("exclusive") else whole[1:]
    return part[::-1] if order.get("reverse") else part


@st.composite
def cut_integers(draw: Any) -> tuple[NDArray[Any], list[int] | int, dict[str, bool], Any]:
    """Return integers, segments by size or offsets, an order, and a result's type."""
    name, length = draw(st.sampled_from(INTEGERS)), draw(LENGTHS)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    if name == "bool":
        x = rng.random(length) < 0.9
    else:
        ends = np.iinfo(name)
        low, high = draw(st.sampled_from([(ends.min, ends.max), (max(-3, ends.min), 3)]))
        x = rng.integers(low, high, length, name, endpoint=True)
        if draw(st.booleans()):
            x[:] = high
    segments: Any = draw(st.integers(1, length))
    if draw(st.booleans()):
        inner = sorted(draw(st.lists(st.integers(0, length), max_size=8)))
        segments = [0, *inner, length]
    order = {name: draw(st.booleans()) for name in ("exclusive", "reverse")}
    return x, segments, order, draw(st.sampled_from([None, None, "int8", "uint16", "uint64"]))


@examples
@given(cut_integers(), st.sampled_from(["hopper", "volta"]), st.integers(-(2**63), 2**64 - 1))
@small_pieces(reduction=2**8, scan=2**7, least=2**4, part=2**4)
def test_integers_in_pieces_are_numpy_s(
    case: tuple[NDArray[Any], Any, dict[str, bool], Any], arch: str, initial: int
) -> None:
    x, segments, order, dtype = case
    usual = np.sum(x[:1], dtype=dtype).dtype
    initial %= 2 ** (8 * usual.itemsize - (usual.kind == "i"))
    by: Any = segments
    edges = segments
    if isinstance(segments, int):
        by = segments
        edges = [*range(0, x.size, segments), x.size]
    rows = [x[begin:end] for begin, end in itertools.pairwise(edges)]
    more: Any = {"dtype": dtype, "arch": arch}
    for found, expected in (
        (tcusim.sum(x, **asked(**more)), np.sum(x, dtype=usual)),
        (UNTYPED.cumsum(x, **asked(**more), **order), scanned(x, 0, usual, order)),
        (
            UNTYPED.cumsum(x, **asked(**more), **order, initial=initial),
            scanned(x, initial, usual, order),
        ),
        (
            tcusim.segmented_sum(x, by, **asked(**more)),
            np.array([row.sum(dtype=usual) for row in rows]),
        ),
        (
            UNTYPED.segmented_cumsum(x, by, **asked(**more), **order, initial=initial),
            np.concatenate([scanned(row, initial, usual, order) for row in rows]),
        ),
    ):
        assert found.dtype == usual
        np.testing.assert_array_equal(found, expected)


@examples
@given(cut_integers(), st.sampled_from(["C", "F", "strided"]), st.booleans())
@small_pieces(reduction=2**8, scan=2**7, least=2**4, part=2**4)
def test_integers_in_every_order_of_memory_and_into_out(
    case: tuple[NDArray[Any], Any, dict[str, bool], Any], memory: str, first: bool
) -> None:
    x, _, _, dtype = case
    rows = np.resize(x, (3, x.size))
    rows = {"C": rows, "F": np.asfortranarray(rows), "strided": rows.repeat(2, 1)[:, ::-2]}[memory]
    axis = 0 if first else 1
    out = np.empty(rows.sum(axis, dtype=dtype).shape, rows.sum(axis, dtype=dtype).dtype)
    assert tcusim.sum(rows, axis=axis, dtype=dtype, out=out) is out
    np.testing.assert_array_equal(out, rows.sum(axis, dtype=dtype))
    scan = UNTYPED.cumsum(rows, axis=axis, dtype=dtype)
    np.testing.assert_array_equal(scan, np.cumsum(rows, axis=axis, dtype=dtype))
    assert scan.dtype == np.cumsum(rows, axis=axis, dtype=dtype).dtype


@pytest.mark.parametrize(
    ("dtype", "name", "most"),
    [("int8", "sum", 2), ("uint8", "cumsum", 3), ("int16", "cumsum", 3)],
)
def test_integers_take_little_memory(dtype: str, name: str, most: int) -> None:
    """Beyond input and result, once the programs are there."""
    x = np.ones(2**23 if name == "sum" else 2**22, dtype)
    getattr(tcusim, name)(x)
    tracemalloc.start()
    try:
        result = getattr(tcusim, name)(x)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert np.ravel(result)[-1] == x.size
    assert (peak - result.nbytes) / x.size <= most


@pytest.mark.full
def test_a_sum_of_more_integers_than_int32_holds() -> None:
    for x in (np.full(2**28, 127, np.int8), np.broadcast_to(np.int8(-128), 2**28)):
        assert tcusim.sum(x) == int(x[0]) * 2**28


# --- Float32 down to its smallest number ----------------------------------------------------------

ARCHS = ("volta", "turing", "ampere", "ada", "hopper", "blackwell", "blackwell_rtx")
WITH_BF16 = ARCHS[2:]
# Of every exponent; 1 + 2**-23 has its last bit as far down as it goes.
EXPONENTS = np.arange(0, -150, -1)
SIGNIFICANDS = np.array([1.2345678, -(1 + 2**-23), 2 - 2**-23], np.float32)
EVERY_SIZE = np.ldexp(SIGNIFICANDS[:, None], EXPONENTS).astype(np.float32).ravel()


@pytest.mark.parametrize("arch", ARCHS)
def test_products_keep_every_bit_of_float32_operands(arch: str) -> None:
    x, one = EVERY_SIZE, np.ones((1, 1), np.float32)
    for found in (
        tcusim.matmul(x[:, None], one, options={"arch": arch})[:, 0],
        tcusim.matmul(one, x[None], options={"arch": arch})[0],
        tcusim.matvec(x[:, None], one[0], options={"arch": arch}),
    ):
        assert same_bits(found, x)
    # Of a power of two, the result is a number of ordinary size.
    small = x[np.abs(x) < 2.0**-100]
    large = tcusim.matmul(small[:, None], one * np.float32(2.0**120), options={"arch": arch})[:, 0]
    assert same_bits(large, small * np.float32(2.0**120))
    # The initial value is added before the one rounding.
    added = tcusim.matmul(x[:, None], one, x[:, None], options={"arch": arch})[:, 0]
    assert same_bits(added, (2 * x.astype(np.float64)).astype(np.float32))


@pytest.mark.parametrize("arch", ["ampere", "hopper"])
def test_small_operands_change_no_other_bits(arch: str) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(shape, np.float32) for shape in ((20, 40), (40, 24)))
    before = tcusim.matmul(a, b, options={"arch": arch})
    a[7] *= np.float32(2.0**-112)
    a[9, 3] = np.float32(2.0**-149)
    a[11, 3], a[11, 4] = np.float32(2.0**120), np.float32(2.0**-149)
    b[:, 5] *= np.float32(2.0**-112)
    after = tcusim.matmul(a, b, options={"arch": arch})
    rows, columns = [i for i in range(20) if i not in (7, 9, 11)], [j for j in range(24) if j != 5]
    assert same_bits(after[np.ix_(rows, columns)], before[np.ix_(rows, columns)])
    # Powers of two change no bits of a sum either, if it stays a normal number.
    assert same_bits(after[7, columns] * np.float32(2.0**112), before[7, columns])
    assert same_bits(after[rows, 5], (before[rows, 5] * np.float32(2.0**-112)))
    true = a.astype(np.float64) @ b.astype(np.float64)
    sizes = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    assert (np.abs(after - true) <= 1e-6 * sizes + 2.0**-149).all()


def test_small_and_large_operands_of_one_row() -> None:
    """A sum that scaling makes infinite is computed of factors that are scaled down."""
    tiny, large = 2.0**-149, 2.0**100
    a = np.array([[large, tiny], [0, tiny]], np.float32)
    b = np.array([[large, 1, 0], [0, 2.0**120, 2.0**120]], np.float32)
    for size in (large, 1.5 * 2.0**127):
        a[0, 0] = b[0, 0] = size
        expected = a.astype(np.float64) @ b.astype(np.float64)
        # A value 2**259 below the largest of its row does not fit beside it.
        expected[0, 2] *= size == large
        with np.errstate(over="ignore"):
            assert same_bits(
                tcusim.matmul(a, b, options={"arch": "hopper"}), expected.astype(np.float32)
            )


@pytest.mark.parametrize("arch", WITH_BF16)
def test_named_sums_and_scans_keep_every_bit_of_small_numbers(arch: str) -> None:
    x = np.zeros((EVERY_SIZE.size, 16), np.float32)
    x[:, 5] = EVERY_SIZE
    sums = tcusim.segmented_sum(x, 16, options={"algorithm": "reduction_kn", "arch": arch})
    assert same_bits(sums.ravel(), EVERY_SIZE)
    scans = tcusim.segmented_cumsum(x, 16, options={"algorithm": "scan_kn", "arch": arch})
    expected = np.where(np.arange(16) >= 5, EVERY_SIZE[:, None], np.float32(0))
    assert same_bits(scans.reshape(expected.shape), expected)


def test_named_sums_of_small_numbers_beside_large_ones() -> None:
    tiny = np.float32(1.2345678e-42)
    x = np.zeros((4, 16), np.float32)
    x[0, :2], x[1, :2], x[2, :2], x[3, 0] = (tiny, 1), (tiny, 2.0**120), (tiny, 3.3e38), tiny
    sums = tcusim.segmented_sum(
        x, 16, options={"algorithm": "reduction_kn", "arch": "hopper"}
    ).ravel()
    assert same_bits(sums, np.array([1, 2.0**120, 3.3e38, tiny], np.float32))
    alone = tcusim.segmented_sum(x[:3, 1:].copy(), 15, options={"arch": "hopper"}).ravel()
    assert same_bits(alone, sums[:3])


# --- Arithmetic of a user's own -------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Fused, Sequential, Exact, Integer])
def test_integers_are_exact_or_refused_by_every_arithmetic(kind: type[Numerics]) -> None:
    rng = np.random.default_rng(5)
    ab, acc = ("s8", "s32") if kind is Integer else ("f16", "f32")
    x = rng.integers(-128, 128, 600).astype(np.int8)
    x[:300] = 127
    a, b = x.reshape(4, 150).astype(np.int32) * 251, x.reshape(150, 4)
    done = set()
    for turn in range(20):
        try:
            rule = Rule(ab, acc, drawn_part(rng, kind, 0.7), "a test", "none")
        except InputError:
            continue
        name = f"{kind.__name__.lower()}{turn}"
        register_arch(Arch(name, name, (), (), (rule,), "a test"))
        options = {"arch": name, "tile": ("16x16x16", "4x5x12")[turn % 2]}
        results: dict[str, tuple[Callable[[], Any], Any]] = {
            "scan": (partial(tcusim.cumsum, x, options=options), np.cumsum(x)),
            "sum": (partial(tcusim.segmented_sum, x, 150, options=options), a.sum(1) // 251),
            "product": (partial(tcusim.matmul, a, b, options=options), a @ b.astype(np.int64)),
            "once": (
                partial(tcusim.sum, x / np.float32(8), options=options | {"bits": "exact"}),
                np.float32(x.sum() / 8),
            ),
        }
        for what, (call, expected) in results.items():
            try:
                result = call()
            except Unsupported as error:
                assert f"{name} keeps too few bits of a sum" in str(error)  # noqa: PT017
                done.add((what, "refused"))
                continue
            assert np.array_equal(result, expected), (what, rule)
            done.add((what, "exact"))
    ways = ("exact", "refused") if kind in (Fused, Integer) else ("exact",)
    assert done >= set(itertools.product(("scan", "sum", "product"), ways))


def test_a_plan_follows_the_arithmetic_of_a_unit_that_is_read_again(tmp_path: Path) -> None:
    path, x = tmp_path / "again.toml", np.full(64, 127, np.int8)
    segments = tcusim.Segments([0, 10, 64])
    for bits, is_exact in ((24, True), (6, False), (24, True)):
        path.write_text(f'tiles = "16x16x16"\nfraction_bits = {bits}\n')
        with tcusim.options(arch=tcusim.unit_of(path).name):
            for call in (
                lambda: tcusim.cumsum(x)[-1],
                lambda: tcusim.segmented_sum(x, segments).sum(),
                lambda: tcusim.plan("sum", length=64, dtype="int8")(x),
            ):
                with (
                    nullcontext() if is_exact else pytest.raises(Unsupported, match="too few bits")
                ):
                    assert call() == 64 * 127


def test_a_plan_that_is_kept_is_refused_once_its_unit_has_other_arithmetic(tmp_path: Path) -> None:
    path, x = tmp_path / "other.toml", np.full(64, 127, np.int8)
    kept = []
    for bits in (24, 24, 6):
        path.write_text(f'tiles = "16x16x16"\nfraction_bits = {bits}\n')
        arch = tcusim.unit_of(path).name
        if bits == 24:
            kept.append(tcusim.plan("sum", length=64, dtype="int8", options={"arch": arch}))
            assert [plan(x) for plan in kept] == [64 * 127] * len(kept)
    with pytest.raises(InputError, match="arithmetic of other has changed since this plan was"):
        kept[0](x)
