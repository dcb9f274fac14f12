"""Products of arrays in GPU memory: the bits of NumPy arrays, and plans of them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tcusim
from device_standin import OnGpu, StandIn, assert_bits, halves
from tcusim.arrays.report import Report
from tcusim.errors import InputError, Unsupported


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    ("left", "right"),
    [((5, 7), (7, 9)), ((5, 7), (7,)), ((7,), (7, 9)), ((7,), (7,)), ((2, 3, 7), (7, 40)),
     ((40, 70), (70, 1)), ((2, 3, 7), (7,))],
)  # fmt: skip
def test_products_have_the_bits_of_numpy_arrays(
    device: StandIn, left: tuple[int, ...], right: tuple[int, ...], dtype: Any
) -> None:
    a, b = halves(*left).astype(dtype), halves(*right).astype(dtype)
    expected = tcusim.matmul(a, b, options={"arch": "ada"})
    assert_bits(tcusim.matmul(OnGpu(a), OnGpu(b)), expected)
    c = halves(*expected.shape).astype(dtype)
    result = tcusim.matmul(OnGpu(a), OnGpu(b), OnGpu(c))
    assert_bits(result, tcusim.matmul(a, b, c, options={"arch": "ada"}))
    if len(left) > 1 and len(right) == 1:
        assert_bits(tcusim.matvec(OnGpu(a), OnGpu(b)), tcusim.matvec(a, b, options={"arch": "ada"}))
    assert device.copies == 0


@pytest.mark.parametrize(
    ("left", "right"), [((5, 7), (3, 7)), ((2, 5, 70), (2, 70)), ((4, 1, 5, 7), (3, 7))]
)
def test_stacked_vectors(device: StandIn, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, x = halves(*left), halves(*right)
    expected = tcusim.matvec(a, x, options={"arch": "ada"})
    assert_bits(tcusim.matvec(OnGpu(a), OnGpu(x)), expected)
    c = OnGpu(halves(*expected.shape))
    out = OnGpu(np.full_like(expected, np.nan))
    assert tcusim.matvec(OnGpu(a), OnGpu(x), c, out=out) is out
    assert_bits(out, tcusim.matvec(a, x, c.values, options={"arch": "ada"}))
    one = a.reshape(-1, *a.shape[-2:])[-1]
    # Each product has the bits that it has alone.
    np.testing.assert_array_equal(
        tcusim.matvec(one, x[-1], options={"arch": "ada"}), expected.reshape(-1, a.shape[-2])[-1]
    )


@pytest.mark.parametrize(
    ("left", "right"),
    [((3, 5, 7), (3, 7, 9)), ((5, 7), (2, 3, 7, 9)), ((7,), (3, 7, 4)), ((4, 1, 5, 7), (3, 7, 1)),
     ((1, 20, 30), (1, 30, 20)), ((2, 1, 7), (3, 1, 7, 2))],
)  # fmt: skip
def test_products_of_several_right_matrices(
    device: StandIn, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    for dtype in ("float16", "float32"):
        a, b = halves(*left).astype(dtype), halves(*right).astype(dtype)
        expected = tcusim.matmul(a, b, options={"arch": "ada"})
        report = Report()
        device.runs.clear()
        assert_bits(
            tcusim.matmul(OnGpu(a), OnGpu(b), options={"stream": 5, "report": report}), expected
        )
        count = np.prod(np.broadcast_shapes(left[:-2], right[:-2]))
        assert [stream for _, stream in device.runs] == [5] * count
        assert report.launches == count
        c = halves(*expected.shape).astype(dtype)
        out = OnGpu(np.full_like(c, np.nan))
        assert tcusim.matmul(OnGpu(a), OnGpu(b), OnGpu(c), out=out) is out
        assert_bits(out, tcusim.matmul(a, b, c, options={"arch": "ada"}))
    assert len(device.prepared) == 4
    assert device.copies == 0
    nothing = OnGpu(np.zeros((0, *right[-2:]), np.float16))
    if len(right) == 3 and len(left) < 3:
        result = tcusim.matmul(OnGpu(halves(*left)), nothing)
        assert_bits(result, np.zeros((0, *left[-2:-1], right[-1]), np.float16))


def test_products_of_int8(device: StandIn) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((20, 300), (300, 7)))
    exact = (a.astype(int) @ b.astype(int)).astype(np.int32)
    assert_bits(tcusim.matmul(OnGpu(a), OnGpu(b)), exact)
    assert_bits(tcusim.matvec(OnGpu(a), OnGpu(b[:, 0].copy())), exact[:, 0])


def test_products_of_other_types_and_layouts(device: StandIn) -> None:
    a, b = halves(30, 20), halves(30, 10)
    result = tcusim.matmul(OnGpu(a.T), OnGpu(b), dtype="float32")
    assert_bits(result, tcusim.matmul(a.T, b, dtype="float32", options={"arch": "ada"}))
    assert device.copies == 1
    result = tcusim.matmul(
        OnGpu(a.T), OnGpu(b), dtype="float64", options={"algorithm": "gemm_naive"}
    )
    assert_bits(
        result,
        tcusim.matmul(a.T, b, dtype="float64", options={"algorithm": "gemm_naive", "arch": "ada"}),
    )
    literal = tcusim.matvec(OnGpu(b), OnGpu(b[0].copy()), options={"acc": "f16"})
    assert_bits(literal, tcusim.matvec(b, b[0], options={"acc": "f16", "arch": "ada"}))


def test_out_stream_and_report_of_products(device: StandIn) -> None:
    a, x = halves(40, 30), halves(30)
    out, report = OnGpu(np.empty(40, np.float16)), Report()
    assert (
        tcusim.matvec(OnGpu(a), OnGpu(x), out=out, options={"stream": 5, "report": report}) is out
    )
    assert_bits(out, tcusim.matvec(a, x, options={"arch": "ada"}))
    assert device.runs[-1][1] == 5
    assert (report.arch, report.launches) == ("ada", 1)
    assert report.bytes_read >= a.nbytes
    tcusim.matvec(OnGpu(a), OnGpu(x))
    assert len(device.prepared) == 1
    for name in ("matmul", "matvec"):
        function: Any = getattr(tcusim, name)
        with pytest.raises(InputError, match="stream= is for arrays in GPU memory"):
            function(a, x, options={"stream": 5})


def test_products_of_nothing(device: StandIn) -> None:
    a, b = np.zeros((3, 0), np.float16), np.zeros((0, 4), np.float16)
    assert_bits(tcusim.matmul(OnGpu(a), OnGpu(b)), np.zeros((3, 4), np.float16))
    out: Any = OnGpu(np.zeros((3, 4), np.float16))
    with pytest.raises(Unsupported, match="out= and c for matrices without elements in GPU memory"):
        tcusim.matmul(OnGpu(a), OnGpu(b), out=out)
    assert device.runs == []


def test_a_plan_of_a_product(device: StandIn) -> None:
    a, x = halves(40, 30), halves(30)
    plan = tcusim.plan_product("matvec", rows=40, inner=30, result="float32")
    expected = tcusim.matvec(a, x, dtype="float32")
    np.testing.assert_array_equal(plan(a, x), expected)
    for number in range(2):
        assert_bits(
            plan(OnGpu(a), OnGpu(x), stream=number),
            tcusim.matvec(a, x, dtype="float32", options={"arch": "ada"}),
        )
    assert [made.title for made in device.prepared] == [repr(plan)]
    assert repr(plan) == "Plan('matvec', (40, 30) by (30), float16 to float32: gemv_reduction)"
    text = str(plan)
    assert "launch 1  gemv_reduction: in, x -> out; " in text
    assert "why       gemv_reduction suits a vector on the right" in text
    assert plan.temporaries == ()
    assert not plan.in_place
    added = tcusim.plan_product("matmul", rows=6, inner=30, cols=8, add_c=True)
    b, c = halves(30, 8), halves(2, 3, 8)
    left = a[:6].reshape(2, 3, 30)
    np.testing.assert_array_equal(added(left, b, c), tcusim.matmul(left, b, c))
    named = tcusim.plan_product(
        "matmul", rows=6, inner=30, cols=8, options={"algorithm": "gemm_naive"}
    )
    assert "algorithm 'gemm_naive' was asked for" in str(named)
    assert named is tcusim.plan_product(
        "matmul", rows=6, inner=30, cols=8, options={"algorithm": "gemm_naive"}
    )


def test_what_a_plan_of_a_product_does_not_take(device: StandIn) -> None:
    plan = tcusim.plan_product("matmul", rows=4, inner=3, cols=2)
    a, b, c = halves(4, 3), halves(3, 2), halves(4, 2)
    for arguments, text in (
        ((a[:3], b), "this plan takes a of shape (4, 3), or with more axes and as many rows; got "
         "(3, 3). Make another plan"),
        ((a, b.T), "this plan takes b of shape (3, 2), got (2, 3); make another plan"),
        ((a, b, c), "this plan adds no array; leave c out, or make one with add_c=True"),
        ((a.astype("f4"), b), "this plan takes a of float16, got float32; make another plan, or "
         "cast the array"),
        ((OnGpu(a), b), "b is a numpy.ndarray, but a is in GPU memory; copy b there too"),
        ((a, OnGpu(b)), "a is a numpy.ndarray, but b is in GPU memory; copy a there too, or b to"),
    ):  # fmt: skip
        with pytest.raises(InputError) as caught:
            plan(*arguments)
        assert text in str(caught.value)
    adding = tcusim.plan_product("matmul", rows=4, inner=3, cols=2, add_c=True)
    with pytest.raises(InputError, match="this plan adds an array: give c"):
        adding(a, b)
